# SPDX-License-Identifier: Apache-2.0
"""RecordBatches of a task that may have to be written again.

A segment of a scalable topic may be sealed while rows of a transaction are on their way
there. Rows of an open transaction cannot be read, so which of them are stored is not
known. The task aborts the transaction, and writes all its rows in another one::

    Spark's rows --> kept --> transaction 1, aborted
                      |
                      +-----> transaction 2 <-- the rest of Spark's rows
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import IO

import pyarrow as pa

#: Bytes of rows that stay in memory. More go to a file in the folder for temporary
#: files.
IN_MEMORY_BYTES = 64 << 20


class KeptBatches:
    """RecordBatches that are kept while they are consumed, for a second time.

    Args:
        batches: The rows.
        in_memory_bytes: Bytes of rows after which a file takes all.
    """

    def __init__(
        self,
        batches: Iterable[pa.RecordBatch],
        in_memory_bytes: int = IN_MEMORY_BYTES,
    ) -> None:
        self._rest = iter(batches)
        self._in_memory_bytes = in_memory_bytes
        self._kept: list[pa.RecordBatch] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._rest:
            self._keep(batch)
            yield batch

    def again(self) -> KeptBatches:
        """Return all rows from the beginning on. This object is of no use then."""
        if self._writer is not None:
            self._writer.close()
        return KeptBatches(chain(self._stored(), self._rest), self._in_memory_bytes)

    def _keep(self, batch: pa.RecordBatch) -> None:
        self._bytes += batch.nbytes
        if self._writer is not None:
            self._writer.write_batch(batch)
            return
        self._kept.append(batch)
        if self._bytes > self._in_memory_bytes:
            self._file = tempfile.TemporaryFile(prefix="spark-pulsar-")  # noqa: SIM115
            self._writer = pa.ipc.new_stream(self._file, batch.schema)
            for kept in self._kept:
                self._writer.write_batch(kept)
            self._kept.clear()

    def _stored(self) -> Iterator[pa.RecordBatch]:
        yield from self._kept
        if self._file is not None:
            with self._file as file:
                file.seek(0)
                yield from pa.ipc.open_stream(file)

    def close(self) -> None:
        """Remove the file, if there is any."""
        if self._file is not None:
            self._file.close()
