# SPDX-License-Identifier: Apache-2.0
"""Transactions as a real broker has them.

What writes exactly once rests on these answers, so they are held here, pleasant or not.
A *zombie* is a producer that goes on sending in a transaction that is over: brokers
take that, with a receipt.
"""

from __future__ import annotations

import itertools
import re
import struct
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client.pending import await_ends
from pulsar_spark.client.pool import BrokerAddress, ConnectionPool
from pulsar_spark.client.transactions import TransactionClient
from pulsar_spark.errors import (
    SERVER_ERRORS,
    BrokerError,
    PulsarSparkError,
    TransactionsOffError,
    TransportError,
)
from pulsar_spark.message_id import TxnId
from pulsar_spark.options import ClientOptions
from pulsar_spark.options.service_url import parse_service_url
from pulsar_spark.testing.admin import Admin
from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import Request, TxnAction
from tests.support.entries import message
from tests.support.official import read_back
from tests.support.raw_publisher import RawError, RawPublisher
from tests.support.raw_publisher import TxnId as RawTxnId
from tests.support.transactions import OPEN_LIMIT
from tests.support.waiting import await_true, trim_first_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_spark.client.connection import Connection

COMMIT, ABORT = TxnAction.COMMIT, TxnAction.ABORT
TTL_MS = 600_000
SHORT_MS = 1500
PATIENCE_S = 60.0
COORDINATORS = 3
OVER, ENDING = "TransactionNotFound", "InvalidTxnStatus"

#: Added to a transaction to see if it is still there.
SCRATCH = "persistent://public/lab/scratch"

#: How a transaction may end.
ENDS = ("commit", "abort", "expire")


class Lab:
    """A broker whose open transactions are all ours.

    An open transaction of somebody else would hold back what is waited for here.

    Args:
        broker: It.
    """

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.broker = broker
        self.service_url = broker.service_url
        self.admin = Admin(broker.admin_url)
        self.pool = pool_of(broker.service_url)
        self.client = TransactionClient(self.pool)
        self._names = itertools.count()

    @property
    def connection(self) -> Connection:
        """The connection to the broker."""
        return self.pool.get(BrokerAddress(self.service_url.split("//")[1]))

    def topic(self) -> str:
        """A new topic with one row, ``first``."""
        name = f"persistent://public/lab/t{next(self._names)}"
        self.admin.create_topic(name)
        self.publish(name, b"first")
        return name

    def publish(self, topic: str, value: bytes, txn: TxnId | None = None) -> None:
        """Stores a row."""
        with RawPublisher(self.service_url, topic) as publisher:
            publisher.send(*message(value), txn=None if txn is None else raw(txn))

    def begin(self, *topics: str, ttl_ms: int = TTL_MS, at: int | None = None) -> TxnId:
        """A transaction in which these may be written."""
        txn = self.client.begin(ttl_ms, coordinator=at)
        self.client.add_partitions(txn, topics)
        return txn

    def end(self, txn: TxnId, action: TxnAction) -> str:
        """What END_TXN says."""
        return code(self.client.end([txn], action)[txn])

    def await_end(self, txn: TxnId, action: TxnAction) -> str:
        """What END_TXN says, asked again where the coordinator is silent."""
        for _ in range(3):
            error = self.client.end([txn], action)[txn]
            if not isinstance(error, TransportError):
                break
        return code(error)

    def add(self, txn: TxnId, topic: str) -> str:
        """What ADD_PARTITION_TO_TXN says."""
        try:
            self.client.add_partitions(txn, [topic])
        except BrokerError as error:
            return code(error)
        return "ok"

    def finish(self, txn: TxnId, how: str) -> None:
        """Ends a transaction in one of ``ENDS``."""
        if how == "expire":
            await_true(lambda: self.add(txn, SCRATCH) == OVER, "expiry", PATIENCE_S)
        else:
            assert self.end(txn, COMMIT if how == "commit" else ABORT) == "ok"

    def dead(self, topic: str, how: str, *, wrote: bool) -> TxnId:
        """A transaction that is over, and had been going to write, or written."""
        txn = self.begin(topic, ttl_ms=SHORT_MS if how == "expire" else TTL_MS)
        if wrote:
            self.publish(topic, b"in time", txn)
        self.finish(txn, how)
        return txn

    def rows(self, topic: str) -> list[str]:
        """What a reader sees now."""
        return [
            (row.value or b"").decode() for row in read_back(self.service_url, topic)
        ]


