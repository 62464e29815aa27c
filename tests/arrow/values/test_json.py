# SPDX-License-Identifier: Apache-2.0
"""Values in JSON as columns: by the loops, one by one, and equal both ways."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from decimal import Context, Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pulsar_spark.arrow.values import (
    Decoded,
    ValueSettings,
    avro_plan,
    grown,
    json_plan,
    json_scalars,
    kinds,
)
from pulsar_spark.arrow.values import json as json_values
from pulsar_spark.arrow.values.json import JsonDecoder, columns_of, decoder
from pulsar_spark.schemas.info import InvalidSchemaError, SchemaInfo, SchemaType
from tests.arrow import fuzz_decimals
from tests.schemas.test_avro import record
from tests.support import kernels

UTC = dt.timezone.utc


@pytest.fixture(params=kernels.FORMS, scope="module", autouse=True)
def kernel(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each form of the kernel, in the place of the one that is installed."""
    readers = kernels.load(request.param, "json_values")
    columns = kernels.load(request.param, "avro")
    with pytest.MonkeyPatch.context() as patch:
        for module in (avro_plan, grown, json_plan, json_scalars, json_values):
            patch.setattr(module, "avro", columns)
        for module in (json_plan, json_scalars, json_values):
            patch.setattr(module, "kernel", readers)
        yield


def info(tree: Any, **properties: str) -> SchemaInfo:
    """A JSON schema of this type."""
    return SchemaInfo(SchemaType.JSON, json.dumps(tree).encode(), properties)


def fields(**types: Any) -> Any:
    """A record of fields of these types; a tuple is a type and its default."""
    given = [
        {"name": name, "type": one[0], "default": one[1]}
        if isinstance(one, tuple)
        else {"name": name, "type": one}
        for name, one in types.items()
    ]
    return {"type": "record", "name": "R", "fields": given}


def planned(
    writer: SchemaInfo,
    reader: SchemaInfo | None = None,
    wanted: pa.Schema | None = None,
    codec: str = "base64",
) -> tuple[JsonDecoder, pa.Schema]:
    """A decoder, and the columns that it makes."""
    reader = writer if reader is None else reader
    wanted = columns_of(reader) if wanted is None else wanted
    made = decoder(writer, reader, wanted, ValueSettings(codec))
    made._is_compiled = True  # also where the loops run as Python
    return made, wanted


def as_array(values: list[Any]) -> pa.BinaryArray:
    """Texts or bytes as values."""
    data = [one.encode() if isinstance(one, str) else one for one in values]
    return pa.array(data, pa.binary())


def check(decoded: Decoded, wanted: pa.Schema, rows: int) -> pa.RecordBatch:
    """The columns as a RecordBatch; they are as one needs them."""
    for column, field in zip(decoded.columns, wanted, strict=True):
        assert column.type == field.type
        assert len(column) == rows
        column.validate(full=True)
        assert not any(column.is_valid()[row].as_py() for row in decoded.bad)
    assert list(decoded.bad) == sorted(set(decoded.bad))
    assert bool(decoded.bad) == bool(decoded.reason)
    return pa.RecordBatch.from_arrays(list(decoded.columns), schema=wanted)


def decode(
    writer: SchemaInfo, values: list[Any], *args: Any, **more: Any
) -> tuple[list[dict[str, Any]], list[int], str]:
    """Rows, which are bad, and why."""
    made, wanted = planned(writer, *args, **more)
    decoded = made.decode(as_array(values), None)
    rows = check(decoded, wanted, len(values)).to_pylist()
    return rows, list(decoded.bad), decoded.reason


def one(type_: Any, *tokens: str, **more: Any) -> list[Any]:
    """Values of a field of this type, of these tokens; none of them is bad."""
    writer = info(fields(f=["null", type_]))
    rows, bad, reason = decode(writer, [f'{{"f":{it}}}' for it in tokens], **more)
    assert not bad, reason
    return [row["f"] for row in rows]


def asked(type_: pa.DataType) -> pa.Schema:
    """The column `f` of this type."""
    return pa.schema([pa.field("f", type_)])


def is_by_loops(made: JsonDecoder) -> bool:
    """Whether the loops read all that it was given so far."""
    return made.rows_alone == 0


LOGICAL = [
    ("date", "int"),
    ("time-millis", "int"),
    ("time-micros", "long"),
    ("timestamp-millis", "long"),
    ("timestamp-micros", "long"),
    ("local-timestamp-millis", "long"),
    ("local-timestamp-micros", "long"),
]


#: The first moment of 2024-02-29, in microseconds.
_DAY = 1_709_164_800_000_000


def logical(name: str) -> Any:
    """A logical type."""
    return {"type": dict(LOGICAL)[name], "logicalType": name}


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
MOMENT = dt.datetime(2024, 2, 29, 12, 34, 56, 123_456)


# -- what clients write ----------------------------------------------------------------

PLAIN = info(
    fields(
        i=["null", "int"],
        s=["null", "string"],
        d="double",
        ok="boolean",
        xs={"type": "array", "items": "long"},
        sub=["null", {"type": "record", "name": "S", "fields": [
            {"name": "a", "type": "int"}, {"name": "b", "type": ["null", "string"]}
        ]}],
    )
)  # fmt: skip


def test_what_java_and_python_write():
    """One line without nulls, and many lines with them: parsed together."""
    java = '{"d":1.5,"ok":true,"s":"é","xs":[1,2],"sub":{"a":1}}'
    python = json.dumps(
        {"i": 7, "s": "é\n", "d": -0.0, "ok": False, "xs": [], "sub": None, "more": 1},
        indent=1,
    )
    made, wanted = planned(PLAIN)
    rows = check(made.decode(as_array([java, python]), None), wanted, 2).to_pylist()
    assert rows == [
        {"i": None, "s": "é", "d": 1.5, "ok": True, "xs": [1, 2],
         "sub": {"a": 1, "b": None}},
        {"i": 7, "s": "é\n", "d": 0.0, "ok": False, "xs": [], "sub": None},
    ]  # fmt: skip
    assert is_by_loops(made)


