# SPDX-License-Identifier: Apache-2.0
"""A connection as a value: what each command becomes, in and out of the handshake."""

from __future__ import annotations

import itertools
import resource
from typing import Any

import pytest
from google.protobuf.internal import api_implementation
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.errors import SERVER_ERRORS, ProtocolError
from pulsar_spark.loops.requests import Reply
from pulsar_spark.loops.sends import Receipt
from pulsar_spark.message_id import MessageId, TopicPositions
from pulsar_spark.wire import commands
from pulsar_spark.wire.commands import Attached
from pulsar_spark.wire.frames import FRAME_HEADROOM_BYTES
from pulsar_spark.wire.protocol import (
    ACKNOWLEDGED,
    DONE,
    AuthChallenged,
    ClientProtocol,
    Connected,
    ConsumerClosed,
    Delivery,
    Event,
    ProducerClosed,
    Queued,
    Refusal,
    SendRefused,
    State,
    TopicMigrated,
)
from tests.wire import builders
from tests.wire.builders import CONNECTED, U64_MAX, Sent, command, frame, proto

CONNECT = b"CONNECT of somebody"

#: Type of each reply to a request of ours, and its request_id's field number.
REPLIES = {
    "SUCCESS": (13, 1),
    "PARTITIONED_METADATA_RESPONSE": (22, 2),
    "LOOKUP_RESPONSE": (24, 4),
    "CONSUMER_STATS_RESPONSE": (26, 1),
    "GET_LAST_MESSAGE_ID_RESPONSE": (30, 2),
    "GET_TOPICS_OF_NAMESPACE_RESPONSE": (33, 1),
    "ACK_RESPONSE": (38, 6),
    "PRODUCER_SUCCESS": (17, 1),
    "NEW_TXN_RESPONSE": (51, 1),
    "ADD_PARTITION_TO_TXN_RESPONSE": (53, 1),
    "END_TXN_RESPONSE": (57, 1),
    "TC_CLIENT_CONNECT_RESPONSE": (63, 1),
}

#: Those that may carry a refusal: type, fields of request_id, error and message.
REFUSALS = {
    "ERROR": (14, 1, 2, 3),
    "PARTITIONED_METADATA_RESPONSE": (22, 2, 4, 5),
    "LOOKUP_RESPONSE": (24, 4, 6, 7),
    "CONSUMER_STATS_RESPONSE": (26, 1, 2, 3),
    "ACK_RESPONSE": (38, 6, 4, 5),
    "NEW_TXN_RESPONSE": (51, 1, 4, 5),
    "ADD_PARTITION_TO_TXN_RESPONSE": (53, 1, 4, 5),
    "END_TXN_RESPONSE": (57, 1, 4, 5),
    "TC_CLIENT_CONNECT_RESPONSE": (63, 1, 2, 3),
}


def ready(**how: Any) -> ClientProtocol:
    """A connection after its handshake."""
    protocol = ClientProtocol(CONNECT)
    protocol.data_to_send()
    (event,) = protocol.receive_data(builders.connected(**how))
    assert isinstance(event, Connected)
    return protocol


def one(protocol: ClientProtocol, data: bytes) -> Event:
    """The only event that some bytes are."""
    (event,) = protocol.receive_data(data)
    return event


def none(protocol: ClientProtocol, data: bytes) -> None:
    """Checks that some bytes are no event."""
    assert list(protocol.receive_data(data)) == []


# -- handshake -------------------------------------------------------------------------


def test_handshake():
    """CONNECT goes out once, at the beginning; CONNECTED is the first event."""
    protocol = ClientProtocol(CONNECT)
    assert protocol.data_to_send() == CONNECT
    assert protocol.data_to_send() == b""
    assert one(protocol, builders.connected(9999, "Pulsar Server4.0.7")) == Connected(
        "Pulsar Server4.0.7", 21, 9999
    )


def test_default_limit():
    """Without a limit in CONNECTED, 5 MiB count."""
    event = one(ClientProtocol(CONNECT), builders.connected())
    assert isinstance(event, Connected)
    assert event.max_message_size_bytes == 5 * 1024 * 1024


