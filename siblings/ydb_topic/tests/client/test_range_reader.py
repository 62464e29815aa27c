# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import grpc
import pytest

from siblings.ydb_topic.tests.support.faults import Acks, At, Fault
from siblings.ydb_topic.tests.support.service import DATABASE, TopicService
from ydb_spark.client.channel import Channel
from ydb_spark.client.range_reader import RangeReader
from ydb_spark.errors import (
    AuthError,
    DataLossError,
    ReadTimeoutError,
    ServerError,
    TransportError,
    YdbError,
)
from ydb_spark.options.connection import ConnectionOptions, Secret
from ydb_spark.options.patience import Patience
from ydb_spark.sdk import pb
from ydb_spark.wire.reads import MessageBatch
from ydb_spark.wire.statuses import STATUSES, server_error

BODIES = [b"body %d" % n for n in range(300)]


def reader(channel: Channel, start: int = 0, end: int = 300, **values: Any):
    """A reader of partition 0 of the topic ``t``."""
    defaults: dict[str, Any] = {
        "credit_bytes": 500,
        "timeout_s": 5.0,
        "is_strict": True,
    }
    return RangeReader(channel, "t", 0, start, end, **{**defaults, **values})


def read(reader: RangeReader) -> list[bytes]:
    """All bodies."""
    return [body for parts in reader.batches() for body in bodies_of(parts)]


def bodies_of(parts: Iterable[MessageBatch]) -> list[bytes]:
    """The bodies of what came together."""
    return [message.data for part in parts for message in part.messages]


@pytest.fixture(autouse=True)
def _bodies(service: TopicService) -> None:
    service.store.put("t", 0, *BODIES)


@pytest.mark.parametrize("bounds", [(0, 300), (0, 1), (299, 300), (17, 203), (5, 5)])
def test_slice(channel: Channel, bounds: tuple[int, int]):
    """Exactly the range, though the partition goes on."""
    assert read(reader(channel, *bounds)) == BODIES[slice(*bounds)]


def test_topic_that_is_made_anew_between_two_streams(
    service: TopicService, channel: Channel
):
    """What was read stays, and nothing of the new one comes after it."""
    topic = service.store.find("t")
    assert topic is not None
    service.faults.add(Fault(At.READ, status=400050, skip=4))
    one = reader(channel, created=f"{topic.created}:0")
    batches = one.batches()
    found = bodies_of(next(batches))
    service.store.create("t")
    service.store.put("t", 0, *[b"of another"] * 400)
    rest = (found.extend(bodies_of(parts)) for parts in batches)
    with pytest.raises(DataLossError, match="t was dropped and made anew") as caught:
        list(rest)
    assert found == BODIES[: len(found)]
    assert found
    assert f"the messages from {len(found)} on are gone" in str(caught.value)
    assert one.reconnects == 1
    assert service.count("DescribeTopic") == 2  # once a stream


def test_topic_that_cannot_be_looked_at(
    service: TopicService, connection: ConnectionOptions
):
    """Another stream begins, and no message that is on its way is left out."""
    topic = service.store.find("t")
    assert topic is not None
    channel = Channel(replace(connection, operation_timeout_s=0.05))
    service.faults.add(Fault(At.DESCRIBE, status=400050, times=3))
    try:
        one = reader(channel, created=f"{topic.created}:0")
        assert read(one) == BODIES
        assert one.reconnects
    finally:
        channel.close()


def test_no_stream_for_nothing(service: TopicService, channel: Channel):
    """An empty range asks the server for nothing."""
    assert read(reader(channel, 300, 300)) == []
    assert not service.count("StreamRead", "init_request")


@pytest.mark.parametrize("status", STATUSES, ids=lambda n: STATUSES[n].name)
def test_every_status(service: TopicService, channel: Channel, status: int):
    """After what passes the reading goes on, nothing twice; the rest is an error."""
    service.faults.add(Fault(At.READ, status=status, skip=4))
    one = reader(channel)
    if server_error(status, "", "", is_deduplicated=True).retriable:
        assert read(one) == BODIES
        assert one.reconnects == 1
    else:
        with pytest.raises(ServerError, match=STATUSES[status].name):
            read(one)


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.CANCELLED,
    ],
)
def test_streams_that_break(
    service: TopicService, channel: Channel, code: grpc.StatusCode
):
    """They are opened again at the next offset."""
    for skip in (2, 3, 4):
        service.faults.add(Fault(At.READ, grpc=code, skip=skip))
    service.faults.add(Fault(At.READ, cuts=True, skip=9))
    one = reader(channel)
    assert read(one) == BODIES
    # Four, or more where the SDK has no endpoint for a moment, or fewer where two of
    # them strike one stream.
    assert one.reconnects >= 1


