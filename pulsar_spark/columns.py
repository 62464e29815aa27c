# SPDX-License-Identifier: Apache-2.0
"""The table of columns: all columns of reads and of writes.

Schemas, checks, options and the documentation follow from it. To add a column, add its
row to ``COLUMNS``, and say how it is made: for a read in ``arrow.message_columns``, for
a write in ``arrow.encode``.
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_topics.columns import Column as Column
from spark_topics.columns import ColumnType as ColumnType
from spark_topics.columns import Read as Read
from spark_topics.columns import Write as Write

# The columns that other modules name.
VALUE = "value"
KEY = "__key"
TOPIC = "__topic"
PARTITION = "__partition"
PUBLISH_TIME = "__publishTime"
SCHEMA_VERSION = "__schemaVersion"
TOMBSTONE = "__tombstone"


#: All columns of a topic without a schema: the value, those of the Scala connector in
#: its order, and the others.
COLUMNS = (
    Column(
        VALUE,
        Read(
            ColumnType.BINARY,
            "the payload; NULL for a null value, empty for an empty one",
            default=True,
        ),
        Write(
            1,
            (ColumnType.BINARY, ColumnType.STRING),
            "the payload; by a schema also of another type, or a field among others."
            " NULL in `value` alone is a null value (a tombstone for its key, which"
            " compaction removes), an empty one is empty",
        ),
    ),
    Column(
        KEY,
        Read(
            ColumnType.BINARY,
            "the key, decoded where it was sent as base64; NULL without one",
            default=True,
        ),
        Write(
            2,
            (ColumnType.STRING, ColumnType.BINARY),
            "the key: text as it is, bytes as base64, as the Java client has it."
            " Chooses the topic partition. NULL for none",
        ),
    ),
    Column(
        TOPIC,
        Read(
            ColumnType.STRING,
            "full name of the topic partition",
            default=True,
            never_null=True,
        ),
        Write(
            8,
            (ColumnType.STRING,),
            "the topic, where the option `topic` is not set; that option wins",
        ),
    ),
    Column(
        "__messageId",
        Read(
            ColumnType.BINARY,
            "what the Java client's `MessageId.toByteArray()` gives: its bytes do not"
            " sort as the topic does, `__position` does",
            default=True,
            never_null=True,
        ),
    ),
    Column(
        PUBLISH_TIME,
        Read(
            ColumnType.TIMESTAMP,
            "the producer's clock; one for all messages of a batch",
            default=True,
            never_null=True,
        ),
    ),
    Column(
        "__eventTime",
        Read(ColumnType.TIMESTAMP, "NULL where none was set", default=True),
        Write(
            4,
            (ColumnType.TIMESTAMP, ColumnType.BIGINT),
            "rounded down to the millisecond, or milliseconds since 1970; NULL for"
            " none, which the first one of 1970 is, too",
        ),
    ),
    Column(
        "__messageProperties",
        Read(
            ColumnType.STRING_MAP,
            "empty where there are none",
            default=True,
            never_null=True,
        ),
        Write(5, (ColumnType.STRING_MAP,), "NULL or empty for none"),
    ),
    Column(
        PARTITION,
        Read(
            ColumnType.INT,
            "number of the topic partition; NULL where the topic has none",
        ),
        Write(
            7,
            (ColumnType.INT,),
            "the topic partition; NULL leaves it to the key, or to turns",
        ),
    ),
    Column(
        "__orderingKey",
        Read(ColumnType.BINARY, "NULL without one"),
        Write(
            3,
            (ColumnType.BINARY, ColumnType.STRING),
            "what Key_Shared subscriptions go by, instead of the key",
        ),
    ),
    Column("__producerName", Read(ColumnType.STRING, never_null=True)),
    Column("__sequenceId", Read(ColumnType.BIGINT, never_null=True)),
    Column(
        SCHEMA_VERSION, Read(ColumnType.BIGINT, "NULL where the topic had no schema")
    ),
    Column("__redeliveryCount", Read(ColumnType.INT, never_null=True)),
    Column(
        "__brokerPublishTime",
        Read(ColumnType.TIMESTAMP, "where brokers store and expose it"),
    ),
    Column("__index", Read(ColumnType.BIGINT, "likewise")),
    Column(
        "__position",
        Read(
            ColumnType.POSITION,
            "sorts as the topic partition does; `batchIndex` is -1 for a message that"
            " is in no batch, and a message in chunks is where its last chunk is",
            never_null=True,
        ),
    ),
    Column(
        "__replicatedFrom", Read(ColumnType.STRING, "cluster of a replicated message")
    ),
    Column(
        "__deliverAtTime",
        Read(ColumnType.TIMESTAMP, "of a delayed message"),
        Write(
            6,
            (ColumnType.TIMESTAMP,),
            "when consumers of shared subscriptions get it; such a message has an entry"
            " of its own",
        ),
    ),
    Column(
        TOMBSTONE,
        Read(
            ColumnType.BOOLEAN,
            "whether the value is a null value, which deletes its key",
            never_null=True,
        ),
        Write(
            9,
            (ColumnType.BOOLEAN,),
            "TRUE makes a null value, whatever the columns of the value hold; FALSE and"
            " NULL leave it to them",
        ),
    ),
)

#: What a read can give, by name, in the order of ``metadataColumns=all``.
READ = {column.name: column.read for column in COLUMNS if column.read}

#: What a write can take, by name.
WRITE = dict(
    sorted(
        ((column.name, column.write) for column in COLUMNS if column.write),
        key=lambda pair: pair[1].order,
    )
)

#: What a read gives and a write cannot take: the broker or the producer says it.
READ_ONLY = tuple(name for name in READ if name not in WRITE)

#: Every metadata column that a read can give, and those that it gives by default.
METADATA_COLUMNS_ALL = tuple(name for name in READ if name != VALUE)
METADATA_COLUMNS_DEFAULT = tuple(
    name for name in METADATA_COLUMNS_ALL if READ[name].default
)

_SPELT = {column.name.casefold(): column.name for column in COLUMNS}


def spelling(name: str) -> str:
    """Return the spelling of our column that a name means; "" for no other spelling.

    Spark does not tell cases of letters apart unless it is told to.
    """
    spelt = _SPELT.get(name.casefold(), "")
    return spelt if spelt != name else ""


def almost(name: str) -> str:
    """Return the name of our column that a name has but for one underscore, or ""."""
    return _SPELT.get(f"_{name.casefold()}", "")


#: What columns of Spark's Kafka source and sink are called here, "" for nothing; by
#: name in lower case.
OF_KAFKA = {
    VALUE: VALUE,
    "key": KEY,
    "headers": "__messageProperties (MAP<STRING, STRING>)",
    "topic": TOPIC,
    "partition": PARTITION,
    "offset": "",
    "timestamp": "__eventTime",
    "timestamptype": "",
}


def renamed_from_kafka(names: Iterable[str]) -> str:
    """Return what to do about columns of Kafka's, such as "key to __key"."""
    return ", ".join(
        f"{name} to {new}" if new else f"drop {name}"
        for name in names
        if (new := OF_KAFKA.get(name.casefold(), name)) != name
    )
