# SPDX-License-Identifier: Apache-2.0
"""What commands print: aligned tables for people, JSON for programs."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, TextIO

from pulsar_spark.errors import escaped_text

#: What stands in a table for what is not known.
UNKNOWN = "-"


class OutputError(Exception):
    """Output of a command cannot be written: a full disk, or a reader that ended."""


def say(text: str = "") -> None:
    """Print a line; foreign names cannot control the terminal.

    Raises:
        OutputError: It cannot be written.
    """
    with _writing():
        _write(sys.stdout, text)


def complain(text: str) -> None:
    """Print a line where errors go, if there is such a place."""
    try:
        _write(sys.stderr, text)
    except OSError:
        _give_up(sys.stderr)


def show_json(value: Mapping[str, Any]) -> None:
    """Print JSON.

    Raises:
        OutputError: It cannot be written.
    """
    say(json.dumps(value, indent=2))


@contextlib.contextmanager
def flushed() -> Iterator[None]:
    """Let all that was printed be written at the end, also where that is an exit.

    Raises:
        OutputError: It cannot be written.
    """
    try:
        yield
    finally:
        if sys.stdout is not None:
            with _writing():
                sys.stdout.flush()


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        _give_up(sys.stdout)
        is_left = isinstance(error, BrokenPipeError)  # its reader has had enough
        why = "" if is_left else f"The output cannot be written: {error.strerror}."
        raise OutputError(why) from None


def _give_up(stream: TextIO) -> None:
    """Send the rest nowhere.

    Else Python tries again when the process ends, which then has another exit code.
    """
    with open(os.devnull, "wb") as nowhere, contextlib.suppress(OSError):
        os.dup2(nowhere.fileno(), stream.fileno())


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:  # the process was started without
        return
    shown = "\n".join(map(escaped_text, text.split("\n"))) + "\n"
    encoding = stream.encoding or "utf-8"
    stream.write(shown.encode(encoding, "backslashreplace").decode(encoding))


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return rows below a head, in columns; numbers stand to the right.

    Args:
        head: Names of the columns.
        rows: Values; None for what is not known.
    """
    texts = [[escaped_text(_cell(value)) for value in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    to_the_right = [
        any(isinstance(row[index], int) for row in rows) for index in range(len(head))
    ]
    lines = []
    for row in texts:
        cells = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, to_the_right, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def size(size_bytes: int | None) -> str:
    """Return a size in readable form."""
    if size_bytes is None:
        return UNKNOWN
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} TiB"


def age(seconds: float | None) -> str:
    """Return an age in readable form."""
    if seconds is None:
        return UNKNOWN
    seconds = max(0, seconds)
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def moment(time_ms: int | None) -> str:
    """Return a time in milliseconds since 1970 as ISO 8601 in UTC."""
    if time_ms is None:
        return UNKNOWN
    try:
        time = datetime.fromtimestamp(time_ms / 1000, timezone.utc)
    except (OverflowError, OSError, ValueError):
        return UNKNOWN  # a producer's clock may say anything
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
