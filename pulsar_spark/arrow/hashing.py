# SPDX-License-Identifier: Apache-2.0
"""Hashes of keys as Pulsar's clients compute them: of a key, and of a column."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

_MASK = 2**32 - 1

# -- hashes of one key -----------------------------------------------------------------


def java_string_hash(text: str) -> int:
    """``java.lang.String.hashCode``, a signed number of 32 bits."""
    number = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        number = 31 * number + unit & _MASK
    return number - 2**32 if number >= 2**31 else number


def murmur3_32(data: bytes) -> int:
    """``Murmur3_32Hash.makeRawHash`` of the Java client: seed 0, all 32 bits.

    ``makeHash`` is the same without the sign.

    Args:
        data: The UTF-8 of a key.
    """
    number = 0
    whole = len(data) & ~3
    for place in range(0, whole, 4):
        number ^= _murmur_word(int.from_bytes(data[place : place + 4], "little"))
        number = _rotate(number, 13) * 5 + 0xE6546B64 & _MASK
    number ^= _murmur_word(int.from_bytes(data[whole:], "little")) ^ len(data)
    number = (number ^ number >> 16) * 0x85EBCA6B & _MASK
    number = (number ^ number >> 13) * 0xC2B2AE35 & _MASK
    return number ^ number >> 16


def _murmur_word(word: int) -> int:
    return _rotate(word * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK


def _rotate(number: int, bits: int) -> int:
    return (number << bits | number >> 32 - bits) & _MASK


def boost_hash(data: bytes) -> int:
    """``BoostHash`` of the C++ client and of the clients built on C++: Python, Node.

    That is ``boost::hash<std::string>`` of Boost 1.82 and later on 64 bits, which C++
    clients have since version 3.5, without the sign of an ``int32_t``. Earlier ones
    have another function by the same name.

    Args:
        data: The UTF-8 of a key.
    """
    step = number = _mulx(_BOOST_Q)
    number ^= len(data)
    for place in range(0, len(data) - len(data) % 8 + 1, 8):
        step = step + _BOOST_Q & _MASK_64
        word = int.from_bytes(data[place : place + 8], "little")
        number ^= _mulx(word + step & _MASK_64)
    return _mulx(number + step & _MASK_64) & 0x7FFF_FFFF


_MASK_64 = 2**64 - 1

#: The golden ratio, as Boost begins and steps with it, and its square.
_BOOST_Q = 0x9E3779B97F4A7C15
_BOOST_K = 0xDF442D22CE4859B9


def _mulx(number: int) -> int:
    product = number * _BOOST_K
    return product >> 64 ^ product & _MASK_64


# -- hashes of a column ----------------------------------------------------------------

_UINT32 = pa.uint32()
_NO_PLACE = pa.scalar(None, pa.int64())

#: So many UTF-16 units are hashed at a time, unless a single key has more.
_UNITS = 1 << 18

#: So many words of four bytes are hashed by the column; of longer keys, each by itself.
_WORDS = 32

#: Characters of two UTF-16 units.
_PAIRED = r"[\x{10000}-\x{10FFFF}]"


def _uint32(number: int) -> pa.UInt32Scalar:
    return pa.scalar(number, _UINT32)


def _int64(number: int) -> pa.Int64Scalar:
    return pa.scalar(number, pa.int64())


def java_string_hashes(keys: pa.LargeStringArray) -> pa.UInt32Array:
    """Return the bits of `java_string_hash` of each key. No key may be NULL.

    All keys are one text. Let ``S(i)`` be the sum of its units up to place ``i``, each
    divided by 31 to the power of its place. Then the hash of the key that follows place
    ``a`` and ends at place ``b`` is ``(S(b) - S(a)) * 31^b``, modulo 2^32, where 31 has
    an inverse.

    About 0.03 us for a key of 8 characters.
    """
    # The first key follows a place, too.
    text = "\0" + str(_data(keys), "utf-8")
    units = text.encode("utf-16-le")
    count = len(units) // 2
    if count > _UNITS:
        return _halved(keys)
    sizes = pc.utf8_length(keys)
    if count > len(text):
        sizes = pc.add(sizes, pc.count_substring_regex(keys, _PAIRED))
    places = _with_zero(pc.cumulative_sum(sizes))
    powers, inverse = _powers()
    divided = pc.multiply(_array(pa.uint16(), units).cast(_UINT32), inverse[:count])
    sums = pc.cumulative_sum(divided).take(places)
    return pc.multiply(pc.subtract(sums[1:], sums[:-1]), powers.take(places[1:]))


def _halved(keys: pa.LargeStringArray) -> pa.UInt32Array:
    if len(keys) == 1:
        return pa.array([java_string_hash(keys[0].as_py()) & _MASK], _UINT32)
    middle = len(keys) // 2
    halves = keys[:middle], keys[middle:]
    return pa.concat_arrays([java_string_hashes(half) for half in halves])


@cache
def _powers() -> tuple[pa.UInt32Array, pa.UInt32Array]:
    """Return the powers of 31 and of its inverse, from power 0, modulo 2^32."""
    first_power = pa.array([1], _UINT32)

    def powers(base: int) -> pa.UInt32Array:
        bases = pa.repeat(_uint32(base), _UNITS)
        return pc.cumulative_prod(pa.concat_arrays([first_power, bases]))

    return powers(31), powers(pow(31, -1, 2**32))


def murmur3_32_hashes(
    keys: pa.LargeStringArray | pa.LargeBinaryArray,
) -> pa.UInt32Array:
    """:func:`murmur3_32` of each key. No key may be NULL.

    One word of all keys after the other. About 0.1 us for a key of 8 characters.
    """
    sizes = pc.binary_length(keys)
    places = _with_zero(pc.cumulative_sum(sizes))[:-1]
    words = _words(_data(keys))
    hashes = pa.repeat(_uint32(0), len(keys))
    largest = pc.max(sizes).as_py() or 0
    for start in range(0, min(largest - 3, 4 * _WORDS), 4):
        is_there = pc.greater_equal(sizes, _int64(start + 4))
        position = pc.if_else(is_there, pc.add(places, _int64(start)), _NO_PLACE)
        mixed = pc.bit_wise_xor(hashes, _murmur_words(words.take(position)))
        mixed = pc.multiply(_rotated(mixed, 13), _uint32(5))
        hashes = pc.coalesce(pc.add(mixed, _uint32(0xE6546B64)), hashes)
    rest = pc.bit_wise_and(sizes, _int64(3))
    last = words.take(pc.subtract(pc.add(places, sizes), rest))
    last = _murmur_words(pc.bit_wise_and(last, _REST_MASKS.take(rest)))
    hashes = pc.bit_wise_xor(hashes, pc.bit_wise_xor(last, sizes.cast(_UINT32)))
    for bits, factor in (16, 0x85EBCA6B), (13, 0xC2B2AE35):
        hashes = pc.multiply(_xor_shifted(hashes, bits), _uint32(factor))
    hashes = _xor_shifted(hashes, 16)
    return _with_long(hashes, keys, 4 * _WORDS + 4, murmur3_32)


#: Of a last word, the bytes that are part of the key, by their number.
_REST_MASKS = pa.array([0, 0xFF, 0xFFFF, 0xFFFFFF], _UINT32)


def _words(data: memoryview) -> pa.UInt32Array:
    """Return the little-endian word that begins at each offset, the end included."""
    count = len(data) + 1
    padded = _array(pa.uint8(), bytes(data) + bytes(4)).cast(_UINT32)
    words = padded[:count]
    for byte in 1, 2, 3:
        moved = pc.shift_left(padded[byte : byte + count], _uint32(8 * byte))
        words = pc.bit_wise_or(words, moved)
    return words


def _murmur_words(words: pa.UInt32Array) -> pa.UInt32Array:
    mixed = _rotated(pc.multiply(words, _uint32(0xCC9E2D51)), 15)
    return pc.multiply(mixed, _uint32(0x1B873593))


def _rotated(numbers: pa.UInt32Array, bits: int) -> pa.UInt32Array:
    return pc.bit_wise_or(
        pc.shift_left(numbers, _uint32(bits)),
        pc.shift_right(numbers, _uint32(32 - bits)),
    )


def _xor_shifted(numbers: pa.UInt32Array, bits: int) -> pa.UInt32Array:
    return pc.bit_wise_xor(numbers, pc.shift_right(numbers, _uint32(bits)))


def boost_hashes(keys: pa.LargeStringArray) -> pa.UInt32Array:
    """Return `boost_hash` of each key. No key may be NULL.

    Eight bytes of all keys after the other. About 0.15 us for a key of 8 characters.
    """
    sizes = pc.binary_length(keys)
    places = _with_zero(pc.cumulative_sum(sizes))[:-1]
    words = _long_words(_data(keys))
    step = _mulx(_BOOST_Q)
    hashes = pc.bit_wise_xor(sizes.cast(_UINT64), _uint64(step))
    largest = pc.max(sizes).as_py() or 0
    steps = pa.repeat(_uint64(step), len(keys))
    for start in range(0, min(largest - 7, 8 * _LONG_WORDS), 8):
        step = step + _BOOST_Q & _MASK_64
        is_there = pc.greater_equal(sizes, _int64(start + 8))
        position = pc.if_else(is_there, pc.add(places, _int64(start)), _NO_PLACE)
        mixed = _mulx_all(pc.add(words.take(position), _uint64(step)))
        hashes = pc.coalesce(pc.bit_wise_xor(hashes, mixed), hashes)
        steps = pc.if_else(is_there, _uint64(step), steps)
    steps = pc.add(steps, _uint64(_BOOST_Q))
    rest = pc.bit_wise_and(sizes, _int64(7))
    last = words.take(pc.subtract(pc.add(places, sizes), rest))
    last = pc.bit_wise_and(last, _LONG_REST_MASKS.take(rest))
    hashes = pc.bit_wise_xor(hashes, _mulx_all(pc.add(last, steps)))
    hashes = _mulx_all(pc.add(hashes, steps))
    hashes = pc.bit_wise_and(hashes, _uint64(0x7FFF_FFFF)).cast(_UINT32)
    return _with_long(hashes, keys, 8 * _LONG_WORDS + 8, boost_hash)


_UINT64 = pa.uint64()

#: As `_WORDS`, of words of eight bytes.
_LONG_WORDS = 16

_LONG_REST_MASKS = pa.array([(1 << 8 * size) - 1 for size in range(8)], _UINT64)


def _uint64(number: int) -> pa.UInt64Scalar:
    return pa.scalar(number, _UINT64)


def _long_words(data: memoryview) -> pa.UInt64Array:
    """Return the little-endian word of 8 bytes that begins at each offset."""
    words = pa.concat_arrays([_words(data), pa.repeat(_uint32(0), 4)]).cast(_UINT64)
    return pc.bit_wise_or(words[:-4], pc.shift_left(words[4:], _uint64(32)))


def _mulx_all(numbers: pa.UInt64Array) -> pa.UInt64Array:
    """Return `_mulx` of each number, of halves: Arrow has no product of 128 bits.

    ::

        (a 2^32 + b) (c 2^32 + d) = ac 2^64 + (ad + bc) 2^32 + bd
    """
    high, low = pc.shift_right(numbers, _HALF), pc.bit_wise_and(numbers, _LOW)
    ad, bc = pc.multiply(high, _K_LOW), pc.multiply(low, _K_HIGH)
    carried = pc.add(
        pc.shift_right(pc.multiply(low, _K_LOW), _HALF),
        pc.add(pc.bit_wise_and(ad, _LOW), pc.bit_wise_and(bc, _LOW)),
    )
    above = pc.add(
        pc.add(pc.multiply(high, _K_HIGH), pc.shift_right(carried, _HALF)),
        pc.add(pc.shift_right(ad, _HALF), pc.shift_right(bc, _HALF)),
    )
    return pc.bit_wise_xor(above, pc.multiply(numbers, _K))


_HALF, _LOW = _uint64(32), _uint64(_MASK)
_K = _uint64(_BOOST_K)
_K_HIGH, _K_LOW = _uint64(_BOOST_K >> 32), _uint64(_BOOST_K & _MASK)


def _with_long(
    hashes: pa.UInt32Array,
    keys: pa.LargeStringArray | pa.LargeBinaryArray,
    least: int,
    hash_one: Callable[[bytes], int],
) -> pa.UInt32Array:
    """Replace the hashes of keys of at least ``least`` bytes by ``hash_one``."""
    is_long = pc.greater_equal(pc.binary_length(keys), _int64(least))
    if not is_long.true_count:
        return hashes
    long = keys.filter(is_long).cast(pa.large_binary()).to_pylist()
    own = pa.array([hash_one(key) for key in long], _UINT32)
    return pc.replace_with_mask(hashes, is_long, own)


def _data(keys: pa.LargeStringArray | pa.LargeBinaryArray) -> memoryview:
    """Return the bytes of all keys, concatenated."""
    _, offsets, data = keys.buffers()
    if not len(keys) or data is None:
        return memoryview(b"")
    places = memoryview(offsets).cast("q")
    return memoryview(data)[places[keys.offset] : places[keys.offset + len(keys)]]


def _array(type_: pa.DataType, data: bytes) -> pa.Array:
    count = len(data) * 8 // type_.bit_width
    return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(data)])


def _with_zero(numbers: pa.Int64Array) -> pa.Int64Array:
    return pa.concat_arrays([pa.array([0], pa.int64()), numbers])


#: Hashes of a column of keys, by the name of the hashing scheme.
HASHES = {
    "JavaStringHash": java_string_hashes,
    "Murmur3_32Hash": murmur3_32_hashes,
    "BoostHash": boost_hashes,
}
