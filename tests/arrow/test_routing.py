# SPDX-License-Identifier: Apache-2.0
"""Which partition rows go to: hashes of keys, round robin, and runs of rows."""

from __future__ import annotations

import bisect
import random
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.arrow.encode import EncodedRows, RowEncoder
from pulsar_spark.arrow.hashing import boost_hash, java_string_hash, murmur3_32
from pulsar_spark.arrow.routing import (
    EntryBuckets,
    Router,
    SegmentRouter,
    entry_hashes,
    partition_runs,
)
from pulsar_spark.errors import BadRowError

SCHEMES = ["JavaStringHash", "Murmur3_32Hash", "BoostHash"]


def rows_of(
    keys: Sequence[str | None] | None = None,
    partitions: Sequence[int | None] | None = None,
    count: int = 0,
) -> EncodedRows:
    """Rows with these keys and partitions, and nothing else."""
    count = len(keys or partitions or range(count))
    return EncodedRows(
        pa.array([b""] * count, pa.large_binary()),
        keys=None if keys is None else pa.array(keys, pa.large_string()),
        partitions=None if partitions is None else pa.array(partitions, pa.int32()),
    )


def router(
    partitions: int,
    scheme: str = "JavaStringHash",
    mode: str = "RoundRobinPartition",
    *,
    first: int = 0,
    run_length: int = 3,
) -> Router:
    """A router."""
    return Router(partitions, scheme, mode, first=first, run_length=run_length)


def route(rows: EncodedRows, by: Router, first_row: int = 0) -> list[int]:
    """The partitions of rows."""
    found = by.route(rows, first_row)
    found.validate(full=True)
    assert found.type == pa.int32()
    assert len(found) == len(rows)
    assert not found.null_count
    return found.to_pylist()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 1000])
def test_key_decides(scheme: str, partitions: int):
    """Rows with a key go where its hash says, whatever their number is."""
    keys = ["", "hello", "polygenelubricants", "größe", "\U0001f600"]
    keys += [f"key-{n}" for n in range(100)]
    hashes = {
        "JavaStringHash": [java_string_hash(key) & 0x7FFF_FFFF for key in keys],
        "Murmur3_32Hash": [murmur3_32(key.encode()) & 0x7FFF_FFFF for key in keys],
        "BoostHash": [boost_hash(key.encode()) for key in keys],
    }
    for first, first_row in ((0, 0), (1, 12345)):
        found = route(rows_of(keys), router(partitions, scheme, first=first), first_row)
        assert found == [number % partitions for number in hashes[scheme]]


def test_known_partitions():
    """Two partitions of which each has a key that is known to be on it in Java."""
    assert route(rows_of(["hello", "a", "", "key-10"]), router(2)) == [0, 1, 0, 1]
    # -2^31 has no absolute value of 32 bits: the sign is masked, not negated.
    assert route(rows_of(["polygenelubricants"]), router(3)) == [0]


def test_binary_keys_are_hashed_as_they_are_sent():
    """The base64 of a binary key chooses its partition."""
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"v"]), pa.array([b"\xff\x00"])], ["value", "__key"]
    )
    rows = RowEncoder(batch.schema).encode(batch)
    assert route(rows, router(1000)) == [java_string_hash("/wA=") % 2**31 % 1000]


