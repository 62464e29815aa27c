# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.errors import (
    DataLossError,
    OptionError,
    TopicNotFoundError,
    TransportError,
)
from pulsar_spark.message_id import MessageId
from pulsar_spark.options import parse_read_options
from pulsar_spark.source.plan.batch_plan import plan_batch
from pulsar_spark.source.plan.pruning import Pruning
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.wire import pulsar_api_pb2 as pb
from tests.support.reading import ranges_of
from tests.support.scripted_broker import (
    LEDGER,
    ScriptedBroker,
    Session,
    batch,
    client_options,
    look_up,
    single,
)
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "persistent://public/default/t"
STEPS = ("LOOKUP", "SUBSCRIBE", "GET_LAST_MESSAGE_ID", "CLOSE_CONSUMER")


def plan(pool: ConnectionPool, **options: str) -> list[TopicRange]:
    """The ranges of a read with these options."""
    given: dict[str, Any] = {"service.url": "pulsar://unused:1", **options}
    return ranges_of(plan_batch(pool, parse_read_options(given)))


@pytest.fixture
def pool(scripted: ScriptedBroker) -> Iterator[ConnectionPool]:
    """Connections with time enough for large plans."""
    one = ConnectionPool(client_options(scripted.address, lookup_timeout_s=30.0))
    yield one
    one.close()


