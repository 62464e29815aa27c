# SPDX-License-Identifier: Apache-2.0
"""Messages to measure with: the same ones in each run, made from a fixed seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.entries import StoredEntry
from pulsar_spark.wire.frames import encode_payload_frame
from tests.support import entries

SEED = 20261121

#: The official clients' default batch of 128 KiB holds about so many messages of 100
#: bytes with a key.
BATCH_BYTES = 115_000

FIRST_EVENT_MS = 1_760_000_000_000

NONE = pb.NONE


@dataclass(frozen=True)
class Batch:
    """An entry of many messages, as it is published and stored.

    Attributes:
        metadata: The entry's own.
        payload: The messages, compressed as ``metadata`` says.
        rows: How many they are.
        value_bytes: Bytes of their values alone.
        codec: How they are compressed, a CompressionType of the protocol.
    """

    metadata: pb.MessageMetadata
    payload: bytes
    rows: int
    value_bytes: int
    codec: int

    def stored(self, entry_id: int = 0) -> StoredEntry:
        """As a reader sees it."""
        return StoredEntry(1, entry_id, self.metadata, memoryview(self.payload))

    def send(self, producer_id: int, first: int, now_ms: int = 0) -> bytes:
        """As a producer sends it, its messages numbered from ``first``."""
        last = first + self.rows - 1
        self.metadata.sequence_id, self.metadata.highest_sequence_id = first, last
        self.metadata.publish_time = now_ms
        command = pb.BaseCommand(
            type=pb.BaseCommand.SEND,
            send=pb.CommandSend(
                producer_id=producer_id,
                sequence_id=first,
                highest_sequence_id=last,
                num_messages=self.rows,
            ),
        )
        return encode_payload_frame(
            command.SerializeToString(), self.metadata.SerializeToString(), self.payload
        )

    def frame(self, entry_id: int = 0) -> bytes:
        """As a broker sends it."""
        command = pb.BaseCommand(
            type=pb.BaseCommand.MESSAGE,
            message=pb.CommandMessage(
                consumer_id=1,
                message_id=pb.MessageIdData(ledgerId=1, entryId=entry_id),
            ),
        )
        return encode_payload_frame(
            command.SerializeToString(), self.metadata.SerializeToString(), self.payload
        )


def topic_batches(
    size_bytes: int, entry_rows: int | None = None, codec: int = NONE
) -> list[Batch]:
    """The batches that fill a topic in turns; see ``Cluster.topic``."""
    return make_batches(8, size_bytes, rows=entry_rows, codec=codec)


def make_batches(
    count: int,
    size_bytes: int,
    *,
    rows: int | None = None,
    codec: int = NONE,
    is_varied: bool = False,
) -> list[Batch]:
    """Batches of messages with a key and an event time each.

    Args:
        count: How many batches.
        size_bytes: Of each value.
        rows: Messages in a batch; None for what the official clients would send. A
            single one is no batch, as they send it.
        codec: How to compress them, a CompressionType of the protocol.
        is_varied: Whether sizes are anything from 0.6 to 1.4 of that one, and every
            fourth message has two properties.
    """
    rng = random.Random(SEED + size_bytes)
    words = [rng.randbytes(rng.randrange(1, 4)).hex() for _ in range(500)]
    each = rows or max(1, BATCH_BYTES // (size_bytes + 35))
    return [
        _batch(rng, words, each, size_bytes, codec, is_varied) for _ in range(count)
    ]


def batches_of(values: Sequence[bytes], rows: int, **fields: Any) -> list[Batch]:
    """Batches of given values, each with a key.

    Args:
        values: All of them, in order.
        rows: Messages in a batch.
        **fields: Further fields of MessageMetadata.
    """
    found = []
    for start in range(0, len(values), rows):
        part = values[start : start + rows]
        members = [
            entries.member(value, key=f"key-{start + at}", sequence_id=at)
            for at, value in enumerate(part)
        ]
        metadata, payload = entries.batch(members, producer_name="bench", **fields)
        found.append(Batch(metadata, payload, len(part), sum(map(len, part)), NONE))
    return found


def _batch(
    rng: random.Random,
    words: list[str],
    rows: int,
    size_bytes: int,
    codec: int,
    is_varied: bool,
) -> Batch:
    fields: dict[str, Any] = {
        "producer_name": "bench",
        "sequence_id": 0,
        "publish_time": FIRST_EVENT_MS + 86_400_000,
    }
    if rows == 1:
        value = _value(rng, words, size_bytes)
        metadata, payload = entries.message(
            value,
            key=f"key-{rng.randrange(10_000)}",
            event_time=FIRST_EVENT_MS + rng.randrange(86_400_000),
            compression=codec,
            **fields,
        )
        return Batch(metadata, payload, 1, len(value), codec)
    parts = []
    value_bytes = 0
    for number in range(rows):
        size = size_bytes
        if is_varied:
            size = rng.randint(size_bytes * 6 // 10, size_bytes * 14 // 10)
        value = _value(rng, words, size)
        value_bytes += len(value)
        has_properties = is_varied and number % 4 == 0
        parts.append(
            entries.member(
                value,
                key=f"key-{rng.randrange(10_000)}",
                properties={"source": "bench", "row": str(number)}
                if has_properties
                else {},
                event_time=FIRST_EVENT_MS + rng.randrange(86_400_000),
                sequence_id=number,
            )
        )
    metadata, payload = entries.batch(parts, compression=codec, **fields)
    return Batch(metadata, payload, rows, value_bytes, codec)


def _value(rng: random.Random, words: list[str], size_bytes: int) -> bytes:
    """Text that compresses about as well as JSON does."""
    text = ""
    while len(text) < size_bytes:
        text += " ".join(rng.choices(words, k=20)) + " "
    return text[:size_bytes].encode()
