# SPDX-License-Identifier: Apache-2.0
"""The scripted broker, for these tests."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.client import segment_tail
from pulsar_spark.options.patience import USUAL
from tests.support.fixtures import _nothing_left as _nothing_left
from tests.support.fixtures import clock as clock
from tests.support.scripted_fixtures import _patient_closes as _patient_closes
from tests.support.scripted_fixtures import pool as pool
from tests.support.scripted_fixtures import scripted as scripted
from tests.support.scripted_fixtures import unhurried as unhurried

if TYPE_CHECKING:
    from tests.support.scripted_broker import ScriptedBroker


@pytest.fixture
def settling(scripted: ScriptedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that gets time knows at once where a sealed segment ends."""

    def sleep(seconds: float) -> None:
        if seconds:
            assert seconds == USUAL.settling_s
            scripted.hidden.clear()

    told = SimpleNamespace(sleep=sleep, monotonic=time.monotonic)
    monkeypatch.setattr(segment_tail, "time", told)
