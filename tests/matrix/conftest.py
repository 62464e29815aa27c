# SPDX-License-Identifier: Apache-2.0
"""The broker of a cell, and the account of what was found in it."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

import pulsar_spark
from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from pulsar_spark.testing.jars import DEFAULT_VERSION
from tests.matrix.cells import BROKER, RESULT, Found, Result, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Account:
    """Gathers what the scenarios come to."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._found: dict[str, Found] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take notice of one; of its fixtures only where they fail."""
        name = report.nodeid.partition("::")[2]
        if report.when != "call" and report.passed:
            return
        said = dict(report.user_properties)
        lacks = {
            key.removeprefix("lacks "): str(text)
            for key, text in said.items()
            if key.startswith("lacks ")
        }
        rows = int(str(said.get("rows", 0)))
        outcome = str(report.outcome)
        if outcome == "passed" and not (rows or lacks):
            outcome = "failed"  # it has compared nothing
        self._found[name] = Found(name, outcome, report.duration, rows, lacks)

    def pytest_sessionfinish(self) -> None:
        """Write it all down."""
        seconds = time.monotonic() - self._began
        result = Result(
            os.environ.get(BROKER, DEFAULT_VERSION),
            pyspark.__version__,
            platform.python_version(),
            pulsar_spark.kernel,
            time.strftime("%Y-%m-%d", time.gmtime()),
            seconds,
            tuple(self._found.values()),
        )
        if self._found:
            write(Path(os.environ[RESULT]), [result])


def pytest_configure(config: pytest.Config) -> None:
    """Account for the scenarios of a cell."""
    if RESULT in os.environ:
        config.pluginmanager.register(Account())


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    """The broker of this cell."""
    version = os.environ.get(BROKER, DEFAULT_VERSION)
    # As docs/scalable-topics.md says.
    settings = {"topicFencingTimeoutSeconds": "2"} if version.startswith("5.") else {}
    with EmbeddedBroker(version=version, settings=settings) as embedded:
        yield embedded


@pytest.fixture
def lacks(
    record_property: Callable[[str, object], None],
) -> Callable[[str, object], None]:
    """Note what these releases cannot do, and what says so."""

    def note(what: str, evidence: object) -> None:
        record_property(f"lacks {what}", " ".join(str(evidence).split()))

    return note
