# SPDX-License-Identifier: Apache-2.0
"""Tests of the kit for tests of jobs, from a folder that knows the package alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.testing import BrokerStartError, PulsarBroker, running_broker
from tests.support.products import ROOT

if TYPE_CHECKING:
    from pulsar_spark.testing.admin import Admin
    from pulsar_spark.testing.embedded_broker import EmbeddedBroker, ExternalBroker

#: A test of a user, which asks for the fixture.
_TEST = """
import pulsar_spark

def test_topic(pulsar_broker):
    topic = pulsar_broker.new_topic("a name", partitions=2)
    assert topic.startswith(f"persistent://{pulsar_broker.namespace}/a-name-")
    assert pulsar_broker.admin.partitions(topic) == 2
    ends = pulsar_spark.end_offsets(pulsar_broker.options(topic))
    assert "partition" not in ends.ending
    print("release", pulsar_broker.admin.version())
"""


def run_pytest(folder: Path, *arguments: str, **variables: str) -> str:
    """What pytest prints in a folder that is no clone."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PULSAR_", "PYTEST_"))
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-s", *arguments],
        cwd=folder,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.fixture
def places(broker: EmbeddedBroker | ExternalBroker) -> dict[str, str]:
    """The variables that name the broker of this run."""
    return {
        "PULSAR_SERVICE_URL": broker.service_url,
        "PULSAR_ADMIN_URL": broker.admin_url,
    }


def test_a_broker_that_runs(
    tmp_path: Path, places: dict[str, str], admin: Admin
) -> None:
    """Its namespace is removed at the end."""
    before = admin.namespaces("public")
    (tmp_path / "test_job.py").write_text(_TEST)
    assert "1 passed" in run_pytest(tmp_path, **places)
    assert admin.namespaces("public") == before


@pytest.mark.broker
@pytest.mark.slow
def test_an_embedded_broker(tmp_path: Path) -> None:
    """Of the release that the settings of pytest name."""
    (tmp_path / "test_job.py").write_text(_TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\npulsar_version = 4.2.4\n")
    printed = run_pytest(tmp_path)
    assert "release 4.2.4" in printed
    assert "1 passed" in printed


def test_the_example(places: dict[str, str]) -> None:
    """The test that docs/testing.md shows passes."""
    printed = run_pytest(ROOT / "examples", "test_orders_job.py", **places)
    assert "1 passed" in printed, printed


def test_the_page_shows_the_example() -> None:
    """Line by line, but for types and docstrings."""
    page = (ROOT / "docs" / "testing.md").read_text()
    job = (ROOT / "examples" / "orders_job.py").read_text()
    test = (ROOT / "examples" / "test_orders_job.py").read_text()
    for text, begin, end in (
        (job, "    orders = spark", "\n\n\n"),
        (test, "    topic = pulsar_broker", r"\Z"),
    ):
        body = text[text.index(begin) :].partition(end)[0].rstrip()
        assert body in page


def test_no_job_pays_for_the_fixture(tmp_path: Path) -> None:
    """A run that does not ask for the fixture imports nothing of the package."""
    (tmp_path / "test_job.py").write_text(
        "import sys\ndef test(): assert 'pulsar_spark' not in sys.modules\n"
    )
    assert "1 passed" in run_pytest(tmp_path)


def test_half_of_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable that is missing."""
    monkeypatch.setenv("PULSAR_SERVICE_URL", "pulsar://localhost:6650")
    monkeypatch.delenv("PULSAR_ADMIN_URL", raising=False)
    with (
        pytest.raises(BrokerStartError, match="PULSAR_ADMIN_URL beside it"),
        running_broker(),
    ):
        pass


def test_options() -> None:
    """Of a topic, with others."""
    broker = PulsarBroker("pulsar://h:1", "http://h:2", "public/n")
    assert broker.options("t", pollTimeoutMs="1000") == {
        "service.url": "pulsar://h:1",
        "topic": "t",
        "pollTimeoutMs": "1000",
    }
