# SPDX-License-Identifier: Apache-2.0
"""Which fields of a message in protobuf are read into which columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

from pulsar_spark.arrow.values.protobuf_arrays import (
    Absent,
    List,
    Maker,
    Map,
    Plain,
    Struct,
    Symbols,
)
from pulsar_spark.arrow.values.protobuf_types import may_be_absent
from pulsar_spark.loops import protobuf_op as op
from pulsar_spark.schemas.info import InvalidSchemaError
from pulsar_spark.schemas.protobuf_native import Kind, MessageType, ProtobufField


class _Form(NamedTuple):
    """How a kind of protobuf is read.

    Attributes:
        kind: As the loop knows it.
        storage: What the loop puts it in.
        held: The Arrow type of that.
        low, high: Between what its numbers are; both 0 for what is none.
    """

    kind: int
    storage: int
    held: pa.DataType
    low: int = 0
    high: int = 0


_INT32 = (pa.int32(), -(2**31), 2**31 - 1)
_UINT32 = (pa.int64(), 0, 2**32 - 1)
_INT64 = (pa.int64(), -(2**63), 2**63 - 1)
_UINT64 = (pa.uint64(), 0, 2**64 - 1)

_FORMS = {
    Kind.BOOL: _Form(op.BOOL, op.SMALL, pa.bool_()),
    Kind.INT32: _Form(op.INT32, op.WORD, *_INT32),
    Kind.ENUM: _Form(op.INT32, op.WORD, *_INT32),
    Kind.SINT32: _Form(op.SINT32, op.WORD, *_INT32),
    Kind.SFIXED32: _Form(op.SFIXED32, op.WORD, *_INT32),
    Kind.UINT32: _Form(op.UINT32, op.LONG, *_UINT32),
    Kind.FIXED32: _Form(op.FIXED32, op.LONG, *_UINT32),
    Kind.INT64: _Form(op.INT64, op.LONG, *_INT64),
    Kind.SINT64: _Form(op.SINT64, op.LONG, *_INT64),
    Kind.SFIXED64: _Form(op.FIXED64, op.LONG, *_INT64),
    Kind.UINT64: _Form(op.INT64, op.LONG, *_UINT64),
    Kind.FIXED64: _Form(op.FIXED64, op.LONG, *_UINT64),
    Kind.FLOAT: _Form(op.FLOAT, op.WORD, pa.float32()),
    Kind.DOUBLE: _Form(op.FIXED64, op.LONG, pa.float64()),
    Kind.BYTES: _Form(op.BYTES, op.PLACE, pa.binary()),
    Kind.STRING: _Form(op.BYTES, op.PLACE, pa.binary()),
}
_TEXT = _Form(op.STRING, op.PLACE, pa.string())
_MESSAGES = {Kind.MESSAGE: op.MESSAGE, Kind.GROUP: op.GROUP}
_TEXT_KINDS = (Kind.STRING, Kind.BYTES)

#: Of what is no integer and no text: as what it can be read.
_AS = {
    pa.bool_(): (pa.bool_(),),
    pa.float32(): (pa.float32(), pa.float64()),
    pa.float64(): (pa.float64(),),
}

#: What these hold at most, and at least, by their width in bits.
_INTEGERS = {8 * size: 2 ** (8 * size - 1) - 1 for size in (1, 2, 4, 8)}

#: Decimals into which Arrow casts these have so many.
_DIGITS = {pa.int32(): 10, pa.int64(): 19, pa.uint64(): 20}

#: Numbers of the fields that a map's entries have.
_KEY, _VALUE = 1, 2


class ColumnPlan(NamedTuple):
    """A column that the loop fills; see ``loops.protobuf_values.Column``.

    Attributes:
        storage: How it holds its rows.
        has_presence: Whether it notes which there are.
        level: That of its rows.
        where: The path of fields to it, for errors.
        inner: Places of the columns in a struct.
        below: The level of a list's items, 0 for none.
        further_bytes: What a row takes if it is not in the column itself.
    """

    storage: int
    has_presence: bool
    level: int
    where: str
    inner: Sequence[int] = ()
    below: int = 0
    further_bytes: int = 0


class _FieldPlan(NamedTuple):
    """A field that the loop reads; see ``loops.protobuf_op``."""

    number: int
    kind: int
    is_repeated: bool
    column: int
    fields: Sequence[_FieldPlan] = ()
    case: int = -1
    low: int = 0
    high: int = -1


class _Message(NamedTuple):
    """The plan of reading a message.

    Attributes:
        makers: Of the columns wanted, in their order.
        fields: In the order of their numbers.
        columns: Those directly in it.
    """

    makers: Sequence[Maker]
    fields: Sequence[_FieldPlan]
    columns: Sequence[int]


class _Place(NamedTuple):
    """Where a field goes.

    Attributes:
        level: That of its rows.
        where: The path of fields to it.
        is_item: Whether it is an item of a list or a part of a map's entry, which are
            always there.
    """

    level: int
    where: str
    is_item: bool = False


class Plan:
    """What the loop needs to know.

    Attributes:
        columns: All columns. No struct is before what is in it.
        levels: How many levels there are.
        root_fields: How many fields are read of a value itself.
    """

    def __init__(self) -> None:
        self.columns: list[ColumnPlan] = []
        self.levels = 1
        self.root_fields = 0
        self._root: Sequence[_FieldPlan] = ()

    def add_root(
        self, writer: MessageType, reader: MessageType, wanted: Sequence[pa.Field]
    ) -> Sequence[Maker]:
        """Plan the root message.

        Args:
            writer: The message that was written.
            reader: The message whose fields are wanted.
            wanted: Columns with the names of some of these.

        Returns:
            Who makes the columns.

        Raises:
            InvalidSchemaError: They cannot be made.
        """
        message = self._message(writer, reader, wanted, _Place(0, ""))
        self._root = message.fields
        self.root_fields = len(message.fields)
        return message.makers

    def numbers(self) -> list[int]:
        """Return the fields as numbers for the loop."""
        # Those of one message follow each other, those of the root come first.
        laid = list(self._root)
        numbers: list[int] = []
        for message in laid:  # grows
            first, last = len(laid), len(laid) + len(message.fields)
            laid.extend(message.fields)
            is_checked = message.low <= message.high
            numbers += [
                message.number,
                message.kind,
                message.is_repeated,
                message.column,
                first,
                last,
            ]
            numbers += [
                message.case,
                is_checked,
                message.low,
                max(0, message.high - message.low),
            ]
        return numbers

    def _message(
        self,
        writer: MessageType,
        reader: MessageType,
        wanted: Iterable[pa.Field],
        place: _Place,
    ) -> _Message:
        """Plan how a message is read.

        Args:
            writer: Its type when it was written.
            reader: Its type as the query reads it.
            wanted: The columns to make of it.
            place: Where these columns go.
        """
        names = {item.name: item for item in reader.fields}
        numbers = {item.number: item for item in writer.fields}
        makers: list[Maker] = []
        fields: dict[int, _FieldPlan] = {}
        for column in wanted:
            where = f"{place.where}.{column.name}" if place.where else column.name
            field = names.get(column.name)
            if field is None:
                raise InvalidSchemaError(
                    f"`{where}` is no field of the message {reader.name}"
                )
            source = numbers.get(field.number)
            inside = _Place(place.level, where, reader.is_map_entry)
            _check_nullable(field, column, inside)
            if source is None:
                makers.append(_absent(field, column, inside))
            else:
                maker, fields[field.number] = self._field(source, field, column, inside)
                makers.append(maker)
        cases = self._add_cases(writer, fields, place)
        inner = [item.column for item in fields.values() if item.column >= 0] + cases
        return _Message(makers, [fields[item] for item in sorted(fields)], inner)

    def _add_cases(
        self, writer: MessageType, fields: dict[int, _FieldPlan], place: _Place
    ) -> list[int]:
        """Plan the fields of a oneof, which replace each other; return columns."""
        cases: dict[str, int] = {}
        members = [field for field in writer.fields if field.oneof]
        for field in members:
            if field.number in fields and field.oneof not in cases:
                cases[field.oneof] = self._add(
                    ColumnPlan(op.WORD, False, place.level, place.where)
                )
        for field in members:
            if field.oneof in cases:
                kind = _MESSAGES.get(field.kind)
                if kind is None:
                    kind = _FORMS[field.kind].kind
                unwanted = _FieldPlan(field.number, kind, False, -1)
                plan = fields.get(field.number, unwanted)
                fields[field.number] = plan._replace(case=cases[field.oneof])
        return list(cases.values())

    def _field(
        self,
        source: ProtobufField,
        field: ProtobufField,
        column: pa.Field,
        place: _Place,
    ) -> tuple[Maker, _FieldPlan]:
        """Plan how a field is read.

        Args:
            source: The field when it was written.
            field: The field as the query reads it.
            column: The column to make of it.
            place: Where this column goes.
        """
        if (
            source.is_map != field.is_map
            or source.is_repeated > field.is_repeated
            or (source.message is None) != (field.message is None)
        ):
            raise InvalidSchemaError(
                f"`{place.where}` was {_named(source)} and is {_named(field)} now"
            )
        if field.is_repeated:
            return self._repeated(source, field, column.type, place)
        return self._single(source, field, column, place)

    def _single(
        self,
        source: ProtobufField,
        field: ProtobufField,
        column: pa.Field,
        place: _Place,
    ) -> tuple[Maker, _FieldPlan]:
        type_ = column.type
        if source.message is None or field.message is None:
            return self._plain(source, field, column.type, place)
        if not pa.types.is_struct(type_):
            raise _unfit(field, type_, place)
        message = self._message(source.message, field.message, type_, place)
        # In the entry of a map it is always there, like the entry's numbers.
        has_presence = not place.is_item
        number = self._add(
            ColumnPlan(
                op.NOTHING, has_presence, place.level, place.where, message.columns
            )
        )
        maker = Struct(
            type_, number if has_presence else -1, place.level, message.makers
        )
        plan = _FieldPlan(
            source.number, _MESSAGES[source.kind], False, number, message.fields
        )
        return maker, plan

    def _repeated(
        self,
        source: ProtobufField,
        field: ProtobufField,
        type_: pa.DataType,
        place: _Place,
    ) -> tuple[Maker, _FieldPlan]:
        is_list = pa.types.is_list(type_) or pa.types.is_large_list(type_)
        if not (pa.types.is_map(type_) if field.is_map else is_list):
            raise _unfit(field, type_, place)
        below = self.levels
        self.levels += 1
        items = _Place(below, place.where, is_item=True)
        fields: Sequence[_FieldPlan] = ()
        item: Maker
        if source.message is None or field.message is None:
            item, plan = self._plain(source, field, type_.value_field.type, items)
        else:
            if field.is_map:
                parts = [
                    type_.key_field.with_name(_part(field.message, _KEY)),
                    type_.item_field.with_name(_part(field.message, _VALUE)),
                ]
            elif not pa.types.is_struct(type_.value_field.type):
                raise _unfit(field, type_, place)
            else:
                parts = list(type_.value_field.type)
            message = self._message(source.message, field.message, parts, items)
            plan = _FieldPlan(source.number, _MESSAGES[source.kind], True, -1)
            fields = message.fields
            if not field.is_map:
                item = Struct(type_.value_field.type, -1, below, message.makers)
        number = self._add(
            ColumnPlan(op.LIST, False, place.level, place.where, (), below, 4)
        )
        plan = plan._replace(is_repeated=True, column=number, fields=fields)
        if field.is_map:
            return Map(type_, number, place.level, *message.makers), plan
        return List(type_, number, place.level, item), plan

    def _plain(
        self,
        source: ProtobufField,
        field: ProtobufField,
        type_: pa.DataType,
        place: _Place,
    ) -> tuple[Maker, _FieldPlan]:
        """Plan a number, a text or bytes."""
        form, low, high = _reading(source, field, type_, place)
        has_presence = False
        default = None
        if not (place.is_item and field.is_repeated):
            default = field.default or None  # what is 0 is so without being told
            has_presence = field.default is None or default is not None
        is_symbol = form.kind == op.INT32 and _is_text(type_)
        further = 0 if form.held == type_ else 16
        if is_symbol:
            further = max(map(len, field.symbols.values()), default=0) + 16
            if default is not None:
                default = field.symbols.get(int(default), str(default))
        if isinstance(default, (str, bytes)):
            further += len(default)
        number = self._add(
            ColumnPlan(
                form.storage,
                has_presence,
                place.level,
                place.where,
                further_bytes=further,
            )
        )
        plan = _FieldPlan(source.number, form.kind, False, number, low=low, high=high)
        if is_symbol:
            return Symbols(
                type_, number, place.level, form.held, default, field.symbols
            ), plan
        return Plain(type_, number, place.level, form.held, default), plan

    def _add(self, column: ColumnPlan) -> int:
        self.columns.append(column)
        return len(self.columns) - 1


def _reading(
    source: ProtobufField, field: ProtobufField, type_: pa.DataType, place: _Place
) -> tuple[_Form, int, int]:
    """Return how a field is read, and the range of its numbers.

    The latter is ``0, -1`` where all of them fit.
    """
    form = _FORMS[source.kind]
    everything = (0, -1)
    is_wanted_as_text = _is_text(type_) or _is_bytes(type_)
    if source.kind in _TEXT_KINDS and field.kind in _TEXT_KINDS and is_wanted_as_text:
        return _TEXT if _is_text(type_) else form, *everything
    if Kind.ENUM in (source.kind, field.kind) and _is_text(type_):
        if field.kind == Kind.ENUM and form.kind == op.INT32:
            return form, *everything
    elif form.low < form.high and field.kind not in (*_TEXT_KINDS, Kind.BOOL):
        fitting = _range(form, type_)
        if fitting is not None:
            return form, *fitting
    elif type_ in _AS.get(form.held, ()):
        return form, *everything
    if source.kind == field.kind:
        raise _unfit(field, type_, place)
    raise InvalidSchemaError(
        f"`{place.where}` was {_named(source)} and is {_named(field)} now, which "
        f"cannot be read as {type_}"
    )


def _range(form: _Form, type_: pa.DataType) -> tuple[int, int] | None:
    """Return between what a number must be to be of this type, None where none is."""
    if pa.types.is_signed_integer(type_):
        most = _INTEGERS[type_.bit_width]
        low, high = max(form.low, -most - 1), min(form.high, most)
        return (0, -1) if (low, high) == (form.low, form.high) else (low, high)
    if pa.types.is_float64(type_):
        return (0, -1) if form.high < 2**32 else None
    if pa.types.is_decimal(type_) and type_.scale == 0:
        return (0, -1) if type_.precision >= _DIGITS[form.held] else None
    return None


def _check_nullable(field: ProtobufField, column: pa.Field, place: _Place) -> None:
    if not column.nullable and not place.is_item and may_be_absent(field):
        raise InvalidSchemaError(
            f"`{place.where}` may be absent, so its column must be nullable"
        )


def _absent(field: ProtobufField, column: pa.Field, place: _Place) -> Maker:
    """Return who makes the column of a field that the writer did not have."""
    origin = (column.type, -1, place.level)
    if column.nullable:
        return Absent(*origin)
    if field.is_repeated:
        return Absent(*origin, is_empty=True)
    default = field.default
    if field.kind == Kind.ENUM and _is_text(column.type):
        assert isinstance(default, int)
        default = field.symbols.get(default, str(default))
    _reading(field, field, column.type, place)
    return Absent(*origin, default=default)


def _part(entry: MessageType, number: int) -> str:
    """Return the name of the field of a map's entry."""
    return next(field.name for field in entry.fields if field.number == number)


def _named(field: ProtobufField) -> str:
    kind = "a map" if field.is_map else field.kind.name.lower()
    return f"repeated {kind}" if field.is_repeated and not field.is_map else kind


def _unfit(
    field: ProtobufField, type_: pa.DataType, place: _Place
) -> InvalidSchemaError:
    return InvalidSchemaError(
        f"`{place.where}` is {_named(field)}, which cannot be read as {type_}"
    )


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _is_bytes(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_))
