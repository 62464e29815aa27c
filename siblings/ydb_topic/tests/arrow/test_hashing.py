# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from ydb_spark.arrow.hashing import murmur2, partition_of


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        # Of Kafka's own tests of its clients.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_known_hashes(key: bytes, signed: int):
    """They are those of Kafka's clients."""
    assert murmur2(key) == signed % (1 << 32)
    assert 0 <= partition_of(key, 7) < 7
