# SPDX-License-Identifier: Apache-2.0
"""Nothing is left open, and files rest."""

from __future__ import annotations

import pytest

from spark_topics.client import settling
from tests.support.fixtures import _nothing_left as _nothing_left


@pytest.fixture(autouse=True)
def _files_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody renews the files that a test has just made."""
    monkeypatch.setattr(settling, "_SETTLED_S", 0.0)
