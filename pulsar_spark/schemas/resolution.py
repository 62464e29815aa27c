# SPDX-License-Identifier: Apache-2.0
"""AVRO's schema resolution: values of a writer's schema read by a reader's.

Implements "Schema Resolution" and "Aliases" of the Apache Avro specification 1.11, with
what Pulsar makes of it:

- Names of records matter in unions only, as to brokers and Java clients.
- An enum or a fixed has to have the same name, but for its namespace.
- A default is looked at when it is needed: brokers accept those of a wrong type.
- Units of times and scales of decimals are the writer's, and are converted: brokers
  take such a change for compatible. The specification would have the bare numbers.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pulsar_spark.schemas.avro import (
    NO_DEFAULT,
    AvroField,
    AvroType,
    Kind,
    Logical,
    nullable,
)
from pulsar_spark.schemas.info import InvalidSchemaError
from spark_topics.text import shorten

#: What may be read as what else.
_PROMOTIONS = {
    Kind.INT: (Kind.LONG, Kind.FLOAT, Kind.DOUBLE),
    Kind.LONG: (Kind.FLOAT, Kind.DOUBLE),
    Kind.FLOAT: (Kind.DOUBLE,),
    Kind.STRING: (Kind.BYTES,),
    Kind.BYTES: (Kind.STRING,),
}

_NAMED = (Kind.ENUM, Kind.FIXED)

#: More pairs of types than any plan has. Each branch of a writer's union is planned by
#: itself, so that unions within unions multiply.
_MAX_PAIRS = 20_000


class PlanTooLargeError(InvalidSchemaError):
    """Two schemas need more memory or time than any two of a real topic."""


class PairCount:
    """Counts the pairs of writer's and reader's types in a plan."""

    def __init__(self) -> None:
        self._pairs = 0

    def add(self, where: str) -> None:
        """Count a pair.

        Args:
            where: The path of fields to the pair, for the error.

        Raises:
            PlanTooLargeError: There are too many.
        """
        self._pairs += 1
        if self._pairs > _MAX_PAIRS:
            raise PlanTooLargeError(
                f"at `{where}` its unions and defaults make more than {_MAX_PAIRS:,} "
                "pairs of types. Register a schema with fewer types within each other"
            )


_TIMES = (Logical.TIME_MILLIS, Logical.TIME_MICROS)

#: Microseconds of one of each.
UNITS = {
    Logical.DATE: Fraction(86_400_000_000),
    Logical.TIME_MILLIS: Fraction(1000),
    Logical.TIME_MICROS: Fraction(1),
    Logical.TIMESTAMP_MILLIS: Fraction(1000),
    Logical.TIMESTAMP_MICROS: Fraction(1),
    Logical.TIMESTAMP_NANOS: Fraction(1, 1000),
    Logical.LOCAL_TIMESTAMP_MILLIS: Fraction(1000),
    Logical.LOCAL_TIMESTAMP_MICROS: Fraction(1),
    Logical.LOCAL_TIMESTAMP_NANOS: Fraction(1, 1000),
}


def is_readable(writer: AvroType, reader: AvroType) -> bool:
    """Return whether at least some values of a type can be read as another type.

    Records may be only where all their fields may. Neither type is a union.
    """
    return _is_readable(writer, reader, {})


def _is_readable(
    writer: AvroType, reader: AvroType, known: dict[tuple[int, int], bool]
) -> bool:
    """Return `is_readable`; records under examination count as readable."""
    if writer.kind is Kind.UNION:
        return any(_is_readable(branch, reader, known) for branch in writer.branches)
    if reader.kind is Kind.UNION:
        return any(_is_readable(writer, branch, known) for branch in reader.branches)
    if writer.kind is not reader.kind:
        return reader.kind in _PROMOTIONS.get(writer.kind, ())
    if writer.kind in _NAMED:
        return is_same_name(writer, reader) and writer.size == reader.size
    if writer.kind in (Kind.ARRAY, Kind.MAP):
        assert writer.items is not None
        assert reader.items is not None
        return _is_readable(writer.items, reader.items, known)
    if writer.kind is not Kind.RECORD:
        return True
    pair = (id(writer), id(reader))
    if pair not in known:
        known[pair] = True
        sources = source_fields(writer, reader)
        known[pair] = all(
            is_optional(field)
            if source is None
            else _is_readable(writer.fields[source].type, field.type, known)
            for field, source in zip(reader.fields, sources, strict=True)
        )
    return known[pair]


def is_optional(field: AvroField) -> bool:
    """Return whether a record that does not have a field can be read.

    The specification wants a default. The Python client declares fields of ``["null",
    T]`` without, and NULL is what they mean.
    """
    return field.default is not NO_DEFAULT or nullable(field.type)[1]


def is_same_name(writer: AvroType, reader: AvroType) -> bool:
    """Return whether names are equal, directly or by the reader's aliases."""
    own = _short(writer.name)
    return own in (_short(reader.name), *map(_short, reader.aliases))