@pytest.mark.parametrize("limit", [-1, -(2**31)])
def test_a_limit_below_nothing(limit: int):
    """A negative limit is not the protocol's."""
    with pytest.raises(ProtocolError, match=f"limits messages to {limit}"):
        one(ClientProtocol(CONNECT), builders.connected(limit))


def test_the_limit_of_the_broker_counts():
    """After CONNECTED frames may have its limit and the headroom, not a byte more."""
    protocol = ready(max_message_size=1000)
    command_size = 8 + len(command(14, (1, 5), (2, 1), (3, b"")))
    size = 1000 + FRAME_HEADROOM_BYTES - command_size
    longest = frame(command(14, (1, 5), (2, 1), (3, b"x" * (size - 2))))
    assert len(longest) == 1000 + FRAME_HEADROOM_BYTES
    assert isinstance(one(protocol, longest), Refusal)
    with pytest.raises(ProtocolError, match="larger than this connection's limit"):
        list(protocol.receive_data((2000 + FRAME_HEADROOM_BYTES).to_bytes(4, "big")))


@pytest.mark.parametrize(
    ("memory", "broker"), [(6 << 20, 5_500_000), (1, 1 << 20), (5 << 20, 5 << 20)]
)
def test_memory_above_the_limit_of_the_broker_does_not_count(memory: int, broker: int):
    """Neither raises what a frame may hold, nor is it named in the error."""
    protocol = ClientProtocol(CONNECT, memory_limit_bytes=memory)
    one(protocol, builders.connected(broker))
    longest = broker + FRAME_HEADROOM_BYTES
    with pytest.raises(ProtocolError, match=f"limit of {longest} bytes") as caught:
        none(protocol, (longest + 1 - 4).to_bytes(4, "big"))
    assert "memoryLimitBytes" not in str(caught.value)


def test_the_limit_before_the_handshake():
    """It is that of all brokers, to the byte."""
    longest = 5 * 2**20 + FRAME_HEADROOM_BYTES
    none(ClientProtocol(CONNECT), (longest - 4).to_bytes(4, "big"))
    with pytest.raises(ProtocolError, match=f"limit of {longest} bytes"):
        none(ClientProtocol(CONNECT), (longest - 3).to_bytes(4, "big"))


def test_bytes_that_are_read_into_the_buffer():
    """They are the same events as bytes that are handed over."""
    protocol = ClientProtocol(CONNECT)
    data = builders.connected(9999, "Pulsar Server4.0.7")
    buffer = protocol.buffer()
    buffer[: len(data)] = data
    assert list(protocol.received(len(data) - 1)) == []
    assert list(protocol.received(1)) == [Connected("Pulsar Server4.0.7", 21, 9999)]


def test_the_limit_of_the_broker_is_no_more_than_memory():
    """What a frame may claim is our choice, not the broker's alone."""
    protocol = ClientProtocol(CONNECT, memory_limit_bytes=6 << 20)
    event = one(protocol, builders.connected(2**31 - 1))
    assert isinstance(event, Connected)
    assert event.max_message_size_bytes == 2**31 - 1  # for what is sent to it
    with pytest.raises(ProtocolError, match=r"6291456 .*memoryLimitBytes.*raise") as e:
        list(protocol.receive_data((6 * 2**20 + 20_000).to_bytes(4, "big")))
    assert "damaged" not in str(e.value)


@pytest.mark.parametrize("limit", [1, 5 << 20])
def test_every_broker_may_send_what_all_brokers_do(limit: int):
    """However little memory there is: messages of the usual limit are taken in."""
    protocol = ClientProtocol(CONNECT, memory_limit_bytes=limit)
    one(protocol, builders.connected(8 << 20))
    none(protocol, (5 * 2**20 + FRAME_HEADROOM_BYTES - 4).to_bytes(4, "big"))


def test_refusal_in_the_handshake():
    """ERROR instead of CONNECTED is about the connection as a whole."""
    refused = frame(command(14, (1, U64_MAX), (2, 3), (3, "bad token")))
    assert one(ClientProtocol(CONNECT), refused) == Refusal(
        None, "AuthenticationError", "bad token"
    )


