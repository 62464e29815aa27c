"""One connection to a broker as a value: bytes in, events out, nothing blocks.

The handshake, keep-alive answers, and the sorting of what arrives into events. Whoever
owns a socket reads into :meth:`ClientProtocol.buffer`, acts on the events that
:meth:`ClientProtocol.received` gives, and sends what
:meth:`ClientProtocol.data_to_send` gives. Commands that this version does not know are
passed over, so that newer brokers do no harm.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pulsar_spark.errors import SERVER_ERRORS, ProtocolError
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.frames import (
    DEFAULT_MAX_MESSAGE_SIZE_BYTES,
    FRAME_HEADROOM_BYTES,
    Frame,
    FrameReader,
)
from pulsar_spark.wire.messages import new_bytes

if TYPE_CHECKING:
    from google.protobuf.message import Message

#: What a broker uses as request id where it speaks of no request of ours.
NO_REQUEST = 2**64 - 1

#: The last sequence id of a producer that has sent nothing.
_NO_SEQUENCE_ID = -1

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
    """

    server_version: str
    protocol_version: int
    max_message_size_bytes: int


@dataclass(frozen=True, slots=True)
class Reply:
    """A request succeeded.

    Attributes:
        request_id: Which one.
        body: The command's own message, such as a CommandLookupTopicResponse.
    """

    request_id: int
    body: Message


@dataclass(frozen=True, slots=True)
class Queued:
    """A request was taken, but it is not its turn yet: a reply will follow.

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
    """One entry for a consumer.

    Attributes:
        consumer_id: Whose.
        ledger_id, entry_id: Where it is stored.
        redelivery_count: How often it had been delivered before.
        ack_set: Which messages of a batch are still to be acknowledged, as words of 64
            bits; empty stands for all.
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
        assigned_broker_url: Where the topic went, "" where that is not known.
    """

    consumer_id: int
    assigned_broker_url: str


class Receipt(NamedTuple):
    """An entry of a producer is stored.

    Attributes:
        producer_id: Whose.
        sequence_id: Which one; of a batch the lowest.
        ledger_id, entry_id: Where it is stored. -1:-1 says that the broker had it
            already and dropped this one.
    """

    producer_id: int
    sequence_id: int
    ledger_id: int
    entry_id: int


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
    | ConsumerClosed
    | Receipt
    | SendRefused
    | ProducerClosed
    | AuthChallenged
)


class _State(enum.Enum):
    HANDSHAKE = "handshake"
    READY = "ready"


class ClientProtocol:
    """The client's side of one connection.

    Args:
        connect_frame: The CONNECT to open with, see ``wire.commands.connect``.
        new_buffer: Where what comes in is kept, see :class:`FrameReader`.
        memory_limit_bytes: Largest entry to take in, though the broker's own limit may
            be above; the protocol's usual limit where that is larger. None: no limit.
    """

    def __init__(
        self,
        connect_frame: bytes,
        new_buffer: Callable[[int], memoryview] = new_bytes,
        memory_limit_bytes: int | None = None,
    ) -> None:
        self._memory_limit_bytes = memory_limit_bytes
        self._state = _State.HANDSHAKE
        self._to_send = [connect_frame]
        self._reader = FrameReader(
            DEFAULT_MAX_MESSAGE_SIZE_BYTES + FRAME_HEADROOM_BYTES, new_buffer
        )

    def data_to_send(self) -> bytes:
        """What must go out now: the handshake, or answers to keep-alive probes."""
        data = b"".join(self._to_send)
        self._to_send.clear()
        return data

    def buffer(self) -> memoryview:
        """Where the next bytes go; never empty. All events so far must be taken."""
        return self._reader.buffer()

    def received(self, size: int) -> Iterator[Event]:
        """So many bytes are in the buffer; yields what they mean, in order.

        Raises:
            ProtocolError: These bytes are not what a Pulsar broker sends. The
                connection is of no more use: every later call raises the same.
        """
        self._reader.received(size)
        return self._events()

    def receive_data(self, data: bytes | memoryview) -> Iterator[Event]:
        """The same for bytes that are somewhere else."""
        self._reader.receive_data(data)
        return self._events()

    def _events(self) -> Iterator[Event]:
        while (frame := self._reader.next_frame()) is not None:
            try:
                event = self._event(frame)
            except ProtocolError as error:
                self._reader.stop(error)
                raise
            if event is not None:
                yield event

    def _event(self, frame: Frame) -> Event | None:
        command = commands.decode_command(frame.command)
        if self._state is _State.HANDSHAKE:
            return self._handshake(command)
        if command.type == pb.BaseCommand.MESSAGE:
            return _delivery(command.message, frame.payload)
        if command.type == pb.BaseCommand.PING:
            self._to_send.append(commands.pong())
            return None
        handler = _HANDLERS.get(command.type)
        return None if handler is None else handler(command)

    def _handshake(self, command: pb.BaseCommand) -> Event:
        if command.type == pb.BaseCommand.CONNECTED:
            self._state = _State.READY
            body = command.connected
            limit = body.max_message_size or DEFAULT_MAX_MESSAGE_SIZE_BYTES
            if limit < 0:
                raise ProtocolError(f"CONNECTED limits messages to {limit} bytes.")
            self._limit_frames(limit)
            return Connected(body.server_version, body.protocol_version, limit)
        if command.type == pb.BaseCommand.ERROR:
            return Refusal(None, _code(command.error.error), command.error.message)
        if command.type == pb.BaseCommand.AUTH_CHALLENGE:
            return _challenge(command)
        raise ProtocolError(
            f"The broker answered CONNECT with {commands.command_name(command.type)}."
        )

    def _limit_frames(self, limit: int) -> None:
        """Sets what a frame may hold: what the broker says, if memory allows it."""
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


def _challenge(command: pb.BaseCommand) -> AuthChallenged:
    challenge = command.authChallenge.challenge
    return AuthChallenged(challenge.auth_method_name, challenge.auth_data)


def _refusal(command: pb.BaseCommand) -> Refusal:
    body = command.error
    request_id = None if body.request_id == NO_REQUEST else body.request_id
    return Refusal(request_id, _code(body.error), body.message)


def _closed_consumer(command: pb.BaseCommand) -> ConsumerClosed:
    body = command.close_consumer
    return ConsumerClosed(body.consumer_id, body.assignedBrokerServiceUrl)


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


def _producer_success(command: pb.BaseCommand) -> Reply | Refusal | Queued:
    body = command.producer_success
    if body.last_sequence_id < _NO_SEQUENCE_ID:
        raise ProtocolError(
            f"No entry can have the sequence id {body.last_sequence_id}."
        )
    # One that is not ready waits for exclusive access; a second answer follows.
    return _reply(command) if body.producer_ready else Queued(body.request_id)


def _reply(command: pb.BaseCommand) -> Reply | Refusal:
    """Any reply. In BaseCommand a body's field number equals its type number."""
    field = pb.BaseCommand.DESCRIPTOR.fields_by_number[command.type]
    body: Any = getattr(command, field.name)
    error = _error_field(body)
    if error is None:
        return Reply(body.request_id, body)
    message = getattr(body, "error_message", "") or getattr(body, "message", "")
    return Refusal(body.request_id, _code(getattr(body, error)), message)


