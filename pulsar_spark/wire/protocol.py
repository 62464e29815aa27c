# SPDX-License-Identifier: Apache-2.0
"""A connection as a value: bytes in, events out, nothing blocks.

The handshake, keep-alive answers, and the sorting of what arrives into events. Anyone
who owns a socket reads into `ClientProtocol.buffer`, acts on the events of
`ClientProtocol.received`, and sends what `ClientProtocol.data_to_send` returns.
Commands that this version does not know are passed over, so that newer brokers do no
harm.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from pulsar_spark.errors import SERVER_ERRORS, ProtocolError
from pulsar_spark.loops.deliveries import Deliveries
from pulsar_spark.loops.fact import END, ENTRY_ID, LEDGER_ID, REDELIVERY_COUNT, START
from pulsar_spark.loops.requests import Reply, read_replies
from pulsar_spark.loops.sends import Receipt, read_receipts
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import Attached
from pulsar_spark.wire.frames import (
    DEFAULT_MAX_MESSAGE_SIZE_BYTES,
    FRAME_HEADROOM_BYTES,
    Frame,
    FrameReader,
)
from spark_topics.loops.memory import new_bytes

#: What a broker uses as request id where it speaks of no request of ours.
NO_REQUEST = 2**64 - 1

#: The last sequence id of a producer that has sent nothing.
_NO_SEQUENCE_ID = -1

#: The bodies of replies that say nothing but that a request succeeded.
DONE = pb.CommandSuccess()
ACKNOWLEDGED = pb.CommandAckResponse()

#: Ids travel as unsigned numbers, but the half above this stands for negative ones,
#: which places outside of a topic have.
_MAX_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Connected:
    """The handshake is over.

    Attributes:
        server_version: Free text, such as ``Pulsar Server4.0.7``.
        protocol_version: The lower of the broker's and ours.
        max_message_size_bytes: Limit for metadata and payload of one entry.
        supports_scalable_topics: Whether the broker answers SCALABLE_TOPIC_LOOKUP.
    """

    server_version: str
    protocol_version: int
    max_message_size_bytes: int
    supports_scalable_topics: bool = False


@dataclass(frozen=True, slots=True)
class Queued:
    """A request is queued at the broker; a reply will follow.

    Attributes:
        request_id: Which one.
    """

    request_id: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request failed, or, with ``request_id`` None, the whole connection did.

    Attributes:
        request_id: Which one.
        code: The protocol's name of the error, such as ``TopicNotFound``.
        message: The broker's own sentence.
    """

    request_id: int | None
    code: str
    message: str


class Delivery(NamedTuple):
    """An entry for a consumer.

    Attributes:
        consumer_id: Whose.
        ledger_id, entry_id: The place in the store.
        redelivery_count: How often it had been delivered before.
        ack_set: Which messages of a batch are still to be acknowledged, as words of 64
            bits; empty means all.
        headers_and_payload: The entry itself, see ``wire.entries.read_stored_entry``.
    """

    consumer_id: int
    ledger_id: int
    entry_id: int
    redelivery_count: int
    ack_set: tuple[int, ...]
    headers_and_payload: memoryview


@dataclass(frozen=True, slots=True)
class ConsumerClosed:
    """The broker let go of a consumer: the topic moves, or was deleted, or a seek.

    Attributes:
        consumer_id: Whose.
    """

    consumer_id: int


@dataclass(frozen=True, slots=True)
class SendRefused:
    """An entry of a producer is not stored.

    Attributes:
        producer_id: Whose.
        sequence_id: Which one; of a batch the highest.
        code: The protocol's name of the error, such as ``TopicTerminatedError``.
        message: The broker's own sentence.
    """

    producer_id: int
    sequence_id: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ProducerClosed:
    """The broker let go of a producer: the topic moves, or was deleted.

    Attributes:
        producer_id: Whose.
    """

    producer_id: int


@dataclass(frozen=True, slots=True)
class TopicMigrated:
    """The topic of a producer or a consumer is on another cluster now.

    To a producer or consumer that still waits to attach, this event is the reply. A
    CLOSE_* follows.

    Attributes:
        attached: Whose.
        service_url, service_url_tls: Of the other cluster, "" if it is not said.
    """

    attached: Attached
    service_url: str
    service_url_tls: str


