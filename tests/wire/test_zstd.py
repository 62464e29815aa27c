# SPDX-License-Identifier: Apache-2.0
"""ZSTD by contexts that are used again: what Arrow would say, and for many threads."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import cast

import pyarrow as pa
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st
from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError

from pulsar_spark.errors import CorruptEntryError
from pulsar_spark.wire.compression import CompressionType, compress, decompress
from pulsar_spark.wire.zstd import Contexts, contexts

ZSTD = CompressionType.ZSTD
TEXT = b"the quick brown fox, the lazy dog; " * 40
FRAME = ZstdCompressor().compress(TEXT)
NOTHING = ZstdCompressor().compress(b"")
NO_SIZE = ZstdCompressor(write_content_size=False).compress(TEXT)
CHECKED = ZstdCompressor(write_checksum=True).compress(TEXT)
OF_A_DICTIONARY = ZstdCompressor(
    dict_data=zstandard.train_dictionary(
        2000, [b"%d%s" % (number, TEXT[number:]) for number in range(200)]
    )
).compress(TEXT)
SKIPPED = bytes.fromhex("502a4d18 03000000") + b"abc"
LARGEST = 64 << 10
MAX = 1 << 20


def says(frame: bytes, size: int) -> bytes:
    """A frame that claims another size of 256 to 65,791 bytes."""
    assert frame[4] & 0xE0 == 0x60  # two bytes of size come next
    return frame[:5] + (size - 256).to_bytes(2, "little") + frame[7:]


@contextmanager
def library(module: object) -> Iterator[None]:
    """This module is what `import zstandard` finds; None for no such module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "zstandard", module)
        contexts.cache_clear()
        yield
    contexts.cache_clear()


def outcome(frame: bytes, size: int) -> bytes | memoryview | str:
    """The payload, or the words of the error."""
    try:
        return decompress(ZSTD, memoryview(frame), size, MAX)
    except CorruptEntryError as error:
        return str(error)


@pytest.mark.parametrize(
    ("frame", "size", "payload"),
    [
        pytest.param(FRAME, 1400, TEXT, id="ordinary"),
        pytest.param(FRAME, 1399, None, id="larger than the metadata says"),
        pytest.param(FRAME, 1401, None, id="smaller than the metadata says"),
        pytest.param(says(FRAME, 1399), 1399, None, id="larger than both say"),
        pytest.param(says(FRAME, 1401), 1401, None, id="smaller than both say"),
        pytest.param(says(FRAME, 1401), 1400, None, id="smaller than the frame says"),
        pytest.param(NO_SIZE, 1400, TEXT, id="no size in the frame"),
        pytest.param(NO_SIZE, 1399, None, id="no size in the frame, larger"),
        pytest.param(NO_SIZE, 1401, None, id="no size in the frame, smaller"),
        pytest.param(CHECKED, 1400, TEXT, id="checksum"),
        pytest.param(CHECKED[:-1] + b"\0", 1400, None, id="wrong checksum"),
        pytest.param(CHECKED[:-4], 1400, None, id="no checksum"),
        pytest.param(FRAME * 2, 2800, TEXT * 2, id="two frames"),
        pytest.param(FRAME * 2, 1400, None, id="two frames, larger"),
        pytest.param(NO_SIZE + FRAME, 2800, TEXT * 2, id="two different frames"),
        pytest.param(FRAME + NOTHING, 1400, TEXT, id="a frame of nothing behind"),
        pytest.param(NOTHING + FRAME, 1400, TEXT, id="a frame of nothing before"),
        pytest.param(FRAME + SKIPPED, 1400, TEXT, id="a skippable frame behind"),
        pytest.param(SKIPPED + FRAME, 1400, TEXT, id="a skippable frame before"),
        pytest.param(SKIPPED, 0, b"", id="a skippable frame alone"),
        pytest.param(FRAME + b"\0", 1400, None, id="a byte behind"),
        pytest.param(FRAME + FRAME[:-1], 1400, None, id="a part of a frame behind"),
        pytest.param(OF_A_DICTIONARY, 1400, None, id="dictionary"),
        pytest.param(NOTHING, 0, b"", id="nothing"),
        pytest.param(NOTHING[:-1], 0, None, id="nothing, cut short"),
        pytest.param(NOTHING + b"\0", 0, None, id="nothing, and a byte behind"),
        pytest.param(FRAME[4:], 1400, None, id="no magic number"),
    ],
)
def test_what_arrow_says(frame: bytes, size: int, payload: bytes | None):
    """Results and errors are Arrow's, in the same words, with and without the extra."""
    assert contexts() is not None
    found = outcome(frame, size)
    with library(None):
        assert contexts() is None
        assert outcome(frame, size) == found
    if payload is None:
        assert "decompressed with ZSTD" in str(found)
    else:
        assert found == payload


