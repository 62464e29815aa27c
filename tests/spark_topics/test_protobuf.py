# SPDX-License-Identifier: Apache-2.0
"""Text that is no text, and which types could have any."""

from __future__ import annotations

import pytest
from google.protobuf.internal import api_implementation

from pulsar_spark.wire import pulsar_api_pb2 as pb
from spark_topics.protobuf import UNREADABLE, holds_text, undecodable_text
from tests.wire.builders import proto

NO_TEXT = b"\xff\xfe"
PAIR = proto((1, "key"), (2, NO_TEXT))

CASES = [
    (proto((1, NO_TEXT)), "producer_name"),
    (proto((1, "name"), (7, "good"), (7, NO_TEXT)), "replicate_to"),
    (proto((4, proto((1, "a"), (2, "b"))), (4, PAIR)), "properties.value"),
    (proto((13, proto((1, NO_TEXT), (2, b"")))), "encryption_keys.key"),
]


@pytest.mark.parametrize(("data", "name"), CASES)
def test_found_or_refused(data: bytes, name: str):
    """Each runtime either gives it as bytes, which is found, or refuses the message."""
    try:
        message = pb.MessageMetadata.FromString(data)
    except UNREADABLE:
        assert api_implementation.Type() == "python"
    else:
        assert undecodable_text(message) == name


def test_nothing_found():
    """Bytes may hold anything; so may text that is UTF-8."""
    good = proto((1, "größe"), (4, proto((1, ""), (2, "b"))), (15, NO_TEXT), (31, 4))
    assert undecodable_text(pb.MessageMetadata.FromString(good)) == ""
    assert undecodable_text(pb.MessageMetadata()) == ""
    assert undecodable_text(pb.MessageIdData(ledgerId=1, entryId=2)) == ""


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (pb.MessageMetadata, True),
        (pb.KeyValue, True),
        (pb.CommandAuthChallenge, True),
        (pb.CommandMessage, False),
        (pb.MessageIdData, False),
        (pb.CommandPing, False),
        (pb.BaseCommand, True),
    ],
)
def test_holds_text(message: type, expected: bool):
    """A type holds text itself or further down; one that holds itself is no trap."""
    assert holds_text(message.DESCRIPTOR) == expected
