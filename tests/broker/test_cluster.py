# SPDX-License-Identifier: Apache-2.0
"""A cluster of three brokers: redirects, topics that move, a broker that dies for good.

Every row carries its number, so one that is lost or doubled shows. Each broker gives
its topics away or takes them over while rows are read and written, and the coordinators
of transactions move like all other topics.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeGuard

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pulsar_spark.arrow.schema import arrow_schema
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.transactions import COORDINATORS, coordinator_topics
from pulsar_spark.errors import AskAgainError, PulsarSparkError
from pulsar_spark.options import parse_read_options, parse_write_options
from pulsar_spark.sink.driver import BatchWrite, StreamWrite
from pulsar_spark.sink.exactly_once import markers_topic
from pulsar_spark.source.pulsar_source import PulsarSource
from pulsar_spark.testing.admin import AdminError
from pulsar_spark.testing.processes import free_ports
from spark_topics.sink.write import Task
from spark_topics.spark.stream_reader import StreamReader
from tests.support import official
from tests.support.broker_cluster import BrokerCluster
from tests.support.link_proxy import LinkProxy
from tests.support.pulsar_proxy import PulsarProxy
from tests.support.streaming import PATIENCE_S, Job, Query, publish_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.broker_cluster import ClusterBroker

#: One for each bundle at most, so that each can be on a broker of its own.
PARTS = 3

#: No pause of a reconnecting client shall make a test slow.
QUICK = {
    "pulsar.client.maxBackoffIntervalNanos": "500000000",
    "pulsar.client.connectionTimeoutMs": "3000",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    """Three brokers; those that a test has killed are back at the next one."""
    with contextlib.ExitStack() as stack:
        links = [stack.enter_context(LinkProxy()) for _ in range(3)]
        yield stack.enter_context(BrokerCluster(links=links))


@pytest.fixture
def brokers(cluster: BrokerCluster) -> list[ClusterBroker]:
    """All three, up."""
    for broker in cluster.brokers:
        if not broker.is_running:
            broker.start()
    return cluster.brokers


@pytest.fixture
def namespace(cluster: BrokerCluster, brokers: list[ClusterBroker]) -> str:
    """A fresh namespace, that nobody serves yet, and whose brokers find duplicates."""
    name = f"public/test-{uuid.uuid4().hex[:12]}"
    cluster.admin.create_namespace(name, keep=True)
    cluster.admin.set_deduplication(name, enabled=True)
    return name


def topic_on_all(cluster: BrokerCluster, namespace: str) -> str:
    """A new topic with a partition on each broker, of different bundles."""
    while True:
        topic = f"persistent://{namespace}/rows-{uuid.uuid4().hex[:8]}"
        cluster.admin.create_partitioned(topic, PARTS)
        if len({cluster.admin.bundle(part) for part in parts(topic)}) == PARTS:
            break
    cluster.spread(parts(topic))
    assert {cluster.owner(part) for part in parts(topic)} == set(cluster.running)
    return topic


def parts(topic: str) -> list[str]:
    """Full names of its partitions."""
    return [f"{topic}-partition-{index}" for index in range(PARTS)]


def numbered(spark: SparkSession, rows: int, tasks: int = 4) -> Any:
    """Rows whose values are their numbers."""
    return spark.range(0, rows, 1, tasks).selectExpr("CAST(id AS STRING) AS value")


def write(
    rows: Any, cluster: BrokerCluster, topic: str, hosts: str = "", **options: str
) -> None:
    """Writes a batch, by the cluster's own hosts or others."""
    url = f"pulsar://{hosts}" if hosts else cluster.service_url
    rows.write.format("pulsar").mode("append").options(
        **{"service.url": url, "topic": topic, **QUICK, **options}
    ).save()


def read(spark: SparkSession, url: str, topic: str, **options: str) -> Counter[int]:
    """The numbers in a topic, read as a batch through Spark."""
    frame = (
        spark.read.format("pulsar")
        .options(**{"service.url": url, "topic": topic, **QUICK, **options})
        .load()
        .selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS number")
    )
    return Counter(frame.toArrow()["number"].to_pylist())


def in_topic(cluster: BrokerCluster, topic: str) -> Counter[bytes | None]:
    """The values in a topic, as the official client reads them."""
    url = cluster.running[0].service_url
    rows = official.read_back(url, topic, partitions=PARTS)
    return Counter(row.value for row in rows)


