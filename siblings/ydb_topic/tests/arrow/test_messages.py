# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import gzip
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest

from ydb_spark.arrow.messages import MAX_ROWS, MessageColumns
from ydb_spark.errors import CorruptMessageError
from ydb_spark.sdk import pb
from ydb_spark.wire.reads import MessageBatch

ALL = pa.schema(
    [
        ("data", pa.binary()),
        ("partition_id", pa.int64()),
        ("offset", pa.int64()),
        ("producer_id", pa.string()),
        ("seq_no", pa.int64()),
        ("message_group_id", pa.string()),
        ("created_at", pa.timestamp("us", "UTC")),
        ("written_at", pa.timestamp("us", "UTC")),
        ("metadata_items", pa.map_(pa.string(), pa.binary())),
        ("write_session_meta", pa.map_(pa.string(), pa.string())),
        ("codec", pa.int32()),
        ("topic", pa.string()),
    ]
)

TIME = datetime(2024, 5, 6, 7, 8, 9, 123000, tzinfo=timezone.utc)


def batch(*bodies: bytes, **values: Any) -> MessageBatch:
    """Messages with offsets from 5, all wanted."""
    made = pb.StreamReadMessage.ReadResponse.Batch(**{"codec": 1, **values})
    for offset, body in enumerate(bodies, 5):
        made.message_data.add(offset=offset, data=body)
    return MessageBatch(made, 0, len(bodies))


def rows(part: MessageBatch, schema: pa.Schema = ALL) -> list[dict[str, Any]]:
    """The rows that become of messages."""
    columns = MessageColumns(schema, "path/t", 3)
    found = [row for one in columns.take([part]) for row in one.to_pylist()]
    return found + columns.finish().to_pylist()


def test_all_columns():
    """Each as the message has it; times as milliseconds; the last of equal keys."""
    part = batch(
        gzip.compress(b"body"),
        codec=2,
        producer_id="p",
        write_session_meta={"b": "2", "a": "1"},
    )
    part.batch.written_at.FromDatetime(TIME)
    message = part.batch.message_data[0]
    message.created_at.FromMilliseconds(-500)
    message.seq_no = 9
    message.message_group_id = "g"
    message.uncompressed_size = 1 << 40  # of no meaning
    for value in (b"1", b"2"):
        message.metadata_items.add(key="k", value=value)
    assert rows(part) == [
        {
            "data": b"body",
            "partition_id": 3,
            "offset": 5,
            "producer_id": "p",
            "seq_no": 9,
            "message_group_id": "g",
            "created_at": datetime(1969, 12, 31, 23, 59, 59, 500000, timezone.utc),
            "written_at": TIME,
            "metadata_items": [("k", b"2")],
            "write_session_meta": [("a", "1"), ("b", "2")],
            "codec": 2,
            "topic": "path/t",
        }
    ]


def test_nobody_s():
    """What nobody said is NULL; a codec that nobody named is none."""
    (row,) = rows(batch(b"", codec=0))
    assert row["producer_id"] is None
    assert row["message_group_id"] is None
    assert (row["data"], row["codec"], row["metadata_items"]) == (b"", 0, [])


@pytest.mark.parametrize("codec", [2, 3, 4, 5, 10001])
def test_bodies_that_are_unreadable(codec: int):
    """The error names topic, partition and offset; without the body there is none."""
    with pytest.raises(CorruptMessageError, match="path/t/3, offset 5: its body"):
        rows(batch(b"broken", codec=codec))
    part = batch(b"broken", codec=codec)
    assert rows(part, pa.schema([("offset", pa.int64())])) == [{"offset": 5}]


def test_large_numbers_of_rows():
    """They are handed on in parts."""
    columns = MessageColumns(ALL, "t", 0)
    made = list(columns.take([batch(*[b""] * (MAX_ROWS + 1))]))
    assert [one.num_rows for one in made] == [MAX_ROWS]
    assert columns.finish().num_rows == 1


@pytest.mark.parametrize("seconds", [-(1 << 62), -62_135_596_801, 253_402_300_800])
def test_times_that_spark_has_not(seconds: int):
    """Whoever writes says what time it is: it must not keep anybody from reading."""
    part = batch(b"a")
    part.batch.message_data[0].created_at.seconds = seconds
    (row,) = rows(part)
    assert row["created_at"] is None
    assert row["data"] == b"a"
