# SPDX-License-Identifier: Apache-2.0
"""Messages as rows: each column, filters by text, and damaged attributes."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tubemq_spark import columns
from tubemq_spark.arrow.decode import TYPES, Decoder
from tubemq_spark.errors import CorruptMessageError
from tubemq_spark.wire import tubemq_pb2 as pb
from tubemq_spark.wire.attributes import Body, Stored, checksum, encode_body
from tubemq_spark.wire.metadata import Partition

PARTITION = Partition("demo", 7, 10001)
ALL = pa.schema(list(TYPES.items()))


def message(stored: Stored, message_id: int = 5) -> pb.TransferedMessage:
    return pb.TransferedMessage(
        messageId=message_id,
        checkSum=checksum(stored.data),
        payLoadData=stored.data,
        flag=stored.flag,
    )


def test_every_column():
    bodies = [Body(b"a"), Body(b"b", "T", "202611230506", {"k": "v"})]
    some = [message(encode_body(body), 9 - n) for n, body in enumerate(bodies)]
    batch = Decoder(ALL, PARTITION).decode(some, 56)
    assert batch.schema == ALL
    common = {columns.TOPIC: "demo", columns.BROKER: 7, columns.PARTITION: 10001}
    assert batch.to_pylist() == [
        {
            **common,
            "value": b"a",
            columns.MSG_TYPE: None,
            columns.MSG_TIME: None,
            columns.ATTRIBUTES: [],
            columns.MESSAGE_ID: 9,
            columns.OFFSET: 56,
        },
        {
            **common,
            "value": b"b",
            columns.MSG_TYPE: "T",
            columns.MSG_TIME: "202611230506",
            columns.ATTRIBUTES: [("k", "v")],
            columns.MESSAGE_ID: 8,
            columns.OFFSET: 84,
        },
    ]


def test_offsets_that_are_not_known_are_null():
    batch = Decoder(ALL, PARTITION).decode([message(Stored(b"a", 0))], None)
    assert batch.column(columns.OFFSET).to_pylist() == [None]


def test_columns_that_nobody_wants_are_left_out():
    some = [message(Stored(b"a", 0))] * 3
    schema = pa.schema([("__broker", pa.int32())])
    assert (
        Decoder(schema, PARTITION).decode(some, 0).to_pylist() == [{"__broker": 7}] * 3
    )
    nothing = Decoder(pa.schema([]), PARTITION).decode(some, 0)
    assert (nothing.num_rows, nothing.num_columns) == (3, 0)


def test_a_filter_compares_texts_where_brokers_compare_hashes():
    """Aa and BB have the same hash in Java."""
    some = [message(encode_body(Body(b"v", type_))) for type_ in ("Aa", "BB", None)]
    batch = Decoder(ALL, PARTITION, ["Aa"]).decode(some, 0)
    assert batch.column(columns.MSG_TYPE).to_pylist() == ["Aa"]


def test_attributes_that_cannot_be_read_name_their_message():
    with pytest.raises(CorruptMessageError, match=r"Message 5 of demo/7:10001"):
        Decoder(ALL, PARTITION).decode([message(Stored(b"\0\0", 1))], 0)
