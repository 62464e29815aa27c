# SPDX-License-Identifier: Apache-2.0
"""A write from its checks to its commit, without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from pulsar_spark.client.transactions import COORDINATORS
from pulsar_spark.errors import (
    AuthError,
    BadRowError,
    CommitInDoubtError,
    DeduplicationOffError,
    IdempotenceError,
    OptionError,
    PulsarSparkError,
    QueryConflictError,
    ReadTimeoutError,
    ScalableTopicError,
    TopicNotFoundError,
    TransactionLostError,
    TransactionsOffError,
)
from pulsar_spark.message_id import MessageId, TxnId
from pulsar_spark.options import parse_write_options
from pulsar_spark.sink import base_write
from pulsar_spark.sink.base_write import TaskResult, summary_of
from pulsar_spark.sink.commit_log import Committed, Opened, Prepared, load_record
from pulsar_spark.sink.driver import BatchWrite, StreamWrite
from pulsar_spark.sink.exactly_once import CommitProtocol
from pulsar_spark.sink.task import WriteSummary
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import TxnAction
from spark_topics.sink.write import Task
from tests.support.fixtures import Clock
from tests.support.scripted_broker import (
    LEDGER,
    Action,
    ScriptedBroker,
    Session,
    StoredFrame,
    leaving_out,
    refuse,
    refuse_entry,
    seal,
    usual,
)

TOPIC = "persistent://public/default/t"
LOG = "persistent://public/default/spark-commits-orders"
MARKERS = f"{LOG}-markers"

W = TypeVar("W", BatchWrite, StreamWrite)
R = TypeVar("R")


@pytest.fixture
def scripted() -> Iterator[ScriptedBroker]:
    """A broker with a topic, and transactions.

    Its roles may use subscriptions of a prefix alone.
    """
    with ScriptedBroker() as broker:
        broker.partitions[COORDINATORS] = 1
        broker.add_topic(TOPIC)
        yield broker
        names = {body.subscription for body in broker.bodies["SUBSCRIBE"]}
        assert all(name.startswith("jobs-") for name in names), names


def options(broker: ScriptedBroker, *, streaming: bool, **further: str) -> Any:
    """Options of an exactly-once write, with changes."""
    given = {
        "service.url": broker.url,
        "topic": TOPIC,
        "deliveryGuarantee": "exactly-once",
        "pulsar.client.operationTimeoutMs": "5000",
        "subscriptionPrefix": "jobs",
        # A slow machine would send the first row of a task before the second.
        "pulsar.producer.batchingMaxPublishDelayMicros": "60000000",
        **further,
    }
    guarantee = given["deliveryGuarantee"]
    if guarantee == "idempotent" or (streaming and guarantee == "exactly-once"):
        given.setdefault("idempotenceId", "orders")
    return parse_write_options(given, streaming=streaming)


def batch_write(broker: ScriptedBroker, **further: str) -> BatchWrite:
    """A batch write."""
    return BatchWrite(options(broker, streaming=False, **further))


def stream_write(broker: ScriptedBroker, **further: str) -> StreamWrite:
    """The write of a micro-batch."""
    return StreamWrite(options(broker, streaming=True, **further))


def copied(write: W) -> W:
    """What arrives in another process."""
    copy: W = pickle.loads(pickle.dumps(write))  # noqa: S301
    return copy


def run(write: BatchWrite | StreamWrite, task: Task, *values: bytes) -> TaskResult:
    """What a task does, in its own process."""
    batches = [pa.record_batch({"value": [value]}) for value in values]
    return copied(write).run(task, iter(batches))


def transaction_of(entry: StoredFrame) -> TxnId | None:
    """The transaction that an entry was written in."""
    metadata = entry.metadata
    if not metadata.HasField("txnid_least_bits"):
        return None
    return TxnId(metadata.txnid_most_bits, metadata.txnid_least_bits)


def visible(broker: ScriptedBroker, topic: str = TOPIC) -> list[bytes]:
    """The values of entries that no aborted transaction wrote; markers are none."""
    return [
        entry.payload
        for entry in broker.topics[topic]
        if transaction_of(entry) not in broker.aborted
    ]


@pytest.mark.parametrize("make", [batch_write, stream_write])
@pytest.mark.parametrize(
    "guarantee", ["none", "at-least-once", "idempotent", "exactly-once"]
)
def test_constructors_open_nothing(
    scripted: ScriptedBroker, make: Any, guarantee: str
) -> None:
    """Nor does a copy: before ``prepare`` no broker hears of a write."""
    copied(make(scripted, deliveryGuarantee=guarantee))
    assert not scripted.requests
    assert not scripted.transactions


@pytest.mark.parametrize("make", [batch_write, stream_write])
def test_a_topic_that_does_not_exist(scripted: ScriptedBroker, make: Any) -> None:
    """It is found out by ``prepare``, before any task."""
    write = make(scripted, topic="absent", topicAutoCreation="false")
    with pytest.raises(TopicNotFoundError):
        write.prepare()
    assert not scripted.requests["PRODUCER"]


def test_rows_may_name_any_topic(scripted: ScriptedBroker) -> None:
    """Then there is nothing that could be looked up before."""
    given = replace(
        options(scripted, streaming=False, deliveryGuarantee="at-least-once"),
        topic=None,
    )
    BatchWrite(given).prepare()
    assert not scripted.requests


def test_a_stream_without_a_topic_for_its_log(scripted: ScriptedBroker) -> None:
    """It says which option it needs."""
    given = replace(options(scripted, streaming=True), topic=None)
    with pytest.raises(OptionError, match="needs commitTopic"):
        StreamWrite(given)


@pytest.mark.parametrize(
    ("topic", "given"),
    [
        ("spark-commits-q", {"idempotenceId": "q"}),
        ("spark-commits-q-partition-0", {"idempotenceId": "q"}),
        ("spark-commits-q-markers", {"idempotenceId": "q"}),
        ("a-markers", {"idempotenceId": "q", "commitTopic": "a"}),
    ],
)
def test_a_log_where_the_rows_go(
    scripted: ScriptedBroker, topic: str, given: dict[str, str]
) -> None:
    """Rows must not be among its records, nor these among the rows."""
    with pytest.raises(OptionError, match="Let commitTopic name another one"):
        stream_write(scripted, topic=topic, **given)


# -- the line of a whole write ---------------------------------------------------------


def test_the_line_of_a_write() -> None:
    """Sums, the time since the driver began, and who was slowest."""
    parts = [
        WriteSummary(rows=300, size_bytes=3000, took_s=1.5, reconnects=2),
        WriteSummary(rows=100, size_bytes=1000, took_s=3.25, duplicate_rows=7),
    ]
    results = [
        TaskResult(Task(number), part, write_began_s=1000.0)
        for number, part in enumerate(parts)
    ]
    assert summary_of(results, 1008.0) == (
        "400 rows, 4000 bytes by 2 tasks in 8.0 s, 50 rows/s; the slowest was task 1,"
        " 3.2 s; 7 rows were there already; 2 reconnects"
    )
    assert "in 0.0 s" in summary_of(results, 900.0)
    assert summary_of([], 1008.0) == (
        "0 rows, 0 bytes by 0 tasks; 0 rows were there already; 0 reconnects"
    )


def test_who_commits_knows_when_the_write_began(
    scripted: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another copy in another process does: by what the tasks tell."""
    clock = Clock()
    monkeypatch.setattr(base_write, "time", clock)
    write = batch_write(scripted)
    write.prepare()
    clock.now += 5
    result = run(write, Task(0), b"a")
    assert result.write_began_s == clock.now - 5
    assert result.written.took_s > 0


