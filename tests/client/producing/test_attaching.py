# SPDX-License-Identifier: Apache-2.0
"""Producers that attach: all at once, in their turn, or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.producing import attaching as module
from pulsar_spark.client.producing.producers import (
    Producers,
)
from pulsar_spark.client.requests import gather
from pulsar_spark.errors import (
    AuthError,
    BrokerError,
    TopicNotFoundError,
)
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import ProducerAccessMode
from tests.client.producing.sending import (
    NEVER_S,
    OTHER,
    TOPIC,
    store,
    values,
)
from tests.support import patience
from tests.support.scripted_broker import (
    ScriptedBroker,
    Session,
    client_options,
    cut,
    look_up,
    queued,
    refuse,
    silence,
    unheard,
    usual,
    usual_then_cut,
)
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.fixtures import Clock


class TestTurns:
    """A broker that lets producers wait until a topic is free."""

    @pytest.fixture
    def waits(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        """How long a task has waited for answers, one time after the other."""
        waited: list[float] = []

        def gather_and_count(sent: Any, timeout_s: float) -> Any:
            answers = gather(sent, timeout_s)
            waited.append(timeout_s)
            return answers

        monkeypatch.setattr(module, "gather", gather_and_count)
        return waited

    @pytest.fixture
    def pool(self, scripted: ScriptedBroker) -> Iterator[ConnectionPool]:
        """Connections that wait for an answer a tenth of a second."""
        one = ConnectionPool(client_options(scripted.address, operation_timeout_s=0.1))
        yield one
        one.close()

    def test_it_keeps_its_place(
        self,
        scripted: ScriptedBroker,
        make: Callable[..., Producers],
        caplog: pytest.LogCaptureFixture,
        waits: list[float],
    ) -> None:
        """For many times as long as an answer may take, without asking again."""
        caplog.set_level("INFO", module.logger.name)
        free = threading.Event()
        scripted.script("PRODUCER", queued(free))
        producers = make(access_mode=ProducerAccessMode.WAIT_FOR_EXCLUSIVE)
        with ThreadPoolExecutor(1) as executor:
            job = executor.submit(producers.open, [TOPIC, OTHER])
            wait_until(lambda: len(waits) > 7 or job.done())
            assert not job.done()
            free.set()
            job.result(60)
        assert len(scripted.bodies["PRODUCER"]) == 2
        assert not scripted.requests["CLOSE_PRODUCER"]
        assert f"{TOPIC}: waiting for exclusive access" in caplog.text
        store(producers, b"a")
        assert values(scripted) == [b"a"]

    def test_its_connection_breaks(
        self,
        scripted: ScriptedBroker,
        make: Callable[..., Producers],
        unhurried: Clock,
        waits: list[float],
    ) -> None:
        """It queues up again, though it has waited for longer than retries last."""
        never, free = threading.Event(), threading.Event()
        scripted.script("PRODUCER", queued(never, silence), queued(free))
        producers = make(access_mode=ProducerAccessMode.WAIT_FOR_EXCLUSIVE)
        retry = producers._opening_retry
        with ThreadPoolExecutor(1) as executor:
            producers._opening_retry = lambda: producers._pool.retry(  # type: ignore[method-assign]
                0.3
            )
            job = executor.submit(producers.open, [TOPIC])
            wait_until(lambda: len(waits) > 1 or job.done())
            unhurried.now += 0.6
            scripted.cut()
            wait_until(lambda: scripted.requests["PRODUCER"] == 2, "a second place")
            free.set()
            job.result(60)
            never.set()
        producers._opening_retry = retry  # type: ignore[method-assign]
        assert scripted.requests["PRODUCER"] == 2

    def test_its_queue_is_forgotten(
        self,
        scripted: ScriptedBroker,
        attach: Callable[..., Producers],
        pool: ConnectionPool,
    ) -> None:
        """By a topic that moved: after a while it gives up its place for a new one."""
        patience.of_pool(pool, place_s=0.3)
        never = threading.Event()
        scripted.script("PRODUCER", queued(never, silence), queued(never, silence))
        producers = attach(access_mode=ProducerAccessMode.WAIT_FOR_EXCLUSIVE)
        never.set()
        assert scripted.requests["PRODUCER"] == 3
        assert scripted.requests["CLOSE_PRODUCER"] == 2
        assert producers.get(TOPIC).trouble.queued_at is None

    def test_its_turn_never_comes(
        self,
        scripted: ScriptedBroker,
        make: Callable[..., Producers],
        pool: ConnectionPool,
    ) -> None:
        """The error says what it waited for, and leaves the queue."""
        patience.of_pool(pool, turn_s=0.5)
        never = threading.Event()
        scripted.script("PRODUCER", queued(never, silence))
        producers = make(access_mode=ProducerAccessMode.WAIT_FOR_EXCLUSIVE)
        with pytest.raises(BrokerError, match="not this task's turn") as caught:
            producers.open([TOPIC])
        never.set()
        assert TOPIC in str(caught.value)
        assert "`pulsar.producer.accessMode`" in str(caught.value)
        assert scripted.requests["PRODUCER"] == 1
        wait_until(lambda: scripted.requests["CLOSE_PRODUCER"], "its goodbye")
        assert pool.service().is_idle, "a broker answers PRODUCER no more"

    def test_it_is_refused_in_the_end(
        self, scripted: ScriptedBroker, make: Callable[..., Producers]
    ) -> None:
        """What the broker says then is what counts."""
        over = threading.Event()
        over.set()
        scripted.script("PRODUCER", queued(over, refuse("ProducerFenced")))
        producers = make(access_mode=ProducerAccessMode.WAIT_FOR_EXCLUSIVE)
        with pytest.raises(BrokerError, match="ProducerFenced"):
            producers.open([TOPIC])


class TestOpening:
    def test_many_at_once(
        self, scripted: ScriptedBroker, make: Callable[..., Producers]
    ) -> None:
        """A hundred topic partitions are looked up, and attached to, together."""
        topics = [f"persistent://public/default/t-partition-{n}" for n in range(100)]
        scripted.answer_together(100, "LOOKUP", "PRODUCER", "CLOSE_PRODUCER")
        producers = make()
        producers.open(topics)
        assert [producer.topic for producer in producers.all] == topics
        assert {p.topic for p in scripted.producers} == set(topics)
        producers.close()
        wait_until(lambda: not scripted.producers, "the end of producers")
        assert scripted.connections == 1

    def test_what_is_open_stays_so(
        self, scripted: ScriptedBroker, producers: Producers
    ) -> None:
        """Only new topic partitions are attached to."""
        before = producers.get(TOPIC)
        producers.open([TOPIC, OTHER])
        producers.open([])
        assert producers.get(TOPIC) is before
        assert [b.topic for b in scripted.bodies["PRODUCER"]] == [TOPIC, OTHER]

    def test_one_of_them_needs_more_tries(
        self, scripted: ScriptedBroker, make: Callable[..., Producers]
    ) -> None:
        """Only that one is asked for again."""
        scripted.script("PRODUCER", usual, refuse("ServiceNotReady"))
        producers = make()
        producers.open([TOPIC, OTHER])
        asked = [body.topic for body in scripted.bodies["PRODUCER"]]
        assert asked == [TOPIC, OTHER, OTHER]

    @pytest.mark.parametrize(
        ("code", "kind"),
        [
            ("AuthorizationError", AuthError),
            ("TopicNotFound", TopicNotFoundError),
            ("ProducerFenced", BrokerError),
            ("ProducerBlockedQuotaExceededException", BrokerError),
        ],
    )
    def test_final_refusals(
        self,
        scripted: ScriptedBroker,
        make: Callable[..., Producers],
        code: str,
        kind: type[BrokerError],
    ) -> None:
        """One is enough; the topic is named; nothing is left of the others."""
        scripted.script("PRODUCER", usual, refuse(code, "no"))
        producers = make()
        with pytest.raises(kind, match=f"{OTHER}.*{code}"):
            producers.open([TOPIC, OTHER])
        assert scripted.requests["PRODUCER"] == 2
        producers.close()
        wait_until(lambda: not scripted.producers, "the end of producers")

    @pytest.mark.parametrize(
        "code",
        [
            "ProducerBlockedQuotaExceededError",
            "ProducerBusy",
            "MetadataError",
            # A ledger cannot be recovered while its bookie is away, or comes back.
            "PersistenceError",
        ],
    )
    def test_passing_refusals(
        self, scripted: ScriptedBroker, attach: Callable[..., Producers], code: str
    ) -> None:
        """They are waited for."""
        scripted.script("PRODUCER", *[refuse(code)] * 5)
        producers = attach()
        store(producers, b"a")
        assert values(scripted) == [b"a"]

    @pytest.mark.usefixtures("unhurried")
    def test_a_name_that_stays_taken(
        self, scripted: ScriptedBroker, make: Callable[..., Producers]
    ) -> None:
        """The error names the name, the topic, and who might have it."""
        options = client_options(
            scripted.address, operation_timeout_s=0.2, keep_alive_interval_s=3.0
        )
        holder, pool = make(name="mine"), ConnectionPool(options)
        holder.open([TOPIC])
        second = make(pool, name="mine")
        with pytest.raises(BrokerError) as caught:
            second.open([TOPIC])
        said = (TOPIC, "ProducerBusy", "'mine'", "spark.speculation", "idempotenceId")
        for part in said:
            assert part in str(caught.value)
        second.close()
        holder.close()
        third = make(pool, name="mine")
        third.open([TOPIC])
        third.close()
        pool.close()

    @pytest.mark.usefixtures("unhurried")
    def test_a_slow_answer_makes_no_second_producer(
        self, scripted: ScriptedBroker, attach: Callable[..., Producers]
    ) -> None:
        """An attachment that was given up is ended, should it come true after all."""
        pool = ConnectionPool(client_options(scripted.address, operation_timeout_s=0.1))
        scripted.script("PRODUCER", unheard)
        producers = attach(pool, name="mine")
        assert scripted.requests["CLOSE_PRODUCER"] == 1
        assert len(scripted.producers) == 1
        producers.close()
        pool.close()

    def test_a_connection_that_breaks_meanwhile(
        self, scripted: ScriptedBroker, attach: Callable[..., Producers]
    ) -> None:
        """Its end has no effect on the attachment that follows."""
        for action in (cut, usual_then_cut):
            scripted.script("PRODUCER", action)
            producers = attach()
            assert not producers._shared.broken
            store(producers, b"a")
            assert producers.reconnects == 0
            producers.close()

    def test_a_goodbye_right_behind_the_answer(
        self, scripted: ScriptedBroker, attach: Callable[..., Producers]
    ) -> None:
        """It is not lost, though the answer is dealt with after it."""

        def goodbye(b: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
            usual(b, session, c)
            b.close_producers()

        scripted.script("PRODUCER", goodbye, goodbye)
        producers = attach(send_timeout_s=NEVER_S)
        store(producers, b"a")
        assert values(scripted) == [b"a"]
        assert producers.reconnects == 2

    def test_the_limits_of_each_broker(
        self, scripted: ScriptedBroker, attach: Callable[..., Producers]
    ) -> None:
        """What CONNECTED said is the producer's limit."""
        scripted.max_message_size = 4321
        producers = attach(properties={"a": "b"}, transactional=True)
        assert producers.get(TOPIC).registration.max_message_size_bytes == 4321
        (body,) = scripted.bodies["PRODUCER"]
        assert [(p.key, p.value) for p in body.metadata] == [("a", "b")]
        assert body.txn_enabled

    def test_lookups_that_fail(
        self, scripted: ScriptedBroker, attach: Callable[..., Producers]
    ) -> None:
        """They are asked again."""
        nobody = look_up(response=pb.CommandLookupTopicResponse.Failed)
        scripted.script("LOOKUP", refuse("ServiceNotReady"), nobody)
        attach()
        assert scripted.requests["LOOKUP"] == 3
