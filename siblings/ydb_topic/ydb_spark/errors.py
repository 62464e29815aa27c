# SPDX-License-Identifier: Apache-2.0
"""Every exception of this package.

::

    YdbError
    ├── OptionError               [YDB_OPTION]             options that cannot work
    ├── SchemaError               [YDB_SCHEMA]             columns that do not fit
    ├── BadRowError               [YDB_BAD_ROW]            values no message can hold
    ├── TransportError            [YDB_CONNECTION]         unreachable, cut or silent
    │   └── TlsError              [YDB_TLS]                no connection that is safe
    ├── ForkError                 [YDB_FORK]               gRPC from before a fork
    ├── ProtocolError             [YDB_PROTOCOL]           answers no server would give
    ├── CorruptMessageError       [YDB_CORRUPT_MESSAGE]    a body that is unreadable
    ├── ServerError               [YDB_SERVER]             the server said no
    │   ├── TopicNotFoundError    [YDB_TOPIC_NOT_FOUND]    or no right to see it
    │   ├── AuthError             [YDB_AUTH]               no right to do that
    │   ├── TakenOverError        [YDB_TAKEN_OVER]         another attempt writes
    │   ├── BoundProducerError    [YDB_BOUND_PRODUCER]     to another partition
    │   └── InactivePartitionError [YDB_INACTIVE_PARTITION] was split or merged
    ├── SendTimeoutError          [YDB_SEND_TIMEOUT]       no answer for too long
    ├── IdempotenceError          [YDB_IDEMPOTENCE]        an id that wrote later rows
    ├── CheckpointError           [YDB_CHECKPOINT]         offsets that are not ours
    ├── ReadTimeoutError          [YDB_READ_TIMEOUT]       nothing came for too long
    └── DataLossError             [YDB_DATA_LOSS]          wanted rows are not there

Their base says what all have in common: `spark_topics.errors`.
"""

from __future__ import annotations

from spark_topics import errors


class YdbError(errors.TopicsError):
    """Root of all errors of this package."""

    condition = "YDB"


class OptionError(YdbError, errors.OptionError):
    """Options are unknown, malformed, or contradictory.

    All problems are reported at once.

    Cure: Do what the message says.
    """

    condition = "YDB_OPTION"


class SchemaError(YdbError, errors.SchemaError):
    """Columns do not fit what can be written to or read from a topic.

    Cure: Name, cast or drop columns as the message says.
    """

    condition = "YDB_SCHEMA"


class BadRowError(YdbError, errors.BadRowError):
    """A row to be written holds a value that no message can hold.

    Cure: Fix or leave out the row that the message names.
    """

    condition = "YDB_BAD_ROW"


class TransportError(YdbError, errors.TransportError):
    """The server cannot be reached, or the connection broke or fell silent.

    Cure: Look at ``url``, at the network, and at whether the cluster is up.
    """

    condition = "YDB_CONNECTION"


class TlsError(TransportError, errors.TlsError):
    """A connection could not be secured; nothing was sent.

    Cure: Let ``ca`` name the authority of the server's certificate.
    """

    condition = "YDB_TLS"


class ForkError(YdbError):
    """The process was forked after gRPC was used; calls would hang.

    Cure: Touch no topic of YDB in a process that starts others by fork.
    """

    condition = "YDB_FORK"


class ProtocolError(YdbError, errors.ProtocolError):
    """The server answered in a way that the service's documents do not allow.

    Cure: Report it, with the server's version.
    """

    condition = "YDB_PROTOCOL"


class CorruptMessageError(YdbError):
    """The body of a message cannot be decoded, or its codec is unknown.

    Cure: Read around the offset that the message names.
    """

    condition = "YDB_CORRUPT_MESSAGE"


class ServerError(YdbError):
    """The server refused.

    Cure: As its words say; the status is YDB's own.

    Attributes:
        status: Name of YDB's status, such as ``BAD_REQUEST``.
        is_slow: Whether to wait longer than usual before another try.
    """

    condition = "YDB_SERVER"

    def __init__(
        self,
        message: str,
        *,
        status: str = "",
        is_slow: bool = False,
        retriable: bool | None = None,
    ) -> None:
        super().__init__(message, retriable=retriable)
        self.status = status
        self.is_slow = is_slow


class TopicNotFoundError(ServerError):
    """The topic does not exist, or may not be seen: the server does not say which.

    Cure: Look at ``topic`` and the database in ``url``, then at the rights.
    """

    condition = "YDB_TOPIC_NOT_FOUND"


class AuthError(ServerError):
    """The token or password is refused, or has no right to do this.

    Cure: Writing needs the right UpdateRow, reading SelectRow.
    """

    condition = "YDB_AUTH"


class TakenOverError(ServerError):
    """Another session of the same producer replaced this session.

    Cure: Set ``spark.speculation=false``; give each query its own ``idempotenceId``.
    """

    condition = "YDB_TAKEN_OVER"


class BoundProducerError(ServerError):
    """A producer has written to another partition before, and stays there.

    Cure: Take a new ``idempotenceId``, or the former partition.
    """

    condition = "YDB_BOUND_PRODUCER"


class InactivePartitionError(ServerError):
    """A partition that rows name was split or merged, and takes no more.

    Cure: Write to its children, or let the server choose: ``partitioning=server``.
    """

    condition = "YDB_INACTIVE_PARTITION"


class SendTimeoutError(YdbError, TimeoutError):
    """Rows had no answer for ``sendTimeoutMs``; they may be stored or not.

    Cure: Look at the server and at the topic's write quota, or raise ``sendTimeoutMs``.
    """

    condition = "YDB_SEND_TIMEOUT"


class IdempotenceError(YdbError):
    """The id of a write has written rows of a later micro-batch.

    What would be written now would be dropped without a word.

    Cure: Take a new ``idempotenceId`` with a new checkpoint.
    """

    condition = "YDB_IDEMPOTENCE"


class CheckpointError(YdbError, errors.CheckpointError):
    """An offset in a streaming query's checkpoint cannot be read by this version.

    Cure: Take the checkpoint of this query, or a new one.
    """

    condition = "YDB_CHECKPOINT"


class ReadTimeoutError(YdbError, errors.ReadTimeoutError):
    """A partition delivered nothing for ``pollTimeoutMs`` though rows are due.

    Cure: Look at the server, or raise ``pollTimeoutMs``.
    """

    condition = "YDB_READ_TIMEOUT"


class DataLossError(YdbError, errors.DataLossError):
    """Rows that were asked for, or just written, are not in the topic any more.

    Cure: In reads ``failOnDataLoss=false`` goes on with what is there; write again.
    """

    condition = "YDB_DATA_LOSS"
