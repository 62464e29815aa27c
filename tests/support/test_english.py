# SPDX-License-Identifier: Apache-2.0
"""The figures of the language, on sentences that are plain and that are not."""

from __future__ import annotations

import pytest

from tests.support.english import Figures, figures_of
from tests.support.products import PRODUCTS

PLAIN = '''
"""Topics of a cluster."""

def count(names):
    """Return the number of names.

    It may rest on a pronoun from here on.
    """
    total = len(names)
    return total
'''


def figures(source: str) -> Figures:
    """The figures of a module."""
    counted = Figures()
    counted.add(source, "module.py")
    return counted


def test_plain() -> None:
    """Nothing is to be reworded; only the summary counts."""
    counted = figures(PLAIN)
    assert (counted.summaries, counted.names) == (2, 1)
    assert not counted.beyond


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("the number of names", "how many of them", "leaning: module.py:4: Return how"),
        ("total", "found", "vague: module.py:9: found"),
        ("from here on", "from here on by itself", "tics: module.py:4: by itself"),
    ],
)
def test_what_is_to_be_reworded(old: str, new: str, place: str) -> None:
    """The line says where, and what."""
    (line,) = figures(PLAIN.replace(old, new)).beyond
    assert line.startswith(place)


def test_packages_are_there() -> None:
    """Each has docstrings to measure."""
    assert all(
        figures_of(product.folder / name).summaries > 100
        for name, product in PRODUCTS.items()
    )
