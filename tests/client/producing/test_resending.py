# SPDX-License-Identifier: Apache-2.0
"""What goes out again at a time, by what came back."""

from __future__ import annotations

import pytest

from pulsar_spark.client.producing.resending import Resending

KIB = 1024


def admitted(resending: Resending, size_bytes: int) -> int:
    """How many entries of a size go out before one does not."""
    count = 0
    while resending.admits(size_bytes):
        count += 1
    return count


def test_it_doubles_from_round_to_round() -> None:
    """Each receipt lets as much again follow as it is for."""
    resending = Resending(1)
    found = []
    for _ in range(5):
        found.append(admitted(resending, KIB))
        under_way = 64 * 2 ** (len(found) - 1)
        for _ in range(under_way):
            resending.stored(KIB)
    assert found == [64, 128, 256, 512, 1024]


def test_receipts_that_trickle_in() -> None:
    """For each of them two entries follow."""
    resending = Resending(1)
    admitted(resending, KIB)
    for _ in range(10):
        resending.stored(KIB)
        assert admitted(resending, KIB) == 2


@pytest.mark.parametrize(
    ("tries", "entries"), [(0, 64), (1, 64), (2, 32), (7, 1), (8, 1), (10_000, 1)]
)
def test_each_try_in_vain_halves_it(tries: int, entries: int) -> None:
    """One entry alone may always go."""
    assert admitted(Resending(tries), KIB) == entries


def test_an_entry_larger_than_all_of_it() -> None:
    """It goes alone."""
    resending = Resending(1)
    for count in (1, 1, 2):
        assert admitted(resending, 5 * KIB * KIB) == count
        resending.stored(count * 5 * KIB * KIB)


def test_receipts_of_new_entries() -> None:
    """They make no more room than if nothing were under way."""
    resending = Resending(1)
    for _ in range(3):
        resending.stored(KIB)
    assert admitted(resending, KIB) == 67


def test_what_a_producer_gives_up_makes_room_for_others() -> None:
    """The window does not grow by it: nothing of it came through."""
    resending = Resending(1)
    assert admitted(resending, KIB) == 64
    resending.given_up(16 * KIB)
    assert admitted(resending, KIB) == 16
    resending.given_up(1000 * KIB)
    assert admitted(resending, KIB) == 64