@pytest.mark.parametrize(
    ("type_", "tokens"),
    [
        ("int", ["7", "-0", "2147483647", "null"]),
        ("long", ["9223372036854775807", "-9223372036854775808"]),
        ("double", ["1", "-1.5e-7", "0.30000000000000004", '"NaN"', '"-Infinity"']),
        ("float", ["3.4028235e38", "1e60", "0.1"]),
        ("string", ['"\\u20ac \\ud83d\\ude00 \\"/\\n"', '"é"', "12.50", '""']),
        ("bytes", ['"AP9h"', '"AP8="', '"AA=="', '""']),
        (DECIMAL, ["1234567.89", '"-0.5"', "0", "12"]),
        ({**DECIMAL, "precision": 38}, ["123456789012345678901234567890.12"]),
        (logical("date"), ["19782", "[2024,2,29]", '"2024-02-29"']),
        (
            logical("timestamp-millis"),
            ["1709210096123", "1709210096.123456789", "[2024,2,29,12,34]",
             '"2024-02-29T12:34:56.1+02:00"'],
        ),
        (logical("time-micros"), ["1", '"12:34:56.789"', "[12,34,56,1000]"]),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, ['"B"', "1"]),
        ({"type": "map", "values": ["null", "int"]}, ['{"a":1,"b":null,"a":2}', "{}"]),
        (["null", "boolean", "long", "string"], ["true", "5", '"x"', "null"]),
        (["null", "double", {"type": "array", "items": "int"}], ["1.5", "[1,2]"]),
        (
            {"type": "array", "items": {"type": "record", "name": "I", "fields": [
                {"name": "a", "type": "int"},
                {"name": "b", "type": "string", "default": "none"},
            ]}},
            ['[{"a":1},{"b":null,"a":2},{"c":[{"d":"}"}, 1.5e3, true],"a":3}]', "[]"],
        ),
    ],
)  # fmt: skip
def test_the_loops_read_what_clients_write(type_: Any, tokens: list[str]):
    """No value of them is read alone, and alone each would be the same."""
    branches = type_ if isinstance(type_, list) else ["null", type_]
    made, wanted = planned(info(fields(f=branches)))
    values = as_array([f'{{"f": {token} }}' for token in tokens])
    rows = check(made.decode(values, None), wanted, len(tokens))
    assert made.rows_alone == 0
    expected = check(one_by_one(made, values), wanted, len(tokens))
    by_loops, alone = rows.column(0), expected.column(0)
    assert by_loops.equals(alone) or shown(by_loops) == shown(alone)
    assert by_loops.null_count == tokens.count("null")


def test_null_empty_and_bad_between_others():
    """Rows stay where they are, whatever is between them."""
    good = '{"d":1,"ok":true,"xs":[]}'
    values = [
        good, None, "", good, '{"d":1}{"d":2}', good, '{"d":1}}\n{"v":{"d":2}', "null",
        good, '{"d":tru}', "  ", "[]", "5", b"\xff", '{"d":"x"}', good,
        '{"z":tru,"d":1}',
        '{"d":1},"x":{"d":2}', '{"d":1}]]]]],"x":[[[[[{"d":2}', "{}", good,
    ]  # fmt: skip
    rows, bad, reason = decode(PLAIN, values)
    assert bad == [4, 6, 9, 10, 11, 12, 13, 14, 16, 17, 18]
    assert [at for at, row in enumerate(rows) if row["d"] == 1] == [0, 3, 5, 8, 15, 20]
    assert "Extra data" in reason
    assert rows[19] == dict.fromkeys(rows[19])


@pytest.mark.parametrize(
    "inside",
    [
        '{"d":1},{"d":2}',
        '{"d":1}],[{"d":2}',
        '{"d":1}]],[[{"d":2}',
        '{"d":1}]]],[[[{"d":2}',
        '{"d":1}]]]],[[[[{"d":2}',
        '{"d":1} ] ]\t]\r]\n],"x":[ [[[[{"d":2}',
        '{"d":1}]]]]]}\n{"v":[[[[[{"d":2}',
        '{"d":1',
        '{"d":1}}',
        '{"d":"',
        '{"d":1},',
        ',{"d":1}',
        "1],[",
        '{"d":1}\0',
    ],
)
def test_nothing_gets_out_of_its_wrapper(inside: str):
    """A value that tries is bad; its neighbours are not."""
    good = '{"d":5,"ok":true,"xs":[]}'
    for values in ([inside, good], [good, inside], ["", inside, good], [inside] * 200):
        rows, bad, _ = decode(PLAIN, values)
        assert bad == [at for at, it in enumerate(values) if it == inside]
        assert [row["d"] for row in rows] == [
            5 if it == good else None for it in values
        ]


def test_nested_arrays_are_read_however_deep():
    """What ends as a wrapper does is read one by one."""
    type_: Any = "int"
    expected: Any = 1
    for _ in range(7):
        type_, expected = {"type": "array", "items": type_}, [expected]
    assert one(type_, json.dumps(expected)) == [expected]


def test_days_and_moments_of_java():
    """Arrays and decimal seconds, whatever the schema says."""
    assert one(logical("date"), "[2024,2,29]", "19782", '"2024-02-29"', "null") == [
        dt.date(2024, 2, 29)
    ] * 3 + [None]
    micros, millis = logical("timestamp-micros"), logical("timestamp-millis")
    moment = MOMENT.replace(tzinfo=UTC)
    for type_ in (micros, millis):
        assert (
            one(
                type_,
                "1709210096.123456789",
                '"2024-02-29T12:34:56.123456789Z"',
                '"2024-02-29 14:34:56.1234569+02:00"',
                "[2024,2,29,12,34,56,123456789]",
            )
            == [moment] * 4
        )
    assert one(micros, "1709210096123456", "-0.000001000", "-0.0000000001") == [
        moment,
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
    ]
    assert one(millis, "1709210096123") == [moment.replace(microsecond=123_000)]
    local = one(
        logical("local-timestamp-millis"),
        "[2024,2,29,12,34]",
        "1709210040000",
        wanted=asked(pa.timestamp("us")),
    )
    assert local == [dt.datetime(2024, 2, 29, 12, 34)] * 2
    assert one(logical("local-timestamp-micros"), "[2024,2,29,12,34,56,123456789]") == [
        1709210096123456
    ]


@pytest.mark.parametrize(("name", "digits"), [("millis", 3), ("micros", 6)])
def test_moments_have_the_unit_of_the_schema(name: str, digits: int):
    """However a number is spelled; only nine digits after the point are seconds."""
    count = 1709210096123456 // 10 ** (6 - digits)
    exponent = f"{str(count)[0]}.{str(count)[1:]}e{len(str(count)) - 1}"
    expected = MOMENT.replace(tzinfo=UTC)
    if name == "millis":
        expected = expected.replace(microsecond=123_000)
    tokens = [str(count), f"{count}.0", f"{count}.00", exponent, exponent.upper()]
    for type_ in (f"timestamp-{name}", f"local-timestamp-{name}"):
        wanted = None
        if type_.startswith("local"):
            wanted = asked(pa.timestamp("us"))
        moments = one(logical(type_), *tokens, wanted=wanted)
        assert {moment.replace(tzinfo=UTC) for moment in moments} == {expected}
    if name == "millis":
        (moment,) = one(logical("timestamp-millis"), f"{count}.4")
        assert moment == expected + dt.timedelta(microseconds=400)


@pytest.mark.parametrize("token", ["1e400", "1e999999999", "9" * 30 + ".5", "-1e300"])
def test_moments_that_no_column_has_room_for(token: str):
    """They are bad, and cost no time."""
    writer = info(fields(f=logical("timestamp-millis")))
    _, bad, _ = decode(writer, [f'{{"f":{token}}}'])
    assert bad == [0]


