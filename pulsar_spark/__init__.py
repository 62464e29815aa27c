"""Apache Pulsar topics as Spark tables, in Python.

Reading order of the package, along the path of a row::

    spark/datasource.py    options in, a reader out
    spark/reader.py        driver: one input partition for each topic partition
    client/planner.py      asks the cluster where topics begin and end
    plan.py                what to read of each
    client/range_reader.py executor: the messages of one range
    client/reader.py       its entries, across broken connections
    client/connection.py   a socket and a thread
    wire/protocol.py       bytes in, events out
    wire/entries.py        one entry -> its messages
    wire/messages.py       the loop over them, compiled where a C compiler was at hand
    arrow/decode.py        messages -> RecordBatches for Spark

``kernel`` says which form of that loop runs: "compiled" or "python".
"""

from pulsar_spark._version import __version__
from pulsar_spark.errors import (
    AuthError,
    BrokerError,
    CorruptEntryError,
    DataLossError,
    OptionError,
    ProtocolError,
    PulsarSparkError,
    ReadTimeoutError,
    SchemaError,
    TopicNotFoundError,
    TransportError,
)
from pulsar_spark.logs import protect_loggers
from pulsar_spark.message_id import MessageId, decode_message_id, encode_message_id
from pulsar_spark.offsets import dump_offsets
from pulsar_spark.spark.datasource import PulsarDataSource
from pulsar_spark.spark.lag import PulsarLagListener
from pulsar_spark.wire import messages

kernel = messages.KERNEL

protect_loggers()

__all__ = [
    "AuthError",
    "BrokerError",
    "CorruptEntryError",
    "DataLossError",
    "MessageId",
    "OptionError",
    "ProtocolError",
    "PulsarDataSource",
    "PulsarLagListener",
    "PulsarSparkError",
    "ReadTimeoutError",
    "SchemaError",
    "TopicNotFoundError",
    "TransportError",
    "__version__",
    "decode_message_id",
    "dump_offsets",
    "encode_message_id",
    "kernel",
]
