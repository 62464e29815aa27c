# SPDX-License-Identifier: Apache-2.0
"""The column ``__position``: ledger, entry and place in the batch, as numbers."""

from __future__ import annotations

from array import array

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.runs import Messages
from pulsar_spark.arrow.sources import Collector
from pulsar_spark.loops.fact import COUNT, ENTRY_ID, LEDGER_ID
from pulsar_spark.wire.entries import Entry, EntryRun
from spark_topics.arrow.types import POSITION

_NO_BATCH = pa.scalar(-1, pa.int32())
_ZERO = pa.scalar(0, pa.int64())


class PositionCollector(Collector):
    """Collects three numbers for each message."""

    def clear(self) -> None:
        """Drop what was collected."""
        self._ledger_ids = array("q")
        self._entry_ids = array("q")
        self._indexes = array("i")
        self._counts = array("q")  # messages of the batch, 0 without one

    def append(self, entry: Entry) -> None:
        """Collect the positions of an entry's messages."""
        rows = len(entry)
        count = 0 if entry.first_chunk else entry.batch_size
        self._ledger_ids += array("q", (entry.ledger_id,)) * rows
        self._entry_ids += array("q", (entry.entry_id,)) * rows
        self._counts += array("q", (count,)) * rows
        self._indexes.extend(entry.batch_indexes)

    def append_run(self, run: EntryRun) -> None:
        """Collect the positions of the messages of entries unpacked together."""
        deliveries, first, last, row = (
            run.deliveries,
            run.first,
            run.last,
            run.first_row,
        )
        for numbers, which in (
            (self._ledger_ids, LEDGER_ID),
            (self._entry_ids, ENTRY_ID),
            (self._counts, COUNT),
        ):
            numbers.frombytes(deliveries.repeated(which, first, last, row))
        indexes = memoryview(run.table.batch_indexes)
        self._indexes.frombytes(indexes[row : row + len(run)].cast("B"))

    def array(self, rows: int, messages: Messages) -> pa.Array:
        """Return the positions of all rows collected."""
        del messages
        ledger_ids, entry_ids, counts = (
            pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(numbers)])
            for numbers in (self._ledger_ids, self._entry_ids, self._counts)
        )
        indexes = pa.Array.from_buffers(
            pa.int32(), rows, [None, pa.py_buffer(self._indexes)]
        )
        indexes = pc.if_else(pc.greater(counts, _ZERO), indexes, _NO_BATCH)
        return pa.StructArray.from_arrays(
            [ledger_ids, entry_ids, indexes], fields=list(POSITION)
        )
