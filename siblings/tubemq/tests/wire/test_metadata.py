# SPDX-License-Identifier: Apache-2.0
"""Texts of masters and brokers: the forms that were seen, and damaged ones."""

from __future__ import annotations

import contextlib
from functools import partial

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
    infos = ["1:127.0.0.1:18123", "22:[::1]:8124"]
    assert decode_brokers(infos, tls=False) == {
        1: "127.0.0.1:18123",
        22: "[::1]:8124",
    }


@pytest.mark.parametrize(("tls", "port"), [(False, 8123), (True, 8124)])
def test_a_blank_port_is_the_default_port_of_a_broker(tls, port):
    """A master leaves the default port out: with TLS that of TLS, else the other."""
    infos = ["1:127.0.0.1: ", "2:[::1]: ", "3:h:18123"]
    assert decode_brokers(infos, tls=tls) == {
        1: f"127.0.0.1:{port}",
        2: f"[::1]:{port}",
        3: "h:18123",
    }


def test_a_blank_size_is_no_limit():
    assert decode_topic_infos(["t#1:1:1# "])["t"].max_message_bytes is None


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
    lambda text: decode_brokers([text], tls=False),
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
        (0, "1:h:0"),
        (0, "1:h:65536"),
        (0, "1:h\n:1"),
        (0, f"1:{'h' * 256}:1"),
        (0, "2147483648:h:1"),
        (1, "t#2147483648:1:1"),
        (2, "t#2147483648:1:1:1"),
        (1, "t"),
        (1, "#1:1:1"),
        (1, "t#1:1"),
        (1, "t#1:1:1:1"),
        (1, "t#1:-1:1"),
        (1, "t#1:1:1#x"),
        (2, "t#1:1:1"),
        (2, "t#1:1:1:x"),
        (2, ""),
        (3, "411"),
        (3, "x:1:h:1#t:0"),
        (3, "411:1:h:1#t:"),
    ],
)
def test_damaged_texts_are_shown(decoder: int, text: str):
    with pytest.raises(ProtocolError, match="not what it should be"):
        DECODERS[decoder](text)


@pytest.mark.parametrize(
    ("decoder", "texts"),
    [
        (decode_topic_infos, ["t#1:10001:1"]),
        (decode_topic_infos, ["t#1:10000:11"]),
        (decode_topic_infos, ["t#" + ",".join(f"{n}:10000:1" for n in range(11))]),
        (decode_topic_meta_infos, ["t#1:999999999999999999:1:1"]),
        (decode_topic_meta_infos, ["t#"] * 10_001),
        (partial(decode_brokers, tls=False), ["1:h:1"] * 10_001),
    ],
)
def test_more_than_there_can_be_is_not_believed(decoder, texts: list[str]):
    """Nothing is made of it, either: a few bytes could stand for billions."""
    with pytest.raises(ProtocolError, match="believed"):
        decoder(texts)


def test_partitions_of_all_topics_are_limited_together():
    infos = [f"t{n}#1:10:10:1" for n in range(10)]
    assert len(decode_topic_meta_infos(infos, most=1000)) == 10
    with pytest.raises(ProtocolError, match="1000 in all are believed"):
        decode_topic_meta_infos([*infos, "more#1:1:1:1"], most=1000)


def test_many_partitions_of_nothing_are_none():
    assert ids(decode_topic_infos(["t#1:0:999999999999999999"])["t"]) == []
    assert ids(decode_topic_meta_infos(["t#1:999999999999999999:0:1"])["t"]) == []


def test_what_is_shown_of_a_damaged_text_is_short_and_harmless():
    with pytest.raises(ProtocolError) as caught:
        decode_brokers(["\x1b[2J\n" + "x" * 10_000_000], tls=False)
    assert len(caught.value.message) < 600
    assert caught.value.message.isprintable()


@given(st.sampled_from(DECODERS), st.text(alphabet="t#:,01289x", max_size=30))
def test_garbage_is_read_or_an_error(decoder, text: str):
    with contextlib.suppress(ProtocolError):  # and nothing else
        decoder(text)
