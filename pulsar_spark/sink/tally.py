# SPDX-License-Identifier: Apache-2.0
"""Number and digest of a task's rows, to compare repeated attempts.

Spark gives a micro-batch that it runs again the number that it had. The number alone
does not say that the rows are the same: a checkpoint that was set back makes Spark
plan the number again, with other rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Tally:
    """The kept facts of the rows of a task, or of a micro-batch.

    Attributes:
        rows: How many they are.
        digest: Sum of the digests of the rows, 64 bits, whatever their order; None
            where a process without the compiled loops has counted them.
    """

    rows: int = 0
    digest: int | None = None

    def __add__(self, other: Tally) -> Tally:
        digest = None
        if self.digest is not None and other.digest is not None:
            digest = (self.digest + other.digest) % (1 << 64)
        return Tally(self.rows + other.rows, digest)

    def __str__(self) -> str:
        digest = "" if self.digest is None else f" (digest {self.digest:016x})"
        return f"{self.rows} rows{digest}"

    def differs(self, other: Tally) -> bool:
        """Return whether rows surely differ."""
        return self.rows != other.rows or (
            self.digest is not None
            and other.digest is not None
            and self.digest != other.digest
        )


NO_ROWS = Tally(0, 0)


def total(tallies: Mapping[int, Tally] | None) -> Tally | None:
    """Return the tally of all tasks; None where theirs are not known."""
    return None if tallies is None else sum(tallies.values(), NO_ROWS)
