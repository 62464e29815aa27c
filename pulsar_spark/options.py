"""Spark's options, read once into frozen values; the one table of every option known.

Spark hands over a map of strings with lower-cased keys. Names are therefore compared
without regard to case, and to dots, too: ``service.url`` and ``serviceUrl`` are one.
All problems are reported together, so that nobody mends them one run at a time.

No value of an option that may hold a secret is ever kept, printed or logged.
"""

from __future__ import annotations

import difflib
import enum
import logging
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pulsar_spark.errors import OptionError
from pulsar_spark.offsets import (
    Edge,
    OffsetsSpec,
    TimesSpec,
    parse_offsets,
    parse_times,
)
from pulsar_spark.topics import TopicName, TopicsPattern, compile_topics_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_T = TypeVar("_T")
_LOG = logging.getLogger("pulsar_spark.options")

#: The metadata columns of the Scala connector, in its order.
METADATA_COLUMNS_DEFAULT: tuple[str, ...] = (
    "__key",
    "__topic",
    "__messageId",
    "__publishTime",
    "__eventTime",
    "__messageProperties",
)
#: Every metadata column there is.
METADATA_COLUMNS_ALL: tuple[str, ...] = (
    *METADATA_COLUMNS_DEFAULT,
    "__partition",
    "__orderingKey",
    "__producerName",
    "__sequenceId",
    "__schemaVersion",
    "__redeliveryCount",
    "__brokerPublishTime",
    "__index",
    "__replicatedFrom",
    "__deliverAtTime",
)

DEFAULT_PORT = 6650

_FROM_EARLIEST = OffsetsSpec(Edge.EARLIEST)
_TO_LATEST = OffsetsSpec(Edge.LATEST)


@dataclass(frozen=True)
class ClientOptions:
    """How to reach the brokers. Durations are seconds.

    Attributes:
        service_urls: ``host:port`` of each host, tried in turn. IPv6 hosts stand in
            brackets.
        tls: Whether to speak TLS; always False in this version.
        operation_timeout_s: Longest wait for the answer to a request.
        connection_timeout_s: Longest wait for one connection.
        lookup_timeout_s: Longest wait for a lookup with all its redirects.
        keep_alive_interval_s: Silence after which a connection is probed.
        initial_backoff_s: Pause before the first retry, doubled for each further one.
        max_backoff_s: Longest pause between two retries.
        max_lookup_redirects: Redirects followed for one lookup.
        memory_limit_bytes: Bytes of messages that one Python worker may hold.
        listener_name: Advertised listener to ask brokers for, None for their default.
        stats_interval_s: Seconds between two lines of statistics, 0 for none.
    """

    service_urls: tuple[str, ...]
    tls: bool = False
    operation_timeout_s: float = 30.0
    connection_timeout_s: float = 10.0
    lookup_timeout_s: float = 30.0
    keep_alive_interval_s: float = 30.0
    initial_backoff_s: float = 0.1
    max_backoff_s: float = 60.0
    max_lookup_redirects: int = 20
    memory_limit_bytes: int = 64 << 20
    listener_name: str | None = None
    stats_interval_s: float = 60.0


