# SPDX-License-Identifier: Apache-2.0
"""Opening a connection: the transport, the handshake, and the thread that reads."""

from __future__ import annotations

import os

from pulsar_spark.client.access import AUTHENTICATION
from pulsar_spark.client.connection import CLIENT_VERSION, Connection
from pulsar_spark.client.credentials import CredentialProvider, obtain
from pulsar_spark.errors import AuthError, TlsError, TransportError
from pulsar_spark.options import ClientOptions
from pulsar_spark.options.tls import NETWORK
from pulsar_spark.wire import commands
from pulsar_spark.wire.frames import BUFFER_BYTES
from pulsar_spark.wire.protocol import ClientProtocol
from spark_topics.client.buffers import BufferPool
from spark_topics.client.reached import note_reached, was_reached
from spark_topics.client.tls import Tls, host_of, is_ip_address
from spark_topics.client.transport import Transport, open_transport, speaks_tls

#: Longest wait for an answer when looking whether a server speaks TLS, in seconds.
_PROBE_S = 2.0

_buffers = BufferPool(BUFFER_BYTES)  # in all 16 MiB
os.register_at_fork(after_in_child=_buffers.start_anew)


def connect(
    address: str,
    options: ClientOptions,
    *,
    proxied_broker: str | None = None,
    credentials: CredentialProvider | None = None,
) -> Connection:
    """Open a connection and return the connection after its handshake.

    Args:
        address: ``host:port`` to connect to.
        options: Time limits, and how much memory one entry may take.
        proxied_broker: ``host:port`` of the broker meant, where ``address`` is a proxy.
        credentials: Prove who connects; None where brokers do not ask.

    Raises:
        TransportError: It cannot be reached, or the handshake is not over in time.
        TlsError: The connection cannot be made safe.
        ProtocolError: What answered is not a Pulsar broker.
        AuthError: It does not want us, or there are no credentials.
        BrokerError: It refused for another reason.
    """
    if credentials is None:
        return _greet(address, options, proxied_broker, None, None)
    broker, limit_s = proxied_broker or address, options.operation_timeout_s
    data = obtain(credentials.data, broker, limit_s)
    try:
        return _greet(address, options, proxied_broker, credentials, data)
    except AuthError as error:
        if error.code != AUTHENTICATION:
            raise
        # It may have been renewed, or have come to its end, at this moment.
        credentials.refused(data)
        fresh = obtain(credentials.data, broker, limit_s)
        if fresh == data:
            raise
    return _greet(address, options, proxied_broker, credentials, fresh)


def _open(address: str, options: ClientOptions) -> Transport:
    """Open a connection on which nothing has been said."""
    tls = None
    if options.service_url.uses_tls:
        tls = Tls(options.tls, host_of(address))
        if options.tls.proxy is not None and is_ip_address(tls.server_name):
            raise _needs_name(address, options.tls.proxy)
    try:
        return open_transport(
            address,
            options.connection_timeout_s,
            NETWORK,
            tls,
            proxy=None if tls is None else options.tls.proxy,
        )
    except TlsError as error:
        # One that was connected to before goes down, or comes up.
        if error.is_unheard and was_reached(address, by_tls=True):
            raise error.saying(error.message, retriable=True) from None
        raise


def _greet(
    address: str,
    options: ClientOptions,
    proxied_broker: str | None,
    credentials: CredentialProvider | None,
    data: bytes | None,
) -> Connection:
    """Open a connection, send CONNECT, and wait for the broker's answer."""
    broker = proxied_broker or address
    uses_tls = options.service_url.uses_tls
    # Nothing is sent before it is known who is there.
    transport = _open(address, options)
    protocol = ClientProtocol(
        commands.connect(
            client_version=CLIENT_VERSION,
            auth_method_name="none" if credentials is None else credentials.method,
            auth_data=data,
            proxy_to_broker_url=proxied_broker or "",
        ),
        _buffers.take,
        options.memory_limit_bytes,
    )
    connection = Connection(
        transport,
        protocol,
        broker=broker,
        keep_alive_s=options.keep_alive_interval_s,
        credentials=credentials,
        shown=data,
        credentials_timeout_s=options.operation_timeout_s,
        max_idle_s=options.connection_max_idle_s,
        tick_s=options.patience.tick_s,
    )
    try:
        connection.start(options.connection_timeout_s)
    except TransportError:
        if (
            not uses_tls
            and not transport.is_heard
            and not was_reached(address, by_tls=False)
            and speaks_tls(address, min(_PROBE_S, options.connection_timeout_s))
        ):
            raise _needs_tls(broker) from None
        raise
    note_reached(address, by_tls=uses_tls)
    return connection


def _needs_tls(broker: str) -> TlsError:
    """Return the error for a broker that requires TLS."""
    return TlsError(
        f"The broker {broker} wants TLS at this port. Begin `service.url` with"
        " pulsar+ssl://, or name its port without TLS (usually 6650).",
        broker=broker,
    )


def _needs_name(broker: str, proxy: str) -> TlsError:
    """Return the error for a broker that a proxy cannot know, having no name."""
    return TlsError(
        f"The broker {broker} cannot be reached through the proxy {proxy}, which knows "
        "brokers by their names: TLS tells none for an address. Name hosts in "
        "`service.url`, and let brokers advertise names, perhaps to a listener "
        "(`pulsar.client.listenerName`).",
        broker=broker,
    )