def test_round_robin():
    """Runs of rows in turn, from the partition that is the task's first."""
    assert route(rows_of(count=8), router(3)) == [0, 0, 0, 1, 1, 1, 2, 2]
    assert route(rows_of(count=3), router(3, first=5), 8) == [1, 2, 2]
    assert route(rows_of(count=4), router(2, run_length=1)) == [0, 1, 0, 1]
    assert route(rows_of(count=3), router(2, run_length=100, first=1), 99) == [1, 0, 0]
    assert (
        route(rows_of(count=2), router(2, run_length=100), 2**40)
        == [2**40 // 100 % 2] * 2
    )


def test_single_partition():
    """One partition for the rows of a task without key, another for the next task's."""
    for first in range(5):
        one = router(3, mode="SinglePartition", first=first)
        assert route(rows_of(count=7), one, 2) == [first % 3] * 7
    keyed = route(rows_of(["a", None]), router(4, mode="SinglePartition", first=2))
    assert keyed == [97 % 4, 2]


def test_partition_of_the_row_comes_first():
    """Then its key, then its turn."""
    rows = rows_of(["hello", "hello", None, None, "a"], [3, None, 1, None, None])
    by_hash = 99162322 % 4
    assert route(rows, router(4, first=2)) == [3, by_hash, 1, 3, 97 % 4]
    assert route(rows_of(["hello"] * 2, [3, 2]), router(4)) == [3, 2]
    assert route(rows_of(None, [3, None]), router(4)) == [3, 0]


@pytest.mark.parametrize(("partitions", "bad"), [(1, 1), (4, 4), (4, -1), (1, -1)])
def test_partition_that_is_not_there(partitions: int, bad: int):
    """The number and how many there are, before any row is routed."""
    message = rf"is {bad}, but the topic has {partitions}, .* \(row 102 of"
    with pytest.raises(BadRowError, match=message):
        router(partitions).route(rows_of(None, [0, None, bad, 0]), 100)


def test_one_partition():
    """Without partitions, all goes to the one."""
    assert route(rows_of(["a", None], [0, None]), router(1, first=3)) == [0, 0]


def test_no_rows():
    """No rows, no partitions."""
    for by in (router(1), router(2), router(2, "Murmur3_32Hash")):
        for rows in (rows_of(), rows_of([]), rows_of([], []), rows_of(None, [])):
            assert route(rows, by) == []


_KEYS = st.none() | st.text(max_size=3)


@settings(deadline=None, max_examples=100)
@given(
    rows=st.lists(st.tuples(_KEYS, st.none() | st.integers(0, 2)), max_size=30),
    how=st.builds(
        router,
        st.just(3),
        st.sampled_from(SCHEMES),
        st.sampled_from(["RoundRobinPartition", "SinglePartition"]),
        first=st.integers(0, 10),
        run_length=st.integers(1, 10),
    ),
    first_row=st.integers(0, 2**40),
    data=st.data(),
)
def test_routes_follow_from_row_and_number(
    rows: list[tuple[str | None, int | None]],
    how: Router,
    first_row: int,
    data: st.DataObject,
):
    """The same rows go the same way, however they are cut into batches."""
    keys, partitions = [row[0] for row in rows], [row[1] for row in rows]
    whole = route(rows_of(keys, partitions), how, first_row)
    cut = data.draw(st.integers(0, len(rows)))
    parts = [
        route(rows_of(keys[:cut], partitions[:cut]), how, first_row),
        route(rows_of(keys[cut:], partitions[cut:]), how, first_row + cut),
    ]
    assert parts[0] + parts[1] == whole


@pytest.mark.parametrize("scheme", SCHEMES)
def test_distribution(scheme: str):
    """Many keys spread over all partitions, none has twice its share."""
    keys = [f"customer-{number}" for number in range(10_000)]
    counts = Counter(route(rows_of(keys), router(10, scheme)))
    assert len(counts) == 10
    assert max(counts.values()) < 2000
    assert min(counts.values()) > 500


# -- runs ------------------------------------------------------------------------------


def grouped(partitions: list[int]) -> list[tuple[int, list[int]]]:
    """Each run's partition and the numbers of its rows, found to be all of them."""
    indices, runs = partition_runs(pa.array(partitions, pa.int32()))
    order = list(range(len(partitions))) if indices is None else indices.to_pylist()
    assert sorted(order) == list(range(len(partitions)))
    ends = [0, *(end for _, _, end in runs)]
    assert [start for _, start, _ in runs] == ends[:-1]
    assert ends[-1] == len(partitions)
    found = [(partition, order[start:end]) for partition, start, end in runs]
    assert all(partitions[row] == p for p, rows in found for row in rows)
    return found


def test_one_run():
    """Rows that all go to one partition stay where they are."""
    assert partition_runs(pa.array([4, 4, 4], pa.int32())) == (None, [(4, 0, 3)])
    assert partition_runs(pa.array([], pa.int32())) == (None, [])


def test_mixed_partitions():
    """Each partition once, its rows in their order."""
    assert grouped([2, 0, 2, 1, 0]) == [(0, [1, 4]), (1, [3]), (2, [0, 2])]


def test_long_runs_stay():
    """Where partitions change seldom, rows stay, and a partition may come twice."""
    partitions = [0] * 200 + [1] * 200 + [0] * 200
    indices, runs = partition_runs(pa.array(partitions, pa.int32()))
    assert indices is None
    assert runs == [(0, 0, 200), (1, 200, 400), (0, 400, 600)]


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from([1, 2, 150])), max_size=20)
)
def test_any_partitions(changes: list[tuple[int, int]]):
    """No row is lost, and within its partition each keeps its place."""
    partitions = [number for number, count in changes for _ in range(count)]
    rows: dict[int, list[int]] = {}
    for partition, some in grouped(partitions):
        rows.setdefault(partition, []).extend(some)
    assert all(numbers == sorted(numbers) for numbers in rows.values())


def test_sort_is_stable():
    """Also of many rows, and of numbers that are no partitions but larger."""
    rng = random.Random(5)
    for largest in (1, 50, 2**40):
        numbers = [rng.randrange(largest + 1) for _ in range(5000)]
        indices, _ = partition_runs(pa.array(numbers, pa.int64()))
        assert indices is not None
        order = sorted(range(5000), key=numbers.__getitem__)
        assert indices.to_pylist() == order


