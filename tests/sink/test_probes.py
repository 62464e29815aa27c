# SPDX-License-Identifier: Apache-2.0
"""What is sent to a topic to try it out, before any row."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.transactions import COORDINATORS
from pulsar_spark.errors import (
    BrokerError,
    DeduplicationOffError,
    TransactionLostError,
)
from pulsar_spark.message_id import TxnId
from pulsar_spark.sink.probes import prepare_for_transactions, require_deduplication
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import ProducerAccessMode, TxnAction
from tests.support.scripted_broker import (
    Action,
    ScriptedBroker,
    Session,
    cut,
    late,
    let_go,
    refuse,
    refuse_entry,
    usual,
    usual_then_cut,
)
from tests.support.waiting import wait_until

TOPIC = "persistent://public/default/t-partition-3"
TOPICS = [f"persistent://public/default/t-partition-{n}" for n in range(3)]
ABORT, COMMIT = TxnAction.ABORT, TxnAction.COMMIT


@pytest.fixture
def coordinated(scripted: ScriptedBroker, pool: ConnectionPool) -> ConnectionPool:
    """Connections to a broker with a coordinator."""
    scripted.partitions[COORDINATORS] = 1
    return pool


# -- whether a broker finds duplicates -------------------------------------------------


def test_a_broker_that_drops_the_second(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """One entry is left, which says that it is a marker, and that it stays here."""
    scripted.deduplicates = True
    require_deduplication(pool, TOPIC, "probe")
    (entry,) = scripted.topics[TOPIC]
    assert entry.metadata.marker_type == 99
    assert list(entry.metadata.replicate_to) == ["__local__"]
    assert entry.metadata.producer_name == "probe"
    assert entry.payload == b""
    wait_until(lambda: not scripted.producers, "the end of producers")


def test_the_topic_is_ready_for_the_transaction_that_hides_the_entry(
    scripted: ScriptedBroker, coordinated: ConnectionPool
) -> None:
    """The producer says that it is for one: Pulsar 3.0 asks, or never ends it there."""
    scripted.deduplicates = True
    require_deduplication(coordinated, TOPIC, "probe")
    (entry,) = scripted.topics[TOPIC]
    assert entry.metadata.HasField("txnid_least_bits")
    (producer,) = scripted.bodies["PRODUCER"]
    assert producer.txn_enabled


def test_the_next_time_needs_no_entry(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """A broker that deduplicates remembers the name."""
    scripted.deduplicates = True
    for _ in range(3):
        require_deduplication(pool, TOPIC, "probe")
    assert scripted.requests["SEND"] == 2
    wait_until(lambda: not scripted.producers, "the end of producers")


def test_a_broker_that_stores_both(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """The error names the topic, not the partition, and how to switch it on."""
    with pytest.raises(DeduplicationOffError) as caught:
        require_deduplication(pool, TOPIC, "probe")
    assert caught.value.topic == "persistent://public/default/t"
    assert "set-deduplication public/default --enable" in str(caught.value)
    wait_until(lambda: not scripted.producers, "the end of producers")


@pytest.mark.parametrize(
    "fault", [cut, usual_then_cut, let_go], ids=lambda fault: fault.__name__
)
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("deduplicates", [True, False])
def test_faults_do_not_change_the_answer(
    scripted: ScriptedBroker,
    pool: ConnectionPool,
    fault: object,
    at: int,
    deduplicates: bool,
) -> None:
    """A marker that was sent again for want of a receipt is not taken for proof."""
    scripted.deduplicates = deduplicates
    scripted.script("SEND", *[usual] * at, fault)  # type: ignore[arg-type]
    if deduplicates:
        require_deduplication(pool, TOPIC, "probe")
        assert len(scripted.topics[TOPIC]) == 1
    else:
        with pytest.raises(DeduplicationOffError):
            require_deduplication(pool, TOPIC, "probe")


def test_others_who_ask_at_the_same_time(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """A name that is taken for a moment is waited for."""
    scripted.deduplicates = True
    scripted.script("PRODUCER", refuse("ProducerBusy"), refuse("ProducerBusy"))
    require_deduplication(pool, TOPIC, "probe")
    assert scripted.requests["PRODUCER"] == 3
    assert [body.producer_name for body in scripted.bodies["PRODUCER"]] == ["probe"] * 3
    assert len(scripted.topics[TOPIC]) == 1
    wait_until(lambda: not scripted.producers, "the end of producers")


def test_a_broker_that_refuses(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """That is no answer; nothing stays attached."""
    scripted.script("SEND", refuse_entry("NotAllowedError"))
    with pytest.raises(BrokerError, match="NotAllowedError"):
        require_deduplication(pool, TOPIC, "probe")
    wait_until(lambda: not scripted.producers, "the end of producers")


def test_it_shares_the_topic(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """Whoever writes there already is left alone."""
    scripted.deduplicates = True
    require_deduplication(pool, TOPIC, "probe")
    (body,) = scripted.bodies["PRODUCER"]
    assert body.producer_access_mode == ProducerAccessMode.SHARED


# -- topics are made ready for transactions, and no reader is kept waiting for it ------


def expiring(then: Action) -> Action:
    """As a SEND comes, all transactions have just expired."""

    def action(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        broker.expire(*broker.transactions)
        then(broker, session, c)

    return action


def test_once_for_each_topic(
    scripted: ScriptedBroker, coordinated: ConnectionPool
) -> None:
    """An empty entry of one transaction, which is aborted; and never again."""
    prepare_for_transactions(coordinated, TOPICS[:2])
    prepare_for_transactions(coordinated, TOPICS)
    prepare_for_transactions(coordinated, TOPICS)
    for number, topic in enumerate(TOPICS):
        (entry,) = scripted.topics[topic]
        assert entry.payload == b""
        assert entry.metadata.txnid_least_bits == number // 2
    assert scripted.ended == [(TxnId(0, 0), ABORT), (TxnId(0, 1), ABORT)]
    wait_until(lambda: not scripted.producers, "the end of producers")


def test_topics_that_take_their_time(
    scripted: ScriptedBroker, coordinated: ConnectionPool
) -> None:
    """No transaction ages meanwhile: it begins when all producers are attached."""
    loaded = threading.Event()
    scripted.script("PRODUCER", usual, late(loaded))
    with ThreadPoolExecutor(1) as executor:
        job = executor.submit(prepare_for_transactions, coordinated, TOPICS)
        wait_until(lambda: scripted.requests["PRODUCER"] == 3, "producers")
        assert not scripted.requests["NEW_TXN"]
        loaded.set()
        job.result(60)
    assert scripted.ended == [(TxnId(0, 0), ABORT)]


@pytest.mark.parametrize(
    "fault", [cut, let_go, usual_then_cut], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("at", range(3))
def test_a_topic_that_is_closed(
    scripted: ScriptedBroker, coordinated: ConnectionPool, fault: Action, at: int
) -> None:
    """As brokers do while they recover what was aborted: the entry is sent again."""
    scripted.script("SEND", *[usual] * at, fault)
    prepare_for_transactions(coordinated, TOPICS)
    assert all(scripted.topics[topic] for topic in TOPICS)
    assert scripted.ended == [(TxnId(0, 0), ABORT)]


@pytest.mark.parametrize("then", [usual, let_go], ids=["taken", "closed"])
def test_it_expires_meanwhile(
    scripted: ScriptedBroker, coordinated: ConnectionPool, then: Action
) -> None:
    """What came too late is freed by another transaction, and nothing comes later."""
    scripted.script("SEND", usual, usual, expiring(then))
    with pytest.raises(TransactionLostError, match="60000 ms"):
        prepare_for_transactions(coordinated, TOPICS)
    assert scripted.ended == [(TxnId(0, 1), COMMIT)]
    assert scripted.bodies["ADD_PARTITION_TO_TXN"][-1].partitions == TOPICS
    assert scripted.requests["SEND"] == 3
    prepare_for_transactions(coordinated, TOPICS)  # they were not ready
    assert scripted.requests["SEND"] == 6


def test_it_may_not_begin(
    scripted: ScriptedBroker, coordinated: ConnectionPool
) -> None:
    """As while a commit is unfinished: it would drop what that has left out."""
    prepare_for_transactions(coordinated, TOPICS, may_begin=lambda: False)
    assert (scripted.ended, scripted.requests["SEND"]) == ([], 0)
    prepare_for_transactions(coordinated, TOPICS)  # they were not ready
    assert scripted.requests["SEND"] == len(TOPICS)


def test_a_try_of_deduplication_that_expires(
    scripted: ScriptedBroker, coordinated: ConnectionPool
) -> None:
    """It goes by the same rules."""
    scripted.deduplicates = True
    scripted.script("SEND", usual, expiring(usual))
    with pytest.raises(TransactionLostError):
        require_deduplication(coordinated, TOPICS[0], "probe")
    assert scripted.ended == [(TxnId(0, 1), COMMIT)]


def test_a_try_of_deduplication_is_aborted(
    scripted: ScriptedBroker, coordinated: ConnectionPool
) -> None:
    """Where the cluster has transactions, readers pass its entry over."""
    scripted.deduplicates = True
    require_deduplication(coordinated, TOPICS[0], "probe")
    assert scripted.ended == [(TxnId(0, 0), ABORT)]
    (entry,) = scripted.topics[TOPICS[0]]
    assert entry.metadata.HasField("txnid_least_bits")
