# SPDX-License-Identifier: Apache-2.0
"""Every exception of this package.

::

    TubeMQError
    ├── OptionError            [TUBEMQ_OPTION]            options that cannot work
    ├── SchemaError            [TUBEMQ_SCHEMA]            columns a topic does not have
    ├── BadRowError            [TUBEMQ_BAD_ROW]           values a message cannot hold
    ├── TransportError         [TUBEMQ_CONNECTION]        unreachable, cut or silent
    │   ├── TlsError           [TUBEMQ_TLS]               no connection that is safe
    │   ├── CallTimeoutError   [TUBEMQ_TIMEOUT]           no answer in time
    │   └── NoMasterError      [TUBEMQ_NO_MASTER]         none of the masters serves
    ├── ProtocolError          [TUBEMQ_PROTOCOL]          bytes TubeMQ would not send
    │   └── CorruptMessageError [TUBEMQ_CORRUPT_MESSAGE]  one message is unreadable
    ├── ServerError            [TUBEMQ_SERVER]            a server said no
    │   ├── TopicNotFoundError [TUBEMQ_TOPIC_NOT_FOUND]
    │   ├── TopicNotPublishableError [TUBEMQ_TOPIC_NOT_PUBLISHABLE]
    │   ├── GroupForbiddenError [TUBEMQ_GROUP_FORBIDDEN]  the group may not read it
    │   ├── PartitionOccupiedError [TUBEMQ_PARTITION_OCCUPIED] another client reads it
    │   └── AuthError          [TUBEMQ_AUTH]
    ├── MessageTooLargeError   [TUBEMQ_MESSAGE_TOO_LARGE] a row no message can hold
    ├── CheckpointError        [TUBEMQ_CHECKPOINT]        offsets that are not ours
    ├── ReadTimeoutError       [TUBEMQ_READ_TIMEOUT]      nothing came for too long
    └── DataLossError          [TUBEMQ_DATA_LOSS]         wanted rows are not there

Their base says what all have in common: `spark_topics.errors`.
"""

from __future__ import annotations

from spark_topics import errors


class TubeMQError(errors.TopicsError):
    """Root of all errors of this package."""

    condition = "TUBEMQ"


class OptionError(TubeMQError, errors.OptionError):
    """Options are unknown, malformed, or contradictory.

    All problems are reported at once.

    Cure: Do what the message says.
    """

    condition = "TUBEMQ_OPTION"


class SchemaError(TubeMQError, errors.SchemaError):
    """A query or a write has columns that messages do not have.

    Cure: Choose from the documented columns, and cast.
    """

    condition = "TUBEMQ_SCHEMA"


class BadRowError(TubeMQError, errors.BadRowError):
    """A row to be written holds a value that no message can hold.

    Such as NULL as the value, a comma or an equals sign in an attribute, or a partition
    that the topic does not have.

    Cure: The message names the column and shows what is wrong.
    """

    condition = "TUBEMQ_BAD_ROW"


class TransportError(TubeMQError, errors.TransportError):
    """A server cannot be reached, or its connection broke or fell silent.

    Cure: Check the host, the port (usually 8715 of a master, 8123 of a broker) and the
    firewall, and that the server is up.
    """

    condition = "TUBEMQ_CONNECTION"


class TlsError(TransportError, errors.TlsError):
    """A connection could not be secured; nothing was sent.

    Cure: The message says which certificate, file or port is wrong.
    """

    condition = "TUBEMQ_TLS"


class CallTimeoutError(TransportError):
    """A server did not answer a call in time, and may have executed the call.

    Cure: Look at the server's log, or raise ``rpc.timeout``.

    Attributes:
        call: Name of the call.
    """

    condition = "TUBEMQ_TIMEOUT"

    def __init__(self, message: str, *, broker: str = "", call: str = "") -> None:
        super().__init__(message, broker=broker)
        self.call = call


class NoMasterError(TransportError):
    """None of the masters serves: each waits, refuses, or is silent.

    Cure: The message has what each of them said. Check ``master.rpc``.
    """

    condition = "TUBEMQ_NO_MASTER"


