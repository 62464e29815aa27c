# SPDX-License-Identifier: Apache-2.0
"""AVRO's schema texts as trees of types.

Implements "Schema Declaration", "Names", "Aliases" and "Logical Types" of the Apache
Avro specification 1.11, as leniently as Pulsar's brokers and Java clients read them:
names and defaults are not validated, a logical type that does not fit is ignored.
A named type that is used again, also within itself, is the same object.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pulsar_spark.schemas.info import InvalidSchemaError, read_json
from spark_topics.text import shorten

#: More than any topic has, and few enough for a plan.
_MAX_TYPES = 20_000
_MAX_DEPTH = 64

#: The most bytes of a fixed, as Java has it.
_MAX_FIXED = 2**31 - 1


class Kind(enum.Enum):
    """AVRO's types."""

    NULL = "null"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    BYTES = "bytes"
    STRING = "string"
    FIXED = "fixed"
    ENUM = "enum"
    ARRAY = "array"
    MAP = "map"
    RECORD = "record"
    UNION = "union"


class Logical(enum.Enum):
    """AVRO's logical types."""

    DECIMAL = "decimal"
    UUID = "uuid"
    DATE = "date"
    TIME_MILLIS = "time-millis"
    TIME_MICROS = "time-micros"
    TIMESTAMP_MILLIS = "timestamp-millis"
    TIMESTAMP_MICROS = "timestamp-micros"
    TIMESTAMP_NANOS = "timestamp-nanos"
    LOCAL_TIMESTAMP_MILLIS = "local-timestamp-millis"
    LOCAL_TIMESTAMP_MICROS = "local-timestamp-micros"
    LOCAL_TIMESTAMP_NANOS = "local-timestamp-nanos"


#: What stands for "this field has no default": None is one.
NO_DEFAULT: Any = object()


@dataclass(eq=False)
class AvroType:
    """An AVRO type; attributes of other kinds are empty or 0.

    Attributes:
        kind: Which of AVRO's types it is.
        logical: The logical type; None without a logical type that fits.
        precision: Digits of a decimal.
        scale: Of these, the digits after the point.
        size: Bytes of a fixed.
        name: Full name of a record, an enum or a fixed.
        aliases: Its other full names.
        symbols: Of an enum.
        default_symbol: Of an enum; "" for none.
        items: Type of what an array or a map holds.
        branches: Of a union.
        fields: Of a record.
        definition: The JSON object that defines a record.
    """

    kind: Kind
    logical: Logical | None = None
    precision: int = 0
    scale: int = 0
    size: int = 0
    name: str = ""
    aliases: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    default_symbol: str = ""
    items: AvroType | None = None
    branches: tuple[AvroType, ...] = ()
    fields: tuple[AvroField, ...] = ()
    definition: dict[str, Any] | None = None

    def __str__(self) -> str:
        if self.kind is Kind.UNION:
            return f"[{', '.join(map(str, self.branches))}]"
        if self.kind in (Kind.ARRAY, Kind.MAP):
            return f"{self.kind.value}<{self.items}>"
        parts = [self.kind.value, self.name, self.logical.value if self.logical else ""]
        return " ".join(filter(None, parts))


@dataclass(frozen=True, eq=False)
class AvroField:
    """A field of a record.

    Attributes:
        name: Its name.
        type: Its type.
        default: As JSON has it, not checked; ``NO_DEFAULT`` for none.
        aliases: Its other names.
    """

    name: str
    type: AvroType
    default: Any = NO_DEFAULT
    aliases: tuple[str, ...] = ()


def parse_avro(text: bytes) -> AvroType:
    """Read the text of a schema.

    Args:
        text: JSON in UTF-8.

    Raises:
        InvalidSchemaError: It is not AVRO's, nested without end, or far too large.
    """
    return parse_tree(read_json(text, "text"))


def parse_tree(tree: Any) -> AvroType:
    """Parse a schema from parsed JSON.

    Args:
        tree: The objects, lists and strings. Types of records refer to its objects.

    Raises:
        InvalidSchemaError: As ``parse_avro`` does.
    """
    if isinstance(tree, Mapping) and "type" in tree and "properties" in tree:
        raise InvalidSchemaError(
            "its text is JSON Schema, as very old producers registered it"
        )
    return _Parser().parse(tree, "", "", 0)


