# SPDX-License-Identifier: Apache-2.0
"""Find out whether an open transaction holds back stored rows.

Brokers deliver nothing behind the first open transaction of a topic. They also deliver
neither rows of aborted transactions nor the marks of ended ones, but these they pass
over: the place of a reader that takes nothing moves behind them, see ``hidden``::

    stored     7:0   7:1   7:2 (aborted)   7:3 (mark)   7:4 (open)   7:5
    delivered  7:0   7:1
    a reader from 7:2: its place is 7:3 soon, and stays there
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping

from pulsar_spark.client.consumers import ConsumerSet
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.positions import PositionLookup
from pulsar_spark.client.probe import Listener
from pulsar_spark.errors import PulsarSparkError, TopicNotFoundError
from pulsar_spark.message_id import EARLIEST, LATEST, MessageId
from pulsar_spark.wire.commands import SubscribeRequest
from spark_topics.client.retry import Retry, ask_all

_STEP_S = 0.05

#: How many probes must pass over all, one after the other: expiry moves one of two.
_PROBES = 2

#: By full name of a topic partition.
_Answers = dict[str, bool | None | PulsarSparkError]


def nothing_follows(
    pool: ConnectionPool, positions: PositionLookup, afters: Mapping[str, MessageId]
) -> set[str]:
    """Return the topic partitions in which no row is stored after a position.

    A row of an open transaction is one; of an aborted one it is none. What does not
    exist is left out.

    Args:
        pool: The cluster's connections.
        positions: Asks brokers where topic partitions end.
        afters: The position of each, by full name.

    Raises:
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    if not afters:
        return set()
    latest = positions.from_message_ids(dict.fromkeys(afters, LATEST), absent_ok=True)
    stored = {
        name: entry.before
        for name, entry in latest.items()
        if entry.before.position > afters[name].position
    }
    delivered = {name: afters[name] for name in stored}
    passed = passes_over(pool, delivered, stored, positions.retry())
    return {name for name in latest if name not in stored or passed.get(name)}


def passes_over(
    pool: ConnectionPool,
    delivered: Mapping[str, MessageId],
    stored: Mapping[str, MessageId],
    retry: Retry | None = None,
) -> dict[str, bool]:
    """Return whether brokers pass over all that is stored up to some entry.

    False where they neither deliver nor pass over all of it. Left out are topic
    partitions of which they deliver more, or that do not exist.

    Args:
        pool: The cluster's connections.
        delivered: Up to where all is delivered, by full name of the topic partition.
        stored: The entry, of each of these.
        retry: How long to ask; None: as long as a lookup may take.

    Raises:
        PulsarSparkError: The cluster does not answer, or refuses.
    """

    def ask(names: list[str]) -> _Answers:
        answers: _Answers = {}
        left = names
        for _ in range(_PROBES):
            answers |= _probe(pool, {name: delivered[name] for name in left}, stored)
            left = [name for name in left if answers[name] is True]
        return answers

    answers = ask_all(delivered, ask, retry or pool.patience())
    return {name: answer for name, answer in answers.items() if answer is not None}


def _probe(
    pool: ConnectionPool,
    delivered: Mapping[str, MessageId],
    stored: Mapping[str, MessageId],
) -> _Answers:
    """Return whether all is passed over; None where more is delivered, or no topic."""
    if not delivered:
        return {}
    name = pool.reader_name()
    with ConsumerSet(pool, Listener) as probes:
        probes.connect(delivered)
        probes.step(
            lambda probe: probe.subscribe(
                SubscribeRequest(name, start=_next(delivered[probe.topic]))
            )
        )
        for probe in probes.members.values():
            with contextlib.suppress(PulsarSparkError):  # the next request fails, too
                probe.connection.grant(probe.consumer_id, 1)
        answers = _watch(probes, stored, pool.options.patience.hidden_s)
        for name, error in probes.take_failures().items():
            is_gone = isinstance(error, TopicNotFoundError)
            answers[name] = None if is_gone else error
    return answers


def _watch(
    probes: ConsumerSet[Listener], stored: Mapping[str, MessageId], timeout_s: float
) -> _Answers:
    """Return what becomes of the probes that do not fail."""
    answers: _Answers = {}
    left = set(probes.members)
    deadline = time.monotonic() + timeout_s
    is_late = False
    while left:
        replies = probes.step(lambda probe: probe.get_last(), left)
        left &= replies.keys()
        for name, reply in replies.items():
            place = reply.before.position
            came, end = probes.members[name].first, stored[name].position
            if came > end if came else place >= end:
                answers[name] = True
            elif came:
                answers[name] = None
            elif is_late:
                answers[name] = False
        left -= answers.keys()
        # Looks once more when time is up: this machine may have been busy.
        if is_late:
            break
        if left:
            time.sleep(_STEP_S)
        is_late = time.monotonic() >= deadline
    return answers


def _next(entry: MessageId) -> MessageId:
    if entry.ledger_id < 0:
        return EARLIEST
    return MessageId(entry.ledger_id, entry.entry_id + 1)
