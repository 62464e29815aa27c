# SPDX-License-Identifier: Apache-2.0
"""Tests hand over what they change: none patches a private constant.

Waits are fields of the ``Patience`` of each package, sizes are arguments or fields of
settings, time is that of a clock. Where a limit is small enough, a test goes beyond it.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from tests.support.products import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: A private constant, alone or behind the name of its module.
CONSTANT = re.compile(r"(?:.*\.)?_[A-Z][A-Z0-9_]*")

#: Also in programs that tests write.
ASSIGNED = re.compile(r"(?<!\bself)(?<!\bcls)\._[A-Z][A-Z0-9_]* = ")

#: How a call names a constant; most modules have nothing like it, and are not parsed.
NAMED = re.compile(r"""\b_[A-Z][A-Z0-9_]*["'=]""")

PATCHING = {"setattr", "patch", "object", "multiple"}


def patched(source: str) -> Iterator[str]:
    """Find the calls and assignments that change a private constant."""
    for line in source.splitlines():
        if ASSIGNED.search(line):
            yield line.strip()
    if not NAMED.search(source):
        return
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if called not in PATCHING:
            continue
        texts = [a.value for a in node.args[:2] if isinstance(a, ast.Constant)]
        names = [text for text in texts if isinstance(text, str)]
        names += [keyword.arg or "" for keyword in node.keywords]
        if any(map(CONSTANT.fullmatch, names)):
            yield ast.unparse(node)


def modules() -> list[Path]:
    """All modules of tests."""
    folders = (ROOT / "tests", ROOT / "siblings")
    found = [path for folder in folders for path in folder.rglob("*.py")]
    return [ROOT / "conftest.py", *(path for path in found if "tests" in path.parts)]


def test_no_private_constant_is_patched() -> None:
    """What is private may change, and a test says what it needs."""
    found = {
        str(path.relative_to(ROOT)): list(patched(path.read_text()))
        for path in modules()
        if path.name != "test_patches.py"
    }
    assert len(found) > 300
    assert not {path: calls for path, calls in found.items() if calls}


@pytest.mark.parametrize(
    "source",
    [
        'monkeypatch.setattr(module, "_WAIT_S", 0)',
        'monkeypatch.setattr("package.module._WAIT_S", 0)',
        'mock.patch.object(module, "_WAIT_S", 0)',
        'mock.patch("package.module._WAIT_S", 0)',
        "mock.patch.multiple(module, _WAIT_S=0)",
        'setattr(module, "_WAIT_S", 0)',
        "module._WAIT_S = 0",
        'JOB = """\nmodule._WAIT_S = 0\n"""',
    ],
)
def test_each_way_is_seen(source: str) -> None:
    """Also in a program that a test writes."""
    assert list(patched(source))


@pytest.mark.parametrize(
    "source",
    [
        'monkeypatch.setattr(module, "time", clock)',
        'monkeypatch.setattr(module, "WAIT_S", 0)',
        'monkeypatch.setenv("_WAIT_S", "0")',
        "assert module._WAIT_S == 0",
        "self._WAIT_S = 0",
    ],
)
def test_other_changes_are_allowed(source: str) -> None:
    """Names that are not private, and what only reads."""
    assert not list(patched(source))
