# SPDX-License-Identifier: Apache-2.0
"""The classes that Spark's JVM loads in tests, in an archive.

Up to the end of its first queries a session takes 12 s of processor time, and half of
that with the archive. It is made by a job that does a little of everything and ends in
order, so that its JVM writes down what it has loaded::

    python -m tests.support.spark_classes -XX:ArchiveClassesAtExit=FILE
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.session import (
    JAVA,
    ROOT,
    SHORT_LIVED,
    class_archive,
    quicken_jobs,
    start_spark,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Bounds a failure; it takes less than a minute of processor time.
PATIENCE_S = 300.0


def record_classes() -> None:
    """Make the archive with which Spark starts faster, unless there is one."""

    def run(option: str) -> None:
        command = [sys.executable, "-m", "tests.support.spark_classes", option]
        subprocess.run(
            command, cwd=ROOT, check=True, timeout=PATIENCE_S, capture_output=True
        )

    try:
        class_archive().record(run)
    except (OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"Spark starts without an archive of classes: {error}\n")
    quicken_jobs()  # by the archive, too


def main(option: str) -> None:
    """Run the job, and wait for the end of its JVM."""
    with tempfile.TemporaryDirectory() as folder:
        spark = start_spark(folder, {JAVA: f"{SHORT_LIVED[JAVA]} {option}"})
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        use(spark, Path(folder))
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(PATIENCE_S)


def use(spark: SparkSession, folder: Path) -> None:
    """Read, write and stream, by a source in Python."""
    from tests.spark_topics.spark.number_source import Folder, NumberDataSource

    spark.dataSource.register(NumberDataSource)
    source, target = Folder(str(folder / "source")), folder / "target"
    source.append("orders/0", range(100))
    given = {"folder": str(source.path)}
    frame = spark.read.format("numbers").options(**given).load()
    frame.explain(mode="extended")
    counts = frame.filter("number > 2").groupBy("__topic").count().orderBy("count")
    assert counts.collect()[0]["count"] == 97
    frame.write.format("numbers").mode("append").save(folder=str(target))
    stream = spark.readStream.format("numbers").options(**given).load()
    for sink, path in (("numbers", "folder"), ("parquet", "path")):
        started = (
            stream.writeStream.format(sink)
            .option(path, str(folder / sink))
            .option("checkpointLocation", str(folder / f"{sink}-checkpoint"))
            .start()
        )
        started.processAllAvailable()
        started.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
