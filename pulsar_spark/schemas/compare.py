# SPDX-License-Identifier: Apache-2.0
"""Comparison of schemas by meaning, whatever their texts look like."""

from __future__ import annotations

import json
from typing import Any

from pulsar_spark.schemas.avro import NO_DEFAULT, AvroType, Kind, parse_avro
from pulsar_spark.schemas.info import InvalidSchemaError, SchemaInfo, SchemaType
from pulsar_spark.schemas.key_value import parse_key_value

_TEXTS = (SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF)

#: Whose definition says nothing: Java and Python register different ones for STRING.
_WITHOUT_DATA = frozenset(SchemaType) - {
    *_TEXTS,
    SchemaType.KEY_VALUE,
    SchemaType.PROTOBUF_NATIVE,
}

#: Skips what precedes a value, so that it is a part of what is said of it.
_READ_OFFSET = "__AVRO_READ_OFFSET__"


def says_the_same(one: SchemaInfo, other: SchemaInfo) -> bool:
    """Return whether two schemas mean the same values; docs do not count.

    Aliases of fields do: values of earlier versions are found by them. So do names by
    which types of a union are told apart, and in AVRO names of enums and fixeds,
    without which values are not resolved. What cannot be read is compared byte by byte.
    """
    if one.type != other.type:
        return False
    if one.type in _WITHOUT_DATA:
        return True
    try:
        if one.type in _TEXTS:
            offsets = [info.properties.get(_READ_OFFSET) for info in (one, other)]
            return offsets[0] == offsets[1] and _are_same(
                parse_avro(one.data),
                parse_avro(other.data),
                set(),
                has_names=one.type == SchemaType.AVRO,
            )
        if one.type == SchemaType.KEY_VALUE:
            own, theirs = parse_key_value(one), parse_key_value(other)
            return (
                own.is_separated == theirs.is_separated
                and says_the_same(own.key, theirs.key)
                and says_the_same(own.value, theirs.value)
            )
    except InvalidSchemaError:
        return one.data == other.data and one.properties == other.properties
    return one.data == other.data


def _are_same(
    one: AvroType, other: AvroType, known: set[tuple[int, int]], *, has_names: bool
) -> bool:
    """Return whether two types are equal except for docs and irrelevant names.

    Types that were compared before, or are being compared, are not looked at again: a
    record may be a part of itself, or come any number of times.
    """
    pair = (id(one), id(other))
    if pair in known:
        return True
    known.add(pair)
    parts, other_parts = _parts(one), _parts(other)
    return (
        _own(one) == _own(other)
        and (not has_names or _names(one) == _names(other))
        and len(parts) == len(other_parts)
        and all(
            _are_same(*both, known, has_names=has_names)
            for both in zip(parts, other_parts, strict=True)
        )
    )


def _own(type_: AvroType) -> Any:
    """Return the properties of a type, without nested types."""
    return (
        type_.kind,
        type_.logical,
        (type_.precision, type_.scale, type_.size),
        type_.symbols,
        type_.default_symbol,
        [
            (
                field.name,
                field.aliases,
                None if field.default is NO_DEFAULT else json.dumps(field.default),
            )
            for field in type_.fields
        ],
        _told_apart(type_),
    )


def _told_apart(union: AvroType) -> list[tuple[str, tuple[str, ...]]]:
    """Return the names of types in a union that has several of their kind."""
    named = [branch for branch in union.branches if branch.name]
    kinds = [branch.kind for branch in named]
    return [
        (branch.name, branch.aliases)
        for branch in named
        if kinds.count(branch.kind) > 1
    ]


def _names(type_: AvroType) -> set[str]:
    """Return the names that count, without their namespaces."""
    if type_.kind is Kind.RECORD:
        return set()
    return {name.rpartition(".")[2] for name in (type_.name, *type_.aliases)}


def _parts(type_: AvroType) -> list[AvroType]:
    items = [] if type_.items is None else [type_.items]
    return [*items, *type_.branches, *(field.type for field in type_.fields)]
