# SPDX-License-Identifier: Apache-2.0
"""The options of a write: where to, and how."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace

from pulsar_spark.errors import OptionError
from pulsar_spark.options import names
from pulsar_spark.options.client import (
    TOPIC,
    ClientOptions,
    client_options,
)
from pulsar_spark.options.encryption import EncryptionOptions, check_encryption
from pulsar_spark.options.failover import NAME as FAILOVER
from pulsar_spark.options.values import JSON_BYTES, TIME_ZONE
from pulsar_spark.topics import TopicName
from spark_topics.options.given import Given
from spark_topics.options.of_spark import QUERY_NAME
from spark_topics.options.spec import OptionSpec, Scope, option, set_by
from spark_topics.options.values import (
    DAY_S,
    MAX_INT,
    MICRO,
    MILLI,
    boolean,
    choice,
    integer,
    limit,
    plain_text,
    properties,
    seconds,
    size,
    word,
)


class DeliveryGuarantee(enum.Enum):
    """What a write promises about each row."""

    #: Sent once; what a broken connection swallows is lost.
    NONE = "none"
    #: Stored, perhaps more than once where a task or a micro-batch is repeated.
    AT_LEAST_ONCE = "at-least-once"
    #: Stored once: brokers drop what a repeated task sends again, in the same order.
    IDEMPOTENT = "idempotent"
    #: Visible once, and together with its micro-batch or its batch write.
    EXACTLY_ONCE = "exactly-once"


_routing_mode = choice(
    {
        "RoundRobinPartition": "RoundRobinPartition",
        "SinglePartition": "SinglePartition",
    },
    {"RoundRobin": "RoundRobinPartition"},
)


#: Schemas that values can be written with. The names of primitives are Pulsar's.
SCHEMA_TYPES = (
    "auto",
    "bytes",
    "string",
    "json",
    "avro",
    "key_value",
    "int8",
    "int16",
    "int32",
    "int64",
    "float",
    "double",
    "boolean",
    "date",
    "time",
    "timestamp",
    "instant",
    "local_date",
    "local_time",
    "local_date_time",
)


def _message_routing_mode(text: str, option: str) -> str:
    """Read how Java's producers route, but for routers that are Java classes."""
    if text.strip().lower() == "custompartition":
        raise OptionError(
            f"{option} cannot be CustomPartition: name the partition of each row in the"
            " column __partition."
        )
    return _routing_mode(text, option)


def _chunk_size(text: str, option: str) -> int:
    """Read a number of bytes, or -1 for what the broker accepts."""
    return -1 if text.strip() == "-1" else size(1, MAX_INT)(text, option)


#: Half of what there is: brokers take numbers behind the end for negative ones, and the
#: rows for duplicates.
_MOST_INITIAL_ID = 1 << 62


