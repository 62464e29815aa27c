# SPDX-License-Identifier: Apache-2.0
"""Streams without limits, for Spark 4.0 and 4.1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import InputPartition

from spark_topics import releases
from spark_topics.process import planning
from spark_topics.source.source import Source
from spark_topics.spark.stream_reader_base import StreamReaderBase


class UnlimitedStreamReader(StreamReaderBase):
    """Read topics as a stream, each micro-batch all that is there.

    These releases ask how far the topics go, and do not say from where. For
    ``Trigger.AvailableNow`` they ask once and read up to that answer, so it must never
    be less than everything.

    Args:
        source: What to read; `problem_of_limits` has nothing to say of its options.
        schema: The columns wanted.
    """

    def __init__(self, source: Source[Any], schema: pa.Schema) -> None:
        super().__init__(source, schema)
        self._known: Mapping[str, Any] | None = None  # the newest offset Spark told of
        self._is_committed = True  # unless the query goes on from there

    @planning()
    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override] # 4.2 tells more
        """Return how far the next micro-batch goes: to where the topics end."""
        planner = self._plan()
        latest = self._known
        start = planner.initial() if latest is None else planner.offset(latest)
        end = planner.latest(start, unlimited=True, is_committed=self._is_committed)
        # Whoever asks again has run what was logged, and not committed, in between.
        self._is_committed = True
        # The very text where nothing is new: Spark compares texts.
        return dict(latest) if latest is not None and end is start else end.to_json()

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        """Return the input partitions of a micro-batch, at least one for each range.

        A query that goes on is told its newest offset by this, as start and as end,
        before anything else. Whether that micro-batch was committed is not told, and
        ``Trigger.AvailableNow`` asks for the latest offset before it is run again.
        """
        self._known = end
        self._is_committed = start != end
        return [] if start == end else super().partitions(start, end)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Acknowledge what Spark has committed."""
        self._known = end
        self._is_committed = True
        super().commit(end)


def problem_of_limits(limits: Mapping[str, object]) -> str:
    """Return the problem of limits that are set, "" without limits.

    Args:
        limits: By the names of options; None for those that are not set.
    """
    set_limits = [f"`{name}`" for name, value in limits.items() if value is not None]
    if not set_limits:
        return ""
    release = releases.text(releases.SPARK_WITH_LIMITS)
    return (
        f"{' and '.join(set_limits)} cannot be kept: Spark lets Python sources limit a "
        f"micro-batch since {release}, and this is {pyspark.__version__}. Use Spark "
        f"{release} or newer, or leave it out: then each micro-batch takes all that is "
        "there."
    )
