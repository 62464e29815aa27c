# SPDX-License-Identifier: Apache-2.0
"""Which columns AVRO's types become."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pulsar_spark.arrow.schema import TIMESTAMP
from pulsar_spark.arrow.values.avro_types import columns_of
from pulsar_spark.schemas.info import InvalidSchemaError
from tests.schemas.test_avro import parsed, record


def column(tree: Any) -> pa.DataType:
    """The type of the column of a field of this type."""
    return columns_of(parsed(record(tree))).field(0).type


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ("boolean", pa.bool_()),
        ("int", pa.int32()),
        ({"type": "int", "logicalType": "date"}, pa.date32()),
        ({"type": "int", "logicalType": "time-millis"}, pa.int32()),
        ({"type": "long", "logicalType": "time-micros"}, pa.int64()),
        ({"type": "long", "logicalType": "timestamp-millis"}, TIMESTAMP),
        ({"type": "long", "logicalType": "timestamp-micros"}, TIMESTAMP),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("bytes", pa.binary()),
        ({"type": "string", "logicalType": "uuid"}, pa.string()),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.string()),
        ({"type": "fixed", "name": "F", "size": 3}, pa.binary()),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            pa.decimal128(9, 2),
        ),
        (["int", "long"], pa.int64()),
        (["float", "null", "double"], pa.float64()),
        (["string"], pa.string()),
        (
            ["null", "string", "int"],
            pa.struct([("member0", pa.string()), ("member1", pa.int32())]),
        ),
        (
            {"type": "array", "items": ["null", "long"]},
            pa.list_(pa.field("element", pa.int64())),
        ),
        (
            {"type": "map", "values": "int"},
            pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
        ),
        (
            record("int", ["null", "string"], name="Inner"),
            pa.struct(
                [pa.field("f0", pa.int32(), nullable=False), ("f1", pa.string())]
            ),
        ),
    ],
)
def test_types(tree: Any, expected: pa.DataType):
    """The mapping of the Scala connector."""
    assert column(tree) == expected


def test_far_too_many_columns():
    """Records that come twice in one another, which is a short text."""
    tree: Any = "long"
    for level in range(40):
        again = f"N{level - 1}" if level else "long"
        tree = record(tree, again, name=f"N{level}")
    with pytest.raises(InvalidSchemaError, match="more than 10,000 fields"):
        columns_of(parsed(tree))


def test_other_roots_and_null():
    """What is no record is `value`; all columns may be NULL."""
    assert columns_of(parsed({"type": "map", "values": "int"})).names == ["value"]
    assert all(one.nullable for one in columns_of(parsed(record("int", ["int"]))))


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (record(["null", "Node"], name="Node"), "`f0` holds the record Node again"),
        (record("null"), "`f0` is always null"),
        (record({"type": "array", "items": "null"}), r"`f0\[\]` is always null"),
        (
            record({"type": "bytes", "logicalType": "decimal", "precision": 50}),
            "a decimal of 50 digits",
        ),
        (
            {
                "type": "record",
                "name": "R",
                "fields": [{"name": "a", "type": "int"}, {"name": "A", "type": "int"}],
            },
            "`a` and `A` differ by their case only",
        ),
        (
            record(
                {
                    "type": "record",
                    "name": "S",
                    "fields": [
                        {"name": "a", "type": "int"},
                        {"name": "A", "type": "int"},
                    ],
                }
            ),
            "`a` and `A` of `f0` differ by their case only",
        ),
    ],
)
def test_what_has_no_column(tree: Any, said: str):
    """The error names the field."""
    with pytest.raises(InvalidSchemaError, match=said):
        columns_of(parsed(tree))
