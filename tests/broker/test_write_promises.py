# SPDX-License-Identifier: Apache-2.0
"""Sentences about writes in docs/guarantees.md that only a broker can bear out.

Most of them say where a promise ends. They are tried here because whoever reads them
acts on them: what other clients see, what brokers forget, and what a driver leaves that
dies in the middle.
"""

from __future__ import annotations

import json
import os
import random
import re
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pulsar
import pyarrow as pa
import pytest

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.producing.states import Attachment
from pulsar_spark.client.transactions import TransactionClient
from pulsar_spark.errors import (
    BrokerError,
    DeduplicationOffError,
    InDoubtError,
    PulsarSparkError,
    TransactionsOffError,
)
from pulsar_spark.options import parse_write_options
from pulsar_spark.sink import probes
from pulsar_spark.sink.task import TaskWriter
from pulsar_spark.testing.admin import Admin
from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from pulsar_spark.topics import TopicName
from pulsar_spark.wire.commands import TxnAction
from spark_topics.sink.write import Task
from tests.bench.publish import client_options
from tests.broker.test_batch_commit import Write, is_over
from tests.broker.test_write_guarantees import (
    PARTS,
    DiedError,
    Stream,
    check_free,
    visible,
)
from tests.broker.test_write_guarantees import sink as sink
from tests.support import official, reading
from tests.support.official import produce, read_back
from tests.support.waiting import await_true, join
from tests.support.writes import _context as _context
from tests.support.writes import write_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: For what a client is not going to get, in milliseconds.
_NOTHING_MS = 300


# -- what other clients see ------------------------------------------------------------


def probed(service_url: str, topic: str) -> bool:
    """Whether a topic was found to deduplicate."""
    pool = ConnectionPool(client_options(service_url))
    try:
        probes.require_deduplication(pool, topic, "probe")
    except DeduplicationOffError:
        return False
    else:
        return True
    finally:
        pool.close()


@pytest.mark.parametrize("has_transactions", [False, True])
def test_other_clients_at_the_probe_of_deduplication(
    service_url: str,
    admin: Admin,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    has_transactions: bool,
) -> None:
    """They never get it. Where it is a marker they may wait there for the next row."""
    topic = f"persistent://{namespace}/probed"
    admin.create_topic(topic)
    admin.set_deduplication(namespace, enabled=True)
    produce(service_url, topic, [b"before"])
    if not has_transactions:

        def off(*_: object) -> None:
            raise TransactionsOffError("as on a cluster without them")

        monkeypatch.setattr(probes, "aborted_transaction", off)
    await_true(lambda: probed(service_url, topic), "the policy")
    with official.client(service_url) as one:
        reader = one.create_reader(topic, pulsar.MessageId.earliest)
        assert reader.has_message_available()
        assert reader.read_next(20_000).data() == b"before"
        # Of a marker the broker says now that it is the last message, now that not.
        assert not (has_transactions and reader.has_message_available())
        with pytest.raises(pulsar.Timeout):
            reader.read_next(_NOTHING_MS)
        produce(service_url, topic, [b"behind"])
        assert reader.read_next(20_000).data() == b"behind"
        assert not reader.has_message_available()


def test_other_clients_at_an_exactly_once_stream(
    service_url: str, admin: Admin, namespace: str
) -> None:
    """Its rows are all there is in its topic; its log holds messages as any other."""
    topic = f"persistent://{namespace}/sink"
    admin.create_partitioned(topic, PARTS)
    stream = Stream(service_url, topic)
    for batch_id in range(2):
        stream.run(batch_id)
    assert visible(service_url, topic) == stream.rows(0, 1)
    log = f"persistent://{namespace}/spark-commits-{stream.options['idempotenceId']}"
    records = [json.loads(row.value or b"") for row in read_back(service_url, log)]
    assert records[-1]["committed"] == 1
    marks = [row.value for row in read_back(service_url, f"{log}-markers")]
    assert b'[1,"query",1,0]' in marks
    with official.client(service_url) as one:
        consumer = one.subscribe(
            re.compile(f"persistent://{namespace}/.*"),
            "all",
            initial_position=pulsar.InitialPosition.Earliest,
        )
        left = {log, f"{log}-markers"}
        while left:
            left.discard(consumer.receive(20_000).topic_name())


# -- batch writes in transactions ------------------------------------------------------


