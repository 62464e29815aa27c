# SPDX-License-Identifier: Apache-2.0
"""The form and the destination of the log lines of all packages.

Each record stays on a single line. Records quote names of topics and messages of
brokers, which others choose.

A program that sets up logging decides alone. In one that does not, lines go to the
standard error in the form of Spark's own lines, from level WARN on. In the Python
processes that Spark starts, where nobody sets up logging, they do so from INFO on, and
Spark passes them on: to the executor's ``stderr``, or to the console with ``local[*]``.
"""

from __future__ import annotations

import logging
import sys

from spark_topics.errors import escaped_text
from spark_topics.process import is_spark_worker

#: The package that all systems share.
_SHARED = "spark_topics"

#: The parts of a package that have a logger: ``<package>.<room>``.
ROOMS = ("arrow", "client", "lag", "options", "sink", "source", "spark")

_FORMAT = "%(asctime)s %(level)s %(name)s: %(message)s"
_TIME_FORMAT = "%y/%m/%d %H:%M:%S"

#: Names of levels that Spark writes otherwise than Python.
_LEVELS = {"WARNING": "WARN", "CRITICAL": "FATAL"}


class _OneLine(logging.Filter):
    """Escapes control characters; drops no record."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if not text.isprintable():
            record.msg, record.args = escaped_text(text), None
        return True


class _StandardError(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes records in the form of Spark's, unless the program has handlers."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(_FORMAT, _TIME_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        if _has_other_handlers(logging.getLogger(record.name)):
            return
        record.level = _LEVELS.get(record.levelname, record.levelname)
        self.stream = sys.stderr  # which a program may have replaced
        super().emit(record)


def set_up(package: str) -> None:
    """Give the loggers of a package, and of what is shared, their form.

    A second call changes nothing.

    Args:
        package: The package of a messaging system.
    """
    for name in (_SHARED, package):
        # A filter acts on records of its own logger, and not on those of its children.
        for room in ROOMS:
            logger = logging.getLogger(f"{name}.{room}")
            if not any(isinstance(filter_, _OneLine) for filter_ in logger.filters):
                logger.addFilter(_OneLine())
        logger = logging.getLogger(name)
        if not any(isinstance(handler, _StandardError) for handler in logger.handlers):
            logger.addHandler(_StandardError())
        if is_spark_worker() and logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)


def _has_other_handlers(logger: logging.Logger) -> bool:
    current: logging.Logger | None = logger
    while current is not None:
        if not all(isinstance(handler, _StandardError) for handler in current.handlers):
            return True
        current = current.parent if current.propagate else None
    return False