def test_challenge_in_the_handshake():
    """A challenge is an event, before CONNECTED and after it."""
    challenge = frame(
        command(36, (1, "4.0"), (2, proto((1, "token"), (2, b"data"))), (3, 21))
    )
    wanted = AuthChallenged("token", b"data")
    protocol = ClientProtocol(CONNECT)
    assert one(protocol, challenge) == wanted
    assert isinstance(one(protocol, builders.connected()), Connected)
    assert one(protocol, challenge) == wanted


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (frame(command(13, (1, 1))), "SUCCESS"),
        (frame(command(18)), "PING"),
        (builders.message(builders.single(Sent())), "MESSAGE"),
        (frame(command(1234)), "unknown type 1234"),
    ],
)
def test_anything_else_in_the_handshake(data: bytes, name: str):
    """A broker says nothing else before CONNECTED, entries least of all."""
    with pytest.raises(ProtocolError, match=f"answered CONNECT with {name}"):
        list(ClientProtocol(CONNECT).receive_data(data))


def test_nothing_comes_in_bulk_in_the_handshake():
    """Nor behind a challenge, whoever was told to expect it."""
    protocol = ClientProtocol(CONNECT)
    protocol.in_bulk.add(1)
    one(protocol, frame(command(36, (2, proto((1, "token"), (2, b"data"))))))
    with pytest.raises(ProtocolError, match="answered CONNECT with MESSAGE"):
        none(protocol, builders.message(builders.single(Sent())) * 2)


# -- after it --------------------------------------------------------------------------


def test_ping_is_answered():
    """Each PING gets a PONG, without any event."""
    protocol = ready()
    none(protocol, frame(command(18)) * 2)
    assert protocol.data_to_send() == commands.pong() * 2
    assert protocol.data_to_send() == b""
    none(protocol, frame(command(19)))
    assert protocol.data_to_send() == b""


def test_an_answer_goes_out_with_the_others():
    """In its turn, and once."""
    protocol = ready()
    none(protocol, frame(command(18)))
    protocol.answer(b"credentials")
    none(protocol, frame(command(18)))
    expected = commands.pong() + b"credentials" + commands.pong()
    assert protocol.data_to_send() == expected
    assert protocol.data_to_send() == b""


@pytest.mark.parametrize("kind", [0, 1, 100, 500, 2**31 - 1, -1])
def test_unknown_commands_are_passed_over(kind: int):
    """Commands of newer brokers do no harm, whatever is in them."""
    protocol = ready()
    none(protocol, frame(proto((1, kind), (999, b"whatever"))))
    assert isinstance(one(protocol, frame(command(13, (1, 1)))), Reply)


@pytest.mark.parametrize("kind", [7, 8, 9, 13, 14, 15, 16, 17, 24, 36, 51, 53, 57, 63])
def test_known_commands_without_body(kind: int):
    """What we know must be whole."""
    with pytest.raises(ProtocolError, match="without its body"):
        list(ready().receive_data(frame(proto((1, kind)))))


#: Replies of which plans have many are not what protobuf makes of them.
BODIES = {
    "SUCCESS": DONE,
    "ACK_RESPONSE": ACKNOWLEDGED,
    "GET_LAST_MESSAGE_ID_RESPONSE": TopicPositions(MessageId(0, 0), MessageId(0, 0)),
}


@pytest.mark.parametrize("name", REPLIES)
@pytest.mark.parametrize("request_id", [0, 1, 2**32, U64_MAX - 1])
def test_replies(name: str, request_id: int):
    """A reply has the number of its request, and its body."""
    kind, field = REPLIES[name]
    event = one(ready(), frame(command(kind, (field, request_id), *consumer(kind))))
    assert isinstance(event, Reply)
    assert event.request_id == request_id
    assert commands.command_name(kind) == name
    if name in BODIES:
        assert event.body == BODIES[name]
    else:
        assert event.body.request_id == request_id


def consumer(kind: int) -> list[tuple[int, int]]:
    """The consumer_id of replies that have one."""
    return [(1, 8)] if kind == 38 else []


@pytest.mark.parametrize("name", REFUSALS)
@pytest.mark.parametrize("number", [0, 6, 11, 999])
def test_refusals(name: str, number: int):
    """A reply with an error is a refusal, also with error 0, which is a name, too."""
    kind, request, error, message = REFUSALS[name]
    body = (request, 7), (error, number), (message, "no"), *consumer(kind)
    event = one(ready(), frame(command(kind, *body)))
    code = SERVER_ERRORS.get(number, f"ServerError{number}")
    assert event == Refusal(7, code, "no")


