# SPDX-License-Identifier: Apache-2.0
"""``lag``: a stream's lag now, and over time."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pulsar_spark.cli.arguments import (
    DONE,
    Cluster,
    add_options,
    cluster_of,
    given_options,
    stream_with_ends,
)
from pulsar_spark.cli.backlogs import (
    Backlog,
    backlogs,
    held_back,
    with_new_segments,
    within_ends,
)
from pulsar_spark.cli.checkpoint import (
    Standing,
    add_source,
    columns_of,
    place_of,
    the_standings,
)
from pulsar_spark.cli.event_log import read_history
from pulsar_spark.cli.output import age, complain, say, show_json, size, table
from pulsar_spark.cli.spark_files import Checkpoint
from pulsar_spark.errors import OptionError
from pulsar_spark.message_id import MessageId
from pulsar_spark.options import ReadOptions
from pulsar_spark.source.stream.last_read import LastRead


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "lag",
        help="show how far a stream is behind, by topic partition and over time",
        description="Show what a stream has not read yet, by topic partition: stored"
        " entries, with\n--admin-url also bytes, about, and the age of the oldest row."
        " It is counted from what\nthe checkpoint has committed. The query may run, and"
        " does not notice.\n\n--plot draws the entries left and the rows per second"
        " over time, out of the event log\nthat Spark writes with"
        " spark.eventLog.enabled=true. It needs matplotlib:\n  pip install"
        " matplotlib",
        epilog="examples:\n  pulsar-spark lag /data/checkpoints/orders -o"
        " service.url=pulsar://localhost:6650\n  pulsar-spark lag"
        " /data/checkpoints/orders --event-log /data/events --plot lag.png",
    )
    parser.add_argument("path", metavar="CHECKPOINT", help="its checkpointLocation")
    parser.add_argument(
        "--event-log",
        action="append",
        default=[],
        metavar="PATH",
        help="Spark's event log: a file, or a folder of such; may be repeated",
    )
    parser.add_argument("--plot", metavar="FILE", help="a picture to draw: .png, .svg")
    add_source(parser)
    add_options(parser, admin="bytes of the backlog")
    parser.set_defaults(run=run)


@dataclass(frozen=True)
class _Source:
    """The lag of a source of the query, by the full names of topic partitions.

    Attributes:
        place: Of the source among all of the query, from 0.
        read: The committed positions.
        unread: The rows after these.
        held: The last stored entry where an open transaction holds back rows.
    """

    place: int
    read: Mapping[str, LastRead]
    unread: Mapping[str, Backlog]
    held: Mapping[str, MessageId]


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if bool(arguments.plot) != bool(arguments.event_log):
        raise OptionError("--plot and --event-log go together.")
    has_cluster = bool(given_options(arguments))
    if not (has_cluster or arguments.plot):
        raise OptionError(
            "Say where the cluster is, -o service.url=pulsar://host:6650, or what to"
            " draw, --event-log PATH --plot FILE."
        )
    checkpoint = Checkpoint(arguments.path)
    if arguments.plot:
        _draw(arguments, checkpoint)
    if not has_cluster:
        return DONE
    chosen = the_standings(checkpoint, arguments.source)
    options = stream_with_ends(arguments)
    with cluster_of(arguments) as cluster:
        sources = [_ask(cluster, options, standing) for standing in chosen]
    if arguments.json:
        show_json(_as_json(checkpoint, sources))
        return DONE
    _show(sources)
    for source in sources:
        for name, stored in source.held.items():
            say(
                f"{name}: an open transaction holds back what follows"
                f" {source.unread[name].last or 'its beginning'};"
                f" it is stored up to {stored}."
                " `pulsar-spark transactions` finds the transaction."
            )
    return DONE


def _ask(cluster: Cluster, options: ReadOptions | None, standing: Standing) -> _Source:
    read = with_new_segments(cluster, standing.read)
    stored = backlogs(cluster, read)
    unread = within_ends(cluster, options, read, stored)
    held = held_back(cluster, read, stored)
    # What is held back behind an end is of no account.
    held = {name: last for name, last in held.items() if unread[name] == stored[name]}
    return _Source(standing.place, read, unread, held)


def _show(sources: Sequence[_Source]) -> None:
    head = ["TOPIC PARTITION", "READ TO", "TOPIC ENDS AT", "UNREAD ENTRIES", "BYTES"]
    rows: list[list[object]] = [
        [source.place, name, place_of(source.read[name]), *columns_of(backlog)]
        for backlog, name, source in sorted(
            (
                (backlog, name, source)
                for source in sources
                for name, backlog in source.unread.items()
            ),
            key=lambda row: -(row[0].entries or 0),
        )
    ]
    if len(rows) > 1:
        entries, size_bytes, age_s = _total(sources)
        size_text = None if size_bytes is None else f"~{size(size_bytes)}"
        rows.append(["", "all", "", "", entries, size_text, age(age_s)])
    shown = 0 if len(sources) > 1 else 1
    say(table(["SOURCE", *head, "OLDEST UNREAD"][shown:], [r[shown:] for r in rows]))


def _total(sources: Iterable[_Source]) -> tuple[int, int | None, float | None]:
    """Return entries, bytes and the greatest age of all topic partitions together."""
    backlogs_ = [backlog for source in sources for backlog in source.unread.values()]
    sizes = [backlog.size_bytes for backlog in backlogs_ if backlog.entries is not None]
    known_sizes = [backlog for backlog in sizes if backlog is not None]
    ages = [backlog.age_s() for backlog in backlogs_]
    return (
        sum(backlog.entries or 0 for backlog in backlogs_),
        sum(known_sizes) if len(known_sizes) == len(sizes) else None,
        max((backlog for backlog in ages if backlog is not None), default=None),
    )


def _as_json(checkpoint: Checkpoint, sources: Sequence[_Source]) -> dict[str, Any]:
    entries, size_bytes, age_s = _total(sources)
    return {
        "checkpoint": checkpoint.location,
        "queryId": checkpoint.query_id,
        "backlogEntries": entries,
        "backlogBytes": size_bytes,
        "oldestUnreadAgeSeconds": age_s,
        "topicPartitions": [
            {
                "source": source.place,
                "topicPartition": name,
                "read": str(source.read[name]),
                "backlogEntries": backlog.entries,
                "backlogBytes": backlog.size_bytes,
                "oldestUnreadMs": backlog.oldest_ms,
                "oldestUnreadAgeSeconds": backlog.age_s(),
                "heldBack": str(source.held[name]) if name in source.held else None,
            }
            for source in sources
            for name, backlog in source.unread.items()
        ],
    }


def _draw(arguments: argparse.Namespace, checkpoint: Checkpoint) -> None:
    try:
        from pulsar_spark.cli.plot import draw
    except ImportError:
        raise OptionError(
            "--plot needs the package matplotlib: `pip install matplotlib`."
        ) from None
    history = read_history(arguments.event_log, checkpoint.query_id)
    if not history:
        raise OptionError(
            "--event-log has no micro-batch of the query"
            f" {checkpoint.query_id or '(unknown)'} that reads from Pulsar."
        )
    draw(history, arguments.plot)
    complain(f"{arguments.plot}: {len(history)} micro-batches")
