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

#: The same with a moment, a map and a union.
WIDE: dict[str, Any] = {
    **TREE,
    "fields": [
        *TREE["fields"],
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "labels", "type": {"type": "map", "values": "string"}},
        {"name": "extra", "type": ["null", "boolean", "long", "string"]},
    ],
}

#: One in so many records is unusual, where some are: a long with a point.
UNUSUAL_STEP = 500

#: What a topic of them registers, by its kind.
_JSON = SchemaInfo(SchemaType.JSON, json.dumps(TREE).encode())
SCHEMAS = MappingProxyType(
    {
        "AVRO": SchemaInfo(SchemaType.AVRO, json.dumps(TREE).encode()),
        "JSON": _JSON,
        "JSON, map and union": SchemaInfo(SchemaType.JSON, json.dumps(WIDE).encode()),
        "JSON, 1 in 500 unusual": _JSON,
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
    """So many records, as a client writes them for a schema of SCHEMAS."""
    if kind != "AVRO":
        return [_json(number, row, kind) for number, row in enumerate(rows(count))]
    schema = fastavro.parse_schema({**TREE})
    found = []
    for row in rows(count):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, row)
        found.append(out.getvalue())
    return found


def _json(number: int, row: dict[str, Any], kind: str) -> bytes:
    if kind == "JSON, map and union":
        row["time"] = 1_700_000_000_000 + number
        row["labels"] = {"host": f"host-{number % 50}", "zone": "a"}
        row["extra"] = number if number % 2 else f"text {number}"
    if kind == "JSON, 1 in 500 unusual" and not number % UNUSUAL_STEP:
        row["id"] = float(row["id"])  # 1000.0 is a long, too
    return json.dumps(row, separators=(",", ":")).encode()
