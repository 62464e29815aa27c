# SPDX-License-Identifier: Apache-2.0
"""Any rows into a topic with a schema, and back: they are equal.

Each kind of schema gets some through Spark, which is the same for all, and more without
it. ``tests/arrow/test_round_trip.py`` draws many more, without a broker as well.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import types
from pyspark.sql.pandas.types import from_arrow_schema

from pulsar_spark.arrow.schema import TIMESTAMP
from tests.broker.test_write import given, save
from tests.support import reading
from tests.support.random_rows import (
    LEAVES,
    any_columns,
    any_rows,
    any_struct,
    rows_of,
)
from tests.support.writes import write_frame

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(600)

#: So many that each extreme is among those of a column.
ROWS = 100


def frame_of(spark: SparkSession, batch: pa.RecordBatch) -> DataFrame:
    """The rows in Spark, in one task, so that their order is known."""
    schema = from_arrow_schema(batch.schema, prefer_timestamp_ntz=True)
    table = pa.Table.from_batches([batch])
    return spark.createDataFrame(table, schema).coalesce(1)


def collected(frame: DataFrame) -> list[dict[str, Any]]:
    """The rows of it.

    Without the cast at the end of Spark's ``toArrow``, which fails for a struct that is
    NULL and has a field that is NOT NULL.
    """
    classic: Any = frame
    table = pa.Table.from_batches(classic._collect_as_arrow())
    return rows_of(table)


def load(
    spark: SparkSession, service_url: str, topic: str, schema: Any = None
) -> list[dict[str, Any]]:
    """The rows of a topic, in their order."""
    reader = spark.read.format("pulsar").options(**given(service_url, topic, {}))
    if schema is not None:
        reader = reader.schema(schema)
    return collected(reader.option("metadataColumns", "none").load())


def check(
    spark: SparkSession,
    service_url: str,
    topic: str,
    batch: pa.RecordBatch,
    **options: str,
) -> None:
    """Rows are as they were, if read as they were; by default times may be numbers."""
    frame = frame_of(spark, batch)
    expected = collected(frame)
    assert expected == rows_of(batch)
    save(frame, service_url, topic, **options)
    asked = [_as_asked(field) for field in frame.schema]
    assert load(spark, service_url, topic, types.StructType(asked)) == expected
    if options["schemaType"] in ("avro", "json"):
        assert load(spark, service_url, topic) == expected


def check_here(
    service_url: str, topic: str, batch: pa.RecordBatch, **options: str
) -> None:
    """The same without Spark."""
    write_frame(given(service_url, topic, options), batch)
    frame_schema = from_arrow_schema(batch.schema, prefer_timestamp_ntz=True)
    asked = types.StructType([_as_asked(field) for field in frame_schema])
    wanted = {"topic": topic, "metadataColumns": "none"}
    kinds = [asked, None] if options["schemaType"] in ("avro", "json") else [asked]
    for kind in kinds:
        found = reading.read_frame(service_url, wanted, kind)
        assert rows_of(found) == rows_of(batch)


def _as_asked(field: types.StructField) -> types.StructField:
    """A column as a user may ask for it: schemas of our own have NULL everywhere."""
    return types.StructField(field.name, _with_nulls(field.dataType))


def _with_nulls(type_: types.DataType) -> types.DataType:
    if isinstance(type_, types.StructType):
        return types.StructType([_as_asked(one) for one in type_])
    if isinstance(type_, types.ArrayType):
        return types.ArrayType(_with_nulls(type_.elementType))
    if isinstance(type_, types.MapType):
        return types.MapType(type_.keyType, _with_nulls(type_.valueType))
    return type_


def records(chance: Random) -> pa.RecordBatch:
    """Several columns."""
    return any_rows(chance, any_columns(chance), ROWS)


def pairs(chance: Random) -> pa.RecordBatch:
    """A key and a value, of which at least one is a record."""
    part = chance.choice([one for one, _ in LEAVES if not pa.types.is_decimal(one)])
    both = [any_struct(chance, 2), chance.choice([part, any_struct(chance, 2)])]
    if chance.random() < 0.5:
        both.reverse()
    names = zip(("key", "value"), both, strict=True)
    return any_rows(chance, pa.schema([pa.field(*one) for one in names]), ROWS)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("form", ["avro", "json"])
def test_records(service_url: str, topic: str, form: str, seed: int) -> None:
    """Nested types, NULLs everywhere, and the extremes of each type."""
    batch = records(Random(f"{form} {seed}"))
    check_here(service_url, topic, batch, schemaType=form)


@pytest.mark.parametrize("form", ["avro", "json"])
def test_records_through_spark(
    spark: SparkSession, service_url: str, topic: str, form: str
) -> None:
    """The same as Spark has them."""
    batch = records(Random(f"{form} 0"))
    check(spark, service_url, topic, batch, schemaType=form)


@pytest.mark.parametrize("form", ["avro", "json"])
def test_every_type(
    spark: SparkSession, service_url: str, topic: str, form: str
) -> None:
    """Each of them at the top, in an array, and in a map."""
    fields = []
    for at, (type_, _) in enumerate(LEAVES):
        fields += [
            pa.field(f"t{at}", type_),
            pa.field(f"a{at}", pa.list_(pa.field("element", type_))),
            pa.field(f"m{at}", pa.map_(pa.string(), pa.field("value", type_))),
        ]
    batch = any_rows(Random(form), pa.schema(fields), ROWS)
    check(spark, service_url, topic, batch, schemaType=form)


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
@pytest.mark.parametrize("seed", range(3))
def test_pairs(service_url: str, topic: str, encoding: str, seed: int) -> None:
    """Keys and values, NULL or empty, in the payload or as the message's key."""
    batch = pairs(Random(f"{encoding} {seed}"))
    form = {"schemaType": "key_value", "keyValueEncodingType": encoding}
    check_here(service_url, topic, batch, **form)


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
def test_pairs_through_spark(
    spark: SparkSession, service_url: str, topic: str, encoding: str
) -> None:
    """The same as Spark has them."""
    batch = pairs(Random(f"{encoding} 0"))
    form = {"schemaType": "key_value", "keyValueEncodingType": encoding}
    check(spark, service_url, topic, batch, **form)


