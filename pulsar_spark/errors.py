# SPDX-License-Identifier: Apache-2.0
"""Every exception of this package.

::

    PulsarSparkError
    ├── PackagesError          [PULSAR_PACKAGES]         not all that pip installs
    ├── OptionError            [PULSAR_OPTION]           options that cannot work
    ├── SchemaError            [PULSAR_SCHEMA]           columns a topic does not have
    ├── BadRowError            [PULSAR_BAD_ROW]          values a message cannot hold
    ├── TransportError         [PULSAR_CONNECTION]       unreachable, cut or silent
    │   └── TlsError           [PULSAR_TLS]              no connection that is safe
    ├── ProtocolError          [PULSAR_PROTOCOL]         bytes Pulsar would not send
    │   └── CorruptEntryError  [PULSAR_CORRUPT_MESSAGE]  one entry is unreadable
    ├── EncryptionError        [PULSAR_ENCRYPTION]       no key opens a message
    ├── BrokerError            [PULSAR_BROKER]           the broker said no
    │   ├── TopicNotFoundError [PULSAR_TOPIC_NOT_FOUND]
    │   ├── AuthError          [PULSAR_AUTH]
    │   ├── TopicMigratedError [PULSAR_TOPIC_MIGRATED]   to another cluster
    │   └── TransactionLostError [PULSAR_TRANSACTION_LOST] over before its commit
    ├── ScalableTopicError     [PULSAR_SCALABLE_TOPIC]   migrated within Pulsar 5
    ├── TransactionsOffError   [PULSAR_TRANSACTIONS_OFF] the cluster has none
    ├── CommitInDoubtError     [PULSAR_COMMIT_IN_DOUBT]  what of a write is visible
    ├── MessageTooLargeError   [PULSAR_MESSAGE_TOO_LARGE] a row no entry can hold
    ├── SendTimeoutError       [PULSAR_SEND_TIMEOUT]     no receipt came for too long
    ├── InDoubtError           [PULSAR_IN_DOUBT]         whether rows are stored
    ├── IdempotenceError       [PULSAR_IDEMPOTENCE]      an id that wrote other rows
    ├── DeduplicationOffError  [PULSAR_DEDUPLICATION_OFF] a broker that takes all twice
    ├── CheckpointError        [PULSAR_CHECKPOINT]       offsets that are not ours
    ├── CommitLogError         [PULSAR_COMMIT_LOG]       messages that are not ours
    ├── QueryConflictError     [PULSAR_QUERY_CONFLICT]   a log that says otherwise
    ├── AskAgainError          [PULSAR_ASK_AGAIN]        answers of no use, each time
    ├── ReadTimeoutError       [PULSAR_READ_TIMEOUT]     nothing came for too long
    └── DataLossError          [PULSAR_DATA_LOSS]        wanted rows are not there

A message says what happened, where, and what to change. The docstring of each class
says what it means and what cures it; docs/errors.md is generated from these. Facts are
attributes, too. All errors survive pickling, because they travel from executors to the
driver. None of them ever holds a credential, nor a character that would end its line in
a log or command a terminal: names and sentences of others are part of messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_topics import errors as kinds
from spark_topics.errors import escaped_text as escaped_text
from spark_topics.errors import foreign_text as foreign_text

#: ServerError of the public protocol, by number. Names are the protocol's own.
SERVER_ERRORS: dict[int, str] = {
    0: "UnknownError",
    1: "MetadataError",
    2: "PersistenceError",
    3: "AuthenticationError",
    4: "AuthorizationError",
    5: "ConsumerBusy",
    6: "ServiceNotReady",
    7: "ProducerBlockedQuotaExceededError",
    8: "ProducerBlockedQuotaExceededException",
    9: "ChecksumError",
    10: "UnsupportedVersionError",
    11: "TopicNotFound",
    12: "SubscriptionNotFound",
    13: "ConsumerNotFound",
    14: "TooManyRequests",
    15: "TopicTerminatedError",
    16: "ProducerBusy",
    17: "InvalidTopicName",
    18: "IncompatibleSchema",
    19: "ConsumerAssignError",
    20: "TransactionCoordinatorNotFound",
    21: "InvalidTxnStatus",
    22: "NotAllowedError",
    23: "TransactionConflict",
    24: "TransactionNotFound",
    25: "ProducerFenced",
}

#: Codes after which the same request may succeed: the topic is moving, the broker is
#: starting, or it is overloaded. Everything else is final for the operation.
RETRIABLE_SERVER_ERRORS = frozenset(
    {
        "UnknownError",
        "MetadataError",
        "PersistenceError",
        "ConsumerBusy",
        "ServiceNotReady",
        "ProducerBlockedQuotaExceededError",
        "ConsumerNotFound",
        "TooManyRequests",
        "TransactionCoordinatorNotFound",
    }
)


class PulsarSparkError(kinds.TopicsError):
    """Root of all errors of this package.

    Attributes:
        condition: Stable upper-case name, printed in brackets before the message.
        message: What happened, where, and what to change.
        retriable: Whether the same operation may succeed later, unchanged.

    Args:
        message: The message.
        retriable: None for what is usual for the class.
    """

    condition = "PULSAR"


class PackagesError(PulsarSparkError):
    """Packages are missing that pip installs together with this package.

    Cure: Install them by the command in the message, for the Python that the message
    names, and on each node that runs executors.
    """

    condition = "PULSAR_PACKAGES"


class OptionError(PulsarSparkError, kinds.OptionError):
    """Options are unknown, malformed, or contradict each other.

    All problems are reported at once.

    Cure: Do what the message says.

    Attributes:
        problems: Every problem found, one sentence each.
    """

    condition = "PULSAR_OPTION"


class TransportError(PulsarSparkError, kinds.TransportError):
    """A broker is unreachable, or the connection broke or fell silent.

    Cure: Check the host, the port (the binary one, usually 6650) and the firewall, and
    that the broker is up.

    Attributes:
        broker: ``host:port`` of the other side.
    """

    condition = "PULSAR_CONNECTION"


class TlsError(TransportError, kinds.TlsError):
    """A connection could not be made safe: nothing was sent.

    A certificate is not trusted, not valid, or for another host; the broker does not
    take ours; a file with one of them is missing on a node or of no use; or one side
    speaks TLS and the other does not.

    Cure: The message says which. Files named by options must be on every node.

    Attributes:
        is_unheard: Whether the other side only closed the connection.
    """

    condition = "PULSAR_TLS"


class ProtocolError(PulsarSparkError, kinds.ProtocolError):
    """The other side sent bytes that the Pulsar protocol does not allow.

    It is not a Pulsar broker, or sends what the protocol forbids, or more than was
    asked for.

    Cure: Let ``service.url`` name the binary port, not the HTTP one.

    Attributes:
        size_bytes: Size of what is larger than it may be, 0 where something else is
            wrong.
        limit_bytes: How large it may be.
    """

    condition = "PULSAR_PROTOCOL"


class CorruptEntryError(ProtocolError):
    """An entry of a topic cannot be decoded.

    Its checksum, codec or layout is wrong, or it is too large.

    Cure: The message id is named: read around it with offsets (a stream: with a new
    checkpoint), or raise ``pulsar.client.memoryLimitBytes``.

    Attributes:
        topic_partition: Full name of the topic partition, "" if it is not known yet.
        message_id: ``ledger:entry`` of the entry, "" if it is not known yet.
        reason: What is wrong with its bytes.
    """

    condition = "PULSAR_CORRUPT_MESSAGE"

    def __init__(
        self, reason: str, *, topic_partition: str = "", message_id: str = ""
    ) -> None:
        where = (
            f"Message {message_id} of {topic_partition} cannot be read: "
            if message_id
            else "An entry cannot be read: "
        )
        super().__init__(where + reason)
        self.reason = reason
        self.topic_partition = topic_partition
        self.message_id = message_id


class EncryptionError(PulsarSparkError):
    """No key of the read opens a message, or an unencrypted message must be encrypted.

    Cure: Give the private key of one of the names that the message has, by
    ``encryption.privateKeys``; or let ``pulsar.reader.cryptoFailureAction`` be
    ``DISCARD`` or ``CONSUME``. Where ``encryption.required`` is set, let producers
    encrypt.

    Attributes:
        topic_partition: Full name of the topic partition, "" if it is not known yet.
        message_id: ``ledger:entry`` of the entry, "" if it is not known yet.
        reason: Why it cannot be opened.
    """

    condition = "PULSAR_ENCRYPTION"

    def __init__(
        self, reason: str, *, topic_partition: str = "", message_id: str = ""
    ) -> None:
        where = (
            f"Message {message_id} of {topic_partition} cannot be decrypted: "
            if message_id
            else "An entry cannot be decrypted: "
        )
        super().__init__(where + reason)
        self.reason = reason
        self.topic_partition = topic_partition
        self.message_id = message_id


class BrokerError(PulsarSparkError):
    """The broker refused a request.

    The message has its own code and sentence.

    Cure: Depends on the code.

    Attributes:
        code: The protocol's name for the reason, such as ``ServiceNotReady``.
        server_message: The broker's own sentence.
        broker: ``host:port`` of the broker.
    """

    condition = "PULSAR_BROKER"

    def __init__(
        self,
        message: str,
        *,
        code: str,
        server_message: str = "",
        broker: str = "",
        retriable: bool | None = None,
    ) -> None:
        if retriable is None:
            retriable = code in RETRIABLE_SERVER_ERRORS
        super().__init__(message, retriable=retriable)
        self.code = code
        self.server_message = foreign_text(server_message)
        self.broker = broker


class TopicNotFoundError(BrokerError):
    """A topic or a partition does not exist, or no topic matches.

    Reading never creates one.

    Cure: Correct the name, create the topic, or set ``waitingForNonExistedTopic``.
    """

    condition = "PULSAR_TOPIC_NOT_FOUND"


class AuthError(BrokerError):
    """The broker did not accept who we are, or what we are allowed to do.

    Or there is no credential to show: a file that does not answer, an OAuth2 server
    that gives no token.

    Cure: The message names the method and what to check, or the role, the topic, what
    is missing and the command that grants it.
    """

    condition = "PULSAR_AUTH"


class TopicMigratedError(BrokerError):
    """The topic was migrated to another cluster, where old positions mean nothing.

    Nor do transactions, or what a broker knows of duplicates. Writes of the guarantees
    ``none`` and ``at-least-once`` follow by themselves.

    Cure: The message has the URL of the new cluster: set ``service.url`` to it, and
    begin with a new checkpoint, a stream at ``earliest``.

    Attributes:
        service_url: URL of the new cluster, "" if it was not said.
        service_url_tls: Its URL for TLS, in the same way.
    """

    condition = "PULSAR_TOPIC_MIGRATED"

    def __init__(
        self, message: str, *, broker: str, service_url: str, service_url_tls: str
    ) -> None:
        super().__init__(message, code="TopicMigrated", broker=broker)
        self.service_url = service_url
        self.service_url_tls = service_url_tls


class ScalableTopicError(PulsarSparkError):
    """A scalable topic of Pulsar 5 where that cannot be.

    With `deliveryGuarantee=idempotent` no row names one in its column `__topic`. No
    transaction takes rows for scalable topics and for ordinary ones. A single partition
    of a topic that was migrated to a scalable one goes quiet. Brokers before Pulsar 5
    have no scalable topics.

    Cure: Name the topic in the option `topic`, name the whole topic, or name an
    ordinary topic.

    Attributes:
        topic: The topic that was named.
        scalable_topic: Its full name, ``topic://tenant/namespace/name``.
    """

    condition = "PULSAR_SCALABLE_TOPIC"

    def __init__(self, topic: str, scalable_topic: str, message: str = "") -> None:
        what = (
            f"{topic} is a scalable topic of Pulsar 5."
            if topic == scalable_topic
            else f"{topic} was migrated to the scalable topic {scalable_topic} of "
            "Pulsar 5, and takes no further rows."
        )
        super().__init__(
            message
            or f"{what} It has segments and no partitions: name an ordinary topic."
        )
        self.topic = topic
        self.scalable_topic = scalable_topic

    @classmethod
    def of_partition(cls, topic: str, scalable_topic: str) -> ScalableTopicError:
        """Return the error for a partition of a topic that was migrated."""
        return cls(
            topic,
            scalable_topic,
            f"{topic} was a partition of a topic that was migrated to the scalable "
            f"topic {scalable_topic} of Pulsar 5, and takes no further rows. Name the "
            f"whole topic, {scalable_topic}.",
        )


class TransactionsOffError(PulsarSparkError):
    """Transactions are wanted, and the cluster has transactions switched off.

    Cure: The message has the broker setting and the command.
    """

    condition = "PULSAR_TRANSACTIONS_OFF"


class TransactionLostError(BrokerError):
    """Transactions ended before their commit: most often they had expired.

    A micro-batch, a batch write or a task took longer than its transactions live. Or
    Pulsar has left a topic out of a commit, because it was unloaded at that moment.

    Cure: Start the query again: it writes the missing rows; a batch write, too, unless
    the message says that some rows are visible. Raise ``transactionTimeoutMs``. Rows
    that a commit left out are lost; the message names their topics.

    Attributes:
        batch_id: The micro-batch, -1 if it is about none.
        partitions: Input partitions whose rows are not visible, as far as known.
    """

    condition = "PULSAR_TRANSACTION_LOST"

    def __init__(
        self, batch_id: int, partitions: Sequence[int], message: str = ""
    ) -> None:
        text = message or (
            f"Micro-batch {batch_id} took longer than its transactions live: those of "
            f"{len(partitions)} tasks had expired before they could be committed. "
            "Nothing is lost or doubled: start the query again, and these tasks write "
            "their rows once more. Raise `transactionTimeoutMs`, or make micro-batches "
            "smaller."
        )
        super().__init__(text, code="TransactionNotFound")
        self.batch_id = batch_id
        self.partitions = tuple(partitions)


class CommitInDoubtError(PulsarSparkError):
    """Whether all rows of a batch write, or a micro-batch, are visible is not known.

    Cure: Look at the rows in the topic before repeating the write; the message names
    the tasks. A stream goes on with another `idempotenceId`, or exactly once another
    `commitTopic`, and writes that micro-batch again.

    Attributes:
        visible: Input partitions whose rows are visible.
        lost: Those whose rows are not, and will never be.
        unknown: Those of which that is not known.
    """

    condition = "PULSAR_COMMIT_IN_DOUBT"

    def __init__(
        self,
        message: str,
        *,
        visible: Sequence[int],
        lost: Sequence[int],
        unknown: Sequence[int],
    ) -> None:
        super().__init__(message)
        self.visible = tuple(visible)
        self.lost = tuple(lost)
        self.unknown = tuple(unknown)


class MessageTooLargeError(PulsarSparkError, ValueError):
    """A row does not fit into an entry, and may not be cut into chunks.

    Cure: Set ``pulsar.producer.chunkingEnabled``, compress, or raise
    ``maxMessageSize``.

    Attributes:
        size_bytes: The size of the row's entry, metadata included, after compression.
        limit_bytes: What an entry may take.
        chunk_bytes: Most bytes of a chunk, where rows are cut into chunks; else 0.
        topic_partition: Full name of the topic partition, "" where not known yet.
    """

    condition = "PULSAR_MESSAGE_TOO_LARGE"

    def __init__(
        self,
        *,
        size_bytes: int,
        limit_bytes: int,
        chunk_bytes: int = 0,
        topic_partition: str = "",
    ) -> None:
        where = f" for {topic_partition}" if topic_partition else ""
        reason = (
            f"an entry can hold no more than {limit_bytes}: the broker's "
            "maxMessageSize less some room for what is stored with it"
        )
        cure = (
            "Set `pulsar.producer.chunkingEnabled` to true, compress, or raise "
            "maxMessageSize on brokers and bookies"
        )
        if 0 < chunk_bytes < limit_bytes:
            reason = (
                f"a chunk of {chunk_bytes} has no room beside the metadata that each "
                "chunk carries"
            )
            cure = "Raise `pulsar.producer.chunkMaxMessageSize`"
        super().__init__(
            f"A row{where} takes {size_bytes} bytes, but {reason}. Nothing behind "
            f"that row was sent. {cure}."
        )
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
        self.chunk_bytes = chunk_bytes
        self.topic_partition = topic_partition


class SendTimeoutError(PulsarSparkError, TimeoutError):
    """A broker acknowledged nothing for ``sendTimeoutMs`` though rows are due.

    Cure: Look at the broker's log, or raise ``sendTimeoutMs``.

    Attributes:
        topic_partition: Full name of the topic partition.
    """

    condition = "PULSAR_SEND_TIMEOUT"

    def __init__(self, message: str, *, topic_partition: str = "") -> None:
        super().__init__(message)
        self.topic_partition = topic_partition


class InDoubtError(PulsarSparkError):
    """A connection broke, and whether the rows in flight are stored is not known.

    Only where sending them again could store them twice, in a transaction without
    deduplication; or if it may not help, with deduplication: of a row in chunks, or
    where another producer of the same name may have written.

    Cure: Let Spark repeat the task, by ``spark.task.maxFailures``.

    Attributes:
        topic_partition: Full name of the topic partition.
        rows: How many are in doubt.
    """

    condition = "PULSAR_IN_DOUBT"

    def __init__(self, message: str, *, topic_partition: str, rows: int) -> None:
        super().__init__(f"{topic_partition}: {message}")
        self.topic_partition = topic_partition
        self.rows = rows


class DeduplicationOffError(PulsarSparkError):
    """A topic's broker does not deduplicate, and ``idempotent`` was asked for.

    A replay would repeat rows.

    Cure: The message has the command.

    Attributes:
        topic: Full name of the topic.
    """

    condition = "PULSAR_DEDUPLICATION_OFF"

    def __init__(self, topic: str) -> None:
        namespace = topic.partition("://")[2].rpartition("/")[0]
        super().__init__(
            f"{topic}: `deliveryGuarantee=idempotent` needs deduplication, which is "
            "off for this topic. Switch it on with `bin/pulsar-admin namespaces "
            f"set-deduplication {namespace} --enable`, with `bin/pulsar-admin "
            f"topicPolicies set-deduplication {topic} --enable`, or with "
            "`brokerDeduplicationEnabled=true` in broker.conf. Nothing was written."
        )
        self.topic = topic


class IdempotenceError(PulsarSparkError):
    """An ``idempotenceId`` has written other rows, which the broker would mix up.

    Either micro-batches that come after this one: before the checkpoint was set back,
    or, in ``foreachBatch``, for another query. Or other rows of the same task of this
    one. What changes the rows of a task: other values of ``minPartitions``,
    ``maxPartitions``, ``maxRecordsPerPartition``, ``spark.default.parallelism`` or
    ``spark.sql.files.maxPartitionBytes``; another plan, such as another ``coalesce`` or
    order of a ``union``; more partitions, or another schema, of the topic written to;
    shuffles; a compacted source; random values, and times of the clock, in the rows.

    Cure: Where the rows of a task changed, undo that and start the query again, or go
    on with another ``idempotenceId``: rows of this micro-batch that are stored come a
    second time then. With ``exactly-once`` rows may come in another order. Where the
    checkpoint was set back, use a new one, or another ``idempotenceId``.

    Attributes:
        idempotence_id: The id.
        topic_partition: If it has.
        batch_ids: The micro-batch to be written, and the last one that is there; the
            same where a task had other rows.
    """

    condition = "PULSAR_IDEMPOTENCE"

    def __init__(
        self, idempotence_id: str, topic_partition: str, batch_ids: tuple[int, int]
    ) -> None:
        batch_id, last = batch_ids
        if batch_id == last:
            text = (
                f"{topic_partition}: this task has written other rows of micro-batch "
                f"{batch_id} before, under the `idempotenceId` {idempotence_id!r}: the "
                "broker would drop rows that it does not have, and have others twice. "
                "What a task has changes with minPartitions, maxPartitions, "
                "maxRecordsPerPartition, spark.default.parallelism, "
                "spark.sql.files.maxPartitionBytes, coalesce, the order of a union, "
                "and the partitions and the schema of the topic; and at each attempt "
                "behind shuffles and compacted topics, and with random values or the "
                "time of day in rows. Undo such a change and start again. Or go on "
                "with a new `idempotenceId`: rows of this micro-batch that are stored "
                "come a second time then. With `deliveryGuarantee=exactly-once` rows "
                "may come in another order."
            )
        else:
            text = (
                f"{topic_partition}: micro-batch {batch_id} cannot be written under "
                f"the `idempotenceId` {idempotence_id!r}, because rows of its "
                f"micro-batch {last} are there already: the broker would drop these "
                "rows as duplicates. Was the checkpoint set back, or does a batch "
                "write in `foreachBatch` go by an id that another query has used? "
                "Begin with a new checkpoint, or give it another id."
            )
        super().__init__(text)
        self.idempotence_id = idempotence_id
        self.topic_partition = topic_partition
        self.batch_ids = batch_ids


class CheckpointError(PulsarSparkError, kinds.CheckpointError):
    """An offset in a streaming query's checkpoint cannot be read by this version.

    It is not that of a Pulsar stream, or it is of a later version.

    Cure: Use a new checkpoint location, or the later version.
    """

    condition = "PULSAR_CHECKPOINT"


class CommitLogError(PulsarSparkError):
    """An ``exactly-once`` stream's log of commits has a message of another origin.

    Another client writes to the topic, or a later version did.

    Cure: Give every such stream a ``commitTopic`` that it owns, or use the later
        version.
    """

    condition = "PULSAR_COMMIT_LOG"


class QueryConflictError(PulsarSparkError):
    """An ``exactly-once`` stream's log of commits contradicts what the query does.

    The query runs twice, or its checkpoint was set back. Or a micro-batch that is
    visible already, or a part of which is, has other rows or other tasks now.

    Cure: Stop the other run; or begin with a new checkpoint or a new log; or run the
    micro-batch with the settings that it had. The message says which.

    Attributes:
        batch_ids: The micro-batch to be written, and the last one that is visible, the
            same where it had other rows; None where the query runs twice.
    """

    condition = "PULSAR_QUERY_CONFLICT"

    def __init__(self, message: str, batch_ids: tuple[int, int] | None = None) -> None:
        super().__init__(message)
        self.batch_ids = batch_ids


class AskAgainError(PulsarSparkError):
    """An answer of the cluster was of no use, at every try.

    A topic moves while it is asked about, or no broker can be named for it.

    Cure: Try again later; brokers that go up and down say why in their logs.
    """

    condition = "PULSAR_ASK_AGAIN"
    retriable = True


class ReadTimeoutError(PulsarSparkError, kinds.ReadTimeoutError):
    """A topic partition delivered nothing for ``pollTimeoutMs`` though rows are due.

    Cure: Look at the broker's log, or raise ``pollTimeoutMs``.

    Attributes:
        topic_partition: Full name of the topic partition.
    """

    condition = "PULSAR_READ_TIMEOUT"


class DataLossError(PulsarSparkError, kinds.DataLossError):
    """Rows that were asked for are no longer in the topic.

    Or the topic never reached the position from which a stream is to go on. Or the
    options no longer name a topic that a stream has read.

    Cure: Start later, or set ``failOnDataLoss`` to ``false`` to go on with what there
    is.

    Attributes:
        topic_partition: Full name of the topic partition.
        wanted: ``ledger:entry[:batch_index]`` of the first row that was asked for.
        available: The first position that can still be read, "" where there is none.
    """

    condition = "PULSAR_DATA_LOSS"


class EndNotReachedError(PulsarSparkError):
    """A batch read cannot read up to the end that the options ask for.

    An open transaction holds back what is before that, or the topic ends earlier.

    Cure: Read again when the transaction has ended, or correct the end. Or set
    ``failOnUnreachedEnd`` to ``false`` to read what can be read now.

    Attributes:
        topic_partition: Full name of the topic partition.
        wanted: ``ledger:entry[:batch_index]`` where the read should end.
        available: The last position that can be read, or where the topic ends; "" where
            there is nothing.
    """

    condition = "PULSAR_END_NOT_REACHED"

    def __init__(
        self,
        message: str,
        *,
        topic_partition: str = "",
        wanted: str = "",
        available: str = "",
        retriable: bool | None = None,
    ) -> None:
        super().__init__(message, retriable=retriable)
        self.topic_partition = topic_partition
        self.wanted = wanted
        self.available = available


class SchemaError(PulsarSparkError, kinds.SchemaError):
    """Columns or types that were asked for do not fit what a topic has.

    ``.schema(...)`` names columns or types that a topic does not have, or rows to be
    written have columns or types that cannot be written, or not by the topic's schema.
    A write adds nullable fields to that and changes nothing else; where brokers refuse
    these, the message has their reason and the fields.

    Cure: Choose from the documented columns, and cast after reading; ``select`` and
    cast before writing, or say by ``schemaType`` what values are.
    """

    condition = "PULSAR_SCHEMA"


class BadRowError(PulsarSparkError, kinds.BadRowError):
    """A row to be written holds a value that no message can hold.

    Such as NULL where the topic's schema has none, a time before 1970, a NULL within
    ``__messageProperties``, text that is not UTF-8, or a partition that the topic does
    not have. Or it names the stream's own log of commits, or is one more than an
    ``idempotent`` task can number.

    Cure: Correct or filter the row.
    """

    condition = "PULSAR_BAD_ROW"
