# SPDX-License-Identifier: Apache-2.0
"""What a sealed segment has of producers, where receipts are missing.

A broker that seals a segment closes its producers, and answers nothing more, also not
for entries that are stored. No producer can attach to ask. So the end of the segment is
read: its entries name their producers, and have their sequence ids. Of a topic that was
migrated all entries are read, where a write may have begun before.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Sequence
from functools import partial

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.consumers import ConsumerSet, TopicConsumer
from pulsar_spark.client.peek import entry_of
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.segment_ends import stored_ends
from pulsar_spark.errors import PulsarSparkError, ReadTimeoutError, TransportError
from pulsar_spark.message_id import EARLIEST, MessageId
from pulsar_spark.wire.commands import SubscribeRequest
from pulsar_spark.wire.protocol import Delivery
from spark_topics.client.retry import ask_all

logger = logging.getLogger("pulsar_spark.client")

#: How long a broker may take to deliver the end of a segment, in seconds.
_DELIVERY_S = 10.0

#: How often a sealed segment is asked where it ends until two answers are the same.
_LOOKS = 10

#: Entries that a broker may send before more are asked for.
_PERMITS = 1000


def stored_ids(
    pool: ConnectionPool,
    segment: str,
    producer_name: str,
    after: MessageId | None,
    sent_ids: Collection[int],
) -> set[int]:
    """Return the sequence ids of those sent messages that a segment has whole.

    A higher id of the same name says nothing of them: another producer may have had
    the name since.

    Behind an open transaction nothing can be read. Brokers of 5.0.0-M1 do not deliver
    either, until they load the segment again, entries that they stored while they
    sealed it. Neither is waited for long. Where messages are missing, the segment is
    read until its end is the same twice: a broker may say an end too early.

    Args:
        pool: The cluster's connections.
        segment: Full name of a sealed segment.
        producer_name: As brokers know the producer.
        after: An entry; only what follows it is looked at. None for all.
        sent_ids: The sequence ids of the messages.

    Raises:
        PulsarSparkError: The segment cannot be read.
    """
    sent = {(producer_name, sent_id) for sent_id in sent_ids}
    tail = _settled(pool, [segment], after, _DELIVERY_S, sent)[segment]
    if not tail.is_done.is_set():
        # A row that is stored there and not delivered is stored twice by this.
        logger.warning(
            "%s: the entries up to %s do not come. Rows that may be among them are "
            "written once more.",
            segment,
            MessageId(*tail.end),
        )
    return {sequence_id for _, sequence_id in tail.found}


def last_stored_ids(pool: ConnectionPool, topics: Sequence[str]) -> dict[str, int]:
    """Return the last sequence id of whole messages by the name of the producer.

    Topic partitions are read until their ends are the same twice, as in `stored_ids`.

    Args:
        pool: The cluster's connections.
        topics: Full names of topic partitions that take no more entries.

    Raises:
        ReadTimeoutError: They have more entries than can be read in time.
        PulsarSparkError: One of them cannot be read.
    """
    last_ids: dict[str, int] = {}
    limit_s = pool.options.patience.tail_s
    for topic, tail in _settled(pool, topics, None, limit_s).items():
        if not tail.is_done.is_set():
            raise ReadTimeoutError(
                f"{topic}: {limit_s:g} s were not enough to read which producers have "
                "written to it.",
                topic_partition=topic,
            )
        for name, last_id in tail.last_ids.items():
            last_ids[name] = max(last_id, last_ids.get(name, -1))
    return last_ids


def has_ended_at(pool: ConnectionPool, segment: str, entry: MessageId | None) -> bool:
    """Return whether nothing follows an entry of a sealed segment, as far as is known.

    The segment is asked twice, because a broker may say the end too early.

    Args:
        pool: The cluster's connections.
        segment: Full name of a sealed segment.
        entry: An entry of it; None for a place before the first one.
    """
    for pause_s in (0.0, pool.options.patience.settling_s):
        time.sleep(pause_s)
        end = stored_ends(pool, [segment])[segment]
        if isinstance(end, PulsarSparkError):
            return False
        if end[1] >= 0 if entry is None else end != entry.position:
            return False
    return True


def _settled(
    pool: ConnectionPool,
    topics: Sequence[str],
    after: MessageId | None,
    timeout_s: float,
    sent: Collection[tuple[str, int]] = (),
) -> dict[str, _Tail]:
    """Read topic partitions until their ends stay, or all that was sent is found.

    Args:
        pool: The cluster's connections.
        topics: Full names of topic partitions that take no more entries.
        after: An entry; only what follows it is looked at. None for all.
        timeout_s: How long one round of reading may take.
        sent: Producers and sequence ids of messages that may be there; none where
            these are unknown.

    Raises:
        PulsarSparkError: One of them cannot be read.
    """
    tails: dict[str, _Tail] = {}
    unread = topics
    for _ in range(_LOOKS):
        tails |= _read(pool, unread, after, timeout_s, sent)
        asked = [
            topic
            for topic in unread
            if tails[topic].is_done.is_set()
            and (not sent or len(tails[topic].found) < len(sent))
        ]
        if not asked:
            break
        time.sleep(pool.options.patience.settling_s)
        ends = stored_ends(pool, asked)
        unread = [topic for topic in asked if ends[topic] != tails[topic].end]
        if not unread:
            break
    return tails


def _read(
    pool: ConnectionPool,
    topics: Sequence[str],
    after: MessageId | None,
    timeout_s: float,
    sent: Collection[tuple[str, int]],
) -> dict[str, _Tail]:
    """Read topic partitions to their ends, or for some time.

    Raises:
        PulsarSparkError: One of them cannot be read.
    """
    deadline = time.monotonic() + timeout_s

    def read(some: list[str]) -> dict[str, _Tail | PulsarSparkError]:
        return _read_once(pool, some, after, deadline, sent)

    return ask_all(topics, read, pool.retry(pool.write_patience_s))


def _read_once(
    pool: ConnectionPool,
    topics: Sequence[str],
    after: MessageId | None,
    deadline: float,
    sent: Collection[tuple[str, int]],
) -> dict[str, _Tail | PulsarSparkError]:
    answers: dict[str, _Tail | PulsarSparkError] = {}
    ends: dict[str, tuple[int, int]] = {}
    for topic, end in stored_ends(pool, topics).items():
        if isinstance(end, PulsarSparkError):
            answers[topic] = end
        else:
            ends[topic] = end
    start = EARLIEST if after is None else MessageId(*after.position)
    make = partial(_Tail, sent=sent)
    with ConsumerSet(pool, make, waits_for_end=False) as readers:
        readers.connect(ends)
        readers.subscribe(lambda _: SubscribeRequest(pool.reader_name(), start=start))
        answers |= readers.take_failures()
        tails = dict(readers.members)
        for topic, tail in tails.items():
            tail.listen(ends[topic])
        for topic, tail in tails.items():
            tail.is_done.wait(max(0.0, deadline - time.monotonic()))
            answers[topic] = tail.error or tail
    return answers


class _Tail(TopicConsumer):
    """A reader that keeps the last sequence ids of producers.

    Args:
        topic: Full name of the topic partition.
        connection: To its broker.
        sent: Producers and sequence ids of messages that are looked for.

    Attributes:
        end: The ledger and entry up to which it reads.
        is_done: Set when the end was read, or the connection broke.
        last_ids: The highest sequence id of each producer so far, by its name.
        found: The messages of ``sent`` so far.
        error: Why the end was not read.
    """

    def __init__(
        self, topic: str, connection: Connection, sent: Collection[tuple[str, int]]
    ) -> None:
        super().__init__(topic, connection)
        self.end = (-1, -1)
        self.is_done = threading.Event()
        self.last_ids: dict[str, int] = {}
        self.found: set[tuple[str, int]] = set()
        self.error: PulsarSparkError | None = None
        self._sent = sent
        self._permits = 0

    def listen(self, end: tuple[int, int]) -> None:
        """Ask for all entries up to the end."""
        self.end = end
        if end[1] < 0:
            self.is_done.set()
            return
        self._grant()

    def _grant(self) -> None:
        self._permits += _PERMITS
        self.connection.grant(self.consumer_id, _PERMITS)

    # What follows is called by the connection's reading thread.

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Look at the entries."""
        place = -1, -1
        for delivery in deliveries:
            place = delivery.ledger_id, delivery.entry_id
            entry = entry_of(delivery)
            if entry is None:
                continue
            metadata = entry.metadata
            self._permits -= max(1, metadata.num_messages_in_batch)
            if metadata.chunk_id + 1 >= metadata.num_chunks_from_msg:
                name = metadata.producer_name
                last_id = max(metadata.sequence_id, metadata.highest_sequence_id)
                self.last_ids[name] = max(last_id, self.last_ids.get(name, -1))
                if (name, last_id) in self._sent:
                    self.found.add((name, last_id))
        if place >= self.end:
            self.is_done.set()
        elif self._permits <= _PERMITS // 2:
            self._grant()

    def closed(self, error: PulsarSparkError | None) -> None:
        """Note that the end will not come."""
        super().closed(error)
        if not self.is_done.is_set():
            self.error = error or TransportError(
                f"{self.topic}: the reader was closed."
            )
        self.is_done.set()
