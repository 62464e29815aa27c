# SPDX-License-Identifier: Apache-2.0
"""Refuse a machine without the basis of these packages, before anything else fails.

Every package imports this module first, for its effect.
"""

import sys

from spark_topics.releases import SPARK, parse_release, text

if sys.platform == "win32":
    raise ImportError(
        "pulsar-spark runs on Linux and macOS: it needs poll and fork, which Windows "
        "does not have. Use the Windows Subsystem for Linux, or install it on the "
        "machines of a Spark cluster and connect to that."
    )

# Clusters bring their own Spark: a dependency would install a second one next to it.
try:
    import pyspark
except ModuleNotFoundError as error:
    if error.name != "pyspark":
        raise
    raise ImportError(
        f"PySpark is not installed in {sys.executable}. On a cluster, use the Python "
        "that Spark starts, which has the cluster's own PySpark. Elsewhere run "
        f"`pip install 'pyspark>={text(SPARK)}'` with this Python.",
        name="pyspark",
    ) from None
if (parse_release(str(pyspark.__version__)) or SPARK) < SPARK:
    raise ImportError(
        f"pulsar-spark needs Spark {text(SPARK)} or newer, and {sys.executable} has "
        f"PySpark {pyspark.__version__}.",
        name="pyspark",
    )
