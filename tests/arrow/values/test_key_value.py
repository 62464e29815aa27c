# SPDX-License-Identifier: Apache-2.0
"""Values of KEY_VALUE schemas as two columns."""

from __future__ import annotations

import json
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pulsar_spark.arrow.values import ValueSettings, kinds
from pulsar_spark.arrow.values.key_value import split_inline
from pulsar_spark.schemas.info import InvalidSchemaError, SchemaInfo, SchemaType
from tests.support.protobuf_schemas import Field, field, message, proto_file
from tests.support.protobuf_schemas import info as protobuf_info


def part(type_: str, tree: Any = None, **properties: str) -> tuple[str, bytes, str]:
    """The type, the definition and the properties of a key or a value."""
    data = b"" if tree is None else json.dumps(tree).encode()
    return type_, data, json.dumps(properties)


def key_value(
    key: tuple[str, bytes, str], value: tuple[str, bytes, str], encoding: str = "INLINE"
) -> SchemaInfo:
    """A schema of these parts."""
    properties = {"kv.encoding.type": encoding}
    data = b""
    for name, (type_, definition, own) in (("key", key), ("value", value)):
        properties |= {f"{name}.schema.type": type_, f"{name}.schema.properties": own}
        data += struct.pack(">i", len(definition)) + definition
    return SchemaInfo(SchemaType.KEY_VALUE, data, properties)


STRING_INT32 = key_value(part("STRING"), part("INT32"))
SEPARATED = key_value(part("STRING"), part("INT32"), "SEPARATED")


def decode(
    info: SchemaInfo,
    values: list[bytes | None] | pa.BinaryArray,
    keys: list[bytes | None] | None = None,
    *,
    reader: SchemaInfo | None = None,
    wanted: pa.Schema | None = None,
) -> tuple[list[dict[str, Any]], list[int], str]:
    """Rows, which are bad, and why."""
    reader = info if reader is None else reader
    wanted = kinds.columns_of(reader) if wanted is None else wanted
    made = kinds.decoder(info, reader, wanted, ValueSettings())
    if isinstance(values, list):
        values = pa.array(values, pa.binary())
    decoded = made.decode(values, None if keys is None else pa.array(keys, pa.binary()))
    for column in decoded.columns:
        column.validate(full=True)
        assert len(column) == len(values)
        assert not any(column.is_valid()[row].as_py() for row in decoded.bad)
    assert bool(decoded.bad) == bool(decoded.reason)
    batch = pa.RecordBatch.from_arrays(list(decoded.columns), schema=wanted)
    return batch.to_pylist(), list(decoded.bad), decoded.reason


def pairs(rows: list[dict[str, Any]]) -> list[tuple[Any, Any]]:
    """Keys and values."""
    return [(row["key"], row["value"]) for row in rows]


def test_golden_bytes_inline():
    """What Java and C++ write; null, absent and empty are not the same."""
    payloads = [
        "000000016b0000000400000001",  # ("k", 1)
        "ffffffff0000000400000001",  # (null, 1)
        "000000016bffffffff",  # ("k", null)
        "00000000ffffffff",  # ("", null)
        "ffffffffffffffff",  # (null, null)
        "000000016b00000000",  # ("k", empty)
        "",
    ]
    values = [*map(bytes.fromhex, payloads), None]
    rows, bad, _ = decode(STRING_INT32, values)
    expected = [
        ("k", 1),
        (None, 1),
        ("k", None),
        ("", None),
        (None, None),
        ("k", None),
        (None, None),
        (None, None),
    ]
    assert not bad
    assert pairs(rows) == expected
    for value, pair in zip(values, expected, strict=True):
        assert pairs(decode(STRING_INT32, [value])[0]) == [pair]


def test_golden_bytes_separated():
    """Keys are those of messages, also of those without a value."""
    one = bytes.fromhex("00000001")
    keys = [b"k", None, b"k", b"", None]
    rows, bad, _ = decode(SEPARATED, [one, one, None, None, None], keys)
    assert not bad
    assert pairs(rows) == [("k", 1), (None, 1), ("k", None), ("", None), (None, None)]


