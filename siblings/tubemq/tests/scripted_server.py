# SPDX-License-Identifier: Apache-2.0
"""A master and broker in this process, on loopback, that do what a test tells them to.

They speak real frames and have stores in memory: each an index of entries, shared by
its partitions, of which the first ones are flushed. A script says what a method answers
before they behave again::

    with ScriptedServer(stores={"demo": [1, 1]}) as server:
        server.append("demo", 0, b"one")
        server.script("get", refuse(503), silence)
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tubemq_spark.client.brokers import BrokerPool
from tubemq_spark.errors import ProtocolError
from tubemq_spark.options.client import ClientOptions
from tubemq_spark.wire import tubemq_pb2 as pb
from tubemq_spark.wire.attributes import Stored
from tubemq_spark.wire.checksums import checksum
from tubemq_spark.wire.frames import FrameReader, encode_frame
from tubemq_spark.wire.messages import FLUSHED, UNFLUSHED
from tubemq_spark.wire.metadata import STORE_STEP
from tubemq_spark.wire.rpc import parse

LOOPBACK = "127.0.0.1"
ENTRY = 28
UNREGISTER = 32
BROKER_ID = 1
NAMES = {
    1: "producer register",
    2: "producer heartbeat",
    3: "producer close",
    6: "consumer close",
    13: "send",
    15: "register",
    16: "heartbeat",
    17: "get",
    18: "commit",
    20: "consumer register",
    22: "partition metadata",
}
REQUESTS: dict[int, type[Any]] = {
    1: pb.RegisterRequestP2M,
    2: pb.HeartRequestP2M,
    3: pb.CloseRequestP2M,
    6: pb.CloseRequestC2M,
    13: pb.SendMessageRequestP2B,
    15: pb.RegisterRequestC2B,
    16: pb.HeartBeatRequestC2B,
    17: pb.GetMessageRequestC2B,
    18: pb.CommitOffsetRequestC2B,
    20: pb.RegisterRequestC2MV2,
    22: pb.GetPartMetaRequestC2M,
}
REPLIES: dict[int, type[Any]] = {
    1: pb.RegisterResponseM2P,
    2: pb.HeartResponseM2P,
    3: pb.CloseResponseM2P,
    6: pb.CloseResponseM2C,
    13: pb.SendMessageResponseB2P,
    15: pb.RegisterResponseB2C,
    16: pb.HeartBeatResponseB2C,
    17: pb.GetMessageResponseB2C,
    18: pb.CommitOffsetResponseB2C,
    20: pb.RegisterResponseM2CV2,
    22: pb.GetPartMetaResponseM2C,
}


@dataclass
class Entry:
    """One message of a store."""

    partition_id: int
    message: pb.TransferedMessage
    msg_type: str = ""


@dataclass
class Store:
    """One log: of all entries, those from ``begin`` on are there.

    Attributes:
        entries: Of all of its partitions.
        begin: Number of the first that retention has left.
        flushed: Number of those that are on the disk; None for all.
    """

    entries: list[Entry] = field(default_factory=list)
    begin: int = 0
    flushed: int | None = None

    @property
    def end(self) -> int:
        """Number of the entries that count as there."""
        return len(self.entries) if self.flushed is None else self.flushed


@dataclass
class Registration:
    """Who reads a partition, and from where on."""

    client_id: str
    position: int  # of the next get, in entries
    filters: frozenset[str] = frozenset()
    priority: int | None = None


#: What a script may do with a request: answer, or not at all.
Action = Callable[["Session", int, int, Any], None]


class Session:
    """One connection of a client."""

    def __init__(self, server: ScriptedServer, sock: socket.socket) -> None:
        self.server = server
        self.sock = sock

    def answer(self, serial: int, method: int, body: Any) -> None:
        """Send a reply."""
        self._send(
            serial, 0, pb.RspResponseBody(method=method, data=body.SerializeToString())
        )

    def throw(self, serial: int, name: str, status: int = 1) -> None:
        """Send an exception."""
        self._send(
            serial,
            status,
            pb.RspExceptionBody(
                exceptionName=f"org.apache.inlong.{name}", stackTrace="scripted"
            ),
        )

    def _send(self, serial: int, status: int, last: Any) -> None:
        payload = b""
        for part in (pb.RpcConnHeader(flag=1), pb.ResponseHeader(status=status), last):
            data = part.SerializeToString()
            payload += _varint(len(data)) + data
        frame = encode_frame(serial, payload)
        if self in self.server.deaf:
            return
        with contextlib.suppress(OSError):
            self.sock.sendall(frame)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def java_hash(text: str) -> int:
    """By which brokers compare message types: it is the same for Aa and BB."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) % 2**32
    return value


