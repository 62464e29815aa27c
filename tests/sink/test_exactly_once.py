# SPDX-License-Identifier: Apache-2.0
"""The commit protocol against a model of a broker: whatever dies, each row once.

The protocol is the real one. Journals and coordinators are models: topics whose
messages are held back by open transactions, and coordinators that forget transactions
when they are over. Drivers and tasks are threads that take turns; at every step of any
of them another may go on, it may be killed, or transactions may expire.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.errors import (
    BrokerError,
    CommitLogError,
    PulsarSparkError,
    QueryConflictError,
    ReadTimeoutError,
    TransactionLostError,
    TransportError,
)
from pulsar_spark.message_id import MessageId, TxnId
from pulsar_spark.options import ClientOptions, ServiceUrl
from pulsar_spark.sink import exactly_once, task_transaction
from pulsar_spark.sink.commit_log import (
    NO_TERM,
    Committed,
    Prepared,
    dump_record,
    load_record,
)
from pulsar_spark.sink.exactly_once import (
    CommitProgress,
    CommitProtocol,
    _named,
    marker,
    markers_topic,
)
from pulsar_spark.sink.tally import Tally
from pulsar_spark.sink.task_transaction import TaskTransaction
from pulsar_spark.wire.commands import TxnAction
from spark_topics.client.retry import Retry
from tests.support.scripted_broker import PATIENCE_S

LOG = "persistent://public/default/log"
MARKERS = markers_topic(LOG)
ROWS = "persistent://public/default/rows"
QUERY = "a query"


class Killed(BaseException):
    """What a process raises at the step at which it is killed."""


class Threads:
    """Threads that take turns, as a test wants.

    Attributes:
        waiting: Those that stand at a step, by name.
        ended: Those that are over.
        failures: Why some of these are, if they were not killed.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, threading.Event] = {}
        self.ended: set[str] = set()
        self.failures: dict[str, BaseException] = {}
        self._mine = threading.local()
        self._killed: set[str] = set()
        self._turn_over = threading.Event()

    def start(self, name: str, run: Callable[[], None]) -> None:
        """A new thread, which waits for its first turn."""
        go = threading.Event()

        def body() -> None:
            self._mine.name = name
            assert go.wait(PATIENCE_S), f"{name} never had its first turn"
            try:
                if name not in self._killed:
                    run()
            except Killed:
                pass
            except BaseException as error:
                self.failures[name] = error
            finally:
                self.ended.add(name)
                self._turn_over.set()

        self.waiting[name] = go
        threading.Thread(target=body, daemon=True).start()

    def step(self) -> None:
        """Called by a thread where another may take over; outside of threads nothing.

        Raises:
            Killed: It is to end here.
        """
        name = getattr(self._mine, "name", None)
        if name is None:
            return
        go = threading.Event()
        self.waiting[name] = go
        self._turn_over.set()
        assert go.wait(PATIENCE_S), f"{name} never had another turn"
        if name in self._killed:
            raise Killed

    def turn(self, name: str) -> None:
        """Lets a thread go on to its next step, or its end."""
        self._turn_over.clear()
        self.waiting.pop(name).set()
        assert self._turn_over.wait(PATIENCE_S), f"the turn of {name} did not end"

    def kill(self, name: str) -> None:
        """Ends a thread where it stands."""
        self._killed.add(name)
        if name in self.waiting:
            self.turn(name)


@dataclass
class Stored:
    """A message, and the transaction it is part of."""

    data: bytes
    txn: TxnId | None = None


@dataclass
class Transaction:
    """A transaction as its coordinator and the topics know it."""

    state: str = "open"
    topics: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)


