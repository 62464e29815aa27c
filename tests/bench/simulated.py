# SPDX-License-Identifier: Apache-2.0
"""Brokers that answer all that a planner asks, of topics that exist only in name.

Ten thousand topic partitions are too many for a broker beside a benchmark, and what it
would take for them says little about the planner. So these answer out of their heads,
at once, from a process of their own: what is left is our side of planning::

    with simulated(10_000, brokers=100) as service_url:
        ...                                  # TOPIC has 10,000 partitions there

Each topic partition has one row when it is first asked about, and, so that each
micro-batch has something to read, one more each time that a consumer asks for its last
message again. A planner that reads some gets them. Topic partitions are spread over the
brokers by their number.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pulsar_spark.errors import SERVER_ERRORS
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.frames import FrameReader, encode_frame
from tests.support.scripted_broker import message_frame, single

TOPIC = "persistent://public/default/simulated"

_LOOPBACK = "127.0.0.1"
_LEDGER = 7
_READ_BYTES = 1 << 20
_ENTRY = single(b"simulated")
_Type = pb.BaseCommand.Type

_CODES = {name: number for number, name in SERVER_ERRORS.items()}


@contextlib.contextmanager
def simulated(partitions: int, brokers: int = 1) -> Iterator[str]:
    """Runs a cluster in a process of its own; yields its service URL.

    Args:
        partitions: How many ``TOPIC`` has.
        brokers: How many serve them.
    """
    with subprocess.Popen(
        [sys.executable, "-m", __name__, str(partitions), str(brokers)],
        stdin=subprocess.PIPE,  # it ends with this
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin:
            yield process.stdout.readline().strip()


@dataclass(eq=False)
class _Consumer:
    """A consumer.

    Attributes:
        topic: Of which it is one.
        next_entry: Id of the next entry that it gets.
        acknowledged: How many entries are.
        has_asked: Whether it has asked for the last message.
    """

    topic: str
    next_entry: int = 0
    acknowledged: int = 0
    has_asked: bool = False


@dataclass(eq=False)
class _Session:
    """A client's connection to one of the brokers."""

    sock: socket.socket
    reader: FrameReader = field(default_factory=FrameReader)
    consumers: dict[int, _Consumer] = field(default_factory=dict)


