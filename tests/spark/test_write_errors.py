# SPDX-License-Identifier: Apache-2.0
"""What a user reads when a write fails, and that nothing is stored then.

Each text holds the condition in brackets, names the thing, and says what to change, in
few lines. ``tests/arrow`` has the texts of all other rows that are refused. Spark shows
what a process of ours raises, so most tests leave Spark out: ``TestModes``,
``TestColumns`` and ``TestRows`` hold this for the driver, for a stream and for a task.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pulsar
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from pulsar_spark import PulsarDataSource
from pulsar_spark.arrow.schema import TIMESTAMP
from pulsar_spark.client.transactions import COORDINATORS
from pulsar_spark.errors import PulsarSparkError
from tests.broker.test_write import table
from tests.support import official, writes
from tests.support.scripted_broker import ScriptedBroker, refuse
from tests.support.spark_errors import expect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pulsar_spark.testing.admin import Admin

NAME = "persistent://public/default/t"
NOWHERE = "pulsar://127.0.0.1:1"
SECRET = "s3cr3t-of-the-user"

#: So that tests of what is waited for are short.
IMPATIENT = {
    "pulsar.client.operationTimeoutMs": "2000",
    "pulsar.client.keepAliveIntervalSeconds": "3",
    "pulsar.client.maxBackoffIntervalNanos": "200000000",
}


@pytest.fixture
def scripted() -> Iterator[ScriptedBroker]:
    """A broker that does what a test tells it to, with an empty topic ``t``."""
    with ScriptedBroker() as broker:
        broker.add_topic(NAME)
        yield broker


@pytest.fixture
def plain(admin: Admin, topic: str) -> str:
    """A topic without partitions that nobody wrote to."""
    admin.create_topic(topic)
    return topic


#: Some rows that can be written.
VALUES = table({"value": ["a", "b"]})


def values(spark: SparkSession) -> DataFrame:
    """The same in Spark, of one task."""
    return spark.createDataFrame([["a"], ["b"]], "value string").coalesce(1)


def lines(spark: SparkSession, folder: Path) -> DataFrame:
    """A stream of some rows that can be written."""
    (folder / "in").mkdir()
    (folder / "in" / "lines.txt").write_text("a\nb\n")
    return spark.readStream.text(str(folder / "in"))


def given(url: str, topic: str | None, **more: str) -> dict[str, str]:
    """Options; without a topic, rows name theirs."""
    return {"service.url": url, **({"topic": topic} if topic else {}), **more}


def error_of(
    rows: pa.RecordBatch, url: str, topic: str | None, **more: str
) -> PulsarSparkError:
    """The exception that Spark gets of a batch write with these options."""
    with pytest.raises(PulsarSparkError) as caught:
        writes.save(PulsarDataSource(given(url, topic, **more)), rows)
    return caught.value


def error_in_spark(
    frame: DataFrame, url: str, topic: str | None, *, mode: str = "append", **more: str
) -> Exception:
    """The exception that Spark raises then."""
    options = given(url, topic, **more)
    with pytest.raises(PySparkException) as caught:
        frame.write.format("pulsar").mode(mode).options(**options).save()
    return caught.value


def entries(admin: Admin, topic: str) -> int:
    """How many entries a topic partition ever got."""
    return int(admin.internal_stats(topic)["entriesAddedCounter"])


class TestModes:
    """No broker is asked."""

    @pytest.mark.parametrize("mode", ["ignore", "errorifexists", "default"])
    def test_spark_refuses(self, spark: SparkSession, mode: str) -> None:
        """Also the mode that a write has when none is set: Spark names append."""
        error = error_in_spark(values(spark), NOWHERE, "t", mode=mode)
        expect(error, "UNSUPPORTED_DATA_SOURCE_SAVE_MODE", '"Append"')

    def test_overwrite(self) -> None:
        """Topics only grow."""
        source = PulsarDataSource(given(NOWHERE, "t"))
        with pytest.raises(PulsarSparkError) as caught:
            source.writer(StructType().add("value", "string"), overwrite=True)
        error = caught.value
        expect(error, "[PULSAR_OPTION]", 'mode("overwrite")', 'use mode("append")')

    def test_complete(self, spark: SparkSession, tmp_path: Path) -> None:
        """Likewise for a stream that would write its whole result again and again."""
        counts = lines(spark, tmp_path).groupBy("value").count()
        stream = counts.select("value").writeStream.format("pulsar")
        options = {"service.url": NOWHERE, "topic": "t"}
        checkpoint = str(tmp_path / "checkpoint")
        stream = stream.options(**options, checkpointLocation=checkpoint)
        with pytest.raises(PySparkException) as caught:
            stream.outputMode("complete").start().processAllAvailable()
        expect(caught.value, "[PULSAR_OPTION]", 'outputMode("complete")', '"append"')


class TestColumns:
    """The driver refuses before anything is asked of a broker."""

    def test_all_problems_at_once(self, spark: SparkSession) -> None:
        """What is missing, what is unknown, and what has a wrong type."""
        schema = "__colour string, __eventTime double, __key int"
        frame = spark.createDataFrame([["red", 1.0, 2]], schema)
        expect(
            error_in_spark(frame, NOWHERE, None),
            "[PULSAR_SCHEMA]",
            "there is no column `value`",
            "set the option `topic`, or add `__topic`",
            "`__colour` cannot be written (drop it before, or set schemaType",
            "`__eventTime` is double, not timestamp or bigint (cast it before)",
            "`__key` is int, not string or binary",
            "__messageProperties",
        )


class TestRows:
    """A task refuses; nothing of the rows that came with the bad one is sent."""

    @pytest.mark.parametrize(
        ("column", "bad", "parts"),
        [
            (
                "__eventTime",
                pa.scalar(-1, TIMESTAMP),
                ("__eventTime is 1969-12-31 23:59:59.999", "1970", "NULL"),
            ),
            (
                "__partition",
                pa.scalar(5_000_000_000),
                ("__partition is no number of 32 bits",),
            ),
            (
                "__partition",
                pa.scalar(4, pa.int32()),
                ("__partition is 4, but the topic has 1",),
            ),
        ],
    )
    def test_bad_rows(
        self,
        service_url: str,
        admin: Admin,
        plain: str,
        column: str,
        bad: pa.Scalar,
        parts: tuple[str, ...],
    ) -> None:
        """The column is named, with what it holds and what it may."""
        rows = VALUES.append_column(column, pa.array([None, bad], bad.type))
        error = error_of(rows, service_url, plain)
        expect(error, "[PULSAR_BAD_ROW]", *parts)
        assert entries(admin, plain) == 0

    def test_a_row_without_topic(
        self, spark: SparkSession, service_url: str, admin: Admin, plain: str
    ) -> None:
        """Its number is said; a secret is not in what a task says."""
        schema = "value string, __topic string"
        frame = spark.createDataFrame([["a", plain], ["b", None]], schema).coalesce(1)
        secret = {"pulsar.admin.authParams": f"token:{SECRET}"}
        error = error_in_spark(frame, service_url, None, **secret)
        parts = ("Row 1 of a task", "`__topic` is NULL", "option `topic`")
        expect(error, "[PULSAR_BAD_ROW]", *parts)
        assert SECRET not in str(error)
        assert entries(admin, plain) == 0

    def test_a_row_whose_topic_is_none(
        self, service_url: str, admin: Admin, plain: str
    ) -> None:
        """What the row names instead is said."""
        rows = table({"value": ["a", "b"], "__topic": [plain, "x://y/z"]})
        secret = {"pulsar.admin.authParams": f"token:{SECRET}"}
        error = error_of(rows, service_url, None, **secret)
        expect(error, "[PULSAR_BAD_ROW]", "`__topic`", "x://y/z", "not a topic name")
        assert SECRET not in str(error)
        assert entries(admin, plain) == 0

    @pytest.mark.parametrize(
        "codec", [pytest.param("NONE", marks=pytest.mark.matrix), "ZSTD"]
    )
    def test_behind_a_row_that_is_too_large(
        self,
        service_url: str,
        admin: Admin,
        topic: str,
        codec: str,
    ) -> None:
        """Size, limit and cure; what is behind it is not sent to any partition."""
        admin.create_partitioned(topic, 2)
        noise = random.Random(3).randbytes(6_000_000)
        fits = b"0" * 6_000_000  # with a codec
        rows = table(
            {
                "value": [b"before", fits, noise, b"behind"],
                "__partition": [1, 1, 1, 0],
            }
        )
        further = {"pulsar.producer.compressionType": codec}
        error = error_of(rows, service_url, topic, **further)
        limit = str((5 << 20) - (64 << 10))
        expect(error, "[PULSAR_MESSAGE_TOO_LARGE]", f"{topic}-partition-1")
        expect(error, "[PULSAR_MESSAGE_TOO_LARGE]", "6000", limit, "maxMessageSize")
        expect(error, "[PULSAR_MESSAGE_TOO_LARGE]", "`pulsar.producer.chunkingEnabled`")
        admin.lookup(f"{topic}-partition-0")
        assert official.read_back(service_url, f"{topic}-partition-0") == []


class TestTopics:
    def test_unknown(self, service_url: str, admin: Admin, namespace: str) -> None:
        """By the option or by a row: option and settings are named; none is created."""
        name = f"persistent://{namespace}/nowhere"
        parts = (
            "[PULSAR_TOPIC_NOT_FOUND]",
            f"{name} does not exist",
            "`topicAutoCreation`",
            "allowAutoTopicCreation",
        )
        never = {"topicAutoCreation": "false"}
        expect(error_of(VALUES, service_url, name, **never), *parts)
        known = f"persistent://{namespace}/known"
        admin.create_topic(known)
        rows = table({"value": ["a", "b"], "__topic": [known, name]})
        expect(error_of(rows, service_url, None, **never), *parts)
        assert admin.topics(namespace) == [known]
        assert admin.partitioned_topics(namespace) == []
        assert entries(admin, known) == 0

    def test_unknown_to_a_strict_broker(
        self, service_url: str, admin: Admin, namespace: str
    ) -> None:
        """Where the policy is to create no topic, that is the error."""
        policy = {"allowAutoTopicCreation": False}
        admin.set_policy(namespace, "autoTopicCreation", policy)
        name = f"persistent://{namespace}/nowhere"
        error = error_of(VALUES, service_url, name)
        expect(error, "[PULSAR_TOPIC_NOT_FOUND]", name)
        assert admin.topics(namespace) == []

    def test_a_missing_partition(
        self, service_url: str, admin: Admin, topic: str
    ) -> None:
        """How many there are."""
        admin.create_partitioned(topic, 2)
        error = error_of(VALUES, service_url, f"{topic}-partition-2")
        expect(error, "[PULSAR_TOPIC_NOT_FOUND]", "has 2 partitions", "-partition-2")

    def test_terminated(self, service_url: str, admin: Admin, plain: str) -> None:
        """It takes no more rows, and there is only another topic."""
        admin.terminate(plain)
        error = error_of(VALUES, service_url, plain)
        expect(error, "[PULSAR_BROKER]", plain, "TopicTerminatedError", "another topic")

    @pytest.mark.parametrize(
        "policy",
        [
            "producer_exception",
            pytest.param("producer_request_hold", marks=pytest.mark.matrix),
        ],
    )
    def test_quota(
        self,
        service_url: str,
        admin: Admin,
        namespace: str,
        policy: str,
    ) -> None:
        """A backlog that is too large, at once or after a wait: the cures are named."""
        name = f"persistent://{namespace}/full"
        admin.create_topic(name)
        admin.create_subscription(name, "slow")
        official.produce(service_url, name, [b"x" * 1000] * 3)
        quota = {"limitSize": 100, "limitTime": -1, "policy": policy}
        admin.set_policy(namespace, "backlogQuota", quota)
        admin.unload(name)  # which learns of the policy at its own time
        error = error_of(VALUES, service_url, name, **IMPATIENT)
        expect(error, "[PULSAR_BROKER]", name, "QuotaExceeded", "backlog", "quota")
        assert len(official.read_back(service_url, name)) == 3


class TestProducers:
    def test_a_name_that_is_held(
        self, service_url: str, admin: Admin, plain: str
    ) -> None:
        """It is waited for, then the name is said, and what to do."""
        with official.client(service_url) as client:
            client.create_producer(plain, producer_name="busy")
            error = error_of(
                VALUES,
                service_url,
                plain,
                **{**IMPATIENT, "pulsar.producer.producerName": "busy"},
            )
        expect(error, "[PULSAR_BROKER]", plain, "ProducerBusy", "'busy' is held by")
        expect(error, "`pulsar.producer.producerName`", "one task at a time")
        assert entries(admin, plain) == 0

    def test_a_topic_that_is_held(
        self, service_url: str, admin: Admin, plain: str
    ) -> None:
        """Somebody else writes there alone: this is said, in both directions."""
        exclusive = pulsar.ProducerAccessMode.Exclusive
        with official.client(service_url) as client:
            client.create_producer(plain, producer_name="alone", access_mode=exclusive)
            error = error_of(VALUES, service_url, plain, **IMPATIENT)
            expect(error, "[PULSAR_BROKER]", plain, "exclusive producer: alone")
            expect(error, "`pulsar.producer.accessMode`")
            assert "''" not in str(error)
            mode = {"pulsar.producer.accessMode": "Exclusive"}
            error = error_of(VALUES, service_url, plain, **IMPATIENT, **mode)
            expect(error, "[PULSAR_BROKER]", plain, "ProducerFenced")
            expect(error, "`pulsar.producer.accessMode`")
        assert entries(admin, plain) == 0

    @pytest.mark.parametrize("request_name", ["PARTITIONED_METADATA", "PRODUCER"])
    def test_no_right(self, scripted: ScriptedBroker, request_name: str) -> None:
        """Authorization has a condition of its own; the broker's words are shown."""
        scripted.always(request_name, refuse("AuthorizationError", "not yours"))
        error = error_of(VALUES, scripted.url, "t")
        expect(error, "[PULSAR_AUTH]", NAME, "AuthorizationError", "not yours")


