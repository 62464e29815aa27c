# SPDX-License-Identifier: Apache-2.0
"""Entries -> RecordBatches, a column at a time and an entry at a time.

A builder collects entries, and each column turns what they hold into one Arrow array: a
value for all messages of an entry is repeated; what each message has that it owns lies
in a :class:`MessageTable` as Arrow wants it, and is not copied where all entries of a
RecordBatch share one table. A column that no one asked for costs nothing.
"""

from __future__ import annotations

import enum
import logging
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.message_columns import decoded_keys
from pulsar_spark.arrow.runs import Messages, Run, allocate, joined
from pulsar_spark.arrow.sources import MISFITS, Collector, ColumnSource, Origin
from pulsar_spark.arrow.values import ValueDecoder, ValueRun
from pulsar_spark.arrow.values.raw import RawDecoder
from pulsar_spark.errors import CorruptEntryError
from pulsar_spark.loops.fact import (
    ENTRY_ID,
    LAST_ROW,
    LEDGER_ID,
    SCHEMA_VERSION,
    SCHEMA_VERSION_END,
)
from pulsar_spark.loops.messages import IS_NULL, MessageTable
from pulsar_spark.message_id import MessageId
from pulsar_spark.wire.entries import Entry, EntryRun

#: The most bytes of an entry's texts that each row may repeat without being counted.
_SHORT_TEXTS_BYTES = 256


logger = logging.getLogger("pulsar_spark.arrow")


class Mode(enum.Enum):
    """The treatment of a row whose value does not fit its schema.

    Attributes:
        FAILFAST: An error, which names the message.
        PERMISSIVE: NULL in all columns of the value.
        DROPMALFORMED: The row is left out; the first one is logged.
    """

    FAILFAST = "FAILFAST"
    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"


