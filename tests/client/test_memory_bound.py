# SPDX-License-Identifier: Apache-2.0
"""What a reading task holds is bounded, whatever bytes a producer has stored.

A process of its own reads topics of hostile entries as a Spark task does, one after the
other, and says how large it grew with each.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import zlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from pulsar_spark.wire import pulsar_api_pb2 as pb
from tests.support.scripted_broker import LEDGER, ScriptedBroker, StoredFrame
from tests.wire import builders
from tests.wire.builders import CODECS, LZ4, NONE, ZSTD, Outer, Sent, proto, varint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
TOPIC = "persistent://public/default/hostile-"
EMPTY = proto((1, b""))  # a property without a name and without a value
FRAME_BYTES = 4 * MIB
CHUNK_BYTES = 1 * MIB


@dataclass
class Found:
    """What a read gave.

    Attributes:
        rows: How many.
        value_bytes, key_bytes, name_bytes: Of all of them together.
        checksum: Of the values, where there are few.
        pairs: Properties of all of them together.
        error: What it ended with, the message id of a good end being "".
    """

    rows: int = 0
    value_bytes: int = 0
    key_bytes: int = 0
    name_bytes: int = 0
    checksum: int = 0
    pairs: int = 0
    error: str = ""


@dataclass(frozen=True)
class Case:
    """A topic, and what is to be read from it; of an error a part."""

    entries: list[StoredFrame]
    wanted: Found


class _Raw:
    """Metadata that protobuf does not have to write."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        """The metadata."""
        return self._data

    def HasField(self, name: str) -> bool:  # noqa: N802 - likewise
        """None: the topic's last message is its last entry."""
        del name
        return False


def stored(metadata: bytes, payload: bytes, messages: int = 1) -> StoredFrame:
    """An entry of any bytes."""
    return StoredFrame(cast("pb.MessageMetadata", _Raw(metadata)), payload, messages)