@dataclass(frozen=True)
class WriteOptions:
    """Where to write and how. Durations are seconds unless named otherwise."""

    client: ClientOptions
    #: Topic, or single partition, of all rows; None where each row names its own.
    topic: TopicName | None = field(default=None, metadata=set_by(TOPIC))
    guarantee: DeliveryGuarantee = option(
        "deliveryGuarantee",
        "at-least-once",
        choice({guarantee.value: guarantee for guarantee in DeliveryGuarantee}),
        Scope.WRITE,
        "`none`, `at-least-once`, `idempotent` or `exactly-once`.",
    )
    #: What names of producers, and of the log of commits, are made from; the same for
    #: every run of one stream. None where the guarantee needs none, or no option says
    #: it: then an idempotent stream has the id of its query, and a batch write a new
    #: one. An exactly-once stream always has one here.
    idempotence_id: str | None = option(
        "idempotenceId",
        None,
        names.idempotence_id,
        Scope.WRITE,
        "What an `idempotent` or `exactly-once` write is known by, the same in every"
        " run. Without it an `exactly-once` stream makes one from"
        " `checkpointLocation`, and an `idempotent` batch write is a new one each time."
        " An `idempotent` stream adds the query's id. An `exactly-once` batch write has"
        " no id: it cannot be repeated.",
    )
    #: An id that is made from where an idempotent stream has its checkpoint; None if no
    #: option says that. Only the log of a scalable topic goes by it.
    checkpoint_id: str | None = None
    transaction_timeout_ms: int = option(
        "transactionTimeoutMs",
        "600000",
        integer(1000, 7 * DAY_S * 1000),
        Scope.WRITE,
        "Age at which brokers abort an open transaction of an `exactly-once` write, or"
        " of an `idempotent` one to a scalable topic, in milliseconds.",
    )
    commit_topic: TopicName | None = option(
        "commitTopic",
        None,
        names.other_topic,
        Scope.STREAM_WRITE,
        "Topic in which an `exactly-once` stream keeps its log of commits, instead of"
        " one named after `idempotenceId`.",
    )
    schema_type: str = option(
        "schemaType",
        "auto",
        word(*SCHEMA_TYPES),
        Scope.WRITE,
        "What values are written as: `auto`, by the topic's schema or else by the"
        " columns; `bytes`, whatever schema the topic has; or one of "
        + ", ".join(f"`{name}`" for name in SCHEMA_TYPES[2:])
        + ". See [Typed topics](writing.md#typed-topics).",
    )
    schema_topic: TopicName | None = option(
        "schemaTopic",
        None,
        names.other_topic,
        Scope.WRITE,
        "Topic of the same cluster whose latest schema the topic gets, byte for byte,"
        " and values are written by. See [Copies of"
        " topics](writing.md#copies-of-topics).",
    )
    key_value_encoding: str = option(
        "keyValueEncodingType",
        "INLINE",
        word("INLINE", "SEPARATED"),
        Scope.WRITE,
        "Where a new `key_value` schema has its keys: `INLINE`, in the value, or"
        " `SEPARATED`, as keys of the messages.",
    )
    json_bytes: str = field(default="", metadata=set_by(JSON_BYTES))
    time_zone: str = field(default="UTC", metadata=set_by(TIME_ZONE))
    topic_auto_creation: bool = option(
        "topicAutoCreation",
        "true",
        boolean,
        Scope.WRITE,
        "Whether a topic that does not exist is left to the broker's policy, which may"
        " create it; with `false` it is an error.",
    )
    batching_enabled: bool = option(
        "pulsar.producer.batchingEnabled",
        "true",
        boolean,
        Scope.WRITE,
        "Whether an entry may hold several messages.",
    )
    batching_max_publish_delay_s: float = option(
        "pulsar.producer.batchingMaxPublishDelayMicros",
        "1000",
        seconds(MICRO, DAY_S),
        Scope.WRITE,
        "Longest wait of a message for others, in microseconds.",
    )
    batching_max_messages: int = option(
        "pulsar.producer.batchingMaxMessages",
        "1000",
        limit(integer(1, MAX_INT), MAX_INT),
        Scope.WRITE,
        "Most messages of an entry; 0 for no limit.",
    )
    batching_max_bytes: int = option(
        "pulsar.producer.batchingMaxBytes",
        "131072",
        limit(size(1, MAX_INT), MAX_INT),
        Scope.WRITE,
        "Bytes of messages, uncompressed, after which an entry takes no more; 0 for as"
        " many as the broker accepts.",
    )
    key_based_batching: bool = option(
        "pulsar.producer.batcherBuilder",
        "DEFAULT",
        choice({"DEFAULT": False, "KEY_BASED": True}, {"KeyBased": True}),
        Scope.WRITE,
        "`KEY_BASED` puts only messages of one key into an entry, as subscriptions of"
        " the type Key_Shared need; `DEFAULT` mixes them.",
        "pulsar.producer.batchingType",
    )
    compression_type: str = option(
        "pulsar.producer.compressionType",
        "NONE",
        word("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"),
        Scope.WRITE,
        "`NONE`, `LZ4`, `ZLIB`, `ZSTD` or `SNAPPY`.",
    )
    chunking_enabled: bool = option(
        "pulsar.producer.chunkingEnabled",
        "false",
        boolean,
        Scope.WRITE,
        "Whether a row too large for an entry is sent in chunks; else it is an error.",
    )
    chunk_max_message_size: int = option(
        "pulsar.producer.chunkMaxMessageSize",
        "-1",
        _chunk_size,
        Scope.WRITE,
        "Most bytes of a chunk, and of a batch where rows may be sent in chunks; -1 "
        "for as many as the broker accepts.",
    )
    send_timeout_s: float = option(
        "pulsar.producer.sendTimeoutMs",
        "30000",
        seconds(MILLI, DAY_S, minimum=0),
        Scope.WRITE,
        "Longest wait for the broker's receipt of an entry, in milliseconds; 0 for no"
        " limit.",
    )
    hashing_scheme: str = option(
        "pulsar.producer.hashingScheme",
        "JavaStringHash",
        word("JavaStringHash", "Murmur3_32Hash", "BoostHash"),
        Scope.WRITE,
        "`JavaStringHash`, `Murmur3_32Hash` or `BoostHash`: what chooses the partition"
        " of a row that has a key. `BoostHash` is the default of the C++, Python and"
        " Node.js clients (C++ 3.5 and newer, as 64-bit machines have it).",
    )
    message_routing_mode: str = option(
        "pulsar.producer.messageRoutingMode",
        "RoundRobinPartition",
        _message_routing_mode,
        Scope.WRITE,
        "`RoundRobinPartition` or `SinglePartition`: where rows without a key go.",
    )
    access_mode: str = option(
        "pulsar.producer.accessMode",
        "Shared",
        word("Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing"),
        Scope.WRITE,
        "`Shared`, `Exclusive`, `WaitForExclusive` or `ExclusiveWithFencing`. All but"
        " `Shared` admit one task at a time to a topic partition. With"
        " `ExclusiveWithFencing` the driver ends other producers of `topic` before any"
        " task does, even where the write then fails because the topic does not"
        " deduplicate. With `WaitForExclusive` a task waits ten minutes at most for its"
        " turn. It goes to the end of the queue each minute, because brokers forget the"
        " queue of a topic that moves, and if its connection breaks.",
    )
    producer_name: str | None = option(
        "pulsar.producer.producerName",
        None,
        plain_text,
        Scope.WRITE,
        "Name of the producer in topic statistics and in messages. One task at a time"
        " has it on a topic partition, and begins at a sequence id some way behind the"
        " last one, so that no two tasks have the same.",
    )
    initial_sequence_id: int | None = option(
        "pulsar.producer.initialSequenceId",
        None,
        integer(0, _MOST_INITIAL_ID),
        Scope.WRITE,
        "Sequence id before that of the first message, unless a topic that"
        " deduplicates knows a later one of `producerName`. With both, a task fails"
        " where a connection breaks over rows that such a topic may have.",
    )
    producer_properties: tuple[tuple[str, str], ...] = option(
        "pulsar.producer.properties",
        "{}",
        properties,
        Scope.WRITE,
        "Properties of the producer in topic statistics, a JSON object of strings.",
    )
    key_encoding: str = option(
        "pulsar.producer.keyEncoding",
        "text",
        word("text", "bytes"),
        Scope.WRITE,
        "How the key of a string column is sent: `text` as it is; `bytes` as base64 of"
        " its UTF-8 bytes, as the Scala connector does.",
    )
    encryption: EncryptionOptions = field(default_factory=EncryptionOptions)


