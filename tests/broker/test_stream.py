# SPDX-License-Identifier: Apache-2.0
"""What a stream promises while nothing fails, on a real broker.

Rows carry counters, one sequence for each topic partition: so that every row is there
once, and in order, is one comparison. What takes Spark goes through it, by ``Stream``;
elsewhere ``Query`` does what Spark does.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pulsar
import pytest
from pyspark.errors import PySparkException

from pulsar_spark import (
    PulsarDataSource,
    PulsarLagListener,
    decode_message_id,
    encode_message_id,
)
from pulsar_spark.errors import DataLossError, PulsarSparkError, TopicNotFoundError
from pulsar_spark.message_id import MessageId
from pulsar_spark.spark.lag import StreamLag, lag_of
from pulsar_spark.testing.admin import AdminError
from tests.support import official
from tests.support.driven_query import Query
from tests.support.entries import batch, member
from tests.support.raw_publisher import RawPublisher
from tests.support.spark_errors import expect
from tests.support.streaming import durable_backlogs
from tests.support.waiting import await_subscriptions, await_true

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pulsar_spark.testing.admin import Admin

#: Longest wait for anything, in seconds: the machine may be busy with other things.
PATIENCE_S = 120.0


class Sink:
    """Keeps the rows of each micro-batch; one that is run again replaces itself."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Row]] = {}
        self.on_batch: Callable[[int], None] = lambda batch_id: None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """What ``foreachBatch`` calls."""
        self.batches[batch_id] = frame.collect()
        self.on_batch(batch_id)

    @property
    def rows(self) -> list[Row]:
        """All rows, in the order of the micro-batches."""
        batches = sorted(self.batches.items())
        return [row for _, rows in batches for row in rows]

    @property
    def sizes(self) -> list[int]:
        """Rows of each micro-batch."""
        return [len(rows) for _, rows in sorted(self.batches.items())]

    def sizes_of(self, *topics: str) -> list[int]:
        """The rows of these in each micro-batch that has any."""
        batches = sorted(self.batches.items())
        counts = [sum(row["topic"] in topics for row in rows) for _, rows in batches]
        return [count for count in counts if count]

    @property
    def numbers(self) -> dict[str, list[int]]:
        """The counters of each topic partition, by its full name."""
        found = defaultdict(list)
        for row in self.rows:
            found[row["topic"]].append(int(row["number"]))
        return dict(found)


