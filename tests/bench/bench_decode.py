# SPDX-License-Identifier: Apache-2.0
"""One entry -> RecordBatch, all that is ours of the processor's time of a row."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from pulsar_spark.arrow.decode import RecordBatchBuilder
from pulsar_spark.arrow.message_columns import COLUMN_SOURCES
from pulsar_spark.arrow.schema import arrow_schema
from pulsar_spark.options import METADATA_COLUMNS_DEFAULT
from pulsar_spark.wire.entries import EntryDecoder, read_stored_entry
from pulsar_spark.wire.frames import FrameReader
from tests.bench.bench_entries import parse_only
from tests.bench.report import MICROSECONDS, RATIO, Case, cpu, in_turns
from tests.bench.samples import Batch, make_batches
from tests.support.settings import range_settings

COLUMNS = {
    "value only": ("value",),
    "six columns": ("value", *METADATA_COLUMNS_DEFAULT),
}

#: Microseconds of the processor that a message of the varied ones may take.
_TARGETS = {"value only": 0.2, "six columns": 0.35}

_TOPIC = "persistent://public/default/bench-partition-0"
_ENTRIES = 120


def run(repeats: int, entries: int = _ENTRIES) -> list[Case]:
    """Six columns and value only, of varied messages, and of 100 bytes and 1 KiB."""
    varied = make_batches(8, 100, is_varied=True)
    return [
        *_cases(varied, "60-140 B, some properties", repeats, entries, _TARGETS),
        *_cases(make_batches(8, 100), "100 B", repeats, entries),
        *_cases(make_batches(8, 1024), "1 KiB", repeats, entries),
    ]


def _cases(
    batches: list[Batch],
    size: str,
    repeats: int,
    count: int,
    targets: Mapping[str, float] = MappingProxyType({}),
) -> list[Case]:
    reader = FrameReader()
    entries = []
    for batch in batches:
        reader.receive_data(batch.frame())
        frame = reader.next_frame()
        assert frame is not None
        entries.append(frame.payload)

    def decode(columns: tuple[str, ...]) -> None:
        usual = range_settings()
        builder = RecordBatchBuilder(
            arrow_schema(columns),
            COLUMN_SOURCES,
            _TOPIC,
            0,
            max_rows=usual.table_rows,
            max_bytes=usual.table_bytes,
        )
        decoder = EntryDecoder(
            table=builder.new_table(),
            table_rows=usual.table_rows,
            table_bytes=usual.table_bytes,
        )
        for number in range(count):
            stored = read_stored_entry(1, number, entries[number % len(entries)])
            for entry in decoder.pieces(stored):
                for _ in builder.add(entry):
                    pass
        builder.finish()

    def parse() -> None:
        for _ in range(count // len(batches)):
            parse_only(batches)

    seconds = in_turns(
        {
            "parse": cpu(parse),
            **{
                name: cpu(partial(decode, columns)) for name, columns in COLUMNS.items()
            },
        },
        max(repeats, 5),
    )
    rows = count * batches[0].rows
    return [
        Case(
            "decode",
            f"{size}, {name}",
            rows,
            count // len(batches) * sum(batch.value_bytes for batch in batches),
            seconds[name],
            "upb parse alone",
            seconds["parse"],
            targets.get(name),
            figure=MICROSECONDS if name in targets else RATIO,
        )
        for name in COLUMNS
    ]
