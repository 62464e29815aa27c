# SPDX-License-Identifier: Apache-2.0
"""Columns as values in JSON, as the official clients read them."""

from __future__ import annotations

import contextlib
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.arrow.values.avro_text import record_text
from pulsar_spark.arrow.values.json_encoder import JsonEncoder
from pulsar_spark.arrow.values.json_form import JsonForm
from pulsar_spark.loops.avro_write import UnfitValueError
from pulsar_spark.schemas.avro import parse_avro
from pulsar_spark.schemas.info import InvalidSchemaError
from tests.arrow.values.test_avro_encoder import BAD_ITEMS, record

SPARK = JsonForm()
JAVA, PYTHON = JsonForm(times_are_texts=True), JsonForm(False, "utf8", False)


def encoded(
    batch: pa.RecordBatch, text: bytes = b"", form: JsonForm = SPARK
) -> list[str]:
    """Values of rows, by our own schema unless there is another."""
    root = parse_avro(text or record_text(batch.schema))
    values = JsonEncoder(root, batch.schema, form).encode(batch.columns).values
    return [value.decode() for value in values.to_pylist()]


def column(array: pa.Array, text: bytes = b"", form: JsonForm = SPARK) -> list[str]:
    """What a column becomes in objects of its own."""
    batch = pa.RecordBatch.from_arrays([array], names=["a"])
    rows = encoded(batch, text, form)
    assert all(row.startswith('{"a":') and row.endswith("}") for row in rows)
    return [row.removeprefix('{"a":').removesuffix("}") for row in rows]


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
FIXED = {"type": "fixed", "name": "F", "size": 2}
PAIR = pa.struct([("x", pa.int8()), ("y", pa.string())])


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([1, -(2**63), None]), ["1", "-9223372036854775808", "null"]),
        (pa.array([True, False]), ["true", "false"]),
        (
            pa.array([1.5, float("nan"), float("inf"), float("-inf"), None]),
            ["1.5", '"NaN"', '"Infinity"', '"-Infinity"', "null"],
        ),
        (pa.array([Decimal("12.340"), None]), ["12.340", "null"]),
        (pa.array([b"\x00\xffa", b"", None]), ['"AP9h"', '""', "null"]),
        (pa.array([0, -5, None], pa.date32()), ["0", "-5", "null"]),
        (pa.array([-1, 7], pa.timestamp("us", "UTC")), ["-1", "7"]),
        (pa.array([5], pa.timestamp("us")), ["5"]),
        (pa.array([5000], pa.time64("ns")), ["5"]),
        (
            pa.array([[1, None], [], None], pa.list_(pa.int8())),
            ["[1,null]", "[]", "null"],
        ),
        (
            pa.array(
                [[("k", [1]), ('"', None)], [], None],
                pa.map_(pa.string(), pa.list_(pa.int8())),
            ),
            ['{"k":[1],"\\"":null}', "{}", "null"],
        ),
        (
            pa.array([[{"x": 1, "y": "é"}, None]], pa.list_(PAIR)),
            ['[{"x":1,"y":"é"},null]'],
        ),
    ],
)
def test_types(array: pa.Array, expected: list[str]):
    """Each as Java's client has it, NULL written; likewise in slices."""
    assert column(array) == expected
    assert column(array.slice(1)) == expected[1:]


@pytest.mark.parametrize(
    ("logical", "numbers", "expected"),
    [
        (
            "timestamp-micros",
            [0, -1, None, 253402300800000000, -62167219200000001],
            [
                '"1970-01-01T00:00:00.000000Z"',
                '"1969-12-31T23:59:59.999999Z"',
                "null",
                '"+10000-01-01T00:00:00.000000Z"',
                '"-0001-12-31T23:59:59.999999Z"',
            ],
        ),
        ("timestamp-millis", [1_999], ['"1970-01-01T00:00:00.001Z"']),
        ("local-timestamp-millis", [1_999], ['"1970-01-01T00:00:00.001"']),
        ("local-timestamp-nanos", [1], ['"1970-01-01T00:00:00.000001000"']),
    ],
)
def test_moments_for_java(logical: str, numbers: list[int | None], expected: list[str]):
    """By its own schemas Java takes an integer for seconds, or for nothing."""
    zone = None if logical.startswith("local") else "UTC"
    array = pa.array(numbers, pa.int64()).cast(pa.timestamp("us", zone))
    text = record(("a", ["null", {"type": "long", "logicalType": logical}]))
    assert column(array, text, JAVA) == expected
    assert column(array.slice(1), text, JAVA) == expected[1:]


