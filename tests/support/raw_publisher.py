# SPDX-License-Identifier: Apache-2.0
"""Publishes any entry at all, over a bare socket.

The official client writes what its API allows. Readers meet more: other clients' forms,
chunks of a producer that died, entries without a checksum. Here the test writes the
MessageMetadata and the payload itself::

    with RawPublisher(service_url, topic) as publisher:
        publisher.send(*message(b"v", key="k"))
        publisher.send(*batch([member(b"v"), member(None, key="k")]))

Only the package's generated protocol classes and its frame writer are used, so that a
mistake in its client or its decoding cannot hide itself.
"""

from __future__ import annotations

import itertools
import select
import socket
import struct
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.frames import encode_frame, encode_payload_frame

if TYPE_CHECKING:
    from collections.abc import Callable

#: For one reply, whatever else comes meanwhile. A broker gives itself 30 s for what it
#: does when it loads a topic.
_TIMEOUT_S = 90.0

#: What is refused with these while a topic moves is accepted later: MetadataError is
#: said of a reader that the broker closed meanwhile.
_PASSING = (1, 2, 6)  # MetadataError, PersistenceError, ServiceNotReady

_ResultT = TypeVar("_ResultT")


class ProducerClosedError(RuntimeError):
    """The broker closed a producer. Is its last entry stored? Nobody knows."""


class RawError(RuntimeError):
    """The broker refused a request.

    Attributes:
        code: Number of the ServerError.
    """

    def __init__(self, what: str, code: int, message: str) -> None:
        super().__init__(f"{what}: {code} {message}")
        self.code = code


class TxnId(NamedTuple):
    """The two halves of a transaction's id."""

    most: int
    least: int


class RawConnection:
    """One connection on which a request is sent and its reply awaited, in turn.

    Args:
        service_url: ``pulsar://host:port`` of a broker that serves everything itself.
        timeout_s: How long a reply may take.
    """

    def __init__(self, service_url: str, timeout_s: float = _TIMEOUT_S) -> None:
        host, port = service_url.removeprefix("pulsar://").rsplit(":", 1)
        self._timeout_s = timeout_s
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._begun = bytearray()  # of a frame that has not come whole
        self._before: deque[pb.BaseCommand] = deque()  # came while nobody waited
        self._is_closed = False  # the producer, by the broker
        self._request_ids = itertools.count(1)
        connect = pb.CommandConnect(
            client_version="raw", auth_method_name="none", protocol_version=19
        )
        self.send_command("connect", connect)
        self.receive("connected")

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; whatever the broker held for it goes."""
        self._socket.close()

    def ask(self, name: str, body: Any, reply: str) -> Any:
        """Send a request and return the body of its reply.

        Args:
            name: Field of BaseCommand that holds ``body``.
            body: The request; its request_id is filled in.
            reply: Field of BaseCommand that the reply is expected in.

        Raises:
            RawError: The broker refused.
        """
        body.request_id = next(self._request_ids)
        self.send_command(name, body)
        return self.receive(reply)

    def lookup(self, topic: str) -> None:
        """Make the broker take a topic on, as every client does first."""
        request = pb.CommandLookupTopic(topic=topic)
        self.ask("lookupTopic", request, "lookupTopicResponse")

    def send_command(self, name: str, body: Any) -> None:
        """Send a simple command."""
        self.send_bytes(encode_frame(_command(name, body)))

    def send_bytes(self, frame: bytes) -> None:
        """Send what may or may not be a frame."""
        self._socket.sendall(frame)

    def receive(self, expected: str, timeout_s: float | None = None) -> Any:
        """The body of the next command of the kind expected; answers probes.

        Args:
            expected: Field of BaseCommand.
            timeout_s: How long it may take; None: as long as any reply.

        Raises:
            RawError: The broker refused.
            ProducerClosedError: The broker closed the producer instead of sending a
                receipt.
            TimeoutError: It did not come in time, whatever else did.
            ConnectionError: The broker ended the connection.
        """
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        while True:
            command = (
                self._before.popleft()
                if self._before
                else self._command(deadline, expected)
            )
            name = _field_of(command.type)
            body = getattr(command, name)
            if name in ("error", "send_error") or _refused(body):
                raise RawError(name, body.error, body.message)
            if name == expected:
                return body
            if name == "close_producer":
                self._is_closed = True
                if expected == "send_receipt":
                    raise ProducerClosedError(
                        f"the broker closed producer {body.producer_id}"
                    )

    def has_news(self) -> bool:
        """Whether there is something to read."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def arrived(self) -> list[str]:
        """The commands that are there and that nobody waited for, by name."""
        while self.has_news():
            deadline = time.monotonic() + self._timeout_s
            command = self._next(deadline, "rest of a command")
            if command is not None:
                self._before.append(command)
        return [_field_of(command.type) for command in self._before]

    def _command(self, deadline: float, awaited: str) -> pb.BaseCommand:
        while (command := self._next(deadline, awaited)) is None:
            pass
        return command

    def _next(self, deadline: float, awaited: str) -> pb.BaseCommand | None:
        """The next command; None for a probe, which is answered."""
        self._read(4, deadline, awaited)
        (size,) = struct.unpack_from(">I", self._begun)
        self._read(4 + size, deadline, awaited)
        frame, self._begun = self._begun, bytearray()
        (command_size,) = struct.unpack_from(">I", frame, 4)
        command = pb.BaseCommand.FromString(bytes(frame[8 : 8 + command_size]))
        if command.type != pb.BaseCommand.PING:
            return command
        self.send_command("pong", pb.CommandPong())
        return None

    def _read(self, size: int, deadline: float, awaited: str) -> None:
        """Read so much of a frame; what has come stays for later if that is not all."""
        while len(self._begun) < size:
            # A broker's probes alone must not keep it waiting.
            left_s = deadline - time.monotonic()
            try:
                self._socket.settimeout(max(0.001, left_s))
                data = self._socket.recv(size - len(self._begun))
            except TimeoutError:
                raise TimeoutError(f"the broker sent no {awaited} in time") from None
            finally:
                self._socket.settimeout(self._timeout_s)
            if not data:
                raise ConnectionError(
                    f"the broker ended the connection, no {awaited} came"
                )
            self._begun += data