class Attached(RawPublisher):
    """A publisher that says which attachment under its name it is."""

    def __init__(
        self, service_url: str, topic: str, producer_name: str, *, epoch: int
    ) -> None:
        self._epoch = epoch
        super().__init__(service_url, topic, producer_name)

    def _request(self) -> pb.CommandProducer:
        return pb.CommandProducer(
            topic=self._topic,
            producer_id=1,
            producer_name=self._name or None,
            user_provided_producer_name=self._name == "mine",
            epoch=self._epoch,
        )


def pool_of(service_url: str, **limits: Any) -> ConnectionPool:
    """Connections of our own."""
    return ConnectionPool(
        ClientOptions(parse_service_url(service_url, "service.url"), **limits)
    )


def raw(txn: TxnId) -> RawTxnId:
    """An id as the bare publisher has it."""
    return RawTxnId(txn.most, txn.least)


def code(answer: object) -> str:
    """The broker's name of an error, or "ok"."""
    if not isinstance(answer, PulsarSparkError):
        return "ok"
    assert isinstance(answer, BrokerError), answer
    return answer.code


@pytest.fixture(scope="module")
def lab(configured: EmbeddedBroker) -> Iterator[Lab]:
    """The broker of these tests; it has several coordinators."""
    scale = urllib.request.Request(
        f"{configured.admin_url}/admin/v3/transactions/transactionCoordinator/replicas",
        data=str(COORDINATORS).encode(),
        headers={"Content-Type": "application/json"},
        method="POST",
    )
    urllib.request.urlopen(scale, timeout=60).close()
    one = Lab(configured)
    one.admin.create_namespace("public/lab", keep=True)
    one.admin.create_topic(SCRATCH)
    yield one
    one.pool.close()


# -- what a transaction is -------------------------------------------------------------


def test_rows_of_several_topics_become_visible_together(lab: Lab) -> None:
    """Nothing of a transaction is seen before its commit; all of it after."""
    topics = [lab.topic() for _ in range(3)]
    txn = lab.begin(*topics)
    for topic in topics:
        lab.publish(topic, b"row", txn)
        lab.publish(topic, b"of somebody else")
    assert [lab.rows(topic) for topic in topics] == [["first"]] * 3
    assert lab.end(txn, COMMIT) == "ok"
    assert [lab.rows(t) for t in topics] == [["first", "row", "of somebody else"]] * 3


@pytest.mark.parametrize("how", ["abort", "expire"])
def test_rows_that_are_never_seen(lab: Lab, how: str) -> None:
    """Aborted ones, and those of a transaction that lived too long."""
    topic = lab.topic()
    lab.dead(topic, how, wrote=True)
    lab.publish(topic, b"next")
    assert lab.rows(topic) == ["first", "next"]


def test_many_end_together(lab: Lab) -> None:
    """At all coordinators, each with its own outcome."""
    topic = lab.topic()
    txns = [lab.begin(topic, at=i % COORDINATORS) for i in range(3 * COORDINATORS)]
    for txn in txns:
        lab.publish(topic, repr(txn).encode(), txn)
    assert lab.end(txns[3], ABORT) == "ok"
    outcomes = lab.client.end(txns, COMMIT)
    assert code(outcomes.pop(txns[3])) == OVER
    assert outcomes == {txn: None for txn in txns if txn != txns[3]}
    assert lab.rows(topic) == ["first", *(repr(t) for t in txns if t != txns[3])]


def test_a_transaction_that_touches_nothing(lab: Lab) -> None:
    """It can be committed, once."""
    txn = lab.begin()
    assert [lab.end(txn, COMMIT), lab.end(txn, COMMIT)] == ["ok", OVER]


def test_coordinators_take_turns(lab: Lab) -> None:
    """Each gives transactions, and says so in their ids."""
    txns = [lab.begin() for _ in range(OPEN_LIMIT)]
    while len({txn.most for txn in txns}) < COORDINATORS:
        assert lab.end(txns.pop(), ABORT) == "ok"
        txns.append(lab.begin())
    assert {txn.most for txn in txns} == set(range(COORDINATORS))
    assert set(lab.client.end(txns, ABORT).values()) == {None}


