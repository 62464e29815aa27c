# SPDX-License-Identifier: Apache-2.0
"""How values in JSON become columns: a tree of nodes, made once for two schemas.

A node makes Arrow of one type in two ways: value by value, which knows every token that
producers write, and by the compiled readers of ``loops.json_values``, which are many
times faster and leave unusual values to the other way.
"""

from __future__ import annotations

import contextlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa

from pulsar_spark.arrow.values import json_tokens as tokens
from pulsar_spark.arrow.values.added import row_width
from pulsar_spark.arrow.values.avro_plan import empty_column
from pulsar_spark.arrow.values.avro_types import column_type
from pulsar_spark.arrow.values.json_scalars import Node, scalar
from pulsar_spark.arrow.values.json_tokens import BadTokenError, Reader
from pulsar_spark.arrow.values.json_unions import (
    has_floats,
    in_order,
    is_integer,
    is_whole,
    taken,
    without_null,
)
from pulsar_spark.loops import avro
from pulsar_spark.loops import json_values as kernel
from pulsar_spark.schemas.avro import (
    NO_DEFAULT,
    AvroField,
    AvroType,
    Kind,
    Logical,
    nullable,
)
from pulsar_spark.schemas.info import InvalidSchemaError
from pulsar_spark.schemas.resolution import (
    MAX_DEFAULT_BYTES,
    MAX_VALUES,
    PairCount,
    PlanTooLargeError,
    branch_of,
    default_too_large,
    encode_default,
    source_fields,
)


class _Making:
    """The state of a plan in the making.

    Attributes:
        pairs: The count of the plan.
        is_kept: Whether values become columns; or are only told from other values.
        own: What ``_own`` returned, by the id of a type and the codec, with the type.
    """

    def __init__(self) -> None:
        self.pairs = PairCount()
        self.is_kept = True
        self.own: dict[tuple[int, str], tuple[AvroType, Node]] = {}


#: Of the plan that is being made.
_MAKING: ContextVar[_Making | None] = ContextVar("_MAKING", default=None)


@contextlib.contextmanager
def _counted() -> Iterator[_Making]:
    """Yield the state of the current plan; a new state for a new plan."""
    making = _MAKING.get()
    if making is not None:
        yield making
        return
    making = _Making()
    token = _MAKING.set(making)
    try:
        yield making
    finally:
        _MAKING.reset(token)


@dataclass(frozen=True)
class FieldNode:
    """How a field of a record becomes a column, or a field of a struct.

    Attributes:
        field: What is made.
        source: The name by which payloads have it; None if the writer had no such
            field.
        node: Its values.
        takes_null: Whether null, or no value, is what the writer's schema allows.
        default: What means a null that it does not allow; None for nothing.
        where: The path to it.
        absent: Makes the kernel's reader that fills a column where there is no token.
    """

    field: pa.Field
    source: str | None
    node: Node
    takes_null: bool
    default: Any
    where: str
    absent: Callable[[avro.Column], avro.Reader]

    def read(self, token: dict[str, Any]) -> Any:
        """Return the value of this field of a JSON object."""
        value = None if self.source is None else token.get(self.source)
        if value is not None:
            try:
                return self.node.read(value)
            except BadTokenError as error:
                if str(error).startswith(("at `", "`")):
                    raise  # it names a place within
                raise BadTokenError(f"at `{self.where}` {error}") from None
        if self.takes_null or self.default is None:
            if not self.field.nullable:
                raise BadTokenError(f"`{self.where}` is missing")
            return None
        return self.default


def plan(
    writer: AvroType, reader: AvroType, wanted: pa.DataType, codec: str, where: str
) -> Node:
    """Return how values become an array of the type ``wanted``.

    Args:
        writer: The type of the schema that values were written with.
        reader: Of the query's.
        wanted: What the column of ``reader`` is, or what the user made of it.
        codec: How texts say bytes; see ``json_tokens.binary``.
        where: The path of fields to it, for errors.

    Raises:
        InvalidSchemaError: One cannot be read as the other.
    """
    with _counted() as making:
        making.pairs.add(where)
        return _planned(writer, reader, wanted, codec, where)


