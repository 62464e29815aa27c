# SPDX-License-Identifier: Apache-2.0
"""The requests of one stream, read by a thread of its own so that answers need none."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any


class Inbox:
    """What a client has sent and nobody has handled yet.

    Args:
        changed: Guards it, and is notified of what comes.
        requests: The stream.
        limit_bytes: Nothing more is read while as much is unhandled.
    """

    def __init__(
        self,
        changed: threading.Condition,
        requests: Iterator[Any],
        limit_bytes: int,
    ) -> None:
        self._changed = changed
        self._requests = requests
        self._limit_bytes = limit_bytes
        self._waiting: deque[Any] = deque()
        self.unhandled_bytes = 0
        self.has_ended = False
        self.is_gone = False
        threading.Thread(target=self._pump, daemon=True).start()

    def _pump(self) -> None:
        try:
            for request in self._requests:
                with self._changed:
                    self._changed.wait_for(
                        lambda: (
                            self.is_gone or self.unhandled_bytes < self._limit_bytes
                        ),
                        600,
                    )
                    self._waiting.append(request)
                    self.unhandled_bytes += request.ByteSize()
                    self._changed.notify_all()
            with self._changed:
                self.has_ended = True
                self._changed.notify_all()
        except Exception:  # the client cancelled, or is gone
            self.leave()

    def leave(self) -> None:
        """Take it that the client is gone."""
        with self._changed:
            self.is_gone = True
            self._changed.notify_all()

    def next(self, is_due: Callable[[], bool] = lambda: False) -> Any | None:
        """Wait for a request.

        Args:
            is_due: Whether there is something else to do first.

        Returns:
            The request; None where ``is_due``, or where there will be none.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    bool(self._waiting) or self.has_ended or self.is_gone or is_due()
                ),
                600,
            )
            if self._waiting and not self.is_gone:
                return self._waiting.popleft()
            return None

    def handled(self, request: Any) -> None:
        """Make room for further requests."""
        with self._changed:
            self.unhandled_bytes -= request.ByteSize()
            self._changed.notify_all()
