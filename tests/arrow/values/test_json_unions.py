# SPDX-License-Identifier: Apache-2.0
"""Unions in JSON: what is written is read as the same branch, or is not written."""

from __future__ import annotations

import io
import json
import tracemalloc
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.arrow.values import ValueSettings, kinds
from pulsar_spark.arrow.values import json as json_values
from pulsar_spark.arrow.values.encoders import encoder_for
from pulsar_spark.arrow.values.together import joined
from pulsar_spark.loops.avro_write import UnfitValueError
from pulsar_spark.schemas.info import InvalidSchemaError, SchemaInfo, SchemaType
from tests.support.random_rows import any_rows, plain

if TYPE_CHECKING:
    from random import Random

#: Marks of the owner of a schema: Java's client, and this connector by ``jsonBytes``.
JAVA, OTHER = {"__jsr310ConversionEnabled": "true"}, {"owner": "team"}

CHANCE = st.randoms(use_true_random=False)


def logical(type_: str, name: str, **more: Any) -> dict[str, Any]:
    """A type of a logical name."""
    return {"type": type_, "logicalType": name, **more}


def record(name: str, **fields: Any) -> dict[str, Any]:
    """A record; each field is a type, or a type and a default."""
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": field, "type": type_[0], "default": type_[1]}
            if isinstance(type_, tuple)
            else {"name": field, "type": type_}
            for field, type_ in fields.items()
        ],
    }


INT, TEXT = pa.int32(), pa.string()
NULL_INT = (["null", "int"], None)
MOMENT, UTC = logical("long", "timestamp-micros"), pa.timestamp("us", "UTC")
DECIMAL = logical("bytes", "decimal", precision=10, scale=2)
ENUM = {"type": "enum", "name": "E", "symbols": ["NaN", "null", "B"]}
FIXED = {"type": "fixed", "name": "F", "size": 2}
A, B = record("A", x=NULL_INT), record("B", x=NULL_INT, y=NULL_INT)
STRICT = record("S", z="int", x="int")
TEXTS = record("T", x="string")
X, X_TEXT = pa.struct([("x", INT)]), pa.struct([("x", TEXT)])
X_Y = pa.struct([("x", INT), ("y", INT)])


def info_of(
    form: SchemaType, union: list[Any], properties: dict[str, str]
) -> SchemaInfo:
    """The schema of a record with a field ``u``."""
    return SchemaInfo(form, json.dumps(record("R", u=union)).encode(), properties)


def written_and_read(info: SchemaInfo, array: pa.Array) -> list[Any]:
    """What a read has of a column ``u`` of rows."""
    columns, said = pa.schema([("u", array.type)]), ValueSettings("base64")
    values = encoder_for(info, columns, said).encode([array]).values
    decoder = kinds.decoder(info, info, kinds.columns_of(info), said)
    found = decoder.decode(values.cast(pa.binary()), None)
    assert (list(found.bad), found.reason) == ([], "")
    return plain(found.columns[0])


#: Branches, all of which differ for AVRO.
BRANCHES = (
    *("null", "boolean", "int", "long", "float", "double", "string", "bytes"),
    *(MOMENT, DECIMAL, logical("int", "date"), logical("int", "time-millis")),
    *(ENUM, FIXED, A, B, STRICT, TEXTS),
    *({"type": "array", "items": "int"}, {"type": "map", "values": "int"}),
)

COLUMNS = (
    *(pa.bool_(), pa.int16(), INT, pa.int64(), pa.float32(), pa.float64(), TEXT),
    *(pa.binary(), UTC, pa.decimal128(10, 2), pa.date32(), pa.time64("ns")),
    *(X, X_Y, X_TEXT, pa.list_(INT), pa.map_(TEXT, INT)),
)


def kind_of(branch: Any) -> Any:
    """What may be in a union once: a name, or a type without one."""
    if isinstance(branch, dict):
        return branch.get("name", branch["type"])
    return branch


