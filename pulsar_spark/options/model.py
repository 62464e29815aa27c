"""The options of a read and of a write, typed and frozen.

They are what the rest of the package works with.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from pulsar_spark.offsets import Edge, OffsetsSpec, TimesSpec
from pulsar_spark.topics import TopicName, TopicsPattern

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
class FilterPushdown:
    """Filters may prune a plan: each loaded frame serves one query.

    See ``spark.pushdown`` for why.

    Attributes:
        clocks_within_s: How far, at most, a publish time is from the time at which its
            message was stored, in seconds.
    """

    clocks_within_s: float


@dataclass(frozen=True)
class ReadOptions:
    """What to read and how. Durations are seconds.

    Attributes:
        client: How to reach the brokers.
        topics: Topics and single partitions in the order given; empty with a pattern.
        topics_pattern: Which topics of a namespace to read; None with named topics.
        starting_offsets: First positions, inclusive.
        start_at_subscription: Whether a new stream starts where the subscription
            stands, instead of at ``starting_offsets``.
        ending_offsets: Last positions, inclusive.
        starting_times: Earliest publish times; where they name a topic partition, or
            have a default, they stand instead of ``starting_offsets``.
        ending_times: The same for ``ending_offsets``.
        starting_time_strategy: ``latest`` or ``error``: what to do where nothing was
            published at or after the starting time.
        fail_on_data_loss: Whether rows that are gone end the read with an error.
        waiting_for_non_existed_topic: Whether to wait for a topic that does not exist.
        topic_wait_timeout_s: Longest such wait.
        partition_discovery_interval_s: Time between two looks for new topics and topic
            partitions, 0 for a look at every planning.
        poll_timeout_s: Longest silence of a topic partition that has rows to come.
        max_rows_per_trigger: Most rows of a micro-batch, None for no limit.
        max_bytes_per_trigger: Stored bytes after which a micro-batch takes no more,
            None for no limit.
        min_rows_per_trigger: Rows that a micro-batch waits for, None for none.
        max_trigger_delay_s: Longest such wait.
        min_partitions: Input partitions wanted at least, None for one for each topic
            partition.
        max_records_per_partition: Rows wanted in an input partition at most, None for
            any number.
        filter_pushdown: What filters may prune, None for nothing.
        metadata_columns: Metadata columns in the order of the schema.
        rows_per_arrow_batch: Most rows of one RecordBatch.
        bytes_per_arrow_batch: Bytes after which a RecordBatch is handed on.
        receiver_queue_size: Messages asked for ahead, for each topic partition.
        read_compacted: Whether to read the compacted form of the topics.
        reader_name: Consumer name shown in topic statistics, None for a generated one.
        subscription_role_prefix: Prefix of the reader's subscription name; where None,
            ``subscription_prefix`` serves.
        subscription_prefix: Prefix of names of subscriptions.
        predefined_subscription: Durable subscription that a stream uses and never
            deletes; None for one of its own.
        ack_on_commit: Whether what a stream has committed is acknowledged.
        delete_subscription_on_stop: Whether a stream deletes its own subscription when
            it stops.
        max_pending_chunked_message: Most chunked messages collected at a time.
        expire_incomplete_chunk_s: Age at which an incomplete chunked message is given
            up, 0 for never.
    """

    client: ClientOptions
    topics: tuple[TopicName, ...] = ()
    topics_pattern: TopicsPattern | None = None
    starting_offsets: OffsetsSpec = _FROM_EARLIEST
    start_at_subscription: bool = False
    ending_offsets: OffsetsSpec = _TO_LATEST
    starting_times: TimesSpec | None = None
    ending_times: TimesSpec | None = None
    starting_time_strategy: str = "latest"
    fail_on_data_loss: bool = True
    waiting_for_non_existed_topic: bool = False
    topic_wait_timeout_s: float = 300.0
    partition_discovery_interval_s: float = 10.0
    poll_timeout_s: float = 120.0
    max_rows_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_rows_per_trigger: int | None = None
    max_trigger_delay_s: float = 900.0
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    filter_pushdown: FilterPushdown | None = None
    metadata_columns: tuple[str, ...] = METADATA_COLUMNS_DEFAULT
    rows_per_arrow_batch: int = 10_000
    bytes_per_arrow_batch: int = 4 << 20
    receiver_queue_size: int = 10_000
    read_compacted: bool = False
    reader_name: str | None = None
    subscription_role_prefix: str | None = None
    subscription_prefix: str = "spark-pulsar"
    predefined_subscription: str | None = None
    ack_on_commit: bool = True
    delete_subscription_on_stop: bool = False
    max_pending_chunked_message: int = 10
    expire_incomplete_chunk_s: float = 60.0

    @property
    def reader_subscription_prefix(self) -> str:
        """Prefix of the names under which readers, which are not durable, subscribe."""
        return self.subscription_role_prefix or self.subscription_prefix


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


@dataclass(frozen=True)
class WriteOptions:
    """Where to write and how. Durations are seconds unless named otherwise.

    Attributes:
        client: How to reach the brokers.
        topic: Topic, or single partition, of all rows; None where each row names its
            own.
        guarantee: What is promised about each row.
        idempotence_id: What names of producers, and of the log of commits, are made
            from; the same for every run of one stream. None where the guarantee needs
            none or the options give none: then an idempotent stream has the id of its
            query, and a batch write a new one of its own. An exactly-once stream
            always has one here.
        transaction_timeout_ms: Age in milliseconds at which brokers abort an open
            transaction.
        commit_topic: Topic in which an exactly-once stream keeps its log of commits,
            None for one named after ``idempotence_id``.
        topic_auto_creation: Whether brokers may create a topic that does not exist, as
            their policy says.
        batching_enabled: Whether an entry may hold several messages.
        batching_max_publish_delay_s: Longest wait of a message for others.
        batching_max_messages: Most messages of an entry.
        batching_max_bytes: Bytes of messages, uncompressed, after which an entry takes
            no more.
        key_based_batching: Whether all messages of an entry have the same key.
        compression_type: ``NONE``, ``LZ4``, ``ZLIB``, ``ZSTD`` or ``SNAPPY``.
        chunking_enabled: Whether a row that no entry can hold is sent in chunks.
        chunk_max_message_size: Most bytes of a chunk, -1 for what the broker accepts.
        send_timeout_s: Longest wait for a receipt, 0 for no limit.
        hashing_scheme: ``JavaStringHash`` or ``Murmur3_32Hash``: what chooses the
            partition of a row with a key.
        message_routing_mode: ``RoundRobinPartition`` or ``SinglePartition``: which
            partition takes a row that has no key and names none.
        access_mode: ``Shared``, ``Exclusive``, ``WaitForExclusive`` or
            ``ExclusiveWithFencing``: what producers ask for.
        producer_name: Name of the producer, None for generated ones.
        initial_sequence_id: Sequence id before that of the first message, None for the
            producer's own.
        producer_properties: Names and values shown in topic statistics, in the order
            given.
        key_encoding: ``text`` or ``bytes``: whether the key of a string column is sent
            as it is, or its UTF-8 bytes as base64.
    """

    client: ClientOptions
    topic: TopicName | None = None
    guarantee: DeliveryGuarantee = DeliveryGuarantee.AT_LEAST_ONCE
    idempotence_id: str | None = None
    transaction_timeout_ms: int = 600_000
    commit_topic: TopicName | None = None
    topic_auto_creation: bool = True
    batching_enabled: bool = True
    batching_max_publish_delay_s: float = 0.001
    batching_max_messages: int = 1000
    batching_max_bytes: int = 128 << 10
    key_based_batching: bool = False
    compression_type: str = "NONE"
    chunking_enabled: bool = False
    chunk_max_message_size: int = -1
    send_timeout_s: float = 30.0
    hashing_scheme: str = "JavaStringHash"
    message_routing_mode: str = "RoundRobinPartition"
    access_mode: str = "Shared"
    producer_name: str | None = None
    initial_sequence_id: int | None = None
    producer_properties: tuple[tuple[str, str], ...] = ()
    key_encoding: str = "text"