#: Options that Spark itself adds to those of a stream; no field is set by them alone.
OF_SPARK = (
    OptionSpec(
        "checkpointLocation",
        None,
        names.checkpoint_id,
        Scope.STREAM_WRITE,
        "Spark's own. The default `idempotenceId` of an `exactly-once` stream is made"
        " from it, and of an `idempotent` one to a scalable topic; Spark shows it to"
        " the sink only where it is set as an option of the stream.",
    ),
    QUERY_NAME,
)

_IDENTIFIED = (DeliveryGuarantee.IDEMPOTENT, DeliveryGuarantee.EXACTLY_ONCE)


def write_options(given: Given) -> WriteOptions:
    """Parse the options of a write; problems are added to ``given``."""
    client = client_options(given)
    _check_guarantee(given)
    _check_path(given)
    topics: tuple[TopicName, ...] | None = given["topic"]
    write = given.fill(
        WriteOptions,
        client=client,
        topic=topics[0] if topics else None,
        encryption=given.fill(EncryptionOptions),
    )
    # Tasks know the id of their query, which is better: a new checkpoint has a new one.
    # But the driver, which keeps the log of an exactly-once stream, does not.
    if write.guarantee is DeliveryGuarantee.EXACTLY_ONCE and not write.idempotence_id:
        write = replace(write, idempotence_id=given["checkpointLocation"])
    if write.guarantee is DeliveryGuarantee.IDEMPOTENT:
        write = replace(write, checkpoint_id=given["checkpointLocation"])
    _check_effects(given, write)
    _check_commit_log(given, write)
    _check_repeatable(given, write)
    _check_idempotence(given, write)
    check_encryption(given, write.encryption)
    return write


