# SPDX-License-Identifier: Apache-2.0
"""The columns of messages, in reads and writes."""

from __future__ import annotations

from spark_topics.columns import Column, ColumnType, Read, Write

VALUE = "value"
TOPIC = "__topic"
BROKER = "__broker"
PARTITION = "__partition"
MSG_TYPE = "__msgType"
MSG_TIME = "__msgTime"
ATTRIBUTES = "__attributes"
MESSAGE_ID = "__messageId"
OFFSET = "__offset"

_BYTES, _TEXT = ColumnType.BINARY, ColumnType.STRING

COLUMNS = (
    Column(
        VALUE,
        Read(_BYTES, "The message's bytes, without its attributes.", True, True),
        Write(
            0,
            (_BYTES, _TEXT),
            "The message; not NULL, and empty only with type, time or attributes.",
        ),
    ),
    Column(
        TOPIC,
        Read(_TEXT, "Name of the topic.", True, True),
        Write(1, (_TEXT,), "Where to, unless the option `topic` says it for all."),
    ),
    Column(
        BROKER,
        Read(ColumnType.INT, "Number of the broker.", True, True),
        Write(3, (ColumnType.INT,), "Which broker's `__partition`; NULL for any."),
    ),
    Column(
        PARTITION,
        Read(
            ColumnType.INT,
            "Number of the store times 10000, and its index there.",
            True,
            True,
        ),
        Write(2, (ColumnType.INT,), "The partition; NULL for a hash, or turns."),
    ),
    Column(
        MSG_TYPE,
        Read(_TEXT, "Its type, by which `stream.id` filters.", True),
        Write(4, (_TEXT,), "Its type; without commas and equals signs."),
    ),
    Column(
        MSG_TIME,
        Read(_TEXT, "`yyyyMMddHHmm` of the producer, in a zone not stored.", True),
        Write(5, (_TEXT,), "`yyyyMMddHHmm`."),
    ),
    Column(
        ATTRIBUTES,
        Read(ColumnType.STRING_MAP, "Its other attributes.", True, True),
        Write(
            6,
            (ColumnType.STRING_MAP,),
            "Other attributes; without commas, equals signs and NULL.",
        ),
    ),
    Column(
        MESSAGE_ID,
        Read(ColumnType.BIGINT, "An id; neither in order nor unique.", True, True),
    ),
    Column(
        OFFSET,
        Read(
            ColumnType.BIGINT,
            "Its offset; NULL where that is not known, as with several partitions in a"
            " store. Only where `.schema(...)` names it.",
        ),
    ),
)

READ = {column.name: column.read for column in COLUMNS if column.read is not None}
WRITE = {column.name: column.write for column in COLUMNS if column.write is not None}

#: What a read gives and a write makes anew.
READ_ONLY = {
    column.name: column.read for column in COLUMNS if column.read and not column.write
}

DEFAULT = [name for name, read in READ.items() if read.default]
