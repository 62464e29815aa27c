# SPDX-License-Identifier: Apache-2.0
"""RecordBatches of values to which their schema adds far more than they hold."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from pulsar_spark.arrow.decode import RecordBatchBuilder
from pulsar_spark.arrow.message_columns import COLUMN_SOURCES
from pulsar_spark.arrow.values import ValueSettings, avro, kinds
from pulsar_spark.arrow.values.added import MAX_ROW_BYTES, added
from pulsar_spark.arrow.values.by_schema import SchemaDecoder
from pulsar_spark.schemas.info import InvalidSchemaError, SchemaInfo, SchemaType
from pulsar_spark.wire.entries import read_stored_entry
from tests.support.entries import decode_entry
from tests.support.protobuf_schemas import Field, field, message, proto_file
from tests.support.protobuf_schemas import info as protobuf_info
from tests.wire import builders
from tests.wire.builders import Outer, Sent

VERSION = bytes(8)
ROWS = 2_000
MAX_BYTES = 1 << 20


def record(*fields: Any, name: str = "R") -> Any:
    """A record of these fields: name, type and, if there is one, default."""
    keys = ("name", "type", "default")
    made = [dict(zip(keys, one, strict=False)) for one in fields]
    return {"type": "record", "name": name, "fields": made}


def info(tree: Any, type_: int = SchemaType.AVRO) -> SchemaInfo:
    """A schema as the registry has it."""
    return SchemaInfo(type_, json.dumps(tree).encode(), {})


def read(
    writer: SchemaInfo,
    reader: SchemaInfo,
    value: bytes,
    max_bytes: int = MAX_BYTES,
) -> list[pa.RecordBatch]:
    """RecordBatches of a batch of many messages with this value."""
    wanted = kinds.columns_of(reader)
    decoder = SchemaDecoder(reader, wanted, ValueSettings(), lambda _: writer)
    build = RecordBatchBuilder(
        wanted,
        COLUMN_SOURCES,
        "t",
        -1,
        max_rows=10_000,
        max_bytes=max_bytes,
        values=decoder,
    )
    outer = Outer(sequence_id=1, extra=((16, VERSION),))
    data = builders.batch([Sent(value) for _ in range(ROWS)], outer)
    found = list(build.add(decode_entry(read_stored_entry(7, 1, memoryview(data)))))
    if build.rows:
        found.append(build.finish())
    assert sum(map(len, found)) == ROWS
    return found


ID = ("id", "int")
LONG_SYMBOL = {"type": "enum", "name": "E", "symbols": ["x" * 100_000]}
ARRAY = {"type": "array", "items": "int"}
JSON = SchemaType.JSON


def long_defaults() -> SchemaInfo:
    """A message of 100 texts with defaults of a thousand characters."""
    made = [field(f"s{at}", at + 1, Field.TYPE_STRING) for at in range(100)]
    for one in made:
        one.default_value = "x" * 1000
    return protobuf_info(proto_file(message(*made), syntax="proto2"))


CASES = {
    "protobuf": (long_defaults(), None, b""),
    "default": (
        info(record(ID)),
        info(record(ID, ("s", "string", "x" * 100_000))),
        b"\2",
    ),
    "symbol": (info(record(("e", LONG_SYMBOL))), None, b"\0"),
    "list": (info(record(ID)), info(record(ID, ("a", ARRAY, [0] * 20_000))), b"\2"),
    "json": (
        info(record(ID), JSON),
        info(record(ID, ("s", "string", "x" * 100_000)), JSON),
        b'{"id":1}',
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_rows_are_weighed_with_what_their_schema_adds(case: str) -> None:
    """No RecordBatch is larger because its values are small; each row is good."""
    writer, reader, value = CASES[case]
    found = read(writer, reader or writer, value)
    assert max(one.nbytes for one in found) <= 2 * MAX_BYTES
    assert not any(column.null_count for one in found for column in one.columns)


WIDE = [f"c{at}" for at in range(100)]


def wide_items() -> dict[str, tuple[SchemaInfo, bytes]]:
    """Arrays of 40 items that are NULL, or have defaults, in 100 columns."""
    columns = record(*((name, ["null", "long"]) for name in WIDE), name="Q")
    array = {"type": "array", "items": ["null", columns]}
    numbers = [field(name, at + 1, Field.TYPE_INT64) for at, name in enumerate(WIDE)]
    items = field("a", 1, "Q", Field.LABEL_REPEATED)
    native = proto_file(message(items), message(*numbers, name="Q"))
    return {
        "avro": (info(record(("a", array))), zigzag(40) + bytes(41)),
        "protobuf": (protobuf_info(native), b"\x0a\0" * 40),
    }


@pytest.mark.parametrize("kind", ["avro", "protobuf"])
def test_rows_are_weighed_with_the_width_of_items(kind: str) -> None:
    """Each row is good, and RecordBatches have fewer of them."""
    own, value = wide_items()[kind]
    found = read(own, own, value, 8192)
    assert max(one.nbytes for one in found) <= 300 * 8192
    assert not any(one.column(0).null_count for one in found)


def test_short_defaults_do_not_cut_record_batches() -> None:
    """What ordinary schemas have is not counted."""
    reader = info(record(ID, ("s", "string", "unknown")))
    assert len(read(info(record(ID)), reader, b"\2")) == 1


def test_unions_of_a_writer_are_bounded() -> None:
    """A union within each branch of another does not multiply the plan for ever."""

    def written(depth: int, number: int, known: set[str]) -> Any:
        name = f"W{depth}_{number}"
        if name in known:
            return name
        known.add(name)
        below = [written(depth - 1, one, known) for one in range(10)] if depth else []
        return record(("f", below or "int"), name=name)

    own = record(("f", "int"), name="R_")
    for level in range(8):
        own = record(("f", own), name=f"R{level}")
    reader = info(own)
    with pytest.raises(InvalidSchemaError, match=r"more than 20,000 pairs of types"):
        avro.decoder(
            info(written(8, 0, set())),
            reader,
            avro.columns_of(reader),
            ValueSettings(),
        )


def test_names_that_are_not_unicode() -> None:
    """Half of a character in a symbol is no error where sizes are looked at."""
    half = {"type": "enum", "name": "E", "symbols": ["\ud800"]}
    assert added(info(record(("e", half))), pa.schema([("e", pa.string())])).row_bytes


def test_too_much_for_one_row_is_refused() -> None:
    """Defaults without end are an error that says how much they are."""
    types = [CONSTANT, *["Q"] * 8]
    many = [
        (f"a{at}", {"type": "array", "items": type_}, [{}] * 10)
        for at, type_ in enumerate(types)
    ]
    reader = info(record(ID, *many))
    wanted = kinds.columns_of(reader)
    assert added(reader, wanted).row_bytes > MAX_ROW_BYTES
    with pytest.raises(Exception, match=r"add 9,00.* bytes to a row"):
        read(info(record(ID)), reader, b"\2")
    # Fewer columns can be read.
    few = wanted.remove(1)
    assert added(reader, few).row_bytes <= MAX_ROW_BYTES


def items(inside: Any) -> SchemaInfo:
    """An array of records, and bytes."""
    array = {"type": "array", "items": inside}
    return info(record(("a", array), ("pad", "bytes")))


def zigzag(number: int) -> bytes:
    """A number as AVRO writes it."""
    number, data = number << 1, b""
    while number >= 0x80:
        data, number = data + bytes([number & 0x7F | 0x80]), number >> 7
    return data + bytes([number])


NOTHING = record(name="Q")
CONSTANT = record(("c", "string", "x" * 100_000), name="Q")
FIXED = record(
    *((f"c{at}", {"type": "fixed", "name": f"F{at}", "size": 0}) for at in range(3000)),
    name="Q",
)


@pytest.mark.parametrize(("writer", "reader"), [(NOTHING, CONSTANT), (FIXED, FIXED)])
def test_items_of_no_bytes_are_counted_by_their_width(writer: Any, reader: Any) -> None:
    """One value does not become a thousand times as much."""
    own = items(reader)
    made = avro.decoder(items(writer), own, avro.columns_of(own), ValueSettings())
    for count, is_bad in ((4, False), (7_000, True)):
        value = zigzag(count) + b"\0" + zigzag(1000) + bytes(1000)
        before = pa.total_allocated_bytes()
        decoded = made.decode(pa.array([value], pa.binary()), None)
        assert bool(decoded.bad) is is_bad
        assert pa.total_allocated_bytes() - before < 8 * MAX_BYTES
        assert not is_bad or "far more items than bytes" in decoded.reason


def test_a_default_may_have_many_wide_items() -> None:
    """Defaults are bounded by themselves, not by the bytes that they take."""
    wide = record(*((f"c{at}", "string", "") for at in range(100)), name="Q")
    array = {"type": "array", "items": wide}
    reader = info(record(ID, ("a", array, [{}] * 100)))
    assert read(info(record(ID)), reader, b"\2")