@pytest.mark.parametrize("properties", [JAVA, OTHER])
@settings(max_examples=100, deadline=None)
@given(chance=CHANCE)
def test_any_union(properties: dict[str, str], chance: Random) -> None:
    """JSON is read as AVRO is, which says the branch; or nothing is written."""
    some = chance.sample(BRANCHES, chance.randint(2, 5))
    union = list({kind_of(branch): branch for branch in some}.values())
    type_ = chance.choice(COLUMNS)
    rows = any_rows(chance, pa.schema([pa.field("u", type_, "null" in union)]), 5)[0]
    in_avro = info_of(SchemaType.AVRO, union, properties)
    try:
        expected = written_and_read(in_avro, rows)
        found = written_and_read(info_of(SchemaType.JSON, union, properties), rows)
    except (InvalidSchemaError, UnfitValueError):
        return
    assert found == expected


@pytest.mark.parametrize(
    ("union", "array", "member"),
    [
        (["int", "double"], pa.array([1.0, 1.5, -0.0, 1e20, None]), 1),
        (["double", "int"], pa.array([1, 2], INT), 1),
        (["double", "long"], pa.array([1.0, 1.5]), 0),
        (["float", "string", "int"], pa.array([1, -2], INT), 2),
        (["string", "double"], pa.array([1, 2], pa.int16()), 1),
        (["string", "long"], pa.array([1]), 1),
        (["long", "string"], pa.array(["1", "a"]), 1),
        (["double", "string"], pa.array(["1", "a", None]), 1),
        (["string", MOMENT], pa.array([0, 1], pa.int64()).cast(UTC), 1),
        (["boolean", "string"], pa.array(["true"]), 1),
        (["bytes", "string"], pa.array([b"abcd"]), 0),
        (["string", ENUM], pa.array(["B"]), 0),
        ([B, A], pa.array([{"x": 1, "y": 2}], X_Y), 0),
        ([STRICT, A], pa.array([{"x": 1}], X), 1),
        ([record("C", x="int"), TEXTS], pa.array([{"x": "1"}], X_TEXT), 1),
        ([A, {"type": "array", "items": "int"}], pa.array([[1]], pa.list_(INT)), 1),
    ],
)
def test_what_json_tells_apart(union: list[Any], array: pa.Array, member: int) -> None:
    """By its token a value is read as the branch that it was written by."""
    info = info_of(SchemaType.JSON, ["null", *union], JAVA)
    for row, value in zip(written_and_read(info, array), plain(array), strict=True):
        if value is None:
            assert row is None
            continue
        own = row.pop(f"member{member}")
        assert set(row.values()) == {None}
        if isinstance(value, int) and isinstance(own, str):
            own = int(float(own))  # of a column of integers
        assert own == value or own == {**value, "y": None}


@pytest.mark.parametrize(
    ("union", "type_", "branches"),
    [
        (["bytes", "string"], TEXT, ("string", "bytes")),
        (["string", "bytes"], pa.binary(), ("bytes", "string")),
        ([ENUM, "string"], TEXT, ("string", "enum E")),
        ([FIXED, "bytes"], pa.binary(), ("bytes", "fixed F")),
        ([MOMENT, "string"], TEXT, ("string", "long timestamp-micros")),
        ([MOMENT, "double"], pa.float64(), ("double", "long timestamp-micros")),
        (["string", DECIMAL], pa.decimal128(10, 2), ("bytes decimal", "string")),
        (["int", "long", "string"], pa.int64(), ("long", "int")),
        ([A, B], X_Y, ("record B", "record A")),
        ([record("C", x=("int", 1)), TEXTS], X, None),
        ([record("C", x=(["null", "string"], None)), A], X, ("record A", "record C")),
        ([{"type": "map", "values": "int"}, A], X, ("record A", "map<int>")),
    ],
)
def test_what_json_does_not_tell(
    union: list[Any], type_: pa.DataType, branches: tuple[str, str] | None
) -> None:
    """What would be read as another branch is an error, which names both."""
    info = info_of(SchemaType.JSON, ["null", *union], JAVA)
    columns = pa.schema([("u", type_)])
    if branches is None:
        encoder_for(info, columns)
        return
    written, read = branches
    with pytest.raises(InvalidSchemaError) as caught:
        encoder_for(info, columns)
    assert f"`u` would be {written}, and JSON" in str(caught.value)
    assert str(caught.value).endswith(f"a read takes it for {read}")


