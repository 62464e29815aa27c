# SPDX-License-Identifier: Apache-2.0
"""A connection as a value: serial numbers, deadlines, and what servers do wrong."""

from __future__ import annotations

import contextlib
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from siblings.tubemq.tests.scripted_server import REPLIES
from siblings.tubemq.tests.wire import golden
from tubemq_spark.errors import ProtocolError
from tubemq_spark.wire import messages
from tubemq_spark.wire import tubemq_pb2 as pb
from tubemq_spark.wire.attributes import Stored
from tubemq_spark.wire.frames import FrameReader, encode_frame
from tubemq_spark.wire.gets import read_got
from tubemq_spark.wire.protocol import ClientProtocol, Event, Reply, Thrown
from tubemq_spark.wire.rpc import Failure, parse

SEND = messages.send("p1", "filt", 0, Stored(b"hi", 0))
GET = messages.get("c1", "g1", "filt", 0)
COMMIT = messages.commit("c1", "g1", "filt", 0)


def delimited(*parts: Any) -> bytes:
    data = [part.SerializeToString() for part in parts]
    return b"".join(bytes([len(one)]) + one for one in data)


def answer(serial: int, body: Any, method: int = 13) -> bytes:
    """A frame with a reply, smaller than 128 bytes."""
    return encode_frame(
        serial,
        delimited(
            pb.RpcConnHeader(flag=1),
            pb.ResponseHeader(status=0),
            pb.RspResponseBody(method=method, data=body.SerializeToString()),
        ),
    )


def exception(serial: int, name: str) -> bytes:
    return encode_frame(
        serial,
        delimited(
            pb.RpcConnHeader(flag=1),
            pb.ResponseHeader(status=2),
            pb.RspExceptionBody(exceptionName=name, stackTrace="why"),
        ),
    )


SENT = pb.SendMessageResponseB2P(success=True, errCode=200, errMsg="17")


def waiting(count: int = 1) -> ClientProtocol:
    protocol = ClientProtocol()
    for _ in range(count):
        protocol.request(SEND, 1000, deadline=10.0)
    return protocol


def serials(events: list[Event]) -> list[int]:
    return [event.serial for event in events]


def test_replies_find_their_requests_in_any_order():
    protocol = waiting(3)
    data = answer(3, SENT) + answer(1, SENT) + answer(2, SENT)
    assert serials(list(protocol.receive_data(data))) == [3, 1, 2]
    assert protocol.waiting == 0


def test_a_request_carries_its_time_limit():
    _, frame = ClientProtocol().request(SEND, 1234, deadline=10.0)
    reader = FrameReader()
    reader.receive_data(frame)
    request = reader.next_frame()
    assert request is not None
    body = pb.RequestBody.FromString(request.payload[9:])  # two headers, and its size
    assert (body.method, body.timeout) == (13, 1234)


def test_a_second_reply_and_one_to_nobody_are_dropped():
    protocol = waiting()
    data = exception(1, "a.b.ServiceStoppingException") + answer(1, SENT)
    first = Thrown(1, Failure("ServiceStoppingException", "why", is_fatal=True))
    assert list(protocol.receive_data(data + answer(77, SENT))) == [first]


def test_a_late_reply_is_dropped():
    protocol = waiting()
    protocol.request(SEND, 1000, deadline=20.0)
    assert protocol.expired(9.9) == []
    assert protocol.expired(10.0) == [1]
    assert serials(list(protocol.receive_data(answer(1, SENT) + answer(2, SENT)))) == [
        2
    ]
    assert protocol.expired(30.0) == []


def test_a_request_that_nobody_waits_for_is_forgotten_once():
    protocol = waiting()
    assert protocol.forget(1)
    assert not protocol.forget(1)
    assert list(protocol.receive_data(answer(1, SENT))) == []


def test_serial_numbers_start_over_and_pass_by_those_in_use():
    protocol = ClientProtocol(first_serial=2**31 - 1)
    numbers = [protocol.request(SEND, 1, deadline=9.0)[0] for _ in range(3)]
    assert numbers == [2**31 - 1, 0, 1]
    again = ClientProtocol()
    again.request(SEND, 1, deadline=9.0)
    again._serial = 2**31 - 1
    assert [again.request(SEND, 1, deadline=9.0)[0] for _ in range(2)] == [0, 2]