class Stream:
    """A query that can be started again and again: one checkpoint, one sink.

    Attributes:
        options: Of the source; a test may change them between two runs.
        columns: What is selected of it.
    """

    def __init__(
        self, spark: SparkSession, folder: Path, options: dict[str, str]
    ) -> None:
        self.options = options
        self.columns = ["CAST(value AS STRING) AS number", "__topic AS topic"]
        self.sink = Sink()
        self.checkpoint = folder
        self.query: StreamingQuery | None = None
        self._spark = spark

    def load(self, **more: str) -> DataFrame:
        """The rows as the source gives them."""
        options = self.options | more
        return self._spark.readStream.format("pulsar").options(**options).load()

    def union(self, *sources: dict[str, str]) -> DataFrame:
        """The rows of several sources of one query, each with options of its own."""
        rows, *others = (self.load(**one).selectExpr(*self.columns) for one in sources)
        for other in others:
            rows = rows.union(other)
        return rows

    def start(self, rows: DataFrame | None = None, **trigger: Any) -> StreamingQuery:
        """Runs the query, until it is stopped unless the trigger says otherwise."""
        if rows is None:
            rows = self.load().selectExpr(*self.columns)
        self.query = (
            rows.writeStream.foreachBatch(self.sink)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(**(trigger or {"processingTime": "0 seconds"}))
            .start()
        )
        return self.query

    def run(self, rows: DataFrame | None = None, **trigger: Any) -> list[int]:
        """Reads all there is, and gives the sizes of this run's micro-batches."""
        before = set(self.sink.batches)
        query = self.start(rows, **(trigger or {"availableNow": True}))
        assert query.awaitTermination(int(PATIENCE_S))
        self.check()
        batches = sorted(self.sink.batches.items())
        return [len(found) for batch_id, found in batches if batch_id not in before]

    def check(self) -> None:
        """Raises what made the query fail, if anything did."""
        assert self.query is not None
        if (error := self.query.exception()) is not None:
            raise error

    def await_true(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for something the query is to do, for as long as it does not fail."""

        def met() -> bool:
            self.check()
            return condition()

        await_true(met, what, PATIENCE_S)

    def await_rows(self, count: int) -> None:
        """Waits until so many rows have come in all."""
        self.await_true(lambda: len(self.sink.rows) >= count, f"row {count}")

    def await_idle(self) -> None:
        """Waits until the query has planned and found nothing to read."""

        def idle() -> bool:
            assert self.query is not None
            status = self.query.status
            return "Waiting for data" in status["message"]

        self.await_true(idle, "idleness")

    def stop(self) -> None:
        """Stops the query, if it runs."""
        if self.query is not None:
            self.query.stop()
            self.check()

    def failure(self, rows: DataFrame | None = None, **trigger: Any) -> Exception:
        """The exception that the query ends with by itself."""

        def run_to_its_end() -> None:
            query = self.start(rows, **trigger)
            assert query.awaitTermination(int(PATIENCE_S)), "it goes on"

        with pytest.raises(PySparkException) as caught:
            run_to_its_end()
        return caught.value

    @property
    def logged(self) -> dict[str, str]:
        """What the checkpoint says of planned and of committed micro-batches."""
        files = [
            *self.checkpoint.glob("offsets/[0-9]*"),
            *self.checkpoint.glob("commits/[0-9]*"),
        ]
        return {f"{path.parent.name}/{path.name}": path.read_text() for path in files}

    @property
    def offsets(self) -> dict[str, Any]:
        """The last offset of the (first) source, as it stands in the checkpoint."""
        files = [p for p in (self.checkpoint / "offsets").iterdir() if p.name.isdigit()]
        text = max(files, key=lambda path: int(path.name)).read_text()
        found: dict[str, Any] = json.loads(text.splitlines()[2])
        return found


@pytest.fixture
def stream(
    spark: SparkSession, service_url: str, tmp_path: Path
) -> Iterator[Callable[..., Stream]]:
    """Makes streams by their options; all are stopped at the end."""
    made: list[Stream] = []

    def make(**options: str) -> Stream:
        given = {"service.url": service_url, "metadataColumns": "__topic", **options}
        one = Stream(spark, tmp_path / f"checkpoint-{len(made)}", given)
        made.append(one)
        return one

    yield make
    for one in made:
        if one.query is not None:
            one.query.stop()


@pytest.fixture
def driven(service_url: str) -> Iterator[Callable[..., Query]]:
    """Makes streams by their options, without Spark; all are stopped at the end."""
    with contextlib.ExitStack() as made:

        def make(**options: str | None) -> Query:
            return made.enter_context(Query(service_url, **options))

        yield make


def partitions_of(topic: str, count: int) -> list[str]:
    """Full names of the partitions; of the topic itself where it has none."""
    return [f"{topic}-partition-{i}" for i in range(count)] or [topic]


def publish(
    service_url: str, names: Sequence[str], first: int, last: int, *, batch: int = 0
) -> None:
    """Writes the numbers from first to before last to each topic partition."""
    numbers = [str(i).encode() for i in range(first, last)]
    for name in names:
        official.produce(service_url, name, numbers, batch=batch)


def numbered(names: Sequence[str], *bounds: int) -> dict[str, list[int]]:
    """What a sink has if each of these gave the numbers of a range."""
    return {name: list(range(*bounds)) for name in names}


def backlogs(admin: Admin, names: Sequence[str]) -> dict[str, list[int]]:
    """What each subscription has not acknowledged, of each topic partition."""
    found = defaultdict(list)
    for name in names:
        for subscription, backlog in durable_backlogs(admin, name).items():
            found[subscription].append(backlog)
    return dict(found)


def only_subscription(admin: Admin, names: Sequence[str]) -> str:
    """The one subscription that all topic partitions have, and the only one."""
    found = {tuple(durable_backlogs(admin, name)) for name in names}
    assert len(found) == 1
    ((name,),) = found
    return name


def begin(service_url: str, **options: str) -> None:
    """What Spark asks of a query that begins, in this process."""
    source = PulsarDataSource({"service.url": service_url, **options})
    reader: Any = source.streamReader(source.schema())
    try:
        reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    finally:
        reader.stop()


# -- limits --------------------------------------------------------------------------


def test_available_now(
    stream: Callable[..., Stream], admin: Admin, service_url: str, topic: str
) -> None:
    """It reads what there was, within the limit, and no more; runs share a cursor."""
    admin.create_partitioned(topic, 4)
    names = partitions_of(topic, 4)
    publish(service_url, names, 0, 500)
    one = stream(topic=topic, startingOffsets="earliest", maxRowsPerTrigger="400")

    def publish_more(batch_id: int) -> None:
        if batch_id == 2:
            publish(service_url, names, 500, 600)

    one.sink.on_batch = publish_more
    sizes = one.run()
    assert 5 <= len(sizes) <= 7
    assert all(320 <= size <= 480 for size in sizes[:-1])
    assert one.sink.numbers == numbered(names, 500)
    name = only_subscription(admin, names)
    assert name.startswith("spark-pulsar-")
    assert name == one.offsets["subscription"]
    await_true(lambda: backlogs(admin, names) == {name: [100] * 4}, "all acknowledged")

    publish(service_url, names, 600, 800)
    assert one.run(once=True) == [1200], "a trigger that fires once has no limits"
    assert one.run() == []
    assert one.sink.numbers == numbered(names, 800)
    assert backlogs(admin, names) == {name: [0] * 4}


def publish_batches_of_any_size(
    service_url: str, names: Sequence[str], count: int
) -> None:
    """So many rows to each, 1 to 100 an entry."""
    sizes = random.Random(15)
    for name in names:
        with RawPublisher(service_url, name) as publisher:
            numbers = iter(range(count))
            while entry := list(itertools.islice(numbers, sizes.randint(1, 100))):
                publisher.send(*batch([member(str(i).encode()) for i in entry]))


def test_limits(
    driven: Callable[..., Query], admin: Admin, service_url: str, topic: str
) -> None:
    """Micro-batches come close to the limit of a source, whatever entries look like.

    An entry is not split: where the limit is below, the query advances by one.
    """
    rows, size, both = (f"{topic}-{kind}" for kind in ("rows", "bytes", "both"))
    entries = [f"{topic}-an-entry-by-{kind}" for kind in ("rows", "bytes")]
    for name in (rows, size, both):
        admin.create_partitioned(name, 4)
    publish_batches_of_any_size(service_url, partitions_of(rows, 4), 1250)
    for name in [*partitions_of(size, 4), *partitions_of(both, 4)]:
        numbers = [f"{i:01000}".encode() for i in range(100)]
        official.produce(service_url, name, numbers)
    publish(service_url, entries, 0, 120, batch=40)
    for name, each, count, limit, options in (
        (rows, 1250, 5, 1000, {"maxRowsPerTrigger": "1000"}),
        (size, 100, 5, 80, {"maxBytesPerTrigger": "84k"}),
        (
            *(both, 100, 4, 100),
            {"maxBytesPerTrigger": "1m", "maxOffsetsPerTrigger": "100"},
        ),
    ):
        names = partitions_of(name, 4)
        query = driven(topic=name, **options)
        query.run()
        assert query.rows == numbered(names, each)
        sizes = query.sizes
        assert count - 1 <= len(sizes) <= count + 2, (name, sizes)
        near = [0.8 * limit <= found <= 1.2 * limit for found in sizes[:-1]]
        assert all(near), (name, sizes)
        await_true(
            lambda names=names: [*backlogs(admin, names).values()] == [[0] * 4],  # type: ignore[misc]
            f"all of {name} acknowledged",
        )
    for name, limited in zip(
        entries, ("maxRowsPerTrigger", "maxBytesPerTrigger"), strict=True
    ):
        query = driven(topic=name, **{limited: "7"})
        query.run()
        assert query.rows == numbered([name], 120)
        assert query.sizes == [40, 40, 40], name


def test_a_minimum_of_rows(
    driven: Callable[..., Query], service_url: str, topic: str
) -> None:
    """It holds back until there are enough, or a run ends."""
    query = driven(topic=topic, minRowsPerTrigger="100", maxTriggerDelay="1h")
    for first, last in ((0, 60), (60, 90)):
        publish(service_url, [topic], first, last)
        assert not query.trigger()
        progress = query.start().reportLatestOffset()
        assert progress is not None
        assert progress["backlogEntries"] == {topic: last}
    publish(service_url, [topic], 90, 110)
    assert query.drain() == 1
    query.stop()
    publish(service_url, [topic], 110, 130)
    query.run()
    assert query.sizes == [110, 20]
    assert query.rows == {topic: list(range(130))}


# -- what is acknowledged ------------------------------------------------------------


def test_an_idle_query_owes_nothing(
    stream: Callable[..., Stream], admin: Admin, service_url: str, topic: str
) -> None:
    """Soon after the last row the backlog is 0, while the query goes on.

    It has told Spark of a minimum of rows.
    """
    admin.create_partitioned(topic, 2)
    names = partitions_of(topic, 2)
    one = stream(
        topic=topic,
        startingOffsets="earliest",
        minRowsPerTrigger="200",
        maxTriggerDelay="1h",
    )
    query = one.start()
    for first in (0, 100):
        publish(service_url, names, first, first + 100, batch=10)
        one.await_rows(2 * (first + 100))
        name = one.offsets["subscription"]
        one.await_true(
            lambda name=name: backlogs(admin, names) == {name: [0, 0]},  # type: ignore[misc]
            "all acknowledged",
        )
        assert query.isActive
    assert one.sink.numbers == numbered(names, 200)
    assert [size for size in one.sink.sizes if size] == [200, 200]
    one.stop()
    assert backlogs(admin, names) == {name: [0, 0]}


def test_it_acknowledges_at_the_next_trigger(
    admin: Admin, service_url: str, topic: str
) -> None:
    """Nothing is before Spark has recorded the batch; all is when it plans the next."""
    publish(service_url, [topic], 0, 30, batch=10)
    source = PulsarDataSource(
        {"service.url": service_url, "topic": topic, "startingOffsets": "earliest"}
    )
    reader: Any = source.streamReader(source.schema())
    limit = reader.getDefaultReadLimit()
    start = reader.initialOffset()
    end = reader.latestOffset(start, limit)
    assert backlogs(admin, [topic]) == {}
    assert len(reader.partitions(start, end)) == 1
    name = end["subscription"]
    assert backlogs(admin, [topic]) == {name: [3]}
    assert reader.latestOffset(end, limit) == end
    await_true(lambda: backlogs(admin, [topic]) == {name: [0]}, "acknowledged")
    reader.stop()


def test_asynchronous_progress_tracking(
    stream: Callable[..., Stream],
    admin: Admin,
    service_url: str,
    topic: str,
) -> None:
    """Spark then plans before it has recorded: what a restart reads is acknowledged.

    Unless nothing is, as docs/guarantees.md advises.
    """
    silent = f"{topic}-silent"
    publish(service_url, [topic, silent], 0, 30, batch=10)
    one = stream(startingOffsets="earliest", maxRowsPerTrigger="10")
    one.query = (
        one.union({"topic": topic}, {"topic": silent, "ackOnCommit": "false"})
        .writeStream.format("noop")
        .option("checkpointLocation", str(one.checkpoint))
        .option("asyncProgressTrackingEnabled", "true")
        .option("asyncProgressTrackingCheckpointIntervalMs", "3600000")
        .start()
    )
    one.await_true(
        lambda: any(p["batchId"] == 2 for p in one.query.recentProgress), "all rows"
    )
    one.await_idle()
    recorded = one.offsets
    name = recorded["subscription"]
    one.await_true(lambda: backlogs(admin, [topic]) == {name: [0]}, "the ack")
    end = json.loads(one.query.lastProgress["sources"][0]["endOffset"])
    assert recorded["lastRead"] != end["lastRead"]
    assert durable_backlogs(admin, silent) == {}


def test_subscriptions(
    driven: Callable[..., Query], admin: Admin, service_url: str, topic: str
) -> None:
    """Options say its name, whether there is one, and whether it stays."""
    kinds = {
        "named": {"subscriptionPrefix": "orders"},
        "none": {"ackOnCommit": "false"},
        "leaving": {"deleteSubscriptionOnStop": "true"},
        "mine": {"predefinedSubscription": "mine"},
        "kept": {"predefinedSubscription": "mine", "ackOnCommit": "false"},
    }
    topics = {kind: f"{topic}-{kind}" for kind in kinds}
    publish(service_url, list(topics.values()), 0, 20, batch=5)
    for kind in ("mine", "kept"):
        admin.create_subscription(topics[kind], "mine")
    queries = {kind: driven(topic=topics[kind], **kinds[kind]) for kind in kinds}
    for query in queries.values():
        query.drain()
    named, leaving = (
        only_subscription(admin, [topics[kind]]) for kind in ("named", "leaving")
    )
    assert named.startswith("orders-")
    assert named == queries["named"].subscription

    def left() -> dict[str, dict[str, int]]:
        return {kind: durable_backlogs(admin, name) for kind, name in topics.items()}

    expected = {
        "named": {named: 0},
        "none": {},
        "leaving": {leaving: 0},
        "mine": {"mine": 0},
        "kept": {"mine": 4},  # entries
    }
    await_true(lambda: left() == expected, "all acknowledged", PATIENCE_S)
    for query in queries.values():
        query.stop()
    await_true(lambda: left() == expected | {"leaving": {}}, "deletion", PATIENCE_S)
    for kind in ("none", "leaving"):
        await_subscriptions(admin, topics[kind])
    for kind, query in queries.items():
        assert query.rows == numbered([topics[kind]], 20)


def test_a_predefined_subscription_stays(
    driven: Callable[..., Query], admin: Admin, service_url: str, topic: str
) -> None:
    """Also when a later run has its name from the checkpoint, and is to delete."""
    query = driven(topic=topic, predefinedSubscription="reports")
    publish(service_url, [topic], 0, 5)
    query.run()
    del query.options["predefinedSubscription"]
    query.options["deleteSubscriptionOnStop"] = "true"
    publish(service_url, [topic], 5, 10)
    query.run()
    assert query.rows == numbered([topic], 10)
    await_true(lambda: backlogs(admin, [topic]) == {"reports": [0]}, "acks", PATIENCE_S)
    assert json.loads(query.ends[-1])["predefined"]


def test_the_subscription_of_a_query_that_fails(
    stream: Callable[..., Stream], admin: Admin, service_url: str, topic: str
) -> None:
    """It goes as with one that is stopped, or it stays for the next run."""
    stays, goes = topics = [topic, f"{topic}-2"]
    publish(service_url, topics, 0, 20)
    one = stream(startingOffsets="earliest")

    def fail(batch_id: int) -> None:
        assert all(admin.subscriptions(name) for name in topics)
        raise ValueError("not this one")

    one.sink.on_batch = fail
    rows = one.union(
        {"topic": stays}, {"topic": goes, "deleteSubscriptionOnStop": "true"}
    )
    expect(one.failure(rows), "not this one")
    await_subscriptions(admin, goes)
    await_true(lambda: len(admin.subscriptions(stays)) == 1, "the end of readers")


# -- starts --------------------------------------------------------------------------


def test_starting_at_the_end(
    driven: Callable[..., Query], admin: Admin, service_url: str, topic: str
) -> None:
    """Rows before the start are not read, rows after it are, whatever says so."""
    late, empty = f"{topic}-late", f"{topic}-empty"
    for name in (topic, late):
        admin.create_partitioned(name, 2)
    admin.create_topic(empty)
    names = [*partitions_of(topic, 2), *partitions_of(late, 2)]
    publish(service_url, names, 0, 25, batch=10)
    queries = [
        driven(topic=topic, startingOffsets=None),  # by default
        driven(topic=empty, startingOffsets="latest"),
        driven(topic=late, startingOffsets=None, startingTime="2100-01-01T00:00:00Z"),
    ]
    for query in queries:
        assert not query.trigger()
    publish(service_url, names, 25, 40, batch=10)
    publish(service_url, [empty], 0, 5)
    found: dict[str, list[int]] = {}
    for query in queries:
        query.drain()
        found |= query.rows
    assert found == numbered(names, 25, 40) | numbered([empty], 5)


def test_starting_in_the_middle(
    driven: Callable[..., Query], admin: Admin, service_url: str, topic: str
) -> None:
    """The first row of each partition is the one that options name, also in a batch."""
    timed, mine = f"{topic}-time", f"{topic}-subscription"
    for name, count in ((topic, 3), (timed, 2), (mine, 2)):
        admin.create_partitioned(name, count)
    # By JSON.
    names = partitions_of(topic, 3)
    publish(service_url, names, 0, 40, batch=10)
    firsts = {names[0]: 13, names[1]: 29}
    places = {
        row.topic[-1]: row.position
        for row in official.read_back(service_url, topic, partitions=3)
        if row.topic in firsts and row.value == str(firsts[row.topic]).encode()
    }
    offsets = json.dumps({topic: {**places, "2": "earliest"}})
    expected = {name: list(range(firsts.get(name, 0), 40)) for name in names}
    # By a time.
    since, also = partitions_of(timed, 2)
    for first, last in ((0, 20), (20, 50)):
        publish(service_url, [since, also], first, last, batch=10)
    rows = official.read_back(service_url, timed, partitions=2)
    (time_ms,) = (
        row.publish_time_ms for row in rows if row.topic == since and row.value == b"20"
    )
    for row in rows:
        if row.publish_time_ms >= time_ms and row.value is not None:
            expected.setdefault(row.topic, []).append(int(row.value))
    assert expected[since] == list(range(20, 50))
    # By what another program acknowledged last.
    acknowledged = dict(zip(partitions_of(mine, 2), (40, 33), strict=True))
    publish(service_url, list(acknowledged), 0, 60, batch=10)
    with official.client(service_url) as client:
        for name, first in acknowledged.items():
            consumer = client.subscribe(
                name,
                "mine",
                initial_position=pulsar.InitialPosition.Earliest,
                batch_index_ack_enabled=True,
            )
            for _ in range(first):
                message = consumer.receive(120_000)
            assert int(message.data()) == first - 1
            consumer.acknowledge_cumulative(message)
            consumer.close()
            expected[name] = list(range(first, 60))

    # Also where a limit ends the first micro-batch in the same entry's neighbour.
    limit = {"maxRowsPerTrigger": "30"}
    placed = driven(topic=topic, startingOffsets=offsets, **limit)
    assert placed.trigger()
    # An entry that the query began inside of is unread until the first commit.
    assert list(backlogs(admin, names).values()) == [[3, 2, 4]]
    queries = [
        placed,
        driven(topic=timed, startingOffsets=None, startingTime=str(time_ms), **limit),
        driven(
            topic=mine,
            startingOffsets="subscription",
            predefinedSubscription="mine",
            **limit,
        ),
    ]
    found: dict[str, list[int]] = {}
    for query in queries:
        assert query.drain() > 1
        found |= query.rows
    assert found == expected
    await_true(
        lambda: list(backlogs(admin, names).values()) == [[0, 0, 0]], "acknowledged"
    )
    await_true(
        lambda: backlogs(admin, list(acknowledged)) == {"mine": [0, 0]}, "acknowledged"
    )


def test_starting_at_a_subscription_that_is_not_there(
    admin: Admin, service_url: str, topic: str
) -> None:
    """It is an error that says so, and nothing is created."""
    publish(service_url, [topic], 0, 10)
    given = {"startingOffsets": "subscription", "predefinedSubscription": "mine"}
    with pytest.raises(PulsarSparkError) as caught:
        begin(service_url, topic=topic, **given)
    expect(caught.value, "[PULSAR_OPTION]", "mine", topic, *given)
    await_subscriptions(admin, topic)


# -- growth --------------------------------------------------------------------------


def test_more_partitions(
    driven: Callable[..., Query], admin: Admin, service_url: str, topic: str
) -> None:
    """New partitions are read from their first row, without a restart."""
    admin.create_partitioned(topic, 2)
    names = partitions_of(topic, 5)
    publish(service_url, names[:2], 0, 20, batch=5)
    # By default a query begins at the end; what is new begins at its beginning.
    query = driven(
        topic=topic, startingOffsets=None, partitionDiscoveryIntervalMs="300"
    )
    assert not query.trigger()
    admin.update_partitions(topic, 5)
    publish(service_url, names[2:], 0, 20, batch=5)
    publish(service_url, names[:2], 20, 40, batch=5)
    query.await_rows(100)
    publish(service_url, names[2:], 20, 40)
    query.await_rows(160)
    assert not query.trigger()
    await_true(
        lambda: backlogs(admin, names) == {query.subscription: [0] * 5},
        "all acknowledged",
    )
    assert query.rows == numbered(names[:2], 20, 40) | numbered(names[2:], 40)


@pytest.mark.parametrize(
    "acknowledges", ["true", pytest.param("false", marks=pytest.mark.matrix)]
)
def test_partitions_that_nobody_wrote_to(
    driven: Callable[..., Query],
    admin: Admin,
    service_url: str,
    namespace: str,
    acknowledges: str,
) -> None:
    """A query creates none of them, whatever brokers create; later rows are read."""
    policy = {
        "allowAutoTopicCreation": True,
        "topicType": "partitioned",
        "defaultNumPartitions": 3,
    }
    admin.set_policy(namespace, "autoTopicCreation", policy)
    topic = f"persistent://{namespace}/lazy-{acknowledges}"
    with official.client(service_url) as client:
        producer = client.create_producer(
            topic,
            lazy_start_partitioned_producers=True,
            message_routing_mode=pulsar.PartitionsRoutingMode.UseSinglePartition,
        )
        producer.send(b"0")
        producer.close()

    def stored() -> set[str]:
        return set(admin.topics(namespace))

    before = stored()
    names = partitions_of(topic, 3)
    unborn = [name for name in names if name not in before]
    assert len(unborn) == 2
    query = driven(topic=topic, ackOnCommit=acknowledges)
    assert query.run() == 1
    assert stored() == before
    publish(service_url, unborn, 1, 4)
    query.run()
    (born,) = set(names) - set(unborn)
    assert query.rows == {born: [0], **numbered(unborn, 1, 4)}


@pytest.mark.parametrize(
    "acknowledges", ["true", pytest.param("false", marks=pytest.mark.matrix)]
)
def test_partitions_that_ended_without_rows(
    driven: Callable[..., Query],
    admin: Admin,
    service_url: str,
    topic: str,
    acknowledges: str,
) -> None:
    """The others are read, when brokers have loaded the topic again, and later."""
    starts: dict[str, tuple[int, dict[str, str | None]]] = {
        f"{topic}-earliest": (0, {"startingOffsets": "earliest"}),
        f"{topic}-latest": (5, {"startingOffsets": "latest"}),
        f"{topic}-time": (0, {"startingOffsets": None, "startingTime": "2024-01-01"}),
    }
    busy = [f"{name}-partition-0" for name in starts]
    for name in starts:
        admin.create_partitioned(name, 3)
        for ended in partitions_of(name, 3)[1:]:
            admin.terminate(ended)
            admin.unload(ended)
    publish(service_url, busy, 0, 5)
    queries = [
        driven(topic=name, ackOnCommit=acknowledges, **start)
        for name, (_, start) in starts.items()
    ]

    def run() -> int:
        return sum(query.run() for query in queries)

    begins = [json.dumps(query.start().initialOffset()) for query in queries]
    run()
    for query, begin in zip(queries, begins, strict=True):
        # As with a source without rows beside another one with rows.
        query.ends = query.ends or [begin]
    publish(service_url, busy, 5, 10)
    for name in starts:
        admin.unload(f"{name}-partition-1")
    run()
    assert run() == 0
    for query, (name, (first, _)) in zip(queries, starts.items(), strict=True):
        assert query.rows == numbered([f"{name}-partition-0"], first, 10)
    expected = [[0, 0, 0]] if acknowledges == "true" else []
    for name in starts:
        assert list(backlogs(admin, partitions_of(name, 3)).values()) == expected


def test_a_partition_that_is_only_a_number(
    driven: Callable[..., Query], admin: Admin, service_url: str, topic: str
) -> None:
    """It counts as empty, and joins with its first row."""
    admin.create_partitioned(topic, 3)
    names = partitions_of(topic, 3)
    admin.delete(names[1])
    publish(service_url, [names[0], names[2]], 0, 10, batch=5)
    query = driven(topic=topic, partitionDiscoveryIntervalMs="300")
    query.run()
    assert query.rows == numbered([names[0], names[2]], 10)
    assert not query.trigger()
    with pytest.raises(AdminError):
        admin.stats(names[1])  # reading has not made it
    publish(service_url, [names[1]], 0, 10, batch=5)
    query.await_rows(30)
    assert not query.trigger()
    await_true(
        lambda: backlogs(admin, names) == {query.subscription: [0] * 3},
        "all acknowledged",
    )
    assert query.rows == numbered(names, 10)


def test_a_late_topic(
    stream: Callable[..., Stream], admin: Admin, service_url: str, topic: str
) -> None:
    """It is waited for where that is wanted, for as long as that is.

    Its subscription ends with the query, where that is wanted.
    """
    never = f"{topic}-never"
    waiting = {
        "waitingForNonExistedTopic": "true",
        "topicWaitTimeoutMs": str(int(PATIENCE_S * 1000)),
        "pulsar.client.maxBackoffIntervalNanos": "200000000",
        "deleteSubscriptionOnStop": "true",
    }
    names = partitions_of(topic, 2)
    one = stream(topic=topic, startingOffsets="earliest", **waiting)
    query = one.start()
    stopped = stream(topic=never, **waiting)
    stopped.start()
    for options in ({}, waiting | {"topicWaitTimeoutMs": "500"}):
        with pytest.raises(TopicNotFoundError, match=never):
            begin(service_url, topic=never, **options)
    stopped.stop()  # it does not wait for the topic, too
    assert query.isActive
    admin.create_partitioned(topic, 2)
    publish(service_url, names, 0, 10)
    one.await_rows(20)
    assert only_subscription(admin, names) == one.offsets["subscription"]
    one.stop()
    for name in names:
        await_subscriptions(admin, name)
    assert one.sink.numbers == numbered(names, 10)
    assert not [n for n in admin.topics(_namespace(topic)) if "never" in n]


def _namespace(topic: str) -> str:
    return topic.removeprefix("persistent://").rpartition("/")[0]


def test_a_pattern(
    driven: Callable[..., Query], admin: Admin, service_url: str, namespace: str
) -> None:
    """Topics that match join from their first row; others never do."""
    base = f"persistent://{namespace}"
    first, second = f"{base}/orders-de", f"{base}/orders-fr"
    others = [f"{base}/clicks", f"{base}/old-orders-de"]
    publish(service_url, [first, others[0]], 0, 10)
    query = driven(
        topicsPattern=f"{namespace}/orders-.*",
        startingOffsets=None,
        partitionDiscoveryIntervalMs="300",
    )
    assert not query.trigger()
    admin.create_partitioned(second, 2)
    new = partitions_of(second, 2)
    publish(service_url, [others[1], *new], 0, 10)
    publish(service_url, [first, *others], 10, 20)
    query.await_rows(30)
    publish(service_url, new, 10, 20)
    query.await_rows(50)
    assert query.rows == {
        first: list(range(10, 20)),
        new[0]: list(range(20)),
        new[1]: list(range(20)),
    }
    for name in others:
        assert admin.subscriptions(name) == []


# -- several sources, several queries ------------------------------------------------


def test_several_sources(
    stream: Callable[..., Stream], admin: Admin, service_url: str, topic: str
) -> None:
    """Streams of one query, and two queries on one topic, are independent.

    One DataFrame that is used twice in a query gives its rows twice, in step.
    """
    other = f"{topic}-other"
    publish(service_url, [topic], 0, 40, batch=7)
    publish(service_url, [other], 0, 30, batch=7)
    both = stream(topic=topic, startingOffsets="earliest", maxRowsPerTrigger="14")
    rows = both.load()
    every = rows.union(rows).union(both.load(topic=other)).selectExpr(*both.columns)
    alone = stream(topic=topic, startingOffsets="earliest", maxBytesPerTrigger="1m")
    both.start(every, availableNow=True)
    alone.run()
    assert both.query is not None
    assert both.query.awaitTermination(int(PATIENCE_S))
    both.check()
    assert both.sink.sizes_of(topic) == [28, 28, 24]
    assert sorted(both.sink.numbers[topic]) == sorted([*range(40), *range(40)])
    assert both.sink.numbers[other] == list(range(30))
    assert alone.sink.numbers == {topic: list(range(40))}
    left, left_other = backlogs(admin, [topic]), backlogs(admin, [other])
    assert set(map(tuple, left.values())) == {(0,)}
    assert len(left) >= 2
    assert list(left_other.values()) == [[0]]
    assert not left.keys() & left_other.keys()


def test_topics_leave_and_return(
    driven: Callable[..., Query], admin: Admin, service_url: str, topic: str
) -> None:
    """Leaving is an error that can be allowed; on return reading goes on.

    The same holds for partitions of a topic, of which options name one.
    """
    other = f"{topic}-2"
    admin.create_partitioned(topic, 2)
    names = [*partitions_of(topic, 2), other]
    publish(service_url, names, 0, 5)
    every = f"{topic},{other}"
    query = driven(topics=every)
    query.run()
    assert query.rows == numbered(names, 5)
    publish(service_url, names, 5, 8)
    query.options["topics"] = names[0]
    with pytest.raises(DataLossError) as caught:
        query.run()
    expect(caught.value, "[PULSAR_DATA_LOSS]", names[1], other, "failOnDataLoss")
    query.options["failOnDataLoss"] = "false"
    query.run()
    assert query.rows == numbered(names[:1], 8) | numbered(names[1:], 5)
    kept = json.loads(query.ends[-1])["kept"]
    assert set(kept) == {topic, other}
    assert list(kept[topic]) == ["1"]
    query.options |= {"topics": every, "failOnDataLoss": "true"}
    publish(service_url, names, 8, 9)
    query.run()
    assert sum(query.sizes) == 27
    assert query.rows == numbered(names, 9)
    assert "kept" not in json.loads(query.ends[-1])


def test_a_micro_batch_is_repeated_with_other_options(
    stream: Callable[..., Stream], admin: Admin, service_url: str, topic: str
) -> None:
    """It has its rows all the same, also of a topic that the options leave out now."""
    other = f"{topic}-2"
    publish(service_url, [topic, other], 0, 6, batch=2)
    one = stream(
        topics=f"{topic},{other}", startingOffsets="earliest", maxRowsPerTrigger="4"
    )

    def fail(batch_id: int) -> None:
        raise ValueError("not this one")

    one.sink.on_batch = fail
    expect(one.failure(), "not this one")
    name = only_subscription(admin, [topic, other])
    planned = one.offsets
    publish(service_url, [topic, other], 6, 9)
    del one.options["topics"], one.options["maxRowsPerTrigger"]
    one.options |= {
        "topic": topic,
        "failOnDataLoss": "false",
        "startingOffsets": "latest",
        "subscriptionPrefix": "another",
        "minPartitions": "5",
    }
    one.sink.on_batch = lambda batch_id: None
    one.sink.batches.clear()
    assert one.run() == [4, 7]
    assert one.offsets["kept"][other] == planned["lastRead"][other]
    assert one.sink.numbers == {**numbered([topic], 9), **numbered([other], 2)}
    # The unread rows of the topic that has left are protected until it returns.
    assert only_subscription(admin, [topic, other]) == name
    assert backlogs(admin, [topic, other]) == {name: [0, 5]}


def test_sources_of_a_union_change_places(
    stream: Callable[..., Stream], admin: Admin, service_url: str, topic: str
) -> None:
    """Spark knows sources by their place alone: that is an error, and loses nothing."""
    other = f"{topic}-2"
    publish(service_url, [topic, other], 0, 5)
    one = stream(startingOffsets="earliest")

    first, second = {"topic": topic}, {"topic": other}
    assert sum(one.run(one.union(first, second))) == 10
    publish(service_url, [topic, other], 5, 8)
    logged = one.logged
    cursors = [backlogs(admin, [name]) for name in (topic, other)]
    with pytest.raises(PySparkException, match="lists its sources in another order"):
        one.run(one.union(second, first))
    # What the next run in the right order goes on with.
    assert one.logged == logged
    assert [backlogs(admin, [name]) for name in (topic, other)] == cursors
    assert one.sink.numbers == numbered([topic, other], 5)


@pytest.mark.matrix
def test_a_stream_joined_with_itself(
    stream: Callable[..., Stream], service_url: str, topic: str
) -> None:
    """Both sides have the same micro-batches."""
    publish(service_url, [topic], 0, 40, batch=10)
    one = stream(topic=topic, startingOffsets="earliest", maxRowsPerTrigger="20")
    rows = one.load().selectExpr(*one.columns)
    pairs = rows.alias("a").join(rows.alias("b"), on="number")
    sizes = one.run(pairs.selectExpr("number", "a.topic AS topic"))
    assert [size for size in sizes if size] == [20, 20]
    assert sorted(one.sink.numbers[topic]) == list(range(40))


# -- a checkpoint of the Scala connector ---------------------------------------------


def test_a_checkpoint_of_the_scala_connector(
    driven: Callable[..., Query], admin: Admin, service_url: str, topic: str
) -> None:
    """Its job goes on after the last entry that it had read."""
    admin.create_partitioned(topic, 3)
    names = partitions_of(topic, 3)
    publish(service_url, names, 0, 40, batch=10)
    ids = {
        (row.topic, int(row.value)): MessageId(
            row.message_id[0], row.message_id[1], row.message_id[3], row.message_id[2]
        )
        for row in official.read_back(service_url, topic, partitions=3)
        if row.value is not None
    }
    # That connector drops the index in a batch, or keeps it, by its version.
    plain = MessageId(*ids[names[0], 19].position, partition=0)
    inside = ids[names[1], 29]
    offset = {names[0]: as_scala(plain), names[1]: as_scala(inside)}
    query = driven(topic=topic, startingOffsets="latest")
    query.ends = [json.dumps(offset)]
    query.run()
    # The third partition came while no query ran: it is read from its first row.
    expected = {names[0]: list(range(20, 40)), names[1]: list(range(30, 40))}
    assert query.rows == {**expected, names[2]: list(range(40))}
    name = only_subscription(admin, names)
    await_true(lambda: backlogs(admin, names) == {name: [0] * 3}, "acknowledged")
    assert name == query.subscription


def test_a_checkpoint_that_the_scala_connector_wrote(
    stream: Callable[..., Stream], admin: Admin, service_url: str, topic: str
) -> None:
    """A job of its version 3.4.1 goes on exactly behind the entries that it had read.

    The checkpoint is the one it left, with a topic and places that this broker has.
    """
    one = stream(topic=topic, startingOffsets="latest")
    copy_of_scala_checkpoint(one.checkpoint)
    names = partitions_of(topic, 2)
    admin.create_partitioned(topic, 2)
    # As it was: batches of nine in one partition, single messages in the other.
    publish(service_url, names[:1], 0, 900, batch=9)
    publish(service_url, names[1:], 0, 100)
    rows = {
        row.topic: row
        for row in official.read_back(service_url, topic, partitions=2)
        if int(row.value or b"") == (539 if row.topic == names[0] else 41)
    }
    set_scala_offset(one.checkpoint, {n: rows[n].message_id for n in names})
    assert one.run() == [360 + 58]
    assert one.sink.numbers == {
        names[0]: list(range(540, 900)),
        names[1]: list(range(42, 100)),
    }
    assert min(one.sink.batches) == 1, "the batch recorded there is not run again"
    # From here on it is a stream of ours.
    publish(service_url, names, 900, 909, batch=9)
    assert one.run() == [18]
    assert {len(found) for found in one.sink.numbers.values()} == {369, 67}


def test_what_a_scala_checkpoint_points_to_is_gone(
    driven: Callable[..., Query], admin: Admin, service_url: str, namespace: str
) -> None:
    """Rows that came next and were removed are an error, as with our checkpoints."""
    topic = f"persistent://{namespace}/gone"
    names = partitions_of(topic, 2)
    admin.create_partitioned(topic, 2)
    publish(service_url, names, 0, 10)
    gone = {n: as_scala(MessageId(0, 5, -1, i)) for i, n in enumerate(names)}
    query = driven(topic=topic)
    query.ends = [json.dumps(gone)]
    with pytest.raises(DataLossError) as caught:
        query.run()
    expect(caught.value, "[PULSAR_DATA_LOSS]", "0:6", topic)


SCALA_CHECKPOINT = Path(__file__).parent.parent / "golden" / "scala-checkpoint"


def copy_of_scala_checkpoint(folder: Path) -> None:
    """Puts the golden checkpoint there."""
    for path in SCALA_CHECKPOINT.rglob("*"):
        if path.is_file():
            to = folder / path.relative_to(SCALA_CHECKPOINT)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(path.read_bytes())


def set_scala_offset(
    folder: Path, places: dict[str, tuple[int, int, int, int]]
) -> None:
    """Puts places into a checkpoint, in the very form that its offset has."""
    path = folder / "offsets" / "0"
    *head, offset = path.read_text().splitlines()
    for given in json.loads(offset).values():
        found = decode_message_id(bytes(byte & 0xFF for byte in given))
        assert as_scala(found) == given, "not its form"
    ids = {
        name: as_scala(MessageId(ledger, entry, index, partition))
        for name, (ledger, entry, partition, index) in places.items()
    }
    text = json.dumps(ids, separators=(",", ":"))
    path.write_text("\n".join([*head, text]))


def as_scala(message_id: MessageId) -> list[int]:
    """An id as that connector writes it: Java's bytes, which are signed."""
    data = encode_message_id(message_id, java=True)
    return [byte - 256 if byte > 127 else byte for byte in data]


# -- columns -------------------------------------------------------------------------


def test_columns(
    stream: Callable[..., Stream],
    spark: SparkSession,
    admin: Admin,
    service_url: str,
    topic: str,
) -> None:
    """A stream gives the rows that a batch read gives, all columns or a few."""
    admin.create_partitioned(topic, 2)
    messages = [
        official.Message(
            None if i % 7 == 3 else str(i).encode(),
            key=f"k{i}" if i % 2 else None,
            ordering_key=f"o{i}" if i % 3 else None,
            properties={"n": str(i)} if i % 5 else {},
            event_time_ms=1_600_000_000_000 + i if i % 2 else None,
        )
        for i in range(30)
    ]
    for name in partitions_of(topic, 2):
        official.produce(service_url, name, messages, batch=7)
    options = {"service.url": service_url, "topic": topic, "metadataColumns": "all"}
    one = stream(**options, startingOffsets="earliest", maxRowsPerTrigger="40")
    rows = one.load()
    expected = spark.read.format("pulsar").options(**options).load()
    assert rows.schema == expected.schema
    assert len(rows.columns) == 19
    one.run(rows)
    assert _sorted(one.sink.rows) == _sorted(expected.collect())
    assert len(one.sink.rows) == 60

    few = stream(topic=topic, startingOffsets="earliest", metadataColumns="none")
    schema = "__partition INT, value BINARY, __key BINARY"
    reader = spark.readStream.format("pulsar").schema(schema).options(**few.options)
    few.run(reader.load())
    found = [(row["__partition"], row["value"], row["__key"]) for row in few.sink.rows]
    assert few.sink.rows[0].__fields__ == ["__partition", "value", "__key"]
    assert sorted(found, key=repr) == sorted(
        (
            (i, one.value, None if one.key is None else one.key.encode())
            for i in range(2)
            for one in messages
        ),
        key=repr,
    )


def _sorted(rows: list[Row]) -> list[Row]:
    return sorted(
        rows,
        key=lambda row: (
            row["__topic"],
            decode_message_id(row["__messageId"]).position,
            decode_message_id(row["__messageId"]).batch_index,
        ),
    )


# -- progress ------------------------------------------------------------------------


def test_progress(
    stream: Callable[..., Stream],
    spark: SparkSession,
    admin: Admin,
    service_url: str,
    topic: str,
) -> None:
    """Each progress says where the topics end, and how many entries are left."""
    admin.create_partitioned(topic, 2)
    names = partitions_of(topic, 2)
    publish(service_url, names, 0, 200)
    ends = {
        row.topic: row.message_id[:2]
        for row in official.read_back(service_url, topic, partitions=2)
    }
    heard: list[StreamLag] = []
    listener = PulsarLagListener(heard.append)
    spark.streams.addListener(listener)
    try:
        one = stream(topic=topic, startingOffsets="earliest", maxRowsPerTrigger="100")
        query = one.start()
        one.await_rows(400)
        one.await_true(lambda: len(heard) >= 4, "the listener's call")
        progresses = query.recentProgress
        one.stop()
    finally:
        spark.streams.removeListener(listener)
    assert one.sink.sizes == [100, 100, 100, 100]
    lags = [lag for progress in progresses[:4] for lag in lag_of(progress)]
    assert [lag.backlog_entries for lag in lags] == [300, 200, 100, 0]
    assert [lag.input_rows for lag in lags] == [100] * 4
    assert [str(lag) for lag in heard[:4]] == [str(lag) for lag in lags]
    latest = {name: f"{ledger}:{entry}" for name, (ledger, entry) in ends.items()}
    for lag in lags:
        assert {p.topic_partition: p.latest for p in lag.partitions} == latest
        for partition in lag.partitions:
            last_read = int(partition.last_read.split(":")[1])
            assert partition.backlog_entries == 199 - last_read
            # Entries of one short message: its metadata, and a few bytes.
            size_bytes, entries = partition.backlog_bytes, partition.backlog_entries
            assert size_bytes is not None
            assert 20 * entries <= size_bytes < 200 * max(1, entries)
        assert lag.age_s is not None
        assert 0 < lag.age_s < 3600
    reported = json.loads(progresses[0].sources[0].latestOffset)
    assert set(reported) == {"v", "latest", "backlogEntries", "backlogBytes", "ageMs"}
    assert reported["latest"] == {
        topic: {str(i): latest[name] for i, name in enumerate(names)}
    }
    assert sum(reported["backlogEntries"][topic].values()) == 300


# -- errors --------------------------------------------------------------------------


def test_options_that_are_wrong_for_streams_alone(
    stream: Callable[..., Stream], topic: str
) -> None:
    """They are named together, before the stream starts: loading may be for a batch."""
    options = {"minRowsPerTrigger": "0", "maxRowsPerTrigger": "0", "ackOnCommit": "x"}
    error = stream(topic=topic, **options).failure()
    expect(error, "[PULSAR_OPTION]", *options)


def test_no_broker(driven: Callable[..., Query], topic: str) -> None:
    """A query whose broker does not answer ends with an error that names it."""
    nowhere = {
        "service.url": "pulsar://127.0.0.1:1",
        "pulsar.client.connectionTimeoutMs": "500",
        "pulsar.client.lookupTimeoutMs": "700",
        "pulsar.client.operationTimeoutMs": "500",
    }
    with pytest.raises(PulsarSparkError) as caught:
        driven(topic=topic, **nowhere).trigger()
    expect(caught.value, "[PULSAR_CONNECTION]", "127.0.0.1:1")
