# SPDX-License-Identifier: Apache-2.0
"""Servers that are silent, slow or deaf, or send what nobody asked for: one error."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from siblings.tubemq.tests.scripted_server import (
    LOOPBACK,
    REPLIES,
    Action,
    ScriptedServer,
    Session,
    refuse,
    silence,
)
from tests.support.waiting import join
from tubemq_spark.client.brokers import BrokerPool, Consumer, register_all
from tubemq_spark.client.connection import connect
from tubemq_spark.client.masters import Masters, Producer
from tubemq_spark.errors import (
    CallTimeoutError,
    NoMasterError,
    ProtocolError,
    ServerError,
    TransportError,
    TubeMQError,
)
from tubemq_spark.options import ClientOptions, ReadOptions, WriteOptions
from tubemq_spark.sink.rows import Row
from tubemq_spark.sink.sender import Sender
from tubemq_spark.source.batch_plan import plan_batch
from tubemq_spark.source.range_reader import RangeReader
from tubemq_spark.wire import messages
from tubemq_spark.wire.attributes import Stored
from tubemq_spark.wire.frames import (
    CHUNK_BYTES,
    MAX_CHUNKS,
    MAX_FRAME_BYTES,
    TOKEN,
    encode_frame,
)
from tubemq_spark.wire.metadata import Partition

HEADER = struct.Struct(">IiI")
LENGTH = struct.Struct(">i")
MIB = 1024 * 1024

#: More than any test lasts.
LONG_S = 60.0

SEND = messages.send("p", "t", 0, Stored(b"v", 0))


# -- at each step ----------------------------------------------------------------------


def ask_metadata(server: ScriptedServer, options: ClientOptions) -> None:
    with Masters(options) as masters:
        masters.readable("g", ["t"])


def ask_as_producer(server: ScriptedServer, options: ClientOptions) -> None:
    with Masters(options) as masters:
        Producer(masters, ["t"]).view()


def ask_edges(server: ScriptedServer, options: ClientOptions) -> None:
    pool = BrokerPool(options)
    try:
        register_all(pool, server.address, "me", ["g"], [Partition("t", 1, 0)])
    finally:
        pool.close()


def read(server: ScriptedServer, client: ClientOptions) -> None:
    server.append("t", 0, b"x")
    options = ReadOptions(client, ("t",), group="g")
    pool = BrokerPool(client)
    try:
        (task,) = plan_batch(pool, options)
        list(RangeReader(pool, task, options).pieces())
    finally:
        pool.close()


def write(server: ScriptedServer, options: ClientOptions) -> None:
    pool = BrokerPool(options)
    sender = Sender(pool, WriteOptions(options, send_timeout_s=0.5))
    try:
        sender.send([Row("t", Stored(b"x", 0), None, None, None, None)])
        sender.finish()
    finally:
        sender.close()
        pool.close()


STEPS: dict[str, Callable[[ScriptedServer, ClientOptions], None]] = {
    "consumer register": ask_metadata,
    "partition metadata": ask_metadata,
    "consumer close": ask_metadata,
    "producer register": ask_as_producer,
    "producer heartbeat": ask_as_producer,
    "register": ask_edges,
    "get": read,
    "commit": read,
    "send": write,
}
each_step = pytest.mark.parametrize("step", STEPS)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer({"t": [1]}) as server:
        yield server


def patient(server: ScriptedServer) -> ClientOptions:
    """However busy the machine is."""
    return replace(server.options, rpc_timeout_s=LONG_S, operation_timeout_s=0.5)


def drip(session: Session, serial: int, method: int, body: Any) -> None:
    """Answer a byte now and then, and meanwhile nothing else."""
    with contextlib.suppress(OSError):  # nobody listens any more
        for byte in encode_frame(serial, bytes(1000)):
            session.sock.sendall(bytes([byte]))
            threading.Event().wait(0.05)


def raw(data: bytes) -> Action:
    """Answer these bytes."""

    def act(session: Session, serial: int, method: int, body: Any) -> None:
        with contextlib.suppress(OSError):
            session.sock.sendall(data)

    return act


@pytest.mark.parametrize(
    ("step", "action"),
    [
        *((step, silence) for step in STEPS),
        *((step, drip) for step in ("consumer register", "get", "send")),
    ],
)
def test_no_answer_is_said_in_time(server: ScriptedServer, step: str, action: Action):
    server.script(step, *[action] * 100)
    hasty = replace(server.options, rpc_timeout_s=0.2, operation_timeout_s=0.2)
    with pytest.raises(TransportError, match="did not answer the") as caught:
        STEPS[step](server, hasty)
    assert isinstance(caught.value, (CallTimeoutError, NoMasterError))
    said = f"{server.address} did not answer the {step} within 0.2 s"
    assert said in caught.value.message


@each_step
@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        HEADER.pack(TOKEN, 1, 0),
        HEADER.pack(TOKEN, 1, 2**31),
        HEADER.pack(TOKEN, 1, 1) + LENGTH.pack(-5),
        HEADER.pack(TOKEN, 1, 2) + LENGTH.pack(MAX_FRAME_BYTES + 1),
        encode_frame(1, b"\xff" * 50),
    ],
    ids=["http", "no-chunk", "chunks", "negative", "large", "no-reply"],
)
def test_what_is_no_answer_is_said_at_once(
    server: ScriptedServer, step: str, data: bytes
):
    server.script(step, *[raw(data)] * 100)
    with pytest.raises(ProtocolError, match=f"From {server.address}: "):
        STEPS[step](server, patient(server))
    assert server.requests[step] == 1


@each_step
def test_what_a_server_says_is_short_and_harmless(server: ScriptedServer, step: str):
    # After a commit that fails a task begins anew.
    server.script(step, *[refuse(400, "\x1b[2J\r\n" + "x" * MIB)] * 100)
    with pytest.raises(ServerError) as caught:
        STEPS[step](server, patient(server))
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 800
    assert r"\x1b[2J\r\n" in caught.value.message


def replying(**fields: Any) -> Action:
    """Answer with other fields than those that are so."""

    def act(session: Session, serial: int, method: int, body: Any) -> None:
        reply = session.server.act(body)
        for name, value in fields.items():
            setattr(reply, name, value)
        session.answer(serial, method, reply)

    return act


@pytest.mark.parametrize(
    ("step", "fields"),
    [
        ("register", {"currOffset": -28}),
        ("register", {"maxOffset": 27}),
        ("get", {"currOffset": 1}),
        ("commit", {"currOffset": 2**62 + 1}),
        ("commit", {"currOffset": -1}),
    ],
)
def test_an_offset_that_is_none_is_said(
    server: ScriptedServer, step: str, fields: dict[str, int]
):
    """Nobody goes on from there: a loop could take a byte at a time."""
    server.script(step, *[replying(**fields)] * 3)
    with pytest.raises(ProtocolError, match="offsets are multiples of 28"):
        STEPS[step](server, patient(server))


def test_nobody_waits_for_weeks_because_a_broker_says_so(server: ScriptedServer):
    server.append("t", 0, b"x")
    connection = server.pool.connection(server.address)
    consumer = Consumer(connection, "me", "g", Partition("t", 1, 0))
    consumer.register(0)

    def slow_down(session: Session, serial: int, method: int, body: Any) -> None:
        reply = REPLIES[method](
            success=False, errCode=452, errMsg="later", minLimitTime=2**31 - 1
        )
        session.answer(serial, method, reply)

    server.script("get", slow_down)
    assert consumer.fetch().pause_s <= 10.0


def test_a_planner_of_many_stores_does_not_ask_all_at_once():
    count = 1200
    with ScriptedServer({"t": [1] * count}) as server:
        partitions = [Partition("t", 1, 10_000 * n) for n in range(count)]
        pool = BrokerPool(replace(server.options, rpc_timeout_s=LONG_S))
        found = register_all(pool, server.address, "me", ["g"], partitions)
        assert list(found) == partitions
        # Each is let go, too.
        pool.connection(server.address).ask(SEND)
        assert not server.owners
        pool.close()


# -- what passes over a connection -----------------------------------------------------


@contextlib.contextmanager
def peer(act: Callable[[socket.socket], None], receive: int = 1) -> Iterator[str]:
    """A server that does something with its first connection; its address."""

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            sock, _ = listener.accept()
            with sock:
                sock.recv(receive)
                act(sock)

    with socket.create_server((LOOPBACK, 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield f"{LOOPBACK}:{listener.getsockname()[1]}"
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        join(thread, "the bad peer", LONG_S)


def failure(address: str, timeout_s: float = 0.3) -> TubeMQError:
    """How a call there fails."""
    with (
        connect(address, connect_timeout_s=3, timeout_s=timeout_s) as connection,
        pytest.raises(TubeMQError) as caught,
    ):
        connection.ask(SEND)
    return caught.value


def test_what_is_announced_takes_no_memory():
    def announce(sock: socket.socket) -> None:
        sock.sendall(HEADER.pack(TOKEN, 1, MAX_CHUNKS) + LENGTH.pack(MAX_FRAME_BYTES))
        sock.sendall(bytes(MIB))
        sock.recv(1)
        sock.recv(1000)

    with peer(announce, 1000) as address:
        tracemalloc.start()
        try:
            assert isinstance(failure(address), CallTimeoutError)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 8 * MIB


def test_the_largest_answer_is_held_few_times():
    chunk = LENGTH.pack(CHUNK_BYTES) + b"\x02\x08\x01" + bytes(CHUNK_BYTES - 3)

    def answer(sock: socket.socket) -> None:
        sock.sendall(HEADER.pack(TOKEN, 1, MAX_CHUNKS))
        for _ in range(MAX_CHUNKS):
            sock.sendall(chunk)
        sock.recv(1000)

    with peer(answer) as address:
        tracemalloc.start()
        try:
            error = failure(address, timeout_s=LONG_S)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert isinstance(error, ProtocolError)
    assert peak < 3 * MAX_FRAME_BYTES


def test_answers_to_nobody_do_not_put_off_the_end():
    """They come without an end, and without a pause."""
    reply = encode_frame(77, b"\x02\x08\x01\x02\x08\x00\x04\x08\x0d\x12\x00") * 1000

    def babble(sock: socket.socket) -> None:
        # The other side may read all of it between its shutdown and its close: then the
        # system there neither opens the window again nor resets, for a minute.
        sock.settimeout(3)
        while True:
            sock.sendall(reply)

    with peer(babble) as address:
        assert isinstance(failure(address), CallTimeoutError)


def test_an_answer_of_many_small_chunks_is_one():
    with ScriptedServer({"t": [1]}) as server:

        def shred(session: Session, serial: int, method: int, body: Any) -> None:
            frame = bytearray()
            whole = session.server.act(body)
            sent: list[bytes] = []
            keeper = Session(session.server, _Keeper(sent))  # type: ignore[arg-type]
            keeper.answer(serial, method, whole)
            payload = b"".join(sent)[16:]
            frame += HEADER.pack(TOKEN, serial, 2 * len(payload))
            for byte in payload:
                frame += LENGTH.pack(0) + LENGTH.pack(1) + bytes([byte])
            session.sock.sendall(frame)

        server.script("send", shred)
        connection = server.pool.connection(server.address)
        assert connection.ask(SEND).errCode == 200


class _Keeper:
    """Keeps what is sent."""

    def __init__(self, sent: list[bytes]) -> None:
        self.sendall = sent.append


def test_a_peer_that_takes_nothing_is_given_up():
    """Long before what is below would."""
    over = threading.Event()
    large = messages.send("p", "t", 0, Stored(bytes(16 * MIB), 0))
    with (
        peer(lambda sock: over.wait(LONG_S) and None) as address,
        connect(address, connect_timeout_s=3, timeout_s=0.3) as connection,
    ):
        calls = connection.call_all([large] * 4)
        with pytest.raises(TransportError, match=r"did not answer|taken nothing"):
            connection.reply(calls[0])
        with pytest.raises(TransportError):
            connection.ask(SEND)
        assert not connection.is_open
        over.set()
