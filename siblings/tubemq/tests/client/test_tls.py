# SPDX-License-Identifier: Apache-2.0
"""TLS: whom a client trusts, what it shows, and that it never does without."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from siblings.tubemq.tests.scripted_server import LOOPBACK, ScriptedServer
from spark_topics.client.reached import note_reached
from tests.support.certificates import Authority, Pair, days
from tests.support.fixtures import files_rest as files_rest
from tests.support.tls_front import TlsFront, server_context
from tests.support.waiting import join
from tubemq_spark.client.brokers import BrokerPool, register_all
from tubemq_spark.client.connection import connect
from tubemq_spark.client.masters import Masters
from tubemq_spark.errors import TlsError, TransportError
from tubemq_spark.options import ClientOptions, WriteOptions
from tubemq_spark.options.secret import Secret
from tubemq_spark.options.tls import TlsOptions
from tubemq_spark.sink.rows import Row
from tubemq_spark.sink.sender import Sender
from tubemq_spark.wire import messages
from tubemq_spark.wire.attributes import Stored

PASSWORD = "of-the-store"

#: How a store of Java begins.
JKS = b"\xfe\xed\xfe\xed\0\0\0\2"


@pytest.fixture(autouse=True)
def _files_rest(files_rest: None) -> None:
    """In all of these tests."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server_pair(authority: Authority) -> Pair:
    return authority.issue("server")


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer({"t": [1]}) as server:
        yield server


@pytest.fixture
def front(server: ScriptedServer, server_pair: Pair) -> Iterator[TlsFront]:
    """The server's port for TLS, which the master names over TLS."""
    with TlsFront(server.address, server_context(server_pair)) as front:
        server.advertised = front.address
        yield front


def trusting(authority: Authority, **more: object) -> TlsOptions:
    trusted = TlsOptions(enable=True, trust_path=str(authority.certificate))
    return replace(trusted, **more)


def options_of(front: TlsFront, tls: TlsOptions) -> ClientOptions:
    return ClientOptions(
        masters=(front.address,),
        rpc_timeout_s=20.0,
        connect_timeout_s=2.0,
        operation_timeout_s=5.0,
        tls=tls,
    )


def ask(address: str, tls: TlsOptions | None, timeout_s: float = 20.0) -> int:
    """Connect, send a message, and return its offset."""
    with connect(
        address, connect_timeout_s=timeout_s, timeout_s=timeout_s, tls=tls
    ) as connection:
        request = messages.send("p", "t", 0, Stored(b"v", 0))
        return connection.ask(request).appendOffset


def test_masters_and_brokers_are_reached_by_tls(
    server: ScriptedServer, front: TlsFront, authority: Authority
):
    options = options_of(front, trusting(authority))
    sender = Sender(BrokerPool(options), WriteOptions(options))
    sender.send([Row("t", Stored(b"%d" % n, 0), *[None] * 4) for n in range(10)])
    assert sender.finish().messages == 10
    sender.close()
    with Masters(options) as masters:
        view = masters.readable("g", ["t"])
    pool = BrokerPool(options)
    found = register_all(
        pool, view.brokers[1], "me", ["g"], view.topics["t"].partitions
    )
    assert [one.end for one in found.values()] == [280]
    pool.close()
    assert not front.failures


def test_a_broker_list_does_not_lead_back_to_plain(
    server: ScriptedServer, front: TlsFront, authority: Authority
):
    """A master that names the other port, or that was lied to."""
    server.advertised = server.address
    options = options_of(front, trusting(authority))
    with Masters(options) as masters:
        view = masters.readable("g", ["t"])
    pool = BrokerPool(options)
    with pytest.raises(TlsError, match="speaks TubeMQ without TLS at this port"):
        register_all(pool, view.brokers[1], "me", ["g"], view.topics["t"].partitions)
    assert server.requests["register"] == 0


def test_a_server_of_an_unknown_authority_is_refused(
    front: TlsFront, tmp_path: Path, server: ScriptedServer
):
    other = Authority(tmp_path, "other")
    with (
        Masters(options_of(front, trusting(other))) as masters,
        pytest.raises(TlsError, match=r"not trusted on .*`tls\.truststore\.path`"),
    ):
        masters.readable("g", ["t"])
    assert not server.requests


@pytest.mark.parametrize(
    ("hosts", "ends", "text"),
    [
        (("elsewhere.test",), 1, f"is not for {LOOPBACK}"),
        ((LOOPBACK,), -1, "has expired"),
    ],
)
def test_a_certificate_of_another_name_or_time_is_refused(
    server: ScriptedServer, authority: Authority, hosts: tuple[str], ends: int, text
):
    pair = authority.issue("wrong", hosts=hosts, ends=days(ends))
    with TlsFront(server.address, server_context(pair)) as front:
        with pytest.raises(TlsError, match=text):
            ask(front.address, trusting(authority))
        if ends > 0:
            assert ask(front.address, trusting(authority, verify_hostname=False)) == 0


