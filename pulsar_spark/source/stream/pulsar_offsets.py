# SPDX-License-Identifier: Apache-2.0
"""Pulsar's part of a stream's offsets: ledgers, and ranges of message ids.

It also reads checkpoints of the Scala connector, from which a query can go on. All of
this is pure.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pulsar_spark.errors import CheckpointError, OptionError
from pulsar_spark.options.offsets import parse_offsets
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.source.stream.checkpoint import StreamOffset, unreadable
from pulsar_spark.source.stream.last_read import NOTHING_READ, LastRead
from spark_topics.options.offsets import Edge
from spark_topics.source.stream.checkpoint import Span


def read_offset(tree: Any) -> StreamOffset[LastRead]:
    """Read an offset that Spark hands back.

    A checkpoint of the Scala connector is read, too: it has the serialised id of the
    last message by topic partition. The whole entry of that counts as read.

    Raises:
        CheckpointError: It is of another version, or not an offset at all.
    """
    if isinstance(tree, Mapping) and "v" not in tree:
        return StreamOffset("", _scala_positions(tree))
    return StreamOffset.from_json(tree, LastRead.parse)


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


def still_where_it_began(
    start: StreamOffset[LastRead],
    last_read: Mapping[str, LastRead],
    start_after: Mapping[str, LastRead],
) -> dict[str, LastRead]:
    """Return ``began`` for the end of the micro-batch that begins at ``start``."""
    began = {}
    for name, last in last_read.items():
        position = (start_after if start.is_new(name) else start.began).get(name)
        if position is not None and position.position == (last.ledger_id, -1) != (
            -1,
            -1,
        ):
            began[name] = position
    return began


def _scala_positions(tree: Mapping[str, Any]) -> dict[str, LastRead]:
    try:
        offsets = parse_offsets(json.dumps(tree), option="The checkpoint").topics
    except OptionError as error:
        raise unreadable(tree, error) from None
    positions = {}
    for name, position in offsets.items():
        if position is Edge.LATEST:
            raise unreadable(tree, ValueError(f"{name} stands at latest"))
        if isinstance(position, Edge):
            positions[name] = NOTHING_READ
        else:
            positions[name] = LastRead(*position.position)
    return positions
