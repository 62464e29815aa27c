# SPDX-License-Identifier: Apache-2.0
"""What real brokers do without an error, and what readers make of it."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from siblings.tubemq.tests.real.servers import (
    await_stored,
    client_of,
    read,
    stored,
)
from siblings.tubemq.tests.support.servers import TubeMQ
from tubemq_spark.arrow.decode import Decoder
from tubemq_spark.client import heart
from tubemq_spark.client.brokers import BrokerPool, Consumer
from tubemq_spark.client.masters import Masters, Producer
from tubemq_spark.errors import DataLossError
from tubemq_spark.options import ReadOptions
from tubemq_spark.options.offsets import ENTRY_BYTES
from tubemq_spark.source.batch_plan import ReadTask, plan_batch
from tubemq_spark.source.range_reader import RangeReader
from tubemq_spark.wire import messages
from tubemq_spark.wire.attributes import Body, Stored, encode_body
from tubemq_spark.wire.metadata import Partition

pytestmark = [pytest.mark.slow, pytest.mark.soak]

VALUE = pa.schema([("value", pa.binary())])

#: Longer than brokers of tests keep a registration: 20 s, looked at now and then.
REST_S = 45.0


@pytest.fixture
def pool(tube: TubeMQ) -> Iterator[BrokerPool]:
    """Connections of this test's own."""
    found = BrokerPool(client_of(tube))
    yield found
    found.close()


def send(tube: TubeMQ, pool: BrokerPool, topic: str, some: Sequence[Stored]) -> None:
    """Store messages, whatever they are, in the first partition of a topic."""
    with Masters(client_of(tube)) as masters:
        producer = Producer(masters, [topic])
        view = producer.wait_for(300.0)
        connection = pool.connection(view.brokers[1])
        for one in some:
            connection.ask(
                messages.send(producer.client_id, topic, 0, one, token=view.token)
            )
        producer.close()


def plain(*values: bytes) -> list[Stored]:
    return [encode_body(Body(value)) for value in values]


def options_of(tube: TubeMQ, topic: str, *, unflushed: bool = False) -> ReadOptions:
    return ReadOptions(
        client_of(tube), (topic,), group=f"edge-{topic}", read_unflushed=unflushed
    )


def values_of(pool: BrokerPool, task: ReadTask, options: ReadOptions) -> list[bytes]:
    reader = RangeReader(pool, task, options)
    return [one.stored for piece in reader.pieces() for one in piece.messages]


def test_large_messages_come_from_the_disk(
    spark: SparkSession, tube: TubeMQ, pool: BrokerPool
):
    """Out of its memory a broker leaves those above 1,058,764 bytes out."""
    sizes = [10, 1_058_764, 1_058_765, 1_500_000, 3_000_000, 11]
    send(tube, pool, "large", plain(*(b"x" * size for size in sizes)))
    await_stored(tube, "large", len(sizes))
    rows = read(spark, tube, "large").selectExpr("length(value) as size").collect()
    assert [row["size"] for row in rows] == sizes


def test_messages_that_are_never_delivered_are_a_loss(
    spark: SparkSession, tube: TubeMQ, pool: BrokerPool
):
    """Their flag promises attributes that are not there. They are acknowledged."""
    good = plain(*(b"%d" % number for number in range(9)))
    bad = Stored(b"\x7f\xff\xff\xff no", 1)
    send(tube, pool, "torn", [*good[:3], bad, *good[3:5], bad, bad, *good[5:]])
    await_stored(tube, "torn", 12)
    with pytest.raises(PySparkException, match=r"TUBEMQ_DATA_LOSS.*messages of torn"):
        read(spark, tube, "torn").collect()
    rows = read(spark, tube, "torn", failOnDataLoss="false").collect()
    assert [bytes(row["value"]) for row in rows] == [b"%d" % n for n in range(9)]


def test_what_only_memory_had_is_a_loss_once_the_broker_is_killed(
    tube: TubeMQ, pool: BrokerPool
):
    """And what was on the disk is read as it was planned."""
    values = [b"flushed %d" % number for number in range(50)]
    send(tube, pool, "alike", plain(*values))
    flushed = options_of(tube, "alike")
    unflushed = options_of(tube, "alike", unflushed=True)
    unsure = sure = left = None
    for _ in range(5):  # until a flush does not come between
        count = stored(tube, "alike", unflushed=True)
        await_stored(tube, "alike", count)
        (sure,) = plan_batch(pool, flushed)
        send(tube, pool, "alike", plain(*(b"gone %d" % n for n in range(20))))
        (unsure,) = plan_batch(pool, unflushed)
        assert unsure.range.entries == count + 20
        tube.stop_broker(kill=True)
        tube.start_broker()
        (left,) = plan_batch(pool, unflushed)
        if left.range.end < unsure.range.end:
            break
    assert sure is not None
    assert unsure is not None
    assert left is not None
    assert left.range.end < unsure.range.end, "the broker has flushed each time"
    with pytest.raises(DataLossError, match="rolled back"):
        values_of(pool, unsure, unflushed)
    before = values_of(pool, sure, flushed)
    assert before[:50] == values
    assert len(before) == sure.range.entries
    # The offsets of those that are gone are used again, by other messages.
    send(tube, pool, "alike", plain(*(b"other %d" % n for n in range(20))))
    assert values_of(pool, sure, flushed) == before


