# SPDX-License-Identifier: Apache-2.0
"""Find out whether rows that a stream has yet to read are gone from Pulsar.

Each visit checks two things, only where there is a doubt, by what brokers say of
readers placed at the ends of a topic partition::

    the cursor is ahead         query      7:2      8:-1 cursor
    of the query                           |--------|         gone, or was all read?

    the query is ahead          cursor     7:4      9:3  query
    of its topic                           |--------|         was it ever so long?
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Mapping

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.positions import PositionLookup
from pulsar_spark.errors import DataLossError
from pulsar_spark.message_id import EARLIEST, LATEST, MessageId
from pulsar_spark.source.plan.held_back import passes_over
from pulsar_spark.source.plan.ranges import check_start
from pulsar_spark.source.plan.starts import without_loss
from pulsar_spark.source.stream.last_read import NOTHING_READ, LastRead
from pulsar_spark.source.stream.subscription import CursorStatus

logger = logging.getLogger("pulsar_spark.source")


class LossCheck:
    """Compares the positions of a query with the rows that are still stored.

    Args:
        pool: The cluster's connections.
        positions: Asks brokers where topic partitions begin and end.
        fail_on_data_loss: Whether a loss is an error or a warning.

    Attributes:
        unprotected: Topic partitions with rows between the query and a cursor that is
            ahead, as the last check of each found. Retention may take these rows.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        positions: PositionLookup,
        *,
        fail_on_data_loss: bool,
    ) -> None:
        self.unprotected: set[str] = set()
        self._pool = pool
        self._positions = positions
        self._fail_on_data_loss = fail_on_data_loss
        self._checked: dict[str, LastRead] = {}  # cursors moved over nothing
        # Positions and cursors with rows between them.
        self._between: dict[str, tuple[LastRead, LastRead]] = {}
        self._reached: dict[str, LastRead] = {}  # begins that topics have reached

    def resume(
        self,
        begins: Mapping[str, LastRead],
        found: Mapping[str, CursorStatus],
        ends: Mapping[str, LastRead],
    ) -> dict[str, LastRead]:
        """Return where reading goes on elsewhere than asked, since rows are gone.

        Args:
            begins: The position that each topic partition was read up to.
            found: What a visit of these found.
            ends: The last message of topic partitions, as it was seen before that.

        Raises:
            DataLossError: Rows that come next are gone, and that is an error.
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        passed = self._passed(begins, found, ends)
        return passed | self.unreached(begins, found)

    def _passed(
        self,
        begins: Mapping[str, LastRead],
        found: Mapping[str, CursorStatus],
        ends: Mapping[str, LastRead],
    ) -> dict[str, LastRead]:
        """Return where to go on in topics whose rows at the query's position are gone.

        We never acknowledge what was not read, so a cursor that is further than the
        query was moved by others: retention, expiry, a person, or it was created
        again. Where its topic still reaches back to the query's position nothing is
        lost: rows are read by id, not by cursor.
        """
        moved = [
            name
            for name, status in found.items()
            if begins[name] != NOTHING_READ
            and status.cursor != self._checked.get(name)
            and status.cursor.position >= begins[name].next().position
        ]
        firsts = self._positions.from_message_ids(
            dict.fromkeys(moved, EARLIEST), absent_ok=True
        )
        gone = {
            name: first
            for name, first in firsts.items()
            if first.before.position >= begins[name].next().position
        }
        # A ledger that goes as a whole may have had nothing to read any more.
        whole = [
            name
            for name, first in gone.items()
            if first.before.entry_id < 0 and not _had_more(begins[name], ends.get(name))
        ]
        # A broker moves a cursor that is done with a whole ledger to the beginning of
        # the next one when that is opened. Then it may trim the ledger.
        kept = {n for n in whole if found[n].is_kept and n not in self.unprotected}
        was_read = {
            name
            for name in kept
            if gone[name].before.position == found[name].cursor.position
        }
        # What is not kept is gone with its rows, unless there were none.
        unkept = {
            name: _first_wanted(begins[name]) for name in whole if name not in kept
        }
        nothing_lost = was_read | without_loss(self._positions, unkept, gone)
        for name in gone.keys() - nothing_lost:
            check_start(
                name,
                begins[name].next(),
                gone[name],
                fail_on_data_loss=self._fail_on_data_loss,
            )
        resumed = {name: LastRead.of(first.before) for name, first in gone.items()}
        afters = {name: resumed.get(name, begins[name]) for name in firsts}
        cursors = {name: found[name].cursor for name in firsts}
        same = {
            name
            for name in self.unprotected & firsts.keys()
            if self._between.get(name) == (afters[name], cursors[name])
        }
        self.unprotected -= found.keys() - same
        self.unprotected |= self._skipped(
            afters, {name: cursors[name] for name in firsts.keys() - same}
        )
        for name in firsts.keys() - self.unprotected:
            self._checked[name] = found[name].cursor
        return resumed

    def _skipped(
        self, afters: Mapping[str, LastRead], cursors: Mapping[str, LastRead]
    ) -> set[str]:
        """Return the topic partitions with rows from a position up to a cursor."""
        places = self._positions.from_message_ids(
            {name: cursor.next() for name, cursor in cursors.items()}, absent_ok=True
        )
        between = {
            name: place.before
            for name, place in places.items()
            if place.before.position >= afters[name].next().position
        }
        # A broker moves a cursor over aborted rows as soon as the cursor is there.
        passed = passes_over(
            self._pool,
            {name: afters[name].whole_entry for name in between},
            between,
            self._positions.retry(),
        )
        for name in between.keys() - passed.keys():
            self._between[name] = afters[name], cursors[name]
        return {name for name in between if not passed.get(name)}

    def unreached(
        self, begins: Mapping[str, LastRead], found: Mapping[str, CursorStatus]
    ) -> dict[str, LastRead]:
        """Return where to go on in topics that never reached the query's position.

        The query would wait there for ever, silently, and skip every row. It is also
        ahead of what can be read where all that it read has been removed since. So
        brokers are asked how far the topic was ever written, which neither removal nor
        an open transaction reduces.
        """
        doubtful = {
            name: begins[name]
            for name, status in found.items()
            # What does not exist, or not yet, has reached nothing.
            if status.cursor != NOTHING_READ
            and begins[name].position > status.cursor.position
            and (status.last is None or begins[name].position > status.last.position)
            and begins[name] != self._reached.get(name)
        }
        firsts, lasts = (
            self._positions.from_message_ids(
                dict.fromkeys(doubtful, edge), absent_ok=True
            )
            for edge in (EARLIEST, LATEST)
        )
        resumed = {}
        for name in firsts.keys() & lasts.keys():
            begin = doubtful[name]
            # An empty ledger whose predecessors were removed comes after all of them.
            reached = max(
                firsts[name].before,
                lasts[name].before,
                key=operator.attrgetter("position"),
            )
            if reached.position >= begin.position:
                self._reached[name] = begin
                continue
            self._report(name, begin, reached)
            resumed[name] = LastRead.of(firsts[name].before)
        return resumed

    def _report(self, name: str, begin: LastRead, reached: MessageId) -> None:
        message = (
            f"{name}: the query should go on after {begin}, which the topic has never "
            f"reached: it ends at {reached}. Is it a topic of another cluster, or one "
            "that was restored or made anew? Then the query needs a new checkpoint "
            "location. In a new query, correct `startingOffsets`."
        )
        if self._fail_on_data_loss:
            raise DataLossError(
                f"{message} Set `failOnDataLoss` to false to read it from its first "
                "row on.",
                topic_partition=name,
                wanted=str(begin.next()),
                available=str(reached),
            )
        logger.warning(
            "[PULSAR_DATA_LOSS] %s It is read from its first row on.", message
        )


def _first_wanted(begin: LastRead) -> MessageId:
    """Return the position to read next, "12:-1" for that of a ledger without rows."""
    return begin.message_id if begin.entry_id < 0 else begin.next()


def _had_more(begin: LastRead, end: LastRead | None) -> bool:
    """Return whether the ledger of this position is known to have had more rows."""
    return (
        end is not None
        and end.ledger_id == begin.ledger_id
        and end.entry_id > begin.entry_id
    )
