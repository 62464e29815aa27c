"""Splits ranges as ``minPartitions`` and ``maxRecordsPerPartition`` want it.

Asks brokers for what that takes, in a few rounds for all topic partitions together, by
readers that are not durable: where ledgers end, see ``split.LedgerSurvey``, and how
many rows an entry has, which a few entries of each range show.

Both never change, as the positions of the range and what is stored do not: ledgers
that have a successor are closed, and which entries are looked at is computed from the
ranges. So a range is cut in the same way each time, as a micro-batch that is run again
needs it to number its rows alike. Only what is removed in between, which is data loss,
changes that. Its rows are the same in any case: parts together are the range.

Seen on 4.0.7, for a topic of ledger 7 (8 entries), 11 (5 entries) and 12, the answers
to GET_LAST_MESSAGE_ID of a reader that starts at any place::

    reader from          its place
    7:2147483648         7:7        the last entry before, existing or not
    8:0, 11:-1, 11:0     7:7        whatever ledger 8 is
    12:0                 11:4
    7:0, 0:0             7:-1       nothing before
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.consumers import ConsumerGroup, TopicConsumer
from pulsar_spark.client.lookup import Request
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.positions import read_positions
from pulsar_spark.client.retry import Retry, ask_all
from pulsar_spark.errors import (
    CorruptEntryError,
    PulsarSparkError,
    ReadTimeoutError,
    TopicNotFoundError,
    TransportError,
)
from pulsar_spark.message_id import EARLIEST, MessageId
from pulsar_spark.options import ReadOptions
from pulsar_spark.plan import TopicPositions, TopicRange
from pulsar_spark.split import (
    LedgerSurvey,
    Place,
    RangeSize,
    Run,
    count_parts,
    cut,
    places_of,
)
from pulsar_spark.wire.entries import read_stored_entry
from pulsar_spark.wire.protocol import Delivery

#: Entries of a range that are looked at for the rows that they hold, and of all ranges
#: together, at least one of each.
_LOOKS_IN_RANGE = 4
_LOOKS = 512

#: Questions in one round beyond those that are necessary, over all ranges.
_EXTRA_QUESTIONS = 512
#: And for one gap.
_EXTRA_IN_GAP = 32


def split_ranges(
    pool: ConnectionPool, options: ReadOptions, ranges: Sequence[TopicRange]
) -> list[TopicRange]:
    """The ranges, those cut that the options want to be, in order.

    Asks nobody where the options want nothing. Compacted topics are not split: what
    they reach back to is not what is stored. Nor is a topic partition that is gone: its
    reader says so.

    Raises:
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    most, fewest = options.max_records_per_partition, options.min_partitions or 0
    if options.read_compacted or (most is None and fewest <= len(ranges)):
        return list(ranges)
    prober = _Prober(pool, options)
    runs = prober.runs(ranges)
    # In proportion to nothing else, entries are as good as rows.
    rows = prober.rows(runs) if most is not None or len(ranges) > 1 else {}
    sizes = [
        RangeSize(sum(run.entries for run in runs[range_]), rows.get(range_, 1.0))
        for range_ in ranges
    ]
    parts = count_parts(sizes, min_partitions=fewest, max_records=most)
    return [
        piece
        for range_, count in zip(ranges, parts, strict=True)
        for piece in cut(range_, runs[range_], count)
    ]


class _Question(NamedTuple):
    """What a reader is to find out.

    Attributes:
        topic: Topic partition.
        place: Where the reader begins.
    """

    topic: str
    place: Place

    def __str__(self) -> str:
        return f"{self.topic} at {MessageId(*self.place)}"


