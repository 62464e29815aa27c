# SPDX-License-Identifier: Apache-2.0
"""Many requests at once: all are sent before replies are awaited.

So a question about a thousand topic partitions costs one round trip, and not a
thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.pending import Pending, await_ends
from pulsar_spark.errors import PulsarSparkError
from pulsar_spark.wire.commands import ReplyT, Request

K = TypeVar("K")
T = TypeVar("T")

#: Resolution of the silence timeout: it is checked this many times.
_STEPS = 10


def fan_out(
    connections: Mapping[K, Connection | PulsarSparkError],
    requests: Mapping[K, Request[ReplyT]],
    timeout_s: float,
) -> dict[K, ReplyT | PulsarSparkError]:
    """Send a request to each connection and return a reply or an error for each.

    Args:
        connections: Whom to ask, or why that cannot be done, which is the answer then.
        requests: What to ask; needed where there is a connection.
        timeout_s: Longest time without any reply, in seconds.
    """
    return gather(send_all(connections, requests), timeout_s)


def send_all(
    connections: Mapping[K, Connection | PulsarSparkError],
    requests: Mapping[K, Request[ReplyT]],
) -> dict[K, Pending[ReplyT] | PulsarSparkError]:
    """Send many requests, grouped by broker, without waiting for replies.

    Args:
        connections: Whom to ask, or why that cannot be done, which is passed on.
        requests: What to ask; needed where there is a connection.
    """
    sent: dict[K, Pending[ReplyT] | PulsarSparkError] = {
        key: error
        for key, error in connections.items()
        if isinstance(error, PulsarSparkError)
    }
    for connection, keys in _by_connection(connections).items():
        pending = connection.request_all([requests[key] for key in keys])
        sent.update(zip(keys, pending, strict=True))
    return sent


def tell_all(
    connections: Mapping[K, Connection], requests: Mapping[K, Request[Any]]
) -> None:
    """Send many requests as ``send_all`` does, and want no replies."""
    for connection, keys in _by_connection(connections).items():
        connection.tell_all([requests[key] for key in keys])


def _by_connection(
    connections: Mapping[K, Connection | PulsarSparkError],
) -> dict[Connection, list[K]]:
    """Return the keys of each connection."""
    keys: dict[Connection, list[K]] = {}
    for key, connection in connections.items():
        if isinstance(connection, Connection):
            keys.setdefault(connection, []).append(key)
    return keys


def gather(
    sent: Mapping[K, Pending[ReplyT] | PulsarSparkError], timeout_s: float
) -> dict[K, ReplyT | PulsarSparkError]:
    """Wait for many replies together and return a reply or an error for each.

    Args:
        sent: The requests, or why they were not sent.
        timeout_s: Longest time without any reply, in seconds: thousands of topics that
            a broker has to load first take their time.
    """
    _await_all(
        [reply for reply in sent.values() if isinstance(reply, Pending)], timeout_s
    )
    answers: dict[K, ReplyT | PulsarSparkError] = {}
    for key, pending in sent.items():
        if isinstance(pending, PulsarSparkError):
            answers[key] = pending
        elif not pending.done():
            answers[key] = pending.connection.give_up(pending, timeout_s)
        else:
            answers[key] = pending.outcome()
    return answers


def unanswered(
    sent: Mapping[K, Pending[Any] | PulsarSparkError], timeout_s: float
) -> list[K]:
    """Wait for replies, and return the requests that brokers say nothing about.

    Args:
        sent: As for `gather`.
        timeout_s: As for `gather`.
    """
    pending = {key: reply for key, reply in sent.items() if isinstance(reply, Pending)}
    _await_all(pending.values(), timeout_s)
    return [
        key
        for key, reply in pending.items()
        if not reply.done() and not reply.is_queued
    ]


def gather_unheard(
    sent: Mapping[K, Pending[ReplyT] | PulsarSparkError],
    timeout_s: float,
    unheard_s: float,
    send_again: Callable[[list[K], float], None],
) -> dict[K, ReplyT | PulsarSparkError]:
    """Do as ``gather``, and have requests sent again that brokers say nothing about.

    Args:
        sent: As for `gather`; looked at again after each call of ``send_again``.
        timeout_s: As for `gather`.
        unheard_s: The first silence after which ``send_again`` is called, in seconds;
            each further one is twice as long.
        send_again: Called with the keys of silent requests, and the silence in seconds.
    """
    left_s = timeout_s
    while unheard_s < left_s and (silent := unanswered(sent, unheard_s)):
        send_again(silent, unheard_s)
        left_s -= unheard_s
        unheard_s *= 2
    return gather(sent, left_s)


def _await_all(requests: Iterable[Pending[Any]], timeout_s: float) -> None:
    """Wait until all have ended, or none did so for ``timeout_s``."""
    pending = list(requests)
    silent_steps = 0
    while pending and silent_steps < _STEPS:
        left = await_ends(pending, timeout_s / _STEPS)
        silent_steps = silent_steps + 1 if len(left) == len(pending) else 0
        pending = left


def together(*calls: Callable[[], T]) -> list[T]:
    """Make independent calls at the same time.

    The last runs in the caller's thread, each other one in a thread of its own.

    Returns:
        The results, in the order of the calls.

    Raises:
        Exception: The error of the first call that has failed, after all have ended.
    """
    with ThreadPoolExecutor(max(1, len(calls) - 1)) as threads:
        others = [threads.submit(call) for call in calls[:-1]]
        try:
            results = [call() for call in calls[-1:]]
        except BaseException:
            # What came first says more, as if the calls had been made in their order.
            for other in others:
                other.result()
            raise
    return [other.result() for other in others] + results
