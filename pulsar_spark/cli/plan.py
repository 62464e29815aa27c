# SPDX-License-Identifier: Apache-2.0
"""``plan``: the plan of a read, without the read."""

from __future__ import annotations

import argparse
from typing import Any

from pulsar_spark.cli.arguments import DONE, add_options, given_read
from pulsar_spark.cli.output import moment, say, show_json, size, table
from pulsar_spark.client.pool import shared_pool
from pulsar_spark.options import parse_read_options
from pulsar_spark.source.plan.discovery import at_one_cluster
from pulsar_spark.source.plan.survey import Measure, measure
from pulsar_spark.source.pulsar_source import PulsarSource
from pulsar_spark.source.stream.pulsar_cluster import first_tasks


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "plan",
        help="show what a read would read: positions, entries, bytes, rows, tasks",
        description="Plan a read as Spark would, and show the plan: from where to where"
        " in each topic\npartition, how many entries, about how many bytes and rows,"
        " how many tasks, and when\nthe first and the last entry were published. A few"
        " entries are looked at, by readers\nthat are not durable; nothing is left in"
        " the cluster.\n\n--stream plans the first micro-batch of a new stream with"
        " these options, without limits.",
        epilog="example:\n  pulsar-spark plan -o service.url=pulsar://localhost:6650"
        " \\\n      -o topic=public/default/orders -o"
        " startingTime=2026-01-01T00:00:00Z",
    )
    parser.add_argument(
        "--stream", action="store_true", help="options of readStream, not of read"
    )
    add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    given = parse_read_options(given_read(arguments), streaming=arguments.stream)
    options = at_one_cluster(given)
    pool = shared_pool(options.client)
    if arguments.stream:
        tasks = first_tasks(pool, options)
    else:
        tasks = PulsarSource(options).plan()
    ranges = [range_ for task in tasks for range_ in task.ranges]
    measures = measure(pool, options, ranges)
    rows = [
        (range_.topic_partition, str(range_.start), str(range_.end), measures[range_])
        for range_ in ranges
    ]
    if arguments.json:
        show_json(_as_json(len(tasks), rows))
    else:
        _show(len(tasks), rows)
    return DONE


_Rows = list[tuple[str, str, str, Measure]]


def _total(measures: list[Measure]) -> Measure:
    def added(values: list[int | None]) -> int | None:
        numbers = [value for value in values if value is not None]
        return sum(numbers) if len(numbers) == len(values) else None

    oldest = [m.oldest_ms for m in measures if m.oldest_ms is not None]
    newest = [m.newest_ms for m in measures if m.newest_ms is not None]
    return Measure(
        sum(m.entries for m in measures),
        added([m.rows for m in measures]),
        added([m.size_bytes for m in measures]),
        min(oldest, default=None),
        max(newest, default=None),
    )


def _show(tasks: int, rows: _Rows) -> None:
    if not rows:
        say("No topic partition has rows to read: no task.")
        return
    if len(rows) > 1:
        rows = [*rows, ("all", "", "", _total([row[3] for row in rows]))]
    head = ["TOPIC PARTITION", "FROM", "TO", "ENTRIES", "BYTES", "ROWS"]
    cells = [
        [
            name,
            start,
            end,
            measured.entries,
            None if measured.size_bytes is None else f"~{size(measured.size_bytes)}",
            None if measured.rows is None else f"~{measured.rows:,}",
            moment(measured.oldest_ms),
            moment(measured.newest_ms),
        ]
        for name, start, end, measured in rows
    ]
    say(table([*head, "OLDEST", "NEWEST"], cells))
    say(f"\nTasks: {tasks:,}")


def _as_json(tasks: int, rows: _Rows) -> dict[str, Any]:
    return {
        "tasks": tasks,
        **_measure_as_json(_total([row[3] for row in rows])),
        "ranges": [
            {
                "topicPartition": name,
                "from": start,
                "to": end,
                **_measure_as_json(measured),
            }
            for name, start, end, measured in rows
        ],
    }


def _measure_as_json(measured: Measure) -> dict[str, int | None]:
    return {
        "entries": measured.entries,
        "bytesAbout": measured.size_bytes,
        "rowsAbout": measured.rows,
        "oldestPublishTimeMs": measured.oldest_ms,
        "newestPublishTimeMs": measured.newest_ms,
    }
