# SPDX-License-Identifier: Apache-2.0
"""Texts of masters and brokers: the forms that were seen, and damaged ones."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubemq_spark.errors import ProtocolError
from tubemq_spark.wire.metadata import (
    Broker,
    Partition,
    PartitionFailure,
    Store,
    TopicMetadata,
    decode_brokers,
    decode_failure,
    decode_topic_infos,
    decode_topic_meta_infos,
    encode_partition_info,
)


def ids(metadata: TopicMetadata) -> list[tuple[int, int]]:
    return [(one.broker_id, one.partition_id) for one in metadata.partitions]


def test_brokers():
    assert decode_brokers(["1:127.0.0.1:18123", "22:[::1]:8124"]) == {
        1: "127.0.0.1:18123",
        22: "[::1]:8124",
    }


def test_the_two_forms_have_their_numbers_the_other_way_round():
    """Three stores of one partition, and one store of three."""
    infos = decode_topic_infos(["dense#1:1:3#", "shared#1:3:1#1048576"])
    assert ids(infos["dense"]) == [(1, 0), (1, 10000), (1, 20000)]
    assert ids(infos["shared"]) == [(1, 0), (1, 1), (1, 2)]
    assert infos["dense"].max_message_bytes is None
    assert infos["shared"].max_message_bytes == 1048576
    meta = decode_topic_meta_infos(["dense#1:3:1:1", "shared#1:1:3:1"])
    assert ids(meta["dense"]) == ids(infos["dense"])
    assert ids(meta["shared"]) == ids(infos["shared"])


def test_brokers_are_in_order_and_closed_partitions_left_out():
    meta = decode_topic_meta_infos(["t#2:1:1:1,1:1:2:1,3:1:1:0"])
    assert ids(meta["t"]) == [(1, 0), (1, 1), (2, 0)]
    assert ids(decode_topic_meta_infos(["t#"])["t"]) == []
    assert ids(decode_topic_infos(["t#"])["t"]) == []


def test_partitions_of_a_store_share_it():
    assert Partition("t", 3, 20001).store == Store("t", 3, 2)
    assert Partition("t", 3, 20001).store == Partition("t", 3, 20000).store
    assert str(Partition("t", 3, 20001)) == "t/3:20001"


def test_partitions_in_heartbeats():
    info = encode_partition_info(Broker(1, "h:8123"), Partition("demo", 1, 10000))
    assert info == "1:h:8123#demo:10000"
    failure = PartitionFailure(411, "demo", 10000)
    assert decode_failure("411:1:h:8123#demo:10000") == failure


DECODERS = [
    lambda text: decode_brokers([text]),
    lambda text: decode_topic_infos([text]),
    lambda text: decode_topic_meta_infos([text]),
    decode_failure,
]


@pytest.mark.parametrize(
    ("decoder", "text"),
    [
        (0, ""),
        (0, "1"),
        (0, "x:h:1"),
        (0, "1:h"),
        (0, "1:h:"),
        (1, "t"),
        (1, "#1:1:1"),
        (1, "t#1:1"),
        (1, "t#1:1:1:1"),
        (1, "t#1:-1:1"),
        (1, "t#1:1:1#x"),
        (1, "t#1:10001:1"),
        (1, "t#1:10000:1000"),
        (2, "t#1:1:1"),
        (2, "t#1:1:1:x"),
        (2, "t#1:999999999999999999:1:1"),
        (2, ""),
        (3, "411"),
        (3, "x:1:h:1#t:0"),
        (3, "411:1:h:1#t:"),
    ],
)
def test_damaged_texts_are_shown(decoder: int, text: str):
    with pytest.raises(ProtocolError, match="not what it should be"):
        DECODERS[decoder](text)


@given(st.sampled_from(DECODERS), st.text(alphabet="t#:,01289x", max_size=30))
def test_garbage_is_read_or_an_error(decoder, text: str):
    with contextlib.suppress(ProtocolError):  # and nothing else
        decoder(text)