class _Prober:
    def __init__(self, pool: ConnectionPool, options: ReadOptions) -> None:
        self._pool = pool
        self._prefix = options.reader_subscription_prefix
        self._patience_s = options.poll_timeout_s

    def runs(self, ranges: Iterable[TopicRange]) -> dict[TopicRange, list[Run]]:
        """The entries of each range; none where its topic partition is gone."""
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
        """The rows of an entry of each range, where any can be seen.

        The median of those looked at: one entry that lies must not make the plan.
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

    def _ask(
        self, asked: Mapping[TopicRange, Iterable[_Question]], *, looking: bool
    ) -> dict[_Question, _Probe | None]:
        """The answer to each question; None where the topic partition is gone."""
        return ask_all(
            dict.fromkeys(question for some in asked.values() for question in some),
            lambda questions: self._round(questions, looking=looking),
            Retry(self._pool.options, self._pool.options.lookup_timeout_s),
        )

    def _round(
        self, questions: list[_Question], *, looking: bool
    ) -> dict[_Question, _Probe | None | PulsarSparkError]:
        probes = _Probes(self._pool, questions)
        probes.open()
        probes.step("SUBSCRIBE", lambda probe: probe.begin(self._prefix))
        last = probes.step("GET_LAST_MESSAGE_ID", lambda probe: probe.get_last())
        for name, reply in last.items():
            probes.members[name].positions = read_positions(reply)
        if looking:
            probes.look(self._patience_s)
        answers: dict[_Question, _Probe | None | PulsarSparkError] = {
            probe.question: probe for probe in probes.members.values()
        }
        probes.close()
        for name, error in probes.take_failures().items():
            is_gone = isinstance(error, TopicNotFoundError)
            answers[probes.questions[name]] = None if is_gone else error
        return answers


class _Probe(TopicConsumer):
    """A reader that answers a question.

    Attributes:
        positions: What the broker says of it.
        rows: Rows of the first entry that came, None before; a chunk of a message of n
            chunks counts 1/n.
    """

    def __init__(
        self, question: _Question, connection: Connection, arrived: threading.Condition
    ) -> None:
        super().__init__(question.topic, connection)
        self.question = question
        self.positions = TopicPositions(EARLIEST, None)
        self.rows: float | None = None
        self._arrived = arrived

    @property
    def has_more(self) -> bool:
        """Whether an entry is there to come: one that can be delivered."""
        last = self.positions.last
        return last is not None and last.position >= self.question.place

    @property
    def is_done(self) -> bool:
        """Whether nothing more is to be waited for."""
        return self.rows is not None or not self.is_open

    def begin(self, prefix: str) -> Request:
        """Builds SUBSCRIBE. Never of the compacted form: that has no dense numbers."""
        return self.subscribe(
            f"{prefix}-{uuid.uuid4()}",
            durable=False,
            start=MessageId(*self.question.place),
        )

    # What follows is called by the connection's reading thread.

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Counts the rows of the first entry."""
        with self._arrived:
            if self.rows is None:
                self.rows = _rows(deliveries[0])
            self._arrived.notify_all()

    def closed(self, error: PulsarSparkError | None) -> None:
        """Another one is made in the next round."""
        super().closed(error)
        with self._arrived:
            self._arrived.notify_all()


class _Probes(ConsumerGroup[_Probe]):
    """The readers of some questions, by text: a topic partition may have several."""

    def __init__(self, pool: ConnectionPool, questions: Iterable[_Question]) -> None:
        super().__init__(pool, self._probe)
        self.questions = {str(question): question for question in questions}
        self._arrived = threading.Condition()

    def _probe(self, name: str, connection: Connection) -> _Probe:
        return _Probe(self.questions[name], connection, self._arrived)

    def open(self) -> None:
        """Makes them, each on the broker that serves its topic partition."""
        topics = dict.fromkeys(question.topic for question in self.questions.values())
        found = self._pool.get_all(self._lookup.brokers(topics))
        for name, question in self.questions.items():
            connection = found[question.topic]
            if isinstance(connection, Connection):
                self.members[name] = self._probe(name, connection)
            else:
                self.failures[name] = connection

    def look(self, patience_s: float) -> None:
        """Waits for the first entry of each that has any to come."""
        waiting = {name: p for name, p in self.members.items() if p.has_more}
        for probe in waiting.values():
            # A broken connection closes its readers.
            with contextlib.suppress(PulsarSparkError):
                probe.connection.grant(probe.consumer_id, 1)
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
            return TransportError("The reader of an entry was closed.")
        return ReadTimeoutError(
            f"{probe.question} delivered nothing for {patience_s:g} s "
            "(`pollTimeoutMs`), though there are rows. Look at the broker's log, or "
            "raise `pollTimeoutMs`.",
            topic_partition=probe.topic,
        )


def _rows(delivery: Delivery) -> float:
    try:
        stored = read_stored_entry(
            delivery.ledger_id, delivery.entry_id, delivery.headers_and_payload
        )
    except CorruptEntryError:
        return 1  # whoever reads the row will say so
    return stored.likely_rows
