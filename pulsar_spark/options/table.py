"""The one table of every option known, and what this version does with each."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pulsar_spark.options import values
from pulsar_spark.options.model import METADATA_COLUMNS_ALL, METADATA_COLUMNS_DEFAULT

_T = TypeVar("_T")


class Scope(enum.Flag):
    """Where an option has a meaning."""

    BATCH = enum.auto()
    STREAM = enum.auto()
    BATCH_WRITE = enum.auto()
    STREAM_WRITE = enum.auto()
    READ = BATCH | STREAM
    WRITE = BATCH_WRITE | STREAM_WRITE
    CLIENT = READ | WRITE


class Support(enum.Enum):
    """What this version does with an option."""

    HONOURED = "honoured"
    #: Tuning of other clients: dropping it changes no row, so one warning is enough.
    IGNORED = "accepted without effect"
    #: Dropping it would be wrong, so it is refused.
    REFUSED = "not supported yet"


@dataclass(frozen=True)
class OptionSpec(Generic[_T]):
    """One option.

    Attributes:
        name: Its spelling in documents and errors.
        default: Its default as a user would write it, "" where there is none.
        doc: One line of meaning.
        scope: Where it has a meaning.
        parse: Reads a text, given the name for errors; raises `OptionError`.
        aliases: Other names, case and dots apart.
        support: What this version does with it.
        harmless: Lower-case values of a refused option that ask for nothing.
        hint: What to do instead of setting a refused option.
    """

    name: str
    default: str
    doc: str
    scope: Scope
    parse: Callable[[str, str], _T]
    aliases: tuple[str, ...] = ()
    support: Support = Support.HONOURED
    harmless: frozenset[str] = frozenset()
    hint: str = ""

    @property
    def available(self) -> bool:
        """Whether this version does what the option asks for."""
        return self.support is Support.HONOURED

    @property
    def scope_text(self) -> str:
        """Where it has a meaning, in words."""
        return _SCOPE_TEXTS[self.scope]


_SCOPE_TEXTS = {
    Scope.BATCH: "batch read",
    Scope.STREAM: "stream read",
    Scope.READ: "read",
    Scope.STREAM_WRITE: "stream write",
    Scope.WRITE: "write",
    Scope.CLIENT: "read, write",
}


# The table: each row a constant, so that what is read from it keeps its type.

_DAY_S = 24 * 60 * 60
_MILLI = 1e-3
_MICRO = 1e-6
_NANO = 1e-9

SERVICE_URL = OptionSpec(
    "service.url",
    "",
    "Required. `pulsar://host:port`, several hosts by comma; the port is 6650 unless"
    " given.",
    Scope.CLIENT,
    values.service_url,
    ("serviceUrl", "pulsar.client.serviceUrl"),
)
TOPIC = OptionSpec(
    "topic",
    "",
    "One topic, or one partition as `topic-partition-0`. A read needs exactly one of"
    " `topic`, `topics` and `topicsPattern`. In a write it stands before the column"
    " `__topic`, and is needed without that column.",
    Scope.CLIENT,
    values.topic,
)
TOPICS = OptionSpec(
    "topics", "", "Several topics and partitions by comma.", Scope.READ, values.topics
)
TOPICS_PATTERN = OptionSpec(
    "topicsPattern",
    "",
    "A Python regular expression for whole topic names of one namespace, such as"
    " `public/default/events-.*`. Logs of exactly-once streams (`spark-commits-...`)"
    " never match; one that `commitTopic` names does.",
    Scope.READ,
    values.topics_pattern,
)
STARTING_OFFSETS = OptionSpec(
    "startingOffsets",
    "earliest",
    "First messages, inclusive: `earliest`, or JSON by topic and partition such as"
    ' `{"t":{"0":"12:3:4","1":"earliest"}}`. Also, for streams only, `latest` (their'
    " default) and `subscription`: where `predefinedSubscription` stands.",
    Scope.READ,
    values.starting_offsets,
)
ENDING_OFFSETS = OptionSpec(
    "endingOffsets",
    "latest",
    "Last messages, inclusive: `latest`, or JSON as for `startingOffsets`. `latest` is"
    " looked up once, when the read is planned.",
    Scope.BATCH,
    values.ending_offsets,
)
STARTING_TIME = OptionSpec(
    "startingTime",
    "",
    "First publish time, instead of `startingOffsets`: epoch milliseconds, ISO-8601"
    " (UTC unless it names a zone), or JSON of these by topic.",
    Scope.READ,
    values.times,
    ("startingTimestamp",),
)
ENDING_TIME = OptionSpec(
    "endingTime",
    "",
    "Last publish time, instead of `endingOffsets`; written as `startingTime`.",
    Scope.BATCH,
    values.times,
    ("endingTimestamp",),
)
STARTING_TIME_STRATEGY = OptionSpec(
    "startingTimeStrategy",
    "latest",
    "Where nothing was published since `startingTime`: `latest` reads nothing,"
    " `error` fails.",
    Scope.READ,
    values.word("latest", "error"),
    ("startingOffsetsByTimestampStrategy",),
)
FAIL_ON_DATA_LOSS = OptionSpec(
    "failOnDataLoss",
    "true",
    "Whether to fail when wanted messages are gone; else one warning, and reading goes"
    " on from the first one available.",
    Scope.READ,
    values.boolean,
)
WAITING_FOR_NON_EXISTED_TOPIC = OptionSpec(
    "waitingForNonExistedTopic",
    "false",
    "Whether to wait for a topic that does not exist, instead of failing at once.",
    Scope.READ,
    values.boolean,
)
TOPIC_WAIT_TIMEOUT_MS = OptionSpec(
    "topicWaitTimeoutMs",
    "300000",
    "Longest such wait, in milliseconds.",
    Scope.READ,
    values.seconds(_MILLI, 7 * _DAY_S, minimum=0),
)
PARTITION_DISCOVERY_INTERVAL_MS = OptionSpec(
    "partitionDiscoveryIntervalMs",
    "10000",
    "Time between two looks for new partitions, and for new topics of a"
    " `topicsPattern`, in milliseconds; 0 for a look at every planning.",
    Scope.STREAM,
    values.seconds(_MILLI, _DAY_S, minimum=0),
)
SUBSCRIPTION_PREFIX = OptionSpec(
    "subscriptionPrefix",
    "spark-pulsar",
    "Prefix of the names of subscriptions, as topic statistics show them.",
    Scope.READ,
    values.subscription_name,
)
PREDEFINED_SUBSCRIPTION = OptionSpec(
    "predefinedSubscription",
    "",
    "Name of a durable subscription to use instead of one of the stream's own; it is"
    " never deleted.",
    Scope.STREAM,
    values.subscription_name,
    ("pulsar.reader.subscriptionName",),
)
ACK_ON_COMMIT = OptionSpec(
    "ackOnCommit",
    "true",
    "Whether to acknowledge, on the subscription, what the stream has committed.",
    Scope.STREAM,
    values.boolean,
)
DELETE_SUBSCRIPTION_ON_STOP = OptionSpec(
    "deleteSubscriptionOnStop",
    "false",
    "Whether to delete the stream's own subscription when the stream stops; what a"
    " restart would read may then be removed from the topics.",
    Scope.STREAM,
    values.boolean,
)
POLL_TIMEOUT_MS = OptionSpec(
    "pollTimeoutMs",
    "120000",
    "Longest silence of a topic partition that has messages to come, in milliseconds.",
    Scope.READ,
    values.seconds(_MILLI, _DAY_S),
)
MAX_ROWS_PER_TRIGGER = OptionSpec(
    "maxRowsPerTrigger",
    "",
    "Most rows of a micro-batch, about: by averages where entries were not looked at."
    " Shared among the topic partitions by backlog.",
    Scope.STREAM,
    values.integer(1, values.MAX_LONG),
    ("maxOffsetsPerTrigger",),
)
MAX_BYTES_PER_TRIGGER = OptionSpec(
    "maxBytesPerTrigger",
    "",
    "Most bytes of a micro-batch, as stored, likewise; such as `512m`.",
    Scope.STREAM,
    values.size(1, values.MAX_LONG),
)
MIN_ROWS_PER_TRIGGER = OptionSpec(
    "minRowsPerTrigger",
    "",
    "Rows that a micro-batch waits for, at most `maxTriggerDelay`.",
    Scope.STREAM,
    values.integer(1, values.MAX_LONG),
    ("minOffsetsPerTrigger",),
)
MAX_TRIGGER_DELAY = OptionSpec(
    "maxTriggerDelay",
    "15m",
    "Longest wait for `minRowsPerTrigger`, such as `30s`, `15m` or `2h`; milliseconds"
    " without a unit.",
    Scope.STREAM,
    values.duration(max_days=365),
)
MIN_PARTITIONS = OptionSpec(
    "minPartitions",
    "",
    "Input partitions wanted at least, a hint: where topic partitions are fewer, the"
    " largest are split between entries.",
    Scope.READ,
    values.integer(1, values.MAX_INT),
)
MAX_RECORDS_PER_PARTITION = OptionSpec(
    "maxRecordsPerPartition",
    "",
    "Most rows of an input partition, a hint: by the average of a few entries, and"
    " never less than one entry.",
    Scope.READ,
    values.integer(1, values.MAX_LONG),
)
FILTER_PUSHDOWN = OptionSpec(
    "filterPushdown",
    "false",
    "Whether filters on `__partition`, `__topic` and `__publishTime` prune the plan of"
    " a batch read, one query for each `load()`: see"
    " [Filters](#filters-that-prune-the-plan). `true,10m` is for publish times that are"
    " off by up to 10 minutes; `true` alone says 5.",
    Scope.READ,
    values.filter_pushdown,
)
METADATA_COLUMNS = OptionSpec(
    "metadataColumns",
    ",".join(METADATA_COLUMNS_DEFAULT),
    "Columns beside `value`: a list, `all` or `none`. Further ones are "
    + ", ".join(f"`{name}`" for name in METADATA_COLUMNS_ALL[6:])
    + ".",
    Scope.READ,
    values.metadata_columns,
)
ROWS_PER_ARROW_BATCH = OptionSpec(
    "rowsPerArrowBatch",
    "10000",
    "Most rows handed to Spark at a time.",
    Scope.READ,
    values.integer(1, 1_000_000),
)
BYTES_PER_ARROW_BATCH = OptionSpec(
    "bytesPerArrowBatch",
    "4m",
    "Bytes after which rows are handed to Spark.",
    Scope.READ,
    values.size(1024, 1 << 30),
)
RECEIVER_QUEUE_SIZE = OptionSpec(
    "pulsar.reader.receiverQueueSize",
    "10000",
    "Messages asked for ahead, for each topic partition; bounded in bytes by"
    " `pulsar.client.memoryLimitBytes`, too.",
    Scope.READ,
    values.integer(1, 1_000_000),
)
READ_COMPACTED = OptionSpec(
    "pulsar.reader.readCompacted",
    "false",
    "Whether to read only the last message of each key, where a topic is compacted.",
    Scope.READ,
    values.boolean,
)
READER_NAME = OptionSpec(
    "pulsar.reader.readerName",
    "",
    "Name of the reader in topic statistics.",
    Scope.READ,
    values.plain_text,
)
SUBSCRIPTION_ROLE_PREFIX = OptionSpec(
    "pulsar.reader.subscriptionRolePrefix",
    "",
    "Prefix of the reader's own subscription name, instead of `subscriptionPrefix`.",
    Scope.READ,
    values.plain_text,
)
MAX_PENDING_CHUNKED_MESSAGE = OptionSpec(
    "pulsar.reader.maxPendingChunkedMessage",
    "10",
    "Most chunked messages put together at a time, for each topic partition.",
    Scope.READ,
    values.integer(1, 10_000),
)
EXPIRE_INCOMPLETE_CHUNK = OptionSpec(
    "pulsar.reader.expireTimeOfIncompleteChunkedMessageMillis",
    "60000",
    "Age at which an incomplete chunked message is given up, in milliseconds; 0 for"
    " never.",
    Scope.READ,
    values.seconds(_MILLI, 7 * _DAY_S, minimum=0),
)
DELIVERY_GUARANTEE = OptionSpec(
    "deliveryGuarantee",
    "at-least-once",
    "`none`, `at-least-once`, `idempotent` or `exactly-once`.",
    Scope.WRITE,
    values.delivery_guarantee,
)
IDEMPOTENCE_ID = OptionSpec(
    "idempotenceId",
    "",
    "What an `idempotent` or `exactly-once` write is known by, the same in every run."
    " Without it an `exactly-once` stream makes one from `checkpointLocation`, and a"
    " batch write is a new one each time. An `idempotent` stream adds the query's id.",
    Scope.WRITE,
    values.idempotence_id,
)
TRANSACTION_TIMEOUT_MS = OptionSpec(
    "transactionTimeoutMs",
    "600000",
    "Age at which brokers abort an open transaction of an `exactly-once` write, in"
    " milliseconds.",
    Scope.WRITE,
    values.integer(1000, 7 * _DAY_S * 1000),
)
COMMIT_TOPIC = OptionSpec(
    "commitTopic",
    "",
    "Topic in which an `exactly-once` stream keeps its log of commits, instead of one"
    " named after `idempotenceId`.",
    Scope.STREAM_WRITE,
    values.commit_topic,
)
TOPIC_AUTO_CREATION = OptionSpec(
    "topicAutoCreation",
    "true",
    "Whether a topic that does not exist is left to the broker's policy, which may"
    " create it; with `false` it is an error.",
    Scope.WRITE,
    values.boolean,
)
BATCHING_ENABLED = OptionSpec(
    "pulsar.producer.batchingEnabled",
    "true",
    "Whether an entry may hold several messages.",
    Scope.WRITE,
    values.boolean,
)
BATCHING_MAX_PUBLISH_DELAY_MICROS = OptionSpec(
    "pulsar.producer.batchingMaxPublishDelayMicros",
    "1000",
    "Longest wait of a message for others, in microseconds.",
    Scope.WRITE,
    values.seconds(_MICRO, _DAY_S),
)
BATCHING_MAX_MESSAGES = OptionSpec(
    "pulsar.producer.batchingMaxMessages",
    "1000",
    "Most messages of an entry.",
    Scope.WRITE,
    values.integer(1, values.MAX_INT),
)
BATCHING_MAX_BYTES = OptionSpec(
    "pulsar.producer.batchingMaxBytes",
    "131072",
    "Bytes of messages, uncompressed, after which an entry takes no more.",
    Scope.WRITE,
    values.size(1, values.MAX_INT),
)
BATCHER_BUILDER = OptionSpec(
    "pulsar.producer.batcherBuilder",
    "DEFAULT",
    "`KEY_BASED` puts only messages of one key into an entry, as subscriptions of the"
    " type Key_Shared need; `DEFAULT` mixes them.",
    Scope.WRITE,
    values.word("DEFAULT", "KEY_BASED", others={"KeyBased": "KEY_BASED"}),
    ("pulsar.producer.batchingType",),
)
COMPRESSION_TYPE = OptionSpec(
    "pulsar.producer.compressionType",
    "NONE",
    "`NONE`, `LZ4`, `ZLIB`, `ZSTD` or `SNAPPY`.",
    Scope.WRITE,
    values.word("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"),
)
CHUNKING_ENABLED = OptionSpec(
    "pulsar.producer.chunkingEnabled",
    "false",
    "Whether a row too large for an entry is sent in chunks; else it is an error.",
    Scope.WRITE,
    values.boolean,
)
CHUNK_MAX_MESSAGE_SIZE = OptionSpec(
    "pulsar.producer.chunkMaxMessageSize",
    "-1",
    "Most bytes of a chunk; -1 for as many as the broker accepts.",
    Scope.WRITE,
    values.chunk_size,
)
SEND_TIMEOUT_MS = OptionSpec(
    "pulsar.producer.sendTimeoutMs",
    "30000",
    "Longest wait for the broker's receipt of an entry, in milliseconds; 0 for no"
    " limit.",
    Scope.WRITE,
    values.seconds(_MILLI, _DAY_S, minimum=0),
)
HASHING_SCHEME = OptionSpec(
    "pulsar.producer.hashingScheme",
    "JavaStringHash",
    "`JavaStringHash` or `Murmur3_32Hash`: what chooses the partition of a row that"
    " has a key.",
    Scope.WRITE,
    values.word("JavaStringHash", "Murmur3_32Hash"),
)
MESSAGE_ROUTING_MODE = OptionSpec(
    "pulsar.producer.messageRoutingMode",
    "RoundRobinPartition",
    "`RoundRobinPartition` or `SinglePartition`: where rows without a key go.",
    Scope.WRITE,
    values.message_routing_mode,
)
ACCESS_MODE = OptionSpec(
    "pulsar.producer.accessMode",
    "Shared",
    "`Shared`, `Exclusive`, `WaitForExclusive` or `ExclusiveWithFencing`. All but"
    " `Shared` admit one task at a time to a topic partition. With `WaitForExclusive` a"
    " task waits ten minutes at most for its turn. It goes to the end of the queue each"
    " minute, because brokers forget the queue of a topic that moves, and if its"
    " connection breaks.",
    Scope.WRITE,
    values.word("Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing"),
)
PRODUCER_NAME = OptionSpec(
    "pulsar.producer.producerName",
    "",
    "Name of the producer in topic statistics and in messages.",
    Scope.WRITE,
    values.plain_text,
)
INITIAL_SEQUENCE_ID = OptionSpec(
    "pulsar.producer.initialSequenceId",
    "",
    "Sequence id before that of the first message.",
    Scope.WRITE,
    values.integer(0, values.MAX_LONG),
)
PROPERTIES = OptionSpec(
    "pulsar.producer.properties",
    "{}",
    "Properties of the producer in topic statistics, a JSON object of strings.",
    Scope.WRITE,
    values.properties,
)
KEY_ENCODING = OptionSpec(
    "pulsar.producer.keyEncoding",
    "text",
    "How the key of a string column is sent: `text` as it is; `bytes` as base64 of its"
    " UTF-8 bytes, as the Scala connector does.",
    Scope.WRITE,
    values.word("text", "bytes"),
)
CHECKPOINT_LOCATION = OptionSpec(
    "checkpointLocation",
    "",
    "Spark's own. The default `idempotenceId` of an `exactly-once` stream is made from"
    " it; Spark shows it to the sink only where it is set as an option of the stream.",
    Scope.STREAM_WRITE,
    values.checkpoint_id,
)
QUERY_NAME = OptionSpec(
    "queryName",
    "",
    "Spark's own, which `queryName(...)` sets. It changes no row.",
    Scope.STREAM_WRITE,
    values.plain_text,
)
OPERATION_TIMEOUT_MS = OptionSpec(
    "pulsar.client.operationTimeoutMs",
    "30000",
    "Longest wait for the answer to a request, in milliseconds.",
    Scope.CLIENT,
    values.seconds(_MILLI, _DAY_S),
)
CONNECTION_TIMEOUT_MS = OptionSpec(
    "pulsar.client.connectionTimeoutMs",
    "10000",
    "Longest wait for a connection, in milliseconds.",
    Scope.CLIENT,
    values.seconds(_MILLI, _DAY_S),
)
LOOKUP_TIMEOUT_MS = OptionSpec(
    "pulsar.client.lookupTimeoutMs",
    "30000",
    "Longest wait for the lookup of a topic, in milliseconds.",
    Scope.CLIENT,
    values.seconds(_MILLI, _DAY_S),
)
KEEP_ALIVE_INTERVAL_SECONDS = OptionSpec(
    "pulsar.client.keepAliveIntervalSeconds",
    "30",
    "Silence after which a connection is probed.",
    Scope.CLIENT,
    values.seconds(1, _DAY_S),
)
INITIAL_BACKOFF_INTERVAL_NANOS = OptionSpec(
    "pulsar.client.initialBackoffIntervalNanos",
    "100000000",
    "Pause before the first retry, in nanoseconds.",
    Scope.CLIENT,
    values.seconds(_NANO, _DAY_S),
)
MAX_BACKOFF_INTERVAL_NANOS = OptionSpec(
    "pulsar.client.maxBackoffIntervalNanos",
    "60000000000",
    "Longest pause between two retries, in nanoseconds.",
    Scope.CLIENT,
    values.seconds(_NANO, _DAY_S),
)
MAX_LOOKUP_REDIRECTS = OptionSpec(
    "pulsar.client.maxLookupRedirects",
    "20",
    "Most redirects of one lookup.",
    Scope.CLIENT,
    values.integer(0, 1000),
)
MEMORY_LIMIT_BYTES = OptionSpec(
    "pulsar.client.memoryLimitBytes",
    "64m",
    "Bytes of messages that one Python worker may hold.",
    Scope.CLIENT,
    values.size(1 << 20, 1 << 40),
)
STATS_INTERVAL_SECONDS = OptionSpec(
    "pulsar.client.statsIntervalSeconds",
    "60",
    "Seconds between two lines of statistics of a task; 0 for none, and for no line "
    "about a whole write: see [Statistics](#statistics).",
    Scope.CLIENT,
    values.seconds(1, _DAY_S, minimum=0),
)
LISTENER_NAME = OptionSpec(
    "pulsar.client.listenerName",
    "",
    "Advertised listener whose addresses brokers are asked for.",
    Scope.CLIENT,
    values.plain_text,
)

_HONOURED: tuple[OptionSpec[Any], ...] = (
    SERVICE_URL,
    TOPIC,
    TOPICS,
    TOPICS_PATTERN,
    STARTING_OFFSETS,
    ENDING_OFFSETS,
    STARTING_TIME,
    ENDING_TIME,
    STARTING_TIME_STRATEGY,
    FAIL_ON_DATA_LOSS,
    WAITING_FOR_NON_EXISTED_TOPIC,
    TOPIC_WAIT_TIMEOUT_MS,
    PARTITION_DISCOVERY_INTERVAL_MS,
    POLL_TIMEOUT_MS,
    MAX_ROWS_PER_TRIGGER,
    MAX_BYTES_PER_TRIGGER,
    MIN_ROWS_PER_TRIGGER,
    MAX_TRIGGER_DELAY,
    MIN_PARTITIONS,
    MAX_RECORDS_PER_PARTITION,
    FILTER_PUSHDOWN,
    METADATA_COLUMNS,
    ROWS_PER_ARROW_BATCH,
    BYTES_PER_ARROW_BATCH,
    SUBSCRIPTION_PREFIX,
    PREDEFINED_SUBSCRIPTION,
    ACK_ON_COMMIT,
    DELETE_SUBSCRIPTION_ON_STOP,
    RECEIVER_QUEUE_SIZE,
    READ_COMPACTED,
    READER_NAME,
    SUBSCRIPTION_ROLE_PREFIX,
    MAX_PENDING_CHUNKED_MESSAGE,
    EXPIRE_INCOMPLETE_CHUNK,
    DELIVERY_GUARANTEE,
    IDEMPOTENCE_ID,
    TRANSACTION_TIMEOUT_MS,
    COMMIT_TOPIC,
    TOPIC_AUTO_CREATION,
    BATCHING_ENABLED,
    BATCHING_MAX_PUBLISH_DELAY_MICROS,
    BATCHING_MAX_MESSAGES,
    BATCHING_MAX_BYTES,
    BATCHER_BUILDER,
    COMPRESSION_TYPE,
    CHUNKING_ENABLED,
    CHUNK_MAX_MESSAGE_SIZE,
    SEND_TIMEOUT_MS,
    HASHING_SCHEME,
    MESSAGE_ROUTING_MODE,
    ACCESS_MODE,
    PRODUCER_NAME,
    INITIAL_SEQUENCE_ID,
    PROPERTIES,
    KEY_ENCODING,
    CHECKPOINT_LOCATION,
    QUERY_NAME,
    OPERATION_TIMEOUT_MS,
    CONNECTION_TIMEOUT_MS,
    LOOKUP_TIMEOUT_MS,
    KEEP_ALIVE_INTERVAL_SECONDS,
    INITIAL_BACKOFF_INTERVAL_NANOS,
    MAX_BACKOFF_INTERVAL_NANOS,
    MAX_LOOKUP_REDIRECTS,
    MEMORY_LIMIT_BYTES,
    STATS_INTERVAL_SECONDS,
    LISTENER_NAME,
)


def _others(
    names: str,
    scope: Scope,
    support: Support,
    *,
    prefix: str = "",
    aliases: tuple[str, ...] = (),
    harmless: Iterable[str] = (),
    hint: str = "",
) -> tuple[OptionSpec[Any], ...]:
    """Rows for options that are only known by name."""
    return tuple(
        OptionSpec(
            prefix + name,
            "",
            "",
            scope,
            values.plain_text,
            aliases,
            support,
            frozenset(harmless),
            hint,
        )
        for name in names.split()
    )


_REFUSED = Support.REFUSED
_IGNORED = Support.IGNORED

# Schemas come later. Values that ask for nothing pass already.
_LATER = (
    *_others("allowDifferentTopicSchemas", Scope.READ, _REFUSED, harmless=["false"]),
    *_others("schemaVersion", Scope.READ, _REFUSED, harmless=["latest"]),
    *_others("mode", Scope.READ, _REFUSED, harmless=["failfast"]),
    *_others("encryption.privateKeys", Scope.READ, _REFUSED),
    # The name of a column that `mode` would add.
    *_others("columnNameOfCorruptRecord", Scope.READ, _IGNORED),
)
# On a read these are a mistake in any version. Names below `pulsar.producer` are those
# of Java's ProducerConfigurationData 4.0.
_SINK = (
    *_others(
        "schemaType",
        Scope.WRITE,
        _REFUSED,
        harmless=["auto", "bytes"],
        hint="It writes values as bytes.",
    ),
    *_others("encryption.publicKeys encryption.keys", Scope.WRITE, _REFUSED),
    *_others(
        "cryptoFailureAction",
        Scope.WRITE,
        _REFUSED,
        prefix="pulsar.producer.",
        harmless=["fail"],
    ),
    *_others(
        "cryptoKeyReader messageCrypto encryptionKeys initialSubscriptionName",
        Scope.WRITE,
        _REFUSED,
        prefix="pulsar.producer.",
    ),
    *_others(
        "topicName",
        Scope.WRITE,
        _REFUSED,
        prefix="pulsar.producer.",
        hint="Use topic.",
    ),
    *_others(
        "customMessageRouter",
        Scope.WRITE,
        _REFUSED,
        prefix="pulsar.producer.",
        hint="Name the partition of each row in the column __partition.",
    ),
    *_others(
        "blockIfQueueFull maxPendingMessages maxPendingMessagesAcrossPartitions"
        " batchingPartitionSwitchFrequencyByPublishDelay autoUpdatePartitions"
        " autoUpdatePartitionsIntervalSeconds multiSchema"
        " lazyStartPartitionedProducers",
        Scope.WRITE,
        _IGNORED,
        prefix="pulsar.producer.",
    ),
)
# Java's ReaderConfigurationData 4.0.
_JAVA_READER = (
    *_others(
        "cryptoFailureAction",
        Scope.READ,
        _REFUSED,
        prefix="pulsar.reader.",
        harmless=["fail"],
    ),
    *_others(
        "cryptoKeyReader messageCrypto keyHashRanges subscriptionMode"
        " subscriptionInitialPosition",
        Scope.READ,
        _REFUSED,
        prefix="pulsar.reader.",
    ),
    *_others(
        "topicNames",
        Scope.READ,
        _REFUSED,
        prefix="pulsar.reader.",
        hint="Use topics.",
    ),
    *_others(
        "startMessageId startMessageFromRollbackDurationInSec",
        Scope.READ,
        _REFUSED,
        prefix="pulsar.reader.",
        hint="Use startingOffsets or startingTime.",
    ),
    *_others(
        "readerListener resetIncludeHead poolMessages autoUpdatePartitions"
        " autoUpdatePartitionsIntervalSeconds readerInterceptorList"
        " autoAckOldestChunkedMessageOnQueueFull startPaused",
        Scope.READ,
        _IGNORED,
        prefix="pulsar.reader.",
    ),
)
# Java's ClientConfigurationData 4.0. The first three groups hold secrets.
_JAVA_CLIENT = (
    *_others(
        "authPluginClassName authParams authParamMap authentication originalPrincipal"
        " tlsKeyFilePath tlsCertificateFilePath tlsTrustCertsFilePath sslProvider"
        " sslFactoryPlugin sslFactoryPluginParams tlsKeyStoreType tlsKeyStorePath"
        " tlsKeyStorePassword tlsTrustStoreType tlsTrustStorePath tlsTrustStorePassword"
        " tlsCiphers tlsProtocols proxyServiceUrl proxyProtocol socks5ProxyAddress"
        " socks5ProxyUsername socks5ProxyPassword serviceUrlProvider",
        Scope.CLIENT,
        _REFUSED,
        prefix="pulsar.client.",
    ),
    *_others(
        "useTls useKeyStoreTls tlsAllowInsecureConnection",
        Scope.CLIENT,
        _REFUSED,
        prefix="pulsar.client.",
        harmless=["false"],
    ),
    # Says how to check a certificate that nobody shows without TLS.
    *_others(
        "tlsHostnameVerificationEnable",
        Scope.CLIENT,
        _REFUSED,
        prefix="pulsar.client.",
        harmless=["true", "false"],
    ),
    *_others(
        "numIoThreads numListenerThreads connectionsPerBroker connectionMaxIdleSeconds"
        " useTcpNoDelay concurrentLookupRequest maxLookupRequest"
        " maxNumberOfRejectedRequestPerConnection requestTimeoutMs readTimeoutMs"
        " autoCertRefreshSeconds enableBusyWait enableTransaction clock"
        " dnsLookupBindAddress dnsLookupBindPort dnsServerAddresses description"
        " lookupProperties openTelemetry",
        Scope.CLIENT,
        _IGNORED,
        prefix="pulsar.client.",
    ),
    *_others("admin.url", Scope.CLIENT, _IGNORED, aliases=("adminUrl",)),
)

#: Every option known; the tables in the documents are made from it.
OPTIONS: tuple[OptionSpec[Any], ...] = (
    *_HONOURED,
    *_LATER,
    *_SINK,
    *_JAVA_READER,
    *_JAVA_CLIENT,
)

# Any key below it configures Java's admin client, which we never need.
ADMIN_PREFIX = "pulsar.admin."


def plain_key(key: str) -> str:
    """A name as it is compared: without case and dots."""
    return key.lower().replace(".", "")


BY_KEY: dict[str, OptionSpec[Any]] = {
    plain_key(key): spec for spec in OPTIONS for key in (spec.name, *spec.aliases)
}


def options_table_markdown() -> str:
    """Write the options as a Markdown table, and those without a row in two lists."""
    lines = ["| option | default | for | meaning |", "|---|---|---|---|"]
    for spec in OPTIONS:
        if spec.available:
            names = [f"`{name}`" for name in (spec.name, *spec.aliases)]
            default = f"`{spec.default}`" if spec.default else "none"
            cells = (", ".join(names), default, spec.scope_text, spec.doc)
            lines.append("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |")
    lines += ["", "Accepted without effect, with one warning:", ""]
    lines += [*_names_by_prefix(Support.IGNORED), f"- `{ADMIN_PREFIX}*`"]
    lines += ["", "Not supported yet, and refused:", ""]
    lines += _names_by_prefix(Support.REFUSED)
    return "\n".join(lines) + "\n"


def _names_by_prefix(support: Support) -> list[str]:
    """List options as bullets: one for plain names, one for each prefix."""
    groups: dict[str, list[str]] = {}
    for spec in OPTIONS:
        if spec.support is support:
            prefix, dot, name = spec.name.rpartition(".")
            below = prefix.startswith("pulsar.")
            group = groups.setdefault(f"`{prefix}{dot}` " if below else "", [])
            group.append(f"`{name if below else spec.name}`")
    return [f"- {prefix}{', '.join(names)}" for prefix, names in groups.items()]
