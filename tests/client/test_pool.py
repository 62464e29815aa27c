# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import socket
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client import connect as connect_module
from pulsar_spark.client import connection as connection_module
from pulsar_spark.client import pool as module
from pulsar_spark.client.connect import connect
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import (
    BrokerAddress,
    ConnectionPool,
    PoolLimits,
    normal_address,
    shared_pool,
)
from pulsar_spark.errors import AuthError, ProtocolError, TransportError
from pulsar_spark.options.authentication import AuthenticationOptions, Token
from pulsar_spark.options.secret import Secret
from pulsar_spark.wire import commands
from pulsar_spark.wire.frames import BUFFER_BYTES
from pulsar_spark.wire.permits import Learnt
from spark_topics.client.reached import note_reached
from tests.support import patience
from tests.support.fixtures import Clock
from tests.support.scripted_broker import (
    ScriptedBroker,
    client_options,
    cut,
    garbage,
    refuse,
    silence,
    usual,
)
from tests.support.waiting import join, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pulsar_spark.errors import PulsarSparkError
    from pulsar_spark.wire.protocol import Delivery

TOPIC = "persistent://public/default/t"

ANN, BOB = (
    AuthenticationOptions("token", Token(Secret(token))) for token in ("ann", "bob")
)


def closed_port() -> str:
    """An address where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture
def _own_pools() -> Iterator[None]:
    yield
    for pool in list(module._pools.values()):
        pool.close()
    module._pools.clear()


def test_one_connection_a_broker(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Whoever asks gets the same; a proxied broker has another."""
    address = BrokerAddress(scripted.address)
    assert pool.get(address) is pool.get(address) is pool.service()
    assert pool.get(BrokerAddress(scripted.address, "b:1")) is not pool.service()
    assert scripted.connections == 2


