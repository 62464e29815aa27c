# SPDX-License-Identifier: Apache-2.0
"""How far a stream is behind its topics, from Spark's progress of a micro-batch.

The figures are of the moment when the micro-batch was planned. All of this is pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pulsar_spark.message_id import EARLIEST

#: The form of the JSON that the source reports.
_VERSION = 1

#: How many topic partitions a summary names: a query may have thousands.
_WORST_SHOWN = 3


@dataclass(frozen=True)
class PartitionLag:
    """How far a query is behind a topic partition.

    Attributes:
        topic_partition: Full name.
        last_read: ``ledger:entry[:batchIndex]`` up to which the micro-batch read,
            inclusive; "" where nothing of it was ever read.
        latest: The same of the last message that was there; "" where there was none.
        backlog_entries: Stored entries that remain unread after the micro-batch. An
            entry is one message or one producer's batch of messages.
        backlog_bytes: What these take as stored, by the average of entries that were
            looked at; None where that was not reported.
        age_s: How long ago the first entry was published that was unread when the
            micro-batch was planned, in seconds, by the clocks of its producer and of
            the driver; 0 where nothing was unread, None if it was not looked at.
        held_back: The last stored entry, where an open transaction is known to hold
            back what follows ``latest``; "" elsewhere. The backlog does not count it.
    """

    topic_partition: str
    last_read: str
    latest: str
    backlog_entries: int
    backlog_bytes: int | None = None
    age_s: float | None = None
    held_back: str = ""

    def __str__(self) -> str:
        return (
            f"{self.topic_partition} by {self.backlog_entries} "
            f"(read to {self.last_read or 'nothing'} of {self.latest or 'nothing'})"
        )


@dataclass(frozen=True)
class StreamLag:
    """How far a source of a query is behind its topics.

    ``str()`` gives a single line.

    Attributes:
        query_id: Id of the query, the same after restarts from its checkpoint.
        run_id: Id of this run of the query.
        query_name: Its name, "" if it has none.
        batch_id: The micro-batch.
        timestamp: When its trigger began, ISO 8601 in UTC.
        source_index: Place among the query's sources, from 0.
        input_rows: Rows that the micro-batch read from this source.
        partitions: Every topic partition, in natural order.
    """

    query_id: str
    run_id: str
    query_name: str
    batch_id: int
    timestamp: str
    source_index: int
    input_rows: int
    partitions: tuple[PartitionLag, ...]

    @property
    def backlog_entries(self) -> int:
        """Return how many stored entries of all topic partitions remain unread."""
        return sum(partition.backlog_entries for partition in self.partitions)

    @property
    def backlog_bytes(self) -> int | None:
        """Return the approximate stored size of the backlog; None where unknown."""
        sizes = [partition.backlog_bytes for partition in self.partitions]
        known_bytes = [size_bytes for size_bytes in sizes if size_bytes is not None]
        return (
            sum(known_bytes) if known_bytes and len(known_bytes) == len(sizes) else None
        )

    @property
    def age_s(self) -> float | None:
        """Return the greatest age of the topic partitions looked at, in seconds."""
        ages_s = (partition.age_s for partition in self.partitions)
        return max((age_s for age_s in ages_s if age_s is not None), default=None)

    @property
    def worst(self) -> tuple[PartitionLag, ...]:
        """Return the topic partitions that have a backlog, the largest first."""
        behind = [
            partition for partition in self.partitions if partition.backlog_entries > 0
        ]
        return tuple(sorted(behind, key=lambda one: -one.backlog_entries))

    @property
    def held_back(self) -> tuple[PartitionLag, ...]:
        """Return the topic partitions in which an open transaction holds back rows."""
        return tuple(partition for partition in self.partitions if partition.held_back)

    def metrics(self) -> dict[str, float]:
        """Return gauges by name, for a metric system, to go with ``labels()``.

        Bytes and the age in seconds are left out where they are not known.
        """
        worst = self.worst
        further = {
            "pulsar_stream_backlog_bytes": self.backlog_bytes,
            "pulsar_stream_oldest_unread_age_seconds": self.age_s,
        }
        return {
            "pulsar_stream_backlog_entries": self.backlog_entries,
            "pulsar_stream_max_partition_backlog_entries": (
                worst[0].backlog_entries if worst else 0
            ),
            "pulsar_stream_topic_partitions": len(self.partitions),
            "pulsar_stream_topic_partitions_behind": len(worst),
            "pulsar_stream_topic_partitions_held_back": len(self.held_back),
            "pulsar_stream_input_rows": self.input_rows,
            "pulsar_stream_batch_id": self.batch_id,
            **{name: value for name, value in further.items() if value is not None},
        }

    def labels(self) -> dict[str, str]:
        """Return the labels of this source's metrics: always the same keys."""
        # Not the run's id: each restart would begin a new series.
        return {
            "query_id": self.query_id,
            "query_name": self.query_name,
            "source_index": str(self.source_index),
        }

    def __str__(self) -> str:
        query = self.query_name or self.query_id
        source = f", source {self.source_index}" if self.source_index else ""
        line = f"Query {query}{source}, batch {self.batch_id}: {self.input_rows} rows, "
        if self.age_s:
            line += f"the oldest {self.age_s:.1f} s old, "
        worst = self.worst
        held = self._held_text()
        if not worst:
            return f"{line}caught up with {len(self.partitions)} topic partitions{held}"
        shown = "; ".join(map(str, worst[:_WORST_SHOWN]))
        more = len(worst) - _WORST_SHOWN
        size_bytes = self.backlog_bytes
        size = "" if size_bytes is None else f" (about {size_bytes} bytes)"
        return (
            f"{line}{self.backlog_entries} entries{size} behind in {len(worst)} of "
            f"{len(self.partitions)} topic partitions: {shown}"
            + (f"; and {more} more" if more > 0 else "")
            + held
        )

    def _held_text(self) -> str:
        if not self.held_back:
            return ""
        shown = ", ".join(
            f"{partition.topic_partition} (stored up to {partition.held_back})"
            for partition in self.held_back[:_WORST_SHOWN]
        )
        more = len(self.held_back) - _WORST_SHOWN
        return f"; an open transaction holds back rows of {shown}" + (
            f" and {more} more" if more > 0 else ""
        )


