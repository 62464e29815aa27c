# SPDX-License-Identifier: Apache-2.0
"""The hash by which Kafka's clients spread keys over partitions: 32-bit MurmurHash2."""

from __future__ import annotations

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the hash of a key, as an unsigned number."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for index in range(0, whole, 4):
        k = int.from_bytes(data[index : index + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def partition_of(key: bytes, partitions: int) -> int:
    """Return the index of the partition for a key, as Kafka's clients do."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