@dataclass(frozen=True, slots=True)
class AuthChallenged:
    """The broker asks for fresh credentials.

    Attributes:
        method: Name of the authentication method.
        data: The challenge.
    """

    method: str
    data: bytes


Event = (
    Connected
    | Reply
    | Queued
    | Refusal
    | Delivery
    | Deliveries
    | ConsumerClosed
    | Receipt
    | SendRefused
    | ProducerClosed
    | TopicMigrated
    | AuthChallenged
)


class State(enum.Enum):
    """The state of the protocol on a connection.

    ::

        HANDSHAKE ── CONNECTED ──> READY
            │                        │
            └──── ProtocolError ─────┴──> FAILED
    """

    #: CONNECT goes out; CONNECTED, a refusal or a challenge may come.
    HANDSHAKE = "handshake"
    #: Requests are answered and entries delivered.
    READY = "ready"
    #: The other side sent what the protocol forbids: what follows means nothing, and
    #: each call raises the same error.
    FAILED = "failed"


class ClientProtocol:
    """The client's side of a connection.

    Args:
        connect_frame: The CONNECT to open with, see ``wire.commands.connect``.
        new_buffer: Where what comes in is kept, see `FrameReader`.
        memory_limit_bytes: Largest entry to take in, though the broker's own limit may
            be above; the protocol's usual limit where that is larger. None: no limit.

    Attributes:
        in_bulk: Ids of the consumers whose entries come as Deliveries where they are
            ordinary, and else one by one, as all of those of other consumers do. May
            be changed at any time.
    """

    def __init__(
        self,
        connect_frame: bytes,
        new_buffer: Callable[[int], memoryview] = new_bytes,
        memory_limit_bytes: int | None = None,
    ) -> None:
        self.in_bulk: set[int] = set()
        self._memory_limit_bytes = memory_limit_bytes
        self._state = State.HANDSHAKE
        self._hears_receipts = False  # one has come: there is a producer
        self._to_send = [connect_frame]
        self._reader = FrameReader(
            DEFAULT_MAX_MESSAGE_SIZE_BYTES + FRAME_HEADROOM_BYTES, new_buffer
        )

    @property
    def state(self) -> State:
        """Return where the connection is."""
        return self._state

    def data_to_send(self) -> bytes:
        """Return what must go out now: the handshake, or answers to the broker."""
        data = b"".join(self._to_send)
        self._to_send.clear()
        return data

    def answer(self, frame: bytes) -> None:
        """Queue a frame with the next answers, such as a reply to a challenge."""
        self._to_send.append(frame)

    def buffer(self) -> memoryview:
        """Return where the next bytes go, never empty.

        All events so far must have been taken.
        """
        return self._reader.buffer()

    def received(self, size: int) -> Iterator[Event]:
        """Mark the first `size` bytes of `buffer()` as received.

        Yields:
            What they mean, in order.

        Raises:
            ProtocolError: These bytes are not what a Pulsar broker sends. The
                connection is of no more use: every later call raises the same.
        """
        self._reader.received(size)
        return self._events()

    def receive_data(self, data: bytes | memoryview) -> Iterator[Event]:
        """Copy bytes that the caller already has, then do as `received`."""
        self._reader.receive_data(data)
        return self._events()

    def _events(self) -> Iterator[Event]:
        try:
            while True:
                if self._hears_receipts:
                    yield from self._receipts()
                if self.in_bulk and self._state is State.READY:
                    while entries := self._reader.next_deliveries(self.in_bulk):
                        yield entries
                if (frame := self._reader.next_frame()) is None:
                    return
                if (event := self._event(frame)) is not None:
                    yield event
                    if isinstance(event, Reply):  # of those there may be thousands
                        yield from self._replies()
        except ProtocolError as error:
            self._state = State.FAILED
            self._reader.stop(error)
            raise

    def _receipts(self) -> list[Receipt]:
        """Take the receipts at the head of the stream; none before other frames."""
        receipts, size = read_receipts(self._reader.unread)
        self._reader.skip(size)
        return receipts

    def _replies(self) -> list[Reply]:
        """Take the replies at the head of the stream, while they are usual."""
        replies, size = read_replies(
            self._reader.unread, DONE, ACKNOWLEDGED, commands.positions_of
        )
        self._reader.skip(size)
        return replies

    def _event(self, frame: Frame) -> Event | None:
        command = commands.decode_command(frame.command)
        if self._state is State.HANDSHAKE:
            return self._handshake(command)
        if command.type == pb.BaseCommand.MESSAGE:
            return _delivery(command.message, frame.payload)
        self._hears_receipts |= command.type == pb.BaseCommand.SEND_RECEIPT
        if command.type == pb.BaseCommand.PING:
            self._to_send.append(commands.pong())
            return None
        handler = _HANDLERS.get(command.type)
        return None if handler is None else handler(command)

    def _handshake(self, command: pb.BaseCommand) -> Event:
        if command.type == pb.BaseCommand.CONNECTED:
            self._state = State.READY
            body = command.connected
            limit = body.max_message_size or DEFAULT_MAX_MESSAGE_SIZE_BYTES
            if limit < 0:
                raise ProtocolError(f"CONNECTED limits messages to {limit} bytes.")
            self._limit_frames(limit)
            return Connected(
                body.server_version,
                body.protocol_version,
                limit,
                body.feature_flags.supports_scalable_topics,
            )
        if command.type == pb.BaseCommand.ERROR:
            return Refusal(None, _code(command.error.error), command.error.message)
        if command.type == pb.BaseCommand.AUTH_CHALLENGE:
            return _challenge(command)
        raise ProtocolError(
            f"The broker answered CONNECT with {commands.command_name(command.type)}."
        )

    def _limit_frames(self, limit: int) -> None:
        """Set the frame limit: the broker's, if memory allows."""
        most = self._memory_limit_bytes
        if most is not None and limit > max(most, DEFAULT_MAX_MESSAGE_SIZE_BYTES):
            self._reader.limit_advice = (
                f"This broker's messages may have {limit} bytes, but this side holds "
                f"no more than {most} (`pulsar.client.memoryLimitBytes`): raise that."
            )
            limit = max(most, DEFAULT_MAX_MESSAGE_SIZE_BYTES)
        self._reader.max_frame_bytes = limit + FRAME_HEADROOM_BYTES


