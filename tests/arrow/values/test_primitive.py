# SPDX-License-Identifier: Apache-2.0
"""Values of primitive schemas as columns."""

from __future__ import annotations

import datetime as dt
import math
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.arrow.schema import TIMESTAMP
from pulsar_spark.arrow.values import Decoded, ValueSettings
from pulsar_spark.arrow.values.primitive import columns_of, decoder
from pulsar_spark.schemas.info import InvalidSchemaError, SchemaInfo, SchemaType

T = SchemaType


def decode(
    kind: SchemaType,
    values: list[bytes | None] | pa.BinaryArray,
    type_: pa.DataType | None = None,
    *,
    reader: SchemaType | None = None,
    zone: str = "UTC",
) -> Decoded:
    """Decode values of a schema of this type, to a column of that type."""
    read_as = SchemaInfo(kind if reader is None else reader)
    wanted = columns_of(read_as)
    if type_ is not None:
        wanted = pa.schema([pa.field("value", type_)])
    planned = decoder(SchemaInfo(kind), read_as, wanted, ValueSettings("base64", zone))
    if isinstance(values, list):
        values = pa.array(values, pa.binary())
    decoded = planned.decode(values, None)
    (column,) = decoded.columns
    column.validate(full=True)
    assert column.type == wanted.field(0).type
    assert len(column) == len(values)
    assert bool(decoded.bad) == bool(decoded.reason)
    return decoded


def only(decoded: Decoded) -> list[Any]:
    """The rows of a column of which none is bad."""
    assert not decoded.bad, decoded.reason
    return decoded.columns[0].to_pylist()


UTC = dt.timezone.utc


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        (T.INT8, "fe", -2),
        (T.INT16, "fffe", -2),
        (T.INT32, "fffffffe", -2),
        (T.INT64, "fffffffffffffffe", -2),
        (T.FLOAT, "3fc00000", 1.5),
        (T.DOUBLE, "3ff8000000000000", 1.5),
        (T.BOOLEAN, "01", True),
        (T.BOOLEAN, "00", False),
        (T.BOOLEAN, "80", True),
        (T.STRING, "c3a9", "é"),
        (T.STRING, "", ""),
        (T.NONE, "c3", b"\xc3"),
        (T.NONE, "", b""),
        (T.DATE, "0000018df2292800", dt.date(2024, 2, 29)),
        (T.TIME, "000000000037dcc9", 3_661_001),
        (
            T.TIMESTAMP,
            "0000018df4dc51fb",
            dt.datetime(2024, 2, 29, 12, 34, 56, 123_000, UTC),
        ),
        (
            T.INSTANT,
            "0000000065e079f0075bcd15",
            dt.datetime(2024, 2, 29, 12, 34, 56, 123_456, UTC),
        ),
        (
            T.INSTANT,
            "ffffffffffffffff1dcd6500",
            dt.datetime(1969, 12, 31, 23, 59, 59, 500_000, UTC),
        ),
        (T.LOCAL_DATE, "0000000000004d46", dt.date(2024, 2, 29)),
        (T.LOCAL_DATE, "ffffffffffffffff", dt.date(1969, 12, 31)),
        (T.LOCAL_TIME, "0000293253592d15", 45_296_123_456_789),
        (
            T.LOCAL_DATE_TIME,
            "0000000000004d460000293253592d15",
            dt.datetime(2024, 2, 29, 12, 34, 56, 123_456),
        ),
    ],
)
def test_values_of_the_java_client(kind: SchemaType, data: str, expected: Any):
    """As it wrote them; times are cut to the microsecond, downwards."""
    value = bytes.fromhex(data)
    assert only(decode(kind, [value, None, value])) == [expected, None, expected]


def test_special_floats():
    """Bits are kept: NaN, and the sign of zero."""
    values = [bytes.fromhex("7ff8000000000000"), bytes.fromhex("8000000000000000")]
    nan, zero = only(decode(T.DOUBLE, values))
    assert math.isnan(nan)
    assert math.copysign(1, zero) == -1
    assert math.isnan(only(decode(T.FLOAT, [bytes.fromhex("7fc00000")]))[0])


