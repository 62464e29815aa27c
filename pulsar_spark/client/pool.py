# SPDX-License-Identifier: Apache-2.0
"""The connections of a process: a connection per broker, kept across tasks."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import random
import re
import threading
import uuid
import weakref
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from pulsar_spark.client.authentication import credential_provider, forget_parent
from pulsar_spark.client.connect import connect
from pulsar_spark.client.connection import Connection
from pulsar_spark.client.credentials import (
    CredentialProvider,
    is_without_credential,
)
from pulsar_spark.errors import (
    AuthError,
    OptionError,
    PulsarSparkError,
    TopicMigratedError,
    TransportError,
)
from pulsar_spark.options import ClientOptions
from pulsar_spark.options.service_url import parse_service_url
from pulsar_spark.wire.permits import Learnt
from spark_topics.client.retry import Retry

K = TypeVar("K")

#: How many brokers are connected to at a time.
_CONNECTING = 16

_MAX_PORT = 65535
_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.%\w]+\]|[-.\w]+):0*([0-9]{1,5})", re.ASCII)


class BrokerAddress(NamedTuple):
    """Where to find a broker.

    Attributes:
        physical: ``host:port`` to connect to.
        proxied: ``host:port`` of the broker itself, where ``physical`` is a proxy.
    """

    physical: str
    proxied: str | None = None


def normal_address(text: str) -> str | None:
    """Return ``host:port`` in normal form, for comparisons.

    Args:
        text: A host, an IPv6 address in brackets, and a port.

    Returns:
        None if it is none of that.
    """
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None or not 1 <= int(match[2]) <= _MAX_PORT:
        return None
    host = match[1].lower()
    if host.startswith("["):
        try:
            host = f"[{ipaddress.IPv6Address(host[1:-1])}]"
        except ValueError:
            return None
    return f"{host}:{int(match[2])}"


@dataclass
class _Slot:
    """The slot of a broker in a pool. Its lock is held while a connection is opened.

    Attributes:
        connection: The last one that was opened.
        failure: Why none could be opened: for those who waited for this try, too.
        is_gone: Whether the pool has forgotten it; another one is in its place.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    connection: Connection | None = None
    failure: PulsarSparkError | None = None
    is_gone: bool = False

    @property
    def is_idle(self) -> bool:
        """Return whether the slot's connection can be closed without loss."""
        if self.connection is None:
            return False  # somebody is about to open it
        return self.connection.is_idle or not self.connection.is_open


@dataclass(frozen=True)
class PoolLimits:
    """How much a pool keeps.

    Attributes:
        brokers: Brokers whose connections are kept: more than any cluster has. Beyond
            that, idle connections are closed, least recently used first.
        topic_partitions: Topic partitions whose brokers are remembered: as many as one
            read may have.
        topics: Topics for which the pool remembers how much came at a time.
    """

    brokers: int = 1000
    topic_partitions: int = 1_000_000
    topics: int = 1000