def test_who_needs_keys():
    """KEY_VALUE does where the key is wanted; a version may be SEPARATED or not."""
    key, value = (pa.schema([one]) for one in kinds.columns_of(SEPARATED))
    assert kinds.needs_keys(STRING_INT32, key)
    assert not kinds.needs_keys(SEPARATED, value)
    assert not kinds.needs_keys(SchemaInfo(SchemaType.STRING), key)
    for info, wanted, expected in [
        (SEPARATED, key, True),
        (SEPARATED, value, False),
        (STRING_INT32, key, False),
    ]:
        made = kinds.decoder(info, info, wanted, ValueSettings())
        assert made.needs_keys is expected
    assert decode(SEPARATED, [bytes(4)], wanted=value)[0] == [{"value": 0}]


@pytest.mark.parametrize(
    "payload",
    [
        "00000001",  # a SEPARATED producer's INT32
        "000000016b",
        "000000016b0000000400000001ff",
        "000000016b00000004000000",
        "000000026b0000000400000001",
        "7fffffff6b0000000400000001",
        "800000006b0000000400000001",
        "fffffffe0000000400000001",
        "000000016bfffffffe",
        "000000016b7fffffff",
        "000000016bffffffff00",
        "00",
    ],
)
def test_what_does_not_split(payload: str):
    """It is bad, names the likely cause, and leaves its neighbours alone."""
    good = bytes.fromhex("000000016b0000000400000001")
    rows, bad, reason = decode(STRING_INT32, [good, bytes.fromhex(payload), None, good])
    assert bad == [1]
    assert "producer is SEPARATED" in reason
    assert pairs(rows) == [("k", 1), (None, None), (None, None), ("k", 1)]


def inline(key: bytes | None, value: bytes | None) -> bytes:
    """A payload."""
    return b"".join(
        b"\xff\xff\xff\xff" if one is None else struct.pack(">i", len(one)) + one
        for one in (key, value)
    )


def test_bad_parts():
    """A row of which one part is bad is bad; the first one's reason is told."""
    values = [inline(b"k", bytes(3)), inline(b"\xff", bytes(4)), inline(b"k", bytes(4))]
    rows, bad, reason = decode(STRING_INT32, values)
    assert bad == [0, 1]
    assert reason == "in its value, it has 3 bytes, and INT32 has 4"
    assert pairs(rows) == [(None, None), (None, None), ("k", 0)]
    assert decode(STRING_INT32, values[1:])[2] == "in its key, it is not UTF-8"
    assert decode(STRING_INT32, [values[1], b"x", values[0]])[1] == [0, 1, 2]
    both = inline(b"\xff", bytes(3))
    assert decode(STRING_INT32, [both])[1:] == ([0], "in its key, it is not UTF-8")
    wanted = pa.schema([kinds.columns_of(STRING_INT32).field("value")])
    assert decode(STRING_INT32, values, wanted=wanted)[1] == [0]


ROW = {"type": "record", "name": "Value", "fields": [
    {"name": "id", "type": "int"}, {"name": "name", "type": ["null", "string"]},
]}  # fmt: skip
ENVELOPE = {"type": "record", "name": "Envelope", "fields": [
    {"name": "before", "type": ["null", ROW]},
    {"name": "after", "type": ["null", "Value"]},
    {"name": "op", "type": "string"},
    {"name": "ts_ms", "type": ["null", "long"]},
]}  # fmt: skip
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}


