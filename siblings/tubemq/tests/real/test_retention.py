# SPDX-License-Identifier: Apache-2.0
"""What retention takes, on a real broker that keeps messages for half a minute."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from siblings.tubemq.tests.support.servers import Topic, TubeMQ
from spark_topics.options.offsets import Edge, Offsets
from tests.support.waiting import await_true
from tubemq_spark.client.brokers import BrokerPool, register_all
from tubemq_spark.client.masters import Masters, Producer, new_client_id
from tubemq_spark.errors import DataLossError
from tubemq_spark.options import ClientOptions, ReadOptions
from tubemq_spark.options.offsets import ENTRY_BYTES
from tubemq_spark.source.batch_plan import plan_batch
from tubemq_spark.source.range_reader import Piece, RangeReader
from tubemq_spark.wire import messages
from tubemq_spark.wire.attributes import Body, encode_body
from tubemq_spark.wire.metadata import Partition

TOPICS = ("short", "long")

pytestmark = [pytest.mark.slow, pytest.mark.soak]

#: Until a flush, or until segments are deleted: half a minute after they were full, as
#: soon as the broker looks again.
PATIENCE_S = 300.0

#: Messages that fill a segment of the index, all of them or most; and those after them.
#: The last segment stays open, and so is never deleted.
GONE, KEPT = 1500, 10
PARTITION = Partition("short", 1, 0)


@pytest.fixture(scope="module")
def tube() -> Iterator[TubeMQ]:
    """Servers whose segments are small, and soon deleted."""
    with TubeMQ(
        [Topic(name, settings={"deletePolicy": "delete,30s"}) for name in TOPICS],
        broker_settings={
            "maxIndexSegmentSize": "28000",
            "maxSegmentSize": "1048576",
        },
    ) as servers:
        yield servers


def options_of(tube: TubeMQ, topic: str = "short", **more: Any) -> ReadOptions:
    client = ClientOptions(masters=(tube.masters,), operation_timeout_s=PATIENCE_S)
    return ReadOptions(client, (topic,), group=f"tests-{topic}", **more)


def fill(pool: BrokerPool, options: ReadOptions, first: int, count: int) -> None:
    """Write some numbers to the only partition, and wait until they are on the disk."""
    topic = options.topics[0]
    with Masters(options.client) as masters:
        producer = Producer(masters, [topic])
        view = producer.wait_for(PATIENCE_S)
        producer.close()
    connection = pool.connection(view.brokers[1])
    calls = connection.call_all(
        [
            messages.send("me", topic, 0, encode_body(Body(b"%0100d" % number)))
            for number in range(first, first + count)
        ]
    )
    assert {connection.reply(call).errCode for call in calls} == {200}
    end = (first + count) * ENTRY_BYTES
    await_true(lambda: edges(pool, options)[1] == end, "a flush", PATIENCE_S)


def edges(pool: BrokerPool, options: ReadOptions) -> tuple[int, int]:
    """Where the partition begins and ends on the disk."""
    group, topic = f"{options.group}-plan", options.topics[0]
    with Masters(options.client) as masters:
        view = masters.readable(group, [topic])
    partition = Partition(topic, 1, 0)
    found = register_all(
        pool, view.brokers[1], new_client_id("me"), [group], [partition]
    )
    return found[partition].offset, found[partition].end


def await_deletion(pool: BrokerPool, options: ReadOptions) -> int:
    """Wait until segments are deleted, and return how many messages that were."""
    await_true(lambda: edges(pool, options)[0] > 0, "a deletion", PATIENCE_S)
    return edges(pool, options)[0] // ENTRY_BYTES


def values(pieces: Iterator[Piece]) -> list[int]:
    return [int(one.stored) for piece in pieces for one in piece.messages]


def test_a_start_that_is_gone_is_an_error_or_what_is_left(
    spark: SparkSession, tube: TubeMQ, caplog: pytest.LogCaptureFixture
):
    options, lenient = options_of(tube), options_of(tube, fail_on_data_loss=False)
    pool = BrokerPool(options.client)
    fill(pool, options, 0, GONE)
    fill(pool, options, GONE, KEPT)
    (task,) = plan_batch(pool, options)
    gone = await_deletion(pool, options)
    begin, left = gone * ENTRY_BYTES, list(range(gone, GONE + KEPT))
    message = (
        "The offset 0 of short/1:0 was asked for, and the partition begins at "
        f"{begin}. Retention has deleted"
    )

    # By the plan.
    given = {
        "master.rpc": tube.masters,
        "topic": "short",
        "group": "tests-short",
        "startingOffsets": json.dumps({"short": {"1:0": 0}}),
    }
    reader = spark.read.format("tubemq").options(**given)
    with pytest.raises(PySparkException, match=rf"TUBEMQ_DATA_LOSS.*{message}"):
        reader.load().count()
    rows = reader.option("failOnDataLoss", "false").load().select("value").collect()
    assert [int(row.value) for row in rows] == left

    # By a task whose range was there when it was planned.
    whole = replace(task, range=replace(task.range, start=0))
    with pytest.raises(DataLossError, match=message) as caught:
        values(RangeReader(pool, whole, options).pieces())
    assert (caught.value.wanted, caught.value.available) == ("0", str(begin))
    with caplog.at_level(logging.WARNING):
        found = values(RangeReader(pool, whole, lenient).pieces())
    assert found == left
    assert message in caplog.text

    # Beyond the end.
    place = Offsets(Edge.EARLIEST, {PARTITION: 10 * begin})
    with pytest.raises(DataLossError, match="the partition ends at"):
        plan_batch(pool, options_of(tube, starting=place))
    pool.close()


def test_a_deletion_under_a_reader_is_an_error_or_the_end(
    tube: TubeMQ, caplog: pytest.LogCaptureFixture
):
    """Both have read some of a segment that is gone when they go on."""
    options = options_of(tube, "long")
    lenient = options_of(tube, "long", fail_on_data_loss=False)
    pool = BrokerPool(options.client)
    fill(pool, options, 0, GONE)
    (task,) = plan_batch(pool, options)
    assert task.range.entries == GONE
    pieces = RangeReader(pool, task, options).pieces()
    other = RangeReader(pool, replace(task, group="tests-other"), lenient).pieces()
    read, found = len(next(pieces).messages), values(islice(other, 1))
    assert read < GONE
    fill(pool, options, GONE, KEPT)
    gone = await_deletion(pool, options)
    assert gone > max(read, len(found))
    with pytest.raises(DataLossError, match=r"of long/1:0 was asked for") as caught:
        values(pieces)
    assert int(caught.value.wanted) >= read * ENTRY_BYTES
    assert caught.value.available == str(gone * ENTRY_BYTES)
    with caplog.at_level(logging.WARNING):
        found += values(other)
    # A get more was on its way before the deletion.
    before = len(found) - (GONE - gone)
    assert read <= before < gone
    assert found == [*range(before), *range(gone, GONE)]
    assert f"begins at {gone * ENTRY_BYTES}" in caplog.text
    pool.close()
