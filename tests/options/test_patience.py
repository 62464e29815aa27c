# SPDX-License-Identifier: Apache-2.0
"""Waits that no option sets travel with the options."""

from __future__ import annotations

import pickle
from dataclasses import asdict
from typing import TYPE_CHECKING

from pulsar_spark.options import parse_common_options
from pulsar_spark.options.patience import USUAL
from tests.support import patience

if TYPE_CHECKING:
    import pytest

GIVEN = {"service.url": "pulsar://nowhere:6650", "topic": "t"}


def test_options_have_the_usual_waits() -> None:
    """None of these is an option, and none is zero."""
    waits = parse_common_options(GIVEN).client.patience
    assert waits == USUAL
    assert all(seconds > 0 for seconds in asdict(waits).values())


def test_other_waits_go_to_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the options, which are of another connection pool then."""
    before = parse_common_options(GIVEN).client
    patience.usual(monkeypatch, close_s=0.1)
    client = parse_common_options(GIVEN).client
    copied = pickle.loads(pickle.dumps(client))  # noqa: S301
    assert copied.patience.close_s == 0.1
    assert client.pool_key != before.pool_key
