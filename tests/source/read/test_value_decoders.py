# SPDX-License-Identifier: Apache-2.0
"""Tasks that read values by the schema of each message, on the scripted broker."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pulsar_spark.arrow.values.key_value_encoder import join_schemas
from pulsar_spark.errors import BrokerError, CorruptEntryError
from pulsar_spark.message_id import MessageId
from pulsar_spark.options import parse_read_options
from pulsar_spark.schemas.info import SchemaInfo, SchemaType, version_bytes
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.source.plan.read_task import ReadTask
from pulsar_spark.source.read import task as module
from pulsar_spark.source.read.task import read_task
from tests.support.scripted_broker import (
    LEDGER,
    ScriptedBroker,
    StoredFrame,
    batch,
    refuse,
    single,
)
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_spark.client.pool import ConnectionPool

TOPIC = "persistent://public/default/t"
ID, NAME, SCORE = (
    {"name": name, "type": type_}
    for name, type_ in (("id", "long"), ("name", "string"), ("score", "double"))
)
COLUMNS = pa.schema([("id", pa.int64()), ("score", pa.float64())])
BAD = COLUMNS.append(pa.field("_corrupt_record", pa.binary()))


def record(*fields: dict[str, Any]) -> str:
    """The text of a record."""
    return json.dumps({"type": "record", "name": "R", "fields": fields})


def of_version(number: int, *values: dict[str, Any]) -> StoredFrame:
    """A batch of JSON that names a version of the topic's schema."""
    texts = [json.dumps(value).encode() for value in values]
    return batch(texts, schema_version=version_bytes(number))


def row(id_: int | None, score: float | None = None) -> dict[str, Any]:
    """A row of ``COLUMNS``."""
    return {"id": id_, "score": score}


@pytest.fixture
def read(
    scripted: ScriptedBroker, pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[dict[str, Any]]]:
    """Reads all that topics have, in one task, as columns of the first one's latest."""
    monkeypatch.setattr(module, "shared_pool", lambda _options: pool)

    def read(
        *topics: str,
        schema: pa.Schema = COLUMNS,
        reader: SchemaInfo | None = None,
        **options: str,
    ) -> list[dict[str, Any]]:
        topics = topics or (TOPIC,)
        ranges = tuple(
            TopicRange(
                topic,
                MessageId(LEDGER, 0),
                MessageId(*scripted.positions(topic)[-1]),
            )
            for topic in topics
        )
        task = ReadTask(ranges, schema=reader or scripted.schemas[topics[0]][-1])
        given = {"service.url": "pulsar://unused:1", "topic": "t", **options}
        batches = list(read_task(task, parse_read_options(given), schema))
        for one in batches:
            one.validate(full=True)
            assert one.schema == schema
        return [found for one in batches for found in one.to_pylist()]

    return read


def test_three_versions_in_turn(
    scripted: ScriptedBroker, read: Callable[..., list[dict[str, Any]]]
) -> None:
    """Each message as it was written; each version is asked for once."""
    for fields in ((ID, NAME), (ID, SCORE), (SCORE, ID, NAME)):
        scripted.add_schema(TOPIC, SchemaType.JSON, record(*fields))
    versions = (0, 2, 1, 0, 2)
    scripted.add_topic(
        TOPIC,
        [
            of_version(version, {"id": at, "name": "x", "score": at / 2})
            for at, version in enumerate(versions)
        ],
    )
    assert read() == [
        row(at, None if version == 0 else at / 2) for at, version in enumerate(versions)
    ]
    asked = [one.schema_version for one in scripted.bodies["GET_SCHEMA"]]
    assert asked == [version_bytes(number) for number in (0, 2, 1)]


def test_a_connection_of_its_own(
    scripted: ScriptedBroker, read: Callable[..., list[dict[str, Any]]]
) -> None:
    """Schemas are asked for over it, so that no message is before the answer.

    It ends with the task; who needs no answer opens none.
    """
    scripted.add_schema(TOPIC, SchemaType.JSON, record(ID, SCORE))
    scripted.add_topic(TOPIC, [of_version(0, {"id": 1})])
    assert read() == [row(1)]
    assert scripted.connections == 2
    wait_until(lambda: len(scripted.sessions) == 1, "the end of the second one")
    scripted.add_topic(f"{TOPIC}2", [single(b"", null_value=True)])
    assert read(f"{TOPIC}2", reader=scripted.schemas[TOPIC][0]) == [row(None)]
    assert scripted.connections == 2


def test_topics_count_their_versions_by_themselves(
    scripted: ScriptedBroker, read: Callable[..., list[dict[str, Any]]]
) -> None:
    """Version 0 of one is not that of the other; partitions share those of theirs."""
    other = f"{TOPIC}2"
    scripted.add_schema(TOPIC, SchemaType.JSON, record(ID, SCORE))
    scripted.add_schema(other, SchemaType.JSON, record(SCORE, NAME))
    partitions = [f"{other}-partition-{index}" for index in range(3)]
    for topic in (TOPIC, *partitions):
        scripted.add_topic(topic, [of_version(0, {"id": 1, "score": 0.5})])
    assert read(TOPIC, *partitions) == [row(1, 0.5), *[row(None, 0.5)] * 3]
    asked = [one.topic for one in scripted.bodies["GET_SCHEMA"]]
    assert asked == [TOPIC, other]


