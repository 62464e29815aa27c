# SPDX-License-Identifier: Apache-2.0
"""Options with completion: classes whose fields are the options.

::

    options = pulsar_spark.ReadOptions(
        service_url="pulsar://localhost:6650", topic="public/default/orders"
    )
    spark.read.format("pulsar").options(**options.as_dict()).load()

The classes are made from the tables that also make docs/options.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any


def _named(name: str) -> Any:
    """Return the field of an option, which is not set."""
    return field(default=None, metadata={"option": name})


@dataclass(frozen=True)
class _Options:
    """Fields that are options."""

    def as_dict(self) -> dict[str, str]:
        """Return the options that are set, for ``.options(**...)`` of Spark."""
        given = ((f.metadata["option"], getattr(self, f.name)) for f in fields(self))
        return {name: _text(value) for name, value in given if value is not None}

    def __repr__(self) -> str:
        # Values may be secrets.
        names = [f.name for f in fields(self) if getattr(self, f.name) is not None]
        return f"{type(self).__name__}({', '.join(names)})"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value)


# -- made by `make generate-docs` ------------------------------------------------------


@dataclass(frozen=True, kw_only=True, repr=False)
class ClientOptions(_Options):
    """Options that reads and writes share, such as those of the connection."""

    service_url: str | None = _named("service.url")
    """Required. `pulsar://host:port`, or `pulsar+ssl://host:port` for TLS; several
    hosts by comma. The port is 6650 unless given, with TLS 6651. For: read, write."""
    topic: str | None = _named("topic")
    """One topic, or one partition as `topic-partition-0`. A read needs exactly one of
    `topic`, `topics` and `topicsPattern`. In a write it stands before the column
    `__topic`, and is needed without that column. For: read, write."""
    json_bytes: str | None = _named("jsonBytes")
    """How values in JSON hold bytes: `base64`, as Java's client writes them, or `utf8`,
    as Python's. Without this option a read takes `base64`, and a write does what the
    schema says, or asks for the option: see Whose JSON. For: read, write."""
    time_zone: str | None = _named("timeZone")
    """Zone in which a moment of the schema DATE has its day and of TIME its time of
    day. A write begins the day there, and has times on 1970-01-01 there. Default: UTC.
    For: read, write."""
    auth_plugin_class_name: str | None = _named("pulsar.client.authPluginClassName")
    """How to authenticate: `token`, `oauth2`, `basic`, `tls`, `keystore`, or Java's
    class for it. Default: none. For: read, write."""
    auth_params: str | None = _named("pulsar.client.authParams")
    """What the method needs, in Java's forms: see Authentication. Never shown. For:
    read, write."""
    auth_param_map: str | None = _named("pulsar.client.authParamMap")
    """The same as a JSON object of strings, instead of `authParams`. For: read,
    write."""
    encryption_required: bool | None = _named("encryption.required")
    """Whether messages must be encrypted. A read takes a message that is not encrypted
    for a message that no key opens. A write needs `encryption.keys`, and sends nothing
    without encryption. Default: false. For: read, write."""
    operation_timeout_ms: int | None = _named("pulsar.client.operationTimeoutMs")
    """Longest wait for the answer to a request, in milliseconds. Default: 30000. For:
    read, write."""
    connection_timeout_ms: int | None = _named("pulsar.client.connectionTimeoutMs")
    """Longest wait for a connection to one host, the resolver's for its name included,
    and again for its handshake, in milliseconds. Default: 10000. For: read, write."""
    lookup_timeout_ms: int | None = _named("pulsar.client.lookupTimeoutMs")
    """Time for the lookup of a topic, in milliseconds; after that no further try
    begins. Default: 30000. For: read, write."""
    keep_alive_interval_seconds: int | None = _named(
        "pulsar.client.keepAliveIntervalSeconds"
    )
    """Silence after which a connection is probed. Default: 30. For: read, write."""
    initial_backoff_interval_nanos: int | None = _named(
        "pulsar.client.initialBackoffIntervalNanos"
    )
    """Pause before the first retry, in nanoseconds. Default: 100000000. For: read,
    write."""
    max_backoff_interval_nanos: int | None = _named(
        "pulsar.client.maxBackoffIntervalNanos"
    )
    """Longest pause between two retries, in nanoseconds. Default: 60000000000. For:
    read, write."""
    max_lookup_redirects: int | None = _named("pulsar.client.maxLookupRedirects")
    """Most redirects of one lookup. Default: 20. For: read, write."""
    connection_max_idle_seconds: int | None = _named(
        "pulsar.client.connectionMaxIdleSeconds"
    )
    """Seconds after which a connection is closed that nothing uses: no request, no
    reader, no producer; 0 or -1 for never. Where it is wanted again, it is opened anew.
    Default: 60. For: read, write."""
    concurrent_lookup_request: int | None = _named(
        "pulsar.client.concurrentLookupRequest"
    )
    """Most questions about topics that one broker is asked at a time; more of them wait
    for these to be answered. Default: 5000. For: read, write."""
    max_lookup_request: int | None = _named("pulsar.client.maxLookupRequest")
    """The same for all brokers together. Default: 50000. For: read, write."""
    memory_limit_bytes: int | str | None = _named("pulsar.client.memoryLimitBytes")
    """Bytes of messages that one Python worker may hold; 0 for no limit. Default: 64m.
    For: read, write."""
    stats_interval_seconds: int | None = _named("pulsar.client.statsIntervalSeconds")
    """Seconds between two lines of statistics of a task; 0 for none, and for no line
    about a whole write: see Where lines go. Default: 60. For: read, write."""
    listener_name: str | None = _named("pulsar.client.listenerName")
    """Advertised listener whose addresses brokers are asked for. For: read, write."""
    subscription_prefix: str | None = _named("subscriptionPrefix")
    """Prefix of the names of all subscriptions, as topic statistics show them; also of
    the one that keeps the log of an exactly-once stream, which must not change while
    that stream lives. Default: spark-pulsar. For: read, write."""
    service_url_provider: str | None = _named("pulsar.client.serviceUrlProvider")
    """Other clusters for when that of `service.url` is down, for batch reads and for
    writes with `none` or `at-least-once`: a JSON object such as `{"secondary":
    ["pulsar://b:6650"], "failoverDelayMs": 10000}`. See Another cluster. For: read,
    write."""
    use_tls: bool | None = _named("pulsar.client.useTls")
    """Only repeats what the scheme of `service.url` says: `true` with `pulsar://` is an
    error. Default: false. For: read, write."""
    tls_trust_certs_file_path: str | None = _named(
        "pulsar.client.tlsTrustCertsFilePath"
    )
    """File with the certificates to trust, in PEM; by default those of the system. See
    TLS. For: read, write."""
    tls_certificate_file_path: str | None = _named(
        "pulsar.client.tlsCertificateFilePath"
    )
    """File with the client's certificate, and those between it and its authority, in
    PEM. For: read, write."""
    tls_key_file_path: str | None = _named("pulsar.client.tlsKeyFilePath")
    """File with its private key, in PEM, without a password. For: read, write."""
    tls_allow_insecure_connection: bool | None = _named(
        "pulsar.client.tlsAllowInsecureConnection"
    )
    """Whether any broker is trusted, whatever certificate it shows. For tests only:
    anybody in between can read and change all. Default: false. For: read, write."""
    tls_hostname_verification_enable: bool | None = _named(
        "pulsar.client.tlsHostnameVerificationEnable"
    )
    """Whether a broker's certificate must be for the host that was asked for. Default:
    true. For: read, write."""
    use_key_store_tls: bool | None = _named("pulsar.client.useKeyStoreTls")
    """Whether `tlsKeyStorePath` and `tlsTrustStorePath` are used instead of files in
    PEM. Needs `pip install cryptography`. Default: false. For: read, write."""
    tls_trust_store_type: str | None = _named("pulsar.client.tlsTrustStoreType")
    """`PKCS12`. One of type `JKS` has to be converted. Default: PKCS12. For: read,
    write."""
    tls_trust_store_path: str | None = _named("pulsar.client.tlsTrustStorePath")
    """Store with the certificates to trust; by default those of the system. For: read,
    write."""
    tls_trust_store_password: str | None = _named("pulsar.client.tlsTrustStorePassword")
    """Its password: itself, `file:/path` or `env:NAME`. For: read, write."""
    tls_key_store_type: str | None = _named("pulsar.client.tlsKeyStoreType")
    """As `tlsTrustStoreType`. Default: PKCS12. For: read, write."""
    tls_key_store_path: str | None = _named("pulsar.client.tlsKeyStorePath")
    """Store with the client's certificate and its private key. For: read, write."""
    tls_key_store_password: str | None = _named("pulsar.client.tlsKeyStorePassword")
    """Its password: itself, `file:/path` or `env:NAME`. For: read, write."""
    tls_ciphers: str | None = _named("pulsar.client.tlsCiphers")
    """Cipher suites that may be used, by comma, in the spelling of Java or OpenSSL; by
    default those that the system's OpenSSL holds safe. For: read, write."""
    tls_protocols: str | None = _named("pulsar.client.tlsProtocols")
    """Versions of TLS that may be used, by comma. None before 1.2 ever is. Default:
    TLSv1.2,TLSv1.3. For: read, write."""
    proxy_service_url: str | None = _named("pulsar.client.proxyServiceUrl")
    """`pulsar+ssl://host:port` of a proxy that all connections go through, to brokers
    that it knows by the name in TLS (SNI). For: read, write."""
    proxy_protocol: str | None = _named("pulsar.client.proxyProtocol")
    """`SNI`: how the proxy knows the broker. Default: SNI. For: read, write."""


