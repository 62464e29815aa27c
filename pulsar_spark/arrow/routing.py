# SPDX-License-Identifier: Apache-2.0
"""Which topic partition each row goes to, by the rules of the Java client.

To the one that the row names; else by the hash of its key; else round robin. This
follows from the row and its number alone, so a row that is written once more goes to
the same place.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.encode import EncodedRows
from pulsar_spark.arrow.hashing import HASHES, murmur3_32_hashes
from pulsar_spark.errors import BadRowError


class Router:
    """Chooses the partition of each row of a topic.

    Args:
        partitions: How many there are; 1 for a topic that is not partitioned.
        hashing_scheme: A key of ``hashing.HASHES``, for rows with a key.
        routing_mode: ``RoundRobinPartition`` or ``SinglePartition``, for rows without.
        first: Where round robin begins, or the single partition; modulo ``partitions``.
        run_length: Rows that go to one partition before it is the next one's turn.
        number: The partition that the topic is, None for a whole topic.
    """

    def __init__(
        self,
        partitions: int,
        hashing_scheme: str,
        routing_mode: str,
        *,
        first: int,
        run_length: int,
        number: int | None = None,
    ) -> None:
        assert routing_mode in ("RoundRobinPartition", "SinglePartition")
        self._partitions = partitions
        self._hashes = HASHES[hashing_scheme]
        self._is_single = routing_mode == "SinglePartition"
        self._first = first
        self._run_length = run_length
        self._number = number

    def route(self, rows: EncodedRows, first_row: int) -> pa.Int32Array:
        """Return the partition of each row, never NULL.

        Args:
            rows: Rows that follow each other.
            first_row: The number of the first of them.

        Raises:
            BadRowError: ``__partition`` is a partition that the topic does not have,
                or another than the topic is.
        """
        chosen = rows.partitions
        if chosen is not None:
            self._check(chosen, first_row)
        if self._partitions == 1:
            return pa.repeat(pa.scalar(0, pa.int32()), len(rows))
        if chosen is not None and not chosen.null_count:
            return chosen
        candidates = [] if chosen is None else [chosen]
        if rows.keys is not None:
            candidates.append(self._by_key(rows.keys))
        if not candidates or candidates[-1].null_count:
            candidates.append(self._in_turn(len(rows), first_row))
        return pc.coalesce(*candidates) if len(candidates) > 1 else candidates[0]

    def _check(self, chosen: pa.Int32Array, first_row: int) -> None:
        lowest, highest = 0, self._partitions - 1
        has = f"the topic has {self._partitions}, numbered from 0"
        if self._number is not None:
            lowest = highest = self._number
            has = f"the topic is partition {self._number} itself"
        ends = pc.min_max(chosen)
        for partition in ends["min"].as_py(), ends["max"].as_py():
            if partition is not None and not lowest <= partition <= highest:
                row = first_row + pc.index(chosen, partition).as_py()
                raise BadRowError(
                    f"__partition is {partition}, but {has} (row {row} of the task's "
                    "rows for the topic, from 0). Write NULL where it does not matter."
                )

    def _by_key(self, keys: pa.LargeStringArray) -> pa.Int32Array:
        """Return the partition of each row with a key; NULL where there is none."""
        texts = keys.fill_null("") if keys.null_count else keys
        partitions = self._of_hashes(self._hashes(texts))
        return (
            pc.if_else(keys.is_valid(), partitions, _NONE)
            if keys.null_count
            else partitions
        )

    def _of_hashes(self, hashes: pa.UInt32Array) -> pa.Int32Array:
        """Return the partition of each hash."""
        return self._modulo(pc.bit_wise_and(hashes, _SIGNLESS))

    def _in_turn(self, count: int, first_row: int) -> pa.Int32Array:
        first_run = first_row // self._run_length
        last_run = (first_row + count - 1) // self._run_length
        if self._is_single or last_run <= first_run:
            run = 0 if self._is_single else first_run
            partition = (run + self._first) % self._partitions
            return pa.repeat(pa.scalar(partition, pa.int32()), count)
        ones = pa.repeat(pa.scalar(1, pa.int64()), count)
        numbers = pc.cumulative_sum(ones, pa.scalar(first_row - 1, pa.int64()))
        runs = pc.divide(numbers, pa.scalar(self._run_length, pa.int64()))
        return self._modulo(pc.add(runs, pa.scalar(self._first, pa.int64())))

    def _modulo(self, numbers: pa.Array) -> pa.Int32Array:
        partitions = pa.scalar(self._partitions, numbers.type)
        whole = pc.multiply(pc.divide(numbers, partitions), partitions)
        return pc.subtract(numbers, whole).cast(pa.int32())


class SegmentRouter(Router):
    """Chooses the segment of each row of a scalable topic.

    To the one whose id the row names, if this is active; else to the one whose hashes
    have that of the key; else round robin.

    Args:
        topic: Full name, for errors.
        segments: Id, lowest and highest hash of each active segment.
        sealed: Ids of others that rows may name: they were active as the write began.
        hash_shift: Of a key's hash, the number of bits below those 16 that choose the
            segment; None where that is not known.
        first: As for `Router`.
        run_length: As for `Router`.
    """

    def __init__(
        self,
        topic: str,
        segments: Sequence[tuple[int, int, int]],
        *,
        sealed: Iterable[int] = (),
        hash_shift: int | None,
        first: int,
        run_length: int,
    ) -> None:
        super().__init__(
            len(segments),
            "Murmur3_32Hash",
            "RoundRobinPartition",
            first=first,
            run_length=run_length,
        )
        self._topic = topic
        ids = [number for number, _, _ in segments]
        self._ids = pa.array(ids, pa.int32())
        self._known_ids = pa.array([*ids, *sealed], pa.int32())
        indexes = [-1] * _HASHES
        for index, (_, start, end) in enumerate(segments):
            indexes[start : end + 1] = [index] * (end + 1 - start)
        self._by_hash = pa.array(indexes, pa.int32())
        self._is_whole = -1 not in indexes
        self._shift = None
        if hash_shift is not None:
            self._shift = pa.scalar(hash_shift, pa.uint32())

    def route(self, rows: EncodedRows, first_row: int) -> pa.Int32Array:
        """Return the index of the segment of each row, never NULL.

        Raises:
            BadRowError: ``__partition`` is no such segment, or nobody knows where a
                key belongs.
        """
        if rows.partitions is not None:
            rows = replace(rows, partitions=self._indexes(rows.partitions, first_row))
        return super().route(rows, first_row)

    def _indexes(self, chosen: pa.Int32Array, first_row: int) -> pa.Int32Array:
        known = pc.or_(chosen.is_null(), pc.is_in(chosen, self._known_ids))
        if not pc.all(known).as_py():
            row = pc.index(known, False).as_py()
            raise BadRowError(
                f"__partition is {chosen[row]}, which is no active segment of "
                f"{self._topic} (row {first_row + row} of the task's rows for the "
                "topic, from 0). Write NULL where it does not matter."
            )
        return pc.index_in(chosen, self._ids)

    def _of_hashes(self, hashes: pa.UInt32Array) -> pa.Int32Array:
        if self._shift is None or not self._is_whole:
            raise BadRowError(
                f"Rows have keys, and it is not known to which segment of {self._topic}"
                " this broker wants a key: its release is not told, or segments are"
                " missing. Leave `__key` out, or name the segment in `__partition`."
            )
        chosen = pc.shift_right(hashes, self._shift)
        return self._by_hash.take(pc.bit_wise_and(chosen, _LOW_BITS))


class EntryBuckets:
    """The entry buckets of a scalable topic's segments: rows of two share no entry.

    Brokers hand entries to consumers by their bucket, which is chosen by the low bits
    of a key's hash (PIP-486).

    Args:
        splits: For each segment, where its buckets begin, but for the first.
    """

    def __init__(self, splits: Sequence[Sequence[int]]) -> None:
        self._most = 1 + max(map(len, splits), default=0)
        buckets: list[int] = []  # by hash, for all hashes of a segment after another
        first: dict[tuple[int, ...], int] = {}
        for own in map(tuple, splits):
            if own not in first:
                first[own] = len(buckets)
                for bucket, (low, high) in enumerate(pairwise((0, *own, _HASHES))):
                    buckets += [bucket] * (high - low)
        self._buckets = pa.array(buckets, pa.int32())
        self._first = pa.array([first[tuple(own)] for own in splits], pa.int32())

    def groups(
        self, segments: pa.Int32Array, hashes: pa.UInt16Array
    ) -> tuple[pa.Array, int]:
        """Return a number for the segment and bucket of each row.

        Args:
            segments: The index of the segment of each row.
            hashes: Of each row, see ``entry_hashes``.

        Returns:
            The number of each row's pair; and the factor: a number divided by it is the
            index of the segment.
        """
        if self._most == 1:
            return segments, 1
        places = pc.add(self._first.take(segments), hashes.cast(pa.int32()))
        factor = pa.scalar(self._most, pa.int64())
        numbers = pc.multiply(segments.cast(pa.int64()), factor)
        return pc.add(numbers, self._buckets.take(places).cast(pa.int64())), self._most


def entry_hashes(rows: EncodedRows) -> pa.UInt16Array:
    """Return the entry bucket hash of each row, 0 for rows without a key.

    Of the ordering key, where a row has one, else of the key. Brokers hash bytes, not
    their base64, of an entry that is a single row; so rows of batches do the same.
    """
    keys = [] if rows.ordering_keys is None else [rows.ordering_keys]
    if rows.keys is not None and rows.keys_are_base64:
        texts = rows.keys.to_pylist()
        decoded = [None if text is None else a2b_base64(text) for text in texts]
        keys.append(pa.array(decoded, pa.large_binary()))
    elif rows.keys is not None:
        keys.append(rows.keys.cast(pa.large_binary()))
    if not keys:
        return pa.repeat(pa.scalar(0, pa.uint16()), len(rows))
    of_rows = pc.coalesce(*keys)
    if of_rows.null_count:
        of_rows = of_rows.fill_null(b"")  # whose hash is 0
    hashes = murmur3_32_hashes(of_rows)
    return pc.bit_wise_and(hashes, _LOW_BITS).cast(pa.uint16())


#: Keys have hashes of 16 bits in a scalable topic.
_MOST_HASH = 0xFFFF
_HASHES = _MOST_HASH + 1
_LOW_BITS = pa.scalar(_MOST_HASH, pa.uint32())

_NONE = pa.scalar(None, pa.int32())

#: The bits of a hash that the Java client keeps: all but the sign.
_SIGNLESS = pa.scalar(0x7FFF_FFFF, pa.uint32())

#: Runs at least so long on average are left where they are.
_LONG_RUN = 100


def partition_runs(
    partitions: pa.Array,
) -> tuple[pa.Int64Array | None, list[tuple[int, int, int]]]:
    """Group rows by the partition, or by another number, of each row.

    Where partitions change seldom, rows stay where they are, and a partition may have
    several runs. Else each has one. In both cases the rows of a partition keep their
    order.

    Args:
        partitions: Of each row its partition, none of them NULL.

    Returns:
        The order to take the rows in, None for the one that they have; and of that
        order ``(partition, start, end)`` for each run, ``end`` not included.
    """
    indices = None
    encoded = pc.run_end_encode(partitions, run_end_type=pa.int64())
    if len(encoded.values) > 1 and len(encoded.values) * _LONG_RUN > len(partitions):
        indices = pc.array_sort_indices(partitions).cast(pa.int64())  # a stable sort
        encoded = pc.run_end_encode(partitions.take(indices), run_end_type=pa.int64())
    ends = encoded.run_ends.to_pylist()
    starts = [0, *ends][:-1]
    return indices, list(zip(encoded.values.to_pylist(), starts, ends, strict=True))
