# SPDX-License-Identifier: Apache-2.0
"""The options that reads and writes share: how to reach a cluster, and the topic."""

from __future__ import annotations

import os
from collections.abc import Hashable
from dataclasses import dataclass, field, fields, replace

from pulsar_spark.options import names, patience
from pulsar_spark.options.authentication import (
    AuthenticationOptions,
    ClientCertificate,
    ClientKeyStore,
    Credential,
    authentication_options,
)
from pulsar_spark.options.failover import (
    NAME,
    Failover,
    check_failover,
    parse_failover,
)
from pulsar_spark.options.patience import Patience
from pulsar_spark.options.service_url import ServiceUrl, parse_service_url
from pulsar_spark.options.tls import (
    CERTIFICATE,
    KEY,
    KEY_STORE,
    TlsOptions,
    tls_options,
)
from spark_topics.options.given import Given
from spark_topics.options.spec import OptionSpec, Scope, option, set_by
from spark_topics.options.values import (
    DAY_S,
    MAX_INT,
    MILLI,
    NANO,
    integer,
    limit,
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
    "Required. `pulsar://host:port`, or `pulsar+ssl://host:port` for TLS; several hosts"
    " by comma. The port is 6650 unless given, with TLS 6651.",
    ("serviceUrl", "pulsar.client.serviceUrl"),
)


#: How names of subscriptions and readers begin.
DEFAULT_PREFIX = "spark-pulsar"

#: More than any worker has.
_MEMORY = 1 << 40


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
        "Longest wait for a connection to one host, the resolver's for its name "
        "included, and again for its handshake, in milliseconds.",
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
    connection_max_idle_s: float = option(
        "pulsar.client.connectionMaxIdleSeconds",
        "60",
        seconds(1, DAY_S, minimum=-1),
        Scope.CLIENT,
        "Seconds after which a connection is closed that nothing uses: no request, no"
        " reader, no producer; 0 or -1 for never. Where it is wanted again, it is"
        " opened anew.",
    )
    concurrent_lookup_request: int = option(
        "pulsar.client.concurrentLookupRequest",
        "5000",
        integer(1, MAX_INT),
        Scope.CLIENT,
        "Most questions about topics that one broker is asked at a time; more of them"
        " wait for these to be answered.",
    )
    max_lookup_request: int = option(
        "pulsar.client.maxLookupRequest",
        "50000",
        integer(1, MAX_INT),
        Scope.CLIENT,
        "The same for all brokers together.",
    )
    memory_limit_bytes: int = option(
        "pulsar.client.memoryLimitBytes",
        "64m",
        limit(size(1 << 20, _MEMORY), _MEMORY),
        Scope.CLIENT,
        "Bytes of messages that one Python worker may hold; 0 for no limit.",
    )
    stats_interval_s: float = option(
        "pulsar.client.statsIntervalSeconds",
        "60",
        seconds(1, DAY_S, minimum=0),
        Scope.CLIENT,
        "Seconds between two lines of statistics of a task; 0 for none, and for no"
        " line about a whole write: see [Where lines go](seeing.md#where-lines-go).",
    )
    listener_name: str | None = option(
        "pulsar.client.listenerName",
        None,
        plain_text,
        Scope.CLIENT,
        "Advertised listener whose addresses brokers are asked for.",
    )
    subscription_prefix: str = option(
        "subscriptionPrefix",
        DEFAULT_PREFIX,
        names.subscription,
        Scope.CLIENT,
        "Prefix of the names of all subscriptions, as topic statistics show them; also"
        " of the one that keeps the log of an exactly-once stream, which must not"
        " change while that stream lives.",
    )
    subscription_role_prefix: str | None = option(
        "pulsar.reader.subscriptionRolePrefix",
        None,
        plain_text,
        Scope.READ,
        "Prefix of the reader's own subscription name, instead of"
        " `subscriptionPrefix`.",
    )
    #: Clusters to choose from when that of `service_url` is down. None for no choice,
    #: and after the choice: the chosen cluster is then `service_url`.
    failover: Failover | None = option(
        NAME,
        None,
        parse_failover,
        Scope.CLIENT,
        "Other clusters for when that of `service.url` is down, for batch reads and for"
        " writes with `none` or `at-least-once`: a JSON object such as"
        ' `{"secondary": ["pulsar://b:6650"], "failoverDelayMs": 10000}`. See'
        " [Another cluster](limits.md#another-cluster-when-one-is-down).",
    )
    tls: TlsOptions = field(default_factory=TlsOptions)
    authentication: AuthenticationOptions = field(default_factory=AuthenticationOptions)
    patience: Patience = field(default_factory=lambda: patience.USUAL)

    @property
    def reader_prefix(self) -> str:
        """Return the prefix of the names of subscriptions that are not durable."""
        return self.subscription_role_prefix or self.subscription_prefix

    @property
    def pool_key(self) -> tuple[Hashable, ...]:
        """Return a key; options with equal keys may share a connection pool.

        It is all that a connection, or a request on it, depends on. What proves who
        connects comes in by what it is, never readably, nor by what a file has now: a
        token that is renewed does not make another pool.
        """
        # Only tasks ask for the first, and a pool is of one cluster.
        left_out = ("stats_interval_s", "failover", "authentication")
        values = [getattr(self, f.name) for f in fields(self) if f.name not in left_out]
        return self.authentication.identity, *values


