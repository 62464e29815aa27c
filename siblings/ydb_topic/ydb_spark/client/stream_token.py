# SPDX-License-Identifier: Apache-2.0
"""The token of a stream that runs for longer than tokens do.

A stream begins with the token of its time, in its headers. A later one is sent within
it, one at a time. Where the server turns us away all the same, another stream begins
with another token: once, until there is progress again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ydb_spark.client.channel import Channel
from ydb_spark.client.stream import Stream
from ydb_spark.errors import AuthError, YdbError

#: How often to look whether there is a new token, in seconds.
RENEW_S = 60.0


class StreamToken:
    """See the module.

    Args:
        channel: Knows the token of here and now.
        request: Makes the request that renews it.
        renew_s: How often to look for a new one, in seconds.
    """

    def __init__(
        self, channel: Channel, request: Callable[[str], Any], renew_s: float = RENEW_S
    ) -> None:
        self._channel = channel
        self._request = request
        self._renew_s = renew_s
        self._sent = ""
        self._look_at = 0.0
        self._is_on_its_way = False
        self._may_begin_anew = True

    def begin(self) -> None:
        """Keep in mind what a stream begins with that is opened next."""
        self._sent = self._channel.token()
        self._look_at = time.monotonic() + self._renew_s
        self._is_on_its_way = False

    def renew(self, stream: Stream) -> None:
        """Send a new token, if due and available."""
        if time.monotonic() < self._look_at or self._is_on_its_way:
            return
        self._look_at = time.monotonic() + self._renew_s
        token = self._channel.token()
        if token and token != self._sent:
            self._sent = token
            self._is_on_its_way = True
            stream.send(self._request(token))

    def answered(self) -> None:
        """Note that the server accepted the new token."""
        self._is_on_its_way = False

    def progressed(self) -> None:
        """Note progress, which proves the token valid."""
        self._may_begin_anew = True

    def after(self, error: YdbError) -> YdbError:
        """Return the error that ended a stream; some errors allow another stream."""
        if not isinstance(error, AuthError) or not self._may_begin_anew:
            return error
        is_kept = self._channel.forget_login()
        if not is_kept and not self._sent:
            return error
        self._may_begin_anew = False
        return error.saying(error.message, retriable=True)
