# SPDX-License-Identifier: Apache-2.0
"""``checkpoint``: show or set the positions of a stream.

How a position is set. Spark begins after the end of the last micro-batch that is
committed, and runs one again that was planned and not committed. So:

- where the last one is committed, its recorded end is replaced: the next micro-batch
  begins at the new position, and has the next number;
- where the last one is planned only, its end and that of the one before it become the
  new position: it is run again with the same number, without rows of these topic
  partitions and with the same ones of others, and the next one begins there. What it
  would have read is recorded as left out, so that the others keep their tasks.

No number is left out and none is used twice for rows. Sinks rely on that: Spark's file
sink passes over a number that it has, and fails later if it lacks one; an
exactly-once sink drops the rows of a number that it has committed; an idempotent one
knows a row by the numbers of its micro-batch, its task, and itself in the task; and
state is kept by number.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pulsar_spark.cli.arguments import (
    DONE,
    Cluster,
    add_execute,
    add_options,
    cluster_of,
    given_options,
    stream_with_ends,
)
from pulsar_spark.cli.backlogs import (
    Backlog,
    backlogs,
    with_new_segments,
    within_ends,
)
from pulsar_spark.cli.output import age, say, show_json, size, table
from pulsar_spark.cli.spark_files import Checkpoint, Planned
from pulsar_spark.client.consumers import ConsumerSet, TopicConsumer
from pulsar_spark.client.positions import PositionLookup
from pulsar_spark.errors import (
    BrokerError,
    CheckpointError,
    OptionError,
    PulsarSparkError,
    QueryConflictError,
    TopicNotFoundError,
)
from pulsar_spark.message_id import EARLIEST, LATEST, MessageId, TopicPositions
from pulsar_spark.options.offsets import Position, parse_offsets, parse_times
from pulsar_spark.source.plan.ranges import assign_offsets, assign_times, start_of
from pulsar_spark.source.stream.checkpoint import StreamOffset
from pulsar_spark.source.stream.last_read import NOTHING_READ, LastRead
from pulsar_spark.topics import TopicName
from pulsar_spark.wire.commands import InitialPosition, SubscribeRequest
from pulsar_spark.wire.refusals import has_durable_namesake
from spark_topics.options.offsets import Edge

#: Pause between two tries to have the subscription of a query that has just ended.
_BUSY_PAUSE_S = 0.5


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "checkpoint",
        help="show where a stream stands by its checkpoint, and set it elsewhere",
        description="Show the positions in the checkpoint of a streaming query. With"
        " options of the\nconnector (-o service.url=...) also what is unread after"
        " them: stored entries and\nthe age of the oldest row; with --admin-url also"
        " bytes, about.\n\n--set-position and --set-time let the stopped query go on"
        " elsewhere. They replace the\nrecorded end of its last micro-batch, and keep"
        " copies in the checkpoint. They refuse\nwhile a consumer has the query's"
        " subscription. A query with ackOnCommit=false has\nnone: stop it yourself.",
        epilog="examples:\n  pulsar-spark checkpoint /data/checkpoints/orders -o"
        " service.url=pulsar://localhost:6650\n  pulsar-spark checkpoint"
        " /data/checkpoints/orders -o service.url=pulsar://localhost:6650 \\\n     "
        " --set-time 2026-11-01T06:00:00Z",
    )
    parser.add_argument("path", metavar="PATH", help="the query's checkpointLocation")
    add_source(parser)
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--set-position",
        metavar="WHERE",
        help="earliest, latest, or JSON as startingOffsets has it, which names the"
        " first messages to read; what it does not name stays where it is",
    )
    group.add_argument(
        "--set-time",
        metavar="TIME",
        help="the first publish time to read, as startingTime has it",
    )
    parser.add_argument(
        "--renumber",
        action="store_true",
        help="let a planned micro-batch have no task for what is set; give its sink a"
        " new idempotenceId then",
    )
    add_execute(parser, "set it")
    add_options(parser, admin="bytes of the backlog")
    parser.set_defaults(run=run)


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add the option that chooses a source, see `the_standings`."""
    parser.add_argument(
        "--source",
        type=int,
        metavar="N",
        help="which source of the query, from 0, where several are Pulsar's",
    )


