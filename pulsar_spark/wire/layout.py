# SPDX-License-Identifier: Apache-2.0
r"""The layout of a scalable topic of Pulsar 5: its segments and their order.

Keys go to segments by ranges of a hash. A segment is split into two, or two neighbours
are merged: the old ones are sealed, which means that no more rows come, and the new
ones are their children. All rows of a parent are older than those of its children, key
by key::

    id 0, 0000-ffff  --split-->  1, 0000-7fff  \
       (sealed)                                  --merge-->  3, 0000-ffff
                                 2, 8000-ffff  /
                                   (sealed)

Ids rise with time, so that a parent has a lower id than its children. A segment that
every subscription has read disappears from the layout, and from the parents of others.

Source: PIP-460, PIP-475 (migration of ordinary topics), PIP-486 (entry buckets), and
Pulsar 5.0.0-M1 and 5.0.1, as a client sees them.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from pulsar_spark.errors import OptionError, ProtocolError, foreign_text
from pulsar_spark.topics import MAX_PARTITIONS, TopicName

if TYPE_CHECKING:
    from pulsar_spark.wire import pulsar_api_pb2 as pb

#: Keys have hashes of 16 bits.
MAX_HASH = 0xFFFF

_SEALED = 1

_FIRST_MAJOR = 5

#: The release whose keys go to segments by the low bits of their hashes.
_FIRST_RELEASE = "5.0.0-M1"

_MAJOR_VERSION = re.compile(r"(?<![\d.])([0-9]{1,2})\.[0-9]")


class KeyRule(enum.Enum):
    """Which 16 bits of a key's hash, murmur3_32, choose its segment.

    The value is the number of bits below these.

    Attributes:
        LOW_BITS: The low 16 bits: 5.0.0-M1.
        HIGH_BITS: The high 16 bits (PIP-486): releases after that. The low ones choose
            an entry bucket within the segment.
    """

    LOW_BITS = 0
    HIGH_BITS = 16


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a scalable topic: to readers and writers an ordinary topic.

    Attributes:
        segment_id: Its number in the topic.
        name: The full name of the topic that it is: ``segment://...``, or the ordinary
            topic or topic partition that was migrated.
        hash_start: The lowest hash of a key in it.
        hash_end: The highest one.
        is_sealed: Whether no more rows come.
        parents: Ids of the segments whose rows are older.
        bucket_splits: Where its entry buckets begin, but for the first, ascending.
            Empty where the segment has a single bucket.
    """

    segment_id: int
    name: str
    hash_start: int
    hash_end: int
    is_sealed: bool
    parents: frozenset[int]
    bucket_splits: tuple[int, ...] = ()


@dataclass(frozen=True)
class Layout:
    """The segments of a scalable topic at one time.

    Attributes:
        topic: Full name, ``topic://tenant/namespace/name``.
        epoch: Rises with each change.
        segments: All there are, by id.
        controllers: URLs of the broker that manages the topic, without and with TLS;
            "" where there is none.
        server_version: What the broker says of itself that described the topic.
    """

    topic: str
    epoch: int
    segments: tuple[Segment, ...]
    controllers: tuple[str, str] = ("", "")
    server_version: str = field(default="", compare=False)

    @property
    def active(self) -> list[Segment]:
        """Return the segments that take rows."""
        return [segment for segment in self.segments if not segment.is_sealed]

    @property
    def key_rule(self) -> KeyRule | None:
        """Return how keys choose their segments; None where that is not known."""
        if any(segment.bucket_splits for segment in self.segments):
            return KeyRule.HIGH_BITS
        if _FIRST_RELEASE in self.server_version:
            return KeyRule.LOW_BITS
        major = _MAJOR_VERSION.search(self.server_version)
        if major is not None and int(major[1]) >= _FIRST_MAJOR:
            return KeyRule.HIGH_BITS
        return None

    @cached_property
    def by_name(self) -> dict[str, Segment]:
        """Return the segments by the full names of their topics."""
        return {segment.name: segment for segment in self.segments}

    def is_over(self, name: str) -> bool:
        """Return whether a segment takes no more rows, also where it is gone.

        Args:
            name: Full name of a segment of this topic, of this layout or another.
        """
        segment = self.by_name.get(name)
        if segment is not None:
            return segment.is_sealed
        number = TopicName.parse(name).partition_index or 0
        return any(segment.segment_id > number for segment in self.segments)

    def missing_after(self, segment_id: int) -> list[int]:
        """Return the ids of segments that came after another one, and are gone."""
        last = self.segments[-1].segment_id if self.segments else 0
        return [n for n in range(segment_id + 1, last) if n not in self.names]

    @cached_property
    def names(self) -> dict[int, str]:
        """Return the full names of the segments' topics by id."""
        return {segment.segment_id: segment.name for segment in self.segments}


