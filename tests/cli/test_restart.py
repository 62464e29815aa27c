# SPDX-License-Identifier: Apache-2.0
"""A query that is restarted after its position was set; by a real broker: tests/broker.

Spark accepts what was written, and no micro-batch is missing in its sink.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.scripted_broker import ScriptedBroker, single
from tests.support.streaming import Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.cli.conftest import Run

T = "persistent://public/default/t"
T0 = f"{T}-partition-0"


@pytest.fixture(autouse=True)
def _nothing_left() -> None:
    """Spark keeps its own connections to brokers that have ended."""


def write(broker: ScriptedBroker, numbers: range) -> None:
    """Adds numbers as rows."""
    broker.append(T0, *(single(b"%d" % number) for number in numbers))


def test_set_and_restarted(
    spark: SparkSession, scripted: ScriptedBroker, tmp_path: Path, run: Run
) -> None:
    """Back, forward, and out of a micro-batch that was planned only."""
    scripted.partitions[T] = 1
    scripted.add_topic(T0)
    options = {
        "service.url": scripted.url,
        "topic": T,
        "startingOffsets": "earliest",
        "partitionDiscoveryIntervalMs": "0",
    }
    query = Query(tmp_path / "query", options, available_now=True)
    command = ("checkpoint", query.checkpoint, "-o", f"service.url={scripted.url}")
    write(scripted, range(3))
    query.run(spark)
    assert run(*command, "--set-position", "earliest", "--yes")[0] == 0
    query.run(spark)
    (rows,) = query.rows().values()
    assert rows == [0, 1, 2, 0, 1, 2]

    write(scripted, range(3, 6))
    assert run(*command, "--set-position", "latest", "--yes")[0] == 0
    write(scripted, range(6, 8))
    query.run(spark)
    (rows,) = query.rows().values()
    assert rows == [0, 1, 2, 0, 1, 2, 6, 7]

    last = query.planned[-1]
    (query.checkpoint / "commits" / str(last)).unlink()
    (query.checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    write(scripted, range(8, 10))
    code, printed = run(*command, "--set-position", "latest", "--yes")
    assert code == 0, printed
    assert f"Micro-batch {last} was planned" in printed
    query.run(spark)
    write(scripted, range(10, 12))
    query.run(spark)
    (rows,) = query.rows().values()
    assert rows == [0, 1, 2, 0, 1, 2, 6, 7, 10, 11]
    assert query.written == query.committed == [*range(query.planned[-1] + 1)]
