# SPDX-License-Identifier: Apache-2.0
"""Divide ranges among tasks: minPartitions, maxPartitions, maxRecordsPerPartition.

Asks brokers two things, in a few rounds for all topic partitions together, by readers
that are not durable: where ledgers end, see ``split.LedgerSurvey``, and how many rows
an entry has, estimated from a few entries of each range.

Neither answer ever changes: ledgers that have a successor are closed, and the entries
to look at are computed from the range. So a range is cut in the same way each time, and
a micro-batch that runs again can number its rows alike. Only removal in between, which
is data loss, changes that. The rows are the same in any case: the parts
together are the range.

Seen on 4.0.7, for a topic of ledger 7 (8 entries), 11 (5 entries) and 12, the answers
to GET_LAST_MESSAGE_ID of a reader that starts at any position::

    reader from          answer
    7:2147483648         7:7        the last entry before, existing or not
    8:0, 11:-1, 11:0     7:7        whatever ledger 8 is
    12:0                 11:4
    7:0, 0:0             7:-1       nothing before
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from pulsar_spark.client import peek
from pulsar_spark.client.connection import Connection
from pulsar_spark.client.consumers import ConsumerSet
from pulsar_spark.client.peek import Peeker, entry_of
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.errors import (
    AskAgainError,
    PulsarSparkError,
    ReadTimeoutError,
    TopicNotFoundError,
)
from pulsar_spark.message_id import MessageId
from pulsar_spark.options import ReadOptions
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.source.plan.split import (
    LedgerSurvey,
    Place,
    Run,
    cut,
    cut_before,
    places_of,
)
from pulsar_spark.wire.protocol import Delivery
from spark_topics.client.retry import ask_all
from spark_topics.source.grouping import group
from spark_topics.source.parts import RangeSize, count_parts

#: Entries of a range that are looked at for the rows that they hold, and of all ranges
#: together, at least one of each.
_LOOKS_IN_RANGE = 4
_LOOKS = 512

#: Entries of a range that are looked at for its size, where a person asks for it.
_LOOKS_TO_MEASURE = 16

#: Questions in one round beyond those that are necessary, over all ranges.
_EXTRA_QUESTIONS = 512
#: The same for one gap.
_EXTRA_IN_GAP = 32


def divide(
    pool: ConnectionPool, options: ReadOptions, ranges: Sequence[TopicRange]
) -> list[tuple[TopicRange, ...]]:
    """Return what each task reads, in order: ranges cut or put together.

    Without an option that asks for it each range is a task, and no broker is asked.
    Ranges of compacted topics are not split, and count as equally large, because they
    reach back further than what is stored. A topic partition that is gone is not split
    either: its reader reports the loss.

    Raises:
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    max_records, fewest = options.max_records_per_partition, options.min_partitions or 0
    most = len(ranges) if options.max_partitions is None else options.max_partitions
    if options.read_compacted:
        alike = [RangeSize(1)] * len(ranges)
        return group(ranges, alike, max_partitions=most, max_records=None)
    if max_records is None and fewest <= len(ranges) <= most:
        return [(range_,) for range_ in ranges]
    prober = _Prober(pool, options)
    runs = prober.runs(ranges)
    # For one range without a limit on rows, entries are as good a measure as rows; to
    # put ranges together they are good enough.
    is_split = max_records is not None or len(ranges) < fewest
    counts_rows = is_split and (max_records is not None or len(ranges) > 1)
    rows = prober.rows(runs) if counts_rows else {}
    sizes = [
        RangeSize(sum(run.entries for run in runs[range_]), rows.get(range_, 1.0))
        for range_ in ranges
    ]
    counts = count_parts(sizes, min_partitions=fewest, max_records=max_records)
    parts: list[TopicRange] = []
    part_sizes: list[RangeSize] = []
    for range_, size, count in zip(ranges, sizes, counts, strict=True):
        parts += cut(range_, runs[range_], count)
        part_sizes += size.cut(count)
    return group(
        parts,
        part_sizes,
        max_partitions=options.max_partitions,
        max_records=max_records,
    )


class Measure(NamedTuple):
    """How much a range holds.

    Attributes:
        entries: Stored entries, those included that readers never see.
        rows: About, by a few entries; None where none could be looked at.
        size_bytes: About, as stored; None where none could be looked at.
        oldest_ms: When its first entry was published, in milliseconds since 1970.
        newest_ms: When its last one was.
    """

    entries: int
    rows: int | None
    size_bytes: int | None
    oldest_ms: int | None
    newest_ms: int | None


