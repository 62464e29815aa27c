# SPDX-License-Identifier: Apache-2.0
"""The id of a transaction."""

from __future__ import annotations

from typing import NamedTuple


class TxnId(NamedTuple):
    """A transaction's id. 0:0 is a valid one.

    Attributes:
        most: Number of the coordinator.
        least: Number of the transaction there.
    """

    most: int
    least: int

    def __str__(self) -> str:
        return f"{self.most}:{self.least}"
