# SPDX-License-Identifier: Apache-2.0
"""What each part of tubemq_spark may import. See tests/test_layers.py."""

from __future__ import annotations

from tests.support.layers import CLOCK, NETWORK, Layer

#: From the bottom to the top. The longest name that fits a module is its row.
LAYERS = {
    "_version": Layer((), (), NETWORK + CLOCK),
    "errors": Layer((), (), NETWORK + CLOCK),
    "system": Layer(("errors", "network"), (), NETWORK + CLOCK),
    "columns": Layer(("columns",), (), NETWORK + CLOCK),
    # The inner loops over bytes, compiled.
    "loops": Layer(("loops.memory",), (), NETWORK + CLOCK),
    # Bytes <-> calls, frames, texts.
    "wire": Layer(
        ("errors", "protobuf", "loops", "loops.memory"), ("google",), NETWORK + CLOCK
    ),
    "wire.checksums": Layer(("loops",), ("isal",), NETWORK + CLOCK),
    "wire.tubemq_pb2": Layer((), ("google",), NETWORK + CLOCK),
    # Spark's map of options -> frozen values.
    "options": Layer(
        ("errors", "system", "text", "wire.metadata"), (), NETWORK + CLOCK
    ),
    "options.tls": Layer(("options", "errors", "system", "network"), (), NETWORK),
    # The protocol on blocking sockets: of masters and brokers, names of hosts apart.
    "client": Layer(
        ("errors", "system", "options", "loops", "wire"),
        (),
        ("ssl", "selectors", "asyncio"),
    ),
    "client.refusals": Layer(("errors", "wire"), (), NETWORK + CLOCK),
    # Messages <-> columns.
    "arrow": Layer(
        ("errors", "columns", "options", "loops", "wire"),
        ("pyarrow",),
        NETWORK + CLOCK,
    ),
    # What to read, how far, in what parts.
    "source": Layer(
        ("errors", "system", "statistics", "options", "client", "loops", "wire"),
        (),
        NETWORK,
    ),
    "source.ranges": Layer(
        (
            "errors",
            "system",
            "statistics",
            "options",
            "wire.metadata",
            "source.parts",
        ),
        (),
        NETWORK + CLOCK,
    ),
    "source.task": Layer(
        ("system", "statistics", "arrow", "options", "client", "loops", "source"),
        ("pyarrow",),
        NETWORK,
    ),
    "source.tubemq_source": Layer(
        ("options", "client", "source"), ("pyarrow",), NETWORK
    ),
    # What is done with rows that are written.
    "sink": Layer(
        ("errors", "columns", "system", "options", "client", "arrow", "wire"),
        ("pyarrow",),
        NETWORK,
    ),
    # Spark's interfaces, and nothing but adaptation to them.
    "spark": Layer(
        ("errors", "system", "columns", "options", "arrow", "source", "sink"),
        ("pyspark", "pyarrow"),
        NETWORK,
    ),
    "__init__": Layer(
        ("errors", "logs", "system", "spark.datasource"), (), NETWORK + CLOCK
    ),
    "pyspark_tubemq": Layer(("__init__",), (), NETWORK + CLOCK),
}