class _Brokers:
    """All of them, in one thread."""

    def __init__(self, partitions: int, brokers: int) -> None:
        self._partitions = partitions
        self._selector = selectors.DefaultSelector()
        self._entries: dict[str, int] = {}  # stored in each topic partition
        self._urls: list[str] = []
        for _ in range(brokers):
            listener = socket.create_server((_LOOPBACK, 0))
            self._selector.register(listener, selectors.EVENT_READ)
            self._urls.append(f"pulsar://{_LOOPBACK}:{listener.getsockname()[1]}")
        self._selector.register(sys.stdin, selectors.EVENT_READ)
        self._answers: dict[int, Callable[[_Session, Any], dict[str, Any] | None]] = {
            _Type.CONNECT: self._connect,
            _Type.PARTITIONED_METADATA: self._metadata,
            _Type.LOOKUP: self._lookup,
            _Type.GET_SCHEMA: self._schema,
            _Type.SUBSCRIBE: self._subscribe,
            _Type.FLOW: self._flow,
            _Type.GET_LAST_MESSAGE_ID: self._last_message_id,
            _Type.ACK: self._ack,
            _Type.CLOSE_CONSUMER: self._close,
            _Type.UNSUBSCRIBE: self._close,
        }

    def run(self) -> None:
        """Answers until standard input ends."""
        print(self._urls[0], flush=True)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is sys.stdin:
                    return
                if key.data is None:
                    assert isinstance(key.fileobj, socket.socket)
                    self._accept(key.fileobj)
                else:
                    self._serve(key.data)

    def _accept(self, listener: socket.socket) -> None:
        sock, _ = listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(sock, selectors.EVENT_READ, _Session(sock))

    def _serve(self, session: _Session) -> None:
        try:
            data = session.sock.recv(_READ_BYTES)
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(session.sock)
            session.sock.close()
            return
        session.reader.receive_data(data)
        answers = []
        while (frame := session.reader.next_frame()) is not None:
            command = commands.decode_command(frame.command)
            answer = self._answer(session, command)
            if answer is not None:
                answers.append(
                    encode_frame(pb.BaseCommand(**answer).SerializeToString())
                )
        with contextlib.suppress(OSError):
            session.sock.sendall(b"".join(answers))

    def _answer(
        self, session: _Session, command: pb.BaseCommand
    ) -> dict[str, Any] | None:
        name = pb.BaseCommand.DESCRIPTOR.fields_by_number[command.type].name
        body = getattr(command, name)
        handler = self._answers.get(command.type)
        if handler is not None:
            return handler(session, body)
        if "request_id" not in body.DESCRIPTOR.fields_by_name:
            return None
        # Silence would be waited out, and measured.
        return _error(body.request_id, "NotAllowedError", f"{name} is not simulated")

    # -- answers, as the fields of a BaseCommand ---------------------------------------

    def _connect(self, _: _Session, body: pb.CommandConnect) -> dict[str, Any]:
        connected = pb.CommandConnected(
            server_version="simulated", protocol_version=body.protocol_version
        )
        return {"type": _Type.CONNECTED, "connected": connected}

    def _metadata(
        self, _: _Session, body: pb.CommandPartitionedTopicMetadata
    ) -> dict[str, Any]:
        answer = pb.CommandPartitionedTopicMetadataResponse(
            request_id=body.request_id,
            partitions=self._partitions,
            response=pb.CommandPartitionedTopicMetadataResponse.Success,
        )
        return {
            "type": _Type.PARTITIONED_METADATA_RESPONSE,
            "partitionMetadataResponse": answer,
        }

    def _lookup(self, _: _Session, body: pb.CommandLookupTopic) -> dict[str, Any]:
        number = int(body.topic.rpartition("-")[2])
        answer = pb.CommandLookupTopicResponse(
            request_id=body.request_id,
            response=pb.CommandLookupTopicResponse.Connect,
            brokerServiceUrl=self._urls[number % len(self._urls)],
            authoritative=True,
        )
        return {"type": _Type.LOOKUP_RESPONSE, "lookupTopicResponse": answer}

    def _schema(self, _: _Session, body: pb.CommandGetSchema) -> dict[str, Any]:
        return _error(body.request_id, "TopicNotFound", "it has no schema")

    def _subscribe(
        self, session: _Session, body: pb.CommandSubscribe
    ) -> dict[str, Any]:
        stored = self._entries.setdefault(body.topic, 1)
        start = (
            body.start_message_id.entryId if body.HasField("start_message_id") else 0
        )
        start = 0 if start == commands.to_unsigned(-1) else min(start, stored)
        session.consumers[body.consumer_id] = _Consumer(body.topic, start)
        return _success(body.request_id)

    def _flow(self, session: _Session, body: pb.CommandFlow) -> None:
        consumer = session.consumers[body.consumer_id]
        begin, stored = consumer.next_entry, self._entries[consumer.topic]
        consumer.next_entry = min(stored, begin + body.messagePermits)
        frames = [
            message_frame(body.consumer_id, replace(_ENTRY, position=(_LEDGER, number)))
            for number in range(begin, consumer.next_entry)
        ]
        session.sock.sendall(b"".join(frames))

    def _last_message_id(
        self, session: _Session, body: pb.CommandGetLastMessageId
    ) -> dict[str, Any]:
        consumer = session.consumers[body.consumer_id]
        self._entries[consumer.topic] += consumer.has_asked
        consumer.has_asked = True
        mark_delete = commands.to_unsigned(consumer.acknowledged - 1)
        answer = pb.CommandGetLastMessageIdResponse(
            request_id=body.request_id,
            last_message_id=pb.MessageIdData(
                ledgerId=_LEDGER, entryId=self._entries[consumer.topic] - 1
            ),
            consumer_mark_delete_position=pb.MessageIdData(
                ledgerId=_LEDGER, entryId=mark_delete
            ),
        )
        return {
            "type": _Type.GET_LAST_MESSAGE_ID_RESPONSE,
            "getLastMessageIdResponse": answer,
        }

    def _ack(self, session: _Session, body: pb.CommandAck) -> dict[str, Any]:
        consumer = session.consumers[body.consumer_id]
        consumer.acknowledged = body.message_id[0].entryId + 1
        answer = pb.CommandAckResponse(
            consumer_id=body.consumer_id, request_id=body.request_id
        )
        return {"type": _Type.ACK_RESPONSE, "ackResponse": answer}

    def _close(self, session: _Session, body: Any) -> dict[str, Any]:
        session.consumers.pop(body.consumer_id, None)
        return _success(body.request_id)


def _error(request_id: int, code: str, text: str) -> dict[str, Any]:
    error = pb.CommandError(request_id=request_id, error=_CODES[code], message=text)
    return {"type": _Type.ERROR, "error": error}


def _success(request_id: int) -> dict[str, Any]:
    return {"type": _Type.SUCCESS, "success": pb.CommandSuccess(request_id=request_id)}


if __name__ == "__main__":
    _Brokers(*map(int, sys.argv[1:])).run()
