# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import threading
import time

import grpc
import pytest

from siblings.ydb_topic.tests.support.faults import Acks, At, Fault
from siblings.ydb_topic.tests.support.refusal import (
    OVERLOADED,
    SCHEME_ERROR,
    UNAVAILABLE,
)
from siblings.ydb_topic.tests.support.service import DATABASE, TopicService
from ydb_spark.client.channel import Channel, close_shared, shared_channel
from ydb_spark.client.topics import commit_offset, describe_topic
from ydb_spark.errors import (
    AuthError,
    ForkError,
    ProtocolError,
    ServerError,
    TopicNotFoundError,
    TransportError,
    YdbError,
)
from ydb_spark.options.connection import ConnectionOptions, Secret
from ydb_spark.options.patience import Patience


def options(service: TopicService, **values: object) -> ConnectionOptions:
    """How to reach the double."""
    return ConnectionOptions(url=service.endpoint, database=DATABASE, **values)  # type: ignore[arg-type]


def test_describe(service: TopicService, channel: Channel):
    """Partitions with offsets and family, and codecs."""
    service.store.put("t", 1, b"abc", b"d")
    low, high = service.store.split("t", 0)
    topic = describe_topic(channel, "t", with_offsets=True)
    assert sorted(topic.partitions) == [0, 1, low, high]
    assert topic.partitions[0].children == (low, high)
    assert topic.partitions[low].parents == (0,)
    assert [p.number for p in topic.active] == [1, low, high]
    assert (topic.partitions[1].end, topic.partitions[1].size_bytes) == (2, 4)
    assert topic.codecs == (1, 2, 4)


def test_no_topic(channel: Channel):
    """No topic and no right to see it are one answer, and both are said."""
    with pytest.raises(TopicNotFoundError, match="or there is no right to see it"):
        describe_topic(channel, "absent", with_offsets=False)


def test_commit(service: TopicService, channel: Channel):
    """A position of a consumer, not beyond the end."""
    service.store.put("t", 0, b"a", b"b")
    commit_offset(channel, "t", 0, "c", 2)
    assert service.store.find("t").consumers["c"] == {0: 2}
    with pytest.raises(ServerError, match="COMMIT_TO_FUTURE"):
        commit_offset(channel, "t", 0, "c", 3)


def test_calls_again(service: TopicService, channel: Channel):
    """What passes is tried again, whoever says it."""
    service.faults.add(Fault(At.DESCRIBE, status=UNAVAILABLE))
    service.faults.add(Fault(At.DESCRIBE, grpc=grpc.StatusCode.UNAVAILABLE))
    service.faults.add(Fault(At.DESCRIBE, status=OVERLOADED))
    assert describe_topic(channel, "t", with_offsets=False).partitions
    assert service.count("DescribeTopic") == 4


def test_does_not_call_again(service: TopicService, channel: Channel):
    """What does not pass is not."""
    service.faults.add(Fault(At.DESCRIBE, status=SCHEME_ERROR))
    with pytest.raises(TopicNotFoundError):
        describe_topic(channel, "t", with_offsets=False)
    assert service.count("DescribeTopic") == 1


def test_no_storm_and_an_end(service: TopicService):
    """A server that is never available is asked a few times, and then given up."""
    service.faults.add(Fault(At.DESCRIBE, status=UNAVAILABLE, times=-1))
    channel = Channel(options(service, operation_timeout_s=1.0))
    with pytest.raises(ServerError, match="operationTimeoutMs"):
        describe_topic(channel, "t", with_offsets=False)
    channel.close()
    assert 3 <= service.count("DescribeTopic") < 12


def test_comes_back(service: TopicService, channel: Channel):
    """A server that was away for a moment is found again."""
    describe_topic(channel, "t", with_offsets=False)
    service.stop()
    threading.Timer(0.2, service.start).start()
    assert describe_topic(channel, "t", with_offsets=False).partitions