@pytest.mark.parametrize("offset", ["0", "5"])
def test_debezium(offset: str):
    """Records are structs; a delete's tombstone keeps its key."""
    own = {"__AVRO_READ_OFFSET__": offset}
    info = key_value(
        part("JSON", KEY, **own), part("JSON", ENVELOPE, **own), "SEPARATED"
    )
    before = bytes(int(offset))
    key = before + b'{"id":101}'
    row = {"id": 101, "name": "x"}
    change = {"before": None, "after": row, "op": "c", "ts_ms": 5, "more": {}}
    value = before + json.dumps(change).encode()
    rows, bad, _ = decode(info, [value, None, value, value], [key, key, None, b"x"])
    assert bad == [3]
    del change["more"]
    assert pairs(rows) == [
        ({"id": 101}, change),
        ({"id": 101}, None),
        (None, change),
        (None, None),
    ]


def test_some_fields_of_a_struct():
    """As a user asks for them, also in wider types."""
    info = key_value(part("STRING"), part("JSON", KEY))
    wanted = pa.schema(
        [("value", pa.struct([("id", pa.int64())])), ("key", pa.string())]
    )
    rows, bad, _ = decode(info, [inline(b"k", b'{"id":5}')], wanted=wanted)
    assert (rows, bad) == ([{"value": {"id": 5}, "key": "k"}], [])


def test_versions_with_other_encodings_and_types():
    """The writer's version says where keys are; numbers grow."""
    wide = key_value(part("STRING"), part("INT64"))
    values = [bytes.fromhex("00000007"), None]
    rows, _, _ = decode(SEPARATED, values, [b"k", b"k"], reader=wide)
    assert pairs(rows) == [("k", 7), ("k", None)]
    rows, _, _ = decode(STRING_INT32, [inline(b"k", values[0])], reader=wide)
    assert pairs(rows) == [("k", 7)]


@pytest.mark.parametrize(
    ("info", "reader", "wanted", "said"),
    [
        (STRING_INT32, None, [("x", pa.int32())], "there is no field `x`"),
        (STRING_INT32, None, [("key", pa.int32())], "in its key, values of STRING"),
        (
            key_value(part("INT64"), part("INT32")),
            key_value(part("INT32"), part("INT32")),
            None,
            "in its key, INT64 cannot be read as INT32",
        ),
        (
            key_value(part("JSON", KEY), part("INT32")),
            None,
            [("key", pa.int32())],
            "in its key, a record cannot be of type int32",
        ),
        (
            key_value(part("JSON", KEY), part("INT32")),
            None,
            [("key", pa.struct([pa.field("id", pa.int32(), nullable=False)]))],
            "in its key, a record's fields may be null",
        ),
        (
            STRING_INT32,
            key_value(part("STRING"), part("JSON", KEY)),
            None,
            "in its value, INT32 cannot be read as JSON",
        ),
        (key_value(part("JSON", "no"), part("INT32")), None, None, "in its key, the"),
        (key_value(part("KEY_VALUE"), part("INT32")), None, None, "KEY_VALUE again"),
    ],
)
def test_what_cannot_be_planned(info: Any, reader: Any, wanted: Any, said: str):
    """The error names the part."""
    with pytest.raises(InvalidSchemaError, match=said):
        decode(
            info,
            [],
            reader=reader,
            wanted=None if wanted is None else pa.schema(wanted),
        )


def test_kinds_of_newer_brokers():
    """They are an error, and so is another kind than the query's."""
    with pytest.raises(InvalidSchemaError, match="of the unknown type 22"):
        kinds.columns_of(SchemaInfo(22))
    text, other = SchemaInfo(SchemaType.STRING), SchemaInfo(SchemaType.JSON, b'"int"')
    with pytest.raises(InvalidSchemaError, match="STRING cannot be read as JSON"):
        kinds.decoder(text, other, kinds.columns_of(other), ValueSettings())


PARTS = st.none() | st.binary(max_size=5)


@example([b"\0\0\0\0\0\0\0\0"], 0)
@given(
    st.lists(
        st.none() | st.binary(max_size=14) | st.builds(inline, PARTS, PARTS),
        max_size=12,
    ),
    st.integers(0, 3),
)
def test_any_bytes(payloads: list[bytes | None], first: int):
    """They split as one by one, wherever an array begins."""
    array = pa.array(payloads, pa.binary()).slice(first)
    keys, values, bad = split_inline(array)
    expected = [_split(one) for one in array.to_pylist()]
    assert keys.to_pylist() == [one[0] if one else None for one in expected]
    assert values.to_pylist() == [one[1] if one else None for one in expected]
    assert list(bad) == [row for row, one in enumerate(expected) if one is None]


