# SPDX-License-Identifier: Apache-2.0
"""Make sure that a batch read reaches the end that the options ask for.

Brokers deliver nothing behind the first open transaction of a topic. The last message
that they name is the one before it::

    stored             7:0   7:1   7:2 (open)   7:3
    last message       7:1
    end asked for                               7:3

A read that simply stopped at the last message would leave out 7:3, and whatever of 7:2
is committed. So such an end is waited for. Nothing is waited for that no reader ever
gets: aborted messages and markers of transactions. Brokers pass over these, see
``held_back``.
"""

from __future__ import annotations

import logging
import operator
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.positions import PositionLookup
from pulsar_spark.errors import EndNotReachedError
from pulsar_spark.message_id import EARLIEST, LATEST, MessageId
from pulsar_spark.options import ReadOptions
from pulsar_spark.source.plan.held_back import passes_over
from pulsar_spark.source.plan.starts import Start
from spark_topics.text import list_names

logger = logging.getLogger("pulsar_spark.source")

#: Shortest and longest pause between two looks at an end that is waited for, in
#: seconds.
_STEP_S = 0.05
_PAUSE_S = 1.0


class End(NamedTuple):
    """Where a user wants a topic partition to end.

    Attributes:
        last: The last message, inclusive.
        option: The option that says so.
    """

    last: MessageId
    option: str


