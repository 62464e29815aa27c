# SPDX-License-Identifier: Apache-2.0
"""Heartbeats of an idle reader, such as while Spark processes rows.

A broker drops a registration that is neither fetched from nor kept by a heartbeat, 30
seconds after the last one; commits do not count.
"""

from __future__ import annotations

import logging
import threading
import time

from tubemq_spark.client.brokers import Consumer
from tubemq_spark.errors import ServerError, TubeMQError
from tubemq_spark.wire import codes

logger = logging.getLogger("tubemq_spark.client")

#: How long a reader may rest before the first one, and between two of them. Brokers can
#: be told to drop registrations after 20 s, and not earlier.
INTERVAL_S = 8.0

#: Nobody has the registration, or somebody else has.
_GONE = frozenset({codes.HB_NO_NODE, codes.DUPLICATE_PARTITION})


class Heart:
    """Sends heartbeats from a thread while a consumer is idle.

    Args:
        consumer: Registered.

    Attributes:
        failure: Why the registration is gone, if a heartbeat has found that it is. What
            else goes wrong with one is tried again with the next.
    """

    def __init__(self, consumer: Consumer) -> None:
        self.failure: ServerError | None = None
        self._consumer = consumer
        self._interval_s = INTERVAL_S
        self._is_over = threading.Event()
        threading.Thread(target=self._run, name="tubemq-heart", daemon=True).start()

    def stop(self) -> None:
        """Stop sending; a last heartbeat may still be in flight."""
        self._is_over.set()

    def _run(self) -> None:
        while not self._is_over.wait(self._until_due_s()):
            if self._until_due_s() == 0:
                self._beat()

    def _until_due_s(self) -> float:
        return max(0.0, self._consumer.used_at + self._interval_s - time.monotonic())

    def _beat(self) -> None:
        try:
            self._consumer.beat()
        except TubeMQError as error:
            if self._is_over.is_set():
                return
            logger.debug("a heartbeat failed: %s", error)
            if isinstance(error, ServerError) and error.code in _GONE:
                self.failure = error
                self.stop()
