# SPDX-License-Identifier: Apache-2.0
"""How each column of a read is made of messages: see ``columns.READ``."""

from __future__ import annotations

import base64
import binascii
from array import array
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.message_ids import MessageIdCollector
from pulsar_spark.arrow.positions import PositionCollector
from pulsar_spark.arrow.runs import Messages, Run, binary_array, buffer_of, joined
from pulsar_spark.arrow.schema import STRING_MAP, TIMESTAMP
from pulsar_spark.arrow.sources import (
    PULSAR_TIME,
    Collector,
    ColumnSource,
    of_entry,
    of_messages,
    of_origin,
    of_rows,
    of_text_of_entry,
)
from pulsar_spark.loops.fact import PUBLISH_TIME
from pulsar_spark.loops.messages import (
    HAS_EVENT_TIME,
    HAS_KEY,
    HAS_ORDERING_KEY,
    IS_NULL,
    KEY_IS_BASE64,
)
from pulsar_spark.wire.entries import Entry, EntryRun

_NO_TIME = pa.scalar(None, TIMESTAMP)
_NO_BYTES = pa.scalar(None, pa.binary())
_NO_TEXT = pa.array([], pa.string())
_ZERO = pa.scalar(0, pa.int32())


# -- what each message has of its own --------------------------------------------------


def _keys(messages: Messages) -> pa.BinaryArray:
    """Return keys as bytes; base64 keys are decoded."""
    keys = messages.binary("keys")
    if messages.any_has(KEY_IS_BASE64):
        is_base64 = messages.have(KEY_IS_BASE64).to_pylist()
        keys = pa.array(
            [
                base64.b64decode(key, validate=True) if is_encoded else key
                for key, is_encoded in zip(keys.to_pylist(), is_base64, strict=True)
            ],
            pa.binary(),
        )
    return messages.null_without(HAS_KEY, keys)


def decoded_keys(messages: Messages) -> tuple[pa.BinaryArray, list[int]]:
    """Return keys as bytes, and the rows with invalid base64, whose key is NULL."""
    try:
        return _keys(messages), []
    except binascii.Error:
        pass
    keys = messages.binary("keys").to_pylist()
    is_base64 = messages.have(KEY_IS_BASE64).to_pylist()
    bad = []
    for row, key in enumerate(keys):
        if is_base64[row]:
            try:
                keys[row] = base64.b64decode(key, validate=True)
            except binascii.Error:
                keys[row] = None
                bad.append(row)
    valid = messages.have(HAS_KEY)
    return pc.if_else(valid, pa.array(keys, pa.binary()), _NO_BYTES), bad


def _ordering_keys(messages: Messages) -> pa.BinaryArray:
    return messages.null_without(HAS_ORDERING_KEY, messages.binary("ordering_keys"))


def _event_times(messages: Messages) -> pa.TimestampArray:
    times = _times(messages.numbers("event_times", pa.uint64()))
    if messages.all_have(HAS_EVENT_TIME):
        return times
    return pc.if_else(messages.have(HAS_EVENT_TIME), times, _NO_TIME)


def _times(milliseconds: pa.UInt64Array) -> pa.TimestampArray:
    """Convert times from Pulsar's milliseconds to Spark's timestamps."""
    return milliseconds.cast(pa.int64()).cast(PULSAR_TIME).cast(TIMESTAMP)


def _sequence_ids(messages: Messages) -> pa.Int64Array:
    # Of an unsigned number the signed one of the same bits: what BIGINT can hold.
    return messages.numbers("sequence_ids", pa.int64())


def _properties(messages: Messages) -> pa.MapArray:
    """Return a map for each message, empty for a message without properties."""
    return joined([_properties_of(run) for run in messages.runs])