@dataclass(frozen=True, kw_only=True, repr=False)
class ReadOptions(ClientOptions):
    """Options of ``spark.read`` and ``spark.readStream``, see docs/options.md."""

    topics: str | Sequence[str] | None = _named("topics")
    """Several topics and partitions by comma. For: read."""
    topics_pattern: str | None = _named("topicsPattern")
    """A Python regular expression for whole topic names of one namespace, such as
    `public/default/events-.*`. An alternative outside of brackets may repeat the
    namespace: `public/default/a|public/default/b`. Logs of exactly-once streams
    (`spark-commits-...`) never match; one that `commitTopic` names does. For: read."""
    starting_offsets: str | Mapping[str, Any] | None = _named("startingOffsets")
    """First messages, inclusive: `earliest`, or JSON by topic and partition such as
    `{"t":{"0":"12:3:4","1":"earliest"}}`; what JSON does not name starts at `earliest`,
    or where `*` stands: `{"t":{"0":"12:3"},"*":"latest"}`. Also, for streams only,
    `latest` (their default) and `subscription`: where `predefinedSubscription` stands.
    Default: earliest. For: read."""
    ending_offsets: str | Mapping[str, Any] | None = _named("endingOffsets")
    """Last messages, inclusive: `latest`, or JSON as for `startingOffsets`; what JSON
    does not name ends at `latest`, and with `"*":"earliest"` nothing of that is read.
    In a batch read `latest` is looked up once, when the read is planned, and other ends
    must be there, see `failOnUnreachedEnd`. A stream reads up to a position, and
    without an end where there is `latest`: streams that end. Default: latest. For:
    read."""
    starting_time: int | str | Mapping[str, Any] | None = _named("startingTime")
    """First publish time, instead of `startingOffsets`: epoch milliseconds, ISO-8601
    (UTC unless it names a zone), or JSON of these by topic, in which `*` is for what it
    does not name: without that, `earliest`. For: read."""
    ending_time: int | str | Mapping[str, Any] | None = _named("endingTime")
    """Last publish time, instead of `endingOffsets`; written as `startingTime`. Up to a
    time that is yet to come, a batch read has what is stored when it is planned, and a
    stream goes on until something was published later. For: read."""
    starting_time_strategy: str | None = _named("startingTimeStrategy")
    """Where nothing was published since `startingTime`: `latest` reads nothing, `error`
    fails. Default: latest. For: read."""
    fail_on_data_loss: bool | None = _named("failOnDataLoss")
    """Whether to fail when wanted messages are gone; else one warning, and reading goes
    on from the first one available. The same holds for topic partitions that a stream
    has read and the options no longer name. Default: true. For: read."""
    fail_on_unreached_end: bool | None = _named("failOnUnreachedEnd")
    """Whether to fail when the end that `endingOffsets` or `endingTime` sets cannot be
    read up to within `pollTimeoutMs`; else one warning, and the read ends with what can
    be read at once. Default: true. For: batch read."""
    waiting_for_non_existed_topic: bool | None = _named("waitingForNonExistedTopic")
    """Whether to wait for a topic that does not exist, instead of failing at once.
    Default: false. For: read."""
    topic_wait_timeout_ms: int | None = _named("topicWaitTimeoutMs")
    """Longest such wait, in milliseconds. Default: 300000. For: read."""
    partition_discovery_interval_ms: int | None = _named("partitionDiscoveryIntervalMs")
    """Time between two looks for new partitions, and for new topics of a
    `topicsPattern`, in milliseconds; 0 for a look at every planning. Default: 10000.
    For: stream read."""
    order_by_key: bool | None = _named("orderByKey")
    """Whether rows of a key come in their order from scalable topics: a segment is read
    only after those that it was made of, in a later micro-batch. False reads all
    segments at once. Default: true. For: stream read."""
    lag_age_interval_ms: int | None = _named("lagAgeIntervalMs")
    """Time between two looks at the first unread entries of up to 64 topic partitions,
    in turn, to show in the lag how old they are, in milliseconds; 0 for no ages. Where
    micro-batches have limits, each of them looks anyway. Default: 10000. For: stream
    read."""
    poll_timeout_ms: int | None = _named("pollTimeoutMs")
    """Longest silence of a topic partition that has messages to come, in milliseconds.
    Default: 120000. For: read."""
    max_rows_per_trigger: int | None = _named("maxRowsPerTrigger")
    """Most rows of a micro-batch, about: by averages where entries were not looked at.
    Shared among the topic partitions by backlog. For: stream read."""
    max_bytes_per_trigger: int | str | None = _named("maxBytesPerTrigger")
    """Most bytes of a micro-batch, as stored, likewise; such as `512m`. 0 for no limit.
    For: stream read."""
    min_rows_per_trigger: int | None = _named("minRowsPerTrigger")
    """Rows that a micro-batch waits for, at most `maxTriggerDelay`. For: stream
    read."""
    max_trigger_delay: int | str | None = _named("maxTriggerDelay")
    """Longest wait for `minRowsPerTrigger`, such as `30s`, `15m` or `2h`; milliseconds
    without a unit. Default: 15m. For: stream read."""
    min_partitions: int | None = _named("minPartitions")
    """Input partitions wanted at least, a hint, up to 100000: where topic partitions
    are fewer, the largest are split between entries. For: read."""
    max_partitions: int | None = _named("maxPartitions")
    """Input partitions wanted at most, a hint: where topic partitions, or parts of
    them, are more, several that follow each other are read by one task. Not below
    `minPartitions`. For: read."""
    max_records_per_partition: int | None = _named("maxRecordsPerPartition")
    """Most rows of an input partition, a hint: by the average of a few entries, and
    never less than one entry. For: read."""
    filter_pushdown: str | None = _named("filterPushdown")
    """Whether filters on `__partition`, `__topic` and `__publishTime` prune the plan of
    a batch read, one query for each `load()`: see Filters. `true,10m` is for publish
    times that are off by up to 10 minutes; `true` alone says 5. Default: false. For:
    batch read."""
    metadata_columns: str | Sequence[str] | None = _named("metadataColumns")
    """Columns beside those of the value: a list, `all` or `none`. Further ones are
    `__partition`, `__orderingKey`, `__producerName`, `__sequenceId`, `__schemaVersion`,
    `__redeliveryCount`, `__brokerPublishTime`, `__index`, `__position`,
    `__replicatedFrom`, `__deliverAtTime`, `__tombstone`. Default:
    __key,__topic,__messageId,__publishTime,__eventTime,__messageProperties. For:
    read."""
    schema_version: str | None = _named("schemaVersion")
    """The version of the topic's schema that has the columns: a number, or `latest`, by
    which a stream takes other columns than it began with. See Versions. For: read."""
    schema_evolution: str | None = _named("schemaEvolution")
    """What a stream does at a start after its topics got further columns: `none` ends
    with an error that names them, `additive` goes on with them. Any other change stays
    an error. See Streams. Default: none. For: stream read."""
    mode: str | None = _named("mode")
    """What becomes of a message whose value is not what its schema says: `FAILFAST`
    fails, `PERMISSIVE` gives NULL in the value's columns, `DROPMALFORMED` leaves the
    row out. See Bad values. Default: FAILFAST. For: read."""
    column_name_of_corrupt_record: str | None = _named("columnNameOfCorruptRecord")
    """Column with the bytes of such a value, in `PERMISSIVE`; a column of this name in
    `.schema(...)` may be STRING, too. Default: _corrupt_record. For: read."""
    allow_different_topic_schemas: bool | None = _named("allowDifferentTopicSchemas")
    """Whether to read topics whose schemas differ, all of them as `value` BINARY, with
    `__schemaVersion`. Default: false. For: read."""
    rows_per_arrow_batch: int | None = _named("rowsPerArrowBatch")
    """Most rows handed to Spark at a time. Default: 10000. For: read."""
    bytes_per_arrow_batch: int | str | None = _named("bytesPerArrowBatch")
    """Bytes after which rows are handed to Spark. Default: 4m. For: read."""
    predefined_subscription: str | None = _named("predefinedSubscription")
    """Name of a durable subscription to use instead of one of the stream's own; it is
    never deleted. For: stream read."""
    ack_on_commit: bool | None = _named("ackOnCommit")
    """Whether to acknowledge, on the subscription, what the stream has committed.
    Default: true. For: stream read."""
    delete_subscription_on_stop: bool | None = _named("deleteSubscriptionOnStop")
    """Whether to delete the stream's own subscription when the stream stops; what a
    restart would read may then be removed from the topics. Default: false. For: stream
    read."""
    reader_receiver_queue_size: int | None = _named("pulsar.reader.receiverQueueSize")
    """Most messages asked for ahead, for each topic partition; bounded in bytes by
    `pulsar.client.memoryLimitBytes`, too. Without the option 10,000, and as many more
    as a link with latency holds. For: read."""
    reader_read_compacted: bool | None = _named("pulsar.reader.readCompacted")
    """Whether to read only the last message of each key, where a topic is compacted.
    Default: false. For: read."""
    consumer_replicate_subscription_state: bool | None = _named(
        "pulsar.consumer.replicateSubscriptionState"
    )
    """Whether brokers replicate the state of the stream's subscription to other
    clusters, where its topics are geo-replicated. Default: false. For: stream read."""
    consumer_subscription_properties: Mapping[str, str] | None = _named(
        "pulsar.consumer.subscriptionProperties"
    )
    """Properties of the stream's subscription, a JSON object of strings; kept from the
    moment that it is made, and not changed later. Besides, it says who made it:
    `spark.connector`, `spark.host`, `spark.user`, `spark.application`. Default: {}.
    For: stream read."""
    consumer_properties: Mapping[str, str] | None = _named("pulsar.consumer.properties")
    """Properties of readers and consumers in topic statistics, a JSON object of
    strings. Default: {}. For: read."""
    reader_reader_name: str | None = _named("pulsar.reader.readerName")
    """Name of the reader in topic statistics. For: read."""
    reader_max_pending_chunked_message: int | str | None = _named(
        "pulsar.reader.maxPendingChunkedMessage"
    )
    """Most chunked messages put together at a time, for each topic partition; 0 for no
    limit. Default: 10. For: read."""
    reader_expire_time_of_incomplete_chunked_message_millis: int | None = _named(
        "pulsar.reader.expireTimeOfIncompleteChunkedMessageMillis"
    )
    """Age at which an incomplete chunked message is given up, in milliseconds; 0 for
    never. Default: 60000. For: read."""
    encryption_private_keys: str | Mapping[str, str] | None = _named(
        "encryption.privateKeys"
    )
    """Keys that open encrypted messages: JSON such as `{"name":
    "file:/path/to/key.pem"}`, or one key for all names: each `file:`, `env:`, a `data:`
    URI, or the text in PEM. Each task reads those that it needs. See Encryption. For:
    read."""
    reader_crypto_failure_action: str | None = _named(
        "pulsar.reader.cryptoFailureAction"
    )
    """What becomes of a message that no key opens: `FAIL` fails, `DISCARD` leaves it
    out, `CONSUME` gives its encrypted bytes. Default: FAIL. For: read."""
    reader_subscription_role_prefix: str | None = _named(
        "pulsar.reader.subscriptionRolePrefix"
    )
    """Prefix of the reader's own subscription name, instead of `subscriptionPrefix`.
    For: read."""


