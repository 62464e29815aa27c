"""Topics are made ready for transactions, and no reader is kept waiting for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from pulsar_spark.client import first_transaction as module
from pulsar_spark.client.deduplication import require_deduplication
from pulsar_spark.client.first_transaction import prepare_for_transactions
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.transactions import COORDINATORS
from pulsar_spark.errors import TransactionLostError
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import TxnAction, TxnId
from tests.client.scripted_broker import (
    Action,
    ScriptedBroker,
    Session,
    client_options,
    cut,
    late,
    let_go,
    usual,
    usual_then_cut,
    wait_until,
)

TOPICS = [f"persistent://public/default/t-partition-{n}" for n in range(3)]
ABORT, COMMIT = TxnAction.ABORT, TxnAction.COMMIT


@pytest.fixture(autouse=True)
def _nothing_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ready", set())


@pytest.fixture
def pool(scripted: ScriptedBroker) -> Iterator[ConnectionPool]:
    """Connections to a broker with a coordinator."""
    scripted.partitions[COORDINATORS] = 1
    one = ConnectionPool(client_options(scripted.address))
    yield one
    one.close()


def expiring(then: Action) -> Action:
    """As a SEND comes, all transactions have just expired."""

    def action(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        broker.expire(*broker.transactions)
        then(broker, session, c)

    return action


def test_once_for_each_topic(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """An empty entry of one transaction, which is aborted; and never again."""
    prepare_for_transactions(pool, TOPICS[:2])
    prepare_for_transactions(pool, TOPICS)
    prepare_for_transactions(pool, TOPICS)
    for number, topic in enumerate(TOPICS):
        (entry,) = scripted.topics[topic]
        assert entry.payload == b""
        assert entry.metadata.txnid_least_bits == number // 2
    assert scripted.ended == [(TxnId(0, 0), ABORT), (TxnId(0, 1), ABORT)]
    assert not scripted.producers


def test_topics_that_take_their_time(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """No transaction ages meanwhile: it begins when all producers are attached."""
    loaded = threading.Event()
    scripted.script("PRODUCER", usual, late(loaded))
    with ThreadPoolExecutor(1) as executor:
        job = executor.submit(prepare_for_transactions, pool, TOPICS)
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
    scripted: ScriptedBroker, pool: ConnectionPool, fault: Action, at: int
) -> None:
    """As brokers do while they recover what was aborted: the entry is sent again."""
    scripted.script("SEND", *[usual] * at, fault)
    prepare_for_transactions(pool, TOPICS)
    assert all(scripted.topics[topic] for topic in TOPICS)
    assert scripted.ended == [(TxnId(0, 0), ABORT)]


@pytest.mark.parametrize("then", [usual, let_go], ids=["taken", "closed"])
def test_it_expires_meanwhile(
    scripted: ScriptedBroker, pool: ConnectionPool, then: Action
) -> None:
    """What came too late is freed by another transaction, and nothing comes later."""
    scripted.script("SEND", usual, usual, expiring(then))
    with pytest.raises(TransactionLostError, match="60000 ms"):
        prepare_for_transactions(pool, TOPICS)
    assert scripted.ended == [(TxnId(0, 1), COMMIT)]
    assert scripted.bodies["ADD_PARTITION_TO_TXN"][-1].partitions == TOPICS
    assert scripted.requests["SEND"] == 3
    prepare_for_transactions(pool, TOPICS)  # they were not ready
    assert scripted.requests["SEND"] == 6


def test_a_try_of_deduplication_that_expires(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """It goes by the same rules."""
    scripted.deduplicates = True
    scripted.script("SEND", usual, expiring(usual))
    with pytest.raises(TransactionLostError):
        require_deduplication(pool, TOPICS[0], "probe")
    assert scripted.ended == [(TxnId(0, 1), COMMIT)]


def test_a_try_of_deduplication_is_aborted(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Where the cluster has transactions, readers pass its entry over."""
    scripted.deduplicates = True
    require_deduplication(pool, TOPICS[0], "probe")
    assert scripted.ended == [(TxnId(0, 0), ABORT)]
    (entry,) = scripted.topics[TOPICS[0]]
    assert entry.metadata.HasField("txnid_least_bits")
