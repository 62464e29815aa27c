# SPDX-License-Identifier: Apache-2.0
"""Requests under way, and waits for their replies.

There may be ten thousand of them at a time, so each is as small as can be: no lock and
no event of its own. All requests of a connection share a condition, which the
connection notifies when some of them have ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from pulsar_spark.errors import PulsarSparkError, TransportError
from pulsar_spark.wire.commands import Attached, Request

T = TypeVar("T")


class Asked(Protocol):
    """The part of a connection that requests under way use."""

    @property
    def ended(self) -> threading.Condition:
        """Return the condition that is notified when requests have ended."""

    def give_up(self, pending: Pending[Any], timeout_s: float) -> TransportError:
        """Return the error to raise when a reply did not come within ``timeout_s``."""

    def drop(self, pending: Pending[Any]) -> None:
        """Wait for a reply no longer."""


class Pending(Generic[T]):
    """A request under way.

    It ends with a reply, with a BrokerError for a refusal, or with a TransportError if
    the connection breaks first.

    Args:
        connection: The connection that is used.
        request_id: The number of the request there.
        reply_type: The type of the answer.
        request: The request; None for the handshake.

    Attributes:
        connection, request_id, reply_type: The same.
        consumer_id: The consumer that has to stay for an answer to come, None for none.
        sent_at: When the request was sent, by the monotonic clock.
        is_queued: Whether the broker has taken the request, but lets it wait for its
            turn.
    """

    __slots__ = (
        "_outcome",
        "_request",
        "connection",
        "consumer_id",
        "is_queued",
        "reply_type",
        "request_id",
        "sent_at",
    )

    def __init__(
        self,
        connection: Asked,
        request_id: int,
        reply_type: type[T],
        request: Request[Any] | None = None,
    ) -> None:
        self.connection = connection
        self.request_id = request_id
        self.reply_type = reply_type
        self.consumer_id = None if request is None else request.consumer_id
        self.is_queued = False
        self.sent_at = time.monotonic()
        self._request = request
        self._outcome: T | PulsarSparkError | None = None

    # The connection calls these two with its condition held, and notifies then.

    def set_result(self, result: T) -> None:
        """End with a reply, and forget the request: thousands may be under way."""
        self._outcome = result
        self.is_queued = False
        self._request = None

    def set_exception(self, error: PulsarSparkError) -> None:
        """End with an error."""
        self._outcome = error
        self.is_queued = False

    # What follows is of a request without a reply.

    @property
    def name(self) -> str:
        """Return the protocol's name of the request, for messages."""
        request = self._request  # which a reply takes away
        return "CONNECT" if request is None else request.name

    @property
    def subject(self) -> str:
        """Return the topic or the namespace of the request, "" for none."""
        request = self._request
        return "" if request is None else request.subject

    @property
    def attaches(self) -> Attached | None:
        """Return the producer or consumer that the request attaches, None for none."""
        request = self._request
        return None if request is None else request.attaches

    def done(self) -> bool:
        """Return whether the request has ended."""
        return self._outcome is not None

    def outcome(self) -> T | PulsarSparkError:
        """Return the reply or the error of a request that has ended."""
        assert self._outcome is not None
        return self._outcome

    def result(self) -> T:
        """Return the reply of a request that has ended, or raise its error."""
        outcome = self.outcome()
        if isinstance(outcome, PulsarSparkError):
            raise outcome
        return outcome


def await_ends(
    requests: Sequence[Pending[Any]], timeout_s: float
) -> list[Pending[Any]]:
    """Wait until all requests have ended; return those that have not in time.

    Args:
        requests: Requests on any number of connections.
        timeout_s: Longest wait, in seconds.
    """
    deadline = time.monotonic() + timeout_s
    # The last reply most often comes last: then this waits once for each connection.
    for request in reversed(requests):
        if request.done():
            continue
        ended = request.connection.ended
        with ended:
            if not ended.wait_for(request.done, deadline - time.monotonic()):
                break
    return [request for request in requests if not request.done()]
