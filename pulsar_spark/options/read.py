# SPDX-License-Identifier: Apache-2.0
"""The options of a read: what to read, and how."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from pulsar_spark.columns import (
    METADATA_COLUMNS_ALL,
    METADATA_COLUMNS_DEFAULT,
    VALUE,
)
from pulsar_spark.errors import OptionError
from pulsar_spark.message_id import MessageId
from pulsar_spark.options import names
from pulsar_spark.options.client import (
    TOPIC,
    ClientOptions,
    client_options,
)
from pulsar_spark.options.encryption import DecryptionOptions, check_decryption
from pulsar_spark.options.failover import NAME as FAILOVER
from pulsar_spark.options.offsets import (
    OffsetsSpec,
    TimesSpec,
    parse_offsets,
    parse_times,
)
from pulsar_spark.options.values import JSON_BYTES, TIME_ZONE
from pulsar_spark.topics import TopicName, TopicsPattern
from spark_topics.options.given import Given
from spark_topics.options.offsets import Edge
from spark_topics.options.spec import OptionSpec, Scope, option, set_by
from spark_topics.options.values import (
    DAY_S,
    MAX_INT,
    MAX_LONG,
    MILLI,
    boolean,
    duration,
    integer,
    limit,
    nearest,
    plain_text,
    properties,
    seconds,
    size,
    word,
)

# Values that only a read has.


@dataclass(frozen=True)
class FilterPushdown:
    """Filters may prune a plan: each loaded frame serves a single query.

    See ``spark.pushdown`` for why.

    Attributes:
        clocks_within_s: How far, at most, a publish time is from the time at which its
            message was stored, in seconds.
    """

    clocks_within_s: float


#: How far publish times may be off where nothing is said of it, in seconds. Far more
#: than clocks that are kept in step, and a producer's longest try to send.
_CLOCKS_WITHIN_S = 300.0


def _filter_pushdown(text: str, option: str) -> FilterPushdown | None:
    """Read ``false``, or ``true`` and perhaps the accuracy of publish times."""
    switch, comma, accuracy = text.strip().lower().partition(",")
    if boolean(switch.strip(), option):
        within = duration(max_days=365)(accuracy, option) if comma else _CLOCKS_WITHIN_S
        return FilterPushdown(within)
    if comma:
        raise OptionError(f"{option} must be false or true, such as true,10m.")
    return None


def _metadata_columns(text: str, option: str) -> tuple[str, ...]:
    """Read names of metadata columns by comma, or ``all``, or ``none``."""
    words = {"all": METADATA_COLUMNS_ALL, "none": ()}
    if (word := text.strip().lower()) in words:
        return words[word]
    spellings = {name.lower(): name for name in METADATA_COLUMNS_ALL}
    columns: dict[str, None] = {}
    problems = []
    for part in filter(None, map(str.strip, text.split(","))):
        if part.lower() in spellings:
            columns[spellings[part.lower()]] = None
            continue
        hint = nearest(part.lower(), spellings)
        problems.append(f"{option}: there is no metadata column {part!r}.{hint}")
    if problems:
        problems[-1] += f" The columns are {', '.join(METADATA_COLUMNS_ALL)}."
        raise OptionError(*problems)
    return tuple(columns)


#: What ``schemaVersion=latest`` becomes: the query takes the columns of now on purpose,
#: also where it began with others.
LATEST_SCHEMA = -1

#: The word for ``schemaEvolution`` by which a stream takes columns that are added.
ADDITIVE = "additive"


def _schema_version(text: str, option: str) -> int:
    """Read a number of a version, or ``latest``."""
    if text.strip().lower() == "latest":
        return LATEST_SCHEMA
    return integer(0, MAX_LONG)(text, option)


def _column(text: str, option: str) -> str:
    """Parse the name of a column that differs from all special columns."""
    name = text.strip()
    if name.lower() in {column.lower() for column in (VALUE, *METADATA_COLUMNS_ALL)}:
        raise OptionError(f"{option} cannot be {name}: that is another column.")
    return name


# What the word ``subscription`` becomes, known by identity: where the subscription
# stands, and at latest where it is new.
_AT_SUBSCRIPTION = OffsetsSpec(Edge.LATEST)


def _starting_offsets(text: str, option: str) -> OffsetsSpec:
    if text.strip().lower() == "subscription":
        return _AT_SUBSCRIPTION
    return parse_offsets(text, option)


_TOPICS = OptionSpec(
    "topics",
    None,
    names.topics,
    Scope.READ,
    "Several topics and partitions by comma.",
    in_writes=names.OF_WRITES,
)
_TOPICS_PATTERN = OptionSpec(
    "topicsPattern",
    None,
    names.topics_pattern,
    Scope.READ,
    "A Python regular expression for whole topic names of one namespace, such as"
    " `public/default/events-.*`. An alternative outside of brackets may repeat the"
    " namespace: `public/default/a|public/default/b`. Logs of exactly-once streams"
    " (`spark-commits-...`) never match; one that `commitTopic` names does.",
    in_writes=names.OF_WRITES,
)

#: The options that say which topics are read.
WAYS_TO_NAME_TOPICS = (TOPIC.name, _TOPICS.name, _TOPICS_PATTERN.name)


@dataclass(frozen=True)
class ReadOptions:
    """What to read and how. Durations are seconds."""

    client: ClientOptions
    #: Topics and single partitions in the order given; empty with a pattern.
    topics: tuple[TopicName, ...] = field(default=(), metadata=set_by(TOPIC, _TOPICS))
    topics_pattern: TopicsPattern | None = field(
        default=None, metadata=set_by(_TOPICS_PATTERN)
    )
    starting_offsets: OffsetsSpec = option(
        "startingOffsets",
        "earliest",
        _starting_offsets,
        Scope.READ,
        "First messages, inclusive: `earliest`, or JSON by topic and partition such as"
        ' `{"t":{"0":"12:3:4","1":"earliest"}}`; what JSON does not name starts at'
        ' `earliest`, or where `*` stands: `{"t":{"0":"12:3"},"*":"latest"}`.'
        " Also, for streams only, `latest` (their default) and"
        " `subscription`: where `predefinedSubscription` stands.",
    )
    #: Whether a new stream starts where the subscription stands, instead of at
    #: `starting_offsets`.
    start_at_subscription: bool = False
    ending_offsets: OffsetsSpec = option(
        "endingOffsets",
        "latest",
        partial(parse_offsets, default=Edge.LATEST),
        Scope.READ,
        "Last messages, inclusive: `latest`, or JSON as for `startingOffsets`; what"
        ' JSON does not name ends at `latest`, and with `"*":"earliest"` nothing of'
        " that is read. In a batch read `latest` is looked up once, when the read is"
        " planned, and other ends must be there, see `failOnUnreachedEnd`. A stream"
        " reads up to a position, and without an end where there is `latest`:"
        " [streams that end](streaming.md#streams-that-end).",
    )
    starting_times: TimesSpec | None = option(
        "startingTime",
        None,
        parse_times,
        Scope.READ,
        "First publish time, instead of `startingOffsets`: epoch milliseconds,"
        " ISO-8601 (UTC unless it names a zone), or JSON of these by topic, in which"
        " `*` is for what it does not name: without that, `earliest`.",
        "startingTimestamp",
    )
    ending_times: TimesSpec | None = option(
        "endingTime",
        None,
        parse_times,
        Scope.READ,
        "Last publish time, instead of `endingOffsets`; written as `startingTime`. Up"
        " to a time that is yet to come, a batch read has what is stored when it is"
        " planned, and a stream goes on until something was published later.",
        "endingTimestamp",
    )
    starting_time_strategy: str = option(
        "startingTimeStrategy",
        "latest",
        word("latest", "error"),
        Scope.READ,
        "Where nothing was published since `startingTime`: `latest` reads nothing,"
        " `error` fails.",
        "startingOffsetsByTimestampStrategy",
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        "true",
        boolean,
        Scope.READ,
        "Whether to fail when wanted messages are gone; else one warning, and reading"
        " goes on from the first one available. The same holds for topic partitions"
        " that a stream has read and the options no longer name.",
    )
    fail_on_unreached_end: bool = option(
        "failOnUnreachedEnd",
        "true",
        boolean,
        Scope.BATCH,
        "Whether to fail when the end that `endingOffsets` or `endingTime` sets cannot"
        " be read up to within `pollTimeoutMs`; else one warning, and the read ends"
        " with what can be read at once.",
    )
    waiting_for_non_existed_topic: bool = option(
        "waitingForNonExistedTopic",
        "false",
        boolean,
        Scope.READ,
        "Whether to wait for a topic that does not exist, instead of failing at once.",
    )
    topic_wait_timeout_s: float = option(
        "topicWaitTimeoutMs",
        "300000",
        seconds(MILLI, 7 * DAY_S, minimum=0),
        Scope.READ,
        "Longest such wait, in milliseconds.",
    )
    partition_discovery_interval_s: float = option(
        "partitionDiscoveryIntervalMs",
        "10000",
        seconds(MILLI, DAY_S, minimum=0),
        Scope.STREAM,
        "Time between two looks for new partitions, and for new topics of a"
        " `topicsPattern`, in milliseconds; 0 for a look at every planning.",
    )
    order_by_key: bool = option(
        "orderByKey",
        "true",
        boolean,
        Scope.STREAM,
        "Whether rows of a key come in their order from"
        " [scalable topics](scalable-topics.md): a segment is read only after those"
        " that it was made of, in a later micro-batch. False reads all segments at"
        " once.",
    )
    lag_age_interval_s: float = option(
        "lagAgeIntervalMs",
        "10000",
        seconds(MILLI, DAY_S, minimum=0),
        Scope.STREAM,
        "Time between two looks at the first unread entries of up to 64 topic"
        " partitions, in turn, to show in [the lag](seeing.md#lag-of-a-stream) how old"
        " they are, in milliseconds; 0 for no ages. Where micro-batches have limits,"
        " each of them looks anyway.",
    )
    poll_timeout_s: float = option(
        "pollTimeoutMs",
        "120000",
        seconds(MILLI, DAY_S),
        Scope.READ,
        "Longest silence of a topic partition that has messages to come, in"
        " milliseconds.",
    )
    max_rows_per_trigger: int | None = option(
        "maxRowsPerTrigger",
        None,
        integer(1, MAX_LONG),
        Scope.STREAM,
        "Most rows of a micro-batch, about: by averages where entries were not looked"
        " at. Shared among the topic partitions by backlog.",
        "maxOffsetsPerTrigger",
    )
    max_bytes_per_trigger: int | None = option(
        "maxBytesPerTrigger",
        None,
        limit(size(1, MAX_LONG), None),
        Scope.STREAM,
        "Most bytes of a micro-batch, as stored, likewise; such as `512m`. 0 for no"
        " limit.",
    )
    min_rows_per_trigger: int | None = option(
        "minRowsPerTrigger",
        None,
        integer(1, MAX_LONG),
        Scope.STREAM,
        "Rows that a micro-batch waits for, at most `maxTriggerDelay`.",
        "minOffsetsPerTrigger",
    )
    max_trigger_delay_s: float = option(
        "maxTriggerDelay",
        "15m",
        duration(max_days=365),
        Scope.STREAM,
        "Longest wait for `minRowsPerTrigger`, such as `30s`, `15m` or `2h`;"
        " milliseconds without a unit.",
    )
    min_partitions: int | None = option(
        "minPartitions",
        None,
        integer(1, 100_000),
        Scope.READ,
        "Input partitions wanted at least, a hint, up to 100000: where topic partitions"
        " are fewer, the largest are split between entries.",
    )
    max_partitions: int | None = option(
        "maxPartitions",
        None,
        integer(1, MAX_INT),
        Scope.READ,
        "Input partitions wanted at most, a hint: where topic partitions, or parts of"
        " them, are more, several that follow each other are read by one task. Not"
        " below `minPartitions`.",
    )
    max_records_per_partition: int | None = option(
        "maxRecordsPerPartition",
        None,
        integer(1, MAX_LONG),
        Scope.READ,
        "Most rows of an input partition, a hint: by the average of a few entries, and"
        " never less than one entry.",
    )
    filter_pushdown: FilterPushdown | None = option(
        "filterPushdown",
        "false",
        _filter_pushdown,
        Scope.BATCH,
        "Whether filters on `__partition`, `__topic` and `__publishTime` prune the"
        " plan of a batch read, one query for each `load()`: see"
        " [Filters](reading.md#filters-that-prune-the-plan). `true,10m` is for publish"
        " times that are off by up to 10 minutes; `true` alone says 5.",
    )
    metadata_columns: tuple[str, ...] = option(
        "metadataColumns",
        ",".join(METADATA_COLUMNS_DEFAULT),
        _metadata_columns,
        Scope.READ,
        "Columns beside those of the value: a list, `all` or `none`. Further ones are "
        + ", ".join(f"`{name}`" for name in METADATA_COLUMNS_ALL[6:])
        + ".",
    )
    schema_version: int | None = option(
        "schemaVersion",
        None,
        _schema_version,
        Scope.READ,
        "The version of the topic's schema that has the columns: a number, or `latest`,"
        " by which a stream takes other columns than it began with. See"
        " [Versions](schemas.md#versions).",
    )
    schema_evolution: str = option(
        "schemaEvolution",
        "none",
        word("none", ADDITIVE),
        Scope.STREAM,
        "What a stream does at a start after its topics got further columns: `none`"
        " ends with an error that names them, `additive` goes on with them. Any other"
        " change stays an error. See [Streams](schemas.md#streams).",
    )
    mode: str = option(
        "mode",
        "FAILFAST",
        word("FAILFAST", "PERMISSIVE", "DROPMALFORMED"),
        Scope.READ,
        "What becomes of a message whose value is not what its schema says: `FAILFAST`"
        " fails, `PERMISSIVE` gives NULL in the value's columns, `DROPMALFORMED` leaves"
        " the row out. See [Bad values](schemas.md#bad-values).",
    )
    corrupt_record_column: str = option(
        "columnNameOfCorruptRecord",
        "_corrupt_record",
        _column,
        Scope.READ,
        "Column with the bytes of such a value, in `PERMISSIVE`; a column of this name"
        " in `.schema(...)` may be STRING, too.",
    )
    allow_different_topic_schemas: bool = option(
        "allowDifferentTopicSchemas",
        "false",
        boolean,
        Scope.READ,
        "Whether to read topics whose schemas differ, all of them as `value` BINARY,"
        " with `__schemaVersion`.",
    )
    json_bytes: str = field(default="", metadata=set_by(JSON_BYTES))
    time_zone: str = field(default="UTC", metadata=set_by(TIME_ZONE))
    rows_per_arrow_batch: int = option(
        "rowsPerArrowBatch",
        "10000",
        integer(1, 1_000_000),
        Scope.READ,
        "Most rows handed to Spark at a time.",
    )
    bytes_per_arrow_batch: int = option(
        "bytesPerArrowBatch",
        "4m",
        size(1024, 1 << 30),
        Scope.READ,
        "Bytes after which rows are handed to Spark.",
    )
    predefined_subscription: str | None = option(
        "predefinedSubscription",
        None,
        names.subscription,
        Scope.STREAM,
        "Name of a durable subscription to use instead of one of the stream's own; it"
        " is never deleted.",
        "pulsar.reader.subscriptionName",
    )
    ack_on_commit: bool = option(
        "ackOnCommit",
        "true",
        boolean,
        Scope.STREAM,
        "Whether to acknowledge, on the subscription, what the stream has committed.",
    )
    delete_subscription_on_stop: bool = option(
        "deleteSubscriptionOnStop",
        "false",
        boolean,
        Scope.STREAM,
        "Whether to delete the stream's own subscription when the stream stops; what a"
        " restart would read may then be removed from the topics.",
    )
    receiver_queue_size: int | None = option(
        "pulsar.reader.receiverQueueSize",
        None,
        integer(1, 1_000_000),
        Scope.READ,
        "Most messages asked for ahead, for each topic partition; bounded in bytes by"
        " `pulsar.client.memoryLimitBytes`, too. Without the option 10,000, and as many"
        " more as a link with latency holds.",
    )
    read_compacted: bool = option(
        "pulsar.reader.readCompacted",
        "false",
        boolean,
        Scope.READ,
        "Whether to read only the last message of each key, where a topic is"
        " compacted.",
    )
    replicate_subscription_state: bool = option(
        "pulsar.consumer.replicateSubscriptionState",
        "false",
        boolean,
        Scope.STREAM,
        "Whether brokers replicate the state of the stream's subscription to other"
        " clusters, where its topics are geo-replicated.",
    )
    subscription_properties: tuple[tuple[str, str], ...] = option(
        "pulsar.consumer.subscriptionProperties",
        "{}",
        properties,
        Scope.STREAM,
        "Properties of the stream's subscription, a JSON object of strings; kept from"
        " the moment that it is made, and not changed later. Besides, it says who made"
        " it: `spark.connector`, `spark.host`, `spark.user`, `spark.application`.",
    )
    consumer_properties: tuple[tuple[str, str], ...] = option(
        "pulsar.consumer.properties",
        "{}",
        properties,
        Scope.READ,
        "Properties of readers and consumers in topic statistics, a JSON object of"
        " strings.",
    )
    reader_name: str | None = option(
        "pulsar.reader.readerName",
        None,
        plain_text,
        Scope.READ,
        "Name of the reader in topic statistics.",
    )
    max_pending_chunked_message: int = option(
        "pulsar.reader.maxPendingChunkedMessage",
        "10",
        limit(integer(1, 10_000), MAX_INT),
        Scope.READ,
        "Most chunked messages put together at a time, for each topic partition; 0 for"
        " no limit.",
    )
    expire_incomplete_chunk_s: float = option(
        "pulsar.reader.expireTimeOfIncompleteChunkedMessageMillis",
        "60000",
        seconds(MILLI, 7 * DAY_S, minimum=0),
        Scope.READ,
        "Age at which an incomplete chunked message is given up, in milliseconds; 0"
        " for never.",
    )

    decryption: DecryptionOptions = field(default_factory=DecryptionOptions)

    @property
    def patience_s(self) -> float:
        """Return how long a read that has begun goes on without any answer."""
        return max(self.poll_timeout_s, self.client.lookup_timeout_s)


def read_options(given: Given) -> ReadOptions:
    """Parse the options of a read; problems are added to ``given``."""
    client = client_options(given)
    start: OffsetsSpec = given["startingOffsets"]
    times: TimesSpec | None = given["startingTime"]
    names_some = times is not None and times.default_ms is None
    # What JSON does not name is read whole, whatever JSON it is.
    is_late = given.use is Scope.STREAM and not names_some
    usual = Edge.LATEST if is_late else Edge.EARLIEST
    if start is _AT_SUBSCRIPTION or "startingOffsets" not in given:
        starting_offsets = OffsetsSpec(usual)
    else:
        starting_offsets = start
    read = given.fill(
        ReadOptions,
        client=client,
        decryption=given.fill(DecryptionOptions),
        starting_offsets=starting_offsets,
        start_at_subscription=start is _AT_SUBSCRIPTION,
    )
    _check_topics(given, read)
    _check_effects(given, read)
    _check_names_of_kafka(given)
    _check_range(given, read)
    _check_subscription(given, read)
    _check_trigger(given, read)
    _check_partitions(given, read)
    _check_failover(given, read)
    check_decryption(given, read.decryption)
    if read.schema_version is not None and read.allow_different_topic_schemas:
        given.problems.append(
            "schemaVersion and allowDifferentTopicSchemas cannot be used together:"
            " with the latter values are bytes."
        )
    return read


def _check_effects(given: Given, read: ReadOptions) -> None:
    """Report options without effect in combination with the other options."""
    if read.starting_times is None:
        given.has_no_effect("startingTimeStrategy")
    if not read.waiting_for_non_existed_topic:
        given.has_no_effect("topicWaitTimeoutMs")
    if read.min_rows_per_trigger is None:
        given.has_no_effect("maxTriggerDelay")
    if read.mode != "PERMISSIVE":
        given.has_no_effect("columnNameOfCorruptRecord")


def _check_names_of_kafka(given: Given) -> None:
    """Say where the meaning differs from that of a name in Spark's Kafka source."""
    strategy = "startingTimeStrategy"
    if given.key_of("startingTime").lower() == "startingtimestamp" and (
        strategy not in given
    ):
        given.warnings.append(
            "startingTimestamp is read as startingTime: where nothing was published"
            " since, nothing is read. Spark's Kafka source fails there, as"
            f" {strategy}=error does."
        )
    if given.key_of("endingTime").lower() == "endingtimestamp":
        given.warnings.append(
            "endingTimestamp is read as endingTime, which is inclusive: what was"
            " published in that very millisecond is read. Spark's Kafka source leaves"
            " it out."
        )


