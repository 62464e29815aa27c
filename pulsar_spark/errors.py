"""Every exception of this package.

::

    PulsarSparkError
    ├── OptionError            [PULSAR_OPTION]           options that cannot work
    ├── SchemaError            [PULSAR_SCHEMA]           columns a topic does not have
    ├── TransportError         [PULSAR_CONNECTION]       unreachable, cut or silent
    ├── ProtocolError          [PULSAR_PROTOCOL]         bytes Pulsar would not send
    │   └── CorruptEntryError  [PULSAR_CORRUPT_MESSAGE]  one entry is unreadable
    ├── BrokerError            [PULSAR_BROKER]           the broker said no
    │   ├── TopicNotFoundError [PULSAR_TOPIC_NOT_FOUND]
    │   └── AuthError          [PULSAR_AUTH]
    ├── CheckpointError        [PULSAR_CHECKPOINT]       offsets that are not ours
    ├── ReadTimeoutError       [PULSAR_READ_TIMEOUT]     nothing came for too long
    └── DataLossError          [PULSAR_DATA_LOSS]        wanted rows are not there

A message says what happened, where, and what to change. Facts are attributes, too. All
of them survive pickling, because they travel from executors to the driver. None of them
ever holds a credential.
"""

from __future__ import annotations

from typing import Any

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


def _rebuild(cls: type[PulsarSparkError], state: dict[str, Any]) -> PulsarSparkError:
    error = cls.__new__(cls)
    Exception.__init__(error, state["message"])
    error.__dict__.update(state)
    return error


class PulsarSparkError(Exception):
    """Root of all errors of this package.

    Attributes:
        condition: Stable upper-case name, printed in brackets before the message.
        message: What happened, where, and what to change.
        retriable: Whether the same operation may succeed later, unchanged.
    """

    condition = "PULSAR"
    retriable = False

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return f"[{self.condition}] {self.message}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.__dict__)


class OptionError(PulsarSparkError, ValueError):
    """One or more options are unknown, malformed, or contradict each other.

    Attributes:
        problems: Every problem found, one sentence each.
    """

    condition = "PULSAR_OPTION"

    def __init__(self, *problems: str) -> None:
        super().__init__(" ".join(problems))
        self.problems = problems


class TransportError(PulsarSparkError, ConnectionError):
    """A broker could not be reached, or the connection to it broke or fell silent.

    Attributes:
        broker: ``host:port`` of the other side.
    """

    condition = "PULSAR_CONNECTION"
    retriable = True

    def __init__(self, message: str, *, broker: str = "") -> None:
        super().__init__(message)
        self.broker = broker


class ProtocolError(PulsarSparkError):
    """The other side sent bytes that the Pulsar protocol does not allow."""

    condition = "PULSAR_PROTOCOL"


class CorruptEntryError(ProtocolError):
    """One entry of a topic cannot be decoded: checksum, metadata, codec or batch.

    Attributes:
        topic_partition: Full name of the topic partition, "" where it is not known yet.
        message_id: ``ledger:entry`` of the entry, "" where it is not known yet.
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


class BrokerError(PulsarSparkError):
    """The broker refused a request.

    Attributes:
        code: The protocol's name for the reason, such as ``ServiceNotReady``.
        server_message: The broker's own sentence.
        broker: ``host:port`` of the broker.
    """

    condition = "PULSAR_BROKER"

    def __init__(
        self, message: str, *, code: str, server_message: str = "", broker: str = ""
    ) -> None:
        super().__init__(message)
        self.code = code
        self.server_message = server_message
        self.broker = broker
        self.retriable = code in RETRIABLE_SERVER_ERRORS

    def about(self, topic_partition: str) -> BrokerError:
        """The same error, its message beginning with the topic it is about."""
        return type(self)(
            f"{topic_partition}: {self.message}",
            code=self.code,
            server_message=self.server_message,
            broker=self.broker,
        )


class TopicNotFoundError(BrokerError):
    """A topic, or a partition of it, does not exist. We never create one by reading."""

    condition = "PULSAR_TOPIC_NOT_FOUND"


class AuthError(BrokerError):
    """The broker did not accept who we are, or what we are allowed to do."""

    condition = "PULSAR_AUTH"


class CheckpointError(PulsarSparkError, ValueError):
    """An offset in a streaming query's checkpoint cannot be read by this version."""

    condition = "PULSAR_CHECKPOINT"


class ReadTimeoutError(PulsarSparkError, TimeoutError):
    """A topic partition delivered nothing for ``pollTimeoutMs`` though rows are due.

    Attributes:
        topic_partition: Full name of the topic partition.
    """

    condition = "PULSAR_READ_TIMEOUT"

    def __init__(self, message: str, *, topic_partition: str = "") -> None:
        super().__init__(message)
        self.topic_partition = topic_partition


class DataLossError(PulsarSparkError):
    """Rows that were asked for are no longer in the topic.

    Attributes:
        topic_partition: Full name of the topic partition.
        wanted: ``ledger:entry[:batch_index]`` of the first row that was asked for.
        available: The first position that can still be read, "" where there is none.
    """

    condition = "PULSAR_DATA_LOSS"

    def __init__(
        self, message: str, *, topic_partition: str, wanted: str, available: str
    ) -> None:
        super().__init__(message)
        self.topic_partition = topic_partition
        self.wanted = wanted
        self.available = available


class SchemaError(PulsarSparkError, ValueError):
    """The schema that was asked for does not fit what a topic has."""

    condition = "PULSAR_SCHEMA"