def test_as_many_as_are_allowed(lab: Lab) -> None:
    """At the limit a coordinator is silent; what was asked in vain leaves nothing."""
    pool = pool_of(lab.service_url, operation_timeout_s=3.0)
    client = TransactionClient(pool)
    client.end([client.begin(TTL_MS, coordinator=1)], ABORT)  # what is slow at first
    txns = [client.begin(TTL_MS, coordinator=1) for _ in range(OPEN_LIMIT)]
    with pytest.raises(TransportError, match="maxActiveTransactionsPerCoordinator"):
        client.begin(TTL_MS, coordinator=1)
    assert set(client.end(txns[:1], COMMIT).values()) == {None}
    txns[0] = client.begin(TTL_MS, coordinator=1)
    assert set(client.end(txns, COMMIT).values()) == {None}
    pool.close()


# -- what is said of one that is over --------------------------------------------------


@pytest.mark.parametrize("wrote", [True, False], ids=["wrote", "wrote nothing"])
@pytest.mark.parametrize("how", ENDS)
def test_what_is_over_is_not_found(lab: Lab, how: str, wrote: bool) -> None:
    """Whatever is asked of it, and however it ended: the answer does not tell."""
    topic = lab.topic()
    txn = lab.dead(topic, how, wrote=wrote)
    assert lab.end(txn, COMMIT) == OVER
    assert lab.end(txn, ABORT) == OVER
    assert lab.add(txn, topic) == OVER
    assert lab.add(txn, lab.topic()) == OVER


def test_one_that_never_was(lab: Lab) -> None:
    """It is not found either."""
    assert lab.end(TxnId(0, 10**9), COMMIT) == OVER


@pytest.mark.parametrize("second", TxnAction)
@pytest.mark.parametrize("first", TxnAction)
def test_two_ends_at_once(lab: Lab, first: TxnAction, second: TxnAction) -> None:
    """One of them wins. The other is told so, or that it comes too late.

    The same action, asked for again, is refused as the opposite is. The second of two
    requests may win: the coordinator has several threads.
    """
    for _ in range(5):
        topic = lab.topic()
        txn = lab.begin(topic)
        lab.publish(topic, b"row", txn)
        requests: list[Request[Any]] = [
            *(commands.end_txn(txn, action) for action in (first, second)),
            commands.add_partitions_to_txn(txn, [topic]),
        ]
        replies = [lab.connection.request(request) for request in requests]
        assert not await_ends(replies, PATIENCE_S)
        *errors, addition = (reply.outcome() for reply in replies)
        codes = [code(error) for error in errors]
        assert codes.count("ok") == 1
        action = (first, second)[codes.index("ok")]
        errors.pop(codes.index("ok"))
        for error in (*errors, addition):
            assert code(error) in (OVER, ENDING)
            if code(error) == ENDING:
                state = re.search(r"it is in (\w+)ING |it is in (\w+)ED ", str(error))
                assert state is not None
                winner = "COMMITT" if action is COMMIT else "ABORT"
                assert (state[1] or state[2]) == winner
        assert (lab.rows(topic) == ["first", "row"]) == (action is COMMIT)


# -- zombies ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["abort", "expire"])
def test_a_zombie_where_its_transaction_was_aborted(lab: Lab, how: str) -> None:
    """Its rows are never seen, and hold nobody back; also after an unload."""
    topic = lab.topic()
    txn = lab.dead(topic, how, wrote=True)
    lab.publish(topic, b"zombie", txn)
    lab.publish(topic, b"next")
    assert lab.rows(topic) == ["first", "next"]
    lab.admin.unload(topic)
    lab.publish(topic, b"last")
    assert lab.rows(topic) == ["first", "next", "last"]


@pytest.mark.parametrize("action", TxnAction)
@pytest.mark.parametrize("how", ENDS)
def test_a_zombie_where_its_transaction_wrote_nothing(
    lab: Lab, how: str, action: TxnAction
) -> None:
    """It holds back all readers, until a new transaction ends there; then it is gone.

    The topic knows of no abort then, whatever the end was.
    """
    topic = lab.topic()
    txn = lab.dead(topic, how, wrote=False)
    lab.publish(topic, b"zombie", txn)
    lab.publish(topic, b"next")
    assert lab.rows(topic) == ["first"]
    lab.admin.unload(topic)
    lab.publish(topic, b"last")
    assert lab.rows(topic) == ["first"]
    assert lab.end(lab.begin(topic, at=txn.most), action) == "ok"
    assert lab.rows(topic) == ["first", "next", "last"]