def _split(payload: bytes | None) -> tuple[bytes | None, bytes | None] | None:
    """A key and a value; None for what is bad."""
    if not payload:
        return None, None
    parts: list[bytes | None] = []
    for _ in range(2):
        if len(payload) < 4:
            return None
        size = int.from_bytes(payload[:4], "big", signed=True)
        payload = payload[4:]
        if size < -1 or size > len(payload):
            return None
        parts.append(None if size < 0 else payload[:size])
        payload = payload[max(size, 0) :]
    return None if payload else (parts[0], parts[1])


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
def test_messages_of_defaults_are_no_tombstones(encoding: str) -> None:
    """Protobuf and records without bytes: no bytes are a record, null is NULL."""
    order = message(field("id", 1, Field.TYPE_INT64), field("s", 2, Field.TYPE_STRING))
    native = protobuf_info(proto_file(order))
    nothing = {"type": "record", "name": "N", "fields": []}
    for value, expected in (
        (("PROTOBUF_NATIVE", native.data, "{}"), {"id": 0, "s": ""}),
        (part("AVRO", nothing), {}),
    ):
        schema = key_value(value, value, encoding)
        if encoding == "INLINE":
            sizes = ((0, 0), (0, -1), (-1, 0))
            payloads = [struct.pack(">ii", *pair) for pair in sizes]
            rows, bad, _ = decode(schema, payloads)
        else:
            rows, bad, _ = decode(schema, [b"", None, b""], [b"", b"", None])
        assert not bad
        assert pairs(rows) == [(expected, expected), (expected, None), (None, expected)]


def test_empty_records_of_other_kinds_are_null() -> None:
    """No bytes are no record where each record has some."""
    record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    for type_ in ("AVRO", "JSON"):
        schema = key_value(part("STRING"), part(type_, record))
        rows, bad, _ = decode(schema, [struct.pack(">ii", 0, 0)])
        assert (pairs(rows), bad) == ([("", None)], [])


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
def test_null_in_json_is_null(encoding: str) -> None:
    """A record that is ``null`` is NULL, and no STRUCT of NULLs."""
    tree = {"type": "record", "name": "V", "fields": [
        {"name": "a", "type": ["null", "int"], "default": None}
    ]}  # fmt: skip
    info = key_value(part("STRING"), part("JSON", tree), encoding)
    texts = [b"null", b'{"a":1}', b"{}", b"", None]
    keys, values = [b"k"] * len(texts), texts
    if encoding == "INLINE":
        lengths = [-1 if text is None else len(text) for text in texts]
        values = [
            struct.pack(">i", 1) + b"k" + struct.pack(">i", length) + (text or b"")
            for length, text in zip(lengths, texts, strict=True)
        ]
    rows, bad, _ = decode(info, values, keys)
    assert bad == []
    assert pairs(rows) == [
        ("k", value) for value in (None, {"a": 1}, {"a": None}, None, None)
    ]


def test_json_that_is_null() -> None:
    """Such a record is NULL, and so is a number; texts of that kind are none."""
    record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    record["fields"].append({"name": "s", "type": "string"})
    schema = key_value(part("JSON", record), part("JSON", ["null", "int"]), "SEPARATED")
    texts = [b"null", b" null\n", b'{"a":1,"s":"null"}', b"", None]
    rows, bad, _ = decode(schema, [b"null", b"7", None, None, None], texts)
    one = {"a": 1, "s": "null"}
    assert pairs(rows) == [
        (None, None),
        (None, 7),
        (one, None),
        (None, None),
        (None,) * 2,
    ]
    assert bad == []