def packed(payload: bytes, codec: int, *more: tuple[int, Any]) -> list[StoredFrame]:
    """A payload, compressed: in one entry, or in chunks where it is too large."""
    data = builders.compress(codec, payload)
    fields = (8, codec or None), (9, len(payload) if codec else None), *more
    messages = dict(more).get(11, 1)
    if len(data) <= FRAME_BYTES:
        return [stored(Outer().metadata(*fields), data, messages)]
    uuid = f"{zlib.crc32(data)}"
    count = -(-len(data) // CHUNK_BYTES)
    return [
        stored(
            Outer().metadata(
                *fields, (26, uuid), (27, count), (28, len(data)), (29, index)
            ),
            data[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES],
            messages,
        )
        for index in range(count)
    ]


def one_message(head: bytes, value: bytes = b"") -> bytes:
    """A batch of one."""
    return builders.sized(head + proto((3, len(value)))) + value


def noise(size: int) -> bytes:
    """Bytes that no codec makes smaller."""
    return random.Random(size).randbytes(size)


def tiny_messages(limit: int, codec: int) -> Case:
    """As many messages as fit into the limit, of 6 bytes each."""
    count = limit // 6
    payload = builders.sized(proto((3, 0))) * count
    return Case(packed(payload, codec, (11, count)), Found(rows=count))


def empty_properties(limit: int) -> Case:
    """One message with as many properties without a name as it may have."""
    payload = one_message(EMPTY * (limit // 4 // len(EMPTY) - 10))
    return Case(packed(payload, ZSTD, (11, 1)), Found(rows=1, pairs=1))


def too_many_properties(limit: int, fields: bytes) -> Case:
    """One message with more."""
    size = max(limit, 6 * MIB)  # metadata that fits a frame is always taken
    payload = one_message(fields * (size // len(fields) - 10))
    if size > limit:
        return Case(packed(payload, ZSTD, (11, 1)), Found(error=f"{limit} bytes that"))
    return Case(packed(payload, ZSTD, (11, 1)), Found(error="memoryLimitBytes"))


def properties_of_the_entry(limit: int) -> Case:
    """A message that is no batch, with as many as fit into a frame, not compressed."""
    del limit
    metadata = Outer().metadata() + b"\x22\x00" * (5 * MIB // 2)
    return Case([stored(metadata, b"v")], replace(_of_values([b"v"]), pairs=1))


def clusters_of_the_entry(limit: int) -> Case:
    """A field that nobody reads, by the million."""
    del limit
    metadata = Outer().metadata() + b"\x3a\x00" * (5 * MIB // 2)
    return Case([stored(metadata, b"v")], _of_values([b"v"]))


def keys_of_encryption(limit: int) -> Case:
    """A field that ends the read, likewise."""
    del limit
    metadata = Outer().metadata() + b"\x6a\x00" * (5 * MIB // 2)
    return Case([stored(metadata, b"v")], Found(error="encrypted"))


def different_properties(limit: int) -> Case:
    """One message with many properties, each of another name."""
    count = min(limit // 32, 250_000)
    pairs = b"".join(
        proto((1, proto((1, f"name-{n}"), (2, f"{n}")))) for n in range(count)
    )
    return Case(packed(one_message(pairs), LZ4, (11, 1)), Found(rows=1, pairs=count))


def too_many_different_properties(limit: int) -> Case:
    """The same beyond what a message may have."""
    count = max(limit // 256, 1 << 16) + 1
    pairs = b"".join(proto((1, proto((1, b"%x" % n), (2, b"")))) for n in range(count))
    entries = packed(one_message(pairs), ZSTD, (11, 1))
    if len(pairs) > max(limit, 5 * MIB):
        return Case(entries, Found(error=f"{limit} bytes that"))
    return Case(entries, Found(error=f"{count - 1} properties"))


def large_keys(limit: int) -> Case:
    """Messages with keys of bytes as large as they may be, and ordering keys."""
    size = limit // 4 - 200
    payload = b"".join(
        one_message(proto((2, b"QUJD" * (size // 4)), (6, 1))) for _ in range(3)
    )
    payload += one_message(proto((7, b"o" * size)))
    entries = packed(payload, ZSTD, (11, 4))
    return Case(entries, Found(rows=4, key_bytes=3 * (size // 4 * 3)))


def large_values(limit: int) -> Case:
    """Messages as large as the limit, one after the other, in and out of batches."""
    value = bytes(range(256)) * (limit // 256)
    almost = value[:-100]
    entries = []
    for codec in CODECS[1:]:
        entries += packed(value, codec)
        entries += packed(one_message(b"", almost), codec, (11, 1))
    values = [value, almost] * len(CODECS[1:])
    return Case(entries, _of_values(values))


def large_chunked_values(limit: int) -> Case:
    """The same, of noise: compressed they are as large; others are begun meanwhile."""
    value = noise(limit - limit // 128)
    entries = []
    for codec in (NONE, LZ4, ZSTD):
        for index, entry in enumerate(packed(value, codec)):
            entries.append(entry)
            begun = Outer().metadata((26, f"{codec}/{index}"), (27, 3), (28, limit - 1))
            entries.append(stored(begun, noise(CHUNK_BYTES // 8)))
    values = [value] * 3
    return Case(entries, _of_values(values))


def long_names(limit: int) -> Case:
    """Names of the entry, of 2 MiB, which each of its rows repeats."""
    del limit
    name = "p" * MIB
    outer = Outer(producer_name=name, extra=((5, name),))
    sent = [Sent(b"x")] * 40
    entry = builders.batch_payload(sent)
    wanted = replace(_of_values([b"x"] * 40), name_bytes=40 * 2 * MIB)
    return Case([stored(outer.metadata((11, 40)), entry, 40)], wanted)


def counts_that_lie(limit: int) -> Case:
    """More messages than there can be."""
    del limit
    entry = packed(one_message(b""), ZSTD, (11, 2**31 - 1))
    return Case(entry, Found(error="promises a batch of 2147483647"))


def what_compaction_left(limit: int) -> Case:
    """A list of a million places in the batch, most of them of messages removed."""
    count = min(limit // 10, 1_000_000)
    places = b"".join(map(varint, range(count)))
    gone = builders.sized(proto((3, 0), (4, 1)))
    payload = gone * (count - 1) + one_message(b"", b"v")
    entries = packed(payload, ZSTD, (11, count), (31, places))
    return Case(entries, _of_values([b"v"]))


def tiny_entries(limit: int, *more: tuple[int, Any]) -> Case:
    """More entries of one byte, outside of batches, than may wait at a time.

    Args:
        limit: Memory for them.
        more: Of the metadata: what keeps them from being unpacked together.
    """
    count = max(20_000, limit // 500)
    entry = stored(Outer().metadata(*more), b"v")
    return Case([entry] * count, replace(_of_values([b"v"] * count), checksum=0))


def _of_values(values: list[bytes]) -> Found:
    checksum = 0
    for value in values:
        checksum = zlib.crc32(value, checksum)
    return Found(
        rows=len(values),
        value_bytes=sum(len(value) for value in values),
        checksum=checksum,
    )


CASES: dict[str, Callable[[int], Case]] = {
    "tiny-messages": lambda limit: tiny_messages(limit, ZSTD),
    "empty-properties": empty_properties,
    "too-many-empty-properties": lambda limit: too_many_properties(limit, EMPTY),
    "properties-of-the-entry": properties_of_the_entry,
    "clusters": clusters_of_the_entry,
    "keys-of-encryption": keys_of_encryption,
    "different-properties": different_properties,
    "too-many-properties": too_many_different_properties,
    "large-keys": large_keys,
    "large-values": large_values,
    "large-chunked-values": large_chunked_values,
    "long-names": long_names,
    "counts-that-lie": counts_that_lie,
    "compacted": what_compaction_left,
    "tiny-entries": tiny_entries,
    "tiny-entries-one-by-one": lambda limit: tiny_entries(limit, (31, 1)),
}


@pytest.mark.parametrize(
    "limit", [1 * MIB, pytest.param(64 * MIB, marks=pytest.mark.soak)]
)
def test_any_bytes_in_bounded_memory(
    scripted: ScriptedBroker, limit: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three times the limit and 100 MiB; each row is there, or one error says why."""
    wanted = {}
    for name, make in CASES.items():
        case = make(limit)
        scripted.add_topic(TOPIC + name, case.entries)
        wanted[name] = case.wanted
    sizes = {name: len(scripted.topics[TOPIC + name]) for name in CASES}
    scripted.add_topic(TOPIC + "warm-up", tiny_messages(600, LZ4).entries)
    done = subprocess.run(
        [sys.executable, "-m", "tests.client.test_memory_bound"],
        input=json.dumps({"url": scripted.url, "limit": limit, "sizes": sizes}),
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        check=True,
        timeout=570,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    with capsys.disabled():
        for line in lines:
            sys.stdout.write(
                f"\nlimit {limit // MIB} MiB, {line['name']}: "
                f"{line['grown'] / MIB:.0f} MiB in {line['seconds']:.1f} s"
            )
    assert [line["name"] for line in lines] == list(CASES)
    for line in lines:
        found, expected = Found(**line["found"]), wanted[line["name"]]
        assert expected.error in found.error, line
        assert bool(expected.error) == bool(found.error), line
        if expected.error:
            assert f"{LEDGER}:" in found.error, line
        found.error = expected.error
        assert found == expected, line["name"]
        assert line["grown"] < 3 * limit + 100 * MIB, line


# -- the process that reads ------------------------------------------------------------


def main() -> None:
    """Reads each topic, and writes what it found and how large this process was."""
    import time

    from pulsar_spark.arrow.schema import COLUMN_TYPES, arrow_schema
    from pulsar_spark.options import parse_read_options

    task = json.load(sys.stdin)
    schema = arrow_schema(tuple(COLUMN_TYPES))
    options = parse_read_options(
        {
            "service.url": task["url"],
            "topic": "hostile",
            "pulsar.client.memoryLimitBytes": str(task["limit"]),
            "pulsar.reader.receiverQueueSize": "1000000",
            "pollTimeoutMs": "120000",
        }
    )
    _read("warm-up", 1, options, schema)
    before = _status("VmRSS")
    for name, entries in task["sizes"].items():
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        began = time.monotonic()
        found = _read(name, entries, options, schema)
        line = {
            "name": name,
            "grown": _status("VmHWM") - before,
            "seconds": time.monotonic() - began,
            "found": asdict(found),
        }
        sys.stdout.write(json.dumps(line) + "\n")


def _read(name: str, entries: int, options: Any, schema: Any) -> Found:
    from pulsar_spark.errors import PulsarSparkError
    from pulsar_spark.message_id import MessageId
    from pulsar_spark.source.plan.ranges import TopicRange
    from pulsar_spark.source.plan.read_task import ReadTask
    from pulsar_spark.source.read.task import read_task

    end = MessageId(LEDGER, entries - 1)
    range_ = TopicRange(TOPIC + name, MessageId(LEDGER, 0), end)
    found = Found()
    task = ReadTask((range_,))
    record_batches: Iterator[Any] = read_task(task, options, schema)
    try:
        record_batch = None
        for record_batch in record_batches:  # held until the next one is there
            if not found.rows and entries > 1000:
                _let_them_wait()
            _count(record_batch, found)
    except PulsarSparkError as error:
        found.error = str(error)
    return found


def _let_them_wait() -> None:
    """Takes nothing until as many entries wait as may."""
    import time

    size, before = _status("VmRSS"), 0
    while size > before:
        time.sleep(0.5)
        before, size = size, _status("VmRSS")


def _count(record_batch: Any, found: Found) -> None:
    import pyarrow.compute as pc

    record_batch.validate()
    found.rows += record_batch.num_rows

    def size_bytes(name: str) -> int:
        return pc.sum(pc.binary_length(record_batch[name])).as_py() or 0

    found.value_bytes += size_bytes("value")
    found.key_bytes += size_bytes("__key")
    names = size_bytes("__producerName") + size_bytes("__replicatedFrom")
    found.name_bytes += names if names > MIB else 0
    found.pairs += len(record_batch["__messageProperties"].keys)
    if record_batch.num_rows < 100:
        for value in itertools.chain(record_batch["value"]):
            found.checksum = zlib.crc32(value.as_buffer(), found.checksum)


def _status(what: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(what))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
