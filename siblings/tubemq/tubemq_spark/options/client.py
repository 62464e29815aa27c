# SPDX-License-Identifier: Apache-2.0
"""Options of every use: where the masters are, and how long to wait."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from spark_topics.errors import foreign_text
from spark_topics.options.given import Given
from spark_topics.options.spec import (
    OptionSpec,
    Parse,
    Scope,
    Support,
    option,
    set_by,
    specs_of,
)
from spark_topics.options.values import plain_text, seconds
from tubemq_spark.errors import OptionError
from tubemq_spark.options.patience import Patience
from tubemq_spark.options.secret import Secret
from tubemq_spark.options.tls import TlsOptions, tls_options

_DEFAULT_PORT, _DEFAULT_TLS_PORT = 8715, 8716
_MAX_PORT = 65535
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[-.\w]+)(?::0*([0-9]{1,5}))?", re.ASCII)
_TOPIC = re.compile(r"[A-Za-z][\w-]*", re.ASCII)
_GROUP = re.compile(r"[A-Za-z][\w-]+", re.ASCII)

#: What brokers take is 1024; a suffix of ours must fit, too.
_MAX_GROUP = 1000

_MAX_USER = 256


def masters(text: str, name: str) -> tuple[tuple[str, int | None], ...]:
    """Read ``host[:port],...`` as hosts and ports, None where there is none."""
    addresses = []
    for part in filter(None, map(str.strip, text.split(","))):
        match = _HOST.fullmatch(part)
        port = int(match[2]) if match and match[2] else None
        if match is None or not (port is None or 0 < port <= _MAX_PORT):
            # What has these may be a URL, and may have a password.
            is_url = any(mark in text for mark in ("@", "?", "//"))
            shown = "a URL" if is_url else repr(foreign_text(part))
            raise OptionError(
                f"{name} must be host:port of each master by comma, such as "
                f"10.0.0.7:{_DEFAULT_PORT}, not {shown}."
            )
        addresses.append((match[1], port))
    if not addresses:
        raise OptionError(f"{name} names no master.")
    return tuple(addresses)


def user(text: str, name: str) -> str:
    """Read the name of a user."""
    text = text.strip()
    if not text.isprintable() or len(text) > _MAX_USER:
        raise OptionError(
            f"{name} must be at most {_MAX_USER} characters that can be printed."
        )
    return text


def topics(text: str, name: str) -> tuple[str, ...]:
    """Read names of topics, by comma."""
    names = [part.strip() for part in text.split(",") if part.strip()]
    for topic in names:
        if _TOPIC.fullmatch(topic) is None:
            raise OptionError(
                f"{name} has {topic!r}, which cannot be a topic: letters, digits and "
                "underscores after a letter can."
            )
    if not names:
        raise OptionError(f"{name} names no topic.")
    return tuple(dict.fromkeys(names))


def topic(text: str, name: str) -> tuple[str, ...]:
    """Parse the name of a topic."""
    names = topics(text, name)
    if len(names) > 1:
        raise OptionError(
            f"{name} is for one topic, and names {len(names)}: reads take several by "
            "topics, and rows that are written may name theirs in __topic."
        )
    return names


def group(text: str, name: str) -> str:
    """Read the name of a consumer group."""
    text = text.strip()
    if _GROUP.fullmatch(text) is None or len(text) > _MAX_GROUP:
        raise OptionError(
            f"{name} must be letters, digits, underscores and hyphens after a letter, "
            f"two at least and {_MAX_GROUP} at most, not {text[:100]!r}."
        )
    return text


def milliseconds(minimum: int, maximum_s: int) -> Parse[float]:
    """Return a parser of milliseconds; values are seconds."""
    return seconds(0.001, maximum_s, minimum)


def refused(
    name: str, hint: str, *aliases: str, scope: Scope = Scope.CLIENT
) -> OptionSpec[str]:
    """Return an option that cannot be had, with the reason."""
    return OptionSpec(
        name,
        None,
        plain_text,
        scope,
        hint,
        aliases,
        support=Support.REFUSED,
        harmless=frozenset({"false", ""}),
        hint=hint,
    )


def ignored(name: str, doc: str) -> OptionSpec[str]:
    """Return an option that only other clients need and that is ignored."""
    return OptionSpec(
        name, None, plain_text, Scope.CLIENT, doc, support=Support.IGNORED
    )


#: Where the masters are: the one that every use must have.
MASTERS = OptionSpec(
    "master.rpc",
    None,
    masters,
    Scope.CLIENT,
    "Addresses of all masters, `host:port` by comma; the port is 8715 by default, with "
    "TLS 8716.",
    ("masterHostAndPort", "master"),
)


#: Which topic, for reads and writes.
TOPIC = OptionSpec(
    "topic",
    None,
    topic,
    Scope.CLIENT,
    "The topic. Where a write has none, each row names its own in `__topic`.",
)


@dataclass(frozen=True)
class ClientOptions:
    """How servers are reached.

    Attributes:
        masters: ``host:port`` of each.
        rpc_timeout_s: How long a server may take for a call.
        connect_timeout_s: Longest wait for a connection.
        operation_timeout_s: How long an operation is tried again, whatever fails.
        user: Who connects; None where the cluster does not ask.
        password: Of the user.
        tls: How connections are made safe, if at all.
        patience: How long to wait where no option says so.
    """

    masters: tuple[str, ...] = field(default=(), metadata=set_by(MASTERS))
    rpc_timeout_s: float = option(
        "rpc.timeout",
        "10000",
        milliseconds(1000, 600),
        Scope.CLIENT,
        "How long a server may take for one call, in milliseconds.",
        "rpcTimeoutMs",
    )
    connect_timeout_s: float = option(
        "connect.timeout",
        "3000",
        milliseconds(100, 300),
        Scope.CLIENT,
        "How long a connection may take, in milliseconds.",
    )
    operation_timeout_s: float = option(
        "operation.timeout",
        "60000",
        milliseconds(1000, 3600),
        Scope.CLIENT,
        "How long an operation is tried again while servers fail, in milliseconds.",
    )
    user: str | None = option(
        "usr.name",
        None,
        user,
        Scope.CLIENT,
        "Name of the user, where the masters ask for one.",
    )
    password: Secret | None = option(
        "usr.password",
        None,
        Secret.parse,
        Scope.CLIENT,
        "Password of the user: itself, `file:/path` or `env:NAME` on each node. It is "
        "never sent: what is sent is signed with it.",
    )
    tls: TlsOptions = field(default_factory=TlsOptions)
    patience: Patience = field(default_factory=Patience)


#: All of them but `MASTERS`, which stands before others.
CLIENT_SPECS = tuple(
    spec for spec in specs_of(ClientOptions, TlsOptions) if spec is not MASTERS
)


def client_options(given: Given) -> ClientOptions:
    """Parse the client's options; problems are added to ``given``."""
    if "master.rpc" not in given:
        given.problems.append("master.rpc is missing: host:port of the masters.")
    if ("usr.name" in given) is not ("usr.password" in given):
        given.problems.append("usr.name and usr.password belong together.")
    tls = tls_options(given)
    usual = _DEFAULT_TLS_PORT if tls.enable else _DEFAULT_PORT
    named = [f"{host}:{port or usual}" for host, port in given["master.rpc"] or ()]
    return given.fill(ClientOptions, masters=tuple(dict.fromkeys(named)), tls=tls)


IGNORED = (
    ignored("session.key", "Belongs to balancing by the master."),
    ignored("source.task.max.idle.time", "Tuning of Flink."),
    ignored("source.event.queue.capacity", "Tuning of Flink."),
)
REFUSED = (
    refused(
        "topicsPattern",
        "Masters list topics only by their web interface: name them by `topics`.",
        "topic-pattern",
    ),
)
