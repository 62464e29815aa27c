# SPDX-License-Identifier: Apache-2.0
"""Topics read together: each row is what the topic alone gives, or loading is an error.

Pairs of schemas of all kinds, in both orders, flat and within other types.
"""

from __future__ import annotations

import itertools
import json
import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest

from pulsar_spark.arrow.values import ValueRun, ValueSettings, kinds
from pulsar_spark.arrow.values.by_schema import SchemaDecoder
from pulsar_spark.arrow.values.encoders import encoder_for
from pulsar_spark.arrow.values.together import joined
from pulsar_spark.errors import SchemaError
from pulsar_spark.options import parse_read_options
from pulsar_spark.schemas.info import SchemaInfo, SchemaType, version_bytes
from pulsar_spark.source.plan.query_schema import (
    QuerySchema,
    reader_schema,
    value_columns_of,
)
from tests.support import protobuf_schemas as proto

if TYPE_CHECKING:
    from collections.abc import Iterator

OPTIONS = parse_read_options({"service.url": "pulsar://unused:1", "topics": "t"})


class Topic(NamedTuple):
    """A schema, and values that were written with it."""

    info: SchemaInfo
    values: pa.BinaryArray
    keys: pa.BinaryArray | None = None

    def rows(self, columns: pa.Schema) -> list[dict[str, Any]]:
        """The rows of these columns, none of which is bad."""
        decoder = SchemaDecoder(
            self.info, columns, ValueSettings(), lambda version: self.info
        )
        decoded = decoder.decode(ValueRun(self.values, version_bytes(0), self.keys))
        assert (list(decoded.bad), decoded.reason) == ([], "")
        for column in decoded.columns:
            column.validate(full=True)
        return pa.RecordBatch.from_arrays(
            list(decoded.columns), schema=columns
        ).to_pylist()

    @property
    def alone(self) -> list[dict[str, Any]]:
        """The rows that the topic has by itself."""
        return self.rows(kinds.columns_of(self.info))


class Leaf(NamedTuple):
    """A type of AVRO, and some of its values; of a time the values are one moment."""

    tree: Any
    values: tuple[Any, ...]
    is_time: bool = False


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    """A logical type of AVRO's."""
    return {"type": kind, "logicalType": name, **more}