class World:
    """A broker. It stands for the pool of connections, too."""

    write_patience_s = 0.0

    def __init__(self) -> None:
        self.options = ClientOptions(
            ServiceUrl("pulsar", ("broker:6650",)),
            initial_backoff_s=0.0001,
            max_backoff_s=0.0001,
        )
        self.threads = Threads()
        self.topics: dict[str, list[Stored]] = {LOG: [], MARKERS: [], ROWS: []}
        self.done: Counter[str] = Counter()  # messages that a journal has forgotten
        self.kept: set[str] = set()  # journals with a subscription
        self.txns: dict[TxnId, Transaction] = {}
        self.spoiled: list[TxnId] = []  # committed, and then written to
        # Happens right before the transactions of a micro-batch are committed.
        self.at_commit: Callable[[], object] = lambda: None

    def step(self) -> None:
        """Somebody else may go on here."""
        self.threads.step()

    def retry(self, timeout_s: float) -> Retry:
        """As the pool's."""
        options = self.options
        return Retry(options.initial_backoff_s, options.max_backoff_s, timeout_s)

    # -- topics ------------------------------------------------------------------------

    def send(self, topic: str, data: bytes, txn: TxnId | None = None) -> int:
        """Stores a message, and returns its number."""
        if txn is not None:
            transaction = self.txns[txn]
            assert topic in transaction.topics
            if transaction.state == "committed":
                self.spoiled.append(txn)
            transaction.written.add(topic)
        self.topics[topic].append(Stored(data, txn))
        return len(self.topics[topic]) - 1

    def readable(self, topic: str) -> list[Stored]:
        """What comes before the first message of an open transaction."""
        found = []
        for message in self.topics[topic]:
            if message.txn is not None and self.txns[message.txn].state == "open":
                break
            found.append(message)
        return found

    def is_visible(self, message: Stored) -> bool:
        """Whether a message that is not held back is delivered."""
        return message.txn is None or self.txns[message.txn].state == "committed"

    def visible(self, topic: str) -> list[bytes]:
        """What a reader of a topic gets."""
        return [m.data for m in self.readable(topic) if self.is_visible(m)]

    # -- coordinators ------------------------------------------------------------------

    def begin(self) -> TxnId:
        """A new transaction."""
        txn = TxnId(0, len(self.txns))
        self.txns[txn] = Transaction()
        return txn

    def end(self, txn: TxnId, action: TxnAction) -> PulsarSparkError | None:
        """What a coordinator answers to END_TXN."""
        transaction = self.txns[txn]
        if transaction.state != "open":
            return over("TransactionNotFound")
        committed = action is TxnAction.COMMIT
        transaction.state = "committed" if committed else "aborted"
        return None

    def trim(self) -> None:
        """Retention takes what no subscription asks for."""
        for topic in {LOG, MARKERS} - self.kept:
            self.done[topic] = len(self.topics[topic])

    def expire(self, txn: TxnId) -> None:
        """The coordinator aborts a transaction that grew too old."""
        if self.txns[txn].state == "open":
            self.txns[txn].state = "aborted"

    @property
    def open(self) -> list[TxnId]:
        """Transactions that hold readers back."""
        return [t for t, one in self.txns.items() if one.state == "open"]


def over(code: str) -> BrokerError:
    """A refusal by a coordinator."""
    return BrokerError(f"The broker answered {code}.", code=code)


class ModelJournal:
    """Journal's part in the model."""

    def __init__(
        self,
        pool: World,
        topic: str,
        prefix: str = "",
        *,
        patience_s: float | None = None,
    ) -> None:
        self._world = pool
        self.topic = topic
        self._done = -1  # forgotten when this one appended last

    def __enter__(self) -> ModelJournal:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: that nobody else reads a held journal only makes it easier."""

    def attach(self) -> None:
        """As ``Journal.attach``; called by another thread, and so no step."""

    def append(self, message: bytes) -> MessageId:
        """As ``Journal.append``."""
        self._world.step()
        entry = self._world.send(self.topic, message)
        self._done = self._world.done[self.topic]
        self._world.step()
        return MessageId(0, entry)

    def read(self, up_to: MessageId | None = None) -> list[tuple[MessageId, bytes]]:
        """As ``Journal.read``; what came after ``up_to`` is missing."""
        world = self._world
        world.step()
        self._subscribe()
        done = world.done[self.topic]
        if done != self._done:  # the subscription was lost, and another reader came
            up_to = None
        found = [
            (MessageId(0, entry), message.data)
            for entry, message in enumerate(world.readable(self.topic))
            if entry >= done and world.is_visible(message)
            if up_to is None or entry <= up_to.entry_id
        ]
        world.step()
        return found

    def keep(self) -> None:
        """As ``Journal.keep``."""
        self._world.step()
        self._subscribe()

    def forget(self, last: MessageId) -> None:
        """As ``Journal.forget``."""
        self._world.step()
        self._subscribe()
        done = self._world.done
        done[self.topic] = max(done[self.topic], last.entry_id + 1)
        self._world.step()

    def last(self) -> MessageId | None:
        """As ``Journal.last``."""
        found = self.read()
        return found[-1][0] if found else None

    def _subscribe(self) -> None:
        if self.topic not in self._world.kept:
            self._world.kept.add(self.topic)


class ModelTransactions:
    """TransactionClient's part in the model."""

    def __init__(
        self,
        pool: World,
        *,
        patience_s: float | None = None,
        count: int = 0,
        is_scalable: bool = False,
    ) -> None:
        self._world = pool

    def require(self) -> None:
        """As ``TransactionClient.require``."""

    def connect(self, txns: Iterable[TxnId]) -> None:
        """As ``TransactionClient.connect``; called by another thread, maybe."""

    def begin(
        self, ttl_ms: int, *, coordinator: int | None = None, near: bool = False
    ) -> TxnId:
        """As ``TransactionClient.begin``."""
        self._world.step()
        txn = self._world.begin()
        self._world.step()
        return txn

    def add_partitions(self, txn: TxnId, topics: Sequence[str]) -> None:
        """As ``TransactionClient.add_partitions``."""
        self._world.step()
        if self._world.txns[txn].state != "open":
            raise over("TransactionNotFound")
        self._world.txns[txn].topics.update(topics)

    def confirm(
        self, topics: Mapping[TxnId, str]
    ) -> dict[TxnId, PulsarSparkError | None]:
        """As ``TransactionClient.confirm``."""
        self._world.step()
        txns = self._world.txns
        assert all(topic in txns[txn].topics for txn, topic in topics.items())
        return {
            txn: None if txns[txn].state == "open" else over("TransactionNotFound")
            for txn in topics
        }

    def end(
        self, txns: Iterable[TxnId], action: TxnAction
    ) -> dict[TxnId, PulsarSparkError | None]:
        """As ``TransactionClient.end``; a kill may come between any two."""
        outcomes = {}
        if action is TxnAction.COMMIT:
            self._world.at_commit()
        for txn in txns:
            self._world.step()
            outcomes[txn] = self._world.end(txn, action)
        self._world.step()
        return outcomes


