# SPDX-License-Identifier: Apache-2.0
"""Unions in JSON: values do not name their branch.

A read asks one branch after the other, and the first branch that takes the token has
the value. So a write must not choose a branch behind another that takes its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from pulsar_spark.arrow.values.json_tokens import UNITS, Number
from pulsar_spark.schemas.avro import NO_DEFAULT, AvroType, Kind, Logical, nullable

_TEXTS = (Kind.STRING, Kind.ENUM, Kind.BYTES, Kind.FIXED)
_FLOATS = (Kind.FLOAT, Kind.DOUBLE)

_WIDER = {
    frozenset({Kind.INT, Kind.LONG}): Kind.LONG,
    frozenset({Kind.FLOAT, Kind.DOUBLE}): Kind.DOUBLE,
}


def without_null(type_: AvroType) -> AvroType:
    """Return the type without null; for a union of numbers, the wider type."""
    type_, _ = nullable(type_)
    wider = _WIDER.get(frozenset(branch.kind for branch in type_.branches))
    if wider is None or any(branch.logical for branch in type_.branches):
        return type_
    return AvroType(wider)


def in_order(branches: Sequence[AvroType]) -> list[AvroType]:
    """Return branches in the order of a read.

    Texts are last, as numbers can be texts. Floats are behind integers, which have no
    number with a point: see ``is_whole``.
    """
    integers = [number for number, own in enumerate(branches) if is_integer(own)]

    def place(numbered: tuple[int, AvroType]) -> tuple[bool, int, bool]:
        number, branch = numbered
        is_float = branch.kind in _FLOATS
        if is_float:
            number = max(number, *integers, -1)
        return branch.kind in _TEXTS, number, is_float

    return [branch for _, branch in sorted(enumerate(branches), key=place)]


def is_integer(type_: AvroType) -> bool:
    """Return whether a type has whole numbers that are no days and no times."""
    return type_.kind in (Kind.INT, Kind.LONG) and type_.logical not in UNITS


def has_floats(branches: Sequence[AvroType]) -> bool:
    """Return whether there are floats among branches."""
    return any(branch.kind in _FLOATS for branch in branches)


def is_whole(token: object) -> bool:
    """Return whether a token is a number without a point and an exponent.

    All clients write floats with a point, also 1.0.
    """
    return isinstance(token, Number) and token.removeprefix("-").isdigit()


def earlier_branch(
    union: AvroType, chosen: AvroType, *, times_are_texts: bool
) -> AvroType | None:
    """Return a branch in which a read may have values of the chosen branch.

    Args:
        union: The union, of more than numbers of different sizes.
        chosen: The branch of the values.
        times_are_texts: Whether moments and times are ISO 8601, or else numbers.

    Returns:
        The branch; None where a read has the values in the chosen branch.
    """
    branches = in_order(union.branches)
    has_point = has_floats(branches)
    for branch in branches[: branches.index(chosen)]:
        if branch.kind is chosen.kind is Kind.RECORD:
            if _takes_record(branch, chosen, times_are_texts):
                return branch
        elif taken(branch, has_point) & _written(chosen, times_are_texts):
            return branch
    return None


def _takes_record(earlier: AvroType, chosen: AvroType, times_are_texts: bool) -> bool:
    """Return whether a read may take an object for another record."""
    fields = {field.name: field.type for field in chosen.fields}
    for field in earlier.fields:
        _, is_nullable = nullable(field.type)
        is_required = not is_nullable and field.default is NO_DEFAULT
        if field.name not in fields:
            if is_required:
                return False
            continue
        _, may_be_null = nullable(fields[field.name])
        own = field.type.branches or (field.type,)
        theirs = fields[field.name].branches or (fields[field.name],)
        read = set().union(*(taken(branch, has_floats(own)) for branch in own))
        written = set().union(*(_written(branch, times_are_texts) for branch in theirs))
        if not read & written and (is_required or not may_be_null):
            return False
    return True


#: What a type is in JSON, but for what has a logical type.
_TOKENS = {
    Kind.NULL: "null",
    Kind.BOOLEAN: "boolean",
    Kind.INT: "whole",
    Kind.LONG: "whole",
    Kind.FLOAT: "point",
    Kind.DOUBLE: "point",
    Kind.STRING: "text",
    Kind.ENUM: "text",
    Kind.BYTES: "text",
    Kind.FIXED: "text",
    Kind.ARRAY: "array",
    Kind.MAP: "object",
    Kind.RECORD: "object",
}


def is_text_of_java(type_: AvroType) -> bool:
    """Return whether the form of Java has moments or times of a type as texts.

    A java.util.Date, which is a type with a name, is a number.
    """
    return (
        type_.logical in UNITS and type_.logical is not Logical.DATE and not type_.name
    )


def _written(type_: AvroType, times_are_texts: bool) -> set[str]:
    """Return the tokens that are written, null left out."""
    if type_.logical is Logical.DECIMAL:
        return {"point" if type_.scale else "whole"}
    if times_are_texts and is_text_of_java(type_):
        return {"text"}
    return {_TOKENS[type_.kind]} - {"null"}


def taken(type_: AvroType, has_floats: bool) -> set[str]:
    """Return the tokens that a read takes, though not every value."""
    if type_.logical is Logical.DECIMAL:
        return {"whole", "point", "text"}
    if type_.logical in UNITS:
        return {"whole", "point", "text", "array"}
    if is_integer(type_):
        return {"whole"} if has_floats else {"whole", "point"}
    numbers = {"whole", "point"} if type_.kind in _READ_FROM_NUMBERS else set()
    return {_TOKENS[type_.kind], *numbers}


_READ_FROM_NUMBERS = (*_FLOATS, Kind.STRING, Kind.ENUM)