def test_no_right(service: TopicService, channel: Channel):
    """A token that is not known is not tried again and again."""
    fault = Fault(At.READ_INIT, grpc=grpc.StatusCode.UNAUTHENTICATED, times=-1)
    service.faults.add(fault)
    with pytest.raises(AuthError):
        read(reader(channel))
    assert service.count("StreamRead", "init_request") == 1


def test_messages_that_are_too_large_for_a_response(
    service: TopicService, channel: Channel
):
    """They would be again: that is final."""
    fault = Fault(At.READ, grpc=grpc.StatusCode.RESOURCE_EXHAUSTED, times=-1)
    service.faults.add(fault)
    with pytest.raises(TransportError, match="RESOURCE_EXHAUSTED"):
        read(reader(channel))
    assert service.count("StreamRead", "init_request") == 1


def test_lost(service: TopicService, channel: Channel):
    """Retention is an error, or is said to be none."""
    service.store.expire("t", 0, 100)
    with pytest.raises(DataLossError, match="offset 50"):
        read(reader(channel, 50))
    assert read(reader(channel, 50, is_strict=False)) == BODIES[100:]


def test_lost_behind_the_end(channel: Channel):
    """An end beyond the partition is no reason to wait for ever."""
    with pytest.raises(DataLossError, match="made anew"):
        read(reader(channel, 0, 301))
    assert read(reader(channel, 0, 301, is_strict=False)) == BODIES


def test_holes(service: TopicService, channel: Channel):
    """Also at the very end of a range."""
    service.store.skip("t", 0, 10)
    service.store.put("t", 0, b"behind")
    lenient = reader(channel, 290, 305, is_strict=False)
    assert read(lenient) == BODIES[290:]
    with pytest.raises(DataLossError, match="no message at offset 300"):
        read(reader(channel, 290, 311))


def test_end_in_holes_at_the_end_of_the_partition(
    service: TopicService, channel: Channel
):
    """Nothing comes that says so: the server is asked, and says where it is."""
    service.store.skip("t", 0, 10)
    (one,) = [reader(channel, 290, 310, is_strict=False, timeout_s=1)]
    with pytest.raises(YdbError):
        read(one)
    assert service.count("StreamRead", "partition_session_status_request") >= 1


def test_silence(
    service: TopicService, channel: Channel, monkeypatch: pytest.MonkeyPatch
):
    """A partition that gives nothing is an error at the deadline."""
    monkeypatch.setattr("ydb_spark.client.range_reader.LAST_TRY_S", 0.05)
    service.faults.add(Fault(At.READ_INIT, acks=Acks.NONE, times=-1))
    service.faults.add(Fault(At.READ, acks=Acks.NONE, times=-1))
    with pytest.raises(ReadTimeoutError, match="pollTimeoutMs"):
        read(reader(channel, timeout_s=0.3))


def test_silence_of_one_stream(service: TopicService, channel: Channel):
    """Another one helps."""
    service.faults.add(Fault(At.READ, acks=Acks.NONE, times=1))
    one = reader(channel, timeout_s=1, credit_bytes=20)
    assert read(one) == BODIES
    assert one.reconnects >= 1


def test_taken_back(service: TopicService, channel: Channel):
    """Nothing twice, whether it was announced or not."""
    one = reader(channel)
    found: list[bytes] = []
    for turn, batches in enumerate(one.batches()):
        found += [m.data for part in batches for m in part.messages]
        if turn in (2, 5):
            for stream in list(service.readers):
                stream.stop(0, graceful=turn == 2)
    assert found == BODIES
    assert one.reconnects == 2


def test_unknown_messages(service: TopicService, channel: Channel):
    """What newer servers say is passed over."""
    one = reader(channel)
    found: list[bytes] = []
    for batches in one.batches():
        found += [m.data for part in batches for m in part.messages]
        for stream in list(service.readers):
            stream.say(pb.StreamReadMessage.FromServer(status=400000))
    assert found == BODIES


