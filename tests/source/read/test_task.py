# SPDX-License-Identifier: Apache-2.0
"""The loop of a reading task, on the scripted broker."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pulsar_spark.arrow.schema import arrow_schema
from pulsar_spark.client.pool import BrokerAddress
from pulsar_spark.errors import CorruptEntryError, DataLossError
from pulsar_spark.message_id import MessageId
from pulsar_spark.options import parse_read_options
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.source.plan.read_task import ReadTask
from pulsar_spark.source.read import task as module
from pulsar_spark.source.read.task import range_settings, read_task
from spark_topics.source import turns
from tests.support.scripted_broker import (
    LEDGER,
    ScriptedBroker,
    batch,
    numbered,
    silence,
    single,
)
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_spark.client.pool import ConnectionPool
    from pulsar_spark.options import ReadOptions

TOPIC = "persistent://public/default/t-partition-3"
SCHEMA = arrow_schema(("value", "__partition", "__topic"))


def options_of(**given: str) -> ReadOptions:
    """How to read."""
    return parse_read_options(
        {"service.url": "pulsar://unused:1", "topic": "t", **given}
    )


@pytest.fixture(autouse=True)
def _shared(pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connections of the process are those to the scripted broker."""
    monkeypatch.setattr(module, "shared_pool", lambda _options: pool)


def read(
    first: int, last: int, schema: pa.Schema = SCHEMA, **options: str
) -> Iterator[pa.RecordBatch]:
    """The RecordBatches of a range."""
    range_ = TopicRange(TOPIC, MessageId(LEDGER, first), MessageId(LEDGER, last))
    return read_task(ReadTask((range_,)), options_of(**options), schema)


def test_a_range_becomes_rows(scripted: ScriptedBroker) -> None:
    """In order, cut to the range, with the columns wanted."""
    scripted.add_topic(TOPIC, [batch([b"%d" % i, b"%d'" % i]) for i in range(5)])
    (found,) = read(1, 3)
    assert found.schema == SCHEMA
    assert found["value"].to_pylist() == [b"1", b"1'", b"2", b"2'", b"3", b"3'"]
    assert set(found["__partition"].to_pylist()) == {3}
    assert set(found["__topic"].to_pylist()) == {TOPIC}


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"rowsPerArrowBatch": "5"}, [3, 3, 3, 3]),
        ({"rowsPerArrowBatch": "6"}, [6, 6]),
        ({"rowsPerArrowBatch": "100"}, [12]),
    ],
)
def test_the_size_of_record_batches(
    scripted: ScriptedBroker, options: dict[str, str], sizes: list[int]
) -> None:
    """At most as many rows as the option says, in whole entries."""
    scripted.add_topic(TOPIC, numbered(4, 3))
    assert [len(found) for found in read(0, 3, **options)] == sizes


def test_what_is_asked(scripted: ScriptedBroker) -> None:
    """A task that knows its broker waits twice: for SUBSCRIBE, and for entries.

    Once more for the handshake, if it is the first of its process. CLOSE_CONSUMER is
    not waited for. More than that is a slower task, however fast the cluster.
    """
    scripted.add_topic(TOPIC, [batch([b"a", b"b"]), single(b"c")])
    scripted.always("CLOSE_CONSUMER", silence)
    range_ = TopicRange(TOPIC, MessageId(LEDGER, 0), MessageId(LEDGER, 1))
    task = ReadTask((range_,), {TOPIC: BrokerAddress(scripted.address)})
    asked = {"CONNECT", "SUBSCRIBE", "FLOW", "CLOSE_CONSUMER"}
    for _ in range(3):
        scripted.requests.clear()
        assert sum(map(len, read_task(task, options_of(), SCHEMA))) == 3
        wait_until(lambda: scripted.requests["CLOSE_CONSUMER"])
        assert set(scripted.requests) == asked
        assert scripted.requests["SUBSCRIBE"] == 1
        asked.discard("CONNECT")


def test_nothing_to_read(scripted: ScriptedBroker) -> None:
    """The one task of an empty plan asks no broker."""
    assert list(read_task(None, options_of(), SCHEMA)) == []
    assert scripted.connections == 0