def test_partitions_that_are_untold(service: TopicService, channel: Channel):
    """Where the server leaves out how far one goes it is asked again: it is not empty.

    Real servers leave out those whose tablets do not answer just then.
    """
    service.store.put("t", 1, b"a")
    service.faults.add(Fault(At.DESCRIBE, acks=Acks.SHORT, times=2))
    topic = describe_topic(channel, "t", with_offsets=True)
    assert topic.partitions[1].end == 1
    assert service.count("DescribeTopic") == 3
    service.faults.add(Fault(At.DESCRIBE, acks=Acks.SHORT, times=-1))
    short = Channel(options(service, operation_timeout_s=0.3))
    with pytest.raises(TransportError, match=r"does not say how far partitions \[1\]"):
        describe_topic(short, "t", with_offsets=True)
    short.close()


def test_answer_to_another_call(service: TopicService, channel: Channel):
    """It is no topic without partitions."""
    service.faults.add(Fault(At.DESCRIBE, acks=Acks.REVERSED))
    with pytest.raises(ProtocolError, match="Describing t: the answer is of another"):
        describe_topic(channel, "t", with_offsets=False)


@pytest.mark.parametrize("patience", [Patience(call_s=0.3)])
def test_silent_calls(
    service: TopicService,
    channel: Channel,
    patience: Patience,
    monkeypatch: pytest.MonkeyPatch,
):
    """A call without an answer is made again, until its time is over."""
    monkeypatch.setattr("ydb_spark.client.channel.LAST_TRY_S", 0.05)
    service.faults.add(Fault(At.DESCRIBE, delay_s=0.8))
    assert describe_topic(channel, "t", with_offsets=False).partitions
    service.faults.add(Fault(At.DESCRIBE, delay_s=0.8, times=-1))
    short = Channel(options(service, operation_timeout_s=0.5, patience=patience))
    with pytest.raises(YdbError, match=r"Describing t.* for 0\.5 s"):
        describe_topic(short, "t", with_offsets=False)
    short.close()


def test_token():
    """A token is sent with each call; a wrong one is refused at once, and not shown."""
    with TopicService(tokens={"secret-1": frozenset({"read", "write"})}) as service:
        service.store.create("t")
        good = Channel(options(service, token=Secret("secret-1")))
        assert describe_topic(good, "t", with_offsets=False).partitions
        good.close()
        bad = Channel(options(service, token=Secret("secret-2", "auth.token")))
        began = time.monotonic()
        with pytest.raises(AuthError) as caught:
            describe_topic(bad, "t", with_offsets=False)
        assert time.monotonic() - began < 30
        bad.close()
        assert "secret" not in str(caught.value)


def test_password():
    """A user logs in; a wrong password is an error with its cause, and not shown."""
    users = {"ann": "right"}
    with TopicService(tokens={}, users=users) as service:
        service.store.create("t")
        good = Channel(options(service, login="ann", password=Secret("right")))
        assert describe_topic(good, "t", with_offsets=False).partitions
        good.close()
        bad = Channel(options(service, login="ann", password=Secret("hunter2")))
        with pytest.raises(AuthError, match="Invalid password") as caught:
            describe_topic(bad, "t", with_offsets=False)
        bad.close()
        assert "hunter2" not in str(caught.value)


def test_shared(connection: ConnectionOptions):
    """Tasks of a process share a channel, until it is closed."""
    first = shared_channel(connection)
    assert shared_channel(ConnectionOptions(**vars(connection))) is first
    close_shared()
    assert shared_channel(connection) is not first


def test_not_over_a_fork(channel: Channel, monkeypatch: pytest.MonkeyPatch):
    """A child of a process that used gRPC gets an error, before it comes to gRPC."""
    describe_topic(channel, "t", with_offsets=False)
    # No real child: what gRPC does in one, without being asked, may end it.
    child = os.getpid() + 1
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: child)
        with pytest.raises(ForkError):
            describe_topic(channel, "t", with_offsets=False)
