# SPDX-License-Identifier: Apache-2.0
"""Requests to a topic service by the bare stubs: whatever is asked for is sent."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Mapping
from typing import Any

import grpc

from siblings.ydb_topic.tests.support.service import DATABASE, TopicService
from siblings.ydb_topic.tests.support.stubs import ydb_topic_pb2 as pb
from siblings.ydb_topic.tests.support.stubs import ydb_topic_v1_pb2_grpc

Write = pb.StreamWriteMessage
Read = pb.StreamReadMessage

#: No answer takes longer.
DEADLINE_S = 10


class RawStream:
    """One stream.

    Args:
        service: Where to.
        method: ``StreamWrite`` or ``StreamRead``.
        metadata: Headers; None for the usual ones.
    """

    def __init__(
        self,
        service: TopicService,
        method: str,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self._message = (Write if method == "StreamWrite" else Read).FromClient
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._channel = grpc.insecure_channel(f"localhost:{service.port}")
        stub = ydb_topic_v1_pb2_grpc.TopicServiceStub(self._channel)
        headers = {"x-ydb-database": DATABASE} if metadata is None else metadata
        self._call = getattr(stub, method)(
            iter(self._requests.get, None),
            timeout=DEADLINE_S,
            metadata=tuple(headers.items()),
        )

    def send(self, **request: Any) -> RawStream:
        """Send a request, of the kind that the one keyword names."""
        self._requests.put(self._message(**request))
        return self

    def half_close(self) -> RawStream:
        """Send no more."""
        self._requests.put(None)
        return self

    def receive(self) -> Any:
        """Wait for an answer; StopIteration at the end."""
        return next(self._call)

    def rest(self) -> list[Any]:
        """Half-close, and return all further answers."""
        self.half_close()
        return list(self._call)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._call)

    def __enter__(self) -> RawStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.half_close()
        self._call.cancel()
        self._channel.close()


def init(path: str = "t", **values: Any) -> Any:
    """Return the first request of a write session."""
    return Write.InitRequest(path=path, **values)


def write(*seq_nos: int, codec: int = 1, data: bytes = b"x", **values: Any) -> Any:
    """Return a request with one message a number."""
    messages = [
        Write.WriteRequest.MessageData(seq_no=number, data=data, **values)
        for number in seq_nos
    ]
    return Write.WriteRequest(messages=messages, codec=codec)


def read_init(*partitions: int, path: str = "t", **values: Any) -> Any:
    """Return the first request of a read session."""
    settings = Read.InitRequest.TopicReadSettings(path=path, partition_ids=partitions)
    return Read.InitRequest(topics_read_settings=[settings], **values)
