# SPDX-License-Identifier: Apache-2.0
"""Opening transports, and errors where only a single side speaks TLS.

A server of TubeMQ answers what it cannot read by silence: so the handshake of TLS at a
port without it, which is a time-out. At a port for TLS it hangs up on anyone who begins
without. Both could be a server that goes down, and are looked into by a question that
tells no one anything.
"""

from __future__ import annotations

import contextlib
import socket

from spark_topics.client.reached import note_reached, was_reached
from spark_topics.client.resolving import connect_to
from spark_topics.client.tls import Tls, host_of, is_tls_record
from spark_topics.client.transport import Transport, open_transport, speaks_tls
from tubemq_spark.errors import TlsError, TransportError, TubeMQError
from tubemq_spark.options.tls import ENABLE, TlsOptions
from tubemq_spark.system import NETWORK
from tubemq_spark.wire.frames import TOKEN, encode_frame
from tubemq_spark.wire.rpc import Service, encode_request
from tubemq_spark.wire.tubemq_pb2 import CloseRequestP2M

#: Longest wait for an answer when looking what a server speaks, in seconds.
_PROBE_S = 2.0

#: No server has it: each says so.
_NO_METHOD = 99


def open_server(server: str, timeout_s: float, tls: TlsOptions | None) -> Transport:
    """Connect to a server.

    Args:
        server: ``host:port``.
        timeout_s: Longest wait, in seconds, and as long again for TLS.
        tls: How connections are made safe; None, or not enabled, for not at all.

    Raises:
        TransportError: No one can be reached there in time.
        TlsError: The connection cannot be made safe.
    """
    if tls is None or not tls.enable:
        return open_transport(server, timeout_s, NETWORK)
    try:
        transport = open_transport(
            server, timeout_s, NETWORK, Tls(tls, host_of(server))
        )
    except TlsError as error:
        # One that was connected to before goes down, or comes up.
        if error.is_unheard and was_reached(server, by_tls=True):
            raise error.saying(error.message, retriable=True) from None
        raise
    except TransportError:
        probe_s = min(timeout_s, _PROBE_S)
        if not was_reached(server, by_tls=True) and _speaks_plainly(server, probe_s):
            raise TlsError(
                f"The server {server} speaks TubeMQ without TLS at this port. "
                f"{NETWORK.tls_port} {NETWORK.without_tls}",
                broker=server,
            ) from None
        raise
    note_reached(server, by_tls=True)
    return transport


def explained(
    error: TubeMQError, begin: bytes, *, server: str, timeout_s: float
) -> TubeMQError:
    """Return why a plain connection ended before its first frame.

    Args:
        error: What is known.
        begin: The first bytes that came, if any did.
        server: ``host:port``.
        timeout_s: Longest wait for another connection.
    """
    if begin and not is_tls_record(begin):
        return error
    if was_reached(server, by_tls=False):
        return error
    if not speaks_tls(server, min(timeout_s, _PROBE_S)):
        return error
    return TlsError(
        f"The server {server} wants TLS at this port. Set `{ENABLE}`, or name its port "
        "without TLS (usually 8715 of a master, 8123 of a broker).",
        broker=server,
    )


def _speaks_plainly(server: str, timeout_s: float) -> bool:
    """Return whether a server answers without TLS. It is told nothing."""
    question = encode_request(
        _NO_METHOD, Service.MASTER, max(1, round(timeout_s * 1000)), CloseRequestP2M()
    )
    host, _, port = server.rpartition(":")
    with (
        contextlib.suppress(OSError, ValueError),
        connect_to(host.strip("[]"), int(port), timeout_s) as sock,
    ):
        sock.settimeout(timeout_s)
        sock.sendall(encode_frame(1, question))
        return sock.recv(4, socket.MSG_WAITALL) == TOKEN.to_bytes(4, "big")
    return False
