# SPDX-License-Identifier: Apache-2.0
"""Values of every kind of schema, whole and damaged, in a process that may die.

    python -m tests.arrow.fuzz_values SEED COUNT

Each case is a schema, or a version and the next one, and values of the version. The
values are read together and one by one, JSON without the loops, and both say the same:
which rows are bad, and what the others hold. Nothing is raised for a value, and each
array is valid. Parsers in C++ and compiled loops may crash: the exit status says so,
and the last line printed has the case that was under way.
"""

from __future__ import annotations

import base64
import io
import json
import random
import sys
from collections.abc import Callable
from typing import Any
from unittest import mock

import fastavro
import pyarrow as pa
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

from pulsar_spark.arrow.values import Decoded, ValueSettings, kinds
from pulsar_spark.loops import json_values
from pulsar_spark.schemas.info import InvalidSchemaError, SchemaInfo, SchemaType
from tests.arrow.fuzz_decimals import any_number, fit_number
from tests.support.protobuf_schemas import (
    REPEATED,
    SYMBOLS,
    field,
    message,
    message_class,
    proto_file,
)
from tests.support.protobuf_schemas import info as protobuf_info

#: As many as are read together by the parser of JSON.
ROWS = 80

Chance = random.Random
#: Makes the bytes of one value.
Maker = Callable[[Chance], bytes]

#: Tokens that other clients, or nobody, write.
ODD_TOKENS = (
    *("1E-999999999", "1e400", "-0", "0.1e-77", "1" * 60, "0." + "7" * 60, "1e2"),
    *("NaN", "Infinity", '"NaN"', "tru", "null", "[]", "{}", "[[[[[", '"]]]]]}\\n"'),
    *('"\\ud800"', '"\\u0000"', '"\u20ac"', "9223372036854775808", "1.5", '"12"'),
    *("[2024,2,30]", '"2024-02-30"', "1709210096.123456000", '"AQI="', '"%%%"'),
    *('{"a":1,"a":2}', '"' + "x" * 300 + '"', "-", "+1", ".5", "01", "\x00", "\xff"),
)

PRIMITIVES = (
    *("boolean", "int", "long", "float", "double", "bytes", "string"),
    *("date", "time-millis", "timestamp-millis", "timestamp-micros"),
    *("local-timestamp-micros", "decimal", "fixed", "enum"),
)
_LOGICAL = {
    "date": "int",
    "time-millis": "int",
    "timestamp-millis": "long",
    "timestamp-micros": "long",
    "local-timestamp-micros": "long",
}

#: Types of which a union may have several.
CHOICES = (
    *("null", "boolean", "long", "double", "string"),
    {"type": "array", "items": "int"},
    {"type": "map", "values": "string"},
)

#: Moments as clients of Java may write them.
MOMENTS = (
    *("[2024,2,29]", "[2024, 2, 29, 12, 34]", "[1900,1,1,0,0,0,999999999]", "[1,2]"),
    *("1709210096.123456789", "-0.000000001", "1709210096.5", "[2024,2,29,12,34,60]"),
    *('"2024-02-29"', '"2023-02-29"', '"2024-02-29T12:34:56.123456789Z"', '"12:34"'),
    *('"0001-12-31 00:00:00+02:00"', '"1969-12-31T23:59:59.9-11:59"', '"12:34:56.5"'),
    *("[23,59,59,1]", "[0,0]", "[12,34,56]", '"9999-12-31T23:59:59"', '"2024-2-29"'),
)