def test_every_cut_is_damage_by_both():
    """In the same words."""
    found = [outcome(CHECKED[:end], 1400) for end in range(len(CHECKED))]
    assert all("decompressed with ZSTD" in str(one) for one in found)
    with library(None):
        assert found == [outcome(CHECKED[:end], 1400) for end in range(len(CHECKED))]


FRAMES = [FRAME, NO_SIZE, CHECKED, says(FRAME, 1500), FRAME + SKIPPED, FRAME * 2]


@settings(deadline=None, max_examples=200)
@given(
    frame=st.one_of(st.sampled_from(FRAMES), st.binary(max_size=300)),
    place=st.integers(0, 100),
    byte=st.integers(0, 255),
    dropped=st.integers(0, 3),
    size=st.sampled_from([0, 1, 1399, 1400, 1401, 1500, 2800]),
)
@example(frame=FRAME, place=0, byte=0x28, dropped=0, size=1400)
def test_damage_is_arrows_to_judge(
    frame: bytes, place: int, byte: int, dropped: int, size: int
):
    """What a context unpacks, Arrow unpacks to the same bytes."""
    damaged = bytearray(frame)
    damaged[place : place + 1 + dropped] = bytes([byte])
    payload = Contexts(zstandard).decompress(bytes(damaged), size)
    if payload is not None:
        assert payload == pa.Codec("zstd").decompress(damaged, size, asbytes=True)


@settings(deadline=None)
@given(data=st.binary(max_size=3000), repeats=st.integers(1, 20))
def test_both_write_what_both_read(data: bytes, repeats: int):
    """The frames have the same form, with the size and without a checksum."""
    plain = data * repeats
    again, arrow = compress(ZSTD, plain), pa.Codec("zstd").compress(plain, asbytes=True)
    form, form_of_arrow = map(zstandard.get_frame_parameters, (again, arrow))
    assert form.content_size == form_of_arrow.content_size == len(plain)
    assert form.window_size == form_of_arrow.window_size
    assert form.dict_id == form_of_arrow.dict_id == 0
    assert form.has_checksum is form_of_arrow.has_checksum is False
    assert type(again) is bytes
    assert outcome(again, len(plain)) == outcome(arrow, len(plain)) == plain
    with library(None):
        assert compress(ZSTD, plain) == arrow
        assert outcome(again, len(plain)) == plain


def test_the_level_is_arrows():
    """So that entries are as large with the extra as without it."""
    plain = b" ".join(b"%d" % (number**3) for number in range(3000))
    levels = [ZstdCompressor(level=level).compress(plain) for level in (1, 2, 3)]
    assert len(set(levels)) == 3
    assert levels.index(compress(ZSTD, plain)) == pa.Codec("zstd").compression_level - 1


