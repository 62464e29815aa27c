# SPDX-License-Identifier: Apache-2.0
"""What ``make install`` takes is named exactly, and is what the ranges allow."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def group(name: str) -> list[Requirement]:
    """What one of the `dependency-groups` in pyproject.toml asks for."""
    text = (ROOT / "pyproject.toml").read_text()
    lines = text.partition(f"\n{name} = [\n")[2].partition("]\n")[0].splitlines()
    return [Requirement(line.strip(' ",')) for line in lines]


SITE = group("docs")
RELEASE = group("release")


def pins(python: str) -> dict[str, Version]:
    """The version of each package on a Python, by its canonical name."""
    found = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if text := line.partition("#")[0].strip():
            pin = Requirement(text)
            if pin.marker is None or pin.marker.evaluate({"python_version": python}):
                ((operator, version),) = (
                    (s.operator, s.version) for s in pin.specifier
                )
                assert operator == "==", text
                assert canonicalize_name(pin.name) not in found, text
                found[canonicalize_name(pin.name)] = Version(version)
    return found


@pytest.mark.parametrize("python", PYTHONS)
def test_all_that_is_asked_for_is_named(python: str):
    """Each requirement, of users, tests and development, has a version in its range."""
    exact = pins(python)
    asked = [Requirement(text) for text in metadata.requires("pulsar-spark") or ()]
    asked += SITE + RELEASE
    assert len(asked) > 10
    for one in asked:
        if one.name != "pulsar-spark":
            assert exact[canonicalize_name(one.name)] in one.specifier, one


# Where `make docs` has installed what the site needs.
SITE_PACKAGES = [*map(str, ROOT.glob(".venv-docs/lib/python*/site-packages"))]
WITH_SITE = [False, *([True] if SITE_PACKAGES else [])]


def needs(name: str) -> list[str]:
    """What a package asks for that is installed here, or for the site."""
    (package, *_) = metadata.distributions(name=name, path=[*sys.path, *SITE_PACKAGES])
    return package.requires or []


@pytest.mark.parametrize("has_site", WITH_SITE)
def test_all_that_these_ask_for_is_named(has_site: bool):
    """Everything that is installed here for them has a version that was chosen."""
    exact = pins("3.11")
    extras = ("dev", "test")
    seen = {canonicalize_name(one.name) for one in SITE} if has_site else set()
    queue = ["pulsar-spark", *seen]
    while queue:
        name = queue.pop()
        for text in needs(name):
            one = Requirement(text)
            is_due = one.marker is None or any(
                one.marker.evaluate({"extra": extra})
                for extra in (extras if name == "pulsar-spark" else ("",))
            )
            needed = canonicalize_name(one.name)
            if is_due and needed not in seen and needed != "pulsar-spark":
                seen.add(needed)
                queue.append(needed)
    assert "iniconfig" in seen
    assert ("docutils" in seen) == has_site
    assert sorted(seen - exact.keys()) == []
