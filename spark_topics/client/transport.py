# SPDX-License-Identifier: Apache-2.0
"""TCP and TLS transports; errors of the system become errors of ours here."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from typing import Protocol

from spark_topics.client.resolving import connect_to
from spark_topics.client.tls import (
    Tls,
    cipher_refusal,
    failure,
    is_tls_record,
    unheard,
    warning_of,
)
from spark_topics.client.tls_context import context
from spark_topics.errors import TlsError, TopicsError, TransportError
from spark_topics.network import Network

#: A peer that takes less than a piece in this long is as good as gone, in seconds.
SEND_TIMEOUT_S = 60.0

#: What is taken from the socket at a time, still encrypted: some records of 16 KiB.
_SEALED_BYTES = 128 * 1024

#: Memory for that, used in turns: many connections, which most often rest, keep none.
_spare: list[memoryview] = []
_SPARES_KEPT = 4

#: What is taken during a handshake.
_HANDSHAKE_BYTES = 16 * 1024

#: What is encrypted at a time: the reading thread waits for no more than that. And what
#: a peer has a while for: a slow one may take long for a large entry.
_PIECE_BYTES = 128 * 1024


def _set_up(sock: socket.socket) -> None:
    """Send small frames at once, and let the system notice a peer that is gone."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


class Transport(Protocol):
    """A stream of bytes in both directions.

    Attributes:
        is_heard: Whether the other side has sent anything.
    """

    is_heard: bool

    def send(self, data: bytes) -> None:
        """Send all bytes. Raises TransportError."""

    def receive(self, buffer: memoryview, timeout_s: float) -> int:
        """Receive into the buffer; return how much, 0 after ``timeout_s``.

        Raises:
            TransportError: The connection broke, or the other side closed it.
        """

    def shutdown(self) -> None:
        """End both directions; threads inside of the calls above come back."""

    def close(self) -> None:
        """Free the socket, silently. Only when no other thread is inside."""


class _Waits:
    """A non-blocking socket, with waits that have deadlines.

    Reading and writing happen in different threads with different limits, and a socket
    object has but one timeout: so each waits on its own.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._readable = select.poll()
        self._readable.register(sock, select.POLLIN)
        self._writable = select.poll()
        self._writable.register(sock, select.POLLOUT)

    def until_readable(self, timeout_s: float) -> bool:
        """Return whether there is something to receive, or an end, within that time."""
        return bool(self._readable.poll(timeout_s * 1000))

    def send_all(self, data: bytes) -> None:
        """Send all bytes. Raises TimeoutError or another OSError."""
        left = memoryview(data)
        deadline, due = 0.0, len(left)  # by then, no more than so much is left
        while left:
            if len(left) <= due:
                deadline = time.monotonic() + SEND_TIMEOUT_S
                due = len(left) - _PIECE_BYTES
            try:
                left = left[self._socket.send(left) :]
            except BlockingIOError:
                rest_s = deadline - time.monotonic()
                if rest_s <= 0 or not self._writable.poll(rest_s * 1000):
                    raise TimeoutError("timed out") from None


class TcpTransport:
    """A plain TCP connection.

    Args:
        sock: A connected socket.
        peer: ``host:port``, for messages.
        network: How messages speak of it.
    """

    def __init__(self, sock: socket.socket, peer: str, network: Network) -> None:
        self.is_heard = False
        self._socket = sock
        self._peer = peer
        self._network = network
        _set_up(sock)
        self._waits = _Waits(sock)

    def send(self, data: bytes) -> None:
        """See `Transport`."""
        with _as_transport_error(self._peer, self._network):
            self._waits.send_all(data)

    def receive(self, buffer: memoryview, timeout_s: float) -> int:
        """See `Transport`."""
        with _as_transport_error(self._peer, self._network):
            size = self._receive_now(buffer)  # most often there is more
            if size is None and self._waits.until_readable(timeout_s):
                size = self._receive_now(buffer)
        if size is None:
            return 0
        if not size:
            raise _closed(self._peer, self._network)
        self.is_heard = True
        return size

    def _receive_now(self, buffer: memoryview) -> int | None:
        try:
            return self._socket.recv_into(buffer)
        except BlockingIOError:
            return None

    def shutdown(self) -> None:
        """Shut down both directions, so that blocked calls of all threads return."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Free the socket. No other thread may be inside."""
        # Apart from shutdown: the system gives the number of a closed socket to the
        # next one at once, so a thread still inside of a call could reach that one.
        self._socket.close()


