# SPDX-License-Identifier: Apache-2.0
"""Spark Connect: a client that has no JVM, and a server that it starts."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pyspark
import pytest

from tests.support.official import read_back
from tests.support.standalone import install, run_alone
from tests.support.streaming import ROOT, publish_numbers

if TYPE_CHECKING:
    from pathlib import Path

    from pulsar_spark.testing.admin import Admin

PARTS = 2
ROWS = 200
JOB = ROOT / "tests" / "support" / "connect_job.py"


@pytest.mark.slow
@pytest.mark.matrix
def test_read_write_and_stream(
    service_url: str, admin: Admin, topic: str, tmp_path: Path
) -> None:
    """With nothing but the wheel installed, and nothing registered; rows are exact."""
    sink = f"{topic}-sink"
    for name in (topic, sink):
        admin.create_partitioned(name, PARTS)
    publish_numbers(service_url, topic, range(PARTS), range(ROWS), batch=10)
    python = install(tmp_path, f"pyspark[connect]=={pyspark.__version__}")
    arguments = (service_url, topic, sink, str(tmp_path))
    with run_alone(tmp_path / "client", python, JOB, *arguments) as client:
        client.await_end()
    numbers = [f"{part}:{number}" for part in range(PARTS) for number in range(ROWS)]
    read = json.loads((tmp_path / "read").read_text())
    assert read["session"] == "pyspark.sql.connect.session"
    assert Counter(read["values"]) == Counter(numbers)
    written = read_back(service_url, sink, partitions=PARTS)
    assert Counter((row.value or b"").decode() for row in written) == Counter(
        [*numbers, *(f"stream {number}" for number in numbers)]
    )
