# SPDX-License-Identifier: Apache-2.0
"""A commit that leaves topic partitions out is mended, or an error tells of it.

``tests/broker/test_write_promises.py`` has the same on a real broker.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.transactions import COORDINATORS, TransactionClient
from pulsar_spark.errors import TransactionLostError
from pulsar_spark.message_id import TxnId
from pulsar_spark.sink.batch_commit import BatchCommit, Part
from pulsar_spark.sink.commit_check import CommitCheck
from pulsar_spark.sink.commit_log import Written
from pulsar_spark.sink.visibility import Place
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import TxnAction
from tests.support.fixtures import Clock
from tests.support.scripted_broker import (
    Action,
    ScriptedBroker,
    Session,
    client_options,
    cut,
    leaving_out,
    refuse,
    silence,
    single,
    usual,
)
from tests.support.waiting import await_true
from tests.support.writes import write_in_transactions

TOPICS = [f"persistent://public/default/t-partition-{n}" for n in range(3)]
TTL_MS = 60_000


@pytest.fixture
def pool(scripted: ScriptedBroker, unhurried: Clock) -> Iterator[ConnectionPool]:
    """Connections to a broker with a coordinator; they give up after a second."""
    yield from _pool(scripted)


@pytest.fixture
def pool_in_time(scripted: ScriptedBroker) -> Iterator[ConnectionPool]:
    """The same by a true clock, for what waits for readers."""
    yield from _pool(scripted)


def _pool(scripted: ScriptedBroker) -> Iterator[ConnectionPool]:
    scripted.partitions[COORDINATORS] = 1
    for topic in TOPICS:
        scripted.add_topic(topic, [single(b"before")])
    pool = ConnectionPool(client_options(scripted.address, operation_timeout_s=1.0))
    yield pool
    pool.close()


def write(pool: ConnectionPool, tasks: int = 1) -> dict[TxnId, Written]:
    """Write a row of each task to each topic partition; return where."""
    return {**write_in_transactions(pool, TOPICS, TTL_MS, tasks)}


def commit(
    pool: ConnectionPool, written: dict[TxnId, Written], ttl_ms: int = TTL_MS
) -> None:
    """Commit as the driver does, a task for each transaction."""
    parts = {task: Part(*part) for task, part in enumerate(written.items())}
    BatchCommit(pool, ttl_ms).commit(parts)


def end(pool: ConnectionPool, written: dict[TxnId, Written]) -> None:
    """Commit, and look at nothing: as a driver that dies behind that."""
    TransactionClient(pool).end(written, TxnAction.COMMIT)


def finish(pool: ConnectionPool, written: dict[TxnId, Written]) -> list[Place]:
    """Look at a commit as the driver after one that died, and return what is lost."""
    with CommitCheck(pool, written, 300.0) as check:
        check.attach()
        return check.left_out(written, is_late=True)


def told(broker: ScriptedBroker) -> list[tuple[int, str]]:
    """The transactions that brokers were told to commit, without the first question."""
    bodies = broker.bodies["END_TXN_ON_PARTITION"]
    return sorted(
        (b.txnid_least_bits, b.topic) for b in bodies if b.txnid_least_bits < 99
    )


def test_a_superuser(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """Each topic partition is told of each transaction, all at once."""
    written = write(pool, 2)
    scripted.answer_together(2, "END_TXN")
    commit(pool, written)
    assert told(scripted) == [(txn.least, topic) for txn in written for topic in TOPICS]
    assert not scripted.requests["SUBSCRIBE"]


def test_anybody_else(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """A reader of each topic partition, a question each, all at once, and no more."""
    scripted.takes_superusers = False
    written = write(pool, 2)
    scripted.answer_together(3, "SUBSCRIBE", "GET_LAST_MESSAGE_ID")
    commit(pool, written)
    assert scripted.requests["GET_LAST_MESSAGE_ID"] == 3
    assert scripted.requests["END_TXN_ON_PARTITION"] == 1
    assert not scripted.requests["FLOW"]
    await_true(
        lambda: scripted.requests["CLOSE_CONSUMER"] == 3, "the end of the readers"
    )


def test_many_tasks(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """Readers are cheaper than a marker of each task, for a superuser, too."""
    written = write(pool, 9)
    scripted.script("END_TXN", usual, leaving_out(TOPICS[0]))
    commit(pool, written)
    assert scripted.requests["SUBSCRIBE"] == 3 + scripted.requests["FLOW"]
    assert not scripted.left_out
    assert not scripted.dropped
    assert {topic for _, topic in told(scripted)} == {TOPICS[0]}


@pytest.mark.parametrize("tasks", [2, 9])
@pytest.mark.parametrize("closes", [False, True], ids=["open", "unloaded"])
@pytest.mark.parametrize("topics", [TOPICS[:1], TOPICS], ids=["first", "all"])
def test_the_commit_is_mended(
    scripted: ScriptedBroker,
    pool: ConnectionPool,
    topics: list[str],
    closes: bool,
    tasks: int,
) -> None:
    """By the request that a coordinator should have sent, for each transaction."""
    written = write(pool, tasks)
    scripted.script("END_TXN", *[leaving_out(*topics, closes=closes)] * tasks)
    commit(pool, written)
    assert not scripted.left_out
    assert not scripted.dropped
    every = {(txn.least, topic) for txn in written for topic in topics}
    assert every <= set(told(scripted))


def test_a_loss_that_cannot_be_mended(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """A topic partition that has dropped the rows already is found out."""

    def gone(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        broker.dropped |= {(TxnId(0, 0), TOPICS[0])}
        broker.left_out.clear()
        refuse("ServiceNotReady")(broker, session, c)

    written = write(pool)
    scripted.script("END_TXN", leaving_out(TOPICS[0]))
    scripted.script("END_TXN_ON_PARTITION", usual, gone, gone, gone)
    with pytest.raises(TransactionLostError, match=f"{TOPICS[0]}. That happens"):
        commit(pool, written)


@pytest.mark.parametrize("topics", [TOPICS[:1], TOPICS], ids=["first", "all"])
@pytest.mark.parametrize("tasks", [1, 2])
def test_an_error_tells_of_the_loss(
    scripted: ScriptedBroker, pool: ConnectionPool, topics: list[str], tasks: int
) -> None:
    """Where only superusers may send that request. Readers are not held up by it."""
    written = write(pool, tasks)
    scripted.takes_superusers = False
    scripted.script("END_TXN", *[usual] * (tasks - 1), leaving_out(*topics))
    with pytest.raises(TransactionLostError) as caught:
        commit(pool, written)
    assert len(caught.value.partitions) == 1
    text = str(caught.value)
    count = {1: "1 topic partition", 3: "3 topic partitions"}[len(topics)]
    assert f"left {count} out of the commit of this write" in text
    assert topics[0] in text
    (lost,) = {txn for txn, _ in scripted.dropped}
    assert scripted.dropped == {(lost, topic) for topic in topics}
    assert not scripted.left_out
    assert not scripted.transactions


def test_another_open_transaction(
    scripted: ScriptedBroker, pool: ConnectionPool, caplog: pytest.LogCaptureFixture
) -> None:
    """It holds readers back; no topic was unloaded, so nothing can be lost."""
    caplog.set_level(logging.INFO)
    scripted.takes_superusers = False
    other, written = write(pool), write(pool)
    commit(pool, written)
    assert len(told(scripted)) == 3
    assert set(scripted.transactions) == set(other)
    assert not scripted.requests["FLOW"]
    assert not caplog.records


def test_another_open_transaction_and_an_unload(
    scripted: ScriptedBroker,
    pool_in_time: ConnectionPool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What became of the rows cannot be told; a warning says so, and why."""
    scripted.takes_superusers = False
    write(pool_in_time)
    written = write(pool_in_time)
    scripted.script("END_TXN", leaving_out(TOPICS[0]))
    commit(pool_in_time, written)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert TOPICS[0] in caplog.text
    assert "a transaction that began before is still open" in caplog.text


