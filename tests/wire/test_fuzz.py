# SPDX-License-Identifier: Apache-2.0
"""Any bytes from the socket to a RecordBatch: rows, or one clear error."""

from __future__ import annotations

import pytest

from tests.wire import builders, fuzz
from tests.wire.builders import CODECS, Outer, Sent


@pytest.mark.parametrize(
    ("seed", "cases"),
    [
        (0, 800),
        *(pytest.param(seed, 4_000, marks=pytest.mark.soak) for seed in (1, 2, 3)),
    ],
)
def test_damaged_streams(seed: int, cases: int):
    """Many damaged streams give what ``fuzz`` allows, and each kind of it."""
    found = fuzz.run(seed, lambda number: number < cases)
    assert found["cases"] == cases
    for kind in ("Delivery", "CorruptEntryError", "ProtocolError", "MissingChunks"):
        assert found[kind] > cases / 40, kind
    assert found["rows"] > cases / 4


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