@dataclass(frozen=True)
class Standing:
    """The positions of a source of a query.

    Attributes:
        place: Of the source among all of the query, from 0.
        last: The last micro-batch of which the end is recorded.
        before: The one before it, None where there is none.
        is_committed: Whether the last one is done.
    """

    place: int
    last: Planned
    before: Planned | None
    is_committed: bool

    @property
    def end(self) -> StreamOffset[LastRead]:
        """Return the end of the last micro-batch."""
        return self.last.sources[self.place]

    @property
    def read(self) -> dict[str, LastRead]:
        """Return the committed position of each topic partition, by full name."""
        if self.is_committed:
            return dict(self.end.last_read)
        start = self.before.sources.get(self.place) if self.before else None
        if start is None:
            start = StreamOffset("", {})
        return {
            name: self.end.begin(start, name, NOTHING_READ)
            for name in self.end.last_read
        }

    @property
    def planned(self) -> dict[str, LastRead]:
        """Return the end of the planned, uncommitted micro-batch, by full name."""
        return {} if self.is_committed else dict(self.end.last_read)


def standings(checkpoint: Checkpoint) -> list[Standing]:
    """Return where each source of ours is; nothing for a query without any.

    Raises:
        CheckpointError: The checkpoint is not one that Spark would go on from.
    """
    numbers = checkpoint.planned()
    if not numbers:
        return []
    last = checkpoint.end(numbers[-1])
    before = None
    if last.batch_id:
        before = checkpoint.end(last.batch_id - 1)
    is_committed = last.batch_id in checkpoint.committed()
    return [Standing(place, last, before, is_committed) for place in last.sources]


def the_standings(checkpoint: Checkpoint, place: int | None) -> list[Standing]:
    """Return the chosen sources.

    Raises:
        CheckpointError: The query has planned nothing yet, or reads no Pulsar topic.
        OptionError: The source that is named is none of ours.
    """
    all_standings = standings(checkpoint)
    if not all_standings:
        raise CheckpointError(
            f"{checkpoint.location} has no positions of Pulsar topics: the query has"
            " planned no micro-batch yet, or reads from elsewhere."
        )
    if place is None:
        return all_standings
    chosen = [standing for standing in all_standings if standing.place == place]
    if not chosen:
        places = ", ".join(str(standing.place) for standing in all_standings)
        raise OptionError(f"--source: sources of Pulsar topics are {places}.")
    return chosen


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    sets = arguments.set_position is not None or arguments.set_time is not None
    if arguments.execute and not sets:
        raise OptionError("--yes is for --set-position and --set-time.")
    if arguments.renumber and not sets:
        raise OptionError("--renumber is for --set-position and --set-time.")
    if arguments.set_position is not None:
        parse_offsets(arguments.set_position, "--set-position")
    if arguments.set_time is not None:
        parse_times(arguments.set_time, "--set-time")
    checkpoint = Checkpoint(arguments.path)
    chosen = the_standings(checkpoint, arguments.source)
    if sets:
        return _set(arguments, checkpoint, chosen)
    unread: dict[int, dict[str, Backlog]] = {}
    reads = {standing.place: standing.read for standing in chosen}
    if given_options(arguments):
        options = stream_with_ends(arguments)
        with cluster_of(arguments) as cluster:
            for standing in chosen:
                read = with_new_segments(cluster, standing.read)
                reads[standing.place] = read
                places = {**read, **standing.end.kept}
                unread[standing.place] = within_ends(
                    cluster, options, places, backlogs(cluster, places)
                )
    if arguments.json:
        show_json(_as_json(checkpoint, chosen, reads, unread))
        return DONE
    for standing in chosen:
        _show(checkpoint, standing, reads, unread.get(standing.place, {}))
    return DONE


def _as_json(
    checkpoint: Checkpoint,
    found: Sequence[Standing],
    reads: Mapping[int, Mapping[str, LastRead]],
    unread: Mapping[int, Mapping[str, Backlog]],
) -> dict[str, Any]:
    """Return the facts of a checkpoint, for programs."""
    last = found[0].last.batch_id

    def numbers(standing: Standing, name: str) -> dict[str, Any]:
        return _numbers(unread.get(standing.place, {}).get(name))

    return {
        "checkpoint": checkpoint.location,
        "queryId": checkpoint.query_id,
        "lastPlannedBatch": last,
        "lastCommittedBatch": last if found[0].is_committed else last - 1,
        "sources": [
            {
                "source": standing.place,
                "subscription": standing.end.subscription,
                "topicPartitions": [
                    {
                        "topicPartition": name,
                        "read": str(offset),
                        "planned": _text(standing.planned.get(name)),
                        **numbers(standing, name),
                    }
                    for name, offset in _sorted(reads[standing.place])
                ],
                "kept": [
                    {
                        "topicPartition": name,
                        "read": str(position),
                        **numbers(standing, name),
                    }
                    for name, position in _sorted(standing.end.kept)
                ],
            }
            for standing in found
        ],
    }