@pytest.fixture(autouse=True, scope="module")
def _models() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exactly_once, "Journal", ModelJournal)
        for module in exactly_once, task_transaction:
            patch.setattr(module, "TransactionClient", ModelTransactions)
        yield


@pytest.fixture
def world() -> World:
    """A broker with nothing on it."""
    return World()


def protocol(world: World) -> CommitProtocol:
    """The driver's part, on a model."""
    return CommitProtocol(world, LOG)  # type: ignore[arg-type]


def write(
    world: World,
    query_id: str,
    batch_id: int,
    partition: int,
    progress: CommitProgress | None = None,
) -> TxnId:
    """What a task does with two rows; one of an earlier version has no progress."""
    transaction = TaskTransaction.begin(world, 1000)  # type: ignore[arg-type]
    log: Any = ModelJournal(world, LOG)
    term = NO_TERM if progress is None else progress.term
    transaction.announce(log, batch_id, partition, term)
    transaction.extend([ROWS])
    for number in range(2):
        world.step()
        world.send(ROWS, row(batch_id, partition, number), transaction.txn)
    transaction.extend([MARKERS])
    world.step()
    world.send(MARKERS, marker(query_id, batch_id, partition), transaction.txn)
    world.step()
    return transaction.txn


def row(batch_id: int, partition: int, number: int) -> bytes:
    """A row that tells where it comes from."""
    return f"{batch_id}-{partition}-{number}".encode()


def rows(*tasks: tuple[int, int]) -> list[bytes]:
    """The rows of tasks, sorted."""
    return sorted(row(*task, number) for task in tasks for number in range(2))


# -- Spark, as far as it matters here --------------------------------------------------

#: Input partitions that have rows, by micro-batch.
BATCHES = ({0, 1, 2}, {0}, set(), {0, 1})

#: Bounds a failure: no play takes as many steps.
PATIENCE = 20_000


class Stream:
    """A streaming query with its checkpoint, its drivers and its tasks.

    Args:
        world: The broker.
        seed: Makes the choices.
    """

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.committed = -1  # what Spark knows
        self.planned = -1
        self.drivers: list[str] = []
        self.tasks: list[str] = []

    def start_driver(self) -> None:
        """A new run of the query."""
        name = f"driver {len(self.drivers)}"
        self.drivers.append(name)
        self.world.threads.start(name, self._drive)

    def is_alive(self, name: str) -> bool:
        """Whether a thread has not ended."""
        return name not in self.world.threads.ended

    def _drive(self) -> None:
        while (batch_id := self.committed + 1) < len(BATCHES):
            self.planned = max(self.planned, batch_id)
            try:
                progress = protocol(self.world).recover()
            except QueryConflictError:
                assert len(self.drivers) > 1
                return  # another one went to work meanwhile
            if progress.of(QUERY).committed > batch_id:
                assert len(self.drivers) > 1
                return  # and has gone further: each of its tasks refuses
            txns = self._run_tasks(batch_id, progress)
            try:
                self._commit(batch_id, progress, txns)
            except PulsarSparkError:
                if self.chance.random() < 0.8:
                    protocol(self.world).abort(progress)
                return
            self.world.step()
            if self.committed >= batch_id:
                return  # Spark finds that somebody else runs the query
            self.committed = batch_id
            self.world.step()

    def _commit(
        self, batch_id: int, progress: CommitProgress, txns: Mapping[int, TxnId | None]
    ) -> None:
        mine = {p: txn for p, txn in txns.items() if txn is not None}
        if mine:
            tasks = len(BATCHES[batch_id])
            protocol(self.world).commit(batch_id, mine, progress.of(QUERY), tasks)
        stored = self.world.topics[ROWS]
        visible = Counter(m.data for m in stored if self.world.is_visible(m))
        expected = rows(*((batch_id, partition) for partition in BATCHES[batch_id]))
        assert [visible[one] for one in expected] == [1] * len(expected)

    def _run_tasks(
        self, batch_id: int, progress: CommitProgress
    ) -> dict[int, TxnId | None]:
        finished: dict[int, TxnId | None] = {}
        attempts: dict[int, list[str]] = {p: [] for p in BATCHES[batch_id]}
        while finished.keys() != attempts.keys():
            for partition in attempts.keys() - finished.keys():
                alive = sum(map(self.is_alive, attempts[partition]))
                if not alive or (alive < 2 and self.chance.random() < 0.1):
                    name = f"task {len(self.tasks)}"
                    self.tasks.append(name)
                    attempts[partition].append(name)
                    self.world.threads.start(
                        name, self._task(batch_id, partition, progress, finished)
                    )
            self.world.step()
        return finished

    def _task(
        self,
        batch_id: int,
        partition: int,
        progress: CommitProgress,
        finished: dict[int, TxnId | None],
    ) -> Callable[[], None]:
        def run() -> None:
            if progress.of(QUERY).has(batch_id, partition):
                finished.setdefault(partition, None)
                return
            try:
                txn = write(self.world, QUERY, batch_id, partition, progress)
            except BrokerError:
                return
            finished.setdefault(partition, txn)

        return run