def _error_field(body: Any) -> str | None:
    """Replies call their error either ``error`` or ``error_code``."""
    for name in ("error", "error_code"):
        if name in body.DESCRIPTOR.fields_by_name and body.HasField(name):
            return name
    return None


_HANDLERS: dict[int, Callable[[pb.BaseCommand], Event | None]] = {
    pb.BaseCommand.ERROR: _refusal,
    pb.BaseCommand.CLOSE_CONSUMER: _closed_consumer,
    pb.BaseCommand.AUTH_CHALLENGE: _challenge,
    pb.BaseCommand.SUCCESS: _reply,
    pb.BaseCommand.PARTITIONED_METADATA_RESPONSE: _reply,
    pb.BaseCommand.LOOKUP_RESPONSE: _reply,
    pb.BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE: _reply,
    pb.BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE: _reply,
    pb.BaseCommand.CONSUMER_STATS_RESPONSE: _reply,
    pb.BaseCommand.ACK_RESPONSE: _reply,
    pb.BaseCommand.SEND_RECEIPT: _receipt,
    pb.BaseCommand.SEND_ERROR: _send_refused,
    pb.BaseCommand.CLOSE_PRODUCER: _closed_producer,
    pb.BaseCommand.PRODUCER_SUCCESS: _producer_success,
    pb.BaseCommand.TC_CLIENT_CONNECT_RESPONSE: _reply,
    pb.BaseCommand.NEW_TXN_RESPONSE: _reply,
    pb.BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE: _reply,
    pb.BaseCommand.END_TXN_RESPONSE: _reply,
}