def _numbers(one: Backlog | None) -> dict[str, Any]:
    if one is None:
        return {}
    return {
        "backlogEntries": one.entries,
        "backlogBytes": one.size_bytes,
        "oldestUnreadMs": one.oldest_ms,
        "oldestUnreadAgeSeconds": one.age_s(),
        "lastMessage": _text(one.last),
    }


def _show(
    checkpoint: Checkpoint,
    one: Standing,
    reads: Mapping[int, Mapping[str, LastRead]],
    unread: Mapping[str, Backlog],
) -> None:
    last = one.last.batch_id
    say(f"checkpoint    {checkpoint.location}")
    say(f"query         {checkpoint.query_id or '-'}")
    if len(reads) > 1:
        say(f"source        {one.place}")
    say(f"subscription  {one.end.subscription or '- (of the Scala connector)'}")
    if one.is_committed:
        say(f"micro-batch   {last} is committed, nothing is planned")
    else:
        say(
            f"micro-batch   {last} is planned and not committed: a restart runs it"
            " again, with the same rows"
        )
    planned = None if one.is_committed else one.planned
    say()
    say(_table_of(reads[one.place], planned, unread))
    if one.end.kept:
        say()
        say("The options no longer name these. Their positions are kept:")
        say(_table_of(one.end.kept, None, unread))


def _table_of(
    read: Mapping[str, LastRead],
    planned: Mapping[str, LastRead] | None,
    unread: Mapping[str, Backlog],
) -> str:
    """Return a table of topic partitions, with planned and unread parts if known."""
    head = ["TOPIC PARTITION", "READ TO"]
    if planned is not None:
        head.append("PLANNED TO")
    if unread:
        head += ["TOPIC ENDS AT", "UNREAD ENTRIES", "BYTES", "OLDEST UNREAD"]
    rows = []
    for name, position in _sorted(read):
        row: list[object] = [name, place_of(position)]
        if planned is not None:
            row.append(place_of(planned.get(name, NOTHING_READ)))
        if unread:
            row += columns_of(unread[name])
        rows.append(row)
    return table(head, rows)


def columns_of(one: Backlog) -> list[object]:
    """Return the end and the backlog of a topic partition, as table cells."""
    if one.entries is None:
        return ["gone", None, None, None]
    size_text = None if one.size_bytes is None else f"~{size(one.size_bytes)}"
    return [one.last, one.entries, size_text, age(one.age_s())]


def place_of(at: LastRead) -> str:
    """Return a position in readable form."""
    return "nothing" if at == NOTHING_READ else str(at)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _sorted(positions: Mapping[str, LastRead]) -> list[tuple[str, LastRead]]:
    return sorted(positions.items(), key=lambda item: TopicName.parse(item[0]))


# -- setting a position ----------------------------------------------------------------


def _set(
    arguments: argparse.Namespace, checkpoint: Checkpoint, found: list[Standing]
) -> int:
    if len(found) > 1:
        raise OptionError(
            "The query has several sources of Pulsar: name one, --source."
        )
    (standing,) = found
    if not standing.end.subscription:
        raise CheckpointError(
            "The checkpoint was written by the Scala connector. Run the query once with"
            " this one, then its positions can be set."
        )
    with cluster_of(arguments) as cluster, _held(cluster, standing):
        positions, gone = _wanted(cluster, arguments, standing)
        changed = {
            name: position
            for name, position in positions.items()
            if not standing.is_committed or position != standing.end.last_read[name]
        }
        renumbers = arguments.renumber
        files = _new_files(standing, changed, renumbers=renumbers) if changed else {}
        kept = ""
        if files and arguments.execute:
            kept = _write(checkpoint, standing, files)
    if arguments.json:
        show_json(
            {
                "checkpoint": checkpoint.location,
                "changed": {
                    name: {"from": str(standing.read[name]), "to": str(position)}
                    for name, position in _sorted(changed)
                },
                "gone": gone,
                "files": sorted(files),
                "copies": kept or None,
                "done": bool(kept),
            }
        )
        return DONE
    for name in gone:
        say(f"{name} is gone: its position stays.")
    _explain(
        checkpoint, standing, changed, kept, has_files=bool(files), renumbers=renumbers
    )
    return DONE


