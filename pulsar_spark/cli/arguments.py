# SPDX-License-Identifier: Apache-2.0
"""What every command is given: the options of the connector, and how to print.

No text that a user gave for an option is ever shown: it may be a secret, also if it
is in the wrong place, see `Parser.error`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

from pulsar_spark.cli.admin import Admin, check_admin_url
from pulsar_spark.cli.output import complain
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.errors import OptionError, foreign_text
from pulsar_spark.options import (
    CommonOptions,
    ReadOptions,
    canonical_name,
    has_option,
    parse_common_options,
    parse_read_options,
)
from pulsar_spark.options.client import DEFAULT_PREFIX
from pulsar_spark.options.failover import NAME as FAILOVER
from pulsar_spark.topics import TopicName
from spark_topics.text import without_value

#: How a command ends: all is well; something is wrong or could not be done; it was
#: asked for in a way that cannot be.
DONE, FAILED, MISUSED = 0, 1, 2

#: Environment variable with the path of a file of options.
OPTIONS_VARIABLE = "PULSAR_SPARK_OPTIONS"

_OPTIONS = """\
options of the connector:
  -o and --options take what a job gives to .option(...), in the same spelling; later
  ones win. PULSAR_SPARK_OPTIONS in the environment names a file that comes first. Let
  secrets be where they are: authParams=token:file:/path or token:env:NAME; what stands
  on a command line is seen by everybody on the machine.

exit codes:
  0 done, or nothing to do; 1 something is wrong, or was refused; 2 wrong usage
"""

_HIDDEN = "hidden, for it may be secret; a topic is given as -o topic=NAME"


class Parser(argparse.ArgumentParser):
    """Says how a command is used, and shows no value that was given with ``=``."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("allow_abbrev", False)
        settings["formatter_class"] = argparse.RawDescriptionHelpFormatter
        super().__init__(**settings)
        self._given: Sequence[str] = ()

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse the arguments, and keep the arguments for `error`.

        A command refuses what it does not know: else its usage would not be shown.
        """
        self._given = list(sys.argv[1:] if args is None else args)
        values, others = super().parse_known_args(args, namespace)
        if others:
            self.error(f"unrecognized arguments: {' '.join(others)}")
        return values, others

    def error(self, message: str) -> NoReturn:
        """Exit with the message, without parts that may be secret."""
        complain(f"{self.format_usage()}{self.prog}: {self._without_values(message)}")
        sys.exit(MISUSED)

    def _without_values(self, message: str) -> str:
        """Put ``...`` for what follows a ``=`` or a ``:`` of what was given.

        And for words that are too many: a space may have cut one from its value.
        """
        before, too_many, words = message.partition("unrecognized arguments: ")
        if too_many:
            shown = [word if word.startswith("--") else "..." for word in words.split()]
            message = f"{before}{too_many}{' '.join(shown)}"
            if "..." in shown:
                message += f" ({_HIDDEN})"
        for text in sorted(self._given, key=len, reverse=True):
            position = min((text.index(c) for c in "=:" if c in text), default=-1)
            if position >= 0:
                for form in (repr(text), text):
                    message = message.replace(form, f"{text[: position + 1]}...")
        return foreign_text(message, 2000)


def add_options(parser: argparse.ArgumentParser, *, admin: str = "") -> None:
    """Add what says where a cluster is, and who asks.

    Args:
        parser: Of a command.
        admin: What the admin REST is needed for; "" if it is not.
    """
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "-o",
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="given",
        help="an option of the connector, such as service.url=pulsar://host:6650",
    )
    group.add_argument(
        "--options",
        action="append",
        default=[],
        metavar="FILE",
        dest="files",
        help="a file of options: a JSON object of strings, or lines NAME=VALUE",
    )
    if admin:
        group.add_argument(
            "--admin-url",
            metavar="URL",
            default="",
            help=f"http://host:8080 or https://host:8443: {admin}",
        )
    parser.add_argument("--json", action="store_true", help="print JSON, not a table")
    parser.epilog = f"{parser.epilog or ''}\n\n{_OPTIONS}".lstrip()


def add_execute(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the switch without which nothing is changed."""
    parser.add_argument(
        "--yes",
        "--execute",
        action="store_true",
        dest="execute",
        help=f"{what}; without it the command only says what it would do",
    )


