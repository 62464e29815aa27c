# SPDX-License-Identifier: Apache-2.0
"""The null drain of TubeMQ: gets and commits, whose messages are not even looked at.

One process and one connection for each partition, as our tasks have them, registered
before the clock starts. The next gets are under way while one is taken off the socket,
as many as a reader has.
"""

from __future__ import annotations

import socket
import struct
import sys
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from tests.bench.at_once import at_once, clocked
from tubemq_spark.source.ranges import PartitionRange
from tubemq_spark.wire import messages
from tubemq_spark.wire import tubemq_pb2 as pb
from tubemq_spark.wire.frames import encode_frame
from tubemq_spark.wire.messages import ReplyT, Request
from tubemq_spark.wire.rpc import Failure, decode_reply, encode_request

_BUFFER_BYTES = 1 << 20
_TIMEOUT_MS = 60_000

_GETS = 8


def drain(ranges: Sequence[PartitionRange]) -> float:
    """Drain all ranges at once, each to its end; seconds from the first get on."""
    return at_once(
        __name__,
        [
            (
                one.broker,
                one.partition.topic,
                str(one.partition.partition_id),
                str(one.start),
                str(one.end),
            )
            for one in ranges
        ],
    )


def _main(broker: str, topic: str, partition_id: str, start: str, end: str) -> None:
    host, _, port = broker.rpartition(":")
    who = ("bench-drain-" + uuid.uuid4().hex, "bench-drain", topic, int(partition_id))
    pair = _frame(1, messages.get(*who)) + _frame(2, messages.commit(*who))
    with socket.create_connection((host, int(port)), 60) as sock:
        replies = _replies(sock)
        sock.sendall(_frame(2, messages.register(*who, int(start))))
        registered = _parse(next(replies), pb.RegisterResponseB2C())
        assert registered.currOffset == int(start), registered
        with clocked():
            sock.sendall(pair * _GETS)
            while _position(next(replies)) < int(end):
                sock.sendall(pair)
        for _ in range(_GETS - 1):  # what is under way still
            next(replies)
        sock.sendall(_frame(2, messages.unregister(*who)))
        next(replies)


def _position(reply: bytes) -> int:
    """Where a get ended, which its commit tells."""
    return int(_parse(reply, pb.CommitOffsetResponseB2C()).currOffset)


def _frame(serial: int, request: Request[Any]) -> bytes:
    payload = encode_request(request.method, request.service, _TIMEOUT_MS, request.body)
    return encode_frame(serial, payload)


def _parse(payload: bytes, body: ReplyT) -> Any:
    outcome = decode_reply(payload)
    assert not isinstance(outcome, Failure), outcome
    body.ParseFromString(outcome.data)
    reply: Any = body
    assert reply.errCode == messages.SUCCESS, reply
    return reply


def _replies(sock: socket.socket) -> Iterator[bytes]:
    """What frames of the serial number 2 hold; all others are passed over."""
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    head = b""  # of a frame or a chunk, which is not here as a whole yet
    kept = bytearray()
    chunks = skip = 0  # that are still to come
    wanted = False
    while filled := sock.recv_into(buffer):
        at = 0
        while at < filled:
            if skip:
                step = min(skip, filled - at)
                if wanted:
                    kept += buffer[at : at + step]
                at, skip = at + step, skip - step
            else:
                size = 4 if chunks else 12
                step = min(size - len(head), filled - at)
                head += buffer[at : at + step]
                at += step
                if len(head) < size:
                    continue
                if chunks:
                    (skip,) = struct.unpack(">i", head)
                    chunks -= 1
                else:
                    _, serial, chunks = struct.unpack(">IiI", head)
                    wanted = serial == 2
                head = b""
            if wanted and not skip and not chunks and kept:
                yield bytes(kept)
                kept.clear()
                wanted = False
    raise ConnectionError("the broker closed the connection")


if __name__ == "__main__":
    _main(*sys.argv[1:])
