# SPDX-License-Identifier: Apache-2.0
"""The entry point of the command line: find and run a command.

The commands are imported late: where a package is missing, `main` says so.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pulsar_spark._version import __version__
from pulsar_spark.cli.output import OutputError, complain, flushed
from pulsar_spark.errors import OptionError, PulsarSparkError
from pulsar_spark.requirements import require_packages
from spark_topics.text import without_value

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
            complain(_quotable(problem, arguments))
        return _MISUSED
    except PulsarSparkError as error:
        complain(_quotable(str(error), arguments))
        return _FAILED
    except KeyboardInterrupt:
        complain("Interrupted.")
        return _FAILED


def _quotable(message: str, arguments: Sequence[str]) -> str:
    """Return an error's text without values of options that stand in a wrong place."""
    for text in arguments:
        value = text.partition("=")[2] if text.startswith("--") else text
        shown = without_value(value)
        if shown is not None:
            message = message.replace(value, shown)
    return message
