# SPDX-License-Identifier: Apache-2.0
"""The decoders of a task's values, and where the decoders find schemas."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pulsar_spark.arrow.values import ValueDecoder
from pulsar_spark.arrow.values.by_schema import SchemaDecoder
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.schemas import SchemaLookup
from pulsar_spark.options import ReadOptions
from pulsar_spark.schemas.info import SchemaInfo
from pulsar_spark.source.plan.value_columns import value_settings
from pulsar_spark.topics import schema_topic


class ValueDecoders:
    """A decoder for each topic of a task: each topic numbers its own schema versions.

    What is known of a topic's schemas ends with the task: a topic that is created again
    counts from 0.

    Args:
        reader: The schema of the topics.
        own_schemas: The schemas of topics that have another one, by full name.
        wanted: The columns of values that the query has.
        options: How to read.
        pool: The connections of the task.
    """

    def __init__(
        self,
        reader: SchemaInfo,
        own_schemas: Mapping[str, SchemaInfo],
        wanted: pa.Schema,
        options: ReadOptions,
        pool: ConnectionPool,
    ) -> None:
        self._reader = reader
        self._own_schemas = own_schemas
        self._wanted = wanted
        self._settings = value_settings(options)
        # Not the connections over which messages come: while more of these wait than
        # memory allows, no answer is read there. Opened when a schema is asked for.
        self._pool = ConnectionPool(pool.options)
        self._lookup = SchemaLookup(self._pool, patience_s=options.patience_s)
        self._decoders: dict[str, ValueDecoder] = {}

    def of(self, topic_partition: str) -> ValueDecoder:
        """Return the decoder of a topic partition's values."""
        topic = schema_topic(topic_partition)
        if topic not in self._decoders:
            self._decoders[topic] = SchemaDecoder(
                self._own_schemas.get(topic, self._reader),
                self._wanted,
                self._settings,
                lambda version: self._lookup.find({topic: version})[topic],
            )
        return self._decoders[topic]

    def close(self) -> None:
        """Let go of the brokers."""
        self._pool.close()
