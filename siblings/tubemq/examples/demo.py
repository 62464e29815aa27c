# SPDX-License-Identifier: Apache-2.0
"""Start TubeMQ, write a topic with Spark, and read it back.

    make demo-tubemq

The servers are those of the tests (JDK 17, Maven). Their ports may be open meanwhile.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from siblings.tubemq.tests.support.servers import Topic, TubeMQ
from tests.support.session import start_spark

ROWS = 1000

#: Brokers write to disk every few seconds, and reads see what is there.
PATIENCE_S = 90.0


def main() -> None:
    """Run it."""
    print("Starting a master and a broker: some 40 seconds ...")
    with (
        TubeMQ([Topic("demo", stores=3)]) as servers,
        tempfile.TemporaryDirectory() as folder,
    ):
        spark = start_spark(Path(folder))
        try:
            run(spark, servers.masters)
        finally:
            spark.stop()


def run(spark: SparkSession, masters: str) -> None:
    """Write rows and read them."""
    rows = spark.range(ROWS).selectExpr(
        "cast(id as string) as value",
        "case when id % 2 = 0 then 'even' else 'odd' end as __msgType",
    )
    options = {"master.rpc": masters, "topic": "demo"}
    rows.write.format("tubemq").options(**options).mode("append").save()
    print(f"{ROWS} rows are written. Waiting until the broker has them on its disk ...")
    reader = spark.read.format("tubemq").options(**options, group="demo-group")
    deadline = time.monotonic() + PATIENCE_S
    while (count := (frame := reader.load()).count()) < ROWS:  # a frame is planned once
        if time.monotonic() > deadline:
            raise SystemExit(f"Only {count} of {ROWS} rows came in {PATIENCE_S:g} s.")
        time.sleep(1)
    frame.groupBy("__partition", "__msgType").count().orderBy("__partition").show()


if __name__ == "__main__":
    main()
