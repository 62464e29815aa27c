# SPDX-License-Identifier: Apache-2.0
"""The producer of a topic partition: its state, and events of reading threads.

Nothing is sent here: ``client.producers`` does that, in the task's own thread. The two
meet under one lock, ``Shared.changed``::

         PRODUCER              PRODUCER_SUCCESS
    NEW ----------> ATTACHING ------------------> ATTACHED
     ^                |  | ^                         |
     |  refused, or   |  | |  PRODUCER               |  closed, connection broke,
     |  no answer     |  | +------------+            |  entry refused, no receipts
     +----------------+  |              |            |
                         +---------> BROKEN <--------+
                           closed, connection broke

ATTACHING may last: a broker lets a producer queue for exclusive access. A BROKEN one
waits in ``Shared.broken`` until the task's thread attaches it again; if the broker
refuses that for now, it is BROKEN again. What has no receipt is then sent again, a
little at first and more as receipts come, see ``resending``. A producer of a segment
that is sealed leaves the drawing: ENDED. An error that another try cannot cure is final
for all producers of the task: ``Shared.fatal``.

Each attachment speaks for itself alone. A reading thread may still be about to report
on a connection that the producer has left; none of that may harm the next attachment.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

from pulsar_spark.client.connection import Connection, new_producer_id
from pulsar_spark.client.producing.entries import Chunks, InFlight, Stored
from pulsar_spark.client.producing.refusals import DAMAGED, TERMINATED, explained
from pulsar_spark.client.producing.resending import Resending
from pulsar_spark.errors import (
    BrokerError,
    InDoubtError,
    PulsarSparkError,
    TransportError,
)
from pulsar_spark.loops.sends import Receipt, SendFrame
from pulsar_spark.message_id import TxnId
from pulsar_spark.options.patience import USUAL
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.compression import CompressionType
from pulsar_spark.wire.frames import DEFAULT_MAX_MESSAGE_SIZE_BYTES
from pulsar_spark.wire.outgoing import Encryption, EntryEncoder
from pulsar_spark.wire.protocol import SendRefused

#: An entry may arrive damaged this many times in a row.
_MAX_DAMAGED = 3

#: An attachment that lasted this long, in seconds, worked: its end is a new problem,
#: not the last one again.
_STEADY_S = 10.0


#: Entries in flight among which a receipt may come before its turn.
_MOST_EARLY = 64


@dataclass(frozen=True)
class New:
    """The producer has no attachment: not yet, or the broker refused the last try."""


@dataclass(frozen=True)
class Attaching:
    """PRODUCER is on its way, or the broker lets the producer queue."""

    attachment: Attachment


@dataclass(frozen=True)
class Attached:
    """The broker takes entries."""

    attachment: Attachment


@dataclass(frozen=True)
class Broken:
    """The producer waits in ``Shared.broken``; its attachment has ended, if any."""

    attachment: Attachment | None


@dataclass(frozen=True)
class Ended:
    """The segment is sealed: nothing more can be sent.

    Attributes:
        left: Entries that had no receipt when the broker said so, in order.
    """

    left: Sequence[SendFrame]


#: What replication does not carry to other clusters.
_HERE_ONLY = "__local__"

#: Where a producer is in the drawing above.
State = New | Attaching | Attached | Broken | Ended


@dataclass(frozen=True)
class Registration:
    """What brokers said of a producer as it attached.

    Attributes:
        name: Name of the producer; as given before the first attachment.
        last_sequence_id: The highest that the broker knew of under this name when the
            producer attached first; -1 for none, or if it does not deduplicate.
        schema_version: Of the values, as of the first attachment; empty for none.
        max_message_size_bytes: The broker's limit for an entry; 0 before that.
        epoch: How often the producer has attached.
        topic_epoch: What a broker that gives exclusive access wants to see again.
        cluster: Hosts of the cluster of the last attachment; None before that.
    """

    name: str
    last_sequence_id: int = -1
    schema_version: bytes = b""
    max_message_size_bytes: int = 0
    epoch: int = 0
    topic_epoch: int | None = None
    cluster: tuple[str, ...] | None = None

    def renewed(
        self,
        success: pb.CommandProducerSuccess,
        attachment: Attachment,
        *,
        is_typed: bool,
    ) -> Registration:
        """Return the registration after another PRODUCER_SUCCESS.

        Args:
            success: The broker's reply.
            attachment: The attachment that begins.
            is_typed: Whether the producer has a schema.
        """
        topic_epoch = self.topic_epoch_in(attachment.cluster)
        renewed = replace(
            self,
            name=success.producer_name,
            max_message_size_bytes=attachment.connection.max_message_size_bytes,
            epoch=self.epoch + 1,
            topic_epoch=(
                success.topic_epoch if success.HasField("topic_epoch") else topic_epoch
            ),
            cluster=attachment.cluster,
        )
        if self.epoch:
            return renewed
        return replace(
            renewed,
            last_sequence_id=success.last_sequence_id,
            schema_version=success.schema_version if is_typed else b"",
        )

    def topic_epoch_in(self, cluster: tuple[str, ...]) -> int | None:
        """Return the topic epoch to attach with in a cluster; None for none."""
        return self.topic_epoch if cluster == self.cluster else None


@dataclass
class Trouble:
    """Problems since the last receipt; a receipt replaces the object.

    Attributes:
        waited_s: Seconds that ended attachments waited for receipts in vain.
        silences: How often it attached again because no receipts came.
        tries: How often it attached again for any reason.
        damages: How often it attached again because an entry arrived damaged.
        ended_at: When the broker first said that the topic has ended.
        queued_at: Since when it waits for exclusive access; None if it does not.
        began: When the problem that it tries to get over was new.
    """

    waited_s: float = 0.0
    silences: int = 0
    tries: int = 0
    damages: int = 0
    ended_at: float | None = None
    queued_at: float | None = None
    began: float = field(default=0.0, compare=False)


class Shared:
    """State shared by a task's thread and reading threads, under a lock.

    Attributes:
        changed: The lock. It is notified of every change that someone waits for.
        in_flight_bytes: Bytes of all entries without a receipt.
        awaited_bytes: What they must have come down to for the task's thread to go on.
        broken: Producers that are to be attached again, in order, and why.
        resending: Attached ones that have not sent all again, in order.
        fatal: The error that every call raises from now on; None for none.
        is_transactional: Whether the entries are of transactions.
        ending_s: How long a broker must go on saying that a topic has ended before that
            counts, in seconds.
    """

    def __init__(
        self, *, is_transactional: bool = False, ending_s: float = USUAL.ending_s
    ) -> None:
        self.is_transactional = is_transactional
        self.ending_s = ending_s
        self.changed = threading.Condition()
        self.in_flight_bytes = 0
        self.awaited_bytes = 0
        self.broken: dict[TopicProducer, PulsarSparkError] = {}
        self.resending: dict[TopicProducer, None] = {}
        self.fatal: PulsarSparkError | None = None


class TopicProducer:
    """The producer of a topic partition. Made by ``client.producers.Producers``.

    Args:
        topic: Full name of the topic partition.
        name: Name to attach by; "" for one that the broker makes up.
        shared: What all producers of the task share.
        schema: Of the values; None for none.
        new_encryption: Makes what encrypts its payloads; None where they stay as they
            are.

    Attributes:
        topic: Full name of the topic partition.
        schema: As given.
        producer_id: Unique in the process.
        registration: What brokers said of the producer as it attached.
        state: The state. The methods below change it, and nothing else does.
        in_flight: Entries without a receipt.
        stored: What receipts have come for.
        chunks: What is known of chunks that the broker says it had.
        trouble: What went wrong since the last receipt.
    """

    def __init__(
        self,
        topic: str,
        name: str,
        shared: Shared,
        schema: pb.Schema | None = None,
        new_encryption: Callable[[], Encryption] | None = None,
    ) -> None:
        self.topic = topic
        self.schema = schema
        self.producer_id = new_producer_id()
        self.registration = Registration(name)
        self.state: State = New()
        self.in_flight = InFlight()
        self.stored = Stored()
        self.chunks = Chunks()
        self.trouble = Trouble()
        # Refusals of entries that arrived damaged since it attached, by sequence id.
        self._damaged: dict[int, BrokerError] = {}
        self._plain_id = -1  # of the last entry that ``plain_entry`` made
        self._shared = shared
        self._new_encryption = new_encryption

    @cached_property
    def _encryption(self) -> Encryption | None:
        """The encryption of entries, created with the first entry."""
        return None if self._new_encryption is None else self._new_encryption()

    @property
    def attachment(self) -> Attachment | None:
        """The current attachment, or the last one while BROKEN; None for none."""
        state = self.state
        return None if isinstance(state, New | Ended) else state.attachment

    @property
    def connection(self) -> Connection | None:
        """The connection of the attachment; None for none."""
        return None if self.attachment is None else self.attachment.connection

    @property
    def left(self) -> Sequence[SendFrame] | None:
        """What had no receipt when the segment was sealed; None if it is not."""
        return self.state.left if isinstance(self.state, Ended) else None

    @property
    def sent_ids(self) -> tuple[int, int]:
        """The first sequence id without a receipt, and the last id sent."""
        frames = list(self.in_flight)
        if not frames:
            return self.stored.last_id + 1, self.stored.last_id
        return frames[0].sequence_id, frames[-1].highest_sequence_id

    def encoder(
        self,
        *,
        txn: TxnId | None = None,
        compression: CompressionType = CompressionType.NONE,
        chunk_bytes: int = 0,
    ) -> EntryEncoder:
        """Return an encoder of entries of this producer, which has attached.

        Args:
            txn: Transaction that the entries are part of.
            compression: Of payloads.
            chunk_bytes: As ``EntryEncoder.chunk_bytes``.
        """
        return EntryEncoder(
            self.producer_id,
            self.registration.name,
            self.registration.max_message_size_bytes,
            compression,
            txn,
            chunk_bytes,
            self.registration.schema_version,
            self._encryption,
        )

    def plain_entry(
        self,
        message: bytes,
        *,
        metadata: pb.MessageMetadata | None = None,
        txn: TxnId | None = None,
    ) -> SendFrame:
        """Make an entry of a message, uncompressed and unchunked, with the next number.

        Replication does not carry the entry to other clusters: logs of commits, markers
        and probes are about transactions and producers of this cluster.

        Args:
            message: The bytes.
            metadata: What to say of it; completed here.
            txn: Transaction that it is part of.

        Raises:
            MessageTooLargeError: It does not fit into an entry.
        """
        # Brokers that deduplicate drop what has no larger number than the last entry.
        self._plain_id = max(self._plain_id, self.registration.last_sequence_id) + 1
        metadata = metadata or pb.MessageMetadata()
        metadata.replicate_to[:] = [_HERE_ONLY]
        (frame,) = self.encoder(txn=txn).single(
            metadata,
            message,
            self._plain_id,
            time.time_ns() // 1_000_000,
        )
        return frame

    # -- changes of state, by the task's thread but for ``broke`` ----------------------

    def attach(self, connection: Connection, cluster: tuple[str, ...]) -> Attachment:
        """Begin an attachment, right before PRODUCER is sent: NEW, BROKEN -> ATTACHING.

        Args:
            connection: To the broker of the topic partition.
            cluster: Hosts of the broker's cluster.

        Returns:
            What the connection's reading thread is to call.
        """
        with self._shared.changed:
            attachment = Attachment(self, connection, cluster, self._shared)
            self.chunks.attach(list(self.in_flight), self.stored.last_receipt)
            if cluster != self.registration.cluster:
                self.chunks.leave()
            self._shared.broken.pop(self, None)
            self.state = Attaching(attachment)
            return attachment

    def attached(self, success: pb.CommandProducerSuccess) -> None:
        """Take in PRODUCER_SUCCESS: ATTACHING -> ATTACHED, or still BROKEN."""
        with self._shared.changed:
            attachment = self.attachment
            assert attachment is not None
            attachment.heard_at = time.monotonic()
            if not self.registration.epoch:
                self.stored.last_id = success.last_sequence_id
            self.registration = self.registration.renewed(
                success, attachment, is_typed=self.schema is not None
            )
            self.trouble.queued_at = None
            if isinstance(self.state, Attaching):
                self.state = Attached(attachment)

    def doubted_end(self, error: BrokerError) -> BrokerError:
        """Return the refusal of a topic that has ended, to be tried again at first.

        A broker whose cluster is being migrated ends a topic a moment before it says,
        where the topic went, to those that attach.
        """
        now = time.monotonic()
        if self.trouble.ended_at is None:
            self.trouble.ended_at = now
        is_new = now - self.trouble.ended_at < self._shared.ending_s
        return error.saying(error.message, retriable=is_new)

    def not_attached(self) -> None:
        """Take in that PRODUCER failed: the attachment never was, so this is NEW."""
        with self._shared.changed:
            self._shared.broken.pop(self, None)
            self.state = New()

    def broke(self, reason: PulsarSparkError) -> None:
        """Have the task's thread attach the producer again: any state -> BROKEN."""
        with self._shared.changed:
            attachment = self.attachment
            if attachment is not None and attachment.resending is not None:
                # Others may still send again on the same connection.
                under_way = sum(len(frame.data) for frame in self.in_flight.pending)
                attachment.resending.given_up(under_way)
                attachment.resending = None
            self._shared.broken[self] = reason
            self._shared.resending.pop(self, None)
            self.state = Broken(attachment)
            self._shared.changed.notify_all()

    def count_try(self) -> bool:
        """Count a try to attach; return whether the reason is a new problem."""
        lasted_s = 0.0
        if self.attachment is not None and self.attachment.heard_at is not None:
            lasted_s = time.monotonic() - self.attachment.heard_at
            self.attachment.heard_at = None
        in_flight = self.in_flight
        has_waited = bool(in_flight.unsent) and not in_flight.pending  # for others
        is_new = not self.trouble.tries or lasted_s > _STEADY_S or has_waited
        if is_new:
            self.trouble.began = time.monotonic()
        self.trouble.tries += 1
        if in_flight.pending:
            self.trouble.waited_s += lasted_s
        return is_new

    def resend(self, resending: Resending) -> None:
        """Begin to send all again that has no receipt.

        Args:
            resending: How much at a time, on the connection that this is attached to.
        """
        with self._shared.changed:
            assert self.attachment is not None
            self.attachment.resending = resending
            self.in_flight.unsend()
            if self.in_flight.unsent and not isinstance(self.state, Broken):
                self._shared.resending[self] = None

    def sent_again(self) -> list[SendFrame]:
        """Take the entries that may be resent now; they become pending."""
        attachment, unsent = self.attachment, self.in_flight.unsent
        assert attachment is not None
        assert attachment.resending is not None
        if not self.in_flight.pending:
            attachment.heard_at = time.monotonic()
        taken: list[SendFrame] = []
        while unsent and attachment.resending.admits(len(unsent[0].data)):
            taken.append(unsent.popleft())
        self.in_flight.pending.extend(taken)
        if not unsent:
            del self._shared.resending[self]
        return taken

    def half_a_row(self) -> InDoubtError:
        """Return the error for a row that may lack a chunk."""
        return InDoubtError(
            "a connection broke or the topic moved while a row in chunks was sent, and "
            "the broker has dropped a chunk as one that it had. With "
            "deduplication it does that also if it had only some of the others, so "
            "nobody can tell whether the row is whole, and the task has to run again: "
            "allow that by `spark.task.maxFailures`.",
            topic_partition=self.topic,
            rows=1,
        )

    def end(self) -> None:
        """Take in that the segment is sealed: any state -> ENDED, for good."""
        with self._shared.changed:
            if not self.registration.max_message_size_bytes:
                # Rows may still be made entries of, in vain, if it never attached.
                self.registration = replace(
                    self.registration,
                    max_message_size_bytes=DEFAULT_MAX_MESSAGE_SIZE_BYTES,
                )
            self.state = Ended(self._given_up())
            self._shared.broken.pop(self, None)
            self._shared.resending.pop(self, None)
            self._shared.changed.notify_all()

    def drop_in_flight(self) -> int:
        """Give up entries without a receipt; return their number of rows."""
        with self._shared.changed:
            self.trouble = Trouble()
            return sum(frame.rows for frame in self._given_up())

    def _given_up(self) -> list[SendFrame]:
        """Give up entries without a receipt. The lock is held."""
        frames = self.in_flight.clear()
        self._shared.in_flight_bytes -= sum(len(frame.data) for frame in frames)
        return frames

    def note_damaged(self, sequence_id: int, error: BrokerError) -> None:
        """Note the refusal of an entry that arrived damaged. The lock is held."""
        self._damaged[sequence_id] = error

    def check_damaged(self, last_sequence_id: int) -> None:
        """Raise for an entry that a broker which deduplicates will never take.

        The entry arrived damaged, and a later entry is stored.

        Args:
            last_sequence_id: The highest that the broker knew of at this attachment.
        """
        damaged, self._damaged = self._damaged, {}
        for sequence_id, error in damaged.items():
            if sequence_id <= last_sequence_id:
                raise error


