# SPDX-License-Identifier: Apache-2.0
"""What a real broker sent, decoded to exactly what the official Java client read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pulsar_spark.message_id import MessageId, encode_message_id
from pulsar_spark.wire.chunks import ChunkAssembler
from pulsar_spark.wire.commands import encode_frame
from pulsar_spark.wire.entries import (
    Entry,
    StoredEntry,
    read_stored_entry,
)
from pulsar_spark.wire.protocol import ClientProtocol, Delivery
from tests.support.entries import decode_entry
from tests.wire import builders
from tests.wire.fields import fields_of

FOLDER = Path(__file__).parent.parent / "golden"
NAMES = sorted(path.stem for path in FOLDER.glob("*.hex"))


def frames(name: str) -> list[bytes]:
    """The MESSAGE frames of a topic, as they came over the socket."""
    text = FOLDER.joinpath(f"{name}.hex").read_text()
    return [bytes.fromhex(paragraph) for paragraph in text.split("\n\n")]


def expected(name: str) -> list[dict[str, Any]]:
    """The messages of a topic, as the Java client read them."""
    text = FOLDER.joinpath(f"{name}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def stored_entries(name: str) -> list[StoredEntry]:
    """The entries of a topic."""
    protocol = ClientProtocol(encode_frame(b""))
    list(protocol.receive_data(builders.connected()))
    found = []
    for event in protocol.receive_data(b"".join(frames(name))):
        assert isinstance(event, Delivery)
        assert event.consumer_id == 1
        found.append(
            read_stored_entry(
                event.ledger_id, event.entry_id, event.headers_and_payload
            )
        )
    return found


def entries(name: str) -> list[Entry]:
    """The entries of a topic, decoded, chunks put together."""
    chunks = ChunkAssembler(1 << 20, max_pending=10, expire_ms=0)
    found = []
    for stored in stored_entries(name):
        whole = chunks.add(stored) if stored.is_chunk else stored
        if whole is not None:
            assert isinstance(whole, StoredEntry)
            found.append(decode_entry(whole))
    assert chunks.pending == 0
    return found


def hex_or_none(value: str | bytes | None) -> str | None:
    """Bytes, or text in UTF-8, in hex."""
    if value is None:
        return None
    return (value.encode() if isinstance(value, str) else value).hex()


def message_id(entry: Entry, index: int) -> str:
    """The bytes of the id of a message, in hex, as Java writes them."""
    first = entry.first_chunk
    return encode_message_id(
        MessageId(
            *entry.position,
            batch_index=index if entry.batch_size else -1,
            batch_size=entry.batch_size,
            first_chunk=MessageId(*first) if first else None,
        ),
        java=True,
    ).hex()


def rows(name: str) -> list[dict[str, Any]]:
    """What our code makes of a topic, in the form of the Java client's rows."""
    found = []
    for entry in entries(name):
        broker = entry.broker_metadata
        for index, payload, field in zip(
            entry.batch_indexes, entry.payloads, fields_of(entry), strict=True
        ):
            numbered = None
            if broker is not None:
                numbered = broker.index - max(entry.batch_size, 1) + 1 + index
            found.append(
                {
                    "value": hex_or_none(payload),
                    "__key": hex_or_none(field["partition_key"]),
                    "__messageId": message_id(entry, index),
                    "__publishTime": entry.metadata.publish_time,
                    "__eventTime": field["event_time"],
                    "__messageProperties": field["properties"] or {},
                    "__orderingKey": hex_or_none(field["ordering_key"]),
                    "__producerName": entry.metadata.producer_name,
                    "__sequenceId": field["sequence_id"],
                    "__brokerPublishTime": broker and broker.broker_timestamp,
                    "__index": numbered,
                }
            )
    return found


def test_all_captures_are_there():
    """Every topic was recorded and read, so that no test below passes for nothing."""
    assert len(NAMES) == 21
    assert all(frames(name) and expected(name) for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_rows(name: str):
    """Our rows are the Java client's, column by column."""
    assert rows(name) == expected(name)


@pytest.mark.parametrize("name", NAMES)
def test_every_split(name: str):
    """The same events come out wherever the stream is cut in two."""
    data = builders.connected() + b"".join(frames(name))
    whole = list(ClientProtocol(b"").receive_data(data))
    for cut in range(0, len(data), 7):
        protocol = ClientProtocol(b"")
        events = list(protocol.receive_data(data[:cut]))
        assert events + list(protocol.receive_data(data[cut:])) == whole


@pytest.mark.parametrize("writer", ["java", "python"])
@pytest.mark.parametrize(
    ("codec", "number"), [("none", 0), ("lz4", 1), ("zlib", 2), ("zstd", 3)]
)
def test_codecs(writer: str, codec: str, number: int):
    """Both clients write one batch of three, compressed with what its name says."""
    (stored,) = stored_entries(f"{writer}_batch_{codec}")
    assert stored.metadata.compression == number
    assert decode_entry(stored).batch_size == stored.charged_messages == 3


def test_java_leaves_the_trailer_out_of_zlib():
    """Java's ZLIB stream ends without a checksum of its own; Python's has one."""
    (java,) = stored_entries("java_lone")
    (python,) = stored_entries("python_batch_zlib")
    assert bytes(java.payload[-4:]) == b"\x00\x00\xff\xff"
    assert bytes(python.payload[-4:]) != b"\x00\x00\xff\xff"


def test_a_damaged_golden_frame():
    """One changed bit of an entry is found by its checksum."""
    frame = bytearray(frames("java_lone")[0])
    frame[-1] ^= 1
    protocol = ClientProtocol(b"")
    _, event = protocol.receive_data(builders.connected() + bytes(frame))
    assert isinstance(event, Delivery)
    with pytest.raises(Exception, match="checksum should be") as caught:
        read_stored_entry(1, 2, event.headers_and_payload)
    assert type(caught.value).__name__ == "CorruptEntryError"