def test_times_of_java():
    """Numbers of the schema's unit, or times if asked for."""
    tokens = ["[12,34,56,123456789]", "45296123", '"12:34:56.123"', "[12,34]"]
    numbers = [45_296_123, 45_296_123, 45_296_123, 45_240_000]
    assert one(logical("time-millis"), *tokens) == numbers
    (time, *_) = one(logical("time-micros"), tokens[0], wanted=asked(pa.time64("us")))
    assert time == dt.time(12, 34, 56, 123_456)
    times = one(logical("time-millis"), *tokens, wanted=asked(pa.time64("us")))
    assert times[1] == dt.time(12, 34, 56, 123_000)
    writer = info(fields(f=["null", logical("time-millis")]))
    made, wanted = planned(writer, None, asked(pa.time64("ns")))
    decoded = made.decode(as_array(['{"f":45296123}']), None)
    check(decoded, wanted, 1)
    assert decoded.columns[0].cast(pa.int64()).to_pylist() == [45_296_123_000_000]


def test_dates_of_java_util():
    """A record without fields that stands for a moment in milliseconds."""
    names = [("java.util", "Date"), ("java.sql", "Timestamp"), ("java.sql", "Date")]
    for space, name in names:
        type_ = {"type": "record", "name": name, "namespace": space, "fields": []}
        writer = info(fields(f=["null", type_], g=["null", name_of(space, name)]))
        rows, bad, _ = decode(writer, ['{"f":1709210096123,"g":0}', "{}"])
        assert not bad
        assert rows[0]["f"] == MOMENT.replace(microsecond=123_000, tzinfo=UTC)
        assert rows[0]["g"] == dt.datetime(1970, 1, 1, tzinfo=UTC)


def name_of(space: str, name: str) -> str:
    """The full name of a type."""
    return f"{space}.{name}"


def test_bytes():
    """Base64 as Java has them, or text as Python has them, as the user says."""
    assert one("bytes", '"AP9h"', '""', "null") == [b"\0\xffa", b"", None]
    assert one("bytes", '"\\u0000é"', codec="utf8") == ["\0é".encode()]
    fixed = {"type": "fixed", "name": "F", "size": 3}
    assert one(fixed, '"AP9h"') == [b"\0\xffa"]
    for type_, token in [("bytes", '"AP9"'), ("bytes", '"é"'), (fixed, '"YQ=="')]:
        _, bad, reason = decode(info(fields(f=type_)), [f'{{"f":{token}}}'])
        assert bad == [0]
        assert reason.startswith("at `f` ")


def test_numbers_of_all_kinds():
    """Whole numbers without a fraction, floats with names, and no room is bad."""
    assert one("int", "1", "1.0", "-0", "1e3", "2147483647") == [
        1,
        1,
        0,
        1000,
        2**31 - 1,
    ]
    assert one("long", str(2**63 - 1), str(-(2**63))) == [2**63 - 1, -(2**63)]
    nan, *others = one(
        "double", '"NaN"', '"Infinity"', "-Infinity", "1e400", "7", "-0.0"
    )
    assert math.isnan(nan)
    assert others == [math.inf, -math.inf, math.inf, 7.0, 0.0]
    assert math.isnan(one("float", "NaN")[0])
    for type_, token in [
        ("int", "2147483648"), ("long", str(2**63)), ("int", "1.5"), ("int", '"1"'),
        ("int", "true"), ("int", "NaN"), ("int", "1e99999"), ("double", '"1"'),
        ("double", "true"), ("boolean", "1"), ("string", "true"), ("string", "{}"),
        ("long", "9" * 5000), ("string", '"\\ud800"'),
        (logical("date"), '"2024-02-30"'), (logical("date"), "[2024,13,1]"),
        (logical("timestamp-micros"), "1e30"), (logical("date"), "1.5"),
        (logical("timestamp-millis"), str(2**62)), (logical("time-millis"), "[25,0]"),
    ]:  # fmt: skip
        rows, bad, reason = decode(
            info(fields(f=type_)), ["{}", f'{{"f":{token}}}', "{}"]
        )
        assert bad == [1], (type_, token, rows)
        assert reason.startswith("at `f` ")
        assert len(reason) < 120


def test_texts_of_numbers_and_enums():
    """BigDecimals keep their zeros; enums are names, or Python's numbers."""
    assert one("string", "12.340", "1E+2", '"x"') == ["12.340", "1E+2", "x"]
    enum = {"type": "enum", "name": "E", "symbols": ["RED", "GREEN"]}
    assert one(enum, '"GREEN"', "2") == ["GREEN", "2"]
    uuid = {"type": "string", "logicalType": "uuid"}
    assert one(uuid, '"6f1"') == ["6f1"]


def test_symbols_of_enums():
    """Others are bad; those that the query's schema does not have are its default."""
    old = {"type": "enum", "name": "E", "symbols": ["RED", "GREEN", "BLUE"]}
    new = old | {"symbols": ["GREEN", "RED"]}
    tokens = ['"RED"', '"BLUE"', '"blue"', '"2"', "2", "null"]
    values = as_array([f'{{"f":{token}}}' for token in tokens])
    for reader, expected, bad in (
        (old, ["RED", "BLUE", None, None, "2", None], [2, 3]),
        (new, ["RED", None, None, None, "2", None], [1, 2, 3]),
        (new | {"default": "RED"}, ["RED", "RED", None, None, "2", None], [2, 3]),
    ):
        made, _ = planned(*(info(fields(f=["null", one])) for one in (old, reader)))
        decoded = made.decode(values, None)
        assert decoded.columns[0].to_pylist() == expected
        assert decoded.bad == bad
        assert "is not a symbol of its enum" in decoded.reason
        alone = made.rows_alone
        usual = ['{"f":"GREEN"}', '{"f":null}', '{"f":1}'] * 50
        known = made.decode(as_array(usual), None)
        assert known.columns[0].to_pylist() == ["GREEN", None, "1"] * 50
        assert made.rows_alone == alone


@pytest.mark.parametrize("among", [1, 100])
def test_items_that_become_far_more_than_their_bytes(among: int):
    """A row to which defaults would add too much is bad; a shorter one is read."""
    item = {"type": "record", "name": "I", "fields": []}
    longer = {
        **item,
        "fields": [{"name": "t", "type": "string", "default": "x" * 100_000}],
    }
    writer, reader = (
        info(fields(a={"type": "array", "items": one})) for one in (item, longer)
    )
    made, _ = planned(writer, reader)
    long = '{"a":[' + ",".join(["{}"] * 20_000) + "]}"
    short = '{"a":[{},{}]}'
    decoded = made.decode(as_array([short] * among + [long]), None)
    assert list(decoded.bad) == [among]
    assert "would add more than 8,388,608 bytes" in decoded.reason
    lists = decoded.columns[0]
    assert lists[0].as_py() == [{"t": "x" * 100_000}] * 2
    assert lists.nbytes < 25 * 2**20


def test_decimals_together_and_alone():
    """No number of a producer ends the process, or depends on the rows beside it."""
    command = [sys.executable, "-m", "tests.arrow.fuzz_decimals", "1", "40"]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    assert int(child.stdout) > 1000  # the parser was asked