def test_an_error_about_no_request():
    """The highest number stands for none."""
    event = one(ready(), frame(command(14, (1, U64_MAX), (2, 22), (3, "limit"))))
    assert event == Refusal(None, "NotAllowedError", "limit")


def test_close_consumer():
    """The broker lets go of a consumer, wherever its topic went."""
    url = "pulsar://other:6650"
    for body in (((1, 4), (2, U64_MAX)), ((1, 4), (2, U64_MAX), (3, url))):
        assert one(ready(), frame(command(16, *body))) == ConsumerClosed(4)


def test_close_producer():
    """The broker lets go of a producer."""
    body = (1, 4), (2, U64_MAX)
    assert one(ready(), frame(command(15, *body))) == ProducerClosed(4)


@pytest.mark.parametrize("is_producer", [True, False])
def test_a_topic_that_was_migrated(is_producer: bool):
    """The URLs of the other cluster, for those that say who they are about."""
    kind, url, url_tls = int(not is_producer), "pulsar://g:1", "pulsar+ssl://g:2"
    body = (1, 4), (2, kind), (3, url), (4, url_tls)
    event = one(ready(), frame(command(68, *body)))
    assert event == TopicMigrated(Attached(is_producer, 4), url, url_tls)
    event = one(ready(), frame(command(68, (1, 4), (2, kind))))
    assert event == TopicMigrated(Attached(is_producer, 4), "", "")


def test_a_producer_that_must_wait():
    """No reply yet: the second answer to the same request is the one that counts."""
    protocol = ready()
    assert one(protocol, frame(command(17, (1, 5), (2, "p"), (6, 0)))) == Queued(5)
    event = one(protocol, frame(command(17, (1, 5), (2, "p"), (3, U64_MAX), (6, 1))))
    assert isinstance(event, Reply)
    assert event.request_id == 5
    assert event.body.producer_name == "p"
    assert event.body.last_sequence_id == -1


@pytest.mark.parametrize("last", [-2, -(2**63)])
def test_a_producer_that_sent_what_cannot_be(last: int):
    """Numbers count on from there, and must never be below nothing."""
    data = frame(command(17, (1, 7), (2, "p"), (3, last % 2**64), (5, 1)))
    with pytest.raises(ProtocolError, match=f"sequence id {last}"):
        one(ready(), data)


def test_receipt():
    """An entry is stored, where the ids say; sequence ids use all 64 bits."""
    place = proto((1, 7), (2, 0))
    body = (1, 4), (2, 2**63), (3, place), (4, U64_MAX)
    assert one(ready(), frame(command(7, *body))) == Receipt(4, 2**63, 7, 0)


def test_receipt_of_a_duplicate():
    """-1:-1 says that the broker had it."""
    place = proto((1, U64_MAX), (2, U64_MAX))
    body = (1, 4), (2, 9), (3, place)
    assert one(ready(), frame(command(7, *body))) == Receipt(4, 9, -1, -1)


@pytest.mark.parametrize("number", [0, 2, 9, 15, 22, 999])
def test_send_error(number: int):
    """An entry is not stored, also with error 0, which is a name, too."""
    body = (1, 4), (2, 9), (3, number), (4, "no")
    code = SERVER_ERRORS.get(number, f"ServerError{number}")
    assert one(ready(), frame(command(8, *body))) == SendRefused(4, 9, code, "no")


@pytest.mark.parametrize(
    ("kind", "name"), [(7, "SEND_RECEIPT"), (8, "SEND_ERROR"), (15, "CLOSE_PRODUCER")]
)
def test_nobody_s_producer(kind: int, name: str):
    """Whom it is for must be said."""
    with pytest.raises(ProtocolError, match=f"{name} came without its producer_id"):
        list(ready().receive_data(frame(command(kind, (2, 9)))))


def test_message_before_the_reply_to_subscribe():
    """Entries that overtake a reply are events as any other, in their order."""
    entry = builders.single(Sent(b"early"))
    first, second = ready().receive_data(
        builders.message(entry, consumer_id=4) + frame(command(13, (1, 1)))
    )
    assert isinstance(first, Delivery)
    assert isinstance(second, Reply)
    assert first.headers_and_payload == entry
    assert (first.consumer_id, first.ledger_id, first.entry_id) == (4, 7, 3)
    assert (first.redelivery_count, first.ack_set) == (0, ())


