"""What all log lines of the package have in common: each of them is one line.

Names of topics and sentences of brokers are part of them, and others choose these.
"""

from __future__ import annotations

import logging

from pulsar_spark.errors import escaped_text

#: The loggers of the package.
LOGGERS = (
    "pulsar_spark.client",
    "pulsar_spark.lag",
    "pulsar_spark.options",
    "pulsar_spark.plan",
    "pulsar_spark.spark",
)


class _OneLine(logging.Filter):
    """Escapes control characters; lets everything pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if not text.isprintable():
            record.msg, record.args = escaped_text(text), None
        return True


def protect_loggers() -> None:
    """Makes sure that nothing in a log line can end it, or command a terminal."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(one, _OneLine) for one in logger.filters):
            logger.addFilter(_OneLine())
