# SPDX-License-Identifier: Apache-2.0
"""The double refuses what the documents of writing forbid."""

from __future__ import annotations

from typing import Any

import pytest

from siblings.ydb_topic.tests.support import refusal
from siblings.ydb_topic.tests.support.faults import At, Fault
from siblings.ydb_topic.tests.support.raw import RawStream, init, write
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


def test_token_in_the_stream(service: TopicService):
    """A token can be renewed in a session, but not to none."""
    with RawStream(service, "StreamWrite") as stream:
        stream.send(init_request=init()).receive()
        stream.send(update_token_request={"token": "new"})
        assert stream.receive().WhichOneof("server_message") == "update_token_response"
        stream.send(update_token_request={"token": ""})
        assert stream.receive().status == refusal.BAD_REQUEST
