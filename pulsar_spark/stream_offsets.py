"""Offsets of a stream, as they stand in the checkpoint of its query.

::

    {"v": 1,
     "subscription": "spark-pulsar-2f1c...",
     "lastRead":   {"persistent://public/default/t": {"0": "12:33", "1": "15:7:4"}},
     "startAfter": {"persistent://public/default/t": {"1": "-1:-1"}},
     "began":      {"persistent://public/default/t": {"0": "12:-1"}},
     "chunked":    ["persistent://public/default/t"]}

A position names the last entry, or the last message ``ledger:entry:batchIndex``, that
was read; reading goes on right after it. ``-1:-1`` is before everything.

The end of a micro-batch says by itself where those partitions begin that its start does
not know: all of them in the first one, later the new ones (``startAfter``). Spark keeps
an end before the batch runs, but never the start of a query: after a crash in the first
batch that would be looked up again, and ``latest`` would be another place.

``began`` says where the query began, of topic partitions in the first ledger of which
it still is: what a chunked message lacks of its first chunks is no loss there.

``chunked`` names the topics in which chunked messages were seen, if any: there it takes
a look to know how far may be acknowledged, after a restart, too.

The text is canonical, because Spark compares offsets as text. All of this is pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pulsar_spark.errors import CheckpointError, OptionError
from pulsar_spark.message_id import EARLIEST, MessageId, shorten
from pulsar_spark.offsets import Edge, parse_offsets, topic_tree
from pulsar_spark.plan import TopicRange
from pulsar_spark.topics import TopicName

#: The form of the JSON. A form that older versions would misread gets the next number.
_VERSION = 1


@dataclass(frozen=True)
class StreamOffset:
    """How far a stream has been read.

    Attributes:
        subscription: Name of the query's subscription, "" where none was chosen yet.
        last_read: Position of each topic partition, by full name.
        start_after: Where partitions begin in the batch that ends here, where that is
            not what the batch's start says.
        chunked: Topics, without the suffix of a partition, that have chunked messages.
        began: The position after which the query began in a topic partition, where that
            is the beginning of the ledger that it has read last.
    """

    subscription: str
    last_read: Mapping[str, MessageId]
    start_after: Mapping[str, MessageId] = field(default_factory=dict)
    chunked: frozenset[str] = frozenset()
    began: Mapping[str, MessageId] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The offset as Spark takes it."""
        tree: dict[str, Any] = {
            "v": _VERSION,
            "subscription": self.subscription,
            "lastRead": position_tree(self.last_read),
        }
        if self.start_after:
            tree["startAfter"] = position_tree(self.start_after)
        if self.began:
            tree["began"] = position_tree(self.began)
        if self.chunked:
            tree["chunked"] = sorted(self.chunked)
        return tree

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> StreamOffset:
        """Reads an offset that Spark gives back.

        A checkpoint of the Scala connector is read, too: it has the serialised id of
        the last message by topic partition. The whole entry of that counts as read.

        Raises:
            CheckpointError: It is of another version, or not an offset at all.
        """
        if not isinstance(tree, Mapping):
            # Such as the plain numbers of Spark's rate and socket sources.
            raise _unreadable(tree, ValueError("it is not a JSON object"))
        if "v" not in tree:
            return cls("", _scala_positions(tree))
        if tree["v"] != _VERSION:
            raise CheckpointError(
                f"The checkpoint has offsets of version {shorten(tree['v'])}, but this "
                f"version of pulsar-spark reads version {_VERSION}. Upgrade it."
            )
        try:
            subscription = tree["subscription"]
            if not isinstance(subscription, str):
                raise ValueError(f"{shorten(subscription)} is not a subscription")
            return cls(
                subscription,
                _positions(tree["lastRead"]),
                _positions(tree.get("startAfter", {})),
                _topics(tree.get("chunked", [])),
                _positions(tree.get("began", {})),
            )
        except KeyError as error:
            raise _unreadable(tree, ValueError(f"it has no {error}")) from None
        except ValueError as error:
            raise _unreadable(tree, error) from None

    @property
    def is_start_of_query(self) -> bool:
        """Whether a query starts here, or has read nothing since."""
        return self.start_after == self.last_read

    def is_new(self, topic_partition: str) -> bool:
        """Whether the query begins to read a topic partition after this offset."""
        return self.is_start_of_query or topic_partition not in self.last_read

    def begin(self, start: StreamOffset, topic_partition: str) -> MessageId:
        """The position after which the batch from ``start`` to here begins."""
        known = self.start_after.get(topic_partition)
        return known or start.last_read.get(topic_partition, EARLIEST)