#: Bytes of the types that have a fixed size.
SIZES = {
    T.BOOLEAN: 1,
    T.INT8: 1,
    T.INT16: 2,
    T.INT32: 4,
    T.INT64: 8,
    T.FLOAT: 4,
    T.DOUBLE: 8,
    T.DATE: 8,
    T.TIME: 8,
    T.TIMESTAMP: 8,
    T.INSTANT: 12,
    T.LOCAL_DATE: 8,
    T.LOCAL_TIME: 8,
    T.LOCAL_DATE_TIME: 16,
}


@pytest.mark.parametrize("kind", SIZES)
def test_null_empty_and_other_sizes(kind: SchemaType):
    """Null and empty are NULL; another size is bad, and leaves the others alone."""
    value = bytes(SIZES[kind] - 1) + b"\1"
    (good,) = only(decode(kind, [value]))
    values = [value, None, b"", value[1:] + b"\0\0", value, value + value]
    decoded = decode(kind, values)
    assert decoded.columns[0].to_pylist() == [good, None, None, None, good, None]
    assert list(decoded.bad) == [3, 5]
    assert f"it has {SIZES[kind] + 1} bytes, and {kind.name} has" in decoded.reason
    assert only(decode(kind, [None, b""])) == [None, None]
    assert only(decode(kind, [])) == []


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (T.DATE, struct.pack(">q", 2**62)),
        (T.TIMESTAMP, struct.pack(">q", 2**62)),
        (T.TIMESTAMP, struct.pack(">q", -(2**63))),
        (T.INSTANT, struct.pack(">qi", 2**62, 0)),
        (T.INSTANT, struct.pack(">qi", -(2**63), 0)),
        (T.INSTANT, struct.pack(">qi", 0, -1)),
        (T.INSTANT, struct.pack(">qi", 0, 10**9)),
        (T.LOCAL_DATE, struct.pack(">q", 2**31)),
        (T.LOCAL_DATE, struct.pack(">q", -(2**31) - 1)),
        (T.LOCAL_TIME, struct.pack(">q", -1)),
        (T.LOCAL_TIME, struct.pack(">q", 86_400 * 10**9)),
        (T.LOCAL_DATE_TIME, struct.pack(">qq", 2**40, 0)),
        (T.LOCAL_DATE_TIME, struct.pack(">qq", -(2**63), -(2**63))),
        (T.LOCAL_DATE_TIME, struct.pack(">qq", 0, -1)),
        (T.LOCAL_DATE_TIME, struct.pack(">qq", 0, 86_400 * 10**9)),
    ],
)
def test_what_is_out_of_range(kind: SchemaType, value: bytes):
    """It is bad, and a row beside it is not."""
    decoded = decode(kind, [bytes(SIZES[kind]), value, None])
    assert list(decoded.bad) == [1]
    assert "is out of range of" in decoded.reason
    assert decoded.columns[0].is_null().to_pylist() == [False, True, True]


def test_days_beyond_those_of_python():
    """Arrow has them, though Python's dates end with the year 9999."""
    for days in (7_314_965, 2**31 - 1, -(2**31)):
        (column,) = decode(T.LOCAL_DATE, [struct.pack(">q", days)]).columns
        assert column.cast(pa.int32()).to_pylist() == [days]
    (column,) = decode(T.DATE, [struct.pack(">q", 7_314_965 * 86_400_000)]).columns
    assert column.cast(pa.int32()).to_pylist() == [7_314_965]


def test_days_and_times_in_a_zone():
    """A moment has its day, and its time of day, where the user says."""
    midnight = int(dt.datetime(2024, 2, 29, 22, 30, tzinfo=UTC).timestamp()) * 1000
    value = struct.pack(">q", midnight)
    assert only(decode(T.DATE, [value])) == [dt.date(2024, 2, 29)]
    assert only(decode(T.DATE, [value], zone="Asia/Tokyo")) == [dt.date(2024, 3, 1)]
    (time,) = only(decode(T.TIME, [value], pa.time64("us"), zone="Asia/Tokyo"))
    assert time == dt.time(7, 30)
    before = struct.pack(">q", -1_800_000)  # 00:30 east of Greenwich, as Java has it
    assert only(decode(T.TIME, [before])) == [-1_800_000]
    assert only(decode(T.TIME, [before], pa.time64("us"))) == [dt.time(23, 30)]


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_times_if_asked_for(unit: str):
    """They are down to the microsecond."""
    value = bytes.fromhex("0000293253592d15")
    (column,) = decode(T.LOCAL_TIME, [value], pa.time64(unit)).columns
    micros = column.cast(pa.time64("us")).cast(pa.int64()).to_pylist()
    assert micros == [45_296_123_456]
    (column,) = decode(T.TIME, [struct.pack(">q", 3_661_001)], pa.time64(unit)).columns
    assert column.cast(pa.time64("us")).cast(pa.int64()).to_pylist() == [3_661_001_000]


