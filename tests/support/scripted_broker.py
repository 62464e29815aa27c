# SPDX-License-Identifier: Apache-2.0
"""A broker in this process, on loopback, that does what a test tells it to.

It speaks real frames, serves topics from memory, and behaves like a broker unless a
script says otherwise::

    with ScriptedBroker() as broker:
        broker.add_topic(TOPIC, [batch([b"a", b"b"]), single(b"c")])
        broker.script("SUBSCRIBE", refuse("ServiceNotReady"), silence)
        ...                                 # the first is refused, the second unheard
        assert broker.requests["SUBSCRIBE"] == 3

Delivery follows Flow as a real broker's does: whole entries while the balance of
permits is above zero, and once it reads, it reads up to 100 entries or 5 MiB, so that
more comes than was asked for.

A coordinator knows of transactions that are open, and of nothing else. Topics know what
became of them: consumers get nothing from the first entry of an open one on, and those
of aborted ones are passed over.

Producers attach by name, and what they send is stored where consumers read it. Whether
duplicates are found is up to the test. What comes for a producer that was closed is
dropped without a word, as brokers do.

Durable subscriptions outlive their consumers, and have one at a time; of the others
each consumer has its own. Topics are stored in ledgers: a test opens new ones, and
removes old ones as retention would.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import struct
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pulsar_spark.errors import SERVER_ERRORS, ProtocolError
from pulsar_spark.message_id import EARLIEST, LATEST, TxnId
from pulsar_spark.options import ClientOptions, ServiceUrl
from pulsar_spark.schemas.info import (
    SchemaInfo,
    SchemaType,
    version_bytes,
)
from pulsar_spark.topics import TopicName, is_segment, topic_of
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import TxnAction
from pulsar_spark.wire.entries import read_stored_entry
from pulsar_spark.wire.frames import FrameReader, encode_frame, encode_payload_frame
from pulsar_spark.wire.protocol import NO_REQUEST
from tests.support import entries

LOOPBACK = "127.0.0.1"
LEDGER = 7
PATIENCE_S = 120.0

#: Bytes that one read of a real broker brings at most, about.
_READ_BYTES = 5 * 1024 * 1024

#: What a producer says of each of its entries.
_PRODUCED: dict[str, Any] = {
    "producer_name": "scripted",
    "sequence_id": 0,
    "publish_time": 1,
}

_CODES = {name: number for number, name in SERVER_ERRORS.items()}
_Type = pb.BaseCommand.Type


@dataclass(frozen=True)
class StoredFrame:
    """One entry of a topic.

    Attributes:
        metadata: Its MessageMetadata.
        payload: What follows that.
        messages: The permits it costs.
        position: Ledger and entry id; set by ``add_topic`` where it is None.
        is_damaged: Whether a byte of it flips on its way.
    """

    metadata: pb.MessageMetadata
    payload: bytes
    messages: int
    position: tuple[int, int] | None = None
    is_damaged: bool = False

    @property
    def place(self) -> tuple[int, int]:
        """Its position, once it is stored."""
        assert self.position is not None
        return self.position


def batch(values: Sequence[bytes], **metadata: Any) -> StoredFrame:
    """An entry that is a batch."""
    members = [entries.member(value) for value in values]
    return _stored(entries.batch(members), len(values), metadata)


def single(value: bytes, **metadata: Any) -> StoredFrame:
    """An entry that is one message."""
    return _stored(entries.message(value), 1, metadata)


def _stored(entry: entries.Entry, messages: int, fields: dict[str, Any]) -> StoredFrame:
    metadata, payload = entry
    metadata.MergeFrom(pb.MessageMetadata(**_PRODUCED | fields))
    return StoredFrame(metadata, payload, messages)


def lying_chunk(index: int, messages: int = 2**31 - 1) -> StoredFrame:
    """The first of two chunks, which says that it is a batch of so many messages."""
    return StoredFrame(
        pb.MessageMetadata(
            **_PRODUCED,
            uuid=f"lie-{index}",
            chunk_id=0,
            num_chunks_from_msg=2,
            total_chunk_msg_size=10,
            num_messages_in_batch=messages,
        ),
        b"chunk",
        messages,
    )


@dataclass(eq=False)
class Subscription:
    """A subscription of a topic partition.

    Attributes:
        mark_delete: Ledger and entry id up to which everything is acknowledged.
        ack_sets: Which messages of an entry are not acknowledged, by its position;
            words of 64 bits, sent with the entry.
        consumer: Who has it.
    """

    topic: str
    name: str
    durable: bool
    mark_delete: tuple[int, int]
    ack_sets: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    consumer: _Consumer | None = None


@dataclass(eq=False)
class _Consumer:
    subscription: Subscription
    next_entry: int
    balance: int = 0

    @property
    def topic(self) -> str:
        return self.subscription.topic


@dataclass(eq=False)
class Producer:
    """A producer that is attached.

    Attributes:
        topic: Full name of its topic partition.
        name: Given, or made up.
    """

    topic: str
    name: str
    producer_id: int
    session: Session


@dataclass(eq=False)
class Session:
    """One connection of a client."""

    sock: socket.socket
    port: int = 0  # the client's
    consumers: dict[int, _Consumer] = field(default_factory=dict)
    #: None for those that were closed.
    producers: dict[int, Producer | None] = field(default_factory=dict)
    coordinators: set[int] = field(default_factory=set)
    send_lock: threading.Lock = field(default_factory=threading.Lock)
    #: Held for one command at a time, also while its answer waits for the client.
    lock: threading.RLock = field(default_factory=threading.RLock)
    is_muted: bool = False
    is_cut: bool = False
    budget_bytes: float = float("inf")  # what it takes in before it is cut

    def send(self, **command: Any) -> None:
        """Sends a command, given as the fields of a BaseCommand."""
        self.send_bytes(encode_frame(pb.BaseCommand(**command).SerializeToString()))

    def send_bytes(self, data: bytes) -> None:
        """Sends anything."""
        if self.is_muted:
            return
        with self.send_lock, contextlib.suppress(OSError):
            self.sock.sendall(data)

    def cut(self) -> None:
        """Ends the connection; its thread comes back, and hears nothing else."""
        self.is_cut = True
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)


#: What to do with a command instead of answering it.
Action = Callable[["ScriptedBroker", Session, pb.BaseCommand], None]

#: Requests that are left without an answer on purpose, for now at least: the port of
#: the client, and their number.
unanswered: set[tuple[int, int]] = set()

#: Those of them that the client is told of: they wait for their turn.
in_a_queue: set[tuple[int, int]] = set()


def silence(broker: ScriptedBroker, session: Session, command: pb.BaseCommand) -> None:
    """Leaves a command without an answer."""
    unanswered.add((session.port, _request_id(command)))


def cut(broker: ScriptedBroker, session: Session, command: pb.BaseCommand) -> None:
    """Cuts the connection."""
    broker.hang_up(session)


def usual(broker: ScriptedBroker, session: Session, command: pb.BaseCommand) -> None:
    """Does what a broker does: for scripts whose later steps matter."""
    broker.answer(session, command)


def usual_then_cut(
    broker: ScriptedBroker, session: Session, command: pb.BaseCommand
) -> None:
    """Does what a broker does, but its answer is lost."""
    broker.answer(replace(session, is_muted=True), command)
    broker.hang_up(session)


def unheard(broker: ScriptedBroker, session: Session, command: pb.BaseCommand) -> None:
    """Does what a broker does, but its answer is lost."""
    broker.answer(replace(session, is_muted=True), command)
    unanswered.add((session.port, _request_id(command)))


def then_moves(
    broker: ScriptedBroker, session: Session, command: pb.BaseCommand
) -> None:
    """Answers as usual; then what is being given away is, and consumers are told."""
    usual(broker, session, command)
    topics = list(broker.closing)
    broker.closing.clear()
    for topic in topics:
        broker.close_consumers(topic)


def twice(broker: ScriptedBroker, session: Session, command: pb.BaseCommand) -> None:
    """Does what a broker does with SEND, and acknowledges it once more."""
    topic = _producer(session, command.send).topic
    broker.answer(session, command)
    _send_receipt(session, command.send, broker.topics[topic][-1].place)


def acknowledge(sequence_id: int) -> Action:
    """Answers SEND with the receipt of some entry, and stores nothing."""

    def action(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        other = pb.CommandSend(producer_id=c.send.producer_id, sequence_id=sequence_id)
        _send_receipt(session, other, (LEDGER, 0))

    return action


def refuse_entry(code: str, message: str = "scripted") -> Action:
    """Answers SEND with an error; by its number, which has no name for new ones."""

    def action(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        error = pb.CommandSendError(
            producer_id=c.send.producer_id,
            sequence_id=c.send.highest_sequence_id,
            error=_CODES[code],
            message=message,
        )
        session.send(type=_Type.SEND_ERROR, send_error=error)

    return action


def let_go(broker: ScriptedBroker, session: Session, command: pb.BaseCommand) -> None:
    """Answers SEND by closing its producer, as for an unload; stores nothing."""
    broker.close_producers(_producer(session, command.send).topic)


def seal(
    next_id: int,
    code: str,
    *,
    after: int,
    stores: bool,
    hidden: int = 0,
    entry_bucket_splits: Sequence[int] = (),
) -> Action:
    """Once, for SEND: instead of a receipt, the segment is sealed, and another follows.

    Args:
        next_id: The id of the segment that follows, for all keys.
        code: Of what the broker says to producers from then on.
        after: How many entries of segments are stored as usual before.
        stores: Whether the entry is stored.
        hidden: How many of the last entries the broker does not know of for a moment.
        entry_bucket_splits: Of the segment that follows.
    """
    entries = itertools.count()

    def action(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        producer = session.producers[c.send.producer_id]
        # What was in flight to a closed producer is dropped.
        if producer is None or not is_segment(producer.topic) or next(entries) != after:
            broker.answer(session, c)
            return
        if stores:
            unheard(broker, session, c)
        broker.hidden[producer.topic] = hidden
        broker.replace_segment(producer.topic, next_id, code, entry_bucket_splits)
        let_go(broker, session, c)

    return action


def garbage(data: bytes) -> Action:
    """Answers with these bytes."""
    return lambda broker, session, command: session.send_bytes(data)


def refuse(code: str, message: str = "scripted") -> Action:
    """Answers with an error."""

    def action(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        request_id = NO_REQUEST if c.type == _Type.CONNECT else _request_id(c)
        error = pb.CommandError(
            request_id=request_id, error=_CODES[code], message=message
        )
        session.send(type=_Type.ERROR, error=error)
        if c.type == _Type.CONNECT:
            session.cut()

    return action


def leaving_out(*topics: str, closes: bool = True) -> Action:
    """Does what a coordinator does that END_TXN reaches while topics are unloaded.

    Args:
        topics: The topic partitions that it leaves out.
        closes: Whether consumers there are closed, as they are by an unload.
    """

    def action(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        txn = TxnId(c.endTxn.txnid_most_bits, c.endTxn.txnid_least_bits)
        broker.leave_out(txn, topics)
        if closes:
            for topic in topics:
                broker.close_consumers(topic)
        broker.answer(session, c)

    return action


def refuse_layout(code: str, message: str) -> Action:
    """Answers SCALABLE_TOPIC_LOOKUP with an error."""

    def action(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        update = pb.CommandScalableTopicUpdate(
            session_id=c.scalable_topic_lookup.session_id,
            error=_CODES[code],
            message=message,
        )
        session.send(type=_Type.SCALABLE_TOPIC_UPDATE, scalable_topic_update=update)

    return action


def look_up(**response: Any) -> Action:
    """Answers LOOKUP with these fields of a CommandLookupTopicResponse."""

    def action(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        session.send(
            type=_Type.LOOKUP_RESPONSE,
            lookupTopicResponse=pb.CommandLookupTopicResponse(
                request_id=_request_id(c), **response
            ),
        )

    return action


def migrated(url: str, url_tls: str = "") -> Action:
    """Answers PRODUCER or SUBSCRIBE as the broker of a cluster that was migrated."""

    def action(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        is_producer = c.type == _Type.PRODUCER
        number = c.producer.producer_id if is_producer else c.subscribe.consumer_id
        moved = pb.CommandTopicMigrated
        session.send(
            type=_Type.TOPIC_MIGRATED,
            topicMigrated=moved(
                resource_id=number,
                resource_type=moved.Producer if is_producer else moved.Consumer,
                brokerServiceUrl=url or None,
                brokerServiceUrlTls=url_tls or None,
            ),
        )
        if is_producer:
            closed = pb.CommandCloseProducer(producer_id=number, request_id=NO_REQUEST)
            session.send(type=_Type.CLOSE_PRODUCER, close_producer=closed)
        else:
            _send_close(session, number)

    return action


def redirect(url: str, *, authoritative: bool = False) -> Action:
    """Answers LOOKUP by naming another broker to ask."""
    return look_up(
        response=pb.CommandLookupTopicResponse.Redirect,
        brokerServiceUrl=url,
        authoritative=authoritative,
    )


def late(event: threading.Event, action: Action = usual) -> Action:
    """Acts once ``event`` is set; the connection goes on meanwhile."""

    def later(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        request = session.port, _request_id(c)

        def run() -> None:
            if event.wait(PATIENCE_S):
                unanswered.discard(request)
                action(broker, session, c)

        unanswered.add(request)
        broker.start_thread(run)

    return later


def queued(event: threading.Event, action: Action = usual) -> Action:
    """Has a PRODUCER wait for its turn, which comes with ``event``."""
    then = late(event, action)

    def wait(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        success = pb.CommandProducerSuccess(
            request_id=c.producer.request_id,
            producer_name=c.producer.producer_name,
            producer_ready=False,
        )
        in_a_queue.add((session.port, c.producer.request_id))
        session.send(type=_Type.PRODUCER_SUCCESS, producer_success=success)
        then(broker, session, c)

    return wait


class ScriptedBroker:
    """The broker.

    Attributes:
        address: ``host:port``.
        url: The same with ``pulsar://``.
        topics: The entries of each topic partition, by full name.
        partitions: The number of partitions of each partitioned topic.
        lists_by_hash: Whether it leaves topics out by a pattern, and says where a list
            has not changed, as brokers do since 2.11.
        subscriptions: What there is now, by topic partition and name.
        connections: How many were opened so far.
        requests: How many commands of each type came.
        bodies: The commands themselves, by type.
        deepest: The most commands of a type that waited for an answer together; only
            for those given to ``answer_together``.
        permits: All that was granted so far, by topic partition.
        read_entries: Entries that one read of a real broker brings at most.
        transactions: The topic partitions of each open transaction.
        ended: The transactions that were ended, and how.
        aborted: Those whose entries are never delivered.
        left_out: Committed transactions of whose commit a topic partition was not told.
        dropped: Those whose rows it has dropped since.
        takes_superusers: Whether it lets clients end transactions on a topic partition.
        closing: Topic partitions that are being given away: nothing of them is
            delivered, or said to be stored.
        deduplicates: Whether it drops entries that it has.
        creates_topics: Whether producers create topics that do not exist.
        topic_epochs: How often somebody took a topic for itself.
        budgets: Of the next connections, how many bytes each takes before it is cut.
        schemas: Of topics, without the suffix of a partition: the latest one last, each
            with its version. A deleted one is of type NONE, and the only one.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server((LOOPBACK, 0))
        self.address = "{}:{}".format(*self._listener.getsockname())
        self.url = f"pulsar://{self.address}"
        self.topics: dict[str, list[StoredFrame]] = {}
        self.partitions: dict[str, int] = {}
        #: Scalable topics, by their names and those from before a migration; None: the
        #: broker is older.
        self.scalable: dict[str, str] | None = None
        #: URL of the broker that manages scalable topics, "" for none.
        self.controller = ""
        #: What each of these consists of.
        self.segments = [pb.ScalableTopicSegment(segment_id=1, hash_end=0xFFFF)]
        self.server_version = "Scripted 1.0"
        #: What it says of the end of each topic partition; None: the truth.
        self.says_last: pb.MessageIdData | None = None
        self.hidden: dict[str, int] = {}  # entries behind the end that it says
        self._stuck: dict[str, pb.MessageIdData] = {}  # ends that it goes on to say
        self.lists_by_hash = False
        self.subscriptions: dict[tuple[str, str], Subscription] = {}
        self.connections = 0
        self.requests: Counter[str] = Counter()
        self.bodies: dict[str, list[Any]] = defaultdict(list)
        self.deepest: Counter[str] = Counter()
        self.permits: Counter[str] = Counter()
        self.read_entries = 100
        self.transactions: dict[TxnId, list[str]] = {}
        self.ended: list[tuple[TxnId, TxnAction]] = []
        self.aborted: set[TxnId] = set()
        self.left_out: set[tuple[TxnId, str]] = set()
        self.dropped: set[tuple[TxnId, str]] = set()
        self._newest_left_out = -1  # of the transactions that were open then
        self.takes_superusers = True
        #: How transactions of scalable topics were ended, until this is forgotten.
        self.outcomes: dict[TxnId, TxnAction] = {}
        self.closing: set[str] = set()
        self.deduplicates = False
        self.creates_topics = True
        #: Topic partitions that take no more producers, and the code of the refusal.
        self.terminated: dict[str, str] = {}
        #: Topics that were terminated without rows, and loaded again: they cannot be
        #: subscribed to at their beginning.
        self.without_ledgers: set[str] = set()
        # Topics, and names of durable subscriptions that were refused there so.
        self._unanswered: set[tuple[str, str]] = set()
        self.topic_epochs: Counter[str] = Counter()
        self.budgets: deque[int] = deque()
        self.schemas: dict[str, list[SchemaInfo]] = {}
        self.max_message_size = 0
        self._names = itertools.count()
        self._last_ids: dict[tuple[str, str], int] = {}  # by topic and producer name
        self._payloads: dict[int, memoryview] = {}  # by the identity of its SEND
        self._places: dict[str, int] = {}  # of subscriptions that sought
        self._txn_numbers = itertools.count()
        self._ledgers: dict[str, list[int]] = {}  # of each topic, the open one last
        # Of topics without entries, the last one removed, until they are loaded again.
        self._last_removed: dict[str, tuple[int, int]] = {}
        self._next_ledger = LEDGER + 1
        self._lock = threading.RLock()  # guards topics, ledgers and subscriptions
        self._received = threading.Lock()  # guards what came, and what scripts say
        self._together: dict[str, int] = {}
        self._waiting: dict[str, list[tuple[Session, pb.BaseCommand]]] = {}
        self._scripts: dict[str, deque[Action]] = defaultdict(deque)
        self._always: dict[str, Action] = {}
        self._sessions: list[Session] = []
        self._threads: list[threading.Thread] = []
        self._is_closed = False
        self.start_thread(self._accept)

    def __enter__(self) -> ScriptedBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends everything, and waits until it has ended."""
        self.stop_listening()
        self.cut()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    # -- what a test asks for ----------------------------------------------------------

    def add_schema(
        self,
        topic: str,
        kind: SchemaType,
        data: bytes | str = b"",
        properties: Mapping[str, str] | None = None,
    ) -> SchemaInfo:
        """Registers the next schema of a topic, and returns it."""
        known = self.schemas.setdefault(topic_of(topic), [])
        info = SchemaInfo(
            kind,
            data.encode() if isinstance(data, str) else data,
            properties or {},
            version_bytes(int.from_bytes(known[-1].version, "big") + 1 if known else 0),
        )
        known.append(info)
        return info

    def delete_schema(self, topic: str) -> None:
        """Leaves of the schemas of a topic a mark only, which is the next version."""
        mark = self.add_schema(topic, SchemaType.NONE)
        self.schemas[topic_of(topic)] = [mark]

    def add_topic(self, name: str, entries: Sequence[StoredFrame] = ()) -> None:
        """Adds a topic partition; entries without a position get ``LEDGER:0`` on.

        One that was there before begins with a new ledger.
        """
        self._create(name)
        self.append(name, *entries)

    def _create(self, name: str) -> None:
        with self._lock:
            ledger_id = LEDGER if name not in self._ledgers else self._new_ledger()
            self._ledgers[name] = [ledger_id]
            self._last_removed.pop(name, None)
            self.topics[name] = []

    def append(self, name: str, *entries: StoredFrame) -> None:
        """Stores more in a topic, and delivers it."""
        with self._lock:
            stored, ledgers = self.topics[name], self._ledgers[name]
            for entry in entries:
                position = entry.position or _next_position(ledgers[-1], stored)
                if position[0] != ledgers[-1]:
                    ledgers.append(position[0])
                    self._next_ledger = max(self._next_ledger, position[0] + 1)
                stored.append(replace(entry, position=position))
        self._deliver_all()

    def expire(self, *txns: TxnId) -> None:
        """Aborts open transactions, as coordinators do with those that are too old."""
        with self._lock:
            for txn in txns:
                known = self._known_as(txn)
                del self.transactions[known]
                self.aborted.add(known)
                if txn.is_scalable:
                    self.outcomes[known] = TxnAction.ABORT
        self._deliver_all()

    def hold_back(self, topic: str) -> TxnId:
        """Holds readers back by an open transaction of a coordinator of its own."""
        txn = TxnId(7, 0)
        with self._lock:
            self.transactions[txn] = [topic]
        entry = single(b"", txnid_most_bits=txn.most, txnid_least_bits=txn.least)
        self.append(topic, entry)
        return txn

    def leave_out(self, txn: TxnId, topics: Sequence[str]) -> None:
        """Keeps a commit that is about to come from topic partitions."""
        with self._lock:
            self.left_out |= {(txn, topic) for topic in topics}
            self._newest_left_out = max(other.least for other in self.transactions)

    def _deliver_all(self) -> None:
        for session in self.sessions:
            with session.lock:
                for consumer_id in list(session.consumers):
                    self._deliver(session, consumer_id)

    def roll(self, name: str) -> int:
        """Closes a topic's ledger and opens the next, empty one; returns its id.

        As for a reload: no ledger without entries is kept, and no cursor stays there.
        """
        with self._lock:
            ledger_id, ledgers = self._new_ledger(), self._ledgers[name]
            self._last_removed.pop(name, None)
            entries = self.topics[name]
            if not entries or entries[-1].place[0] != ledgers[-1]:
                empty = ledgers.pop(), -1
                for subscription in self.subscriptions.values():
                    if (subscription.topic, subscription.mark_delete) == (name, empty):
                        subscription.mark_delete = (ledger_id, -1)
            ledgers.append(ledger_id)
            return ledger_id

    def trim(self, name: str, *, ledgers: int | None = None) -> None:
        """Removes the first closed ledgers of a topic, all by default.

        Cursors that stood in them with rows to come go to what is left; those that were
        done with them stay where they are.
        """
        with contextlib.ExitStack() as locked:
            for session in self.sessions:
                locked.enter_context(session.lock)
            locked.enter_context(self._lock)
            known, entries = self._ledgers[name], self.topics[name]
            count = len(known) - 1 if ledgers is None else ledgers
            gone = set(known[:count])
            assert count < len(known), "the open ledger stays"
            del known[:count]
            lost = [entry.place for entry in entries if entry.place[0] in gone]
            del entries[: len(lost)]
            if lost and not entries:
                self._last_removed[name] = lost[-1]
            for subscription in self.subscriptions.values():
                if subscription.topic != name or not lost:
                    continue
                if subscription.mark_delete < lost[-1]:
                    subscription.mark_delete = (known[0], -1)
                if (consumer := subscription.consumer) is not None:
                    consumer.next_entry = max(0, consumer.next_entry - len(lost))

    def move_readers(self, name: str, to: int) -> None:
        """Moves consumers that are further back to an entry, as expiry does."""
        for session in self.sessions:
            with session.lock:
                for consumer in session.consumers.values():
                    if consumer.topic == name:
                        entry = self.topics[name][to - 1]
                        subscription = consumer.subscription
                        consumer.next_entry = max(consumer.next_entry, to)
                        subscription.mark_delete = max(
                            subscription.mark_delete, entry.place
                        )

    def delete_topic(self, name: str) -> None:
        """Deletes a topic partition, with its subscriptions, under its consumers."""
        with self._lock:
            del self.topics[name]
            self._stuck.pop(name, None)
            for key in [key for key in self.subscriptions if key[0] == name]:
                del self.subscriptions[key]
        self.close_consumers(name)

    def stick(self, name: str) -> None:
        """Goes on to say where a topic partition ends now, as 5.0.1 of segments."""
        with self._lock:
            self._stuck[name] = _last_id(self.topics[name])

    def durable(self, name: str) -> list[Subscription]:
        """The durable subscriptions of a topic partition."""
        with self._lock:
            all_of_them = list(self.subscriptions.values())
        return [s for s in all_of_them if s.topic == name and s.durable]

    def positions(self, name: str) -> list[tuple[int, int]]:
        """Where the entries of a topic partition are stored."""
        return [entry.place for entry in self.topics[name]]

    def _new_ledger(self) -> int:
        self._next_ledger += 1
        return self._next_ledger - 1

    def script(self, command: str, *actions: Action) -> None:
        """What to do with the next commands of a type, one action for each."""
        self._scripts[command].extend(actions)

    def always(self, command: str, action: Action) -> None:
        """What to do with commands of a type that no script is for."""
        self._always[command] = action

    def answer_together(self, count: int, *types: str) -> None:
        """Answers commands of these types only once ``count`` of a type wait for it.

        Who asks one after the other waits for ever: so this proves pipelining.
        """
        for name in types:
            self._together[name] = count
            self._waiting[name] = []

    @property
    def sessions(self) -> list[Session]:
        """The connections open now."""
        return list(self._sessions)

    @property
    def consumers(self) -> list[_Consumer]:
        """The consumers there are now, over all connections."""
        sessions = [s for s in self.sessions if not s.is_cut]
        return [c for s in sessions for c in list(s.consumers.values())]

    def ping(self) -> None:
        """Probes all clients."""
        for session in self.sessions:
            session.send(type=_Type.PING, ping=pb.CommandPing())

    def close_consumers(self, topic: str | None = None) -> None:
        """Lets go of all consumers, or those of a topic, as for an unload."""
        for session in self.sessions:
            with session.lock:
                for consumer_id, consumer in list(session.consumers.items()):
                    if topic in (None, consumer.topic):
                        self._release(session.consumers.pop(consumer_id))
                        _send_close(session, consumer_id)

    @property
    def producers(self) -> list[Producer]:
        """The producers that are attached now, over all connections."""
        of_sessions = [list(s.producers.values()) for s in self.sessions]
        return [p for some in of_sessions for p in some if p is not None]

    def close_producers(self, topic: str | None = None) -> None:
        """Lets go of all producers, or those of a topic, as for an unload."""
        for producer in self.producers:
            if topic in (None, producer.topic):
                producer.session.producers[producer.producer_id] = None
                close = pb.CommandCloseProducer(
                    producer_id=producer.producer_id, request_id=NO_REQUEST
                )
                producer.session.send(type=_Type.CLOSE_PRODUCER, close_producer=close)

    def cut(self) -> None:
        """Cuts all connections."""
        for session in self.sessions:
            self.hang_up(session)

    def hang_up(self, session: Session) -> None:
        """Cuts a connection; what its consumers had is free at once."""
        for consumer in list(session.consumers.values()):
            self._release(consumer)
        session.producers.clear()
        session.cut()

    def _release(self, consumer: _Consumer) -> None:
        """Takes a consumer's subscription from it; one that is not durable ends."""
        subscription = consumer.subscription
        with self._lock:
            if subscription.consumer is consumer:
                subscription.consumer = None
                key = subscription.topic, subscription.name
                is_there = self.subscriptions.get(key) is subscription
                if is_there and not subscription.durable:
                    del self.subscriptions[key]

    def stop_listening(self) -> None:
        """Refuses new connections from now on."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def start_thread(self, run: Callable[[], None]) -> None:
        """Runs something that ``close`` waits for."""
        thread = threading.Thread(target=run, name="scripted-broker", daemon=True)
        self._threads.append(thread)
        thread.start()

    # -- its side of a connection ------------------------------------------------------

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            session = self.new_session(sock)
            if self.budgets:
                session.budget_bytes = self.budgets.popleft()
            self.connections += 1
            self._sessions.append(session)
            self.start_thread(partial(self._serve, session))

    def new_session(self, sock: socket.socket) -> Session:
        """Makes what a connection of a client is served by."""
        try:
            _, port = sock.getpeername()
        except OSError:  # it is gone already
            port = 0
        return Session(sock, port)

    def _serve(self, session: Session) -> None:
        reader = FrameReader()
        try:
            while data := session.sock.recv(65536):
                session.budget_bytes -= len(data)
                beyond = int(max(0, -session.budget_bytes))
                reader.receive_data(data[: len(data) - beyond])
                while (frame := reader.next_frame()) is not None:
                    if session.is_cut:
                        break
                    command = commands.decode_command(frame.command)
                    body = _body(command)  # held: else its identity may change
                    if command.type == _Type.SEND:
                        self._payloads[id(body)] = frame.payload
                    self._receive(session, command)
                if session.budget_bytes <= 0:
                    self.hang_up(session)
        except (OSError, ProtocolError):
            pass  # cut, or half a frame of a client that is gone
        finally:
            with session.lock:
                for consumer in session.consumers.values():
                    self._release(consumer)
                session.consumers.clear()
                session.producers.clear()
            self._sessions.remove(session)  # who sees that it is gone sees all of that
            for some in (unanswered, in_a_queue):  # another may get the port
                some.difference_update([one for one in some if one[0] == session.port])
            session.sock.close()

    def _receive(self, session: Session, command: pb.BaseCommand) -> None:
        name = _name(command)
        due = [(session, command)]
        with self._received:
            self.bodies[name].append(_body(command))
            self.requests[name] += 1
            if name in self._together:
                waiting = self._waiting[name]
                waiting += due
                due = []
                self.deepest[name] = max(self.deepest[name], len(waiting))
                if len(waiting) == self._together[name]:
                    due, self._waiting[name] = waiting, []
        for one in due:
            self._act(name, *one)

    def _act(self, name: str, session: Session, command: pb.BaseCommand) -> None:
        with self._received:
            script = self._scripts[name]
            action = script.popleft() if script else self._always.get(name, usual)
        action(self, session, command)

    def answer(self, session: Session, command: pb.BaseCommand) -> None:
        """Does what a broker does with a command."""
        handler = getattr(self, f"_on_{_name(command).lower()}", None)
        if handler is not None:
            with session.lock:
                handler(session, _body(command))

    def _on_connect(self, session: Session, body: pb.CommandConnect) -> None:
        connected = pb.CommandConnected(
            server_version=self.server_version,
            protocol_version=body.protocol_version,
            max_message_size=self.max_message_size or None,
        )
        if self.scalable is not None:
            connected.feature_flags.supports_scalable_topics = True
        session.send(type=_Type.CONNECTED, connected=connected)

    def _on_ping(self, session: Session, body: pb.CommandPing) -> None:
        session.send(type=_Type.PONG, pong=pb.CommandPong())

    def _on_lookup(self, session: Session, body: pb.CommandLookupTopic) -> None:
        answer = pb.CommandLookupTopicResponse(
            request_id=body.request_id,
            response=pb.CommandLookupTopicResponse.Connect,
            brokerServiceUrl=self.url,
            authoritative=True,
        )
        session.send(type=_Type.LOOKUP_RESPONSE, lookupTopicResponse=answer)

    def replace_segment(
        self,
        segment: str,
        next_id: int,
        code: str = "TopicTerminatedError",
        entry_bucket_splits: Sequence[int] = (),
    ) -> None:
        """Seals the last segment, and has another one follow.

        Args:
            segment: Its full name.
            next_id: The id of the segment that follows, for all keys.
            code: Of what the broker says to producers from then on.
            entry_bucket_splits: Of the segment that follows.
        """
        before = self.segments[-1]
        before.state = 1
        self.segments.append(
            pb.ScalableTopicSegment(
                segment_id=next_id,
                hash_end=0xFFFF,
                parent_ids=[before.segment_id],
                entry_bucket_splits=entry_bucket_splits,
            )
        )
        name = TopicName.parse(segment).base.segment(0, 0xFFFF, next_id)
        self.add_topic(name.full_name)
        self.terminated[segment] = code

    def _on_scalable_topic_lookup(
        self, session: Session, body: pb.CommandScalableTopicLookup
    ) -> None:
        """Answers with a layout, and with the same one once more, as 5.0.0-M1 may."""
        update = pb.CommandScalableTopicUpdate(session_id=body.session_id)
        if name := (self.scalable or {}).get(body.topic):
            update.resolved_topic_name = name
            update.dag.segments.extend(self.segments)
            update.dag.controller_broker_url = self.controller
        elif body.topic.startswith("topic://"):
            update.error = _CODES["TopicNotFound"]
            update.message = f"Scalable topic not found: {body.topic}"
        else:
            update.dag.segments.add(segment_id=0, legacy_topic_name=body.topic)
        for _ in range(2):
            session.send(type=_Type.SCALABLE_TOPIC_UPDATE, scalable_topic_update=update)

    def _on_watch_scalable_topics(
        self, session: Session, body: pb.CommandWatchScalableTopics
    ) -> None:
        update = pb.CommandWatchScalableTopicsUpdate(watch_id=body.watch_id)
        update.snapshot.topics.extend(sorted({*(self.scalable or {}).values()}))
        session.send(
            type=_Type.WATCH_SCALABLE_TOPICS_UPDATE, watch_scalable_topics_update=update
        )

    def _on_scalable_topic_subscribe(
        self, session: Session, body: pb.CommandScalableTopicSubscribe
    ) -> None:
        answer = pb.CommandScalableTopicSubscribeResponse(request_id=body.request_id)
        session.send(
            type=_Type.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE,
            scalable_topic_subscribe_response=answer,
        )

    def _on_scalable_topic_unsubscribe(
        self, session: Session, body: pb.CommandScalableTopicUnsubscribe
    ) -> None:
        success = pb.CommandSuccess(request_id=body.request_id)
        session.send(type=_Type.SUCCESS, success=success)

    def _on_partitioned_metadata(
        self, session: Session, body: pb.CommandPartitionedTopicMetadata
    ) -> None:
        answer = pb.CommandPartitionedTopicMetadataResponse(request_id=body.request_id)
        if body.topic in self.partitions or body.topic in self.topics:
            answer.partitions = self.partitions.get(body.topic, 0)
            answer.response = pb.CommandPartitionedTopicMetadataResponse.Success
        else:
            answer.response = pb.CommandPartitionedTopicMetadataResponse.Failed
            answer.error = _CODES["TopicNotFound"]
            answer.message = "scripted: no such topic"
        session.send(
            type=_Type.PARTITIONED_METADATA_RESPONSE, partitionMetadataResponse=answer
        )

    def _on_get_topics_of_namespace(
        self, session: Session, body: pb.CommandGetTopicsOfNamespace
    ) -> None:
        scheme = "persistent://"
        prefix = f"{scheme}{body.namespace}/"
        names = [name for name in self.topics if name.startswith(prefix)]
        answer = pb.CommandGetTopicsOfNamespaceResponse(request_id=body.request_id)
        if self.lists_by_hash:  # as brokers since 2.11
            pattern, answer.filtered = body.topics_pattern, bool(body.topics_pattern)
            if pattern:
                names = [
                    n for n in names if re.fullmatch(pattern, n.removeprefix(scheme))
                ]
            answer.topics_hash = str(hash(tuple(sorted(names))))
            answer.changed = body.topics_hash != answer.topics_hash
        if answer.changed:
            answer.topics.extend(names)
        session.send(
            type=_Type.GET_TOPICS_OF_NAMESPACE_RESPONSE,
            getTopicsOfNamespaceResponse=answer,
        )

    def _on_get_schema(self, session: Session, body: pb.CommandGetSchema) -> None:
        version = body.schema_version
        if body.HasField("schema_version") and len(version) < 8:
            self.hang_up(session)
            return
        known = self.schemas.get(topic_of(body.topic), [])
        found = [one for one in known if version in (b"", one.version)][-1:]
        if not found:
            text = f"Topic not found or no-schema {body.topic}"
            _send_error(session, body.request_id, "TopicNotFound", text)
            return
        (info,) = found
        answer = pb.CommandGetSchemaResponse(
            request_id=body.request_id,
            schema=pb.Schema(
                name=body.topic,
                schema_data=info.data,
                type=info.type,
                properties=[
                    pb.KeyValue(key=key, value=value)
                    for key, value in info.properties.items()
                ],
            ),
            schema_version=info.version,
        )
        session.send(type=_Type.GET_SCHEMA_RESPONSE, getSchemaResponse=answer)

    def _on_subscribe(self, session: Session, body: pb.CommandSubscribe) -> None:
        key = body.topic, body.subscription
        if key in self._unanswered:
            return
        with self._lock:
            subscription = self._subscription(body)
            if body.durable and subscription == _NO_LEDGERS:
                self._unanswered.add(key)
            if not isinstance(subscription, tuple):
                entries = self.topics[body.topic]
                mark_delete = subscription.mark_delete
                consumer = _Consumer(
                    subscription, _first(entries, lambda e: e.place > mark_delete)
                )
                subscription.consumer = consumer
                session.consumers[body.consumer_id] = consumer
        if isinstance(subscription, tuple):
            _send_error(session, body.request_id, *subscription)
        else:
            _send_success(session, body.request_id)

    def _lacks_ledgers(self, body: pb.CommandSubscribe) -> bool:
        """Whether a topic without a ledger is subscribed to at its beginning."""
        if body.topic not in self.without_ledgers:
            return False
        if body.HasField("start_message_id"):
            start = commands.from_message_id_data(body.start_message_id)
            return start.position == EARLIEST.position
        return bool(body.initialPosition)

    def _subscription(
        self, body: pb.CommandSubscribe
    ) -> Subscription | tuple[str, ...]:
        """What a consumer gets, or the code and the message of a refusal."""
        entries = self.topics.get(body.topic)
        if entries is None:
            return ("TopicNotFound",)
        key = body.topic, body.subscription
        subscription = self.subscriptions.get(key)
        if subscription is None and self._lacks_ledgers(body):
            return _NO_LEDGERS
        if subscription is None or not (subscription.durable or body.durable):
            if body.subscription in self._places:
                start = self._places.pop(body.subscription)
            elif body.HasField("start_message_id"):
                place = commands.from_message_id_data(body.start_message_id).position
                start = _first(entries, lambda entry: entry.place >= place)
            else:
                start = 0 if body.initialPosition else len(entries)
            start = min(start, len(entries) - self.hidden.get(body.topic, 0))
            mark_delete = _before(entries, start, self._ledgers[body.topic])
            if not entries and _is_at_the_end(body):
                mark_delete = self._last_removed.get(body.topic, mark_delete)
            subscription = Subscription(*key, body.durable, mark_delete)
            self.subscriptions[key] = subscription
        elif subscription.durable != body.durable:
            kind = "Durable" if subscription.durable else "NonDurable"
            text = f"{kind} subscription with the same name already exists."
            return "NotAllowedError", text
        elif subscription.consumer is not None:
            return "ConsumerBusy", "Exclusive consumer is already connected"
        return subscription

    def _on_flow(self, session: Session, body: pb.CommandFlow) -> None:
        consumer = session.consumers.get(body.consumer_id)
        if consumer is not None:
            if body.messagePermits > 2**31 - 1:  # negative to a broker
                self.hang_up(session)
                return
            consumer.balance = _int32(consumer.balance + body.messagePermits)
            self.permits[consumer.topic] += body.messagePermits
            self._deliver(session, body.consumer_id)

    def _deliver(self, session: Session, consumer_id: int) -> None:
        consumer = session.consumers[consumer_id]
        entries = self.topics.get(consumer.topic, [])
        ack_sets = consumer.subscription.ack_sets
        # Behind the first entry of an open transaction nobody gets anything.
        end = self._shown(consumer.topic)
        if consumer.topic in self.closing:
            end = 0
        while consumer.balance > 0 and consumer.next_entry < end:
            # One read: by its size it may go past the balance.
            first = consumer.next_entry
            last = min(end, first + consumer.balance, first + self.read_entries)
            size_bytes = 0
            for entry in entries[first:last]:
                if size_bytes >= _READ_BYTES:
                    break
                txn = _txn_of(entry)
                if txn in self.aborted or (txn, consumer.topic) in self.dropped:
                    self._pass_over(consumer)
                    continue
                size_bytes += len(entry.payload)
                consumer.next_entry += 1
                ack_set = ack_sets.get(entry.place, [])
                left = sum((word & (2**64 - 1)).bit_count() for word in ack_set)
                charge = left or entry.messages
                consumer.balance = _int32(consumer.balance - charge)
                session.send_bytes(message_frame(consumer_id, entry, ack_set))

    def _shown(self, topic: str) -> int:
        """Returns how many entries come before the first of an open transaction."""
        entries = self.topics.get(topic, [])
        if not (self.transactions or self.left_out):
            return len(entries)

        def is_hidden(entry: StoredFrame) -> bool:
            txn = _txn_of(entry)
            return txn in self.transactions or (txn, topic) in self.left_out

        return _first(entries, is_hidden)

    def _pass_over(self, consumer: _Consumer) -> None:
        """Acknowledges an entry itself, as brokers do with what they never deliver."""
        entries = self.topics[consumer.topic]
        at, subscription = consumer.next_entry, consumer.subscription
        before = _before(entries, at, self._ledgers[consumer.topic])
        if subscription.mark_delete == before:
            subscription.mark_delete = entries[at].place
        consumer.next_entry += 1

    def _on_get_last_message_id(
        self, session: Session, body: pb.CommandGetLastMessageId
    ) -> None:
        consumer = session.consumers.get(body.consumer_id)
        if consumer is None:
            _send_error(session, body.request_id, "MetadataError")
            return
        is_closing = consumer.topic in self.closing
        entries = () if is_closing else self.topics.get(consumer.topic, ())
        shown = self._shown(consumer.topic) - self.hidden.get(consumer.topic, 0)
        answer = pb.CommandGetLastMessageIdResponse(
            request_id=body.request_id,
            last_message_id=self.says_last
            or self._stuck.get(consumer.topic)
            or _last_id(entries[:shown]),
            consumer_mark_delete_position=_id(consumer.subscription.mark_delete),
        )
        session.send(
            type=_Type.GET_LAST_MESSAGE_ID_RESPONSE, getLastMessageIdResponse=answer
        )

    def _on_ack(self, session: Session, body: pb.CommandAck) -> None:
        consumer = session.consumers.get(body.consumer_id)
        if consumer is None:
            return  # brokers say nothing
        assert body.ack_type == pb.CommandAck.Cumulative
        place = commands.from_message_id_data(body.message_id[0]).position
        answer = pb.CommandAckResponse(
            consumer_id=body.consumer_id, request_id=body.request_id
        )
        with self._lock:
            entries = self.topics.get(consumer.topic, [])
            if place > _before(entries, len(entries), self._ledgers[consumer.topic]):
                answer.error = _CODES["MetadataError"]
                answer.message = "scripted: behind the end of the topic"
            else:
                subscription = consumer.subscription
                subscription.mark_delete = max(subscription.mark_delete, place)
                unread = _first(entries, lambda e: e.place > subscription.mark_delete)
                consumer.next_entry = max(consumer.next_entry, unread)
        session.send(type=_Type.ACK_RESPONSE, ackResponse=answer)

    def _on_consumer_stats(
        self, session: Session, body: pb.CommandConsumerStats
    ) -> None:
        consumer = session.consumers.get(body.consumer_id)
        if consumer is None:
            self.hang_up(session)
            return
        mark_delete = consumer.subscription.mark_delete
        entries = self.topics.get(consumer.topic, [])
        answer = pb.CommandConsumerStatsResponse(
            request_id=body.request_id,
            msgBacklog=sum(entry.place > mark_delete for entry in entries),
        )
        session.send(type=_Type.CONSUMER_STATS_RESPONSE, consumerStatsResponse=answer)

    def _on_unsubscribe(self, session: Session, body: pb.CommandUnsubscribe) -> None:
        consumer = session.consumers.pop(body.consumer_id, None)
        if consumer is None:
            _send_error(session, body.request_id, "MetadataError")
            return
        with self._lock:
            subscription = consumer.subscription
            self.subscriptions.pop((subscription.topic, subscription.name), None)
        _send_success(session, body.request_id)

    def _on_seek(self, session: Session, body: pb.CommandSeek) -> None:
        consumer = session.consumers.pop(body.consumer_id)
        self._release(consumer)
        if consumer.topic in self.without_ledgers:
            session.cut()
            return
        time_ms = body.message_publish_time
        self._places[consumer.subscription.name] = _first(
            self.topics[consumer.topic],
            lambda entry: entry.metadata.publish_time >= time_ms,
        )
        _send_close(session, body.consumer_id)
        _send_success(session, body.request_id)

    def _on_close_consumer(
        self, session: Session, body: pb.CommandCloseConsumer
    ) -> None:
        consumer = session.consumers.pop(body.consumer_id, None)
        if consumer is not None:
            self._release(consumer)
        _send_success(session, body.request_id)

    def _on_producer(self, session: Session, body: pb.CommandProducer) -> None:
        with self._lock:
            refusal = self._refusal(session, body)
            if refusal is None:
                name = body.producer_name or f"scripted-{next(self._names)}"
                producer = Producer(body.topic, name, body.producer_id, session)
                session.producers[body.producer_id] = producer
                if body.topic not in self.topics:
                    self._create(body.topic)
        if refusal is not None:
            _send_error(session, body.request_id, *refusal)
            return
        success = pb.CommandProducerSuccess(
            request_id=body.request_id,
            producer_name=name,
            last_sequence_id=self._last_ids.get((body.topic, name), -1),
            schema_version=self._version_of(body),
        )
        if body.producer_access_mode:
            success.topic_epoch = self.topic_epochs[body.topic]
        session.send(type=_Type.PRODUCER_SUCCESS, producer_success=success)

    def _version_of(self, body: pb.CommandProducer) -> bytes:
        """The version of a producer's schema, which is a new one or a known one."""
        if not body.HasField("schema"):
            return b""
        given = body.schema
        for known in self.schemas.get(topic_of(body.topic), []):
            if (known.type, known.data) == (given.type, given.schema_data):
                return known.version
        properties = {pair.key: pair.value for pair in given.properties}
        kind = SchemaType(given.type)
        return self.add_schema(body.topic, kind, given.schema_data, properties).version

    def _refusal(
        self, session: Session, body: pb.CommandProducer
    ) -> tuple[str, str] | None:
        """Why a producer cannot attach. Of one that wants a topic, others know."""
        if body.topic not in self.topics and not self.creates_topics:
            return "TopicNotFound", "scripted: topics are not created"
        if code := self.terminated.get(body.topic):
            return code, "scripted: Topic was already terminated"
        others = [p for p in self.producers if p.topic == body.topic]
        if any(p.name == body.producer_name for p in others):
            return "ProducerBusy", f"Producer with name '{body.producer_name}' is there"
        if body.producer_access_mode:
            is_stale = body.HasField("topic_epoch") and (
                body.topic_epoch < self.topic_epochs[body.topic]
            )
            if is_stale or others:
                return "ProducerFenced", "scripted: somebody else has the topic"
            self.topic_epochs[body.topic] += not body.HasField("topic_epoch")
        return None

    def _on_send(self, session: Session, body: pb.CommandSend) -> None:
        producer = session.producers.get(body.producer_id, session)
        if producer is session:
            self.hang_up(session)  # nobody's; brokers say nothing either
        elif isinstance(producer, Producer):
            stored = read_stored_entry(0, 0, self._payloads.pop(id(body)))
            metadata, payload = stored.metadata, bytes(stored.payload)
            key = producer.topic, producer.name
            assert metadata.producer_name == producer.name
            assert metadata.sequence_id == body.sequence_id
            position = -1, -1
            is_last = metadata.chunk_id == max(metadata.num_chunks_from_msg - 1, 0)
            with self._lock:
                is_new = body.sequence_id > self._last_ids.get(key, -1)
                if is_new or not is_last or not self.deduplicates:
                    entries = self.topics[producer.topic]
                    ledger_id = self._ledgers[producer.topic][-1]
                    position = _next_position(ledger_id, entries)
                    entries.append(
                        StoredFrame(metadata, payload, body.num_messages, position)
                    )
                    if is_last and self.deduplicates:
                        self._last_ids[key] = body.highest_sequence_id
            _send_receipt(session, body, position)
            if self._has_waiting_consumer(producer.topic):
                self.start_thread(self._deliver_all)

    def _has_waiting_consumer(self, topic: str) -> bool:
        return any(
            consumer.topic == topic and consumer.balance > 0
            for session in list(self.sessions)
            for consumer in list(session.consumers.values())
        )

    def _on_close_producer(
        self, session: Session, body: pb.CommandCloseProducer
    ) -> None:
        session.producers[body.producer_id] = None
        _send_success(session, body.request_id)

    def _on_tc_client_connect_request(
        self, session: Session, body: pb.CommandTcClientConnectRequest
    ) -> None:
        session.coordinators.add(body.tc_id)
        answer = pb.CommandTcClientConnectResponse(request_id=body.request_id)
        session.send(
            type=_Type.TC_CLIENT_CONNECT_RESPONSE, tcClientConnectResponse=answer
        )

    def _on_new_txn(self, session: Session, body: pb.CommandNewTxn) -> None:
        answer = pb.CommandNewTxnResponse(request_id=body.request_id)
        if body.tc_id in session.coordinators:
            with self._lock:
                txn = TxnId(body.tc_id, next(self._txn_numbers))
                self.transactions[txn] = []
            answer.txnid_most_bits, answer.txnid_least_bits = txn[:2]
        else:
            answer.error = _CODES["TransactionCoordinatorNotFound"]
            answer.message = "scripted: not connected to this coordinator"
        session.send(type=_Type.NEW_TXN_RESPONSE, newTxnResponse=answer)

    def _on_add_partition_to_txn(
        self, session: Session, body: pb.CommandAddPartitionToTxn
    ) -> None:
        answer = pb.CommandAddPartitionToTxnResponse(request_id=body.request_id)
        with self._lock:
            txn = self._open_txn(session, body, answer)
            if txn is not None:
                self.transactions[txn] += body.partitions
        session.send(
            type=_Type.ADD_PARTITION_TO_TXN_RESPONSE, addPartitionToTxnResponse=answer
        )

    def _on_end_txn(self, session: Session, body: pb.CommandEndTxn) -> None:
        answer = pb.CommandEndTxnResponse(request_id=body.request_id)
        action = TxnAction(body.txn_action)
        with self._lock:
            txn = self._open_txn(session, body, answer)
            if txn is not None:
                topics = self.transactions.pop(txn)
                self._drop_outdated(txn, topics)
                self.ended.append((txn._replace(is_scalable=body.scalable), action))
                if action is TxnAction.ABORT:
                    self.aborted.add(txn)
                if body.scalable:
                    self.outcomes[txn] = action
                self.start_thread(self._deliver_all)
            elif body.scalable:
                self._tell_outcome(body, answer)
        session.send(type=_Type.END_TXN_RESPONSE, endTxnResponse=answer)

    def _on_end_txn_on_partition(
        self, session: Session, body: pb.CommandEndTxnOnPartition
    ) -> None:
        answer = pb.CommandEndTxnOnPartitionResponse(request_id=body.request_id)
        txn = TxnId(body.txnid_most_bits, body.txnid_least_bits)
        answer.txnid_most_bits, answer.txnid_least_bits = txn[:2]
        if self.takes_superusers:
            with self._lock:
                self.left_out.discard((txn, body.topic))
            self.start_thread(self._deliver_all)
        else:
            answer.error = _CODES["TransactionNotFound"]
            answer.message = "scripted: not a superuser"
        session.send(
            type=_Type.END_TXN_ON_PARTITION_RESPONSE, endTxnOnPartitionResponse=answer
        )

    def _drop_outdated(self, txn: TxnId, topics: list[str]) -> None:
        """Drops what is older than all that the coordinator knew of at that time.

        Commits that are under way together do not drop each other's rows.
        """
        same = [other.least for other in self.transactions if other.most == txn.most]
        lowest = min([*same, txn.least])
        if lowest <= self._newest_left_out:
            return
        outdated = {
            (other, topic)
            for other, topic in self.left_out
            if topic in topics and other.most == txn.most
        }
        self.left_out -= outdated
        self.dropped |= outdated

    def _tell_outcome(self, body: pb.CommandEndTxn, answer: Any) -> None:
        """Answers about a transaction of scalable topics that is over."""
        txn = TxnId(body.txnid_most_bits, body.txnid_least_bits)
        outcome = self.outcomes.get(txn)
        if outcome is None:
            return
        if outcome is TxnAction(body.txn_action):
            answer.ClearField("error")
        else:
            answer.error = _CODES["InvalidTxnStatus"]

    @staticmethod
    def _known_as(txn: TxnId) -> TxnId:
        """The id, as entries have it."""
        return TxnId(txn.most, txn.least)

    def _open_txn(self, session: Session, body: Any, answer: Any) -> TxnId | None:
        """The transaction that a request is about; None for a refusal in the answer."""
        txn = TxnId(body.txnid_most_bits, body.txnid_least_bits)
        answer.txnid_most_bits, answer.txnid_least_bits = txn[:2]
        if txn in self.transactions and txn.most in session.coordinators:
            return txn
        is_known = txn.most in session.coordinators
        code = "TransactionNotFound" if is_known else "TransactionCoordinatorNotFound"
        answer.error, answer.message = _CODES[code], "scripted"
        return None


