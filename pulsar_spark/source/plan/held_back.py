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

import time
from collections.abc import Mapping

from pulsar_spark.client.consumers import ConsumerSet
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.positions import PositionLookup
from pulsar_spark.client.probe import Listener
from pulsar_spark.message_id import EARLIEST, LATEST, MessageId
from pulsar_spark.wire.commands import SubscribeRequest

_STEP_S = 0.05

#: How many probes must pass over all, one after the other: expiry moves one of two.
_PROBES = 2


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
    passed = passes_over(pool, {name: afters[name] for name in stored}, stored)
    return {name for name in latest if name not in stored or passed.get(name)}


def passes_over(
    pool: ConnectionPool,
    delivered: Mapping[str, MessageId],
    stored: Mapping[str, MessageId],
) -> dict[str, bool]:
    """Return whether brokers pass over all that is stored up to some entry.

    False where they neither deliver nor pass over all of it. Left out are topic
    partitions of which they deliver more, or do not tell now.

    Args:
        pool: The cluster's connections.
        delivered: Up to where all is delivered, by full name of the topic partition.
        stored: The entry, of each of these.
    """
    skipped: dict[str, bool] = {}
    left = dict(delivered)
    for _ in range(_PROBES):
        answers = _probe(pool, left, stored)
        skipped |= answers
        for name in left.keys() - answers.keys():
            skipped.pop(name, None)
        left = {name: left[name] for name in left if answers.get(name)}
    return skipped


def _probe(
    pool: ConnectionPool,
    delivered: Mapping[str, MessageId],
    stored: Mapping[str, MessageId],
) -> dict[str, bool]:
    answers: dict[str, bool] = {}
    left = set(delivered)
    if not left:
        return answers
    name = pool.reader_name()
    with ConsumerSet(pool, Listener) as probes:
        probes.connect(delivered)
        probes.step(
            lambda probe: probe.subscribe(
                SubscribeRequest(name, start=_next(delivered[probe.topic]))
            )
        )
        for probe in probes.members.values():
            probe.connection.grant(probe.consumer_id, 1)
        deadline = time.monotonic() + pool.options.patience.hidden_s
        is_late = False
        while left:
            replies = probes.step(lambda probe: probe.get_last(), left)
            left &= replies.keys()
            for name, reply in replies.items():
                place = reply.before.position
                came, end = probes.members[name].first, stored[name].position
                if came > end if came else place >= end:
                    answers[name] = True
                elif is_late and not came:
                    answers[name] = False
                if came or name in answers:
                    left.discard(name)
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
