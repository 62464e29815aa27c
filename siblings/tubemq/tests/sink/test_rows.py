# SPDX-License-Identifier: Apache-2.0
"""Rows as messages: by the columns that there are, and what cannot be one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tubemq_spark.errors import BadRowError
from tubemq_spark.options import ClientOptions, WriteOptions
from tubemq_spark.sink.rows import Row, key_hash, rows_of
from tubemq_spark.wire.attributes import Body, encode_body

OPTIONS = WriteOptions(ClientOptions(), topic=("t",))


def rows(options: WriteOptions = OPTIONS, **columns: list[Any]) -> list[Row]:
    return list(rows_of(pa.record_batch(columns), options))


def test_a_value_alone():
    assert [row.stored.data for row in rows(value=["é", "b"])] == ["é".encode(), b"b"]
    (row,) = rows(value=[b"\xff"])
    assert row == Row("t", encode_body(Body(b"\xff")), None, None, None, None)


def test_type_time_and_attributes_are_in_the_message_and_the_request():
    attributes = pa.array([[("k", "v")]], pa.map_(pa.string(), pa.string()))
    (row,) = rows(
        value=[b"x"],
        __msgType=["A"],
        __msgTime=["202611230506"],
        __attributes=attributes,
    )
    assert row.stored == encode_body(Body(b"x", "A", "202611230506", {"k": "v"}))
    assert (row.msg_type, row.msg_time) == ("A", "202611230506")


def test_topic_and_partition_of_a_row():
    found = rows(
        WriteOptions(ClientOptions()),
        value=[b"x", b"y"],
        __topic=["a", "b"],
        __partition=[10000, None],
        __broker=[None, 1],
    )
    assert [(row.topic, row.partition) for row in found] == [
        ("a", (None, 10000)),
        ("b", None),
    ]


def test_equal_keys_go_to_one_partition():
    options = WriteOptions(ClientOptions(), topic=("t",), partition_key="k")
    found = rows(options, value=[b"x"] * 3, k=["a", "a", None])
    assert [row.key for row in found] == [key_hash("a"), key_hash(b"a"), None]


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"value": [None]}, "value is NULL"),
        ({"value": [b""]}, "needs a value"),
        ({"value": [b"x"], "__msgType": ["a,b"]}, "comma"),
        ({"value": [b"x"], "__msgTime": ["noon"]}, "twelve digits"),
    ],
)
def test_what_cannot_be_a_message(columns: dict[str, list[Any]], problem: str):
    """The error names the row: 300 came in batches before, and two in this one."""
    good = {"value": [b"x"], "__msgType": ["A"], "__msgTime": ["202611230506"]}
    batch = {name: [*good[name] * 2, *bad] for name, bad in columns.items()}
    with pytest.raises(BadRowError, match=f"Row 302 of its task.*{problem}"):
        list(rows_of(pa.record_batch(batch), OPTIONS, 300))


def test_a_key_that_is_part_of_the_message():
    """Its text stays text there."""
    row = {"__topic": "a", "__msgType": "A", "__msgTime": "202601010101"}
    for name, text in row.items():
        options = WriteOptions(ClientOptions(), partition_key=name)
        (found,) = rows(options, value=[b"x"], **{n: [t] for n, t in row.items()})
        assert (found.topic, found.msg_type, found.msg_time) == tuple(row.values())
        assert found.key == key_hash(text)


@pytest.mark.parametrize("name", ["__msgType", "__msgTime", "__topic", "__attributes"])
def test_text_that_is_not_utf8(name: str):
    """As a value or a key it is bytes; the error names the row and the column."""
    texts = pa.array([b"a", b"\xff"]).view(pa.string())
    options = WriteOptions(ClientOptions(), topic=("t",), partition_key="k")
    found = list(rows_of(pa.record_batch({"value": texts, "k": texts}), options))
    assert [row.stored.data for row in found] == [b"a", b"\xff"]
    assert [row.key for row in found] == [key_hash("a"), key_hash(b"\xff")]
    column = texts
    if name == "__attributes":
        column = pa.MapArray.from_arrays([0, 1, 2], texts, texts)
    batch = pa.record_batch({"value": texts, name: column})
    with pytest.raises(BadRowError, match=f"Row 301 of its task: {name} has text"):
        list(rows_of(batch, WriteOptions(ClientOptions()), 300))


def test_a_row_without_a_topic():
    with pytest.raises(BadRowError, match="Row 0 of its task has no topic"):
        rows(WriteOptions(ClientOptions()), value=[b"x"])