def _code(number: int) -> str:
    return SERVER_ERRORS.get(number, f"ServerError{number}")


def _delivery(body: pb.CommandMessage, payload: memoryview) -> Delivery:
    ledger_id, entry_id = body.message_id.ledgerId, body.message_id.entryId
    if ledger_id > _MAX_ID or entry_id > _MAX_ID:
        raise ProtocolError(f"No entry can have the id {ledger_id}:{entry_id}.")
    return Delivery(
        body.consumer_id,
        ledger_id,
        entry_id,
        body.redelivery_count,
        tuple(body.ack_set),
        payload,
    )


def delivery_of(deliveries: Deliveries, number: int) -> Delivery:
    """Return a delivery of several in the form of a single delivery."""
    start, end = deliveries.fact(number, START), deliveries.fact(number, END)
    return Delivery(
        deliveries.consumer_id,
        deliveries.fact(number, LEDGER_ID),
        deliveries.fact(number, ENTRY_ID),
        deliveries.fact(number, REDELIVERY_COUNT),
        (),
        memoryview(deliveries.data)[start:end],
    )


def _challenge(command: pb.BaseCommand) -> AuthChallenged:
    challenge = command.authChallenge.challenge
    return AuthChallenged(challenge.auth_method_name, challenge.auth_data)


def _refusal(command: pb.BaseCommand) -> Refusal:
    body = command.error
    request_id = None if body.request_id == NO_REQUEST else body.request_id
    return Refusal(request_id, _code(body.error), body.message)


def _closed_consumer(command: pb.BaseCommand) -> ConsumerClosed:
    return ConsumerClosed(command.close_consumer.consumer_id)


def _receipt(command: pb.BaseCommand) -> Receipt:
    body = command.send_receipt
    return Receipt(
        body.producer_id,
        body.sequence_id,
        commands.to_signed(body.message_id.ledgerId),
        commands.to_signed(body.message_id.entryId),
    )