def _planned(
    writer: AvroType, reader: AvroType, wanted: pa.DataType, codec: str, where: str
) -> Node:
    writer, reader = (without_null(type_) for type_ in (writer, reader))
    if Kind.UNION in (writer.kind, reader.kind):
        return _union(writer, reader, wanted, codec, where)
    make = _NESTED.get(writer.kind)
    if make is not None and writer.kind is reader.kind:
        return make(writer, reader, wanted, codec, where)
    return scalar(writer, reader, wanted, codec, where)


# -- records, arrays, maps, unions -----------------------------------------------------


def field_nodes(
    writer: AvroType,
    reader: AvroType,
    wanted: Sequence[pa.Field],
    codec: str,
    where: str,
) -> list[FieldNode]:
    """Return how fields of a record become the wanted fields.

    Raises:
        InvalidSchemaError: The reader has no such field, or one cannot be made.
    """
    with _counted():
        return _field_nodes(writer, reader, wanted, codec, where)


def _field_nodes(
    writer: AvroType,
    reader: AvroType,
    wanted: Sequence[pa.Field],
    codec: str,
    where: str,
) -> list[FieldNode]:
    written = {named.name: named for named in writer.fields}
    pairs = {}
    sources = [
        (own, None if index is None else writer.fields[index])
        for own, index in zip(reader.fields, source_fields(writer, reader), strict=True)
    ]
    kept = {own.name for own, theirs in sources if theirs and theirs.name == own.name}
    for own, theirs in sources:
        # An old field may have become several: JSON is not read in the writer's order.
        split = (written[a] for a in own.aliases if a in written and a not in kept)
        pairs[own.name] = theirs or next(split, None), own
    nodes = []
    for field in wanted:
        path = f"{where}.{field.name}" if where else field.name
        if field.name not in pairs:
            raise InvalidSchemaError(f"there is no field `{path}`")
        theirs, own = pairs[field.name]
        nodes.append(_field_node(theirs, own, field, codec, path))
    return nodes


def _field_node(
    theirs: AvroField | None, own: AvroField, field: pa.Field, codec: str, where: str
) -> FieldNode:
    default, constant = _default(own, field.type, where)
    if theirs is None:
        if default is None and not field.nullable:
            raise InvalidSchemaError(
                f"the field `{where}` was not written, and has no default value"
            )
        node = plan(own.type, own.type, field.type, codec, where)
        return FieldNode(field, None, node, False, default, where, constant)
    _, is_nullable = nullable(theirs.type)
    if not field.nullable and nullable(own.type)[1]:
        raise InvalidSchemaError(f"`{where}` may be null")
    node = plan(theirs.type, own.type, field.type, codec, where)
    takes_null = is_nullable and field.nullable
    absent = constant
    if takes_null or default is None:
        absent = avro.ReadNull if field.nullable else _refuse
    return FieldNode(field, theirs.name, node, takes_null, default, where, absent)


def _refuse(column: avro.Column) -> avro.Reader:
    """Return the reader that leaves a missing value to ``FieldNode.read``."""
    del column
    return avro.Fail()


def _default(
    own: AvroField, type_: pa.DataType, where: str
) -> tuple[Any, Callable[[avro.Column], avro.Reader]]:
    """Return the default value of a field, and the kernel's reader of the value.

    The value is None, and the reader's is NULL, without a default that fits.
    """
    if own.default is NO_DEFAULT or own.default is None:
        return None, avro.ReadNull
    text = json.dumps(own.default)
    try:
        # Bytes are as AVRO says them.
        node = plan(_branch_of(own), own.type, type_, "latin1", where)
        value = node.read(tokens.load(text))
        _check_size(value, where)
        pa.array([value], type_)
    except (BadTokenError, pa.ArrowInvalid):
        return None, avro.ReadNull  # brokers do not check it
    return value, lambda column: avro.ReadConstant(node.fill(column), text.encode())


def _branch_of(field: AvroField) -> AvroType:
    """Return the first type of a field's union that has the default, as AVRO does."""
    for branch in field.type.branches:
        with contextlib.suppress(InvalidSchemaError):
            encode_default(branch, field.default, field.name)
            return branch
    return field.type