@pytest.mark.parametrize(
    "digits", ["1E-999999999", "1E-41", "-51182913907856697820e20"]
)
def test_numbers_that_arrow_must_not_see(digits: str):
    """Among many rows they are bad, as they are alone."""
    rows = [b'{"d": 1.25, "t": "1e5"}'] * 100
    rows[50] = f'{{"d": {digits}}}'.encode()
    schema = fuzz_decimals.schema(38, 10, is_record=True)
    made = decoder(schema, schema, columns_of(schema), ValueSettings())
    decoded = made.decode(pa.array(rows, pa.binary()), None)
    assert decoded.bad == [50]
    assert decoded.columns[0].null_count == 1


def test_decimals():
    """Exact, of a number or of a text of one."""
    type_ = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
    values = one(type_, "-12.34", '"12.340"', "1e2", "0", '"999.99"')
    assert values == [Decimal(it) for it in ("-12.34", "12.34", "100", "0", "999.99")]
    assert one(type_, "1.5", wanted=asked(pa.decimal128(9, 2))) == [Decimal("1.50")]
    for token in ("1.234", "1000", '"x"', "NaN", "true", "1e999999999", '"1_0"', '""'):
        _, bad, _ = decode(info(fields(f=type_)), [f'{{"f":{token}}}'])
        assert bad == [0], token


def test_texts_that_are_not_utf8():
    """They are bad, also where nobody asked for them."""
    good = b'{"s":"a"}'
    others = [b'{"s":"\xff"}', b'{"z":"\xc3","s":"a"}', b'{"\xff":1,"s":"a"}']
    rows, bad, reason = decode(PLAIN, [good, *others, good])
    assert bad == [1, 2, 3]
    assert reason == "it is not UTF-8"
    assert [row["s"] for row in rows] == ["a", None, None, None, "a"]


def test_what_is_missing_within_a_record():
    """It is bad where it may not be NULL, and only there."""
    values = [
        '{"sub":{"a":1}}',
        '{"sub":{"b":"x"}}',
        '{"sub":null}',
        '{"sub":{"a":null}}',
    ]
    rows, bad, reason = decode(PLAIN, values)
    assert (bad, reason) == ([1, 3], "`sub.a` is missing")
    assert rows[0]["sub"] == {"a": 1, "b": None}
    assert decode(PLAIN, [values[1]])[1] == [0]


def test_times_beyond_a_day():
    """They are numbers like others, but no times."""
    for name, day in (("time-millis", 86_400_000), ("time-micros", 86_400_000_000)):
        writer = info(fields(f=["null", logical(name)]))
        assert one(logical(name), str(day), "-1") == [day, -1]
        values = [f'{{"f":{it}}}' for it in (day - 1, day, 0, -1)]
        for type_ in (pa.time64("us"), pa.time64("ns")):
            made, wanted = planned(writer, None, asked(type_))
            decoded = made.decode(as_array(values), None)
            check(decoded, wanted, 4)
            assert list(decoded.bad) == [1, 3]
            (alone,) = made.decode(as_array(values[:1]), None).columns
            assert alone.equals(decoded.columns[0].slice(0, 1))


def test_odd_records():
    """Without fields; of fields that the writer had none of; of one field twice."""
    nothing = {"type": "record", "name": "N", "fields": []}
    assert one(nothing, "{}", '{"x":1}', "null") == [{}, {}, None]
    writer = info(fields(old="int", s=nothing))
    inner = {"type": "record", "name": "N", "fields": [
        {"name": "x", "type": "int", "default": 4}
    ]}  # fmt: skip
    reader = info({"type": "record", "name": "R", "fields": [
        {"name": "a", "type": "int", "aliases": ["old"]},
        {"name": "b", "type": "int", "aliases": ["old"]},
        {"name": "s", "type": inner},
    ]})  # fmt: skip
    rows, bad, _ = decode(writer, ['{"old":5,"s":{}}', "{}"], reader)
    assert (rows, bad) == (
        [{"a": 5, "b": 5, "s": {"x": 4}}, {"a": None, "b": None, "s": None}], []
    )  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_renamed_fields_as_in_avro(data: st.DataObject):
    """Whatever names and aliases are; only JSON takes two fields of an alias."""
    names = st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True)
    old = {"type": "record", "name": "R", "fields": [
        {"name": name, "type": "string"} for name in data.draw(names)
    ]}  # fmt: skip
    value = {field["name"]: f"of {field['name']}" for field in old["fields"]}
    free = data.draw(st.permutations("abcd"))
    new: list[dict[str, Any]] = []
    for name in data.draw(names):
        aliases = [free.pop() for _ in range(data.draw(st.integers(0, len(free))))]
        new.append({
            "name": name, "aliases": [alias for alias in aliases if alias != name],
        } | data.draw(st.sampled_from([
            {"type": "string"}, {"type": "string", "default": "new"},
            {"type": ["null", "string"], "default": None},
            {"type": ["string", "null"], "default": "new"},
            {"type": "int", "default": 0},
        ])))  # fmt: skip
    encoded = io.BytesIO()
    fastavro.schemaless_writer(encoded, fastavro.parse_schema(old), value)
    found = []
    for kind, payload in [
        (SchemaType.JSON, json.dumps(value).encode()),
        (SchemaType.AVRO, encoded.getvalue()),
    ]:
        writer, reader = (
            SchemaInfo(kind, json.dumps(tree).encode())
            for tree in (old, {**old, "fields": new})
        )
        try:
            made = kinds.decoder(
                writer, reader, kinds.columns_of(reader), ValueSettings()
            )
        except InvalidSchemaError:
            found.append(None)
        else:
            decoded = made.decode(as_array([payload]), None)
            assert not decoded.bad
            found.append([column.to_pylist() for column in decoded.columns])
    assert found[0] == found[1]


def test_large_types():
    """As Spark asks for them where it is set so."""
    wanted = pa.schema([("s", pa.large_string()), ("b", pa.large_binary())])
    writer = info(fields(s="string", b="bytes"))
    rows, bad, _ = decode(writer, ['{"s":"x","b":"YQ=="}', "{}", "x"], wanted=wanted)
    assert bad == [2]
    assert rows[0] == {"s": "x", "b": b"a"}
    assert one("bytes", '"YQ=="', wanted=asked(pa.large_binary())) == [b"a"]


def test_long_numbers_and_texts():
    """Digits without end are bad, and take no longer than their length."""
    type_ = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
    digits = "1" * 300_000
    for kind, token in [
        (type_, f'"{digits}x"'), (type_, digits), (type_, f"0.{digits}"),
        ("int", digits), (logical("date"), f'"{digits}"'), ("bytes", f'"{digits}!"'),
        (logical("timestamp-millis"), f"{digits}.5"), ("boolean", f'"{digits}"'),
    ]:  # fmt: skip
        _, bad, reason = decode(info(fields(f=kind)), [f'{{"f":{token}}}'])
        assert bad == [0]
        assert len(reason) < 120


