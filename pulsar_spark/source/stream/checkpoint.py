# SPDX-License-Identifier: Apache-2.0
"""Offsets of a stream, in the form in which the checkpoint stores them.

::

    {"v": 1,
     "subscription": "spark-pulsar-2f1c...",
     "lastRead":   {"persistent://public/default/t": {"0": "12:33", "1": "15:7:4"}},
     "startAfter": {"persistent://public/default/t": {"1": "-1:-1"}},
     "began":      {"persistent://public/default/t": {"0": "12:-1"}},
     "chunked":    ["persistent://public/default/t"],
     "kept":       {"persistent://public/default/u": "21:0"},
     "schema":     {"type": "AVRO", "topic": "persistent://public/default/t",
                    "version": 3, "hash": "5f2a..."},
     "drained":    ["segment://public/default/s/0000-7fff-0"],
     "leftOut":    {"after": {"persistent://public/default/t": {"1": "15:3"}},
                    "last":  {"persistent://public/default/t": {"1": "15:9"}}}}

``subscription`` is the name of the query's subscription. The field ``predefined``,
which is ``true``, says that a run had the name from `predefinedSubscription`: the
subscription is not the query's own, and is never deleted. ``unacknowledged``, which is
``true``, says that the run did not acknowledge, as `ackOnCommit` wanted. Both are
absent otherwise, and in offsets of older versions: there, names tell, see
``query_subscription``.

A position names what was read last, here an entry, or a message of it as
``ledger:entry:batchIndex``; reading goes on right after it.

The end of a micro-batch also says where those topic partitions begin that its start
does not name (``startAfter``): all of them in the first micro-batch, later the new
ones. Spark stores an end before the micro-batch runs, but never the start of a query:
after a crash in the first micro-batch the start would be looked up again, and
``latest`` would be another position.

``began`` says where the query began, for topic partitions in which it still reads the
ledger it began in: there, missing first chunks of a chunked message are no loss.

``chunked`` names the topics in which chunked messages were seen, if any: there the
driver has to look how far it may acknowledge, after a restart, too.

``kept`` has the positions of topic partitions that the query has read, and that its
options no longer name. Reading goes on there when the options name them again.

``schema`` is the schema whose columns the query began with: a topic that has it, its
version there, and a hash of it, because the version may come to mean another schema.
Where topics have other schemas, ``others`` is a list of these, in the same form, and
``columns`` has the names of the columns of the query's values, in their order, and
``types`` their types, which offsets of older versions do not have.
``{"type": "NONE"}`` means values as bytes, of topics that had no schema. The field
is absent where the user chose bytes, and in offsets of older versions: such a query
takes the schema of now.

``drained`` names segments of scalable topics that were read to their end: they may be
deleted, and their children come next. Once deleted, they are named no more.

``leftOut`` is written by ``pulsar-spark checkpoint`` alone, if it sets topic
partitions elsewhere while a micro-batch is planned: what the micro-batch would have
read of them. Tasks are divided as if it still did, and then read nothing there. Sinks
know rows by the number of their task.

The text is canonical, because Spark compares offsets as text. All of this is pure, and
knows of positions only their order and their text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pulsar_spark.options.offsets import topic_tree
from pulsar_spark.system import PULSAR
from pulsar_spark.topics import TopicName
from spark_topics.errors import CheckpointError
from spark_topics.source.stream import checkpoint
from spark_topics.source.stream.checkpoint import (
    VERSION,
    Offset,
    read_positions,
    require_version,
)
from spark_topics.source.stream.position import P
from spark_topics.text import shorten


@dataclass(frozen=True)
class SchemaPin:
    """The schema that a stream began with.

    Attributes:
        type: Its kind, as Pulsar's tools name it; ``NONE`` where there was none, which
            has nothing of the following.
        topic: Full name of a topic that has it.
        version: Its number there.
        hash: Of its definition.
        others: The schemas of topics that are read by another one; they have no others.
        columns: The names of the columns of values, in their order, where there are
            others, and the user did not choose these columns.
        types: The types of these columns, see ``sql_types.tree_of``; none where an
            older version did not write them.
    """

    type: str
    topic: str = ""
    version: int = 0
    hash: str = ""
    others: tuple[SchemaPin, ...] = ()
    columns: tuple[str, ...] = ()
    types: tuple[Any, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the pin as JSON for Spark's checkpoint."""
        if not self.hash:
            return {"type": self.type}
        tree: dict[str, Any] = {
            "type": self.type,
            "topic": self.topic,
            "version": self.version,
            "hash": self.hash,
        }
        if self.others:
            tree["others"] = [pin.to_json() for pin in self.others]
        if self.columns:
            tree["columns"] = list(self.columns)
        if self.types:
            tree["types"] = list(self.types)
        return tree


