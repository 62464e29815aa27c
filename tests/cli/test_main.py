# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.cli.main`, and of what all commands share."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pulsar_spark import __version__
from pulsar_spark.cli import output
from tests.support.checkpoints import offset, write_checkpoint

if TYPE_CHECKING:
    from tests.cli.conftest import Run

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "command",
    ["doctor", "plan", "peek", "checkpoint", "lag", "subscriptions", "transactions"],
)
def test_help(run: Run, command: str) -> None:
    """Each command says how it is used, with an example that begins with it."""
    code, printed = run(command, "--help")
    assert code == 0
    assert "example" in printed
    assert f"\n  pulsar-spark {command} " in printed
    assert "exit codes" in printed


@pytest.mark.parametrize("arguments", [(), ("no-such-command",), ("doctor", "--no")])
def test_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    """It ends with 2."""
    code, printed = run(*arguments)
    assert code == 2
    assert "usage:" in printed


@pytest.mark.parametrize("command", ["doctor", "peek", "plan"])
def test_a_topic_by_position(run: Run, command: str) -> None:
    """The usage is that of the command, and the error says how topics are given."""
    code, printed = run(command, "public/default/t")
    assert code == 2
    assert f"usage: pulsar-spark {command} " in printed
    assert "a topic is given as -o topic=NAME" in printed


def test_words_that_a_space_has_cut_off(run: Run) -> None:
    """They may be a secret's: they are not shown, and a switch that is unknown is."""
    given = "pulsar.client.authParams=token:"
    code, printed = run("doctor", "--what", "-o", given, "very-secret")
    assert code == 2
    assert "--what" in printed
    assert "very-secret" not in printed
    assert "-o topic=NAME" in printed


def test_as_a_module() -> None:
    """``python -m pulsar_spark`` is the same, and imports no picture's library."""
    command = [sys.executable, "-X", "importtime", "-m", "pulsar_spark", "--version"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == __version__
    assert "matplotlib" not in done.stderr


def as_process(folder: Path, output: str, **variables: str) -> tuple[int, str]:
    """Run a command as a shell does; return the exit code, and what went to stderr.

    Args:
        folder: A checkpoint.
        output: Where a shell sends what is printed.
        variables: Of its environment.
    """
    own = {name: text for name, text in os.environ.items() if name != _UNBUFFERED}
    program = f"{shlex.quote(sys.executable)} -m pulsar_spark checkpoint"
    done = subprocess.run(
        ["bash", "-c", f"{program} {shlex.quote(str(folder))} {output}"],
        cwd=ROOT,
        env=own | variables,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stderr


_UNBUFFERED = "PYTHONUNBUFFERED"  # with it each line is written at once


@pytest.mark.parametrize(
    ("output", "code", "said"),
    [
        ("| true; exit ${PIPESTATUS[0]}", 1, ""),
        ("> /dev/full", 1, "The output cannot be written: No space left on device.\n"),
        ("--help > /dev/full", 1, "The output cannot be written: No space left"),
        (">&-", 0, ""),
        ("--no-such 2> /dev/full", 2, ""),
        ("--no-such 2>&-", 2, ""),
    ],
)
def test_output_that_cannot_be_written(
    tmp_path: Path, output: str, code: int, said: str
) -> None:
    """It ends with a code that is documented, and without a traceback."""
    end = offset({"persistent://public/default/t": "7:1"})
    folder = write_checkpoint(tmp_path / "c", {0: [end]}, 0)
    found, errors = as_process(folder, output)
    assert found == code
    assert errors.startswith(said)
    assert len(errors.splitlines()) == bool(said)


def test_a_name_that_the_output_does_not_have(tmp_path: Path) -> None:
    """It is escaped."""
    end = offset({"persistent://public/default/bücher": "7:1"})
    folder = write_checkpoint(tmp_path / "c", {0: [end]}, 0)
    printed = tmp_path / "printed"
    into = f"> {shlex.quote(str(printed))}"
    assert as_process(folder, into, PYTHONIOENCODING="ascii") == (0, "")
    assert "default/b\\xfccher" in printed.read_text()


def test_a_line_break_in_a_cell() -> None:
    """It is escaped: data cannot forge rows."""
    text = output.table(["A\nB", "C"], [["a\nb", 1]])
    assert text.splitlines() == ["A\\nB  C", "a\\nb  1"]


def test_table() -> None:
    """Numbers stand to the right, and what is not known is a dash."""
    text = output.table(["A", "NUMBER"], [["a", 1234567], ["bb", None], ["c", 5]])
    assert text.splitlines() == [
        "A      NUMBER",
        "a   1,234,567",
        "bb          -",
        "c           5",
    ]


def test_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    """Names of others do not control a terminal."""
    output.say("a\x1b[31mb\nc")
    assert capsys.readouterr().out == "a\\x1b[31mb\nc\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (1023, "1,023 B"),
        (1536, "1.5 KiB"),
        (1 << 44, "16.0 TiB"),
    ],
)
def test_size(value: int | None, text: str) -> None:
    """In units of 1024."""
    assert output.size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (-1.0, "0 s"),
        (119, "119 s"),
        (120, "2 m"),
        (7200, "2 h"),
        (2e6, "23 d"),
    ],
)
def test_age(value: float | None, text: str) -> None:
    """In the unit of which there are two."""
    assert output.age(value) == text


def test_moment() -> None:
    """Also of clocks that say anything."""
    assert output.moment(0) == "1970-01-01T00:00:00Z"
    assert output.moment(2**63) == output.moment(None) == "-"
