# SPDX-License-Identifier: Apache-2.0
"""Captures what a real broker sends, and what the official Java client makes of it.

    python -m tests.golden.capture

starts brokers, has the official clients write small topics, records the MESSAGE frames
of each topic as they come over a socket, and has the Java client read the same topics.
For each topic it writes beside itself:

``<name>.hex``
    The frames, from totalSize to their last byte, one a paragraph.
``<name>.jsonl``
    The messages as the Java client read them, one a line, bytes in hex.

Needs what ``pulsar_spark.testing`` needs. Every run gives other ids, times and
checksums, so it is for new cases or a new broker, not for every day.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pulsar

from pulsar_spark.message_id import EARLIEST, MessageId
from pulsar_spark.testing.admin import Admin
from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from pulsar_spark.testing.jars import resolve_classpath
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parent
JAVA_CLIENT = FOLDER / "GoldenClient.java"
NAMESPACE = "public/golden"
CODECS = ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY")
QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


def main() -> None:
    """Captures everything."""
    for entry_metadata in (False, True):
        with EmbeddedBroker(entry_metadata=entry_metadata) as broker:
            admin = Admin(broker.admin_url)
            admin.create_namespace(NAMESPACE, keep=True)
            prefix = f"persistent://{NAMESPACE}/"
            if entry_metadata:
                write_entry_metadata(broker.service_url, prefix)
            else:
                write_python(broker.service_url, prefix)
                java("write", broker.service_url, prefix)
                admin.compact(f"{prefix}java_compacted")
            topics = sorted(admin.topics(NAMESPACE))
            capture(broker.service_url, topics)


def capture(service_url: str, topics: list[str]) -> None:
    """Records the frames and rows of some topics."""
    compacted = {topic for topic in topics if "compacted" in topic}
    rows: dict[str, list[str]] = {topic: [] for topic in topics}
    names = [f"{topic}+compacted" if topic in compacted else topic for topic in topics]
    for line in java("read", service_url, *names).splitlines():
        if line.startswith("ROW "):
            row = json.loads(line[4:])
            topic = row.pop("topic").removesuffix("+compacted")
            rows[topic].append(json.dumps(row, ensure_ascii=False))
    for topic in topics:
        name = topic.rpartition("/")[2]
        frames = record(service_url, topic, read_compacted=topic in compacted)
        paragraphs = ("\n".join(textwrap.wrap(one.hex(), 88)) for one in frames)
        FOLDER.joinpath(f"{name}.hex").write_text("\n\n".join(paragraphs) + "\n")
        FOLDER.joinpath(f"{name}.jsonl").write_text("\n".join(rows[topic]) + "\n")
        sys.stdout.write(f"{name}: {len(frames)} frames, {len(rows[topic])} rows\n")


def record(service_url: str, topic: str, *, read_compacted: bool) -> list[bytes]:
    """The MESSAGE frames of a topic, whole, up to its last message."""
    host, port = service_url.removeprefix("pulsar://").split(":")
    how = commands.SubscribeRequest(
        "golden-capture",
        start=EARLIEST,
        consumer=commands.ConsumerSettings(read_compacted=read_compacted),
    )
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        frames = received(connection)
        for request in (
            commands.connect("golden"),
            commands.lookup(topic).encode(1),
            commands.subscribe(topic, 1, how).encode(2),
            commands.get_last_message_id(1).encode(3),
        ):
            connection.sendall(request)
            reply, _ = next(frames)
        last = commands.from_message_id_data(
            reply.getLastMessageIdResponse.last_message_id
        )
        connection.sendall(commands.flow(1, 1000))
        recorded: list[bytes] = []
        for command, frame in frames:
            if command.type != pb.BaseCommand.MESSAGE:
                continue
            recorded.append(frame)
            place = command.message.message_id
            if MessageId(place.ledgerId, place.entryId).position >= last.position:
                break
        return recorded


def received(connection: socket.socket) -> Iterator[tuple[pb.BaseCommand, bytes]]:
    """Each frame that arrives, with its command."""
    with connection.makefile("rb") as stream:
        while head := stream.read(8):
            total_size, command_size = struct.unpack(">II", head)
            body = stream.read(total_size - 4)
            yield pb.BaseCommand.FromString(body[:command_size]), head + body


def java(*arguments: str) -> str:
    """Runs the Java client; what it printed."""
    return subprocess.run(
        ["java", "-cp", resolve_classpath(), str(JAVA_CLIENT), *arguments],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def write_python(service_url: str, prefix: str) -> None:
    """The topics that the official Python client writes."""
    client = pulsar.Client(service_url, logger=QUIET)
    for codec in CODECS:
        producer = client.create_producer(
            f"{prefix}python_batch_{codec.lower()}",
            "golden-python",
            compression_type=getattr(pulsar.CompressionType, codec),
            batching_enabled=True,
            batching_max_publish_delay_ms=1000,
        )
        for value in ("one ", "größer ", "three "):
            producer.send_async((value * 10).encode(), None)
        producer.flush()
    producer = client.create_producer(
        f"{prefix}python_single", "golden-python", batching_enabled=False
    )
    producer.send(b"single")
    producer.send(b"")
    producer = client.create_producer(
        f"{prefix}python_batch_of_one", "golden-python", batching_enabled=True
    )
    producer.send(b"batch of one")
    for batching in (False, True):
        producer = client.create_producer(
            f"{prefix}python_fields_{'batch' if batching else 'single'}",
            "golden-python",
            initial_sequence_id=41,
            batching_enabled=batching,
            batching_max_publish_delay_ms=1000,
        )
        for number, fields in enumerate(
            (
                {"partition_key": "schlüssel"},
                {"ordering_key": "order"},
                {"properties": {"a": "1", "ä": "", "": "x"}},
                {"event_timestamp": 1_700_000_000_123},
                {},
            )
        ):
            producer.send_async(b"message %d" % number, None, **fields)
        producer.flush()
    client.close()


def write_entry_metadata(service_url: str, prefix: str) -> None:
    """A topic on a broker that stamps a time and an index on each entry."""
    client = pulsar.Client(service_url, logger=QUIET)
    topic = f"{prefix}entry_metadata"
    single = client.create_producer(topic, "golden-1", batching_enabled=False)
    batched = client.create_producer(
        topic, "golden-2", batching_enabled=True, batching_max_publish_delay_ms=1000
    )
    single.send(b"single")
    for value in (b"one", b"two", b"three"):
        batched.send_async(value, None)
    batched.flush()
    single.send(b"another")
    client.close()


if __name__ == "__main__":
    main()