class TestGuarantees:
    """A promise that the cluster cannot keep is not given."""

    @pytest.mark.parametrize("by", ["topic", "__topic"])
    def test_deduplication_off(
        self, service_url: str, admin: Admin, plain: str, by: str
    ) -> None:
        """The commands that switch it on are named; consumers see nothing of it."""
        rows = table({"value": ["a"], "__topic": [plain]})
        topic = plain if by == "topic" else None
        error = error_of(rows, service_url, topic, deliveryGuarantee="idempotent")
        expect(error, "[PULSAR_DEDUPLICATION_OFF]", plain, "pulsar-admin")
        expect(error, "set-deduplication", "brokerDeduplicationEnabled=true")
        assert admin.stats(plain)["publishers"] == []
        official.produce(service_url, plain, [b"behind"])
        assert [row.value for row in official.read_back(service_url, plain)] == [
            b"behind"
        ]

    def test_a_write_that_takes_longer_than_its_transactions(
        self, spark: SparkSession, service_url: str, plain: str
    ) -> None:
        """The error is about that, not about what is taken back; nothing is visible."""
        sleep = "reflect('java.lang.Thread', 'sleep', 12000L)"
        frame = spark.range(0, 2, 1, 2).selectExpr(f"IF(id = 1, {sleep}, 'a') value")
        options = {"deliveryGuarantee": "exactly-once", "transactionTimeoutMs": "4000"}
        error = error_in_spark(frame, service_url, plain, **options)
        expect(error, "[PULSAR_TRANSACTION_LOST]", "of 2 tasks were over")
        expect(
            error, "Raise `transactionTimeoutMs`", "Nothing of this write is visible"
        )
        assert str(error).count("[PULSAR_") == 1
        official.produce(service_url, plain, [b"behind"])
        rows = official.read_back(service_url, plain)
        assert [row.value for row in rows] == [b"behind"]

    def test_before_a_micro_batch(
        self, spark: SparkSession, scripted: ScriptedBroker, tmp_path: Path
    ) -> None:
        """The last line of Spark's text is ours, though Spark pickles a writer then."""
        scripted.partitions[COORDINATORS] = 1
        scripted.always("SUBSCRIBE", refuse("AuthorizationError", "not yours"))
        stream = lines(spark, tmp_path).writeStream.format("pulsar")
        options = given(scripted.url, "t", deliveryGuarantee="exactly-once")
        checkpoint = str(tmp_path / "checkpoint")
        query = stream.options(**options, checkpointLocation=checkpoint).start()
        with pytest.raises(PySparkException) as caught:
            query.processAllAvailable()
        expect(caught.value, "[PULSAR_AUTH]", "not yours")

    def test_transactions_off(self, scripted: ScriptedBroker) -> None:
        """The broker's setting is named."""
        error = error_of(VALUES, scripted.url, "t", deliveryGuarantee="exactly-once")
        expect(error, "[PULSAR_TRANSACTIONS_OFF]", "transactionCoordinatorEnabled=true")
        assert not scripted.requests["PRODUCER"]
