# SPDX-License-Identifier: Apache-2.0
"""The commit of a batch write: it fails and leaves nothing, or all of it is visible.

Every order of expiry, lost answers and dead coordinators that tells, with a broker that
does what a test says. ``tests/broker/test_batch_commit.py`` has the same on a real one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.transactions import COORDINATORS, TransactionClient
from pulsar_spark.errors import (
    AuthError,
    BrokerError,
    CommitInDoubtError,
    TransactionLostError,
)
from pulsar_spark.message_id import MessageId, TxnId
from pulsar_spark.sink.batch_commit import BatchCommit, Part
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import TxnAction
from spark_topics.client import retry
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
    usual_then_cut,
)
from tests.support.writes import write_in_transactions

TOPIC = "persistent://public/default/t-partition-0"
OTHER = "persistent://public/default/t-partition-1"
TTL_MS = 60_000


@pytest.fixture
def pool(scripted: ScriptedBroker, unhurried: Clock) -> Iterator[ConnectionPool]:
    """Connections to a broker with a coordinator; they give up after a second."""
    scripted.partitions[COORDINATORS] = 1
    scripted.add_topic(TOPIC, [single(b"before")])
    scripted.add_topic(OTHER)
    one = ConnectionPool(client_options(scripted.address, operation_timeout_s=1.0))
    yield one
    one.close()


def written(
    pool: ConnectionPool, tasks: int = 2, topic: str = TOPIC
) -> dict[int, Part]:
    """What some tasks wrote: a row each."""
    written = write_in_transactions(pool, [topic], TTL_MS, tasks)
    return {
        task: Part(txn, entries) for task, (txn, entries) in enumerate(written.items())
    }


def commit(pool: ConnectionPool, parts: dict[int, Part], ttl_ms: int = TTL_MS) -> None:
    """The commit, as the driver does it."""
    BatchCommit(pool, ttl_ms).commit(parts)


def committed(broker: ScriptedBroker) -> list[TxnId]:
    """The transactions whose rows can be seen."""
    return [txn for txn, action in broker.ended if action is TxnAction.COMMIT]


def expiring(*which: int, then: Action = usual) -> Action:
    """As END_TXN comes, transactions expire that a task of these numbers has."""

    def action(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        txns = [TxnId(0, number) for number in which]
        broker.expire(*[txn for txn in txns if txn in broker.transactions])
        then(broker, session, c)

    return action


def test_all_of_it(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """Asked about once, and committed, all transactions together."""
    parts = written(pool, 3)
    scripted.answer_together(3, "ADD_PARTITION_TO_TXN", "END_TXN")
    commit(pool, parts)
    assert sorted(committed(scripted)) == [part.txn for part in parts.values()]
    assert scripted.requests["END_TXN"] == 3
    assert not scripted.requests["SUBSCRIBE"]


def test_nothing_to_commit(pool: ConnectionPool) -> None:
    """No task had rows."""
    commit(pool, {})


@pytest.mark.parametrize("over", [0, 1, 2])
def test_one_had_expired(
    scripted: ScriptedBroker, pool: ConnectionPool, over: int
) -> None:
    """None of the others is committed either; the error says what to raise."""
    parts = written(pool, 3)
    scripted.expire(parts[over].txn)
    with pytest.raises(TransactionLostError) as caught:
        commit(pool, parts)
    assert caught.value.partitions == (over,)
    assert "`transactionTimeoutMs`, 60000 ms" in str(caught.value)
    assert "Nothing of this write is visible" in str(caught.value)
    assert not committed(scripted)
    assert not scripted.transactions, "the others hold back readers"
    BatchCommit(pool, TTL_MS).abort([part.txn for part in parts.values()])


def test_one_is_just_expiring(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """The coordinator says that it is ending: it will be over."""
    parts = written(pool)
    scripted.script("ADD_PARTITION_TO_TXN", _ending)
    with pytest.raises(TransactionLostError, match="Nothing of this write"):
        commit(pool, parts)
    assert not committed(scripted)


def _ending(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
    answer = pb.CommandAddPartitionToTxnResponse(
        request_id=c.addPartitionToTxn.request_id, error=21, message="scripted"
    )
    session.send(
        type=pb.BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE,
        addPartitionToTxnResponse=answer,
    )


def test_nobody_answers_before(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """Then nothing is committed, and the write fails as it is."""
    parts = written(pool)
    scripted.always("ADD_PARTITION_TO_TXN", silence)
    with pytest.raises(Exception, match="did not answer ADD_PARTITION_TO_TXN"):
        commit(pool, parts)
    assert not scripted.requests["END_TXN"]


LOST_ANSWERS = {
    "before": cut,
    "behind": usual_then_cut,
    "moved": refuse("TransactionCoordinatorNotFound"),
}


@pytest.mark.parametrize("orders", [*product(LOST_ANSWERS, repeat=2)], ids="-".join)
def test_lost_answers(
    scripted: ScriptedBroker, pool: ConnectionPool, orders: tuple[str, ...]
) -> None:
    """Connections break before or behind each commit: it is carried through, and told.

    That a repeated END_TXN meets a transaction that is over is no failure.
    """
    parts = written(pool)
    scripted.script("END_TXN", *[LOST_ANSWERS[order] for order in orders])
    commit(pool, parts)
    assert sorted(committed(scripted)) == [part.txn for part in parts.values()]
    assert not [s for s in scripted.subscriptions.values() if s.durable]


def test_the_coordinator_is_away_for_longer(
    scripted: ScriptedBroker, pool: ConnectionPool, unhurried: Clock
) -> None:
    """There is no way back behind the first commit: the rest is tried until it ends."""
    parts = written(pool)
    gone = refuse("TransactionCoordinatorNotFound")
    until = unhurried.now + 1.5  # longer than one try

    def away(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        (usual if unhurried.now > until else gone)(broker, session, c)

    scripted.script("END_TXN", usual)
    scripted.always("END_TXN", away)
    commit(pool, parts)
    assert sorted(committed(scripted)) == [part.txn for part in parts.values()]


def test_how_long_a_commit_is_tried(
    scripted: ScriptedBroker, pool: ConnectionPool, clock: Clock
) -> None:
    """As docs/guarantees.md says: as long as a transaction lives, and an answer takes.

    With pauses that take no time.
    """
    parts = written(pool)
    scripted.script("END_TXN", usual)
    scripted.always("END_TXN", refuse("TransactionCoordinatorNotFound"))
    with pytest.raises(CommitInDoubtError) as caught:
        commit(pool, parts)
    assert (len(caught.value.visible), len(caught.value.unknown)) == (1, 1)
    answer_s = 1.0
    wanted_s = TTL_MS / 1000 + answer_s
    assert wanted_s - 0.1 < sum(clock.pauses) < wanted_s + 3 * answer_s


@pytest.mark.parametrize("then", [usual, cut], ids=["answered", "cut"])
@pytest.mark.parametrize("followed", [False, True], ids=["last", "followed"])
def test_all_expire_in_between(
    scripted: ScriptedBroker, pool: ConnectionPool, then: Action, followed: bool
) -> None:
    """Behind the question, before the commits: nothing is visible, and that is said."""
    parts = written(pool)
    scripted.script("END_TXN", expiring(0, 1, then=then))
    if followed:
        scripted.append(TOPIC, single(b"of somebody else"))
    with pytest.raises(TransactionLostError) as caught:
        commit(pool, parts)
    assert caught.value.partitions == (0, 1)
    assert "Nothing of this write is visible" in str(caught.value)
    assert not committed(scripted)


def test_some_expire_in_between(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """The error says whose rows are visible, and whose are not."""
    parts = written(pool, 4)
    scripted.script("END_TXN", usual_then_cut)
    scripted.script("END_TXN", expiring(1, 2, 3))
    with pytest.raises(TransactionLostError) as caught:
        commit(pool, parts)
    assert caught.value.partitions == (1, 2, 3)
    assert "of the tasks [1-3] expired" in str(caught.value)
    assert "rows of the tasks [0] are visible" in str(caught.value)
    assert committed(scripted) == [parts[0].txn]


def test_somebody_else_holds_it_back_for_a_while(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Of an older transaction: it is waited for."""
    older = TransactionClient(pool).begin(TTL_MS)
    scripted.append(
        TOPIC, single(b"", txnid_most_bits=older.most, txnid_least_bits=older.least)
    )
    parts = written(pool)
    scripted.script("END_TXN", usual_then_cut)

    def release(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        usual(broker, session, c)
        if scripted.requests["GET_LAST_MESSAGE_ID"] == 4:
            scripted.start_thread(lambda: scripted.expire(older))

    scripted.always("GET_LAST_MESSAGE_ID", release)
    commit(pool, parts)
    assert {part.txn for part in parts.values()} == set(committed(scripted))


def test_somebody_else_holds_it_back_for_ever(
    scripted: ScriptedBroker, pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One error, which says of which rows it is not known, and what to look at."""
    monkeypatch.setattr(retry, "time", time)  # what does not come is waited for
    older = TransactionClient(pool).begin(TTL_MS)
    scripted.append(
        TOPIC, single(b"", txnid_most_bits=older.most, txnid_least_bits=older.least)
    )
    parts = written(pool, 2) | {2: written(pool, 1, OTHER)[0]}
    scripted.script("END_TXN", usual_then_cut)
    with pytest.raises(CommitInDoubtError) as caught:
        commit(pool, parts, ttl_ms=100)
    error = caught.value
    assert 0 in error.unknown
    assert sorted(error.visible + error.unknown) == [0, 1, 2]
    assert 2 in error.visible
    assert "before you repeat the write" in str(error)
    assert "slow-transactions" in str(error)
    assert TOPIC in str(error)


@pytest.fixture
def pool_in_time(scripted: ScriptedBroker) -> Iterator[ConnectionPool]:
    """The same by a true clock, for what waits for readers."""
    scripted.partitions[COORDINATORS] = 1
    for topic in (TOPIC, OTHER):
        scripted.add_topic(topic)
    one = ConnectionPool(client_options(scripted.address, operation_timeout_s=1.0))
    yield one
    one.close()


def write_to_both(pool: ConnectionPool) -> dict[int, Part]:
    """A task that wrote a row to each topic partition."""
    written = write_in_transactions(pool, [TOPIC, OTHER], TTL_MS)
    return {task: Part(*part) for task, part in enumerate(written.items())}


def left_out_and_lost(*topics: str) -> Action:
    """The commit leaves topics out, and its answer is lost."""

    def lose(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        leaving_out(*topics)(broker, replace(session, is_muted=True), c)
        broker.hang_up(session)

    return lose


@pytest.mark.parametrize(
    ("turns", "timeout_s"), [(1, 20.0), (3, 1.0)], ids=["soon", "late"]
)
def test_held_back_where_it_was_not_left_out(
    scripted: ScriptedBroker, pool_in_time: ConnectionPool, turns: int, timeout_s: float
) -> None:
    """Rows are dropped late, so that telling may mend; if not, an error says so."""
    options = pool_in_time.options
    pool_in_time.options = replace(options, operation_timeout_s=timeout_s)
    older = scripted.hold_back(OTHER)
    parts = write_to_both(pool_in_time)
    begun = []

    def release(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        usual(broker, session, c)
        begun.append(c)
        if len(begun) == 2 * turns + 1:  # a reader of each topic partition
            broker.start_thread(lambda: broker.expire(older))

    scripted.script("END_TXN", left_out_and_lost(TOPIC))
    scripted.always("FLOW", release)
    if turns == 1:
        commit(pool_in_time, parts)
        assert not scripted.dropped
    else:
        with pytest.raises(TransactionLostError, match=f"this write: {TOPIC}"):
            commit(pool_in_time, parts)
        assert scripted.dropped == {(parts[0].txn, TOPIC)}
    assert not scripted.left_out


def test_rows_left_out_beside_a_task_of_which_nothing_shows(
    scripted: ScriptedBroker, pool_in_time: ConnectionPool
) -> None:
    """The error names them beside the other task's rows."""
    scripted.takes_superusers = False
    txns = write_in_transactions(pool_in_time, [TOPIC, OTHER], TTL_MS, 2)
    parts = {task: Part(*part) for task, part in enumerate(txns.items())}
    scripted.script("END_TXN", leaving_out(TOPIC), left_out_and_lost(TOPIC, OTHER))
    with pytest.raises(TransactionLostError, match=r"tasks \[1\] expired") as caught:
        commit(pool_in_time, parts, 1_000)
    named = f"{TOPIC}. That happens where topics are unloaded at that moment. What the "
    assert f"{named}tasks [0] wrote" in str(caught.value)


def test_an_entry_of_a_scalable_topic_tells_of_all(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Also where retention has removed another: no commit leaves anything out there."""
    entries = {}
    for topic in (TOPIC, OTHER):
        scripted.append(topic, single(b"", txnid_most_bits=0, txnid_least_bits=9))
        entries[topic] = MessageId(*scripted.topics[topic][-1].place)
    scripted.roll(OTHER)
    scripted.trim(OTHER)
    scripted.aborted.add(TxnId(0, 9))
    with pytest.raises(TransactionLostError, match="Nothing of this write is visible"):
        commit(pool, {0: Part(TxnId(0, 9, is_scalable=True), entries)})


def test_rows_that_are_dropped_at_the_second_try(
    scripted: ScriptedBroker, pool_in_time: ConnectionPool
) -> None:
    """No topic partition was told of a commit: the rows are lost, and that is said."""
    parts = write_to_both(pool_in_time)
    scripted.script(
        "END_TXN",
        left_out_and_lost(TOPIC, OTHER),
        refuse("TransactionNotFound"),
        refuse("NotAllowedError"),
    )
    with pytest.raises(TransactionLostError, match="Nothing of this write is visible"):
        commit(pool_in_time, parts)
    assert len(scripted.dropped) == 2


def test_the_entry_was_removed(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """Retention took what would have told: that is no proof of an abort."""
    parts = written(pool)

    def removed(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        scripted.roll(TOPIC)
        scripted.trim(TOPIC)
        usual_then_cut(broker, session, c)

    scripted.script("END_TXN", removed)
    with pytest.raises(CommitInDoubtError, match="removed by retention") as caught:
        commit(pool, parts)
    assert 0 in caught.value.unknown
    assert not caught.value.lost


def test_no_receipt_named_a_place(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """A broker that has an entry already does not say where."""
    parts = {
        task: Part(part.txn, dict.fromkeys(part.entries))
        for task, part in written(pool, 1).items()
    }
    scripted.script("END_TXN", usual_then_cut)
    with pytest.raises(CommitInDoubtError, match="does not say where"):
        commit(pool, parts)


def test_a_right_that_was_taken_away(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """What is not worth another try is in doubt at once."""
    parts = written(pool)
    scripted.script("END_TXN", usual, refuse("AuthorizationError"))
    with pytest.raises(CommitInDoubtError, match="AuthorizationError") as caught:
        commit(pool, parts)
    assert (caught.value.visible, caught.value.unknown) == ((0,), (1,))


@pytest.mark.parametrize(
    "trouble",
    [
        refuse("ServiceNotReady"),
        cut,
        usual_then_cut,
    ],
    ids=["moving", "cut", "lost"],
)
@pytest.mark.parametrize("step", ["SUBSCRIBE", "GET_LAST_MESSAGE_ID", "FLOW"])
def test_trouble_while_it_is_looked_up(
    scripted: ScriptedBroker, pool: ConnectionPool, step: str, trouble: Action
) -> None:
    """It is looked up again."""
    if step == "FLOW" and trouble not in (cut, usual_then_cut):
        trouble = silence
    parts = written(pool)
    scripted.script("END_TXN", usual_then_cut, usual_then_cut)
    scripted.script(step, trouble)
    if trouble is silence:
        # A broker that has lost the permits is asked anew with the next connection.
        scripted.script("GET_LAST_MESSAGE_ID", usual, usual, cut)
    commit(pool, parts)
    assert {part.txn for part in parts.values()} == set(committed(scripted))


def test_abort_after_a_commit_that_failed(
    scripted: ScriptedBroker, pool: ConnectionPool, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark asks for it: what was committed stays so, and there is no second error."""
    parts = written(pool, 3)
    scripted.script("END_TXN", usual, expiring(1, 2))
    with pytest.raises(TransactionLostError):
        commit(pool, parts)
    BatchCommit(pool, TTL_MS).abort([part.txn for part in parts.values()])
    assert committed(scripted) == [parts[0].txn]
    assert not caplog.records


def test_abort_where_nobody_answers(
    scripted: ScriptedBroker, pool: ConnectionPool, caplog: pytest.LogCaptureFixture
) -> None:
    """That is a warning: Spark has an error already, and they end by themselves."""
    parts = written(pool, 1)
    scripted.always("END_TXN", silence)
    BatchCommit(pool, TTL_MS).abort([part.txn for part in parts.values()])
    (record,) = caplog.records
    assert "did not answer END_TXN" in record.getMessage()
    assert "expires by itself" in record.getMessage()


def test_errors_are_what_they_were() -> None:
    """Who caught the broker's refusal catches its explanation."""
    error = TransactionLostError(-1, [0], "Over.")
    assert isinstance(error, BrokerError)
    assert error.code == "TransactionNotFound"
    assert not issubclass(CommitInDoubtError, AuthError)