def reach_ends(
    pool: ConnectionPool,
    options: ReadOptions,
    starts: Mapping[str, Start],
    ends: Mapping[str, End],
) -> dict[str, MessageId | None]:
    """Return the last message that each topic partition can deliver now.

    An end that cannot be read up to is waited for, or cuts the read with a warning, as
    the options say. Topic partitions that deliver up to their ends ask for nothing.

    Args:
        pool: The cluster's connections.
        options: What to read, and how long to wait.
        starts: Where the read begins in each topic partition.
        ends: If it is to end, in those that have an end.

    Raises:
        EndNotReachedError: An end was not reached.
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    lasts = {name: start.found.last for name, start in starts.items()}
    # What ends before it starts is empty, whatever its topic has.
    to_reach = {
        name: end
        for name, end in ends.items()
        if name in starts
        and end.last.position >= starts[name].first.position
        and not _reaches(lasts[name], end.last)
    }
    if to_reach:
        lasts |= _Waiting(pool, options, starts, to_reach).lasts()
    return lasts


class _Waiting:
    """Ends that are behind the last message that can be delivered.

    Args: As of ``reach_ends``; ``ends`` are those only.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        options: ReadOptions,
        starts: Mapping[str, Start],
        ends: Mapping[str, End],
    ) -> None:
        self._pool = pool
        self._options = options
        self._ends = ends
        # Compaction says nothing of what is stored, and takes last messages.
        self._positions = PositionLookup(pool)
        self._befores = {name: starts[name].found.before for name in ends}
        self._lasts: dict[str, MessageId | None] = {}

    def lasts(self) -> dict[str, MessageId | None]:
        """Return the last message of each topic, once every end is reached."""
        stored = self._positions.from_message_ids(dict.fromkeys(self._ends, LATEST))
        beyond = [
            name
            for name, end in self._ends.items()
            if end.last.position > stored[name].before.position
        ]
        if beyond and self._options.fail_on_unreached_end:
            raise self._beyond(beyond[0], stored[beyond[0]].before)
        held = self._wait(self._targets(self._ends.keys() - {*beyond}))
        if held and self._options.fail_on_unreached_end:
            raise self._held_back(held[0])
        self._look(beyond)
        if held or beyond:
            self._warn([*held, *beyond])
        if not self._options.read_compacted:
            return self._lasts
        compacted = PositionLookup(self._pool, read_compacted=True).from_message_ids(
            dict.fromkeys(self._ends, EARLIEST)
        )
        return {name: positions.last for name, positions in compacted.items()}

    def _targets(self, names: Iterable[str]) -> dict[str, MessageId]:
        """Return the last stored entry up to each end, by topic with entries."""
        ends = {name: self._ends[name].last for name in sorted(names)}
        following = {
            name: MessageId(end.ledger_id, end.entry_id + 1)
            for name, end in ends.items()
        }
        positions = self._positions.from_message_ids(following)
        return {
            name: position.before
            for name, position in positions.items()
            if position.before.position <= ends[name].position
        }

    def _wait(self, targets: Mapping[str, MessageId]) -> list[str]:
        """Wait until brokers deliver up to the targets; return unfinished topics."""
        patience_s = self._options.poll_timeout_s
        if not self._options.fail_on_unreached_end:
            patience_s = 0.0
        began_s = time.monotonic()
        pause_s = _STEP_S
        held = list(targets)
        while held := self._held(held, targets):
            left_s = patience_s - (time.monotonic() - began_s)
            if left_s <= 0:
                break
            if pause_s == _STEP_S:
                logger.warning(
                    "The read waits up to %g s (`pollTimeoutMs`) for the end of %s: an "
                    "open transaction holds back what follows %s there.",
                    patience_s,
                    list_names(held),
                    self._last(held[0]),
                )
            time.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, _PAUSE_S)
        return held

    def _held(self, names: list[str], targets: Mapping[str, MessageId]) -> list[str]:
        """Return the topics whose rows up to the target are not all delivered now."""
        self._look(names)
        behind = {
            name: delivered
            for name in names
            if (delivered := self._delivered(name)).position < targets[name].position
        }
        passed = passes_over(self._pool, behind, targets)
        return [name for name in behind if not passed.get(name)]

    def _look(self, names: Iterable[str]) -> None:
        """Ask for the last message of each."""
        positions = self._positions.from_message_ids(dict.fromkeys(names, EARLIEST))
        self._lasts.update(
            {name: position.last for name, position in positions.items()}
        )

    def _delivered(self, name: str) -> MessageId:
        """Return up to where all is delivered, or not wanted."""
        last = self._lasts[name] or EARLIEST
        return max(last, self._befores[name], key=operator.attrgetter("position"))

    # -- messages ----------------------------------------------------------------------

    def _last(self, name: str) -> str:
        return _place(self._lasts[name] or EARLIEST)

    def _beyond(self, name: str, stored: MessageId) -> EndNotReachedError:
        end = self._ends[name]
        return EndNotReachedError(
            f"{name} ends at {_place(stored)}, before {end.last}, where the read "
            "should end. "
            f"Correct `{end.option}`: is that a position of another topic or cluster? "
            "Or set `failOnUnreachedEnd` to false to read what can be read now.",
            topic_partition=name,
            wanted=str(end.last),
            available="" if stored.entry_id < 0 else str(stored),
        )

    def _held_back(self, name: str) -> EndNotReachedError:
        end = self._ends[name]
        return EndNotReachedError(
            f"{name} can be read up to {self._last(name)}, before {end.last}, where "
            f"the read should end (`{end.option}`). An open transaction holds back "
            f"what follows. It was waited for {self._options.poll_timeout_s:g} s "
            "(`pollTimeoutMs`). Read again when the transaction has ended; "
            "`pulsar-spark transactions` finds it and can end it. Or set "
            "`failOnUnreachedEnd` to false to read what can be read now.",
            topic_partition=name,
            wanted=str(end.last),
            available=str(self._lasts[name] or ""),
            retriable=True,
        )

    def _warn(self, names: list[str]) -> None:
        cuts = [
            f"{name} at {self._last(name)} instead of {self._ends[name].last}"
            for name in names
        ]
        logger.warning(
            "The read ends early, as `failOnUnreachedEnd=false` allows: %s.",
            list_names(cuts),
        )


def _reaches(last: MessageId | None, end: MessageId) -> bool:
    """Return whether a topic partition delivers up to an end."""
    return last is not None and last.position >= end.position


def _place(last: MessageId) -> str:
    return str(last) if last.ledger_id >= 0 else "its beginning"
