# SPDX-License-Identifier: Apache-2.0
"""Tests of `tests.support.option_pages`: each option has its place on the page."""

from __future__ import annotations

from pulsar_spark.options import OPTIONS
from tests.support.option_pages import THEMES, by_theme, options_page


def test_each_option_is_once_on_the_page() -> None:
    """Under a theme, and no theme is empty."""
    themes = by_theme()
    names = [spec.name for specs in themes.values() for spec in specs]
    assert sorted(names) == sorted(spec.name for spec in OPTIONS if spec.available)
    assert list(themes) == list(THEMES)
    assert all(themes.values())


def test_what_is_left_for_the_last_theme() -> None:
    """A new option of another kind is given a theme of its own kind."""
    left = [spec.name for spec in by_theme()["Time, memory and names"]]
    kinds = ("pulsar.client.", "pulsar.reader.", "pulsar.consumer.properties")
    others = [name for name in left if not name.startswith(kinds)]
    assert others == ["pollTimeoutMs", "rowsPerArrowBatch", "bytesPerArrowBatch"]


def test_an_entry() -> None:
    """A heading to link to, the facts, and the meaning."""
    page = options_page()
    entry = page.partition("### `maxRowsPerTrigger`\n\n")[2].partition("\n")[0]
    assert entry.startswith(
        "*Stream read; no default; also `maxOffsetsPerTrigger`.* Most rows"
    )
    assert "\n- `" in page.partition("## Names without effect")[2]