def _check_topics(given: Given, read: ReadOptions) -> None:
    ways = [name for name in WAYS_TO_NAME_TOPICS if name in given]
    if not ways and given.path is not None:
        given.problems.append(names.problem_of_path(given.path, "load", is_alone=True))
    elif not ways:
        given.problems.append("One of topic, topics and topicsPattern is required.")
    elif len(ways) > 1:
        given.problems.append(
            f"{' and '.join(ways)} cannot be used together: choose one."
        )
    elif ways == [TOPIC.name] and read.topics:
        topic = names.topic_in_path(given.path)
        if topic is not None and topic not in read.topics:
            given.problems.append(
                names.problem_of_path(given.path, "load", is_alone=False)
            )


def _check_range(given: Given, read: ReadOptions) -> None:
    for first, other in (
        ("startingOffsets", "startingTime"),
        ("endingOffsets", "endingTime"),
    ):
        if first in given and other in given:
            given.problems.append(
                f"{first} and {other} cannot be used together: choose one."
            )
    is_stream = given.use is Scope.STREAM
    # As the Scala connector: such a read could only be empty, and is a mistake.
    for name, offsets, edge in (
        ("startingOffsets", read.starting_offsets, Edge.LATEST),
        ("endingOffsets", read.ending_offsets, Edge.EARLIEST),
    ):
        if is_stream and edge is Edge.LATEST:
            continue  # that is where streams begin
        # Nothing of one topic partition is fine where others have rows to read.
        positions = [*offsets.topics.values()]
        if not positions or not _names_all(offsets, read):
            positions.append(offsets.default)
        if all(position is edge for position in positions):
            of = f" for {', '.join(offsets.topics)}" if offsets.topics else ""
            given.problems.append(
                f"{name} cannot be {edge.value}{of} in a"
                f" {'stream' if is_stream else 'batch read'}: nothing would be read."
            )
    start = read.starting_times.default_ms if read.starting_times else None
    end = read.ending_times.default_ms if read.ending_times else None
    if start is not None and end is not None and start > end:
        given.problems.append("startingTime must not be later than endingTime.")