def test_credit(service: TopicService, channel: Channel):
    """What is on its way never has more bytes than the credit and one message."""
    sizes = []
    for batches in reader(channel, credit_bytes=300).batches():
        sizes += [-stream.credit for stream in service.readers]
        assert batches
    assert max(sizes) <= 20


def test_message_larger_than_the_credit(service: TopicService, channel: Channel):
    """It comes all the same."""
    service.store.create("t", 1)
    service.store.put("t", 0, b"a", bytes(5000), b"b")
    found = read(reader(channel, 0, 3, credit_bytes=100))
    assert found == [b"a", bytes(5000), b"b"]


def test_server_that_was_away(service: TopicService, channel: Channel):
    """A read outlives a server's restart."""
    one = reader(channel, timeout_s=20)
    found: list[bytes] = []
    for turn, batches in enumerate(one.batches()):
        found += [m.data for part in batches for m in part.messages]
        if turn == 2:
            service.stop()
            threading.Timer(0.1, service.start).start()
    assert found == BODIES


def test_token_is_renewed_in_the_stream(
    service: TopicService, monkeypatch: pytest.MonkeyPatch
):
    """A new token goes out once; one that is refused has a stream of its own."""
    service.tokens = {name: frozenset({"read"}) for name in ("one", "two", "three")}
    monkeypatch.setenv("YDB_TEST_TOKEN", "one")
    options = ConnectionOptions(
        url=service.endpoint, database=DATABASE, token=Secret("env:YDB_TEST_TOKEN")
    )
    channel = Channel(options)
    one = reader(channel, renew_s=0.0, credit_bytes=100)
    found: list[bytes] = []
    for turn, batches in enumerate(one.batches()):
        found += [m.data for part in batches for m in part.messages]
        if turn == 1:
            monkeypatch.setenv("YDB_TEST_TOKEN", "two")
        state = one._token._sent, one._token._is_on_its_way
        if state == ("two", False):  # it was answered
            if os.environ["YDB_TEST_TOKEN"] == "two":
                service.faults.add(Fault(At.TOKEN, status=400020))
            monkeypatch.setenv("YDB_TEST_TOKEN", "three")
    channel.close()
    assert found == BODIES
    tokens = service.requests("StreamRead", "update_token_request")
    assert [request.token for request in tokens] == ["two", "three"]
    assert one.reconnects == 1


def test_token_that_has_ended(service: TopicService):
    """A stream that is turned away in its middle is an error, after another try."""
    service.tokens = {"hunter2": frozenset({"read"})}
    options = ConnectionOptions(
        url=service.endpoint, database=DATABASE, token=Secret("hunter2")
    )
    channel = Channel(options)
    service.faults.add(Fault(At.READ, status=400020, skip=2, times=-1))
    with pytest.raises(AuthError, match="UNAUTHORIZED") as caught:
        read(reader(channel))
    channel.close()
    assert "hunter2" not in str(caught.value)
    assert service.count("StreamRead", "init_request") == 2


@pytest.mark.parametrize("patience", [Patience(ask_s=0.05)])
def test_slow_beginnings(service: TopicService, channel: Channel):
    """Each stream is given more time than the one before, until one is enough."""
    service.faults.add(Fault(At.READ, delay_s=0.25, times=-1))
    one = reader(channel, timeout_s=20, credit_bytes=100_000)
    assert read(one) == BODIES
    assert one.reconnects >= 1


def test_offsets_that_fall(service: TopicService, channel: Channel):
    """A message that comes again in a later response is not read twice."""
    one = reader(channel)
    found: list[bytes] = []
    for turn, batches in enumerate(one.batches()):
        found += [m.data for part in batches for m in part.messages]
        if turn == 3:
            for stream in service.readers:
                for session in stream._sessions.values():
                    session.position = 5
    assert found == BODIES


def test_credit_that_is_taken_without_end(service: TopicService, channel: Channel):
    """Who sends what nobody gave credit for waits; nothing piles up here."""
    service.store.create("t", 1)
    service.store.put("t", 0, *[bytes(1000)] * 500)
    generator = reader(channel, 0, 500, credit_bytes=1).batches()
    next(generator)
    for stream in service.readers:
        with service.store.changed:
            stream.credit = 1 << 40
            service.store.changed.notify_all()
    assert sum(len(p.messages) for batches in generator for p in batches) == 499
