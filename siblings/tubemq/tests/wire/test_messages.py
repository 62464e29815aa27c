# SPDX-License-Identifier: Apache-2.0
"""Requests: the captured bytes, and what each of them must always have."""

from __future__ import annotations

from typing import Any

import pytest

from siblings.tubemq.tests.wire import golden
from tubemq_spark.wire import messages
from tubemq_spark.wire import tubemq_pb2 as pb
from tubemq_spark.wire.attributes import Body, encode_body
from tubemq_spark.wire.frames import encode_frame
from tubemq_spark.wire.messages import Request, Token
from tubemq_spark.wire.rpc import encode_request

TOKEN = Token(golden.VISIT_TOKEN)
TIMEOUT_MS = 10_000


def frame(request: Request[Any], serial: int = 1) -> bytes:
    """The bytes that go out for it."""
    return encode_frame(
        serial,
        encode_request(request.method, request.service, TIMEOUT_MS, request.body),
    )


def test_a_producer_registers_as_captured():
    request = messages.register_producer("p1", ["filt"], "127.0.0.1")
    assert frame(request) == golden.PRODUCER_REGISTER


def test_a_message_is_sent_as_captured():
    request = messages.send(
        "p1",
        "filt",
        0,
        encode_body(Body(b"hi")),
        sent_address=0x7F000001,
        token=TOKEN,
    )
    assert frame(request) == golden.SEND


def test_a_consumer_registers_as_captured_but_for_its_priority():
    request = messages.register("c1", "g1", "filt", 0, 644, token=TOKEN)
    body: Any = request.body
    assert body.qryPriorityId == messages.FLUSHED
    body.ClearField("qryPriorityId")
    assert frame(request, 2) == golden.REGISTER


def test_get_and_commit_are_as_captured():
    assert frame(messages.get("c1", "g1", "filt", 0), 4) == golden.GET
    assert frame(messages.commit("c1", "g1", "filt", 0), 6) == golden.COMMIT


def test_a_heartbeat_always_repeats_the_priority():
    for priority in (messages.FLUSHED, messages.UNFLUSHED):
        request = messages.heartbeat("c1", "g1", [], priority=priority)
        body: Any = request.body
        assert body.qryPriorityId == priority


REQUESTS: list[Request[Any]] = [
    messages.register_producer("p", ["t"], "h"),
    messages.heartbeat_producer("p", ["t"], "h"),
    messages.close_producer("p"),
    messages.register_consumer("c", "g", ["t"], "h"),
    messages.partition_metadata("c", "g"),
    messages.close_consumer("c", "g"),
    messages.register("c", "g", "t", 0, 0),
    messages.unregister("c", "g", "t", 0),
    messages.heartbeat("c", "g", ["1:h:1#t:0"]),
    messages.get("c", "g", "t", 0),
    messages.commit("c", "g", "t", 0),
    messages.send("p", "t", 0, encode_body(Body(b"v"))),
]

#: What the protocol requires of each, by its own files.
REQUIRED: dict[type, tuple[str, ...]] = {
    pb.RegisterRequestP2M: ("clientId", "brokerCheckSum", "hostName"),
    pb.HeartRequestP2M: ("clientId", "brokerCheckSum", "hostName"),
    pb.CloseRequestP2M: ("clientId",),
    pb.RegisterRequestC2MV2: (
        "clientId",
        "groupName",
        "hostName",
        "sourceCount",
        "nodeId",
    ),
    pb.GetPartMetaRequestC2M: (
        "clientId",
        "groupName",
        "brokerConfigId",
        "topicMetaInfoId",
    ),
    pb.CloseRequestC2M: ("clientId", "groupName"),
    pb.RegisterRequestC2B: (
        "opType",
        "clientId",
        "groupName",
        "topicName",
        "partitionId",
        "readStatus",
    ),
    pb.HeartBeatRequestC2B: ("clientId", "groupName", "readStatus"),
    pb.GetMessageRequestC2B: ("clientId", "partitionId", "groupName", "topicName"),
    pb.CommitOffsetRequestC2B: ("clientId", "topicName", "partitionId", "groupName"),
    pb.SendMessageRequestP2B: (
        "clientId",
        "topicName",
        "partitionId",
        "data",
        "flag",
        "checkSum",
        "sentAddr",
    ),
}


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.name)
def test_a_request_has_what_the_protocol_requires(request_: Request[Any]):
    body: Any = request_.body
    assert all(body.HasField(name) for name in REQUIRED[type(body)])


def test_a_token_is_not_shown():
    assert repr(Token(17, "secret")) == "Token(...)"