class RawPublisher(RawConnection):
    """A producer of one topic partition.

    A broker closes producers when it unloads a topic, or cannot recover its
    transactions in time. This one attaches again before it sends. What was on its way
    is stored or not: that can be told where nobody else writes there.

    Args:
        service_url: Of the broker.
        topic: Full name of a topic partition.
        producer_name: None for a name that the broker gives.
        is_alone: Whether nobody else writes there.
        timeout_s: How long a reply may take.
        silence_s: How long a receipt may take where the entry may be sent again:
            brokers drop some without a word while a topic moves.

    Attributes:
        producer_name: Its name; MessageMetadata carries it.
    """

    def __init__(
        self,
        service_url: str,
        topic: str,
        producer_name: str | None = None,
        *,
        is_alone: bool = False,
        timeout_s: float = _TIMEOUT_S,
        silence_s: float = 10.0,
    ) -> None:
        super().__init__(service_url, timeout_s)
        self._silence_s = silence_s
        self._topic, self._name = topic, producer_name
        self._sequence_ids = itertools.count()
        self._attach()
        self._last = self._last_stored() if is_alone else None

    def __enter__(self) -> RawPublisher:
        return self

    def _attach(self) -> None:
        """Attach as producer, as soon as the broker lets it."""
        success = self._once_served(
            lambda: self.ask("producer", self._request(), "producer_success")
        )
        self._is_closed = False  # what came before was about the one before
        self._name = self.producer_name = str(success.producer_name)

    def _once_served(self, ask: Callable[[], _ResultT]) -> _ResultT:
        """Ask for something of the topic until a broker serves it."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                self.lookup(self._topic)
                return ask()
            except RawError as refused:
                if refused.code not in _PASSING or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _request(self) -> pb.CommandProducer:
        return pb.CommandProducer(
            topic=self._topic,
            producer_id=1,
            producer_name=self._name,
            txn_enabled=True,
        )

    def _last_stored(self, at_least: tuple[int, int] = (-1, -1)) -> tuple[int, int]:
        """Position of the last entry of the topic, which is known to have one."""
        deadline = time.monotonic() + self._timeout_s
        while (last := self._once_served(self._ask_for_last)) < at_least:
            # A broker that gives the topic away says that it is empty.
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._topic} ends at {last}, not {at_least}")
            time.sleep(0.1)
        return last

    def _ask_for_last(self) -> tuple[int, int]:
        subscribe = pb.CommandSubscribe(
            topic=self._topic,
            subscription=f"raw-{id(self)}",
            subType=pb.CommandSubscribe.Exclusive,
            consumer_id=1,
            durable=False,
            start_message_id=pb.MessageIdData(ledgerId=2**63 - 1, entryId=2**63 - 1),
        )
        self.ask("subscribe", subscribe, "success")
        request = pb.CommandGetLastMessageId(consumer_id=1)
        found = self.ask("getLastMessageId", request, "getLastMessageIdResponse")
        self.ask("close_consumer", pb.CommandCloseConsumer(consumer_id=1), "success")
        last = found.last_message_id  # its -1 are without a sign
        ledger_id, entry_id = (
            -1 if number >= 2**63 else int(number)
            for number in (last.ledgerId, last.entryId)
        )
        return ledger_id, entry_id

    def send(
        self,
        metadata: pb.MessageMetadata,
        payload: bytes,
        *,
        txn: TxnId | None = None,
        checksum: bool = True,
    ) -> tuple[int, int]:
        """Publish one entry and wait until it is stored.

        Args:
            metadata: Of the entry. Name of the producer, sequence id and publish time
                are filled in where they are missing.
            payload: As it is to be stored.
            txn: Transaction to publish in.
            checksum: False leaves the checksum out.

        Returns:
            ``(ledger_id, entry_id)``.

        Raises:
            RawError: The broker refused it.
            ProducerClosedError: The broker closed the producer meanwhile.
        """
        sequence_id = next(self._sequence_ids)
        metadata = _completed(metadata, self.producer_name, sequence_id)
        send = pb.CommandSend(producer_id=1, sequence_id=metadata.sequence_id)
        if metadata.HasField("num_messages_in_batch"):
            send.num_messages = metadata.num_messages_in_batch
        if metadata.num_chunks_from_msg > 1:
            send.is_chunk = True
        if txn is not None:
            for where in (send, metadata):
                where.txnid_most_bits, where.txnid_least_bits = txn[:2]
        command, described = _command("send", send), metadata.SerializeToString()
        encode = encode_payload_frame if checksum else _without_checksum
        frame = encode(command, described, payload)
        if self._last is not None:
            return self._stored_once(frame, self._last)
        try:
            return self._stored(frame)
        except ProducerClosedError as error:
            text = f"entry {metadata.sequence_id} of {self._topic}"
            raise ProducerClosedError(
                f"{error}: whether {text} is stored is not known"
            ) from None

    def _stored(self, frame: bytes, timeout_s: float | None = None) -> tuple[int, int]:
        while self._is_closed or "close_producer" in self.arrived():
            self._attach()
        self.send_bytes(frame)
        stored = self.receive("send_receipt", timeout_s).message_id
        return int(stored.ledgerId), int(stored.entryId)

    def _stored_once(self, frame: bytes, last: tuple[int, int]) -> tuple[int, int]:
        """Send it until it is stored, which is when the topic has more than before."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                self._last = self._stored(frame, self._silence_s)
                return self._last
            except TimeoutError:
                if time.monotonic() > deadline:
                    raise
                # Its answer is behind any receipt that may still come.
                close = pb.CommandCloseProducer(producer_id=1)
                self.ask("close_producer", close, "success")
            except (ProducerClosedError, RawError) as error:
                is_over = isinstance(error, RawError) and error.code not in _PASSING
                if is_over or time.monotonic() > deadline:
                    raise
            self._attach()
            now = self._last_stored(at_least=last)
            if now > last and now[1] >= 0:  # a new ledger has no entry yet
                self._last = now
                return now


def _completed(
    metadata: pb.MessageMetadata, producer_name: str, sequence_id: int
) -> pb.MessageMetadata:
    done = pb.MessageMetadata()
    done.CopyFrom(metadata)
    done.producer_name = metadata.producer_name or producer_name
    if not metadata.HasField("sequence_id"):
        done.sequence_id = sequence_id
    if not metadata.HasField("publish_time"):
        done.publish_time = time.time_ns() // 1_000_000
    return done


def _without_checksum(command: bytes, metadata: bytes, payload: bytes) -> bytes:
    entry = struct.pack(">I", len(metadata)) + metadata + payload
    head = struct.pack(">II", 4 + len(command) + len(entry), len(command))
    return head + command + entry


def _command(name: str, body: Any) -> bytes:
    number = pb.BaseCommand.DESCRIPTOR.fields_by_name[name].number
    return pb.BaseCommand(type=number, **{name: body}).SerializeToString()


def _field_of(command_type: int) -> str:
    return str(pb.BaseCommand.DESCRIPTOR.fields_by_number[command_type].name)


def _refused(body: Any) -> bool:
    return "error" in body.DESCRIPTOR.fields_by_name and body.HasField("error")
