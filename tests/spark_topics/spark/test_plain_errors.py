# SPDX-License-Identifier: Apache-2.0
"""Tests of `spark_topics.spark.plain_errors`: what a call of Spark ends with."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import datasource
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.streaming import datasource as streaming

from spark_topics.errors import TopicsError
from spark_topics.spark.plain_errors import _CALLED_BY_SPARK, PlainErrors


def deep(levels: int) -> Any:
    """Fail below many frames, because of another error."""
    if levels:
        return deep(levels - 1)
    try:
        raise OSError("refused")
    except OSError as error:
        raise TopicsError("Nothing answers.") from error


class Reader(PlainErrors):
    """What Spark would call, and what it would not."""

    def partitions(self) -> Any:
        """Fail."""
        return deep(20)

    def read(self, _: object) -> Iterator[int]:
        """Fail after a row."""
        yield 1
        deep(20)

    def latestOffset(self) -> Any:
        """Fail as no one foresaw."""
        raise ValueError("our own mistake")

    def __getstate__(self) -> Any:
        return deep(20)

    def other(self) -> Any:
        """Fail, where Spark does not call."""
        return deep(20)


def lines_of(error: BaseException) -> list[str]:
    """The traceback, as PySpark prints it."""
    return "".join(traceback.format_exception(error)).splitlines()


@pytest.mark.parametrize(
    "call",
    [
        lambda reader: reader.partitions(),
        lambda reader: list(reader.read(None)),
        pickle.dumps,
    ],
    ids=["partitions", "read", "pickle"],
)
def test_the_sentence_is_almost_all(
    call: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """No frame of ours, and no error before it; both are there at level DEBUG."""
    caplog.set_level(logging.DEBUG, "spark_topics.spark")
    with pytest.raises(TopicsError, match="Nothing answers") as caught:
        call(Reader())
    lines = lines_of(caught.value)
    assert len(lines) <= 10
    assert lines[-1] == "spark_topics.errors.TopicsError: [TOPICS] Nothing answers."
    assert not any("in deep" in line for line in lines)
    assert "in deep" in caplog.text
    assert "OSError: refused" in caplog.text


def test_rows_before_an_error_come() -> None:
    """And a reader that is closed early lets go of what it has."""
    rows = Reader().read(None)
    assert next(rows) == 1
    rows.close()  # type: ignore[attr-defined]


def test_a_mistake_of_ours_is_shown_whole() -> None:
    """It is for us to read."""
    with pytest.raises(ValueError, match="mistake") as caught:
        Reader().latestOffset()
    assert any("in latestOffset" in line for line in lines_of(caught.value))
    with pytest.raises(TopicsError) as told:
        Reader().other()
    assert len(lines_of(told.value)) > 10


def test_each_method_of_spark_is_known() -> None:
    """Of all that sources, readers and writers of this Spark can have."""
    kinds = [
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
        getattr(streaming, "SupportsTriggerAvailableNow", DataSource),
        getattr(datasource, "DataSourceArrowWriter", DataSource),
    ]
    methods = {
        name
        for kind in kinds
        for name, value in vars(kind).items()
        if callable(value) and not name.startswith("_")
    }
    # These raise nothing of ours: no broker is asked.
    not_ours = {
        "name",
        "simpleStreamReader",
    }
    assert methods - not_ours <= _CALLED_BY_SPARK
