# SPDX-License-Identifier: Apache-2.0
"""Look up the schemas that topics have and had, in the registry of the cluster.

Any broker can be asked, also about a topic that is not loaded, and asking creates
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.requests import fan_out
from pulsar_spark.errors import (
    BrokerError,
    ProtocolError,
    PulsarSparkError,
    TopicNotFoundError,
)
from pulsar_spark.schemas.info import SchemaInfo
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from spark_topics.client.retry import ask_all


class SchemaLookup:
    """Answers questions about schemas.

    Args:
        pool: The cluster's connections.
        patience_s: How long to go on without a single answer, in seconds; by default
            as long as a lookup may take.
    """

    def __init__(
        self, pool: ConnectionPool, *, patience_s: float | None = None
    ) -> None:
        self._pool = pool
        self._patience_s = patience_s

    def latest(self, topics: Iterable[str]) -> dict[str, SchemaInfo | None]:
        """Return the schema that each topic has now, see ``find``."""
        return self.find(dict.fromkeys(topics, b""))

    def find(self, versions: Mapping[str, bytes]) -> dict[str, SchemaInfo | None]:
        """Return a schema of each topic, asked for together.

        Args:
            versions: Which one, by the topic's full name: 8 bytes as messages have
                them, or none for the latest.

        Returns:
            The schemas, by topic; None where there is none of that version, or none at
            all, or no such topic: brokers do not tell these apart. One of type NONE
            was deleted.

        Raises:
            PulsarSparkError: The cluster does not answer, or refuses.
        """

        def ask(topics: list[str]) -> dict[str, SchemaInfo | None | PulsarSparkError]:
            connections = dict.fromkeys(topics, self._pool.try_get())
            requests = {
                topic: commands.get_schema(topic, versions[topic]) for topic in topics
            }
            answers = fan_out(
                connections, requests, self._pool.options.lookup_timeout_s
            )
            return {
                topic: _schema(topic, versions[topic], answer)
                for topic, answer in answers.items()
            }

        return ask_all(versions, ask, self._pool.patience(self._patience_s))


def _schema(
    topic: str,
    version: bytes,
    answer: pb.CommandGetSchemaResponse | PulsarSparkError,
) -> SchemaInfo | None | PulsarSparkError:
    if isinstance(answer, TopicNotFoundError):
        return None
    if isinstance(answer, BrokerError):
        return answer.about(f"The schema of {topic}")
    if isinstance(answer, PulsarSparkError):
        return answer
    if not answer.HasField("schema"):
        return ProtocolError(f"{topic}: the broker's answer to GET_SCHEMA has none.")
    return SchemaInfo(
        answer.schema.type,
        answer.schema.schema_data,
        {pair.key: pair.value for pair in answer.schema.properties},
        answer.schema_version or version,
    )


def schema_message(info: SchemaInfo) -> pb.Schema:
    """Return a schema in the form of PRODUCER."""
    return commands.schema(info.type, info.data, info.properties, info.name)