def test_maps_and_unions():
    """Maps by name; of a union the first type that takes the value."""
    assert one({"type": "map", "values": "int"}, '{"a":1,"b":2}', "{}") == [
        [("a", 1), ("b", 2)],
        [],
    ]
    assert one(["int", "string"][0], "5") == [5]
    writer = info(
        fields(f=["null", "string", "int", {"type": "array", "items": "int"}])
    )
    rows, bad, _ = decode(
        writer, ['{"f":"a"}', '{"f":5}', '{"f":[1]}', '{"f":null}', '{"f":{}}']
    )
    assert bad == [4]
    assert [row["f"] for row in rows] == [
        {"member0": "a", "member1": None, "member2": None},
        {"member0": None, "member1": 5, "member2": None},
        {"member0": None, "member1": None, "member2": [1]},
        None,
        None,
    ]
    assert one({"type": "array", "items": ["int", "long"]}, f"[1,{2**40}]") == [
        [1, 2**40]
    ]


def test_what_is_no_value_of_its_type():
    """Each bad value says where, and what was there instead."""
    inner = record("int", name="S")
    for type_, token, said in [
        (inner, "[1]", "at `f` "),
        ({"type": "array", "items": inner}, '[{"f0":1},5]', "an object"),
        ({"type": "map", "values": "int"}, "[]", "an object"),
        ({"type": "map", "values": "int"}, '{"a":null}', "`f{}` is null"),
        ({"type": "array", "items": "int"}, "{}", "an array"),
        (["int", "boolean"], '"x"', "one of "),
    ]:
        rows, bad, reason = decode(info(fields(f=type_)), [f'{{"f":{token}}}'])
        assert (rows, bad) == ([{"f": None}], [0]), type_
        assert said in reason


def test_null_within_arrays_and_maps():
    """Where the schema has it there."""
    assert one({"type": "array", "items": ["null", "int"]}, "[1,null]") == [[1, None]]
    nested = {"type": "array", "items": {"type": "map", "values": ["null", "int"]}}
    assert one(nested, '[{"a":null},{}]') == [[[("a", None)], []]]


def test_a_union_that_became_one_type():
    """And the other way round: members keep their places, others are left out."""
    union, number = info(fields(f=["string", "int"])), info(fields(f="long"))
    values = ['{"f":7}', '{"f":"x"}']
    assert decode(union, values, number)[0:2] == ([{"f": 7}, {"f": None}], [1])
    assert decode(number, values[:1], info(fields(f=["string", "long"])))[0] == [
        {"f": {"member0": None, "member1": 7}}
    ]
    wanted = asked(pa.struct([("member0", pa.string())]))
    rows, bad, _ = decode(union, values, wanted=wanted)
    assert [row["f"] for row in rows] == [{"member0": None}, {"member0": "x"}]
    assert not bad


def test_bytes_that_became_text():
    """And the other way round: what is no UTF-8 cannot be text."""
    data, text = info(fields(f="bytes")), info(fields(f="string"))
    rows, bad, reason = decode(data, ['{"f":"aGk="}', '{"f":"/w=="}'], text)
    assert ([row["f"] for row in rows], bad) == (["hi", None], [1])
    assert reason == "at `f` its bytes are not UTF-8"
    assert decode(text, ['{"f":"aGk="}'], data)[0] == [{"f": b"aGk="}]


def test_a_time_of_another_unit():
    """As a later version has it; none is beyond its day."""
    writer, reader = (
        info(fields(f=logical(f"time-{it}"))) for it in ("millis", "micros")
    )
    for wanted in (pa.time64("us"), pa.time64("ns")):
        rows, bad, _ = decode(
            writer, ['{"f":1500}', '{"f":-1}', "{}"], reader, asked(wanted)
        )
        assert rows[0] == {"f": dt.time(0, 0, 1, 500_000)}
        assert bad == [1]
        rows, bad, _ = decode(writer, ['{"f":1500}'], reader, asked(wanted))
        assert (rows, bad) == ([{"f": dt.time(0, 0, 1, 500_000)}], [])


