# SPDX-License-Identifier: Apache-2.0
"""Where the soak takes place: brokers with TLS and tokens, and two topics.

Tokens live for a minute, and are renewed in files. What reads and writes for the stream
goes through links that can fail; what feeds it and watches it goes straight to brokers.
"""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from pathlib import Path
from typing import Any

import pulsar

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.transactions import TransactionClient
from pulsar_spark.options.parse import parse_common_options
from pulsar_spark.testing.admin import Admin
from pulsar_spark.testing.embedded_broker import COORDINATOR_TOPIC
from pulsar_spark.wire.commands import TxnAction
from tests.support.broker_cluster import BrokerCluster, ClusterBroker
from tests.support.certificates import Authority, tls_settings
from tests.support.link_proxy import LinkProxy
from tests.support.secured import ADMIN, RenewedFile
from tests.support.tokens import Signer

#: Partitions of both topics, and coordinators of transactions.
PARTS = 3

#: Seconds that a token lives, and after which brokers look for those that have expired.
TOKEN_S = 60
CHECK_S = 2

#: Seconds after which brokers look for certificates that are new.
CERTIFICATE_S = 5

#: Who does what.
ROLES = ("stream", "feeder", "watcher")

_JAVA = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
_PROVIDER = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"


class Site:
    """Three brokers, a source, a sink, and a renewed token for each role.

    As a context manager it runs.

    Attributes:
        cluster: The brokers, with a link to each.
        source: Partitioned; its brokers find duplicates.
        sink: Partitioned; its brokers do not.
        log: Of the commits.
        tokens: The file of each role.
        renewals: How often the server's certificate was renewed.
    """

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._folder = Path()
        self.source = "persistent://public/soak-source/rows"
        self.sink = "persistent://public/soak-sink/rows"
        self.log = "persistent://public/soak-sink/spark-commits-soak"
        self.tokens: dict[str, RenewedFile] = {}
        self.renewals = 0

    def __enter__(self) -> Site:
        with contextlib.ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, stack: contextlib.ExitStack) -> None:
        folder = tempfile.TemporaryDirectory(prefix="pulsar-spark-soak-")
        self._folder = Path(stack.enter_context(folder))
        self._authority = Authority(self._folder)
        signer = Signer(secrets.token_bytes(32))
        admin = signer.token(ADMIN)
        links = [stack.enter_context(LinkProxy()) for _ in range(3)]
        self.cluster = stack.enter_context(
            BrokerCluster(
                settings={
                    **tls_settings(self._authority, self._authority.issue("server")),
                    "tlsCertRefreshCheckDurationSec": str(CERTIFICATE_S),
                    "authenticationEnabled": "true",
                    "authenticationProviders": _PROVIDER,
                    "tokenSecretKey": signer.setting,
                    "authenticationRefreshCheckSeconds": str(CHECK_S),
                    "authorizationEnabled": "true",
                    "superUserRoles": ADMIN,
                    "brokerClientAuthenticationPlugin": _JAVA,
                    "brokerClientAuthenticationParameters": f"token:{admin}",
                    # Ledgers end often, as they do in weeks of production.
                    "managedLedgerMaxEntriesPerLedger": "5000",
                    "managedLedgerMinLedgerRolloverTimeMinutes": "0",
                },
                links=links,
                heap_mb=384,
                admin_token=admin,
            )
        )
        for role in ROLES:
            path = self._folder / f"{role}.token"
            file = RenewedFile(path, signer, role, TOKEN_S)
            self.tokens[role] = stack.enter_context(file)
        self._make_topics(self.admin)

    def _make_topics(self, admin: Admin) -> None:
        for topic in (self.source, self.sink):
            namespace = topic.removeprefix("persistent://").rpartition("/")[0]
            admin.create_namespace(namespace, keep=True)
            admin.set_deduplication(namespace, enabled=topic == self.source)
            for role in ROLES:
                admin.grant(namespace, role, "produce", "consume")
            admin.create_partitioned(topic, PARTS)
        for role in ("stream", "watcher"):  # they ask coordinators
            admin.grant("pulsar/system", role, "consume")
        self.cluster.spread(parts(self.source))

    @property
    def admin(self) -> Admin:
        """Calls of a super user, to a broker that runs."""
        return self.cluster.admin

    def options(self) -> dict[str, str]:
        """What a job of ours connects by: through the links."""
        return {
            "service.url": self.cluster.linked_url,
            "pulsar.client.listenerName": "link",
            # Spark ends a worker that has had no task for a minute. What workers hold
            # is looked at before, when their connections have ended.
            "pulsar.client.connectionMaxIdleSeconds": "25",
            **self._secured("stream"),
        }

    def straight(self) -> dict[str, str]:
        """What a reader of ours connects by that nothing shall disturb."""
        return {"service.url": self.cluster.tls_url, **self._secured("watcher")}

    def _secured(self, role: str) -> dict[str, str]:
        return {
            "pulsar.client.authPluginClassName": "token",
            "pulsar.client.authParams": f"file:{self.tokens[role].path}",
            "pulsar.client.tlsTrustCertsFilePath": str(self._authority.certificate),
        }

    def open_transactions(self) -> dict[str, dict[str, Any]]:
        """All that coordinators know of transactions that are open, by id.

        After a broker has gone a coordinator is nowhere, and answers nobody, until a
        client connects to it. So a transaction begins and ends at each before.

        Raises:
            PulsarSparkError: A coordinator gives none.
            AdminError: One was lost again meanwhile.
        """
        with ConnectionPool(parse_common_options(self.straight()).client) as pool:
            client = TransactionClient(pool)
            ends = client.end(
                [client.begin(60_000, coordinator=at) for at in range(PARTS)],
                TxnAction.ABORT,
            )
        for error in filter(None, ends.values()):
            raise error
        return self.admin.open_transactions()

    def official(self, role: str) -> dict[str, Any]:
        """What an official client connects by, beside the URL."""
        path = self.tokens[role].path
        return {
            # Brokers told one that named none the way through the links, after a move.
            "listener_name": "internal",
            "authentication": pulsar.AuthenticationToken(lambda: path.read_text()),
            "tls_trust_certs_file_path": str(self._authority.certificate),
            "tls_validate_hostname": True,
            # It has much to say of brokers that are away.
            "logger": pulsar.FileLogger(
                pulsar.LoggerLevel.Warn, str(self.log_of(role))
            ),
        }

    def log_of(self, role: str) -> Path:
        """What the official client of a role has to say."""
        return self._folder / f"{role}.log"

    def renew_certificate(self) -> None:
        """Give the brokers another certificate, while connections go on."""
        self._authority.issue("server")
        self.renewals += 1

    def topics(self) -> list[str]:
        """Topic partitions, and those of coordinators, that may move."""
        return [
            *parts(self.source),
            *parts(self.sink),
            self.log,
            f"{self.log}-markers",
            *parts(COORDINATOR_TOPIC),
        ]

    def broker_logs(self) -> list[Path]:
        """Logs of the brokers."""
        return [broker.jvm.log_file for broker in self.brokers]

    @property
    def brokers(self) -> list[ClusterBroker]:
        """All of them."""
        return self.cluster.brokers


def parts(topic: str) -> list[str]:
    """Full names of its partitions."""
    return [f"{topic}-partition-{index}" for index in range(PARTS)]
