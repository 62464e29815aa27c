# SPDX-License-Identifier: Apache-2.0
"""Streams with limits, for Spark since 4.2."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from spark_topics.process import planning
from spark_topics.spark.stream_reader_base import StreamReaderBase


class StreamReader(StreamReaderBase, SupportsTriggerAvailableNow):
    """Read topics as a stream. Arguments and errors are those of the base."""

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of the options; ReadAllAvailable may override this limit.

        Spark knows only one at a time, so ``latestOffset`` minds all of them itself.
        """
        limits = self._source.limits
        if limits.max_rows is not None:
            return ReadMaxRows(limits.max_rows)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        if limits.min_rows is not None:
            return ReadMinRows(limits.min_rows)
        return ReadAllAvailable()

    @planning()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return how far the next micro-batch goes."""
        planner = self._plan()
        offset = planner.offset(start)
        end = planner.latest(offset, unlimited=isinstance(limit, ReadAllAvailable))
        # The very text where nothing is new: Spark compares texts.
        return start if end is offset else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the topics' ends and the backlog, for the query's progress."""
        return self._plan().progress()

    def prepareForTriggerAvailableNow(self) -> None:
        """Make what there is now all that the query reads."""
        self._plan().fix_target()