def play(world: World, seed: int, *, drivers: int) -> Stream:
    """Runs a stream to its end, with kills, stalls and transactions that expire.

    Args:
        world: The broker.
        seed: Makes the choices.
        drivers: How many may live at a time.
    """
    chance = random.Random(seed)
    stream = Stream(world, seed)
    threads = world.threads
    stalled: set[str] = set()
    troubles = chance.randint(0, 25)
    for _ in range(PATIENCE):
        alive = [name for name in stream.drivers if stream.is_alive(name)]
        if stream.committed == len(BATCHES) - 1:
            break
        if not alive or (len(alive) < drivers and chance.random() < 0.02):
            stream.start_driver()
        able = [name for name in threads.waiting if name not in stalled]
        if not able or chance.random() < 0.05:
            stalled.clear()
            continue
        name = chance.choice(able)
        trouble = chance.random() if troubles else 1
        troubles -= trouble < 0.08
        if trouble < 0.02:
            stalled.add(name)
        elif trouble < 0.05:
            threads.kill(name)
        elif trouble < 0.07 and world.open:
            world.expire(chance.choice(world.open))
        elif trouble < 0.08:
            world.trim()
        else:
            threads.turn(name)
        check(world)
        assert not threads.failures, threads.failures
    else:
        raise AssertionError("it does not come to an end")
    # Whoever is still there goes on, or not.
    while threads.waiting:
        name = chance.choice(list(threads.waiting))
        (threads.turn if chance.random() < 0.98 else threads.kill)(name)
        check(world)
    protocol(world).recover()
    check(world)
    assert not threads.failures, threads.failures
    return stream


def check(world: World) -> None:
    """What holds at every moment."""
    assert not world.spoiled, "somebody wrote in a committed transaction"
    visible = Counter(m.data for m in world.topics[ROWS] if world.is_visible(m))
    assert max(visible.values(), default=1) == 1, f"seen twice: {visible}"


EVERYTHING = rows(*((b, p) for b, parts in enumerate(BATCHES) for p in parts))


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_each_row_once(seed: int) -> None:
    """Tasks and drivers are killed or stall anywhere, and transactions expire."""
    world = World()
    play(world, seed, drivers=1)
    assert sorted(world.visible(ROWS)) == EVERYTHING
    assert not any(world.txns[txn].written for txn in world.open)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_each_row_once_with_two_drivers(seed: int) -> None:
    """A driver that was given up goes on while the next one runs."""
    world = World()
    play(world, seed, drivers=2)
    assert sorted(world.visible(ROWS)) == EVERYTHING


# -- one thing at a time ---------------------------------------------------------------


def expire_all(world: World, txns: Iterable[TxnId]) -> None:
    """Transactions that grew too old."""
    for txn in txns:
        world.expire(txn)


def run_batch(world: World, batch_id: int, *parts: int, tasks: int = 0) -> None:
    """A micro-batch, from its planning to its commit."""
    progress = protocol(world).recover().of(QUERY)
    txns = {
        part: write(world, QUERY, batch_id, part, progress)
        for part in parts
        if not progress.has(batch_id, part)
    }
    if txns:
        protocol(world).commit(batch_id, txns, progress, tasks or len(parts))


def last_progress(world: World) -> CommitProgress:
    """As much as ``abort`` has to know of the driver that began last."""
    places = [n for n, m in enumerate(world.topics[LOG]) if b"began" in m.data]
    return CommitProgress(term=(0, places[-1]))


def commit_until(world: World, steps: int) -> bool:
    """A micro-batch whose commit is killed at a step; whether it came so far."""
    progress = protocol(world).recover().of(QUERY)
    txns = {part: write(world, QUERY, 0, part) for part in (0, 1, 2)}
    threads = world.threads
    threads.start("commit", lambda: protocol(world).commit(0, txns, progress, 3))
    for _ in range(steps):
        threads.turn("commit")
        if "commit" in threads.ended:
            return False
    threads.kill("commit")
    return True


@pytest.mark.parametrize("downtime", ["short", "long"])
def test_killed_at_each_step_of_a_commit(downtime: str) -> None:
    """The next run ends it, or does it again, also where transactions expired."""
    steps = 0
    partial = 0
    while True:
        world = World()
        if not commit_until(world, steps):
            break
        if downtime == "long":
            for txn in world.open:
                world.expire(txn)
        before = len(world.visible(ROWS))
        partial += 0 < before < 6
        run_batch(world, 0, 0, 1, 2)
        assert sorted(world.visible(ROWS)) == rows((0, 0), (0, 1), (0, 2)), steps
        run_batch(world, 1, 0)
        assert len(world.visible(ROWS)) == 8
        assert not world.open
        steps += 1
    assert steps > 12
    assert partial >= 2  # between one transaction's end and the next one's