@pytest.mark.parametrize(
    ("writer", "reader", "tokens", "expected"),
    [
        ("date", "timestamp-micros", ["19782", '"2024-02-29"', "[2024,2,29]"], _DAY),
        ("date", "local-timestamp-millis", ["19782", '"2024-02-29"'], _DAY // 1000),
        ("timestamp-millis", "local-timestamp-micros", [f"{_DAY // 1000}"], _DAY),
        ("local-timestamp-micros", "timestamp-millis", [f"{_DAY}"], _DAY),
    ],
)
def test_a_moment_of_another_kind(
    writer: str, reader: str, tokens: list[str], expected: int
):
    """Versions that AVRO reads are read: a date is the first moment of the day."""
    theirs, own = (info(fields(f=logical(name))) for name in (writer, reader))
    made, wanted = planned(theirs, own)
    values = as_array([f'{{"f":{token}}}' for token in tokens])
    for decoded in (made.decode(values, None), one_by_one(made, values)):
        check(decoded, wanted, len(tokens))
        assert not list(decoded.bad)
        numbers = decoded.columns[0].cast(pa.int64()).to_pylist()
        assert numbers == [expected] * len(tokens)


def test_a_decimal_of_a_smaller_scale():
    """As in AVRO, a number is bad that has digits which the column has not."""
    theirs, own = info(fields(f=DECIMAL)), info(fields(f={**DECIMAL, "scale": 1}))
    values = [f'{{"f":{token}}}' for token in ("1.50", '"-2.5"', "3", "1.25")]
    rows, bad, _ = decode(theirs, values, own)
    found = [row["f"] for row in rows]
    assert (found, bad) == ([Decimal("1.5"), Decimal("-2.5"), Decimal(3), None], [3])


def test_names_that_come_twice():
    """The last one counts, as for Java."""
    assert decode(PLAIN, ['{"d":1,"d":2}', '{"z":1,"z":2,"d":3}'])[1] == []
    rows, _, _ = decode(PLAIN, ['{"d":1,"d":2}', '{"z":1,"z":2,"d":3}'])
    assert [row["d"] for row in rows] == [2, 3]


# -- two schemas -----------------------------------------------------------------------


def test_fields_of_other_versions():
    """Aliases, defaults, what is missing, units of the writer."""
    writer = info(fields(old="int", t=logical("timestamp-millis"), n=["null", "int"]))
    reader = info({
        "type": "record", "name": "Other", "fields": [
            {"name": "added", "type": "double", "default": 1.5},
            {"name": "renamed", "type": "long", "aliases": ["old"]},
            {"name": "t", "type": logical("timestamp-micros")},
            {"name": "n", "type": "int", "default": 7},
            {"name": "missing", "type": "string"},
            {"name": "data", "type": "bytes", "default": "\u00ff"},
            {"name": "wrong", "type": "int", "default": "xx"},
            {"name": "many", "type": {"type": "array", "items": "int"}, "default": [1]},
        ],
    })  # fmt: skip
    rows, bad, _ = decode(writer, ['{"old":5,"t":1000,"added":9}', '{"n":8}'], reader)
    assert not bad
    second = dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    constant = {
        "added": 1.5, "missing": None, "data": b"\xff", "wrong": None, "many": [1],
    }  # fmt: skip
    assert rows == [
        {**constant, "renamed": 5, "t": second, "n": None},
        {**constant, "renamed": None, "t": None, "n": 8},
    ]


def test_null_where_the_schema_has_none():
    """The default of the query's schema; else NULL, or bad deeper within."""
    inner = {"type": "record", "name": "S", "fields": [
        {"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 3}
    ]}  # fmt: skip
    writer = info(fields(x=("int", 4), y="int", s=["null", inner]))
    values = ["{}", '{"x":null,"y":null,"s":{"a":1}}', '{"x":1,"y":2,"s":{"b":1}}']
    rows, bad, reason = decode(writer, values)
    assert rows[0] == {"x": 4, "y": None, "s": None}
    assert rows[1] == {"x": 4, "y": None, "s": {"a": 1, "b": 3}}
    assert (bad, reason) == ([2], "`s.a` is missing")
    array = info(fields(f={"type": "array", "items": "int"}))
    assert decode(array, ['{"f":[1,null]}'])[1:] == ([0], "`f[]` is null")


def test_what_a_user_asks_for():
    """Some fields, in another order, of wider or narrower types."""
    inner = {"type": "record", "name": "S", "fields": [
        {"name": "a", "type": "int"}, {"name": "b", "type": "string"}
    ]}  # fmt: skip
    writer = info(fields(i="int", j="long", f="float", s=inner))
    wanted = pa.schema([
        ("s", pa.struct([pa.field("b", pa.string(), nullable=False)])),
        ("j", pa.int16()), ("f", pa.float64()), ("i", pa.float64()),
    ])  # fmt: skip
    value = '{"i":1,"j":-5,"f":0.5,"s":{"a":"skipped","b":"x"}}'
    rows, bad, _ = decode(writer, [value, '{"j":40000}'], wanted=wanted)
    assert rows[0] == {"s": {"b": "x"}, "j": -5, "f": 0.5, "i": 1.0}
    assert bad == [1]
    assert decode(writer, [value, "x"], wanted=pa.schema([]))[1] == [1]


@pytest.mark.parametrize(
    ("writer", "reader", "wanted", "said"),
    [
        (fields(f="string"), fields(f="int"), None, "at `f` there is string, which"),
        (fields(f="long"), fields(f="int"), None, "cannot be read as int"),
        (fields(f="int"), None, pa.string(), "`f` int cannot be of type string"),
        (fields(f="long"), None, pa.float64(), "cannot be of type double"),
        (
            fields(f=record("int", name="S")),
            None,
            pa.int32(),
            "cannot be of type int32",
        ),
        (fields(g="int"), None, pa.int32(), "there is no field `f`"),
        (fields(f=logical("date")), None, pa.int64(), "cannot be of type int64"),
        (
            fields(f=logical("time-micros")),
            fields(f=logical("timestamp-micros")),
            None,
            "which cannot be read as timestamp-micros",
        ),
        ("int", fields(f="int"), None, "int cannot be read as record R"),
        (
            fields(f={"type": "array", "items": "int"}),
            None,
            pa.map_(pa.string(), pa.int32()),
            r"at `f` array<int> cannot be of type map<string, int32>",
        ),
        (
            fields(f={"type": "map", "values": "int"}),
            None,
            pa.map_(pa.int32(), pa.int32()),
            r"at `f` map<int> cannot be of type map<int32, int32>",
        ),
        (
            fields(f={"type": "array", "items": ["null", "int"]}),
            None,
            pa.list_(pa.field("element", pa.int32(), nullable=False)),
            r"`f\[\]` may be null",
        ),
        (
            fields(f={"type": "map", "values": ["null", "int"]}),
            None,
            pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
            "`f{}` may be null",
        ),
        (
            fields(f=record(["null", "int"], name="S")),
            None,
            pa.struct([pa.field("f0", pa.int32(), nullable=False)]),
            "`f.f0` may be null",
        ),
        (
            fields(f={**record("int", name="S"), "fields": []}),
            fields(f=record("int", name="S")),
            pa.struct([pa.field("f0", pa.int32(), nullable=False)]),
            "the field `f.f0` was not written, and has no default value",
        ),
        (
            fields(f=["int", "string"]),
            None,
            pa.string(),
            r"at `f` \[int, string\] cannot be of type string",
        ),
        (
            fields(f=["string", {"type": "array", "items": "int"}]),
            fields(f="boolean"),
            None,
            "cannot be read as boolean",
        ),
        (
            fields(f="bytes"),
            fields(f=DECIMAL),
            None,
            r"at `f` bytes cannot be read as decimal128\(9, 2\)",
        ),
        (
            fields(f=DECIMAL),
            None,
            pa.decimal128(9, 1),
            r"at `f` bytes decimal cannot be of type decimal128\(9, 1\)",
        ),
        ({"type": "object", "properties": {}}, None, None, "JSON Schema"),
    ],
)
def test_what_cannot_be_planned(writer: Any, reader: Any, wanted: Any, said: str):
    """The error names the field."""
    with pytest.raises(InvalidSchemaError, match=said):
        planned(
            info(writer),
            None if reader is None else info(reader),
            None if wanted is None else asked(wanted),
        )


def nested_defaults(levels: int, items: int) -> Any:
    """A field whose default is a list of records, each with such a field."""
    type_ = fields(x=("long", 1)) | {"name": "R_"}
    for level in range(levels + 1):
        array = {"type": "array", "items": type_}
        type_ = fields(a=(array, [{}] * items)) | {"name": f"R{level}"}
    return type_


def test_defaults_within_defaults_are_bounded():
    """A schema of few bytes does not become a default of millions of values."""
    writer = info(fields(id="int"))
    for tree in (nested_defaults(9, 10), nested_defaults(20, 1000)):
        reader = info(fields(id="int", b=(tree, {})))
        with pytest.raises(InvalidSchemaError, match=r"holds more than|pairs of types"):
            planned(writer, reader)


def test_unions_of_a_writer_are_bounded():
    """A union within each branch of another does not multiply the plan for ever."""

    def written(depth: int, number: int, known: set[str]) -> Any:
        name = f"W{depth}_{number}"
        if name in known:
            return name
        known.add(name)
        below = [written(depth - 1, one, known) for one in range(10)] if depth else []
        return fields(f=below or "int") | {"name": name}

    own = fields(f="int")
    for level in range(8):
        own = fields(f=own) | {"name": f"R{level}"}
    with pytest.raises(InvalidSchemaError, match="more than 20,000 pairs of types"):
        planned(info(written(8, 0, set())), info(own))


def test_other_roots():
    """What is no record is the column `value`."""
    assert decode(info("int"), ["1", "x", None])[0] == [
        {"value": 1}, {"value": None}, {"value": None}
    ]  # fmt: skip
    ints = info({"type": "array", "items": "int"})
    assert decode(ints, ["[1,2]"])[0] == [{"value": [1, 2]}]
    with pytest.raises(InvalidSchemaError, match="no field `x`"):
        planned(info("int"), wanted=pa.schema([("x", pa.int32())]))


def test_bytes_before_each_value():
    """Those that Kafka Connect's converter writes are skipped."""
    writer = info(fields(f="int"), __AVRO_READ_OFFSET__="5")
    rows, bad, _ = decode(
        writer, [b'\0\xff\0\0\1{"f":1}', b"\0\0\0\0\1", b"\0", None, b""]
    )
    assert [row["f"] for row in rows] == [1, None, None, None, None]
    assert bad == [1, 2]
    with pytest.raises(InvalidSchemaError, match="__AVRO_READ_OFFSET__"):
        planned(info(fields(f="int"), __AVRO_READ_OFFSET__="x"))


# -- size and depth --------------------------------------------------------------------


def test_large_values():
    """A value of some MiB is read as any other."""
    text = "x" * (5 * 2**20)
    values = [json.dumps({"d": at, "s": text, "ok": True}) for at in range(3)]
    made, wanted = planned(PLAIN, wanted=columns_of(PLAIN))
    rows = check(
        made.decode(as_array([*values, '{"d":9}']), None), wanted, 4
    ).to_pylist()
    assert [row["d"] for row in rows] == [0, 1, 2, 9]
    assert rows[2]["s"] == text


@pytest.mark.parametrize("bomb", ['{"a":', "[", '[{"a":[0,'])
def test_deep_values(bomb: str):
    """They are bad, also in a field that nobody asked for, and nothing falls over."""
    depth = 100_000
    ends = {'{"a":': "}", "[": "]", '[{"a":[0,': "]}]"}
    value = f'{{"d":1,"z":{bomb * depth}1{ends[bomb] * depth}}}'
    good = '{"d":2,"z":' + bomb * 100 + "1" + ends[bomb] * 100 + "}"
    rows, bad, reason = decode(PLAIN, [good, value, good])
    assert bad == [1]
    assert "nested too deeply" in reason
    assert [row["d"] for row in rows] == [2, None, 2]


def test_many_values():
    """Rows keep their places across all that is parsed together."""
    count = 40_000
    values = [f'{{"i":{at},"s":"{at}"}}' for at in range(count)]
    values[17] = values[20_000] = "x"
    values[30_000] = ""
    made, wanted = planned(PLAIN, wanted=columns_of(PLAIN))
    decoded = made.decode(as_array(values), None)
    check(decoded, wanted, count)
    expected = [None if at in (17, 20_000, 30_000) else at for at in range(count)]
    assert decoded.columns[0].to_pylist() == expected
    assert list(decoded.bad) == [17, 20_000]
    assert made.rows_alone == 2


# -- both ways are one -----------------------------------------------------------------

ALL = info(
    fields(
        i=["null", "int"],
        l=("long", 5),
        d=["null", "double"],
        f=["null", "float"],
        b=["null", "boolean"],
        s=["null", "string"],
        by=["null", "bytes"],
        dec=["null", {"type": "bytes", "logicalType": "decimal",
                      "precision": 6, "scale": 2}],
        date=["null", logical("date")],
        ts=["null", logical("timestamp-millis")],
        tm=["null", logical("time-micros")],
        xs=["null", {"type": "array", "items": ["null", "int"]}],
        ys=["null", {"type": "array", "items": "int"}],
        sub=["null", {"type": "record", "name": "S", "fields": [
            {"name": "a", "type": "int"}, {"name": "b", "type": ["null", "string"]}
        ]}],
    )
)  # fmt: skip
NAMES = ["i", "l", "d", "f", "b", "s", "by", "dec", "date", "ts", "tm", "xs", "ys",
         "sub", "a", "z"]  # fmt: skip
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**65), 2**65)
    | st.integers(-5, 5)
    | st.floats()
    | st.decimals(-1000, 1000, places=2).map(float)
    | st.text(max_size=5)
    | st.sampled_from(["NaN", "Infinity", "AP9h", "1.5", "2024-02-29", "]]]]]", "\0"])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5)
    ),
    max_leaves=12,
)
FITTING = st.fixed_dictionaries(
    {},
    optional={
        "i": st.none() | st.integers(-(2**31), 2**31 - 1),
        "l": st.none() | st.integers(-(2**63), 2**63 - 1),
        "d": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9),
        "f": st.floats(allow_nan=False, allow_infinity=False),
        "b": st.booleans(),
        "s": st.text(max_size=8),
        "by": st.binary(max_size=4).map(lambda it: base64.b64encode(it).decode()),
        "dec": st.decimals(-99, 99, places=2).map(str)
        | st.integers(-10_000, 10_000)
        | st.floats(-100, 100),
        "date": st.integers(-(2**31), 2**31 - 1),
        "ts": st.integers(-(2**60), 2**60),
        "tm": st.integers(-5, 86_400_000_005),
        "xs": st.lists(st.none() | st.integers(-9, 9), max_size=3),
        "ys": st.lists(st.none() | st.integers(-9, 9), max_size=3),
        "sub": st.none()
        | st.fixed_dictionaries({"a": st.integers(-9, 9)}, optional={"b": st.text()}),
        "z": JSON,
    },
)
PAYLOADS = (
    st.none()
    | st.binary(max_size=12)
    | st.binary(max_size=3).map(lambda it: b'{"z":"' + it + b'","i":1}')
    | st.builds(
        lambda value, indent, ascii_: json.dumps(
            value, indent=indent, ensure_ascii=ascii_
        ).encode("utf-8", "replace"),
        FITTING | st.dictionaries(st.sampled_from(NAMES), JSON, max_size=6) | JSON,
        st.none() | st.just(1),
        st.booleans(),
    )
    | st.lists(
        st.sampled_from(
            [b'{"i":1', b"}", b"]", b"[", b",", b'"x":', b"{", b'"', b"\n", b"]]]]]",
             b"[[[[[", b'{"v":', b'{"i":1}', b"1", b" ", b"\\", b"null"]
        ),
        max_size=9,
    ).map(b"".join)
)  # fmt: skip