# -- batch queries ---------------------------------------------------------------------


def test_a_batch_write(scripted: ScriptedBroker) -> None:
    """Its transactions are committed, all of them; a task without rows has none."""
    write = batch_write(scripted)
    write.prepare()
    probes_aborted = len(scripted.ended)
    results = [
        run(write, Task(0), b"a", b"b"),
        run(write, Task(1)),
        run(write, Task(2), b"c"),
    ]
    assert [result.written.rows for result in results] == [2, 0, 1]
    assert results[1] == TaskResult(Task(1), WriteSummary())
    copied(write).commit(results)
    assert scripted.ended[probes_aborted:] == [
        (results[0].txn, TxnAction.COMMIT),
        (results[2].txn, TxnAction.COMMIT),
    ]


def test_a_batch_write_that_failed(scripted: ScriptedBroker) -> None:
    """What was written is taken back."""
    write = batch_write(scripted)
    write.prepare()
    done = run(write, Task(0), b"a")
    copied(write).abort([done])
    assert scripted.ended[-1] == (done.txn, TxnAction.ABORT)
    assert not scripted.transactions


def test_a_task_that_fails_ends_its_transaction(scripted: ScriptedBroker) -> None:
    """Nothing of it holds readers back."""
    write = batch_write(scripted)
    write.prepare()

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": [b"a"]})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        copied(write).run(Task(0), batches())
    assert scripted.ended[-1][1] is TxnAction.ABORT
    assert not scripted.transactions


def test_a_transaction_that_expired_before_the_commit(
    scripted: ScriptedBroker,
) -> None:
    """None is committed then."""
    write = batch_write(scripted)
    write.prepare()
    results = [run(write, Task(n), b"a") for n in range(2)]
    assert results[0].txn is not None
    scripted.expire(results[0].txn)
    with pytest.raises(TransactionLostError, match="Nothing of this write is visible"):
        copied(write).commit(results)
    assert TxnAction.COMMIT not in [action for _, action in scripted.ended]


def test_a_micro_batch_that_expired_before_the_commit(
    scripted: ScriptedBroker,
) -> None:
    """None of its transactions is committed then; the next attempt writes all."""
    write = stream_write(scripted)
    write.prepare()
    write.begin_micro_batch()
    results = [run(write, task(number), b"a") for number in range(2)]
    assert results[0].txn is not None
    scripted.expire(results[0].txn)
    with pytest.raises(TransactionLostError, match="Nothing was committed") as caught:
        copied(stream_write(scripted)).commit(results, 2, 0)
    assert caught.value.partitions == (0,)
    assert TxnAction.COMMIT not in [action for _, action in scripted.ended]
    assert not records(scripted, Prepared)
    assert commit(stream_write(scripted), b"a").written.rows == 1


def test_replication_carries_rows_alone(scripted: ScriptedBroker) -> None:
    """The log, the markers and the probes are about transactions of this cluster."""
    commit(stream_write(scripted), b"a")
    entries = [
        (topic, entry.payload, list(entry.metadata.replicate_to))
        for topic in (LOG, MARKERS, TOPIC)
        for entry in scripted.topics[topic]
    ]
    assert (TOPIC, b"a", []) in [(t, p[-1:], clusters) for t, p, clusters in entries]
    for topic, payload, clusters in entries:
        is_row = topic == TOPIC and payload
        assert clusters == ([] if is_row else ["__local__"])


def test_a_topic_that_rows_name_is_asked_about_once(scripted: ScriptedBroker) -> None:
    """Whether its broker drops what it has: by each task, with one name."""
    scripted.deduplicates = True
    other = "persistent://public/default/other"
    scripted.add_topic(other)
    given = options(scripted, streaming=False, deliveryGuarantee="idempotent")
    write = BatchWrite(replace(given, topic=None))
    write.prepare()
    rows = pa.record_batch({"value": [b"a", b"b"], "__topic": [other, other]})
    result = copied(write).run(Task(0), iter([rows, rows]))
    assert result.written.rows == 4
    names = [b.producer_name for b in scripted.bodies["PRODUCER"] if b.topic == other]
    assert names == ["orders-probe", "orders-0"]


