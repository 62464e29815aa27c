# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools

from tests.support.combinations import combinations

AXES = {"codec": ("none", "lz4", "zstd"), "size": (0, 1), "is_last": (True, False)}


def test_every_combination_is_there_and_some_meet_all_pairs() -> None:
    """Without the marked ones, each two values are still together."""
    mark = combinations(**AXES)
    names, params = mark.args
    assert names == tuple(AXES)
    assert [p.values for p in params] == list(itertools.product(*AXES.values()))
    kept = [p.values for p in params if not p.marks]
    assert len(kept) == 6
    for first, second in itertools.combinations(range(3), 2):
        met = {(one[first], one[second]) for one in kept}
        axes = list(AXES.values())
        assert met == set(itertools.product(axes[first], axes[second]))
