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

from importlib import import_module
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

if TYPE_CHECKING:
    from pulsar_spark.builders import ClientOptions, ReadOptions, WriteOptions
    from pulsar_spark.message_id import MessageId, decode_message_id, encode_message_id
    from pulsar_spark.options.offsets import dump_offsets
    from pulsar_spark.source.plan.topic_ends import EndOffsets, end_offsets
    from pulsar_spark.spark.functions import position_after, position_of, position_text
    from pulsar_spark.spark.lag import (
        PartitionLag,
        PulsarLagListener,
        StreamLag,
        lag_of,
    )
    from pulsar_spark.spark.progress import progress
    from pulsar_spark.spark.sessions import session, use

kernel: str

#: The modules of what programs of users need: each process of a query imports the
#: package, and none of these by that.
_LATER = {
    "builders": ("ClientOptions", "ReadOptions", "WriteOptions"),
    "message_id": ("MessageId", "decode_message_id", "encode_message_id"),
    "options.offsets": ("dump_offsets",),
    "source.plan.topic_ends": ("EndOffsets", "end_offsets"),
    "spark.functions": ("position_after", "position_of", "position_text"),
    "spark.lag": ("PartitionLag", "PulsarLagListener", "StreamLag", "lag_of"),
    "spark.progress": ("progress",),
    "spark.sessions": ("session", "use"),
}
_MODULES = {name: module for module, names in _LATER.items() for name in names}

set_up(PULSAR.package)

# Where a jar has its name, this warns: an import may be all that Python sees of it.
PulsarDataSource.name()
warn_of_other_python()


def __getattr__(name: str) -> Any:
    if name == "kernel":
        return import_module("pulsar_spark.loops.messages").KERNEL
    if name in _MODULES:
        return getattr(import_module(f"pulsar_spark.{_MODULES[name]}"), name)
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
