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
little at first and more as receipts come, see ``resending``. An error that another try
cannot cure is final for all producers of the task: ``Shared.fatal``.

Each attachment speaks for itself alone. A reading thread may still be about to report
on a connection that the producer has left; none of that may harm the next attachment.
"""

from __future__ import annotations

import enum
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice

from pulsar_spark.client.connection import Connection, new_producer_id
from pulsar_spark.client.producing.refusals import DAMAGED, TERMINATED, explained
from pulsar_spark.client.producing.resending import Resending
from pulsar_spark.errors import (
    BrokerError,
    InDoubtError,
    PulsarSparkError,
    TransportError,
)
from pulsar_spark.loops.sends import Receipt, SendFrame
from pulsar_spark.message_id import MessageId, TxnId
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.compression import CompressionType
from pulsar_spark.wire.frames import DEFAULT_MAX_MESSAGE_SIZE_BYTES
from pulsar_spark.wire.outgoing import Encryption, EntryEncoder
from pulsar_spark.wire.protocol import SendRefused

#: An entry may arrive damaged this many times in a row.
_MAX_DAMAGED = 3

#: How long a broker must go on saying that a topic has ended before that counts, in
#: seconds. Between the two things that a migration changes lies one write to the store
#: of the metadata, so this is ample; where a topic has ended for good, a job waits for
#: its error so long.
_ENDING_S = 5.0

#: An attachment that lasted this long, in seconds, worked: its end is a new problem,
#: not the last one again.
_STEADY_S = 10.0


#: Entries in flight among which a receipt may come before its turn.
_MOST_EARLY = 64


class State(enum.Enum):
    """Where a producer is in the drawing above."""

    NEW = "new"
    ATTACHING = "attaching"
    ATTACHED = "attached"
    BROKEN = "broken"


@dataclass
class Trouble:
    """Problems since the last receipt; a receipt replaces the object.

    Attributes:
        waited_s: Seconds that ended attachments waited for receipts in vain.
        silences: How often it attached again because no receipts came.
        tries: How often it attached again for any reason.
        damages: How often it attached again because an entry arrived damaged.
        ended_at: When the broker first said that the topic has ended.
        began: When the problem that it tries to get over was new.
    """

    waited_s: float = 0.0
    silences: int = 0
    tries: int = 0
    damages: int = 0
    ended_at: float | None = None
    began: float = field(default=0.0, compare=False)


class Chunks:
    """The chunks of a message in flight: what receipts for chunks may be believed.

    The chunks of a row have one number. A broker (4.0.7) that finds duplicates goes by
    the last of them; but one that loads the topic between two counts those that it
    finds there, and drops the last, as it does if it had all::

        ledger 7: 0/3 1/3     loaded again, ledger 8: 0/3 1/3   2/3 is dropped

    A topic that is loaded has a new ledger. So the broker is believed if what is sent
    again goes to the ledger that the last receipt before had named. Which chunk it says
    it had is not known: this receipt comes ahead of those of entries to be stored.
    Where all that was sent again had been stored, the next new entry names the ledger.

    Attributes:
        are_left: Whether the last receipt was for a chunk, with more of them to come.
        are_in_doubt: Whether the topic was loaded again, so that a row may lack a
            chunk.
        are_unsettled: Whether no receipt since then names a ledger.
    """

    def __init__(self) -> None:
        self._number = -1  # of the last row in chunks
        self._resent_up_to = -1
        self._ledger_before = -1  # -1: none is known
        self._is_same = False
        self._is_another = False
        self.are_left = False
        self.are_in_doubt = False
        self.are_unsettled = False

    def attach(self, pending: Sequence[SendFrame], last: Receipt | None) -> None:
        """Take in that what has no receipt will be sent again."""
        if not pending:
            return
        if pending[0].sequence_id > self._resent_up_to:
            self._ledger_before = -1 if last is None else last.ledger_id
            self._is_another = False
        self._is_same = False
        self._resent_up_to = pending[-1].sequence_id

    def leave(self) -> None:
        """Note a move to another cluster, which has other ledgers."""
        self._ledger_before = -1

    def take(self, frame: SendFrame, receipt: Receipt) -> None:
        """Take in the next receipt."""
        self.are_left = not frame.rows
        if not frame.rows:
            self._number = frame.sequence_id
        if receipt.entry_id < 0:
            self.are_unsettled |= frame.sequence_id == self._number
        elif receipt.ledger_id == self._ledger_before:
            self._is_same = True
        else:
            self._is_another = True
        self.are_in_doubt |= self.are_unsettled and self._is_another
        self.are_unsettled &= not self._is_same


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
    """

    def __init__(self, *, is_transactional: bool = False) -> None:
        self.is_transactional = is_transactional
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
        schema_version: What the broker calls it; empty where there is none.
        producer_id: Unique in the process.
        name: As the broker knows it.
        last_sequence_id: The highest that the broker knew of under this name when the
            producer attached first; -1 for none, or if it does not deduplicate.
        max_message_size_bytes: The broker's limit for an entry.
        last_stored_id: The highest that a receipt has come for, or else as above.
        stored_rows, stored_bytes: What receipts have come for; bytes are of frames.
        duplicate_rows: Rows that the broker had already, and dropped.
        chunks: What is known of chunks that the broker says it had.
        last_receipt: The last one that named an entry; None for none.
        state: If it is. The methods below change it, and nothing else does.
        attachment: The current one, or the one that ended last; None where NEW.
        pending: Entries that were sent and have no receipt, in order.
        unsent: Those behind them that this attachment is still to send again.
        trouble: What went wrong since the last receipt.
        damaged: Refusals of entries that arrived damaged since it attached, by sequence
            id.
        epoch: How often it has attached.
        topic_epoch: What a broker that gives exclusive access wants to see again.
        cluster: Hosts of the cluster of the last attachment; None before that.
        queued_at: Since when it waits for exclusive access; None if it does not.
        left: What had no receipt when a broker said that the segment is sealed; None
            before that. Nothing more can be sent.
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
        self.schema_version = b""
        self.producer_id = new_producer_id()
        self.name = name
        self.last_sequence_id = -1
        self._plain_id = -1  # of the last entry that ``plain_entry`` made
        self.last_stored_id = -1
        self.max_message_size_bytes = 0
        self.stored_rows = 0
        self.stored_bytes = 0
        self.duplicate_rows = 0
        self.chunks = Chunks()
        self.last_receipt: Receipt | None = None
        self.state = State.NEW
        self.attachment: Attachment | None = None
        self.pending: deque[SendFrame] = deque()
        self.unsent: deque[SendFrame] = deque()
        self.trouble = Trouble()
        self.damaged: dict[int, BrokerError] = {}
        self.epoch = 0
        self.topic_epoch: int | None = None
        self.cluster: tuple[str, ...] | None = None
        self.queued_at: float | None = None
        self.left: list[SendFrame] | None = None
        self._shared = shared
        self._new_encryption = new_encryption

    @cached_property
    def _encryption(self) -> Encryption | None:
        """The encryption of entries, created with the first entry."""
        return None if self._new_encryption is None else self._new_encryption()

    @property
    def connection(self) -> Connection | None:
        """The connection of the producer, current or intended; None while NEW."""
        return None if self.attachment is None else self.attachment.connection

    @property
    def last_stored(self) -> MessageId | None:
        """The message id in the last receipt that had a message id."""
        receipt = self.last_receipt
        return receipt and MessageId(receipt.ledger_id, receipt.entry_id)

    @property
    def pending_rows(self) -> int:
        """Rows of the entries without a receipt."""
        return sum(frame.rows for frame in self._in_flight)

    @property
    def sent_ids(self) -> tuple[int, int]:
        """The first sequence id without a receipt, and the last id sent."""
        frames = list(self._in_flight)
        if not frames:
            return self.last_stored_id + 1, self.last_stored_id
        return frames[0].sequence_id, frames[-1].highest_sequence_id

    @property
    def has_in_flight(self) -> bool:
        """Return whether there are any."""
        return bool(self.pending or self.unsent)

    @property
    def _in_flight(self) -> Iterable[SendFrame]:
        return chain(self.pending, self.unsent)

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
            self.name,
            self.max_message_size_bytes,
            compression,
            txn,
            chunk_bytes,
            self.schema_version,
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

        Args:
            message: The bytes.
            metadata: What to say of it; completed here.
            txn: Transaction that it is part of.

        Raises:
            MessageTooLargeError: It does not fit into an entry.
        """
        # Brokers that deduplicate drop what has no larger number than the last entry.
        self._plain_id = max(self._plain_id, self.last_sequence_id) + 1
        (frame,) = self.encoder(txn=txn).single(
            metadata or pb.MessageMetadata(),
            message,
            self._plain_id,
            time.time_ns() // 1_000_000,
        )
        return frame

    # -- changes of state, by the task's thread but for ``broke`` ----------------------

    def attach(self, connection: Connection) -> Attachment:
        """Begin an attachment, right before PRODUCER is sent: NEW, BROKEN -> ATTACHING.

        Returns:
            What the connection's reading thread is to call.
        """
        with self._shared.changed:
            self.attachment = Attachment(self, connection, self._shared)
            self.chunks.attach(self.pending + self.unsent, self.last_receipt)
            self._shared.broken.pop(self, None)
            self.state = State.ATTACHING
            return self.attachment

    def attached(self, success: pb.CommandProducerSuccess) -> None:
        """Take in PRODUCER_SUCCESS: ATTACHING -> ATTACHED, or still BROKEN."""
        with self._shared.changed:
            attachment = self.attachment
            assert attachment is not None
            attachment.heard_at = time.monotonic()
            if not self.epoch:
                self.last_sequence_id = success.last_sequence_id
                self.last_stored_id = success.last_sequence_id
                if self.schema is not None:
                    self.schema_version = success.schema_version
            self.epoch += 1
            self.queued_at = None
            self.name = success.producer_name
            self.max_message_size_bytes = attachment.connection.max_message_size_bytes
            if success.HasField("topic_epoch"):
                self.topic_epoch = success.topic_epoch
            if self.state is State.ATTACHING:
                self.state = State.ATTACHED

    def doubted_end(self, error: BrokerError) -> BrokerError:
        """Return the refusal of a topic that has ended, to be tried again at first.

        A broker whose cluster is being migrated ends a topic a moment before it says,
        where the topic went, to those that attach.
        """
        now = time.monotonic()
        if self.trouble.ended_at is None:
            self.trouble.ended_at = now
        is_new = now - self.trouble.ended_at < _ENDING_S
        return error.saying(error.message, retriable=is_new)

    def not_attached(self) -> None:
        """Take in that PRODUCER failed: the attachment never was, so this is NEW."""
        with self._shared.changed:
            self.attachment = None
            self._shared.broken.pop(self, None)
            self.state = State.NEW

    def broke(self, reason: PulsarSparkError) -> None:
        """Have the task's thread attach the producer again: any state -> BROKEN."""
        with self._shared.changed:
            attachment = self.attachment
            if attachment is not None and attachment.resending is not None:
                # Others may still send again on the same connection.
                under_way = sum(len(frame.data) for frame in self.pending)
                attachment.resending.given_up(under_way)
                attachment.resending = None
            self._shared.broken[self] = reason
            self._shared.resending.pop(self, None)
            self.state = State.BROKEN
            self._shared.changed.notify_all()

    def count_try(self) -> bool:
        """Count a try to attach; return whether the reason is a new problem."""
        lasted_s = 0.0
        if self.attachment is not None and self.attachment.heard_at is not None:
            lasted_s = time.monotonic() - self.attachment.heard_at
            self.attachment.heard_at = None
        has_waited = bool(self.unsent) and not self.pending  # for others, to send
        is_new = not self.trouble.tries or lasted_s > _STEADY_S or has_waited
        if is_new:
            self.trouble.began = time.monotonic()
        self.trouble.tries += 1
        if self.pending:
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
            self.unsent.extendleft(reversed(self.pending))
            self.pending.clear()
            if self.unsent and self.state is not State.BROKEN:
                self._shared.resending[self] = None

    def sent_again(self) -> list[SendFrame]:
        """Take the entries that may be resent now; they become pending."""
        attachment = self.attachment
        assert attachment is not None
        assert attachment.resending is not None
        if not self.pending:
            attachment.heard_at = time.monotonic()
        taken: list[SendFrame] = []
        while self.unsent and attachment.resending.admits(len(self.unsent[0].data)):
            taken.append(self.unsent.popleft())
        self.pending.extend(taken)
        if not self.unsent:
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
        """Take in that the segment is sealed: any state -> NEW, for good."""
        with self._shared.changed:
            self.left = list(self._in_flight)
            # Rows may still be made entries of, in vain, if it never attached.
            self.max_message_size_bytes = (
                self.max_message_size_bytes or DEFAULT_MAX_MESSAGE_SIZE_BYTES
            )
            self._shared.in_flight_bytes -= sum(len(f.data) for f in self.left)
            self.pending.clear()
            self.unsent.clear()
            self.attachment = None
            self.state = State.NEW
            self._shared.broken.pop(self, None)
            self._shared.resending.pop(self, None)
            self._shared.changed.notify_all()

    def drop_pending(self) -> int:
        """Give up entries without a receipt; return their number of rows."""
        with self._shared.changed:
            rows = self.pending_rows
            self._shared.in_flight_bytes -= sum(len(f.data) for f in self._in_flight)
            self.pending.clear()
            self.unsent.clear()
            self.trouble = Trouble()
        return rows


