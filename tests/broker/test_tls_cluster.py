# SPDX-License-Identifier: Apache-2.0
"""TLS with several brokers: redirects, Pulsar's proxy, and a proxy that routes by SNI.

Brokers have a port for clear text, too, at which tests write and look.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import BrokerAddress, ConnectionPool
from pulsar_spark.errors import PulsarSparkError, TlsError
from pulsar_spark.options import parse_read_options
from tests.broker.test_cluster import PARTS, in_topic, moving, parts, topic_on_all
from tests.support.broker_cluster import BrokerCluster
from tests.support.certificates import LOOPBACK_HOSTS, Authority, Pair, tls_settings
from tests.support.pulsar_proxy import PulsarProxy
from tests.support.sni_router import SniRouter
from tests.support.streaming import Job, Query, publish_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.soak, pytest.mark.slow]

C = "pulsar.client."


class Site:
    """Three brokers, and what they and their clients have.

    Their certificate is for loopback, and by a wildcard for the names that only a proxy
    knows.
    """

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        hosts = (*LOOPBACK_HOSTS, "*.brokers.test")
        self.server: Pair = self.authority.issue("server", hosts=hosts)
        self.cluster = BrokerCluster(settings=tls_settings(self.authority, self.server))

    def options(self, url: str, **more: str) -> dict[str, str]:
        """Options of a read or a write by TLS."""
        return {
            "service.url": url,
            f"{C}tlsTrustCertsFilePath": str(self.authority.certificate),
            f"{C}maxBackoffIntervalNanos": "500000000",
            **more,
        }

    def pool(self, url: str, **more: str) -> ConnectionPool:
        """Connections of our own."""
        options = self.options(url, topic="any", **more)
        return ConnectionPool(parse_read_options(options).client)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The cluster, up."""
    made = Site(tmp_path_factory.mktemp("tls"))
    with made.cluster:
        yield made


@pytest.fixture
def topic(site: Site, request: pytest.FixtureRequest) -> str:
    """A topic with a partition on each broker, whose brokers find duplicates."""
    name = f"public/{request.node.name.replace('_', '-')}"
    site.cluster.admin.create_namespace(name, keep=True)
    site.cluster.admin.set_deduplication(name, enabled=True)
    return topic_on_all(site.cluster, name)


def addresses(
    site: Site, url: str, topic: str, **more: str
) -> dict[str, BrokerAddress | PulsarSparkError]:
    """Where lookups send us, each by a connection that was made."""
    with site.pool(url, **more) as pool:
        found = TopicLookup(pool).brokers(parts(topic))
        for one in found.values():
            assert isinstance(one, BrokerAddress), one
            assert pool.get(one).server_version
    return found


def host(url: str) -> str:
    """``host:port`` of a URL."""
    return url.partition("://")[2]


def test_redirects(site: Site) -> None:
    """Brokers redirect to others, and name them, by their ports for TLS."""
    cluster = site.cluster
    everybody = {host(one.tls_url) for one in cluster.brokers}
    refused = 0
    for number, broker in enumerate(cluster.brokers):
        # Nobody serves it yet: in a namespace of its own.
        name = f"public/redirects-{number}"
        cluster.admin.create_namespace(name)
        for limit in ("0", "20"):
            with site.pool(broker.tls_url, **{f"{C}maxLookupRedirects": limit}) as pool:
                topic = f"persistent://{name}/t"
                answer = TopicLookup(pool).brokers([topic])[topic]
            if isinstance(answer, BrokerAddress):
                assert answer.physical in everybody
            else:
                assert limit == "0"
                refused += 1
    assert refused >= 2


def stream(site: Site, topic: str, folder: Path, url: str, **more: str) -> Query:
    """A query from topic to topic, exactly once."""
    sink = topic_on_all(site.cluster, topic.partition("://")[2].rpartition("/")[0])
    options = site.options(url, **more)
    return Query(
        folder,
        {
            **options,
            "topic": topic,
            "startingOffsets": "earliest",
            "maxRowsPerTrigger": "500",
        },
        sink={**options, "topic": sink, "deliveryGuarantee": "exactly-once"},
        conf={"spark.master": "local[2,4]"},
    )