@pytest.mark.parametrize("size", [1, 255, 256, LARGEST - 1, LARGEST])
def test_small_payloads_are_not_left_to_arrow(size: int):
    """They are whole frames that say their size."""
    found = Contexts(zstandard)
    plain = random.Random(size).randbytes(size // 2) + bytes(size - size // 2)
    for given_as in (plain, memoryview(plain)):
        frame = found.compress(given_as)
        assert frame is not None
        assert found.decompress(frame, size) == plain
        assert found.decompress(memoryview(frame), size) == plain


def test_larger_payloads_are_left_to_arrow():
    """So that contexts stay small."""
    found = Contexts(zstandard)
    plain = bytes(LARGEST + 1)
    assert found.compress(plain) is None
    assert found.decompress(compress(ZSTD, plain), len(plain)) is None


@pytest.mark.parametrize("frame", [NOTHING, NOTHING[:-1], SKIPPED, b""])
def test_nothing_is_left_to_arrow(frame: bytes):
    """The library would not look whether the frame is whole."""
    assert Contexts(zstandard).decompress(frame, 0) is None


class Counted:
    """`zstandard`, but that contexts are counted, and calls go through ``meet``."""

    def __init__(self, meet: Callable[[], object] = lambda: None) -> None:
        self.made: list[object] = []
        self.used: list[object] = []
        self._meet = meet
        module = SimpleNamespace(
            ZstdError=ZstdError,
            frame_content_size=zstandard.frame_content_size,
            ZstdCompressor=lambda level: self._context(ZstdCompressor(level=level)),
            ZstdDecompressor=lambda: self._context(ZstdDecompressor()),
        )
        self.contexts = Contexts(cast("ModuleType", module))

    def _context(self, real: ZstdCompressor | ZstdDecompressor) -> object:
        context = SimpleNamespace()

        def through(call: Callable[..., bytes]) -> Callable[..., bytes]:
            def met(data: bytes, **given: bool) -> bytes:
                self.used.append(context)
                self._meet()
                return call(data, **given)

            return met

        if isinstance(real, ZstdCompressor):
            context.compress = through(real.compress)
        else:
            context.decompress = through(real.decompress)
        self.made.append(context)
        return context


def test_a_context_is_used_again():
    """One each way is enough for one thread."""
    library = Counted()
    for _ in range(5):
        frame = library.contexts.compress(TEXT)
        assert frame is not None
        assert library.contexts.decompress(frame, len(TEXT)) == TEXT
    assert len(library.made) == 2
    assert len(library.used) == 10


def test_a_context_that_failed_is_given_up():
    """A frame cut short makes a context take buffers."""
    library = Counted()
    assert library.contexts.decompress(FRAME, 1400) == TEXT
    assert library.contexts.decompress(FRAME[:-1], 1400) is None
    assert library.contexts.decompress(FRAME, 1400) == TEXT
    first, second, third = library.used
    assert first is second is not third


@pytest.mark.parametrize("way", ["compress", "decompress"])
def test_no_two_threads_use_a_context_together(way: str):
    """Three calls at once take three contexts, and later ones make no more."""
    meeting = threading.Barrier(3)
    library = Counted(lambda: meeting.wait(timeout=60))

    def call(_: int) -> bytes | None:
        if way == "compress":
            return library.contexts.compress(TEXT)
        return library.contexts.decompress(FRAME, 1400)

    with ThreadPoolExecutor(3) as pool:
        for _ in range(2):
            assert None not in pool.map(call, range(3))
    assert len(library.made) == 3
    assert len(library.used) == 6
    for three in (library.used[:3], library.used[3:]):
        assert len({id(context) for context in three}) == 3


def test_many_threads():
    """Each gets its own payload back."""
    rnd = random.Random(7)
    plains = [rnd.randbytes(rnd.randint(1, 900)) * 9 for _ in range(400)]

    def both_ways(plain: bytes) -> bool:
        return decompress(ZSTD, compress(ZSTD, plain), len(plain), MAX) == plain

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(both_ways, plains * 5))


def test_an_old_release_is_not_used():
    """It would not tell what is behind a frame."""

    class Old:
        def decompress(self, data: bytes) -> bytes:
            raise AssertionError("not for use")

    old = SimpleNamespace(
        ZstdError=ZstdError,
        frame_content_size=zstandard.frame_content_size,
        ZstdCompressor=ZstdCompressor,
        ZstdDecompressor=Old,
    )
    with library(old):
        assert contexts() is None
        assert outcome(FRAME, 1400) == TEXT
