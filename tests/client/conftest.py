# SPDX-License-Identifier: Apache-2.0
"""The scripted broker, for these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fixtures import _nothing_left as _nothing_left
from tests.support.fixtures import clock as clock
from tests.support.fixtures import files_rest as files_rest
from tests.support.scripted_broker import ScriptedBroker
from tests.support.scripted_fixtures import _patient_closes as _patient_closes
from tests.support.scripted_fixtures import pool as pool
from tests.support.scripted_fixtures import scripted as scripted
from tests.support.scripted_fixtures import unhurried as unhurried


@pytest.fixture(autouse=True)
def _files_rest(files_rest: None) -> None:
    """In all of these tests."""


@pytest.fixture
def there() -> Iterator[ScriptedBroker]:
    """The broker of the other cluster."""
    with ScriptedBroker() as broker:
        yield broker
