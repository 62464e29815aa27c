# SPDX-License-Identifier: Apache-2.0
"""How far a micro-batch goes in each topic partition, within the query's limits."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

from spark_topics.source.stream.admission import Admission, Backlog, EntrySize
from spark_topics.source.stream.cluster import (
    Entries,
    NextEntry,
    Share,
    Unread,
    Waiting,
)
from spark_topics.source.stream.position import P


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """How large micro-batches are. None means no limit.

    Attributes:
        max_rows: Rows of a micro-batch, at most.
        max_bytes: Stored bytes of a micro-batch, at most.
        min_rows: Rows to wait for.
        max_delay_s: How long to wait for them after the last micro-batch, in seconds.
    """

    max_rows: int | None = None
    max_bytes: int | None = None
    min_rows: int | None = None
    max_delay_s: float = 0.0


class BatchEnds(Generic[P]):
    """Divides the limits of each micro-batch among topic partitions.

    Args:
        entries: What is to be read.
        limits: How large micro-batches are.
        age_interval_s: How often to look at the next entries where no limit asks for
            it, to tell how old they are, in seconds; None for never, and for no ages.

    Attributes:
        backlogs: Entries that the last decision leaves, by topic partition; without
            those that are read to the end without a count.
    """

    def __init__(
        self,
        entries: Entries[P],
        limits: StreamLimits,
        age_interval_s: float | None = None,
    ) -> None:
        self.backlogs: dict[str, int] = {}
        self._ages_ms: dict[str, int | None] = {}  # of topic partitions with news
        self._age_interval_s = age_interval_s
        self._next_look_s = 0.0
        self._entries = entries
        self._limits = limits
        self._is_limited = limits != StreamLimits(max_delay_s=limits.max_delay_s)
        self._admission = Admission(
            max_rows=limits.max_rows, max_bytes=limits.max_bytes
        )
        self._last_batch_s = time.monotonic()

    def batch_planned(self) -> None:
        """Measure ``max_delay_s`` from now on."""
        self._last_batch_s = time.monotonic()

    def decide(
        self,
        news: Mapping[str, Unread[P]],
        later: Mapping[str, Unread[P]],
        *,
        unlimited: bool,
        may_wait: bool,
    ) -> dict[str, P]:
        """Return the end of the micro-batch for each topic partition in the batch.

        Args:
            news: What there is to read, of the topic partitions that have something.
            later: What there is to read of those whose rows come later. They count
                towards the minimum of rows, since they wait for this micro-batch.
            unlimited: Whether to ignore the limits.
            may_wait: Whether more rows may come that are to be read, too.

        Raises:
            TopicsError: The cluster does not answer, or refuses.
        """
        self._ages_ms = {name: self._ages_ms.get(name) for name in (*news, *later)}
        is_whole = unlimited or not self._is_limited
        counted = {**later} if is_whole else {**news, **later}
        waiting = self._entries.backlog(counted) if counted else {}
        self.backlogs = {name: count.entries for name, count in waiting.items()}
        if is_whole:
            self._look_for_ages(news)
            shares = {name: Share(unread, None) for name, unread in news.items()}
        else:
            shares = self._within_limits(news, waiting, may_wait) if news else {}
        ends = self._entries.ends(shares)
        for name, end in ends.items():
            if name in self.backlogs and not end < news[name].last:
                self.backlogs[name] = 0  # whatever the estimate was
        return ends

    def _within_limits(
        self,
        news: Mapping[str, Unread[P]],
        waiting: Mapping[str, Waiting],
        may_wait: bool,
    ) -> dict[str, Share[P]]:
        """Return what the limits admit; nothing while it waits for more rows."""
        ahead = self._entries.peek(news, self._observe)
        self._note_ages(ahead)
        lanes = {
            name: Backlog(
                self._entries.topic_of(name),
                count.entries,
                tuple(entry.size for entry in ahead.get(name, ())),
            )
            for name, count in waiting.items()
        }
        if may_wait and self._is_too_little(lanes):
            return {}
        lanes = {name: lanes[name] for name in news}
        shares = {}
        for name, count in self._admission.admit(lanes).items():
            if count:
                takes_all = count >= waiting[name].entries and waiting[name].is_all
                entries = None if takes_all else count
                shares[name] = Share(news[name], entries, ahead.get(name, ()))
                self.backlogs[name] -= count
        return shares

    def bytes_of(self, name: str, entries: int) -> int | None:
        """Return the estimated stored bytes of a topic partition's entries.

        Returns:
            None where none was looked at, so that nothing can be said.
        """
        if not entries:
            return 0
        average = self._admission.entry_bytes(self._entries.topic_of(name))
        return None if average is None else round(entries * average)

    def age_ms(self, name: str) -> int | None:
        """Return how old the first entry was that the last decision found unread.

        Returns:
            Milliseconds since it was published, 0 where there was none, of the last
            look at it; None if it was not looked at.
        """
        return None if self._age_interval_s is None else self._ages_ms.get(name, 0)

    def _look_for_ages(self, news: Mapping[str, Unread[P]]) -> None:
        began_s = time.monotonic()
        if self._age_interval_s is None or not news or began_s < self._next_look_s:
            return
        self._note_ages(self._entries.peek(news, self._observe, is_one_enough=True))
        now_s = time.monotonic()
        # A broker that sends nothing is waited for: a twentieth of the time, at most.
        self._next_look_s = now_s + max(self._age_interval_s, 20 * (now_s - began_s))

    def _note_ages(self, ahead: Mapping[str, Sequence[NextEntry[P]]]) -> None:
        now_ms = time.time() * 1e3
        for name, entries in ahead.items():
            if entries and (published_ms := entries[0].published_ms) is not None:
                # The clock of who published may be ahead of ours.
                self._ages_ms[name] = max(0, round(now_ms - published_ms))

    def _is_too_little(self, lanes: Mapping[str, Backlog]) -> bool:
        """Return whether to wait for more rows."""
        minimum = self._limits.min_rows
        if minimum is None:
            return False
        if time.monotonic() - self._last_batch_s >= self._limits.max_delay_s:
            return False
        return self._admission.rows(lanes) < minimum

    def _observe(self, name: str, size: EntrySize) -> None:
        self._admission.observe(self._entries.topic_of(name), size)
