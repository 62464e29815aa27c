# SPDX-License-Identifier: Apache-2.0
"""Code of other connectors' documents, run as a new user would paste it."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Any

from tests.support.waiting import await_true

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pulsar_spark.testing.admin import Admin

PATIENCE_S = 240

#: What Spark says of a stream whose beginning is fixed, and that has nothing to do.
WAITING = "Waiting for data to arrive"


def paste(code: str, **names: Any) -> dict[str, Any]:
    """Runs code with some names; all names that there are then."""
    exec(compile(code, "pasted", "exec"), names)  # noqa: S102
    return names


@contextlib.contextmanager
def topics_of_guides(admin: Admin, partitions: Mapping[str, int]) -> Iterator[None]:
    """Topics by the short names that guides have; gone afterwards.

    Args:
        admin: Of the broker.
        partitions: How many each topic has, 0 for one without.
    """
    full = {f"persistent://public/default/{name}": n for name, n in partitions.items()}
    made = {}
    try:
        for topic, number in full.items():
            if number:
                admin.create_partitioned(topic, number)
            else:
                admin.create_topic(topic)
            made[topic] = number
        yield
    finally:
        for topic, number in made.items():
            admin.delete(topic, partitioned=bool(number))


def streamed(
    spark: SparkSession, frame: DataFrame, publish: Callable[[], object], rows: int
) -> list[tuple[Any, ...]]:
    """The rows that a stream has of what is published once it runs, in order."""
    name = f"pasted_{uuid.uuid4().hex}"
    query = frame.writeStream.format("memory").queryName(name).start()
    try:
        await_true(
            lambda: not query.isActive or query.status["message"] == WAITING,
            "the start of a stream",
            PATIENCE_S,
        )
        publish()

        def is_read() -> bool:
            # Not by a query of Spark's: one after the other they would take a core.
            found = sum(one["numInputRows"] for one in query.recentProgress)
            return not query.isActive or found >= rows

        await_true(is_read, "rows of a stream", PATIENCE_S)
        query.processAllAvailable()  # raises what made it fail; none comes twice
        return sorted(map(tuple, spark.table(name).collect()))
    finally:
        query.stop()
        spark.catalog.dropTempView(name)


@contextlib.contextmanager
def checkpoints(spark: SparkSession, folder: Path) -> Iterator[None]:
    """A folder in which streams without ``checkpointLocation`` have checkpoints."""
    key = "spark.sql.streaming.checkpointLocation"
    spark.conf.set(key, str(folder))
    try:
        yield
    finally:
        spark.conf.unset(key)