@pytest.mark.parametrize("action", TxnAction)
def test_a_zombie_undoes_a_commit(lab: Lab, action: TxnAction) -> None:
    """What was committed, and seen, is gone with the next end of a transaction.

    So every frame must have its receipt before its transaction is committed.
    """
    topic = lab.topic()
    txn = lab.dead(topic, "commit", wrote=True)
    lab.publish(topic, b"zombie", txn)
    lab.publish(topic, b"next")
    assert lab.rows(topic) == ["first", "in time"]
    assert lab.end(lab.begin(topic, at=txn.most), action) == "ok"
    assert lab.rows(topic) == ["first", "next"]


@pytest.mark.parametrize(
    "producer_name", [pytest.param("", marks=pytest.mark.matrix), "mine"]
)
def test_a_producer_that_comes_back_shuts_its_past_out(
    lab: Lab, producer_name: str
) -> None:
    """By name and epoch: what its old connection still holds is not taken."""
    topic = lab.topic()
    txn = lab.begin(topic)
    with Attached(lab.service_url, topic, producer_name, epoch=0) as old:
        old.send(*message(b"a"), txn=raw(txn))
        name = old.producer_name
        with Attached(lab.service_url, topic, name, epoch=1) as new:
            new.send(*message(b"b"), txn=raw(txn))
            with pytest.raises((OSError, struct.error)):  # cut, at either end
                old.send(*message(b"late"), txn=raw(txn))
    assert lab.end(txn, COMMIT) == "ok"
    assert lab.end(lab.begin(topic, at=txn.most), COMMIT) == "ok"
    assert lab.rows(topic) == ["first", "a", "b"]


def test_who_cannot_end_what_a_zombie_holds_back(lab: Lab) -> None:
    """Transactions of another topic or coordinator, or while an older one is open."""
    topic = lab.topic()
    older = lab.begin(at=0)
    txn = lab.begin(topic, at=0)
    assert lab.end(txn, COMMIT) == "ok"
    lab.publish(topic, b"zombie", txn)
    assert lab.end(lab.begin(lab.topic(), at=0), COMMIT) == "ok"
    assert lab.end(lab.begin(topic, at=1), COMMIT) == "ok"
    assert lab.end(lab.begin(topic, at=0), COMMIT) == "ok"
    lab.publish(topic, b"next")
    assert lab.rows(topic) == ["first"]
    assert lab.end(older, ABORT) == "ok"
    assert lab.rows(topic) == ["first"]
    assert lab.end(lab.begin(topic, at=0), COMMIT) == "ok"
    assert lab.rows(topic) == ["first", "next"]


@pytest.mark.parametrize(
    ("action", "wrote"), [(COMMIT, True), (COMMIT, False), (ABORT, True)]
)
@pytest.mark.parametrize("how", ENDS)
def test_a_zombie_is_shut_out(
    lab: Lab, how: str, action: TxnAction, wrote: bool
) -> None:
    """Once a new transaction has ended on the topic, the broker refuses the old one's.

    It must be of the same coordinator, and none older than the zombie's may be open. An
    abort does so only where somebody has written in a transaction.
    """
    topic = lab.topic()
    older = lab.begin(at=0)
    txn = lab.begin(topic, at=0, ttl_ms=SHORT_MS if how == "expire" else TTL_MS)
    with RawPublisher(lab.service_url, topic) as zombie:
        if wrote:
            zombie.send(*message(b"in time"), txn=raw(txn))
        lab.finish(txn, how)
        assert lab.end(lab.begin(topic, at=1), action) == "ok"
        assert lab.end(older, ABORT) == "ok"
        assert lab.end(lab.begin(topic, at=0), action) == "ok"
        with pytest.raises(RawError, match="has been ended") as refused:
            zombie.send(*message(b"zombie"), txn=raw(txn))
        assert SERVER_ERRORS[refused.value.code] == "NotAllowedError"
    with pytest.raises(RawError, match="has been ended"):
        lab.publish(topic, b"zombie", txn)
    seen = ["first", "in time"] if wrote and how == "commit" else ["first"]
    assert lab.rows(topic) == seen


