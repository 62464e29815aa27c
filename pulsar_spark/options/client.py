# SPDX-License-Identifier: Apache-2.0
"""The options that reads and writes share: how to reach a cluster, and the topic."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, fields

from pulsar_spark.options import names
from pulsar_spark.options.given import Given
from pulsar_spark.options.service_url import ServiceUrl, parse_service_url
from pulsar_spark.options.spec import OptionSpec, Scope, option, set_by
from pulsar_spark.options.values import (
    DAY_S,
    MILLI,
    NANO,
    integer,
    plain_text,
    seconds,
    size,
)

TOPIC = OptionSpec(
    "topic",
    None,
    names.topic,
    Scope.CLIENT,
    "One topic, or one partition as `topic-partition-0`. A read needs exactly one of"
    " `topic`, `topics` and `topicsPattern`. In a write it stands before the column"
    " `__topic`, and is needed without that column.",
)

_SERVICE_URL = OptionSpec(
    "service.url",
    None,
    parse_service_url,
    Scope.CLIENT,
    "Required. `pulsar://host:port`, several hosts by comma; the port is 6650 unless"
    " given.",
    ("serviceUrl", "pulsar.client.serviceUrl"),
)


@dataclass(frozen=True)
class ClientOptions:
    """How to reach the brokers. Durations are seconds."""

    service_url: ServiceUrl = field(metadata=set_by(_SERVICE_URL))
    operation_timeout_s: float = option(
        "pulsar.client.operationTimeoutMs",
        "30000",
        seconds(MILLI, DAY_S),
        Scope.CLIENT,
        "Longest wait for the answer to a request, in milliseconds.",
    )
    connection_timeout_s: float = option(
        "pulsar.client.connectionTimeoutMs",
        "10000",
        seconds(MILLI, DAY_S),
        Scope.CLIENT,
        "Longest wait for a connection to one host, and again for its handshake, in "
        "milliseconds.",
    )
    lookup_timeout_s: float = option(
        "pulsar.client.lookupTimeoutMs",
        "30000",
        seconds(MILLI, DAY_S),
        Scope.CLIENT,
        "Time for the lookup of a topic, in milliseconds; after that no further try "
        "begins.",
    )
    keep_alive_interval_s: float = option(
        "pulsar.client.keepAliveIntervalSeconds",
        "30",
        seconds(1, DAY_S),
        Scope.CLIENT,
        "Silence after which a connection is probed.",
    )
    initial_backoff_s: float = option(
        "pulsar.client.initialBackoffIntervalNanos",
        "100000000",
        seconds(NANO, DAY_S),
        Scope.CLIENT,
        "Pause before the first retry, in nanoseconds.",
    )
    max_backoff_s: float = option(
        "pulsar.client.maxBackoffIntervalNanos",
        "60000000000",
        seconds(NANO, DAY_S),
        Scope.CLIENT,
        "Longest pause between two retries, in nanoseconds.",
    )
    max_lookup_redirects: int = option(
        "pulsar.client.maxLookupRedirects",
        "20",
        integer(0, 1000),
        Scope.CLIENT,
        "Most redirects of one lookup.",
    )
    memory_limit_bytes: int = option(
        "pulsar.client.memoryLimitBytes",
        "64m",
        size(1 << 20, 1 << 40),
        Scope.CLIENT,
        "Bytes of messages that one Python worker may hold.",
    )
    stats_interval_s: float = option(
        "pulsar.client.statsIntervalSeconds",
        "60",
        seconds(1, DAY_S, minimum=0),
        Scope.CLIENT,
        "Seconds between two lines of statistics of a task; 0 for none, and for no"
        " line about a whole write: see [Statistics](cluster.md#statistics).",
    )
    listener_name: str | None = option(
        "pulsar.client.listenerName",
        None,
        plain_text,
        Scope.CLIENT,
        "Advertised listener whose addresses brokers are asked for.",
    )

    @property
    def pool_key(self) -> tuple[Hashable, ...]:
        """Return a key: options with equal keys may share one pool of connections.

        It is all that a connection, or a request on it, depends on. Whatever proves
        who connects must come in by the name that it proves, never by its secret: a
        token that is renewed does not make another pool.
        """
        return tuple(
            getattr(self, field.name)
            for field in fields(self)
            if field.name != "stats_interval_s"  # only tasks ask for it
        )


# Instead of an address that is missing or has a problem, while others are looked for.
_NOWHERE = ServiceUrl("pulsar", ())


def client_options(given: Given) -> ClientOptions:
    """Make the options of the client, adding problems to those of `given`."""
    if "service.url" not in given:
        given.problems.append(
            "service.url is required, such as pulsar://localhost:6650."
        )
    client = given.fill(ClientOptions, service_url=given["service.url"] or _NOWHERE)
    if client.initial_backoff_s > client.max_backoff_s:
        given.problems.append(
            "pulsar.client.initialBackoffIntervalNanos must not be above"
            " pulsar.client.maxBackoffIntervalNanos."
        )
    return client
