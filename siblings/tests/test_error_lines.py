# SPDX-License-Identifier: Apache-2.0
"""All formats: few lines of an error, and no frame of ours."""

from __future__ import annotations

import socket
import traceback
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from spark_topics.errors import condition_of
from tests.support.spark_errors import expect

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

MOST_LINES = 25


def nobody() -> str:
    """Host and port where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def unreachable(name: str) -> dict[str, str]:
    """Options that are right, but that no server is there."""
    return {
        "pulsar": {
            "service.url": f"pulsar://{nobody()}",
            "topic": "t",
            "pulsar.client.lookupTimeoutMs": "700",
        },
        "tubemq": {
            "master.rpc": nobody(),
            "topic": "t",
            "operation.timeout": "1000",
        },
        "ydb_topic": {
            "url": f"grpc://{nobody()}",
            "database": "/local",
            "topic": "t",
            "operationTimeoutMs": "1000",
        },
    }[name]


@pytest.mark.parametrize("is_wrong", [True, False], ids=["option", "no server"])
@pytest.mark.parametrize("name", ["pulsar", "tubemq", "ydb_topic"])
def test_an_error_is_readable(spark: SparkSession, name: str, is_wrong: bool) -> None:
    """A wrong option, and a server that is not there."""
    options = {"nonsense": "1"} if is_wrong else unreachable(name)
    with pytest.raises(PySparkException) as caught:
        spark.read.format(name).options(**options).load().collect()
    text = "".join(traceback.format_exception(caught.value))
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) <= MOST_LINES, text
    condition = condition_of(caught.value)
    assert condition is not None, text
    assert condition.endswith("_OPTION") == is_wrong, text


@pytest.mark.parametrize(
    ("name", "column", "options", "condition"),
    [
        ("pulsar", "value BINARY", {"nonsense": "1"}, "[PULSAR_OPTION]"),
        ("pulsar", "__key INT", unreachable("pulsar"), "[PULSAR_SCHEMA]"),
        ("tubemq", "value BINARY", {"nonsense": "1"}, "[TUBEMQ_OPTION]"),
        ("ydb_topic", "data BINARY", {"nonsense": "1"}, "[YDB_OPTION]"),
    ],
)
def test_an_error_of_a_stream_is_readable(
    spark: SparkSession,
    tmp_path: Path,
    name: str,
    column: str,
    options: dict[str, str],
    condition: str,
) -> None:
    """A stream whose reader cannot be made."""
    rows = spark.readStream.format(name).schema(column).options(**options).load()
    stream = rows.writeStream.format("noop")
    query = stream.option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(PySparkException) as caught:
        query.processAllAvailable()
    expect(caught.value, condition)
