"""The connections of this process: one to each broker, kept across tasks."""

from __future__ import annotations

import os
import threading
from typing import NamedTuple

from pulsar_spark.client.connection import Connection
from pulsar_spark.errors import PulsarSparkError, TransportError
from pulsar_spark.options import ClientOptions


class BrokerAddress(NamedTuple):
    """Where to find a broker.

    Attributes:
        physical: ``host:port`` to connect to.
        proxied: ``host:port`` of the broker itself, where ``physical`` is a proxy.
    """

    physical: str
    proxied: str | None = None


class ConnectionPool:
    """Opens connections when they are first needed and keeps them.

    Args:
        options: Where the cluster is, and time limits.
    """

    def __init__(self, options: ClientOptions) -> None:
        self.options = options
        self._connections: dict[BrokerAddress, Connection] = {}
        self._lock = threading.Lock()
        self._service = 0  # the host of service.url that answered last

    def get(self, address: BrokerAddress) -> Connection:
        """The connection to this broker, opened if need be.

        Raises:
            PulsarSparkError: As :class:`Connection` does.
        """
        with self._lock:
            connection = self._connections.get(address)
            if connection is None or not connection.is_open:
                connection = Connection(
                    address.physical, self.options, proxied_broker=address.proxied
                )
                self._connections[address] = connection
            return connection

    def service_address(self) -> str:
        """``host:port`` of the service URL's host in use."""
        return self.options.service_urls[self._service]

    def service(self) -> Connection:
        """A connection to the first host of the service URL that answers.

        Raises:
            TransportError: None of them does; says why for each.
        """
        hosts = self.options.service_urls
        errors: list[PulsarSparkError] = []
        for turn in range(len(hosts)):
            index = (self._service + turn) % len(hosts)
            try:
                connection = self.get(BrokerAddress(hosts[index]))
            except PulsarSparkError as error:
                errors.append(error)
            else:
                self._service = index
                return connection
        if len(errors) == 1:
            raise errors[0]
        raise TransportError(
            "No host of `service.url` answers. "
            + " ".join(error.message for error in errors)
        )

    def close(self) -> None:
        """Closes all connections."""
        with self._lock:
            connections = list(self._connections.values())
            self._connections.clear()
        for connection in connections:
            connection.close()

    def forget(self) -> None:
        """In a forked child: lets go of the parent's connections without a word."""
        for connection in self._connections.values():
            connection.forget()


_pools: dict[ClientOptions, ConnectionPool] = {}
_pools_lock = threading.Lock()


def shared_pool(options: ClientOptions) -> ConnectionPool:
    """The pool that everything in this process with the same options shares.

    A forked child starts with an empty one: sockets and threads are its parent's.
    """
    with _pools_lock:
        return _pools.setdefault(options, ConnectionPool(options))


def _forget_parent() -> None:
    """Runs in a forked child, before anything else does."""
    global _pools_lock
    _pools_lock = threading.Lock()  # another thread of the parent may have held it
    # A copy of a socket left open would keep the parent's connection alive after it.
    for pool in _pools.values():
        pool.forget()
    _pools.clear()


os.register_at_fork(after_in_child=_forget_parent)
