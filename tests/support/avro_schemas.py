# SPDX-License-Identifier: Apache-2.0
"""Schemas of AVRO by chance, values of them, and later versions of them.

A union has at most one branch of those that fastavro does not tell apart in Python: one
number, one of text and bytes, one of a map and a record.
"""

from __future__ import annotations

import itertools
import struct
from typing import Any

from hypothesis import strategies as st

Tree = Any

_INT32 = st.integers(-(2**31), 2**31 - 1)
_INT64 = st.integers(-(2**63), 2**63 - 1)
_FLOAT = st.floats(width=32, allow_nan=False)
_DOUBLE = st.floats(allow_nan=False)

_VALUES = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": _INT32 | st.integers(-3, 3),
    "long": _INT64 | st.integers(-3, 3),
    "float": _FLOAT,
    "double": _DOUBLE,
    "string": st.text(max_size=20),
    "bytes": st.binary(max_size=20),
}
_NUMBERS = ("int", "long", "float", "double")
_PROMOTIONS = {
    "int": ("int", "long", "float", "double"),
    "long": ("long", "float", "double"),
    "float": ("float", "double"),
    "string": ("string", "bytes"),
    "bytes": ("bytes", "string"),
}
_SYMBOLS = ("RED", "GREEN", "blue_1")


class Names:
    """Gives each named type of a schema a name of its own."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def next(self) -> str:
        """Return a name."""
        return f"N{next(self._numbers)}"


@st.composite
def records(draw: st.DrawFn) -> Tree:
    """A record."""
    return _record(draw, Names(), 3)


def _record(draw: st.DrawFn, names: Names, depth: int) -> Tree:
    name = names.next()
    count = draw(st.integers(0 if depth < 3 else 1, 4))
    fields = [
        {"name": f"f{at}", "type": _type(draw, names, depth - 1)} for at in range(count)
    ]
    return {"type": "record", "name": name, "fields": fields}


def _type(draw: st.DrawFn, names: Names, depth: int) -> Tree:
    if draw(st.integers(0, 3)) == 0:
        return _union(draw, names, depth)
    return _plain(draw, names, depth, draw(st.integers(0, 3)))


def _plain(draw: st.DrawFn, names: Names, depth: int, group: int) -> Tree:
    """A type that is no union, of one of the groups of the module's docstring."""
    if group == 0:
        return draw(st.sampled_from(_NUMBERS))
    if group == 1:
        kind = draw(st.sampled_from(["string", "bytes", "enum", "fixed"]))
        if kind == "enum":
            count = draw(st.integers(1, 3))
            return {"type": kind, "name": names.next(), "symbols": [*_SYMBOLS[:count]]}
        if kind == "fixed":
            return {"type": kind, "name": names.next(), "size": draw(st.integers(0, 3))}
        return kind
    if group == 2 or depth < 1:
        return "boolean"
    kind = draw(st.sampled_from(["array", "map", "record"]))
    if kind == "record":
        return _record(draw, names, depth)
    items = "items" if kind == "array" else "values"
    return {"type": kind, items: _type(draw, names, depth - 1)}


def _union(draw: st.DrawFn, names: Names, depth: int) -> Tree:
    groups = draw(st.permutations(range(4 if depth > 0 else 3)))
    count = draw(st.integers(1, 3))
    branches = [_plain(draw, names, depth, group) for group in groups[:count]]
    if draw(st.booleans()):
        branches.insert(draw(st.integers(0, count)), "null")
    return branches


def values(tree: Tree) -> st.SearchStrategy[Any]:
    """Values of a type, as fastavro takes them."""
    if isinstance(tree, list):
        return st.one_of([values(one) for one in tree])
    if isinstance(tree, str):
        return _VALUES[tree]
    kind = tree["type"]
    if kind == "enum":
        return st.sampled_from(tree["symbols"])
    if kind == "fixed":
        return st.binary(min_size=tree["size"], max_size=tree["size"])
    if kind == "array":
        return st.lists(values(tree["items"]), max_size=3)
    if kind == "map":
        return st.dictionaries(st.text(max_size=3), values(tree["values"]), max_size=3)
    return st.fixed_dictionaries(
        {one["name"]: values(one["type"]) for one in tree["fields"]}
    )


