# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.spark.sessions`: it works whatever Python Spark would start.

Each job is a program in a folder of its own that is no clone, run as users run theirs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.errors import AnalysisException

import pulsar_spark
from pulsar_spark.errors import OptionError
from tests.spark.test_other_python import bare as bare
from tests.support.scripted_broker import ScriptedBroker, numbered

TOPIC = "persistent://public/default/t"

#: How a job gets its session, and ``spark`` afterwards.
SESSION = """
import pulsar_spark
from pyspark.sql import SparkSession

spark = pulsar_spark.session(
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
)
"""
USE = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = spark.getOrCreate()
import pulsar_spark
pulsar_spark.use(spark)
"""
#: A read and a stream by each name, planned and run in tasks.
JOB = """
options = {"service.url": sys.argv[1], "topic": "t"}
print("read", spark.read.format("pulsar-py").options(**options).load().count())
rows = spark.readStream.format("pulsar").options(**options)
rows = rows.option("startingOffsets", "earliest").load()
query = rows.writeStream.format("memory").queryName("seen")
query = query.option("checkpointLocation", "checkpoint").trigger(availableNow=True)
query.start().awaitTermination()
print("stream", spark.table("seen").count())
"""


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that is no Python, as people let it start notebooks."""
    path = tmp_path_factory.mktemp("jupyter") / "jupyter"
    path.write_text("#!/bin/sh\necho usage: jupyter >&2\nexit 2\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def scripted() -> Iterator[ScriptedBroker]:
    """A broker with a topic ``t`` of ten rows."""
    with ScriptedBroker() as broker:
        broker.add_topic(TOPIC, numbered(5, 2))
        yield broker


TRIES = 3
ALONE = {"PATH": "{bare}"}
JUPYTER = {"PYSPARK_DRIVER_PYTHON": "{jupyter}"}
THIS = {"PYSPARK_PYTHON": sys.executable}


class Registry:
    """Stands for a session and its context: what is registered, and where."""

    def __init__(self, python: str, refusal: Exception | None = None) -> None:
        self.registered: list[object] = []
        self._refusal = refusal
        self.dataSource = self
        self._sc = SimpleNamespace(master="spark://a:7077", pythonExec=python)

    def register(self, source: object) -> None:
        """Register a source."""
        if self._refusal is not None:
            raise self._refusal
        self.registered.append(source)


@pytest.mark.parametrize("python", [sys.executable, "python3", ""])
def test_a_python_that_plans_can_run(python: str) -> None:
    """Both formats are registered."""
    registry = Registry(python)
    assert pulsar_spark.use(registry) is registry  # type: ignore[arg-type]
    assert len(registry.registered) == 2


def test_formats_that_spark_4_0_has_found() -> None:
    """They stay; another refusal is an error."""
    text = "[DATA_SOURCE_ALREADY_EXISTS] Data source 'pulsar' already exists."
    registry = Registry("python3", AnalysisException(text))
    assert pulsar_spark.use(registry) is registry  # type: ignore[arg-type]
    registry = Registry("python3", AnalysisException("[OTHER] No."))
    with pytest.raises(AnalysisException, match="OTHER"):
        pulsar_spark.use(registry)  # type: ignore[arg-type]


@pytest.mark.parametrize("python", ["./environment/bin/python", "/nowhere/python"])
def test_a_python_of_the_executors_alone(python: str) -> None:
    """The error says what to do; Spark's own would come with the first plan."""
    registry = Registry(python)
    with pytest.raises(OptionError, match="is not on the driver") as caught:
        pulsar_spark.use(registry)  # type: ignore[arg-type]
    assert python in caught.value.message
    assert registry.registered == []


@pytest.mark.parametrize(
    ("begin", "given"),
    [
        pytest.param(SESSION, ALONE, id="session", marks=pytest.mark.matrix),
        pytest.param(SESSION, ALONE | JUPYTER, id="session in a notebook"),
        pytest.param(USE, ALONE, id="use", marks=pytest.mark.matrix),
        pytest.param(
            USE, THIS | JUPYTER, id="use in a notebook", marks=pytest.mark.matrix
        ),
        pytest.param(
            USE, THIS | {"PYSPARK_DRIVER_PYTHON": "{python}"}, id="another Python"
        ),
    ],
)
def test_a_job(
    scripted: ScriptedBroker,
    tmp_path: Path,
    bare: Path,
    jupyter: Path,
    given: dict[str, str],
    begin: str,
) -> None:
    """Reads and streams give their rows, under each way to name Pythons."""
    path = f"{bare.parent}{os.pathsep}{os.environ['PATH']}"
    variables = {
        name: value.format(bare=path, jupyter=jupyter, python=bare)
        for name, value in given.items()
    }
    ours = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    clean = {name: value for name, value in os.environ.items() if name not in ours}
    (tmp_path / "job.py").write_text(f"import sys\n{begin}{JOB}")
    # Spark gives a worker ten seconds to start, which may be too few here.
    for number in range(TRIES):
        folder = tmp_path / str(number)
        folder.mkdir()
        done = subprocess.run(
            [sys.executable, tmp_path / "job.py", scripted.url],
            env={**clean, "SPARK_LOCAL_IP": "127.0.0.1", **variables},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if "Python worker failed to connect back" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["read 10", "stream 10"]