def _check_size(default: Any, where: str) -> None:
    """Refuse a default that is too large.

    A list may hold the default of a field within many times, as one object of Python's.
    Arrow copies the object for each time.

    Raises:
        PlanTooLargeError: The default is too large.
    """
    if is_larger(default, MAX_VALUES, MAX_DEFAULT_BYTES):
        raise default_too_large(where)


def is_larger(tree: Any, values: int, size_bytes: int) -> bool:
    """Return whether a decoded value has more values or bytes than the limits.

    What comes in several places counts in each.
    """
    left = [tree]
    while left:
        value = left.pop()
        values -= 1
        if isinstance(value, (str, bytes)):
            size_bytes -= len(value)
        elif isinstance(value, dict):
            left.extend(value.values())
        elif isinstance(value, (list, tuple)):
            left.extend(value)
        if values < len(left) or size_bytes < 0:
            return True
    return False


def _record(
    writer: AvroType, reader: AvroType, wanted: pa.DataType, codec: str, where: str
) -> Node:
    if not pa.types.is_struct(wanted):
        raise InvalidSchemaError(f"at `{where}` {reader} cannot be of type {wanted}")
    return record_of(field_nodes(writer, reader, list(wanted), codec, where), wanted)


def record_of(fields: list[FieldNode], type_: pa.DataType) -> Node:
    """Return how objects become structs of the given fields."""
    readers = [(node.field.name, node.read) for node in fields]

    def read(token: Any) -> Any:
        if not isinstance(token, dict):
            raise tokens.bad(token, "an object")
        return {name: read_field(token) for name, read_field in readers}

    sources = [node.source for node in fields if node.source is not None]
    if len(set(sources)) < len(sources):
        return Node(type_, read)

    def fill(column: avro.StructColumn) -> avro.Reader:
        children = list(zip(fields, column.children, strict=True))
        return kernel.ReadObject(
            column,
            [None if node.source is None else node.source.encode() for node in fields],
            [node.node.fill(child) for node, child in children],
            [node.absent(child) for node, child in children],
        )

    return Node(type_, read, fill)


def _items(
    writer: AvroType,
    reader: AvroType,
    wanted: pa.Field,
    codec: str,
    where: str,
) -> tuple[Node, Reader, bool]:
    """Return the node of items, the reader of items, and whether to keep items."""
    assert writer.items is not None
    assert reader.items is not None
    if not wanted.nullable and nullable(reader.items)[1]:
        raise InvalidSchemaError(f"`{where}` may be null")
    node = plan(writer.items, reader.items, wanted.type, codec, where)

    def read(token: Any) -> Any:
        if token is not None:
            return node.read(token)
        if wanted.nullable:
            return None
        raise BadTokenError(f"`{where}` is null")

    with _counted() as making:
        return node, read, making.is_kept


def _array(
    writer: AvroType, reader: AvroType, wanted: pa.DataType, codec: str, where: str
) -> Node:
    if not pa.types.is_list(wanted):
        raise InvalidSchemaError(f"at `{where}` {reader} cannot be of type {wanted}")
    item = wanted.value_field
    node, read_item, is_kept = _items(writer, reader, item, codec, f"{where}[]")

    def read(token: Any) -> Any:
        if not isinstance(token, list):
            raise tokens.bad(token, "an array")
        return _listed(map(read_item, token), is_kept)

    def fill(column: avro.ListColumn) -> avro.Reader:
        items = column.items
        readers = [node.fill(items), _absent(items, item)]
        if not is_kept:
            readers = [_dropping(items, reader) for reader in readers]
        return kernel.ReadArray(column, *readers)

    return Node(wanted, read, fill)


def _listed(items: Iterable[Any], is_kept: bool) -> list[Any]:
    """Return the items; look at each and return none if items are not kept."""
    return list(items if is_kept else deque(items, 0))


def _dropping(column: avro.Column, reader: avro.Reader) -> avro.Reader:
    """Return a reader that drops each item once the item was read."""
    return kernel.ReadBranch(column, reader, avro.Reader())


def _absent(column: avro.Column, item: pa.Field) -> avro.Reader:
    """Return the kernel's reader of an item that is null."""
    return avro.ReadNull(column) if item.nullable else avro.Fail()


