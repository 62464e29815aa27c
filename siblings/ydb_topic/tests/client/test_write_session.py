# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from siblings.ydb_topic.tests.support import write_stream
from siblings.ydb_topic.tests.support.faults import Acks, At, Fault, When
from siblings.ydb_topic.tests.support.service import DATABASE, TopicService
from tests.support.waiting import await_true
from ydb_spark.client.channel import Channel
from ydb_spark.client.write_session import SessionSettings, WriteSession
from ydb_spark.errors import (
    AuthError,
    DataLossError,
    ProtocolError,
    SendTimeoutError,
    ServerError,
    TakenOverError,
    TopicNotFoundError,
    TransportError,
    YdbError,
)
from ydb_spark.options.connection import ConnectionOptions, Secret
from ydb_spark.options.patience import Patience
from ydb_spark.sdk import pb
from ydb_spark.wire.statuses import STATUSES, server_error

Request = pb.StreamWriteMessage.WriteRequest

GRPC_RETRIED = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.DEADLINE_EXCEEDED,
}
GRPC_FINAL = {
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAUTHENTICATED,
}


def request(*numbers: int) -> Any:
    """A request with messages of these numbers."""
    return Request(
        codec=1,
        messages=[Request.MessageData(seq_no=n, data=b"%d" % n) for n in numbers],
    )


def session(channel: Channel, **values: Any) -> WriteSession:
    """A session of the producer ``p``."""
    return WriteSession(
        channel, SessionSettings("t", **{"producer_id": "p", "timeout_s": 5, **values})
    )


def write_all(session: WriteSession) -> None:
    """Write messages 1 to 40 in ten requests."""
    try:
        for first in range(1, 41, 4):
            session.send(request(*range(first, first + 4)))
        session.close()
    finally:
        session.cancel()


def go_on(session: WriteSession, first: int, stop: int) -> None:
    """Write messages, each after the answer to the one before."""
    for number in range(first, stop):
        session.send(request(number))
        session.wait(0)


def write_one_by_one(session: WriteSession, first: int, stop: int) -> None:
    """Likewise, and end the session."""
    try:
        go_on(session, first, stop)
    finally:
        session.cancel()


def stored(service: TopicService) -> list[int]:
    """The numbers that are stored, in order."""
    return [m.seq_no for m in service.store.stored("t")]


WHOLE = [*range(1, 41)]


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize("status", STATUSES, ids=lambda n: STATUSES[n].name)
def test_every_status(service: TopicService, channel: Channel, status: int, when: When):
    """After each, wherever it strikes, all is stored once or the error says which."""
    service.faults.add(Fault(At.WRITE, when, status=status, skip=3))
    writer = session(channel)
    if server_error(status, "", "", is_deduplicated=True).retriable:
        write_all(writer)
        assert stored(service) == WHOLE
        assert writer.reconnects == 1
        assert writer.acked.messages == 40
    else:
        with pytest.raises(ServerError, match=STATUSES[status].name):
            write_all(writer)
        assert stored(service) == WHOLE[: len(stored(service))]


@pytest.mark.parametrize("when", When)
@pytest.mark.parametrize(
    "code", sorted(GRPC_RETRIED, key=str), ids=lambda code: code.name
)
def test_grpc_statuses_that_pass(
    service: TopicService, channel: Channel, code: grpc.StatusCode, when: When
):
    """What the network says is no refusal."""
    service.faults.add(Fault(At.WRITE, when, grpc=code, skip=3))
    writer = session(channel)
    write_all(writer)
    assert stored(service) == WHOLE
    assert writer.acked.messages == 40


@pytest.mark.parametrize(
    "code", sorted(GRPC_FINAL, key=str), ids=lambda code: code.name
)
def test_grpc_statuses_that_stay(
    service: TopicService, channel: Channel, code: grpc.StatusCode
):
    """These are not tried again."""
    service.faults.add(Fault(At.WRITE_INIT, grpc=code, times=-1))
    with pytest.raises((TransportError, AuthError)):
        write_all(session(channel))
    assert service.count("StreamWrite", "init_request") == 1


@pytest.mark.parametrize("when", When)
def test_stream_that_ends(service: TopicService, channel: Channel, when: When):
    """A stream that ends with OK but without answers is no success."""
    service.faults.add(Fault(At.WRITE, when, cuts=True, skip=9))
    writer = session(channel)
    write_all(writer)
    assert stored(service) == WHOLE
    assert writer.reconnects == 1


