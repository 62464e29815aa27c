# SPDX-License-Identifier: Apache-2.0
"""Text that is not UTF-8, and types that hold text, by messages of protobuf's own."""

from __future__ import annotations

import pytest
from google.protobuf import descriptor_pb2 as pb
from google.protobuf import duration_pb2, struct_pb2
from google.protobuf.internal import api_implementation

from spark_topics.protobuf import UNREADABLE, holds_text, undecodable_text
from tests.wire.builders import proto

NO_TEXT = b"\xff\xfe"
FIELD = proto((1, NO_TEXT))

CASES = [
    (proto((1, NO_TEXT)), "name"),
    (proto((1, "file"), (3, "good"), (3, NO_TEXT)), "dependency"),
    (
        proto((4, proto((1, "a"))), (4, proto((1, "b"), (2, FIELD)))),
        "message_type.field.name",
    ),
]


@pytest.mark.parametrize(("data", "name"), CASES)
def test_found_or_refused(data: bytes, name: str):
    """A runtime either returns such text as bytes, or refuses the message."""
    try:
        message = pb.FileDescriptorProto.FromString(data)
    except UNREADABLE:
        assert api_implementation.Type() == "python"
    else:
        assert undecodable_text(message) == name


def test_nothing_found():
    """Bytes may hold anything; so may text that is UTF-8."""
    good = proto((1, "größe"), (4, proto((1, ""))))
    assert undecodable_text(pb.FileDescriptorProto.FromString(good)) == ""
    assert undecodable_text(pb.FileDescriptorProto()) == ""
    assert undecodable_text(duration_pb2.Duration(seconds=1)) == ""
    string = pb.UninterpretedOption(string_value=NO_TEXT)  # of type bytes
    assert undecodable_text(string) == ""


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (pb.FileDescriptorProto, True),
        (pb.DescriptorProto, True),  # which holds itself
        (struct_pb2.Struct, True),
        (duration_pb2.Duration, False),
    ],
)
def test_holds_text(message: type, expected: bool):
    """A type holds text itself or further down; a type that holds itself is no trap."""
    assert holds_text(message.DESCRIPTOR) == expected
