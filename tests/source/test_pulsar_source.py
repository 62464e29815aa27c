# SPDX-License-Identifier: Apache-2.0
"""What Spark's faces ask of the connector: plans that carry a schema, or none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pulsar_spark.errors import SchemaError, TopicNotFoundError
from pulsar_spark.options import parse_read_options
from pulsar_spark.schemas.info import SchemaType
from pulsar_spark.source import pulsar_source as module
from pulsar_spark.source.plan.query_schema import find_schema, value_columns_of
from pulsar_spark.source.pulsar_source import PulsarSource
from pulsar_spark.source.read import task
from tests.support import patience
from tests.support.scripted_broker import ScriptedBroker, single

if TYPE_CHECKING:
    from pulsar_spark.client.pool import ConnectionPool

TOPIC = "persistent://public/default/t"
BYTES = pa.schema([("value", pa.binary())])


def record(*names: str) -> str:
    """The text of a record of numbers."""
    fields = [{"name": name, "type": "long"} for name in names]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


@pytest.fixture(autouse=True)
def _shared(pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connections of the process are those to the scripted broker."""
    for one in (module, task):
        monkeypatch.setattr(one, "shared_pool", lambda _options: pool)
    patience.usual(monkeypatch, forget_s=0.0)


def load(
    pool: ConnectionPool,
    columns: pa.Schema | None = None,
    *,
    streaming: bool = False,
    **given: str,
) -> PulsarSource:
    """A query with the columns given, or the topics' own."""
    given = {"service.url": "pulsar://unused:1", "topic": "t", **given}
    options = parse_read_options(given, streaming=streaming)
    if columns is not None:
        return PulsarSource(options, columns)
    found = find_schema(pool, options)
    return PulsarSource(options, value_columns_of(found) or BYTES, found)


class TestBatch:
    """A read with an end."""

    def test_tasks_have_the_schema_that_was_loaded(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """Whatever the topic has by the time of the plan; each task has it."""
        names = [f"{TOPIC}-partition-{index}" for index in range(3)]
        scripted.partitions[TOPIC] = 3
        for name in names:
            scripted.add_topic(name, [single(b"")])
        old = scripted.add_schema(TOPIC, SchemaType.AVRO, record("id"))
        query = load(pool)
        scripted.add_schema(TOPIC, SchemaType.AVRO, record("id", "more"))
        assert [task.schema for task in query.plan()] == [old] * 3

    def test_rows(self, scripted: ScriptedBroker, pool: ConnectionPool) -> None:
        """What tasks read has the columns that were loaded."""
        version = scripted.add_schema(TOPIC, SchemaType.JSON, record("id")).version
        values = [b'{"id": %d}' % number for number in range(3)]
        scripted.add_topic(
            TOPIC, [single(value, schema_version=version) for value in values]
        )
        query = load(pool)
        assert query.columns is not None
        rows = [
            row
            for one in query.plan()
            for found in query.read(one, query.columns, streaming=False)
            for row in found.to_pylist()
        ]
        assert rows == [{"id": 0}, {"id": 1}, {"id": 2}]

    @pytest.mark.parametrize("columns", [None, BYTES])
    def test_bytes(
        self, scripted: ScriptedBroker, pool: ConnectionPool, columns: Any
    ) -> None:
        """Tasks have none where values stay as they are."""
        scripted.add_topic(TOPIC, [single(b"")])
        scripted.add_schema(TOPIC, SchemaType.AVRO, record("id"))
        (task,) = PulsarSource(load(pool).options, columns).plan()
        assert task.schema is None

    def test_what_is_said_first(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """Of a topic that is not there, that; columns matter where there is one."""
        query = load(pool, pa.schema([("id", pa.int64())]))
        with pytest.raises(TopicNotFoundError):
            query.plan()
        scripted.add_topic(TOPIC)
        with pytest.raises(SchemaError, match="there is no column `id`"):
            query.plan()


class TestStream:
    """One that goes on: its offsets say what it began with."""

    def test_across_a_change(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """Tasks of all micro-batches have the first schema, after a restart, too."""
        scripted.add_topic(TOPIC, [single(b"")])
        old = scripted.add_schema(TOPIC, SchemaType.JSON, record("id"))
        start = {"startingOffsets": "earliest"}
        planner = load(pool, streaming=True, **start).plan_stream()
        begin = planner.initial()
        end = planner.latest(begin)
        (task,) = planner.ranges(begin, end)
        assert task.schema == old
        assert end.schema is not None
        assert (end.schema.topic, end.schema.version) == (TOPIC, 0)
        planner.commit(end)
        planner.stop()

        scripted.add_schema(TOPIC, SchemaType.JSON, record("id", "more"))
        scripted.append(TOPIC, single(b""))
        with pytest.raises(SchemaError, match="`more` BIGINT is new"):
            load(pool, streaming=True, **start).plan_stream().latest(end)
        ids = pa.schema([("id", pa.int64())])
        again = load(pool, ids, streaming=True, **start).plan_stream()
        after = again.latest(end)
        (task,) = again.ranges(end, after)
        assert task.schema == old
        assert after.schema == end.schema

    def test_bytes(self, scripted: ScriptedBroker, pool: ConnectionPool) -> None:
        """Nothing is kept of a schema where Spark never asked for one."""
        scripted.add_topic(TOPIC, [single(b"")])
        scripted.add_schema(TOPIC, SchemaType.JSON, record("id"))
        options = load(pool, streaming=True, startingOffsets="earliest").options
        planner = PulsarSource(options).plan_stream()
        begin = planner.initial()
        end = planner.latest(begin)
        (task,) = planner.ranges(begin, end)
        assert (task.schema, end.schema) == (None, None)


def test_who_must_be_stopped(pool: ConnectionPool) -> None:
    """A stream that deletes its subscription at its end; no other."""
    name = {"deleteSubscriptionOnStop": "true"}
    assert load(pool, BYTES, streaming=True, **name).must_stop
    assert not load(pool, BYTES, streaming=True).must_stop
