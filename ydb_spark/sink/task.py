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
from typing import TypeAlias

import pyarrow as pa

from spark_topics.statistics import Kind, TaskStatistics, Totals
from ydb_spark.arrow.hashing import partition_of
from ydb_spark.arrow.rows import Row, rows_of
from ydb_spark.client.channel import Channel
from ydb_spark.client.topics import TopicInfo, describe_topic
from ydb_spark.client.write_session import SessionSettings, WriteSession
from ydb_spark.errors import (
    BadRowError,
    InactivePartitionError,
    OptionError,
    ServerError,
    TakenOverError,
    YdbError,
)
from ydb_spark.options.write import Partitioning, WriteOptions
from ydb_spark.sink.numbers import (
    is_unknown,
    producer_of,
    require_not_later,
    seq_no_of,
)
from ydb_spark.sink.target import Done, Target
from ydb_spark.system import SYSTEM
from ydb_spark.wire.codecs import codec_name, encoder
from ydb_spark.wire.writes import MAX_PRODUCER_CHARACTERS

logger = SYSTEM.logger("sink")

_WRITING = Kind("written", "encoding and sending", logger=SYSTEM.logger("spark"))

#: So many sessions of groups are open at once; each has a stream and a thread.
MAX_OPEN_GROUPS = 64

