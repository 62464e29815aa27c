# SPDX-License-Identifier: Apache-2.0
"""Pulsar, as described to the packages shared with other messaging systems.

Also the logger of the lines that a user sees without setting up logging.
"""

from __future__ import annotations

import logging

from pulsar_spark.errors import (
    CheckpointError,
    DataLossError,
    OptionError,
    SchemaError,
    TlsError,
    TransportError,
)
from spark_topics import statistics
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

#: Lines about whole queries and tasks, which a user sees without setting up logging.
query_log = logging.getLogger("pulsar_spark.spark")


def log_summary(text: str, interval_s: float) -> None:
    """Log a line about a whole write. See `spark_topics.statistics`."""
    statistics.log_summary(query_log, text, interval_s)


def warn_once(text: str) -> None:
    """Log a warning, once in each process."""
    statistics.warn_once(query_log, text)