def source_fields(writer: AvroType, reader: AvroType) -> list[int | None]:
    """Return the index of the writer's field for each field of the reader.

    That has the same name, or else one of the aliases; None where there is none. Where
    another field has got the old name of a field, the old values are those of the one
    with the alias, as in Java, unless the other field would then have no value.
    """
    places = {field.name: index for index, field in enumerate(writer.fields)}
    indexes = {field.name: index for index, field in enumerate(reader.fields)}
    sources: list[int | None] = [None] * len(reader.fields)
    renamed = [i for i, field in enumerate(reader.fields) if field.name not in places]

    def is_free(name: str) -> bool:
        if name not in indexes:
            return True
        field = reader.fields[indexes[name]]
        return is_optional(field) or not places.keys().isdisjoint(field.aliases)

    for index in renamed:
        aliases = filter(places.__contains__, reader.fields[index].aliases)
        names = sorted(filter(is_free, aliases), key=indexes.__contains__)
        if names:
            sources[index] = places.pop(names[0])
            if names[0] in indexes:  # that field has its aliases only
                renamed.append(indexes[names[0]])
    for index, field in enumerate(reader.fields):
        if index not in renamed:
            sources[index] = places.pop(field.name, None)
    return sources


def branch_of(writer: AvroType, branches: Sequence[AvroType]) -> int | None:
    """Return which branch of the reader's union values of this type are read as.

    The one of the same type, then the first that it may be promoted to. Of several
    that have names the one of the same name, then the one with that alias, then the
    same without namespaces, then the first that has what it takes.

    Args:
        writer: No union.
        branches: Those of the reader's.
    """
    same = [
        index
        for index, branch in enumerate(branches)
        if branch.kind is writer.kind and is_readable(writer, branch)
    ]
    for rule in (str, _short):
        for index in same:
            if rule(branches[index].name) == rule(writer.name):
                return index
        for index in same:
            if rule(writer.name) in map(rule, branches[index].aliases):
                return index
    if same:
        return same[0]
    for index, branch in enumerate(branches):
        if branch.kind is not writer.kind and is_readable(writer, branch):
            return index
    return None


def symbols_read(writer: AvroType, reader: AvroType) -> list[str | None]:
    """Return what each of the writer's symbols is read as; None for an error."""
    default = reader.default_symbol or None
    return [
        symbol if symbol in reader.symbols else default for symbol in writer.symbols
    ]


def factor(
    writer: AvroType, reader: AvroType, unit: Logical | None, where: str
) -> Fraction:
    """Return what the writer's numbers are multiplied with to be in a unit.

    Where the writer says no unit, the numbers are in the reader's.

    Args:
        writer: An int or a long.
        reader: The type that it is read as, in the same form.
        unit: What is wanted; None for the number as it is.
        where: The path of fields to it, for errors.

    Raises:
        InvalidSchemaError: The one is a time of the day, the other a date or a moment.
    """
    own = writer.logical or reader.logical
    if own is None or unit is None:
        return Fraction(1)
    if (own in _TIMES) is not (unit in _TIMES):
        raise InvalidSchemaError(
            f"`{where}` is {writer} where it was written, which is no {unit.value}"
        )
    return UNITS[own] / UNITS[unit]


def mismatch(writer: AvroType, reader: AvroType, where: str) -> InvalidSchemaError:
    """Return the error for values that cannot be read as another type."""
    return InvalidSchemaError(
        f"`{where}` is {writer} where it was written, which cannot be read as {reader}"
    )


def encode_default(type_: AvroType, default: Any, where: str) -> bytes:
    """Return a field's default as AVRO would write a value of the field's type.

    Args:
        type_: Of the field.
        default: As JSON has it.
        where: The path of fields to it, for errors.

    Raises:
        InvalidSchemaError: It is no value of that type.
    """
    try:
        return _Default().encoded(type_, default)
    except _TooLargeError:
        raise default_too_large(where) from None
    except (TypeError, ValueError, OverflowError, struct.error, RecursionError):
        raise InvalidSchemaError(
            f"the default of `{where}`, {shorten(default)}, is no {type_}"
        ) from None