def silence(session: Session, serial: int, method: int, body: Any) -> None:
    """Answer nothing."""


def cut(session: Session, serial: int, method: int, body: Any) -> None:
    """Close the connection."""
    session.sock.shutdown(socket.SHUT_RDWR)


def refuse(code: int, text: str = "scripted") -> Action:
    """Answer by a code."""

    def act(session: Session, serial: int, method: int, body: Any) -> None:
        reply = REPLIES[method](errCode=code, errMsg=text)
        if "success" in reply.DESCRIPTOR.fields_by_name:
            reply.success = False
        session.answer(serial, method, reply)

    return act


def throw(name: str, status: int = 1) -> Action:
    """Answer by an exception."""
    return lambda session, serial, method, body: session.throw(serial, name, status)


def store_silently(session: Session, serial: int, method: int, body: Any) -> None:
    """Do as asked, and lose the answer."""
    session.server.act(body)


def and_restart(session: Session, serial: int, method: int, body: Any) -> None:
    """Do as asked, answer, and be restarted: nobody is known any more."""
    passing(session, serial, method, body)
    session.server.forget_registrations()
    session.server.cut_all()


def twice(session: Session, serial: int, method: int, body: Any) -> None:
    """Do as asked, and answer two times."""
    reply = session.server.act(body)
    session.answer(serial, method, reply)
    session.answer(serial, method, reply)


def passing(session: Session, serial: int, method: int, body: Any) -> None:
    """Behave, this time."""
    session.answer(serial, method, session.server.act(body))