def test_what_tasks_are_told() -> None:
    """Which rows are there already; a new checkpoint has none."""
    progress = CommitProgress(QUERY, "run", 4, 5, frozenset({1}), 3)
    assert progress.of(QUERY) is progress
    assert progress.has(4, 0)
    assert [progress.has(5, part) for part in (0, 1, 2)] == [False, True, False]
    assert not progress.has(6, 1)
    with pytest.raises(QueryConflictError, match="micro-batch 4 of the same query"):
        progress.has(3, 0)
    other = progress.of("another query")
    assert other == CommitProgress("another query", "run", before=QUERY)
    assert (other.committed, other.partial, other.tasks) == (-1, -1, 0)
    assert not other.has(0, 0)


def test_a_micro_batch_with_other_rows() -> None:
    """It is not the one that is visible, whatever its number; the error says both."""
    progress = CommitProgress(QUERY, "run", 4, rows=Tally(2))
    progress.require_same_rows(4, Tally(2))
    progress.require_same_rows(5, Tally(7))
    said = r"Micro-batch 4 is visible already, with 2 rows.* other rows, 5 rows.*set ba"
    with pytest.raises(QueryConflictError, match=said):
        progress.require_same_rows(4, Tally(5))
    partial = CommitProgress(
        QUERY, "run", 3, 4, frozenset({1}), 2, part_rows={1: Tally(2)}
    )
    partial.require_same_part(4, 0, Tally(9))
    partial.require_same_part(4, 1, Tally(2))
    with pytest.raises(QueryConflictError, match="Task 1 of micro-batch 4 is visible"):
        partial.require_same_part(4, 1, Tally(9))
    partial.require_same_part(4, 1, Tally(0, 0))  # nothing is left out
    digested = CommitProgress(QUERY, "run", 4, rows=Tally(2, 10))
    digested.require_same_rows(4, Tally(2, 10))
    digested.require_same_rows(4, Tally(2))
    said = r"with 2 rows \(digest 0{15}a\).* other rows, 2 rows \(digest 0{15}b\)"
    with pytest.raises(QueryConflictError, match=said):
        digested.require_same_rows(4, Tally(2, 11))
    of_an_earlier_version = CommitProgress(QUERY, "run", 4, 5, frozenset({1}), 2)
    of_an_earlier_version.require_same_rows(4, Tally(5))
    of_an_earlier_version.require_same_part(5, 1, Tally(5))


def decide(world: World, rows: dict[int, Tally]) -> CommitProgress:
    """A micro-batch of which only the first task's transaction did not expire."""
    progress = protocol(world).recover().of(QUERY)
    txns = {part: write(world, QUERY, 0, part, progress) for part in rows}
    world.at_commit = partial(expire_all, world, list(txns.values())[1:])
    tasks = len(rows)
    if tasks == 1:
        protocol(world).commit(0, txns, progress, tasks, rows)
    else:
        with pytest.raises(TransactionLostError):
            protocol(world).commit(0, txns, progress, tasks, rows)
    return protocol(world).recover().of(QUERY)


def test_what_was_committed_is_known_by_its_rows(world: World) -> None:
    """The log keeps the tally of all, and of each task where only a part is visible."""
    partial = decide(world, {0: Tally(2), 1: Tally(3)})
    assert (partial.rows, partial.part_rows) == (None, {0: Tally(2)})
    txns = {1: write(world, QUERY, 0, 1, partial)}
    both = {0: Tally(2), 1: Tally(3)}
    protocol(world).commit(0, txns, partial, 2, both)
    assert protocol(world).recover().of(QUERY).rows == Tally(5)
    assert decide(World(), {0: Tally(4)}).rows == Tally(4)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.sampled_from(["noted", "forgotten", "expired"])
        ),
        max_size=12,
    )
)
def test_queries_that_share_a_log(plays: list[tuple[int, str]]) -> None:
    """In turns: each finds what became of its own last micro-batch; rows come once.

    Spark did not note the commit of a micro-batch that is ``forgotten``; of one that is
    ``expired`` only the first task's rows became visible. Either is run again later.
    """
    world = World()
    batches = [100 * query for query in range(3)]
    written: set[int] = set()
    for query, fate in plays:
        run_of(world, f"query {query}", batches[query], expires=fate == "expired")
        written.add(batches[query])
        batches[query] += fate == "noted"
    for query in range(3):
        run_of(world, f"query {query}", batches[query])
        written.add(batches[query])
    expected = rows(*((batch_id, part) for batch_id in written for part in (0, 1)))
    assert sorted(world.visible(ROWS)) == expected


def run_of(
    world: World, query_id: str, batch_id: int, *, expires: bool = False
) -> None:
    """A micro-batch of two tasks; the transaction of the second one may expire."""
    progress = protocol(world).recover().of(query_id)
    tallies = {part: Tally(2) for part in (0, 1)}
    progress.require_same_rows(batch_id, Tally(4))
    txns = {
        part: write(world, query_id, batch_id, part, progress)
        for part in tallies
        if not progress.has(batch_id, part)
    }
    try:
        if expires and 1 in txns:
            world.at_commit = partial(world.expire, txns[1])
        if txns:
            protocol(world).commit(batch_id, txns, progress, 2, tallies)
    except TransactionLostError:
        assert expires


