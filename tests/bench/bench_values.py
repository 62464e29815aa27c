# SPDX-License-Identifier: Apache-2.0
"""Values with a schema <-> columns; reads beside the way from entries to a `value`."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.decode import RecordBatchBuilder
from pulsar_spark.arrow.message_columns import COLUMN_SOURCES
from pulsar_spark.arrow.schema import arrow_schema
from pulsar_spark.arrow.values import ValueEncoder, ValueSettings, avro_plan, grown
from pulsar_spark.arrow.values.avro import columns_of, decoder
from pulsar_spark.arrow.values.encoders import encoder_for
from pulsar_spark.schemas.info import SchemaInfo, SchemaType
from pulsar_spark.wire.entries import EntryDecoder, read_stored_entry
from pulsar_spark.wire.frames import FrameReader
from tests.bench import records
from tests.bench.report import MICROSECONDS, RATIO, Case, cpu, in_turns
from tests.bench.samples import FIRST_EVENT_MS, Batch
from tests.support import entries, kernels
from tests.support.settings import range_settings

#: Rows of a batch of a client, batches of a RecordBatch, and those of each repeat.
ROWS = 1000
_TOGETHER = 10
_TIMES = 4

#: Microseconds of the processor that a message may take, by the form of the kernel.
_TARGETS = MappingProxyType({"AVRO, 5 fields": 0.2, "AVRO, 5 fields, as Python": 3.3})

#: The same for a row that is written.
_WRITE_TARGETS = MappingProxyType({"AVRO, 5 fields": 0.33})


def run(repeats: int, times: int = _TIMES) -> list[Case]:
    """A record of five fields: all of them, two, as a later version, as Python."""
    values = pa.array(records.values(ROWS), pa.binary())
    info = records.SCHEMAS["AVRO"]
    tree = records.TREE
    later = {**tree, "fields": [{**one} for one in reversed(tree["fields"])]}
    later["fields"][-1]["type"] = "double"
    later["fields"].append({"name": "more", "type": "string", "default": "x"})
    reader = SchemaInfo(SchemaType.AVRO, json.dumps(later).encode())
    columns = columns_of(info)
    two = pa.schema([columns.field("note"), columns.field("id")])
    works = {
        "AVRO, 5 fields": partial(_decode, values, info, info, columns, times),
        "AVRO, 2 of 5 fields": partial(_decode, values, info, info, two, times),
        "AVRO, as a later version": partial(
            _decode, values, info, reader, columns_of(reader), times
        ),
        "AVRO, 5 fields, as Python": partial(
            _as_python, partial(_decode, values, info, info, columns, times)
        ),
    }
    seconds = in_turns(
        {
            "value": cpu(partial(_as_bytes, _entry(values), times)),
            **{name: cpu(work) for name, work in works.items()},
        },
        max(repeats, 5),
    )
    return [
        Case(
            "values",
            name,
            ROWS * _TOGETHER * times,
            sum(map(len, values.to_pylist())) * _TOGETHER * times,
            seconds[name],
            "entries to `value`",
            seconds["value"],
            _TARGETS.get(name),
            figure=MICROSECONDS if name in _TARGETS else RATIO,
        )
        for name in works
    ]


def run_writes(repeats: int, times: int = _TIMES) -> list[Case]:
    """Columns -> values, beside a join of the same values by Arrow."""
    rows = pa.RecordBatch.from_pylist(records.rows(ROWS * _TOGETHER), records.ARROW)
    given = {
        "AVRO, 5 fields": (records.SCHEMAS["AVRO"], rows),
        "JSON, 5 fields": (records.SCHEMAS["JSON"], rows),
        "INT64": (SchemaInfo(SchemaType.INT64), rows.select(["id"])),
        "INSTANT": (SchemaInfo(SchemaType.INSTANT), _moments(rows)),
    }
    cases = []
    for name, (info, columns) in given.items():
        encoder = encoder_for(info, columns.schema)
        values = encoder.encode(columns.columns).values
        seconds = in_turns(
            {
                "join": cpu(partial(_join, values, times)),
                name: cpu(partial(_encode, encoder, columns, times)),
            },
            max(repeats, 5),
        )
        target = _WRITE_TARGETS.get(name)
        cases.append(
            Case(
                "encode",
                f"values, {name}",
                len(values) * times,
                pc.sum(pc.binary_length(values)).as_py() * times,
                seconds[name],
                "join of the values",
                seconds["join"],
                target,
                figure=RATIO if target is None else MICROSECONDS,
            )
        )
    return cases


def _moments(rows: pa.RecordBatch) -> pa.RecordBatch:
    moments = rows["id"].cast(pa.timestamp("us", tz="UTC"))
    return pa.RecordBatch.from_arrays([moments], ["value"])


def _encode(encoder: ValueEncoder, rows: pa.RecordBatch, times: int) -> None:
    for _ in range(times):
        encoder.encode(rows.columns)


def _join(values: pa.LargeBinaryArray, times: int) -> None:
    """The least that puts values into one buffer of their own, with Arrow."""
    empty = pa.scalar(b"", values.type)
    for _ in range(times):
        pc.binary_join_element_wise(values, empty, empty)


def _decode(
    values: pa.BinaryArray,
    writer: SchemaInfo,
    reader: SchemaInfo,
    wanted: pa.Schema,
    times: int,
) -> None:
    planned = decoder(writer, reader, wanted, ValueSettings())
    together = pa.concat_arrays([values] * _TOGETHER)
    for _ in range(times):
        found = planned.decode(together, None)
        assert not found.bad, found.reason


def _as_python(work: Callable[[], None]) -> None:
    kernel = kernels.load("python", "avro")
    with (
        mock.patch.object(avro_plan, "avro", kernel),
        mock.patch.object(grown, "avro", kernel),
    ):
        work()


def _entry(values: pa.BinaryArray) -> Any:
    """Return an entry that holds values."""
    members = [entries.member(value) for value in values.to_pylist()]
    metadata, payload = entries.batch(
        members, producer_name="bench", sequence_id=0, publish_time=FIRST_EVENT_MS
    )
    batch = Batch(metadata, payload, len(values), values.nbytes, 0)
    reader = FrameReader()
    reader.receive_data(batch.frame())
    frame = reader.next_frame()
    assert frame is not None
    return frame.payload


def _as_bytes(entry: Any, times: int) -> None:
    """Make a column of entries' values: what is done whatever their schema is."""
    usual = range_settings()
    builder = RecordBatchBuilder(
        arrow_schema(("value",)),
        COLUMN_SOURCES,
        "persistent://public/default/bench-partition-0",
        0,
        max_rows=usual.table_rows,
        max_bytes=usual.table_bytes,
    )
    unpack = EntryDecoder(
        table=builder.new_table(),
        table_rows=usual.table_rows,
        table_bytes=usual.table_bytes,
    )
    for number in range(_TOGETHER * times):
        stored = read_stored_entry(1, number, entry)
        for piece in unpack.pieces(stored):
            for _ in builder.add(piece):
                pass
    builder.finish()