def test_without_a_producer_rows_may_repeat(service: TopicService, channel: Channel):
    """Then a fault after storing stores some twice, and none is lost."""
    fault = Fault(At.WRITE, When.AFTER, status=400050, skip=3)
    service.faults.add(fault)
    write_all(session(channel, producer_id=""))
    assert sorted({*stored(service)}) == WHOLE
    assert len(stored(service)) > 40


@pytest.mark.parametrize("how", [Acks.SHORT, Acks.REPEATED, Acks.REVERSED])
def test_answers_that_cannot_be(service: TopicService, channel: Channel, how: Acks):
    """They end the write with an error."""
    service.faults.add(Fault(At.WRITE, acks=how, skip=2))
    with pytest.raises(ProtocolError, match=r"Writing to t/.* as p, session write-"):
        write_all(session(channel))


@pytest.fixture
def short_last_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried at the very end has 50 ms."""
    monkeypatch.setattr("ydb_spark.client.write_session.LAST_TRY_S", 0.05)


@pytest.mark.usefixtures("short_last_try")
@pytest.mark.parametrize("at", [At.WRITE, At.WRITE_INIT])
def test_no_answer(service: TopicService, channel: Channel, at: At):
    """The deadline ends it, and the error names the option."""
    service.faults.add(Fault(at, acks=Acks.NONE, times=-1))
    writer = session(channel, timeout_s=0.2)
    with pytest.raises(SendTimeoutError, match="sendTimeoutMs"):
        write_one_by_one(writer, 1, 2)


def test_no_answer_but_an_end(service: TopicService, channel: Channel):
    """A new stream tells what the old one did not."""
    service.faults.add(Fault(At.WRITE, acks=Acks.NONE, times=-1))
    writer = session(channel)
    write_all(writer)
    assert writer.acked.written == 40
    assert stored(service) == WHOLE


def test_never_available(service: TopicService, channel: Channel):
    """A few tries, then an end."""
    service.faults.add(Fault(At.WRITE, status=400050, times=-1))
    with pytest.raises(ServerError, match="It was tried for 1 s"):
        write_all(session(channel, timeout_s=1))
    assert 3 <= service.count("StreamWrite", "init_request") < 12


def test_overloaded_is_given_more_time(service: TopicService, channel: Channel):
    """Of these there are fewer tries in the same time."""
    service.faults.add(Fault(At.WRITE_INIT, status=400060, times=-1))
    with pytest.raises(ServerError, match="OVERLOADED"):
        write_all(session(channel, timeout_s=1))
    assert 2 <= service.count("StreamWrite", "init_request") <= 6


@pytest.mark.usefixtures("short_last_try")
def test_progress_renews_the_time(service: TopicService, channel: Channel):
    """Slow answers are no silence."""
    service.faults.add(Fault(At.WRITE, delay_s=0.1, times=-1))
    write_all(session(channel, timeout_s=0.5))
    assert stored(service) == WHOLE


def test_time_of_others_is_not_counted(service: TopicService, channel: Channel):
    """Who takes long to make rows has all the time for an answer, and to try again."""
    writer = session(channel, timeout_s=0.4)
    writer.send(request(1))
    writer.wait(0)
    time.sleep(0.45)
    service.faults.add(Fault(At.WRITE, status=400050, times=2))
    service.faults.add(Fault(At.WRITE, delay_s=0.1, times=-1))
    writer.send(request(2))
    writer.close()
    assert stored(service) == [1, 2]
    assert writer.reconnects == 2


def test_stream_that_broke_meanwhile(service: TopicService, channel: Channel):
    """Likewise where the server was away while rows were made."""
    writer = session(channel, timeout_s=5)
    writer.send(request(1))
    writer.wait(0)
    service.stop()
    time.sleep(0.2)
    service.start()
    writer.send(request(2))
    writer.close()
    assert stored(service) == [1, 2]


@pytest.mark.usefixtures("short_last_try")
def test_who_only_talks_is_silent(service: TopicService, channel: Channel):
    """Responses without answers do not move the deadline."""
    service.faults.add(Fault(At.WRITE, acks=Acks.TALK, times=-1))
    with pytest.raises(SendTimeoutError, match="sendTimeoutMs"):
        write_one_by_one(session(channel, timeout_s=0.2), 1, 2)


def test_flood_of_answers(service: TopicService, channel: Channel):
    """What nobody takes waits at the server, and a stream full of it still ends."""
    service.faults.add(Fault(At.WRITE, acks=Acks.TALK))
    writer = session(channel, timeout_s=5)
    writer.send(request(1))
    stream = writer._stream
    assert stream is not None
    limit = stream._answers.maxsize
    await_true(lambda: stream._answers.qsize() >= limit, "a full stream", 20)
    assert 0 < limit <= 64
    writer.cancel()
    await_true(lambda: not service.writers, "the end of the stream", 20)


def test_another_partition(service: TopicService, channel: Channel):
    """Rows that name a partition are not written to another one."""
    service.faults.add(Fault(At.WRITE_INIT, acks=Acks.REVERSED))
    with pytest.raises(ProtocolError, match=r"t/0.*the server began partition 1"):
        write_all(session(channel, partition=0))
    assert not stored(service)


@pytest.mark.parametrize("wanted", [0, None])
def test_rows_that_are_stored_elsewhere(
    service: TopicService, channel: Channel, wanted: int | None
):
    """The server says so with each answer: an error, or the partition that is told."""
    service.faults.add(Fault(At.WRITE, acks=Acks.ELSEWHERE, times=-1))
    writer = session(channel, partition=wanted)
    if wanted is None:
        write_all(writer)
        assert writer.partition is not None
        assert writer.partitions == {writer.partition + 1}
    else:
        with pytest.raises(ProtocolError, match=r"t/0.*stored rows in partition 1"):
            write_all(writer)


def bounds(numbers: range) -> tuple[int, int]:
    """The first, and the one after the last."""
    return numbers.start, numbers.stop


def bodies(service: TopicService) -> list[bytes]:
    """What is stored, once each, in the order in which it came first."""
    return [*dict.fromkeys(m.data for m in service.store.stored("t"))]


@pytest.mark.parametrize("when", When)
def test_group_whose_stream_breaks(service: TopicService, channel: Channel, when: When):
    """What had no answer is stored again rather than left out, and in its order."""
    service.faults.add(Fault(At.WRITE, when, status=400050, skip=3))
    writer = session(channel, is_group=True)
    write_all(writer)
    assert bodies(service) == [b"%d" % n for n in WHOLE]
    assert (writer.acked.written, writer.acked.skipped) == (40, 0)
    assert writer.reconnects == 1


@pytest.mark.parametrize("count", [1, 2, 50])
def test_group_that_others_write_to_meanwhile(
    service: TopicService, channel: Channel, count: int
):
    """Numbers that they took are not taken for ours, however many they are."""
    of_others = range(100, 100 + count)

    def meanwhile(error: YdbError) -> YdbError:
        write_one_by_one(session(channel, is_group=True), *bounds(of_others))
        return error

    settings = SessionSettings("t", "p", is_group=True, timeout_s=5)
    writer = WriteSession(channel, settings, meanwhile)
    go_on(writer, 1, 7)
    service.faults.add(Fault(At.WRITE, When.BEFORE, status=400050))
    write_one_by_one(writer, 7, 9)
    expected = [*range(1, 7), *of_others, 7, 8]
    assert bodies(service) == [b"%d" % n for n in expected]
    assert writer.acked.written == 8


def test_group_whose_numbers_others_took(service: TopicService, channel: Channel):
    """Where the server leaves rows out for them, they are stored under other ones."""
    writer = session(channel, is_group=True)
    go_on(writer, 1, 3)
    topic = service.store.find("t")
    assert topic is not None
    for partition in topic.partitions.values():
        partition.last_seq_no["p"] = 50
    write_one_by_one(writer, 3, 6)
    assert stored(service) == [1, 2, 51, 52, 53]
    assert (writer.acked.written, writer.acked.skipped) == (5, 0)
    assert writer.reconnects == 1


def test_topic_that_was_made_anew(service: TopicService, channel: Channel):
    """What was answered before is gone: that is no success."""
    writer = session(channel)
    go_on(writer, 1, 6)
    service.store.create("t", partitions=2)
    with pytest.raises(DataLossError, match=r"up to number 5 .* made anew"):
        write_one_by_one(writer, 6, 8)


def test_topic_that_was_dropped(service: TopicService, channel: Channel):
    """That is final."""
    writer = session(channel)
    go_on(writer, 1, 2)
    service.store.drop("t")
    with pytest.raises(TopicNotFoundError):
        write_one_by_one(writer, 2, 3)


def test_codecs_that_change(service: TopicService, channel: Channel):
    """A codec that was taken away ends the write, and says so."""
    writer = session(channel)
    go_on(writer, 1, 2)
    topic = service.store.find("t")
    assert topic is not None
    topic.codecs = (2,)
    with pytest.raises(ServerError, match="codec 1 is not supported"):
        write_one_by_one(writer, 2, 3)


@pytest.mark.parametrize("kind", ["skipped", "written_in_tx"])
def test_answers_of_another_mode(
    service: TopicService,
    channel: Channel,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
):
    """Rows that are not stored are no success: there is no producer, no transaction."""

    def acked(seq_no: int, _: int | None) -> Any:
        return {"seq_no": seq_no, kind: {}}

    monkeypatch.setattr(write_stream, "_ack", acked)
    with pytest.raises(ProtocolError, match="session write-"):
        write_all(session(channel, producer_id=""))


def test_back_pressure(service: TopicService, channel: Channel):
    """No more is unanswered than is allowed."""
    service.faults.add(Fault(At.WRITE, delay_s=0.01, times=-1))
    writer = session(channel)
    for first in range(1, 41, 4):
        writer.send(request(*range(first, first + 4)))
        writer.wait(60)
        assert writer.unacked_bytes <= 60
    writer.close()


@pytest.mark.parametrize("patience", [Patience(take_back_s=(0.0, 0.01))])
def test_taken_over(service: TopicService, channel: Channel):
    """Each takes the producer back once; the one that goes says why it cannot stay."""
    older, newer = session(channel), session(channel)
    go_on(older, 1, 2)
    newer.open()
    assert newer.last_seq_no == 1
    go_on(older, 2, 5)  # takes it back
    go_on(newer, 2, 10)  # so does this one
    assert (older.reconnects, newer.reconnects) == (1, 1)
    with pytest.raises(TakenOverError, match=r"spark\.speculation=false"):
        write_one_by_one(older, 5, 50)
    newer.send(request(10))
    newer.close()
    assert stored(service) == [*range(1, 11)]
    assert service.count("StreamWrite", "init_request") == 4


def test_says_where_it_is(channel: Channel):
    """What the server says of a session is for its log, and in our errors."""
    writer = session(channel, partition=1)
    writer.open()
    assert (writer.partition, writer.codecs) == (1, (1, 2, 4))
    assert writer.subject.startswith("Writing to t/1 as p, session write-")
    writer.cancel()


@pytest.fixture
def renewed(
    service: TopicService, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Channel, pytest.MonkeyPatch]]:
    """A channel whose token is that of a variable, now ``one``."""
    service.tokens = {name: frozenset({"read", "write"}) for name in ("one", "two")}
    monkeypatch.setenv("YDB_TEST_TOKEN", "one")
    options = ConnectionOptions(
        url=service.endpoint, database=DATABASE, token=Secret("env:YDB_TEST_TOKEN")
    )
    channel = Channel(options)
    yield channel, monkeypatch
    channel.close()


def test_token_is_renewed_in_the_stream(
    service: TopicService, renewed: tuple[Channel, pytest.MonkeyPatch]
):
    """A new token goes out once, in the stream that runs."""
    channel, environment = renewed
    writer = session(channel, renew_s=0.0)
    writer.send(request(1))
    writer.wait(0)
    environment.setenv("YDB_TEST_TOKEN", "two")
    for number in (2, 3, 4):
        writer.send(request(number))
        writer.wait(0)
    writer.close()
    tokens = service.requests("StreamWrite", "update_token_request")
    assert [one.token for one in tokens] == ["two"]
    assert writer.reconnects == 0


def test_token_that_is_refused_in_the_stream(
    service: TopicService, renewed: tuple[Channel, pytest.MonkeyPatch]
):
    """It is tried by a new stream once; then it is an error."""
    channel, environment = renewed
    writer = session(channel, renew_s=0.0)
    writer.send(request(1))
    writer.wait(0)
    service.faults.add(Fault(At.TOKEN, status=400020))
    environment.setenv("YDB_TEST_TOKEN", "two")
    number = 1
    while not writer.reconnects:
        assert number < 1000
        number += 1
        writer.send(request(number))
        writer.wait(0)
    environment.setenv("YDB_TEST_TOKEN", "three")
    with pytest.raises(YdbError, match=r"not valid|Access denied"):
        write_one_by_one(writer, number + 1, number + 1000)