def _map(
    writer: AvroType, reader: AvroType, wanted: pa.DataType, codec: str, where: str
) -> Node:
    if not pa.types.is_map(wanted) or wanted.key_type not in _TEXTS:
        raise InvalidSchemaError(f"at `{where}` {reader} cannot be of type {wanted}")
    item = wanted.item_field
    node, read_item, is_kept = _items(writer, reader, item, codec, f"{where}{{}}")

    def read(token: Any) -> Any:
        if not isinstance(token, dict):
            raise tokens.bad(token, "an object")
        pairs = ((tokens.text(key), read_item(value)) for key, value in token.items())
        return _listed(pairs, is_kept)

    def fill(column: avro.ListColumn) -> avro.Reader:
        pairs = column.items
        assert isinstance(pairs, avro.StructColumn)
        keys, values = pairs.children
        assert isinstance(keys, avro.BytesColumn)
        readers = [node.fill(values), _absent(values, item)]
        if not is_kept and row_width(item.type) > _MOST_WIDTH:
            return avro.Fail()  # there would be room for as many values as keys
        if not is_kept:
            readers = [_dropping(values, reader) for reader in readers]
        return kernel.ReadMap(column, keys, *readers)

    return Node(wanted, read, fill)


#: Of a value of a map that is only told from others, in bytes.
_MOST_WIDTH = 256

_TEXTS = (pa.string(), pa.large_string())
_NESTED = {Kind.RECORD: _record, Kind.ARRAY: _array, Kind.MAP: _map}


def _union(
    writer: AvroType, reader: AvroType, wanted: pa.DataType, codec: str, where: str
) -> Node:
    """Return how values of a union become a struct of members, or a single type.

    Payloads do not say which type of the writer they are. It is the first one that
    takes the token, in the order of ``json_unions``, whatever columns are wanted. Of
    numbers with a point, the loops leave all to ``read``.
    """
    if reader.kind is Kind.UNION and not pa.types.is_struct(wanted):
        raise InvalidSchemaError(f"at `{where}` {reader} cannot be of type {wanted}")
    branches = _branches(writer, reader, wanted, codec, where)

    def read(token: Any) -> Any:
        for own, node, name in branches:
            try:
                value = own.read(token)
            except BadTokenError:
                continue
            if node is None:
                return {}
            if node is not own:
                value = node.read(token)
            return {name: value} if name else value
        raise tokens.bad(token, f"one of {reader}")

    def fill(column: avro.Column) -> avro.Reader:
        return kernel.ReadFirst([_filled(node, column, wanted) for node in branches])

    return Node(wanted, read, fill)


class _Branch(NamedTuple):
    """A type of the writer's.

    Attributes:
        own: Takes the values of this type, and no other tokens.
        node: Makes what is wanted of these; None if nothing is.
        name: Of the member that they become; "" for a reader's type that is no union.
    """

    own: Node
    node: Node | None
    name: str


def _branches(
    writer: AvroType, reader: AvroType, wanted: pa.DataType, codec: str, where: str
) -> list[_Branch]:
    """Return the types of the writer, in the order in which they are asked.

    Raises:
        InvalidSchemaError: None of them can be read.
    """
    made, problems = [], []
    types = in_order(writer.branches or (writer,))
    for branch in types:
        has_shape = _has_own_shape(branch, types)
        own, name = None, ""
        node: Node | None = None
        try:
            as_type, name, node = _destination(branch, reader, wanted, codec, where)
            if node is not None and (
                has_shape
                or len(types) == 1
                or (as_type is branch and node.type == _own_column(branch))
            ):
                own = node
        except PlanTooLargeError:
            raise
        except InvalidSchemaError as error:
            problems.append(error)
            node = Node(wanted, _refusing(str(error)))
        if own is None:
            own = _shaped(branch.kind) if has_shape else _own(branch, codec, where)
        if is_integer(branch) and has_floats(types):
            whole = replace(own, read=_without_point(own.read))
            own, node = whole, whole if node is own else node
        made.append(_Branch(own, node, name))
    if len(problems) == len(types):
        raise problems[0]
    return made


def _has_own_shape(branch: AvroType, among: Sequence[AvroType]) -> bool:
    """Return whether no other type of a union takes such objects, or arrays."""
    if branch.kind not in _NESTED:
        return False
    shapes = [taken(other, False) for other in among if other is not branch]
    return taken(branch, False).isdisjoint(set().union(*shapes))


