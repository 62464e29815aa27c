# SPDX-License-Identifier: Apache-2.0
"""The messages of a get, in every form of the kernel: what protobuf and text say."""

from __future__ import annotations

import struct
import zlib
from types import ModuleType
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from tests.support import kernels
from tubemq_spark.errors import ProtocolError
from tubemq_spark.loops.messages import KERNEL, MessageTable, OddReplyError
from tubemq_spark.wire import tubemq_pb2 as pb
from tubemq_spark.wire.attributes import decode_body
from tubemq_spark.wire.checksums import checksum
from tubemq_spark.wire.gets import read_got
from tubemq_spark.wire.rpc import parse


@pytest.fixture(params=kernels.FORMS, scope="module")
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    """The loop in each of its forms."""
    return kernels.load(request.param, "tubemq_spark.loops.messages")


def table_of(kernel: ModuleType, data: bytes) -> Any:
    return kernel.MessageTable(memoryview(data))


def reply(*messages: pb.TransferedMessage, **fields: Any) -> bytes:
    whole = pb.GetMessageResponseB2C(errCode=200, messages=messages, **fields)
    return whole.SerializeToString()


def stored(data: bytes, flag: int = 0, message_id: int = 1) -> pb.TransferedMessage:
    return pb.TransferedMessage(
        messageId=message_id, checkSum=checksum(data), payLoadData=data, flag=flag
    )


def facts(messages: Any) -> list[tuple[int, int, int, bytes]]:
    """What a table says of messages, or protobuf in the same words."""
    if not hasattr(messages, "split"):
        return [
            (one.messageId, one.checkSum % 2**32, one.flag % 2**32, one.payLoadData)
            for one in messages
        ]
    assert len(messages) == messages.count
    return [tuple(one) for one in messages]


def test_each_form_says_which_it_is():
    forms = {
        form: kernels.load(form, "tubemq_spark.loops.messages").KERNEL
        for form in kernels.FORMS
    }
    assert forms == {"python": "python", "compiled": "compiled", "checked": "compiled"}
    assert KERNEL in ("python", "compiled")


# -- beside protobuf -------------------------------------------------------------------

_INT32 = st.integers(-(2**31), 2**31 - 1)
_MESSAGES = st.builds(
    pb.TransferedMessage,
    messageId=st.none() | st.integers(-(2**63), 2**63 - 1),
    checkSum=st.none() | _INT32,
    payLoadData=st.none() | st.binary(max_size=200),
    flag=st.none() | _INT32,
)


@given(st.lists(_MESSAGES, max_size=5), st.text(max_size=5), _INT32)
def test_what_servers_write_is_read(kernel: ModuleType, messages, text, pause):
    data = reply(*messages, errMsg=text, currOffset=-1, minLimitTime=pause)
    table = table_of(kernel, data)
    assert facts(table) == facts(messages)
    assert table.size_bytes() == sum(len(one.payLoadData) for one in messages)
    assert table.head == reply(errMsg=text, currOffset=-1, minLimitTime=pause)


def test_more_messages_than_there_was_room_for(kernel: ModuleType):
    some = [stored(b"%d" % n, n % 2, n) for n in range(1000)]
    assert facts(table_of(kernel, reply(*some))) == facts(some)


#: What a message may hold, as servers write it and otherwise.
_INNER = [
    b"\x08\x07",  # an id
    b"\x08" + b"\xff" * 9 + b"\x01",  # -1
    b"\x08" + b"\xff" * 9 + b"\x7f",  # more than 64 bits
    b"\x08" + b"\xff" * 10 + b"\x01",  # too long
    b"\x08\x87\x00",  # longer than it has to be
    b"\x10\xff\xff\xff\xff\x0f",
    b"\x10" + b"\x81" * 9 + b"\x01",  # what an int32 leaves out
    b"\x1a\x03abc",
    b"\x1a\x00",
    b"\x1a\x83\x00abc",
    b"\x1a\x05abc",  # past the end
    b"\x1a" + b"\xff" * 9 + b"\x01",  # a length below 0
    b"\x20\x01",
    b"\x18\x05",  # stored bytes as a number
    b"\x0a\x01x",  # an id as bytes
    b"\x28\x01",  # not known
    b"\x2d1234",
    b"\x291234567",
    b"\x2912345678",
    b"\x13\x14",  # a group
    b"\x13\x08\x01\x14",
    b"\x13",
    b"\x14",
    b"\x00\x01",  # field 0
    b"\x88\x00\x01",  # a tag longer than it has to be
    b"\x80\x01\x01",  # field 16
    b"\x86\x01",
    b"\x0e",
    b"\xff" * 5,
    b"\xff",
]
_OUTER = [
    b"\x10\xc8\x01",
    b"\x10" + b"\xff" * 9 + b"\x01",
    b"\x1a\x02ok",
    b"\x1a\x01\xff",  # not UTF-8
    b"\x28\x1c",
    b"\x22\x7f\x08\x01",  # past the end
]
_PARTS = st.one_of(
    st.lists(st.sampled_from(_INNER), max_size=4)
    .map(b"".join)
    .map(lambda one: b"\x22" + bytes([len(one)]) + one),
    st.sampled_from(_INNER + _OUTER),
    st.binary(max_size=3),
)


