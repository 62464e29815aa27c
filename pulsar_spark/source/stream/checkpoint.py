# SPDX-License-Identifier: Apache-2.0
"""Offsets of a stream, as they stand in the checkpoint of its query.

::

    {"v": 1,
     "subscription": "spark-pulsar-2f1c...",
     "lastRead":   {"persistent://public/default/t": {"0": "12:33", "1": "15:7:4"}},
     "startAfter": {"persistent://public/default/t": {"1": "-1:-1"}},
     "began":      {"persistent://public/default/t": {"0": "12:-1"}},
     "chunked":    ["persistent://public/default/t"],
     "schema":     {"type": "AVRO", "topic": "persistent://public/default/t",
                    "version": 3, "hash": "5f2a..."}}

A position names what was read last, here an entry, or a message of it as
``ledger:entry:batchIndex``; reading goes on right after it.

The end of a micro-batch says by itself where those partitions begin that its start does
not know: all of them in the first one, later the new ones (``startAfter``). Spark keeps
an end before the batch runs, but never the start of a query: after a crash in the first
batch that would be looked up again, and ``latest`` would be another position.

``began`` says where the query began, for topic partitions where it is still in the
first ledger: first chunks that a chunked message lacks are no loss there.

``chunked`` names the topics in which chunked messages were seen, if any: there the
driver has to look how far it may acknowledge, after a restart, too.

``schema`` is the one whose columns the query began with: where a topic has it, by which
number, and what it is, because the number may come to mean another one. ``{"type":
"NONE"}`` is for values as bytes, as the topics had no schema. It is absent where the
user chose bytes, and in offsets of older versions: such a query takes the schema of
now.

The text is canonical, because Spark compares offsets as text. All of this is pure, and
knows of positions only their order and their text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic

from pulsar_spark.errors import CheckpointError
from pulsar_spark.options.offsets import topic_tree
from pulsar_spark.source.stream.position import P
from pulsar_spark.text import shorten
from pulsar_spark.topics import TopicName

#: The form of the JSON. A form that older versions would misread gets the next number.
_VERSION = 1


@dataclass(frozen=True)
class SchemaPin:
    """The schema that a stream began with.

    Attributes:
        type: Its kind, as Pulsar's tools name it; ``NONE`` where there was none, which
            has nothing of the following.
        topic: Full name of a topic that has it.
        version: Its number there.
        hash: Of its definition.
    """

    type: str
    topic: str = ""
    version: int = 0
    hash: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the pin as Spark keeps it."""
        if not self.hash:
            return {"type": self.type}
        return {
            "type": self.type,
            "topic": self.topic,
            "version": self.version,
            "hash": self.hash,
        }


