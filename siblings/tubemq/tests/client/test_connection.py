# SPDX-License-Identifier: Apache-2.0
"""Connections: calls in flight, silence, exceptions, and what ends them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from siblings.tubemq.tests.scripted_server import (
    LOOPBACK,
    ScriptedServer,
    cut,
    passing,
    refuse,
    silence,
    throw,
    twice,
)
from siblings.tubemq.tests.wire import golden
from tubemq_spark.client.connection import Connection, connect
from tubemq_spark.errors import (
    CallTimeoutError,
    ProtocolError,
    ServerError,
    TransportError,
)
from tubemq_spark.wire import messages
from tubemq_spark.wire.attributes import Stored


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer({"t": [1]}) as server:
        yield server


@pytest.fixture
def connection(server: ScriptedServer) -> Iterator[Connection]:
    with connect(server.address, connect_timeout_s=3, timeout_s=0.5) as connection:
        yield connection


def send(value: bytes = b"v") -> messages.Request:
    return messages.send("p", "t", 0, Stored(value, 0))


def test_many_calls_are_in_flight(server: ScriptedServer, connection: Connection):
    calls = connection.call_all([send(b"%d" % n) for n in range(500)])
    offsets = [connection.reply(call).appendOffset for call in calls]
    assert offsets == [28 * n for n in range(500)]
    assert server.values("t", 0)[499] == b"499"


def test_a_request_that_is_passed_over_ends_in_time(
    server: ScriptedServer, connection: Connection
):
    server.script("send", silence)
    passed_over = connection.call(send())
    while not passed_over.done():
        assert connection.ask(send()).errCode == 200
    with pytest.raises(CallTimeoutError, match=r"send within 0\.5 s") as caught:
        connection.reply(passed_over)
    assert caught.value.call == "send"
    assert connection.is_open
    assert connection.ask(send()).errCode == 200


def test_nothing_more_is_asked_of_a_server_that_is_silent(
    server: ScriptedServer, connection: Connection
):
    """It is deaf, or gone without a word: another connection may be heard."""
    server.script("send", passing, silence)
    assert connection.ask(send()).errCode == 200
    for _ in range(2):
        with pytest.raises(CallTimeoutError, match=r"send within 0\.5 s"):
            connection.ask(send())
    assert not connection.is_open
    assert server.requests["send"] == 2


def test_two_replies_count_once(server: ScriptedServer, connection: Connection):
    server.script("send", twice)
    assert connection.ask(send()).errCode == 200
    assert connection.ask(send()).appendOffset == 28


@pytest.mark.parametrize(
    ("action", "retriable", "text"),
    [
        (refuse(503, "later"), True, "503 SERVICE_UNAVAILABLE: later"),
        (refuse(400, "empty"), False, "400 BAD_REQUEST: empty"),
        (refuse(400, "Failed to lock"), True, "400 BAD_REQUEST"),
        (refuse(777), False, "777 CODE_777"),
        (throw("rv.StandbyException"), True, "StandbyException"),
        (throw("rv.ServerNotReadyException", 2), True, "ServerNotReadyException"),
        (throw("rv.Exception"), False, "Exception: scripted"),
    ],
)
def test_refusals(server, connection, action, retriable: bool, text: str):
    server.script("send", action)
    with pytest.raises(ServerError, match=text) as caught:
        connection.ask(send())
    assert caught.value.retriable == retriable
    assert caught.value.broker == server.address


def test_a_cut_ends_all_calls(server: ScriptedServer, connection: Connection):
    server.script("send", passing, cut)
    calls = connection.call_all([send(), send(), send()])
    assert connection.reply(calls[0]).errCode == 200
    for call in calls[1:]:
        with pytest.raises(TransportError, match="closed"):
            connection.reply(call)
    assert not connection.is_open
    with pytest.raises(TransportError):
        connection.ask(send())


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400\r\n", b"\x15\x03\x03\x00\x02"])
def test_another_protocol_is_said(garbage: bytes):
    with socket.create_server((LOOPBACK, 0)) as listener:

        def serve() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.recv(1000)
                sock.sendall(garbage)
                sock.recv(1000)

        thread = threading.Thread(target=serve)
        thread.start()
        address = f"{LOOPBACK}:{listener.getsockname()[1]}"
        with (
            connect(address, connect_timeout_s=3, timeout_s=5) as connection,
            pytest.raises(ProtocolError, match=f"From {address}.*RPC port"),
        ):
            connection.ask(send())
        thread.join(10)
        assert not thread.is_alive()


def test_nobody_there():
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(TransportError, match="cannot be reached"):
        connect(f"{LOOPBACK}:{port}", connect_timeout_s=1, timeout_s=1)


def test_a_token_is_in_no_error(server: ScriptedServer, connection: Connection):
    server.script("send", refuse(415, "token"))
    token = messages.Token(golden.VISIT_TOKEN, "very-secret")
    request = messages.send("p", "t", 0, Stored(b"v", 0), token=token)
    with pytest.raises(ServerError, match="415") as caught:
        connection.ask(request)
    assert "very-secret" not in repr(vars(caught.value))