def test_texts_that_are_none():
    """They are bad, wherever they are; null values may hold anything."""
    good, bad = "é".encode(), b"\xc3"
    rows = [good, bad, None, b""] + 200 * [good] + [bad]
    decoded = decode(T.STRING, rows)
    assert list(decoded.bad) == [1, 204]
    assert decoded.reason == "it is not UTF-8"
    assert decoded.columns[0].to_pylist() == (
        ["é", None, None, ""] + 200 * ["é"] + [None]
    )
    assert list(decode(T.STRING, 100 * [bad]).bad) == list(range(100))
    assert only(decode(T.NONE, [bad])) == [bad]


@pytest.mark.parametrize(
    "type_", [pa.large_string(), pa.binary(), pa.large_binary(), pa.string()]
)
def test_texts_as_other_types(type_: pa.DataType):
    """Of text also its bytes, and what Spark calls large."""
    text, null, empty = only(decode(T.STRING, ["é".encode(), None, b""], type_))
    assert text in ("é", "é".encode())
    assert null is None
    assert not empty


@pytest.mark.parametrize(
    ("kind", "type_", "expected"),
    [
        (T.INT8, pa.int16(), -2),
        (T.INT8, pa.int64(), -2),
        (T.INT8, pa.float32(), -2.0),
        (T.INT16, pa.int32(), -2),
        (T.INT32, pa.int64(), -2),
        (T.INT32, pa.float64(), -2.0),
        (T.INT64, pa.int32(), -2),
        (T.INT64, pa.int8(), -2),
    ],
)
def test_other_numbers(kind: SchemaType, type_: pa.DataType, expected: Any):
    """Wider ones, and narrower integers where there is room for them."""
    value = (-2).to_bytes(SIZES[kind], "big", signed=True)
    assert only(decode(kind, [value, b""], type_)) == [expected, None]


def test_narrower_numbers_without_room():
    """A number that has no room is bad."""
    values = [struct.pack(">q", one) for one in (127, 128, -128, -129, 2**63 - 1)]
    decoded = decode(T.INT64, values, pa.int8())
    assert decoded.columns[0].to_pylist() == [127, None, -128, None, None]
    assert list(decoded.bad) == [1, 3, 4]
    assert decoded.reason == "its INT64 is out of range of int8"


def test_a_writer_of_another_type():
    """Numbers grow into wider ones; what else was written is an error."""
    assert only(decode(T.INT8, [b"\xfe"], reader=T.INT64)) == [-2]
    assert only(decode(T.FLOAT, [b"\x3f\xc0\0\0"], reader=T.DOUBLE)) == [1.5]
    assert only(decode(T.INT16, [b"\xff\xfe"], pa.int8(), reader=T.INT32)) == [-2]
    for writer, reader in [
        (T.INT64, T.INT32),
        (T.DOUBLE, T.FLOAT),
        (T.INT64, T.DOUBLE),
        (T.INT32, T.FLOAT),
        (T.INT32, T.STRING),
        (T.STRING, T.INT32),
        (T.TIME, T.INT64),
        (T.INSTANT, T.TIMESTAMP),
        (T.NONE, T.STRING),
    ]:
        said = f"{writer.name} cannot be read as {reader.name}"
        with pytest.raises(InvalidSchemaError, match=said):
            decode(writer, [], reader=reader)


