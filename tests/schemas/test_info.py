# SPDX-License-Identifier: Apache-2.0
"""Schemas as they travel to tasks."""

from __future__ import annotations

import json
import pickle
from types import MappingProxyType

from pulsar_spark.schemas.info import SchemaInfo, SchemaType

FIELDS = [
    {"name": f"customerField{number}", "type": ["null", "string"], "default": None}
    for number in range(100)
]


def test_it_travels_small():
    """Each task of a plan has it; the text of a schema repeats itself."""
    text = json.dumps({"type": "record", "name": "R", "fields": FIELDS}).encode()
    info = SchemaInfo(SchemaType.AVRO, text, {"a": "b"}, bytes(8))
    data = pickle.dumps(info)
    assert pickle.loads(data) == info  # noqa: S301 - our own bytes
    assert len(data) * 10 < len(text)


def test_it_travels_whole():
    """Whatever it has, be it nothing."""
    for info in (
        SchemaInfo(SchemaType.INT32),
        SchemaInfo(99, b"\0\xff" * 9, MappingProxyType({"": "\u20ac"}), b"1"),
    ):
        found = pickle.loads(pickle.dumps(info))  # noqa: S301 - our own bytes
        assert found == info
        assert dict(found.properties) == dict(info.properties)