def _names_all(offsets: OffsetsSpec, read: ReadOptions) -> bool:
    """Return whether no topic partition can be left to the default."""
    named = {TopicName.parse(name) for name in offsets.topics}
    whole = {topic.common_name for topic in named if topic.base == topic}
    return read.topics_pattern is None and all(
        topic in named or topic.common_name in whole for topic in read.topics
    )


def _check_subscription(given: Given, read: ReadOptions) -> None:
    # Spark does not say which kind of read it asks the columns for: the sentence about
    # batch reads must help with a stream that lacks the name, too.
    if read.start_at_subscription and given.use is Scope.BATCH:
        given.problems.append(
            "startingOffsets cannot be subscription in a batch read: that is for"
            " streams, together with predefinedSubscription."
        )
    elif read.start_at_subscription and "predefinedSubscription" not in given:
        given.problems.append(
            "startingOffsets=subscription needs predefinedSubscription: it names the"
            " subscription."
        )
    if read.delete_subscription_on_stop and "predefinedSubscription" in given:
        given.problems.append(
            "deleteSubscriptionOnStop cannot be true with predefinedSubscription: a"
            " predefined subscription is never deleted."
        )


def _check_trigger(given: Given, read: ReadOptions) -> None:
    fewest, most = read.min_rows_per_trigger, read.max_rows_per_trigger
    if fewest is not None and most is not None and fewest > most:
        given.problems.append("maxRowsPerTrigger must not be below minRowsPerTrigger.")


