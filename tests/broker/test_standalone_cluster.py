# SPDX-License-Identifier: Apache-2.0
"""Spark standalone: a master, two workers, and the wheel in their Python."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.official import read_back
from tests.support.standalone import StandaloneCluster, install
from tests.support.streaming import ROOT, publish_numbers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_spark.testing.admin import Admin
    from tests.support.standalone import Process

#: Five JVMs and a Python of its own. What the driver logs by default, and that rows are
#: exact where other processes read and write them, ``make test`` shows in local mode.
pytestmark = [pytest.mark.slow, pytest.mark.soak]

PARTS = 2
ROWS = 300
JOB = ROOT / "tests" / "support" / "standalone_job.py"

#: What is in the source: each number once in each topic partition.
EVERYTHING = Counter(
    f"{part}:{number}" for part in range(PARTS) for number in range(ROWS)
)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of the cluster."""
    return install(tmp_path_factory.mktemp("install"))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandaloneCluster]:
    """A cluster of two workers."""
    with StandaloneCluster(tmp_path / "cluster", workers=2) as one:
        yield one


@pytest.fixture
def source(service_url: str, admin: Admin, topic: str) -> str:
    """A topic of two partitions with numbers in them."""
    admin.create_partitioned(topic, PARTS)
    publish_numbers(service_url, topic, range(PARTS), range(ROWS), batch=10)
    return topic


def sink_of(source: str, admin: Admin) -> str:
    """A topic for what is made of another one's rows."""
    name = f"{source}-copy"
    admin.create_partitioned(name, PARTS)
    return name


def values(service_url: str, topic: str) -> Counter[str]:
    """What an official reader finds in a topic."""
    rows = read_back(service_url, topic, partitions=PARTS)
    return Counter((row.value or b"").decode() for row in rows)


def run(cluster: StandaloneCluster, python: Path, folder: Path, **job: Any) -> Process:
    """Starts the job; its results go to a folder."""
    return cluster.submit(python, JOB, json.dumps({"folder": str(folder), **job}))


def test_read_write_and_stream(
    cluster: StandaloneCluster,
    python: Path,
    service_url: str,
    admin: Admin,
    source: str,
    tmp_path: Path,
) -> None:
    """Both workers take part, with the installed package, and rows are exact."""
    sink = sink_of(source, admin)
    written = f"{source}-written"
    admin.create_partitioned(written, PARTS)
    with run(
        cluster,
        python,
        tmp_path,
        service_url=service_url,
        read=source,
        write=written,
        rows=ROWS,
        copy=[source, sink],
        rows_per_trigger=250,
    ) as driver:
        driver.await_end()
        shown = driver.log
    read = json.loads((tmp_path / "read").read_text())
    assert Counter(read["rows"]) == EVERYTHING
    assert len({cluster.worker_of(folder) for folder in read["folders"]}) == 2
    (package,) = read["packages"]
    assert package.startswith(str(python.parents[1]))
    assert values(service_url, written) == Counter(map(str, range(ROWS)))
    assert values(service_url, sink) == EVERYTHING
    # What a user sees who has set up nothing: on the driver each write has a line.
    assert f"pulsar_spark.spark: write: {ROWS} rows, " in shown
    assert "pulsar_spark.spark: micro-batch 0: " in shown
    # Reads have theirs where their tasks ran, each second as this job has asked for.
    assert " bytes read in " not in shown
    logs = [Path(folder, "stderr").read_text() for folder in read["folders"]]
    assert any(" bytes read in " in log for log in logs)


def test_a_worker_is_killed(
    cluster: StandaloneCluster,
    python: Path,
    service_url: str,
    admin: Admin,
    source: str,
    tmp_path: Path,
) -> None:
    """Its tasks run again on the other one, and each row is there exactly once."""
    sink = sink_of(source, admin)
    with run(
        cluster,
        python,
        tmp_path,
        service_url=service_url,
        copy=[source, sink],
        rows_per_trigger=250,
        gate=ROWS // 2,
    ) as driver:
        gate = tmp_path / "gate"
        driver.await_true(lambda: gate.exists() and gate.stat().st_size > 0, "the gate")
        cluster.worker_of(gate.read_text()).kill()
        driver.await_end()
    assert values(service_url, sink) == EVERYTHING