@dataclass(frozen=True)
class StreamOffset(Generic[P]):
    """How far a stream has been read.

    Attributes:
        subscription: Name of the query's subscription, "" where none was chosen yet.
        last_read: Position of each topic partition, by full name.
        start_after: Where partitions begin in the batch that ends here, where that is
            not what the batch's start says.
        chunked: Topics, without the suffix of a partition, that have chunked messages.
        began: The position after which the query began in a topic partition, where that
            is the beginning of the ledger that it has read last.
        schema: The schema that the query began with, if one is kept.
    """

    subscription: str
    last_read: Mapping[str, P]
    start_after: Mapping[str, P] = field(default_factory=dict)
    chunked: frozenset[str] = frozenset()
    began: Mapping[str, P] = field(default_factory=dict)
    schema: SchemaPin | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the offset as Spark keeps it."""
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
        if self.schema is not None:
            tree["schema"] = self.schema.to_json()
        return tree

    @classmethod
    def from_json(
        cls, tree: Mapping[str, Any], parse: Callable[[str], P]
    ) -> StreamOffset[P]:
        """Read an offset that Spark hands back.

        Args:
            tree: As ``to_json`` made it.
            parse: Reads the text of a position, or raises ValueError.

        Raises:
            CheckpointError: It is of another version, or not an offset at all.
        """
        if not isinstance(tree, Mapping):
            # Such as the plain numbers of Spark's rate and socket sources.
            raise unreadable(tree, ValueError("it is not a JSON object"))
        if "v" not in tree:
            raise unreadable(tree, ValueError("it has no 'v'"))
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
                _positions(tree["lastRead"], parse),
                _positions(tree.get("startAfter", {}), parse),
                _topics(tree.get("chunked", [])),
                _positions(tree.get("began", {}), parse),
                _schema(tree.get("schema")),
            )
        except KeyError as error:
            raise unreadable(tree, ValueError(f"it has no {error}")) from None
        except ValueError as error:
            raise unreadable(tree, error) from None

    @property
    def is_start_of_query(self) -> bool:
        """Whether a query starts here, or has read nothing since."""
        return self.start_after == self.last_read

    def is_new(self, topic_partition: str) -> bool:
        """Return whether the query begins a topic partition after this offset."""
        return self.is_start_of_query or topic_partition not in self.last_read

    def begin(self, start: StreamOffset[P], topic_partition: str, earliest: P) -> P:
        """Return the position after which the batch from ``start`` to here begins.

        Args:
            start: Start of the batch.
            topic_partition: Full name.
            earliest: For a topic partition that neither offset knows a beginning of:
                no row of it is left out.
        """
        known = self.start_after.get(topic_partition)
        if known is None:
            known = start.last_read.get(topic_partition)
        return earliest if known is None else known


@dataclass(frozen=True, slots=True)
class Span(Generic[P]):
    """What a micro-batch reads of one topic partition.

    Attributes:
        topic_partition: Full name.
        after: Where it begins, exclusive.
        last: Where it ends, inclusive.
        began: The position after which the query began here; None where that is not
            known, as it is no longer of interest.
    """

    topic_partition: str
    after: P
    last: P
    began: P | None


def batch_spans(
    start: StreamOffset[P], end: StreamOffset[P], earliest: P
) -> list[Span[P]]:
    """Return what a micro-batch reads; depends on nothing but its two offsets."""
    spans = []
    for name, last in end.last_read.items():
        after = end.begin(start, name, earliest)
        if after < last:
            began = after if start.is_new(name) else start.began.get(name)
            spans.append(Span(name, after, last, began))
    return spans


def position_tree(positions: Mapping[str, P]) -> dict[str, Any]:
    """Return positions as canonical JSON: by topic, then by partition number."""
    return topic_tree({name: str(at) for name, at in positions.items()})


def flatten(tree: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the full names and the values that ``topic_tree`` made a tree of."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            topic = TopicName.parse(name)
            for number, below in value.items():
                yield topic.partition(int(number)).full_name, below
        else:
            yield TopicName.parse(name).full_name, value


def _positions(tree: Mapping[str, Any], parse: Callable[[str], P]) -> dict[str, P]:
    if not isinstance(tree, Mapping):
        raise ValueError(f"{shorten(tree)} is not an object by topic")
    positions = {}
    for name, text in flatten(tree):
        if not isinstance(text, str):
            raise ValueError(f"{name}: {shorten(text)} is not a position")
        positions[name] = parse(text)
    return positions


def _topics(names: object) -> frozenset[str]:
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise ValueError(f"{shorten(names)} is not a list of topics")
    return frozenset(names)


def _schema(tree: object) -> SchemaPin | None:
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        pin = SchemaPin(
            tree.get("type", ""),
            tree.get("topic", ""),
            tree.get("version", 0),
            tree.get("hash", ""),
        )
        texts = (pin.type, pin.topic, pin.hash)
        if all(isinstance(one, str) for one in texts) and type(pin.version) is int:
            return pin
    raise ValueError(f"{shorten(tree)} is not a schema")


def unreadable(tree: object, error: Exception) -> CheckpointError:
    """Return the error for what a checkpoint has instead of an offset of ours."""
    return CheckpointError(
        f"The checkpoint has an offset that is not one of a Pulsar stream: "
        f"{shorten(tree)} ({error}). Was the query changed to read from another "
        "source? Then it needs a new checkpoint location."
    )
