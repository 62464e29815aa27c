# SPDX-License-Identifier: Apache-2.0
"""Tests are marked by what they need, and left out of quick runs by that alone."""

from __future__ import annotations

import pytest


@pytest.fixture
def broker() -> str:
    """One of a test's own, that is called like the one of all tests."""
    return "scripted"


@pytest.mark.parametrize("topic", ["an argument"])
def test_names_alone_are_no_need(
    request: pytest.FixtureRequest, broker: str, topic: str
) -> None:
    """Such a test has no broker, and runs where there is none."""
    assert (broker, topic) == ("scripted", "an argument")
    assert request.node.get_closest_marker("broker") is None
