# SPDX-License-Identifier: Apache-2.0
"""Rows that take their time, so that a job lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def slow(rows: DataFrame, row_ms: int = 10) -> DataFrame:
    """Return the same rows, each of which makes its task sleep."""
    return rows.filter(
        f"reflect('java.lang.Thread', 'sleep', bigint({row_ms})) = 'null'"
    )
