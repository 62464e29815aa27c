# SPDX-License-Identifier: Apache-2.0
"""Tests of `tests.support.option_pages`: each option has its place on the page."""

from __future__ import annotations

from pulsar_spark.options import OPTIONS
from tests.support.option_pages import THEMES, by_theme


def test_each_option_is_once_on_the_page() -> None:
    """Under a theme, and no theme is empty."""
    themes = by_theme()
    names = [spec.name for specs in themes.values() for spec in specs]
    assert sorted(names) == sorted(spec.name for spec in OPTIONS if spec.available)
    assert list(themes) == list(THEMES)
    assert all(themes.values())
