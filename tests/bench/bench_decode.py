"""One entry -> RecordBatch, all that is ours of the processor's time of a row."""

from __future__ import annotations

from functools import partial

from pulsar_spark.arrow.decode import RecordBatchBuilder
from pulsar_spark.arrow.schema import arrow_schema
from pulsar_spark.options import METADATA_COLUMNS_DEFAULT
from pulsar_spark.wire.entries import decode_entry, read_stored_entry
from pulsar_spark.wire.frames import FrameReader
from tests.bench.bench_entries import parse_only
from tests.bench.report import Case, cpu, in_turns
from tests.bench.samples import make_batches

COLUMNS = {
    "value only": ("value",),
    "six columns": ("value", *METADATA_COLUMNS_DEFAULT),
}

_TOPIC = "persistent://public/default/bench-partition-0"
_ENTRIES = 120


def run(repeats: int) -> list[Case]:
    """Six columns and value only, messages of 100 bytes and 1 KiB."""
    return [*_cases(100, "100 B", repeats), *_cases(1024, "1 KiB", repeats)]


def _cases(size_bytes: int, size: str, repeats: int) -> list[Case]:
    batches = make_batches(8, size_bytes)
    reader = FrameReader()
    entries = []
    for batch in batches:
        reader.receive_data(batch.frame())
        frame = reader.next_frame()
        assert frame is not None
        entries.append(frame.payload)

    def decode(columns: tuple[str, ...]) -> None:
        builder = RecordBatchBuilder(
            arrow_schema(columns), _TOPIC, 0, max_rows=10_000, max_bytes=4 << 20
        )
        for number in range(_ENTRIES):
            stored = read_stored_entry(1, number, entries[number % len(entries)])
            for _ in builder.add(decode_entry(stored, fields=builder.fields)):
                pass
        builder.finish()

    def parse() -> None:
        for _ in range(_ENTRIES // len(batches)):
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
    rows = _ENTRIES * batches[0].rows
    return [
        Case(
            "decode",
            f"{size}, {name}",
            rows,
            rows * size_bytes,
            seconds[name],
            "upb parse alone",
            seconds["parse"],
        )
        for name in COLUMNS
    ]