@contextlib.contextmanager
def moving(
    cluster: BrokerCluster, *topics: str, pause_s: float = 1.0
) -> Iterator[Callable[[], int]]:
    """Sends the topics' bundles, and coordinators, from broker to broker meanwhile.

    Yields:
        What tells how many moves there were.
    """
    over = threading.Event()
    names = [part for topic in topics for part in parts(topic)]
    names += [f"{COORDINATORS}-partition-{index}" for index in range(PARTS)]
    moves = 0

    def run() -> None:
        nonlocal moves
        for name in itertools.cycle(names):
            if over.wait(pause_s):
                return
            # A bundle that is just moving, or whose broker was just killed, stays.
            with contextlib.suppress(AdminError, OSError):
                cluster.move(name, cluster.others(name)[0])
                moves += 1

    with ThreadPoolExecutor(1) as executor:
        thread = executor.submit(run)
        try:
            yield lambda: moves
        finally:
            over.set()
        thread.result(PATIENCE_S)
    sys.stdout.write(f"{moves} moves\n")


class TestLookups:
    def test_brokers_that_do_not_own_a_topic_redirect(
        self, cluster: BrokerCluster, namespace: str
    ) -> None:
        """Of three brokers two redirect to the one that decides who serves a topic."""
        found, refused = {}, 0
        for number, broker in enumerate(cluster.brokers):
            # Nobody serves it yet: in a namespace of its own.
            other = f"{namespace}-{number}"
            cluster.admin.create_namespace(other)
            topic = f"persistent://{other}/topic"
            for limit in ("0", "20"):
                with pool(broker.service_url, limit) as connections:
                    answer = TopicLookup(connections).brokers([topic])[topic]
                if limit == "0" and isinstance(answer, AskAgainError):
                    assert "redirected more than 0 times" in answer.message
                    refused += 1
                else:
                    found[topic] = answer
        assert refused >= 2  # that one may choose another
        for topic, answer in found.items():
            host = cluster.owner(topic).service_url.removeprefix("pulsar://")
            assert answer == (host, None)


class TestAddresses:
    def test_a_listener_of_the_brokers(
        self, cluster: BrokerCluster, namespace: str, spark: SparkSession
    ) -> None:
        """Each broker is spoken to at the address that it has for the listener."""
        topic = topic_on_all(cluster, namespace)
        links = cluster.links
        name = {"pulsar.client.listenerName": "link"}
        with pool(links[0].url, **name) as connections:
            found = TopicLookup(connections).brokers(parts(topic))
        assert {one.physical for one in found.values() if not is_error(one)} == {
            link.url.removeprefix("pulsar://") for link in links
        }
        write(numbered(spark, 3000), cluster, topic)
        before = [link.counters.down_bytes for link in links]
        rows = read(spark, links[0].url, topic, **name)
        assert rows == Counter(range(3000))
        for link, bytes_before in zip(links, before, strict=True):
            assert link.counters.down_bytes > bytes_before + 3000

    def test_a_listener_that_no_broker_has(
        self, cluster: BrokerCluster, namespace: str
    ) -> None:
        """It is an error, not another address."""
        topic = f"persistent://{namespace}/topic"
        name = {"pulsar.client.listenerName": "elsewhere"}
        with pool(cluster.service_url, **name) as connections:
            answer = TopicLookup(connections).brokers([topic])[topic]
        assert isinstance(answer, PulsarSparkError)

    @pytest.mark.matrix
    def test_hosts_that_are_dead(
        self, cluster: BrokerCluster, namespace: str, spark: SparkSession
    ) -> None:
        """One refuses, one takes connections and says nothing: the third is used."""
        topic = topic_on_all(cluster, namespace)
        (closed,) = free_ports(1)
        alive = cluster.brokers[2].service_url.removeprefix("pulsar://")
        with LinkProxy("127.0.0.1", int(alive.rpartition(":")[2])) as swallows:
            swallows.stall()
            hosts = f"127.0.0.1:{closed},127.0.0.1:{swallows.port},{alive}"
            write(numbered(spark, 300), cluster, topic, hosts=hosts)
            assert read(spark, f"pulsar://{hosts}", topic) == Counter(range(300))
            assert swallows.counters.accepted > 0

    def test_through_pulsars_proxy(
        self, cluster: BrokerCluster, namespace: str, spark: SparkSession
    ) -> None:
        """Nothing but the proxy is reached, whatever broker serves a topic."""
        topic = topic_on_all(cluster, namespace)
        broker = cluster.brokers[1]
        with PulsarProxy(broker.service_url, broker.admin_url) as proxy:
            address = proxy.service_url.removeprefix("pulsar://")
            with pool(proxy.service_url) as connections:
                found = TopicLookup(connections).brokers(parts(topic))
            assert {one.physical for one in found.values() if not is_error(one)} == {
                address
            }
            assert {one.proxied for one in found.values() if not is_error(one)} == {
                one.service_url.removeprefix("pulsar://") for one in cluster.brokers
            }
            write(
                numbered(spark, 3000),
                cluster,
                topic,
                hosts=address,
                deliveryGuarantee="idempotent",
                idempotenceId="through-a-proxy",
            )
            with moving(cluster, topic, pause_s=0.3) as moves:
                while moves() < 3:
                    rows = read(spark, proxy.service_url, topic)
                    assert rows == Counter(range(3000))


