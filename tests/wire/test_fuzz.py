# SPDX-License-Identifier: Apache-2.0
"""Any bytes from the socket to a RecordBatch: rows, or one clear error."""

from __future__ import annotations

import pytest

from tests.wire import builders, fuzz
from tests.wire.builders import CODECS, Outer, Sent

CASES = 4_000


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2, 3))]
)
def test_damaged_streams(seed: int):
    """Thousands of damaged streams give what ``fuzz`` allows, and each kind of it."""
    found = fuzz.run(seed, lambda number: number < CASES)
    assert found["cases"] == CASES
    for kind in ("Delivery", "CorruptEntryError", "ProtocolError", "MissingChunks"):
        assert found[kind] > 100, kind
    assert found["rows"] > 1000


def test_the_fuzzer_itself():
    """Streams without any damage give all their rows and no error."""
    stream = builders.connected() + b"".join(
        builders.message(make([Sent()] * 20) if batched else make(Sent()))
        for codec in CODECS
        for batched, make in (
            (True, lambda sent, codec=codec: builders.batch(sent, Outer(codec=codec))),
            (
                False,
                lambda sent, codec=codec: builders.single(sent, Outer(codec=codec)),
            ),
        )
    )
    found = fuzz.read(stream, [10, 100, 1000])
    assert found == {"Connected": 1, "Delivery": 10, "rows": 21 * 5}


def test_a_case_is_found_again():
    """A seed and a number name one stream."""
    assert fuzz.case(3, 17) == fuzz.case(3, 17) != fuzz.case(3, 18)
