# SPDX-License-Identifier: Apache-2.0
"""Does what is installed work? Run by the Python of a new environment, without tests.

python smoke.py compiled [spark]
"""

import sys


def main(kernel: str, *others: str) -> None:
    """Import the package; with ``spark``, let that find it by the name of its format.

    Args:
        kernel: The form that the kernel must have.
        others: ``spark``, or nothing.
    """
    import pulsar_spark
    from pulsar_spark.loops import sends

    for found in (pulsar_spark.kernel, sends.KERNEL):
        if found != kernel:
            raise SystemExit(f"the kernel is {found}, not {kernel}")
    folder = pulsar_spark.__path__[0]
    if not folder.startswith(sys.prefix):
        raise SystemExit(f"{folder} is not the one of this environment, {sys.prefix}")
    if "spark" in others:
        find_format()


def find_format() -> None:
    """Have Spark load the format; with columns that are given, no broker is asked."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]")
    for name, value in ("ui.enabled", "false"), ("driver.host", "127.0.0.1"):
        builder = builder.config(f"spark.{name}", value)
    spark = builder.getOrCreate()
    rows = (
        spark.read.format("pulsar")
        .option("service.url", "pulsar://127.0.0.1:6650")
        .option("topic", "any")
        .schema("value BINARY")
        .load()
    )
    if rows.columns != ["value"]:
        raise SystemExit(f"the columns are {rows.columns}")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