@pytest.mark.parametrize("guarantee", ["at-least-once", "idempotent", "exactly-once"])
@pytest.mark.parametrize("columns", [{"value": [b"a"]}, {"id": [1], "name": ["x"]}])
def test_a_topic_that_another_has_to_itself(
    scripted: ScriptedBroker, guarantee: str, columns: dict[str, list[Any]]
) -> None:
    """The driver ends that, too, before it tries the topic out and has a schema."""
    scripted.deduplicates = True
    is_fenced = False

    def attach(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        nonlocal is_fenced
        mode = c.producer.producer_access_mode
        if c.producer.topic == TOPIC and mode == pb.CommandProducer.Shared:
            if not is_fenced:
                held = "Topic has an existing exclusive producer: other"
                return refuse("ProducerBusy", held)(broker, session, c)
        elif c.producer.topic == TOPIC:
            is_fenced = True
        return usual(broker, session, c)

    scripted.always("PRODUCER", attach)
    rows = pa.record_batch(columns)
    given = options(
        scripted,
        streaming=False,
        deliveryGuarantee=guarantee,
        **{"pulsar.producer.accessMode": "ExclusiveWithFencing"},
        **{"pulsar.client.operationTimeoutMs": "1500"},
        **{"pulsar.client.keepAliveIntervalSeconds": "1"},
        **({"idempotenceId": "write"} if guarantee == "idempotent" else {}),
    )
    write = BatchWrite(given, rows.schema)
    write.prepare()
    write.commit([write.run(Task(0), iter([rows]))])
    assert len(visible(scripted)) == 1


@pytest.mark.parametrize("guarantee", ["idempotent", "exactly-once"])
@pytest.mark.parametrize("is_scalable", [False, True])
def test_no_fence_for_a_write_without_transactions(
    scripted: ScriptedBroker, guarantee: str, is_scalable: bool
) -> None:
    """What the cluster lacks is found out first, unless the topic has to tell."""
    scripted.partitions[COORDINATORS] = 0
    if is_scalable:
        scripted.scalable = {SCALABLE: SCALABLE}
        scripted.add_topic(SEGMENTS[0])
    given = options(
        scripted,
        streaming=False,
        topic=SCALABLE if is_scalable else TOPIC,
        deliveryGuarantee=guarantee,
        **{"pulsar.producer.accessMode": "ExclusiveWithFencing"},
    )
    with pytest.raises((TransactionsOffError, DeduplicationOffError)) as error:
        BatchWrite(given).prepare()
    needs_topic = isinstance(error.value, DeduplicationOffError)
    assert needs_topic == (guarantee == "idempotent" and not is_scalable)
    modes = {body.producer_access_mode for body in scripted.bodies["PRODUCER"]}
    fences = pb.CommandProducer.ExclusiveWithFencing in modes
    assert fences == needs_topic


@pytest.mark.parametrize("by", ["option", "column"])
@pytest.mark.parametrize(
    "guarantee", ["none", "at-least-once", "idempotent", "exactly-once"]
)
def test_producers_of_typed_rows_name_their_schema(
    scripted: ScriptedBroker, guarantee: str, by: str
) -> None:
    """All of them, probes as well: a topic may take no producer without a schema."""
    scripted.deduplicates = True
    columns: dict[str, list[Any]] = {"id": [1, 2]}
    if by == "column":
        columns["__topic"] = [TOPIC, TOPIC]
    rows = pa.record_batch(columns)
    given = options(scripted, streaming=False, deliveryGuarantee=guarantee)
    if by == "column":
        given = replace(given, topic=None)
    write = BatchWrite(given, rows.schema)
    write.prepare()
    write.commit([copied(write).run(Task(0), iter([rows]))])
    producers = [b for b in scripted.bodies["PRODUCER"] if b.topic == TOPIC]
    assert producers
    assert all(body.HasField("schema") for body in producers)


@pytest.mark.parametrize("guarantee", ["at-least-once", "idempotent", "exactly-once"])
@pytest.mark.parametrize(
    ("name", "said"),
    [(b"\xff\xfe", "not text in UTF-8"), (b"a/b", "not a topic name"), (None, "NULL")],
)
def test_a_first_row_that_names_no_topic(
    scripted: ScriptedBroker, guarantee: str, name: bytes | None, said: str
) -> None:
    """It is refused alike under each guarantee; Spark's text may be no UTF-8."""
    scripted.deduplicates = True
    given = options(scripted, streaming=False, deliveryGuarantee=guarantee)
    write = BatchWrite(replace(given, topic=None))
    write.prepare()
    names = pa.array([name], pa.binary()).view(pa.string())
    rows = pa.RecordBatch.from_arrays([pa.array([b"a"]), names], ["value", "__topic"])
    with pytest.raises(BadRowError, match=said):
        copied(write).run(Task(0), iter([rows]))


@pytest.mark.parametrize("guarantee", ["at-least-once", "idempotent", "exactly-once"])
def test_a_partition_that_two_columns_name(
    scripted: ScriptedBroker, guarantee: str
) -> None:
    """As a read gives them, both name the same; a contradiction is refused."""
    scripted.deduplicates = True
    scripted.partitions[TOPIC] = 4
    third = f"{TOPIC}-partition-3"
    scripted.add_topic(third)
    given = options(scripted, streaming=False, deliveryGuarantee=guarantee)
    columns = {"value": [b"a", b"b"], "__topic": [third] * 2}
    numbers = pa.array([3, None], pa.int32())
    rows = pa.record_batch({**columns, "__partition": numbers})
    write = BatchWrite(replace(given, topic=None), rows.schema)
    write.prepare()
    write.commit([copied(write).run(Task(0), iter([rows]))])
    assert len(visible(scripted, third)) >= 1
    for other in (0, 2, 4):
        rows = pa.record_batch({**columns, "__partition": pa.array([3, other])})
        said = f"__partition is {other}, but the topic is partition 3 itself"
        with pytest.raises(BadRowError, match=said):
            copied(write).run(Task(1), iter([rows]))


# -- micro-batches ---------------------------------------------------------------------


def log(broker: ScriptedBroker) -> list[str]:
    """The kinds of records in the log, in order."""
    return [type(load_record(entry.payload)).__name__ for entry in broker.topics[LOG]]


def task(number: int, batch_id: int = 0) -> Task:
    """A task of the query."""
    return Task(number, batch_id=batch_id, query_id="query")


def test_a_micro_batch(scripted: ScriptedBroker) -> None:
    """Begun once on the driver, written by tasks, and committed by way of the log."""
    write = stream_write(scripted)
    write.prepare()
    write.begin_micro_batch()
    write.begin_micro_batch()
    assert log(scripted) == ["Began"]
    results = [
        run(write, task(0), b"a"),
        run(write, task(1)),
        run(write, task(2), b"b"),
    ]
    assert [result.written.rows for result in results] == [1, 0, 1]
    assert log(scripted) == ["Began", "Opened", "Opened"]
    assert visible(scripted, MARKERS)[-2:] == [
        b'[1,"query",0,0]',
        b'[1,"query",0,2]',
    ]
    driver = stream_write(scripted)
    driver.prepare()
    driver.commit(results, 3, 0)
    committed = [txn for txn, action in scripted.ended if action is TxnAction.COMMIT]
    assert committed == [results[0].txn, results[2].txn]
    assert log(scripted)[-2:] == ["Prepared", "Committed"]
    records = [load_record(entry.payload) for entry in scripted.topics[LOG]]
    opened = [one for one in records if isinstance(one, Opened)]
    (decision,) = [one for one in records if isinstance(one, Prepared)]
    assert decision.txns == {one.partition: one.txn for one in opened}
    assert isinstance(records[-1], Committed)


def test_a_micro_batch_that_is_run_again(scripted: ScriptedBroker) -> None:
    """Its rows are visible already: they are counted, and not written."""
    for duplicates in (0, 1):
        write = stream_write(scripted)
        write.prepare()
        write.begin_micro_batch()
        results = [run(write, task(n), b"a") for n in range(2)]
        assert [r.written.duplicate_rows for r in results] == [duplicates] * 2
        write.commit(results, 2, 0)
    assert len([one for one in visible(scripted) if one.endswith(b"a")]) == 2


@pytest.mark.parametrize(
    "again",
    [
        pytest.param([[b"a", b"b", b"d"], [b"c"]], id="a-row-more"),
        pytest.param([[b"a", b"b"]], id="a-task-less"),
        pytest.param([[], [b"c"]], id="a-row-less"),
    ],
)
def test_a_micro_batch_that_is_run_again_with_other_rows(
    scripted: ScriptedBroker, again: list[list[bytes]]
) -> None:
    """They are not taken for those that are there: an error, and nothing is written.

    Nor are they after a restart.
    """
    for tasks in [[b"b", b"a"], [b"c"]], again, again:
        write = stream_write(scripted)
        write.prepare()
        write.begin_micro_batch()
        results = [run(write, Task(n, 0, 7, "q"), *one) for n, one in enumerate(tasks)]
        if tasks is again:
            with pytest.raises(QueryConflictError, match="the checkpoint was set back"):
                copied(write).commit(results, len(tasks), 7)
        else:
            copied(write).commit(results, len(tasks), 7)
    # A slow task sends its two rows in an entry each.
    ends = b"".join(entry[-1:] for entry in visible(scripted) if entry)
    assert ends in (b"ac", b"bac")


def test_queries_that_share_a_log(
    scripted: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """One that goes on behind another finds its own micro-batch, and that is said."""
    for query, is_there in ("a", False), ("b", False), ("a", True), ("a", True):
        write = stream_write(scripted)
        write.prepare()
        write.begin_micro_batch()
        result = run(write, Task(0, 0, 7, query), query.encode())
        copied(write).commit([result], 1, 7)
        assert result.written.duplicate_rows == is_there
    assert "was used by the query a, and is used by the query b now" in caplog.text
    assert [one[-1:] for one in visible(scripted) if one] == [b"a", b"b"]


def test_a_micro_batch_that_failed(scripted: ScriptedBroker) -> None:
    """What the driver's own tasks wrote is aborted."""
    write = stream_write(scripted)
    write.prepare()
    write.begin_micro_batch()
    done = run(write, task(0), b"a")
    copied(write).abort([done], 0)
    assert scripted.ended[-1] == (done.txn, TxnAction.ABORT)


def test_a_start_that_fails_before_its_log(
    scripted: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topics, which wait for the log, do not wait for ever."""

    def refuse(*_: object, **__: object) -> None:
        raise AuthError("The token has expired.", code="AuthenticationError")

    write = stream_write(scripted)
    write.prepare()
    monkeypatch.setattr(CommitProtocol, "__init__", refuse)
    is_done: Future[bool] = Future()
    with pytest.raises(AuthError, match="The token has expired"):
        write._recover(is_done)
    assert not is_done.result(timeout=0)


@pytest.mark.parametrize("guarantee", ["none", "at-least-once", "idempotent"])
def test_a_micro_batch_without_transactions(
    scripted: ScriptedBroker, guarantee: str
) -> None:
    """It has no log; neither commit nor abort asks the cluster for anything."""
    scripted.deduplicates = True
    write = stream_write(scripted, deliveryGuarantee=guarantee)
    write.prepare()
    write.begin_micro_batch()
    done = run(write, task(0), b"a")
    asked = scripted.requests.total()
    write.commit([done], 1, 0)
    write.abort([done], 0)
    assert scripted.requests.total() == asked
    assert visible(scripted)[-1].endswith(b"a")
    assert LOG not in scripted.topics
    assert not scripted.transactions


@pytest.mark.parametrize(
    ("log", "named"),
    [
        ("spark-commits-orders", "spark-commits-orders"),
        ("spark-commits-orders", "spark-commits-orders-markers"),
        ("a", "public/default/a"),
        ("a-partition-0", "persistent://public/default/a-partition-0"),
        ("a-partition-0", "a"),
        ("a", "a-markers"),
    ],
)
def test_a_row_that_names_the_log(
    scripted: ScriptedBroker, log: str, named: str
) -> None:
    """It is refused, as the option is; nothing of its task is left."""
    scripted.partitions["persistent://public/default/a"] = "partition" in log
    given = options(scripted, streaming=True, commitTopic=log)
    write = StreamWrite(replace(given, topic=None))
    write.prepare()
    write.begin_micro_batch()
    before = {name: len(entries) for name, entries in scripted.topics.items()}
    rows = pa.record_batch({"value": [b"a", b"b"], "__topic": [TOPIC, named]})
    with pytest.raises(BadRowError, match="let commitTopic name another one"):
        copied(write).run(task(0), iter([rows]))
    assert not scripted.transactions
    log_topic = given.commit_topic.full_name
    before[log_topic] += 1  # the task's beginning
    assert {n: len(e) for n, e in scripted.topics.items() if n != TOPIC} == {
        name: count for name, count in before.items() if name != TOPIC
    }
    write.abort([], 0)
    again = StreamWrite(replace(given, topic=None))
    again.prepare()
    again.begin_micro_batch()


def test_no_tasks(scripted: ScriptedBroker) -> None:
    """There is nothing to decide."""
    write = stream_write(scripted)
    write.prepare()
    write.commit([], 0, 5)
    assert not scripted.topics.get(LOG)


def test_a_later_driver_went_to_work(scripted: ScriptedBroker) -> None:
    """Then the decision of the one before is none, whatever its tasks wrote."""
    old, new = stream_write(scripted), stream_write(scripted)
    for write in (old, new):
        write.prepare()
    old.begin_micro_batch()
    given_up = [run(old, task(0), b"a")]
    new.begin_micro_batch()
    with pytest.raises(PulsarSparkError, match="Another run of this query"):
        old.commit(given_up, 1, 0)
    assert (given_up[0].txn, TxnAction.COMMIT) not in scripted.ended


def test_what_cannot_be_taken_back(
    scripted: ScriptedBroker,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is a warning: Spark would hide behind it why the micro-batch has failed."""

    def refuse(*_: object) -> None:
        raise AuthError("The token has expired.", code="AuthenticationError")

    monkeypatch.setattr(CommitProtocol, "abort", refuse)
    stream_write(scripted).abort([], 7)
    assert "Could not abort the writes of micro-batch 7 yet" in caplog.text
    assert "The token has expired." in caplog.text


# -- a broker that is gone -------------------------------------------------------------

#: A cluster notices after 30 s that a broker is gone, by its usual settings, and has to
#: load what that one served.
AWAY_S = 45.0


class Away:
    """Lets nobody serve some topics, again and again, for a while each time."""

    def __init__(self, broker: ScriptedBroker, request: str, clock: Clock) -> None:
        self._clock = clock
        self._until = 0.0
        self.refusals = 0
        broker.always(request, self._answer)

    def begin(self) -> None:
        """They are away from now on."""
        self._until = self._clock.now + AWAY_S

    def _answer(
        self, broker: ScriptedBroker, session: Session, command: pb.BaseCommand
    ) -> None:
        is_about_rows = command.lookupTopic.topic == TOPIC or (
            command.producer.topic == TOPIC
        )
        if is_about_rows or self._clock.now >= self._until:
            broker.answer(session, command)
        else:
            self.refusals += 1
            refuse("ServiceNotReady")(broker, session, command)


@pytest.mark.parametrize(
    "request_name",
    [
        "LOOKUP",
        "TC_CLIENT_CONNECT_REQUEST",
        "NEW_TXN",
        "ADD_PARTITION_TO_TXN",
        "END_TXN",
        "SUBSCRIBE",
        "PRODUCER",
    ],
)
@pytest.mark.parametrize("make", [batch_write, stream_write])
def test_coordinator_and_log_are_away(
    scripted: ScriptedBroker, clock: Clock, make: Any, request_name: str
) -> None:
    """As long as a cluster may need: driver and tasks wait, as they do for the rows."""
    away = Away(scripted, request_name, clock)
    # Threads share the clock here: the pauses of one take time from all.
    make = partial(make, **{"pulsar.client.maxBackoffIntervalNanos": "1000000000"})
    write = make(scripted)
    away.begin()
    write.prepare()
    if isinstance(write, StreamWrite):
        away.begin()
        write.begin_micro_batch()
    away.begin()
    results = [run(write, task(0), b"a")]
    driver = make(scripted)
    driver.prepare()
    away.begin()
    if isinstance(driver, StreamWrite):
        driver.commit(results, 1, 0)
    else:
        driver.commit(results)
    is_batch = isinstance(write, BatchWrite)
    has_no_log = is_batch and request_name in ("SUBSCRIBE", "PRODUCER")
    assert away.refusals > 1 or has_no_log
    assert [one for one in visible(scripted) if one.endswith(b"a")]
    assert scripted.ended[-1] == (results[0].txn, TxnAction.COMMIT)


# -- commits that leave topics out -----------------------------------------------------


def leave_out(broker: ScriptedBroker, *topics: str) -> Callable[[], None]:
    """The next commit does not reach these topics."""
    return lambda: broker.script("END_TXN", leaving_out(*topics))


@pytest.mark.parametrize("make", [batch_write, stream_write])
@pytest.mark.parametrize("left_out", [[TOPIC], [TOPIC, MARKERS]])
def test_a_commit_that_leaves_topics_out(
    scripted: ScriptedBroker, make: Any, left_out: list[str]
) -> None:
    """It is mended where the role may do that."""
    commit(make(scripted), b"a", between=leave_out(scripted, *left_out))
    assert not scripted.dropped
    assert TOPIC not in {topic for _, topic in scripted.left_out}


@pytest.mark.parametrize("make", [batch_write, stream_write])
def test_rows_that_a_commit_has_left_out(scripted: ScriptedBroker, make: Any) -> None:
    """Where the role may not mend it an error tells of them; a stream goes on."""
    scripted.takes_superusers = False
    what = "micro-batch 0" if make is stream_write else "this write"
    text = f"out of the commit of {what}: {TOPIC}"
    with pytest.raises(TransactionLostError, match=text):
        commit(make(scripted), b"a", between=leave_out(scripted, TOPIC, MARKERS))
    assert {topic for _, topic in scripted.dropped} >= {TOPIC}
    if make is stream_write:
        again = commit(make(scripted), b"a")
        assert again.written.duplicate_rows == 1
        commit(make(scripted), b"b", of=task(0, batch_id=1))
        assert len(records(scripted, Committed)) >= 2


@pytest.mark.parametrize("is_ended", [True, False])
def test_a_driver_that_died_while_a_commit_left_topics_out(
    scripted: ScriptedBroker, *, is_ended: bool
) -> None:
    """The next one tells the topics, whoever has ended the transactions."""

    def die(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        if is_ended:
            leaving_out(TOPIC)(broker, replace(session, is_muted=True), c)
        broker.script("END_TXN", refuse("AuthorizationError"))
        broker.hang_up(session)

    with pytest.raises(PulsarSparkError):
        commit(
            stream_write(scripted),
            b"a",
            between=lambda: scripted.script("END_TXN", die),
        )
    scripted.script("END_TXN", usual if is_ended else leaving_out(TOPIC))
    again = commit(stream_write(scripted), b"a")
    assert again.written.duplicate_rows == 1
    assert not scripted.left_out
    assert not scripted.dropped


def die_behind_a_commit_without(*topics: str) -> Action:
    """The commit leaves topics out, its answer is lost, and the driver dies."""

    def die(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        leaving_out(*topics)(broker, replace(session, is_muted=True), c)
        broker.script("END_TXN", refuse("AuthorizationError"))
        broker.hang_up(session)

    return die


def test_rows_that_are_held_back_behind_a_marker_that_was_dropped(
    scripted: ScriptedBroker,
) -> None:
    """They are not written again, as they are visible later."""
    foreign = scripted.hold_back(TOPIC)
    short = {"pulsar.client.operationTimeoutMs": "300"}
    die = die_behind_a_commit_without(MARKERS)
    with pytest.raises(PulsarSparkError):
        commit(
            stream_write(scripted, **short),
            b"a",
            between=lambda: scripted.script("END_TXN", die),
        )
    scripted.dropped |= scripted.left_out
    scripted.left_out.clear()
    with pytest.raises(ReadTimeoutError, match=TOPIC):
        commit(stream_write(scripted, **short), b"a")
    scripted.expire(foreign)
    again = commit(stream_write(scripted, **short), b"a")
    assert again.written.duplicate_rows == 1


@pytest.mark.parametrize("is_superuser", [True, False])
@pytest.mark.parametrize(
    ("make", "places"),
    [
        *((batch_write, places) for places in ("0", "01")),
        *((stream_write, places) for places in ("0", "01", "m", "0m", "01m")),
    ],
)
def test_topics_left_out_by_a_commit_whose_answer_is_lost(
    scripted: ScriptedBroker, make: Any, places: str, *, is_superuser: bool
) -> None:
    """Each row is there in the end, or an error says that it is not; none is twice."""
    two = "persistent://public/default/two"
    parts = [f"{two}-partition-{number}" for number in range(2)]
    scripted.partitions[two] = 2
    for topic in parts:
        scripted.add_topic(topic)
    scripted.takes_superusers = is_superuser
    names = {"0": parts[0], "1": parts[1], "m": MARKERS}
    left_out = leaving_out(*(names[place] for place in places))

    def lose(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        left_out(broker, replace(session, is_muted=True), c)
        broker.hang_up(session)

    errors: list[TransactionLostError] = []

    def trouble() -> None:
        if not errors:
            scripted.script("END_TXN", lose)

    write = partial(
        make,
        *(scripted,),
        topic=two,
        **{
            "pulsar.client.operationTimeoutMs": "1000",
            "pulsar.producer.batchingMaxMessages": "1",
        },
    )
    for _ in range(3 if make is stream_write else 1):
        try:
            commit(write(), b"a", b"b", b"c", b"d", between=trouble)
            break
        except TransactionLostError as error:
            errors.append(error)
    assert not scripted.left_out
    rows = [
        entry.payload[-1:]
        for topic in parts
        for entry in scripted.topics[topic]
        if (txn := transaction_of(entry)) not in scripted.aborted
        and (txn, topic) not in scripted.dropped
    ]
    assert sorted(rows) == sorted(set(rows))
    wrote = {"0", "1"} if make is batch_write else {"0", "1", "m"}
    if set(places) == wrote:  # as if it had expired: a stream writes the rows again
        assert "expired" in str(errors[0])
        assert len(rows) == (4 if make is stream_write else 0)
    elif is_superuser or places == "m":
        assert (len(rows), errors) == (4, [])
    else:
        (told,) = errors
        assert "out of the commit" in str(told)
        assert len(rows) == 4 - 2 * len(set(places) - {"m"})


def test_markers_that_a_commit_has_left_out(scripted: ScriptedBroker) -> None:
    """They are missed by nobody: the log says that the micro-batch is visible."""
    scripted.takes_superusers = False
    commit(stream_write(scripted), b"a", between=leave_out(scripted, MARKERS))
    again = commit(stream_write(scripted), b"a")
    assert again.written.duplicate_rows == 1


SCALABLE = "topic://public/default/t"
SEGMENTS = [f"segment://public/default/t/0000-ffff-{number}" for number in (1, 2)]


class TestScalableTopics:
    @pytest.fixture(autouse=True)
    def _scalable(self, scripted: ScriptedBroker) -> None:
        scripted.scalable = {SCALABLE: SCALABLE}
        scripted.add_topic(SEGMENTS[0])

    @pytest.mark.parametrize("make", [batch_write, stream_write])
    def test_visible_at_the_commit(self, scripted: ScriptedBroker, make: Any) -> None:
        """By a transaction of its own kind, and without markers."""
        write = make(scripted, topic=SCALABLE)
        done = commit(write, b"a")
        assert done.txn == TxnId(0, 0, is_scalable=True)
        assert scripted.ended == [(done.txn, TxnAction.COMMIT)]
        assert last_letters(scripted) == [b"a"]
        assert scripted.bodies["TC_CLIENT_CONNECT_REQUEST"][-1].scalable
        assert all(body.scalable for body in scripted.bodies["NEW_TXN"])
        assert not scripted.requests["ADD_PARTITION_TO_TXN"]
        assert MARKERS not in scripted.topics
        if make is stream_write:
            (decision,) = records(scripted, Prepared)
            assert decision.entries == {0: {SEGMENTS[0]: MessageId(LEDGER, 0)}}

    def decide_only(
        self, scripted: ScriptedBroker, make: Any = stream_write, **further: str
    ) -> TxnId:
        """A micro-batch is decided, and its transaction, returned, is not ended."""
        given = {"topic": SCALABLE, "pulsar.client.operationTimeoutMs": "300"}
        with pytest.raises(PulsarSparkError):
            commit(
                make(scripted, **given | further),
                b"a",
                between=lambda: scripted.always(
                    "END_TXN", refuse("AuthorizationError")
                ),
            )
        scripted.always("END_TXN", usual)
        (decision,) = records(scripted, Prepared)
        (txn,) = decision.txns.values()
        return txn

    @pytest.mark.parametrize("is_known", [True, False], ids=["known", "forgotten"])
    @pytest.mark.parametrize("is_committed", [True, False], ids=["committed", "lost"])
    def test_a_driver_that_died_behind_its_decision(
        self, scripted: ScriptedBroker, *, is_committed: bool, is_known: bool
    ) -> None:
        """The coordinator tells what became of it; later an entry does."""
        txn = self.decide_only(scripted)
        if is_committed:
            scripted.transactions.pop(TxnId(txn.most, txn.least))
            scripted.outcomes[TxnId(txn.most, txn.least)] = TxnAction.COMMIT
        else:
            scripted.expire(txn)
        if not is_known:
            scripted.outcomes.clear()
        again = commit(stream_write(scripted, topic=SCALABLE), b"a")
        assert again.written.duplicate_rows == is_committed
        assert last_letters(scripted) == [b"a"]

    def test_nothing_tells_what_became_of_a_decision(
        self, scripted: ScriptedBroker
    ) -> None:
        """Then nothing is written, and an error says so."""
        self.decide_only(scripted)
        scripted.transactions.clear()
        scripted.roll(SEGMENTS[0])
        scripted.trim(SEGMENTS[0])
        with pytest.raises(CommitInDoubtError, match="removed by retention"):
            commit(stream_write(scripted, topic=SCALABLE), b"a")

    @pytest.mark.usefixtures("settling")
    @pytest.mark.parametrize("make", [batch_write, stream_write])
    @pytest.mark.parametrize(
        ("stores", "hidden"),
        [(True, 0), (True, 1), (False, 0)],
        ids=["stored", "stored-unknown", "not-stored"],
    )
    @pytest.mark.parametrize("code", ["TopicTerminatedError", "ServiceNotReady"])
    def test_a_segment_that_is_sealed_meanwhile(
        self,
        scripted: ScriptedBroker,
        make: Any,
        code: str,
        hidden: int,
        *,
        stores: bool,
    ) -> None:
        """All goes out again, unless it is sure that nothing is in doubt.

        Brokers may say of a sealed segment that it is not there for now, and that it
        ends before its last entry.
        """
        scripted.always("SEND", seal(2, code, after=1, stores=stores, hidden=hidden))
        write = make(
            scripted, topic=SCALABLE, **{"pulsar.producer.batchingMaxMessages": "1"}
        )
        done = commit(write, b"a", b"b")
        assert last_letters(scripted) == [b"a", b"b"]
        first = TxnId(0, 0, is_scalable=True)
        if stores:
            assert scripted.ended == [
                (first, TxnAction.ABORT),
                (done.txn, TxnAction.COMMIT),
            ]
        else:
            assert scripted.ended == [(first, TxnAction.COMMIT)]

    @pytest.mark.parametrize("make", [batch_write, stream_write])
    def test_an_idempotent_write_is_repeated(
        self, scripted: ScriptedBroker, make: Any
    ) -> None:
        """The log of commits knows of it, also behind a split. Each topic has its own.

        Other rows are refused.
        """
        given = {"deliveryGuarantee": "idempotent", "topic": SCALABLE}
        assert commit(make(scripted, **given), b"a", b"b").written.rows == 2
        scripted.replace_segment(SEGMENTS[0], 2)
        again = commit(make(scripted, **given), b"b", b"a")
        assert (again.written.rows, again.written.duplicate_rows) == (0, 2)
        assert last_letters(scripted) == [b"b"]  # of an entry of two rows
        with pytest.raises(IdempotenceError, match="other rows of micro-batch 0"):
            commit(make(scripted, **given), b"a", b"c")
        commit(make(scripted, **given, idempotenceId="another"), b"c")
        assert last_letters(scripted) == [b"b", b"c"]
        logs = {name for name in scripted.topics if "spark-commits" in name}
        assert logs == {f"{LOG}-t", f"{LOG.replace('orders', 'another')}-t"}

    @pytest.mark.parametrize("make", [batch_write, stream_write])
    @pytest.mark.parametrize("is_committed", [True, False], ids=["committed", "lost"])
    def test_an_idempotent_write_whose_driver_died(
        self, scripted: ScriptedBroker, make: Any, *, is_committed: bool
    ) -> None:
        """Its decision is carried through by the repetition, or its rows are new."""
        given = {"deliveryGuarantee": "idempotent", "topic": SCALABLE}
        txn = self.decide_only(scripted, make, **given)
        if not is_committed:
            scripted.expire(txn)
        again = commit(make(scripted, **given), b"a")
        assert again.written.duplicate_rows == is_committed
        assert last_letters(scripted) == [b"a"]

    def test_an_idempotent_write_without_an_id(self, scripted: ScriptedBroker) -> None:
        """A batch write is a new one each time; a stream has to be known."""
        given = {"service.url": scripted.url, "topic": SCALABLE}
        given |= {"deliveryGuarantee": "idempotent", "subscriptionPrefix": "jobs"}
        for _ in range(2):
            commit(BatchWrite(parse_write_options(given, streaming=False)), b"a")
        assert last_letters(scripted) == [b"a", b"a"]
        assert not [name for name in scripted.topics if "spark-commits" in name]
        with pytest.raises(OptionError, match="idempotenceId"):
            StreamWrite(parse_write_options(given, streaming=True)).prepare()
        given["checkpointLocation"] = "/data/orders"
        for duplicates in (0, 1):
            write = StreamWrite(parse_write_options(given, streaming=True))
            assert commit(write, b"a").written.duplicate_rows == duplicates

    @pytest.mark.usefixtures("settling")
    @pytest.mark.parametrize("hidden", [0, 2], ids=["known", "unknown"])
    @pytest.mark.parametrize("make", [batch_write, stream_write])
    def test_an_idempotent_write_from_before_a_migration(
        self, scripted: ScriptedBroker, make: Any, hidden: int
    ) -> None:
        """Rows that the ordinary topic has under the id are not written again.

        Also where the broker knows of none of its entries for a moment.
        """
        given = {"deliveryGuarantee": "idempotent"}
        scripted.deduplicates = True
        commit(make(scripted, **given), b"a")
        later = replace(task(0), batch_id=1)
        known = replace(later, query_id="known")
        if make is stream_write:
            commit(make(scripted, **given), b"a", of=known)
        migrate(scripted)
        scripted.hidden[TOPIC] = hidden
        with pytest.raises(ScalableTopicError, match="had rows of micro-batch 0"):
            commit(make(scripted, **given), b"a")
        for duplicates in (0, 1):
            write = make(scripted, **given, idempotenceId="another")
            assert commit(write, b"b").written.duplicate_rows == duplicates
        # A later micro-batch goes on. Of another query, which the log does not know,
        # the topic is asked.
        if make is stream_write:
            commit(make(scripted, **given), b"c", of=later)
            with pytest.raises(ScalableTopicError, match="had rows of micro-batch 1"):
                commit(make(scripted, **given), b"a", of=known)
            stranger = replace(later, query_id="stranger")
            commit(make(scripted, **given), b"d", of=stranger)
            assert last_letters(scripted) == [b"b", b"c", b"d"]

    def test_a_stream_that_has_an_id_since_a_migration(
        self, scripted: ScriptedBroker
    ) -> None:
        """Its rows are known by the query alone; another guarantee does not look."""
        given = {"service.url": scripted.url, "topic": TOPIC}
        given |= {"deliveryGuarantee": "idempotent", "subscriptionPrefix": "jobs"}
        scripted.deduplicates = True
        third, fourth = (replace(task(0), batch_id=number) for number in (3, 4))
        write = StreamWrite(parse_write_options(given, streaming=True))
        commit(write, b"a", of=third)
        migrate(scripted)
        for named in ({"idempotenceId": "a"}, {"checkpointLocation": "/a"}):
            write = StreamWrite(parse_write_options(given | named, streaming=True))
            with pytest.raises(
                ScalableTopicError, match="does not look at the partitions"
            ):
                commit(write, b"a", of=third)
        assert last_letters(scripted) == []
        commit(stream_write(scripted), b"a", of=third)
        commit(stream_write(scripted, deliveryGuarantee="idempotent"), b"b", of=fourth)
        assert last_letters(scripted) == [b"a", b"b"]

    def test_old_partitions_that_cannot_be_read(self, scripted: ScriptedBroker) -> None:
        """The error says how to go on without them."""
        migrate(scripted)

        def refuse_readers(broker: ScriptedBroker, session: Session, c: Any) -> None:
            is_of_rows = c.subscribe.topic == TOPIC
            action = refuse("AuthorizationError") if is_of_rows else usual
            action(broker, session, c)

        scripted.always("SUBSCRIBE", refuse_readers)
        with pytest.raises(AuthError, match="does not look at the partitions"):
            commit(batch_write(scripted, deliveryGuarantee="idempotent"), b"a")

    def test_rows_of_an_idempotent_write_that_name_topics(
        self, scripted: ScriptedBroker
    ) -> None:
        """No scalable one: the driver does not know of it before."""
        given = {"topic": SCALABLE, "deliveryGuarantee": "idempotent"}
        write = BatchWrite(
            replace(options(scripted, streaming=False, **given), topic=None)
        )
        write.prepare()
        rows = pa.record_batch({"value": [b"a"], "__topic": [SCALABLE]})
        with pytest.raises(ScalableTopicError, match="in the option `topic`"):
            copied(write).run(task(0), iter([rows]))

    def test_rows_for_topics_of_both_kinds(self, scripted: ScriptedBroker) -> None:
        """No transaction takes both."""
        given = options(scripted, streaming=False)
        for names in ([SCALABLE, TOPIC], [TOPIC, SCALABLE]):
            write = BatchWrite(replace(given, topic=None))
            write.prepare()
            rows = pa.record_batch({"value": [b"a", b"b"], "__topic": names})
            with pytest.raises(ScalableTopicError, match="No transaction takes both"):
                copied(write).run(task(0), iter([rows]))
            assert scripted.ended[-1][1] is TxnAction.ABORT
        write = BatchWrite(replace(given, topic=None))
        write.prepare()
        rows = pa.record_batch({"value": [b"a", b"b"], "__topic": [SCALABLE] * 2})
        write.commit([copied(write).run(task(0), iter([rows]))])
        assert len(visible(scripted, SEGMENTS[0])) == 1  # an entry of two rows

    def test_an_entry_that_comes_too_late(self, scripted: ScriptedBroker) -> None:
        """Brokers refuse it, and the error says what to change."""
        late = refuse_entry(
            "NotAllowedError", "Transaction (0,0) is already ABORTED — TxnConflict"
        )
        write = batch_write(scripted, topic=SCALABLE)
        write.prepare()
        scripted.script("SEND", late)
        with pytest.raises(TransactionLostError, match="transactionTimeoutMs"):
            run(write, task(0), b"a")


def migrate(broker: ScriptedBroker) -> None:
    """Makes a scalable topic of the ordinary one."""
    broker.scalable = {SCALABLE: SCALABLE, TOPIC: SCALABLE}
    broker.segments[0].parent_ids.append(0)
    broker.segments.insert(
        0, pb.ScalableTopicSegment(segment_id=0, hash_end=0xFFFF, state=1)
    )
    broker.segments[0].legacy_topic_name = TOPIC


def last_letters(broker: ScriptedBroker) -> list[bytes]:
    """How visible entries of the segments end."""
    segments = [name for name in SEGMENTS if name in broker.topics]
    return [row[-1:] for name in segments for row in visible(broker, name)]


def commit(
    write: BatchWrite | StreamWrite,
    *values: bytes,
    between: Callable[[], None] = lambda: None,
    of: Task | None = None,
) -> TaskResult:
    """A whole write of a task; something happens before the task runs.

    Spark commits a micro-batch by a writer of its own, which was not prepared.
    """
    of = of or task(0)
    if isinstance(write, StreamWrite):
        unprepared = copied(write)
        write.prepare()
        write.begin_micro_batch()
        between()
        done = run(write, of, *values)
        unprepared.commit([done], 1, of.batch_id)
    else:
        write.prepare()
        between()
        done = run(write, of, *values)
        copied(write).commit([done])
    return done


def records(broker: ScriptedBroker, kind: type[R]) -> list[R]:
    """What the log says of a kind."""
    logs = [name for name in broker.topics if name in (LOG, f"{LOG}-t")]
    loaded = (
        load_record(entry.payload) for name in logs for entry in broker.topics[name]
    )
    return [record for record in loaded if isinstance(record, kind)]
