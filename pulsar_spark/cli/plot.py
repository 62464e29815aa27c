# SPDX-License-Identifier: Apache-2.0
"""A picture of a query's lag over time. Needs the extra ``plot``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby, pairwise
from typing import Any

from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from pulsar_spark.cli.event_log import Moment
from pulsar_spark.errors import OptionError, escaped_text
from pulsar_spark.topics import TopicName

#: Topic partitions with a line of their own: those that were furthest behind.
_LINES = 5

_INK, _FAINT, _GRID = "#1f2328", "#59636e", "#e1e4e8"
_TOTAL, _ROWS, _TIME = "#2f6fde", "#2f6fde", "#d9822b"
_COLOURS = ("#d9822b", "#1a7f5a", "#8250df", "#bf3989", "#7a6a00")

_STYLE = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _FAINT,
    "text.color": _INK,
    "xtick.color": _FAINT,
    "ytick.color": _FAINT,
}


def draw(history: Sequence[Moment], path: str) -> None:
    """Draw the backlog and the rows read over time.

    Args:
        history: Of one query, in the order of time, not empty.
        path: The file; how it ends says in which form.

    Raises:
        OptionError: It cannot be written, or has no form that is known.
    """
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        figure = _figure(history)
        try:
            figure.savefig(path, dpi=160)
        except ValueError as error:
            raise OptionError(f"--plot {path}: {error}.") from None
        except OSError as error:
            raise OptionError(
                f"--plot {path} cannot be written: {error.strerror}."
            ) from None


def _figure(history: Sequence[Moment]) -> Figure:
    figure = Figure(figsize=(10, 6.2), layout="constrained", facecolor="white")
    backlog, rows, duration = figure.subplots(
        3, 1, sharex=True, height_ratios=[2.6, 1.2, 1]
    )
    first, last = history[0], history[-1]
    name = escaped_text(last.lag.query_name or f"query {last.lag.query_id}")
    # A dollar would begin a formula.
    figure.suptitle(
        f"Lag of {name}".replace("$", r"\$"), x=0.012, ha="left", fontweight="bold"
    )
    _draw_backlog(backlog, history)
    times, rates = _line((moment, moment.rows_per_s) for moment in history)
    rows.fill_between(times, rates, step="post", color=_ROWS, alpha=0.15, linewidth=0)
    rows.step(times, rates, where="post", color=_ROWS, linewidth=1.3)
    rows.set_title("Rows read per second", **_SMALL)
    times, took = _line((moment, moment.duration_s) for moment in history)
    duration.plot(times, took, ".", color=_TIME, markersize=4)
    duration.set_title("Seconds that a micro-batch took", **_SMALL)
    for axes in (backlog, rows, duration):
        _finish(axes, history)
    locator = AutoDateLocator(minticks=4, maxticks=9)
    duration.xaxis.set_major_locator(locator)
    duration.xaxis.set_major_formatter(ConciseDateFormatter(locator, show_offset=False))
    duration.set_xlabel(
        f"{first.at:%Y-%m-%d %H:%M:%S} to {last.at:%Y-%m-%d %H:%M:%S} UTC"
    )
    return figure


_RESTART: dict[str, Any] = {
    "color": _FAINT,
    "linewidth": 0.8,
    "linestyle": (0, (2, 2)),
}

_SMALL: dict[str, Any] = {
    "loc": "left",
    "fontsize": 9.5,
    "color": _FAINT,
}


def _draw_backlog(axes: Any, history: Sequence[Moment]) -> None:
    times, totals = _line(_totals(history))
    worst = _worst(history)
    partitions = {
        p.topic_partition for moment in history for p in moment.lag.partitions
    }
    label = f"all {len(partitions)} topic partitions"
    if len(partitions) == 1:
        label = _short_name(next(iter(partitions)))
    axes.fill_between(times, totals, color=_TOTAL, alpha=0.12, linewidth=0)
    axes.plot(times, totals, color=_TOTAL, linewidth=1.8, label=label)
    if len(partitions) > 1:
        for name, colour in zip(worst, _COLOURS, strict=False):
            points = _line(
                (moment, lag.backlog_entries)
                for moment in history
                for lag in moment.lag.partitions
                if lag.topic_partition == name
            )
            axes.plot(*points, color=colour, linewidth=1.0, label=_short_name(name))
    if _restarts(history):
        axes.plot([], [], label="restart", **_RESTART)
    axes.set_title(
        "Stored entries left unread when a micro-batch was planned", **_SMALL
    )
    axes.legend(
        frameon=False, fontsize=8.5, loc="upper left", bbox_to_anchor=(1.005, 1.03)
    )


_Points = Iterable[tuple[Moment, float | None]]


def _line(points: _Points) -> tuple[list[datetime], list[float]]:
    """Return times and values, with a gap where the query did not run."""
    times, values = [], []
    before: Moment | None = None
    for moment, value in points:
        if before is not None and before.lag.run_id != moment.lag.run_id:
            times.append(before.at)
            values.append(float("nan"))
        times.append(moment.at)
        values.append(float("nan") if value is None else value)
        before = moment
    return times, values


def _totals(history: Sequence[Moment]) -> Iterator[tuple[Moment, int]]:
    """Yield the sum of all sources at each time."""
    for _, moments in groupby(history, lambda one: (one.at, one.lag.run_id)):
        together = list(moments)
        yield together[0], sum(moment.lag.backlog_entries for moment in together)


def _restarts(history: Sequence[Moment]) -> list[datetime]:
    """Return when the query began again."""
    return [
        after.at
        for before, after in pairwise(history)
        if before.lag.run_id != after.lag.run_id
    ]


def _worst(history: Sequence[Moment]) -> list[str]:
    most: dict[str, int] = {}
    for moment in history:
        for lag in moment.lag.partitions:
            name = lag.topic_partition
            most[name] = max(most.get(name, 0), lag.backlog_entries)
    behind = [name for name, entries in most.items() if entries]
    return sorted(behind, key=lambda name: -most[name])[:_LINES]


def _finish(axes: Any, history: Sequence[Moment]) -> None:
    axes.margins(x=0.01, y=0.08)
    axes.set_ylim(0, max(axes.get_ylim()[1], 1))
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    for restart in _restarts(history):
        axes.axvline(restart, **_RESTART)


def _short_name(name: str) -> str:
    local_name = escaped_text(TopicName.parse(name).local_name).replace("$", r"\$")
    return local_name if len(local_name) <= 32 else f"...{local_name[-29:]}"
