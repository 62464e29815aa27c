# SPDX-License-Identifier: Apache-2.0
"""First and last positions of many topic partitions at once.

A reader that never takes a message is enough to learn both: the broker answers
GET_LAST_MESSAGE_ID with the last message that can be delivered and with the reader's
own place. Such readers are not durable, so nothing of them stays behind.

Seen on 4.0.7, for a topic whose ledger 7 (8 entries) is followed by ledger 11::

    reader from    its place (mark-delete)
    earliest       7:-1     the entry before the first one stored
    7:3            7:2      the entry before the one asked for
    11:0           7:7
    7:3, ledger 7 trimmed   11:-1    not before 7:3, so 7:3 is gone

The place comes from the ledgers; the last message is the last one that the broker would
deliver at that moment. There is none, it says, while it hands the topic over to another
broker, and where all entries are aborted or in open transactions::

    last     place of a reader from earliest, from latest
    -1:-1    7:-1   7:-1    nothing is stored
    -1:-1    14:-1  13:1    nothing is left
    -1:-1    7:-1   7:4     is asked again, on a broker that serves it then
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pulsar_spark.client.access import AUTHORIZATION
from pulsar_spark.client.consumers import (
    ConsumerSet,
    TopicConsumer,
)
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.segment_ends import readable_ends
from pulsar_spark.errors import (
    AskAgainError,
    BrokerError,
    PulsarSparkError,
    TopicNotFoundError,
)
from pulsar_spark.message_id import EARLIEST, LATEST, MessageId, TopicPositions
from pulsar_spark.topics import TopicName, is_segment
from pulsar_spark.wire.commands import (
    ConsumerSettings,
    InitialPosition,
    SubscribeRequest,
)
from pulsar_spark.wire.layout import Layout
from spark_topics.client.retry import Retry, ask_all

#: How often in its time the last message is asked for. A broker that gives a topic away
#: may forget a question about it, and answers the next one elsewhere.
_QUESTIONS = 3

#: How many times it must be said that nothing of what is stored can be delivered, or
#: that a partition does not exist yet, each time to a new reader: a topic that is being
#: given away takes none.
_CERTAIN_AFTER = 3

#: What was found of topic partitions, or why not, by full name.
_Answers = dict[str, TopicPositions | PulsarSparkError]


class PositionLookup:
    """Finds positions.

    Args:
        pool: The cluster's connections.
        read_compacted: Whether the readers are to see the compacted topic.
        patience_s: As for `TopicLookup`.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        *,
        read_compacted: bool = False,
        patience_s: float | None = None,
    ) -> None:
        self._pool = pool
        self._patience_s = patience_s
        self._lookup = TopicLookup(pool, patience_s=patience_s)
        self._read_compacted = read_compacted
        options = pool.options
        whole_s = options.lookup_timeout_s if patience_s is None else patience_s
        self._answer_s = min(options.operation_timeout_s, whole_s / _QUESTIONS)

    def from_message_ids(
        self, starts: Mapping[str, MessageId], *, absent_ok: bool = False
    ) -> dict[str, TopicPositions]:
        """Return the positions of readers that start at messages, inclusive.

        A partition that its topic counts but that does not exist yet is empty, and
        nothing comes before it: EARLIEST.

        Args:
            starts: Start of each topic partition, by full name.
            absent_ok: Whether to leave out those that do not exist.

        Raises:
            TopicNotFoundError: A topic partition does not exist.
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        doubts: Counter[str] = Counter()

        def ask(
            names: list[str],
        ) -> dict[str, TopicPositions | None | PulsarSparkError]:
            answers = self._certain(self._round(names, starts), doubts)
            is_absent = {
                name: absent_ok and isinstance(answer, TopicNotFoundError)
                for name, answer in answers.items()
            }
            return {n: None if is_absent[n] else a for n, a in answers.items()}

        positions = ask_all(starts, ask, self.retry())
        return {
            name: position
            for name, position in positions.items()
            if position is not None
        }

    def from_times(self, times_ms: Mapping[str, int]) -> dict[str, TopicPositions]:
        """Return positions of readers that start at the first entry of a time or later.

        The entry counts as a whole, with the time of its first message, or with the
        broker's time where brokers keep that.

        Args:
            times_ms: Milliseconds since 1970 for each topic partition, by full name.

        Raises:
            PulsarSparkError: As `from_message_ids`.
        """
        doubts: Counter[str] = Counter()

        def ask(topics: list[str]) -> _Answers:
            return self._certain(self._time_round(topics, times_ms), doubts)

        return ask_all(times_ms, ask, self.retry())

    def _certain(self, answers: _Answers, doubts: Counter[str]) -> _Answers:
        """Take no answer for certain at once that says that nothing is there.

        Args:
            answers: Of a round.
            doubts: How often that was said of each topic partition though it may be
                otherwise; is added to.
        """
        nothing = {
            topic: answer.before.position
            for topic, answer in answers.items()
            if isinstance(answer, TopicPositions) and answer.last is None
        }
        # What does not exist yet has no place.
        placed = {
            t: LATEST for t, position in nothing.items() if position > EARLIEST.position
        }
        for topic, latest in self._round([*placed], placed).items():
            if isinstance(latest, PulsarSparkError):
                answers[topic] = latest
                del nothing[topic]
            elif latest.before.position <= nothing[topic]:
                del nothing[topic]
        doubts.update(nothing.keys())
        for topic in nothing:
            if doubts[topic] < _CERTAIN_AFTER:
                answers[topic] = AskAgainError(
                    f"The broker of {topic} has nothing to deliver of what is stored, "
                    "as while it gives a topic away."
                )
        return answers

    def _time_round(self, topics: list[str], times_ms: Mapping[str, int]) -> _Answers:
        """Ask twice, because a broker may lose a reader's position after SEEK.

        A reader that was forgotten (the topic moved in between) begins at its initial
        position instead. Two that would begin at opposite ends cannot agree by mistake.
        They disagree, too, where nothing is that late and rows arrive: each stands
        where the topic ended, and a third one stands where the first one saw the end,
        or further.
        """

        def seek(topics: list[str], initial: InitialPosition) -> _Answers:
            starts = dict.fromkeys(topics, EARLIEST)
            return self._round(topics, starts, _TimeSeek(times_ms, initial))

        earliest = seek(topics, InitialPosition.EARLIEST)
        latest = seek(topics, InitialPosition.LATEST)
        answers = {t: _agreed(t, earliest[t], latest[t]) for t in topics}
        unsure = [topic for topic in topics if answers[topic] is None]
        third = seek(unsure, InitialPosition.EARLIEST)
        settled = {t: _settled(t, earliest[t], third[t]) for t in unsure}
        return {t: a for t, a in {**answers, **settled}.items() if a is not None}

    def retry(self) -> Retry:
        """Return how long to go on asking, from now."""
        return self._pool.patience(self._patience_s)

    def _round(
        self,
        topics: list[str],
        starts: Mapping[str, MessageId],
        seek: _TimeSeek | None = None,
    ) -> _Answers:
        """Ask about all topics in lockstep, a single round."""
        if not topics:
            return {}
        with ConsumerSet(self._pool, TopicConsumer, waits_for_end=False) as probes:
            probes.connect(topics)
            names = {topic: self._pool.reader_name() for topic in probes.members}
            probes.subscribe(
                lambda probe: SubscribeRequest(
                    names[probe.topic],
                    start=starts[probe.topic],
                    consumer=ConsumerSettings(read_compacted=self._read_compacted),
                )
            )
            if seek is not None:
                sought = probes.members.keys() - probes.without_ledgers
                probes.step(
                    lambda probe: probe.seek(seek.times_ms[probe.topic]), sought
                )
                # The broker closes a reader that has sought but keeps its place for who
                # subscribes by the same name without saying where to start.
                probes.subscribe(
                    lambda probe: SubscribeRequest(
                        names[probe.topic], initial_position=seek.initial_position
                    ),
                    sought,
                )
            last = probes.step(lambda probe: probe.get_last(), timeout_s=self._answer_s)
        answers: _Answers = {**last}
        answers.update(probes.take_failures())
        self._correct_segments(answers)
        return answers | self._never_written(answers)

    def _correct_segments(self, answers: _Answers) -> None:
        """Correct what brokers say of the ends of segments."""
        segments = {
            name: answer
            for name, answer in answers.items()
            if is_segment(name) and isinstance(answer, TopicPositions)
        }
        lasts = {name: answer.last for name, answer in segments.items()}
        ends = readable_ends(self._pool, lasts, read_compacted=self._read_compacted)
        for name, end in ends.items():
            if isinstance(end, PulsarSparkError):
                answers[name] = end
            else:
                answers[name] = replace(segments[name], last=end)

    def _never_written(self, answers: _Answers) -> dict[str, TopicPositions]:
        """Return the positions of partitions that do not exist yet."""
        missing = [
            topic
            for topic, answer in answers.items()
            if isinstance(answer, TopicNotFoundError)
        ]
        counted = self._lookup.counted_partitions(missing)
        return {topic: TopicPositions(EARLIEST, None) for topic in counted}


@dataclass(frozen=True)
class _TimeSeek:
    """Where to seek to, and where a reader begins whose position was forgotten."""

    times_ms: Mapping[str, int]
    initial_position: InitialPosition


def _agreed(
    topic: str,
    earliest: TopicPositions | PulsarSparkError,
    latest: TopicPositions | PulsarSparkError,
) -> TopicPositions | PulsarSparkError | None:
    """Return the place of a time by two readers; None where a third is needed."""
    for positions in (earliest, latest):
        if isinstance(positions, PulsarSparkError):
            return positions
    assert isinstance(earliest, TopicPositions)
    assert isinstance(latest, TopicPositions)
    is_forgotten = earliest.before.entry_id < 0  # maybe: it is at the beginning
    is_same = earliest.before == latest.before
    if earliest.is_empty and (latest.is_empty or is_same or not is_forgotten):
        # Nothing was that late when it sought. What came since may be earlier.
        return earliest
    if is_same:
        return latest
    return _moved(topic) if is_forgotten else None


def _settled(
    topic: str,
    first: TopicPositions | PulsarSparkError,
    third: TopicPositions | PulsarSparkError,
) -> TopicPositions | PulsarSparkError:
    """Return the place of a reader that was not forgotten, by a later place."""
    assert isinstance(first, TopicPositions)
    assert first.last is not None
    if isinstance(third, PulsarSparkError):
        return third
    if third.before == first.before:
        return first  # the one in between was forgotten
    # The end of the topic has been there, unless the broker searches times that are out
    # of order and finds another entry each time.
    if third.before.entry_id < 0 or third.before.position < first.last.position:
        return _moved(topic)
    return replace(first, last=first.before)


def _moved(topic: str) -> AskAgainError:
    return AskAgainError(f"{topic} moved to another broker during a seek.")


def has_messages(pool: ConnectionPool, topic: TopicName) -> bool:
    """Return whether any partition of a topic has a message.

    A role that may only produce cannot look, and is told that there is none.

    Raises:
        PulsarSparkError: The cluster does not answer, or refuses for another reason.
    """
    base = topic.base
    content = TopicLookup(pool).topics([base.full_name])[base.full_name]
    if content is None:
        return False
    if isinstance(content, Layout):
        names = list(content.by_name)
    else:
        names = list(base.partition_names(range(content)))
    starts = dict.fromkeys(names or [base.full_name], EARLIEST)
    positions = PositionLookup(pool)
    try:
        stored = positions.from_message_ids(starts, absent_ok=True)
    except BrokerError as error:
        if error.code != AUTHORIZATION:
            raise
        return False
    return any(not position.is_empty for position in stored.values())
