# SPDX-License-Identifier: Apache-2.0
"""Batch writes in transactions that expire, and whose commits lose their answers.

``tests/sink/test_batch_commit.py`` has every order of it; here is what only a real
broker can say: what readers get, and when.
"""

from __future__ import annotations

import contextlib
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark import PulsarDataSource
from pulsar_spark.client.pool import ConnectionPool, shared_pool
from pulsar_spark.client.transactions import (
    TransactionClient,
    TxnStatus,
    status_of,
)
from pulsar_spark.errors import (
    PulsarSparkError,
    ReadTimeoutError,
    TransactionLostError,
    TransportError,
)
from pulsar_spark.message_id import MessageId, TxnId
from pulsar_spark.options import parse_write_options
from pulsar_spark.sink.batch_commit import BatchCommit
from pulsar_spark.sink.visibility import Place, Visibility, find_out
from pulsar_spark.testing.admin import Admin
from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from pulsar_spark.wire.commands import TxnAction
from tests.bench.publish import client_options
from tests.broker.test_write_guarantees import (
    PARTS,
    SCHEMA,
    Context,
    check_free,
    record_batches,
    visible,
)
from tests.broker.test_write_guarantees import sink as sink
from tests.support.combinations import combinations
from tests.support.official import produce
from tests.support.waiting import await_true, trim_first_ledger
from tests.support.writes import _context as _context
from tests.support.writes import write_in_transactions

if TYPE_CHECKING:
    from tests.support.link_proxy import LinkProxy

COMMIT, ABORT = TxnAction.COMMIT, TxnAction.ABORT
TTL_MS = 600_000
SHORT_MS = 2000


# -- what readers say of an entry ------------------------------------------------------


class Rows:
    """A topic partition to which rows are written in transactions."""

    def __init__(self, service_url: str, topic: str) -> None:
        self.service_url = service_url
        self.topic = topic
        self.pool = ConnectionPool(client_options(service_url))
        self.client = TransactionClient(self.pool)

    def write(self, ttl_ms: int = TTL_MS) -> tuple[TxnId, MessageId]:
        """One row; where it is."""
        written = write_in_transactions(self.pool, [self.topic], ttl_ms)
        ((txn, entries),) = written.items()
        place = entries[self.topic]
        assert place is not None
        return txn, place

    def finish(self, txn: TxnId, how: str) -> None:
        """Ends it."""
        if how == "expire":
            await_true(lambda: is_over(self.client, txn, self.topic), "expiry")
        else:
            action = COMMIT if how == "commit" else ABORT
            assert self.client.end([txn], action) == {txn: None}

    def look(self, place: MessageId, patience_s: float = 60.0) -> Visibility:
        """What became of the row."""
        retry = self.pool.retry(patience_s)
        asked = {Place(TxnId(0, 0), self.topic): place}
        (state,) = find_out(self.pool, asked, retry).values()
        if isinstance(state, PulsarSparkError):
            raise state
        return state


def is_over(client: TransactionClient, txn: TxnId, topic: str) -> bool:
    """Whether a transaction is not open any more."""
    return status_of(txn, client.confirm({txn: topic})[txn]) is TxnStatus.OVER


@pytest.fixture
def rows(service_url: str, admin: Admin, namespace: str) -> Iterator[Rows]:
    """A topic without partitions."""
    topic = f"persistent://{namespace}/rows"
    admin.create_topic(topic)
    one = Rows(service_url, topic)
    yield one
    one.pool.close()


@combinations(
    how=("commit", "abort", "expire"),
    followed={"last": False, "followed": True},
    unload={"": False, "unloaded": True},
)
def test_what_became_of_a_row(
    rows: Rows, admin: Admin, how: str, followed: bool, unload: bool
) -> None:
    """Readers get it, or are seen to pass it over, also where nothing follows."""
    produce(rows.service_url, rows.topic, [b"before"])
    txn, place = rows.write(SHORT_MS if how == "expire" else TTL_MS)
    rows.finish(txn, how)
    if followed:
        produce(rows.service_url, rows.topic, [b"behind"])
    if unload:
        admin.unload(rows.topic)
    expected = Visibility.VISIBLE if how == "commit" else Visibility.ABORTED
    assert rows.look(place) is expected
    assert not admin.stats(rows.topic)["subscriptions"]


@pytest.mark.parametrize("how", ["commit", "abort"])
def test_a_row_behind_an_open_transaction(rows: Rows, how: str) -> None:
    """It cannot be told before that one ends."""
    older, _ = rows.write()
    txn, place = rows.write()
    rows.finish(txn, how)
    with pytest.raises(ReadTimeoutError, match="still open"):
        rows.look(place, patience_s=0.0)
    rows.finish(older, "abort")
    expected = Visibility.VISIBLE if how == "commit" else Visibility.ABORTED
    assert rows.look(place) is expected


def test_a_row_that_was_removed(rows: Rows, admin: Admin) -> None:
    """That it cannot be read proves nothing then."""
    txn, place = rows.write()
    rows.finish(txn, "commit")
    admin.unload(rows.topic)
    produce(rows.service_url, rows.topic, [b"behind"])
    trim_first_ledger(admin, rows.topic)
    assert rows.look(place) is Visibility.REMOVED


# -- whole writes ----------------------------------------------------------------------


