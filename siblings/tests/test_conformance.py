# SPDX-License-Identifier: Apache-2.0
"""What a stream promises in every system, held against the double of each.

The rows of each topic partition are numbers from 0 on. A query is run as Spark runs
one: its checkpoint is JSON, its processes come and go, and rows are read by its tasks.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pytest

from pulsar_spark.cli.spark_files import Checkpoint
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.options import parse_read_options as parse_pulsar
from pulsar_spark.source.read import task as pulsar_task
from pulsar_spark.source.stream.lag import partition_lags
from pulsar_spark.source.stream.pulsar_cluster import stream_planner
from siblings.tubemq.tests.scripted_server import ScriptedServer
from siblings.ydb_topic.tests.support.service import DATABASE, TopicService
from spark_topics.errors import DataLossError
from spark_topics.options.spec import Scope
from tests.support import patience
from tests.support.checkpoints import write_checkpoint
from tests.support.fixtures import restless as restless
from tests.support.scripted_broker import ScriptedBroker, client_options, single
from tubemq_spark.options import parse_read_options as parse_tubemq
from tubemq_spark.source.tubemq_source import TubeMQSource
from ydb_spark.client.channel import close_shared
from ydb_spark.options.parse import KNOWN
from ydb_spark.options.patience import Patience
from ydb_spark.options.read import parse_read_options as parse_ydb
from ydb_spark.source.topic_source import TopicSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PARTITIONS = 2
LIMIT = 7

#: Where a process may end, in the life of a micro-batch.
STEPS = ("planned", "logged", "read", "committed", "told", "")

#: By topic partition, the rows in the order in which they were read.
Rows = dict[str, list[int]]


class Double(Protocol):
    """A system with a topic of some partitions, as tests have it.

    Attributes:
        unprotected: Options with which the system keeps no rows for the query.
    """

    unprotected: dict[str, str]

    def append(self, partition: int, rows: range) -> None:
        """Store rows."""

    def expire(self, partition: int, first: int) -> None:
        """Remove all rows of a partition before one."""

    def start(self, options: Mapping[str, str]) -> Any:
        """Return the planner of a new process of the query."""

    def read(self, task: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task of that process: of a partition, and numbers."""

    def kill(self) -> None:
        """End the process without a word to anybody."""


