# SPDX-License-Identifier: Apache-2.0
"""A session in which ``format("pulsar")`` works, whatever Python Spark would start."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pulsar_spark.errors import OptionError
from pulsar_spark.spark.datasource import PulsarDataSource, PulsarPyDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(builder: SparkSession.Builder | None = None) -> SparkSession:
    """Return a session in which ``format("pulsar")`` works, and start Spark for it.

    A session that is there already is returned. Tasks run the Python of this program,
    unless ``PYSPARK_PYTHON`` names another one.

    Args:
        builder: What the session is to be like; None for ``SparkSession.builder``.
    """
    from pyspark.sql import SparkSession

    # Spark reads it when it starts.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return use((builder or SparkSession.builder).getOrCreate())


def use(spark: SparkSession) -> SparkSession:
    """Make ``format("pulsar")`` and ``format("pulsar-py")`` known to a session.

    Spark finds the formats where the Python that it starts has this package.
    In a notebook that is often another one. A registered format runs in the Python of
    functions of users, which ``PYSPARK_PYTHON`` names. Where that was not set, and
    Spark runs on this machine alone, that is the Python of this program.

    Args:
        spark: The session, also one of Spark Connect.

    Returns:
        The same session.

    Raises:
        OptionError: Plans run that Python on the driver, where there is no such file.
    """
    from pyspark.errors import AnalysisException

    context = getattr(spark, "_sc", None)  # Spark Connect has none
    is_chosen = "PYSPARK_PYTHON" in os.environ
    if context is not None and context.master.startswith("local") and not is_chosen:
        context.pythonExec = sys.executable
    python = getattr(context, "pythonExec", "")
    if os.sep in python and not os.path.exists(python):
        raise OptionError(
            f"Spark's Python, {python}, is not on the driver, where plans run it. "
            "Unpack what `--archives` brings to executors in the driver's folder, too, "
            "or let `PYSPARK_PYTHON` name a Python that all machines have."
        )
    for source in (PulsarDataSource, PulsarPyDataSource):
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:
            # Spark 4.0 keeps the formats that it has found by itself.
            if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
                raise
    return spark