class RecordBatchBuilder:
    """Collects entries of a topic partition and makes RecordBatches from them.

    Args:
        schema: The columns wanted, in order; see ``arrow_schema``.
        columns: What the columns are made of, by name, but for those of the value.
        topic_partition: Full name of the topic partition.
        partition: Its number; -1 where the topic is not partitioned.
        max_rows: No RecordBatch has more rows than this.
        max_bytes: No RecordBatch has more bytes of messages than this, except for one
            that holds a single larger message. Long names of producers and clusters
            that its rows repeat are counted, too, and what the schema may add to them:
            defaults and names of enums.
        values: Makes the columns of the value; as bytes unless told otherwise.
        mode: What becomes of rows whose value is bad.
        corrupt_record: Column with the bytes of such a value, STRING or BINARY; "" for
            none.
        topic: What the column ``__topic`` has; "" for the topic partition.
        long_run: Runs of rows of one version that are shorter are decoded together.
    """

    def __init__(
        self,
        schema: pa.Schema,
        columns: Mapping[str, ColumnSource],
        topic_partition: str,
        partition: int,
        *,
        max_rows: int,
        max_bytes: int,
        values: ValueDecoder | None = None,
        mode: Mode = Mode.FAILFAST,
        corrupt_record: str = "",
        topic: str = "",
        long_run: int = 512,
    ) -> None:
        self.schema = schema
        self._mode = mode
        self._corrupt_record = corrupt_record
        self._is_warned = False
        self._topic_partition = topic_partition
        origin = Origin(topic or topic_partition, partition)
        decoder = RawDecoder() if values is None else values
        made = {*decoder.columns, corrupt_record}
        from_source = [name for name in schema.names if name not in made]
        sources = [columns[name] for name in from_source]
        self._columns = {
            name: source.collector(schema.field(name).type, origin)
            for name, source in zip(from_source, sources, strict=True)
        }
        self._decoder = decoder
        self._values = (
            _ValueColumns(decoder, long_run)
            if len(from_source) < len(schema.names)
            else None
        )
        self._collecting: list[Collector | _ValueColumns] = [
            column for column in self._columns.values() if column.collects
        ]
        if self._values is not None and decoder.by_version:
            self._collecting.append(self._values)
        self._table_columns = {
            name for source in sources for name in source.table_columns
        }
        if self._values is not None:
            self._table_columns.add("values")
            if decoder.needs_keys:
                self._table_columns.add("keys")
        self._repeated = [source.repeated for source in sources if source.repeated]
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._clear()

    def _clear(self) -> None:
        self._rows = 0
        self._size_bytes = 0
        # Of each entry: its end among the rows, and where it is stored.
        self._ends, self._ledger_ids, self._entry_ids = (array("q") for _ in range(3))
        self._messages = Messages()
        for column in self._columns.values():
            column.clear()
        if self._values is not None:
            self._values.clear()

    def new_table(self) -> MessageTable:
        """Return a table with what the columns need, in memory of Arrow's."""
        return MessageTable(self._table_columns, allocate)

    @property
    def rows(self) -> int:
        """Return the rows collected and not given back yet."""
        return self._rows

    def add(self, entry: Entry | EntryRun) -> Iterator[pa.RecordBatch]:
        """Add an entry or a run; yield the RecordBatches that the entry fills.

        Raises:
            CorruptEntryError: A value does not fit its column.
        """
        if isinstance(entry, EntryRun):
            yield from self._add_run(entry)
            return
        repeated = self._repeated_bytes(entry)
        for piece in self._pieces(entry, repeated):
            size_bytes = self._weight(piece, repeated)
            if self._rows and not self._has_room_for(len(piece), size_bytes):
                yield self.finish()
            self._append(piece, size_bytes)
            if self._rows >= self._max_rows or self._size_bytes >= self._max_bytes:
                yield self.finish()  # now: what comes next may be as large

    def _add_run(self, run: EntryRun) -> Iterator[pa.RecordBatch]:
        first = run.first
        while first < run.last:
            last = self._last_that_fits(run, first)
            if last == first:  # it begins a RecordBatch, or is too large for one
                yield from self.add(run.entry(first))
                first += 1
                continue
            part = run.part(first, last)
            if len(part):
                self._append_run(part)
            first = last
            if self._rows >= self._max_rows or self._size_bytes >= self._max_bytes:
                yield self.finish()

    def _last_that_fits(self, run: EntryRun, first: int) -> int:
        """Return the first entry, from ``first`` on, that has no room any more."""
        first_row = run.part(first, run.last).first_row

        def is_too_much(number: int) -> bool:
            row = run.end_of(number)
            size_bytes = run.table.size_bytes(first_row, row)
            size_bytes += self._added_bytes(row - first_row, size_bytes)
            return not self._has_room_for(row - first_row, size_bytes)

        if not is_too_much(run.last - 1):
            return run.last
        return bisect_left(range(run.last), True, first, key=is_too_much)

    def finish(self) -> pa.RecordBatch:
        """Return the collected rows as a RecordBatch, and empty the builder.

        Raises:
            CorruptEntryError: A value does not fit its column.
        """
        arrays: dict[str, pa.Array] = {}
        for name, column in self._columns.items():
            try:
                arrays[name] = column.array(self._rows, self._messages)
            except MISFITS as error:
                raise self._misfit(
                    column.first_misfit(self._messages),
                    f"its {name} does not fit {self.schema.field(name).type} ({error})."
                    " Leave that column out with `metadataColumns`.",
                ) from None
        bad: Sequence[int] = ()
        if self._values is not None:
            value_arrays, bad = self._value_arrays(self._values)
            arrays |= value_arrays
        self._clear()
        record_batch = pa.RecordBatch.from_arrays(
            [arrays[name] for name in self.schema.names], schema=self.schema
        )
        if len(bad) and self._mode is Mode.DROPMALFORMED:
            return record_batch.filter(pc.invert(_mask(bad, len(record_batch))))
        return record_batch

    def _value_arrays(
        self, values: _ValueColumns
    ) -> tuple[dict[str, pa.Array], Sequence[int]]:
        """Return the columns of the value, and the rows that are bad."""
        if not self._rows:
            return {
                field.name: pa.array([], field.type)
                for field in self.schema
                if field.name not in self._columns
            }, ()
        arrays, bad, reason = values.arrays(self._rows, self._messages)
        if len(bad):
            self._report(bad, reason)
        if self._corrupt_record:
            type_ = self.schema.field(self._corrupt_record).type
            arrays[self._corrupt_record] = (
                values.records(bad, self._messages, type_)
                if len(bad)
                else pa.nulls(self._rows, type_)
            )
        return arrays, bad

    def _report(self, bad: Sequence[int], reason: str) -> None:
        """Raise, or say once that rows are left out."""
        if self._mode is Mode.PERMISSIVE:
            return
        error = self._misfit(
            bad[0],
            f"its value does not fit its schema ({reason}). Set `mode` to PERMISSIVE "
            "to get NULL instead, or to DROPMALFORMED to leave such rows out.",
        )
        if self._mode is Mode.FAILFAST:
            raise error
        if not self._is_warned:
            self._is_warned = True
            logger.warning(
                "%s: rows are left out (`mode` is DROPMALFORMED), the first of them in "
                "%s, because its value does not fit its schema: %s",
                error.topic_partition,
                error.message_id,
                reason,
            )

    def _append(self, entry: Entry, size_bytes: int) -> None:
        self._count(entry, size_bytes)
        self._ends.append(self._rows)
        self._ledger_ids.append(entry.ledger_id)
        self._entry_ids.append(entry.entry_id)
        for column in self._collecting:
            column.append(entry)

    def _append_run(self, run: EntryRun) -> None:
        deliveries, first, last = run.deliveries, run.first, run.last
        before = self._rows - run.first_row
        self._ends.frombytes(deliveries.column(LAST_ROW, first, last, before))
        self._ledger_ids.frombytes(deliveries.column(LEDGER_ID, first, last))
        self._entry_ids.frombytes(deliveries.column(ENTRY_ID, first, last))
        self._count(run, run.size_bytes + self._added_bytes(len(run), run.size_bytes))
        for column in self._collecting:
            column.append_run(run)

    def _count(self, entry: Entry | EntryRun, size_bytes: int) -> None:
        self._rows += len(entry)
        self._size_bytes += size_bytes
        self._messages.append(Run(entry.table, entry.first_row, entry.last_row))

    def _has_room_for(self, rows: int, size_bytes: int) -> bool:
        return (
            self._rows + rows <= self._max_rows
            and self._size_bytes + size_bytes <= self._max_bytes
        )

    def _weight(self, entry: Entry, repeated: int) -> int:
        """Return how many bytes an entry counts in a RecordBatch."""
        rows, size_bytes = len(entry), entry.size_bytes
        return size_bytes + repeated * rows + self._added_bytes(rows, size_bytes)

    def _added_bytes(self, rows: int, size_bytes: int) -> int:
        """Return the bytes that defaults may add; 0 without a value column."""
        if self._values is None:
            return 0
        return self._decoder.added_bytes(rows, size_bytes)

    def _repeated_bytes(self, entry: Entry) -> int:
        """Return the bytes of an entry that each row repeats; 0 if they are few."""
        if not self._repeated:
            return 0
        size_bytes = sum(len(read(entry) or "") for read in self._repeated)
        return max(0, size_bytes - _SHORT_TEXTS_BYTES)

    def _pieces(self, entry: Entry, repeated: int) -> Iterator[Entry]:
        """Yield the entry, or parts of an entry too large for a RecordBatch."""
        size_bytes = self._weight(entry, repeated)
        if len(entry) <= 1 or (
            len(entry) <= self._max_rows and size_bytes <= self._max_bytes
        ):
            if len(entry):
                yield entry
            return
        middle = len(entry) // 2
        yield from self._pieces(entry.cut(0, middle), repeated)
        yield from self._pieces(entry.cut(middle, len(entry)), repeated)

    def _misfit(self, row: int, text: str) -> CorruptEntryError:
        index = bisect_right(self._ends, row)
        return CorruptEntryError(
            text,
            topic_partition=self._topic_partition,
            message_id=str(MessageId(self._ledger_ids[index], self._entry_ids[index])),
        )


