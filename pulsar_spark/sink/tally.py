# SPDX-License-Identifier: Apache-2.0
"""How many rows a task has, and later: whether a repeat has the same ones.

Spark gives a micro-batch that it runs again the number that it had. The number alone
does not say that the rows are the same: a checkpoint that was set back makes Spark
plan the number anew, with other rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Tally:
    """What is kept of the rows of a task, or of all tasks of a micro-batch.

    Attributes:
        rows: How many they are.
    """

    rows: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.rows + other.rows)

    def __str__(self) -> str:
        return f"{self.rows} rows"

    def differs(self, other: Tally) -> bool:
        """Return whether the rows are not the same for sure."""
        return self != other


NO_ROWS = Tally()


def total(tallies: Mapping[int, Tally] | None) -> Tally | None:
    """Return the tally of all tasks; None where theirs are not known."""
    return None if tallies is None else sum(tallies.values(), NO_ROWS)
