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
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pulsar_spark.errors import SERVER_ERRORS, ProtocolError
from pulsar_spark.options import ClientOptions
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.frames import FrameReader, encode_frame, encode_payload_frame
from pulsar_spark.wire.protocol import NO_REQUEST

LOOPBACK = "127.0.0.1"
LEDGER = 7
PATIENCE_S = 20.0

#: What one read of a real broker brings at most.
_READ_ENTRIES = 100
_READ_BYTES = 5 * 1024 * 1024

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


def batch(values: Sequence[bytes], **metadata: Any) -> StoredFrame:
    """An entry that is a batch."""
    parts = []
    for value in values:
        single_metadata = pb.SingleMessageMetadata(payload_size=len(value))
        head = single_metadata.SerializeToString()
        parts += [struct.pack(">I", len(head)), head, value]
    full = _metadata(num_messages_in_batch=len(values), **metadata)
    return StoredFrame(full, b"".join(parts), len(values))


def single(value: bytes, **metadata: Any) -> StoredFrame:
    """An entry that is one message."""
    return StoredFrame(_metadata(**metadata), value, 1)


def _metadata(**fields: Any) -> pb.MessageMetadata:
    return pb.MessageMetadata(
        **{"producer_name": "scripted", "sequence_id": 0, "publish_time": 1, **fields}
    )


def wait_until(condition: Callable[[], object], what: str = "") -> None:
    """Waits for a condition, and fails the test if it does not come true."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what or condition}"
        time.sleep(0.005)


@dataclass(eq=False)
class _Consumer:
    topic: str
    subscription: str
    first_entry: int  # nothing is ever acknowledged, so its place stays before this one
    next_entry: int
    balance: int = 0


@dataclass(eq=False)
class Session:
    """One connection of a client."""

    sock: socket.socket
    consumers: dict[int, _Consumer] = field(default_factory=dict)
    send_lock: threading.Lock = field(default_factory=threading.Lock)
    #: Held for one command at a time, also while its answer waits for the client.
    lock: threading.RLock = field(default_factory=threading.RLock)

    def send(self, **command: Any) -> None:
        """Sends a command, given as the fields of a BaseCommand."""
        self.send_bytes(encode_frame(pb.BaseCommand(**command).SerializeToString()))

    def send_bytes(self, data: bytes) -> None:
        """Sends anything."""
        with self.send_lock, contextlib.suppress(OSError):
            self.sock.sendall(data)

    def cut(self) -> None:
        """Ends the connection; its thread comes back."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)


#: What to do with a command instead of answering it.
Action = Callable[["ScriptedBroker", Session, pb.BaseCommand], None]


def silence(broker: ScriptedBroker, session: Session, command: pb.BaseCommand) -> None:
    """Leaves a command without an answer."""


def cut(broker: ScriptedBroker, session: Session, command: pb.BaseCommand) -> None:
    """Cuts the connection."""
    session.cut()


def usual(broker: ScriptedBroker, session: Session, command: pb.BaseCommand) -> None:
    """Does what a broker does: for scripts whose later steps matter."""
    broker.answer(session, command)


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
        def run() -> None:
            if event.wait(PATIENCE_S):
                action(broker, session, c)

        broker.start_thread(run)

    return later