def _check_guarantee(given: Given) -> None:
    """Refuse what asks for a guarantee that is not set; a mere limit is left out."""
    guarantee = given["deliveryGuarantee"]
    if guarantee not in _IDENTIFIED:
        given.leave_out("transactionTimeoutMs")
        if "idempotenceId" in given:
            given.problems.append(
                "idempotenceId needs deliveryGuarantee=idempotent, or exactly-once in a"
                f" stream: a write with {guarantee.value} goes by no id."
            )
    if guarantee is not DeliveryGuarantee.EXACTLY_ONCE and "commitTopic" in given:
        given.problems.append(
            "commitTopic needs deliveryGuarantee=exactly-once: only such a stream"
            " keeps its log of commits there."
        )


def _check_path(given: Given) -> None:
    topic = names.topic_in_path(given.path)
    is_alone = "topic" not in given
    if topic is not None and (is_alone or given["topic"] not in (None, (topic,))):
        call = "start" if given.use is Scope.STREAM_WRITE else "save"
        given.problems.append(
            names.problem_of_path(given.path, call, is_alone=is_alone)
        )


def _check_effects(given: Given, write: WriteOptions) -> None:
    """Report options that have no effect, or contradict other options."""
    if write.schema_topic is not None:
        if write.schema_type != "auto":
            given.problems.append(
                "schemaTopic and schemaType exclude each other: both say the schema of"
                " the values."
            )
        given.has_no_effect("keyValueEncodingType")
    if not write.batching_enabled:
        for name in (
            "batchingMaxPublishDelayMicros",
            "batchingMaxMessages",
            "batchingMaxBytes",
            "batcherBuilder",
        ):
            given.has_no_effect(f"pulsar.producer.{name}")
    if not write.chunking_enabled:
        given.has_no_effect("pulsar.producer.chunkMaxMessageSize")


def _check_commit_log(given: Given, write: WriteOptions) -> None:
    if (
        write.guarantee is not DeliveryGuarantee.EXACTLY_ONCE
        or given.use is not Scope.STREAM_WRITE
    ):
        return
    if not ("idempotenceId" in given or "checkpointLocation" in given):
        given.problems.append(
            "An exactly-once stream needs idempotenceId, or"
            ' .option("checkpointLocation", ...) on the stream itself: a restart finds'
            " its log of commits by it."
        )
    log, topic = write.commit_topic, write.topic
    if log is not None and log.is_scalable:
        given.problems.append(
            "commitTopic must be an ordinary topic, also where rows go to a scalable"
            " one."
        )
    elif log and topic and log.common_name == topic.common_name:
        given.problems.append(
            "commitTopic must not be topic: the log of commits is no place for rows."
        )


def _check_repeatable(given: Given, write: WriteOptions) -> None:
    if (
        write.guarantee is DeliveryGuarantee.EXACTLY_ONCE
        and given.use is not Scope.STREAM_WRITE
        and write.idempotence_id is not None
    ):
        given.problems.append(
            "idempotenceId cannot be set with deliveryGuarantee=exactly-once in a batch"
            " write, nor in foreachBatch: such a write keeps no log of its commits, so"
            " a repeat of it after it succeeded would store all rows twice. Use"
            " deliveryGuarantee=idempotent with idempotenceId, which stores nothing"
            " twice; or writeStream with exactly-once instead of foreachBatch; or leave"
            " idempotenceId out where the write is never repeated."
        )


def _check_idempotence(given: Given, write: WriteOptions) -> None:
    if write.guarantee not in _IDENTIFIED:
        return
    by = f"deliveryGuarantee={write.guarantee.value}"
    for name, why in (
        ("pulsar.producer.producerName", "such a write names its producers itself"),
        (
            "pulsar.producer.initialSequenceId",
            "such a write numbers its messages itself",
        ),
    ):
        if name in given:
            given.problems.append(f"{name} cannot be set with {by}: {why}.")
    if FAILOVER in given:
        numbers = (
            "duplicates"
            if write.guarantee is DeliveryGuarantee.IDEMPOTENT
            else "transactions"
        )
        given.problems.append(
            f"{FAILOVER} cannot be set with {by}: another cluster knows nothing of the"
            f" {numbers} of this one, and would have rows twice. Leave it out, or use"
            " deliveryGuarantee=at-least-once."
        )
    if write.guarantee is not DeliveryGuarantee.IDEMPOTENT:
        return
    if write.key_based_batching:
        given.problems.append(
            f"pulsar.producer.batcherBuilder cannot be KEY_BASED with {by}: sequence"
            " ids would not be in order."
        )
    if write.chunking_enabled:
        given.problems.append(
            f"pulsar.producer.chunkingEnabled cannot be true with {by}: chunks that are"
            " sent again would be left over."
        )