def shown(column: pa.Array) -> str:
    """A column as a text: Python has no room for some dates, and NaN equals itself."""
    return column.to_string(window=100)


def one_by_one(made: JsonDecoder, values: pa.BinaryArray) -> Decoded:
    """Decode without the loops."""
    alone = JsonDecoder(made._columns, made._offset)
    alone._is_compiled = False
    return alone.decode(values, None)


@settings(max_examples=80)
@example([b'{"i":1},"x":{}', b'{"i":2}'], 0)
@example([b'{"i":1}]]]]],"x":[[[[[{}', b""], 0)
@example([b'{"l":null}', b'{"ys":[null]}'], 0)
@given(st.lists(PAYLOADS, max_size=6), st.integers(0, 2))
def test_parsed_together_or_one_by_one(values: list[bytes | None], first: int):
    """The rows are the same, for any JSON and for any bytes."""
    made, wanted = planned(ALL)
    array = pa.array(values, pa.binary()).slice(first)
    together, alone = made.decode(array, None), one_by_one(made, array)
    check(together, wanted, len(array))
    check(alone, wanted, len(array))
    assert list(together.bad) == list(alone.bad)
    assert together.reason == alone.reason
    for one_way, other_way in zip(together.columns, alone.columns, strict=True):
        assert one_way.equals(other_way) or shown(one_way) == shown(other_way)
    for row, value in enumerate(array.to_pylist()):
        by_itself, _ = planned(ALL)
        found = by_itself.decode(pa.array([value], pa.binary()), None)
        assert bool(found.bad) == (row in together.bad)
        for column, single in zip(together.columns, found.columns, strict=True):
            own = column.slice(row, 1)
            assert own.equals(single) or shown(own) == shown(single)


