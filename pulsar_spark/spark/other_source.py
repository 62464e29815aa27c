# SPDX-License-Identifier: Apache-2.0
"""A jar whose source is called ``pulsar``, too. Runs on the driver.

Spark asks Python for sources only by names that no JVM source has. Where the Scala
connector is on the class path ``format("pulsar")`` is that connector, and nothing tells
so. It can be seen where Python has a session: when this package is imported there, and
when its source is registered.
"""

from __future__ import annotations

import logging
from typing import Any

from pyspark import SparkContext

from pulsar_spark.system import warn_once

logger = logging.getLogger("pulsar_spark.spark")

_REGISTER = "org.apache.spark.sql.sources.DataSourceRegister"


def warn_of_other_source(name: str, own_name: str) -> None:
    """Log a warning once, where a source of the JVM has our name.

    Args:
        name: The name.
        own_name: The one that only we have.
    """
    context = SparkContext._active_spark_context
    # With Spark Connect, and on executors, there is none.
    if context is None or context._jvm is None:
        return
    try:
        other = _source_of_jvm(context._jvm, name)
    except Exception as error:
        logger.debug("The sources of the JVM cannot be listed: %s", error)
        return
    if other:
        warn_once(
            f'format("{name}") is {other} of a jar on the class path, not this package:'
            f' Spark prefers it. Use format("{own_name}") for this package, or take the'
            " jar off spark.jars and spark.jars.packages."
        )


def _source_of_jvm(jvm: Any, name: str) -> str:
    """Return the class of the JVM's source of this name, "" where there is none."""
    loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    register = loader.loadClass(_REGISTER)
    sources = jvm.java.util.ServiceLoader.load(register, loader).iterator()
    while sources.hasNext():
        source = sources.next()
        if source.shortName().lower() == name:
            return str(source.getClass().getName())
    return ""