def test_a_value_that_is_damaged(
    scripted: ScriptedBroker, read: Callable[..., list[dict[str, Any]]]
) -> None:
    """Says which field, and by which version it was read."""
    for fields in ((ID,), (ID, SCORE)):
        scripted.add_schema(TOPIC, SchemaType.JSON, record(*fields))
    scripted.add_topic(TOPIC, [of_version(1, {"id": 1, "score": 2}, {"id": "x"})])
    with pytest.raises(CorruptEntryError, match=r"of version 1: at `id`"):
        read()
    assert read(mode="DROPMALFORMED") == [row(1, 2.0)]


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        (version_bytes(1), "version 1 is the mark of a schema that was deleted"),
        (version_bytes(5), "version 5 is not known to the cluster"),
        (version_bytes(7), "version 7, INT32, cannot be read as the query's schema"),
        (b"", "it was sent without a schema"),
        (b"\0\1", "it names its schema by 2 bytes, and not by 8"),
    ],
)
def test_messages_that_have_no_such_columns(
    scripted: ScriptedBroker,
    read: Callable[..., list[dict[str, Any]]],
    version: bytes,
    reason: str,
) -> None:
    """Fail the task, stay as bytes, or are left out, as ``mode`` says."""
    json_ = SchemaInfo(
        SchemaType.JSON, record(ID, SCORE).encode(), {}, version_bytes(0)
    )
    mark = SchemaInfo(SchemaType.NONE, version=version_bytes(1))
    number = SchemaInfo(SchemaType.INT32, version=version_bytes(7))
    scripted.schemas[TOPIC] = [json_, mark, number]
    fields = {"schema_version": version} if version else {}
    scripted.add_topic(
        TOPIC, [of_version(0, {"id": 1}), single(b'{"id": 2}', **fields)]
    )
    with pytest.raises(CorruptEntryError) as caught:
        read(reader=json_)
    error = caught.value
    assert reason in error.message
    assert (error.topic_partition, error.message_id) == (TOPIC, f"{LEDGER}:1")
    assert read(reader=json_, schema=BAD, mode="PERMISSIVE") == [
        row(1) | {"_corrupt_record": None},
        row(None) | {"_corrupt_record": b'{"id": 2}'},
    ]
    assert read(reader=json_, mode="DROPMALFORMED") == [row(1)]


@pytest.mark.parametrize("encoding", ["SEPARATED", "INLINE"])
@pytest.mark.parametrize("version", [version_bytes(0), version_bytes(5), b""])
@pytest.mark.parametrize("key", ["k", None])
@pytest.mark.parametrize("is_null", [True, False])
def test_keys_that_cannot_be_read(
    scripted: ScriptedBroker,
    read: Callable[..., list[dict[str, Any]]],
    encoding: str,
    version: bytes,
    key: str | None,
    is_null: bool,
) -> None:
    """A row has the key of its message, or is bad, also where its value is null."""
    parts = SchemaInfo(SchemaType.STRING), SchemaInfo(SchemaType.INT64)
    info = replace(join_schemas(*parts, encoding), version=version_bytes(0))
    scripted.schemas[TOPIC] = [info]
    value = bytes(8)
    if encoding == "INLINE":
        value = bytes([0, 0, 0, 1]) + b"k" + bytes([0, 0, 0, 8]) + value
    fields: dict[str, Any] = {"schema_version": version} if version else {}
    if key is not None:
        fields["partition_key"] = key
    data = single(b"" if is_null else value, null_value=is_null, **fields)
    scripted.add_topic(TOPIC, [data])
    schema = pa.schema([("key", pa.string()), ("value", pa.int64())])
    rows = read(schema=schema, mode="DROPMALFORMED")
    is_own = encoding == "SEPARATED"
    found = key if is_own else None if is_null else "k"
    has_data = not is_null or (is_own and key is not None)
    if version != version_bytes(0) and has_data:
        assert rows == []
    else:
        assert rows == [{"key": found, "value": None if is_null else 0}]


def test_versions_that_a_producer_makes_up(
    scripted: ScriptedBroker, read: Callable[..., list[dict[str, Any]]]
) -> None:
    """After a hundred that nobody knows it asks for no others; those known go on."""
    info = scripted.add_schema(TOPIC, SchemaType.JSON, record(ID, SCORE))
    made_up = [of_version(1000 + at, {"id": at}) for at in range(103)]
    known = of_version(0, {"id": -1})
    scripted.add_topic(TOPIC, [known, *made_up, known])
    found = read(reader=info, schema=BAD, mode="PERMISSIVE")
    assert [one["id"] for one in found] == [-1, *[None] * 103, -1]
    assert scripted.requests["GET_SCHEMA"] == 1 + 100


def test_a_broker_that_refuses(
    scripted: ScriptedBroker, read: Callable[..., list[dict[str, Any]]]
) -> None:
    """Is an error of the task, never a bad value; the message names the topic."""
    scripted.add_schema(TOPIC, SchemaType.JSON, record(ID, SCORE))
    scripted.add_topic(TOPIC, [of_version(0, {"id": 1})])
    scripted.script("GET_SCHEMA", refuse("AuthorizationError"))
    with pytest.raises(BrokerError, match=f"The schema of {TOPIC}"):
        read(mode="DROPMALFORMED")
    assert read() == [row(1)]
