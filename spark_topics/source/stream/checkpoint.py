# SPDX-License-Identifier: Apache-2.0
"""Offsets of a stream in the checkpoint of a query.

::

    {"v": 1,
     "lastRead":   {"orders": {"0": "1233", "1": "1574"}},
     "startAfter": {"orders": {"1": "-1"}},
     "kept":       {"returns": {"0": "17"}}}

A position names what was read last; reading goes on right after it.

``kept`` has the positions of topic partitions that the query has read, and that its
options no longer name: reading goes on there when the options name them again.

The end of a micro-batch also says where partitions begin that its start does not know:
all partitions in the first micro-batch, later the new ones (``startAfter``). Spark
keeps an end before the batch runs, but never the start of a query: after a crash in the
first batch, a lookup of ``latest`` would give another position.

The text is canonical, because Spark compares offsets as text. All of this is pure, and
knows of positions only their order and their text. How the name of a topic partition is
written is the messaging system's business.

A system's offsets are a class of their own::

    class QueueOffset(StreamOffset[Number]):
        form = OffsetForm(QUEUE, PartitionNames(split, join), Number)

Where a query has more to keep, that class is a dataclass with further fields, which
``to_json`` adds and ``from_json`` reads; or it is another `Offset`, as Pulsar's is.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

from spark_topics.errors import CheckpointError
from spark_topics.source.stream.position import P
from spark_topics.system import System
from spark_topics.text import shorten

_S = TypeVar("_S", bound="StreamOffset[Any]")

#: Offsets of a messaging system.
OffsetT = TypeVar("OffsetT", bound="Offset[Any]")

#: The form of the JSON. A form that older versions would misread gets the next number.
VERSION = 1


class Offset(Generic[P]):
    """The progress of a stream, as far as planning needs it.

    Attributes:
        last_read: Position of each topic partition, by its name.
        start_after: Where partitions begin in the batch that ends here, where that is
            not what the batch's start says.
        began: The position after which the query began in a topic partition, where the
            messaging system still has to know it.
        kept: Position of each topic partition that the options no longer name.
        left_out: Of topic partitions that a person has set elsewhere, what the batch
            that ends here was planned to read and reads no more: after which position,
            and up to which. The batch is divided among tasks as if it still read these
            rows, so that other rows keep their tasks.
    """

    last_read: Mapping[str, P]
    start_after: Mapping[str, P]
    began: Mapping[str, P]
    kept: Mapping[str, P] = MappingProxyType({})
    left_out: Mapping[str, tuple[P, P]] = MappingProxyType({})

    def to_json(self) -> dict[str, Any]:
        """Return the offset in the form that Spark stores."""
        raise NotImplementedError

    # Found once: each topic partition asks, and the answer is about all of them.
    @functools.cached_property
    def is_start_of_query(self) -> bool:
        """Return whether a query starts here, or has read nothing since."""
        return self.start_after == self.last_read

    def is_new(self, topic_partition: str) -> bool:
        """Return whether the query begins a topic partition after this offset."""
        return self.is_start_of_query or self.position(topic_partition) is None

    def position(self, topic_partition: str) -> P | None:
        """Return the last position of a topic partition, None if unknown."""
        position = self.last_read.get(topic_partition)
        return self.kept.get(topic_partition) if position is None else position

    def begin(self, start: Offset[P], topic_partition: str, earliest: P) -> P:
        """Return the position after which the batch from ``start`` to here begins.

        Args:
            start: Start of the batch.
            topic_partition: Its name.
            earliest: For a topic partition that neither offset knows a beginning of:
                no row of it is left out.
        """
        position = self.start_after.get(topic_partition)
        if position is None:
            position = start.position(topic_partition)
        return earliest if position is None else position


@dataclass(frozen=True, slots=True)
class Span(Generic[P]):
    """The part of a topic partition in a micro-batch.

    Attributes:
        topic_partition: Its name.
        after: The beginning, exclusive.
        last: The end, inclusive.
        began: The position after which the query began here; None where that is not
            known, as it is no longer of interest.
        is_left_out: Whether the rows are not read, and only count where the batch is
            divided among tasks.
    """

    topic_partition: str
    after: P
    last: P
    began: P | None
    is_left_out: bool = False


def batch_spans(start: Offset[P], end: Offset[P], earliest: P) -> list[Span[P]]:
    """Return the spans of a micro-batch; depends on its two offsets alone."""
    spans = []
    for name, last in end.last_read.items():
        if name in end.left_out:
            spans.append(Span(name, *end.left_out[name], None, is_left_out=True))
            continue
        after = end.begin(start, name, earliest)
        if after < last:
            began = after if start.is_new(name) else start.began.get(name)
            spans.append(Span(name, after, last, began))
    return spans


@dataclass(frozen=True)
class PartitionNames:
    """How names of topic partitions are written in JSON: by topic, then by partition.

    Attributes:
        split: Returns the topic of a topic partition, and the name of the partition
            within the topic; None where the topic has no partitions.
        join: Makes these two one name again.
    """

    split: Callable[[str], tuple[str, str | None]]
    join: Callable[[str, str | None], str]

    def tree(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values of topic partitions as a tree, in natural order.

        Args:
            values: By the name of the topic partition.

        Returns:
            Such as ``{"orders": {"0": value, "1": value}}``; the value itself where a
            topic has no partitions.
        """
        parts = {name: self.split(name) for name in values}
        alone = {topic for topic, partition in parts.values() if partition is None}
        tree: dict[str, Any] = {}
        for name in sorted(values, key=lambda name: _natural(parts[name])):
            topic, partition = parts[name]
            if partition is None or topic in alone:
                tree[name] = values[name]
            else:
                tree.setdefault(topic, {})[partition] = values[name]
        return tree

    def flatten(self, tree: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield the names and the values that `tree` made a tree of."""
        for topic, value in tree.items():
            if isinstance(value, Mapping):
                for partition, below in value.items():
                    yield self.join(topic, partition), below
            else:
                yield topic, value


def _split_at_slash(name: str) -> tuple[str, str]:
    topic, _, partition = name.rpartition("/")
    return topic, partition


#: Names such as ``orders/0``, in which only the topic may have further slashes.
SLASHED = PartitionNames(
    _split_at_slash, lambda topic, partition: f"{topic}/{partition}"
)


def _natural(parts: Iterable[str | None]) -> list[list[tuple[int, str]]]:
    """Return a key by which 2 comes before 10."""
    return [
        [
            (int(number or -1), other)
            for number, other in re.findall(r"([0-9]{1,19})|([^0-9]+)", part or "")
        ]
        for part in parts
    ]


@dataclass(frozen=True)
class OffsetForm(Generic[P]):
    """How offsets of a messaging system are written.

    Attributes:
        system: Whose they are.
        names: How topic partitions are named.
        parse: Reads the text of a position, or raises ValueError.
    """

    system: System
    names: PartitionNames
    parse: Callable[[str], P]


@dataclass(frozen=True)
class StreamOffset(Offset[P]):
    """How far a stream has been read, where there is no more to keep than positions.

    Attributes:
        last_read: See `Offset`, as for the others.
        start_after: Where partitions begin.
        began: Where the query began.
        kept: Positions of what the options no longer name.
    """

    #: To be set by the class of a messaging system.
    form: ClassVar[OffsetForm[Any]]

    last_read: Mapping[str, P]
    start_after: Mapping[str, P] = field(default_factory=dict)
    began: Mapping[str, P] = field(default_factory=dict)
    kept: Mapping[str, P] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the offset in the form that Spark stores."""
        tree: dict[str, Any] = {"v": VERSION, "lastRead": self._tree(self.last_read)}
        if self.start_after:
            tree["startAfter"] = self._tree(self.start_after)
        if self.began:
            tree["began"] = self._tree(self.began)
        if self.kept:
            tree["kept"] = self._tree(self.kept)
        return tree

    @classmethod
    def from_json(cls: type[_S], tree: Mapping[str, Any]) -> _S:
        """Read an offset that Spark hands back.

        Args:
            tree: As ``to_json`` made it.

        Raises:
            CheckpointError: It is of another version, or not an offset at all; of the
                system's own class.
        """
        require_version(tree, cls.form.system)
        try:
            return cls(**cls.fields_of(tree))
        except KeyError as error:
            problem = ValueError(f"it has no {error}")
            raise unreadable(tree, problem, cls.form.system) from None
        except ValueError as error:
            raise unreadable(tree, error, cls.form.system) from None

    @classmethod
    def fields_of(cls, tree: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of an offset in JSON.

        Raises:
            KeyError: Something is missing.
            ValueError: A part has the wrong form.
        """
        flatten, parse = cls.form.names.flatten, cls.form.parse
        return {
            "last_read": read_positions(tree["lastRead"], flatten, parse),
            "start_after": read_positions(tree.get("startAfter", {}), flatten, parse),
            "began": read_positions(tree.get("began", {}), flatten, parse),
            "kept": read_positions(tree.get("kept", {}), flatten, parse),
        }

    def _tree(self, positions: Mapping[str, P]) -> dict[str, Any]:
        return self.form.names.tree(
            {name: str(position) for name, position in positions.items()}
        )


def require_version(tree: object, system: System) -> None:
    """Require that an offset is of a version that can be read.

    Raises:
        CheckpointError: It is of another one, or not an offset at all.
    """
    if not isinstance(tree, Mapping):
        # Such as the plain numbers of Spark's rate and socket sources.
        raise unreadable(tree, ValueError("it is not a JSON object"), system)
    if "v" not in tree:
        raise unreadable(tree, ValueError("it has no 'v'"), system)
    if tree["v"] != VERSION:
        raise system.checkpoint_error(
            f"The checkpoint has offsets of version {shorten(tree['v'])}, but this "
            f"version of {system.distribution} reads version {VERSION}. Upgrade it."
        )


def read_positions(
    tree: Mapping[str, Any],
    flatten: Callable[[Mapping[str, Any]], Iterable[tuple[str, Any]]],
    parse: Callable[[str], P],
) -> dict[str, P]:
    """Return the positions in a tree, by the names of topic partitions.

    Args:
        tree: By topic, and by partition below that.
        flatten: Returns names and values of such a tree.
        parse: Reads the text of a position.

    Raises:
        ValueError: It is no such tree, or has something else than positions.
    """
    if not isinstance(tree, Mapping):
        raise ValueError(f"{shorten(tree)} is not an object by topic")
    positions = {}
    for name, text in flatten(tree):
        if not isinstance(text, str):
            raise ValueError(f"{name}: {shorten(text)} is not a position")
        positions[name] = parse(text)
    return positions


def unreadable(tree: object, error: Exception, system: System) -> CheckpointError:
    """Return the error for what a checkpoint has instead of an offset of ours."""
    article = "an" if system.name[:1] in "AEIOU" else "a"
    return system.checkpoint_error(
        f"The checkpoint has an offset that is not one of {article} {system.name} "
        f"stream: {shorten(tree)} ({error}). Was the query changed to read from "
        "another source? Then it needs a new checkpoint location."
    )