def is_error(answer: object) -> TypeGuard[PulsarSparkError]:
    """Whether a lookup failed."""
    return isinstance(answer, PulsarSparkError)


def pool(url: str, redirects: str = "20", **further: str) -> ConnectionPool:
    """Connections of our own."""
    options = {"pulsar.client.maxLookupRedirects": redirects, **further}
    return ConnectionPool(
        parse_read_options(
            {"service.url": url, "topic": "any", **QUICK, **options}
        ).client
    )


#: As many runs of rows as there are partitions, so that each gets some.
ROWS = pa.record_batch({"value": [b"%d" % number for number in range(3000)]})


def move_all(cluster: BrokerCluster, topic: str, *further: str) -> None:
    """Has other brokers serve each partition, each coordinator, and further topics."""
    names = [*parts(topic), *coordinator_topics(PARTS), *further]
    for name in names:
        cluster.move(name, cluster.others(name)[0])


class TestTopicsThatMove:
    def test_a_batch_is_written_and_read(
        self, cluster: BrokerCluster, namespace: str, spark: SparkSession
    ) -> None:
        """Each row is there once, though topics moved all the time."""
        topic = topic_on_all(cluster, namespace)
        with moving(cluster, topic, pause_s=0.3) as moves:
            for turn in itertools.count(1):
                write(
                    numbered(spark, 20_000).selectExpr(
                        f"CAST(value + {(turn - 1) * 20_000} AS STRING) AS value"
                    ),
                    cluster,
                    topic,
                    deliveryGuarantee="idempotent",
                    idempotenceId=f"{namespace[7:]}-{turn}",
                )
                rows = read(spark, cluster.brokers[0].service_url, topic)
                assert rows == Counter(range(turn * 20_000))
                if moves() >= 4:
                    break

    @pytest.mark.parametrize(
        "guarantee", ["at-least-once", "idempotent", "exactly-once"]
    )
    def test_between_the_steps_of_writes(
        self, cluster: BrokerCluster, namespace: str, guarantee: str
    ) -> None:
        """What a process remembers, or the driver hands over, is never true.

        A broker that does not serve a topic any more refuses, and is not asked again.
        """
        topic = topic_on_all(cluster, namespace)
        given = {"service.url": cluster.service_url, "topic": topic, **QUICK}
        given |= {"deliveryGuarantee": guarantee}
        for turn in range(2):
            if guarantee == "idempotent":
                given["idempotenceId"] = f"{namespace[7:]}-{turn}"
            options = parse_write_options(given, streaming=False)
            write_ = BatchWrite(options, columns=ROWS.schema)
            write_.prepare()
            move_all(cluster, topic)
            result = write_.run(Task(0), iter([ROWS]))
            move_all(cluster, topic)
            write_.commit([result])
            assert in_topic(cluster, topic) == Counter(
                dict.fromkeys(ROWS["value"].to_pylist(), turn + 1)
            )

    def test_between_the_steps_of_micro_batches(
        self, cluster: BrokerCluster, namespace: str
    ) -> None:
        """The same for a stream, whose log of commits moves, too."""
        topic = topic_on_all(cluster, namespace)
        log = f"persistent://{namespace}/log"
        given = {"service.url": cluster.service_url, "topic": topic, **QUICK}
        given |= {"deliveryGuarantee": "exactly-once", "commitTopic": log}
        query = given["idempotenceId"] = str(uuid.uuid4())
        options = parse_write_options(given, streaming=True)
        for batch_id in range(3):
            write_ = StreamWrite(options, columns=ROWS.schema)
            write_.prepare()
            write_.begin_micro_batch()
            move_all(cluster, topic, log, markers_topic(log))
            result = write_.run(Task(0, 0, batch_id, query), iter([ROWS]))
            move_all(cluster, topic, log, markers_topic(log))
            write_.commit([result], 1, batch_id)
            assert in_topic(cluster, topic) == Counter(
                dict.fromkeys(ROWS["value"].to_pylist(), batch_id + 1)
            )

    def test_between_the_steps_of_reads(
        self, cluster: BrokerCluster, namespace: str
    ) -> None:
        """The same for plans of a batch and of micro-batches."""
        topic = topic_on_all(cluster, namespace)
        for part in parts(topic):
            official.produce(cluster.running[0].service_url, part, [b"a", b"b"])
        given = {"service.url": cluster.service_url, "topic": topic, **QUICK}
        columns = arrow_schema(("value",))
        source = PulsarSource(parse_read_options(given), columns)
        move_all(cluster, topic)
        tasks = source.plan()
        move_all(cluster, topic)
        batches = [
            batch
            for task in tasks
            for batch in source.read(task, columns, streaming=False)
        ]
        assert sum(map(len, batches)) == 2 * PARTS
        given["startingOffsets"] = "earliest"
        options = parse_read_options(given, streaming=True)
        reader = StreamReader(PulsarSource(options, columns), columns)
        try:
            start = reader.initialOffset()
            move_all(cluster, topic)
            end = reader.latestOffset(start, ReadAllAvailable())
            move_all(cluster, topic)
            streamed = reader.partitions(start, end)
            assert len(streamed) == PARTS
            reader.commit(end)
            move_all(cluster, topic)
            assert reader.latestOffset(end, ReadAllAvailable()) == end
        finally:
            reader.stop()


