# SPDX-License-Identifier: Apache-2.0
"""The topic partitions of a stream: which there are, and where each goes on.

A topic partition that the query has read may be missing for three reasons::

    over        it was read to its end, and went     nothing is lost, and the checkpoint
                                                     forgets it
    gone        the cluster has it no more           its rows are lost
    leaving     the options no longer name it        its rows are not read, its position
                                                     is kept in the checkpoint

The last two are an error where ``failOnDataLoss`` is set, and a warning elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic

from spark_topics.source.stream.checkpoint import Offset
from spark_topics.source.stream.cluster import PartitionStatus, Topics
from spark_topics.source.stream.position import P

#: How many names an error gives in full.
_NAMES = 5


class TopicSet(Generic[P]):
    """Discovers new topic partitions, and drops deleted and leaving partitions.

    Args:
        topics: The messaging system's part.
        discovery_interval_s: How often to look for new ones, in seconds.
        fail_on_data_loss: Whether it is an error that one is gone, or leaves.

    Attributes:
        system: The messaging system.
        earliest: The position before everything.
    """

    def __init__(
        self,
        topics: Topics[P],
        *,
        discovery_interval_s: float,
        fail_on_data_loss: bool,
    ) -> None:
        self.system = topics.system
        self.earliest = topics.earliest
        self._topics = topics
        self._interval_s = discovery_interval_s
        self._fail_on_data_loss = fail_on_data_loss
        self._names: list[str] = []
        self._next_discovery_s = 0.0  # by the monotonic clock
        # The last position to read in each, where that is fixed.
        self._target: Mapping[str, P | None] | None = None
        # Where to go on in those that are new, or whose next rows are gone.
        self._starts: dict[str, P] = {}
        # Positions that their topic partition has never reached.
        self._unreached: dict[str, P] = {}
        self._gone: set[str] = set()  # also those that are over: all was said of them
        self._wanted: dict[str, bool] = {}  # by name; options stay as they are

    @property
    def is_fixed(self) -> bool:
        """Return whether rows that arrive from now on are not read."""
        return self._target is not None

    def fix(self) -> None:
        """Limit the stream to the entries stored now.

        Raises:
            DataLossError: A topic partition went in the meantime, and that is an error.
            TopicsError: The cluster does not answer, or refuses.
        """
        edges = self._edges(self._topics.partitions(wait=True))
        self._target = {name: status.last for name, status in edges.items()}

    def discover_soon(self) -> None:
        """Look for new topic partitions at the next plan, whatever the interval."""
        self._next_discovery_s = 0.0

    def kept(self, start: Offset[P]) -> dict[str, P]:
        """Return the position of each topic partition that the options do not name.

        Args:
            start: The end of the last micro-batch.

        Raises:
            DataLossError: One leaves that the last micro-batch still named, and that is
                an error.
        """
        leaving = self.leaving(start)
        if leaving:
            self.system.logger("source").warning(
                "[%s] %s Going on without them. The checkpoint keeps their positions: "
                "reading goes on there when the options name them again.",
                self.system.data_loss_error.condition,
                _left_message(leaving),
            )
        kept = {
            n: position for n, position in start.kept.items() if not self._is_wanted(n)
        }
        return kept | leaving

    def leaving(self, offset: Offset[P]) -> dict[str, P]:
        """Return positions of topic partitions that the options no longer name.

        Raises:
            DataLossError: There are such topic partitions, and that is an error.
        """
        leaving = {
            name: position
            for name, position in offset.last_read.items()
            if not self._is_wanted(name)
        }
        if leaving and self._fail_on_data_loss:
            name = next(iter(leaving))
            raise self.system.data_loss_error(
                f"{_left_message(leaving)} Name them again, in the place that this "
                "source has in the query: a union that lists its sources in another "
                "order takes the checkpoint of each for the other. Set "
                "`failOnDataLoss` to false for one run to go on without them: the "
                "checkpoint then keeps their positions, and reading goes on there when "
                "the options name them again. A query that is to read other topics "
                "instead needs a checkpoint location of its own.",
                topic_partition=name,
                wanted=str(leaving[name].next()),
                available="",
            )
        return leaving

    def _is_wanted(self, name: str) -> bool:
        is_wanted = self._wanted.get(name)
        if is_wanted is None:
            is_wanted = self._wanted[name] = self._topics.is_wanted(name)
        return is_wanted

    def begins(self, start: Offset[P]) -> dict[str, P]:
        """Return the position after which each topic partition goes on.

        Args:
            start: The end of the last micro-batch.

        Raises:
            DataLossError: A topic partition is gone, and that is an error.
            TopicsError: The cluster does not answer, or refuses.
        """
        self._discover()
        known_names = set(self._names)
        names = self._names + [
            name
            for name in (*start.last_read, *start.kept)
            if name not in known_names and self._is_wanted(name)
        ]
        new = [
            name
            for name in names
            if start.position(name) is None and name not in self._starts
        ]
        # What is found while a query runs is read from its first row on.
        edges = self._edges(new)
        self._starts.update({name: status.after for name, status in edges.items()})
        gone = {*new} - {*edges}
        return {name: self._begin(start, name) for name in names if name not in gone}

    def visit(self, begins: Mapping[str, P]) -> dict[str, PartitionStatus[P]]:
        """Return the status of existing partitions, at most up to the target.

        Args:
            begins: The position that each was read up to.

        Raises:
            DataLossError: Rows or topic partitions are gone, and that is an error.
            TopicsError: The cluster does not answer, or refuses.
        """
        statuses = {}
        with self._topics.visit(begins) as visited:
            for name in begins.keys() - visited.keys():
                self._forget(name)
            for name, status in visited.items():
                if status is None:
                    self._drop(name, begins[name])
                else:
                    self._gone.discard(name)
                    self._go_on(name, begins[name], status.after)
                    statuses[name] = self._within_target(name, status)
        return statuses

    def moved(
        self, start: Offset[P], statuses: Mapping[str, PartitionStatus[P]]
    ) -> set[str]:
        """Return the topic partitions that go on elsewhere, where a loss is accepted.

        The checkpoint has to say so, even where nothing is to be read there yet. Else
        the next process would begin at the lost position: it would report the loss
        again, or skip rows of a log that has come to that position once more.

        Not each of them has lost rows: an idle topic partition goes on elsewhere, too,
        when all that was read of its log is removed. That costs a micro-batch without
        rows.

        Args:
            start: The end of the last micro-batch.
            statuses: What a visit found.
        """
        if self._fail_on_data_loss:
            return set()  # what is moved without an error has lost nothing
        return {
            name
            for name, status in statuses.items()
            if (read := start.position(name)) is not None and read != status.after
        }

    def _discover(self) -> None:
        if self._target is not None:
            self._names = [name for name in self._target if name not in self._gone]
        elif time.monotonic() >= self._next_discovery_s:
            self._names = self._topics.partitions()
            self._next_discovery_s = time.monotonic() + self._interval_s

    def _edges(self, names: Sequence[str]) -> dict[str, PartitionStatus[P]]:
        """Return first and last positions; drop partitions deleted since discovery."""
        edges = self._topics.edges(names)
        for name in names:
            if name not in edges:
                self._drop(name, self.earliest)
        return edges

    def _begin(self, start: Offset[P], name: str) -> P:
        read, begin = start.position(name), self._starts.get(name)
        if begin is None:
            assert read is not None, "it is known, or was looked up as a new one"
            return read
        if read is None or read == self._unreached.get(name):
            return begin
        # What the query has read since may bring it to that very position again.
        self._unreached.pop(name, None)
        return max(read, begin)

    def _go_on(self, name: str, begin: P, after: P) -> None:
        if after != begin:
            self._starts[name] = after
        if after < begin:
            self._unreached[name] = begin

    def _within_target(
        self, name: str, status: PartitionStatus[P]
    ) -> PartitionStatus[P]:
        if self._target is None or status.last is None:
            return status
        target = self._target.get(name)
        last = None if target is None else min(status.last, target)
        return replace(status, last=last)

    def _drop(self, name: str, begin: P) -> None:
        """Go on without a topic partition that is gone, or raise."""
        first_wanted, system = begin.next(), self.system
        message = f"{name} is gone: it was deleted, " + (
            "before the query has read any of it."
            if begin == self.earliest
            else f"though the query has read it only up to {begin} and wanted "
            f"{first_wanted} next. Nothing of it is available."
        )
        if self._fail_on_data_loss:
            raise system.data_loss_error(
                f"{message} Set `failOnDataLoss` to false to go on without it; if it "
                "is created again, it is then read from its first row on.",
                topic_partition=name,
                wanted=str(first_wanted),
                available="",
            )
        if name not in self._gone:
            condition = system.data_loss_error.condition
            system.logger("source").warning(
                "[%s] %s Going on without it.", condition, message
            )
        self._forget(name)

    def _forget(self, name: str) -> None:
        """Go on without a topic partition, which is a new one if it returns."""
        self._starts.pop(name, None)
        self._names = [topic for topic in self._names if topic != name]
        self._gone.add(name)


def _left_message(leaving: Mapping[str, Any]) -> str:
    """Return which topic partitions the options do not name, and where each is."""
    places = [f"{name} (read up to {leaving[name]})" for name in list(leaving)[:_NAMES]]
    if len(leaving) > _NAMES:
        places.append(f"{len(leaving) - _NAMES} more")
    return (
        "The checkpoint has topic partitions that the options no longer name, so that "
        f"nothing more of them is read: {', '.join(places)}."
    )


def require_named(topics: Topics[Any], names: Sequence[str]) -> None:
    """Require that the options name what a planned micro-batch reads.

    Args:
        topics: Those that the options name, and no others, can be read.
        names: The topic partitions that the micro-batch reads.

    Raises:
        CheckpointError: They do not.
    """
    for name in names:
        if not topics.is_wanted(name):
            raise topics.system.checkpoint_error(
                "The last micro-batch was planned and not finished. Its rows of "
                f"{name} are to be read again, and the options no longer name it. Run "
                "the query once with the options that it had, then leave it out."
            )
