# SPDX-License-Identifier: Apache-2.0
"""Positions and times in options: words, JSON, message ids."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from pulsar_spark.errors import OptionError
from pulsar_spark.message_id import (
    EARLIEST,
    LATEST,
    MessageId,
    decode_message_id,
    encode_message_id,
)
from pulsar_spark.topics import TopicName, sort_key
from spark_topics.options.offsets import Edge, edge_of, load_by_name
from spark_topics.options.times import parse_time
from spark_topics.text import Pairs, shorten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_T = TypeVar("_T")

_MAX_INT32 = 2**31 - 1

#: Stands in JSON for all topic partitions that have no name there.
UNNAMED = "*"


#: Where one topic partition starts or ends.
Position = Edge | MessageId

_EDGES_BY_ID = {EARLIEST.position: Edge.EARLIEST, LATEST.position: Edge.LATEST}


@dataclass(frozen=True)
class OffsetsSpec:
    """Positions in an option, before topics are known.

    Attributes:
        default: Where topic partitions start or end that ``topics`` does not name.
        topics: Position by full topic name. A name without partition suffix is a
            non-partitioned topic. If it turns out to be partitioned, an `Edge`
            counts for all its partitions, and a `MessageId` for the one it carries.
    """

    default: Edge
    topics: Mapping[str, Position] = field(default_factory=dict)


@dataclass(frozen=True)
class TimesSpec:
    """Publish times in an option, before topics are known.

    Attributes:
        default_ms: Time for topics that ``topics`` does not name, in milliseconds since
            1970 UTC; None where only some topics have one.
        topics: Time in milliseconds by full topic name: a whole topic or one partition,
            which beats its topic.
    """

    default_ms: int | None
    topics: Mapping[str, int] = field(default_factory=dict)


_OFFSETS_EXAMPLE = (
    'Write earliest, latest, or JSON such as {"my-topic":{"0":"12:3","1":"earliest"}}.'
)
_TIMES_EXAMPLE = (
    "Write epoch milliseconds, ISO-8601 such as 2024-03-01T01:00:00Z, or JSON such as"
    ' {"my-topic":"2024-03-01T01:00:00Z"}.'
)


def parse_offsets(text: str, option: str, default: Edge = Edge.EARLIEST) -> OffsetsSpec:
    """Read the positions of topic partitions.

    Args:
        text: ``earliest``, ``latest``, or a JSON object by topic, whose names may have
            any form. A value is an object by partition number, or directly a position:
            a word, ``"ledger:entry[:batchIndex]"``, the bytes of a serialised message
            id as an array of signed or unsigned numbers, -2 (earliest) or -1 (latest).
            The name ``*`` has a word for all topic partitions that are not named.
        option: The option that errors name.
        default: Position of those, where the object says nothing of them.

    Raises:
        OptionError: With every problem found in the text.
    """
    edge = edge_of(text)
    if edge is not None:
        return OffsetsSpec(edge)
    topics, unnamed = _parse_topics(text, _parse_position, option, _OFFSETS_EXAMPLE)
    return OffsetsSpec(unnamed if isinstance(unnamed, Edge) else default, topics)


def dump_offsets(
    offsets: Mapping[str, Position], *, unnamed: Edge | None = None
) -> str:
    """Write positions as JSON that `parse_offsets` reads back.

    The text is canonical: topics and then partitions are in natural order. An id's own
    partition and batch size are left out, because the place does not depend on them.
    Only a chunked message is written as bytes, since it needs two places.

    Args:
        offsets: Position by topic name, partition suffix included.
        unnamed: Where all other topic partitions start or end; None to say nothing.

    Returns:
        Such as ``{"persistent://public/default/t":{"0":"12:3:4","1":"latest"}}``.

    Raises:
        TypeError: A position is none.
    """
    for name, position in offsets.items():
        if not isinstance(position, Edge | MessageId):
            raise TypeError(
                f"the position of {name} must be a MessageId, which decode_message_id"
                f" gives, not {type(position).__name__}"
            )
    tree: dict[str, Any] = topic_tree(
        {name: _dump_position(position) for name, position in offsets.items()}
    )
    if unnamed is not None:
        tree[UNNAMED] = unnamed.value
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False)


def id_of_a_whole_topic(
    option: str, name: str, value: MessageId, partitions: int | str = "several"
) -> OptionError:
    """Return the error for a message id that says nothing of its partition.

    Args:
        option: The option's name.
        name: A partitioned topic, as its full name.
        value: The id that the option gives to the topic.
        partitions: How many the topic has.
    """
    return OptionError(
        f"`{option}` gives one message id to {name}, which has {partitions} partitions."
        f' Name the partition: {{"{name}":{{"0":"{value}"}}}}.'
    )


def topic_tree(values: Mapping[str, _T]) -> dict[str, _T | dict[str, _T]]:
    """Values of topic partitions as a tree: by topic, then by partition number.

    Canonical: topics and then partitions are in natural order.

    Args:
        values: By full name, partition suffix included.

    Returns:
        Such as ``{"persistent://public/default/t": {"0": value, "1": value}}``; the
        value itself where a topic has no partitions.
    """
    names_of: dict[tuple[str, ...], list[tuple[int, str]]] = {}
    for name in values:
        topic, number = sort_key(name)
        names_of.setdefault(topic, []).append((number, name))
    tree: dict[str, Any] = {}
    for _, names in sorted(names_of.items()):
        names.sort()
        number, name = names[0]
        base = TopicName.parse(name).base
        has_whole_topic = number < 0 or base.full_name in values
        # A partition stands alone where its topic's key is taken or misleading.
        if has_whole_topic or base.partition_index is not None:
            for _, name in names:
                tree[TopicName.parse(name).full_name] = values[name]
        elif base.is_scalable:
            tree[base.full_name] = {
                TopicName.parse(name).key: values[name] for _, name in names
            }
        else:
            tree[base.full_name] = {str(number): values[name] for number, name in names}
    return tree


def parse_times(text: str, option: str) -> TimesSpec:
    """Read publish times.

    Args:
        text: Milliseconds since 1970 UTC, or ISO-8601 (UTC if it names no zone;
            digits below a millisecond are cut off), or a JSON object of these by topic,
            and by partition number below that; under the name ``*`` for all that are
            not named.
        option: The option that errors name.

    Raises:
        OptionError: With every problem found in the text.
    """
    if text.strip().startswith("{"):
        times, unnamed = _parse_topics(text, parse_time, option, _TIMES_EXAMPLE)
        return TimesSpec(unnamed, times)
    try:
        return TimesSpec(parse_time(text))
    except ValueError as error:
        raise OptionError(f"{option}: {error}. {_TIMES_EXAMPLE}") from None


def _parse_topics(
    text: str, parse: Callable[[object], _T], option: str, example: str
) -> tuple[dict[str, _T], _T | None]:
    """Parse a JSON object by topic, with nested objects by partition.

    Returns:
        The values by full name; the one for all other names, None if there is none.
    """
    values: dict[TopicName, _T] = {}
    meant: set[TopicName] = set()
    unnamed: _T | None = None
    problems: list[str] = []

    def add(topic_text: str, value: object) -> None:
        for topic, position in _flatten(topic_text, value, parse):
            partition = _partition_meant(topic, position)
            if topic in values or partition in meant:
                raise ValueError(f"{partition} is named twice, perhaps in two forms")
            values[topic] = position
            meant.add(partition)

    for topic_text, value in _load(text, option, example):
        try:
            if topic_text != UNNAMED:
                add(topic_text, value)
            elif unnamed is not None:
                raise ValueError(f"{UNNAMED} is named twice")
            else:
                unnamed = _parse_unnamed(value, parse)
        except OptionError as error:
            problems.extend(f"{option}: {problem}" for problem in error.problems)
        except ValueError as error:
            problems.append(f"{option}: {error}.")
    if problems:
        raise OptionError(*problems)
    return {topic.full_name: values[topic] for topic in sorted(values)}, unnamed


def _load(text: str, option: str, example: str) -> Pairs:
    try:
        return load_by_name(text, option, example)
    except ValueError as error:
        raise OptionError(str(error)) from None


def _parse_unnamed(value: object, parse: Callable[[object], _T]) -> _T:
    try:
        parsed = parse(value)
    except ValueError as error:
        raise ValueError(f"{UNNAMED}: {error}") from None
    if isinstance(parsed, MessageId):
        raise ValueError(
            f"{UNNAMED} stands for several topic partitions, and {parsed} is a place in"
            " one of them: write earliest or latest"
        )
    return parsed


def _flatten(
    topic_text: str, value: object, parse: Callable[[object], _T]
) -> Iterator[tuple[TopicName, _T]]:
    topic = TopicName.parse(topic_text)
    if not isinstance(value, Pairs):
        yield topic, _parse_at(topic, value, parse)
        return
    if topic.partition_index is not None:
        raise ValueError(
            f"{topic_text!r} is one partition already and cannot have"
            " partitions below it"
        )
    for key, position in value:
        partition = _partition_below(topic, key, topic_text)
        yield partition, _parse_at(partition, position, parse)


def _partition_below(topic: TopicName, key: str, topic_text: str) -> TopicName:
    if topic.is_scalable:
        return TopicName.parse(next(topic.names_below([key])))
    if not _PARTITION_NUMBER.fullmatch(key) or int(key) > _MAX_INT32:
        raise ValueError(
            f"{shorten(key)} below {topic_text!r} is not a partition number;"
            ' a topic without partitions is written {"topic":"ledger:entry"}'
        )
    return topic.partition(int(key))


_PARTITION_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)


def _parse_at(topic: TopicName, value: object, parse: Callable[[object], _T]) -> _T:
    try:
        position = parse(value)
    except ValueError as error:
        raise ValueError(f"{topic.full_name}: {error}") from None
    index = topic.partition_index
    carried = position.partition if isinstance(position, MessageId) else -1
    if index is not None and carried not in (-1, index):
        raise ValueError(f"{topic.full_name}: the message id is of partition {carried}")
    return position


def _partition_meant(topic: TopicName, position: object) -> TopicName:
    # A serialised id may carry its partition under the name of the whole topic.
    if topic.is_scalable:
        return topic
    if isinstance(position, MessageId) and position.partition >= 0:
        return topic.base.partition(position.partition)
    return topic


def _parse_position(value: object) -> Position:
    edge = edge_of(value)
    if edge is not None:
        return edge
    message_id = None
    if isinstance(value, str):
        message_id = MessageId.parse_text(value)
    elif isinstance(value, list) and not isinstance(value, Pairs):
        message_id = decode_message_id(_signed_bytes(value))
    if message_id is not None:
        return _EDGES_BY_ID.get(message_id.position, message_id)
    raise ValueError(
        f'{shorten(value)} is not a position: write "earliest", "latest",'
        ' "ledger:entry" or "ledger:entry:batchIndex"'
    )


def _signed_bytes(numbers: list[Any]) -> bytes:
    for number in numbers:
        if type(number) is not int or not -128 <= number <= 255:
            raise ValueError(f"{shorten(number)} is not a byte of a message id")
    return bytes(number & 0xFF for number in numbers)


def _dump_position(position: Position) -> str | list[int]:
    if isinstance(position, MessageId):
        if position.first_chunk is not None:
            # Signed, as the Scala connector's JSON writes them.
            data = encode_message_id(position)
            return [byte - 256 if byte > 127 else byte for byte in data]
        edge = _EDGES_BY_ID.get(position.position)
        return str(position) if edge is None else edge.value
    return position.value
