# SPDX-License-Identifier: Apache-2.0
"""Entries that lie about how many messages they have: a broker stores them as they are.

Seen on 4.0.7: it looks at no metadata when an entry is published. When it delivers it,
it takes ``num_messages_in_batch`` permits, whatever that is, in numbers of 32 bits
that overflow; a FLOW of more than 2**31 - 1 costs the connection. Entries that it reads
together and whose numbers add up to 0 it drops without a word: the broker's own hole,
which no client can close, and which the numbers here keep clear of.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

from tests.support import reading
from tests.support.entries import batch, chunks, member
from tests.support.raw_publisher import RawPublisher

if TYPE_CHECKING:
    from pulsar_spark.wire import pulsar_api_pb2 as pb

LIES = {
    "billions": [2**31 - 1000],
    "none": [0],
    "fewer than none": [-1000, -(2**31)],
    "any": [2**31 - 1000, 0, -(2**31), 1000, -1000, 2**30],
}


def lying_chunk(index: int, messages: int) -> tuple[pb.MessageMetadata, bytes]:
    """The first chunk of a message that never ends."""
    first, _ = chunks(b"chunk of nothing", 2, f"lie-{index}")
    first[0].num_messages_in_batch = messages
    return first


@pytest.mark.parametrize("counts", LIES.values(), ids=LIES.keys())
def test_all_rows_behind_them_are_read(
    service_url: str, topic: str, counts: list[int]
) -> None:
    """Neither an error nor a stall: what the broker took is what it is given back."""
    with RawPublisher(service_url, topic) as publisher:
        for turn in range(12):
            for index in range(turn):
                count = counts[index % len(counts)]
                publisher.send(*lying_chunk(100 * turn + index, count))
            for number in range(3):
                row = struct.pack(">Q", 3 * turn + number)
                publisher.send(*batch([member(row)] * 3))
    options = {
        "topic": topic,
        "startingOffsets": "earliest",
        "pulsar.reader.receiverQueueSize": "3",
        "pollTimeoutMs": "20000",
    }
    rows = reading.read(service_url, options)
    assert [row.value for row in rows] == [
        struct.pack(">Q", number // 3) for number in range(108)
    ]
