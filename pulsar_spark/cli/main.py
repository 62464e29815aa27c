# SPDX-License-Identifier: Apache-2.0
"""The entry point of the command line: find and run a command.

The commands are imported late: where a package is missing, `main` says so.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pulsar_spark._version import __version__
from pulsar_spark.cli.output import OutputError, complain, flushed
from pulsar_spark.errors import OptionError, PulsarSparkError
from pulsar_spark.requirements import require_packages
from spark_topics.text import shows, without_value

if TYPE_CHECKING:
    from pulsar_spark.cli.arguments import Parser

#: How a command ends, see ``arguments``.
_FAILED, _MISUSED = 1, 2


def parser() -> Parser:
    """Return what reads the command line."""
    from pulsar_spark.cli import (
        broker,
        checkpoint,
        doctor,
        lag,
        peek,
        plan,
        subscriptions,
        transactions,
    )
    from pulsar_spark.cli.arguments import Parser

    top = Parser(
        prog="pulsar-spark",
        description="Look at what streams and writes of pulsar-spark leave, and mend "
        "it.\nNothing is changed without --yes.",
        epilog="example:\n  pulsar-spark doctor -o service.url=pulsar://localhost:6650 "
        "-o topic=public/default/orders",
    )
    top.add_argument("--version", action="version", version=__version__)
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for command in (
        doctor,
        plan,
        peek,
        lag,
        checkpoint,
        subscriptions,
        transactions,
        broker,
    ):
        command.add(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code.

    Args:
        arguments: What follows the program's name; None for what the process has.
    """
    try:
        with flushed():
            return _run(sys.argv[1:] if arguments is None else arguments)
    except OutputError as error:
        if str(error):
            complain(str(error))
        return _FAILED


def _run(arguments: Sequence[str]) -> int:
    try:
        require_packages()
        parsed = parser().parse_args(arguments)
        return int(parsed.run(parsed))
    except OptionError as error:
        for problem in error.problems or (error.message,):
            complain(_quotable(problem, arguments, is_misuse=True))
        return _MISUSED
    except PulsarSparkError as error:
        complain(_quotable(str(error), arguments, is_misuse=False))
        return _FAILED
    except KeyboardInterrupt:
        complain("Interrupted.")
        return _FAILED


#: What an option stands behind.
_IN_PLACE = "-o", "--option"

#: What a secret may stand behind.
_NAME_OF_SECRET = re.compile(
    r"(pulsar\.|auth|token|passw|secret|private|service\.?url|sasl)[\w.-]*\s*[=:]",
    re.IGNORECASE,
)


def _quotable(message: str, arguments: Sequence[str], *, is_misuse: bool) -> str:
    """Return an error's text without values of options that stand in a wrong place.

    Args:
        message: The error's text.
        arguments: All that was given.
        is_misuse: Whether an argument is wrong. Else names with ``:`` are shown.
    """
    for before, text in zip(("", *arguments), arguments, strict=False):
        value = text.partition("=")[2] if text.startswith("--") else text
        shown = without_value(value)
        may_be_secret = _NAME_OF_SECRET.search(value) is not None
        if shown is None or not (is_misuse or may_be_secret):
            continue
        may_be_secret |= shown.endswith("//...")  # the user of a URI
        is_in_place = before in _IN_PLACE or text.startswith(_IN_PLACE)
        if value in message:
            message = message.replace(value, shown)
        elif (
            may_be_secret
            and not is_in_place
            and shows(message, value.removeprefix(shown[:-3]))
        ):
            return (
                "An argument with an option in it, or with a user in a URI, is not "
                "shown: put -o before an option."
            )
    return message
