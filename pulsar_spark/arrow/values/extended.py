# SPDX-License-Identifier: Apache-2.0
"""The schema of a topic, with fields added for columns without a field.

The registered schema is a contract with the topic's other clients. So fields are added
and nothing else: nullable ones with the default null, after those that a record has, at
any depth. Names, documentation, order and types of all that is there stay.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from pulsar_spark.arrow.values.avro_encoder import is_whole
from pulsar_spark.arrow.values.avro_parts import plan_branch
from pulsar_spark.arrow.values.avro_text import ROOT, check_case, new_field
from pulsar_spark.schemas.avro import AvroType, Kind, parse_tree
from pulsar_spark.schemas.info import InvalidSchemaError, read_json

_KINDS = pa.types


def extended_text(
    text: bytes, columns: pa.Schema, *, is_part: bool = False
) -> bytes | None:
    """Return the text of a schema with fields for columns that have no field yet.

    Args:
        text: Of a schema.
        columns: Those that make the value.
        is_part: Whether the column is a part of a KEY_VALUE, whatever its name.

    Returns:
        The text; None where nothing is to be added.

    Raises:
        InvalidSchemaError: The schema cannot be read, a column has a type that AVRO
            has not, or a name that it does not allow, or that differs from another
            one's by its case only.
    """
    tree = read_json(text, "text")
    is_extended = False
    while _extend_root(parse_tree(tree), columns, is_part=is_part):
        # A record that is used in several places is extended by the columns of each.
        is_extended = True
    return json.dumps(tree, separators=(",", ":")).encode() if is_extended else None


def _extend_root(root: AvroType, columns: pa.Schema, *, is_part: bool) -> bool:
    """Add fields to the definitions of records; return whether there were any."""
    if is_whole(root, list(columns), is_part=is_part):
        return _extend(root, columns[0].type, (), columns[0].name)
    return _extend_record(root, columns, (), "")


def _extend(
    type_: AvroType, column: pa.DataType, path: tuple[str, ...], where: str
) -> bool:
    """Add fields to the records in a type.

    Args:
        type_: The type.
        column: That of the column which is written to it.
        path: Names of the fields that it is in.
        where: The same for errors.
    """
    if type_.kind is Kind.UNION:
        branch = _branch(type_, column, where)
        return branch is not None and _extend(branch, column, path, where)
    if type_.kind is Kind.RECORD and _KINDS.is_struct(column):
        return _extend_record(type_, column, path, where)
    is_list = _KINDS.is_list(column) or _KINDS.is_large_list(column)
    if type_.kind is Kind.ARRAY and is_list:
        assert type_.items is not None
        return _extend(type_.items, column.value_type, path, f"{where}[]")
    if type_.kind is Kind.MAP and _KINDS.is_map(column):
        assert type_.items is not None
        return _extend(type_.items, column.item_type, path, f"{where}{{}}")
    return False


def _branch(union: AvroType, column: pa.DataType, where: str) -> AvroType | None:
    """Return the branch that a column is written to; None where that is not clear."""
    branches = [branch for branch in union.branches if branch.kind is not Kind.NULL]
    if len(branches) == 1:
        return branches[0]
    try:
        index, _ = plan_branch(union, column, where)
    except InvalidSchemaError:
        alike = [branch for branch in branches if _is_alike(branch, column)]
        return alike[0] if len(alike) == 1 else None
    return union.branches[index]


def _is_alike(type_: AvroType, column: pa.DataType) -> bool:
    is_list = _KINDS.is_list(column) or _KINDS.is_large_list(column)
    return (
        (type_.kind is Kind.RECORD and _KINDS.is_struct(column))
        or (type_.kind is Kind.ARRAY and is_list)
        or (type_.kind is Kind.MAP and _KINDS.is_map(column))
    )


def _extend_record(
    record: AvroType, columns: Iterable[pa.Field], path: tuple[str, ...], where: str
) -> bool:
    assert record.definition is not None
    types: dict[str, AvroType] = {item.name: item.type for item in record.fields}
    fields: list[dict[str, Any]] = record.definition["fields"]
    is_extended, known_names = False, [field["name"] for field in fields]
    for column in columns:
        inner = f"{where}.{column.name}" if where else column.name
        names = (*path, column.name)
        if column.name in types:
            is_extended |= _extend(types[column.name], column.type, names, inner)
        elif column.name not in known_names:
            known_names.append(column.name)
            check_case(known_names, where)
            fields.append(new_field(column, ".".join((ROOT, *path)), where))
            is_extended = True
    return is_extended
