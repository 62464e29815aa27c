# SPDX-License-Identifier: Apache-2.0
"""A range of a partition, read in a session. Without a network.

::

    init{partition} -->                     <-- init
    credit{B} -->                           <-- start{session 1, offsets [s, e)}
    start{1, read_offset=o} -->             <-- messages, bytes_size=n
    credit{n} --> when they are done with   <-- messages ...
    until the last offset of the range is there

Without a consumer nothing is committed, and partitions are not taken from a session in
favour of another. A range ends below an offset; servers wait at the end of a partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ydb_spark.errors import DataLossError, ProtocolError, TransportError
from ydb_spark.sdk import pb

_FromClient = pb.StreamReadMessage.FromClient


@dataclass(frozen=True)
class MessageBatch:
    """Messages of a batch, all within the range.

    Attributes:
        batch: As it came.
        first: Index of the first message in it that is wanted.
        stop: Index after the last.
    """

    batch: Any
    first: int
    stop: int

    @property
    def messages(self) -> list[Any]:
        """Return the messages wanted."""
        return list(self.batch.message_data[self.first : self.stop])


class RangeSession:
    """Reads ``[start, end)`` of a partition in order, over any streams.

    Args:
        path: Of the topic.
        partition: Which one.
        start: Offset of the first message.
        end: Offset after the last.
        credit_bytes: How much the server may send ahead.
        is_strict: Whether an offset without a message is a loss. In a compacted topic
            it is not; no one can tell one from the other.
        read_from_ms: Lets the server leave out what it stored before, in milliseconds
            since 1970; then offsets do not report a loss.

    Attributes:
        position: Offset of the next message.
        is_done: Whether all of the range was read.
    """

    def __init__(
        self,
        path: str,
        partition: int,
        start: int,
        end: int,
        credit_bytes: int,
        *,
        is_strict: bool,
        read_from_ms: int | None = None,
    ) -> None:
        self.position = start
        self.is_done = start >= end
        self._path = path
        self._partition = partition
        self._end = end
        self._credit_bytes = credit_bytes
        self._is_strict = is_strict and read_from_ms is None
        self._read_from_ms = read_from_ms
        self._session: int | None = None
        self._asked_status = False

    @property
    def name(self) -> str:
        """Return what the partition is called in messages."""
        return f"{self._path}/{self._partition}"

    @property
    def has_begun(self) -> bool:
        """Return whether the server has begun the partition on this stream."""
        return self._session is not None

    def begin(self) -> list[_FromClient]:
        """Begin on a new stream; return what to send."""
        self._session = None
        self._asked_status = False
        settings = pb.StreamReadMessage.InitRequest.TopicReadSettings(
            path=self._path, partition_ids=[self._partition]
        )
        if self._read_from_ms is not None:
            settings.read_from.FromMilliseconds(self._read_from_ms)
        return [
            _FromClient(
                init_request=pb.StreamReadMessage.InitRequest(
                    topics_read_settings=[settings]
                )
            ),
            _credit(self._credit_bytes),
        ]

    def take(self, response: Any) -> tuple[list[MessageBatch], list[_FromClient], int]:
        """Take a message of the server.

        Returns:
            What was read; what to send at once; and the credit to give back when what
            was read is out of hand, for `give_back`.

        Raises:
            ProtocolError: The server sends what cannot be.
            DataLossError: Messages at the range's start are gone.
            TransportError: The server takes the partition back; a new stream goes on.
        """
        kind = response.WhichOneof("server_message")
        if kind == "start_partition_session_request":
            return [], [self._start(response.start_partition_session_request)], 0
        elif kind == "read_response":
            batches, size = self._read(response.read_response)
            return batches, [], size
        elif kind == "partition_session_status_response":
            self._take_status(response.partition_session_status_response)
        elif kind == "stop_partition_session_request" and not self.is_done:
            raise TransportError(
                f"The server took the partition {self.name} back.", retriable=True
            )
        # What newer servers say beside that is no business of a range.
        return [], [], 0

    def give_back(self, size_bytes: int) -> _FromClient:
        """Return the request that gives credit back: exactly what the server took."""
        return _credit(size_bytes)

    def ask_how_far(self) -> list[_FromClient]:
        """Return the request for the server's position, for silent partitions.

        A range may end in offsets that no message has: then the server is beyond its
        end, and sends nothing.
        """
        if self._session is None or self._asked_status:
            return []
        self._asked_status = True
        return [
            _FromClient(
                partition_session_status_request=(
                    pb.StreamReadMessage.PartitionSessionStatusRequest(
                        partition_session_id=self._session
                    )
                )
            )
        ]

    @staticmethod
    def token_request(token: str) -> _FromClient:
        """Return the request that renews a stream's token."""
        return _FromClient(update_token_request=pb.UpdateTokenRequest(token=token))

    # -- What came ---------------------------------------------------------------------

    def _start(self, request: Any) -> _FromClient:
        session = request.partition_session
        if session.partition_id != self._partition:
            raise ProtocolError(
                f"The server began partition {session.partition_id} where"
                f" {self.name} was asked for."
            )
        offsets = request.partition_offsets
        if offsets.start > self.position:
            self._lost(offsets.start)
        if offsets.end < self._end:
            self._cut_short(offsets.end)
        self._session = session.partition_session_id
        return _FromClient(
            start_partition_session_response=(
                pb.StreamReadMessage.StartPartitionSessionResponse(
                    partition_session_id=self._session, read_offset=self.position
                )
            )
        )

    def _read(self, response: Any) -> tuple[list[MessageBatch], int]:
        if response.bytes_size < 0:
            raise ProtocolError("The server sent messages of a negative size.")
        self._asked_status = False
        batches: list[MessageBatch] = []
        for data in response.partition_data:
            if data.partition_session_id != self._session:
                continue  # of a session that is over
            for batch in data.batches:
                part = self._part(batch)
                if part.first < part.stop:
                    batches.append(part)
        return batches, response.bytes_size

    def _part(self, batch: Any) -> MessageBatch:
        """Return the messages of a batch within the range, and advance."""
        first = None
        stop = 0
        for index, message in enumerate(batch.message_data):
            offset = message.offset
            if offset < self.position:
                if first is not None:
                    raise ProtocolError(
                        f"Offsets of {self.name} fall: {offset} comes where"
                        f" {self.position} is due."
                    )
                continue  # was read before the stream was opened again
            if self.position >= self._end:
                break
            if offset > self.position:
                self._lost(offset)
            if offset >= self._end:
                self.is_done = True
                break
            if first is None:
                first = index
            self.position = offset + 1
            stop = index + 1
        if self.position >= self._end:
            self.is_done = True
        return MessageBatch(batch, stop if first is None else first, stop)

    def _take_status(self, status: Any) -> None:
        self._asked_status = False
        if (
            status.partition_session_id == self._session
            and status.read_offset >= self._end
        ):
            if self.position < self._end:
                self._lost(status.read_offset)
            self.is_done = True

    def _cut_short(self, end: int) -> None:
        if self._is_strict:
            raise DataLossError(
                f"{self.name} ends before offset {end}, and its messages from"
                f" {self.position} to {self._end - 1} are due: the topic was made anew."
                " failOnDataLoss=false goes on with what is there.",
                topic_partition=self.name,
                wanted=str(self.position),
                available=str(end),
            )
        self._end = end
        self.is_done = self.position >= end

    def _lost(self, available: int) -> None:
        if not self._is_strict:
            return
        raise DataLossError(
            f"{self.name}: there is no message at offset {self.position}, the next one"
            f" is at {available}. Retention has taken it, or the topic is compacted;"
            " failOnDataLoss=false goes on with what is there.",
            topic_partition=self.name,
            wanted=str(self.position),
            available=str(available),
        )


def _credit(size_bytes: int) -> _FromClient:
    return _FromClient(
        read_request=pb.StreamReadMessage.ReadRequest(bytes_size=size_bytes)
    )