@dataclass(frozen=True)
class ReadOptions:
    """What to read and how. Durations are seconds.

    Attributes:
        client: How to reach the brokers.
        topics: Topics and single partitions in the order given; empty with a pattern.
        topics_pattern: Which topics of a namespace to read; None with named topics.
        starting_offsets: First positions, inclusive.
        ending_offsets: Last positions, inclusive.
        starting_times: Earliest publish times; where they name a topic partition, or
            have a default, they stand instead of ``starting_offsets``.
        ending_times: The same for ``ending_offsets``.
        starting_time_strategy: ``latest`` or ``error``: what to do where nothing was
            published at or after the starting time.
        fail_on_data_loss: Whether rows that are gone end the read with an error.
        waiting_for_non_existed_topic: Whether to wait for a topic that does not exist.
        topic_wait_timeout_s: Longest such wait.
        poll_timeout_s: Longest silence of a topic partition that has rows to come.
        metadata_columns: Metadata columns in the order of the schema.
        rows_per_arrow_batch: Most rows of one RecordBatch.
        bytes_per_arrow_batch: Bytes after which a RecordBatch is handed on.
        receiver_queue_size: Messages asked for ahead, for each topic partition.
        read_compacted: Whether to read the compacted form of the topics.
        reader_name: Consumer name shown in topic statistics, None for a generated one.
        subscription_role_prefix: Prefix of the reader's subscription name; where None,
            ``subscription_prefix`` serves.
        subscription_prefix: Prefix of names of subscriptions.
        max_pending_chunked_message: Most chunked messages collected at a time.
        expire_incomplete_chunk_s: Age at which an incomplete chunked message is given
            up, 0 for never.
    """

    client: ClientOptions
    topics: tuple[TopicName, ...] = ()
    topics_pattern: TopicsPattern | None = None
    starting_offsets: OffsetsSpec = _FROM_EARLIEST
    ending_offsets: OffsetsSpec = _TO_LATEST
    starting_times: TimesSpec | None = None
    ending_times: TimesSpec | None = None
    starting_time_strategy: str = "latest"
    fail_on_data_loss: bool = True
    waiting_for_non_existed_topic: bool = False
    topic_wait_timeout_s: float = 300.0
    poll_timeout_s: float = 120.0
    metadata_columns: tuple[str, ...] = METADATA_COLUMNS_DEFAULT
    rows_per_arrow_batch: int = 10_000
    bytes_per_arrow_batch: int = 4 << 20
    receiver_queue_size: int = 1000
    read_compacted: bool = False
    reader_name: str | None = None
    subscription_role_prefix: str | None = None
    subscription_prefix: str = "spark-pulsar"
    max_pending_chunked_message: int = 10
    expire_incomplete_chunk_s: float = 60.0


class Scope(enum.Flag):
    """Where an option has a meaning."""

    BATCH = enum.auto()
    STREAM = enum.auto()
    WRITE = enum.auto()
    READ = BATCH | STREAM
    CLIENT = BATCH | STREAM | WRITE


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
    Scope.WRITE: "write",
    Scope.CLIENT: "read, write",
}


# Values: each function reads one text and names the option in its errors.


def _text(text: str, option: str) -> str:
    return text.strip()