def nullable(type_: AvroType) -> tuple[AvroType, bool]:
    """Return the type without null, and whether null was included.

    A union of one branch, and null, is that branch.
    """
    if type_.kind is not Kind.UNION:
        return type_, type_.kind is Kind.NULL
    branches = tuple(
        branch for branch in type_.branches if branch.kind is not Kind.NULL
    )
    has_null = len(branches) < len(type_.branches)
    if len(branches) == 1:
        return branches[0], has_null
    if not branches:
        return AvroType(Kind.NULL), True
    return AvroType(Kind.UNION, branches=branches), has_null


_PRIMITIVES = {
    kind.value: kind
    for kind in Kind
    if kind
    not in (Kind.FIXED, Kind.ENUM, Kind.ARRAY, Kind.MAP, Kind.RECORD, Kind.UNION)
}

#: Of which kinds each logical type can be.
_FITTING = {
    Logical.DECIMAL: (Kind.BYTES, Kind.FIXED),
    Logical.UUID: (Kind.STRING,),
    Logical.DATE: (Kind.INT,),
    Logical.TIME_MILLIS: (Kind.INT,),
}


@dataclass
class _Parser:
    """A parser for a single text.

    Attributes:
        named: Records, enums and fixeds by full name.
        types: How many types there were.
    """

    named: dict[str, AvroType] = field(default_factory=dict)
    types: int = 0

    def parse(self, tree: Any, namespace: str, where: str, depth: int) -> AvroType:
        """Return the type that a part of the text says.

        Args:
            tree: The part.
            namespace: That in which names without one are.
            where: The path of fields to it, for errors.
            depth: How deep it is nested.
        """
        self.types += 1
        if depth > _MAX_DEPTH:
            raise _error(where, f"types are nested more than {_MAX_DEPTH} deep")
        if self.types > _MAX_TYPES:
            raise _error(where, f"there are more than {_MAX_TYPES:,} types")
        if isinstance(tree, str):
            return self._by_name(tree, namespace, where)
        if isinstance(tree, list):
            return self._union(tree, namespace, where, depth)
        kind = tree.get("type") if isinstance(tree, dict) else None
        if isinstance(kind, (dict, list)):
            return self.parse(kind, namespace, where, depth + 1)
        if not isinstance(kind, str):
            raise _error(where, f"{shorten(tree)} is no type")
        if kind in _PRIMITIVES:
            return _with_logical(AvroType(_PRIMITIVES[kind]), tree)
        if kind in self._COMPLEX:
            return self._COMPLEX[kind](self, tree, namespace, where, depth)
        return self._by_name(kind, namespace, where)

    def _by_name(self, name: str, namespace: str, where: str) -> AvroType:
        if name in _PRIMITIVES:
            return AvroType(_PRIMITIVES[name])
        type_ = self.named.get(_full_name(name, namespace)) or self.named.get(name)
        if type_ is None:
            raise _error(where, f"the type {shorten(name)} is not defined")
        return type_

    def _name(
        self, tree: dict[str, Any], kind: Kind, namespace: str, where: str
    ) -> AvroType:
        """Return a new named type, still empty: its fields may refer to the type."""
        name = tree.get("name")
        if not isinstance(name, str) or not name.strip("."):
            raise _error(where, f"a type {kind.value} has no name")
        own = tree.get("namespace")
        full_name = _full_name(name, own if isinstance(own, str) else namespace)
        if full_name in self.named:
            raise _error(where, f"the type {shorten(full_name)} is defined twice")
        inside = _namespace(full_name)
        aliases = tuple(_full_name(alias, inside) for alias in _texts(tree, "aliases"))
        named = AvroType(kind, name=full_name, aliases=aliases)
        self.named[full_name] = named
        return named

    def _union(
        self, tree: list[Any], namespace: str, where: str, depth: int
    ) -> AvroType:
        branches = [self.parse(branch, namespace, where, depth + 1) for branch in tree]
        if any(branch.kind is Kind.UNION for branch in branches):
            raise _error(where, "a union stands directly in a union")
        return AvroType(Kind.UNION, branches=tuple(branches))

    def _items(
        self, tree: dict[str, Any], namespace: str, where: str, depth: int
    ) -> AvroType:
        kind = Kind(tree["type"])
        key = "items" if kind is Kind.ARRAY else "values"
        if key not in tree:
            raise _error(where, f"a type {kind.value} has no `{key}`")
        return AvroType(kind, items=self.parse(tree[key], namespace, where, depth + 1))

    def _record(
        self, tree: dict[str, Any], namespace: str, where: str, depth: int
    ) -> AvroType:
        record = self._name(tree, Kind.RECORD, namespace, where)
        inside = _namespace(record.name)
        field_trees = tree.get("fields")
        if not isinstance(field_trees, list):
            raise _error(where, f"the record {shorten(record.name)} has no fields")
        fields, names = [], set()
        for item in field_trees:
            name = item.get("name") if isinstance(item, dict) else None
            if not isinstance(name, str) or not name or "type" not in item:
                raise _error(where, f"{shorten(item)} is no field")
            if name in names:
                raise _error(where, f"the field {shorten(name)} comes twice")
            names.add(name)
            path = f"{where}.{name}" if where else name
            fields.append(
                AvroField(
                    name,
                    self.parse(item["type"], inside, path, depth + 1),
                    item.get("default", NO_DEFAULT),
                    _texts(item, "aliases"),
                )
            )
        record.fields = tuple(fields)
        record.definition = tree
        return record

    def _enum(
        self, tree: dict[str, Any], namespace: str, where: str, depth: int
    ) -> AvroType:
        del depth
        enum_ = self._name(tree, Kind.ENUM, namespace, where)
        enum_.symbols = _texts(tree, "symbols")
        if not enum_.symbols:
            raise _error(where, f"the enum {shorten(enum_.name)} has no symbols")
        default = tree.get("default")
        enum_.default_symbol = default if default in enum_.symbols else ""
        return enum_

    def _fixed(
        self, tree: dict[str, Any], namespace: str, where: str, depth: int
    ) -> AvroType:
        del depth
        fixed = self._name(tree, Kind.FIXED, namespace, where)
        size = tree.get("size")
        if not isinstance(size, int) or isinstance(size, bool):
            size = -1
        if not 0 <= size <= _MAX_FIXED:
            raise _error(where, f"the fixed {shorten(fixed.name)} has no size")
        fixed.size = size
        return _with_logical(fixed, tree)

    _COMPLEX: ClassVar = {
        "record": _record,
        "error": _record,
        "enum": _enum,
        "fixed": _fixed,
        "array": _items,
        "map": _items,
    }


