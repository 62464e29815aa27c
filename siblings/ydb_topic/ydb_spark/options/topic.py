# SPDX-License-Identifier: Apache-2.0
"""What reads and writes of a topic have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from spark_topics.options.given import Given
from spark_topics.options.spec import Scope, option
from spark_topics.options.values import plain_text, seconds
from ydb_spark.options.connection import ConnectionOptions, connection_options

_DAY_S = 24 * 60 * 60


@dataclass(frozen=True)
class TopicOptions:
    """Which topic, and where.

    Attributes:
        connection: How to reach the database.
        topic: Path of the topic.
        stats_interval_s: Time between two lines about a task, in seconds; 0 for none.
    """

    connection: ConnectionOptions = field(default_factory=ConnectionOptions)
    topic: str = option("topic", "", plain_text, Scope.CLIENT, "Path of the topic.")
    stats_interval_s: float = option(
        "statsIntervalSeconds",
        "60",
        seconds(1, _DAY_S, minimum=0),
        Scope.CLIENT,
        "Time between two lines about a task in the executor's log; `0` for none.",
    )

    def within_database(self, path: str) -> str:
        """Return the path of a topic below the database: each topic has one such path.

        Args:
            path: ``t``, or ``/t``, or ``/path/of/database/t``.
        """
        database = f"/{(self.connection.database or '').strip('/')}/"
        return path.removeprefix(database).strip("/")


def topic_options(given: Given) -> dict[str, Any]:
    """Return the fields of that which are no options; add to ``given.problems``."""
    if "topic" not in given:
        given.problems.append("topic is missing: the path of the topic.")
    return {"connection": connection_options(given)}
