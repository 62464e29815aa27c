# SPDX-License-Identifier: Apache-2.0
"""Apache Pulsar topics as Spark tables, in Python.

Reading order of the package, along the path of a row::

    spark/datasource.py          options in, a reader out
    spark/batch.py               driver: an input partition for each task
    source/plan/batch_plan.py    asks the cluster where topics begin and end
    source/plan/ranges.py        the rows to read of each topic partition
    source/read/task.py          executor: the ranges of a task, in turn
    source/read/range_reader.py  the messages of a range
    client/entry_reader.py       entries, across broken connections
    client/connection.py         a socket and a thread
    wire/protocol.py             bytes in, events out
    wire/entries.py              an entry -> its messages
    loops/messages.py            the loop over messages, compiled if possible
    arrow/decode.py              messages -> RecordBatches for Spark

docs/architecture.md has the path of a write, and the rules of imports.

``kernel`` says which form of the loops runs: "compiled" or "python".
"""

from typing import TYPE_CHECKING, Any

import spark_topics.requirements  # noqa: F401 - for its effect
from pulsar_spark._version import __version__
from pulsar_spark.errors import (
    AskAgainError,
    AuthError,
    BadRowError,
    BrokerError,
    CheckpointError,
    CommitInDoubtError,
    CommitLogError,
    CorruptEntryError,
    DataLossError,
    DeduplicationOffError,
    EncryptionError,
    EndNotReachedError,
    IdempotenceError,
    InDoubtError,
    MessageTooLargeError,
    OptionError,
    PackagesError,
    ProtocolError,
    PulsarSparkError,
    QueryConflictError,
    ReadTimeoutError,
    ScalableTopicError,
    SchemaError,
    SendTimeoutError,
    TlsError,
    TopicMigratedError,
    TopicNotFoundError,
    TransactionLostError,
    TransactionsOffError,
    TransportError,
)
from pulsar_spark.spark.datasource import PulsarDataSource, PulsarPyDataSource
from pulsar_spark.spark.other_python import warn_of_other_python
from pulsar_spark.system import PULSAR
from spark_topics.errors import condition_of
from spark_topics.logs import set_up

# Each process of a query imports the package, and none needs these.
if TYPE_CHECKING:
    from pulsar_spark.programs import (
        ClientOptions,
        EndOffsets,
        MessageId,
        PartitionLag,
        PulsarLagListener,
        ReadOptions,
        StreamLag,
        WriteOptions,
        decode_message_id,
        dump_offsets,
        encode_message_id,
        end_offsets,
        kernel,
        lag_of,
        position_after,
        position_of,
        position_text,
        progress,
        session,
        use,
    )

set_up(PULSAR.package)

# Where a jar has its name, this warns: an import may be all that Python sees of it.
PulsarDataSource.name()
warn_of_other_python()


def __getattr__(name: str) -> Any:
    if name in __all__:
        from pulsar_spark import programs

        return getattr(programs, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "AskAgainError",
    "AuthError",
    "BadRowError",
    "BrokerError",
    "CheckpointError",
    "ClientOptions",
    "CommitInDoubtError",
    "CommitLogError",
    "CorruptEntryError",
    "DataLossError",
    "DeduplicationOffError",
    "EncryptionError",
    "EndNotReachedError",
    "EndOffsets",
    "IdempotenceError",
    "InDoubtError",
    "MessageId",
    "MessageTooLargeError",
    "OptionError",
    "PackagesError",
    "PartitionLag",
    "ProtocolError",
    "PulsarDataSource",
    "PulsarLagListener",
    "PulsarPyDataSource",
    "PulsarSparkError",
    "QueryConflictError",
    "ReadOptions",
    "ReadTimeoutError",
    "ScalableTopicError",
    "SchemaError",
    "SendTimeoutError",
    "StreamLag",
    "TlsError",
    "TopicMigratedError",
    "TopicNotFoundError",
    "TransactionLostError",
    "TransactionsOffError",
    "TransportError",
    "WriteOptions",
    "__version__",
    "condition_of",
    "decode_message_id",
    "dump_offsets",
    "encode_message_id",
    "end_offsets",
    "kernel",
    "lag_of",
    "position_after",
    "position_of",
    "position_text",
    "progress",
    "session",
    "use",
]