def _boolean(text: str, option: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise OptionError(f"{option} must be true or false, not {text!r}.")
    return word == "true"


def _integer(minimum: int, maximum: int) -> Callable[[str, str], int]:
    def parse(text: str, option: str) -> int:
        # At most 18 digits: longer ones are out of every range, and slow to read.
        number = text.strip()
        if not re.fullmatch(r"[-+]?[0-9]{1,18}", number):
            raise OptionError(f"{option} must be a whole number, not {text!r}.")
        return _in_range(int(number), minimum, maximum, option)

    return parse


def _size(minimum: int, maximum: int) -> Callable[[str, str], int]:
    def parse(text: str, option: str) -> int:
        match = re.fullmatch(
            r"([0-9]{1,18})\s*([kmgt]?)(?:i?b)?", text.strip(), re.ASCII | re.IGNORECASE
        )
        if match is None:
            raise OptionError(
                f"{option} must be a number of bytes such as 4194304, 4096k or 4m,"
                f" not {text!r}."
            )
        shift = 10 * ("kmgt".index(match[2].lower()) + 1) if match[2] else 0
        return _in_range(int(match[1]) << shift, minimum, maximum, option)

    return parse


def _in_range(number: int, minimum: int, maximum: int, option: str) -> int:
    if not minimum <= number <= maximum:
        raise OptionError(
            f"{option} must be between {minimum} and {maximum}, not {number}."
        )
    return number


def _seconds(unit: float, maximum_s: int, minimum: int = 1) -> Callable[..., float]:
    """Read a duration in units of so many seconds as seconds."""
    parse_integer = _integer(minimum, round(maximum_s / unit))

    def parse(text: str, option: str) -> float:
        # Divided, not multiplied: 120000 ms are 120.0 s exactly.
        return parse_integer(text, option) / round(1 / unit)

    return parse


def _word(*words: str) -> Callable[[str, str], str]:
    def parse(text: str, option: str) -> str:
        word = text.strip().lower()
        if word not in words:
            raise OptionError(f"{option} must be {' or '.join(words)}, not {text!r}.")
        return word

    return parse


def _topic(text: str, option: str) -> tuple[TopicName, ...]:
    if "," in text:
        raise OptionError(f"{option} names one topic: use topics for several.")
    return _topics(text, option)


def _topics(text: str, option: str) -> tuple[TopicName, ...]:
    names: dict[TopicName, None] = {}
    problems = []
    for part in filter(str.strip, text.split(",")):
        try:
            names[TopicName.parse(part)] = None
        except OptionError as error:
            problems += [f"{option}: {problem}" for problem in error.problems]
    if problems:
        raise OptionError(*problems)
    if not names:
        raise OptionError(f"{option} names no topic.")
    return tuple(names)


def _topics_pattern(text: str, option: str) -> TopicsPattern:
    return compile_topics_pattern(text, option=option)


def _starting_offsets(text: str, option: str) -> OffsetsSpec:
    if text.strip().lower() == "subscription":
        raise OptionError(
            f"{option}=subscription is not supported yet by this version."
        )
    return parse_offsets(text, option=option, default=Edge.EARLIEST)


def _ending_offsets(text: str, option: str) -> OffsetsSpec:
    return parse_offsets(text, option=option, default=Edge.LATEST)


def _times(text: str, option: str) -> TimesSpec:
    return parse_times(text, option=option)


def _metadata_columns(text: str, option: str) -> tuple[str, ...]:
    words = {"all": METADATA_COLUMNS_ALL, "none": ()}
    if (word := text.strip().lower()) in words:
        return words[word]
    known = {name.lower(): name for name in METADATA_COLUMNS_ALL}
    columns: dict[str, None] = {}
    problems = []
    for part in filter(None, map(str.strip, text.split(","))):
        if part.lower() in known:
            columns[known[part.lower()]] = None
            continue
        nearest = _nearest(part.lower(), known)
        problems.append(f"{option}: there is no metadata column {part!r}.{nearest}")
    if problems:
        problems[-1] += f" The columns are {', '.join(METADATA_COLUMNS_ALL)}."
        raise OptionError(*problems)
    return tuple(columns)


def _service_url(text: str, option: str) -> tuple[str, ...]:
    """Read ``pulsar://host[:port][,host[:port]]...`` as ``host:port`` of each host."""
    url = text.strip()
    if "@" in url:
        # The text is not repeated: what stands before the "@" is a secret.
        raise OptionError(f"{option} must not contain a user or a password.")
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise OptionError(
            f"{option} must begin with pulsar://, such as pulsar://localhost:6650."
        )
    _check_scheme(scheme.lower(), option)
    hosts: dict[str, None] = {}
    for part in rest.removesuffix("/").split(","):
        hosts[_host_and_port(part.strip().removeprefix("pulsar://"), option)] = None
    return tuple(hosts)


def _check_scheme(scheme: str, option: str) -> None:
    if scheme in ("http", "https"):
        raise OptionError(
            f"{option} begins with {scheme}://, which is the form of the admin URL. The"
            " broker's own URL begins with pulsar://, and its port is usually 6650."
        )
    if scheme == "pulsar+ssl":
        raise OptionError(
            f"{option} begins with pulsar+ssl://, but TLS is not supported yet by this"
            " version."
        )
    if scheme != "pulsar":
        raise OptionError(f"{option} must begin with pulsar://.")


_HOST = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[-.\w]+)(?::([0-9]{1,5}))?", re.ASCII)


def _host_and_port(text: str, option: str) -> str:
    match = _HOST.fullmatch(text)
    if match is None:
        raise OptionError(
            f"{option} must be hosts with optional ports, such as"
            " pulsar://broker-1:6650,broker-2:6650."
        )
    port = int(match[2] or DEFAULT_PORT)
    if not 1 <= port <= 65535:
        raise OptionError(f"{option}: {match[1]} cannot have the port {port}.")
    return f"{match[1]}:{port}"


# The table: each row a constant, so that what is read from it keeps its type.

_DAY_S = 24 * 60 * 60
_MILLI = 1e-3
_NANO = 1e-9

