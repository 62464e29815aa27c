# SPDX-License-Identifier: Apache-2.0
"""Another format that cannot be imported takes no format down with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SIBLINGS = {"tubemq": "tubemq_spark", "ydb_topic": "ydb_spark"}

#: Spark asks its own Python for sources, which has the broken package first, too.
JOB = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = spark.getOrCreate()
reader = spark.read.format("pulsar").option("topic", "t").option("no.such.option", "1")
try:
    reader.load()
except Exception as error:
    print("ERROR", str(error).replace("\\n", " "))
"""


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program that finds the packages of a folder before all others."""
    paths = os.pathsep.join([str(folder), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        timeout=240,
    )


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A folder with packages of the siblings' names that cannot be imported."""
    for package in SIBLINGS.values():
        folder = tmp_path / package
        folder.mkdir()
        (folder / "__init__.py").write_text('raise ImportError("of another release")\n')
    return tmp_path


def test_shims_whose_packages_are_broken(broken: Path) -> None:
    """They can be imported, register nothing, and say so once; ours does not care."""
    code = (
        "import pyspark_tubemq, pyspark_ydb_topic, pyspark_pulsar\n"
        "for shim in (pyspark_tubemq, pyspark_ydb_topic):\n"
        "    assert not hasattr(shim, 'DefaultSource'), shim\n"
        "assert pyspark_pulsar.DefaultSource"
    )
    done = run(code, broken)
    assert done.returncode == 0, done.stderr
    for name, package in SIBLINGS.items():
        said = f'format("{name}") is not registered: {package} cannot be imported'
        assert done.stderr.count(said) == 1
    assert done.stderr.count("of another release") == len(SIBLINGS)


@pytest.mark.matrix
def test_spark_finds_pulsar_beside_them(broken: Path) -> None:
    """The error is that of our options, and not that there is no such source."""
    done = run(JOB, broken)
    (line,) = [one for one in done.stdout.splitlines() if one.startswith("ERROR")]
    assert "PULSAR_OPTION" in line, done.stderr[-3000:]
    assert "no.such.option" in line
