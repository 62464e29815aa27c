# SPDX-License-Identifier: Apache-2.0
"""Which topic partitions and times a query's filters leave to be read: pure."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pulsar_spark.columns import PARTITION, TOPIC
from pulsar_spark.topics import TopicName, topic_column


@dataclass(frozen=True)
class ColumnTest:
    """A comparison of a column with a value, as SQL compares texts and numbers.

    Attributes:
        column: ``__topic`` or ``__partition``.
        name: One of the keys of ``COMPARISONS``.
        value: What to compare with; for ``in`` a tuple.
        is_negated: Whether the rows wanted are those for which it does not hold.
    """

    column: str
    name: str
    value: Any
    is_negated: bool = False

    def holds(self, found: str | int) -> bool:
        """Return whether rows with this value in the column can be wanted."""
        return COMPARISONS[self.name](found, self.value) is not self.is_negated


#: How a column is compared with a value.
COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "in": lambda found, values: found in values,
    "startswith": lambda found, value: found.startswith(value),
    "endswith": lambda found, value: found.endswith(value),
    "contains": lambda found, value: value in found,
}


@dataclass(frozen=True)
class Pruning:
    """The rows that a query does not need, so that no task reads them.

    Attributes:
        tests: Tests that the topic partition of each wanted row passes.
        published_from_ms: No wanted row was published before, in ms since 1970.
        published_to_ms: No wanted row was published after.
    """

    tests: tuple[ColumnTest, ...] = ()
    published_from_ms: int | None = None
    published_to_ms: int | None = None

    def keeps(self, topic: TopicName) -> bool:
        """Return whether rows of a topic partition can be wanted."""
        values: dict[str, str | int] = {TOPIC: topic_column(topic.full_name)}
        # If the topic has no partitions the column is NULL, which is not tested.
        if topic.partition_index is not None:
            values[PARTITION] = topic.partition_index
        return all(
            test.holds(values[test.column])
            for test in self.tests
            if test.column in values
        )
