# SPDX-License-Identifier: Apache-2.0
"""The columns of a query that come from values, and how to decode values."""

from __future__ import annotations

import pyarrow as pa

from pulsar_spark.arrow.values import ValueSettings
from pulsar_spark.columns import METADATA_COLUMNS_ALL
from pulsar_spark.options import ReadOptions


def value_settings(options: ReadOptions) -> ValueSettings:
    """Return what the options say about decoding."""
    return ValueSettings(json_bytes=options.json_bytes, time_zone=options.time_zone)


def value_columns(schema: pa.Schema, options: ReadOptions) -> pa.Schema:
    """Return the columns of a query that come from values."""
    other_columns = {*METADATA_COLUMNS_ALL, options.corrupt_record_column}
    return pa.schema([field for field in schema if field.name not in other_columns])