def test_nothing_of_what_has_a_start(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """As where a topic of a pattern came after its ends were asked for."""
    scripted.partitions[TOPIC] = 2
    for index in range(2):
        scripted.add_topic(f"{TOPIC}-partition-{index}", [single(b"a")] * 5)
    ends = f'{{"t":{{"0":"{LEDGER}:3"}},"*":"earliest"}}'
    starts = f'{{"t":{{"0":"{LEDGER}:1","1":"{LEDGER}:1"}}}}'
    (found,) = plan(pool, topic="t", startingOffsets=starts, endingOffsets=ends)
    assert (found.topic_partition, found.start, found.end) == (
        f"{TOPIC}-partition-0",
        MessageId(LEDGER, 1),
        MessageId(LEDGER, 3),
    )
    starts = f'{{"t":{{"0":"{LEDGER}:1","1":"latest"}}}}'
    (found,) = plan(pool, topic="t", startingOffsets=starts)
    assert (found.topic_partition, found.start) == (
        f"{TOPIC}-partition-0",
        MessageId(LEDGER, 1),
    )


@pytest.mark.parametrize("partitions", [2, 500])
def test_the_number_of_partitions_costs_no_round_trips(
    scripted: ScriptedBroker, pool: ConnectionPool, partitions: int
) -> None:
    """Each step is asked of all at once, over one connection.

    The broker answers none of a step's requests before it has all of them, so a plan
    that waits for one answer before it asks the next would not come to an end.
    """
    scripted.partitions[TOPIC] = partitions
    for index in range(partitions):
        scripted.add_topic(f"{TOPIC}-partition-{index}", [single(b"a")])
    scripted.answer_together(partitions, *STEPS)
    assert len(plan(pool, topic="t")) == partitions
    wait_until(lambda: scripted.requests["CLOSE_CONSUMER"] == partitions)
    assert scripted.connections == 1
    assert scripted.requests["PARTITIONED_METADATA"] == 1
    for step in STEPS:
        assert scripted.requests[step] == scripted.deepest[step] == partitions
    wait_until(lambda: scripted.consumers == [])


def test_a_broker_that_advertises_a_name_nobody_knows(
    scripted: ScriptedBroker,
) -> None:
    """The lookup works; the error names the host, and what may be wrong with it."""
    scripted.add_topic(TOPIC, [single(b"a")])
    scripted.always(
        "LOOKUP",
        look_up(
            response=pb.CommandLookupTopicResponse.Connect,
            brokerServiceUrl="pulsar://no-such-host.invalid:6650",
        ),
    )
    options = client_options(scripted.address, lookup_timeout_s=0.3)
    with (
        ConnectionPool(options) as pool,
        pytest.raises(TransportError, match=r"no-such-host.invalid.*advertises"),
    ):
        plan(pool, topic="t")


def test_one_connection_for_each_broker(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Half of the partitions are another broker's: two connections."""
    with ScriptedBroker() as other:
        scripted.partitions[TOPIC] = 100
        for index in range(100):
            broker = other if index % 2 else scripted
            broker.add_topic(f"{TOPIC}-partition-{index}", [single(b"a")])

        def spread(broker: ScriptedBroker, session: Any, command: Any) -> None:
            odd = int(command.lookupTopic.topic[-1]) % 2
            own, broker.url = broker.url, other.url if odd else broker.url
            broker.answer(session, command)
            broker.url = own

        scripted.always("LOOKUP", spread)
        assert len(plan(pool, topic="t")) == 100
        assert (scripted.connections, other.connections) == (1, 1)


def test_topics_without_rows_are_left_out(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """An empty partition costs no task; a plan of none is empty."""
    scripted.partitions[TOPIC] = 2
    scripted.add_topic(f"{TOPIC}-partition-0")
    scripted.add_topic(f"{TOPIC}-partition-1", [batch([b"a", b"b"])])
    (found,) = plan(pool, topic="t")
    assert found.topic_partition == f"{TOPIC}-partition-1"
    assert (found.start.position, found.end.position) == ((LEDGER, 0), (LEDGER, 0))
    assert plan(pool, topic="t-partition-0") == []


def test_the_end_is_fixed_when_planning(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """What comes later is not in it."""
    scripted.add_topic(TOPIC, [single(b"a")])
    (before,) = plan(pool, topic="t")
    scripted.append(TOPIC, single(b"b"))
    assert before.end.position == (LEDGER, 0)
    assert plan(pool, topic="t")[0].end.position == (LEDGER, 1)


def test_offsets_cut_the_range(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """Both ends are inclusive, and exact inside of a batch."""
    scripted.add_topic(TOPIC, [batch([b"a", b"b", b"c"])] * 3)
    (found,) = plan(
        pool,
        topic="t",
        startingOffsets=f'{{"t": "{LEDGER}:0:2"}}',
        endingOffsets=f'{{"t": "{LEDGER}:2:1"}}',
    )
    assert found.start == MessageId(LEDGER, 0, batch_index=2)
    assert found.end == MessageId(LEDGER, 2, batch_index=1)


def test_an_end_before_the_start(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """The error names both, and both options."""
    scripted.add_topic(TOPIC, [single(b"a")] * 3)
    with pytest.raises(OptionError, match=r"7:0.*7:2.*startingOffsets"):
        plan(
            pool,
            topic="t",
            startingOffsets=f'{{"t": "{LEDGER}:2"}}',
            endingOffsets=f'{{"t": "{LEDGER}:0"}}',
        )


@pytest.mark.parametrize("following", ["7:1:2", "7:2"])
def test_a_start_right_after_the_end(
    scripted: ScriptedBroker, pool: ConnectionPool, following: str
) -> None:
    """Nothing is wanted there, and so nothing is lost, whatever is left."""
    scripted.add_topic(TOPIC, [batch([b"a", b"b"])] * 2)
    scripted.roll(TOPIC)
    scripted.append(TOPIC, single(b"c"))
    scripted.trim(TOPIC)
    start, end = f'{{"t": "{following}"}}', '{"t": "7:1:1"}'
    assert plan(pool, topic="t", startingOffsets=start, endingOffsets=end) == []


def test_a_partition_without_rows_that_does_not_exist(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """The end that says that there is nothing is reached."""
    scripted.partitions[TOPIC] = 1
    assert plan(pool, topic="t", endingOffsets='{"t": {"0": "0:-1"}}') == []


@pytest.mark.parametrize(
    ("given", "is_lost"),
    [
        ({}, True),
        ({"startingOffsets": '{"t": "latest", "*": "earliest"}'}, False),
        ({"startingOffsets": '{"t": "7:-1"}'}, True),
        ({"startingTime": "1"}, True),
        ({"startingTime": "9000"}, True),  # nobody can tell when it was published
        ({"endingOffsets": '{"t": "7:-1"}'}, False),
        ({"endingOffsets": '{"t": "0:-1"}'}, False),
        ({"endingOffsets": "latest", "endingTime": "1"}, False),
    ],
)
def test_an_end_that_is_gone(
    scripted: ScriptedBroker, pool: ConnectionPool, given: dict[str, str], is_lost: bool
) -> None:
    """An error, where any row up to there was wanted; or a warning."""
    scripted.add_topic(TOPIC, [single(b"a", publish_time=1)] * 3)
    options = {"topic": "t", "endingOffsets": '{"t": "7:2"}', **given}
    if "endingTime" in given:
        del options["endingOffsets"]
    if "latest" in given.get("startingOffsets", ""):
        options = {"topics": "t,u", **options}
        del options["topic"]
        scripted.add_topic(f"{TOPIC[:-1]}u")
    plan(pool, **options)
    scripted.roll(TOPIC)
    scripted.append(TOPIC, single(b"b", publish_time=5000))
    scripted.trim(TOPIC)
    if is_lost:
        with pytest.raises(DataLossError) as caught:
            plan(pool, **options)
        assert caught.value.topic_partition == TOPIC
        assert "7:" in caught.value.wanted
    assert plan(pool, **options, failOnDataLoss="false") == []


def test_an_end_before_a_starting_time(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Nothing is read, and nothing is lost."""
    scripted.add_topic(TOPIC, [single(b"a", publish_time=n) for n in range(1, 9)])
    end = f'{{"t": "{LEDGER}:2"}}'
    assert plan(pool, topic="t", startingTime="6", endingOffsets=end) == []


def test_a_start_that_is_gone(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """An error, or the first one available where `failOnDataLoss` is false."""
    scripted.add_topic(TOPIC)
    metadata, payload = single(b"a").metadata, b"a"
    kept = single(b"a")
    scripted.append(TOPIC, type(kept)(metadata, payload, 1, position=(9, 0)))
    starting = f'{{"t": "{LEDGER}:4"}}'
    with pytest.raises(DataLossError, match=r"7:4.*9:0.*failOnDataLoss"):
        plan(pool, topic="t", startingOffsets=starting)
    (found,) = plan(pool, topic="t", startingOffsets=starting, failOnDataLoss="false")
    assert found.start == MessageId(9, 0)


def test_compacted_reads_are_not_pruned_by_time(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Compaction leaves entries of all times anywhere, where a seek misses them."""
    scripted.add_topic(TOPIC, [single(b"a", publish_time=1)] * 3)
    url = "pulsar://unused:1"
    given = {"service.url": url, "topic": "t", "filterPushdown": "true"}
    late = Pruning(published_from_ms=10**12)
    assert plan_batch(pool, parse_read_options(given), late) == []
    assert scripted.requests["SEEK"] > 0
    scripted.requests.clear()
    given["pulsar.reader.readCompacted"] = "true"
    (whole,) = ranges_of(plan_batch(pool, parse_read_options(given), late))
    assert whole.end.position == (LEDGER, 2)
    assert scripted.requests["SEEK"] == 0


def test_a_missing_topic(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """It is named, and nobody subscribes to it."""
    with pytest.raises(TopicNotFoundError, match=TOPIC):
        plan(pool, topic="t")
    assert scripted.requests["SUBSCRIBE"] == 0


@pytest.fixture
def timed(scripted: ScriptedBroker) -> ScriptedBroker:
    """A topic of ten entries, one published each second."""
    entries = [single(b"a", publish_time=1000 * n) for n in range(1, 11)]
    scripted.add_topic(TOPIC, entries)
    return scripted


@pytest.mark.parametrize(
    ("published", "entries"),
    [
        ({}, (0, 9)),
        # Twice the second by which clocks may be off, at each end.
        ({"from": 6000}, (3, 9)),
        ({"from": 6001}, (4, 9)),
        ({"from": 100}, (0, 9)),
        ({"from": 99_000}, None),
        ({"to": 5000}, (0, 6)),
        ({"to": 4999}, (0, 5)),
        ({"to": 99_000}, (0, 9)),
        ({"from": 5000, "to": 6000}, (2, 7)),
    ],
)
def test_publish_times_prune_the_range(
    timed: ScriptedBroker,
    pool: ConnectionPool,
    published: dict[str, int],
    entries: tuple[int, int] | None,
) -> None:
    """What cannot hold a wanted row is not read, and nothing else is left out."""
    pruning = Pruning(
        published_from_ms=published.get("from"), published_to_ms=published.get("to")
    )
    given = {"service.url": "pulsar://unused:1", "topic": "t"}
    options = parse_read_options({**given, "filterPushdown": "true,1s"})
    found = ranges_of(plan_batch(pool, options, pruning))
    places = [(one.start.entry_id, one.end.entry_id) for one in found]
    assert places == ([] if entries is None else [entries])
    assert timed.requests["SEEK"] == 2 * len(published)
    # Without the option, or in compacted topics, nobody is asked for times.
    compacted = {"filterPushdown": "true,1s", "pulsar.reader.readCompacted": "true"}
    for others in ({}, compacted):
        plan_batch(pool, parse_read_options({**given, **others}), pruning)
    assert timed.requests["SEEK"] == 2 * len(published)


@pytest.mark.parametrize(
    ("options", "begins_at"),
    [
        ({}, MessageId(LEDGER, 0)),
        ({"startingTime": "2500"}, MessageId(LEDGER, 2)),
        ({"startingOffsets": f'{{"t": "{LEDGER}:2"}}'}, None),
    ],
)
def test_where_a_read_may_begin_amid_a_message(
    timed: ScriptedBroker,
    pool: ConnectionPool,
    options: dict[str, str],
    begins_at: MessageId | None,
) -> None:
    """Not where it was asked for by its place; all tasks of the read know."""
    found = plan(pool, topic="t", minPartitions="3", **options)
    assert len(found) == 3
    assert {one.begins_at for one in found} == {begins_at}


def test_a_segment_that_disappears_in_the_midst(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Brokers delete what is read: the read has the segments that are left.

    But a topic whose segments never exist is an error.
    """
    topic = "topic://public/default/t"
    scripted.scalable = {topic: topic}
    scripted.segments[0].state = 1
    last = "segment://public/default/t/0000-ffff-2"
    scripted.segments.append(pb.ScalableTopicSegment(segment_id=2, hash_end=0xFFFF))
    scripted.add_topic(last, [single(b"a")])

    def deletes(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        broker.answer(session, c)
        del broker.segments[:-1]

    scripted.always("SCALABLE_TOPIC_LOOKUP", deletes)
    assert [range_.topic_partition for range_ in plan(pool, topic=topic)] == [last]
    assert scripted.requests["SCALABLE_TOPIC_LOOKUP"] == 2
    del scripted.topics[last]
    with pytest.raises(TopicNotFoundError):
        plan(pool, topic=topic)
    assert scripted.requests["SCALABLE_TOPIC_LOOKUP"] == 5