def _with_logical(type_: AvroType, tree: dict[str, Any]) -> AvroType:
    """Set the logical type, if valid."""
    try:
        logical = Logical(tree.get("logicalType"))
    except ValueError:
        return type_
    if type_.kind not in _FITTING.get(logical, (Kind.LONG,)):
        return type_
    if logical is Logical.DECIMAL:
        precision, scale = tree.get("precision"), tree.get("scale", 0)
        if not (isinstance(precision, int) and isinstance(scale, int)):
            return type_
        if isinstance(scale, bool) or not 0 <= scale <= precision or not precision:
            return type_
        if type_.kind is Kind.FIXED and not _fits(precision, type_.size):
            return type_
        type_.precision, type_.scale = precision, scale
    type_.logical = logical
    return type_


def _fits(precision: int, size: int) -> bool:
    """Return whether a number of digits fits into a number of bytes."""
    # The power itself would take for ever where both are large.
    return precision <= math.floor((8 * size - 1) * math.log10(2))


def _full_name(name: str, namespace: str) -> str:
    """Return a name with its namespace; a leading dot means no namespace."""
    own, dot, simple = name.rpartition(".")
    space = own if dot else namespace
    return f"{space}.{simple}" if space else simple


def _namespace(full_name: str) -> str:
    return full_name.rpartition(".")[0]


def _texts(tree: dict[str, Any], key: str) -> tuple[str, ...]:
    texts = tree.get(key)
    if not isinstance(texts, list):
        return ()
    return tuple(text for text in texts if isinstance(text, str))


def _error(where: str, text: str) -> InvalidSchemaError:
    return InvalidSchemaError(f"at `{where}` {text}" if where else text)
