# SPDX-License-Identifier: Apache-2.0
"""Whose consumers the JSON of a topic is for."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from pulsar_spark.arrow.values import ValueSettings
from pulsar_spark.arrow.values.avro_text import record_text
from pulsar_spark.arrow.values.encoders import encoder_for
from pulsar_spark.arrow.values.json_form import JsonForm, form_of
from pulsar_spark.schemas.avro import parse_avro
from pulsar_spark.schemas.info import InvalidSchemaError, SchemaInfo, SchemaType

JAVA, PYTHON = JsonForm(times_are_texts=True), JsonForm(False, "utf8", False)


def test_whose_form():
    """A schema's properties, or its name, tell its owner; else the user has to."""
    bytes_text = record_text(pa.schema([("a", pa.binary())]))
    own = SchemaInfo(SchemaType.JSON, bytes_text)
    other = replace(own, data=bytes_text.replace(b"topLevelRecord", b"Order"))
    java = replace(other, properties={"__alwaysAllowNull": "true"})
    for info, said, form in (
        (own, "", JsonForm()),
        (own, "utf8", PYTHON),
        (java, "", JAVA),
        (other, "", JsonForm(False, "", False)),
        (other, "base64", JsonForm()),
        (other, "utf8", PYTHON),
    ):
        assert form_of(info, parse_avro(info.data), ValueSettings(said)) == form
    columns = pa.schema([("a", pa.binary())])
    with pytest.raises(InvalidSchemaError, match="set jsonBytes=base64"):
        encoder_for(other, columns)
    encoder_for(other, columns, ValueSettings("base64"))
