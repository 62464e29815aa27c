# SPDX-License-Identifier: Apache-2.0
"""A streaming query over a scripted broker, as Spark runs it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.message_id import MessageId
from pulsar_spark.options import parse_read_options
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.source.plan.read_task import ReadTask
from pulsar_spark.source.stream.checkpoint import StreamOffset
from pulsar_spark.source.stream.last_read import LastRead
from pulsar_spark.source.stream.pulsar_cluster import stream_planner
from pulsar_spark.source.stream.pulsar_offsets import read_offset
from pulsar_spark.wire import pulsar_api_pb2 as pb
from spark_topics.source.stream.planner import StreamPlanner
from tests.support.reading import ranges_of
from tests.support.scripted_broker import (
    LEDGER,
    Action,
    ScriptedBroker,
    Session,
    client_options,
    usual,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


BASE = "persistent://public/default/t"


P0, P1, P2 = (f"{BASE}-partition-{index}" for index in range(3))


#: From the third entry on.
STARTS = f'{{"t":{{"0":"{LEDGER}:2","1":"{LEDGER}:2"}}}}'


CRASHES = (
    "before it is logged",
    "after it is logged",
    "before it is committed",
    "after it is committed",
)


Row = tuple[str, int, int, int]


Offset = StreamOffset[LastRead]


Planner = StreamPlanner[LastRead, StreamOffset[LastRead], ReadTask]


class Query:
    """A streaming query as Spark runs it: a checkpoint, and processes that come and go.

    Attributes:
        log: The end of each micro-batch that was begun.
        rows: What each micro-batch that was committed has read.
        planner: The process that runs now.
        limits: Options of its client.
    """

    def __init__(self, broker: ScriptedBroker, **options: str) -> None:
        self.broker = broker
        self.options = {"topic": "t", "partitionDiscoveryIntervalMs": "0", **options}
        self.log: list[dict[str, Any]] = []
        self.rows: list[list[Row]] = []
        self.limits: dict[str, Any] = {}
        self._pool: ConnectionPool | None = None
        self._planner: Planner | None = None

    @property
    def planner(self) -> Planner:
        """The process that runs, started if need be."""
        if self._planner is None:
            given_ = {"service.url": self.broker.url, **self.options}
            client = client_options(self.broker.address, **self.limits)
            self._pool = ConnectionPool(client)
            options = replace(parse_read_options(given_, streaming=True), client=client)
            self._planner = stream_planner(self._pool, options)
        return self._planner

    def kill(self) -> None:
        """Ends the process without a word to anybody."""
        if self._pool is not None:
            self._pool.close()
        self._pool = self._planner = None

    def stop(self) -> None:
        """Ends the process in order."""
        self.planner.stop()
        self.kill()

    def begin(self) -> Offset:
        """Where the next micro-batch begins."""
        done = len(self.rows)
        if done:
            return read_offset(self.log[done - 1])
        # Spark has it as JSON, too.
        return read_offset(self.planner.initial().to_json())

    def trigger(self, crash: str = "", *, unlimited: bool = False) -> bool:
        """Runs a micro-batch as far as ``crash`` says; whether there was one."""
        batch_id = len(self.rows)
        start = self.begin()
        if len(self.log) == batch_id:
            end = self.planner.latest(start, unlimited=unlimited)
            if batch_id and end is start:
                return False
            assert text(end) != text(start) or end is start
            if crash == "before it is logged":
                self.kill()
                return True
            self.log.append(json.loads(text(end)))
            if batch_id:
                self.planner.commit(start)
        if crash == "after it is logged":
            self.kill()
            return True
        end = read_offset(self.log[batch_id])
        rows = [row for one in self.ranges(start, end) for row in self.read(one)]
        if crash == "before it is committed":
            self.kill()
            return True
        self.rows.append(rows)
        if crash == "after it is committed":
            self.kill()
        return True

    def ranges(self, start: Offset, end: Offset) -> list[TopicRange]:
        """What its tasks read."""
        return ranges_of(self.planner.ranges(start, end))

    def drain(self) -> None:
        """Runs micro-batches until nothing is new."""
        while self.trigger():
            pass

    def read(self, range_: TopicRange) -> Iterator[Row]:
        """The messages of a range, as an executor gets them."""
        first = (*range_.start.position, max(range_.start.batch_index, 0))
        last_index = range_.end.batch_index
        last = (*range_.end.position, last_index if last_index >= 0 else 10**9)
        for entry in self.broker.topics.get(range_.topic_partition, ()):
            for index in range(entry.messages):
                if first <= (*entry.place, index) <= last:
                    yield (range_.topic_partition, *entry.place, index)


def text(offset: Offset) -> str:
    """An offset as Spark compares it."""
    return json.dumps(offset.to_json())


def stored(broker: ScriptedBroker) -> list[Row]:
    """All messages there are, in order."""
    return [
        (name, *entry.place, index)
        for name in sorted(broker.topics)
        for entry in broker.topics[name]
        for index in range(entry.messages)
    ]


def all_rows(query: Query) -> list[Row]:
    """What was read, in order within each topic partition."""
    return sorted((row for rows in query.rows for row in rows), key=lambda row: row[0])


class Clock:
    """Time that a test lets pass."""

    def __init__(self) -> None:
        self.now = 1000.0

    def delaying(self, seconds: float) -> Action:
        """An answer that takes this long by this clock."""

        def action(
            broker: ScriptedBroker, session: Session, command: pb.BaseCommand
        ) -> None:
            self.now += seconds
            usual(broker, session, command)

        return action

    def monotonic(self) -> float:
        """As ``time.monotonic``."""
        return self.now

    def time(self) -> float:
        """As ``time.time``."""
        return self.now


def at(entry_id: int, ledger_id: int = LEDGER, batch_index: int = -1) -> LastRead:
    """A position."""
    return LastRead(ledger_id, entry_id, batch_index)


def id_of(entry_id: int, ledger_id: int = LEDGER) -> MessageId:
    """A first or a last message, inclusive."""
    return MessageId(ledger_id, entry_id)


def offset_at(subscription: str = "s", **positions: LastRead) -> Offset:
    """An offset by P0 and P1."""
    names = {"p0": P0, "p1": P1}
    return StreamOffset(subscription, {names[k]: v for k, v in positions.items()})