def test_the_reply_of_another_method_is_an_error():
    protocol = waiting()
    with pytest.raises(ProtocolError, match=r"13 \(send\) was answered by method 17"):
        list(protocol.receive_data(answer(1, SENT, method=17)))
    with pytest.raises(ProtocolError, match="was answered by"):
        protocol.receive_data(b"")


def test_a_reply_without_what_is_relied_on_is_an_error():
    for body in (
        pb.CommitOffsetResponseB2C(success=True),
        pb.CommitOffsetResponseB2C(success=True, errCode=200),
    ):
        protocol = ClientProtocol()
        protocol.request(COMMIT, 1000, deadline=9.0)
        with pytest.raises(ProtocolError, match=r"has no (errCode|currOffset)"):
            list(protocol.receive_data(answer(1, body, method=18)))


def test_a_captured_refusal_is_a_reply():
    protocol = ClientProtocol(first_serial=5)
    protocol.request(GET, 1000, deadline=9.0)
    (event,) = protocol.receive_data(golden.NOTHING_TO_GET)
    assert isinstance(event, Reply)
    got = read_got(event.body)
    assert (got.head.errCode, got.head.currOffset, len(got.messages)) == (404, -1, 0)


@given(st.data())
def test_every_cut_of_a_stream_gives_the_same_events(data):
    stream = answer(1, SENT) + exception(2, "x.StandbyException") + answer(3, SENT)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    whole, parts = waiting(3), waiting(3)
    events: list[Event] = []
    edges = [0, *cuts, len(stream)]
    for begin, end in itertools.pairwise(edges):
        events += parts.receive_data(stream[begin:end])
    assert events == list(whole.receive_data(stream))
    assert len(events) == 3


def outcome(stream: bytes, cuts: list[int]) -> tuple[list[Event], bool]:
    """What a stream means that comes in pieces, and whether it ends in an error."""
    protocol, events = waiting(3), []
    for begin, end in itertools.pairwise([0, *sorted(cuts), len(stream)]):
        try:
            # As they come: an error takes nothing back.
            for event in protocol.receive_data(stream[begin:end]):
                events.append(event)
        except ProtocolError:
            return events, True
    return events, False


PARTS = st.one_of(
    st.sampled_from(
        [answer(1, SENT), answer(2, SENT), exception(3, "x.Y"), answer(9, SENT)]
    ),
    st.binary(max_size=30),
    st.builds(encode_frame, st.integers(0, 3), st.binary(min_size=1, max_size=30)),
)


@given(st.lists(PARTS, max_size=5), st.data())
def test_every_cut_of_any_stream_gives_the_same_events(parts: list[bytes], data):
    stream = b"".join(parts)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))
    assert outcome(stream, cuts) == outcome(stream, [])
    assert outcome(stream, list(range(len(stream)))) == outcome(stream, [])


@given(st.sampled_from(sorted(REPLIES)), st.binary(max_size=60))
def test_any_bytes_are_a_reply_or_one_error(method: int, data: bytes):
    """Text in it can be shown."""
    with contextlib.suppress(ProtocolError):  # and nothing else
        parse(REPLIES[method](), data).errMsg.encode()


@given(st.binary(max_size=60), st.integers(0, 60), st.integers(0, 255))
def test_damage_is_events_or_one_error(garbage: bytes, at: int, byte: int):
    stream = bytearray(answer(1, SENT) + garbage)
    stream[at % len(stream)] = byte
    protocol = waiting()
    seen: list[object] = []
    for _ in range(2):
        try:
            seen.append(list(protocol.receive_data(bytes(stream))))
        except ProtocolError as error:
            seen.append(error)
    if isinstance(seen[0], ProtocolError):
        assert seen[1] is seen[0]
    else:
        assert seen[0] == [] or serials(seen[0]) == [1]  # type: ignore[arg-type]
