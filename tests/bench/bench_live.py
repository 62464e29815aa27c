# SPDX-License-Identifier: Apache-2.0
"""Entries of few messages, as live topics have them: received bytes -> RecordBatches.

All that is ours of the processor's time, in both threads of a reading task; beside the
path of entries that are not ordinary, which takes one after the other.
"""

from __future__ import annotations

from functools import partial

from pulsar_spark.arrow.schema import arrow_schema
from pulsar_spark.options import METADATA_COLUMNS_DEFAULT
from pulsar_spark.wire import pulsar_api_pb2 as pb
from tests.bench.replay import read
from tests.bench.report import MICROSECONDS, RATIO, Case, cpu, in_turns
from tests.bench.samples import NONE, make_batches

#: Messages of an entry, and the microseconds of the processor that it may take where
#: nothing is compressed.
_ENTRIES = {1: 6.0, 5: None, 20: 8 + 20 * 0.15, 100: None}
_CODECS = {"NONE": NONE, "LZ4": pb.LZ4, "ZSTD": pb.ZSTD}

#: Bytes of the messages of each repeat, about, and entries at most: so many that what
#: a reader costs to begin and to end does not show.
_VALUE_BYTES = 20_000_000
_MAX_ENTRIES = 40_000

_SCHEMA = arrow_schema(("value", *METADATA_COLUMNS_DEFAULT))


def run(repeats: int, value_bytes: int = _VALUE_BYTES) -> list[Case]:
    """Six columns, messages of 100 bytes, by messages an entry and codec."""
    return [
        _case(rows, name, repeats, value_bytes) for rows in _ENTRIES for name in _CODECS
    ]


def _case(rows: int, codec: str, repeats: int, value_bytes: int) -> Case:
    batches = make_batches(64, 100, rows=rows, codec=_CODECS[codec])
    entries = min(max(64, value_bytes // 100 // rows), _MAX_ENTRIES)
    frames = [batches[number % 64].frame(number) for number in range(entries)]

    def one_by_one() -> None:
        read(frames, rows, _SCHEMA, in_bulk=False)

    most_us = _ENTRIES[rows] if codec == "NONE" else None
    seconds = in_turns(
        {"limit": cpu(one_by_one), "read": cpu(partial(read, frames, rows, _SCHEMA))},
        max(repeats, 5),
    )
    return Case(
        "live",
        f"entries of {rows} x 100 B, {codec}",
        entries * rows,
        entries * rows * 100,
        seconds["read"],
        "one by one",
        seconds["limit"],
        None if most_us is None else most_us / rows,
        figure=RATIO if most_us is None else MICROSECONDS,
    )
