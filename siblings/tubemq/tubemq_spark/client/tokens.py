# SPDX-License-Identifier: Apache-2.0
"""Visit tokens: issued by masters, demanded by some brokers.

They turn over every few minutes, and a task may begin, or register again, long after
its plan was made. A token that a broker refuses is then replaced by asking a master,
once for all tasks of the process.
"""

from __future__ import annotations

import threading

from tubemq_spark.client.masters import Masters
from tubemq_spark.options.client import ClientOptions
from tubemq_spark.wire.messages import Token

#: Refused tokens that are remembered.
_KEPT = 100


class Tokens:
    """What masters gave in the place of tokens that brokers refused.

    Args:
        options: Where the masters are.
    """

    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        self._newer: dict[Token | None, Token] = {}
        self._lock = threading.Lock()

    def newest(self, token: Token | None) -> Token | None:
        """Return the token to use: the given token, unless refused."""
        seen = {token}
        while (newer := self._newer.get(token)) is not None and newer not in seen:
            token = newer
            seen.add(newer)
        return token

    def renewed(self, token: Token | None, group: str, topic: str) -> Token | None:
        """Return a token newer than a refused token, None if there is none.

        Args:
            token: The refused one.
            group: Of a planner, see `Masters.readable`.
            topic: The purpose.

        Raises:
            TubeMQError: As `Masters.readable`.
        """
        with self._lock:
            newest = self.newest(token)
            if newest != token:
                return newest  # somebody else has asked
            with Masters(self._options) as masters:
                fresh = masters.readable(group, [topic]).token
            if fresh is None or fresh == token:
                return None
            if len(self._newer) >= _KEPT:
                self._newer.clear()
            self._newer[token] = fresh
            return fresh
