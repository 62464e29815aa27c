# SPDX-License-Identifier: Apache-2.0
"""Topics that were migrated to another cluster: who goes along, and who must not."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.client.entry_reader import EntryReader, ReaderSettings
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.producing.producers import Producers, ProducerSettings, Resend
from pulsar_spark.errors import (
    BrokerError,
    InDoubtError,
    SchemaError,
    TopicMigratedError,
)
from pulsar_spark.message_id import LATEST
from pulsar_spark.schemas.info import SchemaInfo, SchemaType
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import ProducerAccessMode
from tests.support import patience
from tests.support.scripted_broker import (
    ScriptedBroker,
    client_options,
    cut,
    migrated,
    refuse,
    refuse_entry,
    silence,
    single,
    usual,
)
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_spark.loops.sends import SendFrame

TOPIC = "persistent://public/default/t-partition-0"


@pytest.fixture
def pool(scripted: ScriptedBroker) -> Iterator[ConnectionPool]:
    """Connections to the cluster of the options."""
    with ConnectionPool(client_options(scripted.address)) as connections:
        yield connections


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


@contextlib.contextmanager
def writing(
    scripted: ScriptedBroker,
    there: ScriptedBroker,
    *,
    settings: ProducerSettings | None = None,
    schema: SchemaInfo | None = None,
) -> Iterator[Producers]:
    """Producers whose topic is migrated as soon as they have to attach again."""
    scripted.script("PRODUCER", usual, *[migrated(there.url)] * 9)
    settings = replace(settings or ProducerSettings(), follows_migration=True)
    with (
        ConnectionPool(client_options(scripted.address)) as pool,
        Producers(pool, settings) as producers,
    ):
        producers.open([TOPIC], schema)
        yield producers


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
    ) -> None:
        """The broker repeats it to whoever attaches, for long enough: it is final."""
        patience.of_pool(pool, ending_s=0.3)
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

    def test_an_epoch_of_the_first_one_is_not_shown(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """Exclusive access is had anew."""
        scripted.script("SEND", cut)
        settings = ProducerSettings(access_mode=ProducerAccessMode.EXCLUSIVE)
        with writing(scripted, there, settings=settings) as producers:
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
        scripted.script("SEND", usual, cut)
        with (
            writing(scripted, there) as producers,
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
        scripted.script("SEND", usual, silence, cut)
        with writing(scripted, there) as producers:
            store(producers, b"a")
            there._last_ids[TOPIC, producers.get(TOPIC).registration.name] = 1
            with pytest.raises(InDoubtError, match="as duplicates"):
                store_in_chunks(producers, b"x" * 2500, 1000, number=1)

    def test_a_schema_of_another_version(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """Rows say the version that the first cluster has given theirs."""
        there.add_schema(TOPIC, SchemaType.INT64)
        scripted.script("SEND", cut)
        schema = SchemaInfo(SchemaType.STRING, b"")
        with (
            writing(scripted, there, schema=schema) as producers,
            pytest.raises(SchemaError, match="has another version"),
        ):
            store(producers, b"a")

    def test_what_follows_dropped_rows_has_a_schema_of_another_version(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """The error is the same."""
        there.add_schema(TOPIC, SchemaType.INT64)
        scripted.script("SEND", cut)
        with (
            writing(
                scripted,
                there,
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
        scripted.script("SEND", cut)
        settings = ProducerSettings(name="p", resend=Resend.NEVER)
        with writing(scripted, there, settings=settings) as producers:
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
        scripted.script("SEND", cut)
        schema = SchemaInfo(SchemaType.STRING, b"")
        with writing(scripted, there, schema=schema) as producers:
            send(producers, b"a")
            producers.flush()
        assert stored(there) == [b"a"]

    def test_what_followed_a_damaged_entry_is_known_there(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """It would be dropped as a duplicate, and is in neither cluster."""
        there.deduplicates = True
        scripted.script("SEND", usual, refuse_entry("ChecksumError"), usual, cut)
        with writing(scripted, there) as producers:
            there._last_ids[TOPIC, producers.get(TOPIC).registration.name] = 2  # copies
            with pytest.raises(InDoubtError, match="as duplicates"):
                store_together(producers, b"a", b"b", b"c", b"d")
        assert stored(scripted) == [b"a", b"c"]

    def test_a_damaged_entry_that_nothing_followed(
        self, scripted: ScriptedBroker, there: ScriptedBroker
    ) -> None:
        """It is sent again like any other one."""
        there.deduplicates = True
        scripted.script("SEND", usual, refuse_entry("ChecksumError"), cut)
        with writing(scripted, there) as producers:
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
        scripted.script("SEND", usual, silence, cut)
        settings = ProducerSettings(name=name)
        with writing(scripted, there, settings=settings) as producers:
            there._last_ids[TOPIC, producers.get(TOPIC).registration.name] = known
            send(producers, b"a", b"b", b"c")
            if goes:
                producers.flush()
            else:
                with pytest.raises(InDoubtError, match="as duplicates"):
                    producers.flush()
        assert stored(there) == ([b"b", b"c"][known:] if goes else [])


class TestReaders:
    def test_nothing_is_left_here(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """A reader at the end of a topic that was migrated fails, and names it."""
        scripted.add_topic(TOPIC, [single(b"a")])
        scripted.script("SUBSCRIBE", migrated("pulsar://green:6650"))
        settings = ReaderSettings("", 10, 60.0)
        with (
            EntryReader(pool, TOPIC, LATEST, settings) as reader,
            pytest.raises(TopicMigratedError, match="green:6650") as caught,
        ):
            reader.receive(60.0)
        assert TOPIC in str(caught.value)
        wait_until(lambda: not scripted.consumers)