_SERVICE_URL = OptionSpec(
    "service.url",
    "",
    "Required. `pulsar://host:port`, several hosts by comma; the port is 6650 unless"
    " given.",
    Scope.CLIENT,
    _service_url,
    ("serviceUrl", "pulsar.client.serviceUrl"),
)
_TOPIC = OptionSpec(
    "topic",
    "",
    "One topic, or one partition as `topic-partition-0`. A read needs exactly one of"
    " `topic`, `topics` and `topicsPattern`.",
    Scope.CLIENT,
    _topic,
)
_TOPICS = OptionSpec(
    "topics", "", "Several topics and partitions by comma.", Scope.READ, _topics
)
_TOPICS_PATTERN = OptionSpec(
    "topicsPattern",
    "",
    "A Python regular expression for whole topic names of one namespace, such as"
    " `public/default/events-.*`.",
    Scope.READ,
    _topics_pattern,
)
_STARTING_OFFSETS = OptionSpec(
    "startingOffsets",
    "earliest",
    "First messages, inclusive: `earliest`, or JSON by topic and partition such as"
    ' `{"t":{"0":"12:3:4","1":"earliest"}}`.',
    Scope.READ,
    _starting_offsets,
)
_ENDING_OFFSETS = OptionSpec(
    "endingOffsets",
    "latest",
    "Last messages, inclusive: `latest`, or JSON as for `startingOffsets`. `latest` is"
    " looked up once, when the read is planned.",
    Scope.BATCH,
    _ending_offsets,
)
_STARTING_TIME = OptionSpec(
    "startingTime",
    "",
    "First publish time, instead of `startingOffsets`: epoch milliseconds, ISO-8601"
    " (UTC unless it names a zone), or JSON of these by topic.",
    Scope.READ,
    _times,
    ("startingTimestamp",),
)
_ENDING_TIME = OptionSpec(
    "endingTime",
    "",
    "Last publish time, instead of `endingOffsets`; written as `startingTime`.",
    Scope.BATCH,
    _times,
    ("endingTimestamp",),
)
_STARTING_TIME_STRATEGY = OptionSpec(
    "startingTimeStrategy",
    "latest",
    "Where nothing was published since `startingTime`: `latest` reads nothing,"
    " `error` fails.",
    Scope.READ,
    _word("latest", "error"),
    ("startingOffsetsByTimestampStrategy",),
)
_FAIL_ON_DATA_LOSS = OptionSpec(
    "failOnDataLoss",
    "true",
    "Whether to fail when wanted messages are gone; else one warning, and reading goes"
    " on from the first one available.",
    Scope.READ,
    _boolean,
)
_WAITING_FOR_NON_EXISTED_TOPIC = OptionSpec(
    "waitingForNonExistedTopic",
    "false",
    "Whether to wait for a topic that does not exist, instead of failing at once.",
    Scope.READ,
    _boolean,
)
_TOPIC_WAIT_TIMEOUT_MS = OptionSpec(
    "topicWaitTimeoutMs",
    "300000",
    "Longest such wait, in milliseconds.",
    Scope.READ,
    _seconds(_MILLI, 7 * _DAY_S, minimum=0),
)
_SUBSCRIPTION_PREFIX = OptionSpec(
    "subscriptionPrefix",
    "spark-pulsar",
    "Prefix of the names of subscriptions, as topic statistics show them.",
    Scope.READ,
    _text,
)
_POLL_TIMEOUT_MS = OptionSpec(
    "pollTimeoutMs",
    "120000",
    "Longest silence of a topic partition that has messages to come, in milliseconds.",
    Scope.READ,
    _seconds(_MILLI, _DAY_S),
)
_METADATA_COLUMNS = OptionSpec(
    "metadataColumns",
    ",".join(METADATA_COLUMNS_DEFAULT),
    "Columns beside `value`: a list, `all` or `none`. Further ones are "
    + ", ".join(f"`{name}`" for name in METADATA_COLUMNS_ALL[6:])
    + ".",
    Scope.READ,
    _metadata_columns,
)
_ROWS_PER_ARROW_BATCH = OptionSpec(
    "rowsPerArrowBatch",
    "10000",
    "Most rows handed to Spark at a time.",
    Scope.READ,
    _integer(1, 1_000_000),
)
_BYTES_PER_ARROW_BATCH = OptionSpec(
    "bytesPerArrowBatch",
    "4m",
    "Bytes after which rows are handed to Spark.",
    Scope.READ,
    _size(1024, 1 << 30),
)
_RECEIVER_QUEUE_SIZE = OptionSpec(
    "pulsar.reader.receiverQueueSize",
    "1000",
    "Messages asked for ahead, for each topic partition.",
    Scope.READ,
    _integer(1, 1_000_000),
)
_READ_COMPACTED = OptionSpec(
    "pulsar.reader.readCompacted",
    "false",
    "Whether to read only the last message of each key, where a topic is compacted.",
    Scope.READ,
    _boolean,
)
_READER_NAME = OptionSpec(
    "pulsar.reader.readerName",
    "",
    "Name of the reader in topic statistics.",
    Scope.READ,
    _text,
)
_SUBSCRIPTION_ROLE_PREFIX = OptionSpec(
    "pulsar.reader.subscriptionRolePrefix",
    "",
    "Prefix of the reader's own subscription name, instead of `subscriptionPrefix`.",
    Scope.READ,
    _text,
)
_MAX_PENDING_CHUNKED_MESSAGE = OptionSpec(
    "pulsar.reader.maxPendingChunkedMessage",
    "10",
    "Most chunked messages put together at a time, for each topic partition.",
    Scope.READ,
    _integer(1, 10_000),
)
_EXPIRE_INCOMPLETE_CHUNK = OptionSpec(
    "pulsar.reader.expireTimeOfIncompleteChunkedMessageMillis",
    "60000",
    "Age at which an incomplete chunked message is given up, in milliseconds; 0 for"
    " never.",
    Scope.READ,
    _seconds(_MILLI, 7 * _DAY_S, minimum=0),
)
_OPERATION_TIMEOUT_MS = OptionSpec(
    "pulsar.client.operationTimeoutMs",
    "30000",
    "Longest wait for the answer to a request, in milliseconds.",
    Scope.CLIENT,
    _seconds(_MILLI, _DAY_S),
)
_CONNECTION_TIMEOUT_MS = OptionSpec(
    "pulsar.client.connectionTimeoutMs",
    "10000",
    "Longest wait for a connection, in milliseconds.",
    Scope.CLIENT,
    _seconds(_MILLI, _DAY_S),
)
_LOOKUP_TIMEOUT_MS = OptionSpec(
    "pulsar.client.lookupTimeoutMs",
    "30000",
    "Longest wait for the lookup of a topic, in milliseconds.",
    Scope.CLIENT,
    _seconds(_MILLI, _DAY_S),
)
_KEEP_ALIVE_INTERVAL_SECONDS = OptionSpec(
    "pulsar.client.keepAliveIntervalSeconds",
    "30",
    "Silence after which a connection is probed.",
    Scope.CLIENT,
    _seconds(1, _DAY_S),
)
_INITIAL_BACKOFF_INTERVAL_NANOS = OptionSpec(
    "pulsar.client.initialBackoffIntervalNanos",
    "100000000",
    "Pause before the first retry, in nanoseconds.",
    Scope.CLIENT,
    _seconds(_NANO, _DAY_S),
)
_MAX_BACKOFF_INTERVAL_NANOS = OptionSpec(
    "pulsar.client.maxBackoffIntervalNanos",
    "60000000000",
    "Longest pause between two retries, in nanoseconds.",
    Scope.CLIENT,
    _seconds(_NANO, _DAY_S),
)
_MAX_LOOKUP_REDIRECTS = OptionSpec(
    "pulsar.client.maxLookupRedirects",
    "20",
    "Most redirects of one lookup.",
    Scope.CLIENT,
    _integer(0, 1000),
)
_MEMORY_LIMIT_BYTES = OptionSpec(
    "pulsar.client.memoryLimitBytes",
    "64m",
    "Bytes of messages that one Python worker may hold.",
    Scope.CLIENT,
    _size(1 << 20, 1 << 40),
)
_STATS_INTERVAL_SECONDS = OptionSpec(
    "pulsar.client.statsIntervalSeconds",
    "60",
    "Seconds between two lines of statistics in the log; 0 for none.",
    Scope.CLIENT,
    _seconds(1, _DAY_S, minimum=0),
)
_LISTENER_NAME = OptionSpec(
    "pulsar.client.listenerName",
    "",
    "Advertised listener whose addresses brokers are asked for.",
    Scope.CLIENT,
    _text,
)

