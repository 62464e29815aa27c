# SPDX-License-Identifier: Apache-2.0
"""RecordBatch -> messages and their partitions, beside one join of the values alone."""

from __future__ import annotations

import random
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from pulsar_spark.arrow.encode import RowEncoder
from pulsar_spark.arrow.routing import Router, partition_runs
from pulsar_spark.arrow.schema import STRING_MAP, TIMESTAMP
from tests.bench.report import Case, cpu, in_turns
from tests.bench.samples import FIRST_EVENT_MS, SEED

#: Rows of a RecordBatch as Spark gives them to a writer.
ROWS = 10_000

#: RecordBatches of each repeat.
_BATCHES = 20

_KEY = ("value", "__key")
_TIME = (*_KEY, "__eventTime")

#: What is encoded, by columns.
COLUMNS = {
    "value only": ("value",),
    "+ key": _KEY,
    "+ event time": _TIME,
    "+ 2 properties": (*_TIME, "__messageProperties"),
}


def run(repeats: int) -> list[Case]:
    """Values of 100 bytes and 1 KiB; by columns, of one partition and of two."""
    return [*_cases(100, "100 B", repeats), *_cases(1024, "1 KiB", repeats)]


def _cases(size_bytes: int, size: str, repeats: int) -> list[Case]:
    batches = [record_batch(number, size_bytes) for number in range(4)]
    works = {
        name: partial(_encode, [batch.select(columns) for batch in batches], 1)
        for name, columns in COLUMNS.items()
    }
    text = [batch.select(_TIME) for batch in batches]
    works["key, event time, 2 partitions"] = partial(_encode, text, 2)
    works["binary key, event time"] = partial(_encode, [*map(_binary_key, text)], 1)
    seconds = in_turns(
        {
            "join": cpu(partial(_join_only, batches)),
            **{name: cpu(work) for name, work in works.items()},
        },
        max(repeats, 5),
    )
    rows = ROWS * _BATCHES
    return [
        Case(
            "encode",
            f"{size}, {name}",
            rows,
            rows * size_bytes,
            seconds[name],
            "join of the values",
            seconds["join"],
        )
        for name in works
    ]


def record_batch(number: int, size_bytes: int) -> pa.RecordBatch:
    """All of the columns above, different ones for each number."""
    rng = random.Random(SEED + size_bytes + number)
    columns = {
        "value": pa.array([rng.randbytes(size_bytes) for _ in range(ROWS)]),
        "__key": pa.array([f"key-{rng.randrange(10_000)}" for _ in range(ROWS)]),
        "__eventTime": pa.array(
            [(FIRST_EVENT_MS + rng.randrange(86_400_000)) * 1000 for _ in range(ROWS)],
            TIMESTAMP,
        ),
        "__messageProperties": pa.array(
            [[("source", "bench"), ("row", str(row))] for row in range(ROWS)],
            STRING_MAP,
        ),
    }
    return pa.RecordBatch.from_arrays([*columns.values()], [*columns])


def _binary_key(batch: pa.RecordBatch) -> pa.RecordBatch:
    at = batch.schema.get_field_index("__key")
    key = pa.field("__key", pa.binary())
    return batch.cast(batch.schema.set(at, key))


def _encode(batches: list[pa.RecordBatch], partitions: int) -> None:
    encoder = RowEncoder(batches[0].schema)
    router = Router(
        partitions,
        "JavaStringHash",
        "RoundRobinPartition",
        first=0,
        run_length=1000,
    )
    for number in range(_BATCHES):
        rows = encoder.encode(batches[number % len(batches)])
        indices, _ = partition_runs(router.route(rows, number * ROWS))
        if indices is not None:
            rows.take(indices)


def _join_only(batches: list[pa.RecordBatch]) -> None:
    """The least that puts values into one buffer of their own, with Arrow."""
    empty = pa.scalar(b"")
    for number in range(_BATCHES):
        values = batches[number % len(batches)].column("value")
        pc.binary_join_element_wise(values, empty)