def test_whoever_asks_for_it_trusts_anybody_and_is_warned(
    front: TlsFront, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    tls = trusting(Authority(tmp_path, "other"), allow_insecure=True)
    with caplog.at_level(logging.WARNING):
        assert ask(front.address, tls) == 0
    assert "not looked at (tls.allow.insecure)" in caplog.text


@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
def test_a_client_shows_its_certificate(
    server: ScriptedServer, server_pair: Pair, authority: Authority, kind: str
):
    client = authority.issue("client", hosts=())
    tls = trusting(authority, identity_path=str(client.combined()))
    if kind == "PKCS12":
        secret = Secret(PASSWORD, "x")
        tls = TlsOptions(
            enable=True,
            store_type="PKCS12",
            trust_path=str(authority.trust_store(PASSWORD)),
            trust_store_password=secret,
            identity_path=str(client.key_store(PASSWORD)),
            key_store_password=secret,
        )
    context = server_context(server_pair, clients=authority)
    with TlsFront(server.address, context) as front:
        assert ask(front.address, tls) == 0
        # A reset may overtake the server's word: then it is asked again.
        nobody = options_of(front, trusting(authority))
        with (
            Masters(nobody) as masters,
            pytest.raises(TlsError, match=r"client cert.*set `tls\.keystore\.path`\."),
        ):
            masters.readable("g", ["t"])


def test_files_that_are_renewed_serve_the_next_connection(
    server: ScriptedServer, tmp_path: Path
):
    """Without a restart of the process, whose options name the same files."""
    trust, identity = tmp_path / "trust.pem", tmp_path / "identity.pem"
    tls = TlsOptions(enable=True, trust_path=str(trust), identity_path=str(identity))
    for number in range(2):
        authority = Authority(tmp_path / str(number), f"authority{number}")
        pair = authority.issue("server")
        trust.write_bytes(authority.certificate.read_bytes())
        combined = authority.issue(f"client{number}", hosts=()).combined()
        identity.write_bytes(combined.read_bytes())
        context = server_context(pair, clients=authority)
        with TlsFront(server.address, context) as front:
            assert ask(front.address, tls) == 28 * number


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            b"\xfe\xed\xfe\xed\0\0\0\2",
            r"no certificate in PEM.*tls\.store\.type=PKCS12",
        ),
        (b"hello", "no certificate in PEM"),
        (None, r"tls\.truststore\.path names .*cannot be read"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    front: TlsFront, tmp_path: Path, content: bytes | None, text: str
):
    path = tmp_path / "trust"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TlsError, match=text):
        ask(front.address, TlsOptions(enable=True, trust_path=str(path)))


def test_a_store_of_java_is_to_be_converted(front: TlsFront, tmp_path: Path):
    path = tmp_path / "trust.jks"
    path.write_bytes(JKS)
    tls = TlsOptions(enable=True, trust_path=str(path), store_type="PKCS12")
    with pytest.raises(TlsError, match="keytool -importkeystore"):
        ask(front.address, tls)


# -- the wrong port --------------------------------------------------------------------


def test_a_port_for_tls_is_told_from_one_without(
    server: ScriptedServer, front: TlsFront, authority: Authority
):
    note_reached(front.address, by_tls=False)  # another server had its port once
    with Masters(options_of(front, trusting(authority))) as masters:
        masters.readable("g", ["t"])
    server.requests.clear()
    with pytest.raises(TlsError, match=r"wants TLS at this port. Set `tls\.enable`"):
        ask(front.address, None)
    plain = options_of(front, TlsOptions())
    with Masters(plain) as masters, pytest.raises(TlsError, match="wants TLS"):
        masters.readable("g", ["t"])
    assert not server.requests


def test_a_port_without_tls_is_told_from_a_silent_one(
    server: ScriptedServer, authority: Authority
):
    """Servers say nothing to whoever begins with TLS at such a port."""
    with pytest.raises(TlsError, match=r"speaks TubeMQ without TLS at this port.*8716"):
        ask(server.address, trusting(authority), timeout_s=0.5)
    assert not server.requests


@contextlib.contextmanager
def dripping(data: bytes) -> Iterator[str]:
    """A server that sends a byte now and then, whoever connects; its address."""
    over = threading.Event()

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                with sock, contextlib.suppress(OSError):
                    for byte in data:
                        sock.sendall(bytes([byte]))
                        if over.wait(0.05):
                            return
                    over.wait()

    with socket.create_server((LOOPBACK, 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield f"{LOOPBACK}:{listener.getsockname()[1]}"
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
    join(thread, "the dripping server")


@pytest.mark.parametrize(
    "data", [b"", b"\x16\x03\x03\x40\x00" + bytes(1000)], ids=["silent", "slow"]
)
def test_a_handshake_has_an_end_and_may_be_tried_again(
    authority: Authority, data: bytes
):
    with (
        dripping(data) as address,
        pytest.raises(TransportError, match=r"TLS handshake") as caught,
    ):
        ask(address, trusting(authority), timeout_s=0.3)
    if data:
        assert caught.value.retriable


def test_one_that_was_reached_may_go_down(authority: Authority):
    """Then it hangs up in the handshake: no sign of a wrong port any more."""
    tls = trusting(authority)
    with socket.create_server((LOOPBACK, 0)) as listener:
        address = f"{LOOPBACK}:{listener.getsockname()[1]}"

        def hang_up() -> None:
            for _ in range(2):
                sock, _ = listener.accept()
                sock.recv(10_000)
                sock.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        for is_known in (False, True):
            if is_known:
                note_reached(address, by_tls=True)
            with pytest.raises(TlsError, match="closed the connection") as caught:
                ask(address, tls)
            assert caught.value.retriable is is_known
        join(thread, "the server that hangs up")
