# SPDX-License-Identifier: Apache-2.0
"""Schemas as they travel to tasks."""

from __future__ import annotations

import json
import pickle
from types import MappingProxyType

import pytest

from pulsar_spark.schemas.info import (
    InvalidSchemaError,
    SchemaInfo,
    SchemaType,
    read_json,
)

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


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "its text is not JSON (Expecting value"),
        (b'"\xff"', "its text is not JSON ("),
        (b"[" * 100_000, "its text is nested too deeply"),
        (b" " * (8 * 2**20 + 1), "its text has 8,388,609 bytes"),
    ],
    ids=["empty", "latin", "deep", "long"],
)
def test_what_is_no_json(data: bytes, said: str) -> None:
    """It is told by the name that it has for whoever reads it."""
    with pytest.raises(InvalidSchemaError) as caught:
        read_json(data, "text")
    assert str(caught.value).startswith(said)


def test_as_long_as_may_be() -> None:
    """One byte less is read."""
    assert read_json(b"7".rjust(8 * 2**20), "text") == 7