class Pulsar:
    """The scripted broker of Pulsar; each row is an entry."""

    def __init__(self, broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        # Brokers keep what a subscription has not acknowledged.
        self.unprotected = {"ackOnCommit": "false"}
        self.broker = broker
        self.name = "persistent://public/default/t"
        broker.partitions[self.name] = PARTITIONS
        for number in range(PARTITIONS):
            broker.add_topic(self._partition(number))
        self._pool: ConnectionPool | None = None
        self._options: Any = None
        patience.usual(monkeypatch, forget_s=0.0)
        monkeypatch.setattr(pulsar_task, "shared_pool", lambda _options: self._pool)

    def _partition(self, number: int) -> str:
        return f"{self.name}-partition-{number}"

    def append(self, partition: int, rows: range) -> None:
        """Each row is an entry."""
        entries = [single(b"%d" % row) for row in rows]
        self.broker.append(self._partition(partition), *entries)

    def expire(self, partition: int, first: int) -> None:
        """Ledgers go as a whole: what stays is stored again in a new one."""
        name = self._partition(partition)
        entries = self.broker.topics[name]
        kept = [replace(entry, position=None) for entry in entries[first:]]
        del entries[first:]
        self.broker.roll(name)
        self.broker.trim(name)
        self.broker.append(name, *kept)

    def start(self, options: Mapping[str, str]) -> Any:
        """By connections of its own."""
        client = client_options(self.broker.address)
        given = {
            "service.url": self.broker.url,
            "topic": "t",
            "partitionDiscoveryIntervalMs": "0",
            **options,
        }
        self._pool = ConnectionPool(client)
        self._options = replace(parse_pulsar(given, streaming=True), client=client)
        return stream_planner(self._pool, self._options)

    def read(self, task: Any) -> Iterator[pa.RecordBatch]:
        """As an executor does."""
        schema = pa.schema([("__topic", pa.string()), ("value", pa.binary())])
        return pulsar_task.read_task(task, self._options, schema, is_protected=True)

    def kill(self) -> None:
        """Its connections break."""
        if self._pool is not None:
            self._pool.close()


class TubeMQ:
    """The scripted server of TubeMQ, with a partition in each store."""

    def __init__(self, server: ScriptedServer) -> None:
        self.unprotected: dict[str, str] = {}
        self.server = server
        self._source: Any = None

    def append(self, partition: int, rows: range) -> None:
        """Each row is a message."""
        for row in rows:
            self.server.append("t", partition * 10000, b"%d" % row)

    def expire(self, partition: int, first: int) -> None:
        """As retention does."""
        self.server.stores["t", partition].begin = first

    def start(self, options: Mapping[str, str]) -> Any:
        """By the connections that this process has."""
        given = {
            "master.rpc": self.server.address,
            "topic": "t",
            "partitionDiscoveryInterval": "1000",
            **options,
        }
        self._source = TubeMQSource(parse_tubemq(given, Scope.STREAM))
        return self._source.plan_stream()

    def read(self, task: Any) -> Iterator[pa.RecordBatch]:
        """As an executor does."""
        schema = pa.schema([("__partition", pa.int32()), ("value", pa.binary())])
        return self._source.read(task, schema, streaming=True)

    def kill(self) -> None:
        """Its connections break."""
        self.server.cut_all()


class Ydb:
    """The double of YDB's service."""

    def __init__(self, service: TopicService) -> None:
        self.unprotected: dict[str, str] = {}
        self.service = service
        service.store.create("t", partitions=PARTITIONS)
        self._source: Any = None

    def append(self, partition: int, rows: range) -> None:
        """Each row is a message."""
        self.service.store.put("t", partition, *[b"%d" % row for row in rows])

    def expire(self, partition: int, first: int) -> None:
        """As retention does."""
        self.service.store.expire("t", partition, first)

    def start(self, options: Mapping[str, str]) -> Any:
        """By a channel of its own."""
        given = {
            "url": self.service.endpoint + DATABASE,
            "topic": "t",
            "partitionDiscoveryIntervalMs": "0",
            **options,
        }
        options = parse_ydb(given, KNOWN, streaming=True)
        connection = replace(options.connection, patience=Patience(stop_s=0))
        self._source = TopicSource(replace(options, connection=connection))
        return self._source.plan_stream()

    def read(self, task: Any) -> Iterator[pa.RecordBatch]:
        """As an executor does."""
        schema = pa.schema([("partition_id", pa.int64()), ("data", pa.binary())])
        return self._source.read(task, schema, streaming=True)

    def kill(self) -> None:
        """Its channel is closed; the SDK's thread is not waited for."""
        close_shared()


@pytest.fixture(params=["pulsar", "tubemq", "ydb"])
def double(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, restless: None
) -> Iterator[Double]:
    """Each system's."""
    with contextlib.ExitStack() as stack:
        made: Double
        if request.param == "pulsar":
            made = Pulsar(stack.enter_context(ScriptedBroker()), monkeypatch)
        elif request.param == "tubemq":
            server = ScriptedServer({"t": [1] * PARTITIONS})
            made = TubeMQ(stack.enter_context(server))
        else:
            made = Ydb(stack.enter_context(TopicService()))
        stack.callback(made.kill)
        yield made


@dataclass
class Query:
    """A streaming query, with its checkpoint.

    Attributes:
        double: What it reads.
        options: As users give them.
    """

    double: Double
    options: dict[str, str]

    def __post_init__(self) -> None:
        self.logged: list[str] = []
        self.committed = 0
        self.read: list[Rows] = []  # by micro-batch, when it was read first
        self._planner: Any = None

    @property
    def planner(self) -> Any:
        """Of the process that runs, started if need be."""
        if self._planner is None:
            self._planner = self.double.start(self.options)
        return self._planner

    def kill(self) -> None:
        """End the process without a word to anybody."""
        self.double.kill()
        self._planner = None

    def _begin(self) -> Any:
        if self.committed:
            return self.planner.offset(json.loads(self.logged[self.committed - 1]))
        return self.planner.offset(json.loads(_text(self.planner.initial())))

    def trigger(self, until: str = "") -> bool:
        """Run a micro-batch; return whether there was one.

        Args:
            until: The step after which the process ends.
        """
        start = self._begin()
        if len(self.logged) == self.committed:
            end = self.planner.latest(start)
            if _text(end) == _text(start) and self.committed:
                return False
            if self._ends(until, "planned"):
                return True
            self.logged.append(_text(end))
        if self._ends(until, "logged"):
            return True
        end = self.planner.offset(json.loads(self.logged[self.committed]))
        self._keep(self._rows(self.planner.ranges(start, end)))
        if self._ends(until, "read"):
            return True
        self.committed += 1
        if self._ends(until, "committed"):
            return True
        self.planner.commit(end)
        self._ends(until, "told")
        return True

    def drain(self) -> None:
        """Run micro-batches until nothing is new."""
        while self.trigger():
            pass

    def rows(self) -> Rows:
        """What micro-batches have brought, each counted once."""
        found: Rows = defaultdict(list)
        for rows in self.read:
            for partition, numbers in rows.items():
                found[partition] += numbers
        return dict(found)

    def _ends(self, until: str, step: str) -> bool:
        if until == step:
            self.kill()
        return until == step

    def _rows(self, tasks: Any) -> Rows:
        found: Rows = defaultdict(list)
        for task in tasks:
            for batch in self.double.read(task):
                names, values = batch.columns
                for name, value in zip(
                    names.to_pylist(), values.to_pylist(), strict=True
                ):
                    found[str(name)].append(int(value))
        return dict(found)

    def _keep(self, rows: Rows) -> None:
        """Remember what a micro-batch has read: the same whenever it is run again."""
        if len(self.read) == self.committed:
            self.read.append(rows)
        assert rows == self.read[self.committed]


def _text(offset: Any) -> str:
    """Return an offset as Spark compares and keeps it."""
    return json.dumps(offset.to_json())


def numbers_of(rows: Rows) -> list[list[int]]:
    """Return the rows of each partition, in order of how many there are."""
    return sorted(rows.values(), key=len)


@pytest.mark.parametrize("seed", range(3))
def test_each_row_is_in_one_micro_batch(double: Double, seed: int):
    """Wherever processes end, and whatever is stored meanwhile; within the limit."""
    chance = random.Random(seed)
    query = Query(
        double, {"startingOffsets": "earliest", "maxRowsPerTrigger": str(LIMIT)}
    )
    stored = [0] * PARTITIONS
    for _ in range(18):
        if chance.random() < 0.5:
            partition = chance.randrange(PARTITIONS)
            count = chance.randint(1, 6)
            first = stored[partition]
            stored[partition] += count
            double.append(partition, range(first, first + count))
        query.trigger(until=chance.choice(STEPS))
    query.drain()
    assert numbers_of(query.rows()) == sorted(
        ([*range(count)] for count in stored if count), key=len
    )
    sizes = [sum(map(len, rows.values())) for rows in query.read]
    assert max(sizes) <= LIMIT


@pytest.mark.parametrize("until", STEPS)
def test_a_query_goes_on_after_each_step(double: Double, until: str):
    """Also the first micro-batch, whose start no offset has but its end."""
    query = Query(double, {"startingOffsets": "earliest"})
    double.append(0, range(5))
    query.trigger(until=until)
    double.append(0, range(5, 9))
    double.append(1, range(3))
    query.drain()
    assert numbers_of(query.rows()) == [[*range(3)], [*range(9)]]


@pytest.mark.parametrize("until", STEPS[1:])
def test_latest_is_what_comes_then(double: Double, until: str):
    """From when the query began, whichever process reads its first micro-batch."""
    double.append(0, range(5))
    query = Query(double, {"startingOffsets": "latest"})
    assert query.planner.initial()
    double.append(0, range(5, 8))
    query.trigger(until=until)
    double.append(0, range(8, 9))
    query.drain()
    assert numbers_of(query.rows()) == [[5, 6, 7, 8]]


def test_tools_of_pulsar_pass_over_other_formats(double: Double, tmp_path: Path):
    """Neither a checkpoint nor a progress of theirs is taken for Pulsar's."""
    double.append(0, range(10))
    query = Query(double, {"startingOffsets": "earliest"})
    assert query.trigger()
    (end,) = query.logged
    lags = partition_lags(json.dumps(query.planner.progress()), end)
    folder = write_checkpoint(tmp_path / "c", {0: [json.loads(end)]}, 0)
    is_ours = isinstance(double, Pulsar)
    assert bool(Checkpoint(str(folder)).end(0).sources) == is_ours
    assert bool(lags) == is_ours


def test_available_now_ends_with_what_was_there(double: Double):
    """Limits hold, and the next run begins behind the last."""
    double.append(0, range(10))
    query = Query(
        double, {"startingOffsets": "earliest", "maxRowsPerTrigger": str(LIMIT)}
    )
    query.planner.fix_target()
    double.append(0, range(10, 15))
    query.drain()
    assert numbers_of(query.rows()) == [[*range(10)]]
    query.kill()
    query.planner.fix_target()
    query.drain()
    assert numbers_of(query.rows()) == [[*range(15)]]


@pytest.mark.parametrize("is_new_process", [False, True])
def test_rows_that_are_gone_are_an_error(double: Double, is_new_process: bool):
    """Whoever plans: the process that saw them, or another."""
    query = Query(double, {"startingOffsets": "earliest", **double.unprotected})
    double.append(0, range(5))
    query.drain()
    double.append(0, range(5, 12))
    if is_new_process:
        query.kill()
    double.expire(0, 9)
    with pytest.raises(DataLossError):
        query.drain()
    assert numbers_of(query.rows()) == [[*range(5)]]


def test_a_query_that_accepts_a_loss_reads_what_is_left(double: Double):
    """Each row that is left once, and all that come later."""
    query = Query(double, {"startingOffsets": "earliest", "failOnDataLoss": "false"})
    double.append(0, range(5))
    query.drain()
    double.append(0, range(5, 12))
    double.expire(0, 9)
    query.drain()
    double.append(0, range(12, 14))
    query.kill()
    query.drain()
    assert numbers_of(query.rows()) == [[*range(5), *range(9, 14)]]


@pytest.mark.parametrize("first", [9, 12])
def test_an_accepted_loss_is_over(double: Double, first: int):
    """The next run finds none, also where nothing was left to read."""
    query = Query(double, {"startingOffsets": "earliest", **double.unprotected})
    double.append(0, range(5))
    query.drain()
    double.append(0, range(5, 12))
    query.kill()
    double.expire(0, first)
    query.options["failOnDataLoss"] = "false"
    query.drain()
    query.kill()
    del query.options["failOnDataLoss"]
    query.drain()
    double.append(0, range(12, 14))
    query.drain()
    assert numbers_of(query.rows()) == [[*range(5), *range(first, 14)]]


def test_rows_that_were_read_may_go(double: Double):
    """Retention that stays behind the stream loses nothing."""
    query = Query(double, {"startingOffsets": "earliest"})
    double.append(0, range(8))
    query.drain()
    double.append(0, range(8, 12))
    query.kill()
    double.expire(0, 8)
    query.drain()
    assert numbers_of(query.rows()) == [[*range(12)]]