_HONOURED: tuple[OptionSpec[Any], ...] = (
    _SERVICE_URL,
    _TOPIC,
    _TOPICS,
    _TOPICS_PATTERN,
    _STARTING_OFFSETS,
    _ENDING_OFFSETS,
    _STARTING_TIME,
    _ENDING_TIME,
    _STARTING_TIME_STRATEGY,
    _FAIL_ON_DATA_LOSS,
    _WAITING_FOR_NON_EXISTED_TOPIC,
    _TOPIC_WAIT_TIMEOUT_MS,
    _POLL_TIMEOUT_MS,
    _METADATA_COLUMNS,
    _ROWS_PER_ARROW_BATCH,
    _BYTES_PER_ARROW_BATCH,
    _SUBSCRIPTION_PREFIX,
    _RECEIVER_QUEUE_SIZE,
    _READ_COMPACTED,
    _READER_NAME,
    _SUBSCRIPTION_ROLE_PREFIX,
    _MAX_PENDING_CHUNKED_MESSAGE,
    _EXPIRE_INCOMPLETE_CHUNK,
    _OPERATION_TIMEOUT_MS,
    _CONNECTION_TIMEOUT_MS,
    _LOOKUP_TIMEOUT_MS,
    _KEEP_ALIVE_INTERVAL_SECONDS,
    _INITIAL_BACKOFF_INTERVAL_NANOS,
    _MAX_BACKOFF_INTERVAL_NANOS,
    _MAX_LOOKUP_REDIRECTS,
    _MEMORY_LIMIT_BYTES,
    _STATS_INTERVAL_SECONDS,
    _LISTENER_NAME,
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
            _text,
            aliases,
            support,
            frozenset(harmless),
            hint,
        )
        for name in names.split()
    )