class ScriptedServer:
    """A master and a broker on one port.

    Args:
        stores: How many partitions each store of a topic has.
        half: Whether gets bring half of what there is, as from files.
        per_get: Most entries that a get looks at.
        broker_id: Number of the broker.
        others: Whose brokers its master names, too. They have the same topics.

    Attributes:
        requests: How often each method was called, by name.
        seen: The bodies of all requests, by name.
        stores: By topic and number.
        owners: Registrations by group, topic and partition.
        advertised: Where the master says that the broker is.
        positions: Offsets that groups are at, likewise.
        readable: Whether the master says that its broker can be read.
        publishable: Whether the master names any topic to producers.
        deaf: Connections on which nothing is answered any more.
        most_in_memory: Bytes of the largest message that is read from memory, which
            has all that is not flushed; None: memory is not read.
        pool: Connections to it.
    """

    def __init__(
        self,
        stores: Mapping[str, Sequence[int]],
        *,
        half: bool = False,
        per_get: int = 10,
        broker_id: int = BROKER_ID,
        others: Sequence[ScriptedServer] = (),
    ) -> None:
        self._listener = socket.create_server((LOOPBACK, 0))
        self.address = f"{LOOPBACK}:{self._listener.getsockname()[1]}"
        self.advertised = self.address
        self.requests: Counter[str] = Counter()
        self.seen: dict[str, list[Any]] = defaultdict(list)
        self.layout = {topic: list(counts) for topic, counts in stores.items()}
        self.stores = {
            (topic, number): Store()
            for topic, counts in stores.items()
            for number in range(len(counts))
        }
        self.owners: dict[tuple[str, str, int], Registration] = {}
        self.positions: dict[tuple[str, str, int], int] = {}
        self.readable = True
        self.publishable = True
        self.broker_id = broker_id
        self._others = others
        self.deaf: set[Session] = set()
        self.most_in_memory: int | None = None
        self._rpc_timeout_s = 1.0
        self.pool = BrokerPool(self.options)
        self._half = half
        self._per_get = per_get
        self._scripts: dict[str, deque[Action]] = defaultdict(deque)
        self._lock = threading.RLock()
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()
        self.pool.close()
        self._thread.join(10)

    @property
    def options(self) -> ClientOptions:
        """Options of a client of it, which do not wait long."""
        return ClientOptions(
            masters=(self.address,),
            rpc_timeout_s=self._rpc_timeout_s,
            operation_timeout_s=5.0,
        )

    def hurry(self, rpc_timeout_s: float) -> None:
        """Let clients wait so long for an answer from here on."""
        self.pool.close()
        self._rpc_timeout_s = rpc_timeout_s
        self.pool = BrokerPool(self.options)

    def script(self, method: str, *actions: Action) -> None:
        """Say what happens to the next requests of a method."""
        assert method in {*NAMES.values(), "unregister"}
        self._scripts[method].extend(actions)

    def crash(self) -> None:
        """Do as a broker that was killed and started: only what was flushed is left."""
        with self._lock:
            for store in self.stores.values():
                del store.entries[store.end :]
            self.forget_registrations()
            self.cut_all()

    def cut_all(self) -> None:
        """Close all connections."""
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        self._sockets.clear()

    def append(
        self, topic: str, partition_id: int, value: bytes, msg_type: str = ""
    ) -> int:
        """Store a message as it is, and return its offset."""
        return self.store(topic, partition_id, Stored(value, 0), msg_type)

    def store(
        self, topic: str, partition_id: int, stored: Stored, msg_type: str = ""
    ) -> int:
        """Store a message, and return its offset."""
        with self._lock:
            store = self.stores[topic, partition_id // STORE_STEP]
            number = len(store.entries)
            message = pb.TransferedMessage(
                # Descending, and the same in every store.
                messageId=10**9 - number,
                checkSum=checksum(stored.data),
                payLoadData=stored.data,
                flag=stored.flag,
            )
            store.entries.append(Entry(partition_id, message, msg_type))
            return number * ENTRY

    def values(self, topic: str, partition_id: int) -> list[bytes]:
        """Return the stored bytes of a partition."""
        store = self.stores[topic, partition_id // STORE_STEP]
        return [
            entry.message.payLoadData
            for entry in store.entries
            if entry.partition_id == partition_id
        ]

    def owners_of(self, group: str) -> list[str]:
        """Return the clients of a group that are registered."""
        with self._lock:
            return [
                owner.client_id
                for (name, _, _), owner in self.owners.items()
                if name == group
            ]

    def forget_registrations(self) -> None:
        """Do as a broker that was restarted."""
        self.owners.clear()

    # -- serving -----------------------------------------------------------------------

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets.append(sock)
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        session, reader = Session(self, sock), FrameReader()
        with contextlib.suppress(OSError, ProtocolError):  # as a broker: not a word
            while data := sock.recv(65536):
                reader.receive_data(data)
                while (frame := reader.next_frame()) is not None:
                    self._answer(session, frame.serial, frame.payload)

    def _answer(self, session: Session, serial: int, payload: bytes) -> None:
        at, parts = 0, []
        while at < len(payload):
            size = shift = 0
            while True:
                byte = payload[at]
                at += 1
                size |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
            parts.append(payload[at : at + size])
            at += size
        request = parse(pb.RequestBody(), parts[2])
        if not request.timeout or session in self.deaf:
            return  # as a broker: not a word
        if request.method not in REQUESTS:
            session.throw(serial, "Exception")
            return
        body = parse(REQUESTS[request.method](), request.request)
        name = NAMES[request.method]
        if name == "register" and body.opType == UNREGISTER:
            name = "unregister"
        with self._lock:
            self.requests[name] += 1
            self.seen[name].append(body)
            script = self._scripts[name]
            action = script.popleft() if script else passing
            action(session, serial, request.method, body)

    def act(self, body: Any) -> Any:
        """Do what a request asks for, and return the reply."""
        with self._lock:
            return _ACTIONS[type(body)](self, body)

    # -- master ------------------------------------------------------------------------

    @property
    def _brokers(self) -> list[str]:
        return [f"{one.broker_id}:{one.advertised}" for one in self._cluster]

    @property
    def _cluster(self) -> list[ScriptedServer]:
        return [self, *self._others]

    def layout_to_write(self, topic: str) -> str:
        """Return a broker's part of a topic as producers are told it."""
        counts = self.layout[topic]
        return f"{self.broker_id}:{counts[0]}:{len(counts)}"

    def layout_to_read(self, topic: str) -> str:
        """Return a broker's part of a topic as consumers are told it."""
        counts = self.layout[topic]
        return f"{self.broker_id}:{len(counts)}:{counts[0]}:{int(self.readable)}"

    def _register_producer(self, body: Any) -> Any:
        return pb.RegisterResponseM2P(
            success=True, errCode=200, errMsg="OK!", brokerInfos=self._brokers
        )

    def _heartbeat_producer(self, body: Any) -> Any:
        brokers = [one for one in self._cluster if one.publishable]
        topics = [t for t in body.topicList if any(t in one.layout for one in brokers)]
        return pb.HeartResponseM2P(
            success=True,
            errCode=200,
            errMsg="OK!",
            brokerInfos=self._brokers,
            topicInfos=[
                f"{t}#"
                + ",".join(one.layout_to_write(t) for one in brokers if t in one.layout)
                + "#"
                for t in topics
            ],
        )

    def _register_consumer(self, body: Any) -> Any:
        known = {topic for one in self._cluster for topic in one.layout}
        unknown = [t for t in body.topicList if t not in known]
        if unknown:
            return pb.RegisterResponseM2CV2(errCode=431, errMsg=f"{unknown}")
        self._topics = list(body.topicList)
        return pb.RegisterResponseM2CV2(errCode=200, errMsg="OK!")

    def _metadata(self, body: Any) -> Any:
        return pb.GetPartMetaResponseM2C(
            errCode=200,
            errMsg="OK!",
            brokerConfigList=self._brokers,
            topicMetaInfoList=[
                f"{t}#"
                + ",".join(
                    one.layout_to_read(t) for one in self._cluster if t in one.layout
                )
                for t in self._topics
            ],
        )

    def _close(self, body: Any) -> Any:
        return pb.CloseResponseM2C(success=True, errCode=200, errMsg="OK!")

    # -- broker ------------------------------------------------------------------------

    def _send(self, body: Any) -> Any:
        offset = self.store(
            body.topicName,
            body.partitionId,
            Stored(body.data, body.flag),
            body.msgType,
        )
        return pb.SendMessageResponseB2P(
            success=True, errCode=200, errMsg="17", messageId=17, appendOffset=offset
        )

    def _register(self, body: Any) -> Any:
        key = (body.groupName, body.topicName, body.partitionId)
        owner = self.owners.get(key)
        reply = pb.RegisterResponseB2C(success=True, errCode=200, errMsg="OK!")
        if body.opType == UNREGISTER:
            if owner is not None and owner.client_id == body.clientId:
                del self.owners[key]
            return reply
        if owner is not None and owner.client_id != body.clientId:
            return pb.RegisterResponseB2C(
                success=False, errCode=410, errMsg=f"by {owner.client_id}"
            )
        store = self.stores[body.topicName, body.partitionId // STORE_STEP]
        # What is in memory alone counts for whoever reads that.
        end = len(store.entries) if body.qryPriorityId == UNFLUSHED else store.end
        position = min(max(body.currOffset // ENTRY, store.begin), end)
        self.positions[key] = position * ENTRY
        self.owners[key] = Registration(
            body.clientId,
            position,
            frozenset(body.filterCondStr),
            body.qryPriorityId,
        )
        reply.currOffset = position * ENTRY
        reply.maxOffset = end * ENTRY
        return reply

    def _get(self, body: Any) -> Any:
        key = (body.groupName, body.topicName, body.partitionId)
        owner = self.owners.get(key)
        if owner is None:
            return _refused(pb.GetMessageResponseB2C, 411)
        if owner.client_id != body.clientId:
            return _refused(pb.GetMessageResponseB2C, 412)
        store = self.stores[body.topicName, body.partitionId // STORE_STEP]
        owner.position = start = max(owner.position, store.begin)
        left = len(store.entries) - start
        most: int | None = None
        if start >= store.end and owner.priority != FLUSHED:
            most = self.most_in_memory
        if left <= 0 or (start >= store.end and most is None):
            return _refused(pb.GetMessageResponseB2C, 404)
        count = min(left, self._per_get)
        if self._half:
            count = max(1, count // 2)
        owner.position = start + count
        hashes = {java_hash(one) for one in owner.filters}
        some = [
            entry.message
            for entry in store.entries[start : start + count]
            if entry.partition_id == body.partitionId
            and (not owner.filters or java_hash(entry.msg_type) in hashes)
            and (most is None or len(entry.message.payLoadData) <= most)
        ]
        return pb.GetMessageResponseB2C(
            success=True,
            errCode=200,
            errMsg="OK!",
            messages=some,
            currOffset=start * ENTRY,
        )

    def _heartbeat(self, body: Any) -> Any:
        failures = []
        for info in body.partitionInfo:
            topic, _, partition_id = info.rpartition("#")[2].rpartition(":")
            owner = self.owners.get((body.groupName, topic, int(partition_id)))
            if owner is None:
                failures.append(f"411:{info}")
            elif owner.client_id != body.clientId:
                failures.append(f"412:{info}")
            else:
                priority = body.HasField("qryPriorityId")
                owner.priority = body.qryPriorityId if priority else None
        return pb.HeartBeatResponseB2C(
            success=True,
            errCode=200,
            errMsg="OK!",
            hasPartFailure=bool(failures),
            failureInfo=failures,
        )

    def _commit(self, body: Any) -> Any:
        key = (body.groupName, body.topicName, body.partitionId)
        owner = self.owners.get(key)
        if owner is None or owner.client_id != body.clientId:
            return _refused(pb.CommitOffsetResponseB2C, 401)
        store = self.stores[body.topicName, body.partitionId // STORE_STEP]
        return pb.CommitOffsetResponseB2C(
            success=True,
            errCode=200,
            errMsg="OK!",
            currOffset=owner.position * ENTRY,
            maxOffset=store.end * ENTRY,
        )


def _refused(kind: type[Any], code: int) -> Any:
    return kind(success=False, errCode=code, errMsg="scripted", currOffset=-1)


_ACTIONS: dict[type[Any], Callable[[ScriptedServer, Any], Any]] = {
    pb.RegisterRequestP2M: ScriptedServer._register_producer,
    pb.HeartRequestP2M: ScriptedServer._heartbeat_producer,
    pb.CloseRequestP2M: ScriptedServer._close,
    pb.CloseRequestC2M: ScriptedServer._close,
    pb.RegisterRequestC2MV2: ScriptedServer._register_consumer,
    pb.GetPartMetaRequestC2M: ScriptedServer._metadata,
    pb.SendMessageRequestP2B: ScriptedServer._send,
    pb.RegisterRequestC2B: ScriptedServer._register,
    pb.HeartBeatRequestC2B: ScriptedServer._heartbeat,
    pb.GetMessageRequestC2B: ScriptedServer._get,
    pb.CommitOffsetRequestC2B: ScriptedServer._commit,
}
