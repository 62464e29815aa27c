# SPDX-License-Identifier: Apache-2.0
"""Which module makes columns of the values of each kind of schema."""

from __future__ import annotations

import pyarrow as pa

from pulsar_spark.arrow.values import ValueSettings, VersionDecoder, primitive
from pulsar_spark.schemas.info import SchemaInfo


def columns_of(info: SchemaInfo) -> pa.Schema:
    """Return the columns of a topic with this schema, see ``VersionDecoder``."""
    return primitive.columns_of(info)


def decoder(
    writer: SchemaInfo, reader: SchemaInfo, wanted: pa.Schema, settings: ValueSettings
) -> VersionDecoder:
    """Return what decodes values of ``writer``, see ``VersionDecoder``."""
    return primitive.decoder(writer, reader, wanted, settings)