def measure(
    pool: ConnectionPool, options: ReadOptions, ranges: Sequence[TopicRange]
) -> dict[TopicRange, Measure]:
    """Return how much each range holds; a topic partition that is gone holds nothing.

    Raises:
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    prober = _Prober(pool, options)
    return prober.measures(prober.runs(ranges))


def parts_from_end(
    pool: ConnectionPool, options: ReadOptions, range_: TopicRange, entries: int
) -> Iterator[TopicRange]:
    """Yield the parts of a range, from the last to the first; together, the range.

    Each has four times as many entries as the part before, so that few are needed.

    Args:
        pool: The cluster's connections.
        options: What is read.
        range_: The range.
        entries: In the last part.

    Raises:
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    runs = _Prober(pool, options).runs([range_])[range_]
    left = sum(run.entries for run in runs)
    while left > entries:
        left -= entries
        rest, last = cut_before(range_, runs, left)
        yield last
        range_, entries = rest, 4 * entries
    yield range_


class _Question(NamedTuple):
    """What a reader is to find out.

    Attributes:
        topic: Topic partition.
        place: Position at which the reader begins.
    """

    topic: str
    place: Place

    def __str__(self) -> str:
        return f"{self.topic} at {MessageId(*self.place)}"


class _Prober:
    def __init__(self, pool: ConnectionPool, options: ReadOptions) -> None:
        self._pool = pool
        self._silence_s = options.poll_timeout_s
        self._patience_s = options.patience_s

    def runs(self, ranges: Iterable[TopicRange]) -> dict[TopicRange, list[Run]]:
        """Return the entries of each range; none if the topic partition is gone."""
        surveys = {range_: LedgerSurvey(range_) for range_ in ranges}
        gone: set[TopicRange] = set()
        while gaps := sum(s.gaps for r, s in surveys.items() if r not in gone):
            extra = min(_EXTRA_IN_GAP, _EXTRA_QUESTIONS // gaps)
            asked = {
                range_: [
                    _Question(range_.topic_partition, place)
                    for place in survey.questions(extra)
                ]
                for range_, survey in surveys.items()
                if survey.gaps and range_ not in gone
            }
            probes = self._ask(asked, looking=False)
            for range_, questions in asked.items():
                answers = {}
                for question in questions:
                    if (probe := probes[question]) is not None:
                        answers[question.place] = probe.positions.before.position
                if len(answers) == len(questions):
                    surveys[range_].learn(answers)
                else:
                    gone.add(range_)
        return {r: [] if r in gone else s.runs() for r, s in surveys.items()}

    def rows(self, runs: Mapping[TopicRange, Sequence[Run]]) -> dict[TopicRange, float]:
        """Return the rows per entry of each range, where any can be seen.

        The median of a few entries: one wrong count must not decide the plan.
        """
        asked = {}
        most = min(_LOOKS_IN_RANGE, max(1, _LOOKS // max(1, len(runs))))
        for range_, its_runs in runs.items():
            entries = sum(run.entries for run in its_runs)
            count = min(most, entries)
            asked[range_] = [
                _Question(range_.topic_partition, place)
                for place in places_of(
                    its_runs, (entries * i // count for i in range(count))
                )
            ]
        seen = self._ask(asked, looking=True)
        usual = {}
        for range_, questions in asked.items():
            probes = [seen[question] for question in questions]
            rows = [probe.rows for probe in probes if probe is not None and probe.rows]
            if rows:
                usual[range_] = median(rows)
        return usual

    def measures(
        self, runs: Mapping[TopicRange, Sequence[Run]]
    ) -> dict[TopicRange, Measure]:
        """Return how much each range holds, by entries at equal distances."""
        asked: dict[TopicRange, list[_Question]] = {}
        counts = {range_: sum(run.entries for run in runs[range_]) for range_ in runs}
        for range_, entries in counts.items():
            looks = min(_LOOKS_TO_MEASURE, entries)
            indexes = [entries * i // looks for i in range(looks)]
            # The very last one says only when it was published.
            places = places_of(runs[range_], [*indexes, entries - 1]) if entries else []
            asked[range_] = [_Question(range_.topic_partition, p) for p in places]
        seen = self._ask(asked, looking=True)
        measures = {}
        for range_, questions in asked.items():
            probes = [seen[question] for question in questions]
            seen_probes = [p for p in probes if p is not None and p.rows is not None]
            spread = [p for p in probes[:-1] if p is not None and p.rows is not None]
            entries = counts[range_]
            times = [p.published_ms for p in seen_probes]
            measures[range_] = Measure(
                entries,
                _about(entries, [p.rows for p in spread if p.rows is not None]),
                _about(entries, [p.size_bytes for p in spread]),
                times[0] if times else None,
                times[-1] if times else None,
            )
        return measures

    def _ask(
        self, asked: Mapping[TopicRange, Iterable[_Question]], *, looking: bool
    ) -> dict[_Question, _Probe | None]:
        """Return the answer to each question; None if the topic partition is gone."""
        return ask_all(
            dict.fromkeys(
                question
                for asked_of_range in asked.values()
                for question in asked_of_range
            ),
            lambda questions: self._round(questions, looking=looking),
            self._pool.patience(self._patience_s),
        )

    def _round(
        self, questions: list[_Question], *, looking: bool
    ) -> dict[_Question, _Probe | None | PulsarSparkError]:
        with _Probes(self._pool, questions) as probes:
            probes.connect(probes.questions, probes.topic_of)
            peek.begin(probes)
            if looking:
                probes.look(self._silence_s)
            answers: dict[_Question, _Probe | None | PulsarSparkError] = {
                probe.question: probe for probe in probes.members.values()
            }
        for name, error in probes.take_failures().items():
            is_gone = isinstance(error, TopicNotFoundError)
            answers[probes.questions[name]] = None if is_gone else error
        return answers


def _about(entries: int, samples: Sequence[float]) -> int | None:
    """Return a total by the mean of a few entries."""
    return round(entries * sum(samples) / len(samples)) if samples else None


class _Probe(Peeker):
    """A reader that answers a question.

    Attributes:
        rows: Rows of the first entry that came, None before; a chunk of a message of n
            chunks counts 1/n.
        size_bytes: The entry's size as stored, without the frame.
        published_ms: When it was published, in milliseconds since 1970.
    """

    def __init__(
        self, question: _Question, connection: Connection, arrived: threading.Condition
    ) -> None:
        start = MessageId(*question.place)
        super().__init__(question.topic, connection, start, arrived)
        self.question = question
        self.rows: float | None = None
        self.size_bytes = 0
        self.published_ms: int | None = None

    @property
    def has_more(self) -> bool:
        """Return whether an entry that can be delivered is still to come."""
        last = self.positions.last
        return last is not None and last.position >= self.question.place

    @property
    def is_done(self) -> bool:
        """Return whether nothing more is to be waited for."""
        return self.rows is not None or not self.is_open

    # What follows is called by the connection's reading thread.

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Count the rows of the first entry."""
        with self._arrived:
            if self.rows is None:
                entry = entry_of(deliveries[0])
                self.rows = 1 if entry is None else entry.likely_rows
                self.size_bytes = len(deliveries[0].headers_and_payload)
                self.published_ms = entry.metadata.publish_time if entry else None
            self._arrived.notify_all()


class _Probes(ConsumerSet[_Probe]):
    """Readers by the text of their question: a topic partition may have several."""

    def __init__(self, pool: ConnectionPool, questions: Iterable[_Question]) -> None:
        super().__init__(pool, self._probe)
        self.questions = {str(question): question for question in questions}
        self._arrived = threading.Condition()

    def _probe(self, name: str, connection: Connection) -> _Probe:
        return _Probe(self.questions[name], connection, self._arrived)

    def topic_of(self, name: str) -> str:
        """Return the topic partition that a question is about."""
        return self.questions[name].topic

    def look(self, patience_s: float) -> None:
        """Wait for the first entry of each probe that has any to come."""
        waiting = {name: p for name, p in self.members.items() if p.has_more}
        for probe in waiting.values():
            probe.grant(1)
        with self._arrived:
            self._arrived.wait_for(
                lambda: all(probe.is_done for probe in waiting.values()), patience_s
            )
        for name, probe in waiting.items():
            if probe.rows is None:
                self.drop(name, self._why_not(probe, patience_s))

    @staticmethod
    def _why_not(probe: _Probe, patience_s: float) -> PulsarSparkError:
        if not probe.is_open:
            return AskAgainError("The reader of an entry was closed.")
        return ReadTimeoutError(
            f"{probe.question} delivered nothing for {patience_s:g} s "
            "(`pollTimeoutMs`), though there are rows. Look at the broker's log, or "
            "raise `pollTimeoutMs`.",
            topic_partition=probe.topic,
        )
