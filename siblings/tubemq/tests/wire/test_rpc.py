# SPDX-License-Identifier: Apache-2.0
"""The envelope of calls: golden bytes, what is missing, and damaged bytes."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from siblings.tubemq.tests.wire import golden
from tubemq_spark.errors import ProtocolError
from tubemq_spark.wire import tubemq_pb2 as pb
from tubemq_spark.wire.rpc import (
    Failure,
    Result,
    Service,
    decode_reply,
    encode_request,
    parse,
)

PACKAGES = "org.apache.inlong.tubemq.corebase.rv"


def reply(*parts: bytes) -> bytes:
    """Messages as an envelope has them."""
    return b"".join(bytes([len(part)]) + part for part in parts)


FLAG = pb.RpcConnHeader(flag=1).SerializeToString()
OK = pb.ResponseHeader(status=0, protocolVer=3).SerializeToString()
BODY = pb.RspResponseBody(method=13, data=b"x").SerializeToString()


def test_a_captured_reply_is_read():
    result = decode_reply(golden.SENT[16:])
    assert isinstance(result, Result)
    assert result.method == 13
    sent = parse(pb.SendMessageResponseB2P(), result.data)
    assert (sent.errCode, sent.messageId, sent.appendOffset) == (
        200,
        5863865988323213312,
        23 * 28,
    )


@pytest.mark.parametrize(("status", "is_fatal"), [(1, False), (2, True), (7, True)])
def test_an_exception_is_told_by_its_class_alone(status: int, is_fatal: bool):
    data = reply(
        FLAG,
        pb.ResponseHeader(status=status).SerializeToString(),
        pb.RspExceptionBody(
            exceptionName=f"{PACKAGES}.StandbyException", stackTrace="not me"
        ).SerializeToString(),
    )
    assert decode_reply(data) == Failure("StandbyException", "not me", is_fatal)


@pytest.mark.parametrize(
    ("payload", "what"),
    [
        (b"", "ends before its RpcConnHeader"),
        (reply(pb.RpcConnHeader(flag=0).SerializeToString(), OK, BODY), "flag 0"),
        (reply(FLAG, b"", BODY), "no status"),
        (reply(FLAG, OK), "ends before its RspResponseBody"),
        (reply(FLAG, OK, b""), "no method"),
        (reply(FLAG, OK, BODY)[:-1], "does not fit"),
        (reply(FLAG) + b"\xff" * 6, "no number"),
        (reply(b"\xff\xff"), "cannot be read"),
    ],
)
def test_what_is_no_reply_says_why(payload: bytes, what: str):
    with pytest.raises(ProtocolError, match=what):
        decode_reply(payload)


def test_text_that_is_not_utf8_is_named():
    data = pb.RspExceptionBody(exceptionName="a").SerializeToString()
    with pytest.raises(ProtocolError, match=r"exceptionName|UTF-8|utf-8"):
        decode_reply(
            reply(
                FLAG,
                pb.ResponseHeader(status=1).SerializeToString(),
                data.replace(b"a", b"\xff"),
            )
        )


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_call_without_time_limit_would_never_be_answered(timeout_ms: int):
    with pytest.raises(ValueError, match="time limit"):
        encode_request(1, Service.MASTER, timeout_ms, pb.CloseRequestP2M())


#: Fields of a body, as servers write them and otherwise.
FIELDS = st.sampled_from(
    [
        b"\x08\x0d",
        b"\x08\x8d\x00",
        b"\x08\xad\x02",
        b"\x12\x00",
        b"\x12\x03abc",
        b"\x12\x83\x00abc",
        b"\x12\x05abc",
        b"\x1a\x01x",
        b"\x18\x07",
        b"\x08",
        b"\x12",
        b"\xff",
    ]
)


@given(st.lists(FIELDS, max_size=4).map(b"".join), st.binary(max_size=2))
def test_a_body_means_what_protobuf_says(body: bytes, behind: bytes):
    """However it is written, and whatever comes behind it."""
    try:
        said = pb.RspResponseBody.FromString(body)
    except DecodeError:
        said = pb.RspResponseBody()
    for flag, status in (
        (FLAG, OK),
        (FLAG + b"\x10\x01", OK),
        (FLAG, OK + b"\x10\x02"),
    ):
        payload = reply(flag, status, body) + behind
        if said.HasField("method") and said.HasField("data"):
            result = decode_reply(payload)
            assert isinstance(result, Result)
            assert (result.method, bytes(result.data)) == (said.method, said.data)
        else:
            with pytest.raises(ProtocolError):
                decode_reply(payload)


@given(st.binary(max_size=100))
def test_garbage_is_a_reply_or_one_error(data: bytes):
    for payload in (data, reply(FLAG, OK) + data, reply(FLAG) + data):
        try:
            outcome = decode_reply(payload)
        except ProtocolError:
            continue
        assert isinstance(outcome, (Result, Failure))
