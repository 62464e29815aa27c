# SPDX-License-Identifier: Apache-2.0
"""Ranges of a topic partition of the scripted broker, and what is read of them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from pulsar_spark.message_id import MessageId
from tests.support.scripted_broker import LEDGER

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_spark.source.read.range_reader import RangeReader

TOPIC = "persistent://public/default/t"


def place(entry_id: int, batch_index: int = -1) -> MessageId:
    """A message of the one ledger there is."""
    return MessageId(LEDGER, entry_id, batch_index=batch_index)


def numbers(reader: RangeReader) -> list[int]:
    """The numbers in the messages of a range."""
    return [
        struct.unpack_from(">Q", payload)[0]
        for entry in reader.entries()
        for payload in entry.payloads
        if payload is not None
    ]


def numbers_meanwhile(
    reader: RangeReader, behind: int, then: Callable[[], object]
) -> list[int]:
    """The same, where something happens behind so many of these."""
    found: list[int] = []
    for entry in reader.entries():
        found += [struct.unpack_from(">Q", p or b"")[0] for p in entry.payloads]
        if len(found) == behind:
            then()
    return found