def _destination(
    branch: AvroType, reader: AvroType, wanted: pa.DataType, codec: str, where: str
) -> tuple[AvroType, str, Node | None]:
    """Return the type that a branch becomes, the member, and the node; or no node.

    A branch that AVRO would not read, as an enum of another name, becomes the first
    type of the same kind that a plan can be made for.
    """
    if reader.kind is not Kind.UNION:
        return reader, "", plan(branch, reader, wanted, codec, where)
    index = branch_of(branch, reader.branches)
    problem = InvalidSchemaError(
        f"at `{where}` there is {branch}, which cannot be read as {reader}"
    )
    for number, as_type in sorted(
        enumerate(reader.branches), key=lambda it: it[1].name != branch.name
    ):
        if number != index and (index is not None or as_type.kind is not branch.kind):
            continue
        name = f"member{number}"
        place = wanted.get_field_index(name)
        if place < 0 and (number == index or as_type.name == branch.name):
            return as_type, name, None
        try:
            type_ = column_type(as_type) if place < 0 else wanted.field(place).type
            with _counted() as making:
                if as_type is branch and not making.is_kept:
                    node = _own(branch, codec, where)
                else:
                    node = plan(branch, as_type, type_, codec, where)
            return as_type, name, node if place >= 0 else None
        except PlanTooLargeError:
            raise
        except InvalidSchemaError as error:
            problem = error
    raise problem


def _own(type_: AvroType, codec: str, where: str) -> Node:
    """Return a reader of all values of a type of a union, and of no other tokens."""
    column = _own_column(type_)
    if type_.logical is Logical.DECIMAL and pa.types.is_null(column):
        return Node(column, tokens.decimal(type_.precision, type_.scale, codec))
    if pa.types.is_null(column):
        return _shaped(type_.kind)
    with _counted() as making:
        if (id(type_), codec) not in making.own:
            is_kept, making.is_kept = making.is_kept, False
            try:
                node = plan(type_, type_, column, codec, where)
            finally:
                making.is_kept = is_kept
            making.own[id(type_), codec] = type_, node
        return making.own[id(type_), codec][1]


def _own_column(type_: AvroType) -> pa.DataType:
    """Return the column of a type; null if there is none.

    A record that no column can be is told by the fields that columns can be.
    """
    try:
        return column_type(type_)
    except InvalidSchemaError:
        if type_.kind is not Kind.RECORD:
            return pa.null()
        return pa.struct(list(_possible_fields(type_)))


def _shaped(kind: Kind) -> Node:
    """Return a reader of objects, or of arrays, with any contents."""
    if kind in (Kind.RECORD, Kind.MAP):
        return record_of([], pa.struct([]))

    def read(token: Any) -> Any:
        if kind is not Kind.ARRAY or not isinstance(token, list):
            raise tokens.bad(token, f"of the type {kind.value}")
        return token

    return Node(pa.null(), read)


def _possible_fields(record: AvroType) -> Iterator[pa.Field]:
    for field in record.fields:
        with contextlib.suppress(InvalidSchemaError):
            type_ = column_type(field.type)
            yield pa.field(field.name, type_, nullable(field.type)[1])


def _refusing(reason: str) -> Reader:
    def read(token: Any) -> Any:
        del token
        raise BadTokenError(reason)

    return read


def _filled(branch: _Branch, column: avro.Column, wanted: pa.DataType) -> avro.Reader:
    """Return the kernel's reader of the values of a type of the writer's."""
    own, node, name = branch

    def made(into: avro.Column) -> avro.Reader:
        reader = avro.Reader() if node is None else node.fill(into)
        if node is own:
            return reader
        scratch = empty_column(own.type)
        return kernel.ReadBranch(scratch, own.fill(scratch), reader)

    if not name:
        return made(column)
    assert isinstance(column, avro.StructColumn)
    empty = list(column.children)
    into = column if node is None else empty.pop(wanted.get_field_index(name))
    return avro.ReadMember(column, made(into), empty)


def _without_point(read: Reader) -> Reader:
    """Return what leaves numbers with a point to the floats of a union."""

    def read_whole(token: Any) -> Any:
        if not is_whole(token):
            raise tokens.bad(token, "a whole number")
        return read(token)

    return read_whole
