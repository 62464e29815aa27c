# SPDX-License-Identifier: Apache-2.0
"""The official Python client as the judge of ours: writes topics, and reads them back.

Both readers give :class:`Row`, so that a test is one comparison of two lists.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pulsar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)

#: Seconds that it waits for an answer. Bounds a failure; says nothing about how long a
#: busy broker should take.
PATIENCE_S = 120

CODECS = {
    "NONE": pulsar.CompressionType.NONE,
    "LZ4": pulsar.CompressionType.LZ4,
    "ZLIB": pulsar.CompressionType.ZLib,
    "ZSTD": pulsar.CompressionType.ZSTD,
    "SNAPPY": pulsar.CompressionType.SNAPPY,
}

#: Longest wait for one message that is known to be there, in milliseconds.
_TIMEOUT_MS = 20_000
_SILENCE_MS = 5_000


@dataclass(frozen=True)
class Message:
    """What a producer is asked to send.

    Attributes:
        value: Payload, None for a null value.
        key: Partition key.
        ordering_key: Ordering key.
        properties: Key-value pairs.
        event_time_ms: Milliseconds since 1970.
    """

    value: bytes | None
    key: str | None = None
    ordering_key: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    event_time_ms: int | None = None


@dataclass(frozen=True)
class Row:
    """What a reader gives for one message. The official client has "" for None.

    Attributes:
        message_id: ``(ledger_id, entry_id, partition, batch_index)``.
        value: Payload, None for a null value.
        key: Partition key as bytes.
        ordering_key: Ordering key as bytes.
        properties: Key-value pairs.
        event_time_ms: Milliseconds since 1970.
        publish_time_ms: Milliseconds since 1970.
        topic: Full name of the topic partition.
    """

    message_id: tuple[int, int, int, int]
    value: bytes | None
    key: bytes | None
    ordering_key: bytes | None
    properties: dict[str, str]
    event_time_ms: int | None
    publish_time_ms: int
    topic: str

    @property
    def message(self) -> Message:
        """What must have been sent."""
        return Message(
            self.value,
            None if self.key is None else self.key.decode(),
            None if self.ordering_key is None else self.ordering_key.decode(),
            self.properties,
            self.event_time_ms,
        )

    @property
    def position(self) -> str:
        """Its place as offsets in JSON name it."""
        ledger_id, entry_id, _, batch_index = self.message_id
        tail = "" if batch_index < 0 else f":{batch_index}"
        return f"{ledger_id}:{entry_id}{tail}"


@contextlib.contextmanager
def client(service_url: str, **settings: Any) -> Iterator[pulsar.Client]:
    """The official client, with further ``settings``, closed at the end."""
    defaults = {"operation_timeout_seconds": PATIENCE_S, "logger": QUIET}
    one = pulsar.Client(service_url, **{**defaults, **settings})
    try:
        yield one
    finally:
        one.close()


def produce(
    service_url: str,
    topic: str,
    messages: Sequence[Message | bytes],
    *,
    batch: int = 0,
    **producer: Any,
) -> list[pulsar.MessageId]:
    """Write messages in order and wait until all are stored.

    Args:
        service_url: Of the broker.
        topic: Full name.
        messages: What to send; bytes stand for a message that is only a payload.
        batch: Messages of one batch, 0 for none. Only a partition's last batch may be
            smaller.
        **producer: Further arguments of the official ``create_producer``.

    Returns:
        The id of each message.
    """
    if batch:
        producer |= {
            "batching_enabled": True,
            "batching_max_messages": max(batch, 2),
            # Only the count closes a batch, or a flush.
            "batching_max_publish_delay_ms": 60_000,
            "batching_max_allowed_size_in_bytes": 4 << 20,
        }
    ids: dict[int, pulsar.MessageId] = {}
    failures: list[object] = []
    with client(service_url) as one:
        sender = one.create_producer(topic, block_if_queue_full=True, **producer)
        for number, message in enumerate(messages):

            def stored(
                result: pulsar.Result, message_id: pulsar.MessageId, at: int = number
            ) -> None:
                ids[at] = message_id
                if result != pulsar.Result.Ok:
                    failures.append(result)

            _send_async(sender, message, stored)
            if batch == 1:  # less than the client lets one ask for
                sender.flush()
        sender.flush()
        sender.close()
    assert not failures, failures[0]
    return [ids[number] for number in range(len(messages))]


def _send_async(sender: pulsar.Producer, message: Message | bytes, done: Any) -> None:
    if isinstance(message, bytes):
        message = Message(message)
    sender.send_async(
        message.value,
        done,
        properties=message.properties,
        partition_key=message.key,
        ordering_key=message.ordering_key,
        event_timestamp=message.event_time_ms,
    )


def read_back(
    service_url: str,
    topic: str,
    *,
    partitions: int = 0,
    compacted: bool = False,
    ends_in_silence: bool = False,
    **reading: Any,
) -> list[Row]:
    """Everything in a topic, each partition in its order, partition after partition.

    Args:
        service_url: Of the broker.
        topic: Full name.
        partitions: Number of partitions, 0 for a topic without.
        compacted: Read the compacted topic.
        ends_in_silence: Take five seconds without a row for the end of a partition, as
            for brokers before 3.0, who count the end of a transaction as a row to come.
        **reading: Further arguments of the official ``create_reader``.
    """
    names = [f"{topic}-partition-{i}" for i in range(partitions)] or [topic]
    rows = []
    with client(service_url) as one:
        for name in names:
            reader = one.create_reader(
                name,
                pulsar.MessageId.earliest,
                is_read_compacted=compacted,
                **reading,
            )
            while _has_more(reader):
                try:
                    wait_ms = _SILENCE_MS if ends_in_silence else _TIMEOUT_MS
                    rows.append(_row(name, reader.read_next(wait_ms)))
                except pulsar.Timeout:
                    if not ends_in_silence:
                        raise
                    break
            reader.close()
    return rows


def _has_more(reader: pulsar.Reader) -> bool:
    """Whether the topic has more messages, asked up to three times.

    Very rarely this client waits for an answer in vain, until its time for an operation
    is over, or is told that the broker could not read the topic's last entry just now.
    Neither says anything about what the topic holds, and both leave the reader where it
    was.
    """
    for _ in range(2):
        try:
            return bool(reader.has_message_available())
        except (pulsar.Timeout, pulsar.BrokerMetadataError):
            time.sleep(0.5)
    return bool(reader.has_message_available())


def id_of(message_id: pulsar.MessageId) -> tuple[int, int, int, int]:
    """``(ledger_id, entry_id, partition, batch_index)`` of an official id."""
    return (
        message_id.ledger_id(),
        message_id.entry_id(),
        message_id.partition(),
        message_id.batch_index(),
    )


def _row(topic: str, message: pulsar.Message) -> Row:
    return Row(
        message_id=id_of(message.message_id()),
        value=None if message.has_null_value() else message.data(),
        key=message.partition_key().encode() or None,
        ordering_key=message.ordering_key().encode() or None,
        properties=dict(message.properties()),
        event_time_ms=message.event_timestamp() or None,
        publish_time_ms=message.publish_timestamp(),
        topic=topic,
    )
