# SPDX-License-Identifier: Apache-2.0
"""The sources of columns, and the collectors of their values.

A :class:`Collector` is told of each entry and makes one array of a whole RecordBatch. A
:class:`ColumnSource` makes the collector of a column; the functions below make sources
of the usual kinds.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.runs import Messages, Run
from pulsar_spark.arrow.schema import TIMESTAMP
from pulsar_spark.wire.entries import Entry, EntryRun
from spark_topics.arrow.repeated import Repeated

#: How Pulsar keeps times.
PULSAR_TIME = pa.timestamp("ms", tz="UTC")

#: What a value raises that does not fit its column. Not each error of Arrow's: where
#: memory is short, or a user interrupts, no message is to blame.
MISFITS = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.lib.ArrowCapacityError,
    OverflowError,
    binascii.Error,
)


class Origin(NamedTuple):
    """Where entries were read.

    Attributes:
        topic: Full name of the topic partition; of a segment, that of its topic.
        partition: Its number; -1 where the topic is not partitioned.
    """

    topic: str
    partition: int


class Collector:
    """Collects plain Python values; converts all of them to Arrow at the end.

    Args:
        type_: Type of the column.
        read: Returns the values of an entry's messages.
    """

    #: Whether ``append`` is called for each entry.
    collects = True

    def __init__(
        self,
        type_: pa.DataType,
        read: Callable[[Entry], Sequence[Any]] = lambda entry: (),
    ) -> None:
        self._type = type_
        self._read: Callable[[Entry], Any] = read
        self._values: Any = []

    def clear(self) -> None:
        """Drop what was collected."""
        self._values = []

    def append(self, entry: Entry) -> None:
        """Collect the values of an entry."""
        self._values.extend(self._read(entry))

    def append_run(self, run: EntryRun) -> None:
        """Collect the values of entries that were unpacked together."""
        for entry in run.entries:
            self.append(entry)

    def array(self, rows: int, messages: Messages) -> pa.Array:
        """Return the values of all rows collected."""
        del rows, messages
        return _arrow(self._values, self._type)

    def first_misfit(self, messages: Messages) -> int:
        """Return the row of the first value that made :meth:`array` fail."""
        del messages
        for number, value in enumerate(self._values):
            try:
                _arrow([value], self._type)
            except MISFITS:
                return number
        return 0


class _MessageCollector(Collector):
    """Collects message tables; makes the values of all messages in a single call."""

    collects = False

    def __init__(self, type_: pa.DataType, make: Callable[[Messages], pa.Array]):
        super().__init__(type_)
        self._make = make

    def array(self, rows: int, messages: Messages) -> pa.Array:
        return self._make(messages) if rows else pa.array([], self._type)

    def first_misfit(self, messages: Messages) -> int:
        number = 0
        for run in messages.runs:
            for row in range(run.first, run.last):
                try:
                    self._make(Messages([Run(run.table, row, row + 1)]))
                except MISFITS:
                    return number
                number += 1
        return 0


class _EntryCollector(Collector):
    """Collects a value for each entry, repeated for each of its messages."""

    def __init__(self, type_: pa.DataType, read: Callable[[Entry], Any]):
        super().__init__(type_, read)
        self._ends: list[int] = []

    def clear(self) -> None:
        super().clear()
        self._ends = []

    def append(self, entry: Entry) -> None:
        self._values.append(self._read(entry))
        self._ends.append((self._ends[-1] if self._ends else 0) + len(entry))

    def array(self, rows: int, messages: Messages) -> pa.Array:
        del messages
        if not rows:
            return pa.array([], self._type)
        # The ends as a plain list: pyarrow 15 takes no array of them.
        values = _arrow(self._values, self._type)
        return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(self._ends, values))

    def first_misfit(self, messages: Messages) -> int:
        number = super().first_misfit(messages)
        return self._ends[number - 1] if number else 0


class _ConstantCollector(Collector):
    """Repeats a value for each row of the reader."""

    collects = False

    def __init__(self, type_: pa.DataType, value: Any):
        super().__init__(type_)
        self._repeated = Repeated(pa.scalar(value, type_))

    def array(self, rows: int, messages: Messages) -> pa.Array:
        del messages
        return self._repeated.rows(rows)


@dataclass(frozen=True)
class ColumnSource:
    """Where the values of a column come from.

    Attributes:
        collector: Makes the collector for a column of a type, of entries read there.
        table_columns: Which of ``loops.messages.BINARY_COLUMNS`` it is made of.
        repeated: Reads a text of an entry that each of its rows repeats, where
            producers can make it long; None for other columns.
    """

    collector: Callable[[pa.DataType, Origin], Collector]
    table_columns: tuple[str, ...] = ()
    repeated: Callable[[Entry], str | None] | None = None


def of_origin(value: Callable[[Origin], Any]) -> ColumnSource:
    """Return the source of a column with a constant value for each reader."""
    return ColumnSource(lambda type_, origin: _ConstantCollector(type_, value(origin)))


def of_entry(read: Callable[[Entry], Any]) -> ColumnSource:
    """Return the source of a column with a value for each entry."""
    return ColumnSource(lambda type_, _: _EntryCollector(type_, read))


def of_text_of_entry(read: Callable[[Entry], str | None]) -> ColumnSource:
    """Return such a source of texts that producers can make long."""
    return ColumnSource(lambda type_, _: _EntryCollector(type_, read), repeated=read)


def of_rows(read: Callable[[Entry], Sequence[Any]]) -> ColumnSource:
    """Return the source of a column with a Python value for each message."""
    return ColumnSource(lambda type_, _: Collector(type_, read))


def of_messages(
    make: Callable[[Messages], pa.Array], *table_columns: str
) -> ColumnSource:
    """Return the source of a column that is made of the tables of messages.

    Args:
        make: Makes the array of all messages, of which there is at least one.
        *table_columns: The needed columns, see ``ColumnSource``.
    """
    return ColumnSource(
        lambda type_, _: _MessageCollector(type_, make), table_columns=table_columns
    )


def _arrow(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Return values as Arrow; times are milliseconds since 1970, as in Pulsar."""
    if type_ == TIMESTAMP:
        return pa.array(values, PULSAR_TIME).cast(TIMESTAMP)
    return pa.array(values, type_)
