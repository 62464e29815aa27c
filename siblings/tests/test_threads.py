# SPDX-License-Identifier: Apache-2.0
"""Writes from a pool of threads: what docs/troubleshooting.md says of these."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("name", "condition"),
    [
        ("pulsar", "PULSAR_OPTION"),
        ("tubemq", "TUBEMQ_OPTION"),
        ("ydb_topic", "YDB_OPTION"),
    ],
)
def test_a_thread_needs_a_session_of_its_own(
    spark: SparkSession, name: str, condition: str
) -> None:
    """Without it Spark finds no source in Python, whichever that is.

    If the first half fails, Spark has mended that: drop the row of the page.
    """
    rows = spark.range(3).selectExpr("cast(id as string) as value")

    def said(initializer: Callable[[], object] | None) -> str:
        with ThreadPoolExecutor(1, initializer=initializer) as pool:
            writer = rows.write.format(name).mode("append")
            with pytest.raises((PySparkException, Py4JJavaError)) as caught:
                pool.submit(writer.save).result(120)
        return str(caught.value)

    assert "DATA_SOURCE_NOT_FOUND" in said(None)
    # The source is found, and asks for its options.
    assert condition in said(lambda: spark.createDataFrame([], "none INT"))
