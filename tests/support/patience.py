# SPDX-License-Identifier: Apache-2.0
"""Other waits than the usual ones, see ``pulsar_spark.options.patience``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pulsar_spark.options import patience

if TYPE_CHECKING:
    import pytest

    from pulsar_spark.client.pool import ConnectionPool


def usual(monkeypatch: pytest.MonkeyPatch, **waits: Any) -> None:
    """Options that are made from now on in this test have these waits."""
    monkeypatch.setattr(patience, "USUAL", replace(patience.USUAL, **waits))


def of_pool(pool: ConnectionPool, **waits: Any) -> None:
    """All that is made with the connections from now on has these waits."""
    options = pool.options
    pool.options = replace(options, patience=replace(options.patience, **waits))
