# SPDX-License-Identifier: Apache-2.0
"""Keep each log record of the package on one line.

Records quote names of topics and messages of brokers, which others choose.
"""

from __future__ import annotations

import logging

from pulsar_spark.errors import escaped_text

#: The loggers of the package.
LOGGERS = (
    "pulsar_spark.arrow",
    "pulsar_spark.client",
    "pulsar_spark.lag",
    "pulsar_spark.options",
    "pulsar_spark.sink",
    "pulsar_spark.source",
    "pulsar_spark.spark",
)


class _OneLine(logging.Filter):
    """Escapes control characters; drops no record."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if not text.isprintable():
            record.msg, record.args = escaped_text(text), None
        return True


def protect_loggers() -> None:
    """Escape what would end a log line or control a terminal, in all our loggers."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(one, _OneLine) for one in logger.filters):
            logger.addFilter(_OneLine())
