# SPDX-License-Identifier: Apache-2.0
"""Pulsar, as described to the packages shared with other messaging systems."""

from __future__ import annotations

from pulsar_spark.errors import (
    CheckpointError,
    DataLossError,
    OptionError,
    SchemaError,
    TlsError,
    TransportError,
)
from spark_topics.system import System

PULSAR = System(
    name="Pulsar",
    distribution="pulsar-spark",
    package="pulsar_spark",
    option_error=OptionError,
    schema_error=SchemaError,
    checkpoint_error=CheckpointError,
    data_loss_error=DataLossError,
    transport_error=TransportError,
    tls_error=TlsError,
)

#: The loggers of the package.
LOGGERS = (
    "pulsar_spark.arrow",
    "pulsar_spark.client",
    "pulsar_spark.lag",
    "pulsar_spark.options",
    "pulsar_spark.sink",
    "pulsar_spark.source",
    "pulsar_spark.spark",
)
