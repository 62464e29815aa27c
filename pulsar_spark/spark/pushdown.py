# SPDX-License-Identifier: Apache-2.0
"""Filters of a query that let a read skip parts of topics.

Spark evaluates all of them on the rows, too: what is not understood here is no loss.

Spark 4.3 keeps the plan of a pruned read for all queries of the loaded frame: a later
one without filters gets it as it is, and of two in one query, such as a union, both get
that of the last. Nothing that a source is told or can ask gives it away, neither when
planning nor in tasks. So this is only for frames that serve one query: it has to be
asked for by ``filterPushdown``, and each plan that is pruned is warned about.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from pulsar_spark.columns import PARTITION, PUBLISH_TIME, TOPIC
from pulsar_spark.source.plan.pruning import ColumnTest, Pruning
from pulsar_spark.spark.batch import PulsarReader

#: The comparisons of ``pruning.COMPARISONS`` that filters stand for.
_NAMES: dict[type, str] = {
    EqualTo: "eq",
    EqualNullSafe: "eq",
    LessThan: "lt",
    LessThanOrEqual: "le",
    GreaterThan: "gt",
    GreaterThanOrEqual: "ge",
    In: "in",
    StringStartsWith: "startswith",
    StringEndsWith: "endswith",
    StringContains: "contains",
}
_TYPES: dict[str, type] = {TOPIC: str, PARTITION: int}
_OF_TEXT = ("startswith", "endswith", "contains")
logger = logging.getLogger("pulsar_spark.spark")

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class PulsarPushdownReader(PulsarReader):
    """A reader whose plan is pruned by filters.

    Spark refuses it, naming the setting, unless
    ``spark.sql.python.filterPushdown.enabled`` is true.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Note the filters, all of which Spark is to evaluate as well."""
        self._pruning = pruning_of(filters)
        if self._pruning != Pruning():
            logger.warning(
                "`filterPushdown`: filters prune the plan of this load(), which Spark "
                "keeps for every query of it. Use another load() for another query."
            )
        return filters


def pruning_of(filters: Iterable[Filter]) -> Pruning:
    """Return what all rows that pass the filters have in common."""
    tests: list[ColumnTest] = []
    lowest: list[int] = []
    highest: list[int] = []
    for filter_ in filters:
        is_negated = isinstance(filter_, Not)
        plain: Any = filter_.child if isinstance(filter_, Not) else filter_
        name = _NAMES.get(type(plain))
        if name is None or len(plain.attribute) != 1:
            continue
        (column,) = plain.attribute
        if column == PUBLISH_TIME and not is_negated:
            low, high = _times(name, plain.value)
            lowest += low
            highest += high
        elif column in _TYPES and _is_comparable(column, name, plain.value):
            tests.append(ColumnTest(column, name, plain.value, is_negated))
    return Pruning(
        tuple(tests),
        max(lowest, default=None),
        min(highest, default=None),
    )


def _is_comparable(column: str, name: str, value: Any) -> bool:
    if name in _OF_TEXT and column != TOPIC:
        return False
    # NULL equals no topic, so it may stand in a list.
    values = [item for item in value if item is not None] if name == "in" else [value]
    return all(type(item) is _TYPES[column] for item in values)


def _times(name: str, value: Any) -> tuple[list[int], list[int]]:
    """Bounds, lower and upper, of publish times in ms since 1970: one or none each."""
    values = [item for item in value if item is not None] if name == "in" else [value]
    if not values or not all(
        isinstance(item, datetime) and item.tzinfo is not None for item in values
    ):
        return [], []
    low = [] if name in ("lt", "le") else [math.floor(_ms(min(values)))]
    high = [] if name in ("gt", "ge") else [math.ceil(_ms(max(values)))]
    return low, high


def _ms(time: datetime) -> float:
    # Whole microseconds first: a float of seconds would not hold them.
    since = time - _EPOCH
    return (
        (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    ) / 1e3