def layout_of(
    update: pb.CommandScalableTopicUpdate, topic: str, server_version: str = ""
) -> Layout | None:
    """Return what a broker says of a topic; None for an ordinary topic.

    Brokers describe a topic that is not scalable as segments that are its partitions.

    Args:
        update: The answer to SCALABLE_TOPIC_LOOKUP.
        topic: The full name that was asked for.
        server_version: What the broker says of itself.

    Raises:
        ProtocolError: No topic can be like that.
    """
    segments = update.dag.segments
    asked = TopicName.parse(topic)
    if not asked.is_scalable and all(s.legacy_topic_name for s in segments):
        return None
    if len(segments) > MAX_PARTITIONS:
        raise _impossible(topic, f"{len(segments):,} segments")
    name = TopicName(asked.tenant, asked.namespace, asked.local_name, "topic://")
    by_id: dict[int, Segment] = {}
    for segment in segments:
        if segment.segment_id in by_id:
            raise _impossible(topic, f"two segments {segment.segment_id}")
        by_id[segment.segment_id] = _segment(segment, name)
    return Layout(
        name.full_name,
        update.dag.epoch,
        tuple(by_id[segment_id] for segment_id in sorted(by_id)),
        (update.dag.controller_broker_url, update.dag.controller_broker_url_tls),
        server_version,
    )


def _segment(segment: pb.ScalableTopicSegment, topic: TopicName) -> Segment:
    start, end, number = segment.hash_start, segment.hash_end, segment.segment_id
    if not start <= end <= MAX_HASH:
        raise _impossible(topic.full_name, f"a segment of the hashes {start} to {end}")
    if any(parent >= number for parent in segment.parent_ids):
        raise _impossible(topic.full_name, f"the segment {number} before its parent")
    if segment.legacy_topic_name:
        name = _ordinary(segment.legacy_topic_name, topic)
    else:
        name = topic.segment(start, end, number).full_name
    parents = frozenset(segment.parent_ids)
    splits = tuple(segment.entry_bucket_splits)
    bounds = (0, *splits, MAX_HASH + 1)
    if any(low >= high for low, high in pairwise(bounds)):
        raise _impossible(topic.full_name, f"the entry buckets of the segment {number}")
    is_sealed = segment.state == _SEALED
    return Segment(number, name, start, end, is_sealed, parents, splits)


def _ordinary(text: str, topic: TopicName) -> str:
    """Return the name of what was migrated: the topic of this name, or a partition."""
    try:
        name = TopicName.parse(text)
    except OptionError:
        name = None
    whole = (topic.tenant, topic.namespace, topic.local_name, False)
    base = None if name is None else name.base
    if base is None or whole != (
        base.tenant,
        base.namespace,
        base.local_name,
        base.is_scalable,
    ):
        raise _impossible(topic.full_name, f"the segment {foreign_text(text)}")
    assert name is not None
    return name.full_name


def _impossible(topic: str, what: str) -> ProtocolError:
    return ProtocolError(f"The broker describes {topic} with {what}, which cannot be.")