def test_a_reader_that_is_left(scripted: ScriptedBroker) -> None:
    """As of a query with LIMIT: the consumer goes with it."""
    scripted.add_topic(TOPIC, numbered(50, 10))
    found = read(0, 49, rowsPerArrowBatch="5")
    next(found)
    assert scripted.consumers != []
    found.close()  # type: ignore[attr-defined]
    wait_until(lambda: scripted.consumers == [])


def test_figures(scripted: ScriptedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and bytes, whoever waited for whom."""
    seen: list[Any] = []

    class Statistics(turns.TaskStatistics):
        def end(self) -> None:
            super().end()
            seen.append(self.totals)

    monkeypatch.setattr(turns, "TaskStatistics", Statistics)
    scripted.add_topic(TOPIC, [single(b"." * 100)] * 3)
    assert sum(map(len, read(0, 2))) == 3
    (totals,) = seen
    assert totals.rows == 3
    assert totals.size_bytes >= 300
    assert totals.reconnects == 0
    assert min(totals.broker_s, totals.spark_s) >= 0


@pytest.mark.parametrize("fails", [True, False])
def test_rows_that_are_gone(scripted: ScriptedBroker, fails: bool) -> None:
    """The option says whether that is an error."""
    scripted.add_topic(TOPIC, [single(b"a")] * 2)
    found = read(0, 9, failOnDataLoss=str(fails))
    if fails:
        with pytest.raises(DataLossError, match="up to 7:9"):
            list(found)
    else:
        assert sum(map(len, found)) == 2


def test_settings() -> None:
    """Times of the options are seconds; the assembler of chunks counts milliseconds."""
    expiry = "pulsar.reader.expireTimeOfIncompleteChunkedMessageMillis"
    options = options_of(
        **{expiry: "1500", "failOnDataLoss": "false", "rowsPerArrowBatch": "7"}
    )
    settings = range_settings(options, is_protected=True)
    assert settings.expire_chunks_ms == 1500
    assert settings.table_rows == 7
    assert settings.is_protected
    assert not settings.fail_on_data_loss
    assert not range_settings(options).is_protected


class TestSeveralRanges:
    """A task that reads many, one after the other."""

    TOPICS = tuple(f"persistent://public/default/t-partition-{i}" for i in range(5))

    @pytest.fixture
    def task(self, scripted: ScriptedBroker) -> ReadTask:
        """The middle three of five rows of each topic partition."""
        for name in self.TOPICS:
            number = name[-1].encode()
            rows = [single(number + letter) for letter in (b"a", b"b", b"c", b"d")]
            scripted.add_topic(name, [*rows, single(b"behind the end")])
        ends = MessageId(LEDGER, 1), MessageId(LEDGER, 3)
        ranges = tuple(TopicRange(name, *ends) for name in self.TOPICS)
        return ReadTask(
            ranges, dict.fromkeys(self.TOPICS, BrokerAddress(scripted.address))
        )

    ROWS = tuple(f"{i}{letter}".encode() for i in range(5) for letter in "bcd")

    def values(self, task: ReadTask, **options: str) -> Iterator[bytes]:
        """The rows; each knows its partition."""
        for found in read_task(task, options_of(**options), SCHEMA):
            assert found.schema == SCHEMA
            for row in found.to_pylist():
                assert row["value"][:1] == b"%d" % row["__partition"]
                assert row["__topic"] == self.TOPICS[row["__partition"]]
                yield row["value"]

    @pytest.mark.parametrize("rows", ["1", "2", "1000"])
    def test_in_order(
        self, scripted: ScriptedBroker, task: ReadTask, rows: str
    ) -> None:
        """All rows of a range, then those of the next."""
        assert tuple(self.values(task, rowsPerArrowBatch=rows)) == self.ROWS
        wait_until(lambda: scripted.requests["CLOSE_CONSUMER"] == 5)
        assert scripted.requests["SUBSCRIBE"] == 5
        assert scripted.requests["LOOKUP"] == 0
        assert scripted.connections == 1
        wait_until(lambda: not scripted.consumers)

    def test_without_brokers(self, scripted: ScriptedBroker, task: ReadTask) -> None:
        """Nor does it matter where the plan knows of none."""
        assert tuple(self.values(ReadTask(task.ranges))) == self.ROWS
        assert scripted.requests["LOOKUP"] == 5

    def test_the_next_one_subscribes_early(
        self, scripted: ScriptedBroker, task: ReadTask
    ) -> None:
        """One ahead, and without asking for entries: memory is for one at a time."""
        values = self.values(task, rowsPerArrowBatch="1")
        next(values)
        wait_until(lambda: scripted.requests["SUBSCRIBE"] == 2)
        assert set(scripted.permits) == {self.TOPICS[0]}
        assert next(values) == b"0c"
        assert scripted.requests["SUBSCRIBE"] == 2

    @pytest.mark.parametrize("taken", [1, 4, 15])
    def test_left_early(
        self, scripted: ScriptedBroker, task: ReadTask, taken: int
    ) -> None:
        """Neither the range that is read nor the next one leaves a consumer."""
        values = self.values(task, rowsPerArrowBatch="1")
        assert tuple(next(values) for _ in range(taken)) == self.ROWS[:taken]
        values.close()  # type: ignore[attr-defined]
        asked = scripted.requests  # on one connection: the closes are behind the rest
        wait_until(lambda: 0 < asked["CLOSE_CONSUMER"] == asked["SUBSCRIBE"])
        wait_until(lambda: not scripted.consumers)

    def test_a_range_that_fails(self, scripted: ScriptedBroker, task: ReadTask) -> None:
        """So does the task, and leaves nothing; tried again, it has every row once."""
        damaged = scripted.topics[self.TOPICS[2]][2]
        scripted.topics[self.TOPICS[2]][2] = replace(damaged, is_damaged=True)
        values = self.values(task, rowsPerArrowBatch="1")
        taken = []
        with pytest.raises(CorruptEntryError, match=r"7:2 of .*partition-2"):
            taken += values
        wait_until(lambda: not scripted.consumers)
        scripted.topics[self.TOPICS[2]][2] = damaged
        assert tuple(self.values(task)) == self.ROWS

    def test_a_topic_that_moves_before_its_turn(
        self, scripted: ScriptedBroker, task: ReadTask
    ) -> None:
        """It is looked up when it is its turn."""
        values = self.values(task, rowsPerArrowBatch="1")
        first = next(values)
        wait_until(lambda: self.TOPICS[1] in {c.topic for c in scripted.consumers})
        scripted.close_consumers(self.TOPICS[1])
        assert (first, *values) == self.ROWS
        assert [body.topic for body in scripted.bodies["LOOKUP"]] == [self.TOPICS[1]]

    def test_figures(
        self,
        scripted: ScriptedBroker,
        task: ReadTask,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """One line for all ranges."""
        seen: list[Any] = []

        class Statistics(turns.TaskStatistics):
            def end(self) -> None:
                super().end()
                seen.append(self.totals)

        monkeypatch.setattr(turns, "TaskStatistics", Statistics)
        entries = scripted.topics[self.TOPICS[1]]
        late = [entries.pop(3), entries.pop(3)]
        with caplog.at_level("DEBUG", "pulsar_spark.spark"):
            values = self.values(task, rowsPerArrowBatch="1")
            rows = [next(values) for _ in range(4)]
            scripted.cut()
            scripted.append(self.TOPICS[1], *late)
            rows += values
        assert tuple(rows) == self.ROWS
        (totals,) = seen
        assert totals.rows == 15
        assert totals.size_bytes >= 30
        assert totals.reconnects >= 1
        assert totals.broker_s > 0
        (line,) = (r.getMessage() for r in caplog.records if "rows" in r.getMessage())
        assert line.startswith(f"{self.TOPICS[0]} and 4 more: 15 rows, ")

    def test_the_first_grant(self, scripted: ScriptedBroker) -> None:
        """What came of one partition is asked for at once of those after the next.

        How often more is granted depends on the speed of the machine.
        """
        names = [name.replace("/t-", "/u-") for name in self.TOPICS]
        for name in names:
            scripted.add_topic(name, numbered(100, 1))
        ends = MessageId(LEDGER, 0), MessageId(LEDGER, 99)
        several = ReadTask(tuple(TopicRange(name, *ends) for name in names))
        assert sum(map(len, read_task(several, options_of(), SCHEMA))) == 500
        asked: dict[int, list[int]] = {}
        for body in scripted.bodies["FLOW"]:
            asked.setdefault(body.consumer_id, []).append(body.messagePermits)
        grants = list(asked.values())
        assert len(grants[0]) > 2
        assert [first for first, *_ in grants[2:]] == [100, 100, 100]
