# SPDX-License-Identifier: Apache-2.0
"""The destination of rows: a session, and the request under construction."""

from __future__ import annotations

from dataclasses import dataclass, field

from ydb_spark.arrow.rows import Row
from ydb_spark.client.write_session import WriteSession
from ydb_spark.sdk import pb
from ydb_spark.wire.writes import MAX_REQUEST_BYTES, Acked

_WriteRequest = pb.StreamWriteMessage.WriteRequest

#: What a message has beside its body: number, times, sizes, frames.
_MESSAGE_BYTES = 40

#: Of a request, by our count of it, which leaves out how metadata is framed.
_MOST_REQUEST_BYTES = MAX_REQUEST_BYTES // 2


class Target:
    """A session, and the request under construction.

    Args:
        session: Open.
        codec: Number of the codec of its bodies.

    Attributes:
        session: See above.
        skipped: Rows that were not sent, because the server has them.
    """

    def __init__(self, session: WriteSession, codec: int) -> None:
        self.session = session
        self.skipped = 0
        self._codec = codec
        self._number = 0
        self._request = _WriteRequest(codec=codec)
        self._bytes = 0

    def next_number(self) -> int:
        """Return the next number, where numbers only have to rise."""
        self._number += 1
        return self._number

    def add(self, row: Row, number: int, body: bytes) -> int:
        """Add a message to the request; return its approximate size.

        A large one begins its own request: with others it may be too large.
        """
        size = len(body) + _MESSAGE_BYTES
        size += sum(len(key) + len(value) for key, value in row.metadata or ())
        if self._bytes + size > _MOST_REQUEST_BYTES:
            self.cut()
        message = self._request.messages.add(
            seq_no=number,
            data=body,
            uncompressed_size=len(row.body),
            created_at=row.created_at,
        )
        for key, value in row.metadata or ():
            message.metadata_items.add(key=key, value=value)
        self._bytes += size
        return self._bytes

    def cut(self) -> None:
        """Send the request, unless empty."""
        if self._bytes:
            request, self._request = self._request, _WriteRequest(codec=self._codec)
            self._bytes = 0
            self.session.send(request)


@dataclass
class Done:
    """What sessions have done.

    Attributes:
        acked: How messages were answered.
        partitions: Of the topic, that they wrote to.
        waited_s: How long answers were waited for, in seconds.
        reconnects: How often a stream was opened again.
    """

    acked: Acked = field(default_factory=Acked)
    partitions: set[int] = field(default_factory=set)
    waited_s: float = 0.0
    reconnects: int = 0

    def add(self, target: Target) -> None:
        """Add the totals of a target."""
        session = target.session
        self.acked.add(session.acked)
        self.acked.skipped += target.skipped
        self.partitions |= session.partitions
        if target.skipped and session.partition is not None:
            self.partitions.add(session.partition)
        self.waited_s += session.waited_s
        self.reconnects += session.reconnects
