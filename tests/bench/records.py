# SPDX-License-Identifier: Apache-2.0
"""Records of five fields of mixed types: the rows of what has a schema."""

from __future__ import annotations

import io
import json
from types import MappingProxyType
from typing import Any

import fastavro
import pyarrow as pa

from pulsar_spark.schemas.info import SchemaInfo, SchemaType

#: As AVRO and JSON register them.
TREE: dict[str, Any] = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "ok", "type": "boolean"},
        {"name": "note", "type": ["null", "string"]},
    ],
}

#: The same as columns of Spark, and of Arrow.
COLUMNS = "id BIGINT, user STRING, amount DOUBLE, ok BOOLEAN, note STRING"
ARROW = pa.schema(
    {
        "id": pa.int64(),
        "user": pa.string(),
        "amount": pa.float64(),
        "ok": pa.bool_(),
        "note": pa.string(),
    }
)

#: What a topic of them registers.
SCHEMAS = MappingProxyType(
    {
        "AVRO": SchemaInfo(SchemaType.AVRO, json.dumps(TREE).encode()),
        "JSON": SchemaInfo(SchemaType.JSON, json.dumps(TREE).encode()),
    }
)


def rows(count: int) -> list[dict[str, Any]]:
    """So many records; every third has a note."""
    return [
        {
            "id": number * 1000,
            "user": f"user-{number % 500}",
            "amount": number * 1.5,
            "ok": number % 2 == 0,
            "note": None if number % 3 else f"note {number}",
        }
        for number in range(count)
    ]


def values(count: int, kind: str = "AVRO") -> list[bytes]:
    """So many records, as a client of this kind writes them."""
    if kind == "JSON":
        return [json.dumps(row, separators=(",", ":")).encode() for row in rows(count)]
    schema = fastavro.parse_schema({**TREE})
    found = []
    for row in rows(count):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, row)
        found.append(out.getvalue())
    return found
