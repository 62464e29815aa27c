# SPDX-License-Identifier: Apache-2.0
"""Which topic partitions the rows for a topic go to."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.errors import TopicNotFoundError
from pulsar_spark.topics import TopicName

logger = logging.getLogger("pulsar_spark.sink")


def find_targets(
    lookup: TopicLookup, topics: Iterable[TopicName], *, auto_creation: bool
) -> dict[TopicName, list[str]]:
    """Return the full names of the topic partitions of each topic.

    A topic without partitions, or a single partition, is its only one.

    Args:
        lookup: Answers questions about topics.
        topics: What is to be written to.
        auto_creation: Whether a topic that does not exist is left to the broker's
            policy. One without partitions comes into being with its first producer.

    Raises:
        TopicNotFoundError: A topic does not exist, or has no such partition.
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    topics = list(topics)
    bases = {topic.base.full_name for topic in topics}
    counts = lookup.partition_counts(bases)
    absent = [name for name, count in counts.items() if count is None]
    if auto_creation and absent:
        counts |= lookup.partition_counts(absent, auto_creation=True)
        for name in absent:
            if (count := counts[name]) is not None:
                form = f"with {count} partitions" if count else "without partitions"
                logger.warning(
                    "The topic %s does not exist: it is created as the broker's policy "
                    "says, %s. (`topicAutoCreation=false` makes this an error.)",
                    name,
                    form,
                )
    return {
        topic: _targets(
            topic, counts[topic.base.full_name], auto_creation=auto_creation
        )
        for topic in topics
    }


def _targets(topic: TopicName, count: int | None, *, auto_creation: bool) -> list[str]:
    if count is None:
        why = (
            "and the broker's policy is not to create it"
            if auto_creation
            else "and `topicAutoCreation` is false"
        )
        raise TopicNotFoundError(
            f"The topic {topic.base.full_name} does not exist, {why}: nothing was "
            "written to it. Create it, or have `topicAutoCreation` be true with a "
            "policy that creates topics, and says with how many partitions "
            "(allowAutoTopicCreation, allowAutoTopicCreationType and "
            "defaultNumPartitions in broker.conf, or the namespace's own).",
            code="TopicNotFound",
        )
    if topic.partition_index is not None and topic.partition_index >= count:
        raise TopicNotFoundError(
            f"The topic {topic.base.full_name} has {count} partitions, so there is no "
            f"{topic.full_name} to write to.",
            code="TopicNotFound",
        )
    if topic.partition_index is not None or not count:
        return [topic.full_name]
    return list(topic.partition_names(range(count)))
