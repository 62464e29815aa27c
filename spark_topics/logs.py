# SPDX-License-Identifier: Apache-2.0
"""Keep each log record on a single line.

Records quote names of topics and messages of brokers, which others choose.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from spark_topics.errors import escaped_text

#: The loggers of what is shared; all that a user has to see goes to a protocol's own.
LOGGERS = ("spark_topics.client",)


class _OneLine(logging.Filter):
    """Escapes control characters; drops no record."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if not text.isprintable():
            record.msg, record.args = escaped_text(text), None
        return True


def protect_loggers(names: Iterable[str]) -> None:
    """Escape what would end a log line or control a terminal.

    Args:
        names: The loggers of a package, next to those of what is shared.
    """
    for name in (*LOGGERS, *names):
        logger = logging.getLogger(name)
        if not any(isinstance(filter_, _OneLine) for filter_ in logger.filters):
            logger.addFilter(_OneLine())
