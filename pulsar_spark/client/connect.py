# SPDX-License-Identifier: Apache-2.0
"""Opening a connection: the transport, the handshake, and the thread that reads."""

from __future__ import annotations

import os

from pulsar_spark.client.buffers import BufferPool
from pulsar_spark.client.connection import CLIENT_VERSION, Connection
from pulsar_spark.client.credentials import CredentialProvider, obtain
from pulsar_spark.client.transport import open_transport
from pulsar_spark.options import ClientOptions
from pulsar_spark.wire import commands
from pulsar_spark.wire.protocol import ClientProtocol

_buffers = BufferPool()
os.register_at_fork(after_in_child=_buffers.start_anew)


def connect(
    address: str,
    options: ClientOptions,
    *,
    proxied_broker: str | None = None,
    credentials: CredentialProvider | None = None,
) -> Connection:
    """Open a connection and return it after its handshake.

    Args:
        address: ``host:port`` to connect to.
        options: Time limits, and how much memory one entry may take.
        proxied_broker: ``host:port`` of the broker meant, where ``address`` is a proxy.
        credentials: Prove who connects; None where brokers do not ask.

    Raises:
        TransportError: It cannot be reached, or the handshake is not over in time.
        ProtocolError: What answered is not a Pulsar broker.
        AuthError: It does not want us, or there are no credentials.
        BrokerError: It refused for another reason.
    """
    broker = proxied_broker or address
    protocol = ClientProtocol(
        commands.connect(
            client_version=CLIENT_VERSION,
            auth_method_name="none" if credentials is None else credentials.method,
            auth_data=None if credentials is None else obtain(credentials.data, broker),
            proxy_to_broker_url=proxied_broker or "",
        ),
        _buffers.take,
        options.memory_limit_bytes,
    )
    connection = Connection(
        open_transport(address, options.connection_timeout_s),
        protocol,
        broker=broker,
        keep_alive_s=options.keep_alive_interval_s,
        credentials=credentials,
    )
    connection.start(options.connection_timeout_s)
    return connection
