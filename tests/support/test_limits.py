# SPDX-License-Identifier: Apache-2.0
"""A test that hangs fails, by settings of pytest."""

from __future__ import annotations

import pytest


def test_every_test_has_a_limit(pytestconfig: pytest.Config) -> None:
    """A run that hangs in C code ends, too."""
    assert 0 < float(pytestconfig.getini("timeout")) <= 600
    assert 0 < float(pytestconfig.getini("faulthandler_timeout")) <= 1800
    assert pytestconfig.getini("faulthandler_exit_on_timeout")