def test_everything_of_a_message():
    """Redelivery count and ack_set, negative words included."""
    place = proto((1, 7), (2, 3))
    body = (1, 4), (2, place), (3, 2), (4, -4), (4, 1)
    event = one(ready(), frame(command(9, *body), b"entry"))
    assert isinstance(event, Delivery)
    assert event.redelivery_count == 2
    assert event.ack_set == (-4, 1)
    assert bytes(event.headers_and_payload) == b"entry"


@pytest.mark.parametrize("places", [(2**63, 0), (0, 2**63), (U64_MAX, U64_MAX)])
def test_entries_outside_of_a_topic(places: tuple[int, int]):
    """No entry has a negative number; -1 is for places before the first one."""
    data = builders.message(b"x", ledger_id=places[0], entry_id=places[1])
    with pytest.raises(ProtocolError, match=f"the id {places[0]}:{places[1]}"):
        list(ready().receive_data(data))
    highest = builders.message(b"x", ledger_id=2**63 - 1, entry_id=2**63 - 1)
    assert isinstance(one(ready(), highest), Delivery)


NO_TEXT = b"\xff\xfe"


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (command(14, (1, 1), (2, 1), (3, NO_TEXT)), "message"),
        (command(16, (1, 1), (2, 1), (3, NO_TEXT)), "assignedBrokerServiceUrl"),
        (command(8, (1, 1), (2, 1), (3, 1), (4, NO_TEXT)), "message"),
        (command(17, (1, 1), (2, NO_TEXT)), "producer_name"),
        (command(57, (1, 1), (4, 24), (5, NO_TEXT)), "message"),
        (command(24, (1, NO_TEXT), (4, 1)), "brokerServiceUrl"),
        (command(33, (1, 1), (2, "good"), (2, NO_TEXT)), "topics"),
        (command(36, (2, proto((1, NO_TEXT)))), "challenge.auth_method_name"),
    ],
)
def test_text_that_is_not_utf8(data: bytes, field: str):
    """No str that comes out of here is anything else."""
    with pytest.raises(ProtocolError) as caught:
        list(ready().receive_data(frame(data)))
    assert field.split(".")[-1] in caught.value.message
    if api_implementation.Type() == "upb":
        assert f"with a {field} that is not UTF-8" in caught.value.message


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP server"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS server"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "larger than"),
        (b"+OK ready\r\n", "larger than"),
        (bytes(8), "too short"),
        (frame(b"\xff\xff\xff\xff"), "cannot be decoded"),
        (frame(proto((2, b"")), b""), "has no type"),
    ],
)
def test_garbage(data: bytes, match: str):
    """What is not Pulsar's is one clear error."""
    with pytest.raises(ProtocolError, match=match):
        list(ClientProtocol(CONNECT).receive_data(data))


def test_frames_before_garbage_count():
    """What came before the damage is handed on first."""
    events = ready().receive_data(frame(command(13, (1, 1))) + bytes(8))
    assert isinstance(next(events), Reply)
    with pytest.raises(ProtocolError):
        next(events)


@pytest.mark.parametrize("garbage", [frame(b"\xff\xff\xff\xff"), bytes(8)])
@pytest.mark.parametrize("before", [b"", builders.connected()], ids=["new", "ready"])
def test_a_failure_lasts(before: bytes, garbage: bytes):
    """Nothing that follows means anything, not even CONNECTED; nothing is kept."""
    protocol = ClientProtocol(CONNECT)
    list(protocol.receive_data(before))
    assert protocol.state is (State.READY if before else State.HANDSHAKE)
    with pytest.raises(ProtocolError) as first:
        list(protocol.receive_data(garbage))
    assert protocol.state is State.FAILED
    for data in (builders.connected(), frame(command(18)), b""):
        with pytest.raises(ProtocolError) as again:
            list(protocol.receive_data(data))
        assert str(again.value) == str(first.value)
    with pytest.raises(ProtocolError):
        list(protocol.received(len(protocol.buffer())))


# -- commands that are larger decoded than sent --------------------------------------


