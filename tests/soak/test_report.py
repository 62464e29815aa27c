# SPDX-License-Identifier: Apache-2.0
"""The soak would see what it looks for, and what grows."""

from __future__ import annotations

import pytest

from tests.soak.processes import DRIVER_JVM, WORKER
from tests.soak.report import FEW, Growth, growth_of
from tests.soak.traffic import parsed, row
from tests.soak.verify import Content


def content(*topic_partitions: list[str]) -> Content:
    """Rows, ``<partition>:<number>``."""
    return Content.of(
        [f"{name}:0:".encode() for name in names] for names in topic_partitions
    )


class TestRows:
    def test_a_row_says_what_it_is(self) -> None:
        """Its partition, its number, and when it was made."""
        part, number, made_us = parsed(row(2, 12345))
        assert (part, number) == (2, 12345)
        assert made_us > 10**15

    def test_all_are_there(self) -> None:
        """In whatever topic partition."""
        source = content(["0:0", "0:1", "0:2"], ["1:0"], ["2:0"])
        sink = content(["0:0", "2:0", "0:2"], [], ["1:0", "0:1"])
        assert sink.beside(source) == ([], [])
        assert not sink.disordered

    def test_some_are_lost_and_some_repeated(self) -> None:
        """Each of them is named."""
        source = content(["0:0", "0:1", "0:2"], ["1:0"])
        sink = content(["0:0", "0:2", "0:2", "0:2"])
        assert sink.beside(source) == (["0:1", "1:0"], ["0:2", "0:2"])

    def test_some_are_out_of_order(self) -> None:
        """Those behind later ones of their partition count."""
        assert content(["0:0", "0:3", "1:0", "0:1", "0:2"]).disordered == 2


class TestMemory:
    @pytest.mark.parametrize(
        ("kind", "per_sample", "is_flat"),
        [(WORKER, 0.0, True), (WORKER, 0.5, False), (DRIVER_JVM, 0.5, True)],
    )
    def test_what_grows_is_seen(
        self, kind: str, per_sample: float, is_flat: bool
    ) -> None:
        """Beside others of its kind that do not; a JVM may take its heap."""
        steady = [(float(n), 100.0 + n % 3) for n in range(60)]
        grows = [(float(n), 80.0 + per_sample * n) for n in range(60)]
        growth = Growth(kind, 2, [], *growth_of([steady, grows]))
        assert growth.is_judged
        assert growth.is_flat == is_flat

    def test_too_short_a_life_tells_nothing(self) -> None:
        """It is not called flat for that."""
        life = [(float(n), 100.0 * n) for n in range(FEW - 1)]
        assert not Growth(WORKER, 1, [], *growth_of([life])).is_judged

    def test_a_beginning_is_no_growth(self) -> None:
        """A process that fills what it needs, and then stays."""
        life = [(float(n), 200.0 if n > 8 else 20.0 * n) for n in range(60)]
        assert growth_of([life]) == (200.0, 200.0)
