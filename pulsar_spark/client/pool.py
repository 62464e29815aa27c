"""The connections of this process: one to each broker, kept across tasks."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from pulsar_spark.client.connection import Connection
from pulsar_spark.errors import PulsarSparkError, TransportError
from pulsar_spark.options import ClientOptions

K = TypeVar("K")

#: How many brokers are connected to at a time.
_CONNECTING = 16


class BrokerAddress(NamedTuple):
    """Where to find a broker.

    Attributes:
        physical: ``host:port`` to connect to.
        proxied: ``host:port`` of the broker itself, where ``physical`` is a proxy.
    """

    physical: str
    proxied: str | None = None


@dataclass
class _Slot:
    """One broker's place in a pool. Its lock is held while a connection is opened."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    connection: Connection | None = None


class ConnectionPool:
    """Opens connections when they are first needed and keeps them.

    Args:
        options: Where the cluster is, and time limits.
    """

    def __init__(self, options: ClientOptions) -> None:
        self.options = options
        self._slots: dict[BrokerAddress, _Slot] = {}
        self._lock = threading.Lock()  # guards the map, never for long
        self._service = 0  # the host of service.url that answered last

    def get(self, address: BrokerAddress) -> Connection:
        """The connection to this broker, opened if need be.

        Raises:
            PulsarSparkError: As :class:`Connection` does.
        """
        with self._lock:
            slot = self._slots.setdefault(address, _Slot())
        with slot.lock:
            if slot.connection is None or not slot.connection.is_open:
                slot.connection = Connection(
                    address.physical, self.options, proxied_broker=address.proxied
                )
            return slot.connection

    def get_all(
        self, addresses: Mapping[K, BrokerAddress | PulsarSparkError]
    ) -> dict[K, Connection | PulsarSparkError]:
        """The connections to many brokers, opened side by side.

        Args:
            addresses: A broker for each key, or an error, which is passed on.

        Returns:
            A connection, or why there is none, for each key.
        """
        distinct = {a for a in addresses.values() if isinstance(a, BrokerAddress)}
        if len(distinct) > 1:
            with ThreadPoolExecutor(min(len(distinct), _CONNECTING)) as executor:
                opened = dict(executor.map(lambda a: (a, self._try(a)), distinct))
        else:
            opened = {address: self._try(address) for address in distinct}
        return {
            key: opened[address] if isinstance(address, BrokerAddress) else address
            for key, address in addresses.items()
        }

    def _try(self, address: BrokerAddress) -> Connection | PulsarSparkError:
        try:
            return self.get(address)
        except PulsarSparkError as error:
            return error

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
            slots = list(self._slots.values())
            self._slots.clear()
        for slot in slots:
            with slot.lock:
                if slot.connection is not None:
                    slot.connection.close()

    def forget(self) -> None:
        """In a forked child: lets go of the parent's connections without a word."""
        for slot in self._slots.values():
            if slot.connection is not None:
                slot.connection.forget()


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
