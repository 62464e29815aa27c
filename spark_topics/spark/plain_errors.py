# SPDX-License-Identifier: Apache-2.0
"""Errors without the frames that only we can read, at each method that Spark calls.

PySpark prints the traceback of an error in its Python process, and the JVM prints that
text again. Frames of this package, and the errors that led to an error, make a hundred
lines of a sentence. So errors of the package leave without both. The logger
``spark_topics.spark`` has them at level DEBUG.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterator
from typing import Any

from spark_topics.errors import TopicsError

logger = logging.getLogger("spark_topics.spark")

#: What Spark calls of data sources, readers and writers. Pickling is the first step of
#: each micro-batch of a writer.
_CALLED_BY_SPARK = frozenset(
    (
        "schema",
        "reader",
        "streamReader",
        "writer",
        "streamWriter",
        "pushFilters",
        "partitions",
        "read",
        "write",
        "commit",
        "abort",
        "getDefaultReadLimit",
        "initialOffset",
        "latestOffset",
        "reportLatestOffset",
        "prepareForTriggerAvailableNow",
        "stop",
        "__getstate__",
    )
)


class PlainErrors:
    """A base of classes whose methods Spark calls."""

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        for name in _CALLED_BY_SPARK & cls.__dict__.keys():
            method = cls.__dict__[name]
            if inspect.isfunction(method):
                setattr(cls, name, _with_plain_errors(method))

    def explained(self, error: TopicsError) -> TopicsError:
        """Return an error with what only this class can say of the error's cause."""
        return error


def _with_plain_errors(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method with plain errors, also of the iterator that it returns."""

    @functools.wraps(method)
    def called(self: PlainErrors, *args: Any, **named: Any) -> Any:
        try:
            result = method(self, *args, **named)
        except TopicsError as error:
            raise _plain(self.explained(error)) from None
        # Only the rows of a reader are an iterator.
        return _rows(result) if isinstance(result, Iterator) else result

    return called


def _rows(rows: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from rows
    except TopicsError as error:
        raise _plain(error) from None


def _plain(error: TopicsError) -> TopicsError:
    logger.debug("%s", error, exc_info=error)
    return error.with_traceback(None)
