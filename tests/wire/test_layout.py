# SPDX-License-Identifier: Apache-2.0
"""Layouts of scalable topics, as brokers describe them."""

from __future__ import annotations

import pytest

from pulsar_spark.errors import ProtocolError
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.layout import KeyRule, Layout, layout_of

TOPIC = "topic://t/ns/x"
ORDINARY = "persistent://t/ns/x"


def described(*segments: dict[str, object]) -> pb.CommandScalableTopicUpdate:
    """What a broker sends."""
    update = pb.CommandScalableTopicUpdate(session_id=1)
    update.dag.epoch = 7
    for segment in segments:
        update.dag.segments.add(**segment)
    return update


#: What became of a topic that was split, and merged again.
SPLIT_AND_MERGED = described(
    {"segment_id": 3, "hash_start": 0, "hash_end": 0xFFFF, "parent_ids": [1, 2]},
    {"segment_id": 0, "hash_start": 0, "hash_end": 0xFFFF, "state": 1},
    {"segment_id": 1, "hash_end": 0x7FFF, "state": 1, "parent_ids": [0]},
    {
        "segment_id": 2,
        "hash_start": 0x8000,
        "hash_end": 0xFFFF,
        "state": 1,
        "parent_ids": [0],
    },
)


def test_segments_are_named_by_hashes_and_number() -> None:
    """In the order of their numbers, so that parents come first."""
    layout = layout_of(SPLIT_AND_MERGED, TOPIC)
    assert isinstance(layout, Layout)
    assert (layout.topic, layout.epoch) == (TOPIC, 7)
    assert list(layout.names.values()) == [
        "segment://t/ns/x/0000-ffff-0",
        "segment://t/ns/x/0000-7fff-1",
        "segment://t/ns/x/8000-ffff-2",
        "segment://t/ns/x/0000-ffff-3",
    ]
    assert [segment.is_sealed for segment in layout.segments] == [True] * 3 + [False]
    assert layout.by_name[layout.names[3]].parents == {1, 2}


@pytest.mark.parametrize(
    ("segment", "is_over"),
    [
        ("0000-7fff-1", True),
        ("0000-ffff-3", False),
        ("0000-3fff-4", False),  # of a layout that is newer
    ],
)
def test_segments_that_are_over(segment: str, is_over: bool) -> None:
    """They are sealed, or there are newer ones."""
    layout = layout_of(SPLIT_AND_MERGED, TOPIC)
    assert layout is not None
    assert layout.is_over(f"segment://t/ns/x/{segment}") is is_over
    later = described({"segment_id": 5, "hash_end": 0xFFFF})
    layout = layout_of(later, TOPIC)
    assert layout is not None
    assert layout.is_over(f"segment://t/ns/x/{segment}")


def test_an_ordinary_topic_has_no_layout() -> None:
    """A broker describes its partitions as segments, and what does not exist, too."""
    partitions = described(
        {"hash_end": 0x7FFF, "legacy_topic_name": f"{ORDINARY}-partition-0"},
        {
            "segment_id": 1,
            "hash_start": 0x8000,
            "hash_end": 0xFFFF,
            "legacy_topic_name": f"{ORDINARY}-partition-1",
        },
    )
    assert layout_of(partitions, ORDINARY) is None


def test_a_migrated_topic_keeps_the_names_of_its_partitions() -> None:
    """The new segments come after them."""
    migrated = described(
        {"hash_end": 0xFFFF, "state": 1, "legacy_topic_name": ORDINARY},
        {"segment_id": 1, "hash_end": 0xFFFF, "parent_ids": [0]},
    )
    for topic in (ORDINARY, TOPIC):
        layout = layout_of(migrated, topic)
        assert layout is not None
        assert layout.topic == TOPIC
        assert list(layout.by_name) == [ORDINARY, "segment://t/ns/x/0000-ffff-1"]


@pytest.mark.parametrize(
    ("segments", "what"),
    [
        ([{"hash_start": 2, "hash_end": 1}], "the hashes 2 to 1"),
        ([{"hash_end": 0x10000}], "the hashes 0 to 65536"),
        ([{"segment_id": 1, "parent_ids": [1]}], "the segment 1 before its parent"),
        ([{}, {}], "two segments 0"),
        (
            [{"legacy_topic_name": "persistent://t/ns/other"}, {"segment_id": 1}],
            "other",
        ),
        ([{"legacy_topic_name": TOPIC}, {"segment_id": 1}], TOPIC),
        ([{"legacy_topic_name": "a/b"}, {"segment_id": 1}], "'?a/b"),
        ([{"segment_id": number} for number in range(100_001)], "100,001 segments"),
        ([{"entry_bucket_splits": [0, 1]}], "the entry buckets of the segment 0"),
        ([{"entry_bucket_splits": [2, 2]}], "the entry buckets of the segment 0"),
        ([{"entry_bucket_splits": [0x10000]}], "the entry buckets of the segment 0"),
    ],
)
def test_what_cannot_be(segments: list[dict[str, object]], what: str) -> None:
    """A hostile broker, or an answer that was damaged."""
    with pytest.raises(ProtocolError, match=what) as caught:
        layout_of(described(*segments), TOPIC)
    assert TOPIC in str(caught.value)


@pytest.mark.parametrize(
    ("version", "rule"),
    [
        ("Pulsar Server5.0.0-M1", KeyRule.LOW_BITS),
        ("Pulsar Server5.0.0-M2", KeyRule.HIGH_BITS),
        ("Pulsar Server5.0.1", KeyRule.HIGH_BITS),
        ("Pulsar Server 6.1.0-SNAPSHOT", KeyRule.HIGH_BITS),
        ("12.0", KeyRule.HIGH_BITS),
        ("Pulsar Server4.2.4", None),
        ("build 2025.5", None),
        ("5", None),
        ("", None),
    ],
)
def test_which_bits_of_a_hash_choose_the_segment(
    version: str, rule: KeyRule | None
) -> None:
    """The broker's version tells; what it does not tell is not guessed."""
    layout = layout_of(SPLIT_AND_MERGED, TOPIC, version)
    assert layout is not None
    assert layout.key_rule is rule


@pytest.mark.parametrize("version", ["", "Pulsar Server5.0.0-M1", "something"])
def test_entry_buckets_tell_it_as_well(version: str) -> None:
    """Only brokers that go by the high bits know of buckets."""
    update = described(
        {"hash_end": 0x7FFF, "entry_bucket_splits": [0x4000, 0x8000]},
        {"segment_id": 1, "hash_start": 0x8000, "hash_end": 0xFFFF},
    )
    layout = layout_of(update, TOPIC, version)
    assert layout is not None
    assert [s.bucket_splits for s in layout.segments] == [(0x4000, 0x8000), ()]
    assert layout.key_rule is KeyRule.HIGH_BITS
