# SPDX-License-Identifier: Apache-2.0
"""A messaging system in memory whose positions are numbers: each entry is one row."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from spark_topics.source.stream.checkpoint import Span
from spark_topics.source.stream.cluster import PartitionStatus
from tests.spark_topics.numbers import ClusterOfNumbers, DataLossError, Offset

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class NumberCluster(ClusterOfNumbers):
    """A cluster, and what one query has there.

    Attributes:
        logs: First number that is still there, and the next one, by topic partition.
        read: What was acknowledged.
        named: What discovery names; None for what there is.
        wanted: What the options mean; None for all.
        undone: How many visits have failed.
    """

    def __init__(self, **logs: tuple[int, int]) -> None:
        self.logs = dict(logs)
        self.read: dict[str, Offset] = {}
        self.named: list[str] | None = None
        self.wanted: set[str] | None = None
        self.undone = 0

    def starts(self) -> dict[str, Offset]:
        """Everything there is that the options mean."""
        names = [name for name in self.logs if self.is_wanted(name)]
        return {name: status.after for name, status in self.edges(names).items()}

    def partitions(self, *, wait: bool = False) -> list[str]:
        """All of them."""
        return list(self.logs) if self.named is None else self.named

    def is_wanted(self, name: str) -> bool:
        """Every one, unless a test says otherwise."""
        return self.wanted is None or name in self.wanted

    def topic_of(self, name: str) -> str:
        """Each is a topic."""
        return name

    def edges(self, names: Sequence[str]) -> dict[str, PartitionStatus[Offset]]:
        """Where they begin and end."""
        return {
            name: PartitionStatus(Offset(log[0] - 1), Offset(log[1] - 1))
            for name in names
            if (log := self.logs.get(name)) is not None
        }

    @contextlib.contextmanager
    def visit(
        self, begins: Mapping[str, Offset]
    ) -> Iterator[dict[str, PartitionStatus[Offset] | None]]:
        """Nothing is kept, so nothing is let go."""
        try:
            yield self.status(begins)
        except DataLossError:
            self.undone += 1
            raise

    def status(
        self, begins: Mapping[str, Offset]
    ) -> dict[str, PartitionStatus[Offset] | None]:
        """Rows that are gone are always an error here."""
        self.acknowledge(begins)
        found = self.edges(list(begins))
        for name, status in found.items():
            if begins[name] < status.after:
                wanted = str(begins[name].next())
                raise DataLossError(
                    f"{name} has no {wanted}.",
                    topic_partition=name,
                    wanted=wanted,
                    available=str(status.after.next()),
                )
        return {
            name: PartitionStatus(begins[name], found[name].last)
            if name in found
            else None
            for name in begins
        }

    def ranges(self, spans: Sequence[Span[Offset]]) -> list[tuple[str, range]]:
        """The numbers of the rows."""
        return [
            (span.topic_partition[-1], range(span.after + 1, span.last + 1))
            for span in spans
        ]

    def acknowledge(self, read: Mapping[str, Offset]) -> None:
        """Remembers it."""
        self.read.update(read)


class Accepting(NumberCluster):
    """Goes on with what there is where a position is not there any more.

    Attributes:
        fails: Whether that is an error.
    """

    def __init__(self, **logs: tuple[int, int]) -> None:
        super().__init__(**logs)
        self.fails = True

    def status(
        self, begins: Mapping[str, Offset]
    ) -> dict[str, PartitionStatus[Offset] | None]:
        """From its first row on, where the query is before or behind all of them."""
        found: dict[str, PartitionStatus[Offset] | None] = {}
        for name, edge in self.edges(list(begins)).items():
            begin, last = begins[name], edge.last
            assert last is not None
            if not edge.after <= begin <= last:
                if self.fails:
                    raise DataLossError(
                        f"{name} has {edge.after.next()} to {last}, not {begin}.",
                        topic_partition=name,
                        wanted=str(begin.next()),
                        available=str(edge.after.next()),
                    )
                begin = edge.after
            found[name] = PartitionStatus(begin, last)
        return found
