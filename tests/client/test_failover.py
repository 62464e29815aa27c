# SPDX-License-Identifier: Apache-2.0
"""Several clusters: which of them an operation uses."""

from __future__ import annotations

import logging
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client.failover import choose_cluster
from pulsar_spark.client.pool import ConnectionPool, shared_pool
from pulsar_spark.errors import AuthError, TransportError
from pulsar_spark.options import ClientOptions, ServiceUrl
from pulsar_spark.options.authentication import (
    AuthenticationOptions,
    ClientCredentials,
)
from pulsar_spark.options.failover import Failover
from pulsar_spark.options.secret import Secret
from tests.support import patience
from tests.support.scripted_broker import (
    LOOPBACK,
    ScriptedBroker,
    client_options,
    refuse,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: How long a cluster must be out of reach; long enough for one that answers, so that a
#: test waits for it only where one is gone.
DELAY_S = 0.3


def url(*addresses: str) -> ServiceUrl:
    """A cluster of these hosts."""
    return ServiceUrl("pulsar", addresses)


def options(
    *addresses: str, others: Sequence[ServiceUrl] = (), **limits: Any
) -> ClientOptions:
    """Options with other clusters."""
    limits = {"lookup_timeout_s": 1.0, **limits}
    given = client_options(*addresses, **limits)
    return replace(given, failover=Failover(tuple(others), DELAY_S))


def choice(given: ClientOptions) -> ServiceUrl:
    """The cluster that is chosen, to stay with."""
    chosen = choose_cluster(given, "So it is.")
    assert chosen == replace(given, service_url=chosen.service_url, failover=None)
    return chosen.service_url


def dead() -> str:
    """The address of a host that is down."""
    with ScriptedBroker() as broker:
        return broker.address


@contextmanager
def silent_host() -> Iterator[str]:
    """A host that takes connections, and says nothing."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        yield "{}:{}".format(*listener.getsockname())


class TestChoice:
    """Which cluster an operation begins at."""

    def test_the_first_one_answers(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """The others are not asked."""
        given = options(scripted.address, others=[url(there.address)])
        assert choice(given) == url(scripted.address)
        assert not there.connections

    def test_there_is_only_one(self) -> None:
        """It is not asked for more than what is done with it."""
        given = client_options(dead())
        assert choose_cluster(given, "") is given

    @pytest.mark.parametrize("kind", ["down", "silent"])
    def test_the_first_one_is_out_of_reach(
        self, kind: str, there: ScriptedBroker, caplog: pytest.LogCaptureFixture
    ) -> None:
        """After so long the next one is used, with a warning, and says what is left."""
        last = url("never.asked.invalid:6650")
        began = time.monotonic()
        with (
            silent_host() as silent,
            caplog.at_level(logging.WARNING, "pulsar_spark"),
        ):
            gone = dead() if kind == "down" else silent
            given = options(gone, others=[url(there.address), last])
            assert choice(given) == url(there.address)
        assert time.monotonic() - began >= DELAY_S
        (warning,) = caplog.records
        assert warning.getMessage() == (
            f"pulsar://{gone} cannot be reached for 0.3 s: pulsar://{there.address} is"
            " used instead. So it is."
        )

    def test_clusters_are_asked_in_order(self, there: ScriptedBroker) -> None:
        """One that is down is passed over."""
        with ScriptedBroker() as third:
            others = [url(dead()), url(there.address), url(third.address)]
            assert choice(options(dead(), others=others)) == others[1]
            assert not third.connections

    def test_one_host_of_several_answers(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """Then the cluster is there, and no wait for the others can end in time."""
        with silent_host() as silent:
            hosts = [dead(), silent, scripted.address]
            given = options(*hosts, others=[url(there.address)])
            given = replace(given, failover=replace(given.failover, delay_s=86_400.0))
            assert choice(given) == url(*hosts)
        assert not there.connections

    def test_the_last_host_of_many_answers(
        self, there: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each is asked in time, however many are silent before it."""
        is_over = threading.Event()

        def probe(pool: ConnectionPool, host: str, timeout_s: float) -> None:
            if host != "a19:1":
                is_over.wait(10)
                raise TransportError("silent")
            time.sleep(0.1)

        monkeypatch.setattr(ConnectionPool, "probe", probe)
        hosts = [f"a{number}:1" for number in range(20)]
        assert choice(options(*hosts, others=[url("b:1")])) == url(*hosts)
        is_over.set()

    def test_it_comes_back_in_time(
        self, there: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is asked again and again."""
        tries = []

        def probe(pool: ConnectionPool, host: str, timeout_s: float) -> None:
            tries.append(host)
            if len(tries) < 3:
                raise TransportError("down")

        monkeypatch.setattr(ConnectionPool, "probe", probe)
        given = options("a:1", others=[url(there.address)])
        assert choice(given) == url("a:1")
        assert tries == ["a:1"] * 3

    def test_all_are_out_of_reach(self) -> None:
        """All are asked for as long as a lookup may take; the error names each."""
        hosts = dead(), dead()
        given = options(hosts[0], others=[url(hosts[1])], lookup_timeout_s=0.5)
        began = time.monotonic()
        with pytest.raises(TransportError, match="No cluster can be") as caught:
            choice(given)
        assert time.monotonic() - began >= 0.5
        for host in hosts:
            assert f"pulsar://{host}: " in caught.value.message
        assert "`pulsar.client.serviceUrlProvider`" in caught.value.message
        assert caught.value.retriable

    def test_the_first_one_is_the_first_to_come_back(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """While all are asked, it is."""
        tries: list[str] = []

        def probe(pool: ConnectionPool, host: str, timeout_s: float) -> None:
            tries.append(host)
            if tries.count("b:1") < 2 or host == "b:1":
                raise TransportError("down")

        monkeypatch.setattr(ConnectionPool, "probe", probe)
        given = options("a:1", others=[url("b:1")], lookup_timeout_s=30.0)
        assert choice(given) == url("a:1")

    def test_all_were_out_of_reach(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As where our own network was down: no cluster was, so it stays."""
        tries: list[str] = []

        def probe(pool: ConnectionPool, host: str, timeout_s: float) -> None:
            tries.append(host)
            if "b:1" not in tries:
                raise TransportError("no network")

        monkeypatch.setattr(ConnectionPool, "probe", probe)
        assert choice(options("a:1", others=[url("b:1")])) == url("a:1")

    def test_an_answer_had_no_time_to_come(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As in a process that was stopped: it is asked again."""
        patience.usual(monkeypatch, cluster_s=DELAY_S)
        is_back = threading.Event()

        def probe(pool: ConnectionPool, host: str, timeout_s: float) -> None:
            if host == "b:1":
                is_back.set()
            assert is_back.wait(10)

        monkeypatch.setattr(ConnectionPool, "probe", probe)
        assert choice(options("a:1", others=[url("b:1")])) == url("a:1")

    def test_there_is_no_credential_to_show(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """That is said, and nothing of brokers: none was asked."""
        server = f"http://{dead()}"
        credential = ClientCredentials(Secret("b", "x"), "a", server)
        given = options(
            scripted.address,
            scripted.address,
            others=[url(there.address)],
            lookup_timeout_s=0.5,
            authentication=AuthenticationOptions("oauth2", credential),
        )
        with pytest.raises(AuthError, match=f"the server {server}") as caught:
            choice(given)
        assert caught.value.retriable
        assert "cluster" not in caught.value.message
        with ConnectionPool(given) as pool, pytest.raises(AuthError) as of_pool:
            pool.service()
        assert "No host" not in of_pool.value.message
        assert not scripted.connections

    @pytest.mark.parametrize("hosts", [("a:1", "a:2"), ("a:2", "a:1")])
    def test_one_host_refuses_and_one_has_no_credential(
        self, hosts: tuple[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The refusal counts, in whichever order they are: the cluster is there."""

        def probe(pool: ConnectionPool, host: str, timeout_s: float) -> None:
            assert host != "b:1"
            is_final = host == "a:1"
            broker = host if is_final else ""
            raise AuthError("no", code="x", broker=broker, retriable=not is_final)

        monkeypatch.setattr(ConnectionPool, "probe", probe)
        assert choice(options(*hosts, others=[url("b:1")])) == url(*hosts)

    @pytest.mark.parametrize(
        ("hosts", "other"),
        [(["a:1", "b:1"], "a:1"), (["b:1"], "a:1"), (["a:1"], "b:1")],
    )
    def test_one_is_down_and_one_has_no_credential(
        self, hosts: list[str], other: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Both reasons are told."""

        def probe(pool: ConnectionPool, host: str, timeout_s: float) -> None:
            if host == "b:1":
                raise AuthError("no token", code="x", retriable=True)
            raise TransportError("down")

        monkeypatch.setattr(ConnectionPool, "probe", probe)
        given = options(*hosts, others=[url(other)], lookup_timeout_s=0.5)
        with pytest.raises(TransportError, match="No cluster can be") as caught:
            choice(given)
        assert "down" in caught.value.message
        assert "no token" in caught.value.message

    def test_the_first_one_refuses(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """That is an error at once of what asks it, and no reason to go elsewhere."""
        scripted.always("CONNECT", refuse("AuthenticationError", "who are you?"))
        given = options(scripted.address, dead(), others=[url(there.address)])
        chosen = choose_cluster(given, "")
        assert chosen.service_url == given.service_url
        with pytest.raises(AuthError, match="who are you"):
            shared_pool(chosen).service()
        assert not there.connections

    def test_the_second_one_refuses(self, there: ScriptedBroker) -> None:
        """The error says why it was asked; the third one is not."""
        there.always("CONNECT", refuse("AuthenticationError", "who are you?"))
        gone, last = dead(), url("never.asked.invalid:6650")
        given = options(gone, others=[url(there.address), last])
        with pytest.raises(AuthError, match=f"because pulsar://{gone} cannot be"):
            choice(given)
