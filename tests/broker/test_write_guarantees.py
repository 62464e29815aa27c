# SPDX-License-Identifier: Apache-2.0
"""What the sink promises, tried where Spark's own part is the same every time.

Writers are driven as Spark drives them: one is pickled for the tasks of a micro-batch,
tasks run in threads, and a new writer commits. So a task can stop anywhere, and go on
when it was given up long ago.
"""

from __future__ import annotations

import logging
import pickle
import shutil
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import inheritable_thread_target
from pyspark.errors import PySparkException
from pyspark.sql.types import StringType, StructField, StructType

from pulsar_spark import PulsarDataSource
from pulsar_spark.client.pool import shared_pool
from pulsar_spark.client.transactions import TransactionClient
from pulsar_spark.errors import (
    BrokerError,
    CommitLogError,
    DeduplicationOffError,
    IdempotenceError,
    QueryConflictError,
    TopicNotFoundError,
    TransactionLostError,
)
from pulsar_spark.message_id import MessageId
from pulsar_spark.options import parse_write_options
from pulsar_spark.sink import commit_protocol
from pulsar_spark.sink.commit_log import Committed, load_record
from pulsar_spark.sink.exactly_once import CommitProtocol
from pulsar_spark.sink.journal import Journal
from pulsar_spark.sink.task_transaction import TaskTransaction
from pulsar_spark.wire.commands import TxnAction
from spark_topics.spark import writer as writer_module
from tests.support.official import produce, read_back
from tests.support.waiting import await_true, trim_first_ledger
from tests.support.watching import Watcher
from tests.support.writes import Context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from pulsar_spark.testing.admin import Admin

SCHEMA = StructType([StructField("value", StringType())])

#: Partitions of the sink.
PARTS = 2

IDEMPOTENT = {"deliveryGuarantee": "idempotent"}


