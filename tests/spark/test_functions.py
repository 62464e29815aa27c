# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.spark.functions`: positions in queries of users."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions

from pulsar_spark import (
    MessageId,
    encode_message_id,
    position_after,
    position_of,
    position_text,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IDS = [
    MessageId(7, 255),
    MessageId(7, 256),
    MessageId(7, 256, 3, 0, 9),
    MessageId(2**62, 0, 0, batch_size=1),
    MessageId(7, 9, first_chunk=MessageId(7, 4)),
]


@pytest.mark.parametrize("is_name", [True, False], ids=["name", "column"])
def test_positions_of_ids(spark: SparkSession, is_name: bool) -> None:
    """Of each form of an id, in all functions; NULL stays NULL."""
    data = [(encode_message_id(id_, java=True),) for id_ in IDS]
    rows = spark.createDataFrame([*data, (None,)], "id BINARY")
    named = "id" if is_name else functions.col("id")
    placed = rows.select(position_of(named).alias("place"))
    place = "place" if is_name else functions.col("place")
    texts = placed.select("place", position_text(place), position_after(place))
    *found, last = texts.collect()
    assert tuple(last) == (None, None, None)
    assert [tuple(row[0]) for row in found] == [
        (id_.ledger_id, id_.entry_id, id_.batch_index) for id_ in IDS
    ]
    assert [tuple(row[1:]) for row in found] == [
        ("7:255", "7:256"),
        ("7:256", "7:257"),
        ("7:256:3", "7:256:4"),
        (f"{2**62}:0:0", f"{2**62}:0:1"),
        ("7:9", "7:10"),
    ]


def test_they_sort_as_numbers(spark: SparkSession) -> None:
    """Which the bytes of an id do not: 255 comes behind 256 there."""
    data = [(encode_message_id(id_),) for id_ in IDS[:2]]
    rows = spark.createDataFrame(data, "id BINARY")
    newest = functions.max(position_of("id")).alias("newest")
    assert rows.agg(newest).select(position_text("newest")).first() == ("7:256",)
    assert rows.agg(functions.max("id")).first() == (encode_message_id(IDS[0]),)
