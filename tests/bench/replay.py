# SPDX-License-Identifier: Apache-2.0
"""A broker that is only a transport: one topic partition, ready-made frames, no socket.

What is left is what a read costs on our side, from the bytes that were received to
RecordBatches, in both of its threads, and nothing of the kernel's or of a broker::

    read(frames, rows, ("value", "__key"))
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import pyarrow as pa

from pulsar_spark.client import connect
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.message_id import MessageId
from pulsar_spark.options import parse_read_options
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.source.plan.read_task import ReadTask
from pulsar_spark.source.read import task
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.frames import FrameReader, encode_frame

TOPIC = "persistent://public/default/replayed-partition-0"
URL = "pulsar://127.0.0.1:1"
LEDGER = 1

_Type = pb.BaseCommand.Type


class Replay:
    """A transport to a broker that has one topic partition, for one reader.

    Args:
        frames: MESSAGE frames, of consumer 1.
        rows: Messages in each of them, which is what permits count.
    """

    def __init__(self, frames: Sequence[bytes], rows: int) -> None:
        self.is_heard = True
        self._frames = frames
        self._rows = rows
        self._sent = 0
        self._permits = 0
        self._reader = FrameReader()
        self._waiting: list[memoryview] = []
        self._changed = threading.Condition()
        self._is_open = True
        self._answers: dict[int, Callable[[Any], dict[str, Any] | None]] = {
            _Type.CONNECT: self._connect,
            _Type.LOOKUP: self._lookup,
            _Type.SUBSCRIBE: self._success,
            _Type.GET_LAST_MESSAGE_ID: self._last_message_id,
            _Type.FLOW: self._flow,
            _Type.CLOSE_CONSUMER: self._success,
        }

    def send(self, data: bytes) -> None:
        """See `Transport`."""
        self._reader.receive_data(data)
        while (frame := self._reader.next_frame()) is not None:
            command = commands.decode_command(frame.command)
            name = pb.BaseCommand.DESCRIPTOR.fields_by_number[command.type].name
            answer = self._answers[command.type](getattr(command, name))
            if answer is not None:
                message = pb.BaseCommand(**answer).SerializeToString()
                self._give(encode_frame(message))

    def receive(self, buffer: memoryview, timeout_s: float) -> int:
        """See `Transport`."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or not self._is_open)
            if not self._waiting:
                return 0
            part = self._waiting[0]
            size = min(len(buffer), len(part))
            buffer[:size] = part[:size]
            self._waiting[0] = part[size:]
            if size == len(part):
                self._waiting.pop(0)
        return size

    def shutdown(self) -> None:
        """See `Transport`."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()

    def close(self) -> None:
        """See `Transport`."""

    def _give(self, data: bytes) -> None:
        with self._changed:
            self._waiting.append(memoryview(data))
            self._changed.notify_all()

    def _connect(self, body: pb.CommandConnect) -> dict[str, Any]:
        connected = pb.CommandConnected(
            server_version="replay", protocol_version=body.protocol_version
        )
        return {"type": _Type.CONNECTED, "connected": connected}

    def _lookup(self, body: pb.CommandLookupTopic) -> dict[str, Any]:
        answer = pb.CommandLookupTopicResponse(
            request_id=body.request_id,
            response=pb.CommandLookupTopicResponse.Connect,
            brokerServiceUrl=URL,
            authoritative=True,
        )
        return {"type": _Type.LOOKUP_RESPONSE, "lookupTopicResponse": answer}

    def _last_message_id(self, body: pb.CommandGetLastMessageId) -> dict[str, Any]:
        last = pb.MessageIdData(ledgerId=LEDGER, entryId=len(self._frames) - 1)
        before = pb.MessageIdData(ledgerId=LEDGER, entryId=commands.to_unsigned(-1))
        answer = pb.CommandGetLastMessageIdResponse(
            request_id=body.request_id,
            last_message_id=last,
            consumer_mark_delete_position=before,
        )
        return {
            "type": _Type.GET_LAST_MESSAGE_ID_RESPONSE,
            "getLastMessageIdResponse": answer,
        }

    def _flow(self, body: pb.CommandFlow) -> None:
        self._permits += body.messagePermits
        count = -(-self._permits // self._rows)  # the last one takes it below zero
        if count > 0:
            self._permits -= count * self._rows
            self._give(b"".join(self._frames[self._sent : self._sent + count]))
            self._sent += count

    def _success(self, body: Any) -> dict[str, Any]:
        success = pb.CommandSuccess(request_id=body.request_id)
        return {"type": _Type.SUCCESS, "success": success}


def read(
    frames: Sequence[bytes],
    rows: int,
    schema: pa.Schema,
    *,
    in_bulk: bool | None = None,
) -> None:
    """Reads all frames, as a task of Spark's does.

    Args:
        frames: See `Replay`; ``TOPIC``'s entries 0 and on of ``LEDGER``.
        rows: Likewise.
        schema: The columns.
        in_bulk: Whether to take entries in bulk; None: as tasks do.
    """
    options = parse_read_options({"service.url": URL, "topic": TOPIC})
    end = MessageId(LEDGER, len(frames) - 1)
    range_ = TopicRange(TOPIC, MessageId(LEDGER, 0), end)
    pool = ConnectionPool(options.client)
    settings = task.range_settings(options)
    if in_bulk is not None:
        reader = replace(settings.reader, in_bulk=in_bulk)
        settings = replace(settings, reader=reader)

    def open_transport(*_: object, **__: object) -> Replay:
        return Replay(frames, rows)

    with (
        mock.patch.object(connect, "open_transport", open_transport),
        mock.patch.object(task, "shared_pool", return_value=pool),
        mock.patch.object(task, "range_settings", return_value=settings),
    ):
        batches = task.read_task(ReadTask((range_,)), options, schema)
        found = sum(map(len, batches))
        pool.close()
    assert found == len(frames) * rows, f"{found} rows of {len(frames)} entries"