class Write:
    """A batch write, as Spark drives one."""

    def __init__(self, service_url: str, topic: str, **options: str) -> None:
        self.options = {
            "service.url": service_url,
            "topic": topic,
            "deliveryGuarantee": "exactly-once",
            **options,
        }
        self.topic = topic
        client = parse_write_options(self.options, streaming=False).client
        self.client = TransactionClient(shared_pool(client))
        self._planned = pickle.dumps(self._writer())

    def _writer(self) -> Any:
        return PulsarDataSource(self.options).writer(SCHEMA, overwrite=False)

    def driver(self) -> Any:
        """The writer that Spark unpickles for each call on its driver."""
        return pickle.loads(self._planned)  # noqa: S301

    def task(self, number: int) -> Any:
        """What a task does: rows that tell where they belong."""
        Context.mine.context = Context("", 0, number)
        return self.driver().write(record_batches(f"{number}:{n}" for n in range(3)))

    def rows(self, tasks: int) -> Counter[str]:
        """The rows of the first tasks, once each."""
        return Counter(f"{task}:{n}" for task in range(tasks) for n in range(3))


@contextlib.contextmanager
def losing_answers(
    link: LinkProxy, before: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """The first answers to END_TXN are lost, because the link is cut."""
    ask = TransactionClient._ask
    is_lost = []

    def changed(client: TransactionClient, requests: Any) -> Any:
        names = {request.name for _, request in requests.values()}
        if names != {"END_TXN"} or is_lost:
            return ask(client, requests)
        is_lost.append(True)
        before()
        ask(client, requests)
        assert link.cut_all()
        return dict.fromkeys(requests, TransportError("The link was cut."))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionClient, "_ask", changed)
        yield


def test_a_task_that_ends_too_late_for_another(service_url: str, sink: str) -> None:
    """The write fails as a whole: nothing can be seen, and nobody is held back."""
    write = Write(service_url, sink)
    first = Write(service_url, sink, transactionTimeoutMs=str(SHORT_MS)).task(0)
    topic = next(iter(first.result.written.entries))
    await_true(lambda: is_over(write.client, first.result.txn, topic), "expiry")
    messages = [first, write.task(1)]
    with pytest.raises(TransactionLostError, match="Nothing of this write") as caught:
        write.driver().commit(messages)
    assert caught.value.partitions == (0,)
    write.driver().abort(messages)
    assert not visible(service_url, sink)
    check_free(service_url, sink)


@pytest.mark.parametrize("parts", [1, 3])
def test_answers_to_commits_are_lost(
    link: LinkProxy, service_url: str, sink: str, parts: int
) -> None:
    """The link breaks when the broker has committed: the write is whole, and ends."""
    write = Write(link.url, sink)
    messages = [write.task(number) for number in range(parts)]
    with losing_answers(link):
        write.driver().commit(messages)
    write.driver().abort(messages)  # as if it had failed: nothing of it ends
    assert visible(service_url, sink) == write.rows(parts)
    check_free(service_url, sink)


def test_they_expire_while_their_commits_are_on_their_way(
    link: LinkProxy, service_url: str, sink: str
) -> None:
    """The one window that is left: the error tells what can be seen."""
    write = Write(link.url, sink, transactionTimeoutMs=str(SHORT_MS))
    messages = [write.task(number) for number in range(2)]
    topics = {m.result.txn: next(iter(m.result.written.entries)) for m in messages}

    def expire() -> None:
        for txn, topic in topics.items():
            await_true(lambda t=txn, p=topic: is_over(write.client, t, p), "expiry")

    with (
        losing_answers(link, before=expire),
        pytest.raises(TransactionLostError, match="Nothing of this write") as caught,
    ):
        write.driver().commit(messages)
    assert caught.value.partitions == (0, 1)
    assert not visible(service_url, sink)
    check_free(service_url, sink)


@pytest.mark.slow
@pytest.mark.soak
def test_the_broker_dies_in_the_commit() -> None:
    """Its successor knows of the transactions: the write is whole, and ends."""
    end = TransactionClient.end
    with EmbeddedBroker(progress=None) as broker:
        topic = "persistent://public/default/sink"
        admin = Admin(broker.admin_url)
        # A ledger ends with its broker, and goes when nobody asks for it any more.
        admin.set_retention("public/default", minutes=-1, size_mb=-1)
        admin.create_partitioned(topic, PARTS)
        write = Write(broker.service_url, topic)
        messages = [write.task(number) for number in range(2)]

        def killed(client: TransactionClient, txns: Any, action: TxnAction) -> Any:
            patch.undo()
            end(client, list(txns)[:1], action)
            broker.restart(kill=True)
            return end(client, txns, action)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TransactionClient, "end", killed)
            write.driver().commit(messages)
        assert visible(broker.service_url, topic) == write.rows(2)


def test_an_abort_of_what_was_committed(service_url: str, sink: str) -> None:
    """It changes nothing, and is no error."""
    write = Write(service_url, sink)
    messages = [write.task(0)]
    write.driver().commit(messages)
    pool = shared_pool(parse_write_options(write.options, streaming=False).client)
    BatchCommit(pool, TTL_MS).abort([messages[0].result.txn])
    assert visible(service_url, sink) == write.rows(1)
