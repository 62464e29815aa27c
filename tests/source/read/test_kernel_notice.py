# SPDX-License-Identifier: Apache-2.0
"""Who reads without the compiled kernel hears of it, and of the cure."""

from __future__ import annotations

import pytest

from pulsar_spark.source.read import kernel_notice
from pulsar_spark.source.read.kernel_notice import warn_of_slow_kernel
from spark_topics import statistics


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was said yet, and nothing asked for."""
    monkeypatch.setattr(statistics, "_warnings", set())
    monkeypatch.delenv("PULSAR_SPARK_KERNEL", raising=False)


def test_once_in_a_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first read says what it costs and what helps; later ones say nothing."""
    monkeypatch.setattr(kernel_notice, "KERNEL", "python")
    warn_of_slow_kernel()
    warn_of_slow_kernel()
    (warning,) = caplog.records
    assert (warning.name, warning.levelname) == ("pulsar_spark.spark", "WARNING")
    assert "2 to 3 us a message instead of 0.03 us" in warning.getMessage()
    assert "--no-cache-dir --force-reinstall --no-deps . " in warning.getMessage()


@pytest.mark.parametrize(
    ("kernel", "asked"),
    [("compiled", ""), ("compiled", "python"), ("python", "python")],
)
def test_nothing_to_say(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kernel: str,
    asked: str,
) -> None:
    """A compiled kernel is silent, and so is one that was asked for."""
    monkeypatch.setattr(kernel_notice, "KERNEL", kernel)
    monkeypatch.setenv("PULSAR_SPARK_KERNEL", asked)
    warn_of_slow_kernel()
    assert not caplog.records
