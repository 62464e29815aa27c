# SPDX-License-Identifier: Apache-2.0
"""The double's side of one ``StreamWrite``."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from siblings.ydb_topic.tests.support.faults import Acks, At, Fault, Faults, When
from siblings.ydb_topic.tests.support.inbox import Inbox
from siblings.ydb_topic.tests.support.refusal import (
    BAD_REQUEST,
    OVERLOADED,
    SCHEME_ERROR,
    SUCCESS,
    UNAVAILABLE,
    RefusalError,
)
from siblings.ydb_topic.tests.support.store import Store, Stored, Topic, meta, now_ms
from siblings.ydb_topic.tests.support.stubs import ydb_topic_pb2 as pb

#: The server reads on only while it has fewer bytes that it has not accepted.
UNACCEPTED_BYTES = 1_000_000

MAX_NAME_BYTES = 2048
MAX_METADATA_ITEMS = 1000
MAX_METADATA_BYTES = 4096

FromServer = pb.StreamWriteMessage.FromServer

_numbers = itertools.count(1)


class WriteStream:
    """One write session.

    Args:
        store: Where messages go.
        faults: What goes wrong.
        requests: What the client sends.
        strike: Carries out a fault that ends the call.
        take_over: Ends the older session of the same producer.
        stage: Keeps what is written in a transaction for its commit.
        check_token: Refuses a token.
    """

    def __init__(
        self,
        store: Store,
        faults: Faults,
        requests: Iterator[Any],
        *,
        strike: Callable[[Fault], None],
        take_over: Callable[[WriteStream], None],
        stage: Callable[[str, str, tuple[Topic, int, str], Sequence[Stored]], None],
        check_token: Callable[[str], None],
    ) -> None:
        self._store = store
        self._faults = faults
        self._strike = strike
        self._take_over = take_over
        self._stage = stage
        self._check_token = check_token
        self.inbox = Inbox(store.changed, requests, UNACCEPTED_BYTES)
        self.session_id = f"write-{next(_numbers)}"
        self.killed: RefusalError | None = None
        self._topic: Topic | None = None
        self._partition = 0
        self.key: tuple[str, str] | None = None
        self._producer = ""
        self._meta: tuple[tuple[str, str], ...] = ()

    def kill(self, refusal: RefusalError) -> None:
        """End the session from outside."""
        with self._store.changed:
            self.killed = refusal
            self._store.changed.notify_all()

    def run(self) -> Iterator[Any]:
        """Yield the answers, until the client closes its side or is refused."""
        while True:
            request = self.inbox.next(lambda: self.killed is not None)
            if self.killed is not None:
                raise self.killed
            if request is None:
                break
            kind = request.WhichOneof("client_message")
            if kind == "init_request":
                if self._topic is not None:
                    raise RefusalError(BAD_REQUEST, "got second init request")
                yield from self._init(request.init_request)
            elif self._topic is None:
                raise RefusalError(BAD_REQUEST, "first message must be an init request")
            elif kind == "write_request":
                yield from self._write(request.write_request)
            elif kind == "update_token_request":
                yield from self._update_token(request.update_token_request)
            else:
                raise RefusalError(BAD_REQUEST, "unknown request")
            self.inbox.handled(request)
        if self._topic is None and not self.inbox.is_gone:
            raise RefusalError(BAD_REQUEST, "closed before the init response")

    # -- Beginning ------------------------------------------------------------------

    def _init(self, request: Any) -> Iterator[Any]:
        fault = self._faults.take(At.WRITE_INIT)
        if fault is not None:
            time.sleep(fault.delay_s)
            self._strike(fault)
        with self._store.changed:
            topic = self._checked_topic(request)
            producer = request.producer_id or request.message_group_id
            self._producer = producer
            self._partition = self._choose(topic, producer, request)
            self._meta = meta(dict(request.write_session_meta))
            self._topic = topic
            if producer:
                self.key = (topic.path, producer)
                self._take_over(self)
            last = topic.last_seq_no(self._partition, producer) if producer else 0
        spoilt = Acks.WHOLE if fault is None else fault.acks
        if spoilt is Acks.NONE:
            return
        yield FromServer(
            status=SUCCESS,
            init_response=pb.StreamWriteMessage.InitResponse(
                last_seq_no=last,
                session_id=self.session_id,
                partition_id=self._partition + (spoilt is Acks.REVERSED),
                supported_codecs=pb.SupportedCodecs(codecs=topic.codecs),
            ),
        )

    def _checked_topic(self, request: Any) -> Topic:
        if not request.path:
            raise RefusalError(BAD_REQUEST, "no topic path")
        names = (request.producer_id, request.message_group_id)
        if max(_size(name) for name in names) > MAX_NAME_BYTES:
            raise RefusalError(BAD_REQUEST, "producer id is too long")
        if (
            request.producer_id
            and request.message_group_id
            and request.message_group_id != request.producer_id
        ):
            raise RefusalError(
                BAD_REQUEST, "message_group_id differs from producer_id: not supported"
            )
        topic = self._store.find(request.path)
        if topic is None:
            raise RefusalError(SCHEME_ERROR, f"no path {request.path!r}")
        return topic

    def _choose(self, topic: Topic, producer: str, request: Any) -> int:
        kind = request.WhichOneof("partitioning")
        if kind == "partition_id":
            wanted = request.partition_id
        elif kind == "partition_with_generation":
            wanted = request.partition_with_generation.partition_id
            if request.partition_with_generation.generation != 1:
                raise RefusalError(UNAVAILABLE, "another generation")
        else:
            return topic.choose(producer)
        partition = topic.partitions.get(wanted)
        if partition is None or not partition.is_active:
            raise RefusalError(
                OVERLOADED if producer else UNAVAILABLE, "A partition not choosed"
            )
        bound = topic.bindings.get(producer) if producer else None
        if (
            bound not in (None, wanted)
            and producer not in partition.last_seq_no
            # A split moved it below its parent.
            and bound not in partition.parents
        ):
            raise RefusalError(
                BAD_REQUEST,
                f"MessageGroupId {producer} is already bound to PartitionGroupId "
                f"{(bound or 0) + 1}, but client provided {wanted + 1}",
            )
        if producer:
            topic.bindings[producer] = wanted
        return int(wanted)

    # -- Messages ---------------------------------------------------------------------

    def _write(self, request: Any) -> Iterator[Any]:
        assert self._topic is not None
        with self._store.changed:
            self._check(request)
        fault = self._faults.take(At.WRITE)
        messages = list(request.messages)
        if fault is not None:
            time.sleep(fault.delay_s)
            if fault.ends and fault.when is When.BEFORE:
                self._strike(fault)
            if fault.ends and fault.when is When.PART:
                self._store_messages(messages[: len(messages) // 2], request.codec)
                self._strike(fault)
        if self.killed is not None:
            raise self.killed
        if request.HasField("tx"):
            self._stage(
                request.tx.id,
                request.tx.session,
                (self._topic, self._partition, self._producer),
                [self._stored(message, request.codec) for message in messages],
            )
            acks = [_ack_in_tx(message.seq_no) for message in messages]
        else:
            offsets = self._store_messages(messages, request.codec)
            acks = [
                _ack(message.seq_no, offset)
                for message, offset in zip(messages, offsets, strict=True)
            ]
        if fault is not None and fault.ends:
            self._strike(fault)
        if fault is not None:
            acks = _spoilt(acks, fault.acks)
            if fault.acks is Acks.NONE:
                return
            if fault.acks is Acks.TALK:
                yield from self._talk()
        statistics = pb.StreamWriteMessage.WriteResponse.WriteStatistics()
        statistics.persisting_time.FromMilliseconds(2)
        statistics.partition_quota_wait_time.FromMilliseconds(3)
        yield FromServer(
            status=SUCCESS,
            write_response=pb.StreamWriteMessage.WriteResponse(
                acks=acks,
                partition_id=self._partition
                + (fault is not None and fault.acks is Acks.ELSEWHERE),
                write_statistics=statistics,
            ),
        )

    def _talk(self) -> Iterator[Any]:
        """Yield responses without acknowledgements until nobody listens."""
        while not self.inbox.is_gone:
            yield FromServer(
                status=SUCCESS,
                write_response=pb.StreamWriteMessage.WriteResponse(
                    partition_id=self._partition
                ),
            )
            time.sleep(0.02)

    def _check(self, request: Any) -> None:
        assert self._topic is not None
        self._store.require(self._topic)
        if not self._topic.partitions[self._partition].is_active:
            raise RefusalError(OVERLOADED, "Write to inactive partition")
        if not request.messages:
            raise RefusalError(BAD_REQUEST, "no messages in a write request")
        if request.codec == 0:
            raise RefusalError(BAD_REQUEST, "no codec in a write request")
        if self._topic.codecs and request.codec not in self._topic.codecs:
            raise RefusalError(
                BAD_REQUEST, f"codec {request.codec} is not supported here"
            )
        last = 0
        for message in request.messages:
            if message.seq_no <= last:
                raise RefusalError(BAD_REQUEST, "sequence numbers must rise, from 1")
            last = message.seq_no
            if message.WhichOneof("partitioning"):
                raise RefusalError(
                    BAD_REQUEST, "partitioning of messages is not supported"
                )
            self._check_metadata(message.metadata_items)

    @staticmethod
    def _check_metadata(items: Sequence[Any]) -> None:
        if len(items) > MAX_METADATA_ITEMS:
            raise RefusalError(BAD_REQUEST, "too many metadata items")
        if sum(_size(i.key) + len(i.value) for i in items) > MAX_METADATA_BYTES:
            raise RefusalError(BAD_REQUEST, "metadata items are too large")
        if len({i.key for i in items}) != len(items):
            raise RefusalError(BAD_REQUEST, "metadata keys repeat")

    def _store_messages(self, messages: Sequence[Any], codec: int) -> list[int | None]:
        assert self._topic is not None
        with self._store.changed:
            if self.killed is not None:
                raise self.killed
            offsets = self._topic.append(
                self._partition,
                self._producer,
                [self._stored(message, codec) for message in messages],
            )
            self._store.changed.notify_all()
            return offsets

    def _stored(self, message: Any, codec: int) -> Stored:
        created = message.created_at
        return Stored(
            offset=0,
            seq_no=message.seq_no,
            data=message.data,
            codec=codec,
            producer_id=self._producer,
            message_group_id=self._producer,
            created_at_ms=created.seconds * 1000 + created.nanos // 1_000_000,
            written_at_ms=now_ms(),
            uncompressed_size=message.uncompressed_size,
            metadata_items=tuple((i.key, i.value) for i in message.metadata_items),
            session_meta=self._meta,
        )

    def _update_token(self, request: Any) -> Iterator[Any]:
        fault = self._faults.take(At.TOKEN)
        if fault is not None:
            self._strike(fault)
        if not request.token:
            raise RefusalError(BAD_REQUEST, "empty token")
        self._check_token(request.token)
        yield FromServer(status=SUCCESS, update_token_response=pb.UpdateTokenResponse())


def _size(text: str) -> int:
    """Return the size of a text, as the server counts it."""
    return len(text.encode())


def _ack(seq_no: int, offset: int | None) -> Any:
    ack_type = pb.StreamWriteMessage.WriteResponse.WriteAck
    if offset is None:
        return ack_type(seq_no=seq_no, skipped={"reason": 1})
    return ack_type(seq_no=seq_no, written=ack_type.Written(offset=offset))


def _ack_in_tx(seq_no: int) -> Any:
    ack_type = pb.StreamWriteMessage.WriteResponse.WriteAck
    return ack_type(seq_no=seq_no, written_in_tx=ack_type.WrittenInTx())


def _spoilt(acks: list[Any], how: Acks) -> list[Any]:
    if how is Acks.SHORT:
        return acks[:-1]
    if how is Acks.REPEATED:
        return [ack for ack in acks for _ in range(2)]
    if how is Acks.REVERSED:
        return acks[::-1]
    return acks
