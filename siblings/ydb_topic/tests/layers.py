# SPDX-License-Identifier: Apache-2.0
"""What each part of ``ydb_spark`` may import: rows of ``tests/test_layers.py``."""

from __future__ import annotations

from tests.support.layers import CLOCK, NETWORK, Layer

#: From the bottom to the top. The longest name that fits a module is its row.
LAYERS = {
    "_version": Layer((), (), NETWORK + CLOCK),
    "__init__": Layer(("logs", "spark", "system"), (), NETWORK + CLOCK),
    "pyspark_ydb_topic": Layer(("__init__",)),
    "columns": Layer((), (), NETWORK + CLOCK),
    "errors": Layer((), (), NETWORK + CLOCK),
    "system": Layer(("errors",), (), NETWORK + CLOCK),
    # The SDK.
    "sdk": Layer(("errors",), ("grpc", "ydb"), NETWORK + CLOCK),
    # Spark's map of options -> frozen values.
    "options": Layer(("errors", "system", "text", "wire"), (), NETWORK + CLOCK),
    "options.connection": Layer(("errors", "options"), (), NETWORK + CLOCK),
    # The service's messages.
    "wire": Layer(("errors", "sdk"), (), NETWORK + CLOCK),
    "wire.codecs": Layer(("errors",), ("pyarrow",), NETWORK + CLOCK),
    # The service over gRPC.
    "client": Layer(("errors", "sdk", "wire"), (), NETWORK),
    "client.pauses": Layer(("errors", "client.retry"), (), NETWORK + CLOCK),
    # Sockets, but only to look at what gRPC says nothing of.
    "client.diagnosis": Layer(("errors", "options.connection")),
    "client.credentials": Layer(("errors", "sdk", "options.connection"), (), NETWORK),
    "client.channel": Layer(
        ("errors", "sdk", "options.connection", "wire", "client"), (), NETWORK
    ),
    # Messages <-> columns.
    "arrow": Layer(("errors", "wire"), ("pyarrow",), NETWORK),
    "arrow.hashing": Layer((), (), NETWORK + CLOCK),
    # What to read, how far, in what parts.
    "source": Layer(
        ("errors", "system", "statistics", "options", "wire", "client", "arrow"),
        ("pyarrow",),
        NETWORK,
    ),
    # What makes a write safe.
    "sink": Layer(
        ("errors", "sdk", "system", "statistics", "options", "wire", "client", "arrow"),
        ("pyarrow",),
        NETWORK,
    ),
    "sink.numbers": Layer(("errors",), (), NETWORK + CLOCK),
    # Spark's side.
    "spark": Layer(
        ("errors", "system", "statistics", "columns", "options", "source", "sink"),
        ("pyarrow", "pyspark"),
        NETWORK,
    ),
}