class TestSegments:
    """Of a scalable topic; ids 3 and 5 have the upper and the lower half of hashes."""

    SEGMENTS: ClassVar = [(3, 0x8000, 0xFFFF), (5, 0, 0x7FFF)]

    def router(self, *, hash_shift: int | None = 0) -> SegmentRouter:
        """Whose first turn is that of the first segment."""
        return SegmentRouter(
            "topic://a/b/c",
            self.SEGMENTS,
            hash_shift=hash_shift,
            first=0,
            run_length=2,
        )

    @pytest.mark.parametrize("hash_shift", [0, 16])
    def test_by_key(self, hash_shift: int) -> None:
        """By the low bits of murmur3_32, as 5.0.0-M1 has it, or by the high ones."""
        keys = [str(number) for number in range(200)] + ["x" * 300, None]
        router = self.router(hash_shift=hash_shift)
        chosen = router.route(rows_of(keys=keys), 0).to_pylist()
        for key, index in zip(keys[:-1], chosen, strict=False):
            assert key is not None
            digest = murmur3_32(key.encode()) >> hash_shift & 0xFFFF
            assert index == (0 if digest >= 0x8000 else 1)
        assert chosen[-1] in (0, 1)

    def test_by_id(self) -> None:
        """NULL is left to turns."""
        given = rows_of(partitions=[5, 3, None, None])
        assert self.router().route(given, 0).to_pylist() == [1, 0, 1, 1]
        with pytest.raises(BadRowError, match=r"__partition is 4.*row 8 of"):
            self.router().route(rows_of(partitions=[3, 4]), 7)

    def test_by_the_id_of_a_segment_that_was_sealed_meanwhile(self) -> None:
        """Its rows go by their keys, to its children; those without one take turns."""
        router = SegmentRouter(
            "topic://a/b/c",
            self.SEGMENTS,
            sealed=[0, 2],
            hash_shift=0,
            first=0,
            run_length=2,
        )
        keys = ["a", "b", "c", "d"]
        by_key = router.route(rows_of(keys=keys), 0).to_pylist()
        assert len(set(by_key)) == 2
        named = rows_of(keys=keys, partitions=[2, 0, 5, None])
        assert router.route(named, 0).to_pylist() == [*by_key[:2], 1, by_key[3]]
        assert router.route(rows_of(partitions=[2, 2, 2]), 0).to_pylist() == [0, 0, 1]
        with pytest.raises(BadRowError, match=r"__partition is 1.*row 8 of"):
            router.route(rows_of(partitions=[2, 1]), 7)

    def test_keys_of_another_release(self) -> None:
        """Never a wrong segment in silence."""
        router = self.router(hash_shift=None)
        with pytest.raises(BadRowError, match="not known to which segment"):
            router.route(rows_of(keys=["a"]), 0)
        assert router.route(rows_of(keys=["a"], partitions=[5]), 0).to_pylist() == [1]
        assert len(router.route(rows_of(count=3), 0)) == 3


class TestEntryBuckets:
    """Of scalable topics (PIP-486)."""

    #: The hash of the Java client 5.0.1: its high half for segments, its low for
    #: buckets.
    JAVA: ClassVar = {
        "": (0x0000, 0x0000),
        "a": (0x3C25, 0x69B2),
        "k1": (0xFDC6, 0x602A),
        "order-17": (0x03C2, 0x87C0),
        "größer": (0xD64F, 0x72E6),
        "日本": (0xC4D9, 0xF942),
        "k" * 150: (0x78D7, 0xC20E),
    }

    def test_hashes(self) -> None:
        """As the Java client computes them; those of bytes are of the bytes."""
        keys = list(self.JAVA)
        low = [bucket for _, bucket in self.JAVA.values()]
        assert entry_hashes(rows_of(keys=[*keys, None])).to_pylist() == [*low, 0]
        texts = [b64encode(key.encode()).decode() for key in keys]
        of_bytes = replace(rows_of(keys=[*texts, None]), keys_are_base64=True)
        assert entry_hashes(of_bytes).to_pylist() == [*low, 0]
        for key, (high, bucket) in self.JAVA.items():
            assert murmur3_32(key.encode()) == high << 16 | bucket

    def test_ordering_keys_come_first(self) -> None:
        """As brokers see it, too; then keys, and 0 without either."""
        rows = replace(
            rows_of(keys=["k1", "k1", None]),
            ordering_keys=pa.array([b"a", None, None], pa.large_binary()),
        )
        assert entry_hashes(rows).to_pylist() == [0x69B2, 0x602A, 0]
        assert entry_hashes(rows_of(count=2)).to_pylist() == [0, 0]
        assert entry_hashes(rows).type == pa.uint16()

    @given(
        splits=st.lists(
            st.sets(st.integers(1, 0xFFFF), max_size=4).map(sorted),
            min_size=1,
            max_size=4,
        ),
        data=st.data(),
    )
    def test_any_buckets(self, splits: list[list[int]], data: st.DataObject) -> None:
        """Rows have one number exactly if they are of one bucket of one segment."""
        edges = sorted({0, 0xFFFF, *(n for own in splits for n in own)})
        numbers = st.sampled_from(edges) | st.integers(0, 0xFFFF)
        rows = data.draw(
            st.lists(st.tuples(st.integers(0, len(splits) - 1), numbers), max_size=30)
        )
        groups, count = EntryBuckets(splits).groups(
            pa.array([segment for segment, _ in rows], pa.int32()),
            pa.array([number for _, number in rows], pa.uint16()),
        )
        buckets = [
            (segment, bisect.bisect_right(splits[segment], number))
            for segment, number in rows
        ]
        assert [divmod(group, count) for group in groups.to_pylist()] == buckets