def given_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options of the connector that a command was given.

    The last value of an option counts, however its name is spelled.

    Raises:
        OptionError: A file or an argument has none; shows no value.
    """
    pairs: list[tuple[str, str]] = []
    if path := os.environ.get(OPTIONS_VARIABLE, "").strip():
        pairs += _options_of(path, OPTIONS_VARIABLE).items()
    for path in arguments.files:
        pairs += _options_of(path).items()
    for text in arguments.given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise OptionError(
                "-o takes NAME=VALUE, such as service.url=pulsar://host:6650."
            )
        pairs.append((name.strip(), value))
    last = {canonical_name(name): (name, value) for name, value in pairs}
    return dict(last.values())


def _options_of(path: str, named_by: str = "--options") -> dict[str, str]:
    try:
        with open(path, encoding="utf-8-sig") as file:  # editors may mark it
            text = file.read()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise OptionError(f"{named_by} {path} cannot be read: {why}.") from None
    if text.lstrip().startswith("{"):
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            where = f" at line {error.lineno}" if hasattr(error, "lineno") else ""
            raise OptionError(f"{named_by} {path} is no JSON{where}.") from None
        return {str(name): _text(name, value) for name, value in content.items()}
    options = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise OptionError(
                f"{named_by} {path}, line {number}: it has no NAME=VALUE."
            )
        options[name.strip()] = value.strip()
    return options


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)):
        return str(value)
    raise OptionError(f"--options: {name} must be a text or a number.")


class Cluster:
    """The cluster that a command is about. As a context manager it lets go of it.

    Args:
        options: Of the connector.
        admin_url: Where its admin REST is, "" where that was not said.

    Attributes:
        options: The same, checked.
        pool: Connections to its brokers.
        admin: Its admin REST, None where no one said where that is.

    Raises:
        OptionError: The options cannot work.
    """

    def __init__(self, options: CommonOptions, admin: Admin | None) -> None:
        self.options = options
        self.pool = ConnectionPool(options.client)
        self.admin = admin

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.close()


def given_read(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options of a read that a command was given.

    Raises:
        OptionError: There are none, or not rightly.
    """
    given = given_options(arguments)
    if not given:
        raise OptionError(
            "Say what to read: -o service.url=pulsar://host:6650 -o topic=NAME."
        )
    return given


def stream_with_ends(arguments: argparse.Namespace) -> ReadOptions | None:
    """Return the options of a stream that has an end, None for a stream without.

    Raises:
        OptionError: The options of the stream cannot work.
    """
    given = given_options(arguments)
    if not {"endingOffsets", "endingTime"} & set(map(canonical_name, given)):
        return None
    return parse_read_options(given, streaming=True, quiet=True)


def cluster_of(arguments: argparse.Namespace) -> Cluster:
    """Return the cluster that the arguments of a command name.

    Raises:
        OptionError: They do not, or not rightly.
    """
    options = given_options(arguments)
    url = _admin_url(arguments, options)
    common = parse_common_options(options)
    return Cluster(common, admin_of(url, options) if url else None)


def admin_of(url: str, given: Mapping[str, str]) -> Admin:
    """Return the admin REST at an address, asked as options say who asks.

    ``service.url`` may be missing, and TLS goes by the address. Other clusters play no
    part.

    Raises:
        OptionError: The options cannot work, a credential would be readable on its way,
            although brokers are not spoken to like that, or a certificate not be shown.
    """
    url = check_admin_url(url)
    is_https = url.startswith("https:")
    options = {n: v for n, v in given.items() if canonical_name(n) != FAILOVER}
    names = [name for name in options if canonical_name(name) == "service.url"]
    is_plain = any(options[n].strip().startswith("pulsar://") for n in names)
    if is_https or not names:
        for name in names:
            del options[name]
        options["service.url"] = "pulsar+ssl://admin"  # with which all of TLS goes
    return Admin(url, parse_common_options(options).client, may_be_plain=is_plain)


def admin_only(arguments: argparse.Namespace) -> Admin:
    """Return the admin REST of a command that needs nothing else.

    Raises:
        OptionError: The arguments do not say where the cluster is.
    """
    options = given_options(arguments)
    url = _admin_url(arguments, options)
    if not url:
        raise OptionError(
            "--admin-url is required, such as http://localhost:8080: only the admin"
            " REST tells this, the binary protocol does not."
        )
    return admin_of(url, options)


def subscription_prefix(arguments: argparse.Namespace) -> str:
    """Return how the names of subscriptions begin, by the options given."""
    for name, value in given_options(arguments).items():
        if canonical_name(name) == "subscriptionPrefix" and value.strip():
            return value.strip()
    return DEFAULT_PREFIX


def _admin_url(arguments: argparse.Namespace, given: Mapping[str, str]) -> str:
    named = (v for name, v in given.items() if canonical_name(name) == "admin.url")
    return str(getattr(arguments, "admin_url", "") or next(named, ""))


def topic_names(texts: Iterable[str]) -> list[TopicName]:
    """Return the topics that a command names.

    Raises:
        OptionError: A text is no such name, or looks like an option without ``-o``,
            whose value is not shown.
    """
    topics = []
    for text in texts:
        shown = without_value(text)
        is_full = text.strip().startswith(("persistent://", "topic://"))
        if shown is not None and (not is_full or has_option(text)):
            raise OptionError(
                f"{shown} is no topic: put -o before an option. A name with = or : in "
                "it is given in full, as persistent://tenant/namespace/name."
            )
        topics.append(TopicName.parse(text))
    return topics
