# SPDX-License-Identifier: Apache-2.0
"""A Python that Spark starts and that has no ``pulsar_spark``. On the driver.

Spark looks for sources in a Python process that it owns, by default the first
``python3`` of the ``PATH``. Where that one lacks this package, a job ends in Spark's
bare DATA_SOURCE_NOT_FOUND, though the import in the job's own file went well.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys

from pyspark import SparkContext

from pulsar_spark.system import warn_once
from spark_topics.process import (
    PythonOfSources,
    is_spark_worker,
    python_of_sources,
)

logger = logging.getLogger("pulsar_spark.spark")

_PROBE = (
    "import importlib.util, sys;"
    " sys.exit(0 if importlib.util.find_spec('pulsar_spark') else 1)"
)

#: Longest wait for another Python to begin and to end, in seconds.
_PROBE_S = 5.0


def warn_of_other_python() -> None:
    """Log a warning once, where Spark would start a Python without this package.

    Nothing is started where that Python is this one, nor in processes that Spark or our
    command line made, nor for Spark Connect, whose server has its own Python.
    """
    if is_spark_worker() or _is_our_command() or os.environ.get("SPARK_REMOTE"):
        return
    python = _python()
    path = shutil.which(python.path)
    if path is not None and not _is_this(path) and _lacks_package(path):
        warn_once(
            f"Spark starts {path} ({python.reason}), which has no pulsar_spark: a query"
            " ends in DATA_SOURCE_NOT_FOUND. Get the session from"
            " pulsar_spark.session(), or call pulsar_spark.use(spark). Or set"
            f" PYSPARK_PYTHON={sys.executable} in the environment before Spark starts,"
            " and leave PYSPARK_DRIVER_PYTHON out."
        )


def _python() -> PythonOfSources:
    """Return the Python that Spark starts for sources, now or later."""
    context = SparkContext._active_spark_context
    if context is not None and context._jvm is not None:
        try:
            # An object of Scala, as Java calls it.
            utils = getattr(context._jvm.org.apache.spark.api.python, "PythonUtils$")
            chosen = getattr(utils, "MODULE$").defaultPythonExec()
            return PythonOfSources(str(chosen), "as Spark was started")
        except Exception as error:
            logger.debug("Spark does not tell its Python: %s", error)
    return python_of_sources(os.environ)


def _is_our_command() -> bool:
    """Return whether this is ``pulsar-spark``, or ``python -m pulsar_spark``."""
    program = os.path.basename(sys.argv[0]) if sys.argv else ""
    return program == "pulsar-spark" or sys.orig_argv[1:3] == ["-m", "pulsar_spark"]


def _is_this(path: str) -> bool:
    """Return whether this process runs the interpreter, by its environment."""
    here, inside = (os.path.dirname(os.path.abspath(p)) for p in (sys.executable, path))
    try:
        return os.path.samefile(path, sys.executable) and os.path.samefile(here, inside)
    except OSError:
        return False


def _lacks_package(path: str) -> bool:
    try:
        done = subprocess.run(
            [path, "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PROBE_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        logger.debug("%s cannot be asked for its packages: %s", path, error)
        return False
    # A program that is no Python, such as jupyter, ends with a code of its own.
    return done.returncode != 0
