# SPDX-License-Identifier: Apache-2.0
"""The columns of a topic's messages, for reads and for writes."""

from __future__ import annotations

from spark_topics.columns import Column, ColumnType, Read, Write

_BYTES = (ColumnType.BINARY, ColumnType.STRING)
_INTEGER = (ColumnType.BIGINT,)

COLUMNS = (
    Column(
        "data",
        Read(ColumnType.BINARY, "The body, decoded.", default=True, never_null=True),
        Write(0, _BYTES, "The body; text as UTF-8. It, or `value`, is required."),
    ),
    Column("value", None, Write(1, _BYTES, "The body, by the name other sinks use.")),
    Column(
        "key",
        None,
        Write(2, _BYTES, "With `partitioning=key`: chooses the partition. Not stored."),
    ),
    Column(
        "partition_id",
        Read(ColumnType.BIGINT, "The partition.", default=True, never_null=True),
        Write(3, _INTEGER, "With `partitioning=partition_id`: the partition."),
    ),
    Column(
        "offset",
        Read(
            ColumnType.BIGINT,
            "Its offset in the partition, from 0.",
            default=True,
            never_null=True,
        ),
    ),
    Column(
        "producer_id",
        Read(ColumnType.STRING, "Who wrote it; NULL where nobody said.", default=True),
    ),
    Column(
        "seq_no",
        Read(
            ColumnType.BIGINT,
            "Its number among those of its producer.",
            default=True,
            never_null=True,
        ),
    ),
    Column(
        "message_group_id",
        Read(ColumnType.STRING, "Its group; NULL where it has none.", default=True),
        Write(
            4,
            (ColumnType.STRING,),
            "With `partitioning=message_group_id`: the group, and the producer.",
        ),
    ),
    Column(
        "created_at",
        Read(ColumnType.TIMESTAMP, "When it was made, says its writer.", default=True),
        Write(5, (ColumnType.TIMESTAMP,), "When it was made; NULL for now."),
    ),
    Column(
        "written_at",
        Read(ColumnType.TIMESTAMP, "When the server stored it.", default=True),
    ),
    Column(
        "metadata_items",
        Read(
            ColumnType.BINARY_MAP,
            "Its metadata. Of a key that comes twice the last value.",
            default=True,
            never_null=True,
        ),
        Write(
            6,
            (ColumnType.BINARY_MAP, ColumnType.STRING_MAP),
            "Its metadata: at most 1000 items, 4096 bytes.",
        ),
    ),
    Column(
        "write_session_meta",
        Read(
            ColumnType.STRING_MAP,
            "What its writer said of all messages of a session.",
            default=True,
            never_null=True,
        ),
    ),
    Column(
        "codec",
        Read(
            ColumnType.INT,
            "How the body was encoded: 1 raw, 2 gzip, 4 zstd, 0 where nobody said.",
            default=True,
            never_null=True,
        ),
    ),
    Column(
        "topic",
        Read(
            ColumnType.STRING,
            "The path of the topic, as in the option.",
            default=True,
            never_null=True,
        ),
    ),
)

READ_COLUMNS = {c.name: c.read for c in COLUMNS if c.read is not None}
WRITE_COLUMNS = {c.name: c.write for c in COLUMNS if c.write is not None}
READ_ONLY = {c.name: c.read for c in COLUMNS if c.read is not None and c.write is None}
