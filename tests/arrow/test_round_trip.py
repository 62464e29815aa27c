# SPDX-License-Identifier: Apache-2.0
"""Any rows, as values by a schema of their own, and from there as columns again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.arrow.values import ValueSettings, kinds
from pulsar_spark.arrow.values.encoders import encoder_for, new_schema
from tests.support.random_rows import (
    LEAVES,
    any_columns,
    any_field,
    any_rows,
    any_struct,
    rows_of,
)

if TYPE_CHECKING:
    from random import Random

    from pulsar_spark.schemas.info import SchemaInfo

USUAL = ValueSettings()
CHANCE = st.randoms(use_true_random=False)


def read(
    info: SchemaInfo,
    batch: pa.RecordBatch,
    wanted: pa.Schema,
    said: ValueSettings = USUAL,
) -> list[dict[str, Any]]:
    """The rows after they were written and read, none of which was bad."""
    return rows_of(read_batch(info, batch, wanted, said))


def read_batch(
    info: SchemaInfo, batch: pa.RecordBatch, wanted: pa.Schema, said: ValueSettings
) -> pa.RecordBatch:
    """The same rows in Arrow."""
    encoder = encoder_for(info, batch.schema, said)
    encoded = encoder.encode([batch[name] for name in encoder.columns])
    keys = None if encoded.keys is None else encoded.keys.cast(pa.binary())
    decoder = kinds.decoder(info, info, wanted, said)
    found = decoder.decode(encoded.values.cast(pa.binary()), keys)
    assert (list(found.bad), found.reason) == ([], "")
    for column in found.columns:
        column.validate(full=True)
    return pa.RecordBatch.from_arrays(list(found.columns), schema=wanted)


def check(batch: pa.RecordBatch, wanted: str, encoding: str = "INLINE") -> None:
    """The columns that a topic has by itself, and those that the rows had, are equal.

    Those by themselves are wider here and there, or numbers for times, of a LOCAL_TIME
    in nanoseconds.
    """
    info = new_schema(batch.schema, wanted, encoding)
    assert info is not None
    expected = rows_of(batch)
    asked = pa.schema([_as_asked(field) for field in batch.schema])
    for at in (0, len(batch) // 2):  # a slice, too
        some = batch.slice(at)
        own = kinds.columns_of(info)
        names = batch.schema.names
        own = pa.schema([own.field(name) for name in names])
        if not any(pa.types.is_time(one) for one in batch.schema.types):
            assert read(info, some, own) == expected[at:]
        assert read(info, some, asked) == expected[at:]


def _as_asked(field: pa.Field) -> pa.Field:
    """A column as a user may ask for it: schemas of our own have NULL everywhere."""
    return pa.field(field.name, _with_nulls(field.type))


def _with_nulls(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct([_as_asked(one) for one in type_])
    if pa.types.is_list(type_):
        return pa.list_(_as_asked(type_.value_field))
    if pa.types.is_map(type_):
        return pa.map_(type_.key_type, _as_asked(type_.item_field))
    return type_


@pytest.mark.parametrize("form", ["avro", "json"])
@settings(max_examples=60, deadline=None)
@given(chance=CHANCE)
def test_records(form: str, chance: Random) -> None:
    """Columns of any types are the fields of a record."""
    check(any_rows(chance, any_columns(chance), chance.randint(0, 6)), form)


#: Marks of the owner of a JSON schema: the Java client, and others.
OWNERS = ({"__jsr310ConversionEnabled": "false"}, {"owner": "team"})


@pytest.mark.parametrize("properties", OWNERS)
@settings(max_examples=60, deadline=None)
@given(chance=CHANCE)
def test_records_in_json_of_other_owners(
    properties: dict[str, str], chance: Random
) -> None:
    """In each form that JSON has, what is written is read as it was.

    Times of the day and local times are read as numbers, too, and written from these.
    """
    batch = any_rows(chance, any_columns(chance), chance.randint(0, 6))
    own = new_schema(batch.schema, "json", "INLINE")
    assert own is not None
    info = replace(own, properties=properties)
    asked = pa.schema([_as_asked(field) for field in batch.schema])
    usual = ValueSettings("base64")
    expected = read(info, batch, asked, usual)
    assert expected == rows_of(batch)
    natural = kinds.columns_of(info)
    as_read = read_batch(info, batch, natural, usual)
    assert read(info, as_read, asked, usual) == expected


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
@settings(max_examples=60, deadline=None)
@given(chance=CHANCE)
def test_pairs(encoding: str, chance: Random) -> None:
    """Keys and values are primitives, bytes, or records of any types."""

    def part(name: str) -> pa.Field:
        if chance.random() < 0.5:
            return pa.field(name, any_struct(chance, 2))
        return pa.field(name, chance.choice(PARTS))

    schema = pa.schema([part("key"), part("value")])
    check(any_rows(chance, schema, chance.randint(0, 6)), "key_value", encoding)


#: What a KEY_VALUE has as it is: a primitive, or bytes.
PARTS = [type_ for type_, _ in LEAVES if not pa.types.is_decimal(type_)]


@settings(max_examples=60, deadline=None)
@given(chance=CHANCE)
def test_single_columns(chance: Random) -> None:
    """Each type has a primitive that loses nothing, NULL included."""
    types = [type_ for type_ in PARTS if not pa.types.is_binary(type_)]
    type_ = chance.choice(types)
    wanted = "string" if pa.types.is_string(type_) else "auto"
    schema = pa.schema([pa.field("value", type_)])
    check(any_rows(chance, schema, chance.randint(0, 6)), wanted)


@settings(max_examples=30, deadline=None)
@given(chance=CHANCE)
def test_what_is_drawn_is_compared(chance: Random) -> None:
    """Rows are equal to themselves, and not to others: -0.0, NaN and NULL count."""
    field = any_field(chance, "a")
    batch = any_rows(chance, pa.schema([field]), 5)
    assert rows_of(batch) == rows_of(batch.slice(0))
    numbers = pa.table({"a": [0.0, -0.0, float("nan"), None]})
    assert [row["a"] for row in rows_of(numbers)] == ["0.0", "-0.0", "nan", None]
