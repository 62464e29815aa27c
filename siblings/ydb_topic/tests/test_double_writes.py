# SPDX-License-Identifier: Apache-2.0
"""The double refuses what the documents of writing forbid, and keeps the rest."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from siblings.ydb_topic.tests.support import refusal
from siblings.ydb_topic.tests.support.faults import Acks, At, Fault, When
from siblings.ydb_topic.tests.support.raw import RawStream, Write, init, write
from siblings.ydb_topic.tests.support.service import TopicService


def ask(service: TopicService, *requests: Any) -> list[Any]:
    """What a session answers to some requests, until its end."""
    with RawStream(service, "StreamWrite") as stream:
        for request in requests:
            kind = type(request).__name__
            name = {"InitRequest": "init_request", "WriteRequest": "write_request"}
            stream.send(**{name[kind]: request})
        return stream.rest()


def acks(response: Any) -> list[tuple[int, str]]:
    """Number and kind of the acknowledgements of a response."""
    return [
        (ack.seq_no, ack.WhichOneof("message_write_status"))
        for ack in response.write_response.acks
    ]


REFUSED = {
    "nothing at all": ((), refusal.BAD_REQUEST),
    "a write before init": ((write(1),), refusal.BAD_REQUEST),
    "a second init": ((init(), init()), refusal.BAD_REQUEST),
    "no path": ((init(""),), refusal.BAD_REQUEST),
    "no such topic": ((init("absent"),), refusal.SCHEME_ERROR),
    "a long producer": ((init(producer_id="p" * 2049),), refusal.BAD_REQUEST),
    "a producer of many bytes": (
        (init(producer_id="\u00e4" * 1025),),
        refusal.BAD_REQUEST,
    ),
    "another group": (
        (init(producer_id="p", message_group_id="q"),),
        refusal.BAD_REQUEST,
    ),
    "no such partition, with a producer": (
        (init(producer_id="p", partition_id=9),),
        refusal.OVERLOADED,
    ),
    "no such partition": ((init(partition_id=9),), refusal.UNAVAILABLE),
    "no messages": ((init(), write()), refusal.BAD_REQUEST),
    "no codec": ((init(), write(1, codec=0)), refusal.BAD_REQUEST),
    "a codec that the topic has not": (
        (init(), write(1, codec=3)),
        refusal.BAD_REQUEST,
    ),
    "number 0": ((init(), write(0)), refusal.BAD_REQUEST),
    "equal numbers": ((init(), write(1, 1)), refusal.BAD_REQUEST),
    "falling numbers": ((init(), write(2, 1)), refusal.BAD_REQUEST),
    "a partition a message": (
        (init(), write(1, partition_id=1)),
        refusal.BAD_REQUEST,
    ),
    "large metadata": (
        (init(), write(1, metadata_items=[{"key": "k", "value": b"v" * 4096}])),
        refusal.BAD_REQUEST,
    ),
    "metadata of large keys": (
        (init(), write(1, metadata_items=[{"key": "\u00e4" * 2049}])),
        refusal.BAD_REQUEST,
    ),
    "a thousand metadata items and one": (
        (
            init(),
            write(1, metadata_items=[{"key": str(n)} for n in range(1001)]),
        ),
        refusal.BAD_REQUEST,
    ),
    "metadata keys twice": (
        (init(), write(1, metadata_items=[{"key": "k"}, {"key": "k"}])),
        refusal.BAD_REQUEST,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(service: TopicService, case: str):
    """The status says so, an issue says why, and nothing is stored."""
    requests, status = REFUSED[case]
    responses = ask(service, *requests)
    assert responses[-1].status == status
    assert responses[-1].issues
    assert not service.store.stored("t")


def test_without_a_database(service: TopicService):
    """Every call names its database."""
    with RawStream(service, "StreamWrite", {}) as stream:
        assert stream.receive().status == refusal.BAD_REQUEST


def test_tokens():
    """Who is not known is turned away before the stream, who may not in it."""
    with TopicService(tokens={"reader": frozenset({"read"})}) as service:
        service.store.create("t")
        headers = {"x-ydb-database": "/local"}
        with RawStream(service, "StreamWrite", headers) as stream:
            with pytest.raises(grpc.RpcError) as caught:
                stream.receive()
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        headers["x-ydb-auth-ticket"] = "reader"
        with RawStream(service, "StreamWrite", headers) as stream:
            assert stream.receive().status == refusal.UNAUTHORIZED


def test_stored_once(service: TopicService):
    """Of a producer only what is above its highest number is stored."""
    first = ask(service, init(producer_id="p"), write(1, 2, 5))
    assert acks(first[1]) == [(1, "written"), (2, "written"), (5, "written")]
    again = ask(service, init(producer_id="p"), write(2, 5, 6))
    assert again[0].init_response.last_seq_no == 5
    assert again[0].init_response.partition_id == first[0].init_response.partition_id
    assert acks(again[1]) == [(2, "skipped"), (5, "skipped"), (6, "written")]
    assert [m.seq_no for m in service.store.stored("t")] == [1, 2, 5, 6]


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_topic_that_is_dropped(service: TopicService, is_made_anew: bool):
    """Its streams end; what comes next is told by another one."""
    with RawStream(service, "StreamWrite") as stream:
        stream.send(init_request=init(producer_id="p"))
        stream.send(write_request=write(1))
        assert stream.receive().init_response.partition_id in (0, 1)
        assert acks(stream.receive()) == [(1, "written")]
        service.store.drop("t")
        if is_made_anew:
            service.store.create("t")
        stream.send(write_request=write(2))
        assert stream.receive().status == refusal.UNAVAILABLE
    (first, *_) = ask(service, init(producer_id="p"))
    if is_made_anew:
        assert first.init_response.last_seq_no == 0
    else:
        assert first.status == refusal.SCHEME_ERROR


def test_without_a_producer_all_is_stored(service: TopicService):
    """Without a producer nothing is taken for a repetition."""
    for _ in range(2):
        responses = ask(service, init(partition_id=0), write(1))
        assert responses[0].init_response.last_seq_no == 0
    assert [m.seq_no for m in service.store.stored("t", 0)] == [1, 1]


def test_group_alone_is_the_producer(service: TopicService):
    """A message group without a producer stands for it."""
    ask(service, init(message_group_id="g"), write(3))
    answer = ask(service, init(producer_id="g", message_group_id="g"))
    assert answer[0].init_response.last_seq_no == 3


def test_bound_for_good(service: TopicService):
    """A producer stays in its partition."""
    ask(service, init(producer_id="p", partition_id=0), write(1))
    refused = ask(service, init(producer_id="p", partition_id=1))
    assert refused[0].status == refusal.BAD_REQUEST
    assert "already bound" in refused[0].issues[0].message


def test_newer_session_ends_the_older(service: TopicService):
    """A producer has one session at a time, the last one."""
    with RawStream(service, "StreamWrite") as older:
        older.send(init_request=init(producer_id="p")).receive()
        with RawStream(service, "StreamWrite") as newer:
            newer.send(init_request=init(producer_id="p")).receive()
            assert older.receive().status == refusal.BAD_REQUEST
            newer.send(write_request=write(1))
            assert acks(newer.receive()) == [(1, "written")]


def test_split_moves_producers_with_their_numbers(service: TopicService):
    """Children know what their parent has."""
    ask(service, init(producer_id="p", partition_id=0), write(7))
    with RawStream(service, "StreamWrite") as stream:
        stream.send(init_request=init(partition_id=0)).receive()
        children = service.store.split("t", 0)
        stream.send(write_request=write(8))
        assert stream.receive().status == refusal.OVERLOADED
    refused = ask(service, init(producer_id="p", partition_id=0))
    assert refused[0].status == refusal.OVERLOADED
    moved = ask(service, init(producer_id="p"), write(7, 8))
    assert moved[0].init_response.partition_id in children
    assert moved[0].init_response.last_seq_no == 7
    assert acks(moved[1]) == [(7, "skipped"), (8, "written")]


def test_reads_no_more_than_a_megabyte_ahead(service: TopicService):
    """It takes the next request only below that."""
    service.faults.add(Fault(At.WRITE, delay_s=0.5))
    with RawStream(service, "StreamWrite") as stream:
        stream.send(init_request=init(partition_id=0)).receive()
        for number in range(1, 6):
            stream.send(write_request=write(number, data=bytes(600_000)))
        for number in range(1, 6):
            assert acks(stream.receive()) == [(number, "written")]
            (writer,) = service.writers
            assert writer.inbox.unhandled_bytes < 1_000_000 + 600_100


def test_half_close_drains(service: TopicService):
    """Who closes its side still gets every answer."""
    responses = ask(service, init(partition_id=0), *(write(n) for n in range(1, 30)))
    assert [a for r in responses[1:] for a in acks(r)] == [
        (n, "written") for n in range(1, 30)
    ]


@pytest.mark.parametrize(("when", "stored"), [*zip(When, (0, 2, 4), strict=True)])
def test_faults_before_and_after_storing(
    service: TopicService, when: When, stored: int
):
    """A fault leaves nothing, a part or all of a request."""
    service.faults.add(Fault(At.WRITE, when, status=refusal.UNAVAILABLE))
    responses = ask(service, init(partition_id=0), write(1, 2, 3, 4))
    assert responses[-1].status == refusal.UNAVAILABLE
    assert len(service.store.stored("t")) == stored


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (Acks.SHORT, [1]),
        (Acks.REPEATED, [1, 1, 2, 2]),
        (Acks.REVERSED, [2, 1]),
    ],
)
def test_spoilt_acks(service: TopicService, how: Acks, expected: list[int]):
    """Acknowledgements can be short, repeated and out of order."""
    service.faults.add(Fault(At.WRITE, acks=how))
    responses = ask(service, init(partition_id=0), write(1, 2))
    assert [number for number, _ in acks(responses[1])] == expected


def test_token_in_the_stream(service: TopicService):
    """A token can be renewed in a session, but not to none."""
    with RawStream(service, "StreamWrite") as stream:
        stream.send(init_request=init()).receive()
        stream.send(update_token_request={"token": "new"})
        assert stream.receive().WhichOneof("server_message") == "update_token_response"
        stream.send(update_token_request={"token": ""})
        assert stream.receive().status == refusal.BAD_REQUEST


def test_messages_are_kept_as_they_are(service: TopicService):
    """Bodies are not opened; times are cut to milliseconds."""
    request = Write.WriteRequest(codec=2)
    message = request.messages.add(seq_no=1, data=b"zip", uncompressed_size=9)
    message.created_at.FromMicroseconds(1_234_567)
    message.metadata_items.add(key="k", value=b"")
    ask(service, init(producer_id="p", write_session_meta={"a": "b"}), request)
    (stored,) = service.store.stored("t")
    assert stored.data == b"zip"
    assert stored.codec == 2
    assert stored.created_at_ms == 1234  # milliseconds, cut off
    assert stored.metadata_items == (("k", b""),)
    assert stored.session_meta == (("a", "b"),)
    assert stored.uncompressed_size == 9