@pytest.fixture(autouse=True)
def _context(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "spark" not in request.fixturenames:
        monkeypatch.setattr(writer_module, "TaskContext", Context)


class Stream:
    """An exactly-once stream into a topic.

    Args:
        service_url: Of the broker.
        topic: Full name.
        name: Of the query.
        **options: More options.
    """

    def __init__(
        self, service_url: str, topic: str, name: str = "query", **options: str
    ) -> None:
        self._name = name
        self.options = {
            "service.url": service_url,
            "topic": topic,
            "deliveryGuarantee": "exactly-once",
            "idempotenceId": f"{topic.rpartition('/')[2]}-{name}",
            **options,
        }

    def writer(self) -> Any:
        """A writer, as Spark makes one in each of its processes."""
        return PulsarDataSource(self.options).streamWriter(SCHEMA, overwrite=False)

    def plan(self) -> Any:
        """The writer that the tasks of a micro-batch get."""
        return pickle.loads(pickle.dumps(self.writer()))  # noqa: S301

    def write(
        self, planned: Any, batch_id: int, partition: int, rows: Iterable[str] | None
    ) -> Any:
        """What a task does; by default with two rows that tell where they belong."""
        Context.mine.context = Context(self._name, batch_id, partition)
        if rows is None:
            rows = [f"{self._name}:{batch_id}:{partition}:{n}" for n in range(2)]
        return planned.write(record_batches(rows))

    def write_all(self, planned: Any, batch_id: int, parts: int = 2) -> list[Any]:
        """The tasks of a micro-batch, one after the other."""
        return [self.write(planned, batch_id, part, None) for part in range(parts)]

    def run(self, batch_id: int, parts: int = 2) -> None:
        """A whole micro-batch."""
        planned = self.plan()
        self.writer().commit(self.write_all(planned, batch_id, parts), batch_id)

    def rows(self, *batch_ids: int, parts: int = 2) -> Counter[str]:
        """The rows of micro-batches, once each."""
        return Counter(
            f"{self._name}:{batch}:{part}:{n}"
            for batch in batch_ids
            for part in range(parts)
            for n in range(2)
        )


def record_batches(rows: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """One row each."""
    for row in rows:
        yield pa.RecordBatch.from_pydict({"value": [row]})


class Attempt:
    """A task that runs in a thread, and stops where a test wants.

    Args:
        run: What it does, given a function that stops it until ``go_on``.
    """

    def __init__(self, run: Callable[[Callable[[], None]], Any]) -> None:
        self._stopped = threading.Event()
        self._go_on = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(run,))
        self._thread.start()
        assert self._stopped.wait(60), "it did not stop"
        if self.error is not None:
            raise self.error

    def _run(self, run: Callable[[Callable[[], None]], Any]) -> None:
        try:
            run(self._stop)
        except BaseException as error:
            self.error = error
        self._stopped.set()

    def _stop(self) -> None:
        self._stopped.set()
        assert self._go_on.wait(120)

    def go_on(self) -> None:
        """Lets it go on, to its end."""
        self._go_on.set()
        self._thread.join(120)
        assert not self._thread.is_alive()


@pytest.fixture
def sink(admin: Admin, topic: str) -> str:
    """A topic with partitions."""
    admin.create_partitioned(topic, PARTS)
    return topic


def visible(service_url: str, topic: str) -> Counter[str]:
    """The rows that can be read now."""
    rows = read_back(service_url, topic, partitions=PARTS)
    return Counter(row.value.decode() for row in rows if row.value is not None)


def check_free(service_url: str, topic: str) -> None:
    """Nothing holds back readers of a topic: a plain message gets through."""
    before = visible(service_url, topic)
    for index in range(PARTS):
        produce(service_url, f"{topic}-partition-{index}", [b"plain"])
    assert visible(service_url, topic) == before + Counter(plain=PARTS)


# -- attempts that lost ----------------------------------------------------------------


def test_visible_at_the_commit(service_url: str, sink: str) -> None:
    """Before it nothing can be seen of a micro-batch, then all of it at once."""
    stream = Stream(service_url, sink)
    for batch_id in range(2):
        planned = stream.plan()
        messages = stream.write_all(planned, batch_id)
        assert visible(service_url, sink) == stream.rows(*range(batch_id))
        stream.writer().commit(messages, batch_id)
        assert visible(service_url, sink) == stream.rows(*range(batch_id + 1))
    # A replay of what Spark does not know to be done.
    planned = stream.plan()
    again = stream.write_all(planned, 1)
    assert [m.result.written.duplicate_rows for m in again] == [2, 2]
    stream.writer().commit(again, 1)
    check_free(service_url, sink)
    assert visible(service_url, sink) == stream.rows(0, 1) + Counter(plain=PARTS)


def test_an_aborted_micro_batch(service_url: str, sink: str) -> None:
    """It leaves nothing, and the next try is as if it had not been."""
    stream = Stream(service_url, sink)
    messages = stream.write_all(stream.plan(), 0)
    stream.writer().abort([messages[0], None], 0)
    assert not visible(service_url, sink)
    stream.run(0)
    assert visible(service_url, sink) == stream.rows(0)
    check_free(service_url, sink)


def test_a_slow_attempt_loses(service_url: str, sink: str) -> None:
    """Its transaction is aborted at the commit; it learns that, and ends."""
    stream = Stream(service_url, sink)
    planned = stream.plan()

    def slowly(stop: Callable[[], None]) -> None:
        def rows() -> Iterator[str]:
            yield "never"
            yield "to be seen"
            stop()
            yield "late"

        stream.write(planned, 0, 0, rows())

    slow = Attempt(slowly)
    stream.writer().commit(stream.write_all(planned, 0), 0)
    # Though the slow one wrote first, and is still there.
    assert visible(service_url, sink) == stream.rows(0)
    slow.go_on()
    assert isinstance(slow.error, BrokerError)
    assert slow.error.code == "TransactionNotFound"
    check_free(service_url, sink)
    stream.run(1)
    seen = stream.rows(0, 1) + Counter(plain=PARTS)
    assert visible(service_url, sink) == seen


@pytest.mark.parametrize("place", ["begun", "announced", "extended"])
def test_an_attempt_that_comes_late(
    service_url: str, sink: str, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """It goes on when its micro-batch is committed, and does no harm."""
    stream = Stream(service_url, sink)
    planned = stream.plan()
    stops: list[Callable[[], None]] = []

    def stop_at(name: str, when: str) -> None:
        real = getattr(TaskTransaction, name)

        def changed(self: TaskTransaction, *arguments: Any) -> None:
            if when == "before" and stops:
                stops.pop()()
            real(self, *arguments)
            if when == "after" and stops:
                stops.pop()()

        monkeypatch.setattr(TaskTransaction, name, changed)

    stop_at(
        *{"begun": ("announce", "before"), "announced": ("announce", "after")}.get(
            place, ("extend", "after")
        )
    )

    def late(stop: Callable[[], None]) -> None:
        stops.append(stop)
        stream.write(planned, 0, 0, ["never", "to be seen"])

    attempt = Attempt(late)
    stream.writer().commit(stream.write_all(planned, 0), 0)
    assert visible(service_url, sink) == stream.rows(0)
    attempt.go_on()
    if place == "begun":
        # Nobody knew of it. It ends as if it counted, and is aborted by the next one.
        assert attempt.error is None
    else:
        assert isinstance(attempt.error, BrokerError)
        assert attempt.error.code == "TransactionNotFound"
        check_free(service_url, sink)
    stream.run(1)
    seen = visible(service_url, sink)
    seen.pop("plain", None)
    assert seen == stream.rows(0, 1)


# -- a driver that dies between steps, and long downtime -------------------------------


class DiedError(BaseException):
    """The driver is dead from here on."""


@pytest.mark.parametrize(
    "deduplication",
    [
        pytest.param(False, id="plain"),
        pytest.param(True, id="deduplicated", marks=pytest.mark.matrix),
    ],
)
def test_down_for_longer_than_transactions_live(
    service_url: str,
    admin: Admin,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    deduplication: bool,
) -> None:
    """Of three decided ones one was committed: the others are written once more."""
    topic = f"persistent://{namespace}/sink"
    admin.set_deduplication(namespace, enabled=deduplication)
    admin.create_partitioned(topic, PARTS)
    stream = Stream(service_url, topic)
    end = TransactionClient.end

    def end_one(self: TransactionClient, txns: Any, action: TxnAction) -> Any:
        first = list(txns)[:1]
        end(self, first, action)
        raise DiedError

    with Watcher(service_url, [topic], PARTS) as watcher:
        planned = stream.plan()
        messages = stream.write_all(planned, 0, parts=3)
        dying = stream.writer()
        with monkeypatch.context() as patch:
            patch.setattr(TransactionClient, "end", end_one)
            with pytest.raises(DiedError):
                dying.commit(messages, 0)
        expire(stream, messages[1:])
        planned = stream.plan()
        with pytest.raises(QueryConflictError, match="Task 0 of micro-batch 0 is vis"):
            stream.write(planned, 0, 0, ["another row"])
        again = stream.write_all(planned, 0, parts=3)
        assert [m.result.written.duplicate_rows for m in again] == [2, 0, 0]
        stream.writer().commit(again, 0)
        stream.run(1, parts=3)
        expected = stream.rows(0, 1, parts=3)
        await_true(lambda: watcher.rows(topic) >= expected, "all rows")
        check_free(service_url, topic)
        assert watcher.rows(topic) - Counter(plain=PARTS) == expected
    assert visible(service_url, topic) == expected + Counter(plain=PARTS)


@pytest.mark.parametrize(
    "options",
    [
        {"compressionType": "ZSTD"},
        *(
            pytest.param({"compressionType": codec}, marks=pytest.mark.matrix)
            for codec in ("LZ4", "ZLIB", "SNAPPY")
        ),
        {"chunkingEnabled": "true", "chunkMaxMessageSize": "500"},
    ],
    ids=lambda options: "-".join(options.values()),
)
def test_a_driver_that_dies_behind_its_commits(
    service_url: str,
    sink: str,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
) -> None:
    """Before it wrote that down. Its successor can tell, however rows are written."""
    given = {f"pulsar.producer.{name}": text for name, text in options.items()}
    stream = Stream(service_url, sink, **given)
    end = TransactionClient.end

    def end_and_die(self: TransactionClient, txns: Any, action: TxnAction) -> Any:
        end(self, txns, action)
        raise DiedError

    planned = stream.plan()
    messages = stream.write_all(planned, 0)
    dying = stream.writer()
    with monkeypatch.context() as patch:
        patch.setattr(TransactionClient, "end", end_and_die)
        with pytest.raises(DiedError):
            dying.commit(messages, 0)
    assert visible(service_url, sink) == stream.rows(0)
    for batch_id in range(2):
        stream.run(batch_id)
    assert visible(service_url, sink) == stream.rows(0, 1)
    check_free(service_url, sink)


def options_of(stream: Stream) -> Any:
    """The options of a stream, parsed."""
    return parse_write_options(stream.options, streaming=True)


def expire(stream: Stream, messages: list[Any]) -> None:
    """Aborts the transactions of these tasks, as their coordinator does in time."""
    txns = [message.result.txn for message in messages]
    client = TransactionClient(shared_pool(options_of(stream).client))
    assert client.end(txns, TxnAction.ABORT) == dict.fromkeys(txns)


def await_expired(stream: Stream, topic: str, message: Any) -> None:
    """Waits until the transaction of a task is not open any more."""
    client = TransactionClient(shared_pool(options_of(stream).client))

    def is_over() -> bool:
        try:
            client.add_partitions(message.result.txn, [f"{topic}-partition-0"])
        except BrokerError as error:
            return error.code == "TransactionNotFound"
        return False

    await_true(is_over, "the end of a transaction")


def test_a_transaction_expires_before_the_commit(service_url: str, sink: str) -> None:
    """Nothing is visible, an error says so, and the next run is exact."""
    stream = Stream(service_url, sink, transactionTimeoutMs="3000")
    planned = stream.plan()
    first = stream.write(planned, 0, 0, None)
    await_expired(stream, sink, first)
    messages = [first, stream.write(planned, 0, 1, None)]
    with pytest.raises(TransactionLostError, match="Nothing was committed") as caught:
        stream.writer().commit(messages, 0)
    assert caught.value.partitions == (0,)
    stream.writer().abort(messages, 0)
    assert not visible(service_url, sink)
    stream.run(0)
    assert visible(service_url, sink) == stream.rows(0)
    check_free(service_url, sink)


def test_two_drivers(service_url: str, sink: str) -> None:
    """The one that was given up cannot commit, though it is still there."""
    old, new = Stream(service_url, sink), Stream(service_url, sink)
    first = old.plan()
    given_up = old.write_all(first, 0)
    second = new.plan()
    with pytest.raises(QueryConflictError, match="running twice"):
        old.writer().commit(given_up, 0)
    old.writer().abort(given_up, 0)
    assert not visible(service_url, sink)
    new.writer().commit(new.write_all(second, 0), 0)
    assert visible(service_url, sink) == new.rows(0)
    check_free(service_url, sink)


def test_a_run_that_was_overtaken_ends_nothing(service_url: str, sink: str) -> None:
    """Its commit is refused, Spark asks it to abort, and the live run commits."""
    old, new = Stream(service_url, sink), Stream(service_url, sink)
    given_up = old.write_all(old.plan(), 0)
    written = new.write_all(new.plan(), 0)
    with pytest.raises(QueryConflictError, match="running twice"):
        old.writer().commit(given_up, 0)
    old.writer().abort(given_up, 0)
    old.writer().abort([None, None], 0)  # as if no task had come so far
    new.writer().commit(written, 0)
    assert visible(service_url, sink) == new.rows(0)
    check_free(service_url, sink)


def test_a_run_that_is_stopped_before_it_forgets(
    service_url: str, sink: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on when the next one has committed a part of its micro-batch, and died.

    What proves that part is still there.
    """
    monkeypatch.setattr(commit_protocol, "FORGET_MARKERS_EVERY", 1)
    stops: list[Callable[[], None]] = []
    append = Journal.append

    def stopping(self: Journal, message: bytes) -> MessageId | None:
        message_id = append(self, message)
        if stops and isinstance(load_record(message), Committed):
            stops.pop()()
        return message_id

    monkeypatch.setattr(Journal, "append", stopping)
    old = Stream(service_url, sink)
    new = Stream(service_url, sink)
    old.run(0)
    messages = old.write_all(old.plan(), 1)

    def commit(stop: Callable[[], None]) -> None:
        stops.append(stop)
        old.writer().commit(messages, 1)

    stopped = Attempt(commit)
    planned = new.plan()
    assert planned._write._progress.committed == 1
    later = new.write_all(planned, 2)
    confirm = TransactionClient.confirm

    def confirm_and_expire(self: TransactionClient, topics: Any) -> Any:
        answers = confirm(self, topics)
        expire(new, later[:1])
        return answers

    with monkeypatch.context() as patch:
        patch.setattr(TransactionClient, "confirm", confirm_and_expire)
        with pytest.raises(TransactionLostError):
            new.writer().commit(later, 2)
    stopped.go_on()
    assert stopped.error is None
    again = Stream(service_url, sink)
    again.run(2)
    assert visible(service_url, sink) == again.rows(0, 1, 2)
    check_free(service_url, sink)


def test_two_queries(service_url: str, sink: str) -> None:
    """They write to one topic, and none ends what is the other's."""
    one, other = Stream(service_url, sink, "one"), Stream(service_url, sink, "other")
    for batch_id in range(2):
        plans = one.plan(), other.plan()
        writes = [
            s.write_all(p, batch_id) for s, p in zip((one, other), plans, strict=True)
        ]
        if batch_id:
            other.plan()  # as after a crash
        one.writer().commit(writes[0], batch_id)
        if not batch_id:
            other.writer().commit(writes[1], batch_id)
    other.run(1)
    assert visible(service_url, sink) == one.rows(0, 1) + other.rows(0, 1)
    check_free(service_url, sink)


# -- the log ---------------------------------------------------------------------------


def test_the_log_outlives_its_retention(
    service_url: str, admin: Admin, namespace: str
) -> None:
    """What a restart needs is kept, whatever retention and unloads do."""
    topic, log = (f"persistent://{namespace}/{name}" for name in ("sink", "log"))
    admin.create_partitioned(topic, PARTS)
    stream = Stream(service_url, topic, commitTopic=log)
    stream.run(0)
    for name in (log, f"{log}-markers"):
        admin.unload(name)
    stream.run(1)
    trim_first_ledger(admin, log)
    planned = stream.plan()
    assert planned._write._progress.committed == 1
    messages = stream.write_all(planned, 1)
    assert [m.result.txn for m in messages] == [None, None]
    assert visible(service_url, topic) == stream.rows(0, 1)


def test_the_log_may_not_be_created(
    service_url: str, admin: Admin, namespace: str
) -> None:
    """That is an error which names the topic; nothing is written."""
    topic, log = (f"persistent://{namespace}/{name}" for name in ("sink", "log"))
    admin.create_partitioned(topic, PARTS)
    admin.set_policy(namespace, "autoTopicCreation", {"allowAutoTopicCreation": False})
    stream = Stream(service_url, topic, commitTopic=log)

    with pytest.raises(TopicNotFoundError) as caught:
        stream.plan()
    assert log in str(caught.value)
    for name in (log, f"{log}-markers"):
        admin.create_topic(name)
    stream.run(0)
    assert visible(service_url, topic) == stream.rows(0)


def test_rows_in_the_log(service_url: str, sink: str, topic: str) -> None:
    """A log with foreign messages is refused before anything is written."""
    log = f"{topic}-log"
    produce(service_url, log, [b"a row"])
    stream = Stream(service_url, sink, commitTopic=log)
    with pytest.raises(CommitLogError, match="none of ours"):
        stream.plan()
    assert not visible(service_url, sink)


def test_aborts_when_nothing_was_decided(service_url: str, sink: str) -> None:
    """A protocol of its own, as in Spark's other process, finds what is open."""
    stream = Stream(service_url, sink)
    planned = stream.plan()
    stream.write_all(planned, 0)
    options = options_of(stream)
    log = f"{sink.rpartition('/')[0]}/spark-commits-{options.idempotence_id}"
    CommitProtocol(shared_pool(options.client), log).abort(planned._write._progress)
    check_free(service_url, sink)
    assert visible(service_url, sink) == Counter(plain=PARTS)


# -- batch writes ----------------------------------------------------------------------


def save(frame: DataFrame, service_url: str, topic: str, **options: str) -> None:
    """A batch write."""
    frame.write.format("pulsar").mode("append").options(
        **{"service.url": service_url, "topic": topic, **options}
    ).save()


def failing(spark: SparkSession) -> DataFrame:
    """Rows of two tasks; one fails at its last row."""
    return spark.range(0, 200, 1, 2).selectExpr(
        "IF(id = 199, raise_error('no good'), CAST(id AS STRING)) AS value"
    )


def test_a_failing_batch_write(
    spark: SparkSession, service_url: str, sink: str
) -> None:
    """None of its rows can be seen, whatever other tasks did; a good one's all can."""
    # A task that was killed cannot end its transaction, and nobody knows of it.
    given = {"deliveryGuarantee": "exactly-once"}
    with pytest.raises(PySparkException, match="no good"):
        save(failing(spark), service_url, sink, transactionTimeoutMs="2000", **given)
    assert not visible(service_url, sink)
    good = spark.range(0, 200, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    save(good, service_url, sink, **given)
    expected = Counter(map(str, range(200)))
    await_true(lambda: visible(service_url, sink) == expected, "all rows")
    check_free(service_url, sink)


def test_batch_writes_of_a_stream(
    spark: SparkSession, service_url: str, sink: str, topic: str, tmp_path: Any
) -> None:
    """``foreachBatch`` may write, each time in transactions of its own."""
    produce(service_url, f"{topic}-source", [b"1", b"2", b"3"])
    stream = spark.readStream.format("pulsar").options(
        **{
            "service.url": service_url,
            "topic": f"{topic}-source",
            "startingOffsets": "earliest",
        }
    )

    def write(frame: DataFrame, batch_id: int) -> None:
        save(frame.select("value"), service_url, sink, deliveryGuarantee="exactly-once")

    query = (
        stream.load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert visible(service_url, sink) == Counter(["1", "2", "3"])
    check_free(service_url, sink)


@pytest.mark.parametrize(
    "by",
    [
        pytest.param("itself", marks=pytest.mark.matrix),
        "a thread",
        "a thread that inherits",
        pytest.param("a thread with numbered ids", marks=pytest.mark.matrix),
    ],
)
def test_equal_rows_of_micro_batches(
    spark: SparkSession,
    service_url: str,
    admin: Admin,
    namespace: str,
    tmp_path: Any,
    by: str,
) -> None:
    """An idempotent write in ``foreachBatch`` stores those of each; none twice.

    A thread that does not know the number of the micro-batch is refused.
    """
    source, sink = (f"persistent://{namespace}/{name}" for name in ("from", "to"))
    admin.set_deduplication(namespace, enabled=True)
    admin.create_partitioned(sink, PARTS)
    produce(service_url, source, [b"same", b"same", b"same"])
    given = {"service.url": service_url, "topic": source, "maxRowsPerTrigger": "1"}

    def write(frame: DataFrame, batch_id: int) -> None:
        same = {"deliveryGuarantee": "idempotent", "idempotenceId": "job"}
        if "numbered" in by:
            same["idempotenceId"] += f"-{batch_id}"
        save(frame.select("value"), service_url, sink, **same)

    def in_thread(frame: DataFrame, batch_id: int) -> None:
        inherits = inheritable_thread_target(frame.sparkSession)
        work = inherits(write) if "inherits" in by else write
        activate = partial(spark.createDataFrame, [], "none INT")
        with ThreadPoolExecutor(1, initializer=activate) as pool:
            pool.submit(work, frame, batch_id).result()

    def run() -> None:
        rows = spark.readStream.format("pulsar").options(
            **given, startingOffsets="earliest"
        )
        query = (
            rows.load()
            .writeStream.foreachBatch(write if by == "itself" else in_thread)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    if by == "a thread":
        with pytest.raises(PySparkException, match="inheritable_thread_target"):
            run()
        assert not visible(service_url, sink)
        return
    run()
    assert visible(service_url, sink) == Counter(same=3)
    # As if the driver had died behind the write of the last micro-batch.
    for name in ("2", ".2.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    run()
    assert visible(service_url, sink) == Counter(same=3)


@pytest.mark.parametrize(
    "is_left_out",
    [
        pytest.param(False, id="more"),
        pytest.param(True, id="as many", marks=pytest.mark.matrix),
    ],
)
def test_a_checkpoint_that_is_set_back(
    spark: SparkSession,
    service_url: str,
    sink: str,
    topic: str,
    tmp_path: Any,
    is_left_out: bool,
) -> None:
    """By one micro-batch: other rows get its number, and are not taken for its own."""
    source, checkpoint = f"{topic}-source", tmp_path / "checkpoint"
    given = {"service.url": service_url, "topic": source, "startingOffsets": "earliest"}
    stream = Stream(service_url, sink)

    def run(*rows: bytes) -> None:
        produce(service_url, source, list(rows))
        rows_of = spark.readStream.format("pulsar").options(**given).load()
        if is_left_out and rows == (b"wednesday",):
            rows_of = rows_of.where("CAST(value AS STRING) <> 'tuesday'")
        query = (
            rows_of.select("value")
            .writeStream.format("pulsar")
            .options(**stream.options)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    run(b"monday")
    shutil.copytree(checkpoint, tmp_path / "backup")
    run(b"tuesday")
    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "backup", checkpoint)
    with pytest.raises(PySparkException, match=r"QUERY_CONFLICT.*set back"):
        run(b"wednesday")
    assert visible(service_url, sink) == Counter(["monday", "tuesday"])
    stream.options["idempotenceId"] += "-2"
    run()
    expected = ["monday", "tuesday", "tuesday", "wednesday"]
    assert visible(service_url, sink) == Counter(expected)


def test_a_batch_write_again(
    spark: SparkSession,
    service_url: str,
    admin: Admin,
    namespace: str,
) -> None:
    """Under the same id it adds nothing; after a failure, what was missing."""
    topic = f"persistent://{namespace}/sink"
    admin.create_partitioned(topic, PARTS)
    rows = spark.range(0, 200, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    given = {"deliveryGuarantee": "idempotent", "idempotenceId": "same"}
    with Watcher(service_url, [topic], PARTS) as watcher:
        with pytest.raises(PySparkException, match="brokerDeduplicationEnabled"):
            save(rows, service_url, topic, **given)
        for index in range(PARTS):
            produce(service_url, f"{topic}-partition-{index}", [b"plain"])
        plain = Counter(plain=PARTS)
        await_true(lambda: watcher.rows(topic) >= plain, "what came behind it")
        assert watcher.rows(topic) == plain
    admin.set_deduplication(namespace, enabled=True)
    for _ in range(2):
        with pytest.raises(PySparkException, match="no good"):
            save(failing(spark), service_url, topic, **given)
    once = Counter(map(str, range(200)))
    for size in ("1000", "7"):
        cut = {"pulsar.producer.batchingMaxMessages": size}
        save(rows, service_url, topic, **given, **cut)
        assert visible(service_url, topic) == plain + once
    save(rows, service_url, topic, **{**given, "idempotenceId": "another"})
    assert visible(service_url, topic) == plain + once + once


def test_duplicates_are_counted(
    service_url: str, admin: Admin, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In what a task tells the driver, and in the driver's log; others are refused."""
    topic = f"persistent://{namespace}/sink"
    admin.create_partitioned(topic, PARTS)
    # Of batches the last row says that there are no more.
    alone = {"pulsar.producer.batchingEnabled": "false"}
    stream = Stream(service_url, topic, **IDEMPOTENT, **alone)
    with pytest.raises(DeduplicationOffError):
        stream.plan()
    admin.set_deduplication(namespace, enabled=True)
    await_true(lambda: deduplicates(stream), "the policy")
    planned = stream.plan()
    first = stream.write(planned, 4, 0, map(str, range(50)))
    assert (first.result.written.rows, first.result.written.duplicate_rows) == (50, 0)
    again = stream.write(planned, 4, 0, map(str, range(60)))
    assert (again.result.written.rows, again.result.written.duplicate_rows) == (10, 50)
    with caplog.at_level(logging.INFO, "pulsar_spark.spark"):
        stream.writer().commit([again], 4)
    assert "micro-batch 4: 10 rows" in caplog.text
    assert "50 rows were there already" in caplog.text
    for others in (range(59), range(1, 61)):  # fewer, and in another order
        with pytest.raises(IdempotenceError, match="other rows of micro-batch 4"):
            stream.write(planned, 4, 0, map(str, others))
    for index in range(PARTS):
        admin.unload(f"{topic}-partition-{index}")
    with pytest.raises(IdempotenceError, match="Was the checkpoint set back"):
        stream.write(planned, 3, 0, map(str, range(50)))
    again = stream.write(planned, 4, 0, map(str, range(60)))
    assert again.result.written.duplicate_rows == 60
    assert visible(service_url, topic) == Counter(map(str, range(60)))


def test_fewer_tasks_than_before(
    service_url: str, admin: Admin, namespace: str
) -> None:
    """Rows of a task that is gone are not stored again behind those of another."""
    topic = f"persistent://{namespace}/sink"
    admin.create_partitioned(topic, PARTS)
    admin.set_deduplication(namespace, enabled=True)
    stream = Stream(service_url, topic, **IDEMPOTENT)
    await_true(lambda: deduplicates(stream), "the policy")
    planned = stream.plan()
    tasks = [f"a{n}" for n in range(1500)], [f"b{n}" for n in range(20)]
    for _ in range(2):
        for number, rows in enumerate(tasks):
            stream.write(planned, 4, number, rows)
        assert visible(service_url, topic) == Counter(tasks[0] + tasks[1])
    with pytest.raises(IdempotenceError, match="other rows of micro-batch 4"):
        stream.write(planned, 4, 0, tasks[0] + tasks[1])
    assert visible(service_url, topic) == Counter(tasks[0] + tasks[1])
    for number, rows in enumerate(tasks):  # the change is undone
        stream.write(planned, 4, number, rows)
    stream.write(planned, 5, 0, tasks[1])
    assert visible(service_url, topic) == Counter(tasks[0] + 2 * tasks[1])


def deduplicates(stream: Stream) -> bool:
    """Whether the broker has heard of its policy."""
    try:
        stream.plan()
    except DeduplicationOffError:
        return False
    return True
