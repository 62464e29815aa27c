"""The column ``__messageId``: what the Java client's ``MessageId.toByteArray()`` gives.

::

    ledger entry [partition] | batch_index   | batch_size
    head, one an entry       | one an index  | tail, one an entry

The ids of a whole batch are one join; their offsets are those of every other batch with
heads and tails as long as these.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from itertools import accumulate
from typing import Any

import pyarrow as pa

from pulsar_spark.message_id import MessageId, encode_message_id, encode_varint
from pulsar_spark.wire.entries import Entry

#: Of larger batches nothing is kept. Clients make batches of up to 1000 messages,
#: unless they are told otherwise.
_INDEXES_KEPT = 10_000


def is_whole_batch(entry: Entry) -> bool:
    """Whether ``batch_ids`` can be had of it: nothing is cut or removed."""
    return 0 < len(entry) == entry.batch_size <= _INDEXES_KEPT


def batch_ids(partition: int, entry: Entry) -> pa.BinaryArray:
    """The ids of a whole batch.

    Args:
        partition: Of the topic, -1 where it is not partitioned.
        entry: See ``is_whole_batch``.
    """
    size = entry.batch_size
    head, tail = _head(partition, entry), _encoded_part(batch_size=size)
    data = head + (tail + head).join(_indexes()[:size]) + tail
    buffers = [None, _offsets(len(head) + len(tail)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), size, buffers)


def message_ids(partition: int, entry: Entry) -> list[bytes]:
    """The ids of the messages of any entry, each by itself."""
    if entry.first_chunk:
        first = MessageId(*entry.first_chunk, partition=partition)
        last = MessageId(*entry.position, partition=partition, first_chunk=first)
        return [encode_message_id(last, java=True)] * len(entry)
    head = _head(partition, entry)
    tail = _encoded_part(batch_size=entry.batch_size)
    if not entry.batch_size:
        return [head + tail] * len(entry)
    return [
        head + b"\x20" + encode_varint(index) + tail for index in entry.batch_indexes
    ]


def _head(partition: int, entry: Entry) -> bytes:
    return (
        _encoded_ledger(entry.ledger_id)
        + b"\x10"
        + encode_varint(entry.entry_id)
        + _encoded_part(partition=partition)
    )


@lru_cache(maxsize=16)
def _encoded_ledger(ledger_id: int) -> bytes:
    return b"\x08" + encode_varint(ledger_id)


@lru_cache(maxsize=4096)
def _encoded_part(**field: Any) -> bytes:
    """One field of a message id alone, to be appended to those before it."""
    with_field = encode_message_id(MessageId(0, 0, **field), java="batch_size" in field)
    return with_field[len(encode_message_id(MessageId(0, 0))) :]


@lru_cache(maxsize=1)
def _indexes() -> list[bytes]:
    """The field ``batch_index``, encoded, of each index that is kept."""
    return [b"\x20" + encode_varint(index) for index in range(_INDEXES_KEPT)]


@lru_cache(maxsize=16)
def _offsets(other_bytes: int) -> pa.Buffer:
    """Where the ids of a batch begin and end that have ``other_bytes`` besides."""
    sizes = (other_bytes + len(index) for index in _indexes())
    return pa.py_buffer(array("i", accumulate(sizes, initial=0)))