class ScriptedBroker:
    """The broker.

    Attributes:
        address: ``host:port``.
        url: The same with ``pulsar://``.
        topics: The entries of each topic partition, by full name.
        partitions: The number of partitions of each partitioned topic.
        connections: How many were opened so far.
        requests: How many commands of each type came.
        bodies: The commands themselves, by type.
        deepest: The most commands of a type that waited for an answer together; only
            for those given to ``answer_together``.
        permits: All that was granted so far, by topic partition.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server((LOOPBACK, 0))
        self.address = "{}:{}".format(*self._listener.getsockname())
        self.url = f"pulsar://{self.address}"
        self.topics: dict[str, list[StoredFrame]] = {}
        self.partitions: dict[str, int] = {}
        self.connections = 0
        self.requests: Counter[str] = Counter()
        self.bodies: dict[str, list[Any]] = defaultdict(list)
        self.deepest: Counter[str] = Counter()
        self.permits: Counter[str] = Counter()
        self.max_message_size = 0
        self._places: dict[str, int] = {}  # of subscriptions that sought
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

    def add_topic(self, name: str, entries: Sequence[StoredFrame] = ()) -> None:
        """Adds a topic partition; entries without a position get ``LEDGER:0`` on."""
        self.topics[name] = []
        self.append(name, *entries)

    def append(self, name: str, *entries: StoredFrame) -> None:
        """Stores more in a topic, and delivers it."""
        stored = self.topics[name]
        for entry in entries:
            position = entry.position or (LEDGER, len(stored))
            stored.append(replace(entry, position=position))
        for session in self.sessions:
            with session.lock:
                for consumer_id in list(session.consumers):
                    self._deliver(session, consumer_id)

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
        return [c for s in self.sessions for c in list(s.consumers.values())]

    def ping(self) -> None:
        """Probes all clients."""
        for session in self.sessions:
            session.send(type=_Type.PING, ping=pb.CommandPing())

    def close_consumers(self) -> None:
        """Lets go of all consumers, as for an unload."""
        for session in self.sessions:
            for consumer_id in list(session.consumers):
                del session.consumers[consumer_id]
                _send_close(session, consumer_id)

    def cut(self) -> None:
        """Cuts all connections."""
        for session in self.sessions:
            session.cut()

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
            session = Session(sock)
            self.connections += 1
            self._sessions.append(session)
            self.start_thread(partial(self._serve, session))

    def _serve(self, session: Session) -> None:
        reader = FrameReader()
        try:
            while data := session.sock.recv(65536):
                reader.receive_data(data)
                while (frame := reader.next_frame()) is not None:
                    self._receive(session, commands.decode_command(frame.command))
        except (OSError, ProtocolError):
            pass  # cut, or half a frame of a client that is gone
        finally:
            self._sessions.remove(session)
            session.consumers.clear()
            session.sock.close()

    def _receive(self, session: Session, command: pb.BaseCommand) -> None:
        name = _name(command)
        self.bodies[name].append(_body(command))
        self.requests[name] += 1
        if name not in self._together:
            self._act(name, session, command)
            return
        waiting = self._waiting[name]
        waiting.append((session, command))
        self.deepest[name] = max(self.deepest[name], len(waiting))
        if len(waiting) == self._together[name]:
            self._waiting[name] = []
            for one in waiting:
                self._act(name, *one)

    def _act(self, name: str, session: Session, command: pb.BaseCommand) -> None:
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
            server_version="Scripted 1.0",
            protocol_version=body.protocol_version,
            max_message_size=self.max_message_size or None,
        )
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
        prefix = f"persistent://{body.namespace}/"
        answer = pb.CommandGetTopicsOfNamespaceResponse(
            request_id=body.request_id,
            topics=[name for name in self.topics if name.startswith(prefix)],
        )
        session.send(
            type=_Type.GET_TOPICS_OF_NAMESPACE_RESPONSE,
            getTopicsOfNamespaceResponse=answer,
        )

    def _on_subscribe(self, session: Session, body: pb.CommandSubscribe) -> None:
        entries = self.topics.get(body.topic)
        if entries is None:
            _send_error(session, body.request_id, "TopicNotFound")
            return
        if body.subscription in self._places:
            start = self._places.pop(body.subscription)
        elif body.HasField("start_message_id"):
            place = commands.from_message_id_data(body.start_message_id).position
            start = _first(entries, lambda entry: (entry.position or (0, 0)) >= place)
        else:
            start = 0 if body.initialPosition else len(entries)
        consumer = _Consumer(body.topic, body.subscription, start, start)
        session.consumers[body.consumer_id] = consumer
        _send_success(session, body.request_id)

    def _on_flow(self, session: Session, body: pb.CommandFlow) -> None:
        consumer = session.consumers.get(body.consumer_id)
        if consumer is not None:
            consumer.balance += body.messagePermits
            self.permits[consumer.topic] += body.messagePermits
            self._deliver(session, body.consumer_id)

    def _deliver(self, session: Session, consumer_id: int) -> None:
        consumer = session.consumers[consumer_id]
        entries = self.topics[consumer.topic]
        while consumer.balance > 0 and consumer.next_entry < len(entries):
            # One read: by its size it may go past the balance.
            first = consumer.next_entry
            size_bytes = 0
            for entry in entries[first : first + min(consumer.balance, _READ_ENTRIES)]:
                if size_bytes >= _READ_BYTES:
                    break
                size_bytes += len(entry.payload)
                consumer.next_entry += 1
                consumer.balance -= entry.messages
                session.send_bytes(_message_frame(consumer_id, entry))

    def _on_get_last_message_id(
        self, session: Session, body: pb.CommandGetLastMessageId
    ) -> None:
        consumer = session.consumers.get(body.consumer_id)
        if consumer is None:
            _send_error(session, body.request_id, "MetadataError")
            return
        entries = self.topics[consumer.topic]
        answer = pb.CommandGetLastMessageIdResponse(
            request_id=body.request_id,
            last_message_id=_last_id(entries),
            consumer_mark_delete_position=_before_id(entries, consumer.first_entry),
        )
        session.send(
            type=_Type.GET_LAST_MESSAGE_ID_RESPONSE, getLastMessageIdResponse=answer
        )

    def _on_seek(self, session: Session, body: pb.CommandSeek) -> None:
        consumer = session.consumers.pop(body.consumer_id)
        time_ms = body.message_publish_time
        self._places[consumer.subscription] = _first(
            self.topics[consumer.topic],
            lambda entry: entry.metadata.publish_time >= time_ms,
        )
        _send_close(session, body.consumer_id)
        _send_success(session, body.request_id)

    def _on_close_consumer(
        self, session: Session, body: pb.CommandCloseConsumer
    ) -> None:
        session.consumers.pop(body.consumer_id, None)
        _send_success(session, body.request_id)


def _name(command: pb.BaseCommand) -> str:
    return commands.command_name(command.type)


def _body(command: pb.BaseCommand) -> Any:
    field_ = pb.BaseCommand.DESCRIPTOR.fields_by_number[command.type]
    return getattr(command, field_.name)


def _request_id(command: pb.BaseCommand) -> int:
    return int(_body(command).request_id)


def _first(
    entries: Sequence[StoredFrame], condition: Callable[[StoredFrame], bool]
) -> int:
    return next(
        (index for index, entry in enumerate(entries) if condition(entry)), len(entries)
    )


def _last_id(entries: Sequence[StoredFrame]) -> pb.MessageIdData:
    if not entries:
        nothing = commands.to_unsigned(-1)
        return pb.MessageIdData(ledgerId=nothing, entryId=nothing, batch_index=-1)
    last = entries[-1]
    assert last.position is not None
    is_batch = last.metadata.HasField("num_messages_in_batch")
    return pb.MessageIdData(
        ledgerId=last.position[0],
        entryId=last.position[1],
        batch_index=last.messages - 1 if is_batch else -1,
    )


def _before_id(entries: Sequence[StoredFrame], index: int) -> pb.MessageIdData:
    if index < len(entries):
        position = entries[index].position
        assert position is not None
        ledger_id, entry_id = position[0], position[1] - 1
    elif entries:
        position = entries[-1].position
        assert position is not None
        ledger_id, entry_id = position
    else:
        ledger_id, entry_id = LEDGER, -1
    return pb.MessageIdData(
        ledgerId=commands.to_unsigned(ledger_id),
        entryId=commands.to_unsigned(entry_id),
    )


def _message_frame(consumer_id: int, entry: StoredFrame) -> bytes:
    assert entry.position is not None
    message = pb.CommandMessage(
        consumer_id=consumer_id,
        message_id=pb.MessageIdData(
            ledgerId=entry.position[0], entryId=entry.position[1]
        ),
    )
    command = pb.BaseCommand(type=_Type.MESSAGE, message=message).SerializeToString()
    metadata = entry.metadata.SerializeToString()
    frame = encode_payload_frame(command, metadata, entry.payload)
    return frame[:-1] + bytes([frame[-1] ^ 1]) if entry.is_damaged else frame


def _send_error(session: Session, request_id: int, code: str) -> None:
    error = pb.CommandError(
        request_id=request_id, error=_CODES[code], message="scripted"
    )
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
    """Options with the short limits that tests want."""
    short = {
        "operation_timeout_s": 5.0,
        "connection_timeout_s": 5.0,
        "lookup_timeout_s": 5.0,
        "initial_backoff_s": 0.01,
        "max_backoff_s": 0.05,
    }
    return ClientOptions(service_urls=addresses, **{**short, **limits})
