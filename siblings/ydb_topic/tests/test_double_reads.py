# SPDX-License-Identifier: Apache-2.0
"""The double refuses what the documents of reading forbid."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from siblings.ydb_topic.tests.support import refusal
from siblings.ydb_topic.tests.support.raw import RawStream, Read, read_init
from siblings.ydb_topic.tests.support.service import TopicService


@contextmanager
def reading(
    service: TopicService, *partitions: int, credit: int = 1_000_000, **values: Any
) -> Iterator[tuple[RawStream, Any]]:
    """A session and its first partition session, whose start is still to be said."""
    with RawStream(service, "StreamRead") as stream:
        stream.send(init_request=read_init(*partitions, **values))
        assert stream.receive().status == refusal.SUCCESS
        stream.send(read_request={"bytes_size": credit})
        yield stream, stream.receive().start_partition_session_request


def start(stream: RawStream, begun: Any, **values: int) -> None:
    """Say where to begin."""
    number = begun.partition_session.partition_session_id
    stream.send(
        start_partition_session_response=Read.StartPartitionSessionResponse(
            partition_session_id=number, **values
        )
    )


def offsets(response: Any) -> list[int]:
    """Offsets of the messages in a response."""
    return [
        message.offset
        for data in response.read_response.partition_data
        for batch in data.batches
        for message in batch.message_data
    ]


REFUSED = {
    "no such topic": (read_init(0, path="absent"), refusal.SCHEME_ERROR),
    "no such partition": (read_init(7), refusal.SCHEME_ERROR),
    "no partitions, no consumer": (read_init(), refusal.BAD_REQUEST),
    "no such consumer": (read_init(consumer="absent"), refusal.BAD_REQUEST),
    "no topics": (Read.InitRequest(), refusal.BAD_REQUEST),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(service: TopicService, case: str):
    """The first request is checked."""
    request, status = REFUSED[case]
    with RawStream(service, "StreamRead") as stream:
        stream.send(init_request=request)
        assert stream.receive().status == status


def test_anything_before_init(service: TopicService):
    """Nothing comes before it."""
    with RawStream(service, "StreamRead") as stream:
        stream.send(read_request={"bytes_size": 1})
        assert stream.receive().status == refusal.BAD_REQUEST


@pytest.mark.parametrize(
    "request_of",
    [
        lambda n: {
            "commit_offset_request": {
                "commit_offsets": [
                    {"partition_session_id": n, "offsets": [{"start": 0, "end": 1}]}
                ]
            }
        },
        lambda n: {"stop_partition_session_response": {"partition_session_id": n}},
        lambda n: {
            "start_partition_session_response": {
                "partition_session_id": n,
                "commit_offset": 0,
            }
        },
        lambda n: {"read_request": {"bytes_size": 0}},
    ],
    ids=["commit", "stop", "commit at start", "no credit"],
)
def test_forbidden_without_a_consumer(service: TopicService, request_of: Any):
    """Nobody's position can be moved."""
    service.store.put("t", 0, b"a")
    with reading(service, 0) as (stream, begun):
        stream.send(**request_of(begun.partition_session.partition_session_id))
        assert stream.receive().status == refusal.BAD_REQUEST


def test_below_what_is_committed(service: TopicService):
    """With a consumer nobody reads again what it has committed."""
    service.store.put("t", 0, b"a", b"b")
    service.store.find("t").consumers["c"][0] = 1
    with reading(service, 0, consumer="c") as (stream, begun):
        assert begun.committed_offset == 1
        start(stream, begun, read_offset=0)
        assert stream.receive().status == refusal.BAD_REQUEST


def test_credit(service: TopicService):
    """One message more than there is credit for, and no second one."""
    service.store.put("t", 0, *[bytes(100)] * 10)
    with reading(service, 0, credit=250) as (stream, begun):
        start(stream, begun, read_offset=0)
        first = stream.receive()
        assert offsets(first) == [0, 1]
        assert first.read_response.bytes_size == 214
        # One that is larger than what is left still comes, and then none.
        assert offsets(stream.receive()) == [2]
        assert {r.credit for r in service.readers} == {250 - 214 - 107}
        stream.send(read_request={"bytes_size": 214 + 107})
        assert offsets(stream.receive()) == [3, 4]