def test_a_loss_beside_what_is_held_back(
    scripted: ScriptedBroker,
    pool_in_time: ConnectionPool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Rows of one topic partition that cannot be looked at hide no loss of others."""
    scripted.takes_superusers = False
    scripted.hold_back(TOPICS[0])
    written = write(pool_in_time)
    scripted.script("END_TXN", leaving_out(*TOPICS))
    with pytest.raises(TransactionLostError, match="2 topic partitions") as caught:
        commit(pool_in_time, written)
    assert TOPICS[0] not in str(caught.value)
    assert TOPICS[0] in caplog.text


@pytest.mark.parametrize("trouble", [refuse("ServiceNotReady"), cut, silence])
@pytest.mark.parametrize(
    "step", ["SUBSCRIBE", "GET_LAST_MESSAGE_ID", "END_TXN_ON_PARTITION", "LOOKUP"]
)
@pytest.mark.parametrize("tasks", [1, 9])
def test_trouble_on_the_way(
    scripted: ScriptedBroker,
    pool: ConnectionPool,
    tasks: int,
    step: str,
    trouble: Action,
) -> None:
    """Brokers are asked again; a topic partition that has not answered is told."""
    written = write(pool, tasks)
    scripted.script("END_TXN", leaving_out(*TOPICS))
    pool.forget_brokers(TOPICS)
    scripted.script(step, trouble)
    commit(pool, written)
    assert not scripted.left_out
    assert not scripted.dropped


@pytest.mark.parametrize("trouble", [refuse("ServiceNotReady"), cut, silence])
@pytest.mark.parametrize("step", ["END_TXN_ON_PARTITION", "LOOKUP"])
def test_trouble_while_telling(
    scripted: ScriptedBroker, pool: ConnectionPool, step: str, trouble: Action
) -> None:
    """After the death of a driver: all topic partitions are told all the same."""
    written = write(pool, 2)
    end(pool, written)
    pool.forget_brokers(TOPICS)
    scripted.script(step, usual, trouble)
    assert not finish(pool, written)
    assert set(told(scripted)) == {
        (t.least, topic) for t in written for topic in TOPICS
    }


def test_telling_where_a_topic_is_gone(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """The others are told; nobody is where the role is no superuser."""
    written = write(pool)
    end(pool, written)
    scripted.takes_superusers = False
    assert not finish(pool, written)
    assert not told(scripted)
    scripted.takes_superusers = True
    pool.forget_brokers(TOPICS)
    scripted.script("LOOKUP", usual, refuse("TopicNotFound"))
    finish(pool, written)
    assert {topic for _, topic in told(scripted)} >= {TOPICS[0], TOPICS[2]}


def test_a_broker_that_stays_away(
    scripted: ScriptedBroker,
    pool_in_time: ConnectionPool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The commit is done: a warning says that it could not be checked."""
    written = write(pool_in_time)
    scripted.script("END_TXN", leaving_out(TOPICS[0]))
    scripted.always("END_TXN_ON_PARTITION", refuse("ServiceNotReady"))
    commit(pool_in_time, written, ttl_ms=500)
    assert "A commit could not be checked" in caplog.text
    assert TOPICS[0] in caplog.text


def test_a_role_that_may_not_read(
    scripted: ScriptedBroker, pool: ConnectionPool, caplog: pytest.LogCaptureFixture
) -> None:
    """Its commits are not checked, and a warning says so, once."""
    scripted.always("SUBSCRIBE", refuse("AuthorizationError", "scripted: not this"))
    scripted.takes_superusers = False
    for _ in range(2):
        commit(pool, write(pool))
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "persistent://public/default/t is not checked" in record.getMessage()
    assert "scripted: not this" in record.getMessage()
    assert not told(scripted)


def test_no_receipt_named_an_entry(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Whether readers get there is not known: the broker is told, to be sure."""
    written = {
        txn: {**entries, TOPICS[1]: None} if txn.least else entries
        for txn, entries in write(pool, 9).items()
    }
    commit(pool, written)
    assert told(scripted) == [(txn.least, TOPICS[1]) for txn in written if txn.least]


def test_only_what_is_committed(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """A broker is never told to commit a transaction whose commit is not certain."""
    written = write(pool, 2)
    first, second = written
    scripted.script("END_TXN", refuse("TransactionNotFound"), usual)
    scripted.always("GET_LAST_MESSAGE_ID", usual)
    scripted.aborted.add(first)
    del scripted.transactions[first]
    with pytest.raises(TransactionLostError):
        commit(pool, written)
    told = {body.txnid_least_bits for body in scripted.bodies["END_TXN_ON_PARTITION"]}
    assert first.least not in told
    assert second.least not in told
