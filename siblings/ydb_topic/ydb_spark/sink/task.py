# SPDX-License-Identifier: Apache-2.0
"""The loop of a writing task: RecordBatches -> stored messages. On executors.

::

    RecordBatch -> rows -> by partition -> requests -> WriteSession -> answers
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field

import pyarrow as pa

from spark_topics.statistics import Kind, TaskStatistics, Totals
from ydb_spark.arrow.rows import Row, rows_of
from ydb_spark.client.channel import Channel
from ydb_spark.client.write_session import SessionSettings, WriteSession
from ydb_spark.options.write import WriteOptions
from ydb_spark.sink.numbers import (
    is_unknown,
    producer_of,
    require_not_later,
    seq_no_of,
)
from ydb_spark.sink.places import Place, Places, require_codec
from ydb_spark.sink.target import Done, Target
from ydb_spark.system import SYSTEM
from ydb_spark.wire.codecs import encoder

logger = SYSTEM.logger("sink")

_WRITING = Kind("written", "encoding and sending", logger=SYSTEM.logger("spark"))

#: So many sessions of groups are open at once; each has a stream and a thread.
MAX_OPEN_GROUPS = 64


@dataclass(frozen=True)
class WriteSummary:
    """What a task wrote.

    Attributes:
        written: Rows that were stored now.
        skipped: Rows that the server had before.
        written_in_tx: Rows that are to be stored with a transaction.
        size_bytes: Size of the bodies as they were sent.
        partitions: Of the topic, that rows went to.
        quota_wait_s: How long the server held rows back for the sake of quotas.
        created: What tells the topic from others of its name; "" where that is not
            known.
    """

    written: int = 0
    skipped: int = 0
    written_in_tx: int = 0
    size_bytes: int = 0
    partitions: frozenset[int] = field(default_factory=frozenset)
    quota_wait_s: float = 0.0
    created: str = ""

    @property
    def rows(self) -> int:
        """Return the number of rows in the topic, whichever attempt stored them."""
        return self.written + self.skipped + self.written_in_tx


class TaskWriter:
    """Writes the rows of a task, a single time. Opens nothing before there is a row.

    Args:
        channel: Makes the channel.
        options: How to write.
        number: The input partition's, from 0.
        batch_id: The micro-batch; 0 in a batch query.
        id_: Begins the names of producers; None where repetitions are stored again.
    """

    def __init__(
        self,
        channel: Callable[[], Channel],
        options: WriteOptions,
        number: int,
        *,
        batch_id: int = 0,
        id_: str | None = None,
    ) -> None:
        self._options = options
        self._places = Places(channel, options)
        self._number = number
        self._batch_id = batch_id
        self._id = id_
        self._encode = encoder(options.codec)
        #: By partition, by group, or one for all: the one last written to at the end.
        self._targets: dict[Place, Target] = {}
        self._ended = Done()
        self._sessions = 0
        self._size_bytes = 0
        self._statistics = TaskStatistics(
            _WRITING, f"task {number}", options.stats_interval_s, self._refresh
        )

    def write(self, batches: Iterable[pa.RecordBatch]) -> WriteSummary:
        """Send all rows; return when all are answered.

        Raises:
            BadRowError: A row that cannot be written.
            DataLossError: The topic was dropped and made again in the meantime.
            IdempotenceError: A later micro-batch was written before.
            YdbError: The server refuses, or does not answer in time.
        """
        rows = 0
        try:
            for batch in self._timed(batches):
                for row in rows_of(batch, rows):
                    self._add(row)
                rows += batch.num_rows
                for target in self._targets.values():
                    target.cut()
                self._limit()
            for target in self._targets.values():
                target.session.close()
            self._require_same_topic()
            return self._summary()
        finally:
            self._statistics.end()
            for target in self._targets.values():
                target.session.cancel()

    def _timed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        asked = time.monotonic()
        for batch in batches:
            self._statistics.totals.spark_s += time.monotonic() - asked
            yield batch
            self._statistics.count()
            asked = time.monotonic()

    def _add(self, row: Row) -> None:
        place = self._places.of(row)
        target = self._targets.get(place)
        if target is None:
            self._make_room(place)
            target = self._targets[place] = self._open(place)
        elif isinstance(place, str):
            self._targets[place] = self._targets.pop(place)
        body = row.body if self._encode is None else self._encode(row.body)
        self._size_bytes += len(body)
        number = target.next_number()
        if self._id is not None:
            number = seq_no_of(self._batch_id, row.number)
            if number <= target.session.last_seq_no:
                target.skipped += 1
                return
        if target.add(row, number, body) >= self._options.max_request_bytes:
            target.cut()
            self._limit()

    def _limit(self) -> None:
        """Wait until no more is unanswered than may be."""
        most = self._options.max_inflight_bytes
        while sum(t.session.unacked_bytes for t in self._targets.values()) > most:
            fullest = max(
                (target.session for target in self._targets.values()),
                key=lambda session: session.unacked_bytes,
            )
            fullest.wait(max(fullest.unacked_bytes - 1, 1))

    # -- Sessions ----------------------------------------------------------------------

    def _make_room(self, place: Place) -> None:
        """End the session of the group that had no row for the longest time."""
        if not isinstance(place, str) or len(self._targets) < MAX_OPEN_GROUPS:
            return
        first = next(iter(self._targets))
        target = self._targets[first]
        target.cut()
        target.session.close()
        self._ended.add(self._targets.pop(first))

    def _open(self, place: Place) -> Target:
        options = self._options
        self._places.require_open(place)
        partition = place if isinstance(place, int) else None
        producer = place if isinstance(place, str) else ""
        if self._id is not None:
            producer = producer_of(self._id, self._number, partition)
        settings = SessionSettings(
            options.topic,
            producer,
            is_group=isinstance(place, str),
            partition=partition,
            session_meta=dict(options.session_meta),
            timeout_s=options.send_timeout_s,
        )
        session = WriteSession(
            self._places.channel,
            settings,
            lambda error: self._places.explain(error, place),
        )
        self._sessions += 1
        try:
            session.open()
            if self._id is not None:
                require_not_later(session.last_seq_no, self._batch_id, producer)
                if is_unknown(session.last_seq_no, self._batch_id):
                    self._warn_of_unknown(producer)
            require_codec(session.codecs, options)
        except BaseException:
            session.cancel()
            raise
        return Target(session, options.codec)

    def _warn_of_unknown(self, producer: str) -> None:
        logger.warning(
            "The server knows no row of %s in %s, and this is micro-batch %d. Either"
            " these are the first rows of that producer, or it wrote nothing for weeks"
            " and was forgotten: then what an earlier attempt of this micro-batch"
            " stored is stored again.",
            producer,
            self._options.topic,
            self._batch_id,
        )

    def _require_same_topic(self) -> None:
        """Check that all rows are in the same topic.

        What one stream was told is so of one topic; between two of them there may have
        been another.

        Raises:
            DataLossError: It was dropped and made again in the meantime.
            YdbError: There is none of its name any more, or no answer.
        """
        if self._sessions + self._so_far().reconnects > 1:
            self._places.require_same_topic()

    # -- How it went -------------------------------------------------------------------

    def _summary(self) -> WriteSummary:
        so_far = self._so_far()
        acked = so_far.acked
        return WriteSummary(
            acked.written,
            acked.skipped,
            acked.written_in_tx,
            self._size_bytes,
            frozenset(so_far.partitions),
            acked.quota_wait_s,
            self._places.created,
        )

    def _so_far(self) -> Done:
        """Return the totals of all sessions, including open sessions."""
        total = deepcopy(self._ended)
        for target in self._targets.values():
            total.add(target)
        return total

    def _refresh(self, totals: Totals) -> None:
        so_far = self._so_far()
        totals.rows = so_far.acked.messages
        totals.size_bytes = self._size_bytes
        totals.duplicate_rows = so_far.acked.skipped
        totals.broker_s = so_far.waited_s
        totals.reconnects = so_far.reconnects
