# SPDX-License-Identifier: Apache-2.0
"""What is known of mistakes that survive."""

from __future__ import annotations

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
