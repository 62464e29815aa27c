# SPDX-License-Identifier: Apache-2.0
"""A fast writer of test topics: ready-made batches on a socket, about 1 M rows/s."""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Iterable, Sequence

from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import BrokerAddress, ConnectionPool
from pulsar_spark.options import ClientOptions
from pulsar_spark.options.service_url import parse_service_url
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.frames import encode_frame
from tests.bench.at_once import at_once, clocked
from tests.bench.samples import Batch, make_batches

#: Entries sent and not confirmed yet.
_WINDOW = 64

#: Of every producer here: each has a connection of its own.
PRODUCER_ID = 1


def client_options(service_url: str) -> ClientOptions:
    """Options with nothing but the address."""
    return ClientOptions(parse_service_url(service_url, "service.url"))


def broker_of(service_url: str, topic_partitions: Iterable[str]) -> dict[str, str]:
    """``host:port`` of the broker that serves each topic partition."""
    pool = ConnectionPool(client_options(service_url))
    try:
        addresses = TopicLookup(pool).brokers(topic_partitions)
    finally:
        pool.close()
    found = {}
    for topic, address in addresses.items():
        if not isinstance(address, BrokerAddress):
            raise address
        found[topic] = address.physical
    return found


def publish(
    service_url: str, topic_partitions: Sequence[str], batches: list[Batch], rows: int
) -> int:
    """Publishes batches in turn until each topic partition has at least ``rows`` rows.

    Returns:
        How many rows it has.
    """
    for topic, broker in broker_of(service_url, topic_partitions).items():
        with Producer(broker, topic) as producer:
            _publish(producer, batches, rows)
    return -(-rows // batches[0].rows) * batches[0].rows


def publish_at_once(
    service_url: str, topic_partitions: Sequence[str], size_bytes: int, rows: int
) -> float:
    """Seconds until so many rows are stored in each topic partition, all at once.

    One process for each, with batches as ``samples.make_batches`` makes them. The limit
    of any writer.
    """
    brokers = broker_of(service_url, topic_partitions)
    return at_once(
        __name__,
        [(brokers[t], t, str(size_bytes), str(rows)) for t in topic_partitions],
    )


def _publish(producer: Producer, batches: list[Batch], rows: int) -> None:
    for number in range(-(-rows // batches[0].rows)):
        producer.send(batches[number % len(batches)])
    producer.flush()


def _main(broker: str, topic: str, size_bytes: str, rows: str) -> None:
    batches = make_batches(8, int(size_bytes))
    with Producer(broker, topic) as producer, clocked():
        _publish(producer, batches, int(rows))


class Producer:
    """A producer with a connection of its own."""

    def __init__(self, broker: str, topic: str) -> None:
        host, _, port = broker.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 30)
        self._file = self._socket.makefile("rb")
        self._socket.sendall(commands.connect("bench"))
        self._receive(pb.BaseCommand.CONNECTED)
        self._send(
            pb.BaseCommand(
                type=pb.BaseCommand.PRODUCER,
                producer=pb.CommandProducer(
                    topic=topic, producer_id=PRODUCER_ID, request_id=1
                ),
            )
        )
        self._receive(pb.BaseCommand.PRODUCER_SUCCESS)
        self._sequence_id = 0
        self._under_way = 0

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def send(self, batch: Batch) -> None:
        """Sends a batch; waits only where too many are under way."""
        now_ms = int(time.time() * 1000)
        self.put(batch.send(PRODUCER_ID, self._sequence_id, now_ms))
        self._sequence_id += batch.rows

    def put(self, frame: bytes) -> None:
        """As ``send``, with a frame that is ready: of a producer of this id."""
        if self._under_way == _WINDOW:
            self._confirmed()
        self._socket.sendall(frame)
        self._under_way += 1

    def flush(self) -> None:
        """Waits until everything is stored."""
        while self._under_way:
            self._confirmed()

    def _confirmed(self) -> None:
        self._receive(pb.BaseCommand.SEND_RECEIPT)
        self._under_way -= 1

    def _send(self, command: pb.BaseCommand) -> None:
        self._socket.sendall(encode_frame(command.SerializeToString()))

    def _receive(self, wanted: int) -> None:
        """The next command, which must be of this type; probes are answered."""
        while True:
            (size,) = struct.unpack(">I", self._file.read(4))
            body = self._file.read(size)
            (command_size,) = struct.unpack_from(">I", body)
            command = pb.BaseCommand.FromString(body[4 : 4 + command_size])
            if command.type == pb.BaseCommand.PING:
                self._socket.sendall(commands.pong())
            elif command.type == wanted:
                return
            else:
                raise RuntimeError(f"the broker answered: {command}")


if __name__ == "__main__":
    _main(*sys.argv[1:])
