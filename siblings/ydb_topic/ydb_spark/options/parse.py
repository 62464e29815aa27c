# SPDX-License-Identifier: Apache-2.0
"""Every option there is."""

from __future__ import annotations

from spark_topics.options.given import KnownOptions
from spark_topics.options.of_spark import OF_SPARK
from spark_topics.options.spec import OptionSpec, specs_of
from ydb_spark.options.connection import ConnectionOptions
from ydb_spark.options.read import ReadOptions
from ydb_spark.options.write import WriteOptions
from ydb_spark.system import SYSTEM


def _once() -> tuple[OptionSpec[object], ...]:
    """Return all options without duplicates of reads and writes."""
    specs = specs_of(ConnectionOptions, ReadOptions, WriteOptions)
    return (*{spec.name: spec for spec in specs}.values(), *OF_SPARK)


OPTIONS = _once()

KNOWN = KnownOptions(OPTIONS, SYSTEM)