@given(st.lists(_PARTS, max_size=6).map(b"".join))
def test_a_reply_means_what_protobuf_says(kernel: ModuleType, data: bytes):
    """What the loop reads, protobuf reads alike; the rest is left to it."""
    try:
        table = table_of(kernel, data)
    except kernel.OddReplyError:
        return
    said = pb.GetMessageResponseB2C.FromString(data)
    assert facts(table) == facts(said.messages)
    del said.messages[:]
    said.DiscardUnknownFields()
    head = pb.GetMessageResponseB2C.FromString(table.head)
    head.DiscardUnknownFields()
    assert head == said


@given(st.lists(_PARTS, max_size=6).map(b"".join))
def test_a_get_is_read_and_refused_as_protobuf_would(data: bytes):
    try:
        said = parse(pb.GetMessageResponseB2C(), data)
    except ProtocolError:
        with pytest.raises(
            ProtocolError, match=r"A GetMessageResponseB2C (cannot|has)"
        ):
            read_got(memoryview(data))
        return
    got = read_got(memoryview(data))
    assert facts(got.messages) == facts(said.messages)
    for name in ("errCode", "errMsg", "currOffset", "minLimitTime"):
        assert got.head.HasField(name) == said.HasField(name)
        assert getattr(got.head, name) == getattr(said, name)


def test_groups_are_read_though_nobody_sends_them():
    """And whatever else protobuf takes, in a way of writing that servers do not use."""
    data = b"\x10\xc8\x01\x93\x03\x08\x01\x94\x03\x22\x06\x1a\x83\x00abc"
    with pytest.raises(OddReplyError):
        MessageTable(memoryview(data))
    got = read_got(memoryview(data))
    assert (got.head.errCode, facts(got.messages)) == (200, [(0, 0, 0, b"abc")])


@given(st.data())
def test_every_damage_is_seen_or_harmless(kernel: ModuleType, data):
    """A reply with a byte of it changed, or cut off."""
    whole = reply(stored(b"abc", 1, -5), stored(b"", 0, 2**40), errMsg="ok")
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[at] = data.draw(st.integers(0, 255))
    for one in (bytes(damaged), whole[:at]):
        try:
            table = table_of(kernel, one)
        except ValueError:
            continue
        try:
            said = pb.GetMessageResponseB2C.FromString(one)
        except DecodeError:  # only the head of it can be what is damaged
            with pytest.raises(DecodeError):
                pb.GetMessageResponseB2C.FromString(table.head)
            continue
        assert facts(table) == facts(said.messages)


# -- checks ----------------------------------------------------------------------------


def test_the_first_message_with_a_wrong_checksum_is_found(kernel: ModuleType):
    some = [stored(b"%d" % n * 3000) for n in range(10)]
    assert table_of(kernel, reply(*some)).first_damaged(zlib.crc32) == -1
    some[7].checkSum += 1
    some[8].checkSum = -some[8].checkSum
    table = table_of(kernel, reply(*some))
    assert table.first_damaged(zlib.crc32) == 7
    some[7].checkSum -= 1
    assert table_of(kernel, reply(*some)).first_damaged(zlib.crc32) == 8
    table.keep(7)
    assert (table.first_damaged(zlib.crc32), len(table)) == (-1, 7)


def test_what_is_left_out_is_not_there(kernel: ModuleType):
    table = table_of(kernel, reply(*[stored(b"x", 0, n) for n in range(5)]))
    table.keep(9)
    assert [one.message_id for one in table] == [0, 1, 2, 3, 4]
    table.keep(2)
    assert [one.message_id for one in table] == [0, 1]
    assert table.size_bytes() == 2
    for number in (2, -1):
        with pytest.raises(IndexError):
            table[number]


