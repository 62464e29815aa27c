# SPDX-License-Identifier: Apache-2.0
"""The loops over requests and replies, in each form of the kernel."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.errors import ProtocolError
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import positions_of
from pulsar_spark.wire.frames import FrameReader, encode_frame
from pulsar_spark.wire.protocol import ACKNOWLEDGED, DONE, ClientProtocol
from tests.support import kernels
from tests.wire import builders
from tests.wire.builders import command, frame, proto

U64 = st.sampled_from([0, 1, 127, 128, 2**32, 2**63 - 1, 2**63, 2**64 - 1])
INT32 = st.sampled_from([0, 1, -1, 128, 2**31 - 1, -(2**31)])


@pytest.fixture(params=kernels.FORMS)
def kernel(request: pytest.FixtureRequest) -> Any:
    """The loops, in one form."""
    return kernels.load(request.param, "requests")


def read(kernel: Any, data: bytes) -> tuple[list[Any], int]:
    """The replies at the beginning of the bytes, and where they end."""
    return kernel.read_replies(memoryview(data), DONE, ACKNOWLEDGED, positions_of)


def by_protobuf(data: bytes) -> list[Any]:
    """The events that a connection makes of the first frame, and of nothing else."""
    protocol = ClientProtocol(b"")
    list(protocol.receive_data(builders.connected()))
    return list(protocol.receive_data(data))


def success(number: int) -> bytes:
    """A SUCCESS."""
    return frame(command(13, (1, number)))


def acknowledged(number: int, *bits: tuple[int, int]) -> bytes:
    """An ACK_RESPONSE."""
    return frame(command(38, (1, 5), *bits, (6, number)))


def last(number: int, last_id: dict[str, int], before: dict[str, int]) -> bytes:
    """A GET_LAST_MESSAGE_ID_RESPONSE."""
    body = pb.CommandGetLastMessageIdResponse(
        request_id=number,
        last_message_id=pb.MessageIdData(**last_id),
        consumer_mark_delete_position=pb.MessageIdData(**before),
    )
    return encode_frame(
        pb.BaseCommand(
            type=pb.BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE,
            getLastMessageIdResponse=body,
        ).SerializeToString()
    )


LAST = {"ledgerId": 7, "entryId": 9, "partition": -1, "batch_index": 4}
BEFORE = {"ledgerId": 7, "entryId": 2**64 - 1}

USUAL = {
    "success": success(1),
    "large number": success(2**64 - 2),
    "acknowledged": acknowledged(300),
    "acknowledged, with bits": acknowledged(3, (2, 2**64 - 1), (3, 0)),
    "some bits": acknowledged(3, (3, 1)),
    "last": last(4, LAST, BEFORE),
    "last with a batch's size": last(5, {**LAST, "batch_size": 9}, BEFORE),
    "nothing": last(6, {"ledgerId": 2**64 - 1, "entryId": 2**64 - 1}, BEFORE),
}

PLACE = proto((1, 7), (2, 9))

UNUSUAL = {
    "PING": frame(command(18)),
    "a refusal": frame(command(38, (1, 5), (4, 6), (6, 7))),
    "no consumer": frame(command(38, (6, 7))),
    "no number": frame(command(38, (1, 5))),
    "an empty SUCCESS": frame(command(13)),
    "a SUCCESS with more": frame(command(13, (1, 5), (1, 6))),
    "another type's body": frame(proto((1, 13), (14, proto((1, 5))))),
    "a type twice": frame(proto((1, 38), (1, 38), (38, proto((1, 5), (6, 7))))),
    "the last of several chunks": frame(
        command(30, (1, PLACE + proto((7, PLACE))), (2, 3), (3, PLACE))
    ),
    "an ack set": frame(command(30, (1, PLACE + proto((5, 1))), (2, 3), (3, PLACE))),
    "no entry": frame(command(30, (1, proto((1, 7))), (2, 3), (3, PLACE))),
    "no last": frame(command(30, (2, 3), (3, PLACE))),
    "no place": frame(command(30, (1, PLACE), (2, 3))),
    "more of the place": frame(command(30, (1, PLACE), (2, 3), (3, PLACE + b"\x18\1"))),
    "less of the place": frame(command(30, (1, PLACE), (2, 3), (3, PLACE[:-2]))),
    "a place that goes on": frame(command(30, (1, PLACE), (2, 3), (3, PLACE), (4, 1))),
    "a number of 65 bits": frame(
        proto((1, 13)) + b"\x6a\x0b\x08" + b"\xff" * 9 + b"\x02"
    ),
}


@pytest.mark.parametrize("name", USUAL)
def test_usual_replies(kernel: Any, name: str) -> None:
    """Each is what protobuf makes of it, wherever it stands."""
    data = USUAL[name]
    (event,) = by_protobuf(data)
    for rest in (b"", b"\x00", data[:-1], UNUSUAL["PING"]):
        assert read(kernel, data * 100 + rest) == ([event] * 100, 100 * len(data))


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_replies(kernel: Any, name: str) -> None:
    """What lacks a field, or has one more, is left to others, and what follows too."""
    usual = USUAL["last"]
    for rest in (b"", usual):
        assert read(kernel, UNUSUAL[name] + rest) == ([], 0)
        replies, end = read(kernel, usual + UNUSUAL[name] + rest)
        assert (len(replies), end) == (1, len(usual))


@pytest.mark.parametrize("name", USUAL)
def test_replies_that_are_not_there_yet(kernel: Any, name: str) -> None:
    """Nothing is read behind what has come."""
    data = USUAL[name]
    for size in range(len(data)):
        replies, end = read(kernel, data + data[:size])
        assert (len(replies), end) == (1, len(data))


@settings(deadline=None)
@given(
    numbers=st.tuples(U64, U64, U64, U64, U64),
    parts=st.tuples(*[st.none() | INT32] * 3),
)
@pytest.mark.parametrize("form", kernels.FORMS)
def test_any_last_message(
    form: str, numbers: tuple[int, ...], parts: tuple[int | None, ...]
) -> None:
    """The numbers that protobuf finds."""
    number, *places = numbers
    names = ("partition", "batch_index", "batch_size")
    further = {
        name: part for name, part in zip(names, parts, strict=True) if part is not None
    }
    data = last(
        number,
        {"ledgerId": places[0], "entryId": places[1], **further},
        {"ledgerId": places[2], "entryId": places[3]},
    )
    replies, end = read(kernels.load(form, "requests"), data)
    assert end in (0, len(data))
    assert replies == (by_protobuf(data) if end else [])
    assert end or len(data) > 131  # whose sizes take more than a byte


@pytest.mark.parametrize("seed", range(3))
def test_damaged_replies(kernel: Any, seed: int) -> None:
    """What is taken for a reply is one, and says what protobuf says."""
    rng = random.Random(seed)
    taken = 0
    for _ in range(4000):
        data = bytearray(rng.choice([*USUAL.values()]))
        for _ in range(rng.randrange(3)):
            data[rng.randrange(len(data))] = rng.choice(
                [0, 1, 8, 0x0A, 0x10, 0x1A, 0x30, 0x80, rng.randrange(256)]
            )
        replies, end = read(kernel, bytes(data))
        assert (end == len(data)) == bool(replies)
        if replies:
            taken += 1
            assert replies == by_protobuf(bytes(data))
    assert taken > 500


@settings(deadline=None)
@given(values=st.lists(U64 | st.integers(0, 2**64 - 1)))
@pytest.mark.parametrize("form", kernels.FORMS)
def test_numbers(form: str, values: list[int]) -> None:
    """They are varints, as those of protobuf's fields."""
    data = kernels.load(form, "requests").numbers(tuple(values))
    assert data == b"".join(proto((1, value))[1:] for value in values)


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 300, 70_000])
@pytest.mark.parametrize("number", [0, 127, 128, 2**63, 2**64 - 1])
def test_frames_of_requests(kernel: Any, size: int, number: int) -> None:
    """Sizes, type, and a body with the number and all fields."""
    topic = "t" * size
    body = pb.CommandLookupTopic(topic=topic).SerializeToString()
    reader = FrameReader()
    reader.receive_data(kernel.request_frame(23, body, 0x10, number))
    read_frame = reader.next_frame()
    assert read_frame is not None
    assert reader.next_frame() is None
    wanted = pb.CommandLookupTopic(topic=topic, request_id=number)
    assert commands.decode_command(read_frame.command) == pb.BaseCommand(
        type=pb.BaseCommand.LOOKUP, lookupTopic=wanted
    )


def test_what_follows_usual_replies_is_still_refused(kernel: Any) -> None:
    """A frame that is none of Pulsar's ends the connection, behind replies as well."""
    with pytest.raises(ProtocolError, match="without its body"):
        by_protobuf(USUAL["last"] * 3 + frame(proto((1, 13))))
    assert read(kernel, frame(proto((1, 13)))) == ([], 0)
