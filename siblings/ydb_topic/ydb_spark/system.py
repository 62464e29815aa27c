# SPDX-License-Identifier: Apache-2.0
"""What the shared modules say, log and raise in the name of YDB."""

from __future__ import annotations

from spark_topics.system import System
from ydb_spark.errors import (
    CheckpointError,
    DataLossError,
    OptionError,
    SchemaError,
    TlsError,
    TransportError,
)

SYSTEM = System(
    name="YDB",
    distribution="ydb-topic-spark",
    package="ydb_spark",
    option_error=OptionError,
    schema_error=SchemaError,
    checkpoint_error=CheckpointError,
    data_loss_error=DataLossError,
    transport_error=TransportError,
    tls_error=TlsError,
)
