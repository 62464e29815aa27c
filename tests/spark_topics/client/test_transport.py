# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import array
import contextlib
import fcntl
import hashlib
import itertools
import os
import select
import shutil
import socket
import subprocess
import termios
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any

import pytest

from spark_topics.client import transport as module
from spark_topics.client.tls import Tls
from spark_topics.client.transport import Transport, open_transport
from tests.spark_topics.network import NETWORK, TlsOptions
from tests.spark_topics.numbers import TlsError, TransportError
from tests.support.certificates import Authority, Pair
from tests.support.tls_front import server_context
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def server(authority: Authority) -> Pair:
    """What the server shows."""
    return authority.issue("server")


@pytest.fixture
def last_word_s() -> float:
    """How long a sender waits for the last word; a test may have it as parameter."""
    return 1.0


@pytest.fixture
def tls(authority: Authority, last_word_s: float) -> Tls:
    """How a client connects."""
    trusted = TlsOptions(trust_certificates_path=str(authority.certificate))
    return Tls(trusted, "127.0.0.1", last_word_s)


@pytest.fixture
def tls_ends(
    listener: socket.socket, tls: Tls, server: Pair
) -> Iterator[tuple[Transport, socket.socket]]:
    """The same by TLS."""

    def accept() -> socket.socket:
        sock, _ = listener.accept()
        sock.settimeout(60)
        return server_context(server).wrap_socket(
            sock, server_side=True, suppress_ragged_eofs=False
        )

    with ThreadPoolExecutor(1) as executor:
        accepted = executor.submit(accept)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        transport = open_transport(address, 60, NETWORK, tls)
        peer = accepted.result(60)
    with peer:
        yield transport, peer
    transport.shutdown()
    transport.close()


@pytest.fixture
def tcp_ends(listener: socket.socket) -> Iterator[tuple[Transport, socket.socket]]:
    """A transport and the other end of it."""
    transport = open_transport(f"127.0.0.1:{listener.getsockname()[1]}", 60, NETWORK)
    peer, _ = listener.accept()
    with peer:
        yield transport, peer
    transport.shutdown()
    transport.close()


@pytest.fixture(params=["tcp", "tls"])
def ends(request: pytest.FixtureRequest) -> tuple[Transport, socket.socket]:
    """Each of them in turn."""
    found: tuple[Transport, socket.socket] = request.getfixturevalue(
        f"{request.param}_ends"
    )
    return found


def test_bytes_pass_in_both_directions(ends: tuple[Transport, socket.socket]) -> None:
    """What one end sends, the other receives; nothing within the time is 0."""
    transport, peer = ends
    buffer = bytearray(100)
    assert transport.receive(memoryview(buffer), 0.01) == 0
    transport.send(b"up")
    assert peer.recv(10) == b"up"
    peer.sendall(b"down")
    assert transport.receive(memoryview(buffer)[10:], 60) == 4
    assert bytes(buffer).strip(b"\0") == b"down"


