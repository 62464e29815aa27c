# SPDX-License-Identifier: Apache-2.0
"""Lines that a user sees without setting up logging, and their logger."""

from __future__ import annotations

import logging

from spark_topics import statistics

logger = logging.getLogger("pulsar_spark.spark")


def log_summary(text: str, interval_s: float) -> None:
    """Log a line about a whole write. See `spark_topics.statistics`."""
    statistics.log_summary(logger, text, interval_s)


def warn_once(text: str) -> None:
    """Log a warning, once in each process."""
    statistics.warn_once(logger, text)
