# SPDX-License-Identifier: Apache-2.0
"""Topics that were migrated to another cluster: who goes along, and who must not."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.client.entry_reader import EntryReader, ReaderSettings
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.producing import states as producer_state
from pulsar_spark.client.producing.producers import Producers, ProducerSettings, Resend
from pulsar_spark.errors import BrokerError, TopicMigratedError
from pulsar_spark.loops.sends import SendFrame
from pulsar_spark.message_id import LATEST
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.outgoing import EntryEncoder
from tests.support.scripted_broker import (
    ScriptedBroker,
    client_options,
    cut,
    migrated,
    refuse,
    refuse_entry,
    single,
    usual,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "persistent://public/default/t-partition-0"


@pytest.fixture
def there() -> Iterator[ScriptedBroker]:
    """The broker of the other cluster."""
    with ScriptedBroker() as broker:
        yield broker


@pytest.fixture
def pool(scripted: ScriptedBroker) -> Iterator[ConnectionPool]:
    """Connections to the cluster of the options."""
    with ConnectionPool(client_options(scripted.address)) as connections:
        yield connections


def frame(producers: Producers, value: bytes, sequence_id: int) -> SendFrame:
    """An entry of one message."""
    producer = producers.get(TOPIC)
    encoder = EntryEncoder(
        producer.producer_id, producer.name, producer.max_message_size_bytes
    )
    (entry,) = encoder.single(pb.MessageMetadata(), value, sequence_id, 1)
    return entry


def stored(broker: ScriptedBroker) -> list[bytes]:
    """The values in a broker's topic."""
    return [entry.payload for entry in broker.topics.get(TOPIC, [])]


class TestProducers:
    def test_a_write_that_begins_goes_to_the_other_cluster(
        self,
        scripted: ScriptedBroker,
        there: ScriptedBroker,
        pool: ConnectionPool,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """It attaches there, and says so once."""
        scripted.script("PRODUCER", *[migrated(f"pulsar://{there.address}")] * 3)
        with (
            caplog.at_level(logging.WARNING, "pulsar_spark"),
            Producers(pool, ProducerSettings(follows_migration=True)) as producers,
        ):
            producers.open([TOPIC])
            producers.send(producers.get(TOPIC), frame(producers, b"a", 0))
            producers.flush()
        assert stored(there) == [b"a"]
        assert not stored(scripted)
        assert scripted.requests["PRODUCER"] == 1
        (warning,) = caplog.records
        assert (
            f"another cluster, {there.address}: rows go there" in warning.getMessage()
        )

    def test_a_write_under_way_goes_on_there(
        self, scripted: ScriptedBroker, there: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """What has no receipt is sent there."""
        scripted.script("PRODUCER", usual, migrated(f"pulsar://{there.address}"))
        scripted.script("SEND", usual, cut)
        with Producers(pool, ProducerSettings(follows_migration=True)) as producers:
            producers.open([TOPIC])
            producers.send(producers.get(TOPIC), frame(producers, b"a", 0))
            producers.flush()
            producers.send(producers.get(TOPIC), frame(producers, b"b", 1))
            producers.flush()
        assert stored(scripted) == [b"a"]
        assert stored(there) == [b"b"]

    def test_the_topic_ends_before_the_broker_says_where_it_went(
        self, scripted: ScriptedBroker, there: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """So it is while a cluster is migrated: entries are refused, then producers."""
        ended = "TopicTerminatedError"
        moved = migrated(f"pulsar://{there.address}")
        scripted.script("PRODUCER", usual, refuse(ended), refuse(ended), moved)
        scripted.script("SEND", refuse_entry(ended))
        with Producers(pool, ProducerSettings(follows_migration=True)) as producers:
            producers.open([TOPIC])
            producers.send(producers.get(TOPIC), frame(producers, b"a", 0))
            producers.flush()
        assert not stored(scripted)
        assert stored(there) == [b"a"]

    @pytest.mark.parametrize("resend", [Resend.ALWAYS, Resend.IF_DEDUPLICATED])
    def test_it_ends_before_the_first_entry(
        self, resend: Resend, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """So it may for a job's log of commits: its error has to say where it went."""
        ended = "TopicTerminatedError"
        moved = migrated("pulsar://green:6650")
        scripted.script("PRODUCER", refuse(ended), refuse(ended), moved)
        with (
            Producers(pool, ProducerSettings(name="p", resend=resend)) as producers,
            pytest.raises(TopicMigratedError, match="green:6650"),
        ):
            producers.open([TOPIC])

    def test_a_topic_that_has_ended(
        self,
        scripted: ScriptedBroker,
        pool: ConnectionPool,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """The broker repeats it to whoever attaches, for long enough: it is final."""
        monkeypatch.setattr(producer_state, "_ENDING_S", 0.3)
        ended = "TopicTerminatedError"
        scripted.script("PRODUCER", usual, *[refuse(ended)] * 20)
        scripted.script("SEND", refuse_entry(ended))
        with Producers(pool, ProducerSettings(follows_migration=True)) as producers:
            producers.open([TOPIC])
            producers.send(producers.get(TOPIC), frame(producers, b"a", 0))
            with pytest.raises(BrokerError, match="write to another topic"):
                producers.flush()

    @pytest.mark.parametrize("resend", [Resend.ALWAYS, Resend.IF_DEDUPLICATED])
    def test_a_write_that_must_not_repeat_ends(
        self, resend: Resend, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """The error names the other cluster, and what to do; it comes at once."""
        scripted.script("PRODUCER", migrated("pulsar://green:6650"))
        with (
            Producers(pool, ProducerSettings(name="p", resend=resend)) as producers,
            pytest.raises(TopicMigratedError) as caught,
        ):
            producers.open([TOPIC])
        assert caught.value.service_url == "pulsar://green:6650"
        assert "pulsar://green:6650. It knows nothing of what was" in str(caught.value)
        assert not caught.value.retriable

    @pytest.mark.parametrize("url", ["", "nonsense", "pulsar://user:secret@host"])
    def test_a_url_that_is_none(
        self, url: str, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """The error says so, and shows no password in it."""
        scripted.script("PRODUCER", migrated(url, "pulsar+ssl://green:6651"))
        with (
            Producers(pool, ProducerSettings(follows_migration=True)) as producers,
            pytest.raises(TopicMigratedError, match="It cannot be used") as caught,
        ):
            producers.open([TOPIC])
        assert "secret" not in str(caught.value)

    def test_a_host_of_the_other_cluster_is_dead(
        self, scripted: ScriptedBroker, there: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """The next one is tried."""
        with ScriptedBroker() as dead:
            address = dead.address
        scripted.script(
            "PRODUCER", *[migrated(f"pulsar://{address},{there.address}")] * 9
        )
        with contextlib.ExitStack() as stack:
            for _ in range(4):  # a host is chosen by chance
                settings = ProducerSettings(follows_migration=True)
                producers = stack.enter_context(Producers(pool, settings))
                producers.open([TOPIC])
        assert there.requests["PRODUCER"] == 4


class TestReaders:
    def test_nothing_is_left_here(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """A reader at the end of a topic that was migrated fails, and names it."""
        scripted.add_topic(TOPIC, [single(b"a")])
        scripted.script("SUBSCRIBE", migrated("pulsar://green:6650"))
        settings = ReaderSettings("reader", "", 10, False, 60.0)
        with (
            EntryReader(pool, TOPIC, LATEST, settings) as reader,
            pytest.raises(TopicMigratedError, match="green:6650") as caught,
        ):
            reader.receive(60.0)
        assert TOPIC in str(caught.value)
        wait_until(lambda: not scripted.consumers)