def test_many_queries_that_share_a_log() -> None:
    """The log keeps what became of the last 8 other queries, whoever comes back."""
    world = World()
    queries = [f"query {number}" for number in range(9)]
    for query in queries:
        run_of(world, query, 0)
    once = sorted(world.visible(ROWS))
    for query in queries:  # each is the one that was away for longest
        run_of(world, query, 0)
    assert sorted(world.visible(ROWS)) == once
    run_of(world, "one more", 0)
    run_of(world, queries[0], 0)  # is not known any more
    assert len(world.visible(ROWS)) == len(once) + 2 * len(once) // len(queries)


def test_another_run_took_over(world: World) -> None:
    """A driver that was given up decides nothing, though it does not know yet."""
    old = protocol(world).recover().of(QUERY)
    txns = {0: write(world, QUERY, 0, 0)}
    # The next one begins; a task of the first one comes late, and so is not aborted.
    new = protocol(world).recover().of(QUERY)
    txns[1] = write(world, QUERY, 0, 1)
    with pytest.raises(QueryConflictError, match=r"micro-batch 0 .* running twice"):
        protocol(world).commit(0, txns, old, 2)
    assert world.visible(ROWS) == []
    again = {part: write(world, QUERY, 0, part) for part in (0, 1)}
    protocol(world).commit(0, again, new, 2)
    assert sorted(world.visible(ROWS)) == rows((0, 0), (0, 1))
    assert not world.open
    # It is over for the first one now, too, when the log was shortened.
    with pytest.raises(QueryConflictError, match="running twice"):
        protocol(world).commit(0, txns, old, 2)
    assert sorted(world.visible(ROWS)) == rows((0, 0), (0, 1))


def lose_one(world: World) -> None:
    """A micro-batch of which task 1 alone is visible, out of three."""
    progress = protocol(world).recover().of(QUERY)
    txns = {part: write(world, QUERY, 0, part) for part in (0, 1, 2)}
    world.at_commit = partial(expire_all, world, [txns[0], txns[2]])
    with pytest.raises(TransactionLostError) as caught:
        protocol(world).commit(0, txns, progress, 3)
    assert caught.value.partitions == (0, 2)
    protocol(world).abort()
    assert sorted(world.visible(ROWS)) == rows((0, 1))


def test_a_part_had_expired(world: World) -> None:
    """The next run writes what is missing, and no more."""
    lose_one(world)
    progress = protocol(world).recover()
    assert (progress.partial, progress.parts, progress.tasks) == (0, {1}, 3)
    run_batch(world, 0, 0, 1, 2)
    assert sorted(world.visible(ROWS)) == rows((0, 0), (0, 1), (0, 2))
    assert protocol(world).recover().committed == 0


def test_a_part_had_expired_and_the_rest_is_cut_anew(world: World) -> None:
    """Which rows are missing cannot be told, so nothing is committed."""
    lose_one(world)
    with pytest.raises(QueryConflictError, match=r"3 tasks\. Now it was cut into 2"):
        run_batch(world, 0, 0, 1, tasks=2)
    protocol(world).abort(last_progress(world))
    assert sorted(world.visible(ROWS)) == rows((0, 1))
    assert not world.open
    # With the settings it had it goes on.
    run_batch(world, 0, 0, 1, 2)
    assert sorted(world.visible(ROWS)) == rows((0, 0), (0, 1), (0, 2))


def test_all_had_expired(world: World) -> None:
    """Nothing was visible, so the micro-batch may be cut as it likes."""
    progress = protocol(world).recover().of(QUERY)
    txns = {part: write(world, QUERY, 0, part) for part in (0, 1)}
    world.at_commit = partial(expire_all, world, txns.values())
    with pytest.raises(TransactionLostError):
        protocol(world).commit(0, txns, progress, 2)
    run_batch(world, 0, 0, 1, 2)
    assert sorted(world.visible(ROWS)) == rows((0, 0), (0, 1), (0, 2))


@pytest.mark.parametrize("lost", [(0,), (1, 2), (0, 1, 2)])
def test_some_had_expired_before_the_decision(
    world: World, lost: tuple[int, ...]
) -> None:
    """Nothing becomes visible, and the micro-batch may be cut as it likes."""
    progress = protocol(world).recover().of(QUERY)
    txns = {part: write(world, QUERY, 0, part) for part in (0, 1, 2)}
    expire_all(world, [txns[part] for part in lost])
    with pytest.raises(TransactionLostError, match="Nothing was committed") as caught:
        protocol(world).commit(0, txns, progress, 3)
    assert caught.value.partitions == lost
    protocol(world).abort(progress)
    assert not world.open
    assert world.visible(ROWS) == []
    run_batch(world, 0, 0, 1)
    assert sorted(world.visible(ROWS)) == rows((0, 0), (0, 1))


