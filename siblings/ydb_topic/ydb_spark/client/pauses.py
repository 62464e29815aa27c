# SPDX-License-Identifier: Apache-2.0
"""How long to go on, and how long to wait between two tries."""

from __future__ import annotations

from spark_topics.client.retry import Retry
from ydb_spark.errors import ServerError, YdbError

#: What is tried at the very end of the time has as long.
LAST_TRY_S = 1.0


class Pauses:
    """The time budget of an operation, with the pauses between tries.

    They begin at 50 ms, or at half a second where the server is overloaded, and double
    up to 10 s.

    Args:
        timeout_s: How long to go on without progress.
        option: The option that sets it.
    """

    def __init__(self, timeout_s: float, option: str) -> None:
        self._fast = Retry(0.05, 10.0, timeout_s, option)
        self._slow = Retry(0.5, 10.0, timeout_s, option)

    @property
    def remaining_s(self) -> float:
        """Return the remaining time, in seconds."""
        return self._fast.remaining_s

    def restart(self) -> None:
        """Restart the full budget after progress."""
        self._fast.restart()
        self._slow.restart()

    def extend(self, seconds: float) -> None:
        """Extend the budget by time that was spent on something else."""
        self._fast.extend(seconds)
        self._slow.extend(seconds)

    def pause(self, error: YdbError) -> None:
        """Wait before the next try.

        Raises:
            YdbError: ``error``, if it is final or the time is over.
        """
        is_slow = isinstance(error, ServerError) and error.is_slow
        (self._slow if is_slow else self._fast).pause(error)
