# SPDX-License-Identifier: Apache-2.0
"""What the rows of ``tests/test_layers.py`` are made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Layer:
    """What the modules of one part may import.

    Attributes:
        ours: Parts of this package, and what `spark_topics` has of them; a part may
            always import itself.
        third_party: Packages of others.
        not_stdlib: Standard modules that are out of bounds; all others are allowed.
    """

    ours: tuple[str, ...] = ()
    third_party: tuple[str, ...] = ()
    not_stdlib: tuple[str, ...] = ()


NETWORK = ("socket", "ssl", "selectors", "asyncio", "http", "urllib.request")
CLOCK = ("time", "threading", "concurrent", "multiprocessing")
