# SPDX-License-Identifier: Apache-2.0
"""Several clusters: which one is used, when it is left, and what goes along."""

from __future__ import annotations

import logging
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client import failover as module
from pulsar_spark.client.failover import Clusters
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.producing import producers as producers_module
from pulsar_spark.client.producing.producers import Producers, ProducerSettings, Resend
from pulsar_spark.errors import (
    AuthError,
    InDoubtError,
    OptionError,
    SchemaError,
    TransportError,
)
from pulsar_spark.options import ClientOptions, ServiceUrl
from pulsar_spark.options.failover import Failover
from pulsar_spark.schemas.info import SchemaInfo, SchemaType
from pulsar_spark.wire import pulsar_api_pb2 as pb
from tests.support.scripted_broker import (
    LOOPBACK,
    ScriptedBroker,
    Session,
    client_options,
    cut,
    let_go,
    look_up,
    migrated,
    refuse,
    refuse_entry,
    silence,
    usual,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pulsar_spark.loops.sends import SendFrame

TOPIC = "persistent://public/default/t-partition-0"
OTHER = "persistent://public/default/t-partition-1"

#: How long a cluster must be out of reach; long enough for one that answers, so that a
#: test waits for it only where one is gone.
DELAY_S = 0.3


@pytest.fixture
def there() -> Iterator[ScriptedBroker]:
    """The broker of the second cluster."""
    with ScriptedBroker() as broker:
        yield broker


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers do not count for longer than they are new."""
    monkeypatch.setattr(producers_module, "_FRESH_S", 0.0)


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


@contextmanager
def clusters_of(given: ClientOptions, **further: Any) -> Iterator[Clusters]:
    """Clusters with connections of their own, closed at the end."""
    one = Clusters(given, ConnectionPool, **further)
    try:
        yield one
    finally:
        for pool in one.pools:
            pool.close()


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
        with clusters_of(given) as clusters:
            assert not clusters.settle()
            assert clusters.options == given
        assert not there.connections

    def test_there_is_only_one(self) -> None:
        """It is not asked for more than what is done with it."""
        with clusters_of(client_options(dead())) as clusters:
            assert clusters.is_alone
            assert not clusters.settle()

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
            with clusters_of(given, says="So it is.") as clusters:
                assert clusters.settle()
                assert clusters.options.service_url == url(there.address)
                assert clusters.options.failover == Failover((last,), DELAY_S)
                assert clusters.pool.service_hosts == [there.address]
        assert time.monotonic() - began >= DELAY_S
        (warning,) = caplog.records
        assert warning.getMessage() == (
            f"pulsar://{gone} cannot be reached for 0.3 s: pulsar://{there.address} is"
            " used instead. So it is."
        )

    def test_clusters_are_asked_in_order(self, there: ScriptedBroker) -> None:
        """One that is down is passed over, and not come back to."""
        with ScriptedBroker() as third:
            others = [url(dead()), url(there.address), url(third.address)]
            with clusters_of(options(dead(), others=others)) as clusters:
                assert clusters.settle()
                assert clusters.options.service_url == others[1]
                assert clusters.options.failover == Failover((others[2],), DELAY_S)
            assert not third.connections

    def test_one_host_of_several_answers(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """Then the cluster is there, whatever the others do, and at once."""
        began = time.monotonic()
        with silent_host() as silent:
            hosts = [dead(), silent, scripted.address]
            given = options(*hosts, others=[url(there.address)])
            with clusters_of(given) as clusters:
                assert not clusters.settle()
        assert time.monotonic() - began < 10 * module._NEXT_HOST_S
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
        with clusters_of(options(*hosts, others=[url("b:1")])) as clusters:
            assert not clusters.settle()
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
        with clusters_of(given) as clusters:
            assert not clusters.settle()
        assert tries == ["a:1"] * 3

    def test_all_are_out_of_reach(self) -> None:
        """All are asked for as long as a lookup may take; the error names each."""
        hosts = dead(), dead()
        given = options(hosts[0], others=[url(hosts[1])], lookup_timeout_s=0.5)
        began = time.monotonic()
        with (
            clusters_of(given) as clusters,
            pytest.raises(TransportError, match="No cluster can be reached") as caught,
        ):
            clusters.settle()
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
        with clusters_of(given) as clusters:
            assert not clusters.settle()

    def test_all_were_out_of_reach(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As where our own network was down: no cluster was, so it stays."""
        tries: list[str] = []

        def probe(pool: ConnectionPool, host: str, timeout_s: float) -> None:
            tries.append(host)
            if "b:1" not in tries:
                raise TransportError("no network")

        monkeypatch.setattr(ConnectionPool, "probe", probe)
        with clusters_of(options("a:1", others=[url("b:1")])) as clusters:
            assert not clusters.settle()

    def test_an_answer_had_no_time_to_come(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As in a process that was stopped: it is asked again."""
        monkeypatch.setattr(module, "_TRY_S", DELAY_S)
        is_back = threading.Event()

        def probe(pool: ConnectionPool, host: str, timeout_s: float) -> None:
            if host == "b:1":
                is_back.set()
            assert is_back.wait(10)

        monkeypatch.setattr(ConnectionPool, "probe", probe)
        with clusters_of(options("a:1", others=[url("b:1")])) as clusters:
            assert not clusters.settle()

    def test_the_first_one_refuses(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """That is an error at once of what asks it, and no reason to go elsewhere."""
        scripted.always("CONNECT", refuse("AuthenticationError", "who are you?"))
        given = options(scripted.address, dead(), others=[url(there.address)])
        with clusters_of(given) as clusters:
            assert not clusters.settle()
            with pytest.raises(AuthError, match="who are you"):
                clusters.ask(lambda pool: pool.service())
        assert not there.connections

    def test_the_second_one_refuses(self, there: ScriptedBroker) -> None:
        """The error says why it was asked; the third one is not."""
        there.always("CONNECT", refuse("AuthenticationError", "who are you?"))
        gone, last = dead(), url("never.asked.invalid:6650")
        given = options(gone, others=[url(there.address), last])
        with (
            clusters_of(given) as clusters,
            pytest.raises(AuthError, match=f"because pulsar://{gone} cannot be"),
        ):
            clusters.settle()

    def test_what_asks_a_cluster_is_done_anew(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """Where the cluster goes meanwhile; what else fails does so once."""
        asked = []

        def work(pool: ConnectionPool) -> str:
            host = pool.service().broker
            asked.append(host)
            if host == scripted.address:
                scripted.close()
                raise TransportError("it went")
            return "done"

        given = options(scripted.address, others=[url(there.address)])
        with clusters_of(given) as clusters:
            assert clusters.ask(work) == "done"
            assert asked == [scripted.address, there.address]

    def test_what_fails_at_a_cluster_that_answers(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """Its error is that of the question."""

        def work(pool: ConnectionPool) -> None:
            raise TransportError("too slow")

        given = options(scripted.address, others=[url(there.address)])
        with (
            clusters_of(given) as clusters,
            pytest.raises(TransportError, match="too slow"),
        ):
            clusters.ask(work)
        assert not there.connections


def frame(
    producers: Producers, value: bytes, number: int, topic: str = TOPIC
) -> SendFrame:
    """An entry of one message."""
    encoder = producers.get(topic).encoder()
    (entry,) = encoder.single(pb.MessageMetadata(), value, number, 1)
    return entry


def send(producers: Producers, *values: bytes, first: int = 0) -> None:
    """Sends messages, without waiting for their receipts."""
    for number, value in enumerate(values, first):
        producers.send(producers.get(TOPIC), frame(producers, value, number))


def store(producers: Producers, *values: bytes) -> None:
    """Sends messages, and waits for their receipts."""
    send(producers, *values)
    producers.flush()


def store_together(producers: Producers, *values: bytes) -> None:
    """The same, with all of them under way before anything becomes of the first."""
    frames = [frame(producers, value, at) for at, value in enumerate(values)]
    producers.send_all([(producers.get(TOPIC), frames)])
    producers.flush()


def store_in_chunks(
    producers: Producers, value: bytes, size: int, number: int = 0
) -> None:
    """The same of one message in chunks."""
    producer = producers.get(TOPIC)
    encoder = producer.encoder(chunk_bytes=size)
    frames = list(encoder.single(pb.MessageMetadata(), value, number, 1))
    assert len(frames) > 2
    producers.send_all([(producer, frames)])
    producers.flush()


def stored(broker: ScriptedBroker, topic: str = TOPIC) -> list[bytes]:
    """The values in a broker's topic."""
    return [entry.payload for entry in broker.topics.get(topic, [])]


def goes_down(
    broker: ScriptedBroker, session: Session, command: pb.BaseCommand
) -> None:
    """Ends the broker, whose answer does not come."""
    broker.stop_listening()
    for one in broker.sessions:
        one.cut()


@contextmanager
def writing(
    *addresses: str,
    others: Sequence[str],
    settings: ProducerSettings = ProducerSettings(follows_migration=True),  # noqa: B008
    schema: SchemaInfo | None = None,
    **further: Any,
) -> Iterator[Producers]:
    """Producers with a topic open, and other clusters to go to."""
    given = options(*addresses, others=[url(one) for one in others])
    with (
        clusters_of(given, **further) as clusters,
        Producers(clusters.pool, settings, clusters) as producers,
    ):
        producers.open([TOPIC], schema)
        yield producers


class TestWrites:
    """A write whose cluster goes down."""

    def test_entries_under_way_go_to_the_next_one(
        self,
        scripted: ScriptedBroker,
        there: ScriptedBroker,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """What has a receipt stays, the rest follows in order, with one warning."""
        scripted.script("SEND", usual, usual, silence, silence, goes_down)
        with (
            caplog.at_level(logging.WARNING, "pulsar_spark"),
            writing(scripted.address, others=[there.address]) as producers,
        ):
            send(producers, b"a", b"b", b"c", b"d", b"e")
            producers.flush()
            send(producers, b"f", first=5)
            producers.open([OTHER])
            producers.flush()
        assert stored(scripted) == [b"a", b"b"]
        assert stored(there) == [b"c", b"d", b"e", b"f"]
        assert len(caplog.records) == 1

    def test_it_is_down_when_a_producer_attaches_first(
        self, there: ScriptedBroker
    ) -> None:
        """The topic partition is opened at the next one."""
        with writing(dead(), others=[there.address]) as producers:
            send(producers, b"a")
            producers.flush()
        assert stored(there) == [b"a"]

    def test_it_falls_silent(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """Connections that stay open, and say nothing, are no better than none."""
        scripted.script("SEND", silence)
        scripted.always("CLOSE_PRODUCER", silence)
        settings = ProducerSettings(send_timeout_s=1.0)
        with writing(
            scripted.address, others=[there.address], settings=settings
        ) as producers:
            scripted.always("CONNECT", silence)
            send(producers, b"a")
            producers.flush()
            scripted.cut()
        assert stored(there) == [b"a"]

    def test_nothing_is_promised(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """What was under way is dropped, and later rows go on at the next one."""
        scripted.script("SEND", goes_down)
        settings = ProducerSettings(resend=Resend.NEVER)
        with writing(
            scripted.address, others=[there.address], settings=settings
        ) as producers:
            send(producers, b"a")
            producers.flush()
            send(producers, b"b", first=1)
            producers.flush()
        assert stored(there) == [b"b"]

    def test_one_of_its_hosts_goes_down(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """Its topics move within the cluster: that is no reason to go elsewhere."""
        with ScriptedBroker() as neighbour:
            served_by = look_up(
                response=pb.CommandLookupTopicResponse.Connect,
                brokerServiceUrl=scripted.url,
            )
            neighbour.script("LOOKUP", served_by, served_by)
            scripted.script("LOOKUP", served_by)
            scripted.script("SEND", goes_down)
            with writing(
                neighbour.address, scripted.address, others=[there.address]
            ) as producers:
                send(producers, b"a")
                producers.flush()
            assert stored(neighbour) == [b"a"]
        assert not there.connections

    def test_it_takes_no_further_connections(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """A topic that moves needs none, so that the write goes on."""
        scripted.script("SEND", let_go)
        with writing(scripted.address, others=[there.address]) as producers:
            scripted.always("CONNECT", refuse("NotAllowedError", "too many"))
            store(producers, b"a")
        assert stored(scripted) == [b"a"]
        assert not there.connections

    def test_another_of_its_brokers_takes_rows(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """Though no host of the URL answers: a part of the rows would go elsewhere."""
        with ScriptedBroker() as neighbour:
            served_by = look_up(
                response=pb.CommandLookupTopicResponse.Connect,
                brokerServiceUrl=neighbour.url,
            )
            neighbour.always("LOOKUP", served_by)
            scripted.script("LOOKUP", usual, served_by)
            with writing(scripted.address, others=[there.address]) as producers:
                producers.open([OTHER])
                assert [p.topic for p in neighbour.producers] == [OTHER]
                clusters = producers._clusters
                goes_down(scripted, scripted.sessions[0], pb.BaseCommand())
                wait_until(lambda: producers._shared.broken, "the end")
                producers._settle([producers.get(TOPIC)], producers._retry)
                assert clusters.options.service_url == url(scripted.address)
        assert not there.connections

    def test_the_second_one_is_down_too(
        self, scripted: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The error names both, in the end."""
        monkeypatch.setattr(producers_module, "WRITE_PATIENCE_S", 0.1)
        scripted.script("SEND", goes_down)
        gone = dead()
        settings = ProducerSettings(send_timeout_s=0.5)
        with (
            writing(scripted.address, others=[gone], settings=settings) as producers,
            pytest.raises(TransportError, match="No cluster can be") as caught,
        ):
            store(producers, b"a")
        for address in (scripted.address, gone):
            assert f"pulsar://{address}: " in caught.value.message

    def test_the_second_one_goes_down_as_well(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """Rows go to the third one."""
        with ScriptedBroker() as third:
            scripted.script("SEND", usual, goes_down)
            there.script("SEND", usual, goes_down)
            with writing(
                scripted.address, others=[there.address, third.address]
            ) as producers:
                for number, value in enumerate((b"a", b"b", b"c")):
                    send(producers, value, first=number)
                    producers.flush()
            assert (stored(scripted), stored(there)) == ([b"a"], [b"b"])
            assert stored(third) == [b"c"]

    def test_the_next_one_refuses_credentials(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """That is final."""
        scripted.script("SEND", goes_down)
        there.always("CONNECT", refuse("AuthenticationError", "who are you?"))
        with (
            writing(scripted.address, others=[there.address]) as producers,
            pytest.raises(AuthError, match="who are you"),
        ):
            store(producers, b"a")

    def test_what_arrives_may_refuse(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """Such as topics that are not alike: nothing goes there."""

        def arrive(pool: ConnectionPool) -> None:
            raise OptionError("other topics")

        scripted.script("SEND", goes_down)
        with (
            writing(
                scripted.address, others=[there.address], arrive=arrive
            ) as producers,
            pytest.raises(OptionError, match="other topics"),
        ):
            store(producers, b"a")
        assert not stored(there)

    def test_an_epoch_of_the_first_one_is_not_shown(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """Exclusive access is had anew."""
        scripted.script("SEND", goes_down)
        settings = ProducerSettings(
            access_mode=producers_module.ProducerAccessMode.EXCLUSIVE
        )
        with writing(
            scripted.address, others=[there.address], settings=settings
        ) as producers:
            send(producers, b"a")
            producers.flush()
        (body,) = there.bodies["PRODUCER"]
        assert not body.HasField("topic_epoch")
        assert stored(there) == [b"a"]


class TestWhatCannotGoAlong:
    """Entries that mean something else at another cluster."""

    def test_half_a_row(self, scripted: ScriptedBroker, there: ScriptedBroker) -> None:
        """Chunks whose first ones are stored: the row would be whole in neither."""
        scripted.max_message_size = 200_000
        scripted.script("SEND", usual, goes_down)
        with (
            writing(scripted.address, others=[there.address]) as producers,
            pytest.raises(InDoubtError, match="in the middle of a row in chunks"),
        ):
            store_in_chunks(producers, b"x" * 2500, 1000)
        assert not stored(there)

    def test_a_row_whose_first_chunks_are_known_there(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """Its last one would be dropped, whatever the number of the ledger says."""
        there.deduplicates = True
        scripted.max_message_size = there.max_message_size = 200_000
        scripted.script("SEND", usual, silence, goes_down)
        with writing(scripted.address, others=[there.address]) as producers:
            store(producers, b"a")
            there._last_ids[TOPIC, producers.get(TOPIC).name] = 1
            with pytest.raises(InDoubtError, match="as duplicates"):
                store_in_chunks(producers, b"x" * 2500, 1000, number=1)

    def test_a_schema_of_another_version(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """Rows say the version that the first cluster has given theirs."""
        there.add_schema(TOPIC, SchemaType.INT64)
        scripted.script("SEND", goes_down)
        schema = SchemaInfo(SchemaType.STRING, b"")
        with (
            writing(
                scripted.address, others=[there.address], schema=schema
            ) as producers,
            pytest.raises(SchemaError, match="has another version"),
        ):
            store(producers, b"a")

    def test_what_follows_dropped_rows_has_a_schema_of_another_version(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """The error is the same."""
        there.add_schema(TOPIC, SchemaType.INT64)
        scripted.script("SEND", goes_down)
        with (
            writing(
                scripted.address,
                others=[there.address],
                settings=ProducerSettings(resend=Resend.NEVER),
                schema=SchemaInfo(SchemaType.STRING, b""),
            ) as producers,
            pytest.raises(SchemaError, match="has another version"),
        ):
            store(producers, b"a")

    @pytest.mark.parametrize(("known", "goes"), [(0, True), (1, False)])
    def test_what_follows_dropped_rows_would_be_dropped(
        self, known: int, goes: bool, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """All of them, until one has a number that is new."""
        there.deduplicates = True
        there._last_ids[TOPIC, "p"] = known
        scripted.script("SEND", goes_down)
        settings = ProducerSettings(name="p", resend=Resend.NEVER)
        with writing(
            scripted.address, others=[there.address], settings=settings
        ) as producers:
            if goes:
                store(producers, b"a")
                send(producers, b"b", first=1)
                producers.flush()
            else:
                with pytest.raises(InDoubtError, match="as duplicates"):
                    store(producers, b"a")
        assert stored(there) == ([b"b"] if goes else [])

    def test_the_same_schema(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """Rows go along, and the topic gets it there."""
        scripted.script("SEND", goes_down)
        schema = SchemaInfo(SchemaType.STRING, b"")
        with writing(
            scripted.address, others=[there.address], schema=schema
        ) as producers:
            send(producers, b"a")
            producers.flush()
        assert stored(there) == [b"a"]

    def test_what_followed_a_damaged_entry_is_known_there(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """It would be dropped as a duplicate, and is in neither cluster."""
        there.deduplicates = True
        scripted.script("SEND", usual, refuse_entry("ChecksumError"), usual, goes_down)
        with writing(scripted.address, others=[there.address]) as producers:
            there._last_ids[TOPIC, producers.get(TOPIC).name] = 2  # copies
            with pytest.raises(InDoubtError, match="as duplicates"):
                store_together(producers, b"a", b"b", b"c", b"d")
        assert stored(scripted) == [b"a", b"c"]

    def test_a_damaged_entry_that_nothing_followed(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """It is sent again like any other one."""
        there.deduplicates = True
        scripted.script("SEND", usual, refuse_entry("ChecksumError"), goes_down)
        with writing(scripted.address, others=[there.address]) as producers:
            store_together(producers, b"a", b"b", b"c")
        assert stored(there) == [b"b", b"c"]

    @pytest.mark.parametrize(
        ("name", "known", "goes"),
        [
            ("p", 5, False),
            ("", 5, False),
            ("p", 1, False),
            ("", 1, False),
            ("p", 0, True),
            ("", 0, True),
        ],
    )
    def test_a_name_that_is_known_there(
        self,
        name: str,
        known: int,
        goes: bool,
        scripted: ScriptedBroker,
        there: ScriptedBroker,
    ) -> None:
        """Rows would be dropped: whether as copies of these, nobody can tell."""
        there.deduplicates = True
        scripted.script("SEND", usual, silence, goes_down)
        settings = ProducerSettings(name=name)
        with writing(
            scripted.address, others=[there.address], settings=settings
        ) as producers:
            there._last_ids[TOPIC, producers.get(TOPIC).name] = known
            send(producers, b"a", b"b", b"c")
            if goes:
                producers.flush()
            else:
                with pytest.raises(InDoubtError, match="as duplicates"):
                    producers.flush()
        assert stored(there) == ([b"b", b"c"][known:] if goes else [])


def test_a_topic_that_was_migrated_stays_where_it_is(
    scripted: ScriptedBroker, there: ScriptedBroker
) -> None:
    """The cluster that it left may go down."""
    with ScriptedBroker() as second:
        scripted.script("PRODUCER", migrated(there.url))
        there.script("SEND", usual, cut)
        with writing(scripted.address, others=[second.address]) as producers:
            goes_down(scripted, scripted.sessions[0], pb.BaseCommand())
            send(producers, b"a", b"b")
            producers.flush()
        assert stored(there) == [b"a", b"b"]
        assert not second.connections
