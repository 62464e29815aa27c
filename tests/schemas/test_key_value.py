# SPDX-License-Identifier: Apache-2.0
"""KEY_VALUE schemas, also such as brokers take and nobody can read."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.schemas.info import InvalidSchemaError, SchemaInfo, SchemaType
from pulsar_spark.schemas.key_value import parse_key_value

#: As Java registers a STRING and an INT32.
JAVA = {
    "key.schema.name": "String",
    "key.schema.type": "STRING",
    "key.schema.properties": "{}",
    "value.schema.name": "INT32",
    "value.schema.type": "INT32",
    "value.schema.properties": "{}",
    "kv.encoding.type": "INLINE",
}


def key_value(data: bytes, **changes: str) -> SchemaInfo:
    """A schema with these definitions; properties by name, with _ for a point."""
    changed = {name.replace("_", "."): value for name, value in changes.items()}
    return SchemaInfo(SchemaType.KEY_VALUE, data, {**JAVA, **changed}, bytes(8))


@pytest.mark.parametrize("data", [bytes(8), b"\xff" * 8, bytes(8) + b"more"])
def test_primitive_parts(data: bytes):
    """Java writes a size of 0, C++ one of -1; what follows is of no interest."""
    found = parse_key_value(key_value(data))
    assert found.key == SchemaInfo(SchemaType.STRING, b"", {}, bytes(8))
    assert found.value == SchemaInfo(SchemaType.INT32, b"", {}, bytes(8))
    assert not found.is_separated


def test_definitions_and_properties():
    """Each part has its own; all but texts are dropped."""
    data = b"\0\0\0\2{}" + b"\0\0\0\3[ ]"
    found = parse_key_value(
        key_value(
            data,
            kv_encoding_type="SEPARATED",
            key_schema_type="JSON",
            key_schema_properties='{"__AVRO_READ_OFFSET__":"5","n":1}',
            value_schema_type="AVRO",
        )
    )
    assert found.is_separated
    assert (found.key.type, found.key.data) == (SchemaType.JSON, b"{}")
    assert found.key.properties == {"__AVRO_READ_OFFSET__": "5"}
    assert (found.value.type, found.value.data) == (SchemaType.AVRO, b"[ ]")


def test_what_is_not_said():
    """BYTES, INLINE, and no properties."""
    found = parse_key_value(SchemaInfo(SchemaType.KEY_VALUE, bytes(8)))
    assert (found.key.type, found.value.type) == (SchemaType.NONE, SchemaType.NONE)
    assert not found.is_separated
    assert found.key.properties == {}
    assert not parse_key_value(key_value(bytes(8), kv_encoding_type="")).is_separated
    bytes_ = parse_key_value(key_value(bytes(8), key_schema_type="BYTES"))
    assert bytes_.key.type == SchemaType.NONE


@pytest.mark.parametrize(
    ("info", "said"),
    [
        (key_value(b""), None),
        (key_value(b"\0\0\0\1"), "the definition of its key is cut"),
        (key_value(b"\0\0\0\0\0\0\0\1"), "the definition of its value is cut"),
        (key_value(b"\x7f\xff\xff\xff"), "its key is cut"),
        (key_value(b"\xff\xff\xff\xfe" + bytes(4)), "its key is cut"),
        (key_value(bytes(4) + b"\x80\0\0\0"), "its value is cut"),
        (key_value(bytes(8), kv_encoding_type="FOO"), '"FOO", not INLINE or'),
        (key_value(bytes(8), key_schema_type="string"), 'of its key is "string"'),
        (key_value(bytes(8), value_schema_type="KEY_VALUE"), "KEY_VALUE again"),
        (key_value(bytes(8), value_schema_properties="{"), "no object of JSON"),
        (key_value(bytes(8), value_schema_properties="[]"), "no object of JSON"),
        (key_value(bytes(8), value_schema_properties="[" * 99_999), "no object of"),
        (SchemaInfo(SchemaType.AVRO), "AVRO is no KEY_VALUE"),
    ],
)
def test_what_cannot_be_read(info: SchemaInfo, said: str | None):
    """The error says which part it is."""
    with pytest.raises(InvalidSchemaError, match=said or "its key is cut"):
        parse_key_value(info)


@given(st.binary(max_size=40), st.text(max_size=10), st.text(max_size=10))
def test_any_bytes(data: bytes, encoding: str, properties: str):
    """Nothing but the one error is raised."""
    info = key_value(data, kv_encoding_type=encoding, key_schema_properties=properties)
    with contextlib.suppress(InvalidSchemaError):
        parse_key_value(info)