@settings(max_examples=60)
@given(st.lists(FITTING.filter(lambda it: "z" not in it), min_size=1, max_size=5))
def test_ordinary_values_are_read_as_python_does(values: list[dict[str, Any]]):
    """Python's own parser is the second opinion."""
    reading = pa.schema([columns_of(ALL).field(it) for it in ("i", "l", "d", "b", "s")])
    made, wanted = planned(ALL, wanted=reading)
    data = as_array([json.dumps(it) for it in values])
    rows = check(made.decode(data, None), wanted, len(values)).to_pylist()
    for row, value in zip(rows, values, strict=True):
        own = {name: value.get(name) for name in reading.names}
        own["l"] = 5 if own["l"] is None else own["l"]
        assert row == own
    assert is_by_loops(made) or any(it.get("l") is None for it in values)


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
DATE = {"type": "int", "logicalType": "date"}


@pytest.mark.parametrize(
    "token", ["1e9999999999999999999", "-1E-9999999999999999999", "1e999999999"]
)
@pytest.mark.parametrize("type_", ["int", "long", MILLIS, DATE, DECIMAL])
def test_exponents_without_end(type_: Any, token: str):
    """They are bad values, and no other error."""
    rows, bad, reason = decode(info(fields(f=type_)), [f'{{"f":{token}}}', '{"f":1}'])
    assert bad == [0]
    assert token in reason
    assert rows[1]["f"] is not None


def test_a_default_of_many_digits():
    """As the schema has it, to the last digit."""
    unscaled = 10**37 + 1_234_567
    text = unscaled.to_bytes(16, "big").decode("latin-1")
    reader = info(fields(f=({**DECIMAL, "precision": 38}, text)))
    rows, _, _ = decode(info(fields(g="int")), ["{}"], reader)
    assert rows == [{"f": Decimal(unscaled).scaleb(-2, Context(prec=40))}]


# -- decimals -------------------------------------------------------------------------


def _decimal_type(precision: int, scale: int) -> dict[str, Any]:
    return {
        "type": "bytes",
        "logicalType": "decimal",
        "precision": precision,
        "scale": scale,
    }


DIGITS = st.text("0123456789", min_size=1, max_size=45)


@st.composite
def spelled_decimals(draw: st.DrawFn) -> str:
    """A number as a producer may write it, also in quotes or by its codes."""
    whole = draw(DIGITS).lstrip("0") or "0"
    number = draw(st.sampled_from(["", "-"])) + whole
    if draw(st.booleans()):
        number += "." + draw(DIGITS)
    if draw(st.booleans()):
        number += draw(st.sampled_from(["e", "E", "e+", "E-"]))
        number += str(draw(st.integers(0, 60)))
    spelling = draw(st.sampled_from(["number", "text", "codes"]))
    if spelling == "number":
        return number
    if spelling == "text":
        return f'"{number}"'
    return '"' + "".join(f"\\u{ord(character):04x}" for character in number) + '"'


@given(
    st.sampled_from([(5, 2), (38, 0), (38, 2), (38, 10), (38, 38)]),
    st.lists(spelled_decimals(), min_size=1, max_size=8),
)
@example((38, 10), ["-51182913907857696820473812471465"])
@example((38, 2), ["-45091189115471535821001435675797993980"])
@example((5, 2), ["1E-41", "123456789012345678901234567890E-41", "0." + "0" * 45])
def test_a_decimal_is_the_same_however_many_come_together(
    size: tuple[int, int], numbers: list[str]
):
    """Whether the loops read rows changes no value and no bad row."""
    schema = info(fields(d=_decimal_type(*size)))
    values = as_array([f'{{"d":{number}}}' for number in numbers])
    together, wanted = planned(schema)
    alone, _ = planned(schema)
    alone._is_compiled = False
    rows, expected = together.decode(values, None), alone.decode(values, None)
    assert check(rows, wanted, len(values)).equals(check(expected, wanted, len(values)))
    assert list(rows.bad) == list(expected.bad)


HUGE_EXPONENTS = """
from tests.arrow.values.test_json import DECIMAL, decode, fields, info
many = info(fields(d=DECIMAL, many={"type": "array", "items": DECIMAL}))
good = ['{"d":1.5,"many":[2.5]}'] * 100
for number in ("1E-999999999", "1e-5000000", '"1E-999999999"', '"1\\\\u0045-999999999"',
               "-0.1E-2147483648", "1E999999999", "0E-999999999", " 1E-999999999 ",
               '".1E-999999999"'):
    for value in ('{"d":%s}', '{"d":1,"many":[1,%s]}', '{"d":1,"many":[%s , 2]}'):
        rows, bad, _ = decode(many, [*good, value % number, *good])
        assert bad in ([], [100]), (number, bad)
        assert len(rows) == 201
        if not number.startswith("0"):
            assert bad == [100], (number, bad)
print("alive")
"""


def test_huge_exponents_are_bad_rows_and_end_no_process():
    """In a child process, which a crash of the loops ends."""
    result = subprocess.run(
        [sys.executable, "-c", HUGE_EXPONENTS], capture_output=True, text=True
    )
    assert (result.returncode, result.stdout) == (0, "alive\n"), result.stderr


def test_decimals_beside_texts_with_digits_are_read_together():
    """Texts such as UUIDs are no reason to read rows one by one."""
    made, _ = planned(info(fields(d=_decimal_type(38, 18), s="string", f="double")))
    value = (
        '{"d":12345678901234567890.123456789012345678,"f":0.30000000000000004,'
        '"s":"1234e567-e89b-12d3-a456-4266141e4000 \\u00e9"}'
    )
    made.decode(as_array([value] * 100), None)
    assert is_by_loops(made)


def test_a_name_that_is_half_a_surrogate_pair():
    """The error is that of an invalid schema, also below the top."""
    name = "\ud800"
    nested = {"type": "record", "name": "N", "fields": [{"name": name, "type": "int"}]}
    for tree in (fields(**{name: "int"}), fields(f=nested)):
        with pytest.raises(InvalidSchemaError, match="not Unicode"):
            columns_of(info(tree))