def test_markers_that_are_held_back(world: World) -> None:
    """What cannot be read is not taken for aborted."""
    world.options = replace(world.options, operation_timeout_s=0.05)
    progress = protocol(world).recover().of(QUERY)
    foreign = world.begin()
    world.txns[foreign].topics.add(MARKERS)
    world.send(MARKERS, b"", foreign)
    txns = {0: write(world, QUERY, 0, 0)}
    # The answer is lost.
    world.at_commit = partial(world.end, txns[0], TxnAction.COMMIT)
    with pytest.raises(ReadTimeoutError, match="holds back"):
        protocol(world).commit(0, txns, progress, 1)
    with pytest.raises(ReadTimeoutError, match="holds back"):
        protocol(world).recover()
    world.expire(foreign)
    assert protocol(world).recover().committed == 0


@pytest.mark.parametrize("name", ["t-%d", "a-topic-of-some-length-" * 8 + "%d"])
@pytest.mark.parametrize("tasks", [1, 30_000])
def test_what_a_decision_names(tasks: int, name: str) -> None:
    """It stays a single message, however many topics were written to."""
    per_task = 60_000 // tasks
    written = {
        number: {
            f"persistent://public/default/{name % (number + place)}": MessageId(7, 1)
            for place in range(per_task)
        }
        for number in range(tasks)
    }
    txns = {number: TxnId(0, number) for number in written}
    sizes = [
        len(dump_record(Prepared(0, txns, entries=entries)))
        for entries in ({}, _named(written))
    ]
    assert 200_000 < sizes[1] - sizes[0] < 400_000


def test_spark_asks_to_abort_what_was_decided(world: World) -> None:
    """There is nothing to take back then; what lost is aborted."""
    progress = protocol(world).recover().of(QUERY)
    txns = {part: write(world, QUERY, 0, part) for part in (0, 1)}
    loser = write(world, QUERY, 0, 0)
    decided = Prepared(0, txns, QUERY, progress.run, 2)
    world.send(LOG, dump_record(decided))
    protocol(world).abort()
    assert world.open == list(txns.values())
    assert world.txns[loser].state == "aborted"
    assert protocol(world).recover().committed == 0
    assert sorted(world.visible(ROWS)) == rows((0, 0), (0, 1))


def test_a_failed_micro_batch_leaves_nothing(world: World) -> None:
    """Before a decision everything is taken back."""
    protocol(world).recover()
    for part in (0, 1):
        write(world, QUERY, 0, part)
    protocol(world).abort()
    assert not world.open
    assert world.visible(ROWS) == []