def test_a_driver_that_dies_between_its_commits(
    service_url: str, sink: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some tasks' rows are visible then, and a retry of the write repeats these."""
    write = Write(service_url, sink)
    messages = [write.task(number) for number in range(3)]
    end = TransactionClient.end

    def end_one(self: TransactionClient, txns: Any, action: TxnAction) -> Any:
        end(self, list(txns)[:1], action)
        raise DiedError

    with monkeypatch.context() as patch:
        patch.setattr(TransactionClient, "end", end_one)
        with pytest.raises(DiedError):
            write.driver().commit(messages)
    for index in range(PARTS):
        produce(service_url, f"{sink}-partition-{index}", [b"behind"])
    assert visible(service_url, sink) == write.rows(1)
    # What the coordinator does after `transactionTimeoutMs`.
    left = [message.result.txn for message in messages[1:]]
    assert set(write.client.end(left, TxnAction.ABORT).values()) == {None}
    behind = Counter(behind=PARTS)
    assert visible(service_url, sink) == write.rows(1) + behind
    again = Write(service_url, sink)
    again.driver().commit([again.task(number) for number in range(3)])
    assert visible(service_url, sink) == write.rows(1) + behind + write.rows(3)
    check_free(service_url, sink)


@pytest.mark.parametrize("timeout_ms", [600_000, 1000])
def test_a_copy_of_a_task_that_does_not_count(
    service_url: str, sink: str, timeout_ms: int
) -> None:
    """Nothing of it is ever seen; but readers wait until its transaction expires."""
    write = Write(service_url, sink, transactionTimeoutMs="600000")
    copy = Write(service_url, sink, transactionTimeoutMs=str(timeout_ms)).task(0)
    write.driver().commit([write.task(0), write.task(1)])
    topic = next(iter(copy.result.written.entries))
    if timeout_ms == 600_000:
        produce(service_url, topic, [b"behind"])
        assert not is_over(write.client, copy.result.txn, topic)
        assert visible(service_url, sink) < write.rows(2)
    else:
        await_true(lambda: visible(service_url, sink) == write.rows(2), "all rows")
        check_free(service_url, sink)


# -- chunks ----------------------------------------------------------------------------


@pytest.mark.parametrize("deduplication", [False, True], ids=["plain", "deduplicated"])
@pytest.mark.parametrize("heard", [False, True], ids=["all again", "the rest"])
def test_chunks_that_lie_in_two_ledgers(
    service_url: str,
    admin: Admin,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    deduplication: bool,
    heard: bool,
) -> None:
    """The topic moves between them: the row is there, or the task is to run again.

    A broker that deduplicates drops the last chunk then: it counts those that it finds
    when it loads the topic as if they were the row.
    """
    topic = f"persistent://{namespace}/chunks"
    admin.create_topic(topic)
    if deduplication:
        admin.set_deduplication(namespace, enabled=True)
        await_true(lambda: probed(service_url, topic), "the policy")
    options = parse_write_options(
        {
            "service.url": service_url,
            "topic": topic,
            "pulsar.producer.chunkingEnabled": "true",
            "pulsar.producer.chunkMaxMessageSize": "10000",
            "pulsar.producer.batchingEnabled": "false",
        },
        streaming=False,
    )
    value = os.urandom(29_000)
    count = admin.internal_stats(topic)["numberOfEntries"]
    send_all, receipts = Connection.send_all, Attachment.receipts
    moved: list[bool] = []

    def send_two(self: Connection, frames: Sequence[bytes]) -> None:
        if len(frames) != 3 or moved:
            send_all(self, frames)
            return
        moved.append(False)
        send_all(self, frames[:2])
        # Not msgInCounter: it counts what has come, before it is stored.
        await_true(
            lambda: admin.internal_stats(topic)["numberOfEntries"] == count + 2,
            "two chunks in the ledger",
        )
        admin.unload(topic)
        moved[:] = [True]

    def hear(self: Attachment, some: Any) -> None:
        if heard or moved != [False]:
            receipts(self, some)

    monkeypatch.setattr(Connection, "send_all", send_two)
    monkeypatch.setattr(Attachment, "receipts", hear)
    targets = {TopicName.parse(topic): [topic]}
    rows = [pa.record_batch({"value": [value]})]
    if deduplication:
        with pytest.raises(InDoubtError, match="dropped a chunk"):
            TaskWriter(options, Task(0), targets).write(rows)
    assert TaskWriter(options, Task(0), targets).write(rows).rows == 1
    produce(service_url, topic, [b"behind"])
    stored = admin.internal_stats(topic)
    first_ledger = stored["ledgers"][0]
    assert first_ledger["entries"] == count + 2, stored
    found = reading.read(service_url, {"topic": topic})
    assert [row.value for row in found] == [value, b"behind"]
    assert found[0].message_id[0] > first_ledger["ledgerId"]
    # Clients that are built on the C++ one give up a row of which a chunk comes again.
    is_whole = heard or deduplication
    theirs = [row.value for row in read_back(service_url, topic)]
    assert theirs == ([value] if is_whole else []) + [b"behind"]


# -- what brokers forget ---------------------------------------------------------------


def test_what_brokers_remember_by_default(admin: Admin) -> None:
    """The figures that docs/guarantees.md names."""
    settings = admin.configuration()
    assert settings["brokerDeduplicationProducerInactivityTimeoutMinutes"] == "360"
    assert settings["brokerDeduplicationMaxNumberOfProducers"] == "10000"


@pytest.fixture(scope="module")
def forgetful() -> Iterator[EmbeddedBroker]:
    """A broker that remembers two producers, for a minute, and looks often."""
    settings = {
        "brokerDeduplicationEnabled": "true",
        "brokerDeduplicationMaxNumberOfProducers": "2",
        "brokerDeduplicationEntriesInterval": "1",
        "brokerDeduplicationProducerInactivityTimeoutMinutes": "1",
        "messageExpiryCheckIntervalInMinutes": "1",
        "subscriptionExpiryCheckIntervalInMinutes": "1",
        "backlogQuotaCheckIntervalInSeconds": "1",
        "preciseTimeBasedBacklogQuotaCheck": "true",
    }
    with EmbeddedBroker(settings=settings) as broker:
        yield broker


def write_once(service_url: str, topic: str, name: str) -> None:
    """An idempotent write of one task and one row, whose id is its value."""
    given = {
        "service.url": service_url,
        "topic": topic,
        "deliveryGuarantee": "idempotent",
        "idempotenceId": name,
    }
    options = parse_write_options(given, streaming=False)
    targets = {TopicName.parse(topic): [topic]}
    rows = [pa.record_batch({"value": [name.encode()]})]
    TaskWriter(options, Task(0), targets).write(rows)


def values(service_url: str, topic: str) -> Counter[str]:
    """How often each value is in a topic without partitions."""
    return Counter((row.value or b"").decode() for row in read_back(service_url, topic))


NAMES = [f"name-{number}" for number in range(8)]


def repeat_all(service_url: str, admin: Admin, topic: str) -> Counter[str]:
    """Write under many names, twice, and load the topic anew between."""
    for _ in range(2):
        for name in NAMES:
            write_once(service_url, topic, name)
        admin.unload(topic)
    return values(service_url, topic)


def test_few_names_are_remembered(
    service_url: str, admin: Admin, namespace: str
) -> None:
    """As many as the broker remembers: what is repeated after a restart adds nothing.

    "Restart" stands for all that loads a topic anew.
    """
    topic = f"persistent://{namespace}/names"
    admin.create_topic(topic)
    admin.set_deduplication(namespace, enabled=True)
    await_true(lambda: probed(service_url, topic), "the policy")
    assert repeat_all(service_url, admin, topic) == Counter(NAMES)


@pytest.mark.slow
def test_many_names_fall_out_of_memory(forgetful: EmbeddedBroker) -> None:
    """More than it remembers: some rows are there twice."""
    admin = Admin(forgetful.admin_url)
    admin.create_namespace("public/names", keep=True)
    topic = "persistent://public/names/names"
    admin.create_topic(topic)
    found = repeat_all(forgetful.service_url, admin, topic)
    assert found > Counter(NAMES)
    assert set(found.values()) <= {1, 2}


@pytest.mark.soak
@pytest.mark.slow
def test_a_name_is_forgotten_when_it_was_not_used(forgetful: EmbeddedBroker) -> None:
    """What is repeated later than that is there twice."""
    admin = Admin(forgetful.admin_url)
    topic = "persistent://public/default/unused"
    admin.create_topic(topic)

    def remembered() -> bool:
        cursor = admin.internal_stats(topic)["cursors"]["pulsar.dedup"]
        return "name-0" in cursor["properties"]

    for _ in range(2):
        write_once(forgetful.service_url, topic, "name")
    assert values(forgetful.service_url, topic) == Counter(["name"])
    await_true(remembered, "a snapshot")
    await_true(lambda: not remembered(), "forgetting", timeout=300.0)
    write_once(forgetful.service_url, topic, "name")
    assert values(forgetful.service_url, topic) == Counter(["name", "name"])


#: What would take messages, or the subscription, of a paused query, and its policy.
EXPIRIES: dict[str, tuple[str, Any]] = {
    "ttl": ("messageTTL", 1),
    "subscription": ("subscriptionExpirationTime", 1),
    "eviction": (
        "backlogQuota?backlogQuotaType=message_age",
        # Of this nine tenths count, in whole seconds.
        {"limitTime": 2, "policy": "consumer_backlog_eviction"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [
        # Brokers look for what has expired once a minute.
        pytest.param(kind, marks=() if kind == "eviction" else pytest.mark.soak)
        for kind in EXPIRIES
    ],
)
def test_a_paused_query_is_forgotten(forgetful: EmbeddedBroker, kind: str) -> None:
    """Where its log may expire: it writes its last micro-batch again."""
    admin, url = Admin(forgetful.admin_url), forgetful.service_url
    for namespace, keep in ((f"public/{kind}", False), (f"public/{kind}-sink", True)):
        admin.create_namespace(namespace, keep=keep)
    topic = f"persistent://public/{kind}-sink/sink"
    admin.create_partitioned(topic, PARTS)
    log = f"persistent://public/{kind}/log"
    stream = Stream(url, topic, commitTopic=log)
    for batch_id in range(2):
        stream.run(batch_id)
    assert left_in(admin, log) > 0
    admin.set_policy(f"public/{kind}", *EXPIRIES[kind])
    await_true(lambda: not left_in(admin, log), kind, timeout=400.0)
    # What nobody asks for goes with its ledger.
    admin.unload(log)
    admin.lookup(log)
    await_true(lambda: not admin.internal_stats(log)["numberOfEntries"], "trimming")
    stream.run(1)
    assert visible(url, topic) == stream.rows(0, 1, 1)


def left_in(admin: Admin, log: str) -> int:
    """How many messages of a log its subscription keeps."""
    subscription = admin.stats(log)["subscriptions"].get("spark-pulsar-commits")
    return int(subscription["msgBacklog"]) if subscription else 0


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["producer_exception", "producer_request_hold"])
def test_a_quota_that_holds_producers_back(
    forgetful: EmbeddedBroker, policy: str
) -> None:
    """The query ends with an error that names the quota, and the next run is exact."""
    admin, url = Admin(forgetful.admin_url), forgetful.service_url
    namespace = f"public/{policy}"
    admin.create_namespace(namespace, keep=True)
    topic = f"persistent://{namespace}/sink"
    admin.create_partitioned(topic, PARTS)
    stream = Stream(
        url,
        topic,
        **{
            "pulsar.client.operationTimeoutMs": "1000",
            "pulsar.client.keepAliveIntervalSeconds": "1",
        },
    )
    stream.run(0)
    call = "backlogQuota?backlogQuotaType=message_age"
    admin.set_policy(namespace, call, {"limitTime": 1, "policy": policy})
    errors: list[PulsarSparkError] = []

    def is_held_back() -> bool:
        try:
            stream.plan()
        except PulsarSparkError as error:
            errors.append(error)
        return bool(errors)

    await_true(is_held_back, "the quota")
    assert isinstance(errors[0], BrokerError)
    assert "raise the quota" in str(errors[0])
    admin.set_policy(namespace, call, {"limitTime": 1_000_000, "policy": policy})
    done: list[bool] = []

    def goes_on() -> bool:
        try:
            stream.run(1)
        except PulsarSparkError:
            return False
        done.append(True)
        return True

    await_true(goes_on, "the end of the quota")
    assert visible(url, topic) == stream.rows(0, 1)


def test_a_log_with_partitions(service_url: str, admin: Admin, namespace: str) -> None:
    """Where brokers create no topics it is an error; nothing is written."""
    topic, log = (f"persistent://{namespace}/{name}" for name in ("sink", "log"))
    policy = {"allowAutoTopicCreation": False}
    admin.set_policy(namespace, "autoTopicCreation", policy)
    for name in (topic, log, f"{log}-markers"):
        admin.create_partitioned(name, PARTS)
    stream = Stream(service_url, topic, commitTopic=log)
    with pytest.raises(BrokerError, match=re.escape(log)):
        stream.plan()
    assert not visible(service_url, topic)


@pytest.mark.matrix
@pytest.mark.parametrize("guarantee", ["idempotent", "exactly-once"])
def test_unloads_during_commits(
    service_url: str,
    admin: Admin,
    namespace: str,
    guarantee: str,
) -> None:
    """Each row is there once, also where a coordinator leaves a topic partition out."""
    admin.set_deduplication(namespace, enabled=guarantee == "idempotent")
    topic = f"persistent://{namespace}/unloaded"
    admin.create_partitioned(topic, PARTS)
    chosen = random.Random(1)
    written: Counter[str] = Counter()
    for number in range(50):
        rows = [f"{number}:{n}" for n in range(40)]
        given = {
            "service.url": service_url,
            "topic": topic,
            "deliveryGuarantee": guarantee,
            **({"idempotenceId": f"{number}"} if guarantee == "idempotent" else {}),
        }
        unload = threading.Timer(
            0.02 * chosen.random(), admin.unload_namespace, [namespace]
        )
        step = "before_task" if guarantee == "idempotent" else "before_commit"
        write_batch(given, [row.encode() for row in rows], **{step: unload.start})
        join(unload, "the unload")
        written.update(rows)
    assert visible(service_url, topic) == written
