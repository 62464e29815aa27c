# SPDX-License-Identifier: Apache-2.0
"""Compacted topics that our sink wrote: the last value of each key, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pulsar_spark import PulsarDataSource
from tests.broker.test_write import write
from tests.support import official, reading, writes
from tests.support.official import CODECS, Row

if TYPE_CHECKING:
    from pulsar_spark.testing.admin import Admin

#: How rows become entries.
SHAPES = {
    "batched": {},
    "key-based": {"p_batcherBuilder": "KEY_BASED"},
    "unbatched": {"p_batchingEnabled": "false"},
    "unbatched, chunks allowed": {
        "p_batchingEnabled": "false",
        "p_chunkingEnabled": "true",
    },
    "delayed": {"p_batchingEnabled": "true"},  # each in an entry of its own
}

#: Keys with what is written of each, in turns; NULL is a tombstone.
HISTORY: dict[str, list[str | None]] = {
    "last": ["a", "b", "c" * 500],
    "once": ["only"],
    "buried": ["a", "b", None],
    "only buried": [None],
    "back": ["a", None, "again" * 100],
    "größer": ["a", "b", "c"],
}

#: What is left of them.
LAST = {
    key.encode(): values[-1].encode()
    for key, values in HISTORY.items()
    if values[-1] is not None
}

COMPACTED = {"pulsar.reader.readCompacted": "true"}


def turns(history: dict[str, list[str | None]]) -> dict[str, list[Any]]:
    """The rows of all keys, the first of each, then the second of each, and so on."""
    longest = max(map(len, history.values()))
    rows = [
        (key, values[turn])
        for turn in range(longest)
        for key, values in history.items()
        if turn < len(values)
    ]
    return {"__key": [key for key, _ in rows], "value": [value for _, value in rows]}


def read_compacted(service_url: str, topic: str) -> list[Row]:
    """What our reader gives, once it is what the official client gives.

    That one has an empty row for each message that is gone from within a batch.
    """
    ours = reading.read(service_url, {"topic": topic, **COMPACTED})
    theirs = official.read_back(service_url, topic, compacted=True)
    assert ours == [row for row in theirs if row.key]
    return ours


@pytest.mark.parametrize("shape", SHAPES)
def test_last_values(service_url: str, admin: Admin, topic: str, shape: str) -> None:
    """Compaction keeps the last value of each key, and no key that was buried.

    Each codec has keys of its own, so that all of them share the topic.
    """
    for codec in CODECS:
        of_codec = {f"{codec} {key}": values for key, values in HISTORY.items()}
        rows = turns(of_codec)
        if shape == "delayed":
            rows["__deliverAtTime"] = [1] * len(rows["value"])
        write(service_url, topic, rows, p_compressionType=codec, **SHAPES[shape])
    total = len(CODECS) * len(rows["value"])
    assert len(read_compacted(service_url, topic)) == total
    admin.compact(topic)
    found = [(row.key, row.value) for row in read_compacted(service_url, topic)]
    assert sorted(found) == sorted(
        (f"{codec} ".encode() + key, value)
        for codec in CODECS
        for key, value in LAST.items()
    )


@pytest.mark.parametrize(("shape", "kept"), [("batched", False), ("unbatched", True)])
def test_an_empty_last_value(
    service_url: str, admin: Admin, topic: str, shape: str, *, kept: bool
) -> None:
    """Brokers take an empty value within a batch for a tombstone; alone it is one."""
    rows = {"__key": ["k", "e", "e"], "value": ["v", "v", ""]}
    write(service_url, topic, rows, **SHAPES[shape])
    admin.compact(topic)
    found = [(row.key, row.value) for row in read_compacted(service_url, topic)]
    assert found == [(b"k", b"v"), *([(b"e", b"")] if kept else [])]


@pytest.mark.parametrize("batching", ["true", "false"])
def test_rows_of_transactions(
    service_url: str, admin: Admin, topic: str, batching: str
) -> None:
    """Those that were committed count, markers and what was aborted do not."""
    admin.create_topic(topic)
    options = {
        "service.url": service_url,
        "topic": topic,
        "deliveryGuarantee": "exactly-once",
        "pulsar.producer.batchingEnabled": batching,
    }
    sink = PulsarDataSource(options)
    writes.save(sink, pa.record_batch(turns(HISTORY)))
    lost = pa.record_batch({"__key": ["last", "once"], "value": ["x", "lost"]})
    with pytest.raises(ValueError, match="no good"):
        writes.save(sink, lost, error=ValueError("no good"))
    admin.compact(topic)
    found = [(row.key, row.value) for row in read_compacted(service_url, topic)]
    assert sorted(found) == sorted(LAST.items())


def test_rows_in_chunks(
    service_url: str, admin: Admin, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Compaction keeps the last chunk of a row; the others are where they were.

    Once they are removed from the topic, the row is gone, and named.
    """
    topic = f"persistent://{namespace}/chunks"
    rows = {
        "__key": ["k", "c", "c", "k", "buried", "buried"],
        "value": ["v", "x" * 5000, "y" * 5000, "w", "z" * 5000, None],
    }
    shape = {**SHAPES["unbatched, chunks allowed"], "p_chunkMaxMessageSize": "1000"}
    write(service_url, topic, rows, **shape)
    assert len(read_compacted(service_url, topic)) == 6
    admin.compact(topic)
    # The official client ends with an error there.
    found = reading.read(service_url, {"topic": topic, **COMPACTED})
    expected = {b"c": b"y" * 5000, b"k": b"w"}
    assert [(row.key, row.value) for row in found] == list(expected.items())
    assert not [r for r in caplog.records if "incomplete" in r.message]