_REFUSED = Support.REFUSED
_IGNORED = Support.IGNORED

# Streaming and schemas come later. Values that ask for nothing pass already.
_LATER = (
    *_others(
        "partitionDiscoveryIntervalMs ackOnCommit deleteSubscriptionOnStop"
        " maxBytesPerTrigger maxTriggerDelay",
        Scope.STREAM,
        _REFUSED,
    ),
    *_others(
        "predefinedSubscription",
        Scope.STREAM,
        _REFUSED,
        aliases=("pulsar.reader.subscriptionName",),
    ),
    *_others(
        "maxRowsPerTrigger", Scope.STREAM, _REFUSED, aliases=("maxOffsetsPerTrigger",)
    ),
    *_others(
        "minRowsPerTrigger", Scope.STREAM, _REFUSED, aliases=("minOffsetsPerTrigger",)
    ),
    *_others(
        "allowDifferentTopicSchemas filterPushdown",
        Scope.READ,
        _REFUSED,
        harmless=["false"],
    ),
    *_others("schemaVersion", Scope.READ, _REFUSED, harmless=["latest"]),
    *_others("mode", Scope.READ, _REFUSED, harmless=["failfast"]),
    *_others("encryption.privateKeys", Scope.READ, _REFUSED),
    # Hints about the number of tasks, and the name of a column that `mode` would add.
    *_others(
        "minPartitions maxRecordsPerPartition columnNameOfCorruptRecord",
        Scope.READ,
        _IGNORED,
    ),
)
# The sink comes later; on a read these are a mistake in any version. Names below
# `pulsar.producer` are those of Java's ProducerConfigurationData 4.0.
_SINK = (
    *_others(
        "deliveryGuarantee idempotenceId transactionTimeoutMs schemaType"
        " encryption.publicKeys encryption.keys",
        Scope.WRITE,
        _REFUSED,
    ),
    *_others(
        "topicName producerName sendTimeoutMs blockIfQueueFull maxPendingMessages"
        " maxPendingMessagesAcrossPartitions messageRoutingMode hashingScheme"
        " cryptoFailureAction customMessageRouter batchingMaxPublishDelayMicros"
        " batchingPartitionSwitchFrequencyByPublishDelay batchingMaxMessages"
        " batchingMaxBytes batchingEnabled batcherBuilder chunkingEnabled"
        " chunkMaxMessageSize cryptoKeyReader messageCrypto encryptionKeys"
        " compressionType initialSequenceId autoUpdatePartitions"
        " autoUpdatePartitionsIntervalSeconds multiSchema accessMode"
        " lazyStartPartitionedProducers properties initialSubscriptionName keyEncoding",
        Scope.WRITE,
        _REFUSED,
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
_ADMIN_PREFIX = "pulsar.admin."


def _plain(key: str) -> str:
    return key.lower().replace(".", "")


_BY_KEY: dict[str, OptionSpec[Any]] = {
    _plain(key): spec for spec in OPTIONS for key in (spec.name, *spec.aliases)
}


def parse_read_options(
    options: Mapping[str, str], *, streaming: bool = False
) -> ReadOptions:
    """Read and check the options of a read.

    Args:
        options: The map that Spark hands over; keys in any case.
        streaming: Whether the read is a stream. It starts at latest by default.

    Raises:
        OptionError: With every problem found.
    """
    given = _Given(options, Scope.STREAM if streaming else Scope.BATCH)
    client = _client_options(given)
    one_topic, several_topics = given.get(_TOPIC), given.get(_TOPICS)
    result = ReadOptions(
        client=client,
        topics=one_topic or several_topics or (),
        topics_pattern=given.get(_TOPICS_PATTERN),
        starting_offsets=_starting(given, streaming=streaming),
        ending_offsets=given[_ENDING_OFFSETS],
        starting_times=given.get(_STARTING_TIME),
        ending_times=given.get(_ENDING_TIME),
        starting_time_strategy=given[_STARTING_TIME_STRATEGY],
        fail_on_data_loss=given[_FAIL_ON_DATA_LOSS],
        waiting_for_non_existed_topic=given[_WAITING_FOR_NON_EXISTED_TOPIC],
        topic_wait_timeout_s=given[_TOPIC_WAIT_TIMEOUT_MS],
        poll_timeout_s=given[_POLL_TIMEOUT_MS],
        metadata_columns=given[_METADATA_COLUMNS],
        rows_per_arrow_batch=given[_ROWS_PER_ARROW_BATCH],
        bytes_per_arrow_batch=given[_BYTES_PER_ARROW_BATCH],
        receiver_queue_size=given[_RECEIVER_QUEUE_SIZE],
        read_compacted=given[_READ_COMPACTED],
        reader_name=given.get(_READER_NAME),
        subscription_role_prefix=given.get(_SUBSCRIPTION_ROLE_PREFIX),
        subscription_prefix=given[_SUBSCRIPTION_PREFIX],
        max_pending_chunked_message=given[_MAX_PENDING_CHUNKED_MESSAGE],
        expire_incomplete_chunk_s=given[_EXPIRE_INCOMPLETE_CHUNK],
    )
    _check_topics(given)
    _check_range(given, result, streaming=streaming)
    given.finish()
    return result


def _client_options(given: _Given) -> ClientOptions:
    if _SERVICE_URL not in given:
        given.problems.append(
            "service.url is required, such as pulsar://localhost:6650."
        )
    client = ClientOptions(
        service_urls=given.get(_SERVICE_URL) or (),
        operation_timeout_s=given[_OPERATION_TIMEOUT_MS],
        connection_timeout_s=given[_CONNECTION_TIMEOUT_MS],
        lookup_timeout_s=given[_LOOKUP_TIMEOUT_MS],
        keep_alive_interval_s=given[_KEEP_ALIVE_INTERVAL_SECONDS],
        initial_backoff_s=given[_INITIAL_BACKOFF_INTERVAL_NANOS],
        max_backoff_s=given[_MAX_BACKOFF_INTERVAL_NANOS],
        max_lookup_redirects=given[_MAX_LOOKUP_REDIRECTS],
        memory_limit_bytes=given[_MEMORY_LIMIT_BYTES],
        listener_name=given.get(_LISTENER_NAME),
        stats_interval_s=given[_STATS_INTERVAL_SECONDS],
    )
    if client.initial_backoff_s > client.max_backoff_s:
        given.problems.append(
            f"{_INITIAL_BACKOFF_INTERVAL_NANOS.name} must not be above"
            f" {_MAX_BACKOFF_INTERVAL_NANOS.name}."
        )
    return client


def _starting(given: _Given, *, streaming: bool) -> OffsetsSpec:
    starting = given.get(_STARTING_OFFSETS)
    usual = Edge.LATEST if streaming else Edge.EARLIEST
    if starting is None:
        return OffsetsSpec(usual)
    # Partitions that JSON does not name start where they would without the option.
    return replace(starting, default=usual) if starting.topics else starting


def _check_topics(given: _Given) -> None:
    ways = [s.name for s in (_TOPIC, _TOPICS, _TOPICS_PATTERN) if s in given]
    if not ways:
        given.problems.append("One of topic, topics and topicsPattern is required.")
    elif len(ways) > 1:
        given.problems.append(
            f"{' and '.join(ways)} cannot be used together: choose one."
        )


def _check_range(given: _Given, read: ReadOptions, *, streaming: bool) -> None:
    for one, other in (
        (_STARTING_OFFSETS, _STARTING_TIME),
        (_ENDING_OFFSETS, _ENDING_TIME),
    ):
        if one in given and other in given:
            given.problems.append(
                f"{one.name} and {other.name} cannot be used together: choose one."
            )
    if streaming:
        return
    # As the Scala connector: such a read could only be empty, and is never meant.
    for spec, offsets, edge in (
        (_STARTING_OFFSETS, read.starting_offsets, Edge.LATEST),
        (_ENDING_OFFSETS, read.ending_offsets, Edge.EARLIEST),
    ):
        where = [name for name, at in offsets.topics.items() if at is edge]
        if offsets.default is edge or where:
            of = f" for {', '.join(where)}" if where else ""
            given.problems.append(
                f"{spec.name} cannot be {edge.value}{of} in a batch read: nothing would"
                " be read."
            )
    start = read.starting_times.default_ms if read.starting_times else None
    end = read.ending_times.default_ms if read.ending_times else None
    if start is not None and end is not None and start > end:
        given.problems.append("startingTime must not be later than endingTime.")


class _Given:
    """The options given that this version honours, and all problems so far."""

    def __init__(self, options: Mapping[str, str], use: Scope) -> None:
        self.problems: list[str] = []
        self._use = use
        self._texts: dict[str, str | None] = {}
        self._keys: dict[str, tuple[str, str]] = {}
        self._ignored: list[str] = []
        for key, text in options.items():
            spec = _BY_KEY.get(_plain(key))
            if spec is not None:
                self._admit(spec, key, text)
            elif _plain(key).startswith(_plain(_ADMIN_PREFIX)):
                self._ignored.append(key)
            else:
                self.problems.append(_unknown(key))

    def __contains__(self, spec: OptionSpec[Any]) -> bool:
        return spec.name in self._texts

    def __getitem__(self, spec: OptionSpec[_T]) -> _T:
        """The value of an option, or its default."""
        value = self.get(spec)
        return spec.parse(spec.default, spec.name) if value is None else value

    def get(self, spec: OptionSpec[_T]) -> _T | None:
        """The value of an option; None where it was not given, or has a problem."""
        text = self._texts.get(spec.name)
        if text is None:
            return None
        try:
            return spec.parse(text, spec.name)
        except OptionError as error:
            self.problems.extend(error.problems)
            return None

    def finish(self) -> None:
        """Report the problems, or else what was ignored."""
        if self.problems:
            raise OptionError(*self.problems)
        _warn_ignored(self._ignored)

    def _admit(self, spec: OptionSpec[Any], key: str, text: str) -> None:
        first_key, first_text = self._keys.setdefault(spec.name, (key, text))
        if first_key != key:
            if first_text != text:
                self.problems.append(
                    f"{spec.name} is given twice with different values, as {first_key}"
                    f" and as {key}."
                )
            return
        if not spec.scope & self._use:
            self._misplaced(spec)
        elif spec.support is Support.REFUSED:
            if text.strip().lower() not in spec.harmless:
                hint = f" {spec.hint}" if spec.hint else ""
                self.problems.append(
                    f"{spec.name} is not supported yet by this version.{hint}"
                )
        elif spec.support is Support.IGNORED:
            self._ignored.append(spec.name)
        elif not text.strip():
            self.problems.append(f"{spec.name} is empty: set it or leave it out.")
            # Kept as given, so that the option does not count as missing, too.
            self._texts[spec.name] = None
        else:
            self._texts[spec.name] = text

    def _misplaced(self, spec: OptionSpec[Any]) -> None:
        if spec.scope is Scope.WRITE:
            self.problems.append(
                f"{spec.name} is an option of writing: leave it out of a read."
            )
        elif spec.scope is Scope.BATCH:
            self.problems.append(
                f"{spec.name} is an option of batch reads: a stream has no end."
            )
        else:
            # One set of options often serves a stream and its backfill.
            self._ignored.append(spec.name)


def _unknown(key: str) -> str:
    if key.lower() in ("path", "paths"):
        return "Topics are no paths: use .option('topic', ...) and load()."
    names = {_plain(spec.name): spec.name for spec in OPTIONS}
    return f"There is no option {key!r}.{_nearest(_plain(key), names)}"


def _nearest(key: str, names: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(key, names, n=1)
    return f" Did you mean {names[near[0]]}?" if near else ""


_warned: set[str] = set()


def _warn_ignored(names: Iterable[str]) -> None:
    """Warn once a process: Spark reads the same options many times."""
    new = sorted(set(names) - _warned)
    if new:
        _warned.update(new)
        _LOG.warning(
            "These options have no effect on this read, and are ignored: %s",
            ", ".join(new),
        )


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
    lines += [*_names_by_prefix(Support.IGNORED), f"- `{_ADMIN_PREFIX}*`"]
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
