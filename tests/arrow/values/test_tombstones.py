# SPDX-License-Identifier: Apache-2.0
"""Rows that say that their value is a null value: by every schema, and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.arrow.decode import RecordBatchBuilder
from pulsar_spark.arrow.encode import RowEncoder
from pulsar_spark.arrow.message_columns import COLUMN_SOURCES
from pulsar_spark.arrow.schema import arrow_schema
from pulsar_spark.arrow.values.copy_encoder import CopyEncoder
from pulsar_spark.arrow.values.encoders import encoder_for, new_schema
from pulsar_spark.arrow.values.tombstones import TombstoneEncoder
from pulsar_spark.errors import BadRowError
from pulsar_spark.schemas.info import SchemaInfo, SchemaType
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.entries import StoredEntry
from tests.support.entries import decode_entry
from tests.support.random_rows import any_rows, any_type

if TYPE_CHECKING:
    from random import Random

    from pulsar_spark.arrow.values import ValueEncoder

#: Of a record whose fields are never NULL.
STRICT = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
    }
).encode()

FIELDS = pa.schema([("id", pa.int64()), ("name", pa.string())])
PAIR = pa.schema([("key", pa.string()), ("value", pa.struct(list(FIELDS)))])


def of_fields(number: int) -> dict[str, Any]:
    """The columns of a record's fields."""
    return {"id": number, "name": str(number)}


def of_pair(number: int) -> dict[str, Any]:
    """A key and a record."""
    return {"key": f"key {number}", "value": of_fields(number)}


def key_value(encoding: str) -> ValueEncoder:
    """Makes pairs."""
    return encoder_for(new_schema(PAIR, "key_value", encoding), PAIR)


