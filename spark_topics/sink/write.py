# SPDX-License-Identifier: Apache-2.0
"""What Spark's writers require of a messaging system.

The driver makes a write and prepares it. Each task gets a copy and runs its rows. The
driver commits, or aborts, by another copy, which may be in another process: a write
holds its options and what was found out, and no connections.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

#: What a task tells the driver when it has written its rows; is pickled.
T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """Which task of a write this is.

    Attributes:
        number: The input partition's, from 0.
        attempt: How often it had been tried.
        batch_id: The micro-batch; 0 in a batch query.
        query_id: The stream; "" in a batch query.
        lacks_batch_id: Whether the rows are of a micro-batch whose number Spark does
            not tell: ``batch_id`` is 0 then.
    """

    number: int
    attempt: int = 0
    batch_id: int = 0
    query_id: str = ""
    lacks_batch_id: bool = False

    def mistakable(self, idempotence_id: str | None) -> str:
        """Say why rows may be taken for another micro-batch's, "" for no reason.

        Args:
            idempotence_id: The user's id of a batch write. An id that ends with a digit
                is taken to have the number of the micro-batch.
        """
        id_ = idempotence_id or ""
        if not self.lacks_batch_id or not id_ or id_[-1].isdigit():
            return ""
        return (
            "This write is in foreachBatch, in a thread of its own or by Spark "
            "Connect, where Spark does not tell the number of the micro-batch: rows "
            "could be taken for those of an earlier micro-batch, and not be stored. "
            "End idempotenceId with the number, as "
            f'f"{id_}-{{batch_id}}", or hand the number on to the thread by '
            "pyspark.inheritable_thread_target(spark)(function)."
        )


class BatchWrite(Protocol[T]):
    """The write of a batch query."""

    def prepare(self) -> None:
        """Check that the write can be done, once, before any task. On the driver.

        Raises:
            TopicsError: It cannot.
        """

    def run(self, task: Task, batches: Iterator[pa.RecordBatch]) -> T:
        """Write the rows of a task. On an executor.

        Raises:
            TopicsError: Not all of them could be written.
        """

    def commit(self, results: Sequence[T]) -> None:
        """Make what was written visible. On the driver.

        Args:
            results: What the tasks tell.
        """

    def abort(self, results: Sequence[T]) -> None:
        """Take back what was not committed of a write that failed. On the driver."""


class StreamWrite(Protocol[T]):
    """The write of a stream."""

    def prepare(self) -> None:
        """See `BatchWrite`."""

    def begin_micro_batch(self) -> None:
        """Take the driver's step before a micro-batch, before tasks get their copy.

        Again it does nothing.
        """

    def run(self, task: Task, batches: Iterator[pa.RecordBatch]) -> T:
        """See `BatchWrite`."""

    def commit(self, results: Sequence[T], tasks: int, batch_id: int) -> None:
        """Make what was written visible. On the driver.

        Args:
            results: What the tasks tell.
            tasks: How many there were.
            batch_id: The micro-batch.
        """

    def abort(self, results: Sequence[T], batch_id: int) -> None:
        """Take back what was written of a micro-batch that failed. On the driver."""
