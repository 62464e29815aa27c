# SPDX-License-Identifier: Apache-2.0
"""Values in protobuf -> columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from unittest import mock

import pyarrow as pa

from pulsar_spark.arrow.values import ValueSettings, protobuf
from pulsar_spark.schemas.info import SchemaInfo
from tests.bench.report import MICROSECONDS, RATIO, Case, cpu, in_turns
from tests.support import kernels
from tests.support.protobuf_schemas import (
    Field,
    field,
    info,
    message,
    message_class,
    proto_file,
)

#: Rows of a run, and runs of each repeat.
_ROWS = 1000
_RUNS = 40

#: Microseconds of the processor that a value may take.
_TARGETS = MappingProxyType({"protobuf, 5 fields": 0.33})

_FILE = proto_file(
    message(
        field("id", 1, Field.TYPE_INT64),
        field("user", 2, Field.TYPE_STRING),
        field("amount", 3, Field.TYPE_DOUBLE),
        field("ok", 4, Field.TYPE_BOOL),
        field("note", 5, Field.TYPE_STRING, oneof_index=0, proto3_optional=True),
        oneofs=["_note"],
    )
)


def run(repeats: int, runs: int = _RUNS) -> list[Case]:
    """A message of five fields: all of them, two, as Python, and by the runtime."""
    class_ = message_class(_FILE)
    payloads = []
    for number in range(_ROWS):
        one = class_(
            id=number * 1000,
            user=f"user-{number % 500}",
            amount=number * 1.5,
            ok=number % 2 == 0,
        )
        if number % 3 == 0:
            one.note = f"note {number}"
        payloads.append(one.SerializeToString())
    values = pa.array(payloads, pa.binary())
    schema = info(_FILE)
    columns = protobuf.columns_of(schema)
    two = pa.schema([columns.field("note"), columns.field("id")])
    whole = partial(_decode, values, schema, columns, runs)

    def objects() -> None:
        for _ in range(runs):
            for payload in payloads:
                class_.FromString(payload)

    works: dict[str, Callable[[], None]] = {
        "protobuf, 5 fields": whole,
        "protobuf, 2 of 5 fields": partial(_decode, values, schema, two, runs),
        "protobuf, 5 fields, as Python": partial(_as_python, whole),
    }
    seconds = in_turns(
        {
            "objects": cpu(objects),
            **{name: cpu(work) for name, work in works.items()},
        },
        repeats,
    )
    return [
        Case(
            "values",
            name,
            _ROWS * runs,
            sum(map(len, payloads)) * runs,
            seconds[name],
            "the runtime's objects",
            seconds["objects"],
            _TARGETS.get(name),
            figure=MICROSECONDS if name in _TARGETS else RATIO,
        )
        for name in works
    ]


def _decode(
    values: pa.BinaryArray, schema: SchemaInfo, wanted: pa.Schema, runs: int
) -> None:
    planned = protobuf.decoder(schema, schema, wanted, ValueSettings())
    for _ in range(runs):
        found = planned.decode(values, None)
        assert not found.bad, found.reason


def _as_python(work: Callable[[], None]) -> None:
    kernel = kernels.load("python", "protobuf_values")
    with mock.patch.multiple(
        protobuf, Column=kernel.Column, Level=kernel.Level, Table=kernel.Table
    ):
        work()
