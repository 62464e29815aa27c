# SPDX-License-Identifier: Apache-2.0
"""Where segments of scalable topics end, for readers.

GET_LAST_MESSAGE_ID says that of ordinary topics. For a segment, brokers of 5.0.0-M1 and
5.0.1 go on saying what they said first: they compare each new entry with the end that
readers have, a moment before they move that end. So readers are asked::

    said 7:2     what GET_LAST_MESSAGE_ID says: readable at least up to here
    stored 7:90  where the segment ends: rows of open transactions included
    7:2 < end <= 7:90   the last of a few entries from which on a broker delivers one

Most often 7:90 is delivered, and that is all. Behind an open transaction nothing comes,
and of aborted ones at the end of a segment nothing either. Nor does a slow broker
deliver any, so an entry is read along that readers have had, 7:2: silence marks an
end only where that one comes.

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
from pulsar_spark.errors import AskAgainError, PulsarSparkError
from pulsar_spark.message_id import MessageId, TopicPositions
from pulsar_spark.topics import is_segment
from pulsar_spark.wire.commands import ConsumerSettings, SubscribeRequest

#: Entries of a segment that are tried at a time.
_TRIES = 16

#: Rounds of tries until the end is known to the entry, at most.
_ROUNDS = 8

_STEP_S = 0.01
_MAX_STEP_S = 0.2

#: A ledger and an entry.
_Place = tuple[int, int]

_NOTHING: _Place = (-1, -1)


class _Search:
    """The search for the end of a segment.

    Args:
        said: What GET_LAST_MESSAGE_ID says.
        stored: The last entry that is stored.

    Attributes:
        is_over: Whether the end is known, as far as it can be.
        failure: Why a reader of the last round failed, None if none did.
    """

    def __init__(self, said: MessageId | None, stored: _Place) -> None:
        self._end = said
        self._ledger_id = stored[0]
        # Readable, or passed over, up to here; and at most up to there.
        self._known = _NOTHING if said is None else said.position
        self._stored = stored
        self._passed = _NOTHING
        self._looks_at_last = True
        self.failure: PulsarSparkError | None = None
        self.is_over = stored <= self._known or stored[1] < 0

    @property
    def end(self) -> MessageId | None:
        """Return the last readable entry, as far as it is known."""
        # Where nothing of the last ledger is readable, earlier ledgers are read that
        # were not looked at, and then this is passed over.
        before = _NOTHING if self._end is None else (self._end.ledger_id, -1)
        if self._passed != _NOTHING and before[0] < self._ledger_id:
            return MessageId(*self._passed)
        return self._end

    def tries(self) -> list[_Place]:
        """Return entries to try, in order."""
        # At first the last entry alone: with no transaction open, that one comes.
        return [self._stored] if self._looks_at_last else self._places()

    def proof(self) -> _Place | None:
        """Return an entry that readers have had, to be read along.

        None where there is none, and where silence would not count.
        """
        counts = self.tries() == self._places() and self._known != _NOTHING
        return self._known if counts else None

    def _places(self) -> list[_Place]:
        """Return entries of all that is not known; the last is the last stored one."""
        ledger_id, last = self._stored
        first = self._known[1] + 1 if self._known[0] == ledger_id else 0
        steps = min(_TRIES, last - first + 1)
        entries = {last - (last - first) * i // max(1, steps - 1) for i in range(steps)}
        return [(ledger_id, entry_id) for entry_id in sorted(entries)]

    def learn(self, heard: _Heard) -> None:
        """Take note of what came to readers of the tries and the proof."""
        counts = self.tries() == self._places()
        tried = [place for place in self.tries() if place not in heard.failed]
        self.failure = next(iter(heard.failed.values()), None)
        self._looks_at_last = False
        self._passed = max([self._passed, *heard.surely_passed])
        if not heard.came and not counts:
            return
        readable = max([*heard.came, self._known])
        if readable > self._known:
            self._end = MessageId(*readable)
            self._known = readable
        else:
            # Nothing behind it is readable: what is left is how far that is known.
            self._known = max(self._known, self._passed)
        silent = next((place for place in tried if place > self._known), None)
        if silent is not None:
            self._stored = silent[0], silent[1] - 1
        # Earlier ledgers are read by later looks.
        self.is_over = self._stored <= self._known or self._stored[1] < 0


def readable_ends(
    pool: ConnectionPool,
    said: Mapping[str, MessageId | None],
    *,
    read_compacted: bool = False,
) -> dict[str, MessageId | None | PulsarSparkError]:
    """Return the last readable entry of topic partitions; None where there is none.

    A segment whose end cannot be found out now has an error instead. What is no segment
    keeps what was said.

    Args:
        pool: The cluster's connections.
        said: What GET_LAST_MESSAGE_ID says of each topic partition, by full name.
        read_compacted: Whether readers see the compacted segment.
    """
    until_s = time.monotonic() + pool.options.operation_timeout_s
    ends: dict[str, MessageId | None | PulsarSparkError] = dict(said)
    searches: dict[str, _Search] = {}
    segments = [name for name in said if is_segment(name)]
    for name, stored in (stored_ends(pool, segments) if segments else {}).items():
        if isinstance(stored, PulsarSparkError):
            ends[name] = stored
        else:
            searches[name] = _Search(said[name], stored)
    for _ in range(_ROUNDS):
        left = {name: one for name, one in searches.items() if not one.is_over}
        if not left or time.monotonic() > until_s:
            break
        answers = _hear(pool, left, until_s, read_compacted=read_compacted)
        for name, heard in answers.items():
            if isinstance(heard, PulsarSparkError):
                ends[name] = heard
                del searches[name]
            else:
                left[name].learn(heard)
    return ends | {
        name: search.end if search.is_over else search.failure or _takes_too_long(name)
        for name, search in searches.items()
    }


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


class _Heard(NamedTuple):
    """What came to readers of a segment.

    Attributes:
        came: The first entry that came to each of those that anything came to.
        passed: The tries at which the broker delivers nothing, because it passes over
            all that follows.
        failed: Why readers failed, by their places.
    """

    came: list[_Place]
    passed: list[_Place]
    failed: dict[_Place, PulsarSparkError]

    @property
    def surely_passed(self) -> list[_Place]:
        """Return the tries that are passed over, up to the first that failed.

        The entry there may be readable.
        """
        return [place for place in self.passed if all(place < f for f in self.failed)]


def _hear(
    pool: ConnectionPool,
    searches: Mapping[str, _Search],
    until_s: float,
    *,
    read_compacted: bool,
) -> dict[str, _Heard | PulsarSparkError]:
    """Read segments at their tries, and at the proof that the broker delivers.

    A segment has an error where a reader fails and nothing comes to the others.

    Args:
        pool: The cluster's connections.
        searches: By segment.
        until_s: As for `_passing`.
        read_compacted: As for `readable_ends`.
    """
    tries = {name: search.tries() for name, search in searches.items()}
    proofs = {name: search.proof() for name, search in searches.items()}
    questions = {
        f"{name} at {MessageId(*place)}": _Question(name, place)
        for name, places in tries.items()
        for place in (*places, proofs[name])
        if place is not None
    }
    heard: dict[str, _Heard] = {name: _Heard([], [], {}) for name in searches}
    silent = {name for name, proof in proofs.items() if proof is not None}
    with ConsumerSet(
        pool,
        lambda key, connection: _Probe(questions[key], connection),
        waits_for_end=False,
    ) as probes:
        probes.connect(questions, lambda key: questions[key].segment)
        consumer = ConsumerSettings(read_compacted=read_compacted)
        probes.step(
            lambda probe: probe.subscribe(
                SubscribeRequest(
                    pool.reader_name(), start=probe.start, consumer=consumer
                )
            )
        )
        for probe in probes.members.values():
            with contextlib.suppress(PulsarSparkError):
                probe.connection.grant(probe.consumer_id, 1)
        passing = _passing(probes, pool.options.patience.delivery_s, until_s)
        for key, probe in list(probes.members.items()):
            name, place = questions[key]
            if probe.first is not None:
                heard[name].came.append(probe.first)
            elif key not in passing:
                if not probe.is_open:
                    probes.drop(key, AskAgainError("The reader was closed."))
                continue
            elif place in tries[name]:
                heard[name].passed.append(place)
            silent.discard(name)
        failures = probes.take_failures()
    errors: dict[str, PulsarSparkError] = {
        name: _delivers_nothing(name, proofs[name]) for name in silent
    }
    for key, error in failures.items():
        name, place = questions[key]
        heard[name].failed[place] = error
        if not heard[name].came:
            errors[name] = error
    return {**heard, **errors}


def _delivers_nothing(segment: str, proof: _Place | None) -> AskAgainError:
    assert proof is not None
    return AskAgainError(
        f"{segment}: the broker delivers nothing now, not even {MessageId(*proof)}, "
        "which readers have had. So it is not known where the segment ends."
    )


def _takes_too_long(segment: str) -> AskAgainError:
    return AskAgainError(
        f"{segment}: the broker takes too long to deliver entries. So it is not known "
        "where the segment ends."
    )


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


def _passing(probes: ConsumerSet[_Probe], timeout_s: float, until_s: float) -> set[str]:
    """Wait for entries; return the readers whose own entry is passed over.

    Entries of aborted transactions never come: the cursor passes over them. Readers
    that are still waited for when time is up fail: their silence says nothing.

    Args:
        probes: The readers.
        timeout_s: How long to wait after the last of those that came, in seconds.
        until_s: Up to when to wait for more than that, by the monotonic clock.
    """
    until_s = max(until_s, time.monotonic() + timeout_s)
    pause_s = _STEP_S
    passing: set[str] = set()
    left = len(probes.members) + 1
    while True:
        silent = [
            key
            for key, probe in probes.members.items()
            if probe.is_open and probe.first is None and key not in passing
        ]
        if len(silent) < left:  # what is slow is waited for
            left, deadline = len(silent), time.monotonic() + timeout_s
        if not silent or time.monotonic() > deadline:
            return passing
        if time.monotonic() > until_s:
            for key in silent:
                error = AskAgainError("The broker takes too long to deliver entries.")
                probes.drop(key, error)
            return passing
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _MAX_STEP_S)
        replies = probes.step(lambda probe: probe.get_last(), silent)
        passing |= {
            key
            for key, reply in replies.items()
            if reply.before.position >= probes.members[key].start.position
        }