def list_of_topics(names: bytes, *more: tuple[int, Any]) -> bytes:
    """GET_TOPICS_OF_NAMESPACE_RESPONSE, framed."""
    body = proto((1, 7)) + names
    return frame(proto((1, 33), (33, body), *more))


def peak_mib(data: bytes) -> tuple[int, ProtocolError | None]:
    """How much a process needs at most for a frame, and what it says of it."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = None
    try:
        list(ready(max_message_size=64 << 20).receive_data(data))
    except ProtocolError as error:
        refused = error
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return grown >> 10, refused


@pytest.mark.parametrize(
    "data",
    [
        frame(command(6, (1, 1), (2, 0)) + proto((6, b"\x1a\0" * (5 << 19)))),
        list_of_topics(b"\x12\0" * (5 << 19)),
        list_of_topics(b"", (6, b"\x1a\0" * (5 << 19))),
        frame(proto((1, 33)) + b"\x8a\x02" + b"\xff" * (2 << 20)),
        frame(command(14, (1, 7), (2, 0), (3, b"." * (2 << 20)))),
    ],
    ids=["acks", "names", "acks behind names", "endless size", "sentence"],
)
def test_a_command_that_would_take_much_more_than_its_bytes(data: bytes):
    """Two bytes of it may become eighty: so it is refused by its size."""
    grown, error = peak_mib(data)
    assert error is not None
    assert "larger than the limit" in str(error)
    assert grown <= 32


def test_a_namespace_may_have_very_many_topics():
    """Their list is the one command that is large for a reason."""
    names = [f"persistent://tenant/namespace/topic-{n}" for n in range(100_000)]
    data = list_of_topics(b"".join(proto((2, name)) for name in names))
    assert len(data) > 4 << 20
    event = one(ready(), data)
    assert isinstance(event, Reply)
    assert list(event.body.topics) == names


# -- any split -------------------------------------------------------------------------

numbers = st.integers(0, U64_MAX)
frames = st.one_of(
    st.builds(lambda n: frame(command(13, (1, n))), numbers),
    st.builds(
        lambda n, e: frame(command(14, (1, n), (2, e), (3, "x"))),
        numbers,
        st.integers(0, 30),
    ),
    st.just(frame(command(18))),
    st.builds(
        lambda kind, n: frame(command(kind, (1, n), (2, U64_MAX))),
        st.sampled_from([15, 16]),
        numbers,
    ),
    st.builds(
        lambda n, place: frame(command(7, (1, n), (2, n), (3, place))),
        numbers,
        st.builds(lambda n, m: proto((1, n), (2, m)), numbers, numbers),
    ),
    st.builds(
        lambda kind, n, e: frame(command(kind, (1, n), (2, n), (3, n), (4, e))),
        st.sampled_from([8, 51, 53, 57]),
        numbers,
        st.none() | st.integers(0, 30),
    ),
    st.builds(
        lambda data, place: builders.message(data, entry_id=place),
        st.binary(max_size=300),
        st.integers(0, 2**63 - 1),
    ),
)


def seen(data: bytes, pieces: list[bytes]) -> tuple[list[Any], bytes]:
    """Events, comparable, and what was to be sent."""
    protocol = ClientProtocol(CONNECT)
    events = []
    for piece in pieces:
        for event in protocol.receive_data(piece):
            if isinstance(event, Delivery):
                events.append((event.entry_id, bytes(event.headers_and_payload)))
            else:
                events.append(event)
    assert b"".join(pieces) == data
    return events, protocol.data_to_send()


@settings(deadline=None, max_examples=100)
@given(parts=st.lists(frames, max_size=6), data=st.data())
def test_any_split(parts: list[bytes], data: st.DataObject):
    """However a stream is cut, its events and the answers to it are the same."""
    stream = builders.connected() + b"".join(parts)
    expected = seen(stream, [stream])
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=5))
    edges = sorted({0, len(stream), *cuts})
    assert seen(stream, [stream[a:b] for a, b in itertools.pairwise(edges)]) == expected
    assert seen(stream, [stream[i : i + 1] for i in range(len(stream))]) == expected


def test_connected_type():
    """The builders and the package agree on what CONNECTED is."""
    assert commands.command_name(CONNECTED) == "CONNECTED"
