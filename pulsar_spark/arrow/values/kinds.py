# SPDX-License-Identifier: Apache-2.0
"""Which module makes columns of the values of each kind of schema."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pulsar_spark.arrow.values import ValueSettings, VersionDecoder, avro, primitive
from pulsar_spark.schemas.info import SchemaInfo, SchemaType


def columns_of(info: SchemaInfo) -> pa.Schema:
    """Return the columns of a topic with this schema, see ``VersionDecoder``."""
    return _module(info).columns_of(info)


def decoder(
    writer: SchemaInfo, reader: SchemaInfo, wanted: pa.Schema, settings: ValueSettings
) -> VersionDecoder:
    """Return what decodes values of ``writer``, see ``VersionDecoder``."""
    return _module(reader).decoder(writer, reader, wanted, settings)


def _module(info: SchemaInfo) -> Any:
    return avro if info.type == SchemaType.AVRO else primitive
