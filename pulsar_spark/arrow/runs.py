# SPDX-License-Identifier: Apache-2.0
"""Rows of message tables, as Arrow arrays that view the same memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.loops.messages import BinaryColumn, MessageTable

#: Allocations from this size on are taken from the system and given back to it, while
#: Arrow's own memory pool keeps what it had.
_LARGE_BYTES = 8 * 1024 * 1024

_NO_FLAG = pa.scalar(0, pa.uint8())


def allocate(size: int) -> memoryview:
    """Return ``size`` bytes of Arrow's memory."""
    pool = pa.system_memory_pool() if size >= _LARGE_BYTES else None
    return memoryview(pa.allocate_buffer(size, memory_pool=pool)).cast("B")


class Run(NamedTuple):
    """Rows of a table; ``last`` is exclusive."""

    table: MessageTable
    first: int
    last: int


class Messages:
    """Messages as runs of rows of their tables, in order."""

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self.runs = list(runs)
        self._flags: pa.UInt8Array | None = None

    def append(self, run: Run) -> None:
        """Append the messages of a run."""
        if self.runs:
            table, first, last = self.runs[-1]
            if table is run.table and last == run.first:
                self.runs.pop()
                run = Run(table, first, run.last)
        self.runs.append(run)

    def numbers(self, column: str, type_: pa.DataType) -> pa.Array:
        """Return a column of their tables that has a number for each message."""
        return joined(
            [
                pa.Array.from_buffers(
                    type_,
                    run.last - run.first,
                    [None, buffer_of(getattr(run.table, column), run.last)],
                    offset=run.first,
                )
                for run in self.runs
            ]
        )

    def binary(self, column: str) -> pa.BinaryArray:
        """Return a column of their tables that has bytes for each message."""
        return joined(
            [
                binary_array(getattr(run.table, column), run.first, run.last)
                for run in self.runs
            ]
        )

    def have(self, flag: int) -> pa.BooleanArray:
        """Return for each message whether the flag is set."""
        if self._flags is None:
            self._flags = self.numbers("flags", pa.uint8())
        bits = pc.bit_wise_and(self._flags, pa.scalar(flag, pa.uint8()))
        return pc.not_equal(bits, _NO_FLAG)

    def any_has(self, flag: int) -> bool:
        """Return whether any message may have the flag.

        Checked per table, so it can be a false positive.
        """
        return any(run.table.any_flags & flag for run in self.runs)

    def all_have(self, flag: int) -> bool:
        """Return whether every message of their tables has the flag."""
        return all(run.table.all_flags & flag for run in self.runs)

    def null_without(self, flag: int, values: pa.BinaryArray) -> pa.BinaryArray:
        """Return the values, NULL for messages that do not have the flag."""
        if self.all_have(flag):
            return values
        return _with_nulls(values, self.have(flag))

    def null_with(self, flag: int, values: pa.BinaryArray) -> pa.BinaryArray:
        """Return the values, NULL for messages that have the flag."""
        if not self.any_has(flag):
            return values
        return _with_nulls(values, pc.invert(self.have(flag)))


def binary_array(column: BinaryColumn | None, first: int, last: int) -> pa.BinaryArray:
    """Return the rows ``first`` to ``last`` of a column; ``last`` is exclusive."""
    assert column is not None, "the table was made for other columns"
    offsets = buffer_of(column.offsets, last + 1)
    data = buffer_of(column.data, column.offsets[last])
    return pa.Array.from_buffers(
        pa.binary(), last - first, [None, offsets, data], offset=first
    )


def buffer_of(column: Sequence[int], length: int) -> pa.Buffer:
    """Return the first ``length`` items of a column of a table, not copied."""
    return pa.py_buffer(memoryview(column)[:length])  # type: ignore[arg-type]


def joined(arrays: list[pa.Array]) -> pa.Array:
    """Concatenate arrays; a single array is not copied."""
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _with_nulls(values: pa.BinaryArray, valid: pa.BooleanArray) -> pa.BinaryArray:
    _, offsets, data = values.buffers()
    if values.offset:  # of all buffers alike
        offsets = offsets.slice(4 * values.offset)
    return pa.Array.from_buffers(
        values.type, len(values), [valid.buffers()[1], offsets, data]
    )
