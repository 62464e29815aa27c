# SPDX-License-Identifier: Apache-2.0
"""One topic partition -> RecordBatches in this process, beside the null drain of it."""

from __future__ import annotations

from functools import partial

from pulsar_spark.arrow.schema import arrow_schema
from pulsar_spark.source.plan.read_task import ReadTask
from pulsar_spark.source.read.task import read_task
from tests.bench.bench_decode import COLUMNS
from tests.bench.cluster import Cluster
from tests.bench.drain import drain
from tests.bench.report import Case, Measure, in_turns, wall


def run(cluster: Cluster, rows: int, repeats: int) -> list[Case]:
    """Six columns and value only, messages of 100 bytes."""
    topic = cluster.topic(rows, 100)
    options = cluster.options(topic)
    range_ = cluster.plan(topic)[0]
    rows = topic.rows // topic.partitions

    def read(columns: tuple[str, ...]) -> None:
        batches = read_task(ReadTask((range_,)), options, arrow_schema(columns))
        read_rows = sum(len(batch) for batch in batches)
        assert read_rows == rows, f"{read_rows} rows of {rows}"

    measures: dict[str, Measure] = {
        "drain": partial(drain, cluster.service_url, [range_]),
        **{name: wall(partial(read, columns)) for name, columns in COLUMNS.items()},
    }
    seconds = in_turns(measures, repeats)
    return [
        Case("partition", "null drain", rows, rows * 100, seconds["drain"]),
        *(
            Case(
                "partition",
                f"100 B, {name}",
                rows,
                rows * 100,
                seconds[name],
                "null drain",
                seconds["drain"],
            )
            for name in COLUMNS
        ),
    ]