#: A partition, a group, or what the server chooses.
_Place: TypeAlias = int | str | None


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
    """

    written: int = 0
    skipped: int = 0
    written_in_tx: int = 0
    size_bytes: int = 0
    partitions: frozenset[int] = field(default_factory=frozenset)
    quota_wait_s: float = 0.0

    @property
    def rows(self) -> int:
        """Return how many rows are in the topic, whoever stored them."""
        return self.written + self.skipped + self.written_in_tx


class TaskWriter:
    """Writes the rows of one task, once. Opens nothing before there is a row.

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
        self._make_channel = channel
        self._channel: Channel | None = None
        self._options = options
        self._number = number
        self._batch_id = batch_id
        self._id = id_
        self._encode = encoder(options.codec)
        #: By partition, by group, or one for all: the one last written to at the end.
        self._targets: dict[_Place, Target] = {}
        self._ended = Done()
        self._topic: TopicInfo | None = None
        self._size_bytes = 0
        self._statistics = TaskStatistics(
            _WRITING, f"task {number}", options.stats_interval_s, self._refresh
        )

    def write(self, batches: Iterable[pa.RecordBatch]) -> WriteSummary:
        """Send all rows; return when all are answered.

        Raises:
            BadRowError: A row that cannot be written.
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
        place = self._route(row)
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

    # -- Where to ----------------------------------------------------------------------

    def _make_room(self, place: _Place) -> None:
        """End the session of the group that had no row for the longest time."""
        if not isinstance(place, str) or len(self._targets) < MAX_OPEN_GROUPS:
            return
        first = next(iter(self._targets))
        target = self._targets[first]
        target.cut()
        target.session.close()
        self._ended.add(self._targets.pop(first))

    def _route(self, row: Row) -> _Place:
        how = self._options.partitioning
        if how is Partitioning.SERVER:
            return None
        if how is Partitioning.PARTITION_ID:
            if row.partition is None:
                raise BadRowError(
                    f"Row {row.number} of its task has no partition_id, which"
                    " partitioning=partition_id needs: it is null."
                )
            return row.partition
        if how is Partitioning.MESSAGE_GROUP_ID:
            return _checked_group(row)
        if row.key is None:
            raise BadRowError(
                f"Row {row.number} of its task has no key, which partitioning=key"
                " needs: it is null."
            )
        active = self._describe().active
        return active[partition_of(row.key, len(active))].number

    def _describe(self) -> TopicInfo:
        if self._topic is None:
            assert self._channel is not None or self._make_channel is not None
            self._topic = describe_topic(
                self._own_channel(), self._options.topic, with_offsets=False
            )
            require_fixed_size(self._topic, self._options)
        return self._topic

    def _own_channel(self) -> Channel:
        if self._channel is None:
            self._channel = self._make_channel()
        return self._channel

    def _open(self, place: _Place) -> Target:
        options = self._options
        is_group = isinstance(place, str)
        partition = place if isinstance(place, int) else None
        if partition is not None:
            self._require_active(partition)
        producer = place if isinstance(place, str) else ""
        if self._id is not None:
            producer = producer_of(self._id, self._number, partition)
        settings = SessionSettings(
            options.topic,
            producer,
            is_group=is_group,
            partition=partition,
            session_meta=dict(options.session_meta),
            timeout_s=options.send_timeout_s,
        )

        def explain(error: YdbError) -> YdbError:
            if is_group and isinstance(error, TakenOverError):
                return _two_of_a_group(error)
            return self._explained(error, partition)

        session = WriteSession(self._own_channel(), settings, explain)
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

    def _require_active(self, partition: int) -> None:
        problem = self._inactive(partition)
        if problem is not None:
            raise problem

    def _inactive(self, partition: int) -> YdbError | None:
        """Return what is wrong with a partition that rows name; None for nothing."""
        found = self._describe().partitions.get(partition)
        path = self._options.topic
        if found is None:
            return BadRowError(
                f"Rows name partition {partition}, which {path} does not have: it has"
                f" {sorted(self._describe().partitions)}."
            )
        if found.is_active:
            return None
        return InactivePartitionError(
            f"Partition {partition} of {path} takes no more rows: it was split or"
            f" merged, and became {list(found.children)}. Name these in partition_id,"
            " or let the server choose: partitioning=server.",
            status="OVERLOADED",
        )

    def _explained(self, error: YdbError, partition: int | None) -> YdbError:
        """Return why the server does not take a partition, if that is for good."""
        if partition is None or not isinstance(error, ServerError):
            return error
        if error.status not in ("OVERLOADED", "UNAVAILABLE"):
            return error
        self._topic = None
        try:
            return self._inactive(partition) or error
        except YdbError as unknown:
            logger.debug("%s", unknown)
            return error

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
        )

    def _so_far(self) -> Done:
        """Return what all sessions did, those that are open, too."""
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


def _checked_group(row: Row) -> str:
    """Return the group of a row.

    Raises:
        BadRowError: It has none, or none that the server takes.
    """
    if not row.group:
        raise BadRowError(
            f"Row {row.number} of its task has no message_group_id, which"
            " partitioning=message_group_id needs: it is null or empty."
        )
    size = len(row.group.encode())
    if size > MAX_PRODUCER_CHARACTERS:
        raise BadRowError(
            f"Row {row.number} of its task has {size} bytes of message_group_id. No"
            f" group can have more than {MAX_PRODUCER_CHARACTERS}."
        )
    return row.group


def _two_of_a_group(error: TakenOverError) -> TakenOverError:
    """Return the error for a group that somebody else writes to."""
    said = error.message.partition(" Another attempt of this task")[0]
    return error.saying(
        f"{said} Somebody else writes to this message group now. Let one task have all"
        ' rows of a group, by df.repartition("message_group_id"), set'
        " spark.speculation=false, and let no other program write to it meanwhile."
    )


def require_codec(codecs: tuple[int, ...], options: WriteOptions) -> None:
    """Check that a topic allows the codec.

    Raises:
        OptionError: It does not.
    """
    if codecs and options.codec not in codecs:
        allowed = ", ".join(codec_name(codec) for codec in codecs)
        raise OptionError(
            f"{options.topic} does not allow codec={codec_name(options.codec)}: it"
            f" allows {allowed}. ALTER TOPIC ... SET (supported_codecs = ...) adds one."
        )


def require_fixed_size(topic: TopicInfo, options: WriteOptions) -> None:
    """Check that keys have a partition, if they are to choose one.

    Raises:
        OptionError: Partitions were split or merged, so that keys would move.
    """
    if options.partitioning is Partitioning.KEY and any(
        not p.is_active or p.parents for p in topic.partitions.values()
    ):
        raise OptionError(
            f"partitioning=key is for topics with a fixed number of partitions, and"
            f" those of {options.topic} were split or merged: keys would move. Use"
            " partitioning=server, or compute partition_id."
        )
