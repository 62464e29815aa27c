# SPDX-License-Identifier: Apache-2.0
"""The session that the other tests use."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


def test_workers_are_ours(spark: SparkSession) -> None:
    """Python workers run this interpreter and find the package."""

    def where(_: object) -> Iterator[tuple[str, str]]:
        import pulsar_spark

        yield sys.executable, pulsar_spark.__version__

    import pulsar_spark

    found = spark.sparkContext.parallelize([1, 2], 2).mapPartitions(where).collect()
    assert found == [(sys.executable, pulsar_spark.__version__)] * 2
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.range(10).selectExpr("sum(id)").first()[0] == 45