def batch_ranges(start: StreamOffset, end: StreamOffset) -> list[TopicRange]:
    """What a micro-batch reads: depends on nothing but its two offsets."""
    ranges = []
    for name, last in end.last_read.items():
        after = end.begin(start, name)
        if after != last:
            first = position_after(after)
            began = after if start.is_new(name) else start.began.get(name)
            begins_at = None if began is None else position_after(began)
            range_ = TopicRange(name, first, last, begins_at=begins_at)
            if not range_.is_empty:
                ranges.append(range_)
    return ranges


def still_where_it_began(
    start: StreamOffset,
    last_read: Mapping[str, MessageId],
    start_after: Mapping[str, MessageId],
) -> dict[str, MessageId]:
    """What ``began`` is, for the end of the batch from ``start`` with these."""
    began = {}
    for name, last in last_read.items():
        at = (start_after if start.is_new(name) else start.began).get(name)
        if at is not None and at.position == (last.ledger_id, -1) != EARLIEST.position:
            began[name] = at
    return began


def position_after(last_read: MessageId) -> MessageId:
    """The first message to read next, inclusive; its entry need not exist."""
    if last_read == EARLIEST:
        return EARLIEST
    ledger_id, entry_id = last_read.position
    if last_read.batch_index >= 0:
        # The next entry where the index is the batch's last: readers know that.
        return MessageId(ledger_id, entry_id, last_read.batch_index + 1)
    return MessageId(ledger_id, entry_id + 1)


def position_before(start: MessageId) -> MessageId:
    """The position after which ``start``, inclusive, comes next."""
    if start.ledger_id < 0:
        return EARLIEST
    if start.batch_index > 0:
        return MessageId(*start.position, start.batch_index - 1)
    # Users may write "12:-1" for the beginning of a ledger: nothing is before that.
    return MessageId(start.ledger_id, max(start.entry_id - 1, -1))


def position_tree(positions: Mapping[str, MessageId]) -> dict[str, Any]:
    """Positions as canonical JSON: by topic, then by partition number."""
    return topic_tree({name: str(at) for name, at in positions.items()})


def flatten(tree: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The full names and the values that ``topic_tree`` made a tree of."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            topic = TopicName.parse(name)
            for number, below in value.items():
                yield topic.partition(int(number)).full_name, below
        else:
            yield TopicName.parse(name).full_name, value


def _positions(tree: Mapping[str, Any]) -> dict[str, MessageId]:
    if not isinstance(tree, Mapping):
        raise ValueError(f"{shorten(tree)} is not an object by topic")
    positions = {}
    for name, text in flatten(tree):
        if not isinstance(text, str):
            raise ValueError(f"{name}: {shorten(text)} is not a position")
        positions[name] = MessageId.parse_text(text)
    return positions


def _topics(names: object) -> frozenset[str]:
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise ValueError(f"{shorten(names)} is not a list of topics")
    return frozenset(names)


def _scala_positions(tree: Mapping[str, Any]) -> dict[str, MessageId]:
    try:
        found = parse_offsets(json.dumps(tree), option="The checkpoint").topics
    except OptionError as error:
        raise _unreadable(tree, error) from None
    positions = {}
    for name, position in found.items():
        if position is Edge.LATEST:
            raise _unreadable(tree, ValueError(f"{name} stands at latest"))
        if isinstance(position, Edge):
            positions[name] = EARLIEST
        else:
            positions[name] = MessageId(*position.position)
    return positions


def _unreadable(tree: object, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"The checkpoint has an offset that is not one of a Pulsar stream: "
        f"{shorten(tree)} ({error}). Was the query changed to read from another "
        "source? Then it needs a new checkpoint location."
    )
