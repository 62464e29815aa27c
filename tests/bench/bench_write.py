# SPDX-License-Identifier: Apache-2.0
"""Writes of small entries: what a task costs, and what it reaches of its own entries.

Without Spark: a task gets the same RecordBatches again and again. Two figures of each
shape: the processor's time of the process that writes, from the RecordBatch to the last
receipt; and the clock's, beside a socket on which the same entries, made before, go out
as fast as the broker takes them.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from unittest import mock

import pyarrow as pa

from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import shared_pool
from pulsar_spark.client.producing.producers import Producers, TopicProducer
from pulsar_spark.loops.sends import SendFrame
from pulsar_spark.options import parse_write_options
from pulsar_spark.sink.targets import find_targets
from pulsar_spark.sink.task import TaskWriter
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.frames import FrameReader, encode_frame
from spark_topics.sink.write import Task
from tests.bench.bench_encode import ROWS, record_batch
from tests.bench.bench_sink import new_topic
from tests.bench.cluster import Cluster, note
from tests.bench.publish import broker_of
from tests.bench.report import MICROSECONDS, Case, in_turns

#: Microseconds of the processor that an entry may take, and a row of it.
_ENTRY_US = 8.0
_ROW_US = 0.25

#: What goes out with one call of the system.
_CHUNK_BYTES = 64 * 1024

_P = "pulsar.producer."


@dataclass(frozen=True)
class Shape:
    """Entries of one kind.

    Attributes:
        name: What the table calls them.
        rows_per_entry: How many rows each has.
        partitions: Of the topic.
        columns: That are written.
        options: Of the write.
        raw_target: What it must reach of the same entries, raw; None where Python's
            part of each row is most of the work, and the sink's bound is the limit.
    """

    name: str
    rows_per_entry: int
    partitions: int = 2
    columns: tuple[str, ...] = ("value",)
    options: Mapping[str, str] = field(default_factory=dict)
    raw_target: float | None = 0.8

    @property
    def target_us(self) -> float:
        """Most microseconds of a row."""
        return _ENTRY_US / self.rows_per_entry + _ROW_US


_KEYED = ("value", "__key")

SHAPES = (
    Shape("unbatched", 1, columns=_KEYED, options={_P + "batchingEnabled": "false"}),
    Shape("batches of 10", 10, options={_P + "batchingMaxMessages": "10"}),
    Shape(
        "key-based", 10, columns=_KEYED, options={_P + "batcherBuilder": "KEY_BASED"}
    ),
    Shape(
        "100 partitions, 10 rows each in turn",
        10,
        100,
        options={_P + "batchingMaxMessages": "10"},
    ),
    Shape("default batches", 1000, columns=_KEYED, raw_target=None),
)


def run(cluster: Cluster, rows: int, repeats: int) -> Iterator[Case]:
    """Every shape, with values of 100 bytes."""
    for shape in SHAPES:
        note(f"a task writes {shape.name}")
        with cluster.further_namespace() as namespace:
            topic = new_topic(cluster, namespace, shape.partitions)
            # About as many entries of each; as many rows as Spark would hand over.
            most = min(rows, 50_000 * shape.rows_per_entry)
            yield from _cases(cluster, shape, topic, -(-most // ROWS) * ROWS, repeats)


def _cases(
    cluster: Cluster, shape: Shape, topic: str, rows: int, repeats: int
) -> Iterator[Case]:
    write = partial(_write, cluster, shape, topic, rows, _batches(shape))
    entries = _entries(write)
    shown = sum(frame.rows for _, frame in entries) / len(entries)
    assert rows < 10 * ROWS or 0.8 < shown / shape.rows_per_entry < 1.25, shown
    cpu_s: list[float] = []

    def ours() -> float:
        began, cpu_began = time.perf_counter(), time.process_time()
        write()
        cpu_s.append(time.process_time() - cpu_began)
        return time.perf_counter() - began

    raw = partial(_replay, cluster.service_url, entries)
    seconds = in_turns({"raw": raw, "ours": ours}, repeats)
    what, size_bytes = f"100 B, {shape.name}", rows * 100
    yield Case(
        "write",
        f"{what}, processor",
        rows,
        size_bytes,
        cpu_s[-repeats:],
        target=shape.target_us,
        figure=MICROSECONDS,
    )
    yield Case(
        "write",
        what,
        rows,
        size_bytes,
        seconds["ours"],
        "the same entries, raw",
        seconds["raw"],
        shape.raw_target,
    )


def _batches(shape: Shape) -> list[pa.RecordBatch]:
    batches = [record_batch(number, 100).select(shape.columns) for number in range(4)]
    if shape.options.get(_P + "batcherBuilder") is None:
        return batches
    # So many of one key in each RecordBatch, and not side by side.
    keys = pa.array(
        [f"key-{row % (ROWS // shape.rows_per_entry)}" for row in range(ROWS)]
    )
    at = shape.columns.index("__key")
    return [batch.set_column(at, "__key", keys) for batch in batches]


def _write(
    cluster: Cluster, shape: Shape, topic: str, rows: int, batches: list[pa.RecordBatch]
) -> None:
    given = {"service.url": cluster.service_url, "topic": topic, **shape.options}
    options = parse_write_options(given, streaming=False)
    assert options.topic is not None
    lookup = TopicLookup(shared_pool(options.client))
    targets = find_targets(lookup, [options.topic], auto_creation=False)
    writer = TaskWriter(options, Task(0), targets)
    summary = writer.write(batches[n % len(batches)] for n in range(rows // ROWS))
    assert summary.rows in (rows, 0), summary


# -- the same entries, raw -------------------------------------------------------------

Entry = tuple[TopicProducer, SendFrame]


def _entries(write: partial[None]) -> list[Entry]:
    """What a write sends, which is kept instead."""
    kept: list[Entry] = []

    def keep(
        _: Producers, entries: Sequence[tuple[TopicProducer, Sequence[SendFrame]]]
    ) -> None:
        kept.extend((producer, frame) for producer, some in entries for frame in some)

    with mock.patch.object(Producers, "send_all", keep):
        write()
    return kept


def _replay(service_url: str, entries: list[Entry]) -> float:
    """Seconds until all of them are stored, from the first one that is sent."""
    topics = {producer.producer_id: producer.topic for producer, _ in entries}
    (broker,) = set(broker_of(service_url, set(topics.values())).values())
    frames = [frame.data for _, frame in entries]
    some = max(1, _CHUNK_BYTES // len(frames[0]))
    chunks = [b"".join(frames[n : n + some]) for n in range(0, len(frames), some)]
    with _Socket(broker, topics) as raw:
        began = time.perf_counter()
        receipts = threading.Thread(target=raw.await_receipts, args=(len(frames),))
        receipts.start()
        for chunk in chunks:
            raw.send(chunk)
        receipts.join()
        return time.perf_counter() - began


class _Socket:
    """A connection with producers on it, by id and topic."""

    def __init__(self, broker: str, topics: Mapping[int, str]) -> None:
        host, _, port = broker.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 60)
        self._lock = threading.Lock()
        self._reader = FrameReader()
        self.send(commands.connect("bench"))
        self._await(pb.BaseCommand.CONNECTED, 1)
        request_ids = count(1)
        for producer_id, topic in topics.items():
            producer = pb.CommandProducer(
                topic=topic, producer_id=producer_id, request_id=next(request_ids)
            )
            command = pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=producer)
            self.send(encode_frame(command.SerializeToString()))
        self._await(pb.BaseCommand.PRODUCER_SUCCESS, len(topics))

    def __enter__(self) -> _Socket:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Sends it."""
        with self._lock:
            self._socket.sendall(data)

    def await_receipts(self, wanted: int) -> None:
        """Counts frames by their sizes; all but a probe are taken for receipts."""
        rest = b""
        ping = commands.ping()
        while wanted:
            data = rest + self._socket.recv(1 << 16)
            begin = 0
            while begin + 4 <= len(data):
                (size,) = struct.unpack_from(">I", data, begin)
                end = begin + 4 + size
                if end > len(data):
                    break
                if data[begin:end] == ping:
                    self.send(commands.pong())
                else:
                    assert data[begin + 8 : begin + 10] == b"\x08\x07", "no receipt"
                    wanted -= 1
                begin = end
            rest = data[begin:]

    def _await(self, kind: int, wanted: int) -> None:
        while wanted:
            self._reader.receive_data(self._socket.recv(1 << 16))
            while (frame := self._reader.next_frame()) is not None:
                command = pb.BaseCommand.FromString(bytes(frame.command))
                assert command.type == kind, command
                wanted -= 1