class Attachment:
    """A producer's time on a connection: the callbacks of its reading thread.

    Attributes:
        connection: The connection.
        heard_at: When the producer attached, or when its last receipt came, by the
            monotonic clock. None before that, and after its end was counted.
        resending: How much is sent again at a time; None where nothing is.
    """

    def __init__(
        self, producer: TopicProducer, connection: Connection, shared: Shared
    ) -> None:
        self.connection = connection
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
            pending = producer.pending
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
        pending = self._producer.pending
        awaited = pending[0].sequence_id
        if self._refused is not None and receipt.sequence_id >= self._refused:
            return False  # the next chunk's, not that of the one that was refused
        if receipt == self._last and receipt.entry_id >= 0:
            return True  # told twice; the chunks of a message have one number
        if receipt.sequence_id == awaited:
            stored.append((pending.popleft(), receipt))
            self._last = receipt
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
        ids = [f.sequence_id for f in islice(self._producer.pending, 1, _MOST_EARLY)]
        return ids.count(receipt.sequence_id) == 1

    def _take_early(self, stored: list[tuple[SendFrame, Receipt]]) -> None:
        """Take the entries in flight whose receipts came before their turn."""
        pending = self._producer.pending
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
            producer.last_stored_id = frame.highest_sequence_id
            if receipt.entry_id < 0:
                producer.duplicate_rows += frame.rows
            else:
                producer.last_receipt = receipt
                producer.stored_rows += frame.rows
                producer.stored_bytes += size_bytes
        if producer.chunks.are_in_doubt:
            self._shared.fatal = self._shared.fatal or producer.half_a_row()

    def refused(self, refusal: SendRefused, error: BrokerError) -> None:
        """Note a refused entry; the entries behind may be refused, too."""
        producer, shared = self._producer, self._shared
        with shared.changed:
            if producer.attachment is not self:
                return
            error = explained(error.about(producer.topic), producer.name)
            if self._refused is None:
                self._refused = refusal.sequence_id
            if refusal.code == DAMAGED:
                producer.trouble.damages += producer.state is not State.BROKEN
                producer.damaged[refusal.sequence_id] = error
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
        if self._producer.state is not State.BROKEN:
            self._producer.broke(error)

    def _lost(self, what: str) -> TransportError:
        broker = self.connection.broker
        return TransportError(
            f"{self._producer.topic}: the broker {broker} {what}.", broker=broker
        )
