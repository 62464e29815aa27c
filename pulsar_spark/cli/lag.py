# SPDX-License-Identifier: Apache-2.0
"""``lag``: a stream's lag now, and over time."""

from __future__ import annotations

import argparse
from typing import Any

from pulsar_spark.cli.arguments import DONE, add_options, cluster_of, given_options
from pulsar_spark.cli.backlogs import Backlog, backlogs, held_back, with_new_segments
from pulsar_spark.cli.checkpoint import columns_of, place_of, the_standings
from pulsar_spark.cli.event_log import read_history
from pulsar_spark.cli.output import age, complain, say, show_json, size, table
from pulsar_spark.cli.spark_files import Checkpoint
from pulsar_spark.errors import OptionError
from pulsar_spark.message_id import MessageId
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
    parser.add_argument(
        "--source",
        type=int,
        metavar="N",
        help="which source of the query, from 0, where several are Pulsar's",
    )
    add_options(parser, admin="bytes of the backlog")
    parser.set_defaults(run=run)


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
    read: dict[str, LastRead] = {}
    for standing in the_standings(checkpoint, arguments.source):
        read |= standing.read
    with cluster_of(arguments) as cluster:
        read = with_new_segments(cluster, read)
        backlogs_ = backlogs(cluster, read)
        held = held_back(cluster, read, backlogs_)
    if arguments.json:
        show_json(_as_json(checkpoint, read, backlogs_, held))
    else:
        _show(read, backlogs_)
        for name, stored in held.items():
            say(
                f"{name}: an open transaction holds back what follows"
                f" {backlogs_[name].last or 'its beginning'};"
                f" it is stored up to {stored}."
                " `pulsar-spark transactions` finds the transaction."
            )
    return DONE


def _show(read: dict[str, LastRead], found: dict[str, Backlog]) -> None:
    worst = sorted(found, key=lambda name: -(found[name].entries or 0))
    head = ["TOPIC PARTITION", "READ TO", "TOPIC ENDS AT", "UNREAD ENTRIES", "BYTES"]
    rows: list[list[object]] = [
        [name, place_of(read[name]), *columns_of(found[name])] for name in worst
    ]
    if len(rows) > 1:
        entries, size_bytes, age_s = _total(found)
        size_text = None if size_bytes is None else f"~{size(size_bytes)}"
        rows.append(["all", "", "", entries, size_text, age(age_s)])
    say(table([*head, "OLDEST UNREAD"], rows))


def _total(found: dict[str, Backlog]) -> tuple[int, int | None, float | None]:
    """Return entries, bytes and the greatest age of all topic partitions together."""
    sizes = [
        backlog.size_bytes for backlog in found.values() if backlog.entries is not None
    ]
    known_sizes = [backlog for backlog in sizes if backlog is not None]
    ages = [backlog.age_s() for backlog in found.values()]
    return (
        sum(backlog.entries or 0 for backlog in found.values()),
        sum(known_sizes) if len(known_sizes) == len(sizes) else None,
        max((backlog for backlog in ages if backlog is not None), default=None),
    )


def _as_json(
    checkpoint: Checkpoint,
    read: dict[str, LastRead],
    found: dict[str, Backlog],
    held: dict[str, MessageId],
) -> dict[str, Any]:
    entries, size_bytes, age_s = _total(found)
    return {
        "checkpoint": checkpoint.location,
        "queryId": checkpoint.query_id,
        "backlogEntries": entries,
        "backlogBytes": size_bytes,
        "oldestUnreadAgeSeconds": age_s,
        "topicPartitions": [
            {
                "topicPartition": name,
                "read": str(read[name]),
                "backlogEntries": backlog.entries,
                "backlogBytes": backlog.size_bytes,
                "oldestUnreadMs": backlog.oldest_ms,
                "oldestUnreadAgeSeconds": backlog.age_s(),
                "heldBack": str(held[name]) if name in held else None,
            }
            for name, backlog in found.items()
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