def test_many_threads_share_one_connection(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """A race to open the first connection opens one."""
    threads = [threading.Thread(target=pool.service) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        join(thread, "opening a connection")
    assert scripted.connections == 1


def test_a_broken_connection_is_replaced(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """The next who asks gets a new one."""
    first = pool.service()
    scripted.cut()
    wait_until(lambda: not first.is_open)
    assert pool.service().is_open
    assert scripted.connections == 2


def test_the_next_host_is_tried_and_remembered(scripted: ScriptedBroker) -> None:
    """Hosts that do not answer, or are not Pulsar, are passed over, once."""
    with ScriptedBroker() as other:
        other.always("CONNECT", garbage(b"HTTP/1.1 400\r\n"))
        pool = ConnectionPool(
            client_options(closed_port(), other.address, scripted.address)
        )
        assert pool.service().broker == scripted.address
        assert pool.service_address() == scripted.address
        pool.service()
        assert other.connections == 1
        pool.close()


def test_the_end_of_a_with_closes_all(scripted: ScriptedBroker) -> None:
    """A pool's connections, and a connection that is used alone."""
    with ConnectionPool(client_options(scripted.address)) as pool:
        connection = pool.service()
        assert connection.is_open
    assert not connection.is_open
    with connect(scripted.address, client_options()) as connection:
        assert connection.is_open
    assert not connection.is_open


def test_rotation_goes_on_when_a_host_goes_down(scripted: ScriptedBroker) -> None:
    """After the last host comes the first one again."""
    with ScriptedBroker() as other:
        pool = ConnectionPool(client_options(scripted.address, other.address))
        connection = pool.service()
        assert connection.broker == scripted.address
        scripted.stop_listening()
        scripted.cut()
        wait_until(lambda: not connection.is_open)
        assert pool.service().broker == other.address
        pool.close()


def test_many_brokers_at_once(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """One connection for each broker; errors stand in their place, also given ones."""
    gone = TransportError("who knows where")
    with ScriptedBroker() as other:
        nobody = closed_port()
        found = pool.get_all(
            {
                "a": BrokerAddress(scripted.address),
                "b": BrokerAddress(other.address),
                "c": BrokerAddress(scripted.address),
                "d": BrokerAddress(nobody),
                "e": gone,
            }
        )
        assert found["a"] is found["c"] is pool.get(BrokerAddress(scripted.address))
        assert found["b"] is pool.get(BrokerAddress(other.address))
        assert isinstance(found["d"], TransportError)
        assert found["d"].broker == nobody
        assert found["e"] is gone
        assert (scripted.connections, other.connections) == (1, 1)


def test_a_slow_broker_does_not_hold_up_others(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """While one handshake waits, a connection to another broker can be opened."""
    with ScriptedBroker() as slow:
        slow.script("CONNECT", silence)
        waiting = threading.Thread(
            target=lambda: pool.get_all({1: BrokerAddress(slow.address)})
        )
        waiting.start()
        wait_until(lambda: slow.connections == 1)
        assert pool.service().broker == scripted.address
        slow.cut()
        join(waiting, "asking a broker that is gone")


class Queue:
    """A lock that counts who came for it."""

    def __init__(self) -> None:
        self.came = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self.came += 1
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_a_silent_broker_is_tried_once_by_all_that_wait(pool: ConnectionPool) -> None:
    """Not by one after the other, each for as long as a connection may take."""
    with ScriptedBroker() as slow:
        slow.script("CONNECT", silence)
        note_reached(slow.address, by_tls=False)  # nobody asks whether it wants TLS
        address, queue = BrokerAddress(slow.address), Queue()
        pool._slots[address] = module._Slot(lock=queue)  # type: ignore[arg-type]
        failures: list[PulsarSparkError] = []

        def ask() -> None:
            with pytest.raises(TransportError) as failure:
                pool.get(address)
            failures.append(failure.value)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: slow.connections == 1 and queue.came == len(threads))
        slow.cut()
        for thread in threads:
            join(thread, "asking a broker that is gone")
        assert slow.connections == 1
        assert {one.message for one in failures} == {failures[0].message}
        assert len({id(one) for one in failures}) == len(threads)


def test_a_host_that_does_not_want_us(scripted: ScriptedBroker) -> None:
    """Where no other answers, that is the reason, and final."""
    scripted.always("CONNECT", refuse("AuthenticationError", "no"))
    hosts = closed_port(), scripted.address, closed_port()
    with (
        ConnectionPool(client_options(*hosts)) as pool,
        pytest.raises(AuthError) as caught,
    ):
        pool.service()
    assert not caught.value.retriable
    assert caught.value.broker == scripted.address


REFUSED = AuthError("refused", code="x", broker="a:1", retriable=False)
NO_TOKEN = AuthError("no token", code="x", retriable=True)
DOWN = TransportError("down")


@pytest.mark.parametrize(
    ("errors", "kind", "parts"),
    [
        ([NO_TOKEN, REFUSED], AuthError, ["refused"]),
        ([REFUSED, NO_TOKEN], AuthError, ["refused"]),
        ([DOWN, NO_TOKEN], TransportError, ["down", "no token"]),
        ([NO_TOKEN, NO_TOKEN], AuthError, ["no token"]),
    ],
)
def test_hosts_fail_in_different_ways(
    errors: list[PulsarSparkError],
    kind: type[PulsarSparkError],
    parts: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A final refusal counts, in any order; else all is told."""
    left = list(errors)

    def get(pool: ConnectionPool, address: BrokerAddress) -> None:
        raise left.pop(0)

    monkeypatch.setattr(ConnectionPool, "get", get)
    with (
        ConnectionPool(client_options("a:1", "a:2")) as pool,
        pytest.raises(kind) as caught,
    ):
        pool.service()
    assert caught.value.retriable == (REFUSED not in errors)
    assert all(part in caught.value.message for part in parts)


def test_options_say_who_connects(scripted: ScriptedBroker) -> None:
    """A pool needs no more than these, and who is another one has another pool."""
    given = [client_options(scripted.address, authentication=a) for a in (ANN, BOB)]
    pools = [shared_pool(one) for one in (*given, given[0])]
    assert pools[0] is pools[2] is not pools[1]
    for pool in pools:
        pool.service()
    assert [b.auth_data for b in scripted.bodies["CONNECT"]] == [b"ann", b"bob"]
    assert b"ann" not in repr([pool.options.pool_key for pool in pools]).encode()
    for pool in pools:
        pool.close()


def test_no_host_answers() -> None:
    """The error says why, for each of them."""
    addresses = [closed_port(), closed_port()]
    with pytest.raises(TransportError, match=r"No host of `service\.url`") as caught:
        ConnectionPool(client_options(*addresses)).service()
    assert all(address in str(caught.value) for address in addresses)


def test_the_only_host_fails_as_it_does(scripted: ScriptedBroker) -> None:
    """A final error of a single host stays final."""
    scripted.always("CONNECT", garbage(b"HTTP/1.1 400\r\n"))
    with pytest.raises(ProtocolError, match="HTTP"):
        ConnectionPool(client_options(scripted.address)).service()


def test_after_close_it_opens_anew(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Closing ends connections, not the pool."""
    pool.service()
    pool.close()
    wait_until(lambda: not scripted.sessions)
    assert pool.service().is_open


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("Broker-1.Example:6650", "broker-1.example:6650"),
        ("127.0.0.1:06650", "127.0.0.1:6650"),
        ("[0:0::1]:6650", "[::1]:6650"),
        ("[FE80::1%eth0]:1", "[fe80::1%eth0]:1"),
        ("h:65535", "h:65535"),
        ("h:65536", None),
        ("h:0", None),
        ("h:1180591620717411303424", None),
        ("h:-1", None),
        ("h", None),
        (":6650", None),
        ("", None),
        ("user:hunter2@h:6650", None),
        ("h:6650/path", None),
        ("h\n:6650", None),
        ("[::g]:6650", None),
        ("[1.2.3.4]:6650", None),
    ],
)
def test_a_place_has_one_spelling(text: str, address: str | None) -> None:
    """What is no place has none."""
    assert normal_address(text) == address


def test_service_url_in_any_spelling(scripted: ScriptedBroker) -> None:
    """A broker that names itself otherwise is not connected to twice."""
    port = scripted.address.rpartition(":")[2]
    pool = ConnectionPool(client_options(f"LocalHost:0{port}"))
    assert pool.service() is pool.get(BrokerAddress(f"localhost:{port}"))
    pool.close()


def test_what_failed_takes_no_room(pool: ConnectionPool) -> None:
    """Brokers name places where nobody is."""
    for _ in range(5):
        with pytest.raises(TransportError):
            pool.get(BrokerAddress(closed_port()))
    assert pool._slots == {}


def test_who_was_not_reached(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """It is known until somebody is there."""
    nobody, there = BrokerAddress(closed_port()), BrokerAddress(scripted.address)
    assert not pool.is_unreachable(nobody)
    with pytest.raises(TransportError):
        pool.get(nobody)
    assert pool.is_unreachable(nobody)
    scripted.script("CONNECT", cut, usual)
    with pytest.raises(TransportError):
        pool.get(there)
    assert pool.is_unreachable(there)
    pool.get(there)
    assert not pool.is_unreachable(there)


@pytest.fixture
def limits() -> PoolLimits:
    """How much the pool keeps; a test may have others as its parameter."""
    return PoolLimits()


@pytest.fixture
def pool(scripted: ScriptedBroker, limits: PoolLimits) -> Iterator[ConnectionPool]:
    """Connections to the broker."""
    with ConnectionPool(client_options(scripted.address), limits=limits) as pool:
        yield pool


@pytest.mark.parametrize("limits", [PoolLimits(brokers=3)])
def test_memory_of_those_not_reached_is_bounded(pool: ConnectionPool) -> None:
    """Brokers name places where nobody is, again and again."""
    for _ in range(10):
        address = BrokerAddress(closed_port())
        with pytest.raises(TransportError):
            pool.get(address)
        assert pool.is_unreachable(address)
        assert len(pool._unreachable) <= 3


@pytest.mark.parametrize("limits", [PoolLimits(topic_partitions=2, topics=2)])
def test_what_is_remembered_of_topics(pool: ConnectionPool) -> None:
    """The last answer; of more topics than there is room for, the last ones."""
    one, other = BrokerAddress("one:1"), BrokerAddress("other:1")
    assert pool.last_broker("a") is None
    assert pool.learnt("a") is None
    pool.remember_brokers({"a": one, "b": one})
    pool.remember_brokers({"b": other})
    assert (pool.last_broker("a"), pool.last_broker("b")) == (one, other)
    pool.remember_brokers({"c": other})
    assert (pool.last_broker("a"), pool.last_broker("c")) == (None, other)
    for number, name in enumerate("aab"):
        pool.learn(name, Learnt(number, 1.0))
    assert (pool.learnt("a"), pool.learnt("b")) == (Learnt(1, 1.0), Learnt(2, 1.0))
    pool.learn("c", Learnt(3, 1.0))
    assert (pool.learnt("a"), pool.learnt("c")) == (None, Learnt(3, 1.0))


@pytest.mark.parametrize("limits", [PoolLimits(brokers=3)])
def test_connections_that_nothing_waits_for_are_bounded(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Of too many, those are closed that were asked for longest ago."""
    addresses = [BrokerAddress(scripted.address, f"b:{n}") for n in range(1, 7)]
    used = pool.get(addresses[0])
    used.attach_producer(1, Ignored())
    older, old = pool.get(addresses[1]), pool.get(addresses[2])
    assert pool.get(addresses[1]) is older  # again, so it is the newer one
    pool.get(addresses[3])
    assert (used.is_open, older.is_open, old.is_open) == (True, True, False)
    for address in addresses:
        pool.get(address)
    assert used.is_open
    assert not older.is_open
    assert pool.get(addresses[0]) is used
    wait_until(lambda: len(scripted.sessions) == 3)


@pytest.mark.parametrize("limits", [PoolLimits(brokers=1)])
def test_those_in_use_are_never_closed(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """However many there are."""
    connections = []
    for number in range(1, 5):
        connections.append(pool.get(BrokerAddress(scripted.address, f"b:{number}")))
        connections[-1].attach_producer(1, Ignored())
    assert all(connection.is_open for connection in connections)


class Ignored:
    """An outbox that keeps nothing."""

    def receipts(self, receipts: Any) -> None:
        """Ignores it."""

    def refused(self, refusal: Any, error: Any) -> None:
        """Ignores it."""

    def closed(self, error: Any) -> None:
        """Ignores it."""


@pytest.mark.usefixtures("_own_pools")
class TestSharedPool:
    def test_equal_options_share_a_pool(self) -> None:
        """Options are values: another task brings equal ones, not the same."""
        assert shared_pool(client_options("a:1")) is shared_pool(client_options("a:1"))
        assert shared_pool(client_options("a:1")) is not shared_pool(
            client_options("b:1")
        )

    def test_what_no_connection_depends_on_makes_no_other_pool(self) -> None:
        """Pools are told apart by the key of their options, and not by all of these."""
        one = client_options("a:1", stats_interval_s=1.0)
        other = client_options("a:1", stats_interval_s=2.0)
        assert shared_pool(one) is shared_pool(other)
        assert list(module._pools) == [one.pool_key]

    def test_what_is_forgotten_hears_nothing(self, scripted: ScriptedBroker) -> None:
        """Its connections end without a word, and the next one is another."""
        pool = ConnectionPool(client_options(scripted.address))
        first = pool.service()
        scripted.requests.clear()
        pool.forget()
        pool.forget()  # there is nothing left
        wait_until(lambda: not scripted.sessions, "the end of the first one")
        assert not scripted.requests
        assert pool.service() is not first
        assert scripted.connections == 2
        pool.close()

    @pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
    def test_a_forked_child_starts_afresh(self, scripted: ScriptedBroker) -> None:
        """It opens its own connection, and holds no copy of the parent's sockets."""
        scripted.add_topic(TOPIC)
        options = client_options(scripted.address)
        parent = shared_pool(options).service()
        inherited: Any = parent._transport

        def child() -> None:
            pool = shared_pool(options)
            assert pool._slots == {}
            assert inherited._socket.fileno() == -1
            assert TopicLookup(pool).partition_counts([TOPIC]) == {TOPIC: 0}

        assert in_child(child) == 0
        assert scripted.connections == 2
        assert parent.is_open
        assert TopicLookup(shared_pool(options)).partition_counts([TOPIC]) == {TOPIC: 0}

    @pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
    def test_a_lock_held_at_the_fork_does_not_block_the_child(self) -> None:
        """Another thread of the parent may be inside of shared_pool just then."""
        options = client_options("a:1")
        with module._pools_lock:
            assert in_child(lambda: shared_pool(options)) == 0

    @pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
    def test_a_buffer_taken_at_the_fork_does_not_block_the_child(
        self, scripted: ScriptedBroker
    ) -> None:
        """Nor are the parent's buffers, which nobody will ever give back, kept."""
        held = [connect_module._buffers.take(BUFFER_BYTES) for _ in range(3)]

        def child() -> None:
            assert len(connect_module._buffers.take(BUFFER_BYTES)) == BUFFER_BYTES
            assert len(connect_module._buffers._buffers) == 1

        with connect_module._buffers._lock:
            assert in_child(child) == 0
        assert len(connect_module._buffers._buffers) >= len(held)

    @pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
    def test_a_pool_that_is_not_shared_is_forgotten_too(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """A child holds no copy of its sockets, and connects anew."""
        scripted.add_topic(TOPIC)
        inherited: Any = pool.service()._transport

        def child() -> None:
            assert inherited._socket.fileno() == -1
            assert TopicLookup(pool).partition_counts([TOPIC]) == {TOPIC: 0}

        with pool._lock:
            assert in_child(child) == 0
        assert scripted.connections == 2
        assert TopicLookup(pool).partition_counts([TOPIC]) == {TOPIC: 0}


def in_child(run: Callable[[], object]) -> int:
    """Runs something in a forked child; 0 where it went well within a minute."""
    child = os.fork()
    if child == 0:
        watchdog = threading.Timer(60, os._exit, [2])
        watchdog.daemon = True
        watchdog.start()
        try:
            run()
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


class TestIdleConnections:
    """A connection that nothing uses is closed after a while."""

    @pytest.fixture
    def resting(
        self, scripted: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[ConnectionPool]:
        """Connections that end soon."""
        patience.usual(monkeypatch, tick_s=0.01)
        options = client_options(scripted.address, connection_max_idle_s=0.1)
        with ConnectionPool(options) as pool:
            yield pool

    def test_it_is_closed_and_opened_anew(
        self, scripted: ScriptedBroker, resting: ConnectionPool
    ) -> None:
        """Whoever wants it gets another one."""
        address = BrokerAddress(scripted.address)
        first = resting.get(address)
        wait_until(lambda: not first.is_open)
        with pytest.raises(TransportError, match="connectionMaxIdleSeconds"):
            first.send(commands.ping())
        second = resting.get(address)
        assert second is not first
        assert second.wanted()

    def test_what_is_used_stays(
        self, scripted: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A consumer uses it, however silent it is; time counts from its end."""
        clock = Clock()
        monkeypatch.setattr(connection_module, "time", clock)
        with ConnectionPool(
            client_options(
                scripted.address, connection_max_idle_s=60, keep_alive_interval_s=9e9
            )
        ) as pool:
            connection = pool.get(BrokerAddress(scripted.address))
            consumer_id = connection.attach(Box())
            assert not connection._rests(clock.now + 1000)
            connection.detach(consumer_id)
            assert not connection._rests(clock.now + 1059)
            assert connection.wanted()
            clock.now += 59
            assert not connection._rests(clock.now)
            clock.now += 1
            assert connection._rests(clock.now)
            assert not connection.wanted()

    def test_somebody_wants_it_as_it_ends(
        self, scripted: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They have it, and it stays; or it ends, and they are told."""
        answers: list[bool] = []
        asking: list[threading.Thread] = []

        def while_it_ends(*given: Any, **further: Any) -> TransportError:
            thread = threading.Thread(target=lambda: answers.append(one.wanted()))
            thread.start()
            thread.join(0.1)  # it has to wait, if all is well
            asking.append(thread)
            return TransportError(*given, **further)

        options = client_options(scripted.address, connection_max_idle_s=60)
        with ConnectionPool(options) as pool:
            one = pool.get(BrokerAddress(scripted.address))
            monkeypatch.setattr(connection_module, "TransportError", while_it_ends)
            assert one._rests(time.monotonic() + 60)
            join(asking[0], "an answer")
            assert answers == [False]

    @pytest.mark.parametrize("never", [0, -1])
    def test_never(self, scripted: ScriptedBroker, never: float) -> None:
        """0 and -1 keep connections for ever."""
        options = client_options(scripted.address, connection_max_idle_s=never)
        with ConnectionPool(options) as pool:
            connection = pool.get(BrokerAddress(scripted.address))
            assert not connection._rests(time.monotonic() + 1e9)
            assert connection.is_open


class Box:
    """A consumer that waits."""

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Nothing comes."""

    def closed(self, error: PulsarSparkError | None) -> None:
        """It ends with its connection."""


def test_brokers_that_most_likely_still_serve(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Those of the last lookups, but for brokers that are known to be away."""
    here, nobody = BrokerAddress(scripted.address), BrokerAddress(closed_port())
    pool.remember_brokers({"a": here, "b": here})
    pool.suggest_brokers({"a": nobody, "c": nobody})
    assert pool.likely_brokers("abcd") == {"a": here, "b": here, "c": nobody}
    pool.forget_brokers(["b", "d"])
    pool.suggest_brokers({"b": here})  # again
    with pytest.raises(TransportError):
        pool.get(nobody)
    assert pool.likely_brokers("abcd") == {"a": here}
    pool.get(here).close()
    assert pool.likely_brokers("abcd") == {}
    pool.get(here)
    assert pool.likely_brokers("abcd") == {"a": here}