#: Columns of a value, what makes a value of them, and what a row holds.
KINDS: dict[str, tuple[pa.Schema, Any, Any]] = {
    "bytes": (
        pa.schema([("value", pa.binary())]),
        lambda columns: encoder_for(None, columns),
        lambda number: {"value": b"%d" % number},
    ),
    "INT64": (
        pa.schema([("value", pa.int64())]),
        lambda columns: encoder_for(SchemaInfo(SchemaType.INT64), columns),
        lambda number: {"value": number},
    ),
    "AVRO": (
        FIELDS,
        lambda columns: encoder_for(SchemaInfo(SchemaType.AVRO, STRICT), columns),
        of_fields,
    ),
    "JSON": (
        FIELDS,
        lambda columns: encoder_for(SchemaInfo(SchemaType.JSON, STRICT), columns),
        of_fields,
    ),
    "INLINE": (PAIR, lambda columns: key_value("INLINE"), of_pair),
    "SEPARATED": (PAIR, lambda columns: key_value("SEPARATED"), of_pair),
    "copies": (
        pa.schema([("__schemaVersion", pa.int64()), ("value", pa.binary())]),
        lambda columns: CopyEncoder(columns.names, 3),
        lambda number: {"__schemaVersion": 3, "value": b"%d" % number},
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@given(rows=st.lists(st.tuples(st.sampled_from([True, False, None]), st.booleans())))
def test_null_values(kind: str, rows: list[tuple[bool | None, bool]]) -> None:
    """A row that says so has a null value, also where the schema allows no NULL.

    All others have the values, and all have the keys, that they have without it.
    """
    columns, make, row_of = KINDS[kind]
    encoder = make(columns)
    full = [row_of(number) for number in range(len(rows))]
    given = [
        dict.fromkeys(row, None) | ({"key": row["key"]} if "key" in row else {})
        if is_tombstone and is_empty
        else row
        for row, (is_tombstone, is_empty) in zip(full, rows, strict=True)
    ]
    marks = pa.array([is_tombstone for is_tombstone, _ in rows], pa.bool_())
    made = TombstoneEncoder(encoder)
    assert made.columns == (*encoder.columns, "__tombstone")
    batch, usual = (pa.RecordBatch.from_pylist(some, columns) for some in (given, full))
    values = made.encode([*(batch[name] for name in encoder.columns), marks])
    wanted = encoder.encode([usual[name] for name in encoder.columns])
    values.values.validate(full=True)
    assert values.values.to_pylist() == [
        None if is_tombstone else value
        for is_tombstone, value in zip(
            marks.to_pylist(), wanted.values.to_pylist(), strict=True
        )
    ]
    assert values.keys == wanted.keys


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
@settings(max_examples=60, deadline=None)
@given(chance=st.randoms(use_true_random=False))
def test_null_values_of_any_pair(encoding: str, chance: Random) -> None:
    """Of any types, NULL and `__tombstone` make a null value, and keep keys."""
    types = (any_type(chance, 2), any_type(chance, 2))
    columns = pa.schema([pa.field("key", types[0]), pa.field("value", types[1])])
    batch = any_rows(chance, columns, 6)
    encoder = encoder_for(new_schema(columns, "key_value", encoding), columns)
    marks = [chance.choice((True, False, None)) for _ in range(len(batch))]
    made = TombstoneEncoder(encoder).encode(
        [*batch.columns, pa.array(marks, pa.bool_())]
    )
    usual = encoder.encode(batch.columns)
    assert made.keys == usual.keys
    rows = zip(
        marks, batch["key"], batch["value"], usual.values, made.values, strict=True
    )
    for is_tombstone, key, value, as_usual, found in rows:
        if not is_tombstone:
            assert found == as_usual
        if encoding == "SEPARATED":
            is_null = bool(is_tombstone) or not value.is_valid
            assert found.is_valid == (not is_null)
        elif is_tombstone:
            assert not found.is_valid
        else:
            assert as_usual.as_py().startswith(NO_PART) == (not key.is_valid)
            assert value.is_valid or as_usual.as_py().endswith(NO_PART)


#: The size of a part that is NULL.
NO_PART = b"\xff" * 4


def test_rows_in_errors() -> None:
    """A value that does not fit is named by its number among all rows."""
    _, make, _ = KINDS["AVRO"]
    columns = pa.schema([*FIELDS, ("__tombstone", pa.bool_())])
    rows = [
        {"__tombstone": True},
        {"id": 1, "name": "a"},
        {"__tombstone": True},
        {"id": None, "name": "b"},
    ]
    encoder = RowEncoder(columns, TombstoneEncoder(make(FIELDS)))
    with pytest.raises(BadRowError, match="Row 13 of a task: `id` is NULL"):
        encoder.encode(pa.RecordBatch.from_pylist(rows, columns), 10)


@pytest.mark.parametrize("version", [0, None])
def test_copies_of_null_values(version: int | None) -> None:
    """A null value is the same in all versions; an empty one is not."""
    encoder = CopyEncoder(["value", "__schemaVersion"], 1)
    versions = pa.array([1, version], pa.int64())
    values = encoder.encode([pa.array([b"a", None]), versions]).values
    assert values.to_pylist() == [b"a", None]
    with pytest.raises(Exception, match="bytes of version 1 alone"):
        encoder.encode([pa.array([b"a", b""]), versions])


@given(st.lists(st.sampled_from([b"value", b"", None]), min_size=1))
def test_what_a_read_says(values: list[bytes | None]) -> None:
    """A null value is told from an empty one."""
    batch = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
    rows = RowEncoder(batch.schema).encode(batch)
    metadata = pb.MessageMetadata(num_messages_in_batch=len(values))
    entry = decode_entry(StoredEntry(1, 2, metadata, bytes(rows.data)))
    schema = arrow_schema(["__tombstone"])
    builder = RecordBatchBuilder(
        schema, COLUMN_SOURCES, "t", -1, max_rows=999, max_bytes=99_999
    )
    assert not list(builder.add(entry))
    found = builder.finish()["__tombstone"]
    found.validate(full=True)
    assert found.to_pylist() == [value is None for value in values]