def test_times_of_the_day_for_java():
    """They are texts, also of numbers; what is no time of a day is a bad row."""
    millis = {"type": "int", "logicalType": "time-millis"}
    text = record(("a", millis))
    numbers = pa.array([0, 86_399_999], pa.int32())
    assert column(numbers, text, JAVA) == ['"00:00:00.000"', '"23:59:59.999"']
    time = pa.array([86_399_999_999_999], pa.time64("ns"))
    assert column(time, text, JAVA) == ['"23:59:59.999"']
    for number in (-1, 86_400_000):
        with pytest.raises(UnfitValueError, match="no time of a day"):
            column(pa.array([number], pa.int32()), text, JAVA)
    batch = pa.RecordBatch.from_pydict({"i": pa.array([1], pa.int32())})
    for default, good in ((1, True), (-1, False)):
        with (
            contextlib.nullcontext()
            if good
            else pytest.raises(
                InvalidSchemaError, match="default of `a` is no time of a day"
            )
        ):
            rows = encoded(batch, record(("a", millis, default), ("i", "int")), JAVA)
            assert rows == ['{"i":1,"a":"00:00:00.001"}']


def test_bytes_and_nan_for_python():
    """Its client has the text's own bytes, and numbers that JSON does not have."""
    assert column(pa.array([b'\xc3\xa9"', b"", None]), form=PYTHON) == [
        '"é\\""',
        '""',
        "null",
    ]
    with pytest.raises(UnfitValueError, match="not text in UTF-8"):
        column(pa.array([b"\xff"]), form=PYTHON)
    array = pa.array([float("nan"), float("-inf"), -0.0, 1.0, None])
    assert column(array, form=PYTHON) == ["NaN", "-Infinity", "-0.0", "1.0", "null"]


def test_floats_as_clients_have_them():
    """Whole ones have a point, too; of FLOAT in `double` no digit goes."""
    array = pa.array([1.0, -20.0, 1e20, 1e-7, 0.0])
    assert column(array) == ["1.0", "-20.0", "1e+20", "1e-7", "0.0"]
    text = record(("a", "double"))
    assert column(pa.array([1, -2], pa.int16()), text) == ["1.0", "-2.0"]
    (row,) = column(pa.array([0.1], pa.float32()), text)
    assert float(row) == pa.scalar(0.1, pa.float32()).as_py()


def test_half_of_a_character_is_never_written():
    """A default that has it is an error, as brokers do not look at it."""
    text = record(("s", "string", "\ud800"), ("i", "int"))
    batch = pa.RecordBatch.from_pydict({"i": pa.array([1], pa.int32())})
    with pytest.raises(InvalidSchemaError, match=r"default of `s`.* is no string"):
        encoded(batch, text)


def test_structs_without_fields():
    """As Spark's `named_struct()` makes them."""
    array = pa.array([{}, None, {}], pa.struct([]))
    batch = pa.RecordBatch.from_arrays([array, pa.array([1, 2, 3])], names=["a", "b"])
    expected = ['{"a":{},"b":1}', '{"a":null,"b":2}', '{"a":{},"b":3}']
    assert encoded(batch) == expected
    assert encoded(batch.slice(1)) == expected[1:]


@given(st.lists(st.none() | st.text(max_size=9), max_size=5))
def test_texts(texts: list[str | None]):
    """Any text is one of JSON."""
    assert [json.loads(one) for one in column(pa.array(texts, pa.string()))] == texts


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=5))
def test_floats(numbers: list[float]):
    """Numbers come back as they are."""
    found = [json.loads(one) for one in column(pa.array(numbers, pa.float64()))]
    assert [float(one) for one in found] == numbers


def test_registered_schema():
    """Units are the schema's, and so are defaults of what no column has."""
    text = record(
        ("m", "int", 5),
        ("b", "bytes", "\u00ff"),
        ("t", {"type": "long", "logicalType": "timestamp-millis"}),
        ("n", ["null", "string"]),
    )
    batch = pa.RecordBatch.from_pydict({"t": pa.array([1999], pa.timestamp("us", "Z"))})
    (row,) = encoded(batch, text)
    assert json.loads(row) == {"t": 1, "m": 5, "b": "/w==", "n": None}


def test_branches():
    """Of a union it is the most natural one, whatever their order."""
    text = record(("s", ["null", "string", ENUM]), ("b", ["double", "bytes", FIXED]))
    batch = pa.RecordBatch.from_pydict({"s": ["A", "z", None], "b": [b"ab", b"", b"a"]})
    found = [json.loads(row) for row in encoded(batch, text)]
    assert found == [
        {"s": "A", "b": "YWI="},
        {"s": "z", "b": ""},
        {"s": None, "b": "YQ=="},
    ]


