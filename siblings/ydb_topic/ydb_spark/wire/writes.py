# SPDX-License-Identifier: Apache-2.0
"""The rows written in a session, and their acknowledgements. Without a network.

Answers come in the order of the messages, one a message. Of how they are spread over
responses nothing is promised, so they are paired by number::

    sent      [1 2 3] [4 5 6] [7]
    answered  [1 2] [3 4 5]          -> unanswered: 6 7
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ydb_spark.errors import BadRowError, ProtocolError
from ydb_spark.sdk import pb

_FromClient = pb.StreamWriteMessage.FromClient
_WriteRequest = pb.StreamWriteMessage.WriteRequest
_WriteResponse = pb.StreamWriteMessage.WriteResponse

#: Of the service: a larger message is refused before it is sent.
MAX_REQUEST_BYTES = 64_000_000
MAX_METADATA_ITEMS = 1000
MAX_METADATA_BYTES = 4096
MAX_PRODUCER_BYTES = 2048

_MAX_NUMBER = (1 << 63) - 1


def init_request(
    path: str,
    producer_id: str,
    partition: int | None,
    session_meta: Mapping[str, str],
) -> _FromClient:
    """Return the first request of a session.

    Args:
        path: Of the topic.
        producer_id: Whose messages are told apart by their numbers; "" for no one's.
        partition: Where to write; None where the server chooses.
        session_meta: What comes with each batch that a reader gets.
    """
    request = pb.StreamWriteMessage.InitRequest(
        path=path,
        producer_id=producer_id,
        write_session_meta=dict(session_meta),
        get_last_seq_no=bool(producer_id),
    )
    if partition is not None:
        request.partition_id = partition
    elif producer_id:
        request.message_group_id = producer_id
    return _FromClient(init_request=request)


def token_request(token: str) -> _FromClient:
    """Return the request that renews a session's token."""
    return _FromClient(update_token_request=pb.UpdateTokenRequest(token=token))


def write_message(request: _WriteRequest) -> _FromClient:
    """Return messages in the form of the stream."""
    return _FromClient(write_request=request)


def number(messages: Iterable[Any], last: int) -> int:
    """Give the messages consecutive numbers; return the last number.

    Raises:
        BadRowError: There are no more: someone has used the highest there can be.
    """
    for message in messages:
        last += 1
        if last > _MAX_NUMBER:
            raise BadRowError(
                f"No number follows {_MAX_NUMBER}, which the last row of this message"
                " group has. Write to another group."
            )
        message.seq_no = last
    return last


@dataclass
class Acked:
    """How messages were answered.

    Attributes:
        written: Stored, now.
        skipped: The server has had them, or a later one of their producer.
        written_in_tx: To be stored with their transaction.
        quota_wait_s: How long the server held them back for the sake of quotas.
    """

    written: int = 0
    skipped: int = 0
    written_in_tx: int = 0
    quota_wait_s: float = 0.0

    def add(self, other: Acked) -> None:
        """Add the counts of another response."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def messages(self) -> int:
        """Return how many there are."""
        return self.written + self.skipped + self.written_in_tx


class Unacked:
    """The requests of a session that are not all answered, in order.

    Attributes:
        size_bytes: Size of what is not answered; that of a request as long as one of
            its messages is.
        last_answered: The highest number that was answered; 0 before there is one.
    """

    def __init__(self) -> None:
        self.size_bytes = 0
        self.last_answered = 0
        self._requests: deque[tuple[_WriteRequest, int]] = deque()
        self._numbers: deque[int] = deque()
        self._answered = 0  # messages of the first request

    def __len__(self) -> int:
        return len(self._numbers)

    def __bool__(self) -> bool:
        return bool(self._numbers)

    def add(self, request: _WriteRequest) -> None:
        """Take a request that is sent now."""
        size = request.ByteSize()
        self._requests.append((request, size))
        self._numbers.extend(message.seq_no for message in request.messages)
        self.size_bytes += size

    def take(self, response: _WriteResponse) -> Acked:
        """Take answers.

        Raises:
            ProtocolError: One is not that of the message whose turn it is.
        """
        acked = Acked()
        for ack in response.acks:
            due = self._numbers.popleft() if self._numbers else None
            if ack.seq_no != due:
                expected = "none is due" if due is None else f"{due} is due"
                raise ProtocolError(
                    f"The server answered the message with number {ack.seq_no} where"
                    f" {expected}."
                )
            kind = ack.WhichOneof("message_write_status")
            if kind == "written":
                acked.written += 1
            elif kind == "skipped":
                acked.skipped += 1
            elif kind == "written_in_tx":
                acked.written_in_tx += 1
            else:
                raise ProtocolError(
                    f"The server answered the message with number {ack.seq_no}, but"
                    " not whether it is stored."
                )
            self._answer(ack.seq_no)
        statistics = response.write_statistics
        acked.quota_wait_s = sum(
            wait.seconds + wait.nanos / 1e9
            for wait in (
                statistics.partition_quota_wait_time,
                statistics.topic_quota_wait_time,
            )
        )
        return acked

    def drop_stored(self, last_seq_no: int) -> int:
        """Drop the messages that the server has, by its highest number.

        Returns:
            How many messages that are.
        """
        dropped = 0
        while self._numbers and self._numbers[0] <= last_seq_no:
            self._answer(self._numbers.popleft())
            dropped += 1
        return dropped

    def number(self, last: int) -> int:
        """Renumber the unanswered messages consecutively, in their order.

        Args:
            last: The highest number that is taken.

        Returns:
            The highest number that is taken now.
        """
        first = last + 1
        for index, (request, _) in enumerate(self._requests):
            last = number(request.messages[0 if index else self._answered :], last)
        self._numbers = deque(range(first, last + 1))
        return last

    def requests(self) -> Iterator[_WriteRequest]:
        """Yield requests to send again, which hold each unanswered message once."""
        for index, (request, _) in enumerate(self._requests):
            if index or not self._answered:
                yield request
            else:
                rest = _WriteRequest(codec=request.codec)
                rest.messages.extend(request.messages[self._answered :])
                yield rest

    def _answer(self, number: int) -> None:
        self.last_answered = number
        self._answered += 1
        request, size = self._requests[0]
        if self._answered == len(request.messages):
            self._requests.popleft()
            self.size_bytes -= size
            self._answered = 0