def _send_refused(command: pb.BaseCommand) -> SendRefused:
    body = command.send_error
    return SendRefused(
        body.producer_id, body.sequence_id, _code(body.error), body.message
    )


def _closed_producer(command: pb.BaseCommand) -> ProducerClosed:
    return ProducerClosed(command.close_producer.producer_id)


def _migrated(command: pb.BaseCommand) -> TopicMigrated:
    body = command.topicMigrated
    is_producer = body.resource_type == pb.CommandTopicMigrated.Producer
    return TopicMigrated(
        Attached(is_producer, body.resource_id),
        body.brokerServiceUrl,
        body.brokerServiceUrlTls,
    )


def _producer_success(command: pb.BaseCommand) -> Reply | Refusal | Queued:
    body = command.producer_success
    if body.last_sequence_id < _NO_SEQUENCE_ID:
        raise ProtocolError(
            f"No entry can have the sequence id {body.last_sequence_id}."
        )
    # One that is not ready waits for exclusive access; a second answer follows.
    return _reply(command) if body.producer_ready else Queued(body.request_id)


def _success(command: pb.BaseCommand) -> Reply:
    return Reply(command.success.request_id, DONE)


def _acknowledged(command: pb.BaseCommand) -> Reply | Refusal:
    answer = _reply(command)
    return answer._replace(body=ACKNOWLEDGED) if isinstance(answer, Reply) else answer


def _last_message(command: pb.BaseCommand) -> Reply:
    body = command.getLastMessageIdResponse
    return Reply(body.request_id, commands.read_positions(body))


def _reply(command: pb.BaseCommand) -> Reply | Refusal:
    """Read any reply. In BaseCommand a body's field number equals its type number."""
    field = pb.BaseCommand.DESCRIPTOR.fields_by_number[command.type]
    body: Any = getattr(command, field.name)
    error = _error_field(body)
    number: int = getattr(body, commands.number_field(body))
    if error is None:
        return Reply(number, body)
    message = getattr(body, "error_message", "") or getattr(body, "message", "")
    return Refusal(number, _code(getattr(body, error)), message)


def _error_field(body: Any) -> str | None:
    """Return the name of a reply's error field, None without such a field."""
    for name in ("error", "error_code"):
        if name in body.DESCRIPTOR.fields_by_name and body.HasField(name):
            return name
    return None


_HANDLERS: dict[int, Callable[[pb.BaseCommand], Event | None]] = {
    pb.BaseCommand.ERROR: _refusal,
    pb.BaseCommand.CLOSE_CONSUMER: _closed_consumer,
    pb.BaseCommand.AUTH_CHALLENGE: _challenge,
    pb.BaseCommand.SUCCESS: _success,
    pb.BaseCommand.PARTITIONED_METADATA_RESPONSE: _reply,
    pb.BaseCommand.LOOKUP_RESPONSE: _reply,
    pb.BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE: _last_message,
    pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE: _reply,
    pb.BaseCommand.GET_SCHEMA_RESPONSE: _reply,
    pb.BaseCommand.CONSUMER_STATS_RESPONSE: _reply,
    pb.BaseCommand.ACK_RESPONSE: _acknowledged,
    pb.BaseCommand.SEND_RECEIPT: _receipt,
    pb.BaseCommand.SEND_ERROR: _send_refused,
    pb.BaseCommand.CLOSE_PRODUCER: _closed_producer,
    pb.BaseCommand.TOPIC_MIGRATED: _migrated,
    pb.BaseCommand.PRODUCER_SUCCESS: _producer_success,
    pb.BaseCommand.TC_CLIENT_CONNECT_RESPONSE: _reply,
    pb.BaseCommand.NEW_TXN_RESPONSE: _reply,
    pb.BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE: _reply,
    pb.BaseCommand.END_TXN_RESPONSE: _reply,
    pb.BaseCommand.END_TXN_ON_PARTITION_RESPONSE: _reply,
    pb.BaseCommand.SCALABLE_TOPIC_UPDATE: _reply,
    pb.BaseCommand.SCALABLE_TOPIC_SUBSCRIBE_RESPONSE: _reply,
    pb.BaseCommand.WATCH_SCALABLE_TOPICS_UPDATE: _reply,
}