def test_texts_that_are_names_of_numbers() -> None:
    """Beside floats, NaN and the infinities cannot be texts; all others can."""
    info = info_of(SchemaType.JSON, ["null", "double", "string"], JAVA)
    encoder = encoder_for(info, pa.schema([("u", TEXT)]))
    for name in ("NaN", "Infinity", "-Infinity"):
        with pytest.raises(UnfitValueError, match="is the name of a number") as caught:
            encoder.encode([pa.array(["nan", None, name])])
        assert caught.value.row == 2


@pytest.mark.parametrize("properties", [JAVA, {"__alwaysAllowNull": "true"}, OTHER])
@pytest.mark.parametrize("name", ["util.Date", "sql.Date", "sql.Timestamp"])
def test_dates_of_java(name: str, properties: dict[str, str]) -> None:
    """A record without fields that means a moment is written as it is read."""
    moments = pa.array([1_709_210_096_123_000, -1000, None]).cast(UTC)
    info = info_of(SchemaType.JSON, ["null", record(f"java.{name}")], properties)
    assert written_and_read(info, moments) == plain(moments)
    encoder = encoder_for(info, pa.schema([("u", UTC)]), ValueSettings("base64"))
    (value, *_) = encoder.encode([moments]).values.to_pylist()
    assert json.loads(value) == {"u": 1_709_210_096_123}


@pytest.mark.parametrize("kind", ["int", "long"])
def test_numbers_of_other_producers(kind: str) -> None:
    """A number with a point is a float of its union, whatever the order is."""
    said = ValueSettings("base64")
    for union, integer in ((["double", kind], 1), ([kind, "double"], 0)):
        info = info_of(SchemaType.JSON, union, JAVA)
        values = pa.array([b'{"u":%s}' % one for one in (b"1", b"1.0", b"-2", b"1e2")])
        decoder = kinds.decoder(info, info, kinds.columns_of(info), said)
        rows = decoder.decode(values, None).columns[0].to_pylist()
        whole, point = f"member{integer}", f"member{1 - integer}"
        assert [(row[whole], row[point]) for row in rows] == [
            *((1, None), (None, 1.0), (-2, None), (None, 100.0))
        ]


# -- two schemas, or some columns ------------------------------------------------------

E1, E2 = ({"type": "enum", "name": f"E{at}", "symbols": [at]} for at in "AB")
F1, F2 = ({"type": "fixed", "name": f"F{at}", "size": at} for at in (3, 6))
#: Of an order, a payment and a refund, which a field names.
BY_FIELD = [record("O", kind=E1, n=NULL_INT), record("P", kind=E2, n=NULL_INT)]
BY_NAMES = [record("X", x="int", z=NULL_INT), record("Y", y="string", z=NULL_INT)]
BY_BYTES = [record("V", x="bytes"), record("W", x="string")]
ITSELF = record("N", n="int", next=["null", "N"])
MAP = {"type": "map", "values": "int"}