@dataclass(frozen=True)
class StreamOffset(Offset[P]):
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
        kept: Position of each topic partition that the options no longer name.
        left_out: What the batch that ends here was planned to read, and reads no more.
        drained: Full names of segments that were read to their end.
        predefined: Whether `predefinedSubscription` has named the subscription.
        unacknowledged: Whether the run that wrote this did not acknowledge.
    """

    subscription: str
    last_read: Mapping[str, P]
    start_after: Mapping[str, P] = field(default_factory=dict)
    chunked: frozenset[str] = frozenset()
    began: Mapping[str, P] = field(default_factory=dict)
    schema: SchemaPin | None = None
    kept: Mapping[str, P] = field(default_factory=dict)
    left_out: Mapping[str, tuple[P, P]] = field(default_factory=dict)
    drained: frozenset[str] = frozenset()
    predefined: bool = False
    unacknowledged: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the offset as JSON for Spark's checkpoint."""
        tree: dict[str, Any] = {
            "v": VERSION,
            "subscription": self.subscription,
            "lastRead": position_tree(self.last_read),
        }
        if self.predefined:
            tree["predefined"] = True
        if self.unacknowledged:
            tree["unacknowledged"] = True
        if self.start_after:
            tree["startAfter"] = position_tree(self.start_after)
        if self.began:
            tree["began"] = position_tree(self.began)
        if self.chunked:
            tree["chunked"] = sorted(self.chunked)
        if self.schema is not None:
            tree["schema"] = self.schema.to_json()
        if self.kept:
            tree["kept"] = position_tree(self.kept)
        if self.drained:
            tree["drained"] = sorted(self.drained)
        if self.left_out:
            tree["leftOut"] = {
                "after": position_tree(
                    {n: position for n, (position, _) in self.left_out.items()}
                ),
                "last": position_tree(
                    {n: position for n, (_, position) in self.left_out.items()}
                ),
            }
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
        require_version(tree, PULSAR)
        try:
            subscription = tree["subscription"]
            if not isinstance(subscription, str):
                raise ValueError(f"{shorten(subscription)} is not a subscription")
            return cls(
                subscription,
                read_positions(tree["lastRead"], flatten, parse),
                read_positions(tree.get("startAfter", {}), flatten, parse),
                _topics(tree.get("chunked", [])),
                read_positions(tree.get("began", {}), flatten, parse),
                _schema(tree.get("schema")),
                read_positions(tree.get("kept", {}), flatten, parse),
                _left_out(tree.get("leftOut", {}), parse),
                _topics(tree.get("drained", [])),
                _flag(tree, "predefined"),
                _flag(tree, "unacknowledged"),
            )
        except KeyError as error:
            raise unreadable(tree, ValueError(f"it has no {error}")) from None
        except ValueError as error:
            raise unreadable(tree, error) from None


def position_tree(positions: Mapping[str, P]) -> dict[str, Any]:
    """Return positions as canonical JSON: by topic, then by partition number."""
    return topic_tree({name: str(position) for name, position in positions.items()})


def flatten(tree: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the full names and the values that ``topic_tree`` made a tree of."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            names = TopicName.parse(name).names_below(value)
            yield from zip(names, value.values(), strict=True)
        else:
            yield TopicName.parse(name).full_name, value


def _topics(names: object) -> frozenset[str]:
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise ValueError(f"{shorten(names)} is not a list of topics")
    return frozenset(names)


def _flag(tree: Mapping[str, Any], name: str) -> bool:
    value = tree.get(name, False)
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {shorten(value)}")
    return value


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
        other_pins = tree.get("others", [])
        columns, types = tree.get("columns", []), tree.get("types", [])
        if (
            all(isinstance(text, str) for text in texts)
            and type(pin.version) is int
            and isinstance(other_pins, list)
            and isinstance(columns, list)
            and all(isinstance(name, str) for name in columns)
            and isinstance(types, list)
            and len(types) in (0, len(columns))
        ):
            pins = [_schema(other) for other in other_pins]
            others = tuple(pin for pin in pins if pin is not None)
            return replace(
                pin, others=others, columns=tuple(columns), types=tuple(types)
            )
    raise ValueError(f"{shorten(tree)} is not a schema")


def _left_out(tree: object, parse: Callable[[str], P]) -> dict[str, tuple[P, P]]:
    if not isinstance(tree, Mapping):
        raise ValueError(f"{shorten(tree)} is not what is left out")
    after = read_positions(tree.get("after", {}), flatten, parse)
    last = read_positions(tree.get("last", {}), flatten, parse)
    if after.keys() != last.keys():
        raise ValueError(f"{shorten(tree)} is not what is left out")
    return {name: (after[name], last[name]) for name in after}


def unreadable(tree: object, error: Exception) -> CheckpointError:
    """Return the error for what a checkpoint has instead of an offset of ours."""
    return checkpoint.unreadable(tree, error, PULSAR)
