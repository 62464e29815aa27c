# SPDX-License-Identifier: Apache-2.0
"""Where the packages cannot work, each says so at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

PACKAGES = ("pulsar_spark", "tubemq_spark", "ydb_spark")


def last_line(code: str) -> str:
    """What a Python that fails says last."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("package", PACKAGES)
def test_windows(package: str) -> None:
    """It is refused by name, not by what happens to be missing first."""
    line = last_line(f"import sys; sys.platform = 'win32'; import {package}")
    assert line.startswith("ImportError: pulsar-spark runs on Linux and macOS")


@pytest.mark.parametrize("package", PACKAGES)
def test_no_spark(package: str) -> None:
    """The sentence names the Python, and what to do there."""
    line = last_line(f"import sys; sys.modules['pyspark'] = None; import {package}")
    assert line.startswith(
        f"ImportError: PySpark is not installed in {sys.executable}."
    )
    assert "`pip install 'pyspark>=4.0'` with this Python." in line


@pytest.mark.parametrize("package", PACKAGES)
def test_an_old_spark(package: str) -> None:
    """Both releases are named, instead of a module that Spark lacks."""
    line = last_line(
        "import sys, types; sys.modules['pyspark'] = old = types.ModuleType('pyspark');"
        f"old.__version__ = '3.5.1'; import {package}"
    )
    assert line.startswith("ImportError: pulsar-spark needs Spark 4.0 or newer, and ")
    assert line.endswith(" has PySpark 3.5.1.")