#: Tokens of several of the branches below, or of none.
SOME_TOKENS = (
    *("1", "300", "0.1", "1e300", "true", '"A"', '"B"', '"C"', '"AAAA"', '"AAAAAAAA"'),
    *("[1]", '["x"]', "{}", '{"x":1}', '{"y":"q","z":7}', '{"x":1,"z":"no"}'),
    *('{"kind":"A","n":1}', '{"kind":"B"}', '{"x":"hello!"}', '{"n":5,"next":{"n":6}}'),
)
SOME_BRANCHES = (
    *("int", "long", "float", "double", "boolean", "string", "bytes", E1, E2, F1, F2),
    *(*BY_NAMES, MAP, {"type": "array", "items": "int"}, ITSELF),
    *(BY_FIELD[0] | {"name": "O1"}, record("M", n=(["int", "null"], 1))),
)
PROMOTED = {"int": "long", "long": "float", "float": "double", "string": "bytes"}


def rows_of(info: SchemaInfo, reader: SchemaInfo, wanted: pa.Schema) -> list[Any]:
    """What is read of all the tokens as a field ``u``, by the loops and without."""
    values = pa.array([b'{"u":%s}' % token.encode() for token in SOME_TOKENS])
    decoder = json_values.decoder(info, reader, wanted, ValueSettings("base64"))
    by_loops = decoder.decode(values, None)
    alone = decoder._one_by_one(values)
    assert list(by_loops.bad) == list(alone.bad)
    assert by_loops.columns == alone.columns
    rows = by_loops.columns[0].to_pylist()
    return ["bad" if at in by_loops.bad else row for at, row in enumerate(rows)]


def pruned(type_: pa.DataType, chance: Random) -> pa.DataType:
    """A type with some of the fields of its structs."""
    if not pa.types.is_struct(type_):
        return type_
    kept = chance.sample(list(type_), chance.randint(1, type_.num_fields))
    return pa.struct([one.with_type(pruned(one.type, chance)) for one in kept])


def cut(type_: pa.DataType, value: Any) -> Any:
    """The value in a pruned type."""
    if not pa.types.is_struct(type_) or not isinstance(value, dict):
        return value
    return {field.name: cut(field.type, value[field.name]) for field in type_}


def shape_of(branch: Any) -> str:
    """How tokens of a branch begin, where only arrays or objects begin so."""
    kind = branch["type"] if isinstance(branch, dict) else branch
    return {"record": "{", "map": "{", "array": "["}.get(kind, "")


@settings(max_examples=60, deadline=None)
@given(chance=CHANCE)
def test_any_columns_and_any_version(chance: Random) -> None:
    """The columns do not decide the branch; and the loops read as Python does.

    What is bad for all columns may be read where its shape says the branch.
    """
    some = chance.sample(SOME_BRANCHES, chance.randint(2, 4))
    union = list({kind_of(branch): branch for branch in some}.values())
    reader = [PROMOTED.get(one, one) if isinstance(one, str) else one for one in union]
    info, later = (
        info_of(SchemaType.JSON, ["null", *branches], {})
        for branches in (union, chance.sample(reader, len(reader)))
    )
    try:
        columns = json_values.columns_of(info)
    except InvalidSchemaError:  # a record within itself
        columns = pa.schema([("u", pa.struct([("member0", pa.struct([("n", INT)]))]))])
        if union[0] is ITSELF:
            rows_of(info, info, columns)
        return
    type_ = columns.field(0).type
    full = rows_of(info, info, columns)
    alone = {
        shape for shape in "{[" if sum(shape_of(one) == shape for one in union) == 1
    }
    for few in (joined([type_]), pruned(type_, chance)):
        rows = rows_of(info, info, pa.schema([("u", few)]))
        for token, row, expected in zip(SOME_TOKENS, rows, full, strict=True):
            if expected == "bad" and row != "bad":
                assert token[0] in alone  # what is wrong has no column, or is NULL
            else:
                assert row == cut(few, expected)
    try:
        wanted = json_values.columns_of(later)
        rows_of(info, later, wanted)
    except InvalidSchemaError:
        return