class TlsTransport:
    """A TLS connection.

    One thread reads and another one writes. OpenSSL knows the connection's keys and
    counters in one object, in which there may be but one of them at a time; so neither
    may wait in there. OpenSSL is given memory instead of the socket: it encrypts and
    decrypts under a lock, and the threads wait for the socket outside of that.

    Args:
        sock: A connected socket.
        peer: ``host:port``, for messages.
        tls: How the connection is made safe.
        timeout_s: Longest time for that.

    Raises:
        TlsError: It cannot be made safe.
        TransportError: The other side is gone, or silent.
    """

    def __init__(
        self, sock: socket.socket, peer: str, tls: Tls, timeout_s: float
    ) -> None:
        self.is_heard = False
        self._socket = sock
        self._peer = peer
        self._network = tls.options.network
        self._tls = tls
        _set_up(sock)
        self._sealed_in = ssl.MemoryBIO()
        self._sealed_out = ssl.MemoryBIO()
        self._ssl = context(tls.options).wrap_bio(
            self._sealed_in, self._sealed_out, server_hostname=tls.server_name
        )
        self._error: TransportError | None = None  # why reading has ended
        self._shake_hands(timeout_s)
        self._waits = _Waits(sock)
        self._ssl_lock = threading.Lock()  # held for a call of OpenSSL, never to wait
        self._send_lock = threading.Lock()  # records must go out in their order
        self._receive_lock = threading.Lock()  # they come in their order

    def _shake_hands(self, timeout_s: float) -> None:
        try:
            self._negotiate(time.monotonic() + timeout_s)
        except TopicsError:
            raise
        except ssl.SSLZeroReturnError:  # it speaks TLS, and goes down
            raise unheard(self._peer, self._network, has_answered=True) from None
        except ssl.SSLError as error:
            raise failure(error, self._peer, self._tls) from None
        except TimeoutError:
            raise self._network.system.transport_error(
                f"The {self._network.server} {self._peer} did not finish the TLS "
                f"handshake within {timeout_s:g} s. {self._network.tls_port}",
                broker=self._peer,
            ) from None
        except OSError as error:
            raise _broken(self._peer, self._network, error) from error
        refusal = cipher_refusal(self._ssl, self._tls, self._peer)
        if refusal is not None:
            raise refusal
        warning = warning_of(self._tls)
        if warning:
            logger = self._network.system.logger("client")
            logger.warning("The %s %s: %s", self._network.server, self._peer, warning)

    def _negotiate(self, deadline: float) -> None:
        has_answered = False
        while not self._negotiate_further(deadline):
            if time.monotonic() > deadline:  # what drips in never lets recv wait
                raise TimeoutError
            sealed = self._socket.recv(_HANDSHAKE_BYTES)
            if not sealed:
                raise unheard(self._peer, self._network, has_answered=has_answered)
            has_answered = True
            self._sealed_in.write(sealed)

    def _negotiate_further(self, deadline: float) -> bool:
        """Say what there is to say now; return whether the handshake is over."""
        try:
            self._ssl.do_handshake()
            is_over = True
        except ssl.SSLWantReadError:
            is_over = False
        except ssl.SSLError:
            with contextlib.suppress(OSError):  # an alert, which tells them why
                self._socket.sendall(self._sealed_out.read())
            raise
        self._socket.settimeout(max(0.001, deadline - time.monotonic()))
        self._socket.sendall(self._sealed_out.read())
        return is_over

    def send(self, data: bytes) -> None:
        """See `Transport`."""
        clear = memoryview(data)
        with self._send_lock:
            for begin in range(0, len(clear), _PIECE_BYTES):
                try:
                    with self._ssl_lock:
                        self._ssl.write(clear[begin : begin + _PIECE_BYTES])
                        sealed = self._sealed_out.read()
                except (ssl.SSLError, ValueError) as error:
                    raise _broken(self._peer, self._network, error) from error
                try:
                    self._send_sealed(sealed)
                except TransportError:
                    self._listen_for_refusal()
                    raise
        self._send_rest()

    def _listen_for_refusal(self) -> None:
        """Raise the peer's reason for closing an unanswered handshake, if known.

        A reader that waits hears it, as the connection has ended; else this thread.
        """
        if not self._receive_lock.acquire(timeout=self._tls.last_word_s):
            return
        try:
            if not self.is_heard and self._error is None:
                with contextlib.suppress(TransportError):
                    self._take_sealed(time.monotonic())
                self._open_sealed(memoryview(bytearray(1)))
        finally:
            self._receive_lock.release()
        if isinstance(self._error, TlsError):
            raise self._error

    def _send_sealed(self, sealed: bytes) -> None:
        with _as_transport_error(self._peer, self._network):
            self._waits.send_all(sealed)

    def _send_rest(self) -> None:
        """Send what reading had to answer, such as new keys, unless a sender will."""
        while self._sealed_out.pending and self._send_lock.acquire(blocking=False):
            try:
                with self._ssl_lock:
                    sealed = self._sealed_out.read()
                self._send_sealed(sealed)
            finally:
                self._send_lock.release()

    def receive(self, buffer: memoryview, timeout_s: float) -> int:
        """See `Transport`."""
        with self._receive_lock:
            return self._receive(buffer, time.monotonic() + timeout_s)

    def _receive(self, buffer: memoryview, deadline: float) -> int:
        while True:
            # First what is here: the socket knows nothing of it.
            size = self._open_sealed(buffer)
            if size:
                self.is_heard = True
                return size
            if self._error is not None:
                raise self._error
            if not self._take_sealed(deadline):
                return 0

    def _open_sealed(self, buffer: memoryview) -> int:
        """Decrypt what has come, as far as there is room, and return how much."""
        size, room = 0, len(buffer)
        try:
            while size < room and self._error is None:
                with self._ssl_lock:  # a record at a time, so that senders have a turn
                    got = self._ssl.read(room - size, buffer[size:])
                size += int(got)
                if not got:
                    self._error = _closed(self._peer, self._network)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            # TLS 1.3 refuses a client's certificate only when the client is done.
            if self.is_heard or size:
                self._error = _broken(self._peer, self._network, error)
            else:
                self._error = failure(error, self._peer, self._tls)
        if self._sealed_out.pending:
            self._send_rest()
        return size

    def _take_sealed(self, deadline: float) -> bool:
        """Wait for more, and return whether there may be some."""
        with _as_transport_error(self._peer, self._network):
            rest_s = max(0.0, deadline - time.monotonic())
            if not self._waits.until_readable(rest_s):
                return False
            try:
                buffer = _spare.pop()  # in one step: no other thread has it now
            except IndexError:
                buffer = memoryview(bytearray(_SEALED_BYTES))
            try:
                size = self._socket.recv_into(buffer)
                self._sealed_in.write(buffer[:size])
            except BlockingIOError:
                return True
            finally:
                if len(_spare) < _SPARES_KEPT:
                    _spare.append(buffer)
        if not size:
            self._error = _closed(self._peer, self._network)
        return True

    def shutdown(self) -> None:
        """Shut down both directions, so that blocked calls of all threads return."""
        # Say so, if nobody is in the middle of a record, and the socket has room.
        if self._send_lock.acquire(blocking=False):
            try:
                with self._ssl_lock, contextlib.suppress(ssl.SSLError, ValueError):
                    self._ssl.unwrap()
                with contextlib.suppress(OSError):
                    self._socket.send(self._sealed_out.read())
            finally:
                self._send_lock.release()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Free the socket. No other thread may be inside."""
        # Without a word: in a forked child, the connection is the parent's.
        self._socket.close()


def open_transport(
    address: str,
    timeout_s: float,
    network: Network,
    tls: Tls | None = None,
    *,
    proxy: str | None = None,
) -> Transport:
    """Connect to ``host:port``.

    Args:
        address: Where to, and what errors name.
        timeout_s: Longest wait, in seconds, the resolver's for the name included, and
            as long again for TLS.
        network: How errors speak of it.
        tls: How the connection is made safe; None: not at all.
        proxy: ``host:port`` to connect to instead, which knows by the name that TLS
            tells where to go on.

    Raises:
        TransportError: The name does not resolve, no one listens, or there is no
            answer in time.
        TlsError: The connection cannot be made safe.
    """
    host, _, port = (proxy or address).rpartition(":")
    try:
        sock = connect_to(
            host.strip("[]"), int(port), timeout_s, network.connect_timeout
        )
        try:
            if tls is not None:
                return TlsTransport(sock, address, tls, timeout_s)
            return TcpTransport(sock, address, network)
        except BaseException:  # macOS refuses options of a socket that was reset
            sock.close()
            raise
    except TopicsError:
        raise
    except (OSError, ValueError, OverflowError) as error:  # no host, or no port
        through = f" through the proxy {proxy}" if proxy else ""
        raise network.system.transport_error(
            f"The {network.server} {address} cannot be reached{through}: "
            f"{_reason(error)}. {network.unreachable}",
            broker=address,
        ) from error


def speaks_tls(address: str, timeout_s: float) -> bool:
    """Return whether a TLS server answers at ``host:port``. Tells it nothing."""
    host, _, port = address.rpartition(":")
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname = False
    anyone.verify_mode = ssl.CERT_NONE
    sealed = ssl.MemoryBIO()
    hello = anyone.wrap_bio(ssl.MemoryBIO(), sealed)
    with contextlib.suppress(ssl.SSLWantReadError):
        hello.do_handshake()
    with (
        contextlib.suppress(OSError),
        connect_to(host.strip("[]"), int(port), timeout_s) as sock,
    ):
        sock.settimeout(timeout_s)
        sock.sendall(sealed.read())
        return is_tls_record(sock.recv(2, socket.MSG_WAITALL))
    return False


def _closed(peer: str, network: Network) -> TransportError:
    return network.system.transport_error(
        f"The {network.server} {peer} closed the connection.", broker=peer
    )


def _broken(peer: str, network: Network, error: Exception) -> TransportError:
    return network.system.transport_error(
        f"The connection to the {network.server} {peer} failed: {_reason(error)}.",
        broker=peer,
    )


@contextlib.contextmanager
def _as_transport_error(peer: str, network: Network) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: the socket is closed already
        raise _broken(peer, network, error) from error


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
