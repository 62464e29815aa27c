# SPDX-License-Identifier: Apache-2.0
"""A pause between plans that find nothing new, where planning takes long."""

from __future__ import annotations

import time

#: After a plan that found nothing new and took longer than ``_LONG_PLAN_S`` seconds,
#: none is made for ``_REST`` times that long, at most ``_LONGEST_REST_S`` seconds.
#: Spark asks a hundred times a second, too often for a thousand idle topic partitions.
_LONG_PLAN_S = 0.05
_REST = 4
_LONGEST_REST_S = 1.0


class IdleRest:
    """Decides when planning may be skipped because nothing has changed."""

    def __init__(self) -> None:
        self._offset: object = None
        self._until_s = 0.0  # by the monotonic clock

    def covers(self, offset: object) -> bool:
        """Return whether to plan nothing from this offset now."""
        return offset == self._offset and time.monotonic() < self._until_s

    def begin(self, offset: object, took_s: float) -> None:
        """Rest, if a plan from this offset that found nothing took long.

        Args:
            offset: Start of the plan.
            took_s: How long it took, in seconds.
        """
        self._offset = offset
        self._until_s = time.monotonic()
        if took_s > _LONG_PLAN_S:
            self._until_s += min(_REST * took_s, _LONGEST_REST_S)
