# SPDX-License-Identifier: Apache-2.0
"""Any rows through Spark into a topic with a schema, and back: they are equal.

``tests/arrow/test_round_trip.py`` draws many more, without Spark and a broker.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import types
from pyspark.sql.pandas.types import from_arrow_schema

from tests.broker import test_write
from tests.broker.test_write import save
from tests.support.random_rows import (
    LEAVES,
    any_columns,
    any_rows,
    any_struct,
    rows_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(600)

ROWS = 30


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
    reader = spark.read.format("pulsar").options(
        **test_write.given(service_url, topic, {})
    )
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


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("form", ["avro", "json"])
def test_records(
    spark: SparkSession, service_url: str, topic: str, form: str, seed: int
) -> None:
    """Nested types, NULLs everywhere, and the extremes of each type."""
    batch = records(Random(f"{form} {seed}"))
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
@pytest.mark.parametrize("seed", range(2))
def test_pairs(
    spark: SparkSession, service_url: str, topic: str, encoding: str, seed: int
) -> None:
    """Keys and values, NULL or empty, in the payload or as the message's key."""
    batch = pairs(Random(f"{encoding} {seed}"))
    form = {"schemaType": "key_value", "keyValueEncodingType": encoding}
    check(spark, service_url, topic, batch, **form)


def test_single_columns(spark: SparkSession, service_url: str, topic: str) -> None:
    """Each primitive holds all that its type has, TIME included, and NULL."""
    chance = Random(7)
    for at, (type_, _) in enumerate(LEAVES):
        if pa.types.is_decimal(type_) or pa.types.is_binary(type_):
            continue  # there is no primitive for these
        batch = any_rows(chance, pa.schema([pa.field("value", type_)]), ROWS)
        form = "string" if pa.types.is_string(type_) else "auto"
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
