# SPDX-License-Identifier: Apache-2.0
"""The siblings and pulsar-spark are released together."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import pulsar_spark
from tests.support.products import PRODUCTS, ROOT, SIBLINGS

NAMES = {"tubemq_spark": "tubemq-spark", "ydb_spark": "ydb-topic-spark"}

EACH = pytest.mark.parametrize("name", SIBLINGS)


@EACH
def test_the_release_is_that_of_pulsar_spark(name: str) -> None:
    """A sibling requires the release with which it was tested."""
    sibling = distribution(NAMES[name])
    assert sibling.version == pulsar_spark.__version__
    requirements = map(Requirement, sibling.requires or [])
    (base,) = [one for one in requirements if one.name == "pulsar-spark"]
    assert pulsar_spark.__version__ in base.specifier


def test_pulsar_spark_brings_pulsar_alone() -> None:
    """No package, shim or requirement of a sibling is part of pulsar-spark."""
    text = (ROOT / "pyproject.toml").read_text()
    assert 'include = ["pulsar_spark*", "spark_topics*"]' in text
    modules = ["pyspark_pulsar", "pyspark_pulsar_py", "pytest_pulsar_spark"]
    assert f"py-modules = {json.dumps(modules)}" in text
    names = {
        Requirement(one).name for one in distribution("pulsar-spark").requires or []
    }
    assert not names & {"ydb", "isal", "grpcio"}


def test_spark_finds_all_formats_from_any_folder(tmp_path: Path) -> None:
    """Spark lists the modules on the path, without those of an import hook."""
    code = "import pkgutil; print(*(module.name for module in pkgutil.iter_modules()))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        check=True,
    )
    shims = {shim for product in PRODUCTS.values() for shim in product.shims}
    assert shims <= set(done.stdout.split())


@EACH
def test_links_of_a_build_lead_somewhere(name: str) -> None:
    """Files that a sibling shares with pulsar-spark are links, and not copies."""
    links = [path for path in SIBLINGS[name].folder.rglob("*") if path.is_symlink()]
    assert Path("LICENSE") in {
        path.relative_to(SIBLINGS[name].folder) for path in links
    }
    assert [path for path in links if not path.exists()] == []
