# SPDX-License-Identifier: Apache-2.0
"""Options of other sources, and the cure for each when jobs move here.

One table for each of them, from which documents are written. Names that are none of
ours are errors, which tell what the table tells. Those that are ours are declared where
they are read, and tests hold that the tables say what happens to them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


class Fate(enum.Enum):
    """What becomes of an option that a job brings along."""

    #: It means the same, but for what the table says.
    HONOURED = "honoured"
    #: It is accepted, and a warning says what differs or that it has no effect.
    WARNED = "a warning"
    #: It is an error that names what to do.
    REFUSED = "an error"


@dataclass(frozen=True)
class OtherOption:
    """An option of another source.

    Attributes:
        name: Its name there.
        fate: What becomes of it here.
        note: What differs, or what to do, in Markdown.
        example: A value that it may have.
    """

    name: str
    fate: Fate
    note: str = ""
    example: str = "1"


def _honoured(name: str, example: str, note: str = "") -> OtherOption:
    return OtherOption(name, Fate.HONOURED, note, example)


def _warned(name: str, example: str, note: str) -> OtherOption:
    return OtherOption(name, Fate.WARNED, note, example)


def _refused(names: str, note: str) -> Iterable[OtherOption]:
    """Describe options with the same cure; names are separated by spaces."""
    for name in names.split():
        yield OtherOption(name, Fate.REFUSED, note)


_URL = "pulsar://localhost:6650"
_READER = "pulsar.reader."
_PRODUCER = "pulsar.producer."
_CLIENT = "pulsar.client."
_ADMIN = "pulsar.admin."
_NO_ADMIN = "never needed: limits and lag come from the binary protocol"

#: The Scala connector, version 3.4.1, with the settings of Java's client that differ
#: here or that are often set.
SCALA = (
    _honoured("service.url", _URL, "several hosts by comma; `pulsar+ssl://` for TLS"),
    _warned("admin.url", "http://localhost:8080", _NO_ADMIN),
    _honoured("topic", "t"),
    _honoured("topics", "t,u", "also single partitions, `t-partition-0`"),
    _honoured("topicsPattern", "t.*", "a Python regular expression"),
    _honoured("startingOffsets", "earliest", "also `subscription`, for streams"),
    _honoured("endingOffsets", "latest", "also for streams, which end there"),
    _honoured("startingTime", "1700000000000", "also for streams"),
    _honoured("endingTime", "1700000000000"),
    _honoured("failOnDataLoss", "false", "`true` unless set"),
    _honoured(
        "waitingForNonExistedTopic",
        "true",
        "waits `topicWaitTimeoutMs` at most (5 minutes); the connector waits without"
        " end",
    ),
    _honoured(
        "pollTimeoutMs", "60000", "`spark.network.timeout` has no part in its default"
    ),
    _honoured(
        "predefinedSubscription",
        "jobs",
        "for streams; a batch read ignores it with a warning",
    ),
    _honoured("subscriptionPrefix", "jobs"),
    _honoured(
        "maxBytesPerTrigger",
        "0",
        "bytes as stored, without `admin.url`; 0 for no limit, as there; a batch read"
        " ignores it with a warning",
    ),
    _honoured("allowDifferentTopicSchemas", "true"),
    _honoured(
        _READER + "subscriptionName", "jobs", "another name of `predefinedSubscription`"
    ),
    _honoured(_READER + "receiverQueueSize", "500", "10,000 unless set"),
    _honoured(_READER + "readCompacted", "true"),
    _honoured(_READER + "readerName", "r"),
    _honoured(_READER + "subscriptionRolePrefix", "jobs"),
    _honoured(
        _READER + "cryptoFailureAction",
        "FAIL",
        "as in Java; keys by `encryption.privateKeys`:"
        " [Encryption](security.md#encryption)",
    ),
    _honoured(_READER + "maxPendingChunkedMessage", "0", "0 for no limit, as there"),
    _honoured(_READER + "expireTimeOfIncompleteChunkedMessageMillis", "60000"),
    *_refused(_READER + "topicNames", "use `topics`"),
    *_refused(
        f"{_READER}startMessageId {_READER}startMessageFromRollbackDurationInSec",
        "use `startingOffsets` or `startingTime`",
    ),
    _honoured(_PRODUCER + "batchingEnabled", "true"),
    _honoured(_PRODUCER + "batchingMaxMessages", "0", "0 for no limit, as there"),
    _honoured(_PRODUCER + "batchingMaxBytes", "0", "0 for no limit, as there"),
    _honoured(_PRODUCER + "batchingMaxPublishDelayMicros", "1000"),
    _honoured(_PRODUCER + "compressionType", "LZ4"),
    _honoured(_PRODUCER + "sendTimeoutMs", "0", "0 for no limit, as there"),
    _honoured(_PRODUCER + "hashingScheme", "Murmur3_32Hash", "also `BoostHash`"),
    _warned(
        _PRODUCER + "blockIfQueueFull",
        "true",
        "a task always waits while its window is full",
    ),
    _warned(
        _PRODUCER + "maxPendingMessages",
        "1000",
        "the window is bounded in bytes: `pulsar.client.memoryLimitBytes`",
    ),
    *_refused(_PRODUCER + "topicName", "use `topic`"),
    *_refused(
        _PRODUCER + "customMessageRouter",
        "name the partition of each row in `__partition`",
    ),
    _honoured(
        _CLIENT + "authPluginClassName",
        "none",
        "Java's classes, or short names: [Authentication](security.md#authentication)",
    ),
    _honoured(_CLIENT + "authParams", "token:t", "in the same forms"),
    _honoured(
        _CLIENT + "useTls",
        "false",
        "the scheme of `service.url` decides: `true` beside `pulsar://` is an error",
    ),
    _honoured(_CLIENT + "tlsTrustCertsFilePath", "/ca.pem", "on every node"),
    _honoured(
        _CLIENT + "tlsAllowInsecureConnection",
        "true",
        "with a warning for each connection",
    ),
    _honoured(
        _CLIENT + "tlsHostnameVerificationEnable",
        "true",
        "`true` unless set; Java: `false`",
    ),
    _honoured(
        _CLIENT + "tlsTrustStoreType",
        "PKCS12",
        "`JKS`, Java's default, is an error with the command that converts it",
    ),
    _honoured(_CLIENT + "operationTimeoutMs", "30000"),
    _honoured(
        _CLIENT + "memoryLimitBytes",
        "0",
        "of each Python worker; 0 for no limit, as there",
    ),
    _warned(_CLIENT + "numIoThreads", "4", "one thread reads from each connection"),
    _warned(_CLIENT + "connectionsPerBroker", "4", "it is one"),
    _warned(_CLIENT + "enableTransaction", "true", "`deliveryGuarantee` decides"),
    _warned(_ADMIN + "authParams", "token:t", f"all below `{_ADMIN}`: {_NO_ADMIN}"),
    *_refused(
        "spark.pulsar.client.cache.timeout",
        "a setting of Spark there; use the option"
        " `pulsar.client.connectionMaxIdleSeconds`",
    ),
)

_BY_SECURITY = "use `pulsar.client.authPluginClassName` with `pulsar.client.authParams`"
_OF_NO_TASK = "leave it out: there is no group whose members could be lost"
_RECEIVED = "use `pulsar.reader.receiverQueueSize` or `pulsar.client.memoryLimitBytes`"

#: What Kafka's source and sink take beside the settings of its clients.
KAFKA_SOURCE = (
    *_refused("subscribe", "use `topic`, or `topics` for several by comma"),
    *_refused(
        "assign",
        "name single partitions in `topics`, such as `t-partition-0,t-partition-2`",
    ),
    *_refused(
        "subscribePattern",
        "use `topicsPattern`: a Python regular expression for whole topic names of one"
        " namespace",
    ),
    _honoured(
        "startingOffsets",
        '{"t":{"0":-2}}',
        "ids of messages instead of numbers, which are errors:"
        ' `{"t":{"0":"12:3:4","1":"earliest"}}`. -2 and -1 are `earliest` and'
        " `latest`; streams also start at `subscription`",
    ),
    _honoured(
        "endingOffsets",
        "latest",
        "likewise, and **inclusive**, while Kafka's are exclusive. An end behind the "
        "last message is an error, unless `failOnUnreachedEnd` is `false`",
    ),
    _warned(
        "startingTimestamp",
        "1700000000000",
        "another name of `startingTime`. Where nothing was published since, nothing is"
        " read; Kafka's source fails, as `startingTimeStrategy=error` does",
    ),
    _warned(
        "endingTimestamp",
        "1700000000000",
        "another name of `endingTime`, which is inclusive; Kafka's is exclusive",
    ),
    *_refused(
        "startingOffsetsByTimestamp",
        "use `startingTime`, which takes JSON by topic, too",
    ),
    *_refused(
        "endingOffsetsByTimestamp",
        "use `endingTime`, which takes JSON by topic, too, and is inclusive",
    ),
    _honoured(
        "startingOffsetsByTimestampStrategy",
        "error",
        "another name of `startingTimeStrategy`; the default is `latest`, while Kafka's"
        " is `error`",
    ),
    _honoured(
        "failOnDataLoss",
        "true",
        "`true` unless set, as in Kafka; gaps that transactions and compaction leave"
        " are no loss",
    ),
    *_refused(
        "kafkaConsumer.pollTimeoutMs",
        "use `pollTimeoutMs`; `spark.network.timeout` has no part in it",
    ),
    *_refused(
        "fetchOffset.numRetries",
        "retries are bounded in time: use `pulsar.client.operationTimeoutMs` and"
        " `pulsar.client.lookupTimeoutMs`",
    ),
    *_refused(
        "fetchOffset.retryIntervalMs",
        "use `pulsar.client.initialBackoffIntervalNanos` and"
        " `pulsar.client.maxBackoffIntervalNanos`",
    ),
    _honoured(
        "maxOffsetsPerTrigger",
        "1000",
        "another name of `maxRowsPerTrigger`; entries are not split, so it is about"
        " that many rows",
    ),
    _honoured("minOffsetsPerTrigger", "10", "another name of `minRowsPerTrigger`"),
    _honoured("maxTriggerDelay", "10m"),
    _honoured("minPartitions", "8"),
    _honoured("maxRecordsPerPartition", "1000"),
    *_refused("groupIdPrefix", "use `subscriptionPrefix`"),
    *_refused(
        "includeHeaders",
        "leave it out: `__messageProperties` is read unless `metadataColumns` leaves it"
        " out, and written where rows have it",
    ),
    _honoured("topic", "t", "of a write, as there; of a read, too"),
)

#: Settings of Kafka's clients.
KAFKA_CLIENTS = (
    *_refused(
        "kafka.bootstrap.servers", "use `service.url`, such as `pulsar://host:6650`"
    ),
    *_refused("kafka.group.id", "use `predefinedSubscription`"),
    *_refused(
        "kafka.security.protocol",
        "the scheme of `service.url` decides: `pulsar+ssl://` for TLS",
    ),
    *_refused(
        "kafka.sasl.mechanism kafka.sasl.jaas.config"
        " kafka.sasl.client.callback.handler.class"
        " kafka.sasl.login.callback.handler.class kafka.sasl.kerberos.service.name"
        " kafka.sasl.oauthbearer.token.endpoint.url",
        _BY_SECURITY,
    ),
    *_refused(
        "kafka.ssl.truststore.location kafka.ssl.truststore.password"
        " kafka.ssl.truststore.type",
        "use `pulsar.client.useKeyStoreTls` with `pulsar.client.tlsTrustStorePath` and"
        " its like, or `pulsar.client.tlsTrustCertsFilePath`",
    ),
    *_refused(
        "kafka.ssl.keystore.location kafka.ssl.keystore.password"
        " kafka.ssl.keystore.type kafka.ssl.key.password",
        "use `pulsar.client.useKeyStoreTls` with `pulsar.client.tlsKeyStorePath` and"
        " its like, or `pulsar.client.tlsCertificateFilePath` with"
        " `pulsar.client.tlsKeyFilePath`",
    ),
    *_refused(
        "kafka.ssl.endpoint.identification.algorithm",
        "use `pulsar.client.tlsHostnameVerificationEnable`",
    ),
    *_refused(
        "kafka.ssl.protocol kafka.ssl.enabled.protocols",
        "use `pulsar.client.tlsProtocols`",
    ),
    *_refused("kafka.ssl.cipher.suites", "use `pulsar.client.tlsCiphers`"),
    *_refused("kafka.compression.type", "use `pulsar.producer.compressionType`"),
    *_refused("kafka.acks", "use `deliveryGuarantee`"),
    *_refused("kafka.enable.idempotence", "use `deliveryGuarantee=idempotent`"),
    *_refused(
        "kafka.transactional.id",
        "use `deliveryGuarantee=exactly-once`, on a stream with `idempotenceId`; in"
        " `foreachBatch` use `deliveryGuarantee=idempotent` with `idempotenceId`",
    ),
    *_refused("kafka.transaction.timeout.ms", "use `transactionTimeoutMs`"),
    *_refused(
        "kafka.isolation.level",
        "leave it out: rows of aborted transactions are never read",
    ),
    *_refused("kafka.linger.ms", "use `pulsar.producer.batchingMaxPublishDelayMicros`"),
    *_refused("kafka.batch.size", "use `pulsar.producer.batchingMaxBytes`"),
    *_refused("kafka.buffer.memory", "use `pulsar.client.memoryLimitBytes`"),
    *_refused(
        "kafka.delivery.timeout.ms kafka.max.block.ms kafka.retries",
        "use `pulsar.producer.sendTimeoutMs`",
    ),
    *_refused(
        "kafka.max.request.size",
        "brokers say how large a message may be;"
        " `pulsar.producer.chunkingEnabled=true` sends larger ones",
    ),
    *_refused(
        "kafka.partitioner.class",
        "use `pulsar.producer.hashingScheme`,"
        " `pulsar.producer.messageRoutingMode`, or the column `__partition`",
    ),
    *_refused(
        "kafka.client.id",
        "use `pulsar.reader.readerName` or `pulsar.producer.producerName`",
    ),
    *_refused(
        "kafka.request.timeout.ms kafka.default.api.timeout.ms",
        "use `pulsar.client.operationTimeoutMs`",
    ),
    *_refused(
        "kafka.reconnect.backoff.ms kafka.retry.backoff.ms",
        "use `pulsar.client.initialBackoffIntervalNanos`",
    ),
    *_refused(
        "kafka.reconnect.backoff.max.ms", "use `pulsar.client.maxBackoffIntervalNanos`"
    ),
    *_refused(
        "kafka.connections.max.idle.ms", "use `pulsar.client.connectionMaxIdleSeconds`"
    ),
    *_refused(
        "kafka.session.timeout.ms kafka.heartbeat.interval.ms"
        " kafka.max.poll.interval.ms",
        _OF_NO_TASK,
    ),
    *_refused("kafka.auto.offset.reset", "use `startingOffsets`"),
    *_refused("kafka.enable.auto.commit", "use `ackOnCommit`"),
    *_refused(
        "kafka.max.poll.records kafka.fetch.min.bytes kafka.fetch.max.bytes"
        " kafka.fetch.max.wait.ms kafka.max.partition.fetch.bytes"
        " kafka.receive.buffer.bytes",
        _RECEIVED,
    ),
)

KAFKA = (*KAFKA_SOURCE, *KAFKA_CLIENTS)

#: Databricks' Pulsar source, and what its SQL functions name otherwise.
DATABRICKS = (
    _honoured("service.url", _URL),
    _honoured("serviceUrl", _URL, "as `read_pulsar` has it"),
    _honoured("topic", "t"),
    _honoured("topics", "t,u"),
    _honoured("topicsPattern", "t.*", "a Python regular expression"),
    _honoured("predefinedSubscription", "jobs"),
    _honoured("subscriptionPrefix", "jobs", "its name is kept in the checkpoint"),
    _honoured("pollTimeoutMs", "120000"),
    _honoured(
        "waitingForNonExistedTopic", "true", "waits `topicWaitTimeoutMs` at most"
    ),
    _honoured("failOnDataLoss", "true"),
    _honoured("allowDifferentTopicSchemas", "true"),
    _honoured("startingOffsets", "latest"),
    _honoured("startingTime", "1700000000000"),
    _honoured("maxBytesPerTrigger", "1000000", "without `admin.url`"),
    _warned("admin.url", "http://localhost:8080", _NO_ADMIN),
    _warned("adminUrl", "http://localhost:8080", _NO_ADMIN),
    _honoured(_CLIENT + "authPluginClassName", "none"),
    _honoured(_CLIENT + "authParams", "token:t", "JKS stores are to be converted"),
    _honoured(_CLIENT + "useKeyStoreTls", "true"),
    _honoured(_CLIENT + "tlsTrustStoreType", "PKCS12", "`JKS` is to be converted"),
    _honoured(_CLIENT + "tlsTrustStorePath", "/trust.p12", "on every node"),
    _honoured(_CLIENT + "tlsTrustStorePassword", "secret"),
    _honoured("pulsarClientAuthPluginClassName", "none", "as `read_pulsar` has it"),
    _honoured("pulsarClientAuthParams", "token:t", "likewise"),
    _honoured("pulsarClientUseKeyStoreTls", "true", "likewise"),
    _honoured("pulsarClientTlsTrustStoreType", "PKCS12", "likewise"),
    _honoured("pulsarClientTlsTrustStorePath", "/trust.p12", "likewise"),
    _honoured("pulsarClientTlsTrustStorePassword", "secret", "likewise"),
    _warned(_ADMIN + "authPluginClassName", "token", _NO_ADMIN),
    _warned(_ADMIN + "authParams", "token:t", _NO_ADMIN),
    _warned("pulsarAdminAuthPluginClassName", "token", _NO_ADMIN),
    _warned("pulsarAdminAuthParams", "token:t", _NO_ADMIN),
    *_refused(
        "bootstrapServers",
        "of `read_kafka`: use `service.url`, such as `pulsar://host:6650`",
    ),
    *_refused("databricks.serviceCredential serviceCredential", _BY_SECURITY),
)

#: What each table is called in errors.
SOURCES: Mapping[str, tuple[OtherOption, ...]] = {
    "the Scala connector": SCALA,
    "Spark's Kafka source": KAFKA,
    "Databricks": DATABRICKS,
}

#: Names of no source that people try, and what to use instead.
_TRIED = {
    "url brokerUrl broker brokers": "service.url, such as pulsar://host:6650",
    "token authToken jwt": (
        "pulsar.client.authPluginClassName=token with"
        " pulsar.client.authParams=token:file:/path or token:env:NAME"
    ),
    "authentication auth": (
        "pulsar.client.authPluginClassName with pulsar.client.authParams"
    ),
    "compression": "pulsar.producer.compressionType",
    "partitionColumn": "the column __partition of the rows",
}

#: Beginning of names that are Kafka's, whatever follows.
KAFKA_PREFIX = "kafka."


def problem_of_other(key: str) -> str:
    """Return the cure for another source's option, "" for unknown names."""
    for source, options in SOURCES.items():
        for option in options:
            if option.name.lower() == key.lower():
                note = option.note.replace("`", "")
                return f"{option.name} is an option of {source}: {note}."
    for names, cure in _TRIED.items():
        if key.lower() in names.lower().split():
            return f"There is no option {key!r}: use {cure}."
    if key.lower().startswith(KAFKA_PREFIX):
        return (
            f"{key!r} is a setting of Kafka's clients, which mean nothing to Pulsar's:"
            " theirs begin with pulsar.client., pulsar.reader. and pulsar.producer."
        )
    return ""


def other_options_markdown(options: Iterable[OtherOption]) -> str:
    """Write a table as Markdown."""
    lines = ["| option | here | |", "|---|---|---|"]
    for option in options:
        note = option.note.replace("|", "\\|")
        lines.append(f"| `{option.name}` | {option.fate.value} | {note} |")
    return "\n".join(lines) + "\n"
