# SPDX-License-Identifier: Apache-2.0
"""A line that shows how far a batch read or write is. In the user's own process.

::

    with pulsar_spark.progress(spark):
        rows.write.parquet("/data/orders")

    pulsar-spark: stage 3: 12 of 40 tasks (30%), 4,100,000 rows, 82,000 rows/s, ...

Nothing of a source in Python runs in that process, unless someone calls it there:
Spark plans in one process and reads in others, and tells none of them how far the job
is. What knows is Spark itself. So this asks Spark's status tracker for the stages of
the jobs that the block starts, and its status store for their rows, which executors
report every ten seconds (``spark.executor.heartbeatInterval``) and at the end of a
task.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from pyspark import InheritableThread, SparkContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("pulsar_spark.spark")

#: In the environment: ``always``, also where no terminal is, or ``never``.
VARIABLE = "PULSAR_SPARK_PROGRESS"

#: Time between two looks, in seconds: shorter stages may have no line.
_LOOK_S = 0.5

#: Time between two lines about what runs, where no line can be drawn anew, in seconds.
_LINES_S = 10.0

_GROUP = "spark.jobGroup.id"
_OWN_BAR = "spark.ui.showConsoleProgress"

#: Longest wait for Spark's status to say that the block's jobs are over, and time
#: between two looks at it, in seconds.
_STATUS_S = 2.0
_STATUS_STEP_S = 0.02

#: Longest wait for the thread to end, in seconds.
_END_S = 10.0


@dataclass(frozen=True)
class StageProgress:
    """How far a stage of a job is.

    Attributes:
        stage_id: Spark's number of it.
        tasks: How many it has.
        done: How many of them are over.
        rows: What they have read, as far as executors have told; None where Spark does
            not say.
        elapsed_s: Time since it was seen first, in seconds.
        is_over: Whether it has ended.
    """

    stage_id: int
    tasks: int
    done: int
    rows: int | None
    elapsed_s: float
    is_over: bool = False

    def __str__(self) -> str:
        name = f"pulsar-spark: stage {self.stage_id}: "
        rate = ""
        if self.rows and self.elapsed_s > 0:
            rate = f", {self.rows / self.elapsed_s:,.0f} rows/s"
        rows = "" if self.rows is None else f", {self.rows:,} rows"
        if self.is_over:
            return f"{name}{self.done} tasks{rows} in {_clock(self.elapsed_s)}{rate}"
        share = self.done / self.tasks if self.tasks else 0.0
        text = f"{name}{self.done} of {self.tasks} tasks ({share:.0%}){rows}{rate}"
        if not self.done:
            return text
        return f"{text}, {_clock(self.elapsed_s * (1 - share) / share)} left"


def _clock(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextlib.contextmanager
def progress(
    spark: SparkSession | None = None,
    *,
    show: bool | None = None,
    file: TextIO | None = None,
) -> Iterator[None]:
    """Show how far the jobs are that this thread starts in a ``with`` block.

    One line on a terminal, drawn again twice a second, and one that stays for each
    stage
    that lasted: rows, rows a second, tasks that are done, and the time left if the
    others take as long. Where there is no terminal nothing is shown unless asked for;
    then there is a line each ten seconds. A job is the same with or without this, but
    Spark's own bar of tasks, which would be on the same line, is stopped for good.

    Args:
        spark: The session; without it the one that is active.
        show: Whether to show it: also without a terminal, or not at all. None for what
            ``PULSAR_SPARK_PROGRESS`` in the environment says, ``always`` or ``never``,
            and without that for whether ``file`` is a terminal.
        file: Where to; without it the standard error.
    """
    out = sys.stderr if file is None else file
    context = None
    if _is_wanted(show, out):
        context = _context_of(spark)
    if context is None:
        yield
        return
    with _job_group(context) as group, _watched(_Watch(context, group), out):
        yield


def _is_wanted(show: bool | None, out: TextIO) -> bool:
    if show is None:
        setting = os.environ.get(VARIABLE, "").strip().lower()
        show = {"always": True, "never": False}.get(setting)
    return out.isatty() if show is None else show


def _context_of(spark: SparkSession | None) -> SparkContext | None:
    """Return whom to ask, None with a warning where nothing can be shown."""
    context: SparkContext | None = SparkContext._active_spark_context
    if spark is not None and not hasattr(spark, "_jsparkSession"):
        context = None
    if context is None:
        logger.warning(
            "No progress is shown: this process has no Spark of its own. Spark Connect"
            " draws a line by itself on a terminal."
        )
        return None
    if not _stop_own_bar(context):
        logger.warning(
            "No progress is shown: Spark draws its own bar on the same line, and does"
            " not let it be stopped. Start Spark with %s=false.",
            _OWN_BAR,
        )
        return None
    return context


def _stop_own_bar(context: SparkContext) -> bool:
    """Stop the bar of tasks that Spark draws by default; return whether there is none.

    It knows no pause: the session has none from now on. Anyone who wants another line
        has
    asked for it.
    """
    try:
        bar: Any = context._jsc.sc().progressBar()
        if bar.isDefined():
            bar.get().stop()
    except Exception as error:
        # Not of Spark's public interface.
        logger.debug("Spark's own bar cannot be stopped: %s", error)
        return (context.getConf().get(_OWN_BAR) or "true").lower() == "false"
    return True


@contextlib.contextmanager
def _job_group(context: SparkContext) -> Iterator[str]:
    """Set the job group of this thread's jobs: the user's, or a new group."""
    group = context.getLocalProperty(_GROUP)
    if group is not None:
        yield group
        return
    group = f"pulsar-spark-progress-{uuid.uuid4()}"
    context.setLocalProperty(_GROUP, group)
    try:
        yield group
    finally:
        try:
            # The type of the parameter leaves out what clears a property.
            context.setLocalProperty(_GROUP, None)  # type: ignore[arg-type]
        except Exception as error:
            # Who stops Spark in the block has nothing left to clear.
            logger.debug("The group of jobs is not cleared: %s", error)


class _Watch:
    """Looks at the stages of a group's jobs.

    Args:
        context: Has the jobs.
        group: Their group.
    """

    def __init__(self, context: SparkContext, group: str) -> None:
        self._context = context
        self._tracker = context.statusTracker()
        self._group = group
        self._before = set(self._tracker.getJobIdsForGroup(group))
        self._began_s: dict[int, float] = {}  # of stages that were seen to run
        self._ended: set[int] = set()

    def look(self) -> tuple[list[StageProgress], list[StageProgress]]:
        """Return the running stages, and the stages ended since the last look."""
        now_s = time.monotonic()
        running: list[StageProgress] = []
        over: list[StageProgress] = []
        active = set(self._tracker.getActiveStageIds())
        for stage_id in self._stages():
            if stage_id in active:
                self._began_s.setdefault(stage_id, now_s)
                running += self._stage(stage_id, now_s)
            elif stage_id in self._began_s:
                over += self._stage(stage_id, now_s, is_over=True)
                self._ended.add(stage_id)
        return running, over

    def look_at_the_end(self) -> list[StageProgress]:
        """Return the stages ended since the last look, once none is running.

        A job is over a little earlier than Spark's status says so.
        """
        deadline = time.monotonic() + _STATUS_S
        running, ended = self.look()
        while running and time.monotonic() < deadline:
            time.sleep(_STATUS_STEP_S)
            running, over = self.look()
            ended += over
        return ended

    def _stages(self) -> list[int]:
        """Return the stages of jobs since the start that are not reported as ended."""
        numbers: set[int] = set()
        for job_id in self._tracker.getJobIdsForGroup(self._group):
            if job_id not in self._before:
                job = self._tracker.getJobInfo(job_id)
                numbers.update(() if job is None else job.stageIds)
        return sorted(numbers - self._ended)

    def _stage(
        self, stage_id: int, now_s: float, *, is_over: bool = False
    ) -> list[StageProgress]:
        info = self._tracker.getStageInfo(stage_id)
        if info is None:  # Spark keeps the last ones alone
            return []
        elapsed_s = now_s - self._began_s[stage_id]
        rows = self._rows(stage_id)
        tasks, done = info.numTasks, info.numCompletedTasks
        return [StageProgress(stage_id, tasks, done, rows, elapsed_s, is_over)]

    def _rows(self, stage_id: int) -> int | None:
        """Return the rows that the tasks of a stage have read, from whatever source."""
        # Not of Spark's public interface: without it there are tasks, and no rows.
        try:
            store = self._context._jsc.sc().statusStore()
            data: Any = store.lastStageAttempt(stage_id)
            return int(data.inputRecords() or data.shuffleReadRecords())
        except Exception as error:
            logger.debug("Spark does not tell the rows of a stage: %s", error)
            return None


@contextlib.contextmanager
def _watched(watch: _Watch, out: TextIO) -> Iterator[None]:
    """Show what a watch sees, in a thread that ends with the block."""
    is_over = threading.Event()
    lines = _Lines(out)

    def run() -> None:
        try:
            while not is_over.wait(_LOOK_S):
                lines.show(*watch.look())
            lines.show([], watch.look_at_the_end())
        except Exception as error:
            # Spark was stopped, or the file closed: no reason to disturb the job.
            logger.debug("No more progress is shown: %s", error)

    thread = InheritableThread(target=run, name="pulsar-spark progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(_END_S)


class _Lines:
    """A line redrawn on a terminal; elsewhere, line after line."""

    def __init__(self, out: TextIO) -> None:
        self.is_terminal = out.isatty()
        self._out = out
        self._is_drawn = False
        self._next_s = time.monotonic() + _LINES_S

    def show(self, running: list[StageProgress], over: list[StageProgress]) -> None:
        """Print ended stages, and show the first running stage."""
        text = "".join(f"{self._line(str(stage))}\n" for stage in over)
        if not self.is_terminal and time.monotonic() < self._next_s:
            running = []
        if running:
            self._next_s = time.monotonic() + _LINES_S
            more = len(running) - 1
            also = f" and {more} more stage{'s' * (more > 1)}" if more else ""
            line = self._line(f"{running[0]}{also}")
            text += line if self.is_terminal else f"{line}\n"
        if self.is_terminal and self._is_drawn:
            text = f"\r\x1b[K{text}"
        self._is_drawn = bool(running)
        if text:
            self._out.write(text)
            self._out.flush()

    def _line(self, text: str) -> str:
        """Cut text to the terminal's width: wrapped rows cannot be redrawn."""
        if not self.is_terminal:
            return text
        return text[: shutil.get_terminal_size().columns - 1]