def _properties_of(run: Run) -> pa.MapArray:
    table = run.table
    rows = run.last - run.first
    if not table.pairs:
        offsets = pa.repeat(_ZERO, rows + 1)
        return pa.MapArray.from_arrays(offsets, _NO_TEXT, _NO_TEXT, STRING_MAP)
    first, last = table.pair_ends[run.first], table.pair_ends[run.last]
    keys, items = (
        # Cast, not declared to be: so that it is seen where it is not UTF-8.
        binary_array(pairs, first, last).cast(pa.string())
        for pairs in (table.pair_keys, table.pair_values)
    )
    ends = pa.Array.from_buffers(
        pa.int32(),
        rows + 1,
        [None, buffer_of(table.pair_ends, run.last + 1)],
        offset=run.first,
    )
    offsets = pc.subtract(ends, pa.scalar(first, pa.int32()))
    return pa.MapArray.from_arrays(offsets, keys, items, STRING_MAP)


def _indexes(entry: Entry) -> Sequence[int | None]:
    broker = entry.broker_metadata
    if broker is None or not broker.HasField("index"):
        return [None] * len(entry)
    # The broker numbers the last message of the entry.
    first = broker.index - max(entry.batch_size, 1) + 1
    return [first + index for index in entry.batch_indexes]


# -- one value for all messages of an entry --------------------------------------------


class _PublishTimeCollector(Collector):
    """Collects a publish time for each entry, faster than ``_EntryCollector``."""

    def clear(self) -> None:
        self._values = array("Q")

    def append(self, entry: Entry) -> None:
        self._values += array("Q", (entry.metadata.publish_time,)) * len(entry)

    def append_run(self, run: EntryRun) -> None:
        deliveries = run.deliveries
        times = deliveries.repeated(PUBLISH_TIME, run.first, run.last, run.first_row)
        self._values.frombytes(times)

    def array(self, rows: int, messages: Messages) -> pa.Array:
        del messages
        buffers = [None, pa.py_buffer(self._values)]
        return _times(pa.Array.from_buffers(pa.uint64(), rows, buffers))


def _schema_version(entry: Entry) -> int | None:
    # The default registry counts in 8 bytes; old data may carry 64, the first 8 count.
    version = entry.schema_version[:8]
    return int.from_bytes(version, "big", signed=True) if version else None


def _broker_publish_time(entry: Entry) -> int | None:
    broker = entry.broker_metadata
    if broker is None or not broker.HasField("broker_timestamp"):
        return None
    return broker.broker_timestamp


# -- all columns -----------------------------------------------------------------------

#: The source of each column but those of the value, which a ``ValueDecoder`` makes.
COLUMN_SOURCES: Mapping[str, ColumnSource] = {
    "__key": of_messages(_keys, "keys"),
    "__topic": of_origin(lambda origin: origin.topic),
    "__messageId": ColumnSource(
        lambda type_, origin: MessageIdCollector(type_, origin.partition)
    ),
    "__publishTime": ColumnSource(lambda type_, _: _PublishTimeCollector(type_)),
    "__eventTime": of_messages(_event_times),
    "__messageProperties": of_messages(_properties, "properties"),
    "__partition": of_origin(
        lambda origin: origin.partition if origin.partition >= 0 else None
    ),
    "__orderingKey": of_messages(_ordering_keys, "ordering_keys"),
    "__producerName": of_text_of_entry(lambda entry: entry.metadata.producer_name),
    "__sequenceId": of_messages(_sequence_ids),
    "__schemaVersion": of_entry(_schema_version),
    "__redeliveryCount": of_entry(lambda entry: entry.redelivery_count),
    "__brokerPublishTime": of_entry(_broker_publish_time),
    "__index": of_rows(_indexes),
    "__position": ColumnSource(lambda type_, _: PositionCollector(type_)),
    "__replicatedFrom": of_text_of_entry(
        lambda entry: entry.metadata.replicated_from or None
    ),
    "__deliverAtTime": of_entry(lambda entry: entry.metadata.deliver_at_time or None),
    "__tombstone": of_messages(lambda messages: messages.have(IS_NULL)),
}