def default_bytes(field: AvroField) -> int:
    """Return about how many bytes of memory a field's default takes; 0 for none."""
    if field.default is NO_DEFAULT or field.default is None:
        return 0
    # JSON may read a default that AVRO does not: then what its text holds counts.
    values = size_bytes = 0
    left = [field.default]
    while left:
        value = left.pop()
        values += 1
        if isinstance(value, str):
            size_bytes += len(value.encode("utf-8", "replace"))
        elif isinstance(value, (list, dict)):
            left.extend(value.values() if isinstance(value, dict) else value)
    encoded = _Default()
    with contextlib.suppress(
        _TooLargeError,
        TypeError,
        ValueError,
        OverflowError,
        struct.error,
        RecursionError,
    ):
        encoded.encoded(field.type, field.default)
    return max(
        values * _VALUE_BYTES + size_bytes,
        encoded.values * _VALUE_BYTES + encoded.size_bytes,
    )


#: What a value of a default takes in a column, beside a text.
_VALUE_BYTES = 16


def default_too_large(where: str) -> PlanTooLargeError:
    """Return the error for a default with too many values or too long texts."""
    return PlanTooLargeError(
        f"the default of `{where}` holds more than {MAX_VALUES:,} values, or texts of "
        f"more than {MAX_DEFAULT_BYTES:,} bytes. Register a schema with a smaller one"
    )


#: More than any default holds. A field that it leaves out has its own, so that a few
#: records, each of them twice in the next one, have values without end.
MAX_VALUES = 100_000
MAX_DEFAULT_BYTES = 2**20


class _TooLargeError(Exception):
    """A default has too many values."""


@dataclass
class _Default:
    """A default value.

    Attributes:
        values: How many it had so far.
        size_bytes: How long its texts were so far.
    """

    values: int = 0
    size_bytes: int = 0

    def encoded(self, type_: AvroType, value: Any) -> bytes:  # noqa: C901 - a case each
        """Return a value encoded in AVRO."""
        self.values += 1
        if isinstance(value, str):
            self.size_bytes += len(value)
        if self.values > MAX_VALUES or self.size_bytes > MAX_DEFAULT_BYTES:
            raise _TooLargeError
        kind = type_.kind
        if kind is Kind.UNION:
            return self._branch(type_, value)
        if kind is Kind.NULL and value is None:
            return b""
        if kind is Kind.BOOLEAN and isinstance(value, bool):
            return bytes([value])
        if kind in (Kind.INT, Kind.LONG):
            return _integer(kind, value)
        if kind in (Kind.FLOAT, Kind.DOUBLE) and not isinstance(value, bool):
            return struct.pack("<f" if kind is Kind.FLOAT else "<d", value)
        if kind is Kind.STRING and isinstance(value, str):
            data = value.encode()
            return _zigzag(len(data)) + data
        if kind in (Kind.BYTES, Kind.FIXED) and isinstance(value, str):
            data = value.encode("latin-1")
            if kind is Kind.BYTES:
                return _zigzag(len(data)) + data
            if len(data) == type_.size:
                return data
        if kind is Kind.ENUM and value in type_.symbols:
            return _zigzag(type_.symbols.index(value))
        if kind in (Kind.ARRAY, Kind.MAP):
            return self._items(type_, value)
        if kind is Kind.RECORD and isinstance(value, dict):
            return b"".join(
                self.encoded(field.type, _of_field(value, field))
                for field in type_.fields
            )
        raise ValueError

    def _branch(self, type_: AvroType, value: Any) -> bytes:
        """Encode the default of a union: of the first branch, or of another branch.

        The specification wants the first one until its release 1.12.
        """
        for index, branch in enumerate(type_.branches):
            try:
                return _zigzag(index) + self.encoded(branch, value)
            except (TypeError, ValueError, OverflowError, struct.error):
                continue
        raise ValueError

    def _items(self, type_: AvroType, value: Any) -> bytes:
        assert type_.items is not None
        if not isinstance(value, list if type_.kind is Kind.ARRAY else dict):
            raise ValueError
        parts = []
        for key in value:
            item = key
            head = b""
            if type_.kind is Kind.MAP:
                item = value[key]
                data = key.encode()
                head = _zigzag(len(data)) + data
            parts.append(head + self.encoded(type_.items, item))
        return (_zigzag(len(parts)) if parts else b"") + b"".join(parts) + b"\0"


def _integer(kind: Kind, value: Any) -> bytes:
    # JSON has one kind of numbers, and some libraries write 1.0 for 1.
    if isinstance(value, bool) or int(value) != value:
        raise ValueError
    bits = 31 if kind is Kind.INT else 63
    if not -(1 << bits) <= value < 1 << bits:
        raise ValueError
    return _zigzag(int(value))


def _of_field(value: dict[str, Any], field: AvroField) -> Any:
    """Return a field's value in a record's default, or the field's own default."""
    return value.get(field.name, field.default)


def _zigzag(number: int) -> bytes:
    value = number << 1 ^ number >> 63
    data = bytearray()
    while value >= 0x80:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def _short(name: str) -> str:
    return name.rpartition(".")[2]