class Types:
    """Random types of AVRO, with a value of each."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._names = 0

    def name(self) -> str:
        """A name that no other type has."""
        self._names += 1
        return f"N{self._names}"

    def any(self, depth: int) -> Any:
        """A type, nested no more than so deep."""
        return self._of(
            self._chance.choice(
                (*PRIMITIVES, "record", "array", "map", "union", "union", "choice")
                if depth
                else PRIMITIVES
            ),
            depth,
        )

    def _of(self, kind: str, depth: int) -> Any:
        if kind == "record":
            return self.record(depth - 1)
        if kind == "array":
            return {"type": "array", "items": self.any(depth - 1)}
        if kind == "map":
            return {"type": "map", "values": self.any(depth - 1)}
        if kind == "union":
            inner = self.any(depth - 1)
            return inner if isinstance(inner, list) else ["null", inner]
        if kind == "choice":
            return self._chance.sample(CHOICES, self._chance.randint(2, len(CHOICES)))
        if kind in _LOGICAL:
            return {"type": _LOGICAL[kind], "logicalType": kind}
        if kind == "decimal":
            precision = self._chance.choice((1, 9, 18, 37, 38, 38))
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": precision,
                "scale": self._chance.randint(0, precision),
            }
        if kind == "fixed":
            size = self._chance.randint(0, 5)
            return {"type": "fixed", "name": self.name(), "size": size}
        if kind == "enum":
            return {"type": "enum", "name": self.name(), "symbols": ["A", "B", "C"]}
        return kind

    def record(self, depth: int) -> dict[str, Any]:
        """A record of some fields."""
        fields = [
            {"name": f"f{index}", "type": self.any(depth)}
            for index in range(self._chance.randint(1, 4))
        ]
        return {"type": "record", "name": self.name(), "fields": fields}

    def numbers(self) -> dict[str, Any]:
        """A record of fields that the parser of JSON reads, half of them decimals."""
        names = ("decimal", "decimal", "decimal", "long", "double", "string")
        fields = [
            {"name": f"f{index}", "type": self._of(self._chance.choice(names), 0)}
            for index in range(self._chance.randint(1, 3))
        ]
        return {"type": "record", "name": self.name(), "fields": fields}

    def next_version(self, record: dict[str, Any]) -> dict[str, Any]:
        """The record with fields more, less, and in another order."""
        fields = [one for one in record["fields"] if self._chance.random() < 0.8]
        new = {"name": "more", "type": ["null", self.any(1)], "default": None}
        text = {"name": "text", "type": "string", "default": "x" * 50}
        fields += [one for one in (new, text) if self._chance.random() < 0.5]
        self._chance.shuffle(fields)
        return {**record, "fields": fields or [text]}


def value_of(type_: Any, chance: Chance) -> Any:
    """A value as fastavro takes it: of logical types the plain number or bytes."""
    if isinstance(type_, list):
        return value_of(chance.choice(type_), chance)
    kind = type_["type"] if isinstance(type_, dict) else type_
    if kind == "record":
        return {one["name"]: value_of(one["type"], chance) for one in type_["fields"]}
    if kind == "array":
        return [value_of(type_["items"], chance) for _ in range(chance.randrange(4))]
    if kind == "map":
        keys = chance.sample("abcd", chance.randrange(4))
        return {key: value_of(type_["values"], chance) for key in keys}
    if kind == "fixed":
        return chance.randbytes(type_["size"])
    if kind == "enum":
        return chance.choice(type_["symbols"])
    return _simple(kind, chance)


def _simple(kind: str, chance: Chance) -> Any:
    bits = {"int": 31, "long": 63}.get(kind)
    if bits is not None:
        return chance.choice((-1, 1)) * chance.getrandbits(chance.randrange(bits + 1))
    if kind in ("float", "double"):
        return chance.choice((0.0, -1.5, float("nan"), float("inf"), 1e30))
    return {
        "null": None,
        "boolean": chance.random() < 0.5,
        "bytes": chance.randbytes(chance.randrange(6)),
        "string": chance.choice(("", "a", "\u20ac", "x" * 40)),
    }[kind]


def plain(type_: Any) -> Any:
    """The type without logical types, by which fastavro writes plain values."""
    if isinstance(type_, list):
        return [plain(one) for one in type_]
    if not isinstance(type_, dict):
        return type_
    tree = {name: one for name, one in type_.items() if name != "logicalType"}
    for name in ("items", "values"):
        if name in tree:
            tree[name] = plain(tree[name])
    if "fields" in tree:
        tree["fields"] = [{**f, "type": plain(f["type"])} for f in tree["fields"]]
    return tree


def avro_maker(type_: Any) -> Maker:
    """Values in AVRO."""
    schema = fastavro.parse_schema(plain(type_))

    def make(chance: Chance) -> bytes:
        data = io.BytesIO()
        fastavro.schemaless_writer(data, schema, value_of(type_, chance))
        return data.getvalue()

    return make


class JsonTexts:
    """Texts of values in JSON, with a token here and there that is unusual.

    Args:
        chance: Decides how often.
    """

    def __init__(self, chance: Chance) -> None:
        self._odd = chance.choice((0.0, 0.001, 0.05))

    def of(self, type_: Any, chance: Chance) -> str:
        """A text of a value of this type."""
        if chance.random() < self._odd:
            return chance.choice(ODD_TOKENS)
        if isinstance(type_, list):
            return self.of(chance.choice(type_), chance)
        kind = type_["type"] if isinstance(type_, dict) else type_
        comma = chance.choice((",", " ,\n"))
        if kind == "record":
            fields = type_["fields"]
            texts = (
                f'"{one["name"]}":{self.of(one["type"], chance)}' for one in fields
            )
            return "{" + comma.join(texts) + "}"
        if kind == "map":
            keys = chance.sample("abcd", chance.randrange(4))
            texts = (f'"{key}":{self.of(type_["values"], chance)}' for key in keys)
            return "{" + comma.join(texts) + "}"
        if kind == "array":
            items = (
                self.of(type_["items"], chance) for _ in range(chance.randrange(4))
            )
            return "[" + comma.join(items) + "]"
        if isinstance(type_, dict) and type_.get("logicalType") == "decimal":
            return self._decimal(type_["precision"], type_["scale"], chance)
        is_moment = isinstance(type_, dict) and type_.get("logicalType") in _LOGICAL
        if is_moment and chance.random() < 0.2:
            return chance.choice(MOMENTS)
        value = value_of(type_, chance)
        if isinstance(value, bytes):
            value = base64.b64encode(value).decode()
        return json.dumps(value, ensure_ascii=chance.random() < 0.5)

    def _decimal(self, precision: int, scale: int, chance: Chance) -> str:
        text = (
            any_number(chance)
            if chance.random() < self._odd
            else fit_number(chance, precision, scale)
        )
        return f'"{text}"' if chance.random() < 0.2 else text


def json_maker(type_: Any, chance: Chance) -> Maker:
    """Values in JSON."""
    texts = JsonTexts(chance)

    def make(chance: Chance) -> bytes:
        text = texts.of(type_, chance)
        return text.encode("latin1" if "\xff" in text else "utf-8", "replace")

    return make


def damaged(value: bytes, chance: Chance) -> bytes:
    """The value with bits turned, bytes cut out or put in; often as it was."""
    data = bytearray(value)
    for _ in range(chance.choice((0, 0, 0, 1, 1, 3))):
        place = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0 if place < len(data):
                data[place] ^= 1 << chance.randrange(8)
            case 1:
                del data[place : place + chance.randrange(1, 5)]
            case 2:
                data[place:place] = chance.randbytes(chance.randrange(1, 9))
            case _:
                data[place:place] = b"\xff" * chance.randrange(1, 11)
    return bytes(data)


# -- cases -----------------------------------------------------------------------------


class Case:
    """A version, the query's, and how values of the version are made.

    Args:
        writer: The schema of the values.
        reader: The query's.
        make: Makes a value.
        make_key: Makes the key of a message, where keys are read.
    """

    def __init__(
        self,
        writer: SchemaInfo,
        reader: SchemaInfo,
        make: Maker,
        make_key: Maker | None = None,
    ) -> None:
        self.writer, self.reader = writer, reader
        self.make, self.make_key = make, make_key


def text_case(chance: Chance, kind: SchemaType) -> Case:
    """AVRO or JSON: any type, or a record and its next version."""
    types = Types(chance)
    if kind is SchemaType.JSON and chance.random() < 0.4:
        writer = reader = types.numbers()
    elif chance.random() < 0.3:
        writer = reader = types.any(2)
    else:
        writer = types.record(2)
        reader = types.next_version(writer) if chance.random() < 0.5 else writer
    infos = [SchemaInfo(kind, json.dumps(one).encode()) for one in (writer, reader)]
    is_avro = kind is SchemaType.AVRO
    make = avro_maker(writer) if is_avro else json_maker(writer, chance)
    return Case(infos[0], infos[1], make)


def protobuf_case(chance: Chance, kind: SchemaType) -> Case:
    """A message with fields of random types, also a message, and the next version."""
    del kind
    numbers = [
        *(Field.TYPE_INT32, Field.TYPE_SINT64, Field.TYPE_FIXED32, Field.TYPE_BOOL),
        *(Field.TYPE_DOUBLE, Field.TYPE_STRING, Field.TYPE_BYTES, "E", "M1"),
    ]
    inner = message(field("a", 1, Field.TYPE_INT64), field("b", 2, "E"), name="M1")
    fields = []
    for number in range(1, chance.randint(2, 6)):
        repeated = {"label": REPEATED} if chance.random() < 0.4 else {}
        fields.append(field(f"f{number}", number, chance.choice(numbers), **repeated))
    kept = [one for one in fields if chance.random() < 0.8] or fields[:1]
    files = [proto_file(message(*some), inner) for some in (fields, kept)]
    written = message_class(files[0])

    def make(chance: Chance) -> bytes:
        sent = written()
        _fill(sent, chance)
        data = bytes(sent.SerializeToString())
        if chance.random() < 0.05:  # a tag, and bytes that are most often no value
            data += chance.choice(TAGS) + chance.randbytes(chance.randrange(5))
        return data

    writer, reader = (protobuf_info(one) for one in files)
    return Case(writer, reader, make)


#: Of the fields 1 to 6, by each wire type.
TAGS = [bytes([8 * number + type_]) for number in range(1, 7) for type_ in range(8)]


def _fill(sent: Any, chance: Chance) -> None:
    """Give some fields of a message values."""
    for described in sent.DESCRIPTOR.fields:
        if chance.random() < 0.3:
            continue
        if described.label == REPEATED:
            values = getattr(sent, described.name)
            for _ in range(chance.randrange(4)):
                if described.message_type is not None:
                    _fill(values.add(), chance)
                else:
                    values.append(_scalar(described.type, chance))
        elif described.message_type is not None:
            getattr(sent, described.name).SetInParent()
            _fill(getattr(sent, described.name), chance)
        else:
            setattr(sent, described.name, _scalar(described.type, chance))


def _scalar(type_: int, chance: Chance) -> Any:
    if type_ == Field.TYPE_STRING:
        return chance.choice(("", "a", "\u20ac"))
    if type_ == Field.TYPE_BYTES:
        return chance.randbytes(chance.randrange(5))
    if type_ == Field.TYPE_DOUBLE:
        return chance.choice((0.0, -1.5, float("nan")))
    if type_ == Field.TYPE_BOOL:
        return chance.random() < 0.5
    if type_ == Field.TYPE_ENUM:
        return chance.choice(list(SYMBOLS))
    return chance.getrandbits(chance.randrange(32))


def primitive_case(chance: Chance, kind: SchemaType) -> Case:
    """Few bytes, most often as many as the type has."""
    del kind
    type_ = chance.choice(
        [
            *range(SchemaType.BOOLEAN, SchemaType.TIMESTAMP + 1),
            *range(SchemaType.INSTANT, SchemaType.LOCAL_DATE_TIME + 1),
            SchemaType.STRING,
        ]
    )
    info = SchemaInfo(type_)
    return Case(
        info, info, lambda chance: chance.randbytes(chance.choice((0, 1, 2, 4, 8, 12)))
    )


def key_value_case(chance: Chance, kind: SchemaType) -> Case:
    """Two parts of any kind, in one payload or in key and payload."""
    del kind
    parts = [chance.choice(PARTS) for _ in range(2)]
    cases = [make(chance, type_) for type_, make in parts]
    is_separated = chance.random() < 0.5
    infos = [
        _pair([one.writer for one in cases], is_separated),
        _pair([one.reader for one in cases], is_separated),
    ]
    key, value = cases
    if is_separated:
        return Case(*infos, value.make, key.make)

    def make(chance: Chance) -> bytes:
        texts = [one.make(chance) for one in cases]
        return b"".join(_sized(text) for text in texts)

    return Case(*infos, make)


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def _pair(parts: list[SchemaInfo], is_separated: bool) -> SchemaInfo:
    properties = {"kv.encoding.type": "SEPARATED" if is_separated else "INLINE"}
    for name, part in zip(("key", "value"), parts, strict=True):
        properties[f"{name}.schema.type"] = part.type_name
        properties[f"{name}.schema.properties"] = "{}"
    data = b"".join(_sized(part.data) for part in parts)
    return SchemaInfo(SchemaType.KEY_VALUE, data, properties)


Make = Callable[[Chance, SchemaType], Case]
PARTS: list[tuple[SchemaType, Make]] = [
    (SchemaType.AVRO, text_case),
    (SchemaType.JSON, text_case),
    (SchemaType.PROTOBUF_NATIVE, protobuf_case),
    (SchemaType.STRING, primitive_case),
]
KINDS = [*PARTS, (SchemaType.KEY_VALUE, key_value_case)]


# -- the check -------------------------------------------------------------------------


def check(case: Case, chance: Chance) -> str:
    """Read values together and one by one, and compare; return what was read."""
    try:
        wanted = kinds.columns_of(case.reader)
        plan = kinds.decoder(case.writer, case.reader, wanted, ValueSettings())
        with mock.patch.object(json_values, "KERNEL", "python"):
            single = kinds.decoder(case.writer, case.reader, wanted, ValueSettings())
    except InvalidSchemaError:
        return "no columns"
    values = _drawn(case.make, chance)
    keys = None if case.make_key is None else _drawn(case.make_key, chance)
    together = plan.decode(values, keys)
    _check_arrays(together, wanted, len(values))
    bad = set(together.bad)
    for row in range(len(values)):
        part = slice(row, row + 1)
        alone = single.decode(
            pa.array(values[part], pa.binary()),
            None if keys is None else pa.array(keys[part], pa.binary()),
        )
        _check_arrays(alone, wanted, 1)
        assert bool(len(alone.bad)) == (row in bad), (row, alone.reason)
        for both in zip(together.columns, alone.columns, strict=True):
            beside, own = both[0].slice(row, 1), both[1]
            is_same = beside.equals(own) or _text(beside) == _text(own)
            assert is_same, (row, beside, own)
            assert row not in bad or own.null_count == 1
    return f"{len(bad)} of {len(values)} bad"


def _text(array: pa.Array) -> str:
    """A text of an array: in texts NaN equals itself."""
    try:
        return repr(array.to_pylist())
    except (OverflowError, ValueError):
        return str(array)  # Python has no room for some dates


def _drawn(make: Maker, chance: Chance) -> pa.BinaryArray:
    share = chance.choice((0.0, 0.02, 0.5))
    drawn: list[bytes | None] = []
    for _ in range(ROWS):
        value = make(chance)
        if chance.random() < share:
            value = damaged(value, chance)
        drawn.append(None if chance.random() < 0.02 else value)
    return pa.array(drawn, pa.binary())


def _check_arrays(decoded: Decoded, wanted: pa.Schema, rows: int) -> None:
    assert len(decoded.columns) == len(wanted)
    for array, column in zip(decoded.columns, wanted, strict=True):
        assert array.type == column.type
        assert len(array) == rows
        array.validate(full=True)


def main() -> None:
    """Check so many cases, each by a seed of its own."""
    first, count = map(int, sys.argv[1:])
    for seed in range(first, first + count):
        kind, make = KINDS[seed % len(KINDS)]
        sys.stdout.write(f"seed {seed}, {kind.name}: ")
        sys.stdout.flush()  # a crash leaves what was printed
        chance = Chance(seed)
        sys.stdout.write(f"{check(make(chance, kind), chance)}\n")


if __name__ == "__main__":
    main()
