# SPDX-License-Identifier: Apache-2.0
"""Messages as rows: each column, filters by text, and damaged attributes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from tubemq_spark import columns
from tubemq_spark.arrow.decode import TYPES, Decoder
from tubemq_spark.errors import CorruptMessageError
from tubemq_spark.wire import tubemq_pb2 as pb
from tubemq_spark.wire.attributes import Body, Stored, encode_body
from tubemq_spark.wire.checksums import checksum
from tubemq_spark.wire.gets import read_got
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


def decode(
    some: list[pb.TransferedMessage],
    first_offset: int | None,
    schema: pa.Schema = ALL,
    filters: Sequence[str] = (),
) -> pa.RecordBatch:
    reply = pb.GetMessageResponseB2C(messages=some).SerializeToString()
    messages = read_got(memoryview(reply)).messages
    return Decoder(schema, PARTITION, filters).decode(messages, first_offset)


def test_every_column():
    bodies = [Body(b"a"), Body(b"b", "T", "202611230506", {"k": "v"})]
    some = [message(encode_body(body), 9 - n) for n, body in enumerate(bodies)]
    batch = decode(some, 56)
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
    batch = decode([message(Stored(b"a", 0))], None)
    assert batch.column(columns.OFFSET).to_pylist() == [None]


def test_columns_that_nobody_wants_are_left_out():
    some = [message(Stored(b"a", 0))] * 3
    schema = pa.schema([("__broker", pa.int32())])
    assert decode(some, 0, schema).to_pylist() == [{"__broker": 7}] * 3
    nothing = decode(some, 0, pa.schema([]))
    assert (nothing.num_rows, nothing.num_columns) == (3, 0)


def test_a_filter_compares_texts_where_brokers_compare_hashes():
    """Aa and BB have the same hash in Java."""
    some = [message(encode_body(Body(b"v", type_))) for type_ in ("Aa", "BB", None)]
    batch = decode(some, 0, filters=["Aa"])
    assert batch.column(columns.MSG_TYPE).to_pylist() == ["Aa"]


def test_attributes_that_cannot_be_read_name_their_message():
    with pytest.raises(CorruptMessageError, match=r"Message 5 of demo/7:10001"):
        decode([message(Stored(b"\0\0", 1))], 0)


def test_rows_keep_their_columns_whatever_they_have_and_whatever_is_filtered():
    """Attributes that repeat, that do not, none, and empty blocks, in any order."""
    chance = random.Random(5)
    kinds: list[Callable[[int], Body]] = [
        lambda n: Body(b"%d" % n),
        lambda n: Body(b"%d" % n, "A", None, {"k": "v"}),
        lambda n: Body(b"%d" % n, chance.choice("AB"), None, {"n": str(n), "m": ""}),
        lambda n: Body(b"", "B", "202611230506", {"long": "x" * 600}),
    ]
    truth = [chance.choice(kinds)(n) for n in range(3000)]
    some = [message(encode_body(body), n) for n, body in enumerate(truth)]
    empty = Stored(b"\0\0\0\0end", 1)
    for filters in ((), ("A",)):
        batch = decode([*some, message(empty, 3000)], 0, filters=filters)
        batch.validate(full=True)
        found = [
            (
                row["value"],
                row[columns.MSG_TYPE],
                row[columns.MSG_TIME],
                dict(row[columns.ATTRIBUTES]),
                row[columns.MESSAGE_ID],
                row[columns.OFFSET],
            )
            for row in batch.to_pylist()
        ]
        assert found == [
            (*body, number, 28 * number)
            for number, body in enumerate([*truth, Body(b"end")])
            if not filters or body.msg_type in filters
        ]
