# SPDX-License-Identifier: Apache-2.0
"""The double's side of one ``StreamRead``."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from siblings.ydb_topic.tests.support.faults import Acks, At, Fault, Faults
from siblings.ydb_topic.tests.support.inbox import Inbox
from siblings.ydb_topic.tests.support.refusal import (
    BAD_REQUEST,
    SCHEME_ERROR,
    SUCCESS,
    RefusalError,
)
from siblings.ydb_topic.tests.support.store import Partition, Store, Stored, Topic
from siblings.ydb_topic.tests.support.stubs import ydb_topic_pb2 as pb

FromServer = pb.StreamReadMessage.FromServer
ReadResponse = pb.StreamReadMessage.ReadResponse

#: What a message costs of the credit beyond what is in it: a client that counts by
#: itself is soon wrong.
COST_BYTES = 7

_sessions = itertools.count(1)
_partition_sessions = itertools.count(1)


@dataclass
class PartitionSession:
    """One partition in a read session.

    Attributes:
        number: Its id.
        topic: Of which topic.
        partition: Which one.
        position: Offset of the next message; None until the client has answered.
        read_from_ms: Messages written before are left out.
        in_flight: Bytes out that no commit has freed, by offset of the last message.
        is_ended: Whether its end was told.
    """

    number: int
    topic: Topic
    partition: Partition
    read_from_ms: int
    position: int | None = None
    in_flight: dict[int, int] = field(default_factory=dict)
    is_ended: bool = False
    is_stopping: bool = False


class ReadStream:
    """One read session.

    Args:
        store: Where messages are.
        faults: What goes wrong.
        requests: What the client sends.
        strike: Carries out a fault that ends the call.
        check_token: Refuses a token.
        hold: Tries to get a partition for a consumer, for this session alone.
    """

    def __init__(
        self,
        store: Store,
        faults: Faults,
        requests: Iterator[Any],
        *,
        strike: Callable[[Fault], None],
        check_token: Callable[[str], None],
        hold: Callable[[ReadStream, tuple[str, str, int]], bool],
    ) -> None:
        self._store = store
        self._faults = faults
        self._strike = strike
        self._check_token = check_token
        self._hold = hold
        self.inbox = Inbox(store.changed, requests, 1 << 30)
        self.session_id = f"read-{next(_sessions)}"
        self.killed: RefusalError | None = None
        self.credit = 0
        self._is_mute = False  # a fault: nothing more is said
        self._init_request: Any = None
        self._topics: list[Topic] = []  # one of each of its settings
        self._consumer = ""
        self._sessions: dict[int, PartitionSession] = {}
        self._started: set[tuple[str, int]] = set()
        self._stops: list[tuple[int, bool]] = []
        self._extra: list[Any] = []

    def kill(self, refusal: RefusalError) -> None:
        """End the session from outside."""
        with self._store.changed:
            self.killed = refusal
            self._store.changed.notify_all()

    def stop(self, partition: int, *, graceful: bool) -> None:
        """Take a partition back from the client."""
        with self._store.changed:
            self._stops += [
                (number, graceful)
                for number, session in self._sessions.items()
                if session.partition.number == partition
            ]
            self._store.changed.notify_all()

    def say(self, response: Any) -> None:
        """Send something out of turn."""
        with self._store.changed:
            self._extra.append(response)
            self._store.changed.notify_all()

    def run(self) -> Iterator[Any]:
        """Yield the answers, until the client closes its side or is refused."""
        while True:
            request = self.inbox.next(self._is_due)
            if self.killed is not None:
                raise self.killed
            if request is not None:
                with self._store.changed:
                    answers = self._answers(request)
                self.inbox.handled(request)
                if not self._is_mute:
                    yield from answers
            elif self.inbox.has_ended or self.inbox.is_gone:
                return
            if not self._is_mute:
                yield from self._due()

    # -- Requests ---------------------------------------------------------------------

    def _answers(self, request: Any) -> list[Any]:
        kind = request.WhichOneof("client_message")
        if self._init_request is not None and kind == "init_request":
            raise RefusalError(BAD_REQUEST, "got second init request")
        if self._init_request is None and kind != "init_request":
            raise RefusalError(BAD_REQUEST, "first message must be an init request")
        handle = {
            "init_request": self._init,
            "read_request": self._add_credit,
            "start_partition_session_response": self._start,
            "stop_partition_session_response": self._stopped,
            "commit_offset_request": self._commit,
            "partition_session_status_request": self._status,
            "update_token_request": self._update_token,
        }.get(kind)
        if handle is None:
            raise RefusalError(BAD_REQUEST, "unknown request")
        answer = handle(getattr(request, kind))
        return [] if answer is None else [answer]

    def _add_credit(self, request: Any) -> None:
        if request.bytes_size <= 0:
            raise RefusalError(BAD_REQUEST, "bytes_size must be above 0")
        self.credit += request.bytes_size

    def _stopped(self, response: Any) -> None:
        self._require_consumer("stop response")
        self._sessions.pop(response.partition_session_id, None)

    def _update_token(self, request: Any) -> Any:
        fault = self._faults.take(At.TOKEN)
        if fault is not None:
            self._strike(fault)
        if not request.token:
            raise RefusalError(BAD_REQUEST, "empty token")
        self._check_token(request.token)
        return FromServer(
            status=SUCCESS, update_token_response=pb.UpdateTokenResponse()
        )

    def _init(self, request: Any) -> Any:
        fault = self._faults.take(At.READ_INIT)
        if fault is not None:
            self._strike(fault)
        if not request.topics_read_settings:
            raise RefusalError(BAD_REQUEST, "no topics to read")
        for settings in request.topics_read_settings:
            topic = self._store.find(settings.path)
            if topic is None:
                raise RefusalError(SCHEME_ERROR, f"no path {settings.path!r}")
            if set(settings.partition_ids) - topic.partitions.keys():
                raise RefusalError(SCHEME_ERROR, "no such partition")
            if request.consumer and request.consumer not in topic.consumers:
                raise RefusalError(BAD_REQUEST, f"no consumer {request.consumer!r}")
            if (
                not request.consumer
                and not settings.partition_ids
                and not request.auto_partitioning_support
            ):
                raise RefusalError(
                    BAD_REQUEST, "without a consumer the partitions must be named"
                )
        self._init_request = request
        self._consumer = request.consumer
        self._topics = [
            self._store.topics[self._store.full_path(settings.path)]
            for settings in request.topics_read_settings
        ]
        if fault is not None and fault.acks is Acks.NONE:
            self._is_mute = True
            return None
        return FromServer(
            status=SUCCESS,
            init_response=pb.StreamReadMessage.InitResponse(session_id=self.session_id),
        )

    def _start(self, response: Any) -> None:
        session = self._sessions.get(response.partition_session_id)
        if session is None:
            raise RefusalError(BAD_REQUEST, "unknown partition session")
        committed = self._committed(session)
        position = committed
        if response.HasField("read_offset"):
            if self._consumer and response.read_offset < committed:
                raise RefusalError(
                    BAD_REQUEST,
                    f"trying to read from position that is less than committed: "
                    f"{response.read_offset} < {committed}",
                )
            position = response.read_offset
        if response.HasField("commit_offset"):
            self._require_consumer("commit_offset")
            session.topic.consumers[self._consumer][session.partition.number] = max(
                committed, response.commit_offset
            )
        session.position = max(position, 0)

    def _commit(self, request: Any) -> Any:
        self._require_consumer("commit")
        committed = []
        for one in request.commit_offsets:
            session = self._sessions.get(one.partition_session_id)
            if session is None:
                continue
            for span in one.offsets:
                if span.end > session.partition.end:
                    raise RefusalError(BAD_REQUEST, "SET_OFFSET_ERROR_COMMIT_TO_FUTURE")
            end = max(span.end for span in one.offsets)
            number = session.partition.number
            offsets = session.topic.consumers[self._consumer]
            offsets[number] = max(offsets.get(number, 0), end)
            session.in_flight = {
                last: size for last, size in session.in_flight.items() if last >= end
            }
            committed.append(
                pb.StreamReadMessage.CommitOffsetResponse.PartitionCommittedOffset(
                    partition_session_id=session.number, committed_offset=end
                )
            )
        return FromServer(
            status=SUCCESS,
            commit_offset_response=pb.StreamReadMessage.CommitOffsetResponse(
                partitions_committed_offsets=committed
            ),
        )

    def _status(self, request: Any) -> Any:
        session = self._sessions.get(request.partition_session_id)
        if session is None:
            raise RefusalError(BAD_REQUEST, "unknown partition session")
        return FromServer(
            status=SUCCESS,
            partition_session_status_response=(
                pb.StreamReadMessage.PartitionSessionStatusResponse(
                    partition_session_id=session.number,
                    partition_offsets=pb.OffsetsRange(
                        start=session.partition.start, end=session.partition.end
                    ),
                    committed_offset=self._committed(session),
                    read_offset=session.position or 0,
                )
            ),
        )

    def _require_consumer(self, what: str) -> None:
        if not self._consumer:
            raise RefusalError(BAD_REQUEST, f"{what} without a consumer")

    def _committed(self, session: PartitionSession) -> int:
        if not self._consumer:
            return session.partition.start
        offsets = session.topic.consumers[self._consumer]
        return max(offsets.get(session.partition.number, 0), 0)

    # -- What comes by itself ---------------------------------------------------------

    def _is_due(self) -> bool:
        if self.killed is not None:
            return True
        return not self._is_mute and bool(
            self._has_lost_a_topic()
            or self._extra
            or self._stops
            or next(self._new_partitions(), None)
            or self._readable() is not None
            or self._ending() is not None
        )

    def _has_lost_a_topic(self) -> bool:
        topics = self._store.topics
        return any(topics.get(topic.path) is not topic for topic in self._topics)

    def _due(self) -> Iterator[Any]:
        with self._store.changed:
            for topic in self._topics:
                self._store.require(topic)
            responses = [*self._extra]
            self._extra.clear()
            for number, graceful in self._stops:
                responses.append(self._stop_request(number, graceful=graceful))
            self._stops.clear()
            for topic, partition, read_from_ms in list(self._new_partitions()):
                key = (topic.path, partition.number)
                if self._consumer and not self._hold(self, (self._consumer, *key)):
                    continue
                self._started.add(key)
                responses.append(self._begin(topic, partition, read_from_ms))
            ending = self._ending()
            if ending is not None:
                ending.is_ended = True
                responses.append(
                    FromServer(
                        status=SUCCESS,
                        end_partition_session=pb.StreamReadMessage.EndPartitionSession(
                            partition_session_id=ending.number,
                            child_partition_ids=ending.partition.children,
                        ),
                    )
                )
        yield from responses
        with self._store.changed:
            readable = self._readable()
            response = None if readable is None else self._read(readable)
        if response is not None:
            fault = self._faults.take(At.READ)
            if fault is not None:
                time.sleep(fault.delay_s)
                self._strike(fault)
                if fault.acks is Acks.NONE:
                    self._is_mute = True
                    return
            yield response

    def _new_partitions(self) -> Iterator[tuple[Topic, Partition, int]]:
        if self._init_request is None:
            return
        all_settings = self._init_request.topics_read_settings
        for settings, topic in zip(all_settings, self._topics, strict=True):
            read_from = settings.read_from
            read_from_ms = read_from.seconds * 1000 + read_from.nanos // 1_000_000
            for number, partition in topic.partitions.items():
                if settings.partition_ids and number not in settings.partition_ids:
                    continue
                if (topic.path, number) in self._started:
                    continue
                if self._consumer and not self._are_parents_read(topic, partition):
                    continue
                yield topic, partition, read_from_ms

    def _are_parents_read(self, topic: Topic, partition: Partition) -> bool:
        offsets = topic.consumers[self._consumer]
        return all(
            offsets.get(parent, 0) >= topic.partitions[parent].end
            for parent in partition.parents
            if parent in topic.partitions
        )

    def _begin(self, topic: Topic, partition: Partition, read_from_ms: int) -> Any:
        number = next(_partition_sessions)
        session = PartitionSession(number, topic, partition, read_from_ms)
        self._sessions[number] = session
        return FromServer(
            status=SUCCESS,
            start_partition_session_request=(
                pb.StreamReadMessage.StartPartitionSessionRequest(
                    partition_session=pb.StreamReadMessage.PartitionSession(
                        partition_session_id=number,
                        # In another form than it was asked for, as servers do.
                        path=topic.path.removeprefix(self._store.database + "/"),
                        partition_id=partition.number,
                    ),
                    committed_offset=self._committed(session) if self._consumer else 0,
                    partition_offsets=pb.OffsetsRange(
                        start=partition.start, end=partition.end
                    ),
                )
            ),
        )

    def _stop_request(self, number: int, *, graceful: bool) -> Any:
        session = self._sessions[number]
        if graceful:
            session.is_stopping = True
        else:
            del self._sessions[number]
        return FromServer(
            status=SUCCESS,
            stop_partition_session_request=(
                pb.StreamReadMessage.StopPartitionSessionRequest(
                    partition_session_id=number,
                    graceful=graceful,
                    committed_offset=self._committed(session) if self._consumer else 0,
                )
            ),
        )

    def _ending(self) -> PartitionSession | None:
        if self._init_request is None:
            return None
        if not self._init_request.auto_partitioning_support:
            return None
        for session in self._sessions.values():
            if (
                not session.is_ended
                and not session.partition.is_active
                and session.position is not None
                and session.position >= session.partition.end
            ):
                return session
        return None

    def _readable(self) -> PartitionSession | None:
        if self._init_request is None or self.credit <= 0:
            return None
        limit = self._init_request.partition_max_in_flight_bytes
        for session in self._sessions.values():
            if session.position is None or session.is_stopping:
                continue
            if limit and sum(session.in_flight.values()) >= limit:
                continue
            if next(_messages(session), None) is not None:
                return session
        return None

    def _read(self, session: PartitionSession) -> Any:
        """Take as many messages as there is credit for, and at least one."""
        chosen: list[Stored] = []
        size = 0
        for message in _messages(session):
            cost = len(message.data) + COST_BYTES
            if chosen and size + cost > self.credit:
                break
            chosen.append(message)
            size += cost
        self.credit -= size
        session.position = chosen[-1].offset + 1
        session.in_flight[chosen[-1].offset] = size
        data = ReadResponse.PartitionData(partition_session_id=session.number)
        for _, group in itertools.groupby(chosen, _batch_key):
            messages = list(group)
            batch = data.batches.add(
                producer_id=messages[0].producer_id,
                write_session_meta=dict(messages[0].session_meta),
                codec=messages[0].codec,
            )
            batch.written_at.FromMilliseconds(messages[0].written_at_ms)
            for message in messages:
                _add(batch, message)
        return FromServer(
            status=SUCCESS,
            read_response=ReadResponse(partition_data=[data], bytes_size=size),
        )


def _messages(session: PartitionSession) -> Iterator[Stored]:
    assert session.position is not None
    position = max(session.position, session.partition.start)
    messages = session.partition.messages
    # Offsets rise, with gaps: at most as far back as there are offsets to the end.
    first = max(0, len(messages) - (session.partition.end - position))
    for index in range(first, len(messages)):
        message = messages[index]
        if message.offset >= position and message.written_at_ms >= session.read_from_ms:
            yield message


def _batch_key(message: Stored) -> tuple[object, ...]:
    return (
        message.producer_id,
        message.codec,
        message.session_meta,
        message.written_at_ms,
    )


def _add(batch: Any, message: Stored) -> None:
    added = batch.message_data.add(
        offset=message.offset,
        seq_no=message.seq_no,
        data=message.data,
        uncompressed_size=message.uncompressed_size,
        message_group_id=message.message_group_id,
    )
    added.created_at.FromMilliseconds(message.created_at_ms)
    for key, value in message.metadata_items:
        added.metadata_items.add(key=key, value=value)
