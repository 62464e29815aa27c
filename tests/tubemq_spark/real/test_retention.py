# SPDX-License-Identifier: Apache-2.0
"""What retention takes, on a real broker that keeps messages for half a minute."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.tubemq_servers import Topic, TubeMQ
from tests.support.waiting import await_true
from tubemq_spark.client.brokers import BrokerPool
from tubemq_spark.client.masters import Masters, Producer
from tubemq_spark.errors import DataLossError
from tubemq_spark.options import ClientOptions, Offsets, ReadOptions, Start
from tubemq_spark.source.batch_plan import ReadTask, plan_batch
from tubemq_spark.source.range_reader import RangeReader
from tubemq_spark.source.ranges import PartitionRange
from tubemq_spark.wire import messages
from tubemq_spark.wire.attributes import Body, encode_body
from tubemq_spark.wire.metadata import Partition

pytestmark = [pytest.mark.slow, pytest.mark.soak]

#: Segments are deleted when they are this old and another look is taken, each minute.
PATIENCE_S = 300.0

#: Messages of a segment of the index, and as many segments as there are at first.
PER_SEGMENT, SEGMENTS = 1000, 4
COUNT = PER_SEGMENT * SEGMENTS

SHORT = Topic("short", settings={"deletePolicy": "delete,30s"})
LONG = Topic("long", settings={"deletePolicy": "delete,30s"})
PARTITION = Partition("short", 1, 0)


@pytest.fixture(scope="module")
def tube() -> Iterator[TubeMQ]:
    """Servers whose segments are small, and soon deleted."""
    with TubeMQ(
        [SHORT, LONG],
        broker_settings={
            "maxIndexSegmentSize": str(PER_SEGMENT * 28),
            "maxSegmentSize": "1048576",
        },
    ) as servers:
        yield servers


def options_of(tube: TubeMQ, topic: str = "short", **more: Any) -> ReadOptions:
    client = ClientOptions(masters=(tube.masters,), operation_timeout_s=PATIENCE_S)
    return ReadOptions(client, (topic,), group=f"tests-{topic}", **more)


def fill(pool: BrokerPool, options: ReadOptions, first: int, count: int) -> None:
    """Write numbers of 200 bytes each to the only partition."""
    topic = options.topics[0]
    with Masters(options.client) as masters:
        producer = Producer(masters, [topic])
        view = producer.wait_for(PATIENCE_S)
        connection = pool.connection(view.brokers[1])
        for begin in range(first, first + count, 500):
            bodies = [b"%0200d" % n for n in range(begin, begin + 500)]
            calls = connection.call_all(
                [
                    messages.send(producer.client_id, topic, 0, encode_body(Body(body)))
                    for body in bodies
                ]
            )
            assert {connection.reply(call).errCode for call in calls} == {200}
        producer.close()


def edges(pool: BrokerPool, options: ReadOptions) -> tuple[int, int]:
    """Where the partition begins and ends on the disk."""
    tasks = plan_batch(pool, options)
    if not tasks:
        return 0, 0
    return tasks[0].range.start, tasks[0].range.end


def test_a_start_that_is_gone_is_an_error_or_the_first_that_is_left(
    spark: SparkSession, tube: TubeMQ, caplog: pytest.LogCaptureFixture
):
    options = options_of(tube)
    pool = BrokerPool(options.client)
    fill(pool, options, 0, COUNT)
    await_true(lambda: edges(pool, options)[1] == COUNT * 28, "a flush", PATIENCE_S)
    whole = ReadTask(
        PartitionRange(
            PARTITION, 0, COUNT * 28, plan_batch(pool, options)[0].range.broker, True
        ),
        "tests-short",
        None,
    )
    await_true(lambda: edges(pool, options)[0] > 0, "a deletion", PATIENCE_S)
    begin, _ = edges(pool, options)
    assert begin % (PER_SEGMENT * 28) == 0
    message = r"The offset 0 of short/1:0 was asked for, and the partition begins at "

    # By the plan.
    given = {
        "master.rpc": tube.masters,
        "topic": "short",
        "group": "tests-short",
        "startingOffsets": json.dumps({"short": {"1:0": 0}}),
    }
    with pytest.raises(PySparkException, match=rf"TUBEMQ_DATA_LOSS.*{message}"):
        spark.read.format("tubemq").options(**given).load().count()

    # By a task whose range was there when it was planned.
    with pytest.raises(DataLossError, match=message) as caught:
        list(RangeReader(pool, whole, options).pieces())
    assert caught.value.wanted == "0"
    assert int(caught.value.available) >= begin

    # Whoever wants it goes on with what is left.
    lenient = options_of(tube, fail_on_data_loss=False)
    with caplog.at_level(logging.WARNING):
        left = [
            int(one.payLoadData)
            for piece in RangeReader(pool, whole, lenient).pieces()
            for one in piece.messages
        ]
    assert left == list(range(COUNT - len(left), COUNT))
    assert len(left) <= COUNT - begin // 28
    assert "short/1:0" in caplog.text
    assert "gone" in caplog.text
    count = (
        spark.read.format("tubemq")
        .options(**given, failOnDataLoss="false")
        .load()
        .count()
    )
    assert 0 <= count <= COUNT - begin // 28
    pool.close()


def test_a_deletion_under_a_reader_is_an_error_or_a_jump(tube: TubeMQ):
    """It has read the first segment, and the second is gone when it goes on."""
    options = options_of(tube, "long")
    lenient = options_of(tube, "long", fail_on_data_loss=False)
    pool = BrokerPool(options.client)
    fill(pool, options, 0, COUNT)
    await_true(lambda: edges(pool, options)[1] == COUNT * 28, "a flush", PATIENCE_S)
    (task,) = plan_batch(pool, options)
    assert task.range.start == 0
    strict_pieces = RangeReader(pool, task, options).pieces()
    other = ReadTask(task.range, "tests-other", task.token)
    lenient_pieces = RangeReader(pool, other, lenient).pieces()
    read = len(next(strict_pieces).messages)
    found = [int(one.payLoadData) for one in next(lenient_pieces).messages]
    await_true(
        lambda: edges(pool, options)[0] > max(read, len(found)) * 28,
        "a deletion",
        PATIENCE_S,
    )
    with pytest.raises(DataLossError, match=rf"offset {read * 28} of long/1:0"):
        list(strict_pieces)
    first = found[-1] + 1
    for piece in lenient_pieces:
        found += [int(one.payLoadData) for one in piece.messages]
    assert found == sorted(set(found))
    assert found[-1] == COUNT - 1
    assert len(found) < COUNT
    assert first not in found
    pool.close()


def test_a_start_beyond_the_end_is_an_error(tube: TubeMQ):
    options = options_of(
        tube,
        starting=Offsets(Start.EARLIEST, {PARTITION: 10 * COUNT * 28}),
    )
    pool = BrokerPool(options.client)
    with pytest.raises(DataLossError, match="the partition ends at"):
        plan_batch(pool, options)
    pool.close()