def _check_partitions(given: Given, read: ReadOptions) -> None:
    fewest, most = read.min_partitions, read.max_partitions
    if fewest is not None and most is not None and fewest > most:
        given.problems.append("maxPartitions must not be below minPartitions.")


def _check_failover(given: Given, read: ReadOptions) -> None:
    """Refuse positions that belong to a single cluster."""
    if FAILOVER not in given:
        return
    # Spark does not say what it asks the columns for, see _check_subscription.
    starts = read.starting_offsets
    starts_late = starts.default is Edge.LATEST and not starts.topics
    if given.use is Scope.STREAM or read.start_at_subscription or starts_late:
        given.problems.append(
            f"{FAILOVER} is not for streams that read: positions in their checkpoints"
            " mean nothing on another cluster. Leave it out; when the cluster is lost,"
            " start the query with the other service.url and a new checkpoint."
        )
    for name, offsets in (
        ("startingOffsets", read.starting_offsets),
        ("endingOffsets", read.ending_offsets),
    ):
        if any(isinstance(position, MessageId) for position in offsets.topics.values()):
            given.problems.append(
                f"{name} cannot have message ids with {FAILOVER}: they mean nothing on"
                " another cluster. Use earliest, latest or times, or leave it out."
            )
    if read.schema_version not in (None, LATEST_SCHEMA):
        given.problems.append(
            f"schemaVersion cannot be a number with {FAILOVER}: each cluster numbers"
            " the versions itself. Leave one of them out."
        )