def _wanted(
    cluster: Cluster, arguments: argparse.Namespace, one: Standing
) -> tuple[dict[str, LastRead], list[str]]:
    """Return the new positions of the topic partitions to set, and which are gone."""
    topics = sorted(map(TopicName.parse, one.end.last_read))
    lookup = PositionLookup(cluster.pool)
    ends = lookup.from_message_ids(
        dict.fromkeys(one.end.last_read, LATEST), absent_ok=True
    )
    if arguments.set_time is not None:
        spec = parse_times(arguments.set_time, "--set-time")
        times = assign_times(spec.topics, spec.default_ms, topics, option="--set-time")
        gone = [name for name in times if name not in ends]
        stored = lookup.from_times({n: t for n, t in times.items() if n in ends})
        firsts = {name: positions.first for name, positions in stored.items()}
    else:
        named = _named(arguments.set_position, topics)
        gone = [name for name in named if name not in ends]
        starts = {
            name: EARLIEST if position is Edge.LATEST else start_of(position)
            for name, position in named.items()
            if name in ends
        }
        stored = lookup.from_message_ids(starts)
        firsts = {
            name: _first(name, named[name], start, stored[name], ends[name].before)
            for name, start in starts.items()
        }
    return {name: LastRead.before(first) for name, first in firsts.items()}, gone


def _named(text: str, topics: list[TopicName]) -> dict[str, Position]:
    """Return the positions that a text names, without the rest."""
    option = "--set-position"
    first, other = (
        assign_offsets(parse_offsets(text, option, edge), topics, option=option)
        for edge in (Edge.EARLIEST, Edge.LATEST)
    )
    return {
        name: position for name, position in first.items() if other[name] == position
    }


def _first(
    name: str, at: Position, start: MessageId, found: TopicPositions, end: MessageId
) -> MessageId:
    """Return the first message to read.

    Args:
        name: Full name of a topic partition.
        at: Where to read from.
        start: Where the reader was placed for that.
        found: What the broker said of that reader.
        end: The last stored entry.
    """
    if at is Edge.LATEST and found.last is not None:
        return MessageId(found.last.ledger_id, found.last.entry_id + 1)
    if isinstance(at, Edge):
        return found.first
    if found.before.position >= start.position:
        raise CheckpointError(
            f"{name}: {start} is not stored any more: the first position available is"
            f" {found.first}. Use `earliest`, or a position at or after that."
        )
    if start.position > (end.ledger_id, end.entry_id + 1):
        raise CheckpointError(
            f"{name} ends at {end} and has never reached {start}. Use `latest`, or a"
            " position that is not after its end."
        )
    return start


def _new_files(
    one: Standing, changed: Mapping[str, LastRead], *, renumbers: bool
) -> dict[str, str]:
    """Return the files to replace, by their names in the checkpoint."""
    files = {}
    for planned in (one.last, None if one.is_committed else one.before):
        if planned is not None and one.place in planned.sources:
            new = _moved(planned.sources[one.place], changed)
            if planned is one.last and not one.is_committed:
                left_out = {} if renumbers else _left_out(one, changed)
                new = replace(new, left_out=left_out)
            text = planned.with_source(one.place, new)
            files[f"offsets/{planned.batch_id}"] = text
    return files


def _moved(
    end: StreamOffset[LastRead], changed: Mapping[str, LastRead]
) -> StreamOffset[LastRead]:
    """Return an offset that is elsewhere in some topic partitions."""
    present = {
        name: position for name, position in changed.items() if name in end.last_read
    }
    kept = {name: changed.get(name, position) for name, position in end.kept.items()}
    first = {
        name: present.get(name, position) for name, position in end.start_after.items()
    }
    return replace(
        end,
        last_read={**end.last_read, **present},
        start_after=first,
        # As at the start of a query, first chunks that a message lacks are no loss.
        began={**end.began, **present},
        kept=kept,
        # The query finds out anew whether the segment is read to its end.
        drained=end.drained - changed.keys(),
    )


def _left_out(
    one: Standing, changed: Mapping[str, LastRead]
) -> dict[str, tuple[LastRead, LastRead]]:
    """Return what the planned micro-batch was to read at first, and reads no more."""
    read, planned = one.read, one.planned
    spans = {name: (read[name], planned[name]) for name in changed}
    return {
        **{name: span for name, span in spans.items() if span[0] < span[1]},
        **one.end.left_out,
    }


def _write(checkpoint: Checkpoint, one: Standing, files: Mapping[str, str]) -> str:
    """Replace files that are unchanged so far; return the folder of copies."""
    now = standings(checkpoint)
    if one not in now:
        raise QueryConflictError(
            f"{checkpoint.location} has changed meanwhile: the query runs. Stop it."
        )
    kept = checkpoint.keep_copies(files)
    for name, text in files.items():
        checkpoint.replace(name, text)
    return kept


