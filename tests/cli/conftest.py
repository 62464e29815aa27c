# SPDX-License-Identifier: Apache-2.0
"""The scripted broker, an admin REST of tests, and a command that is run in process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.admin_stub import AdminStub
from tests.support.commands import Run as Run
from tests.support.commands import run as run
from tests.support.fixtures import _nothing_left as _nothing_left
from tests.support.scripted_fixtures import _patient_closes as _patient_closes
from tests.support.scripted_fixtures import scripted as scripted


@pytest.fixture
def stub() -> Iterator[AdminStub]:
    """An admin REST that knows nothing yet."""
    with AdminStub() as one:
        yield one