@pytest.mark.soak
class TestABrokerThatDies:
    def test_streams_go_on_without_it(
        self, cluster: BrokerCluster, namespace: str, tmp_path: Path
    ) -> None:
        """Streams of both guarantees go on, and each row is in their sinks once.

        Topics move until one of the brokers is killed, which never comes back.
        """
        source, same, once = (topic_on_all(cluster, namespace) for _ in range(3))
        here = {"service.url": cluster.service_url, **QUICK}
        options = {**here, "topic": source, "startingOffsets": "earliest"}
        options["maxRowsPerTrigger"] = "2000"
        # A task of a transaction that cannot tell what is stored has to run again.
        conf = {"spark.master": "local[2,4]"}
        queries = [
            Query(
                tmp_path / guarantee,
                options,
                sink={**here, "topic": sink, "deliveryGuarantee": guarantee},
                conf=conf,
            )
            for guarantee, sink in (("idempotent", same), ("exactly-once", once))
        ]
        published = 0

        def publish(count: int) -> None:
            nonlocal published
            numbers = range(published, published + count)
            publish_numbers(
                cluster.running[0].service_url, source, range(PARTS), numbers, 100
            )
            published += count

        publish(4_000)
        with Job(queries, tmp_path / "log") as job:
            with moving(cluster, source, same, once) as moves:
                job.await_true(lambda: moves() >= 6, "six moves")
                for query in queries:
                    job.await_true(lambda q=query: len(q.committed) > 1, "batches")
            publish(4_000)
            cluster.owner(parts(once)[0]).kill()
            publish(1_000)
            everything = Counter(
                f"{part}:{n}".encode()
                for part in range(PARTS)
                for n in range(published)
            )
            for topic in (same, once):
                job.await_true(
                    lambda name=topic: in_topic(cluster, name) >= everything,
                    f"all rows of {topic}",
                )
            job.kill()
        for topic in (same, once):
            assert in_topic(cluster, topic) == everything
