# SPDX-License-Identifier: Apache-2.0
"""Replies to gets, which carry most bytes, read without copies."""

from __future__ import annotations

from typing import NamedTuple

from tubemq_spark.loops.messages import MessageTable, OddReplyError
from tubemq_spark.wire import tubemq_pb2 as pb
from tubemq_spark.wire.rpc import parse


class Got(NamedTuple):
    """The reply to a get.

    Attributes:
        head: The text, without its messages.
        messages: These.
    """

    head: pb.GetMessageResponseB2C
    messages: MessageTable


def read_got(data: memoryview) -> Got:
    """Read the reply to a get, whose bytes must not change any more.

    Raises:
        ProtocolError: As `parse`.
    """
    try:
        messages = MessageTable(data)
    except OddReplyError:
        messages = MessageTable(_as_servers_write(data))
    return Got(parse(pb.GetMessageResponseB2C(), messages.head), messages)


def _as_servers_write(data: memoryview) -> memoryview:
    whole = parse(pb.GetMessageResponseB2C(), data)
    whole.DiscardUnknownFields()
    return memoryview(whole.SerializeToString())
