# SPDX-License-Identifier: Apache-2.0
"""The mistakes that are made, and what is known of those that survive."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

from tests.mutants.__main__ import SURVIVORS, TARGETS, read_known
from tests.mutants.mutators import mutants
from tests.mutants.runner import ROOT

SOURCE = '''
"""Text."""
from x import y

LIMIT: int = 3

class Window:
    """More text."""

    def grant(self, free: int, *, most: int = 8) -> int:
        """Even more."""
        assert free > 0
        if free < self.low and not self.over:
            _log.warning("low: %d", 7)
            return min(free, most) + 1
        for one in self.all:
            self.count -= 2
            if one.is_last:
                break
        if self.none:
            return -1
        raise ValueError(f"nothing is free, not even {1 + 1}")
'''

_IF = "if free < self.low and (not self.over):"
_RETURN = "return min(free, most) + 1"
_COUNT = "self.count -= 2"

#: What becomes of each statement.
FOUND = {
    "LIMIT: int = 3": ["LIMIT: int = 4", "LIMIT: int = 2"],
    "def grant(self, free: int, *, most: int=8) -> int:": [
        "def grant(self, free: int, *, most: int=9) -> int:",
        "def grant(self, free: int, *, most: int=7) -> int:",
    ],
    _IF: [
        "if free < self.low or not self.over:",
        "if free <= self.low and (not self.over):",
        "if free >= self.low and (not self.over):",
        "if free < self.low and self.over:",
    ],
    _RETURN: [
        "return None",
        "return min(free, most) - 1",
        "return max(free, most) + 1",
        "return min(free, most) + 2",
    ],
    _COUNT: ["", "self.count += 2", "self.count -= 3", "self.count -= 1"],
    "if one.is_last:": ["if not one.is_last:"],
    "break": ["continue"],
    "if self.none:": ["if not self.none:"],
    "return -1": ["return None", "return 1"],  # any number below 0 says the same
    "raise ValueError(f'nothing is free, not even {1 + 1}')": [""],
}


def test_mistakes():
    """Each is made once; texts, types, log lines and assertions are left alone."""
    found: dict[str, list[str]] = {}
    for mutant in mutants(SOURCE):
        found.setdefault(mutant.before, []).append(mutant.after)
        is_module = mutant.before.startswith("LIMIT")
        assert mutant.where == ("<module>" if is_module else "Window.grant")
    assert found == FOUND


@pytest.mark.parametrize(
    ("test", "mistakes"),
    [
        ("x < 3", ["x <= 3", "x >= 3", "x < 2"]),
        ("x <= 3", ["x < 3", "x > 3", "x <= 4"]),
        ("3 > x", ["3 >= x", "3 <= x", "2 > x"]),
        ("x >= 0", ["x > 0", "x < 0"]),
        ("0 <= x < y", ["0 < x < y", "0 > x < y", "0 <= x <= y", "0 <= x >= y"]),
        ("x < 0.5", ["x <= 0.5", "x >= 0.5", "x < 2.0"]),
    ],
)
def test_a_mistake_is_made_once(test: str, mistakes: list[str]):
    """However it could be written."""
    found = [mutant.after for mutant in mutants(f"while {test}:\n    pass")]
    assert found == [f"while {mistake}:" for mistake in mistakes]


@pytest.mark.parametrize("further", ["", " and few"])
def test_what_only_runs_compiled_is_left_alone(further: str):
    """It is the form in Python that is mutated."""
    source = f"if _IS_COMPILED{further}:\n    a += 1\nelse:\n    del b\n"
    found = [mutant.before for mutant in mutants(source)]
    assert {*found} == {f"if _IS_COMPILED{further}:", "del b"}


def test_mutants_are_modules_of_their_own():
    """One mistake each, and the source stays as it is."""
    plain = ast.unparse(ast.parse(SOURCE))
    texts = [ast.unparse(mutant.tree()) for mutant in mutants(SOURCE)]
    assert len(set(texts)) == len(texts) == sum(map(len, FOUND.values()))
    assert plain not in texts
    for mutant in mutants(SOURCE):
        assert ast.unparse(mutant.module) == plain
        compile(mutant.tree(), "mutant", "exec")


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


def test_a_run():
    """Of a small function: it ends well, and tells how many were killed."""
    chosen = ("--module", "protobuf", "--function", "undecodable_text")
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants", *chosen],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=540,
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"[1-9]\d* mutants killed, 0 problems", done.stdout), done.stdout