def test_nulls_that_mean_nothing():
    """Below a NULL, a field that has none may have one: in a map of structs, as Spark.

    They are there once more in a slice, and where a map is in a map.
    """
    required = pa.field("n", pa.list_(pa.int8()), nullable=False)
    structs = pa.StructArray.from_arrays(
        [pa.array([[1], None, []], required.type)],
        fields=[required],
        mask=pa.array([False, True, False]),
    )
    keys = pa.array(["a", "b", "c"])
    maps = pa.MapArray.from_arrays(pa.array([0, None, 2, 3], pa.int32()), keys, structs)
    expected = ['{"a":{"n":[1]},"b":null}', "null", '{"c":{"n":[]}}']
    assert column(maps) == expected
    assert column(maps.slice(1)) == expected[1:]
    outer = pa.MapArray.from_arrays(pa.array([0, 2, 3], pa.int32()), keys, maps)
    assert column(outer) == [
        '{"a":{"a":{"n":[1]},"b":null},"b":null}',
        '{"c":{"c":{"n":[]}}}',
    ]


def test_null_values():
    """A struct that is NULL is a null value."""
    array = pa.array([{"x": 1, "y": "a"}, None], PAIR)
    schema = pa.schema([("s", PAIR)])
    root = parse_avro(record_text(pa.schema(list(PAIR))))
    values = JsonEncoder(root, schema).encode([array]).values
    assert values.to_pylist() == [b'{"x":1,"y":"a"}', None]


@pytest.mark.parametrize(
    ("type_", "array", "row"),
    [
        ("int", pa.array([1, None], pa.int32()), 1),
        (
            {"type": "array", "items": "int"},
            pa.array([[], [1], [2, None]], pa.list_(pa.int8())),
            2,
        ),
        (
            {"type": "long", "logicalType": "timestamp-nanos"},
            pa.array([1 << 60], pa.timestamp("us", "UTC")),
            0,
        ),
        ("string", pa.array([b"a", b"\xff"]).view(pa.string()), 1),
        (["null", ENUM], pa.array(["A", None, "C"]), 2),
        ({"type": "array", "items": ENUM}, pa.array([["A"], ["A", "a"]]), 1),
        (["null", FIXED], pa.array([b"ab", None, b"abc"]), 2),
    ],
)  # fmt: skip
def test_bad_values(type_: Any, array: pa.Array, row: int):
    """The row is named."""
    with pytest.raises(UnfitValueError) as caught:
        column(array, record(("a", type_)))
    assert caught.value.row == row


def test_symbols_and_fixed_sizes():
    """What its schema has is written as it is."""
    symbols = column(pa.array(["A", None, "B"]), record(("a", ["null", ENUM])))
    assert symbols == ['"A"', "null", '"B"']
    fixed = column(pa.array([b"ab", None]), record(("a", ["null", FIXED])))
    assert fixed == ['"YWI="', "null"]
    nanos = {"type": "long", "logicalType": "timestamp-nanos"}
    moment = pa.array([-1, 5], pa.timestamp("us", "UTC"))
    assert column(moment, record(("a", nanos))) == ["-1000", "5000"]


def test_what_does_not_fit():
    """The same columns fit a schema in JSON as fit it in AVRO."""
    schema = pa.schema([("a", pa.int64())])
    for text in (record(("a", "int")), record(("b", "int")), b'"int"'):
        with pytest.raises(InvalidSchemaError):
            JsonEncoder(parse_avro(text), schema)


BYTES = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
INNER = {
    "type": "record",
    "name": "I",
    "fields": [
        {"name": "b", "type": "bytes", "default": "\u00ff"},
        {"name": "n", "type": ["null", "I"], "default": None},
    ],
}


@pytest.mark.parametrize(
    ("type_", "default", "expected"),
    [
        (INNER, {}, '{"b":"/w==","n":null}'),
        (INNER, {"n": {"b": "é"}}, '{"b":"/w==","n":{"b":"6Q==","n":null}}'),
        ({"type": "array", "items": "bytes"}, ["\u00fe", ""], '["/g==",""]'),
        ({"type": "map", "values": "bytes"}, {'"': "a"}, '{"\\"":"YQ=="}'),
        (["null", "string", "bytes"], "a", '"a"'),
        (["null", "bytes"], "a", '"YQ=="'),
        (BYTES, "\x01", "0.01"),
        (BYTES, "\u00ff", "-0.01"),
        (["null", BYTES], "\x27\x10", "100.00"),
        ("long", 1.0, "1"),
        ("double", 1, "1.0"),
        ("boolean", True, "true"),
    ],
)  # fmt: skip
def test_defaults(type_: Any, default: Any, expected: str):
    """What no column has is written as a value of it would be, at any depth."""
    text = record(("d", type_, default), ("i", "int"))
    (row,) = encoded(pa.RecordBatch.from_pydict({"i": pa.array([1], pa.int32())}), text)
    assert row == f'{{"i":1,"d":{expected}}}'


@pytest.mark.parametrize(("array", "row"), BAD_ITEMS)
def test_rows_of_bad_items(array: pa.Array, row: int):
    """An error names the row, not the item."""
    with pytest.raises(UnfitValueError) as caught:
        column(array)
    assert caught.value.row == row