def test_a_peer_that_takes_nothing_is_given_up(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that stands still must not hold a writer for ever."""
    monkeypatch.setattr(module, "SEND_TIMEOUT_S", 0.05)
    transport = open_transport(f"127.0.0.1:{listener.getsockname()[1]}", 60, NETWORK)
    peer, _ = listener.accept()
    outcome: list[TransportError] = []

    def send() -> None:
        try:
            transport.send(bytes(64 << 20))  # more than sockets take in
        except TransportError as error:
            outcome.append(error)

    thread = threading.Thread(target=send, daemon=True)
    with peer:
        thread.start()
        thread.join(60)
        assert not thread.is_alive(), "still waits for a peer that takes nothing"
    transport.shutdown()
    transport.close()
    assert "timed out" in str(outcome[0])


def test_a_peer_that_takes_a_large_entry_slowly(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As through a slow link: as long as it goes on, it is waited for."""
    size, clock = 1 << 20, SimpleNamespace(now=0.0)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    transport = open_transport(f"127.0.0.1:{listener.getsockname()[1]}", 60, NETWORK)
    peer, _ = listener.accept()
    assert isinstance(transport, module.TcpTransport)

    class Slow:
        """A socket that takes 8 KiB, and then has no room for a second."""

        def __init__(self) -> None:
            self.taken, self.has_room = 0, False

        def send(self, data: memoryview) -> int:
            self.has_room = not self.has_room
            if not self.has_room:
                clock.now += 1
                raise BlockingIOError
            self.taken += len(data[:8192])
            return len(data[:8192])

    slow = Slow()
    monkeypatch.setattr(transport._waits, "_socket", slow)
    with peer:
        transport.send(bytes(size))
        assert slow.taken == size
        assert clock.now > module.SEND_TIMEOUT_S
    transport.shutdown()
    transport.close()


def test_an_end_of_the_stream_is_an_error(
    ends: tuple[Transport, socket.socket],
) -> None:
    """A broker that closes the connection is named."""
    transport, peer = ends
    peer.close()
    with pytest.raises(TransportError, match=r"127\.0\.0\.1:\d+ closed the connection"):
        transport.receive(memoryview(bytearray(9)), 60)


def test_shutdown_wakes_who_receives(ends: tuple[Transport, socket.socket]) -> None:
    """A thread that waits for bytes comes back with an error, and does so at once."""
    transport, _ = ends
    errors: list[BaseException] = []

    def receive() -> None:
        try:
            transport.receive(memoryview(bytearray(9)), 60)
        except TransportError as error:
            errors.append(error)

    thread = threading.Thread(target=receive)
    thread.start()
    transport.shutdown()
    thread.join(60)
    assert not thread.is_alive()
    assert len(errors) == 1


def test_a_closed_transport_gives_transport_errors(
    ends: tuple[Transport, socket.socket],
) -> None:
    """Late calls fail as any other on a broken connection."""
    transport, _ = ends
    transport.shutdown()
    transport.close()
    transport.shutdown()
    with pytest.raises(TransportError):
        transport.send(b"late")
    with pytest.raises(TransportError):
        transport.receive(memoryview(bytearray(9)), 1)


def test_nobody_listens(listener: socket.socket) -> None:
    """The error names the address, the reason and the option, and may be retried."""
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    with pytest.raises(TransportError, match="refused") as caught:
        open_transport(address, 60, NETWORK)
    assert address in str(caught.value)
    assert "Check `url`." in str(caught.value)
    assert caught.value.retriable
    assert caught.value.broker == address


@pytest.mark.parametrize(
    "address",
    ["a..b:6650", f"{'x' * 70}.invalid:6650", "127.0.0.1:1180591620717411303424"],
)
def test_a_name_that_cannot_be_one(address: str) -> None:
    """Names that no resolver takes, and ports, are as unreachable as others."""
    with pytest.raises(TransportError, match="cannot be reached"):
        open_transport(address, 60, NETWORK)


def test_an_ipv6_address_stands_in_brackets() -> None:
    """The brackets of a URL are not part of the address."""
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 here")
    with listener:
        transport = open_transport(f"[::1]:{listener.getsockname()[1]}", 60, NETWORK)
        listener.settimeout(60)
        peer, _ = listener.accept()
        with peer:
            transport.send(b"up")
            assert peer.recv(10) == b"up"
        transport.close()


def test_a_connection_that_is_reset_at_once(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some systems then refuse to set options of its socket."""
    made: list[socket.socket] = []
    connect = socket.create_connection

    class Reset(socket.socket):
        def setsockopt(self, *_: object) -> None:  # type: ignore[override]
            raise OSError(22, "Invalid argument")

    def connect_and_be_reset(*given: Any) -> socket.socket:
        made.append(Reset(fileno=connect(*given).detach()))
        return made[-1]

    monkeypatch.setattr(socket, "create_connection", connect_and_be_reset)
    with pytest.raises(TransportError, match="Invalid argument"):
        open_transport(f"127.0.0.1:{listener.getsockname()[1]}", 60, NETWORK)
    assert made[0].fileno() == -1


class TestTls:
    """What is different where the bytes are encrypted."""

    def test_more_than_there_is_room_for(
        self, tls_ends: tuple[Transport, socket.socket]
    ) -> None:
        """The socket knows nothing of what is decrypted already."""
        transport, peer = tls_ends
        sent = os.urandom(50_000)
        peer.sendall(sent)
        room = memoryview(bytearray(7_000))
        found = bytearray()
        while len(found) < len(sent):
            size = transport.receive(room, 60)
            assert size
            found += room[:size]
        assert found == sent
        assert transport.receive(room, 0.01) == 0

    def test_much_in_both_directions(
        self, tls_ends: tuple[Transport, socket.socket]
    ) -> None:
        """Records of one direction come out of the other one as they were."""
        transport, peer = tls_ends
        block = os.urandom(1 << 20)
        count = 48

        def echo() -> None:
            left = count * len(block)
            while left:
                data = peer.recv(1 << 18)
                assert data
                left -= len(data)
                peer.sendall(data)

        def send() -> None:
            for _ in range(count):
                transport.send(block)

        with ThreadPoolExecutor(2) as executor:
            tasks = [executor.submit(echo), executor.submit(send)]
            room = memoryview(bytearray(1 << 18))
            seen, size = hashlib.sha256(), 0
            while size < count * len(block):
                got = transport.receive(room, 60)
                assert got, "silence"
                seen.update(room[:got])
                size += got
            for task in tasks:
                task.result(60)
        wanted = hashlib.sha256()
        for _ in range(count):
            wanted.update(block)
        assert seen.digest() == wanted.digest()

    def test_reading_goes_on_while_a_sender_waits(
        self, tls_ends: tuple[Transport, socket.socket]
    ) -> None:
        """A broker that takes nothing for now has something to say all the same."""
        transport, peer = tls_ends
        outcome: list[Exception] = []

        def send() -> None:
            try:
                transport.send(bytes(64 << 20))  # more than sockets take in
            except TransportError as error:
                outcome.append(error)

        sender = threading.Thread(target=send)
        sender.start()
        select.select([peer], [], [], 60)  # it has begun
        peer.sendall(b"receipt" * 100_000)
        room = memoryview(bytearray(1 << 16))
        size = 0
        while size < 700_000:
            got = transport.receive(room, 60)
            assert got
            size += got
        assert sender.is_alive()
        transport.shutdown()
        sender.join(60)
        assert not sender.is_alive(), "it still waits for a connection that has ended"
        assert len(outcome) == 1

    def test_the_end_is_announced(
        self, tls_ends: tuple[Transport, socket.socket]
    ) -> None:
        """As TLS wants it: who is cut off would see another end than this."""
        transport, peer = tls_ends
        transport.send(b"last words")
        transport.shutdown()
        assert peer.recv(100) == b"last words"
        assert peer.recv(100) == b""  # else an error, for want of the farewell

    def test_the_end_that_the_other_side_announces(
        self, tls_ends: tuple[Transport, socket.socket]
    ) -> None:
        """What came before it is handed on first."""
        transport, peer = tls_ends
        peer.sendall(b"last words")

        def leave() -> None:
            peer.unwrap()  # type: ignore[attr-defined]

        thread = threading.Thread(target=leave)
        thread.start()
        room = memoryview(bytearray(100))
        assert transport.receive(room, 60) == 10
        with pytest.raises(TransportError, match="closed the connection"):
            transport.receive(room, 60)
        transport.shutdown()
        thread.join(60)

    @pytest.mark.parametrize(
        "last",
        [
            b"\x16\x03\x03\x00\x7a\x02",  # of a longer answer
            b"\x15\x03\x03\x00\x02\x01\x5a\x15\x03\x03\x00\x02\x01\x00",  # as Java's
        ],
    )
    def test_a_server_that_goes_down_in_the_handshake(
        self, listener: socket.socket, tls: Tls, last: bytes
    ) -> None:
        """It has begun to answer, so it speaks TLS: another try may succeed."""

        def begin() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(10_000)
                peer.sendall(last)

        with ThreadPoolExecutor(1) as executor:
            begun = executor.submit(begin)
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            with pytest.raises(TransportError, match="during the TLS") as caught:
                open_transport(address, 60, NETWORK, tls)
            begun.result(60)
        assert not isinstance(caught.value, TlsError)
        assert caught.value.retriable

    def test_a_server_that_drips(
        self, listener: socket.socket, tls: Tls, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """There is always a byte more: the time is over all the same."""
        is_over = threading.Event()

        def accept() -> None:
            sock, _ = listener.accept()
            with sock, contextlib.suppress(OSError):
                sock.sendall(b"\x16\x03\x03\x40\x00")  # a record of 16 KiB begins
                while not is_over.wait(0.005):
                    sock.sendall(b"\0")

        seconds = itertools.count(0, 10)
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=seconds.__next__))
        with ThreadPoolExecutor(1) as executor:
            accepted = executor.submit(accept)
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            with pytest.raises(TransportError, match="did not finish"):
                open_transport(address, 60, NETWORK, tls)
            is_over.set()
            accepted.result(60)

    def test_bytes_that_are_no_records(
        self, tls_ends: tuple[Transport, socket.socket]
    ) -> None:
        """Somebody in between has changed them: the connection breaks, as by a cut."""
        transport, peer = tls_ends
        room = memoryview(bytearray(100))
        peer.sendall(b"well")
        assert transport.receive(room, 60) == 4
        with socket.socket(fileno=os.dup(peer.fileno())) as raw:
            raw.sendall(b"this is no record of TLS")
        with pytest.raises(TransportError) as caught:
            transport.receive(room, 60)
        assert not isinstance(caught.value, TlsError)
        assert caught.value.retriable

    def test_a_peer_that_takes_nothing_is_given_up(
        self,
        tls_ends: tuple[Transport, socket.socket],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A broker that stands still must not hold a writer for ever."""
        monkeypatch.setattr(module, "SEND_TIMEOUT_S", 0.05)
        transport, _ = tls_ends
        with pytest.raises(TransportError, match="timed out"):
            transport.send(bytes(64 << 20))

    @pytest.mark.parametrize(
        ("last", "last_word_s", "error"),
        [(b"this is no record", 60.0, TlsError), (b"", 0.01, TransportError)],
    )
    def test_a_sender_that_is_cut_off_hears_why_from_the_reader(
        self,
        tls_ends: tuple[Transport, socket.socket],
        monkeypatch: pytest.MonkeyPatch,
        last: bytes,
        error: type[TransportError],
    ) -> None:
        """Before anything else was heard. The reader is another thread, and waits."""
        transport, peer = tls_ends
        assert isinstance(transport, module.TlsTransport)
        readable = transport._waits._readable
        waits = threading.Event()

        class Readable:
            def poll(self, timeout: float) -> Any:
                waits.set()
                return readable.poll(timeout)  # refuses a second thread

        class Cut:
            def send(self, _: bytes) -> int:
                with socket.socket(fileno=os.dup(peer.fileno())) as raw:
                    raw.sendall(last)
                raise ConnectionResetError

        monkeypatch.setattr(transport._waits, "_readable", Readable())
        monkeypatch.setattr(transport._waits, "_socket", Cut())
        with ThreadPoolExecutor(1) as executor:
            reader = executor.submit(transport.receive, memoryview(bytearray(9)), 60)
            assert waits.wait(60)
            with pytest.raises(TransportError) as caught:
                transport.send(b"hello")
            assert type(caught.value).__name__ == error.__name__
            transport.shutdown()
            with pytest.raises(TransportError):
                reader.result(60)

    def test_new_keys(self, tls: Tls, server: Pair) -> None:
        """TLS 1.3 lets the other side renew keys at any time, and ask for ours."""
        openssl = shutil.which("openssl")
        assert openssl is not None, "openssl, which comes with Python's ssl, is missing"
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [openssl, "s_server", "-tls1_3", "-accept", f"127.0.0.1:{port}"]
        command += ["-cert", str(server.certificate), "-key", str(server.key)]
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
        ) as process:
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                _read_until(process.stdout.fileno(), b"ACCEPT")
                transport = open_transport(f"127.0.0.1:{port}", 60, NETWORK, tls)
                _read_until(process.stdout.fileno(), b"Secure Renegotiation")
                room = memoryview(bytearray(100))
                for word in (b"one", b"two"):
                    process.stdin.write(b"K\n")
                    wait_until(lambda: not _unread(process.stdin), "the command")
                    process.stdin.write(word + b" down\n")
                    size = transport.receive(room, 60)
                    assert bytes(room[:size]) == word + b" down\n"
                    # What comes now has the new keys, and what goes out says so first.
                    transport.send(word + b" up\n")
                    _read_until(process.stdout.fileno(), word + b" up")
                transport.shutdown()
                transport.close()
            finally:
                process.kill()


def _unread(pipe: IO[bytes] | None) -> int:
    """How many bytes in a pipe wait for their reader."""
    assert pipe is not None
    count = array.array("i", [0])
    fcntl.ioctl(pipe.fileno(), termios.FIONREAD, count)
    return count[0]


def _read_until(number: int, text: bytes) -> None:
    """Read what a program prints up to a text, and somewhat beyond it."""
    seen = b""
    while text not in seen:
        ready, _, _ = select.select([number], [], [], 60)
        assert ready, seen
        data = os.read(number, 10_000)
        assert data, seen
        seen += data