class _ValueColumns:
    """The columns of the value, by runs of entries with the same schema version."""

    def __init__(self, decoder: ValueDecoder, long_run: int) -> None:
        self._decoder = decoder
        self._long_run = long_run
        self._runs: list[tuple[int, bytes]] = []  # rows and their version

    def clear(self) -> None:
        self._runs = []

    def append(self, entry: Entry) -> None:
        self._append(len(entry), entry.schema_version)

    def append_run(self, run: EntryRun) -> None:
        deliveries, first, last = run.deliveries, run.first, run.last
        rows, starts, ends = (
            deliveries.column(which, first, last).cast("q")
            for which in (LAST_ROW, SCHEMA_VERSION, SCHEMA_VERSION_END)
        )
        row = run.first_row
        for end_row, start, end in zip(rows, starts, ends, strict=True):
            if end_row > row:
                self._append(
                    end_row - row, deliveries.data[start:end] if start >= 0 else b""
                )
            row = end_row

    def _append(self, rows: int, version: bytes) -> None:
        if self._runs and self._runs[-1][1] == version:
            rows += self._runs.pop()[0]
        self._runs.append((rows, version))

    def arrays(
        self, rows: int, messages: Messages
    ) -> tuple[dict[str, pa.Array], Sequence[int], str]:
        """Return the columns, the bad rows, and the reason of the first bad row."""
        keys: pa.BinaryArray | None = None
        bad_keys: list[int] = []
        if self._decoder.needs_keys:
            keys, bad_keys = decoded_keys(messages)
        values = messages.null_with(IS_NULL, messages.binary("values"))
        groups = self._groups(rows)
        is_gathered = not isinstance(groups[0][0], range)
        parts, reason = [], ""
        bad: list[int] = []
        for places, version in groups:
            its_values, its_keys = _at(values, places), _at(keys, places)
            decoded = self._decoder.decode(ValueRun(its_values, version, its_keys))
            if len(decoded.bad):
                bad_rows = [places[row] for row in decoded.bad]
                if not bad or bad_rows[0] < bad[0]:
                    reason = decoded.reason
                    bad = bad_rows + bad
                else:
                    bad += bad_rows
            parts.append(decoded.columns)
        bad.sort()
        columns = [joined(list(part)) for part in zip(*parts, strict=True)]
        if is_gathered:
            order = pa.concat_arrays([_indices(places) for places, _ in groups])
            back = pc.array_sort_indices(order)
            columns = [column.take(back) for column in columns]
        if bad_keys:
            if not bad or bad_keys[0] < bad[0]:
                reason = "its key is said to be base64, and is not"
            bad = sorted({*bad, *bad_keys})
            good = pc.invert(_mask(bad_keys, rows))
            columns = [
                pc.if_else(good, column, pa.scalar(None, column.type))
                for column in columns
            ]
        return dict(zip(self._decoder.columns, columns, strict=True)), bad, reason

    @staticmethod
    def records(bad: Sequence[int], messages: Messages, type_: pa.DataType) -> pa.Array:
        """Return the raw values of the bad rows, NULL for all other rows."""
        values = messages.binary("values")
        raw_values = values.take(pa.array(bad, pa.int64())).to_pylist()
        records: list[bytes | str | None] = [None] * len(values)
        is_text = pa.types.is_string(type_) or pa.types.is_large_string(type_)
        for row, value in zip(bad, raw_values, strict=True):
            records[row] = value.decode("utf-8", "replace") if is_text else value
        return pa.array(records, type_)

    def _groups(self, rows: int) -> list[tuple[Sequence[int], bytes]]:
        """Return which rows to decode together, and their version.

        Rows of versions that alternate are gathered by version, and each part of their
        columns is put back afterwards; longer runs cost less where they are.
        """
        runs = self._runs or [(rows, b"")]
        first = 0
        groups: list[tuple[Sequence[int], bytes]] = []
        gathered: dict[bytes, array[int]] = {}
        is_gathered = len(runs) * self._long_run > rows and (
            len(runs) > len({version for _, version in runs})
        )
        for count, version in runs:
            places = range(first, first + count)
            first += count
            if is_gathered:
                gathered.setdefault(version, array("q")).extend(places)
            else:
                groups.append((places, version))
        if is_gathered:
            return [(places, version) for version, places in gathered.items()]
        return groups


def _at(values: pa.Array | None, places: Sequence[int]) -> pa.Array | None:
    """Return the values of the given rows."""
    if values is None:
        return None
    if isinstance(places, range):
        return values.slice(places.start, len(places))
    return values.take(_indices(places))


def _indices(places: Sequence[int]) -> pa.Int64Array:
    return pa.Array.from_buffers(pa.int64(), len(places), [None, pa.py_buffer(places)])


def _mask(rows: Sequence[int], length: int) -> pa.BooleanArray:
    """Return true for the given rows, false for all other rows."""
    return pc.is_in(
        pa.array(range(length), pa.int64()), value_set=pa.array(rows, pa.int64())
    )