class ConnectionPool:
    """Opens connections on demand and keeps them open.

    Args:
        options: Where the cluster is, and time limits.
        credentials: Prove to each broker who connects; by default what the options say.
        limits: How much is kept.
    """

    def __init__(
        self,
        options: ClientOptions,
        credentials: CredentialProvider | None = None,
        limits: PoolLimits = PoolLimits(),
    ) -> None:
        self.options = options
        self._limits = limits
        self._credentials = credentials or credential_provider(options.authentication)
        self._hosts = [normal_address(url) or url for url in options.service_url.hosts]
        self._slots: dict[BrokerAddress, _Slot] = {}
        self._lock = threading.Lock()  # guards the map, never for long
        self._service = 0  # the host of service.url that answered last
        # As lookups answered last; None where a broker has refused since.
        self._brokers: dict[str, BrokerAddress | None] = {}
        self._unreachable: set[BrokerAddress] = set()  # when last tried
        self._learnt: dict[str, Learnt] = {}  # by topic
        _all_pools.add(self)

    def __enter__(self) -> ConnectionPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, address: BrokerAddress) -> Connection:
        """Return the connection to this broker, opened if need be.

        Threads that ask for it while one tries wait for that try, however it ends.

        Raises:
            PulsarSparkError: As `connect` does.
        """
        while True:
            with self._lock:
                slot = self._slots.pop(address, None) or _Slot()
                self._slots[address] = slot  # behind all others
                surplus = self._take_idle(len(self._slots) - self._limits.brokers)
            for connection in surplus:
                connection.close()
            with slot.lock:
                if slot.failure is not None:
                    raise slot.failure.saying(slot.failure.message)
                if slot.is_gone:
                    continue
                if slot.connection is None or not slot.connection.wanted():
                    self._open(address, slot)
                assert slot.connection is not None
                return slot.connection

    def _open(self, address: BrokerAddress, slot: _Slot) -> None:
        """Open a slot's connection; where that fails, remove the slot."""
        try:
            slot.connection = connect(
                address.physical,
                self.options,
                proxied_broker=address.proxied,
                credentials=self._credentials,
            )
        except BaseException as error:
            if isinstance(error, PulsarSparkError):
                slot.failure = error
            with self._lock:
                if len(self._unreachable) >= self._limits.brokers:
                    self._unreachable.clear()
                self._unreachable.add(address)
                if self._slots.get(address) is slot:
                    del self._slots[address]
            slot.is_gone = True
            raise
        self._unreachable.discard(address)

    def is_unreachable(self, address: BrokerAddress) -> bool:
        """Return whether the last try to connect to this broker failed."""
        return address in self._unreachable

    def remember_brokers(self, found: Mapping[str, BrokerAddress]) -> None:
        """Note who serves some topic partitions, as the cluster has just answered."""
        # One address for all topic partitions that a broker serves.
        brokers = {broker: broker for broker in found.values()}
        with self._lock:
            self._brokers.update({n: brokers[broker] for n, broker in found.items()})
            if len(self._brokers) > self._limits.topic_partitions:
                self._brokers = dict(found)

    def suggest_brokers(self, brokers: Mapping[str, BrokerAddress]) -> None:
        """Note who served some topic partitions, as another process has found out.

        What this process has found out itself counts more.
        """
        with self._lock:
            for name, broker in brokers.items():
                self._brokers.setdefault(name, broker)
            if len(self._brokers) > self._limits.topic_partitions:
                self._brokers = dict(brokers)

    def forget_brokers(self, topic_partitions: Iterable[str]) -> None:
        """Note that topic partitions are to be looked up before they are used."""
        names = list(topic_partitions)
        with self._lock:
            for name in names:
                if name in self._brokers:
                    self._brokers[name] = None

    def last_broker(self, topic_partition: str) -> BrokerAddress | None:
        """Return the broker of the last lookup; None if there is none to go by."""
        return self._brokers.get(topic_partition)

    def likely_brokers(
        self, topic_partitions: Iterable[str]
    ) -> dict[str, BrokerAddress]:
        """Return the brokers that topic partitions most likely still have.

        That is the broker of the last lookup. A broker whose connection broke, or could
        not be opened, is left out.
        """
        names = list(topic_partitions)
        with self._lock:
            broken = {
                address
                for address, slot in self._slots.items()
                if slot.connection is not None and not slot.connection.is_open
            }
            return {
                name: broker
                for name in names
                if (broker := self._brokers.get(name)) is not None
                and broker not in broken
                and broker not in self._unreachable
            }

    def learn(self, topic: str, learnt: Learnt) -> None:
        """Note the facts a consumer learnt of a topic, for later consumers."""
        with self._lock:
            self._learnt[topic] = learnt
            if len(self._learnt) > self._limits.topics:
                self._learnt = {topic: learnt}

    def learnt(self, topic: str) -> Learnt | None:
        """Return what the last consumer has seen of a topic, None for nothing."""
        return self._learnt.get(topic)

    def _take_idle(
        self, count: int, addresses: Iterable[BrokerAddress] | None = None
    ) -> list[Connection]:
        """Remove up to ``count`` unused slots and return the connections to close."""
        taken: list[Connection] = []
        if count <= 0:
            return taken
        for address in list(self._slots) if addresses is None else addresses:
            slot = self._slots.get(address)
            if slot is None or not slot.lock.acquire(blocking=False):
                continue
            if slot.is_idle and slot.connection is not None:
                del self._slots[address]
                slot.is_gone = True
                taken.append(slot.connection)
            slot.lock.release()
            if len(taken) == count:
                break
        return taken

    def has(self, address: BrokerAddress) -> bool:
        """Return whether there is a connection to this broker already."""
        with self._lock:
            return address in self._slots

    def release(self, addresses: Iterable[BrokerAddress]) -> None:
        """Close the given connections that are idle."""
        with self._lock:
            unused = self._take_idle(len(self._slots), addresses)
        for connection in unused:
            connection.close()

    def get_all(
        self, addresses: Mapping[K, BrokerAddress | PulsarSparkError]
    ) -> dict[K, Connection | PulsarSparkError]:
        """Return the connections to many brokers, opened side by side.

        Args:
            addresses: A broker for each key, or an error, which is passed on.

        Returns:
            A connection, or why there is none, for each key.
        """
        distinct = {a for a in addresses.values() if isinstance(a, BrokerAddress)}
        if len(distinct) > 1:
            with ThreadPoolExecutor(min(len(distinct), _CONNECTING)) as executor:
                opened = dict(executor.map(lambda a: (a, self.try_get(a)), distinct))
        else:
            opened = {address: self.try_get(address) for address in distinct}
        return {
            key: opened[address] if isinstance(address, BrokerAddress) else address
            for key, address in addresses.items()
        }

    @contextlib.contextmanager
    def that_answers(self, *, is_alone: bool) -> Iterator[ConnectionPool]:
        """Yield a pool of the same cluster whose connections answer in time.

        A connection gives none while a reader on it has a full queue.

        Args:
            is_alone: Whether no reader waits on the connections of this pool: then it
                is this one. Otherwise another one, closed at the end.
        """
        if is_alone:
            yield self
        else:
            with ConnectionPool(self.options) as other:
                yield other

    def migrated_hosts(
        self, error: TopicMigratedError
    ) -> tuple[str, ...] | PulsarSparkError:
        """Return the hosts of the cluster that a topic was migrated to, or why not.

        Args:
            error: What the broker said of it.
        """
        is_tls = self.options.service_url.scheme != "pulsar"
        url = error.service_url_tls if is_tls else error.service_url
        try:
            return parse_service_url(url, "The URL of the other cluster").hosts
        except OptionError as problem:
            return error.saying(f"{error.message} It cannot be used: {problem.message}")

    def any_of(self, hosts: Sequence[str]) -> str:
        """Return a random host, preferably without a failed last attempt."""
        tried = [host for host in hosts if self.is_unreachable(BrokerAddress(host))]
        left = [host for host in hosts if host not in tried] or hosts
        return random.SystemRandom().choice(left)  # whatever a job seeds

    def service_address(self) -> str:
        """Return ``host:port`` of the service URL's host in use."""
        return self._hosts[self._service]

    @property
    def service_hosts(self) -> list[str]:
        """Return the hosts of the service URL, that in use first."""
        return self._hosts[self._service :] + self._hosts[: self._service]

    def probe(self, host: str, timeout_s: float) -> None:
        """Connect to a host on a new connection, and close the connection.

        Args:
            host: ``host:port``.
            timeout_s: Longest wait for the connection, and again for its handshake, in
                seconds; at most what the options say.

        Raises:
            PulsarSparkError: As `connect` does.
        """
        limit_s = min(timeout_s, self.options.connection_timeout_s)
        options = replace(self.options, connection_timeout_s=limit_s)
        connect(host, options, credentials=self._credentials).close()

    def service(self) -> Connection:
        """Return a connection to the first host of the service URL that answers.

        Raises:
            AuthError: None of them does, and one because of who we are; or there is no
                credential to show to any.
            TransportError: None of them does; says why for each.
        """
        hosts = self._hosts
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
        for refusal in errors:
            if isinstance(refusal, AuthError) and not refusal.retriable:
                raise refusal  # another try would not change it
        if all(map(is_without_credential, errors)):
            raise errors[0]  # whichever host is asked
        says = "No host of `service.url` answers. " + " ".join(
            error.message for error in errors
        )
        if not any(error.retriable for error in errors):
            raise errors[0].saying(says)
        raise TransportError(says)

    def try_get(
        self, address: BrokerAddress | None = None
    ) -> Connection | PulsarSparkError:
        """Return what `get` does, or `service` without an address, or their error."""
        try:
            return self.service() if address is None else self.get(address)
        except PulsarSparkError as error:
            return error

    def retry(self, timeout_s: float, option: str = "") -> Retry:
        """Return a budget of ``timeout_s`` seconds, with the pauses of the options.

        Args:
            timeout_s: The budget.
            option: Its option, see `Retry`.
        """
        options = self.options
        return Retry(
            options.initial_backoff_s, options.max_backoff_s, timeout_s, option
        )

    def reader_name(self) -> str:
        """Return a new name for a subscription that is not durable."""
        return f"{self.options.reader_prefix}-{uuid.uuid4()}"

    @property
    def write_patience_s(self) -> float:
        """Return how long a write goes on without a single answer, in seconds."""
        return max(self.options.patience.write_s, self.options.operation_timeout_s)

    def patience(self, patience_s: float | None = None) -> Retry:
        """Return how long to go on asking the cluster without a single answer.

        Args:
            patience_s: As long as a read that has begun goes on; None: as long as a
                lookup may take.
        """
        usual_s = self.options.lookup_timeout_s
        if patience_s is None or patience_s == usual_s:
            return self.retry(usual_s, "pulsar.client.lookupTimeoutMs")
        return self.retry(patience_s, "pollTimeoutMs")

    def without_secrets(self, text: str) -> str:
        """Return a broker's text without the credentials that brokers were shown."""
        with self._lock:
            slots = list(self._slots.values())
        for slot in slots:
            if slot.connection is not None:
                text = slot.connection.without_secrets(text)
        return text

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            slots = list(self._slots.values())
            self._slots.clear()
        for slot in slots:
            with slot.lock:
                slot.is_gone = True
                if slot.connection is not None:
                    slot.connection.close()

    def forget(self) -> None:
        """Let go, in a forked child, of the parent's connections; send nothing."""
        for slot in self._slots.values():
            if slot.connection is not None:
                slot.connection.forget()
        self._slots = {}
        self._lock = threading.Lock()  # another thread of the parent may have held it


#: Every pool of the process; some are not shared.
_all_pools: weakref.WeakSet[ConnectionPool] = weakref.WeakSet()

#: Those that are, by ``ClientOptions.pool_key``.
_pools: dict[Hashable, ConnectionPool] = {}
_pools_lock = threading.Lock()


def shared_pool(options: ClientOptions) -> ConnectionPool:
    """Return the shared pool of the process for these options.

    Which options may share one is said by ``ClientOptions.pool_key``: where the cluster
    is, who connects, and what else a connection depends on. A forked child starts with
    an empty pool: sockets and threads are its parent's.
    """
    with _pools_lock:
        pool = _pools.get(options.pool_key)
        if pool is None:
            pool = _pools[options.pool_key] = ConnectionPool(options)
        return pool


def _forget_parent() -> None:
    """Drop the parent's connections in a forked child, before anything else."""
    global _pools_lock
    _pools_lock = threading.Lock()  # another thread of the parent may have held it
    # A copy of a socket left open would keep the parent's connection alive after it.
    for pool in list(_all_pools):
        pool.forget()
    _pools.clear()
    forget_parent()


os.register_at_fork(after_in_child=_forget_parent)
