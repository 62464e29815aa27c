# SPDX-License-Identifier: Apache-2.0
"""Plans how values of an AVRO schema become the columns that a query wants.

Here meet the three: the writer's type, the reader's type, and the type of the column,
which is what ``avro_types`` makes of the reader's, or what the user made of that. What
no column is wanted of is skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import ClassVar, NamedTuple

import pyarrow as pa

from pulsar_spark.arrow.values.added import AvroAdded, row_width
from pulsar_spark.columns import VALUE
from pulsar_spark.loops import avro
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
    PairCount,
    PlanTooLargeError,
    branch_of,
    encode_default,
    factor,
    is_readable,
    mismatch,
    source_fields,
    symbols_read,
)

_INT32 = (-(2**31), 2**31 - 1)
_INT64 = (-(2**63), 2**63 - 1)

#: By how many digits the scale of a decimal may differ from what is wanted: of some
#: billions, which brokers take, a power would take for ever.
_MAX_SHIFT = 1000

#: Bytes of the longest int and long.
_INT_BYTES, _LONG_BYTES = 5, 10

_INTEGERS = {
    pa.int8(): (-(2**7), 2**7 - 1),
    pa.int16(): (-(2**15), 2**15 - 1),
    pa.int32(): _INT32,
    pa.int64(): _INT64,
}

#: Which columns numbers of a logical type can be, and the unit of these.
_MOMENTS = {
    Logical.TIMESTAMP_MILLIS,
    Logical.TIMESTAMP_MICROS,
    Logical.TIMESTAMP_NANOS,
}
_LOCAL = {
    Logical.LOCAL_TIMESTAMP_MILLIS,
    Logical.LOCAL_TIMESTAMP_MICROS,
    Logical.LOCAL_TIMESTAMP_NANOS,
}
_TIMES = {Logical.TIME_MILLIS, Logical.TIME_MICROS}
_DAY_MICROS = 86_400_000_000

_FLOATS = {pa.float32(): 4, pa.float64(): 8}
_TEXT = (pa.string(), pa.large_string())
_BYTES = (pa.binary(), pa.large_binary())


class NoColumnError(InvalidSchemaError):
    """No value of the type can become the wanted column, from any writer."""


class Target(NamedTuple):
    """Where values go.

    Attributes:
        field: The type of the column, and whether it may be NULL.
        column: The column.
        where: The path of fields to it, for errors.
    """

    field: pa.Field
    column: avro.Column
    where: str


class Planned(NamedTuple):
    """A plan.

    Attributes:
        plan: It.
        column: A struct of the wanted columns.
        names: Of the fields that its root reads, if that is a record: the writer's, and
            wanted ones that the writer does not have.
    """

    plan: avro.Plan
    column: avro.StructColumn
    names: tuple[str, ...]


def plan(
    writer: AvroType, reader: AvroType, wanted: pa.Schema, skipped: int = 0
) -> Planned:
    """Plan how values become columns.

    Args:
        writer: The schema that they were written with.
        reader: The schema that the columns are of.
        wanted: The columns: fields of the reader's record, or its one column.
        skipped: Bytes before each value.

    Raises:
        InvalidSchemaError: There is no such column, or the one cannot be read as the
            other.
    """
    if skipped < 0:
        raise InvalidSchemaError(f"values begin at their byte {skipped}")
    if (writer.kind is Kind.RECORD) is not (reader.kind is Kind.RECORD):
        raise mismatch(writer, reader, VALUE)
    target = _target(pa.field(VALUE, pa.struct(list(wanted)), False), "")
    column = target.column
    assert isinstance(column, avro.StructColumn)
    planner = _Planner()
    if reader.kind is Kind.RECORD:
        root = planner.record(writer, reader, target)
        missing = _missing(writer, reader)
        names = [field.name for field in writer.fields]
        names += [field.name for field in missing if field.name in wanted.names]
        reads_empty = root.smallest == 0
        return Planned(
            avro.Plan(root, column, skipped, reads_empty), column, tuple(names)
        )
    if wanted.names not in ([VALUE], []):
        raise InvalidSchemaError(f"its only column is `{VALUE}`")
    root = avro.ReadRecord(
        column,
        [planner.read(writer, reader, child) for child in _children(target)]
        or [planner.skip(writer)],
    )
    return Planned(avro.Plan(root, column, skipped, root.smallest == 0), column, ())


def _missing(writer: AvroType, reader: AvroType) -> list[AvroField]:
    """Return the fields of the reader's record that the writer's does not have."""
    sources = source_fields(writer, reader)
    return [
        field
        for field, source in zip(reader.fields, sources, strict=True)
        if source is None
    ]


def _target(field: pa.Field, where: str) -> Target:
    return Target(field, empty_column(field.type), where)


def _children(target: Target) -> list[Target]:
    """Return the fields of a struct."""
    type_, column = target.field.type, target.column
    assert isinstance(column, avro.StructColumn)
    prefix = f"{target.where}." if target.where else ""
    return [
        Target(type_.field(index), child, prefix + type_.field(index).name)
        for index, child in enumerate(column.children)
    ]


def empty_column(type_: pa.DataType) -> avro.Column:
    """Return an empty column for a type; for an impossible type, any column."""
    kinds = pa.types
    if kinds.is_struct(type_):
        fields = [type_.field(index) for index in range(type_.num_fields)]
        return avro.StructColumn([empty_column(field.type) for field in fields])
    if kinds.is_map(type_):
        entries = [empty_column(type_.key_type), empty_column(type_.item_type)]
        return avro.ListColumn(avro.StructColumn(entries))
    if kinds.is_list(type_):
        return avro.ListColumn(empty_column(type_.value_type))
    if type_ in _TEXT or type_ in _BYTES:
        return avro.BytesColumn()
    if kinds.is_boolean(type_):
        return avro.FixedColumn(1)
    if type_ in _FLOATS:
        return avro.FixedColumn(_FLOATS[type_])
    if kinds.is_decimal128(type_):
        return avro.FixedColumn(16)
    return avro.LongColumn()


#: An item of a list takes so many bytes of memory, or counts as several.
_ITEM_BYTES = 32


class _Planner:
    """Makes the readers of a plan."""

    def __init__(self) -> None:
        self._skipped: dict[int, avro.Reader] = {}
        self._pairs = PairCount()
        self._added = AvroAdded()

    def read(self, writer: AvroType, reader: AvroType, target: Target) -> avro.Reader:
        """Return the reader of the writer's type as the reader's type into a column."""
        self._pairs.add(target.where)
        if writer.kind is Kind.UNION:
            return self._union(writer, reader, target)
        if writer.kind is Kind.NULL:
            if not target.field.nullable:
                raise mismatch(writer, reader, target.where)
            return avro.ReadNull(target.column)
        bare, _ = nullable(reader)
        if bare.kind is Kind.UNION:
            return self._into_union(writer, bare, target)
        if writer.kind in (Kind.RECORD, Kind.ARRAY, Kind.MAP):
            can_be = writer.kind is bare.kind
        else:
            can_be = is_readable(writer, bare)
        if not can_be:
            raise mismatch(writer, reader, target.where)
        return self._READ[writer.kind](self, writer, bare, target)

    def skip(self, writer: AvroType) -> avro.Reader:
        """Return what skips a type."""
        kind = writer.kind
        if kind is Kind.NULL or (kind is Kind.FIXED and not writer.size):
            return avro.Reader()
        if kind in (Kind.INT, Kind.LONG, Kind.ENUM):
            return avro.SkipNumber()
        if kind in (Kind.BYTES, Kind.STRING):
            return avro.SkipBytes()
        if kind is Kind.UNION:
            return avro.ReadUnion([self.skip(branch) for branch in writer.branches])
        if kind is Kind.RECORD:
            return self._skip_record(writer)
        if kind in (Kind.ARRAY, Kind.MAP):
            assert writer.items is not None
            item = self.skip(writer.items)
            if kind is Kind.MAP:
                pair = avro.SkipRecord()
                pair.readers = [avro.SkipBytes(), item]
                pair.smallest = 1
                item = pair
            return avro.SkipItems(item)
        return avro.SkipWidth({Kind.FIXED: writer.size, **_WIDTHS}[kind])

    def _skip_record(self, writer: AvroType) -> avro.Reader:
        """Return the reader that skips a record, also where the record recurs.

        One that has no bytes is not looked into: there may be any number of records in
        it, each of them twice in the one around it.
        """
        skipping = self._skipped.get(id(writer))
        if skipping is not None:
            return skipping
        record = self._skipped[id(writer)] = avro.SkipRecord()
        record.readers = [self.skip(item.type) for item in writer.fields]
        # Of records that are twice in one another the sum may have no end.
        record.smallest = max((item.smallest for item in record.readers), default=0)
        if all(type(item) is avro.Reader for item in record.readers):
            self._skipped[id(writer)] = avro.Reader()
        return self._skipped[id(writer)]

    def record(
        self, writer: AvroType, reader: AvroType, target: Target
    ) -> avro.ReadRecord:
        """Return what reads a record into the fields of a struct."""
        children = {item.field.name: item for item in _children(target)}
        sources = source_fields(writer, reader)
        fields = {
            source: field
            for field, source in zip(reader.fields, sources, strict=True)
            if source is not None
        }
        readers: list[avro.Reader] = []
        for index, item in enumerate(writer.fields):
            into = children.pop(fields[index].name, None) if index in fields else None
            if into is None:
                readers.append(self.skip(item.type))
            else:
                readers.append(self.read(item.type, fields[index].type, into))
        for field in _missing(writer, reader):
            if field.name in children:
                readers.append(self._default(field, children.pop(field.name)))
        for left in children.values():
            raise NoColumnError(f"it has no field `{left.where}`")
        column = target.column
        assert isinstance(column, avro.StructColumn)
        return avro.ReadRecord(column, readers)

    def _default(self, field: AvroField, target: Target) -> avro.Reader:
        """Return what fills a field that the writer's record does not have."""
        is_null = field.default is None and nullable(field.type)[1]
        if target.field.nullable and (is_null or field.default is NO_DEFAULT):
            return avro.ReadNull(target.column)
        if field.default is NO_DEFAULT:
            raise InvalidSchemaError(
                f"`{target.where}` is not there where it was written, and has no "
                "default"
            )
        data = encode_default(field.type, field.default, target.where)
        return avro.ReadConstant(self.read(field.type, field.type, target), data)

    def _union(self, writer: AvroType, reader: AvroType, target: Target) -> avro.Reader:
        """Return the reader of each branch; an impossible branch makes a row bad.

        Raises:
            InvalidSchemaError: None of them can be read.
        """
        branches: list[avro.Reader] = []
        problems = []
        for branch in writer.branches:
            try:
                branches.append(self.read(branch, reader, target))
            except (NoColumnError, PlanTooLargeError):
                raise
            except InvalidSchemaError as error:
                branches.append(avro.Fail())
                problems.append(error)
        if len(problems) == len(branches):
            raise problems[0] if problems else mismatch(writer, reader, target.where)
        return avro.ReadUnion(branches)

    def _into_union(
        self, writer: AvroType, reader: AvroType, target: Target
    ) -> avro.Reader:
        """Return the reader of a type as a branch, except null, of a union."""
        index = branch_of(writer, reader.branches)
        if index is None:
            raise mismatch(writer, reader, target.where)
        branch = reader.branches[index]
        column = target.column
        if target.field.type in _widest(reader):
            return self.read(writer, branch, target)
        if not isinstance(column, avro.StructColumn):
            raise _no_column(reader, target)
        reading: avro.Reader | None = None
        readers = []
        for child in _children(target):
            if child.field.name == f"member{index}":
                reading = self.read(writer, branch, child)
            else:
                _check_member(child, reader)
                readers.append(child.column)
        return avro.ReadMember(column, reading or self.skip(writer), readers)

    def _record(
        self, writer: AvroType, reader: AvroType, target: Target
    ) -> avro.Reader:
        if not isinstance(target.column, avro.StructColumn):
            raise _no_column(reader, target)
        return self.record(writer, reader, target)

    def _array(self, writer: AvroType, reader: AvroType, target: Target) -> avro.Reader:
        type_, column = target.field.type, target.column
        assert writer.items is not None
        assert reader.items is not None
        if not pa.types.is_list(type_):
            raise _no_column(reader, target)
        assert isinstance(column, avro.ListColumn)
        item = Target(type_.value_field, column.items, f"{target.where}[]")
        read = self.read(writer.items, reader.items, item)
        return avro.ReadItems(column, read, None, self._weight(reader.items, item))

    def _map(self, writer: AvroType, reader: AvroType, target: Target) -> avro.Reader:
        type_, column = target.field.type, target.column
        assert writer.items is not None
        assert reader.items is not None
        if not pa.types.is_map(type_) or type_.key_type not in _TEXT:
            raise _no_column(reader, target)
        assert isinstance(column, avro.ListColumn)
        entries = column.items
        assert isinstance(entries, avro.StructColumn)
        keys, values = entries.children
        assert isinstance(keys, avro.BytesColumn)
        item = Target(type_.item_field, values, f"{target.where}{{}}")
        pair = avro.ReadRecord(
            entries,
            [
                avro.ReadBytes(keys, True),
                self.read(writer.items, reader.items, item),
            ],
        )
        return avro.ReadItems(column, pair, keys, self._weight(reader.items, item))

    def _weight(self, item: AvroType, target: Target) -> int:
        """Return the weight of an item in limits, by its bytes of memory."""
        width = row_width(target.field.type) + self._added.of_type(item).row_bytes
        return max(1, width // _ITEM_BYTES)

    def _boolean(
        self, writer: AvroType, reader: AvroType, target: Target
    ) -> avro.Reader:
        del writer
        if target.field.type != pa.bool_():
            raise _no_column(reader, target)
        assert isinstance(target.column, avro.FixedColumn)
        return avro.ReadBoolean(target.column)

    def _number(
        self, writer: AvroType, reader: AvroType, target: Target
    ) -> avro.Reader:
        """Read an int or a long, also as a float or a double."""
        is_int = writer.kind is Kind.INT
        most_bytes = _INT_BYTES if is_int else _LONG_BYTES
        low, high = _INT32 if is_int else _INT64
        column, type_ = target.column, target.field.type
        if type_ in _FLOATS:
            if not _is_float(reader, type_):
                raise _no_column(reader, target)
            assert isinstance(column, avro.FixedColumn)
            return avro.ReadNumberAsFloat(column, most_bytes, low, high)
        unit, (least, most) = _unit_of(reader, target)
        assert isinstance(column, avro.LongColumn)
        by = factor(writer, reader, unit, target.where)
        # The limits as the writer would have them: least <= number * by < most + 1.
        low = max(low, -(-least * by.denominator // by.numerator))
        high = min(high, last_below((most + 1) / by))
        if (low, high) == _INT64 and by == 1:
            return avro.ReadLong(column)
        return avro.ReadNumber(
            column, most_bytes, low, high, by.numerator, by.denominator
        )

    def _float(self, writer: AvroType, reader: AvroType, target: Target) -> avro.Reader:
        column, type_ = target.column, target.field.type
        if type_ not in _FLOATS or not _is_float(reader, type_):
            raise _no_column(reader, target)
        assert isinstance(column, avro.FixedColumn)
        if writer.kind is Kind.FLOAT and column.width == 8:
            return avro.ReadFloatAsDouble(column)
        return avro.ReadWidth(column)

    def _bytes(self, writer: AvroType, reader: AvroType, target: Target) -> avro.Reader:
        """Read bytes, a string or a fixed, also as a decimal."""
        column, type_ = target.column, target.field.type
        size = writer.size if writer.kind is Kind.FIXED else -1
        if pa.types.is_decimal128(type_):
            is_wide = type_.precision >= reader.precision
            is_same = reader.logical is Logical.DECIMAL and type_.scale == reader.scale
            if not (is_same and is_wide):
                raise _no_column(reader, target)
            assert isinstance(column, avro.FixedColumn)
            is_decimal = writer.logical is Logical.DECIMAL
            scale = writer.scale if is_decimal else reader.scale
            shift = type_.scale - scale
            if abs(shift) > _MAX_SHIFT:
                raise InvalidSchemaError(
                    f"`{target.where}` has {scale:,} digits after the point where it "
                    f"was written, and {type_.scale} here"
                )
            return avro.ReadDecimal(column, size, type_.precision, shift)
        if type_ not in (_TEXT if reader.kind is Kind.STRING else _BYTES):
            raise _no_column(reader, target)
        assert isinstance(column, avro.BytesColumn)
        if size >= 0:
            return avro.ReadFixed(column, size)
        return avro.ReadBytes(column, reader.kind is Kind.STRING)

    def _enum(self, writer: AvroType, reader: AvroType, target: Target) -> avro.Reader:
        if target.field.type not in _TEXT:
            raise _no_column(reader, target)
        assert isinstance(target.column, avro.BytesColumn)
        symbols = symbols_read(writer, reader)
        return avro.ReadEnum(
            target.column,
            [symbol if symbol is None else symbol.encode() for symbol in symbols],
        )

    _READ: ClassVar[
        dict[Kind, Callable[[_Planner, AvroType, AvroType, Target], avro.Reader]]
    ] = {
        Kind.RECORD: _record,
        Kind.ARRAY: _array,
        Kind.MAP: _map,
        Kind.BOOLEAN: _boolean,
        Kind.INT: _number,
        Kind.LONG: _number,
        Kind.FLOAT: _float,
        Kind.DOUBLE: _float,
        Kind.BYTES: _bytes,
        Kind.STRING: _bytes,
        Kind.FIXED: _bytes,
        Kind.ENUM: _enum,
    }


def _widest(union: AvroType) -> tuple[pa.DataType, ...]:
    """Return the type of a column for a union of numbers; empty for other unions."""
    kinds = {branch.kind for branch in union.branches}
    if kinds <= {Kind.INT, Kind.LONG}:
        return (pa.int64(),)
    return (pa.float64(),) if kinds <= {Kind.FLOAT, Kind.DOUBLE} else ()


_WIDTHS = {Kind.BOOLEAN: 1, Kind.FLOAT: 4, Kind.DOUBLE: 8}


def last_below(limit: Fraction) -> int:
    """Return the last whole number below."""
    return -(-limit.numerator // limit.denominator) - 1


def _is_float(reader: AvroType, type_: pa.DataType) -> bool:
    """Return whether such a column may be wanted of numbers of this type."""
    kinds = (Kind.FLOAT,) if type_ == pa.float32() else _AS_DOUBLE
    return reader.kind in kinds


_AS_DOUBLE = (Kind.INT, Kind.FLOAT, Kind.DOUBLE)


def _unit_of(
    reader: AvroType, target: Target
) -> tuple[Logical | None, tuple[int, int]]:
    """Return the unit of a column of ints or longs, and the limits of the column.

    Raises:
        NoColumnError: It cannot be wanted of that.
    """
    type_, logical = target.field.type, reader.logical
    if type_ in _INTEGERS:
        if type_ == pa.int64() or reader.kind is Kind.INT:
            return logical, _INTEGERS[type_]
    elif pa.types.is_date32(type_):
        if logical is Logical.DATE:
            return logical, _INT32
    elif type_ == pa.timestamp("us"):
        if logical in _LOCAL:
            return Logical.LOCAL_TIMESTAMP_MICROS, _INT64
    elif pa.types.is_timestamp(type_) and type_.unit == "us":
        if logical in _MOMENTS:
            return Logical.TIMESTAMP_MICROS, _INT64
    elif pa.types.is_time64(type_) and logical in _TIMES:
        return Logical.TIME_MICROS, (0, _DAY_MICROS - 1)
    raise _no_column(reader, target)


def _no_column(reader: AvroType, target: Target) -> NoColumnError:
    return NoColumnError(
        f"`{target.where}` is {reader}, of which there is no column of the type "
        f"{target.field.type}"
    )


def _check_member(target: Target, reader: AvroType) -> None:
    """Refuse a field of a struct that no branch of the union is.

    Raises:
        NoColumnError: That.
    """
    names = [f"member{index}" for index in range(len(reader.branches))]
    if target.field.name not in names:
        raise NoColumnError(
            f"`{target.where}` is not one of {', '.join(names)}, which are {reader}"
        )
