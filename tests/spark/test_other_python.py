# SPDX-License-Identifier: Apache-2.0
"""The warning of an import where Spark would start a Python without the package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.spark import other_python
from tests.support import forked_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IMPORT = ("-c", "import pulsar_spark")

#: What a user without PYSPARK_PYTHON meets first.
JOB = """
import pulsar_spark
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
options = {"service.url": "pulsar://h", "topic": "t"}
spark.read.format("pulsar").options(**options).load()
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has no packages."""
    home = tmp_path_factory.mktemp("bare")
    venv.create(home, with_pip=False, symlinks=True)
    return home / "bin" / "python"


def run(
    folder: Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run this Python as a user does, with these variables alone about Spark."""
    ours = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    clean = {name: value for name, value in os.environ.items() if name not in ours}
    return subprocess.run(
        [sys.executable, *arguments],
        env={**clean, **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"PYSPARK_PYTHON": "{bare}"}, "PYSPARK_PYTHON"),
        (
            {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": "{bare}"},
            "PYSPARK_DRIVER_PYTHON",
        ),
        ({"PATH": "{folder}"}, "PYSPARK_PYTHON is not set"),
    ],
)
def test_another_python(
    tmp_path: Path, bare: Path, given: dict[str, str], why: str
) -> None:
    """One line, with the cure."""
    given = {
        name: value.format(bare=bare, folder=bare.parent)
        for name, value in given.items()
    }
    done = run(tmp_path, *IMPORT, **given)
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert f"Spark starts {bare.parent}/python" in line
    assert f"({why}), which has no pulsar_spark" in line
    assert f"set PYSPARK_PYTHON={sys.executable} " in line
    assert re.match(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d WARN pulsar_spark.spark: ", line)


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ({"PYSPARK_PYTHON": sys.executable}, IMPORT),
        ({"PYSPARK_PYTHON": "{bare}", "SPARK_REMOTE": "sc://h"}, IMPORT),
        ({"PYSPARK_PYTHON": "{bare}"}, ("-m", "pulsar_spark", "--version")),
        ({"PYSPARK_PYTHON": "./environment/bin/python"}, IMPORT),
        (
            {"PYSPARK_PYTHON": "{bare}", "PYSPARK_DRIVER_PYTHON": sys.executable},
            IMPORT,
        ),
    ],
)
def test_nothing_to_warn_of(
    tmp_path: Path, bare: Path, given: dict[str, str], arguments: tuple[str, ...]
) -> None:
    """This Python, a server's, one of executors alone, or one of functions alone."""
    given = {name: value.format(bare=bare) for name, value in given.items()}
    done = run(tmp_path, *arguments, **given)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_where_spark_runs_already(
    spark: SparkSession, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says which one it starts, whatever the environment says by now."""
    monkeypatch.setenv("PYSPARK_PYTHON", str(bare))
    assert spark.sparkContext._jvm is not None
    assert other_python._python().path == str(forked_python.start())


def test_a_program_that_is_no_python(tmp_path: Path) -> None:
    """As jupyter is, which people let `PYSPARK_DRIVER_PYTHON` name for notebooks."""
    jupyter = tmp_path / "jupyter"
    jupyter.write_text("#!/bin/sh\necho usage: jupyter >&2\nexit 2\n")
    jupyter.chmod(0o755)
    variables = {"PYSPARK_DRIVER_PYTHON": str(jupyter)}
    done = run(tmp_path, *IMPORT, PYSPARK_PYTHON=sys.executable, **variables)
    assert f"Spark starts {jupyter} (PYSPARK_DRIVER_PYTHON)" in done.stderr
    assert "pulsar_spark.use(spark)" in done.stderr


@pytest.mark.matrix
def test_what_it_warns_of(tmp_path: Path, bare: Path) -> None:
    """Without the cure the job ends as the warning has said."""
    job = tmp_path / "job.py"
    job.write_text(JOB)
    done = run(tmp_path, str(job), PYSPARK_PYTHON=str(bare), SPARK_LOCAL_IP="127.0.0.1")
    assert done.returncode != 0
    first, rest = done.stderr.split("\n", 1)
    assert "which has no pulsar_spark" in first
    assert "DATA_SOURCE_NOT_FOUND" in rest
    assert "no pulsar_spark" not in rest