# Instead of an address that is missing or has a problem, while others are looked for.
_NOWHERE = ServiceUrl("pulsar", ())


def client_options(given: Given) -> ClientOptions:
    """Parse the client's options; problems are added to ``given``."""
    if "service.url" not in given:
        given.problems.append(
            "service.url is required, such as pulsar://localhost:6650."
        )
    service_url = given["service.url"]
    # Where it is missing or wrong, options of TLS are no further problem.
    uses_tls = service_url is None or service_url.uses_tls
    authentication = authentication_options(given)
    client = given.fill(
        ClientOptions,
        service_url=service_url or _NOWHERE,
        authentication=authentication,
        tls=_showing(
            given, authentication.credential, tls_options(given, uses_tls=uses_tls)
        ),
    )
    if client.initial_backoff_s > client.max_backoff_s:
        given.problems.append(
            "pulsar.client.initialBackoffIntervalNanos must not be above"
            " pulsar.client.maxBackoffIntervalNanos."
        )
    if service_url is not None:
        check_failover(given, service_url, client.failover)
    return client


def _showing(
    given: Given, credential: Credential | None, tls: TlsOptions
) -> TlsOptions:
    """Have TLS show the certificate that a client is to be known by.

    Args:
        given: Where to add problems.
        credential: Who connects.
        tls: As its own options say.
    """
    if isinstance(credential, ClientCertificate):
        own = credential.certificate_path, credential.key_path, ""
        tls = replace(
            tls,
            certificate_path=credential.certificate_path or tls.certificate_path,
            key_path=credential.key_path or tls.key_path,
        )
    elif isinstance(credential, ClientKeyStore):
        own = "", "", credential.path
        if credential.path:
            tls = replace(
                tls,
                key_store_path=credential.path,
                key_store_password=credential.password,
            )
    else:
        return tls
    method = "pulsar.client.authPluginClassName"
    names = zip((CERTIFICATE, KEY, KEY_STORE), own, strict=True)
    surplus = [n for n, path in names if n in given and _differ(given[n] or "", path)]
    if any(own) and surplus:
        given.problems.append(
            f"{method} asks for the certificate that its parameters name, and"
            f" {surplus[0]} names another one: leave one of them out."
        )
    service_url = given["service.url"]
    if service_url is not None and not service_url.uses_tls:
        given.problems.append(
            f"{method} asks for a client certificate, which only TLS can show: begin"
            " service.url with pulsar+ssl://."
        )
    elif not (tls.certificate_path or tls.key_store_path):
        given.problems.append(
            f"{method} asks for a client certificate, and there is none: name it in"
            " pulsar.client.authParams, or by pulsar.client.tlsCertificateFilePath."
        )
    return tls


def _differ(path: str, other: str) -> bool:
    return os.path.normpath(path) != os.path.normpath(other)
