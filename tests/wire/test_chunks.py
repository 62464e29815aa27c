# SPDX-License-Identifier: Apache-2.0
"""Chunks: what is put together, what is put aside, and that nobody is left unaware."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.errors import CorruptEntryError
from pulsar_spark.wire.chunks import ChunkAssembler, MissingChunks
from pulsar_spark.wire.entries import StoredEntry, read_stored_entry
from tests.support.entries import decode_entry
from tests.support.settings import range_settings
from tests.wire import builders
from tests.wire.builders import CODECS, Outer


def stored(
    entry_id: int,
    piece: bytes,
    index: int,
    count: int,
    total: int,
    *,
    uuid: str = "u",
    at_ms: int = 1000,
) -> StoredEntry:
    """One chunk, stored at 7:entry_id."""
    data = builders.chunk(
        piece, index, count, total, uuid=uuid, outer=Outer(publish_time=at_ms)
    )
    return read_stored_entry(7, entry_id, memoryview(data))


def pieces(
    text: bytes, first_id: int = 0, *, uuid: str = "u", at_ms: int = 1000
) -> list[StoredEntry]:
    """A message of one byte a chunk, in adjacent entries."""
    return [
        stored(
            first_id + n,
            text[n : n + 1],
            n,
            len(text),
            len(text),
            uuid=uuid,
            at_ms=at_ms,
        )
        for n in range(len(text))
    ]


def whole(answer: object) -> bytes:
    """The payload of a message that was put together."""
    assert isinstance(answer, StoredEntry)
    return bytes(answer.payload)


def texts(chunks: ChunkAssembler, entries: list[StoredEntry]) -> list[bytes | None]:
    """What each chunk completes; None for MissingChunks."""
    answers = [chunks.add(one) for one in entries]
    return [
        None if isinstance(answer, MissingChunks) else whole(answer)
        for answer in answers
        if answer is not None
    ]


@pytest.fixture
def chunks() -> ChunkAssembler:
    """An assembler with room for 100 bytes and three messages."""
    return assembler(100)


def assembler(
    max_bytes: int, *, max_pending: int = 3, expire_ms: int = 60_000
) -> ChunkAssembler:
    """An assembler with room for this much."""
    return ChunkAssembler(max_bytes, max_pending=max_pending, expire_ms=expire_ms)


def test_in_order(chunks: ChunkAssembler):
    """The last chunk completes the message, at its own place; the first is noted."""
    a, b, c = pieces(b"abc", 5)
    assert chunks.add(a) is None
    assert chunks.add(b) is None
    assert chunks.pending == 1
    answer = chunks.add(c)
    assert isinstance(answer, StoredEntry)
    assert whole(answer) == b"abc"
    assert answer.position == (7, 7)
    assert answer.first_chunk == (7, 5)
    assert chunks.pending == 0


@pytest.mark.parametrize("codec", CODECS)
def test_compressed(codec: int):
    """Compression is undone once, for all chunks together."""
    payload = b"something to compress " * 40
    packed = builders.compress(codec, payload)
    size = len(packed) // 3 + 1
    chunks = assembler(10_000)
    answer = None
    for index in range(3):
        data = builders.chunk(
            packed[index * size : (index + 1) * size],
            index,
            3,
            len(packed),
            outer=Outer(codec=codec),
            uncompressed_size=len(payload),
        )
        answer = chunks.add(read_stored_entry(7, index, memoryview(data)))
    assert isinstance(answer, StoredEntry)
    entry = decode_entry(answer)
    assert entry.payloads == [payload]
    assert entry.first_chunk == (7, 0)
    assert (entry.batch_size, entry.position) == (0, (7, 2))


def test_interleaved(chunks: ChunkAssembler):
    """Chunks of several messages may come in turns."""
    a = pieces(b"abc", 0, uuid="a")
    b = pieces(b"123", 10, uuid="b")
    turns = [one for pair in zip(a, b, strict=True) for one in pair]
    assert texts(chunks, turns) == [b"abc", b"123"]
    assert chunks.pending == 0


def test_duplicates(chunks: ChunkAssembler):
    """A chunk that was stored twice counts once."""
    a, b, c = pieces(b"abc")
    assert texts(chunks, [a, b, b, c]) == [b"abc"]
    a, b, c = pieces(b"abc")
    assert texts(chunks, [a, b, stored(9, b"b", 1, 3, 3), c]) == [b"abc"]


def test_a_repeated_last_chunk(chunks: ChunkAssembler):
    """After its message is whole, its last chunk alone has no others before it."""
    assert texts(chunks, [*pieces(b"ab"), pieces(b"ab")[1]]) == [b"ab", None]


def test_restart(chunks: ChunkAssembler):
    """A first chunk begins its message anew, and is the one that is noted."""
    a, b, _ = pieces(b"abc")
    resent = pieces(b"xyz", 20)
    assert texts(chunks, [a, b]) == []
    answers = [chunks.add(one) for one in resent]
    assert whole(answers[-1]) == b"xyz"
    assert isinstance(answers[-1], StoredEntry)
    assert answers[-1].first_chunk == (7, 20)


def test_restart_with_other_chunks(chunks: ChunkAssembler):
    """A resend may be cut into other pieces, as long as it begins at the beginning."""
    assert texts(chunks, [*pieces(b"abc")[:2], *pieces(b"xy", 20)]) == [b"xy"]


def test_gap(chunks: ChunkAssembler):
    """A missing chunk is reported when the last one comes, and only then."""
    a, _, c, d = pieces(b"abcd")
    assert chunks.add(a) is None
    assert chunks.add(c) is None
    assert chunks.pending == 0
    assert chunks.add(d) == MissingChunks(d)


def test_unknown_uuid(chunks: ChunkAssembler):
    """Chunks without a first one are passed over up to the last, which is reported."""
    _, b, c = pieces(b"abc")
    assert chunks.add(b) is None
    assert chunks.pending == 0
    assert chunks.add(c) == MissingChunks(c)


def test_too_many_pending(chunks: ChunkAssembler):
    """The oldest gives way; its last chunk tells."""
    sets = [pieces(b"ab", n * 10, uuid=str(n)) for n in range(4)]
    for first, _ in sets:
        assert chunks.add(first) is None
    assert chunks.pending == 3
    assert texts(chunks, [last for _, last in sets]) == [None, b"ab", b"ab", b"ab"]


def test_too_many_bytes(chunks: ChunkAssembler):
    """Bytes count over all open messages; the newest keeps its place."""
    a = stored(0, b"a" * 60, 0, 2, 61, uuid="a")
    b = stored(1, b"b" * 41, 0, 2, 42, uuid="b")
    assert chunks.add(a) is None
    assert chunks.add(b) is None
    assert chunks.pending == 1
    last_a = stored(2, b"A", 1, 2, 61, uuid="a")
    last_b = stored(3, b"B", 1, 2, 42, uuid="b")
    assert chunks.add(last_a) == MissingChunks(last_a)
    assert whole(chunks.add(last_b)) == b"b" * 41 + b"B"


def test_expired(chunks: ChunkAssembler):
    """What is much older than the newest chunk is put aside, and told of."""
    old = pieces(b"ab", 0, uuid="old", at_ms=1000)
    recent = pieces(b"ab", 10, uuid="recent", at_ms=2000)
    new = pieces(b"ab", 20, uuid="new", at_ms=61_500)
    for first, _ in (old, recent, new):
        assert chunks.add(first) is None
    assert chunks.pending == 2
    assert texts(chunks, [old[1], recent[1], new[1]]) == [None, b"ab", b"ab"]


def test_several_expire_at_once(chunks: ChunkAssembler):
    """Not only the oldest; what is exactly as old as may be is kept."""
    first, second, third = (
        pieces(b"ab", n * 10, uuid=str(n), at_ms=at_ms)
        for n, at_ms in enumerate([1000, 2000, 3000])
    )
    new = pieces(b"ab", 30, uuid="new", at_ms=63_000)
    for one in (first, second, third):
        assert chunks.add(one[0]) is None
    assert chunks.add(new[0]) is None
    assert chunks.pending == 2
    lasts = [first[1], second[1], third[1], new[1]]
    assert texts(chunks, lasts) == [None, None, b"ab", b"ab"]


def test_the_shortest_age():
    """An age of 1 is one: what is older by more is put aside."""
    chunks = assembler(100, expire_ms=1)
    for n, at_ms in enumerate([1000, 1001, 1002]):
        assert chunks.add(pieces(b"ab", n, uuid=str(n), at_ms=at_ms)[0]) is None
    assert chunks.pending == 2


def test_what_the_java_client_holds():
    """Where the options say nothing: ten messages, a minute each."""
    settings = range_settings()
    limits = {
        "max_pending": settings.max_pending_chunked_messages,
        "expire_ms": settings.expire_chunks_ms,
    }
    chunks = ChunkAssembler(100, **limits)
    for n in range(10):
        chunks.add(pieces(b"ab", n, uuid=str(n), at_ms=1000 + n)[0])
    assert chunks.pending == 10
    chunks.add(pieces(b"ab", 10, uuid="10", at_ms=1010)[0])
    assert chunks.pending == 10
    chunks = ChunkAssembler(100, **limits)
    for n, (at_ms, left) in enumerate([(1000, 1), (61_000, 2), (61_001, 2)]):
        chunks.add(pieces(b"ab", n, uuid=str(n), at_ms=at_ms)[0])
        assert chunks.pending == left


def test_nothing_expires():
    """An age of 0 stands for no limit."""
    chunks = assembler(100, expire_ms=0)
    old = pieces(b"ab", 0, uuid="old", at_ms=0)
    new = pieces(b"ab", 10, uuid="new", at_ms=2**63)
    assert texts(chunks, [old[0], new[0], old[1], new[1]]) == [b"ab", b"ab"]


def test_too_large(chunks: ChunkAssembler):
    """A message larger than the limit is an error where it ends, and held nowhere."""
    large = [stored(n, b"x" * 51, n, 2, 101) for n in range(2)]
    assert chunks.add(large[0]) is None
    assert chunks.pending == 0
    with pytest.raises(CorruptEntryError, match=r"101 bytes.*memoryLimitBytes"):
        chunks.add(large[1])


def test_as_large_as_may_be(chunks: ChunkAssembler):
    """A message of as many bytes as there is room for is put together, also in turns.

    With another one that leaves no byte free, neither has to go.
    """
    half = [stored(n, b"x" * 50, n, 2, 100, uuid="half") for n in range(2)]
    other = [stored(n, b"y" * 50, n, 2, 100, uuid="other") for n in range(2)]
    assert chunks.add(half[0]) is None
    assert chunks.add(other[0]) is None
    assert chunks.pending == 2
    assert whole(chunks.add(half[1])) == b"x" * 100
    assert whole(chunks.add(other[1])) == b"y" * 100


@pytest.mark.parametrize(("index", "count"), [(2, 2), (9, 2), (-1, 2), (2**31 - 1, 3)])
def test_impossible_numbers(chunks: ChunkAssembler, index: int, count: int):
    """A chunk is one of its count."""
    with pytest.raises(CorruptEntryError, match=f"chunk {index} of only {count}"):
        chunks.add(stored(0, b"x", index, count, 10))


@pytest.mark.parametrize(("count", "total"), [(4, 3), (2, 2), (3, 4), (3, -3)])
def test_chunks_that_disagree(chunks: ChunkAssembler, count: int, total: int):
    """All chunks of a message say the same of it; else no end of it could be told."""
    chunks.add(stored(0, b"a", 0, 3, 3))
    with pytest.raises(CorruptEntryError, match="while the first one"):
        chunks.add(stored(1, b"b", 1, count, total))


@pytest.mark.parametrize("total", [0, 1, -1, -(2**31)])
def test_more_bytes_than_promised(chunks: ChunkAssembler, total: int):
    """More bytes than promised are noticed before they are kept."""
    with pytest.raises(CorruptEntryError, match=r"more than the .* promise"):
        chunks.add(stored(0, b"ab", 0, 2, total))


def test_fewer_bytes_than_promised(chunks: ChunkAssembler):
    """Fewer are noticed at the end."""
    chunks.add(stored(0, b"a", 0, 2, 3))
    with pytest.raises(CorruptEntryError, match="hold 2 bytes, not the 3"):
        chunks.add(stored(1, b"b", 1, 2, 3))


def test_frames_are_not_kept():
    """A chunk keeps its payload alone, however large the frame around it was."""
    chunks = assembler(100)
    tracemalloc.start()
    for index in range(50):
        padding = Outer(extra=((5, b"x" * 100_000),))
        data = builders.chunk(b"x", index, 60, 60, outer=padding)
        assert chunks.add(read_stored_entry(7, index, memoryview(data))) is None
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert chunks.pending == 1
    assert held < 1_000_000


@settings(deadline=None, max_examples=200)
@given(data=st.data(), sizes=st.lists(st.integers(2, 6), min_size=1, max_size=8))
def test_any_interleaving(data: st.DataObject, sizes: list[int]):
    """With room for all, every message comes out at its last chunk, in that order."""
    messages = {
        str(n): [bytes([65 + n]) + b"%d" % i for i in range(size)]
        for n, size in enumerate(sizes)
    }
    todo = {uuid: list(enumerate(parts)) for uuid, parts in messages.items()}
    chunks = assembler(10_000, max_pending=len(sizes))
    ends = []
    for entry_id in range(sum(sizes)):
        uuid = data.draw(st.sampled_from(sorted(uuid for uuid in todo if todo[uuid])))
        index, piece = todo[uuid].pop(0)
        parts = messages[uuid]
        total = sum(map(len, parts))
        answer = chunks.add(
            stored(entry_id, piece, index, len(parts), total, uuid=uuid)
        )
        if todo[uuid]:
            assert answer is None
        else:
            assert whole(answer) == b"".join(parts)
            assert isinstance(answer, StoredEntry)
            assert answer.position == (7, entry_id)
            ends.append(uuid)
    assert sorted(ends) == sorted(messages)
    assert chunks.pending == 0


@settings(deadline=None, max_examples=200)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(0, 2), st.integers(0, 200_000)),
        max_size=40,
    )
)
def test_every_last_chunk_has_an_answer(steps: list[tuple[str, int, int]]):
    """In any order, with any losses: no last chunk passes in silence, bounds hold."""
    chunks = assembler(8, max_pending=2)
    collected: dict[str, int] = {}
    for entry_id, (uuid, index, at_ms) in enumerate(steps):
        answer = chunks.add(
            stored(entry_id, b"xy", index, 3, 6, uuid=uuid, at_ms=at_ms)
        )
        assert (answer is not None) == (index == 2)
        if isinstance(answer, StoredEntry):
            assert collected.get(uuid) == 2
        after = collected.get(uuid, 0)
        collected[uuid] = 1 if index == 0 else after + (index == after)
        if index > after or index == 2:
            collected[uuid] = 0
        assert chunks.pending <= 2
        assert chunks._size_bytes == sum(len(s.payload) for s in chunks._open.values())
        assert chunks._size_bytes <= 8


def test_put_aside_for_something_large(chunks: ChunkAssembler):
    """The oldest go until there is room; their last chunks tell of it."""
    sets = {uuid: pieces(b"x" * 40, uuid=uuid) for uuid in "ab"}
    for entries in sets.values():
        for entry in entries[:-1]:
            chunks.add(entry)
    chunks.put_aside(20)
    assert chunks.pending == 2
    chunks.put_aside(61)
    assert chunks.pending == 1
    assert isinstance(chunks.add(sets["a"][-1]), MissingChunks)
    assert whole(chunks.add(sets["b"][-1])) == b"x" * 40
    chunks.put_aside(1000)
    assert chunks.pending == 0