def _name(command: pb.BaseCommand) -> str:
    return commands.command_name(command.type)


def _body(command: pb.BaseCommand) -> Any:
    field_ = pb.BaseCommand.DESCRIPTOR.fields_by_number[command.type]
    return getattr(command, field_.name)


def _int32(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31


def _request_id(command: pb.BaseCommand) -> int:
    """The number of a request; 0 of a command that has none, as of the handshake."""
    return int(getattr(_body(command), "request_id", 0))


def _first(
    entries: Sequence[StoredFrame], condition: Callable[[StoredFrame], bool]
) -> int:
    return next(
        (index for index, entry in enumerate(entries) if condition(entry)), len(entries)
    )


def _txn_of(entry: StoredFrame) -> TxnId | None:
    metadata = entry.metadata
    if not metadata.HasField("txnid_least_bits"):
        return None
    return TxnId(metadata.txnid_most_bits, metadata.txnid_least_bits)


def _last_id(entries: Sequence[StoredFrame]) -> pb.MessageIdData:
    if not entries:
        nothing = commands.to_unsigned(-1)
        return pb.MessageIdData(ledgerId=nothing, entryId=nothing, batch_index=-1)
    last = entries[-1]
    is_batch = last.metadata.HasField("num_messages_in_batch")
    return pb.MessageIdData(
        ledgerId=last.place[0],
        entryId=last.place[1],
        batch_index=last.messages - 1 if is_batch else -1,
    )


def _before(
    entries: Sequence[StoredFrame], index: int, ledgers: Sequence[int]
) -> tuple[int, int]:
    """The position right before an entry, or before the next one to be stored."""
    if index >= len(entries):
        return entries[-1].place if entries else (ledgers[-1], -1)
    ledger_id, entry_id = entries[index].place
    if entry_id == 0 and index > 0:
        return entries[index - 1].place
    return ledger_id, entry_id - 1


def _is_at_the_end(body: pb.CommandSubscribe) -> bool:
    """Whether a new subscription begins behind everything."""
    if not body.HasField("start_message_id"):
        return not body.initialPosition
    start = commands.from_message_id_data(body.start_message_id)
    return start.position == LATEST.position


def _next_position(ledger_id: int, entries: Sequence[StoredFrame]) -> tuple[int, int]:
    if entries and entries[-1].place[0] == ledger_id:
        return ledger_id, entries[-1].place[1] + 1
    return ledger_id, 0


def _id(position: tuple[int, int]) -> pb.MessageIdData:
    return pb.MessageIdData(
        ledgerId=commands.to_unsigned(position[0]),
        entryId=commands.to_unsigned(position[1]),
    )


def message_frame(
    consumer_id: int, entry: StoredFrame, ack_set: Sequence[int] = ()
) -> bytes:
    """MESSAGE with an entry behind it."""
    message = pb.CommandMessage(
        consumer_id=consumer_id, message_id=_id(entry.place), ack_set=ack_set
    )
    command = pb.BaseCommand(type=_Type.MESSAGE, message=message).SerializeToString()
    metadata = entry.metadata.SerializeToString()
    frame = encode_payload_frame(command, metadata, entry.payload)
    return frame[:-1] + bytes([frame[-1] ^ 1]) if entry.is_damaged else frame


def _producer(session: Session, send: pb.CommandSend) -> Producer:
    producer = session.producers[send.producer_id]
    assert producer is not None
    return producer


def _send_receipt(
    session: Session, send: pb.CommandSend, position: tuple[int, int]
) -> None:
    receipt = pb.CommandSendReceipt(
        producer_id=send.producer_id,
        sequence_id=send.sequence_id,
        message_id=_id(position),
        highest_sequence_id=2**64 - 1,
    )
    session.send(type=_Type.SEND_RECEIPT, send_receipt=receipt)


#: The refusal of a topic without a ledger: code and message.
_NO_LEDGERS = "UnknownError", ""


def _send_error(
    session: Session, request_id: int, code: str, message: str = "scripted"
) -> None:
    error = pb.CommandError(request_id=request_id, error=_CODES[code], message=message)
    session.send(type=_Type.ERROR, error=error)


def _send_success(session: Session, request_id: int) -> None:
    session.send(type=_Type.SUCCESS, success=pb.CommandSuccess(request_id=request_id))


def _send_close(session: Session, consumer_id: int) -> None:
    close = pb.CommandCloseConsumer(consumer_id=consumer_id, request_id=NO_REQUEST)
    session.send(type=_Type.CLOSE_CONSUMER, close_consumer=close)


def numbered(count: int, per_batch: int, size_bytes: int = 16) -> list[StoredFrame]:
    """Batches whose messages begin with their number, 8 bytes, big-endian."""
    numbers = itertools.count()
    return [
        batch(
            [
                struct.pack(">Q", next(numbers)).ljust(size_bytes, b".")
                for _ in range(per_batch)
            ]
        )
        for _ in range(count)
    ]


def client_options(*addresses: str, **limits: Any) -> ClientOptions:
    """Options with the short pauses that tests want.

    And with limits that a busy machine does not come to: a test that wants to meet one
    gives its own.
    """
    given = {
        "operation_timeout_s": PATIENCE_S,
        "connection_timeout_s": PATIENCE_S,
        "lookup_timeout_s": PATIENCE_S,
        "initial_backoff_s": 0.01,
        "max_backoff_s": 0.05,
    }
    return ClientOptions(ServiceUrl("pulsar", addresses), **{**given, **limits})
