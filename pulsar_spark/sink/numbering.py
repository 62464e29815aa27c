# SPDX-License-Identifier: Apache-2.0
"""Sequence ids of an idempotent write: the number of a row, and a digest of the rows.

::

    producer     <idempotenceId>-<task>        .<micro-batch / 2^16> behind it, if not 0
    sequence id  micro-batch % 2^16 | number of the row in its task | digest
                      16 bits                   31 bits               16 bits

The broker keeps the highest id that it has stored of each producer, and drops entries
up to it. The digest is of all rows of the task that went to this topic partition, up to
this one and in their order. So the last id alone tells how many rows of a repeated task
are stored and whether they were the same: where they were not, rows would be missing
and others be there twice, and the task fails instead.

The digest of the last row has a bit changed, if a batch holds this row. Then all rows
of the task are stored, and a repeated task that has more rows fails before these are
sent: with fewer tasks than before, another task has stored them.

A digest of 16 bits takes one of 32,768 other rows for the same.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Mapping, Sequence

from pulsar_spark.arrow.encode import EncodedRows
from pulsar_spark.checksums import crc32c
from pulsar_spark.errors import BadRowError, IdempotenceError

_DIGEST_BITS = 16
_ROW_BITS = 31
_ID_BITS = _ROW_BITS + _DIGEST_BITS
_DIGEST_MASK = (1 << _DIGEST_BITS) - 1

#: What is changed in the digest of a task's last row.
_END_BIT = 1 << (_DIGEST_BITS - 1)

#: Micro-batches that share the name of a producer.
_BATCHES_OF_A_NAME = 1 << 16

#: As ``producer_name`` makes it.
_PRODUCER_NAME = re.compile(r"(?P<id>.+)-[0-9]{1,9}(?:\.(?P<generation>[0-9]{1,9}))?")

#: Rows that a task can number in a micro-batch.
MOST_ROWS = 1 << _ROW_BITS


def producer_name(idempotence_id: str, task: int, batch_id: int) -> str:
    """Return the name of a task's producers.

    Args:
        idempotence_id: Of the write.
        task: The number of the task.
        batch_id: The micro-batch; 0 in a batch query.
    """
    name = f"{idempotence_id}-{task}"
    generation = batch_id // _BATCHES_OF_A_NAME
    return f"{name}.{generation}" if generation else name


def last_micro_batches(last_ids: Mapping[str, int]) -> dict[str, int]:
    """Return the last micro-batch of each idempotent write, by its id.

    Args:
        last_ids: The last sequence ids of producers, by name. Producers of other kinds
            do no harm.
    """
    last: dict[str, int] = {}
    for name, last_id in last_ids.items():
        parts = _PRODUCER_NAME.fullmatch(name)
        if parts is not None and last_id >= 0:
            generation = int(parts["generation"] or 0)
            batch_id = generation * _BATCHES_OF_A_NAME + (last_id >> _ID_BITS)
            last[parts["id"]] = max(batch_id, last.get(parts["id"], -1))
    return last


def require_numbers(rows: int) -> None:
    """Return if an idempotent write has a sequence id for each row of a task.

    Args:
        rows: How many rows the task has had so far.

    Raises:
        BadRowError: There are too many. The next ids are those of the micro-batch that
            follows, whose rows the broker would drop.
    """
    if rows > MOST_ROWS:
        raise BadRowError(
            f"A task has more than {MOST_ROWS:,} rows in one micro-batch or "
            "batch write, which is as many as can be numbered with "
            "`deliveryGuarantee=idempotent`. Make the micro-batch smaller, or have "
            "the source cut it into more tasks."
        )


class Numbering(Sequence[int]):
    """The sequence ids of a task's rows in a topic partition.

    It is a sequence for ``loops.sends.Packer``, which asks for the first and the last
    row of an entry, in order: so the digest goes over all rows, and is made for few.

    Args:
        idempotence_id: Of the write, for messages.
        topic_partition: Where rows go, for messages.
        batch_id: The micro-batch; 0 in a batch query.
        last_sequence_id: The highest that the broker knows of the producer, or -1.

    Raises:
        IdempotenceError: It is one of a later micro-batch.
    """

    def __init__(
        self,
        idempotence_id: str,
        topic_partition: str,
        batch_id: int,
        last_sequence_id: int,
    ) -> None:
        self._idempotence_id = idempotence_id
        self._topic_partition = topic_partition
        self._batch_id = batch_id
        generation, number = divmod(batch_id, _BATCHES_OF_A_NAME)
        self._base = number << _ID_BITS
        last_batch = -1 if last_sequence_id < 0 else last_sequence_id >> _ID_BITS
        if last_batch > number:
            last = generation * _BATCHES_OF_A_NAME + last_batch
            raise IdempotenceError(idempotence_id, topic_partition, (batch_id, last))
        self._known_row = -1  # the last one that the broker has; -1 once it has come
        if last_batch == number:
            self._known_row = (last_sequence_id >> _DIGEST_BITS) & (MOST_ROWS - 1)
            self._known_digest = last_sequence_id & _DIGEST_MASK
        self._end_row = -1  # the last one of all, if the broker has it
        self._has_new = False  # whether there were rows that the broker does not have
        self._begins_new = False  # whether the next row is the first new one
        self._digest = 0  # of all rows before ``_next``
        self._next = self._stop = 0
        self._data = memoryview(b"")
        self._offsets: Sequence[int] = (0,)
        self._numbers: Sequence[int] = ()

    def begin(
        self, rows: EncodedRows, numbers: Sequence[int], start: int, end: int
    ) -> tuple[int, bool]:
        """Begin with further rows.

        Args:
            rows: The rows.
            numbers: The number of each of them in the task, ascending.
            start: The first of them that goes here.
            end: The first of them that does not.

        Returns:
            The first row that the broker does not have, and whether no entry may hold
            rows on both sides of it.

        Raises:
            IdempotenceError: The rows that the broker has were others.
        """
        self._data, self._offsets, self._numbers = rows.data, rows.offsets, numbers
        self._next, self._stop = start, end
        if start == end:
            return start, False
        if self._known_row < 0:
            self._require_no_end()
            is_seam, self._begins_new = self._begins_new, False
            self._has_new = True
            return start, is_seam
        if numbers[end - 1] < self._known_row:
            return end, False
        last = bisect.bisect_left(numbers, self._known_row, start, end)
        digest = self._digest_to(last) & _DIGEST_MASK
        if numbers[last] != self._known_row or (
            self._known_digest not in (digest, digest ^ _END_BIT)
        ):
            raise self._other_rows()
        if self._known_digest != digest:
            self._end_row = self._known_row
        self._known_row = -1
        if last + 1 < end:
            self._require_no_end()
            self._has_new = True
        self._begins_new = last + 1 == end
        return last + 1, True

    def end(self) -> None:
        """Note the last rows."""
        if self._next < self._stop:
            self._digest = self._digest_to(self._stop - 1)
        # They are not to be kept in memory.
        self._data, self._offsets, self._numbers = memoryview(b""), (0,), ()
        self._next = self._stop = 0

    def _require_no_end(self) -> None:
        if self._end_row >= 0:
            raise self._other_rows()

    def end_bits(self) -> int:
        """Return what is to change in the number of the task's last row.

        Nothing, if the broker has that row.

        Raises:
            IdempotenceError: The last row that the broker has has not come.
        """
        if self._known_row >= 0:
            raise self._other_rows()
        return _END_BIT if self._has_new else 0

    def _other_rows(self) -> IdempotenceError:
        batch_ids = self._batch_id, self._batch_id
        return IdempotenceError(self._idempotence_id, self._topic_partition, batch_ids)

    def _digest_to(self, row: int) -> int:
        """Return the digest of all rows up to a row of the current batch."""
        begin, end = self._offsets[self._next], self._offsets[row + 1]
        return crc32c(self._data[begin:end], self._digest)

    def __getitem__(self, row: int) -> int:  # type: ignore[override]
        """Return the sequence id of a row, in ascending order of calls."""
        if row >= self._next:
            self._digest = self._digest_to(row)
            self._next = row + 1
        digest = self._digest & _DIGEST_MASK
        number = self._numbers[row]
        if number == self._end_row:
            digest ^= _END_BIT
        return self._base | number << _DIGEST_BITS | digest

    def __len__(self) -> int:
        """Return the number of rows, including rows before and after."""
        return len(self._numbers)
