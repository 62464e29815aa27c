# SPDX-License-Identifier: Apache-2.0
"""Tell whether compaction can explain that the end of a range is not delivered.

A compacted read does not get the rows that compaction has removed, and the last row of
its range may be one of them. A topic that has lost its end, that was deleted and
created again, or that its broker does not fully know yet, looks the same at first.
"""

from __future__ import annotations

from pulsar_spark.client.entry_reader import EntryReader, ReaderSettings
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.positions import PositionLookup
from pulsar_spark.errors import ReadTimeoutError
from pulsar_spark.message_id import EARLIEST, MessageId, TopicPositions


def reaches(
    pool: ConnectionPool,
    topic_partition: str,
    end: MessageId,
    settings: ReaderSettings,
) -> bool:
    """Return whether the topic has reached ``end`` and was not created again since.

    Numbers of ledgers only grow, so a topic that was created again has none up to
    ``end``: neither stored as it is, nor in what compaction has kept.

    Args:
        pool: The cluster's connections.
        topic_partition: Full name.
        end: A position that it had.
        settings: How it is read.

    Raises:
        TopicNotFoundError: It does not exist.
        ReadTimeoutError: Nothing comes for ``poll_timeout_s``, though there is some.
        PulsarSparkError: The cluster does not answer, or refuses.
    """

    def ask(start: MessageId, *, read_compacted: bool) -> TopicPositions:
        lookup = PositionLookup(
            pool,
            read_compacted=read_compacted,
            patience_s=settings.poll_timeout_s,
        )
        return lookup.from_message_ids({topic_partition: start})[topic_partition]

    # An end by time may be right before a ledger, where no entry is to be placed at.
    position = MessageId(end.ledger_id, max(0, end.entry_id))
    stored = ask(position, read_compacted=False)
    if EARLIEST.position < stored.before.position <= end.position:
        return stored.last is not None and stored.last.position >= end.position
    # Its ledger is gone: retention may remove what compaction has seen.
    if ask(EARLIEST, read_compacted=True).last is None:
        return False
    with EntryReader(pool, topic_partition, EARLIEST, settings) as compacted:
        first = compacted.receive(settings.poll_timeout_s)
    if first is None:
        raise ReadTimeoutError(
            f"{topic_partition} delivered nothing of what compaction has kept for "
            f"{settings.poll_timeout_s:g} s (`pollTimeoutMs`), though there are rows. "
            "Look at the broker's log, or raise `pollTimeoutMs`.",
            topic_partition=topic_partition,
        )
    return first.position <= end.position