def test_a_transaction_that_is_just_ending(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end is awaited, whoever asked for it."""
    answers = iter([over("InvalidTxnStatus"), over("InvalidTxnStatus")])
    end = world.end
    monkeypatch.setattr(
        world, "end", lambda txn, action: next(answers, None) or end(txn, action)
    )
    run_batch(world, 0, 0)
    assert next(answers, None) is None
    assert sorted(world.visible(ROWS)) == rows((0, 0))


@pytest.mark.parametrize("turn", ["commit", "recovery"])
def test_a_coordinator_that_is_silent_for_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch, turn: str
) -> None:
    """It is asked again, as after a crash of its broker."""
    silence = TransportError("The broker did not answer END_TXN within 30 s.")
    answers = iter([silence, silence])
    end = world.end
    monkeypatch.setattr(
        world, "end", lambda txn, action: next(answers, None) or end(txn, action)
    )
    if turn == "commit":
        run_batch(world, 0, 0)
    else:
        progress = protocol(world).recover().of(QUERY)
        txns = {0: write(world, QUERY, 0, 0)}
        world.send(LOG, dump_record(Prepared(0, txns, QUERY, progress.run, 1)))
        assert protocol(world).recover().committed == 0
    assert next(answers, None) is None
    assert sorted(world.visible(ROWS)) == rows((0, 0))


def test_a_coordinator_that_stays_silent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error is what the query fails with; what was decided is finished later."""
    world.options = replace(world.options, operation_timeout_s=0.01)
    progress = protocol(world).recover().of(QUERY)
    txns = {0: write(world, QUERY, 0, 0)}
    silence = TransportError("The broker did not answer END_TXN within 30 s.")
    with monkeypatch.context() as patch:
        patch.setattr(world, "end", lambda *_: silence)
        with pytest.raises(TransportError, match="END_TXN"):
            protocol(world).commit(0, txns, progress, 1)
    assert protocol(world).recover().committed == 0
    assert sorted(world.visible(ROWS)) == rows((0, 0))


def test_the_log_stays_short(world: World) -> None:
    """After a commit it holds that, and what came since."""
    for batch_id in range(3):
        run_batch(world, batch_id, 0, 1)
        left = world.topics[LOG][world.done[LOG] :]
        (record,) = (load_record(m.data) for m in left)
        assert isinstance(record, Committed)
        assert (record.batch_id, record.query_id) == (batch_id, QUERY)
    late = write(world, QUERY, 2, 0)
    run_batch(world, 3, 0)
    assert world.txns[late].state == "aborted"


def test_markers_are_forgotten(world: World) -> None:
    """Now and then, and only when their micro-batch is over."""
    for batch_id in range(49, 52):
        run_batch(world, batch_id, 0)
        readable = world.topics[MARKERS][world.done[MARKERS] :]
        assert len(readable) == {49: 1, 50: 0, 51: 1}[batch_id]


def test_markers_are_forgotten_whatever_the_number(world: World) -> None:
    """Also where no micro-batch with rows has a round number."""
    for batch_id in range(41, 131, 2):
        run_batch(world, batch_id, 0)
        assert len(world.topics[MARKERS]) - world.done[MARKERS] <= 30
    assert world.done[MARKERS] > 0


def test_micro_batches_without_rows(world: World) -> None:
    """They leave no more behind than a few records, and the state is the same."""
    run_batch(world, 0, 0)
    cuts, lengths = set(), []
    for _ in range(1000):
        progress = protocol(world).recover()
        assert progress.committed == 0
        lengths.append(len(world.topics[LOG]) - world.done[LOG])
        cuts.add(world.done[LOG])
    assert max(lengths) == 100
    assert len(cuts) <= 11  # the log is not cut each time, which costs, too
    assert progress.query_id == QUERY
    assert progress.has(0, 0)


def test_attempts_that_fail(world: World) -> None:
    """Their transactions are aborted once or twice, and then forgotten."""
    asked = 0
    end = world.end

    def counting(txn: TxnId, action: TxnAction) -> PulsarSparkError | None:
        nonlocal asked
        asked += 1
        return end(txn, action)

    world.end = counting  # type: ignore[method-assign]
    for _ in range(300):
        progress = protocol(world).recover().of(QUERY)
        for part in range(4):
            write(world, QUERY, 0, part, progress)
        before = asked
        protocol(world).abort(progress)
        assert not world.open
        assert asked - before <= 110
        assert len(world.topics[LOG]) - world.done[LOG] <= 110
    run_batch(world, 0, 0, 1)
    assert sorted(world.visible(ROWS)) == rows((0, 0), (0, 1))


def test_attempts_that_are_lost_in_part(world: World) -> None:
    """What is visible is written down: no marker has to be read for it again."""
    lose_one(world)
    for _ in range(300):
        progress = protocol(world).recover()
        assert (progress.partial, progress.parts, progress.tasks) == (0, {1}, 3)
        write(world, QUERY, 0, 0, progress)
        assert len(world.topics[LOG]) - world.done[LOG] <= 110
        assert protocol(world)._markers.read() == []
    world.topics[MARKERS].clear()
    protocol(world).abort(progress)
    run_batch(world, 0, 0, 1, 2)
    assert sorted(world.visible(ROWS)) == rows((0, 0), (0, 1), (0, 2))


def test_a_decision_is_carried_out_once(world: World) -> None:
    """The run that finishes it writes that down; the next one asks nobody."""
    progress = protocol(world).recover().of(QUERY)
    txns = {0: write(world, QUERY, 0, 0, progress)}
    decided = Prepared(0, txns, QUERY, progress.run, 1, progress.term)
    world.send(LOG, dump_record(decided))
    assert protocol(world).recover().committed == 0
    record = load_record(world.topics[LOG][-1].data)
    assert isinstance(record, Committed)
    assert (record.batch_id, record.query_id) == (0, QUERY)
    world.txns.clear()  # nobody knows of them
    assert protocol(world).recover().committed == 0


def test_a_run_that_was_overtaken_ends_nothing_of_the_next(world: World) -> None:
    """Its commit is refused, Spark asks it to abort, and the live one commits."""
    old = protocol(world).recover().of(QUERY)
    given_up = {0: write(world, QUERY, 0, 0, old)}
    new = protocol(world).recover().of(QUERY)
    txns = {part: write(world, QUERY, 0, part, new) for part in (0, 1)}
    with pytest.raises(QueryConflictError, match="running twice"):
        protocol(world).commit(0, given_up, old, 1)
    protocol(world).abort(old)
    protocol(world).abort()  # by a process that no task has told anything
    assert world.open == list(txns.values())
    protocol(world).commit(0, txns, new, 2)
    assert sorted(world.visible(ROWS)) == rows((0, 0), (0, 1))


def test_a_run_that_forgets_markers_late(world: World) -> None:
    """Those of a micro-batch that the next one committed in part are still there."""
    run_batch(world, 49, 0)
    old = protocol(world).recover().of(QUERY)
    txns = {0: write(world, QUERY, 50, 0, old)}
    threads = world.threads
    threads.start("old", lambda: protocol(world).commit(50, txns, old, 1))
    while not any(b'"committed":50' in m.data for m in world.topics[LOG]):
        threads.turn("old")
    new = protocol(world).recover().of(QUERY)
    assert new.committed == 50
    later = {part: write(world, QUERY, 51, part, new) for part in (0, 1)}
    world.at_commit = partial(world.expire, later[1])
    with pytest.raises(TransactionLostError):
        protocol(world).commit(51, later, new, 2)
    while "old" not in threads.ended:
        threads.turn("old")
    run_batch(world, 51, 0, 1)
    assert sorted(world.visible(ROWS)) == rows((49, 0), (50, 0), (51, 0), (51, 1))


def test_a_foreign_message_in_the_log(world: World) -> None:
    """It is an error before anything is written."""
    world.send(LOG, b"a row")
    with pytest.raises(CommitLogError, match="none of ours"):
        protocol(world).recover()
