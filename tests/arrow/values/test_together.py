# SPDX-License-Identifier: Apache-2.0
"""Types that hold the values of several topics, and the part of each topic in them.

What decoders make of these is in ``tests/source/plan/test_topics_read_together.py``.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pulsar_spark.arrow.values.sql_types import tree_of, type_of
from pulsar_spark.arrow.values.together import (
    completed,
    distinct,
    joined,
    part_of,
    paths,
    takes_nulls,
    units,
    with_types,
    with_unit,
)
from pulsar_spark.schemas.info import InvalidSchemaError

INT, LONG, TEXT = pa.int32(), pa.int64(), pa.string()


def struct(**types: Any) -> pa.StructType:
    """A struct; a field whose name ends in ``_not_null`` may not be NULL."""
    return pa.struct(
        [
            pa.field(name, type_, "_not_null" not in name)
            for name, type_ in types.items()
        ]
    )


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (pa.int8(), LONG, LONG),
        (pa.int16(), pa.float32(), pa.float32()),
        (INT, pa.float32(), pa.float64()),
        (LONG, pa.float64(), None),
        (pa.decimal128(5, 2), pa.decimal128(9, 4), pa.decimal128(9, 4)),
        (pa.decimal128(38, 0), pa.decimal128(5, 2), None),
        (LONG, pa.decimal128(20, 0), pa.decimal128(20, 0)),
        (LONG, pa.decimal128(5, 2), pa.decimal128(21, 2)),
        (TEXT, pa.binary(), None),
        (LONG, pa.timestamp("us", "UTC"), None),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), None),
        (pa.bool_(), INT, None),
        (pa.list_(INT), pa.list_(LONG), pa.list_(LONG)),
        (pa.list_(INT), LONG, None),
        (pa.map_(INT, INT), pa.map_(LONG, LONG), pa.map_(LONG, LONG)),
        (pa.map_(TEXT, INT), pa.map_(LONG, INT), None),
        (struct(x=INT), struct(X=INT), None),
        (struct(x=INT), struct(x=TEXT), None),
        (struct(x=INT), struct(x=LONG, y=INT), struct(x=LONG, y=INT)),
    ],
)
def test_types_that_hold_both(
    one: pa.DataType, other: pa.DataType, expected: pa.DataType | None
) -> None:
    """All values of both, whichever comes first; None where there is none."""
    assert joined([one, other]) == expected
    assert joined([other, one]) == expected


def test_the_order_of_fields() -> None:
    """That of the first, then what others add; NULL is allowed within all."""
    types = [
        struct(b=INT, a_not_null=INT),
        struct(c=INT),
        struct(a_not_null=INT, d=INT),
    ]
    expected = pa.struct([(name, INT) for name in ("b", "a_not_null", "c", "d")])
    assert joined(types) == expected
    assert joined(types[:1]) == pa.struct([("b", INT), ("a_not_null", INT)])


PART = struct(x=pa.list_(struct(y=INT)), m=pa.map_(TEXT, struct(y=INT)))
WHOLE = struct(
    w=TEXT,
    x=pa.list_(struct(v=struct(u=INT), y=INT)),
    m=pa.map_(TEXT, struct(y=INT, z=pa.list_(INT))),
)


def test_the_part_of_a_topic() -> None:
    """What it has at any depth; what may not be NULL is left to a decoder."""
    assert part_of(WHOLE, PART) == PART
    assert part_of(PART, WHOLE) == PART
    for wanted in (struct(a_not_null=INT, x=INT), struct(a=INT)):
        assert part_of(wanted, struct(x=INT)) == wanted
    assert part_of(struct(a=INT), struct()) == struct()
    assert part_of(struct(a=INT), TEXT) == struct(a=INT)
    assert part_of(pa.list_(struct(a=INT)), TEXT) == pa.list_(struct(a=INT))


def test_the_whole_of_a_part() -> None:
    """Values stay where they are, also of a slice; the rest is NULL."""
    rows = [
        {"x": [{"y": 1}, None], "m": [("k", {"y": 2})]},
        None,
        {"x": None, "m": []},
        {"x": [], "m": [("k", None), ("l", {"y": None})]},
    ]
    whole = [
        {
            "w": None,
            "x": [{"v": None, "y": 1}, None],
            "m": [("k", {"y": 2, "z": None})],
        },
        None,
        {"w": None, "x": None, "m": []},
        {"w": None, "x": [], "m": [("k", None), ("l", {"y": None, "z": None})]},
    ]
    part = pa.array([*rows, *rows], PART)
    for start, end in ((0, 8), (1, 3), (3, 7), (0, 0)):
        array = completed(part.slice(start, end - start), WHOLE)
        array.validate(full=True)
        assert array.type == WHOLE
        assert array.to_pylist() == [*whole, *whole][start:end]
    lists = pa.array([None, [{"y": 1}], [], [None, {"y": None}]], PART.field(0).type)
    found = completed(lists.slice(1), WHOLE.field(1).type)
    assert found.to_pylist() == [
        [{"v": None, "y": 1}],
        [],
        [None, {"v": None, "y": None}],
    ]


def test_units() -> None:
    """Of numbers at any depth, which stay numbers."""
    number = with_unit(pa.field("n", LONG), "ms")
    own = pa.field(
        "a",
        pa.struct([number, pa.field("l", pa.list_(number)), pa.field("o", LONG)]),
    )
    assert units(own, own.type) == {"a.n": "ms", "a.l[]": "ms"}
    wanted = struct(n=pa.timestamp("us"), l=pa.list_(pa.float64()), x=INT)
    assert units(own, wanted) == {"a.l[]": "ms"}
    mapped = pa.field("m", pa.map_(TEXT, number))
    assert units(mapped, pa.map_(TEXT, LONG)) == {"m{}": "ms"}
    assert units(own, LONG) == {}


def test_null_within() -> None:
    """What may be NULL needs a place; a column itself may always be."""
    not_null, may_be = pa.field("x", INT, nullable=False), pa.field("x", INT)
    for make in (
        lambda field: pa.struct([field]),
        pa.list_,
        lambda field: pa.map_(TEXT, field),
        lambda field: pa.list_(pa.list_(field)),
    ):
        assert takes_nulls(make(may_be), make(not_null))
        assert takes_nulls(make(not_null), make(not_null))
        assert not takes_nulls(make(not_null), make(may_be))


def test_other_types() -> None:
    """Are taken, but for what may be NULL within them alone."""
    columns = pa.schema([("a", struct(x_not_null=INT)), ("b", INT), ("c", INT)])
    other = pa.schema([("b", LONG), ("a", pa.struct([("x_not_null", INT)]))])
    expected = columns.set(1, pa.field("b", LONG))
    assert with_types(columns, other) == expected


def test_names() -> None:
    """Paths of all; two that differ by case only are an error."""
    columns = pa.schema([("a", WHOLE)])
    found = paths(columns)
    assert ("a", "x", "v", "u") in found
    assert ("a", "m", "z") in found
    assert len(found) == 9
    distinct(["a", "b"])
    for where, said in (("", "`a` and `A` differ"), ("s", "`a` and `A` of `s` differ")):
        with pytest.raises(InvalidSchemaError, match=said):
            distinct(["a", "b", "A"], where)


def test_types_as_json() -> None:
    """Come back, but for what may be NULL; what is no type is an error."""
    for type_ in (
        WHOLE,
        pa.decimal128(38, 4),
        pa.timestamp("us", "UTC"),
        pa.timestamp("us"),
        pa.list_(pa.map_(TEXT, pa.date32())),
    ):
        assert type_of(tree_of(type_)) == type_
    for tree in ("WORDS", 1, {"STRUCT": 1}, {"STRUCT": [1]}, {"MAP": ["INT"]}, None):
        with pytest.raises(ValueError, match="is no type of a column"):
            type_of(tree)
