# SPDX-License-Identifier: Apache-2.0
"""Where segments of scalable topics end, for readers.

GET_LAST_MESSAGE_ID says that of ordinary topics. For a segment, brokers of 5.0.0-M1 and
5.0.1 go on saying what they said first: they compare each new entry with the end that
readers have, a moment before they move that end. So readers are asked::

    said 7:2     what GET_LAST_MESSAGE_ID says: readable at least up to here
    stored 7:90  where the segment ends: rows of open transactions included
    7:2 < end <= 7:90   the last of a few entries from which on a broker delivers one

Most often 7:90 is delivered, and that is all. Behind an open transaction nothing comes,
and of aborted ones at the end of a segment nothing either.

When a layout says that a segment is sealed, 5.0.0-M1 may still be taking note of the
last entries, one by one. Until it has, it says that the segment ends at the last entry
that it knows. With splits each 0.2 s half of all runs saw it, up to 500 entries before
the end. So a segment that was just sealed is asked once more, ``Patience.settling_s``
later.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.consumers import (
    ConsumerSet,
    positions_at_end,
)
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.probe import Listener
from pulsar_spark.errors import PulsarSparkError
from pulsar_spark.message_id import MessageId, TopicPositions
from pulsar_spark.topics import is_segment
from pulsar_spark.wire.commands import SubscribeRequest

#: Entries of a segment that are tried at a time.
_TRIES = 16

#: Rounds of tries until the end is known to the entry, at most.
_ROUNDS = 8

_STEP_S = 0.01
_MAX_STEP_S = 0.2

#: A ledger and an entry.
_Place = tuple[int, int]

_NOTHING: _Place = (-1, -1)


class _Bounds(NamedTuple):
    """Bounds of the end of a segment.

    Attributes:
        readable: The last entry that is known to be readable, or passed over.
        stored: The last one that may be.
    """

    readable: _Place
    stored: _Place

    def places(self) -> list[_Place]:
        """Return entries to try, in order; the last is the last that is stored."""
        ledger_id, last = self.stored
        first = self.readable[1] + 1 if self.readable[0] == ledger_id else 0
        steps = min(_TRIES, last - first + 1)
        entries = {last - (last - first) * i // max(1, steps - 1) for i in range(steps)}
        return [(ledger_id, entry_id) for entry_id in sorted(entries)]


def readable_ends(
    pool: ConnectionPool, said: Mapping[str, MessageId | None]
) -> dict[str, MessageId | None]:
    """Return the last readable entry of topic partitions; None where there is none.

    Segments that cannot be asked now, and what is no segment, keep what was said.

    Args:
        pool: The cluster's connections.
        said: What GET_LAST_MESSAGE_ID says of each topic partition, by full name.
    """
    ends = dict(said)
    segments = {name: last for name, last in said.items() if is_segment(name)}
    bounds = _bounds(pool, segments)
    ledgers = {name: bound.stored[0] for name, bound in bounds.items()}
    passed: dict[str, _Place] = {}
    for number in range(_ROUNDS):
        if not bounds:
            break
        # At first the last entry alone: with no transaction open, that one comes.
        tried = {
            name: bound.places() if number else [bound.stored]
            for name, bound in bounds.items()
        }
        narrowed = {}
        answers = _readable(pool, tried, passed)
        for name, places in answers.items():
            readable = max([*places, bounds[name].readable])
            if readable > bounds[name].readable:
                ends[name] = MessageId(*readable)
            known = readable
            if not places and tried[name][0] == bounds[name].places()[0]:
                # Nothing behind `readable` is: what is left is how far that is known.
                known = max(readable, passed.get(name, _NOTHING))
            held = [place for place in tried[name] if place > known]
            if held and held[0] > (known[0], known[1] + 1):
                ledger_id, entry_id = held[0]
                if entry_id > 0:  # earlier ledgers are read by later looks
                    narrowed[name] = _Bounds(known, (ledger_id, entry_id - 1))
        bounds = narrowed
    for name, place in passed.items():
        last = ends[name]
        # Where nothing of the last ledger is readable, earlier ledgers are read that
        # were not looked at, and then this is passed over.
        if last is None or last.ledger_id < ledgers[name]:
            ends[name] = MessageId(*place)
    return ends


def stored_ends(
    pool: ConnectionPool, segments: Iterable[str]
) -> dict[str, tuple[int, int] | PulsarSparkError]:
    """Return the ledger and entry of the last stored entry of each segment.

    The entry is -1 where the ledger has none. Rows of open transactions count. A
    segment that cannot be asked now has an error instead.

    Args:
        pool: The cluster's connections.
        segments: Full names.
    """
    ends = positions_at_end(pool, segments)
    return {
        name: end.before.position if isinstance(end, TopicPositions) else end
        for name, end in ends.items()
    }


def _bounds(
    pool: ConnectionPool, said: Mapping[str, MessageId | None]
) -> dict[str, _Bounds]:
    """Return the segments that may be readable further than what was said."""
    bounds: dict[str, _Bounds] = {}
    for name, stored in (stored_ends(pool, said) if said else {}).items():
        last = said[name]
        readable = _NOTHING if last is None else last.position
        if isinstance(stored, tuple) and stored > readable and stored[1] >= 0:
            bounds[name] = _Bounds(readable, stored)
    return bounds


def _readable(
    pool: ConnectionPool,
    tried: Mapping[str, Iterable[_Place]],
    passed: dict[str, _Place],
) -> dict[str, list[_Place]]:
    """Return the entries that come to readers at those tried, by segment.

    Args:
        pool: The cluster's connections.
        tried: Where to read.
        passed: Where the broker delivers nothing, because it passes over all that
            follows; added to.
    """
    questions = {
        f"{name} at {MessageId(*place)}": _Question(name, place)
        for name, places in tried.items()
        for place in places
    }
    with ConsumerSet(
        pool,
        lambda key, connection: _Probe(questions[key], connection),
        waits_for_end=False,
    ) as probes:
        probes.connect(questions, lambda key: questions[key].segment)
        probes.step(
            lambda probe: probe.subscribe(
                SubscribeRequest(pool.reader_name(), start=probe.start)
            )
        )
        for probe in probes.members.values():
            with contextlib.suppress(PulsarSparkError):
                probe.connection.grant(probe.consumer_id, 1)
        for key in _passing(probes, pool.options.patience.delivery_s):
            segment, place = questions[key]
            passed[segment] = max(place, passed.get(segment, _NOTHING))
        readable: dict[str, list[_Place]] = {name: [] for name in tried}
        for key, (segment, _) in questions.items():
            member = probes.members.get(key)
            if member is None:
                readable.pop(segment, None)
            elif segment in readable and member.first is not None:
                readable[segment].append(member.first)
    return readable


class _Question(NamedTuple):
    """Whether an entry can be read.

    Attributes:
        segment: Full name.
        place: The entry.
    """

    segment: str
    place: _Place


class _Probe(Listener):
    """A reader at an entry."""

    def __init__(self, question: _Question, connection: Connection) -> None:
        super().__init__(question.segment, connection)
        self.start = MessageId(*question.place)


def _passing(probes: ConsumerSet[_Probe], timeout_s: float) -> set[str]:
    """Wait for entries; return the readers whose own entry is passed over.

    Entries of aborted transactions never come: the cursor passes over them.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = _STEP_S
    passing: set[str] = set()
    while True:
        silent = [
            key
            for key, probe in probes.members.items()
            if probe.is_open and probe.first is None and key not in passing
        ]
        if not silent or time.monotonic() > deadline:
            return passing
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _MAX_STEP_S)
        replies = probes.step(lambda probe: probe.get_last(), silent)
        passing |= {
            key
            for key, reply in replies.items()
            if reply.before.position >= probes.members[key].start.position
        }