@pytest.mark.parametrize(
    ("kind", "type_"),
    [
        (T.INT32, pa.string()),
        (T.INT32, pa.float32()),
        (T.INT64, pa.float64()),
        (T.DOUBLE, pa.float32()),
        (T.DOUBLE, pa.int64()),
        (T.STRING, pa.int32()),
        (T.NONE, pa.string()),
        (T.TIMESTAMP, pa.int64()),
        (T.TIMESTAMP, pa.timestamp("us")),
        (T.LOCAL_DATE_TIME, TIMESTAMP),
        (T.BOOLEAN, pa.int8()),
        (T.TIME, pa.int32()),
    ],
)
def test_types_that_values_cannot_have(kind: SchemaType, type_: pa.DataType):
    """They are refused when the query is planned."""
    with pytest.raises(InvalidSchemaError, match="cannot be of the type"):
        decode(kind, [], type_)


def test_columns_and_kinds_that_are_none():
    """There is one column, and other kinds of schemas have other modules."""
    wanted = pa.schema([("other", pa.int32())])
    info = SchemaInfo(T.INT32)
    with pytest.raises(InvalidSchemaError, match="there is no `other`"):
        decoder(info, info, wanted, ValueSettings())
    for kind in (T.AVRO, 21):
        with pytest.raises(InvalidSchemaError, match="no primitive type"):
            columns_of(SchemaInfo(kind))


def test_no_column_at_all():
    """Without a column, what is bad is still known."""
    info = SchemaInfo(T.INT32)
    planned = decoder(info, info, pa.schema([]), ValueSettings())
    values = pa.array([bytes(4), bytes(3)], pa.binary())
    decoded = planned.decode(values, None)
    assert (list(decoded.columns), list(decoded.bad)) == ([], [1])


@given(
    st.sampled_from([T.NONE, T.STRING, *SIZES]),
    st.lists(
        st.none()
        | st.binary(max_size=17)
        | st.sampled_from([1, 2, 4, 8, 12, 16]).flatmap(
            lambda size: st.binary(min_size=size, max_size=size)
        ),
        max_size=20,
    ),
    st.integers(0, 20),
    st.sampled_from(["UTC", "Europe/Berlin"]),
)
def test_any_bytes_alone_and_together(
    kind: SchemaType, values: list[bytes | None], first: int, zone: str
):
    """A row is the same whatever is beside it, and wherever an array begins."""
    together = decode(kind, pa.array(values, pa.binary()).slice(first), zone=zone)
    column, bad = together.columns[0], set(together.bad)
    for row, value in enumerate(values[first:]):
        alone = decode(kind, [value], zone=zone)
        assert alone.columns[0].equals(column.slice(row, 1)) or (
            str(alone.columns[0]) == str(column.slice(row, 1))  # NaN is itself
        )
        assert bool(alone.bad) == (row in bad)
        assert value is not None or row not in bad


def test_values_behind_nulls():
    """What a null value has in its place is not looked at."""
    offsets = struct.pack("=4i", 0, 4, 7, 11)
    data = b"\0\0\0\1\xff\xff\xff\0\0\0\2"
    buffers = [pa.py_buffer(one) for one in (b"\5", offsets, data)]
    values = pa.Array.from_buffers(pa.binary(), 3, buffers)
    assert only(decode(T.INT32, values)) == [1, None, 2]
    assert only(decode(T.STRING, values)) == ["\0\0\0\1", None, "\0\0\0\2"]


@pytest.mark.parametrize(
    ("kind", "unit_us", "layout"),
    [(T.INSTANT, 1_000_000, ">qi"), (T.LOCAL_DATE_TIME, 86_400_000_000, ">qq")],
)
def test_the_first_and_the_last_moment(kind: T, unit_us: int, layout: str):
    """Those of 64 bits of microseconds are read, those one beyond are bad."""
    values = []
    for micros in (-(2**63) - 1, -(2**63), 2**63 - 1, 2**63):
        units, rest = divmod(micros, unit_us)
        values.append(struct.pack(layout, units, rest * 1000))
    decoded = decode(kind, values)
    assert list(decoded.bad) == [0, 3]
    (column,) = decoded.columns
    found = column.cast(pa.int64()).to_pylist()
    assert found == [None, -(2**63), 2**63 - 1, None]