def singles() -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield a column of each type that has a primitive, and which one to ask for."""
    chance = Random(7)
    for type_, _ in LEAVES:
        if pa.types.is_decimal(type_) or pa.types.is_binary(type_):
            continue  # there is no primitive for these
        batch = any_rows(chance, pa.schema([pa.field("value", type_)]), ROWS)
        yield "string" if pa.types.is_string(type_) else "auto", batch


def test_single_columns(service_url: str, topic: str) -> None:
    """Each primitive holds all that its type has, TIME included, and NULL."""
    for at, (form, batch) in enumerate(singles()):
        check_here(service_url, f"{topic}-{at}", batch, schemaType=form)


@pytest.mark.parametrize(
    "type_", [TIMESTAMP, pytest.param(None, marks=pytest.mark.matrix)], ids=str
)
def test_single_columns_through_spark(
    spark: SparkSession, service_url: str, topic: str, type_: pa.DataType | None
) -> None:
    """The same as Spark has them, of one type, or of all."""
    for at, (form, batch) in enumerate(singles()):
        if type_ in (None, batch.schema.field(0).type):
            check(spark, service_url, f"{topic}-{at}", batch, schemaType=form)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(100, 112))
def test_many(spark: SparkSession, service_url: str, topic: str, seed: int) -> None:
    """More of all of them."""
    for at in range(5):
        chance = Random(f"{seed} {at}")
        batch = records(chance)
        for form in ("avro", "json"):
            name = f"{topic}-{form}-{at}"
            check(spark, service_url, name, batch, schemaType=form)
        batch = pairs(chance)
        for encoding in ("INLINE", "SEPARATED"):
            of_pairs = {"schemaType": "key_value", "keyValueEncodingType": encoding}
            check(spark, service_url, f"{topic}-{encoding}-{at}", batch, **of_pairs)