def test_an_older_transaction_is_not_shut_out(lab: Lab) -> None:
    """As long as it is open it may be written in, whoever ends before it."""
    topic = lab.topic()
    txn = lab.begin(topic, at=0)
    assert lab.end(lab.begin(topic, at=0), COMMIT) == "ok"
    lab.publish(topic, b"row", txn)
    assert lab.end(txn, COMMIT) == "ok"
    assert lab.rows(topic) == ["first", "row"]


def test_a_zombie_outlives_the_memory_of_its_abort(lab: Lab) -> None:
    """With the ledger in which a transaction was aborted goes the knowledge of it.

    What a zombie stored behind it is delivered from the next end of a transaction on.
    So nobody may send in a transaction that may be over.
    """
    lab.admin.create_namespace("public/trimmed", keep=True)
    topic = "persistent://public/trimmed/t"
    lab.admin.create_topic(topic)
    txn = lab.dead(topic, "abort", wrote=True)
    lab.admin.unload(topic)  # a new ledger
    lab.publish(topic, b"zombie", txn)
    lab.publish(topic, b"next")
    assert lab.rows(topic) == ["next"]
    trim_first_ledger(lab.admin, topic)
    assert lab.end(lab.begin(topic), COMMIT) == "ok"
    assert lab.rows(topic) == ["zombie", "next"]


# -- a broker that dies ----------------------------------------------------------------


@pytest.mark.matrix
def test_a_crash(lab: Lab) -> None:
    """Open transactions survive it, to be ended or to expire; what was ended stays so.

    Those that were just ending are done or over, and end as they were told to. So are
    those that were over: a coordinator may come back with one of these open, as it was
    before its end (4.0.7, one crash in ten; see "A broker that forgets" in
    docs/guarantees.md). Its answer may take as long as its broker's own client waits
    for what a topic knew of transactions, which is 30 s.
    """
    topic = lab.topic()
    begun = {
        name: lab.begin(topic, ttl_ms=15_000 if name == "open, expire" else TTL_MS)
        for when in ("done", "ending", "open")
        for name in (f"{when}, {how}" for how in ENDS)
    }
    for name, txn in begun.items():
        lab.publish(topic, name.encode(), txn)
    for how in ("commit", "abort"):
        lab.finish(begun[f"done, {how}"], how)
    actions = {"commit": COMMIT, "abort": ABORT}
    replies = [
        lab.connection.request(commands.end_txn(begun[f"ending, {how}"], action))
        for how, action in actions.items()
    ]
    lab.broker.restart(kill=True)
    assert not await_ends(replies, PATIENCE_S)
    # No coordinator is there, and no transaction expires, until a client connects.
    reply = lab.connection.request(commands.new_txn(0, TTL_MS))
    assert not await_ends([reply], PATIENCE_S)
    assert code(reply.outcome()) == "TransactionCoordinatorNotFound"
    for how, action in actions.items():
        done, ending = begun[f"done, {how}"], begun[f"ending, {how}"]
        for txn in (done, ending):
            assert lab.await_end(txn, action) in ("ok", OVER, ENDING)
            await_true(
                lambda txn=txn, action=action: lab.await_end(txn, action) == OVER,
                f"the end of {txn}",
            )
    for how in ENDS:
        lab.finish(begun[f"open, {how}"], how)
    newer = [lab.begin(at=i) for i in range(COORDINATORS)]
    assert not {*newer} & {*begun.values()}
    left = [begun["done, expire"], begun["ending, expire"], *newer]
    assert set(lab.client.end(left, ABORT).values()) == {None}
    seen = ["done, commit", "ending, commit", "open, commit"]
    assert lab.rows(topic) == ["first", *seen]


@pytest.mark.soak  # a broker of its own; a scripted one says the same in make test
def test_transactions_are_off() -> None:
    """Whoever asks for one is told what to set."""
    settings = {"transactionCoordinatorEnabled": "false"}
    with EmbeddedBroker(settings=settings, progress=None) as broker:
        pool = pool_of(broker.service_url)
        client, txn = TransactionClient(pool), TxnId(0, 1)
        for ask in (
            client.require,
            lambda: client.begin(TTL_MS),
            lambda: client.add_partitions(txn, ["persistent://public/default/t"]),
        ):
            with pytest.raises(TransactionsOffError, match="CoordinatorEnabled=true"):
                ask()
        assert isinstance(client.end([txn], COMMIT)[txn], TransactionsOffError)
        pool.close()
