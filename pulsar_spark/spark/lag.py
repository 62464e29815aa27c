# SPDX-License-Identifier: Apache-2.0
"""How far streaming queries are behind their topics. Runs on the driver.

::

    spark.streams.addListener(PulsarLagListener())       # lines in the log,
    spark.streams.addListener(PulsarLagListener(print))  # or a function gets them,
    lag_of(query.lastProgress)                           # or without a listener

The figures come from Spark's progress and are of the moment when a micro-batch was
planned: no broker is asked again. Spark 4.0 and 4.1 do not ask sources for them, so
that there are none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from pulsar_spark.source.stream.lag import PartitionLag, StreamLag, partition_lags

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

logger = logging.getLogger("pulsar_spark.lag")

__all__ = ["PartitionLag", "PulsarLagListener", "StreamLag", "lag_of"]


class PulsarLagListener(StreamingQueryListener):
    """Reports a query's lag behind its Pulsar topics after each micro-batch.

    ``spark.streams.addListener(PulsarLagListener())``. It listens to all queries of the
    session, and passes over those that read from elsewhere.

    Args:
        on_lag: Called with the lag of each Pulsar source of a query, one after the
            other, in a thread of Spark's: it should not take long. Without it, each
            becomes a line of the logger ``pulsar_spark.lag`` at level INFO.
    """

    def __init__(self, on_lag: Callable[[StreamLag], None] | None = None) -> None:
        self._on_lag = _log if on_lag is None else on_lag

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: no lag is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Compute the lag and pass the lag on."""
        for lag in lag_of(event.progress):
            try:
                self._on_lag(lag)
            except Exception:
                # Spark would survive it, too, but skip the query's other sources, and
                # bury the reason in a stack trace of the JVM.
                logger.exception("The lag of a query could not be passed on: %s", lag)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing: the lag of a query that has ended is unknown."""


def lag_of(progress: StreamingQueryProgress | None) -> list[StreamLag]:
    """Return the lag of each Pulsar source in a progress.

    Args:
        progress: Such as ``query.lastProgress``, which is None before the first
            micro-batch.

    Returns:
        Nothing for sources that are not ours, and for micro-batches whose source did
        not report.
    """
    if progress is None:
        return []
    lags = []
    for index, source in enumerate(progress.sources):
        partitions = partition_lags(source.latestOffset, source.endOffset)
        if partitions is not None:
            lags.append(
                StreamLag(
                    query_id=str(progress.id),
                    run_id=str(progress.runId),
                    query_name=progress.name or "",
                    batch_id=progress.batchId,
                    timestamp=progress.timestamp,
                    source_index=index,
                    input_rows=source.numInputRows,
                    partitions=partitions,
                )
            )
    return lags


def _log(lag: StreamLag) -> None:
    logger.info("%s", lag)
