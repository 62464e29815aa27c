# SPDX-License-Identifier: Apache-2.0
"""The words of `pulsar_spark.spark.progress`; with Spark: tests/broker."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkContext

from pulsar_spark.spark import progress as progress_module
from pulsar_spark.spark.progress import StageProgress, _Lines
from tests.support.fixtures import Clock

if TYPE_CHECKING:
    from collections.abc import Callable


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        """It is."""
        return True


@pytest.mark.parametrize(
    ("stage", "text"),
    [
        (StageProgress(3, 40, 0, 0, 0.0), "0 of 40 tasks (0%), 0 rows"),
        (
            StageProgress(3, 40, 0, 5_000, 10.0),
            "0 of 40 tasks (0%), 5,000 rows, 500 rows/s",
        ),
        (
            StageProgress(3, 40, 10, 4_100_000, 50.0),
            "10 of 40 tasks (25%), 4,100,000 rows, 82,000 rows/s, 2:30 left",
        ),
        (StageProgress(3, 4, 1, None, 2.0), "1 of 4 tasks (25%), 6.0 s left"),
        (
            StageProgress(3, 1000, 1, 7, 10.0),
            "1 of 1000 tasks (0%), 7 rows, 1 rows/s, 2:46:30 left",
        ),
        (
            StageProgress(3, 4, 4, 400, 8.0, is_over=True),
            "4 tasks, 400 rows in 8.0 s, 50 rows/s",
        ),
    ],
)
def test_the_line(stage: StageProgress, text: str) -> None:
    """Only what is known: no time that is left before a task is done."""
    assert str(stage) == f"pulsar-spark: stage 3: {text}"


def test_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it would wrap is cut, as only the last row can be drawn anew."""
    monkeypatch.setenv("COLUMNS", "20")
    out = Terminal()
    lines = _Lines(out)
    stages = [StageProgress(n, 4, 0, 0, 0.0) for n in (3, 4)]
    lines.show(stages, [])
    lines.show([], [])
    assert out.getvalue() == "pulsar-spark: stage\r\x1b[K"


def test_spark_is_stopped_in_the_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing can be asked any more, which is no error of the job."""
    context = Stopping()
    monkeypatch.setattr(progress_module, "_context_of", lambda _: context)
    with progress_module.progress(file=Terminal()):
        context.is_stopped = True
    assert context.asked > 2


@pytest.mark.parametrize(("setting", "is_shown"), [("true", False), ("false", True)])
def test_a_bar_that_cannot_be_stopped(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    setting: str,
    *,
    is_shown: bool,
) -> None:
    """Of a Spark to come: two bars would draw over each other, this one gives way."""
    jvm = Stopping()
    jvm.is_stopped = True
    conf = SimpleNamespace(get=lambda _: setting)
    context = SimpleNamespace(_jsc=jvm, getConf=lambda: conf)
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)
    found = progress_module._context_of(None)
    assert (found is context) == is_shown
    assert ("spark.ui.showConsoleProgress=false" in caplog.text) == (not is_shown)


class Stopping:
    """A context of Spark that may be stopped, and its status tracker."""

    def __init__(self) -> None:
        self.is_stopped = False
        self.asked = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def method(*_: object) -> Any:
            self.asked += 1
            if self.is_stopped:
                raise AttributeError("'NoneType' object has no attribute 'sc'")
            answers: dict[str, Any] = {"statusTracker": self, "getJobIdsForGroup": []}
            return answers.get(name)

        return method


def test_several_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one, and how many more; what has ended, in between."""
    clock = Clock()
    monkeypatch.setattr(progress_module, "time", clock)
    out = io.StringIO()
    lines = _Lines(out)
    stages = [StageProgress(n, 4, 0, None, 0.0) for n in (3, 4, 5)]
    for shown in (stages[:2], stages, stages[:1]):
        clock.now += 9.9
        lines.show(stages[:1], [])
        clock.now += 0.1
        lines.show(shown, [])
    lines.show(stages[:1], [StageProgress(2, 4, 4, None, 1.0, is_over=True)])
    assert out.getvalue() == (
        "pulsar-spark: stage 3: 0 of 4 tasks (0%) and 1 more stage\n"
        "pulsar-spark: stage 3: 0 of 4 tasks (0%) and 2 more stages\n"
        "pulsar-spark: stage 3: 0 of 4 tasks (0%)\n"
        "pulsar-spark: stage 2: 4 tasks in 1.0 s\n"
    )
