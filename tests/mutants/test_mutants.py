# SPDX-License-Identifier: Apache-2.0
"""What is known of mistakes that survive."""

from __future__ import annotations

import pytest

from tests.mutants.__main__ import SURVIVORS, TARGETS, read_known
from tests.mutants.mutators import mutants


def test_survivors_are_mutants_that_there_are():
    """A name that means nothing any more goes: who knows what it would excuse."""
    known = read_known(SURVIVORS.read_text())
    targets = {target.module: target for target in TARGETS}
    keys = {
        module: {mutant.key for mutant in mutants(targets[module].path.read_text())}
        for module in {one.module for one in known}
    }
    assert [one for one in known if one.key not in keys[one.module]] == []
    assert len({(one.module, one.key) for one in known}) == len(known)


@pytest.mark.parametrize(
    "text", ["plan f\n- a\n+ b", "plan f\n- a\n# why", "plan\n- a\n+ b\n# why"]
)
def test_a_survivor_has_a_reason(text: str):
    """And all else that names it."""
    with pytest.raises(ValueError, match="not a survivor and its reason"):
        read_known(text)


def test_mistakes_in_a_statement_may_share_a_reason():
    """Each of them is a mutant of its own, one that leaves the statement out, too."""
    known = read_known("plan f\n- a += 1\n+ a += 2\n+ a -= 1\n+\n# why\n# that is\n")
    assert [one.key for one in known] == [
        ("f", "a += 1", "a += 2"),
        ("f", "a += 1", "a -= 1"),
        ("f", "a += 1", ""),
    ]
    assert {one.module for one in known} == {"plan"}
