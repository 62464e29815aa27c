"""Plans the micro-batches of a stream. Runs on the driver, for as long as the query.

Spark keeps the truth, in its checkpoint: how far each micro-batch goes. The broker's
cursor follows it, never ahead: what a committed batch has read is acknowledged, so that
the backlog drains, and nothing else is, so that retention keeps what a restart needs.
That includes the chunks of a message whose last one is still to come, see
``client.chunk_guard``.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pulsar_spark.admission import Admission, Backlog, EntrySize
from pulsar_spark.client.chunk_guard import ChunkGuard
from pulsar_spark.client.cursors import Cursors, SeenEntry, Standing
from pulsar_spark.client.discovery import (
    existing_topic_partitions,
    find_topic_partitions,
)
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.positions import PositionLookup
from pulsar_spark.client.splits import split_ranges
from pulsar_spark.client.starts import find_starts
from pulsar_spark.errors import DataLossError, PulsarSparkError, TopicNotFoundError
from pulsar_spark.message_id import EARLIEST, LATEST, MessageId
from pulsar_spark.offsets import topic_tree
from pulsar_spark.options import ReadOptions
from pulsar_spark.plan import TopicPositions, TopicRange, assign_offsets, check_start
from pulsar_spark.stream_offsets import (
    StreamOffset,
    batch_ranges,
    position_after,
    position_before,
    position_tree,
    still_where_it_began,
)
from pulsar_spark.topics import TopicName

logger = logging.getLogger("pulsar_spark.client")

#: A plan that found nothing new and took longer than this, in seconds, is followed by a
#: rest of so many times its own time, up to a longest rest, in seconds. Spark asks a
#: hundred times a second, which is too often for a thousand idle topic partitions.
_LONG_PLAN_S = 0.05
_REST = 4
_LONGEST_REST_S = 1.0

#: Topic partitions whose next entries are looked at for one micro-batch, in turn; the
#: others go by averages.
_LOOKS = 64

#: No ledger has so many entries: a reader placed there stands behind its ledger's last.
_NO_ENTRY = 2**31


class StreamPlanner:
    """Knows the topics of a query, and how far they may be read.

    Args:
        pool: The cluster's connections.
        options: What to read.
    """

    def __init__(self, pool: ConnectionPool, options: ReadOptions) -> None:
        self._pool = pool
        self._options = options
        self._lookup = TopicLookup(pool)
        self._positions = PositionLookup(
            pool,
            subscription_prefix=options.reader_subscription_prefix,
            read_compacted=options.read_compacted,
        )
        self._guard = ChunkGuard(
            pool,
            subscription_prefix=options.reader_subscription_prefix,
            expire_s=options.expire_incomplete_chunk_s,
        )
        self._admission = Admission(
            max_rows=options.max_rows_per_trigger,
            max_bytes=options.max_bytes_per_trigger,
        )
        self._initial: StreamOffset | None = None
        # The subscription's name, once the checkpoint has it.
        self._subscription: str | None = None
        self._cursors: Cursors | None = None
        self._topics: list[str] = []
        self._next_discovery_s = 0.0  # by the monotonic clock
        self._target: Mapping[str, MessageId | None] | None = None
        # Where partitions begin that are new, or whose next rows are gone.
        self._starts: dict[str, MessageId] = {}
        self._gone: set[str] = set()
        self._checked: dict[str, MessageId] = {}  # cursors that were found moved
        self._reached: dict[str, MessageId] = {}  # begins that topics have reached
        self._unreached: dict[str, MessageId] = {}  # and those of other topics
        self._last_batch_s = time.monotonic()
        self._idle_offset: StreamOffset | None = None
        self._idle_until_s = 0.0
        self._turn = 0
        self._ends: dict[str, MessageId] = {}
        self._backlogs: dict[str, int] = {}

    # -- what Spark asks ---------------------------------------------------------------

    def initial(self) -> StreamOffset:
        """Where a new query starts: looked up once, however often it is asked for.

        Raises:
            OptionError: Offsets or times do not fit the topics.
            TopicNotFoundError: A topic does not exist.
            DataLossError: A start is no longer there, and ``failOnDataLoss`` is set.
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        if self._initial is None:
            topics = find_topic_partitions(self._lookup, self._options)
            if self._options.start_at_subscription:
                starts = self._subscription_starts(topics)
            else:
                starts = self._optional_starts(topics)
            self._initial = StreamOffset(self._new_name(), starts, starts)
        return self._initial

    def fix_target(self) -> None:
        """Makes what there is now all that will be read.

        Raises:
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        try:
            topics = find_topic_partitions(self._lookup, self._options)
        except TopicNotFoundError:
            # A new query will say so. One that has read the topic has lost it.
            topics = existing_topic_partitions(self._lookup, self._options)
        found = self._existing([topic.full_name for topic in topics])
        self._target = {name: positions.last for name, positions in found.items()}

    def latest(self, start: StreamOffset, *, unlimited: bool = False) -> StreamOffset:
        """How far the next micro-batch goes; ``start`` itself where nothing is new.

        What is before ``start`` was committed by Spark, so it is acknowledged, unless
        it is the start of the query, which nobody has recorded yet.

        Args:
            start: The end of the last micro-batch.
            unlimited: Whether to go as far as there is anything.

        Raises:
            DataLossError: Rows are gone, and ``failOnDataLoss`` is set.
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        began_s = time.monotonic()
        if start == self._idle_offset and began_s < self._idle_until_s:
            return start
        self._guard.chunked |= start.chunked
        if start != self._initial:
            self._settle(start)
        standings = self._visit(self._begins(start))
        begins = {name: self._begin(start, name) for name in standings}
        lasts = {name: self._reachable(name, at.last) for name, at in standings.items()}
        news = {
            name: MessageId(*last.position)
            for name, last in lasts.items()
            if last is not None and _has_news(begins[name], last)
        }
        ends = self._admit(begins, news, unlimited=unlimited)
        self._ends = {name: last or begins[name] for name, last in lasts.items()}
        last_read = {
            name: ends[name] if name in ends else start.last_read[name]
            for name in standings
            if name in ends or name in start.last_read
        }
        if last_read == start.last_read:
            self._rest(start, time.monotonic() - began_s)
            return start
        self._last_batch_s = time.monotonic()
        # The start of the query is in no offset but the ends that follow from it.
        start_after = dict(start.last_read) if start.is_start_of_query else {}
        for name in ends:
            if begins[name] != start.last_read.get(name):
                start_after[name] = begins[name]
        return StreamOffset(
            self._subscription or start.subscription or self._new_name(),
            last_read,
            start_after,
            frozenset(self._guard.chunked),
            still_where_it_began(start, last_read, start_after),
        )

    def _rest(self, start: StreamOffset, took_s: float) -> None:
        """Asks nobody for a while, where asking takes long and there is nothing new."""
        self._idle_offset = start
        self._idle_until_s = time.monotonic()
        if took_s > _LONG_PLAN_S:
            self._idle_until_s += min(_REST * took_s, _LONGEST_REST_S)

    def ranges(self, start: StreamOffset, end: StreamOffset) -> list[TopicRange]:
        """What the micro-batch between two offsets reads, which depends on these alone.

        Where ranges are split, the parts depend on what is stored between the offsets,
        too, see ``client.splits``; the rows do not.

        Spark has recorded ``end``. So this is when the subscription comes into being,
        and no earlier: a query that dies before that leaves nothing behind.

        Raises:
            DataLossError: Rows are gone, and ``failOnDataLoss`` is set.
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        if self._settle(end):
            self._visit({name: end.begin(start, name) for name in end.last_read})
        ranges = self._with_known_starts(batch_ranges(start, end))
        return split_ranges(self._pool, self._options, ranges)

    def _with_known_starts(self, ranges: list[TopicRange]) -> list[TopicRange]:
        """Notes of which ranges the start is stored now, where an executor must know.

        A ledger that was read to its end may be gone when a task comes to it, one with
        rows to come may not. So that is asked where a range begins in another ledger
        than it ends, unless nothing protects it.
        """
        options = self._options
        if options.read_compacted or not options.ack_on_commit:
            return ranges
        asked = {
            range_.topic_partition: MessageId(range_.start.ledger_id, _NO_ENTRY)
            for range_ in ranges
            if 0 <= range_.start.ledger_id < range_.end.ledger_id
        }
        found = self._positions.from_message_ids(asked, absent_ok=True)
        return [
            replace(range_, is_start_known=True)
            if (at := found.get(range_.topic_partition)) is not None
            and at.before.ledger_id == range_.start.ledger_id
            and at.before.position >= range_.start.position
            else range_
            for range_ in ranges
        ]

    def commit(self, end: StreamOffset) -> None:
        """Acknowledges what Spark has committed, where that was not done yet."""
        if self._subscription is not None and self._cursors is not None:
            self._cursors.acknowledge(end.last_read)

    def progress(self) -> dict[str, Any] | None:
        """Where the topics end, and what the last micro-batch planned leaves of them.

        Returns:
            ``latest`` (message ids) and ``backlogEntries`` (numbers of stored entries),
            both by topic and partition number; None before the first plan.
        """
        if not self._ends:
            return None
        backlogs = {name: self._backlogs.get(name, 0) for name in self._ends}
        return {
            "v": 1,
            "latest": position_tree(self._ends),
            "backlogEntries": topic_tree(backlogs),
        }

    def stop(self) -> None:
        """Lets go of the subscription; deletes it where that is wanted."""
        cursors, self._cursors = self._cursors, None
        if cursors is None:
            return
        if self._options.delete_subscription_on_stop:
            cursors.delete()
        else:
            cursors.close()

    # -- starts ------------------------------------------------------------------------

    def _optional_starts(self, topics: list[TopicName]) -> dict[str, MessageId]:
        """What ``startingOffsets`` and ``startingTime`` say."""
        offsets = assign_offsets(
            self._options.starting_offsets, topics, option="startingOffsets"
        )
        starts = find_starts(self._positions, self._options, topics, offsets)
        return {
            topic.full_name: position_before(starts[topic.full_name].first)
            for topic in topics
        }

    def _subscription_starts(self, topics: list[TopicName]) -> dict[str, MessageId]:
        """Where the predefined subscription stands, to the message."""
        cursors = self._make_cursors(self._new_name(), durable=True, must_exist=True)
        try:
            nothing_read = {topic.full_name: EARLIEST for topic in topics}
            found = cursors.visit(nothing_read)
            starts = {name: at.cursor for name, at in found.items() if at is not None}
            waiting = {
                name: at.cursor
                for name, at in found.items()
                if at is not None and at.last and _has_news(at.cursor, at.last)
            }
            for name, ahead in cursors.look(waiting).items():
                if ahead and ahead[0].first_index > 0:
                    starts[name] = MessageId(
                        *ahead[0].position, ahead[0].first_index - 1
                    )
        finally:
            cursors.close()
        return starts

    # -- the subscription --------------------------------------------------------------

    def _new_name(self) -> str:
        options = self._options
        return (
            options.predefined_subscription
            or f"{options.subscription_prefix}-{uuid.uuid4()}"
        )

    def _settle(self, offset: StreamOffset) -> bool:
        """Takes the subscription's name from an offset that Spark has recorded.

        Returns:
            Whether that was news.
        """
        name = self._options.predefined_subscription or offset.subscription
        # A checkpoint of the Scala connector has none. The end that follows from it
        # will: one that no offset has would be left behind by each run that ends first.
        if self._subscription is not None or not name:
            return False
        self._subscription = name
        if self._options.ack_on_commit:
            if self._cursors is not None:
                self._cursors.close()
            self._cursors = self._make_cursors(name, durable=True)
        return True

    def _make_cursors(
        self, name: str, *, durable: bool, must_exist: bool = False
    ) -> Cursors:
        is_ours = self._initial is not None and self._initial.subscription == name
        return Cursors(
            self._pool,
            name,
            durable=durable,
            is_new=is_ours and self._options.predefined_subscription is None,
            must_exist=must_exist,
            read_compacted=self._options.read_compacted,
            patience_s=self._options.poll_timeout_s,
            on_seen=self._observe,
            guard=self._guard,
        )

    def _watch(self) -> Cursors:
        """The query's consumers: at first ones that leave no trace."""
        if self._cursors is None:
            # The query's own name is for the durable ones: the two kinds cannot share.
            name = f"{self._options.reader_subscription_prefix}-{uuid.uuid4()}"
            self._cursors = self._make_cursors(name, durable=False)
        return self._cursors

    # -- topic partitions --------------------------------------------------------------

    def _begins(self, start: StreamOffset) -> dict[str, MessageId]:
        """The position after which each topic partition goes on."""
        self._discover()
        known = set(self._topics)
        names = self._topics + [
            name
            for name in start.last_read
            if name not in known and self._is_asked_for(name)
        ]
        new = [n for n in names if n not in start.last_read and n not in self._starts]
        # What is found while a query runs is read from its first row on.
        found = self._existing(new)
        self._starts.update({name: at.before for name, at in found.items()})
        gone = {*new} - {*found}
        return {name: self._begin(start, name) for name in names if name not in gone}

    def _existing(self, names: list[str]) -> dict[str, TopicPositions]:
        """Where those topic partitions begin and end that are there.

        Raises:
            DataLossError: Some are gone since they were found, and ``failOnDataLoss``
                is set.
        """
        found = self._positions.from_message_ids(
            dict.fromkeys(names, EARLIEST), absent_ok=True
        )
        for name in names:
            if name not in found:
                self._report_gone(name, EARLIEST)
        return found

    def _begin(self, start: StreamOffset, name: str) -> MessageId:
        places = [start.last_read.get(name), self._starts.get(name)]
        if places[0] == self._unreached.get(name):
            del places[0]
        known = [place for place in places if place is not None]
        return max(known, key=lambda at: (at.position, at.batch_index))

    def _discover(self) -> None:
        if self._target is not None:
            self._topics = [name for name in self._target if name not in self._gone]
        elif time.monotonic() >= self._next_discovery_s:
            found = existing_topic_partitions(self._lookup, self._options)
            self._topics = [topic.full_name for topic in found]
            interval_s = self._options.partition_discovery_interval_s
            self._next_discovery_s = time.monotonic() + interval_s

    def _is_asked_for(self, name: str) -> bool:
        """Whether the options, which may have changed since, still mean a topic."""
        if self._options.topics_pattern is not None:
            return self._options.topics_pattern.matches(name)
        topic = TopicName.parse(name)
        return topic in self._options.topics or topic.base in self._options.topics

    def _visit(self, begins: Mapping[str, MessageId]) -> dict[str, Standing]:
        """Where the topic partitions stand, those that are there.

        Raises:
            DataLossError: Rows that come next are gone, and ``failOnDataLoss`` is set.
        """
        standings = {}
        cursors = self._watch()
        try:
            for name, standing in cursors.visit(begins).items():
                if standing is None:
                    self._report_gone(name, begins[name])
                else:
                    standings[name] = standing
                    self._gone.discard(name)
            if not self._options.read_compacted:
                self._check_begins(begins, standings)
                self._check_reached(begins, standings)
        except PulsarSparkError:
            cursors.take_back()
            raise
        cursors.confirm()
        return standings

    def _check_begins(
        self, begins: Mapping[str, MessageId], standings: Mapping[str, Standing]
    ) -> None:
        """Looks for rows that are gone where a cursor is further than the query.

        We never acknowledge what was not read, so somebody else has moved it:
        retention, expiry, a person, or it was made anew. Where its topic still reaches
        back to the query's place nothing is lost: rows are read by id, not by cursor.
        """
        moved = [
            name
            for name, standing in standings.items()
            if begins[name] != EARLIEST
            and standing.cursor != self._checked.get(name)
            and standing.cursor.position >= position_after(begins[name]).position
        ]
        firsts = self._positions.from_message_ids(
            dict.fromkeys(moved, EARLIEST), absent_ok=True
        )
        for name, found in firsts.items():
            wanted = position_after(begins[name])
            self._checked[name] = standings[name].cursor
            if found.before.position < wanted.position:
                continue
            # A broker moves a cursor that is done with a whole ledger to the beginning
            # of the next one when that is opened. Then it may trim the ledger.
            is_read = (
                standings[name].is_kept
                and found.before.entry_id < 0
                and found.before.position == standings[name].cursor.position
                and not self._had_more(name, begins[name])
            )
            if not is_read:
                check_start(
                    name,
                    wanted,
                    found,
                    fail_on_data_loss=self._options.fail_on_data_loss,
                )
            self._starts[name] = found.before

    def _check_reached(
        self, begins: Mapping[str, MessageId], standings: Mapping[str, Standing]
    ) -> None:
        """Looks for places that their topics have never reached.

        The query would wait there for ever, without a word, and pass over every row.
        What was read is behind what can be read now where all of it has been removed
        since. So it is asked how far the topic was written, of which removal takes
        nothing, nor does a transaction that is open.
        """
        doubtful = {
            name: begins[name]
            for name, standing in standings.items()
            # What does not exist, or not yet, has reached nothing.
            if standing.cursor != EARLIEST
            and begins[name].position > standing.cursor.position
            and (
                standing.last is None or begins[name].position > standing.last.position
            )
            and begins[name] != self._reached.get(name)
        }
        firsts, lasts = (
            self._positions.from_message_ids(
                dict.fromkeys(doubtful, edge), absent_ok=True
            )
            for edge in (EARLIEST, LATEST)
        )
        for name in firsts.keys() & lasts.keys():
            begin = doubtful[name]
            # An empty ledger whose predecessors were removed comes after all of them.
            reached = max(firsts[name].before, lasts[name].before, key=_position)
            if reached.position >= begin.position:
                self._reached[name] = begin
                continue
            self._report_unreached(name, begin, reached)
            self._unreached[name] = begin
            self._starts[name] = firsts[name].before

    def _report_unreached(
        self, name: str, begin: MessageId, reached: MessageId
    ) -> None:
        message = (
            f"{name}: the query should go on after {begin}, which the topic has never "
            f"reached: it ends at {reached}. Is it a topic of another cluster, or one "
            "that was restored or made anew? Then the query needs a new checkpoint "
            "location. In a new query, correct `startingOffsets`."
        )
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{message} Set `failOnDataLoss` to false to read it from its first "
                "row on.",
                topic_partition=name,
                wanted=str(position_after(begin)),
                available=str(reached),
            )
        logger.warning(
            "[PULSAR_DATA_LOSS] %s It is read from its first row on.", message
        )

    def _had_more(self, name: str, begin: MessageId) -> bool:
        """Whether the ledger of this position is known to have had rows after it."""
        end = self._ends.get(name, begin)
        return end.ledger_id == begin.ledger_id and end.entry_id > begin.entry_id

    def _report_gone(self, name: str, begin: MessageId) -> None:
        wanted = position_after(begin)
        message = f"{name} is gone: it was deleted, " + (
            "before the query has read any of it."
            if begin == EARLIEST
            else f"though the query has read it only up to {begin} and wanted {wanted} "
            "next. Nothing of it is available."
        )
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{message} Set `failOnDataLoss` to false to go on without it; if it "
                "is created again, it is then read from its first row on.",
                topic_partition=name,
                wanted=str(wanted),
                available="",
            )
        self._starts.pop(name, None)
        self._topics = [topic for topic in self._topics if topic != name]
        if name not in self._gone:
            self._gone.add(name)
            logger.warning("[PULSAR_DATA_LOSS] %s Going on without it.", message)

    def _reachable(self, name: str, last: MessageId | None) -> MessageId | None:
        """The last message that may be read now."""
        if self._target is None or last is None:
            return last
        target = self._target.get(name)
        return None if target is None else min(last, target, key=_position)

    # -- admission control -------------------------------------------------------------

    def _admit(
        self,
        begins: Mapping[str, MessageId],
        lasts: Mapping[str, MessageId],
        *,
        unlimited: bool,
    ) -> dict[str, MessageId]:
        """The end of the micro-batch in each topic partition that takes part in it."""
        options = self._options
        self._backlogs = {}
        limits = (
            options.max_rows_per_trigger,
            options.max_bytes_per_trigger,
            options.min_rows_per_trigger,
        )
        if unlimited or not lasts or limits == (None, None, None):
            return dict(lasts)
        waiting, guessed = self._waiting(begins, lasts)
        ahead = self._look(begins, lasts)
        backlogs = {
            name: Backlog(
                TopicName.parse(name).base.full_name,
                waiting[name],
                tuple(entry.size for entry in ahead.get(name, ())),
            )
            for name in lasts
        }
        self._backlogs = waiting
        if self._is_too_little(backlogs):
            return {}
        ends = {}
        for name, entries in self._admission.admit(backlogs).items():
            if entries:
                takes_all = entries >= waiting[name] and name not in guessed
                ends[name] = _end(
                    begins[name],
                    lasts[name],
                    None if takes_all else entries,
                    ahead.get(name, ()),
                )
                waiting[name] -= entries
        return ends | self._existing_ends(begins, ends, lasts)

    def _existing_ends(
        self,
        begins: Mapping[str, MessageId],
        ends: Mapping[str, MessageId],
        lasts: Mapping[str, MessageId],
    ) -> dict[str, MessageId]:
        """The last entries at or before computed ends, where a ledger may end earlier.

        A cursor that is told an id behind the end of a ledger counts the backlog wrong.
        """
        unsure = {
            name: position_after(end)
            for name, end in ends.items()
            if end.ledger_id != lasts[name].ledger_id
        }
        return {
            name: found.before
            for name, found in self._positions.from_message_ids(unsure).items()
            if begins[name].position < found.before.position < ends[name].position
        }

    def _is_too_little(self, backlogs: Mapping[str, Backlog]) -> bool:
        """Whether to wait for more rows."""
        minimum = self._options.min_rows_per_trigger
        if minimum is None or self._target is not None:
            return False
        waited_s = time.monotonic() - self._last_batch_s
        if waited_s >= self._options.max_trigger_delay_s:
            return False
        return self._admission.rows(backlogs) < minimum

    def _waiting(
        self, begins: Mapping[str, MessageId], lasts: Mapping[str, MessageId]
    ) -> tuple[dict[str, int], set[str]]:
        """The number of entries to come in each topic partition, about.

        And those topic partitions of which there may be many more, for all we know.
        """
        waiting = {}
        elsewhere = []
        for name, last in lasts.items():
            if begins[name].ledger_id == last.ledger_id:
                entries = last.entry_id - begins[name].entry_id
                waiting[name] = entries + (begins[name].batch_index >= 0)
            else:
                elsewhere.append(name)
        counted = self._watch().waiting(elsewhere) if elsewhere else {}
        for name in elsewhere:
            waiting[name] = max(1, counted.get(name, lasts[name].entry_id + 1))
        return waiting, {*elsewhere} - {*counted}

    def _look(
        self, begins: Mapping[str, MessageId], lasts: Mapping[str, MessageId]
    ) -> dict[str, tuple[SeenEntry, ...]]:
        """The next entries of some topic partitions.

        Where the next entry lies in another ledger, its place cannot be computed.
        """
        crossing = [n for n in lasts if begins[n].ledger_id != lasts[n].ledger_id]
        others = [n for n in lasts if begins[n].ledger_id == lasts[n].ledger_id]
        turn = self._turn % len(others) if others else 0
        self._turn += _LOOKS
        chosen = crossing + (others[turn:] + others[:turn])[:_LOOKS]
        return self._watch().look({name: begins[name] for name in chosen})

    def _observe(self, name: str, size: EntrySize) -> None:
        self._admission.observe(TopicName.parse(name).base.full_name, size)


def _position(message_id: MessageId) -> tuple[int, int]:
    return message_id.position


def _has_news(begin: MessageId, last: MessageId) -> bool:
    """Whether ``last`` comes after the last message read."""
    if last.position != begin.position:
        return last.position > begin.position
    return 0 <= begin.batch_index < last.batch_index


def _end(
    begin: MessageId,
    last: MessageId,
    entries: int | None,
    ahead: tuple[SeenEntry, ...],
) -> MessageId:
    """The end of so many entries after ``begin``; all up to ``last`` for None.

    Numbers of entries may have holes, and a ledger may end before that many. Then there
    are fewer, which the next micro-batch makes good.
    """
    if entries is None:
        return last
    if entries <= len(ahead):
        end = MessageId(*ahead[entries - 1].position)
    elif ahead or begin.ledger_id == last.ledger_id:
        ledger_id, entry_id = ahead[-1].position if ahead else begin.position
        end = MessageId(ledger_id, entry_id + entries - len(ahead))
    else:
        # Nobody could tell where the next entry is. Most often it begins the last
        # ledger; if there are others before that, the micro-batch is larger.
        end = MessageId(last.ledger_id, entries - 1)
    return min(end, last, key=_position)