@pytest.mark.parametrize(
    ("union", "values", "tokens"),
    [
        ([E1, E2], ["A", "B"], ['"A"', '"B"']),
        ([E1 | {"default": "A"}, E2], ["A", "B"], ['"A"', '"B"']),
        ([F1, F2], [bytes(3), bytes(6)], ['"AAAA"', '"AAAAAAAA"']),
        (
            BY_FIELD,
            [{"kind": "A", "n": 1}, {"kind": "B", "n": 2}],
            ['{"kind":"A","n":1}', '{"kind":"B","n":2}'],
        ),
        (
            BY_BYTES,
            [{"x": b"\0\0\0"}, {"x": "hello!"}],
            ['{"x":"AAAA"}', '{"x":"hello!"}'],
        ),
    ],
)
def test_several_of_one_kind(
    union: list[Any], values: list[Any], tokens: list[str]
) -> None:
    """Names say as what a branch is read, in AVRO and in JSON."""
    tree = record("R", u=union)
    for branches in (union, union[::-1]):
        in_avro, in_json = (
            info_of(form, branches, {}) for form in (SchemaType.AVRO, SchemaType.JSON)
        )
        columns, said = kinds.columns_of(in_json), ValueSettings("base64")
        read = []
        for form, reader, data in (
            (SchemaType.AVRO, in_avro, [_in_avro(tree, one) for one in values]),
            (SchemaType.JSON, in_json, [b'{"u":%s}' % one.encode() for one in tokens]),
        ):
            decoder = kinds.decoder(info_of(form, union, {}), reader, columns, said)
            decoded = decoder.decode(pa.array(data, pa.binary()), None)
            assert not list(decoded.bad), decoded.reason
            read.append(decoded.columns[0].to_pylist())
        assert read[0] == read[1]


#: Of records: a symbol that is not known, null, no field, a time out of range.
STRAYS = ('{"id":1,"e":"Z"}', '{"id":1,"e":null}', '{"id":1}', '{"id":1,"t":9e40}')


@pytest.mark.parametrize("others", [[], ["string"], ["boolean", E2]])
def test_the_only_record(others: list[Any]) -> None:
    """Fields that no one asked for do no harm where no other type is an object."""
    stray = record("A", id="int", e=E1, l={"type": "array", "items": "int"}, t=MOMENT)
    info = info_of(SchemaType.JSON, ["null", stray, *others, "long"], {})
    values = pa.array([b'{"u":%s}' % one.encode() for one in STRAYS])
    few = pa.struct([("member0", pa.struct([("id", INT)]))])
    nothing = pa.struct([(f"member{1 + len(others)}", pa.int64())])
    for type_, row in (
        (few, {"member0": {"id": 1}}),
        (nothing, {nothing.names[0]: None}),
    ):
        decoder = json_values.decoder(
            info, info, pa.schema([("u", type_)]), ValueSettings("base64")
        )
        decoded = decoder.decode(values, None)
        assert (list(decoded.bad), decoder.rows_alone) == ([], 0), decoded.reason
        assert decoded.columns[0].to_pylist() == [row] * len(STRAYS)


NEW = record("B", y="string", z="int")


@pytest.mark.parametrize(
    ("before", "after", "wanted", "token", "row"),
    [
        (["null", E1, "long"], ["null", E1 | {"name": "E"}, "long"], None, '"A"', "A"),
        (
            [STRICT, record("B", y="string")],
            [STRICT, NEW],
            TEXT,
            '{"y":"q"}',
            {"y": "q"},
        ),
        (
            [record("B", y="string"), STRICT],
            [STRICT, NEW],
            TEXT,
            '{"y":"q"}',
            {"y": "q"},
        ),
    ],
)
def test_what_avro_would_not_read(
    before: list[Any], after: list[Any], wanted: Any, token: str, row: Any
) -> None:
    """An enum of another name is read; and a record, without its new field."""
    writer, reader = (info_of(SchemaType.JSON, one, {}) for one in (before, after))
    columns = kinds.columns_of(reader)
    if wanted:
        columns = pa.schema(
            [("u", pa.struct([("member1", pa.struct([("y", wanted)]))]))]
        )
    decoder = kinds.decoder(writer, reader, columns, ValueSettings("base64"))
    decoded = decoder.decode(pa.array([b'{"u":%s}' % token.encode()]), None)
    assert not list(decoded.bad), decoded.reason
    (found,) = decoded.columns[0].to_pylist()
    assert [value for value in found.values() if value is not None] == [row]