# -- attributes and values -------------------------------------------------------------


def columns(kernel: ModuleType, table: Any, bounds: Any, count: int) -> list[Any]:
    """The rows that are gathered by bounds, None where they are null."""
    nulls, valid, offsets, data = kernel.gather(table.data, bounds, count)
    assert offsets[0] == 0
    assert (valid is None) == (nulls == 0)
    rows = [
        bytes(data[offsets[n] : offsets[n + 1]])
        if valid is None or valid[n // 8] >> n % 8 & 1
        else None
        for n in range(count)
    ]
    assert rows.count(None) == nulls
    return rows


def bodies(kernel: ModuleType, table: Any) -> list[Any]:
    """What a table says of each message, as `decode_body` does."""
    assert table.split(True) == -1
    count = len(table)
    values = columns(kernel, table, table.values, count)
    if not table.has_attributes:
        return [(value, None, None, {}) for value in values]
    types = columns(kernel, table, table.types, count)
    times = columns(kernel, table, table.times, count)
    names = columns(kernel, table, table.names, table.pairs)
    texts = columns(kernel, table, table.texts, table.pairs)
    ends = list(table.pair_ends[: count + 1])
    pairs = list(zip(names, texts, strict=True))
    assert ends[-1] == len(pairs)
    return [
        (
            values[n],
            None if types[n] is None else types[n].decode(),
            None if times[n] is None else times[n].decode(),
            {k.decode(): v.decode() for k, v in pairs[ends[n] : ends[n + 1]]},
        )
        for n in range(count)
    ]


def with_text(text: bytes, value: bytes = b"v") -> bytes:
    return struct.pack(">i", len(text)) + text + value


_TEXTS = st.lists(
    st.sampled_from(
        [
            b"$msgType$=A",
            b"$msgType$=B=C",
            b"$msgType$=",
            b"$msgType$",
            b"$msgTime$=202611230506",
            b"$msgTame$=x",
            b"k=v",
            b"k=w",
            b"k",
            b"=v",
            b"=",
            b"",
            b"\xc3\xa9=\xe2\x82\xac",
            b"\xff=v",
            b"\xc3",
            b"\xed\xa0\x80=v",
            b"long=" + b"x" * 300,
        ]
    ),
    max_size=6,
).map(b",".join)
_STORED = st.one_of(
    st.tuples(_TEXTS.map(with_text), st.just(1)),
    st.tuples(st.binary(max_size=12), st.integers(0, 3)),
    st.tuples(st.just(struct.pack(">i", -1) + b"x"), st.just(1)),
)


@given(st.lists(_STORED, max_size=6))
def test_attributes_are_what_their_text_says(kernel: ModuleType, some):
    table = table_of(kernel, reply(*[stored(data, flag) for data, flag in some]))
    said: list[Any] = []
    for data, flag in some:
        try:
            said.append(tuple(decode_body(data, flag)))
        except ProtocolError:
            assert table.split(True) == len(said)
            return
    assert bodies(kernel, table) == said
    assert table.split(False) == -1
    values = columns(kernel, table, table.values, len(table))
    assert values == [value for value, *_ in said]


@pytest.mark.parametrize("count", [15, 16, 17, 18, 100])
def test_of_equal_names_the_first_one_holds_however_many(
    kernel: ModuleType, count: int
):
    pairs = [f"k{n % (count - 1)}={n}" for n in range(2 * count)]
    data = with_text(",".join(pairs).encode())
    table = table_of(kernel, reply(*[stored(data, 1)] * 3))
    said = tuple(decode_body(data, 1))
    assert bodies(kernel, table) == [said] * 3


def test_values_alone_need_no_text(kernel: ModuleType):
    table = table_of(kernel, reply(stored(with_text(b"\xff", b"value"), 1)))
    assert table.split(False) == -1
    assert columns(kernel, table, table.values, 1) == [b"value"]
    assert table.split(True) == 0


def test_offsets_go_on_by_a_step(kernel: ModuleType):
    assert list(kernel.progression(2**40, 28, 3)) == [2**40, 2**40 + 28, 2**40 + 56]
    assert list(kernel.progression(0, 28, 0)) == []
