# SPDX-License-Identifier: Apache-2.0
"""Products of parameters, of which `make test` runs those that meet all pairs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence


def combinations(
    **axes: Sequence[Hashable] | Mapping[str, Hashable],
) -> pytest.MarkDecorator:
    """Parametrize a test with every combination of some values.

    Those that are not needed to have each two values together once are marked
    ``matrix``, and left to ``make test-matrix``.

    Args:
        **axes: The values of each argument of the test; a mapping names them.
    """
    named = [
        axis if isinstance(axis, Mapping) else {str(value): value for value in axis}
        for axis in axes.values()
    ]
    every = list(itertools.product(*(axis.values() for axis in named)))
    needed = _covering(every)
    return pytest.mark.parametrize(
        tuple(axes),
        [
            pytest.param(
                *one,
                marks=() if one in needed else pytest.mark.matrix,
                id="-".join(filter(None, names)),
            )
            for one, names in zip(every, itertools.product(*named), strict=True)
        ],
    )


def _covering(every: Sequence[tuple[Hashable, ...]]) -> set[tuple[Hashable, ...]]:
    """Choose combinations until each two values were together, greedily."""
    left = {pair for one in every for pair in _pairs(one)}
    chosen = set()
    while left:
        best = max(every, key=lambda one: len(left.intersection(_pairs(one))))
        chosen.add(best)
        left.difference_update(_pairs(best))
    return chosen


def _pairs(one: tuple[Hashable, ...]) -> Iterator[tuple[tuple[int, Hashable], ...]]:
    return itertools.combinations(enumerate(one), 2)
