# SPDX-License-Identifier: Apache-2.0
"""Protobuf to columns, in all forms of the kernel, beside the official runtime."""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.arrow.values import Decoded, ValueSettings, protobuf
from pulsar_spark.loops.protobuf_values import MAX_DEPTH, MAX_FREE_BYTES
from tests.support import kernels
from tests.support.protobuf_schemas import (
    KEYS,
    REPEATED,
    Field,
    add_map,
    as_written,
    expected,
    field,
    files,
    fill,
    info,
    message,
    message_class,
    mutated,
    payloads,
    proto_file,
    rows,
)

EXAMPLES = settings(max_examples=60, deadline=None)


@pytest.fixture(params=kernels.FORMS, scope="module")
def kernel(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Each form of the kernel, as the decoder uses it."""
    form = kernels.load(request.param, "protobuf_values")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("Column", "Level", "Table"):
            patch.setattr(protobuf, name, getattr(form, name))
        yield form


def decode(
    schema: Any, values: Sequence[bytes | None], written: Any = None
) -> tuple[pa.Schema, Decoded]:
    """Decode values into all columns of a schema, theirs if not another was.

    Some values lie before the first.
    """
    columns = protobuf.columns_of(schema)
    decoder = protobuf.decoder(written or schema, schema, columns, ValueSettings())
    array = pa.array([None, b"\xff", *values], pa.binary())[2:]
    return columns, decoder.decode(array, None)


def decoded(schema: Any, *values: bytes | None) -> list[Any]:
    """The rows of values, of which none is bad."""
    columns, found = decode(schema, values)
    assert not found.bad, found.reason
    return rows(found.columns, columns, len(values))


def fault(schema: Any, value: bytes) -> str:
    """What is wrong with a value; the one after it is read."""
    _, found = decode(schema, [b"", value, None, b""])
    assert found.bad == [1]
    for column in found.columns:
        column.validate(full=True)
        assert column.is_null().to_pylist()[1:3] == [True, True]
        assert column[0].equals(column[3])
    return found.reason.partition(": ")[2]


@given(data=st.data())
@EXAMPLES
def test_beside_the_runtime(kernel: Any, data: st.DataObject) -> None:
    """Each row is what the runtime reads, and bad where that refuses the payload."""
    file = data.draw(files())
    open_ = message_class(as_written(file))
    enums = message_class(file).DESCRIPTOR
    values: list[bytes | None] = []
    for _ in range(data.draw(st.integers(1, 6))):
        values.append(payloads(data.draw, open_))
        if data.draw(st.booleans()):
            values[-1] = mutated(data.draw, values[-1] or b"")
        elif data.draw(st.integers(0, 9)) == 0:
            values[-1] = None
    columns, found = decode(info(file), values)
    for at, (value, row) in enumerate(
        zip(values, rows(found.columns, columns, len(values)), strict=True)
    ):
        wanted: dict[str, Any] = dict.fromkeys(columns.names)
        is_bad = False
        if value is not None:
            try:
                wanted = expected(open_.FromString(value), enums)
            except (DecodeError, UnicodeDecodeError):
                is_bad = True
        if file.syntax == "proto2" and at in found.bad and not is_bad:
            # The runtime does not look at texts here.
            _, alone = decode(info(file), [value])
            assert "is not UTF-8" in alone.reason
            is_bad = True
        assert (at in found.bad) == is_bad
        assert row == (dict.fromkeys(columns.names) if is_bad else wanted)


@given(data=st.data())
@EXAMPLES
def test_a_part_of_the_columns(kernel: Any, data: st.DataObject) -> None:
    """What is wanted does not depend on what else is wanted, nor on their order."""
    file = data.draw(files())
    open_ = message_class(as_written(file))
    value = payloads(data.draw, open_)
    schema = info(file)
    columns, whole = decode(schema, [value])
    names = data.draw(st.permutations(columns.names))
    names = names[: data.draw(st.integers(0, len(names)))]
    wanted = pa.schema([columns.field(name) for name in names])
    decoder = protobuf.decoder(schema, schema, wanted, ValueSettings())
    found = decoder.decode(pa.array([value], pa.binary()), None)
    assert not whole.bad
    assert not found.bad
    (row,) = rows(whole.columns, columns, 1)
    assert rows(found.columns, wanted, 1) == [{name: row[name] for name in names}]


@given(data=st.data())
@EXAMPLES
def test_maps(kernel: Any, data: st.DataObject) -> None:
    """Maps that the runtime has written are those that it reads."""
    key = data.draw(st.sampled_from(KEYS))
    given = message()
    add_map(given, "m", 1, key, "M1")
    inner = message(field("x", 1, Field.TYPE_INT32), name="M1")
    file = proto_file(given, inner)
    written = message_class(file)()
    fill(data.draw, written)
    payload = written.SerializeToString() * data.draw(st.integers(1, 2))
    assert decoded(info(file), payload) == [expected(written, written.DESCRIPTOR)]


EVERYTHING = message(
    field("i", 1, Field.TYPE_INT32),
    field("s", 2, Field.TYPE_STRING),
    field("z", 3, Field.TYPE_SINT64, REPEATED),
    field("d", 4, Field.TYPE_DOUBLE),
    field("m", 5, "M1"),
    field("l", 6, "M1", REPEATED),
    field("a", 7, "M1", oneof_index=0),
    field("b", 8, Field.TYPE_STRING, oneof_index=0),
    field("u", 2000, Field.TYPE_UINT64),
    field("e", 2001, "E"),
    oneofs=["o"],
)
add_map(EVERYTHING, "p", 9, Field.TYPE_STRING, Field.TYPE_INT32)
INNER = message(
    field("x", 1, Field.TYPE_INT32),
    field("y", 2, Field.TYPE_INT32, REPEATED),
    name="M1",
)
SCHEMA = info(proto_file(EVERYTHING, INNER))
NOTHING = {
    "i": 0,
    "s": "",
    "z": [],
    "d": bytes(8),
    "m": None,
    "l": [],
    "a": None,
    "b": None,
    "u": 0,
    "e": "ZERO",
    "p": {},
}


@pytest.mark.parametrize(
    ("payload", "changes"),
    [
        ("", {}),
        ("08 01", {"i": 1}),
        ("08 ff ff ff ff ff ff ff ff ff 01", {"i": -1}),
        ("08 01 08 02", {"i": 2}),  # the last one wins
        ("08 81 80 00", {"i": 1}),  # longer than it must be
        ("0d 01 00 00 00", {}),  # not a varint, so unknown
        ("12 01 61", {"s": "a"}),
        ("12 02 c3 a9 12 00", {"s": ""}),
        ("1a 02 01 02 18 03", {"z": [-1, 1, -2]}),  # packed and not
        ("2a 02 08 01 08 05 2a 03 12 01 07", {"i": 5, "m": {"x": 1, "y": [7]}}),
        ("32 02 08 01 08 01 32 00", {"i": 1, "l": [{"x": 1, "y": []}, NOTHING]}),
        ("3a 02 10 01 42 01 61", {"b": "a"}),  # takes the place of a
        ("42 01 61 3a 02 10 01", {"a": {"x": 0, "y": [1]}}),
        ("3a 02 10 01 42 00 3a 02 08 02", {"a": {"x": 2, "y": []}}),
        ("3a 02 10 01 3a 02 08 02", {"a": {"x": 2, "y": [1]}}),
        ("4a 05 0a 01 61 10 01 4a 00 4a 05 0a 01 61 10 02", {"p": {"a": 2, "": 0}}),
        ("4a 05 0a 01 61 18 01 4a 02 10 02", {"p": {"a": 0, "": 2}}),
        ("80 7d ff ff ff ff ff ff ff ff ff 01", {"u": 2**64 - 1}),
        ("88 7d 01", {"e": "ONE"}),
        ("88 7d 07", {"e": "7"}),
        ("53 5b 08 01 5c 54 08 01", {"i": 1}),  # groups that nobody knows
    ],
)
def test_bytes(kernel: Any, payload: str, changes: dict[str, Any]) -> None:
    """Payloads with their meaning."""
    wanted = {**NOTHING, **changes}
    wanted["l"] = [
        {"x": one["x"], "y": one["y"]} if "x" in one else {"x": 0, "y": []}
        for one in wanted["l"]
    ]
    assert decoded(SCHEMA, bytes.fromhex(payload)) == [wanted]


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ("08", "it ends within a field"),
        ("08 80", "it ends within a field"),
        ("12 02 61", "it ends within a field"),
        ("12 ff ff ff ff ff ff ff ff ff 01", "it ends within a field"),
        ("21 00 00", "it ends within a field"),
        ("1a 01 80", "it ends within a field"),
        ("2a 02 08 01 2a 01 08", "it ends within a field"),
        ("99 01 00 00", "it ends within a field"),
        ("53 08 01", "it ends within a field"),
        ("08" + "ff" * 10, "a number has more than ten bytes"),
        ("00 01", "a field has a tag that protobuf does not have"),
        ("0e", "a field has a tag that protobuf does not have"),
        ("76", "a field has a tag that protobuf does not have"),
        ("54", "a field has a tag that protobuf does not have"),
        ("53 5c", "a field has a tag that protobuf does not have"),
        ("88 80 80 80 80 00 01", "a field has a tag that protobuf does not have"),
        ("88 80 80 80 10 01", "a field has a tag that protobuf does not have"),
        ("12 01 ff", "the text of `s` is not UTF-8"),
        ("12 02 c0 80", "the text of `s` is not UTF-8"),
        ("12 03 ed a0 80", "the text of `s` is not UTF-8"),
        ("12 04 f4 90 80 80", "the text of `s` is not UTF-8"),
        ("12 02 e2 82", "the text of `s` is not UTF-8"),
        ("4a 03 0a 01 ff", "the text of `p.key` is not UTF-8"),
        ("53" * 101 + "54" * 101, "messages are nested more than 100 deep"),
    ],
)
def test_bad_values(kernel: Any, payload: str, said: str) -> None:
    """What is wrong is said; all columns are NULL, and the next value is read."""
    lots = "3202080132061202010208074a050a0161100142016112016118011a0203041801"
    assert fault(SCHEMA, bytes.fromhex(lots + payload)) == said


def test_as_deep_as_may_be(kernel: Any) -> None:
    """The official runtimes read messages as deep as this, and no deeper."""
    assert decoded(SCHEMA, b"\x53" * MAX_DEPTH + b"\x54" * MAX_DEPTH) == [NOTHING]


@given(text=st.binary(max_size=6) | st.text(max_size=6).map(str.encode))
@settings(max_examples=200, deadline=None)
def test_texts(kernel: Any, text: bytes) -> None:
    """A text is one where Python reads it."""
    _, found = decode(SCHEMA, [b"\x12" + bytes([len(text)]) + text])
    try:
        assert found.columns[1].to_pylist() == [text.decode()]
    except UnicodeDecodeError:
        assert found.bad == [0]


def test_empty_messages(kernel: Any) -> None:
    """Two bytes are a row of each column of an item; that has an end."""
    wide = message(
        *[field(f"f{n}", n, Field.TYPE_INT64) for n in range(1, 101)], name="M1"
    )
    lists = [field("l", 1, "M1", REPEATED), field("n", 2, Field.TYPE_INT64, REPEATED)]
    schema = info(proto_file(message(*lists), wide))
    too_much = "would take far more memory than its bytes"
    assert fault(schema, b"\x0a\x00" * 20_000) == f"`l` {too_much}"
    # Where they leave room for a few numbers only, these are what is too much.
    numbers = bytes([0x12, 100, *range(100)])

    def items(count: int) -> bytes:
        return b"\x0a\x00" * count

    last = bisect(
        range(20_000), 0, key=lambda n: len(decode(schema, [items(n) + numbers])[1].bad)
    )
    assert fault(schema, items(last) + numbers) == f"`n` {too_much}"
    few = MAX_FREE_BYTES // 1000
    assert len(decoded(schema, b"\x0a\x00" * few)[0]["l"]) == few


def test_changes_of_mind(kernel: Any) -> None:
    """A oneof whose messages have many columns is not changed without end."""
    wide = message(
        *[field(f"f{n}", n, Field.TYPE_INT64) for n in range(1, 201)], name="M1"
    )
    schema = info(
        proto_file(
            message(
                field("a", 1, "M1", oneof_index=0),
                field("b", 2, "M1", oneof_index=0),
                field("t", 3, Field.TYPE_STRING, oneof_index=0),
                oneofs=["o"],
            ),
            wide,
        )
    )
    too_often = "would take far more memory than its bytes"
    assert fault(schema, b"\x0a\x00\x12\x00" * 10_000) == f"`b` {too_often}"
    assert fault(schema, b"\x0a\x00\x1a\x00" * 10_000) == f"`t` {too_often}"
    (row,) = decoded(schema, b"\x0a\x02\x08\x01\x12\x00\x0a\x00")
    assert row["a"]["f1"] == 0
    assert row["b"] is None


NARROWER = [
    # Types of writer and reader; payloads of the last number that fits, and the next.
    (Field.TYPE_INT64, Field.TYPE_INT32, "08 ff ff ff ff 07", "08 80 80 80 80 08"),
    (Field.TYPE_FIXED32, Field.TYPE_INT32, "0d ff ff ff 7f", "0d 00 00 00 80"),
    (
        Field.TYPE_SFIXED64,
        Field.TYPE_INT32,
        "09 00 00 00 80 ff ff ff ff",
        "09 ff ff ff 7f ff ff ff ff",
    ),
]


@pytest.mark.parametrize(("old", "new", "fits", "too_far"), NARROWER)
def test_where_numbers_end(
    kernel: Any, old: Any, new: Any, fits: str, too_far: str
) -> None:
    """The last number that fits is read; the next is bad, in a packed list as well."""
    first, second = bytes.fromhex(fits), bytes.fromhex(too_far)
    writer = info(proto_file(message(field("a", 1, old))))
    reader = info(proto_file(message(field("a", 1, new))))
    _, found = decode(reader, [first, second, first], writer)
    assert found.bad == [1]
    assert found.reason.endswith("the number of `a` does not fit into its column")
    first_number, after, last_number = found.columns[0].to_pylist()
    assert abs(first_number) >= 2**31 - 1
    assert (after, last_number) == (None, first_number)

    writer = info(proto_file(message(field("a", 1, old, REPEATED))))
    reader = info(proto_file(message(field("a", 1, new, REPEATED))))
    lists = [bytes([0x0A, len(one) - 1]) + one[1:] for one in (first, second)]
    _, found = decode(reader, lists, writer)
    assert found.bad == [1]
    assert found.columns[0].to_pylist() == [[first_number], None]


def test_packed_numbers_that_are_cut(kernel: Any) -> None:
    """A list of doubles has a multiple of eight bytes."""
    schema = info(proto_file(message(field("d", 1, Field.TYPE_DOUBLE, REPEATED))))
    one = bytes.fromhex("000000000000f03f")
    assert decoded(schema, b"\x0a\x10" + one + one) == [{"d": [one, one]}]
    assert fault(schema, b"\x0a\x0f" + one + one[1:]) == "it ends within a field"


def group(name: str, number: int, **others: Any) -> Field:
    """A field of the message M1 between two tags."""
    found = field(name, number, "M1", **others)
    found.type = Field.TYPE_GROUP
    return found


GROUP = info(
    proto_file(
        message(
            group("g", 1),
            field("t", 2, Field.TYPE_STRING, oneof_index=0),
            group("h", 3, oneof_index=0),
            field("m", 4, "M1", oneof_index=0),
            field("n", 5, Field.TYPE_INT64, oneof_index=0),
            oneofs=["o"],
        ),
        message(field("x", 1, Field.TYPE_INT32), name="M1"),
        syntax="proto2",
    )
)


@pytest.mark.parametrize(
    ("payload", "wanted"),
    [
        ("0b 08 07 0c", {"x": 7}),
        ("0b 08 07 0c 0b 0c", {"x": 7}),  # the second says nothing of x
        ("0b 08 07 0c 08 05 0a 02 08 05", {"x": 7}),  # not a group, so unknown
        ("0a 02 08 05", None),
    ],
)
def test_groups(kernel: Any, payload: str, wanted: Any) -> None:
    """A group is a message between two tags; with another tag it is unknown."""
    (row,) = decoded(GROUP, bytes.fromhex(payload))
    assert row["g"] == wanted


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ("0b 08 07", "it ends within a field"),
        ("0b 08", "it ends within a field"),
        ("0b 1c", "a field has a tag that protobuf does not have"),
    ],
)
def test_bad_groups(kernel: Any, payload: str, said: str) -> None:
    """A group has an end, which is its own."""
    assert fault(GROUP, bytes.fromhex(payload)) == said


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ("12 01 61", "a"),
        ("12 01 61 1b 08 07 1c", None),
        ("12 01 61 22 02 08 07", None),
        ("12 01 61 22 01 08", None),  # nobody looks into it
        ("1b 08 07 1c 22 02 08 07 12 01 61", "a"),
        ("12 01 61 1b 08 1c", None),  # 1c is the number of x; the group does not end
    ],
)
def test_what_takes_the_place_of_another_unseen(
    kernel: Any, payload: str, text: str | None
) -> None:
    """A member of a oneof that nobody wants still takes the place of the one wanted."""
    found = only("t", bytes.fromhex(payload), b"\x12\x00")
    assert found.columns[0].to_pylist() == [text, ""]
    assert found.bad == ([0] if payload.endswith("08 1c") else [])


def test_numbers_that_nobody_wants(kernel: Any) -> None:
    """As above; they are written nowhere."""
    values = [bytes.fromhex(one) for one in ("12 01 61 28 64", "28 64 12 01 61")]
    assert only("t", *values).columns[0].to_pylist() == [None, "a"]


def test_texts_that_take_the_place_of_a_message_unseen(kernel: Any) -> None:
    """As above; nobody looks at the text."""
    values = [bytes.fromhex(one) for one in ("22 00 12 01 61", "12 01 ff 22 00")]
    found = only("m", *values)
    assert found.columns[0].to_pylist() == [None, {"x": None}]
    assert found.bad == []


def only(name: str, *values: bytes) -> Decoded:
    """One column of values that have groups."""
    wanted = pa.schema([protobuf.columns_of(GROUP).field(name)])
    decoder = protobuf.decoder(GROUP, GROUP, wanted, ValueSettings())
    return decoder.decode(pa.array(values, pa.binary()), None)


def test_any_bytes(kernel: Any) -> None:
    """Nothing raises, whatever the payloads are."""
    chance = random.Random(11)
    seed = bytes.fromhex(
        "0801120161180121000000000000000032061202010208074a050a0161100142016188"
    )
    values = [
        bytes(chance.choice(seed) for _ in range(chance.randrange(40)))
        for _ in range(3000)
    ]
    columns, found = decode(SCHEMA, values)
    assert 0 < len(found.bad) < 3000
    found_rows = rows(found.columns, columns, len(values))
    class_ = message_class(as_written(proto_file(EVERYTHING, INNER)))
    enums = message_class(proto_file(EVERYTHING, INNER)).DESCRIPTOR
    bad = set(found.bad)
    for at, value in enumerate(values):
        try:
            wanted = expected(class_.FromString(value), enums)
        except DecodeError:
            assert at in bad
        else:
            assert found_rows[at] == wanted
