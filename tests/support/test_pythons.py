# SPDX-License-Identifier: Apache-2.0
"""The other interpreters, and what is said of those that come too late."""

from __future__ import annotations

import sys

import pytest

from tests.support import pythons

FOUND = {"3.10": "/opt/a/python", "3.12": "/opt/b/python"}


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two interpreters beside the one that runs the test."""
    own = "{}.{}".format(*sys.version_info)
    others = {f"{version}x": path for version, path in FOUND.items()}
    monkeypatch.setattr(pythons, "chosen_pythons", lambda: {own: "/own", **others})


@pytest.mark.parametrize("arguments", [[], ["--until=9e12"], ["-k", "frames", "-x"]])
def test_all_but_this_one(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """One on each line; what is said to pytest is no concern of it."""
    assert pythons.main(arguments) == 0
    assert capsys.readouterr().out.split() == list(FOUND.values())


def test_none_is_begun_too_late(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is installed for them, and each is named."""
    assert pythons.main(["--until=1"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("left out for want of time") == len(FOUND)