@pytest.mark.parametrize("others", [["string"], [record("B", y="string")]])
@pytest.mark.parametrize("in_map", [False, True])
@pytest.mark.parametrize("escape", ["", "\\u0041"])
def test_memory_of_what_is_not_asked_for(
    others: list[Any], in_map: bool, escape: str
) -> None:
    """Items that no column has are not kept, by the loops and without."""
    item = record(
        "P",
        t=("string", "x" * 1000),
        **dict.fromkeys(map("c{}".format, range(100)), NULL_INT),
    )
    items = (
        {"type": "map", "values": item} if in_map else {"type": "array", "items": item}
    )
    info = info_of(SchemaType.JSON, [record("A", id="int", items=items), *others], {})
    columns = pa.schema([("u", pa.struct([("member0", pa.struct([("id", INT)]))]))])
    decoder = kinds.decoder(info, info, columns, ValueSettings("base64"))
    ends = b"{}" if in_map else b"[]"
    parts = [b'"%d":{}' % at if in_map else b"{}" for at in range(20_000)]
    value = b'{"u":{"id":1,"items":%s,"%s":0}}'
    data = ends[:1] + b",".join(parts) + ends[1:]
    values = pa.array([value % (data, escape.encode())])
    tracemalloc.start()
    try:
        decoded = decoder.decode(values, None)
        assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    finally:
        tracemalloc.stop()
    assert decoded.columns[0].to_pylist() == [{"member0": {"id": 1}}]


def test_deep_unions() -> None:
    """Each type of a deep union is planned once to be told, however deep."""
    tree: Any = record("L", x="string")
    texts = {f"t{number}": "string" for number in range(90)}
    for depth in range(24):
        other = record(f"M{depth}", y="string")
        tree = record(f"N{depth}", k="string", **texts, u=["null", tree, other])
    info = info_of(SchemaType.JSON, ["null", tree, record("M", y="string")], {})
    wanted = pa.struct([("k", TEXT)])
    for _ in range(24):
        wanted = pa.struct([("k", TEXT), ("u", pa.struct([("member0", wanted)]))])
    columns = pa.schema([("u", pa.struct([("member0", wanted)]))])
    decoder = kinds.decoder(info, info, columns, ValueSettings("base64"))
    rest = ",".join(f'"{name}":""' for name in texts)
    value = f'{{"u":{{"k":"1",{rest},"u":{{"k":"2",{rest}}}}}}}'
    (row,) = decoder.decode(pa.array([value.encode()]), None).columns[0].to_pylist()
    assert row["member0"]["u"]["member0"]["k"] == "2"


@pytest.mark.parametrize("form", [SchemaType.AVRO, SchemaType.JSON])
def test_the_default_of_a_union(form: SchemaType) -> None:
    """The first type of a union that has the default is the type of the default."""
    writer = record("R", a="int")
    fields = {"u": (["double", "int"], 1), "v": (["bytes", "string"], "x")}
    trees = (writer, record("R", a="int", **fields))
    infos = [SchemaInfo(form, json.dumps(tree).encode()) for tree in trees]
    columns = kinds.columns_of(infos[1])
    decoder = kinds.decoder(*infos, columns, ValueSettings())
    value = b'{"a":1}' if form is SchemaType.JSON else b"\2"
    decoded = decoder.decode(pa.array([value]), None)
    assert [column.to_pylist() for column in decoded.columns] == [
        [1],
        [{"member0": 1.0, "member1": None}],
        [{"member0": b"x", "member1": None}],
    ]


def _in_avro(tree: Any, value: Any) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(tree), {"u": value})
    return data.getvalue()
