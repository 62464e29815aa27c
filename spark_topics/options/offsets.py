# SPDX-License-Identifier: Apache-2.0
"""Start and end positions as users write them: a word, or JSON by partition.

What holds for all formats: `earliest` and `latest` for all partitions, in any case; in
JSON the same words, or Kafka's -2 and -1, or an offset of the system. No partition is
named twice. A start that JSON does not name is `earliest`, and an end is `latest`, so
that no row is left out that no one has spoken of.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from spark_topics.errors import OptionError
from spark_topics.options.spec import Parse
from spark_topics.text import Pairs, list_names, load_pairs, shorten

_K = TypeVar("_K", bound=Hashable)


class Edge(enum.Enum):
    """An end of a topic partition, by the word in options."""

    EARLIEST = "earliest"
    LATEST = "latest"


# The numbers are those of Kafka's JSON, which users bring along.
_EDGES_BY_NUMBER = {-2: Edge.EARLIEST, -1: Edge.LATEST}


def edge_of(value: object) -> Edge | None:
    """Return the edge for a word or a number of Kafka's; None for other values."""
    if isinstance(value, str):
        word = value.strip().lower()
        return Edge(word) if word in ("earliest", "latest") else None
    return _EDGES_BY_NUMBER.get(value) if type(value) is int else None


def load_by_name(text: str, option: str, example: str) -> Pairs:
    """Read a JSON object.

    Args:
        text: What the user wrote.
        option: The option that errors name.
        example: A sentence that shows what to write.

    Raises:
        ValueError: It is not JSON, or no object; with the sentence of an error.
    """
    try:
        loaded = load_pairs(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{option} is not valid JSON: {error.msg} at line {error.lineno},"
            f" column {error.colno}. {example}"
        ) from None
    except (ValueError, RecursionError):
        # Numbers of thousands of digits, and thousands of brackets.
        raise ValueError(f"{option} is not usable JSON. {example}") from None
    if not isinstance(loaded, Pairs):
        raise ValueError(f"{option} must be a JSON object by name. {example}")
    return loaded


@dataclass(frozen=True)
class Offsets(Generic[_K]):
    """Where to start or to end, in systems whose offsets are numbers.

    Attributes:
        default: Of partitions that are not named.
        by_partition: The offset of the next message of each partition that is named.
    """

    default: Edge
    by_partition: Mapping[_K, int | Edge] = field(default_factory=dict)

    def of(self, partition: _K) -> int | Edge:
        """Return the place of a partition."""
        return self.by_partition.get(partition, self.default)


def offsets_parser(
    partitions: Callable[[str, object], Iterable[tuple[_K, object]]],
    problem: Callable[[int], str | None],
    example: str,
    unnamed: Edge,
) -> Parse[Offsets[_K]]:
    """Return a parser of a word, or of JSON by partition.

    Args:
        partitions: Returns the partitions and values of a name and its value in the
            JSON; raises ValueError if it has no such form.
        problem: Returns why a number is no offset, None for one that is.
        example: A sentence that shows what to write.
        unnamed: Where partitions start or end that JSON does not name.
    """

    def parse(text: str, option: str) -> Offsets[_K]:
        edge = edge_of(text)
        if edge is not None:
            return Offsets(edge)
        try:
            pairs = load_by_name(text, option, example)
        except ValueError as error:
            raise OptionError(str(error)) from None
        places: dict[_K, int | Edge] = {}
        problems: list[str] = []
        for name, below in pairs:
            try:
                for partition, value in partitions(name, below):
                    if partition in places:
                        raise ValueError(f"partition {partition} is named twice")
                    places[partition] = _place(partition, value, problem)
            except ValueError as error:
                problems.append(f"{option}: {error}.")
        if problems:
            raise OptionError(*problems)
        return Offsets(unnamed, places)

    return parse


def _place(
    partition: object, value: object, problem: Callable[[int], str | None]
) -> int | Edge:
    edge = edge_of(value)
    if edge is not None:
        return edge
    reason = problem(value) if type(value) is int else "it is no number"
    if type(value) is not int or reason is not None:
        raise ValueError(
            f"partition {partition} is at {shorten(value)}: {reason}; write a number,"
            " earliest or latest"
        )
    return value


def range_problems(starting: Offsets[_K], ending: Offsets[_K]) -> list[str]:
    """Return the problems of a batch's start and end positions."""
    problems = []
    where = [
        str(named)
        for named, position in ending.by_partition.items()
        if position is Edge.EARLIEST
    ]
    if ending.default is Edge.EARLIEST or where:
        of = f" for {list_names(where)}" if where else ""
        problems.append(f"endingOffsets cannot be earliest{of}: nothing would be read.")
    for partition, end in ending.by_partition.items():
        start = starting.of(partition)
        if isinstance(start, int) and isinstance(end, int) and start > end:
            problems.append(
                f"The read of {partition} would end at {end}, before it starts at"
                f" {start}. Correct `startingOffsets` or `endingOffsets`."
            )
    return problems
