"""The null drain: takes entries off a socket and drops them. The limit of any reader.

One process for each topic partition, so that they share nothing but the broker. Each is
connected and subscribed before the clock starts; then all are let go at once.
"""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pulsar_spark.message_id import EARLIEST, MessageId
from pulsar_spark.plan import TopicRange
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from tests.bench.publish import broker_of

_BUFFER_BYTES = 1 << 20

#: More than any test topic has: the socket alone shall hold the broker back.
_PERMITS = 1 << 30

#: No command of a broker is longer; what is behind it in its frame is skipped unread.
_HEAD_BYTES = 512


def drain(service_url: str, ranges: Sequence[TopicRange]) -> float:
    """Drains all ranges at once, each to its end; seconds from the first FLOW on."""
    brokers = broker_of(service_url, [range_.topic_partition for range_ in ranges])
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.bench.drain",
                brokers[range_.topic_partition],
                range_.topic_partition,
                f"{range_.end.ledger_id}:{range_.end.entry_id}",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for range_ in ranges
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()  # it is ready
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        results = []
        for process in processes:
            assert process.stdout is not None
            results.append(json.loads(process.stdout.readline()))
    finally:
        for process in processes:
            process.communicate()
    # The clock is the system's, so that those of two processes can be compared.
    return float(
        max(result["ended"] for result in results)
        - min(result["began"] for result in results)
    )


def _main(broker: str, topic: str, end: str) -> None:
    host, _, port = broker.rpartition(":")
    last = MessageId.parse_text(end).position
    with socket.create_connection((host, int(port)), 60) as sock:
        sock.sendall(commands.connect("bench"))
        received = _commands(sock)
        assert next(received).type == pb.BaseCommand.CONNECTED
        sock.sendall(
            commands.subscribe(
                topic=topic,
                subscription="bench-drain",
                consumer_id=1,
                request_id=1,
                durable=False,
                start=EARLIEST,
            )
        )
        assert next(received).type == pb.BaseCommand.SUCCESS
        print("ready", flush=True)
        sys.stdin.readline()
        began = time.monotonic()
        sock.sendall(commands.flow(1, _PERMITS))
        entries = 0
        for command in received:
            if command.type == pb.BaseCommand.MESSAGE:
                entries += 1
                data = command.message.message_id
                if (data.ledgerId, data.entryId) >= last:
                    break
            elif command.type == pb.BaseCommand.PING:
                sock.sendall(commands.pong())
        ended = time.monotonic()
    print(json.dumps({"began": began, "ended": ended, "entries": entries}), flush=True)


def _commands(sock: socket.socket) -> Iterator[pb.BaseCommand]:
    """The command of each frame; its payload is not even looked at."""
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    head = b""  # the beginning of a frame that is not here yet
    skip = 0  # bytes of the last frame that are still to come
    while True:
        filled = sock.recv_into(buffer)
        if not filled:
            raise ConnectionError("the broker closed the connection")
        position = 0
        while position < filled:
            if skip:
                step = min(skip, filled - position)
                position, skip = position + step, skip - step
                continue
            new = bytes(buffer[position : min(filled, position + _HEAD_BYTES)])
            known = head + new
            size = 8 + struct.unpack_from(">4xI", known)[0] if len(known) >= 8 else 8
            if len(known) < size or len(known) < 8:
                head, position = known, position + len(new)
                continue
            total = 4 + struct.unpack_from(">I", known)[0]
            position += size - len(head)
            head, skip = b"", total - size
            yield pb.BaseCommand.FromString(known[8:size])


if __name__ == "__main__":
    _main(*sys.argv[1:])