MOMENT_US = 3_600_000_000
LEAVES = (
    Leaf("int", (-(2**31), 2**31 - 1)),
    Leaf("long", (-(2**63), 2**63 - 1)),
    Leaf("float", (1.5, -2.5)),
    Leaf("double", (0.1, -1e300)),
    Leaf("string", ("", "ä")),
    Leaf("bytes", (b"", b"\xff\0")),
    Leaf("boolean", (True, False)),
    Leaf({"type": "enum", "name": "E", "symbols": ["ONE"]}, ("ONE", "ONE")),
    Leaf(logical("bytes", "decimal", precision=5, scale=2), (Decimal("-999.99"),) * 2),
    Leaf(logical("bytes", "decimal", precision=9, scale=2), (Decimal("9999999.99"),)),
    Leaf(logical("bytes", "decimal", precision=9, scale=0), (Decimal(999999999),)),
    Leaf(["null", "int"], (None, 5)),
    Leaf(["int", "long"], (2**31, 7)),
    Leaf(logical("int", "time-millis"), (MOMENT_US // 1000,), is_time=True),
    Leaf(logical("long", "time-micros"), (MOMENT_US,), is_time=True),
    Leaf(logical("long", "local-timestamp-millis"), (MOMENT_US // 1000,), is_time=True),
    Leaf(logical("long", "local-timestamp-micros"), (MOMENT_US,), is_time=True),
    Leaf(logical("long", "timestamp-nanos"), (MOMENT_US * 1000,), is_time=True),
)

#: The type that holds a leaf, and a value of this type. Each topic has a name of its
#: own, which some types have as a further field.
SHAPES = {
    "flat": lambda leaf, _: leaf,
    "list": lambda leaf, _: {"type": "array", "items": leaf},
    "map": lambda leaf, _: {"type": "map", "values": leaf},
    "struct": lambda leaf, own: record_tree("S", x=leaf, **{own: "string"}),
    "list of structs": lambda leaf, own: {
        "type": "array",
        "items": record_tree("S", **{own: "string"}, x=leaf),
    },
    "struct of nothing in common": lambda leaf, own: record_tree("S", **{own: leaf}),
}
INTO = {
    "flat": lambda value, _: value,
    "list": lambda value, _: [value, value],
    "map": lambda value, _: [("k", value)],
    "struct": lambda value, own: {"x": value, own: own},
    "list of structs": lambda value, own: [
        {"x": value, own: own},
        {"x": value, own: own},
    ],
    "struct of nothing in common": lambda value, own: {own: value},
}


def record_tree(name: str, **fields: Any) -> dict[str, Any]:
    """A record in AVRO."""
    named = [{"name": field, "type": type_} for field, type_ in fields.items()]
    return {"type": "record", "name": name, "fields": named}


def written(info: SchemaInfo, rows: list[dict[str, Any]]) -> Topic:
    """Rows as values."""
    columns = kinds.columns_of(info)
    encoder = encoder_for(info, columns, ValueSettings(json_bytes="base64"))
    arrays = [
        pa.array([row[name] for row in rows], columns.field(name).type)
        for name in encoder.columns
    ]
    encoded = encoder.encode(arrays)
    keys = None if encoded.keys is None else encoded.keys.cast(pa.binary())
    return Topic(info, encoded.values.cast(pa.binary()), keys)


def avro(kind: SchemaType, leaf: Leaf, shape: str, own: str) -> Topic:
    """A topic with a record in AVRO or JSON."""
    tree = record_tree("R", a=SHAPES[shape](leaf.tree, own), same="string")
    info = SchemaInfo(kind, json.dumps(tree).encode(), version=version_bytes(0))
    into = INTO[shape]
    return written(info, [{"a": into(v, own), "same": "s"} for v in leaf.values])


def key_value(encoding: str, leaf: Leaf, shape: str, own: str) -> Topic:
    """A topic whose values have the leaf in their key, and in their value."""
    part = json.dumps(record_tree("R", a=SHAPES[shape](leaf.tree, own))).encode()
    info = SchemaInfo(
        SchemaType.KEY_VALUE,
        2 * (struct.pack(">i", len(part)) + part),
        {
            "kv.encoding.type": encoding,
            "key.schema.type": "AVRO",
            "value.schema.type": "AVRO",
        },
        version_bytes(0),
    )
    into = INTO[shape]
    return written(
        info,
        [
            {"key": {"a": into(v, own)}, "value": {"a": into(v, own)}}
            for v in leaf.values
        ],
    )


def is_same(alone: Any, together: Any) -> bool:
    """Whether a value is the same; what only other topics have is NULL."""
    if isinstance(alone, dict):
        return all(
            is_same(alone[name], value) if name in alone else value is None
            for name, value in together.items()
        ) and set(alone) <= set(together)
    if isinstance(alone, (list, tuple)):
        return len(alone) == len(together) and all(map(is_same, alone, together))
    return bool(alone == together)


def columns_together(one: Topic, other: Topic) -> pa.Schema | None:
    """The columns of both topics, which tasks can make; None for an error."""
    schema = QuerySchema("t0", one.info, others={"t1": other.info})
    try:
        columns = value_columns_of(schema)
    except SchemaError:
        return None
    assert columns is not None
    reader_schema(schema, columns, OPTIONS, is_given=False)
    reader_schema(schema, columns, OPTIONS, is_given=True)
    return columns


def check(one: Topic, other: Topic) -> pa.Schema | None:
    """Read topics together in both orders; return the columns, None for an error."""
    columns = columns_together(one, other)
    turned = columns_together(other, one)
    assert (columns is None) == (turned is None)
    for topic in (one, other) if columns is not None else ():
        rows = topic.alone
        for both in filter(None, (columns, turned)):
            for alone, together in zip(rows, topic.rows(both), strict=True):
                assert is_same(alone, together), (alone, together)
    if columns is not None and turned is not None:
        for field in columns:  # they differ in the order of fields at most
            type_ = turned.field(field.name).type
            assert joined([field.type, type_]) == joined([field.type])
            assert joined([type_, field.type]) == joined([type_])
    return columns


def values_of(rows: list[dict[str, Any]]) -> Iterator[Any]:
    """All numbers and times within rows."""
    for row in rows:
        parts = [row]
        while parts:
            part = parts.pop()
            if isinstance(part, (dict, list, tuple)):
                parts += part.values() if isinstance(part, dict) else part
            elif part is not None and not isinstance(part, str):
                yield part


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "both",
    [
        (SchemaType.AVRO, SchemaType.AVRO),
        (SchemaType.JSON, SchemaType.JSON),
        (SchemaType.AVRO, SchemaType.JSON),
    ],
    ids=lambda both: "-".join(kind.name for kind in both),
)
def test_records(both: tuple[SchemaType, SchemaType], shape: str) -> None:
    """Each leaf beside each: the values are kept, and numbers of one unit only meet."""
    together = 0
    leaves = LEAVES if shape == "flat" else LEAVES[::2]
    firsts = [(leaf, avro(both[0], leaf, shape, "p")) for leaf in leaves]
    seconds = [(leaf, avro(both[1], leaf, shape, "q")) for leaf in leaves]
    pairs = itertools.product(firsts, seconds)
    for (one, first), (other, second) in pairs:
        topics = (first, second)
        columns = check(*topics)
        if columns is None:
            assert one is not other
            continue
        together += 1
        is_apart = shape == "struct of nothing in common"
        if one.is_time and other.is_time and not is_apart:
            numbers = {v for topic in topics for v in values_of(topic.rows(columns))}
            assert len(numbers) == 1
    assert together > len(leaves)


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
@pytest.mark.parametrize("shape", ["flat", "struct"])
def test_pairs(shape: str, encoding: str) -> None:
    """The same within keys and values."""
    for one, other in itertools.combinations_with_replacement(LEAVES[:6], 2):
        check(
            key_value(encoding, one, shape, "p"), key_value(encoding, other, shape, "q")
        )


PRIMITIVES = {
    SchemaType.INT8: -(2**7),
    SchemaType.INT16: 2**15 - 1,
    SchemaType.INT32: -(2**31),
    SchemaType.INT64: 2**63 - 1,
    SchemaType.FLOAT: 1.5,
    SchemaType.DOUBLE: 0.1,
    SchemaType.STRING: "ä",
    SchemaType.BOOLEAN: True,
    SchemaType.TIME: 3_600_000,
    SchemaType.LOCAL_TIME: 3_600_000_000_000,
}
TIMES = {SchemaType.TIME, SchemaType.LOCAL_TIME}


def test_primitives() -> None:
    """Numbers take the widest type; times of the day of different units are apart."""
    for kinds_ in itertools.product(PRIMITIVES, PRIMITIVES):
        topics = [
            written(
                SchemaInfo(kind, b"", version=version_bytes(0)),
                [{"value": PRIMITIVES[kind]}],
            )
            for kind in kinds_
        ]
        columns = check(*topics)
        if set(kinds_) == TIMES:
            assert columns is None


FIELD = proto.Field
PROTOBUF = {
    FIELD.TYPE_INT32: -(2**31),
    FIELD.TYPE_INT64: -(2**63),
    FIELD.TYPE_UINT32: 2**32 - 1,
    FIELD.TYPE_UINT64: 2**64 - 1,
    FIELD.TYPE_FLOAT: 1.5,
    FIELD.TYPE_DOUBLE: 0.1,
    FIELD.TYPE_BOOL: True,
    FIELD.TYPE_STRING: "ä",
    FIELD.TYPE_BYTES: b"\xff",
}


def protobuf(type_: Any, own: str, *, is_first: bool) -> Topic:
    """A topic with a field of a type, in a message, a list and a map, too."""
    number = 1 if is_first else 2  # numbers are a topic's own
    inner = proto.message(
        proto.field("x", number, type_), proto.field(own, 5, type_), name="M1"
    )
    root = proto.message(
        proto.field("a", number, type_),
        proto.field("s", 3, "M1"),
        proto.field("l", 4, "M1", proto.REPEATED),
        proto.field("n", 5, type_, proto.REPEATED),
    )
    proto.add_map(root, "m", 6, FIELD.TYPE_STRING, type_)
    file = proto.proto_file(root, inner)
    made = proto.message_class(file)()
    value = PROTOBUF[type_]
    made.a = made.s.x = value
    setattr(made.s, own, value)
    made.l.add().x = value
    made.n.append(value)
    made.m["k"] = value
    texts = [made.SerializeToString(), b""]
    info = proto.info(file)
    return Topic(info, pa.array(texts, pa.binary()))


def test_protobuf() -> None:
    """Numbers with and without a sign; fields of messages that only one topic has."""
    together = set()
    for one, other in itertools.product(PROTOBUF, PROTOBUF):
        columns = check(
            protobuf(one, "p", is_first=True), protobuf(other, "q", is_first=False)
        )
        if columns is not None:
            together.add((one, other))
            assert [field.name for field in columns.field("s").type] == ["x", "p", "q"]
    assert (FIELD.TYPE_UINT64, FIELD.TYPE_INT64) in together
    assert (FIELD.TYPE_STRING, FIELD.TYPE_BYTES) not in together


def test_three() -> None:
    """The type does not depend on the order of topics."""
    for three in itertools.combinations(LEAVES[:6], 3):
        found = set()
        for order in itertools.permutations(three):
            topics = [avro(SchemaType.AVRO, leaf, "flat", "p") for leaf in order]
            first, *others = [topic.info for topic in topics]
            schema = QuerySchema("t", first, others=dict(enumerate(others)))  # type: ignore[arg-type]
            try:
                columns = value_columns_of(schema)
            except SchemaError:
                columns = None
            found.add(None if columns is None else columns.field("a").type)
        assert len(found) == 1


@pytest.mark.parametrize("kind", [SchemaType.AVRO, SchemaType.JSON])
def test_units_that_were_chosen(kind: SchemaType) -> None:
    """``.schema(...)`` reads times of different units as times, and not as numbers."""
    leaves = LEAVES[-3:-1]
    for shape in ("flat", "struct", "list", "map"):
        one, other = (avro(kind, leaf, shape, "p") for leaf in leaves)
        schema = QuerySchema("t0", one.info, others={"t1": other.info})
        number = kinds.columns_of(one.info)
        with pytest.raises(SchemaError, match=r"is a number of unit local-timestamp-"):
            reader_schema(schema, number, OPTIONS, is_given=True)
        types = {
            "flat": pa.timestamp("us"),
            "struct": pa.struct([("x", pa.timestamp("us"))]),
            "list": pa.list_(pa.timestamp("us")),
            "map": pa.map_(pa.string(), pa.timestamp("us")),
        }
        moment = pa.schema([("a", types[shape])])
        reader_schema(schema, moment, OPTIONS, is_given=True)
        assert one.rows(moment) == other.rows(moment)
