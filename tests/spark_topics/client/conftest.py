# SPDX-License-Identifier: Apache-2.0
"""Nothing is left open, and files rest."""

from __future__ import annotations

import pytest

from tests.support.fixtures import _nothing_left as _nothing_left
from tests.support.fixtures import files_rest as files_rest


@pytest.fixture(autouse=True)
def _files_rest(files_rest: None) -> None:
    """In all of these tests."""