@st.composite
def later(draw: st.DrawFn, tree: Tree) -> Tree:
    """A record that some values of this one can be read as."""
    return _later(draw, tree, is_top=True)


def _later(draw: st.DrawFn, tree: Tree, is_top: bool = False) -> Tree:
    if isinstance(tree, list):
        return _later_union(draw, tree)
    if isinstance(tree, str):
        return draw(st.sampled_from(_PROMOTIONS.get(tree, (tree,))))
    kind = tree["type"]
    if kind == "record":
        return _later_record(draw, tree)
    if kind == "enum":
        symbols = draw(st.permutations(tree["symbols"]))
        symbols = symbols[: draw(st.integers(1, len(symbols)))]
        default = {"default": symbols[0]} if draw(st.booleans()) else {}
        return {**tree, "symbols": [*symbols, "MORE"], **default}
    if kind in ("array", "map"):
        key = "items" if kind == "array" else "values"
        return {**tree, key: _later(draw, tree[key])}
    return tree


def _later_union(draw: st.DrawFn, tree: Tree) -> Tree:
    """Null stays; of the others at least one does, in any order."""
    others = draw(st.permutations([one for one in tree if one != "null"]))
    kept = [_later(draw, one) for one in others[: draw(st.integers(1, len(others)))]]
    return ["null", *kept] if "null" in tree else kept


def _later_record(draw: st.DrawFn, tree: Tree) -> Tree:
    fields = []
    for one in draw(st.permutations(tree["fields"])):
        change = draw(st.sampled_from(["", "", "", "gone", "renamed", "nullable"]))
        if change == "gone":
            continue
        field = {**one, "type": _later(draw, one["type"])}
        if change == "renamed":
            field |= {"name": f"new_{one['name']}", "aliases": ["x", one["name"]]}
        if change == "nullable" and not isinstance(field["type"], list):
            field["type"] = draw(st.permutations(["null", field["type"]]))
        fields.append(field)
    added = draw(
        st.lists(
            st.sampled_from(
                [
                    ("long", -7),
                    ("string", "é"),
                    ("bytes", "\u00ff"),
                    ("double", 1),
                    ("boolean", True),
                    (["null", "int"], None),
                    (["int", "null"], 3),
                    ({"type": "array", "items": "string"}, ["a", "b"]),
                    ({"type": "map", "values": "float"}, {"k": 1.5}),
                ]
            ),
            max_size=2,
        )
    )
    for at, (type_, default) in enumerate(added):
        fields.append({"name": f"added{at}", "type": type_, "default": default})
    return {**tree, "fields": draw(st.permutations(fields))}


def as_column(tree: Tree, value: Any) -> Any:
    """A value as a column has it: maps are pairs, unions structs of members."""
    if isinstance(tree, list):
        if value is None:
            return None
        others = [one for one in tree if one != "null"]
        (at,) = (at for at, one in enumerate(others) if _is_of(one, value))
        found = as_column(others[at], value)
        if len(others) == 1:
            return found
        return {f"member{n}": found if n == at else None for n in range(len(others))}
    if isinstance(tree, str):
        # fastavro gives defaults as the text of the schema has them, and numbers that
        # became floats as they were.
        if tree == "bytes" and isinstance(value, str):
            return value.encode("latin-1")
        if tree == "float":
            return struct.unpack("f", struct.pack("f", value))[0]
        return value
    if tree["type"] == "record":
        return {
            one["name"]: as_column(one["type"], value[one["name"]])
            for one in tree["fields"]
        }
    if tree["type"] == "array":
        return [as_column(tree["items"], one) for one in value]
    if tree["type"] == "map":
        return [(key, as_column(tree["values"], one)) for key, one in value.items()]
    return value


def _is_of(tree: Tree, value: Any) -> bool:
    kind = tree if isinstance(tree, str) else tree["type"]
    return type(value) is {
        "boolean": bool,
        "int": int,
        "long": int,
        "float": float,
        "double": float,
        "string": str,
        "enum": str,
        "bytes": bytes,
        "fixed": bytes,
        "array": list,
        "map": dict,
        "record": dict,
    }.get(kind)
