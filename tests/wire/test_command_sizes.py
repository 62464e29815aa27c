# SPDX-License-Identifier: Apache-2.0
"""Limits of commands: 1 MiB, or 16 MiB and a million names for a list of topics.

What is refused by its size is never decoded: so most of these could not be.
"""

from __future__ import annotations

import pytest

from pulsar_spark.errors import ProtocolError
from pulsar_spark.wire.commands import decode_command
from tests.wire.builders import proto

MIB = 1 << 20

#: The first byte of a body that no decoder reads any further.
BROKEN = b"\x0f"
SMALL = "cannot be decoded"


def error_of(data: bytes) -> str:
    """Return what a command is refused with."""
    with pytest.raises(ProtocolError) as caught:
        decode_command(data)
    return str(caught.value)


def topic_list(size: int, names: int = 1) -> bytes:
    """Return an undecodable list of topics of this size, with this many names."""
    head = proto((1, 33))
    for body_size in range(size - len(head) - 8, size):
        body = BROKEN + b"\x12" * names + b"\0" * (body_size - names - 1)
        if len(data := head + proto((33, body))) == size:
            return data
    raise AssertionError(f"no list has {size} bytes")


@pytest.mark.parametrize(
    ("size", "problem"),
    [(MIB, SMALL), (MIB + 1, "A command of 1048577 bytes is larger than the limit")],
)
def test_any_command(size: int, problem: str) -> None:
    """The limit itself is allowed."""
    assert problem in error_of(BROKEN * size)


@pytest.mark.parametrize(
    ("size", "names", "problem"),
    [
        (MIB, 1, SMALL),
        (MIB + 1, 1, SMALL),
        (2 * MIB - 1, 1, SMALL),
        (16 * MIB, 1_000_000, SMALL),
        (16 * MIB + 1, 1, "16777217 bytes is larger than the limit of 16777216 bytes"),
        (16 * MIB, 1_000_001, "limit of 16777216 bytes and 1,000,000 names"),
    ],
)
def test_a_list_of_topics(size: int, names: int, problem: str) -> None:
    """It may be larger, in bytes and in names."""
    assert problem in error_of(topic_list(size, names))


def test_a_list_of_topics_and_more() -> None:
    """What follows the list would be decoded, too."""
    assert "larger than the limit of 1048576" in error_of(topic_list(2 * MIB) + BROKEN)