class Attachment:
    """A producer's time on a connection: the callbacks of its reading thread.

    Attributes:
        connection: The connection.
        cluster: Hosts of the broker's cluster.
        heard_at: When the producer attached, or when its last receipt came, by the
            monotonic clock. None before that, and after its end was counted.
        resending: How much is sent again at a time; None where nothing is.
    """

    def __init__(
        self,
        producer: TopicProducer,
        connection: Connection,
        cluster: tuple[str, ...],
        shared: Shared,
    ) -> None:
        self.connection = connection
        self.cluster = cluster
        self.heard_at: float | None = None
        self.resending: Resending | None = None
        self._last: Receipt | None = None  # that was one of ours
        self._early: dict[int, Receipt] = {}  # by sequence id, before those awaited
        self._refused: int | None = None  # the sequence id of what is not stored
        self._producer = producer
        self._shared = shared

    def receipts(self, receipts: Sequence[Receipt]) -> None:
        """Take in that the oldest entries in flight are stored."""
        producer, shared = self._producer, self._shared
        with shared.changed:
            if producer.attachment is not self:
                return
            pending = producer.in_flight.pending
            stored: list[tuple[SendFrame, Receipt]] = []
            for receipt in receipts:
                if not pending or not self._take(receipt, stored):
                    break
            if stored:
                self._stored(stored)
            has_room = shared.in_flight_bytes <= shared.awaited_bytes
            if has_room or shared.resending or shared.fatal:
                shared.changed.notify_all()

    def _take(self, receipt: Receipt, stored: list[tuple[SendFrame, Receipt]]) -> bool:
        """Add the entries that a receipt settles; return whether later ones count."""
        pending = self._producer.in_flight.pending
        awaited = pending[0].sequence_id
        if self._refused is not None and receipt.sequence_id >= self._refused:
            return False  # the next chunk's, not that of the one that was refused
        if receipt == self._last and receipt.entry_id >= 0:
            return True  # told twice; the chunks of a message have one number
        if receipt.sequence_id == awaited:
            stored.append((pending.popleft(), receipt))
            self._last = receipt
            if self._early:
                self._take_early(stored)
        elif self._is_early(receipt):
            self._early[receipt.sequence_id] = receipt
        elif receipt.sequence_id > awaited:
            what = f"acknowledged entry {receipt.sequence_id} before {awaited}"
            self._broke(self._lost(what))
        # A lower one is of an entry that was sent twice.
        return True

    def _is_early(self, receipt: Receipt) -> bool:
        """Return whether the receipt is of an entry behind the one that is awaited.

        A broker appends the entries of a transaction in order, but two of its threads
        tell of two entries in a row, and the second may be faster. Chunks of a row have
        one sequence id, so that nothing tells which of them a receipt is of.
        """
        if not self._shared.is_transactional:
            return False
        behind = islice(self._producer.in_flight.pending, 1, _MOST_EARLY)
        ids = [frame.sequence_id for frame in behind]
        return ids.count(receipt.sequence_id) == 1

    def _take_early(self, stored: list[tuple[SendFrame, Receipt]]) -> None:
        """Take the entries in flight whose receipts came before their turn."""
        pending = self._producer.in_flight.pending
        while pending and pending[0].sequence_id in self._early:
            self._last = self._early.pop(pending[0].sequence_id)
            stored.append((pending.popleft(), self._last))

    def _stored(self, stored: Sequence[tuple[SendFrame, Receipt]]) -> None:
        producer = self._producer
        if self.heard_at is not None:
            self.heard_at = time.monotonic()
        producer.trouble = Trouble()
        for frame, receipt in stored:
            size_bytes = len(frame.data)
            self._shared.in_flight_bytes -= size_bytes
            if self.resending is not None:
                self.resending.stored(size_bytes)
            producer.chunks.take(frame, receipt)
        producer.stored.take(stored)
        if producer.chunks.are_in_doubt:
            self._shared.fatal = self._shared.fatal or producer.half_a_row()

    def refused(self, refusal: SendRefused, error: BrokerError) -> None:
        """Note a refused entry; the entries behind may be refused, too."""
        producer, shared = self._producer, self._shared
        with shared.changed:
            if producer.attachment is not self:
                return
            error = explained(error.about(producer.topic), producer.registration.name)
            if self._refused is None:
                self._refused = refusal.sequence_id
            if refusal.code == DAMAGED:
                is_broken = isinstance(producer.state, Broken)
                producer.trouble.damages += not is_broken
                producer.note_damaged(refusal.sequence_id, error)
                is_bearable = producer.trouble.damages <= _MAX_DAMAGED
                error = error.saying(error.message, retriable=is_bearable)
            elif refusal.code == TERMINATED:
                error = producer.doubted_end(error)
            if error.retriable:
                self._broke(error)
            else:
                shared.fatal = shared.fatal or error
            shared.changed.notify_all()

    def closed(self, error: PulsarSparkError | None) -> None:
        """Take in that the broker closed the producer, or that the connection broke."""
        with self._shared.changed:
            if self._producer.attachment is self:
                self._broke(error or self._lost("let go of the producer"))

    def fell_silent(self, silent_s: float) -> None:
        """Take in that no receipt came for that long. From the task's thread."""
        self.closed(self._lost(f"has acknowledged nothing for {silent_s:.3g} s"))

    def _broke(self, error: PulsarSparkError) -> None:
        # What follows the first reason is mostly its consequence.
        if not isinstance(self._producer.state, Broken):
            self._producer.broke(error)

    def _lost(self, what: str) -> TransportError:
        broker = self.connection.broker
        return TransportError(
            f"{self._producer.topic}: the broker {broker} {what}.", broker=broker
        )
