# SPDX-License-Identifier: Apache-2.0
"""Entries that tests of producers send, and what the scripted broker has of them."""

from __future__ import annotations

from pulsar_spark.client.producing.producers import (
    Producers,
    TopicProducer,
)
from pulsar_spark.loops.sends import SendFrame
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.outgoing import EntryEncoder
from tests.support.scripted_broker import (
    ScriptedBroker,
)

TOPIC = "persistent://public/default/t-partition-0"
OTHER = "persistent://public/default/t-partition-1"

#: How often producers look at the clock here.
TICK_S = 0.02

#: Longer than a test may take.
NEVER_S = 600.0


def frames(producer: TopicProducer, *values: bytes, first: int = 0) -> list[SendFrame]:
    """Entries of one message each, numbered from ``first``."""
    encoder = EntryEncoder(
        producer.producer_id,
        producer.registration.name,
        producer.registration.max_message_size_bytes,
    )
    return [
        frame
        for number, value in enumerate(values, first)
        for frame in encoder.single(pb.MessageMetadata(), value, number, 1)
    ]


def send(producers: Producers, *values: bytes, first: int = 0) -> None:
    """Sends some entries to the topic, and does not wait for them."""
    producer = producers.get(TOPIC)
    for frame in frames(producer, *values, first=first):
        producers.send(producer, frame)


def store(producers: Producers, *values: bytes, first: int = 0) -> None:
    """Sends some entries to the topic, and waits until they are stored."""
    send(producers, *values, first=first)
    producers.flush()


def values(broker: ScriptedBroker, topic: str = TOPIC) -> list[bytes]:
    """What is stored."""
    return [entry.payload for entry in broker.topics[topic]]