class ProtocolError(TubeMQError, errors.ProtocolError):
    """The server sent bytes that the TubeMQ protocol does not allow.

    Cure: Let ``master.rpc`` name the RPC port, not the web one.
    """

    condition = "TUBEMQ_PROTOCOL"


class CorruptMessageError(ProtocolError):
    """A message cannot be read: its checksum or its attributes are wrong.

    Cure: The place is named; read around it with offsets.

    Attributes:
        partition: ``topic/broker:partition``.
        message_id: Its id.
    """

    condition = "TUBEMQ_CORRUPT_MESSAGE"

    def __init__(self, reason: str, *, partition: str, message_id: int) -> None:
        super().__init__(f"Message {message_id} of {partition} is damaged: {reason}")
        self.partition = partition
        self.message_id = message_id


class ServerError(TubeMQError):
    """A server refused or failed a call.

    The message has its own code and sentence.

    Cure: Depends on the code.

    Attributes:
        code: The protocol's number; 0 where the server threw an exception instead.
        name: The protocol's name of the code, or the class of the exception.
        server_message: The server's own sentence.
        broker: ``host:port`` of the server.
    """

    condition = "TUBEMQ_SERVER"

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        name: str = "",
        server_message: str = "",
        broker: str = "",
        retriable: bool | None = None,
    ) -> None:
        super().__init__(message, retriable=retriable)
        self.code = code
        self.name = name
        self.server_message = server_message
        self.broker = broker


class TopicNotFoundError(ServerError):
    """A topic does not exist, or not for this group.

    Cure: Check its name. A new topic can be used some 40 seconds after it was made.
    """

    condition = "TUBEMQ_TOPIC_NOT_FOUND"


class TopicNotPublishableError(ServerError):
    """A topic is not open for writing, on any broker.

    Cure: Look at its ``acceptPublish``, and whether its brokers are up.
    """

    condition = "TUBEMQ_TOPIC_NOT_PUBLISHABLE"


class GroupForbiddenError(ServerError):
    """A consumer group may not read this, or is in use in another way.

    Cure: Choose another ``consume.group``, or ask the administrator.
    """

    condition = "TUBEMQ_GROUP_FORBIDDEN"


class PartitionOccupiedError(ServerError):
    """Another consumer of the group holds a partition.

    Cure: Give each query a ``consume.group`` that it owns. That of a process that was
    killed becomes free on its own after the broker's time-out, 30 seconds.
    """

    condition = "TUBEMQ_PARTITION_OCCUPIED"


class AuthError(ServerError):
    """A server does not let this client in.

    Cure: Check ``usr.name`` and ``usr.password``, and that the clocks here and there
    agree.
    """

    condition = "TUBEMQ_AUTH"


class MessageTooLargeError(TubeMQError, ValueError):
    """A row is larger than the cluster's largest message.

    Cure: Raise the topic's ``maxMsgSizeInMB``, or write smaller values.

    Attributes:
        size_bytes: Of value and attributes.
        limit_bytes: How large they may be.
    """

    condition = "TUBEMQ_MESSAGE_TOO_LARGE"

    def __init__(self, message: str, *, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(message)
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class CheckpointError(TubeMQError, errors.CheckpointError):
    """An offset of a checkpoint cannot be read.

    Cure: Start the query with the checkpoint that belongs to it, or with a new one.
    """

    condition = "TUBEMQ_CHECKPOINT"


class ReadTimeoutError(TubeMQError, errors.ReadTimeoutError):
    """A partition brought nothing for too long, though there is more to come.

    Cure: Look at the broker's log, or raise ``read.timeout``.

    Attributes:
        topic_partition: ``topic/broker:partition``.
    """

    condition = "TUBEMQ_READ_TIMEOUT"


class DataLossError(TubeMQError, errors.DataLossError):
    """Rows that were asked for are no longer in the topic, or never were.

    They were deleted by retention, or lost with a broker's memory, or the topic was
    made again.

    Cure: Start later, or set ``failOnDataLoss`` to ``false`` to go on with what there
    is.

    Attributes:
        topic_partition: ``topic/broker:partition``.
        wanted: The first offset that was asked for.
        available: The first that can still be read, "" where there is none.
    """

    condition = "TUBEMQ_DATA_LOSS"