def partition_lags(
    latest_offset: str | None, end_offset: str | None
) -> tuple[PartitionLag, ...] | None:
    """Return the lag of each topic partition; None for a source of another format.

    Ours are known by the form of what they report: Spark describes all sources that are
    written in Python alike.

    Args:
        latest_offset: What the source reported when the micro-batch was planned, as a
            progress has it.
        end_offset: The end of the micro-batch, in the same way.
    """
    reported = _object(latest_offset)
    if reported.get("v") != _VERSION:
        return None
    try:
        latest = dict(_leaves(reported["latest"], str))
        backlog = dict(_leaves(reported["backlogEntries"], int))
        # Not in event logs of earlier releases.
        sizes = dict(_leaves(reported.get("backlogBytes", {}), int))
        ages_ms = dict(_leaves(reported.get("ageMs", {}), int))
        held_back = dict(_leaves(reported.get("heldBack", {}), str))
    except (KeyError, ValueError):
        return None
    # No end where no micro-batch was planned yet, or a checkpoint of another version.
    end = _object(end_offset)
    try:
        last_read = dict(_leaves(end.get("lastRead", {}), str))
    except ValueError:
        last_read = {}
    return tuple(
        PartitionLag(
            name,
            _place(last_read, name),
            _place(latest, name),
            entries,
            sizes.get(name),
            ages_ms[name] / 1e3 if name in ages_ms else None,
            held_back.get(name, ""),
        )
        for name, entries in backlog.items()
    )


def _place(places: Mapping[str, str], topic_partition: str) -> str:
    place = places.get(topic_partition, "")
    return "" if place == str(EARLIEST) else place


def _object(text: str | None) -> Mapping[str, Any]:
    """Read a JSON object; return an empty mapping for other text."""
    # Where there is no offset, Spark gives None, "None" or "null".
    try:
        tree = json.loads(text or "null")
    except (ValueError, RecursionError):
        return {}
    return tree if isinstance(tree, dict) else {}


def _leaves(tree: object, kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the full name and the value of each topic partition in a tree.

    Raises:
        ValueError: It is no tree by the full names of topics and partitions, or a value
            is of another kind.
    """
    # Not above: executors import this module with the package, but never need it.
    from pulsar_spark.source.stream.checkpoint import flatten

    if not isinstance(tree, dict):
        raise ValueError("not a tree of topics")
    if not all("://" in name for name in tree):  # another format
        raise ValueError("not the full names of topics")
    for name, value in flatten(tree):
        if type(value) is not kind:
            raise ValueError(f"not the value of a topic partition: {value!r}")
        yield name, value
