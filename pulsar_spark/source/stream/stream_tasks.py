# SPDX-License-Identifier: Apache-2.0
"""What the tasks of a micro-batch read: ranges of message ids, divided by the options.

The rows depend on the micro-batch's offsets alone, whatever was removed since. Brokers
are asked about what the division or an executor has to know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import replace
from functools import partial

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.positions import PositionLookup
from pulsar_spark.errors import CheckpointError
from pulsar_spark.message_id import MessageId
from pulsar_spark.options import ReadOptions
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.source.plan.read_task import ReadTask, read_task
from pulsar_spark.source.plan.survey import divide
from pulsar_spark.source.stream.last_read import LastRead
from spark_topics.source.stream.checkpoint import Span
from spark_topics.source.tasks import Tasks

#: No ledger has this many entries: a reader placed there is after its ledger's last.
_NO_ENTRY = 2**31


def stream_tasks(
    pool: ConnectionPool,
    options: ReadOptions,
    positions: PositionLookup,
    spans: Sequence[Span[LastRead]],
    unprotected: Set[str] = frozenset(),
) -> Sequence[ReadTask]:
    """Return what each task of a micro-batch reads.

    Args:
        pool: The cluster's connections.
        options: How to divide.
        positions: Asks brokers what is stored.
        spans: What the micro-batch reads.
        unprotected: Topic partitions whose next rows the subscription does not protect.

    Raises:
        CheckpointError: Rows that are left out no longer count as they did.
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    ranges = topic_ranges(spans)
    # What is not acknowledged, or compacted, nothing protects.
    if options.ack_on_commit and not options.read_compacted:
        ranges = _with_known_starts(positions, ranges, unprotected)
    parts = divide(pool, options, ranges)
    left_out = {span.topic_partition for span in spans if span.is_left_out}
    if left_out:
        if parts != [(range_,) for range_ in ranges]:
            _require_stored(positions, ranges, left_out)
        parts = without(parts, left_out)
    return Tasks(partial(read_task, pool), parts)


def topic_ranges(spans: Iterable[Span[LastRead]]) -> list[TopicRange]:
    """Return the ranges of message ids that a micro-batch reads."""
    return [
        TopicRange(
            span.topic_partition,
            span.after.next(),
            span.last.message_id,
            begins_at=None if span.began is None else span.began.next(),
        )
        for span in spans
    ]


def without(
    parts: Iterable[Sequence[TopicRange]], left_out: Collection[str]
) -> list[tuple[TopicRange, ...]]:
    """Return what each task reads, without topic partitions that are left out.

    A task that has nothing left is still one, so that the others keep their numbers.

    Args:
        parts: What each task would read.
        left_out: Topic partitions that none reads.

    Raises:
        CheckpointError: A task would read of others, too: their rows would get other
            numbers in the task.
    """
    rest = []
    for part in parts:
        kept = tuple(
            range_ for range_ in part if range_.topic_partition not in left_out
        )
        if kept and len(kept) < len(part):
            gone = next(range_ for range_ in part if range_ not in kept)
            raise not_divided_alike(
                f"by `maxPartitions`, one task reads {gone.topic_partition}, which is"
                f" left out, and {kept[0].topic_partition}"
            )
        rest.append(kept)
    return rest


def not_divided_alike(why: str) -> CheckpointError:
    """Return the error for a micro-batch whose rows would get other numbers.

    Args:
        why: Why they would.
    """
    return CheckpointError(
        "The planned micro-batch cannot run again without what `pulsar-spark"
        " checkpoint` has set elsewhere and leave other rows their tasks and numbers:"
        f" {why}. A sink with `deliveryGuarantee=idempotent` knows rows by these"
        " numbers. Put back the copies that the command has kept in the"
        " checkpoint, and let the micro-batch finish first. Or run the command again"
        " with --renumber, and give the sink a new `idempotenceId`: what the"
        " micro-batch has stored already comes a second time then."
    )


def _require_stored(
    positions: PositionLookup, ranges: Iterable[TopicRange], left_out: Collection[str]
) -> None:
    """Check that left-out rows still count as at the first division.

    Raises:
        CheckpointError: Some of it is no longer stored.
    """
    starts = {
        range_.topic_partition: range_.start
        for range_ in ranges
        if range_.topic_partition in left_out
    }
    stored = positions.from_message_ids(starts, absent_ok=True)
    for name, start in starts.items():
        place = stored.get(name)
        if place is None or place.before.position >= start.position:
            raise not_divided_alike(
                f"what it was to read of {name}, from {start} on, is no longer"
                " stored, and `minPartitions`, `maxPartitions` or"
                " `maxRecordsPerPartition` divide it by what is stored"
            )


def _with_known_starts(
    positions: PositionLookup, ranges: list[TopicRange], unprotected: Set[str]
) -> list[TopicRange]:
    """Mark the ranges of which an executor must miss the start.

    A ledger that was read to its end may be gone when its task runs, one with rows
    still to read may not. So brokers are asked about ranges that begin and end in
    different ledgers.
    """
    asked = {
        range_.topic_partition: MessageId(range_.start.ledger_id, _NO_ENTRY)
        for range_ in ranges
        if 0 <= range_.start.ledger_id < range_.end.ledger_id
    }
    stored = positions.from_message_ids(asked, absent_ok=True)
    return [
        replace(range_, is_start_known=True)
        if range_.topic_partition in unprotected & asked.keys()
        or (
            (place := stored.get(range_.topic_partition)) is not None
            and place.before.ledger_id == range_.start.ledger_id
            and place.before.position >= range_.start.position
        )
        else range_
        for range_ in ranges
    ]