def run_and_move(site: Site, topic: str, query: Query, folder: Path) -> None:
    """Runs the query while topics move, and finds each row once."""
    cluster = site.cluster
    assert query.sink is not None
    sink = query.sink["topic"]
    url = cluster.brokers[0].service_url
    publish_numbers(url, topic, range(PARTS), range(1000), 100)
    with Job([query], folder / "log") as job:
        with moving(cluster, topic, sink) as moves:
            job.await_true(lambda: moves() >= 3, "three moves")
            publish_numbers(url, topic, range(PARTS), range(1000, 1500), 100)
        everything = Counter(
            f"{part}:{number}".encode()
            for part in range(PARTS)
            for number in range(1500)
        )
        job.await_true(lambda: in_topic(cluster, sink) >= everything, "all rows")
        job.kill()
    assert in_topic(cluster, sink) == everything


def test_a_stream_through_pulsars_proxy(site: Site, topic: str, tmp_path: Path) -> None:
    """By TLS to the proxy, and from there to brokers; topics move meanwhile."""
    broker = site.cluster.brokers[1]
    settings = {
        **tls_settings(site.authority, site.authority.issue("proxy")),
        "tlsEnabledWithBroker": "true",
        "brokerServiceURLTLS": broker.tls_url,
        "brokerWebServiceURLTLS": broker.admin_url,
        "brokerClientTrustCertsFilePath": str(site.authority.certificate),
        "tlsHostnameVerificationEnabled": "true",
    }
    with PulsarProxy(broker.service_url, broker.admin_url, settings) as proxy:
        found = addresses(site, proxy.tls_url, topic)
        assert {one.physical for one in found.values()} == {host(proxy.tls_url)}  # type: ignore[union-attr]
        assert {one.proxied for one in found.values()} == {  # type: ignore[union-attr]
            host(one.tls_url) for one in site.cluster.brokers
        }
        pool = site.pool(proxy.service_url.replace("pulsar:", "pulsar+ssl:"))
        with pool, pytest.raises(TlsError, match="Is this its port for TLS"):
            pool.service()
        query = stream(site, topic, tmp_path / "query", proxy.tls_url)
        run_and_move(site, topic, query, tmp_path)


def test_a_stream_by_way_of_names(
    site: Site, topic: str, tmp_path: Path, spark: SparkSession
) -> None:
    """Nobody but a router by SNI knows the brokers' names, for which TLS verifies."""
    names = [f"broker-{number}.brokers.test" for number in range(3)]
    ports = [int(one.tls_url.rpartition(":")[2]) for one in site.cluster.brokers]
    url = f"pulsar+ssl://{names[0]}:6651"
    routes = {n: ("127.0.0.1", port) for n, port in zip(names, ports, strict=True)}
    with SniRouter(routes) as router:
        through = {
            f"{C}proxyServiceUrl": router.url,
            f"{C}proxyProtocol": "SNI",
            f"{C}listenerName": "sni",
        }
        found = addresses(site, url, topic, **through)
        assert set(found.values()) == {BrokerAddress(f"{n}:6651") for n in names}
        assert set(router.names) == set(names)
        query = stream(site, topic, tmp_path / "query", url, **through)
        run_and_move(site, topic, query, tmp_path)
        given = site.options(url, topic=topic, **through)
        assert spark.read.format("pulsar").options(**given).load().count() == 4500
        # Behind a name is another broker, whose certificate is not for that name.
        router.routes["elsewhere.test"] = routes[names[0]]
        pool = site.pool("pulsar+ssl://elsewhere.test", **through)
        with pool, pytest.raises(TlsError, match=r"not for elsewhere\.test"):
            pool.service()
