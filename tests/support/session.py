# SPDX-License-Identifier: Apache-2.0
"""Spark on this machine, started in one way by tests, their jobs and benchmarks."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pulsar_spark.testing.class_archive import ClassArchive
from pulsar_spark.testing.processes import BrokerStartError, java
from tests.support import forked_python
from tests.support.standing import SITE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
LOOPBACK = "127.0.0.1"

SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.memory": "1g",
}

#: The setting that its JVM's options are in.
JAVA = "spark.driver.extraJavaOptions"

#: It lives for minutes, on cores that its tests need, too: compiling all of it, and
#: collecting in parallel, would cost more than it saves.
SHORT_LIVED: Mapping[str, str] = {
    JAVA: "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # A query that waits for rows asks its source a hundred times a second otherwise.
    "spark.sql.streaming.pollingDelay": "200ms",
}


def environment(paths: Sequence[Path] = (SITE, ROOT)) -> dict[str, str]:
    """Return this process's variables, and those by which Spark starts this Python.

    Args:
        paths: What it imports from, before all others.
    """
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    every = dict.fromkeys([*map(str, paths), *filter(None, before)])
    return {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": LOOPBACK,
        "PYTHONPATH": os.pathsep.join(every),
    }


def class_archive() -> ClassArchive:
    """Return that of this Spark's JVM; ``tests.support.spark_classes`` makes it."""
    import pyspark

    folder = ROOT / "build" / "classes"
    folder.mkdir(parents=True, exist_ok=True)
    # One that was made of other jars would be of no use, and there is no second one.
    jars = sorted(Path(pyspark.__file__).with_name("jars").glob("*.jar"))
    made_of = os.pathsep.join(f"{jar} {jar.stat().st_mtime_ns}" for jar in jars)
    return ClassArchive(folder, java(), made_of)


def quicken_jobs() -> None:
    """Let programs that are run as users run theirs start Spark's JVM faster.

    They take their settings from nobody, but ``spark-submit`` has this variable. None
    shows a page of its own, or shuffles much.
    """
    with contextlib.suppress(BrokerStartError):  # without Java: no job starts anyway
        settings = ("spark.ui.enabled=false", "spark.sql.shuffle.partitions=2")
        options = (*SHORT_LIVED[JAVA].split(), *class_archive().options)
        options += tuple(f"-D{setting}" for setting in settings)
        os.environ["SPARK_SUBMIT_OPTS"] = shlex.join(options)


def start_spark(
    folder: Path | str,
    settings: Mapping[str, str] | None = None,
    *,
    master: str = "local[2]",
    log_level: str = "ERROR",
    is_short_lived: bool = True,
) -> SparkSession:
    """Start Spark in this process. It finds the source by itself, as at a user's.

    Args:
        folder: For its temporary files, and for tables.
        settings: Of Spark, added to those that all have.
        master: How many tasks run at a time, and how often one is tried.
        log_level: What is shown of Spark's log; "" for what its configuration says.
        is_short_lived: Whether it is to start fast, or to be as fast as it can.
    """
    from pyspark.sql import SparkSession

    os.environ.update(environment() if is_short_lived else environment([ROOT]))
    if is_short_lived:
        python = str(forked_python.start())
        os.environ.update(PYSPARK_PYTHON=python, PYSPARK_DRIVER_PYTHON=python)
    builder = SparkSession.builder.master(master).appName("pulsar-spark tests")
    wanted = {
        **SETTINGS,
        **(SHORT_LIVED if is_short_lived else {}),
        "spark.local.dir": f"{folder}/local",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        **(settings or {}),
    }
    if is_short_lived and "ArchiveClassesAtExit" not in wanted[JAVA]:
        wanted[JAVA] += f" {shlex.join(class_archive().options)}"
    for name, value in wanted.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    if log_level:
        session.sparkContext.setLogLevel(log_level)
    return session