def test_planning_does_not_disturb_a_task_that_reads(tube: TubeMQ, pool: BrokerPool):
    values = [b"%d" % number for number in range(200)]
    send(tube, pool, "planned", plain(*values))
    await_stored(tube, "planned", 200)
    options = options_of(tube, "planned")
    (task,) = plan_batch(pool, options)
    one = RangeReader(pool, task, options)
    pieces = one.pieces()
    got = [one.stored for one in next(pieces).messages]
    assert len(got) < 200
    for _ in range(3):
        assert plan_batch(pool, options) == [task]
    got += [one.stored for piece in pieces for one in piece.messages]
    assert got == values
    assert one.reconnects == 0


def test_a_reader_that_was_killed_does_not_hold_up_the_next(
    tube: TubeMQ, pool: BrokerPool
):
    """Its registration is there for half a minute: another group is taken."""
    send(tube, pool, "held", plain(b"a", b"b"))
    await_stored(tube, "held", 2)
    options = options_of(tube, "held")
    (task,) = plan_batch(pool, options)
    for number in range(3):
        Consumer(
            pool.connection(task.range.broker),
            f"killed-{number}",
            task.group if number == 0 else f"{task.group}-{number}",
            task.range.partition,
        ).register(0)
    reader = RangeReader(pool, task, options)
    assert [one.stored for piece in reader.pieces() for one in piece.messages] == [
        b"a",
        b"b",
    ]
    assert reader.reconnects == 0
    assert reader._registrar.waited_s == 0


@pytest.mark.parametrize("beats", [True, False])
def test_a_reader_that_rests_keeps_its_registration(
    tube: TubeMQ, pool: BrokerPool, monkeypatch: pytest.MonkeyPatch, beats: bool
):
    """By heartbeats; without them it has to register again. Nothing is lost by that."""
    if not beats:
        monkeypatch.setattr(heart, "INTERVAL_S", 3600.0)
    topic = "rested" if beats else "rested_less"
    values = [b"%d" % number for number in range(500)]
    send(tube, pool, topic, plain(*values))
    await_stored(tube, topic, 500)
    options = options_of(tube, topic)
    (task,) = plan_batch(pool, options)
    one = RangeReader(pool, task, options)
    pieces = one.pieces()
    got = [one.stored for one in next(pieces).messages]
    threading.Event().wait(REST_S)
    got += [one.stored for piece in pieces for one in piece.messages]
    assert got == values
    assert one.reconnects == (0 if beats else 1)


def fill(
    tube: TubeMQ, pool: BrokerPool, topic: str, count: int, chance: random.Random
) -> dict[Partition, dict[int, tuple[bytes, str | None]]]:
    """Store messages of random types and partitions, and return them by offset."""
    truth: dict[Partition, dict[int, tuple[bytes, str | None]]] = {}
    with Masters(client_of(tube)) as masters:
        producer = Producer(masters, [topic])
        view = producer.wait_for(300.0)
        partitions = view.topics[topic].partitions
        connection = pool.connection(view.brokers[1])
        for begin in range(0, count, 200):
            some = [
                (
                    chance.choice(partitions),
                    b"%d" % n,
                    chance.choice([None, "Aa", "BB"]),
                )
                for n in range(begin, begin + 200)
            ]
            calls = connection.call_all(
                [
                    messages.send(
                        producer.client_id,
                        topic,
                        partition.partition_id,
                        encode_body(Body(value, type_)),
                        msg_type=type_,
                        token=view.token,
                    )
                    for partition, value, type_ in some
                ]
            )
            for call, (partition, value, type_) in zip(calls, some, strict=True):
                offset = connection.reply(call).appendOffset
                truth.setdefault(partition, {})[offset] = (value, type_)
        producer.close()
    return truth


@pytest.mark.parametrize(
    ("topic", "per_store"), [("kills_1x3", 3), ("kills_2x2", 2), ("kills_3x1", 1)]
)
def test_random_reads_over_kills_are_exact(
    tube: TubeMQ, pool: BrokerPool, topic: str, per_store: int
):
    """Of random ranges, filtered or not, while the broker dies, or stops in order."""
    chance = random.Random(11)
    truth = fill(tube, pool, topic, 3000, chance)
    await_stored(tube, topic, 3000 * per_store)
    options = options_of(tube, topic)
    plan = {task.range.partition: task for task in plan_batch(pool, options)}
    is_over = threading.Event()

    def read_on(seed: int) -> int:
        mine = random.Random(seed)
        count = 0
        while not is_over.is_set():
            task = plan[mine.choice(sorted(plan))]
            whole = task.range
            cuts = range(0, whole.end + ENTRY_BYTES, ENTRY_BYTES)
            start, end = sorted(mine.sample(cuts, 2))
            types = mine.choice([None, ("Aa",), ("BB",)])
            part = replace(task, range=replace(whole, start=start, end=end))
            decoder = Decoder(VALUE, whole.partition, types or ())
            reader = RangeReader(pool, part, replace(options, filters=types))
            got: list[bytes] = []
            for piece in reader.pieces():
                got += decoder.decode(*piece).column("value").to_pylist()
            assert got == [
                value
                for offset, (value, type_) in sorted(truth[whole.partition].items())
                if start <= offset < end and (types is None or type_ in types)
            ], (whole.partition, start, end, types)
            count += 1
        return count

    with ThreadPoolExecutor(2) as readers:
        running = [readers.submit(read_on, seed) for seed in range(2)]
        try:
            for kill in (True, False, True):
                threading.Event().wait(2.0)
                tube.stop_broker(kill=kill)
                tube.start_broker()
        finally:
            is_over.set()
        assert all(one.result(300.0) > 0 for one in running)