@dataclass(frozen=True, kw_only=True, repr=False)
class WriteOptions(ClientOptions):
    """Options of ``df.write`` and ``df.writeStream``, see docs/options.md."""

    delivery_guarantee: str | None = _named("deliveryGuarantee")
    """`none`, `at-least-once`, `idempotent` or `exactly-once`. Default: at-least-once.
    For: write."""
    idempotence_id: str | None = _named("idempotenceId")
    """What an `idempotent` or `exactly-once` write is known by, the same in every run.
    Without it an `exactly-once` stream makes one from `checkpointLocation`, and an
    `idempotent` batch write is a new one each time. An `idempotent` stream adds the
    query's id. An `exactly-once` batch write has no id: it cannot be repeated. For:
    write."""
    transaction_timeout_ms: int | None = _named("transactionTimeoutMs")
    """Age at which brokers abort an open transaction of an `exactly-once` write, or of
    an `idempotent` one to a scalable topic, in milliseconds. Default: 600000. For:
    write."""
    commit_topic: str | None = _named("commitTopic")
    """Topic in which an `exactly-once` stream keeps its log of commits, instead of one
    named after `idempotenceId`. For: stream write."""
    schema_type: str | None = _named("schemaType")
    """What values are written as: `auto`, by the topic's schema or else by the columns;
    `bytes`, whatever schema the topic has; or one of `string`, `json`, `avro`,
    `key_value`, `int8`, `int16`, `int32`, `int64`, `float`, `double`, `boolean`,
    `date`, `time`, `timestamp`, `instant`, `local_date`, `local_time`,
    `local_date_time`. See Typed topics. Default: auto. For: write."""
    schema_topic: str | None = _named("schemaTopic")
    """Topic of the same cluster whose latest schema the topic gets, byte for byte, and
    values are written by. See Copies of topics. For: write."""
    key_value_encoding_type: str | None = _named("keyValueEncodingType")
    """Where a new `key_value` schema has its keys: `INLINE`, in the value, or
    `SEPARATED`, as keys of the messages. Default: INLINE. For: write."""
    topic_auto_creation: bool | None = _named("topicAutoCreation")
    """Whether a topic that does not exist is left to the broker's policy, which may
    create it; with `false` it is an error. Default: true. For: write."""
    producer_batching_enabled: bool | None = _named("pulsar.producer.batchingEnabled")
    """Whether an entry may hold several messages. Default: true. For: write."""
    producer_batching_max_publish_delay_micros: int | None = _named(
        "pulsar.producer.batchingMaxPublishDelayMicros"
    )
    """Longest wait of a message for others, in microseconds. Default: 1000. For:
    write."""
    producer_batching_max_messages: int | str | None = _named(
        "pulsar.producer.batchingMaxMessages"
    )
    """Most messages of an entry; 0 for no limit. Default: 1000. For: write."""
    producer_batching_max_bytes: int | str | None = _named(
        "pulsar.producer.batchingMaxBytes"
    )
    """Bytes of messages, uncompressed, after which an entry takes no more; 0 for as
    many as the broker accepts. Default: 131072. For: write."""
    producer_batcher_builder: str | None = _named("pulsar.producer.batcherBuilder")
    """`KEY_BASED` puts only messages of one key into an entry, as subscriptions of the
    type Key_Shared need; `DEFAULT` mixes them. Default: DEFAULT. For: write."""
    producer_compression_type: str | None = _named("pulsar.producer.compressionType")
    """`NONE`, `LZ4`, `ZLIB`, `ZSTD` or `SNAPPY`. Default: NONE. For: write."""
    producer_chunking_enabled: bool | None = _named("pulsar.producer.chunkingEnabled")
    """Whether a row too large for an entry is sent in chunks; else it is an error.
    Default: false. For: write."""
    producer_chunk_max_message_size: str | None = _named(
        "pulsar.producer.chunkMaxMessageSize"
    )
    """Most bytes of a chunk, and of a batch where rows may be sent in chunks; -1 for as
    many as the broker accepts. Default: -1. For: write."""
    producer_send_timeout_ms: int | None = _named("pulsar.producer.sendTimeoutMs")
    """Longest wait for the broker's receipt of an entry, in milliseconds; 0 for no
    limit. Default: 30000. For: write."""
    producer_hashing_scheme: str | None = _named("pulsar.producer.hashingScheme")
    """`JavaStringHash`, `Murmur3_32Hash` or `BoostHash`: what chooses the partition of
    a row that has a key. `BoostHash` is the default of the C++, Python and Node.js
    clients (C++ 3.5 and newer, as 64-bit machines have it). Default: JavaStringHash.
    For: write."""
    producer_message_routing_mode: str | None = _named(
        "pulsar.producer.messageRoutingMode"
    )
    """`RoundRobinPartition` or `SinglePartition`: where rows without a key go. Default:
    RoundRobinPartition. For: write."""
    producer_access_mode: str | None = _named("pulsar.producer.accessMode")
    """`Shared`, `Exclusive`, `WaitForExclusive` or `ExclusiveWithFencing`. All but
    `Shared` admit one task at a time to a topic partition. With `ExclusiveWithFencing`
    the driver ends other producers of `topic` before any task does, even where the
    write then fails because the topic does not deduplicate. With `WaitForExclusive` a
    task waits ten minutes at most for its turn. It goes to the end of the queue each
    minute, because brokers forget the queue of a topic that moves, and if its
    connection breaks. Default: Shared. For: write."""
    producer_producer_name: str | None = _named("pulsar.producer.producerName")
    """Name of the producer in topic statistics and in messages. One task at a time has
    it on a topic partition, and begins at a sequence id some way behind the last one,
    so that no two tasks have the same. For: write."""
    producer_initial_sequence_id: int | None = _named(
        "pulsar.producer.initialSequenceId"
    )
    """Sequence id before that of the first message, unless a topic that deduplicates
    knows a later one of `producerName`. With both, a task fails where a connection
    breaks over rows that such a topic may have. For: write."""
    producer_properties: Mapping[str, str] | None = _named("pulsar.producer.properties")
    """Properties of the producer in topic statistics, a JSON object of strings.
    Default: {}. For: write."""
    producer_key_encoding: str | None = _named("pulsar.producer.keyEncoding")
    """How the key of a string column is sent: `text` as it is; `bytes` as base64 of its
    UTF-8 bytes, as the Scala connector does. Default: text. For: write."""
    checkpoint_location: str | None = _named("checkpointLocation")
    """Spark's own. The default `idempotenceId` of an `exactly-once` stream is made from
    it, and of an `idempotent` one to a scalable topic; Spark shows it to the sink only
    where it is set as an option of the stream. For: stream write."""
    query_name: str | None = _named("queryName")
    """Spark's own, which `queryName(...)` sets. It changes no row. For: stream
    write."""
    encryption_keys: str | Sequence[str] | None = _named("encryption.keys")
    """Names of the keys to encrypt messages with, by comma: who has the private key of
    any of them can read them. Nothing is encrypted without it. For: write."""
    encryption_public_keys: str | Mapping[str, str] | None = _named(
        "encryption.publicKeys"
    )
    """The public keys of these names: JSON such as `{"name": "file:/path/to/key.pem"}`,
    or one key for all names: each `file:`, `env:`, a `data:` URI, or the text in PEM.
    For: write."""
    producer_crypto_failure_action: str | None = _named(
        "pulsar.producer.cryptoFailureAction"
    )
    """What to do where a public key cannot be used: `FAIL` fails, `SEND` sends the
    messages as they are, with a warning. Default: FAIL. For: write."""
