# SPDX-License-Identifier: Apache-2.0
"""The null drain: takes entries off a socket and drops them. The limit of any reader.

One process for each topic partition, connected and subscribed before the clock starts.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator, Sequence

from pulsar_spark.message_id import EARLIEST, MessageId
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from tests.bench.at_once import at_once, clocked
from tests.bench.publish import broker_of

_BUFFER_BYTES = 1 << 20

#: More than any test topic has: the socket alone shall hold the broker back.
_PERMITS = 1 << 30

#: No command of a broker is longer; what is behind it in its frame is skipped unread.
_HEAD_BYTES = 512


def drain(service_url: str, ranges: Sequence[TopicRange]) -> float:
    """Drains all ranges at once, each to its end; seconds from the first FLOW on."""
    brokers = broker_of(service_url, [range_.topic_partition for range_ in ranges])
    return at_once(
        __name__,
        [
            (
                brokers[range_.topic_partition],
                range_.topic_partition,
                f"{range_.end.ledger_id}:{range_.end.entry_id}",
            )
            for range_ in ranges
        ],
    )


def _main(broker: str, topic: str, end: str) -> None:
    host, _, port = broker.rpartition(":")
    last = MessageId.parse_text(end).position
    with socket.create_connection((host, int(port)), 60) as sock:
        sock.sendall(commands.connect("bench"))
        received = _commands(sock)
        assert next(received).type == pb.BaseCommand.CONNECTED
        how = commands.SubscribeRequest("bench-drain", start=EARLIEST)
        sock.sendall(commands.subscribe(topic, 1, how).encode(1))
        assert next(received).type == pb.BaseCommand.SUCCESS
        with clocked():
            sock.sendall(commands.flow(1, _PERMITS))
            for command in received:
                if command.type == pb.BaseCommand.MESSAGE:
                    data = command.message.message_id
                    if (data.ledgerId, data.entryId) >= last:
                        break
                elif command.type == pb.BaseCommand.PING:
                    sock.sendall(commands.pong())


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