@contextmanager
def _held(cluster: Cluster, one: Standing) -> Iterator[None]:
    """Hold the query's subscription, so that the query does not run in the meantime.

    Raises:
        QueryConflictError: Someone has it already.
    """
    deadline = time.monotonic() + cluster.pool.options.patience.busy_s
    while True:
        with ConsumerSet(cluster.pool, TopicConsumer) as group:
            try:
                _take(group, one)
            except QueryConflictError:
                if time.monotonic() > deadline:
                    raise
            else:
                yield
                return
        time.sleep(_BUSY_PAUSE_S)


def _take(group: ConsumerSet[TopicConsumer], one: Standing) -> None:
    """Subscribe as the query does.

    Raises:
        QueryConflictError: Someone has its subscription.
    """
    name = one.end.subscription
    group.connect(one.end.last_read)
    # One of the same name that is not durable is refused where there is a durable one.
    # Where there is none, this creates none.
    passing = group.ask(
        lambda member: member.subscribe(SubscribeRequest(name, start=LATEST))
    )
    durable = [t for t, answer in passing.items() if has_durable_namesake(answer)]
    answers = {
        **passing,
        **group.ask(
            lambda member: member.subscribe(
                SubscribeRequest(
                    name, durable=True, initial_position=InitialPosition.EARLIEST
                )
            ),
            durable,
        ),
        **group.take_failures(),
    }
    for topic, answer in answers.items():
        if isinstance(answer, TopicNotFoundError):
            continue  # then nobody reads it
        if isinstance(answer, BrokerError) and answer.code == "ConsumerBusy":
            raise QueryConflictError(
                f"{topic}: a consumer has the subscription {name}: the query runs. Stop"
                " it, then ask again."
            )
        if isinstance(answer, PulsarSparkError):
            raise answer.about(topic)


def _explain(
    checkpoint: Checkpoint,
    one: Standing,
    changed: Mapping[str, LastRead],
    kept: str,
    *,
    has_files: bool,
    renumbers: bool,
) -> None:
    if not has_files:
        say("The query stands there already.")
        return
    rows: list[list[object]] = [
        [
            name,
            place_of(one.read[name]),
            place_of(position),
            _direction(one.read[name], position),
        ]
        for name, position in _sorted(changed)
    ]
    say(table(["TOPIC PARTITION", "READ TO", "GOES ON AFTER", ""], rows))
    say()
    for line in _consequences(checkpoint, one, changed, renumbers=renumbers):
        say(f"- {line}")
    say()
    if kept:
        say(f"Done. Copies of what was replaced: {checkpoint.location}/{kept}")
    else:
        say("Nothing was changed: add --yes to set it.")


def _direction(before: LastRead, after: LastRead) -> str:
    if before == after:
        return ""
    return "forward" if before < after else "back"


def _consequences(
    checkpoint: Checkpoint,
    one: Standing,
    changed: Mapping[str, LastRead],
    *,
    renumbers: bool,
) -> Iterator[str]:
    number = one.last.batch_id
    if not one.is_committed:
        yield (
            f"Micro-batch {number} was planned and not committed. A restart runs it"
            " again without rows of these topic partitions. Rows of it that its sink"
            " has stored already stay; others come only after the new position."
        )
        if renumbers:
            yield (
                "Its other rows get other tasks, which an idempotent or exactly-once"
                " sink refuses: give the sink a new idempotenceId before the restart."
                " What the micro-batch has stored already comes a second time then."
            )
        else:
            yield (
                "Its other rows keep their tasks, if the restart has the same"
                " minPartitions, maxPartitions and maxRecordsPerPartition. Where"
                " maxPartitions has put one of these topic partitions and another into"
                " one task, the restart is an error and writes nothing; where the query"
                " does so itself, by coalesce, an idempotent sink refuses the rows."
            )
    moves = {_direction(one.read[name], position) for name, position in changed.items()}
    if "back" in moves:
        yield (
            "Where it goes back, rows come a second time, in micro-batches with new"
            " numbers: the sink has them twice, an idempotent or exactly-once one, too."
        )
    if "forward" in moves:
        yield (
            "Where it goes forward, rows in between are never read. The restarted query"
            " acknowledges them, and retention may then remove them."
        )
    if checkpoint.has_state():
        yield (
            "The query keeps state (aggregations, joins, duplicates): it stays as it"
            " is, with what was read so far, and its watermark, too: rows older than"
            " that are late and may be dropped."
        )
    yield f"The next micro-batch with rows is {number + 1}."
