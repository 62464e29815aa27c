# SPDX-License-Identifier: Apache-2.0
"""The transaction of a task: asked about, aborted, and cleaned up behind."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.transactions import COORDINATORS
from pulsar_spark.errors import AuthError, TransactionLostError, TransportError
from pulsar_spark.message_id import TxnId
from pulsar_spark.sink import task_transaction as module
from pulsar_spark.sink.task_transaction import TaskTransaction
from pulsar_spark.wire.commands import TxnAction
from tests.client.test_transactions import answered
from tests.support.fixtures import Clock
from tests.support.scripted_broker import (
    ScriptedBroker,
    client_options,
    refuse,
    silence,
    usual,
)

TOPICS = [f"persistent://public/default/t-partition-{n}" for n in range(2)]
ABORT, COMMIT = TxnAction.ABORT, TxnAction.COMMIT
TTL_MS = 5000


@pytest.fixture
def pool(scripted: ScriptedBroker, unhurried: Clock) -> Iterator[ConnectionPool]:
    """Connections to a broker with three coordinators; they give up quickly."""
    scripted.partitions[COORDINATORS] = 3
    one = ConnectionPool(client_options(scripted.address, operation_timeout_s=0.3))
    yield one
    one.close()


def test_it_is_asked_about(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """By adding a topic that it has, and only if the last answer is too old."""
    transaction = TaskTransaction.begin(pool, TTL_MS)
    transaction.confirm()  # has no topic, so nothing can be sent in it
    assert not scripted.requests["ADD_PARTITION_TO_TXN"]
    transaction.extend(TOPICS)
    transaction.confirm(max_age_s=600)
    assert scripted.requests["ADD_PARTITION_TO_TXN"] == 1
    transaction.confirm()
    assert scripted.bodies["ADD_PARTITION_TO_TXN"][-1].partitions == TOPICS[:1]
    assert scripted.transactions == {transaction.txn: [*TOPICS, TOPICS[0]]}


@pytest.mark.parametrize(
    "ask",
    [lambda one: one.extend(TOPICS[1:]), TaskTransaction.confirm],
    ids=["extend", "confirm"],
)
def test_it_is_over(
    scripted: ScriptedBroker,
    pool: ConnectionPool,
    ask: Callable[[TaskTransaction], None],
) -> None:
    """The error says why that may be, and what to raise."""
    transaction = TaskTransaction.begin(pool, TTL_MS)
    transaction.extend(TOPICS[:1])
    scripted.expire(transaction.txn)
    with pytest.raises(TransactionLostError, match="Raise `transactionTimeoutMs`"):
        ask(transaction)


def test_a_refusal_that_is_no_end(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """The transaction may go on: it is not said to be lost."""
    transaction = TaskTransaction.begin(pool, TTL_MS)
    transaction.extend(TOPICS)
    scripted.script("ADD_PARTITION_TO_TXN", refuse("AuthorizationError"))
    with pytest.raises(AuthError):
        transaction.confirm()
    transaction.confirm()
    assert transaction.txn in scripted.transactions


def test_nobody_answers(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """That is no loss of a transaction."""
    transaction = TaskTransaction.begin(pool, TTL_MS)
    transaction.extend(TOPICS)
    scripted.always("ADD_PARTITION_TO_TXN", silence)
    with pytest.raises(TransportError, match="did not answer ADD_PARTITION_TO_TXN"):
        transaction.confirm()


def test_an_abort(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """Of one that is open, that is all."""
    transaction = TaskTransaction.begin(pool, TTL_MS)
    transaction.extend(TOPICS)
    transaction.abort()
    assert scripted.ended == [(transaction.txn, ABORT)]
    assert scripted.requests["NEW_TXN"] == 1


def test_an_abort_that_comes_too_late(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """A later one of the same coordinator ends on all its topics: readers go on."""
    transaction = TaskTransaction.begin(pool, TTL_MS)
    transaction.extend(TOPICS)
    scripted.expire(transaction.txn)
    transaction.abort()
    ((later, action),) = scripted.ended
    assert action is COMMIT
    assert later.most == transaction.txn.most
    assert scripted.bodies["ADD_PARTITION_TO_TXN"][-1].partitions == TOPICS
    assert not scripted.transactions


def test_an_abort_while_it_expires(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """The same: what was sent just now may be behind the end of it."""
    transaction = TaskTransaction.begin(pool, TTL_MS)
    transaction.extend(TOPICS)
    scripted.script("END_TXN", answered("InvalidTxnStatus"))
    transaction.abort()
    ((later, action),) = scripted.ended
    assert (later.most, action) == (transaction.txn.most, COMMIT)


def test_an_abort_that_comes_too_late_for_nothing(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """It had no topic: there is nothing to clean up."""
    transaction = TaskTransaction.begin(pool, TTL_MS)
    scripted.expire(transaction.txn)
    transaction.abort()
    assert not scripted.ended
    assert scripted.requests["NEW_TXN"] == 1


def test_a_cleaning_up_that_fails(
    scripted: ScriptedBroker, pool: ConnectionPool, caplog: pytest.LogCaptureFixture
) -> None:
    """Readers may have to wait, and the log says so."""
    transaction = TaskTransaction.begin(pool, TTL_MS)
    transaction.extend(TOPICS)
    scripted.expire(transaction.txn)
    scripted.script("END_TXN", usual, answered("InvalidTxnStatus"))
    transaction.abort()
    assert "InvalidTxnStatus" in caplog.text


@pytest.mark.parametrize("request_name", ["END_TXN", "NEW_TXN"])
def test_an_abort_that_nobody_hears(
    scripted: ScriptedBroker,
    pool: ConnectionPool,
    caplog: pytest.LogCaptureFixture,
    request_name: str,
) -> None:
    """It is no error of the task: what is left ends by itself, and that is logged."""
    caplog.set_level("INFO", module.logger.name)
    transaction = TaskTransaction.begin(pool, TTL_MS)
    transaction.extend(TOPICS)
    if request_name == "NEW_TXN":
        scripted.expire(transaction.txn)
    scripted.always(request_name, silence)
    transaction.abort()
    assert "did not answer" in caplog.text
    assert not scripted.ended


def test_numbers_are_of_coordinators(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Tasks spread over them, and each cleans up at its own."""
    for _ in itertools.repeat(None, 6):
        transaction = TaskTransaction.begin(pool, TTL_MS)
        transaction.extend(TOPICS)
        scripted.expire(transaction.txn)
        transaction.abort()
        later: TxnId = scripted.ended[-1][0]
        assert later.most == transaction.txn.most
