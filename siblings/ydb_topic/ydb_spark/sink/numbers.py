# SPDX-License-Identifier: Apache-2.0
"""The names and numbers by which the server knows a repetition.

Of each producer it keeps the highest number, and stores nothing at or below it::

    producer   <id>/<input partition>[/<partition of the topic>]
    seq_no     63      32 31           0
               [ batch id ][ row, from 1 ]

Every attempt of a task has the same rows in the same order, so a number means one
row; a session stores a prefix of its messages; and the numbers of a later
micro-batch are above all of an earlier one. So a row is stored once, whatever is
repeated.
"""

from __future__ import annotations

from ydb_spark.errors import BadRowError, IdempotenceError

_ROW_BITS = 32
_MAX_ROWS = (1 << _ROW_BITS) - 2
_MAX_BATCH_ID = (1 << 31) - 1


def producer_of(id_: str, input_partition: int, partition: int | None) -> str:
    """Return the producer of what a task writes.

    Args:
        id_: Of the write, from then on.
        input_partition: The task's.
        partition: Of the topic, where rows name it: a producer stays in the first
            partition that it writes to.
    """
    name = f"{id_}/{input_partition}"
    return name if partition is None else f"{name}/{partition}"


def seq_no_of(batch_id: int, row: int) -> int:
    """Return the number of a row.

    Args:
        batch_id: The micro-batch.
        row: Of the task, from 0.

    Raises:
        BadRowError: There are more rows or micro-batches than there are numbers.
    """
    if row >= _MAX_ROWS or not 0 <= batch_id <= _MAX_BATCH_ID:
        raise BadRowError(
            f"Row {row} of micro-batch {batch_id} has no number: an idempotent write"
            f" takes {_MAX_ROWS} rows a task, and micro-batches up to {_MAX_BATCH_ID}."
        )
    return (batch_id << _ROW_BITS) | (row + 1)


def is_unknown(last_seq_no: int, batch_id: int) -> bool:
    """Return whether the server has forgotten a producer that may have written before.

    It forgets those that have been silent for weeks, and what they wrote is stored
    again if it is repeated.

    Args:
        last_seq_no: The server's highest number of the producer.
        batch_id: What is to be written.
    """
    return not last_seq_no and batch_id > 0


def require_not_later(last_seq_no: int, batch_id: int, producer: str) -> None:
    """Check that nothing of a later micro-batch is stored.

    Args:
        last_seq_no: The server's highest number of the producer.
        batch_id: What is to be written.
        producer: Whose it is.

    Raises:
        IdempotenceError: There is. The server would drop these rows without a word.
    """
    later = last_seq_no >> _ROW_BITS
    if later > batch_id:
        raise IdempotenceError(
            f"{producer} has written rows of micro-batch {later}, and this is"
            f" micro-batch {batch_id}: the server would drop its rows. The checkpoint"
            " was rolled back, or the id belongs to another query. Take a new"
            " idempotenceId and a new checkpoint."
        )
