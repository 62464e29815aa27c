# SPDX-License-Identifier: Apache-2.0
"""Which topic partitions the rows for a topic go to."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.errors import ScalableTopicError, TopicNotFoundError
from pulsar_spark.message_id import TxnId
from pulsar_spark.options import DeliveryGuarantee
from pulsar_spark.topics import SCALABLE_SCHEME, TopicName, is_segment, topic_of
from pulsar_spark.wire.layout import Layout

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
    contents = lookup.topics(bases)
    absent = [
        name
        for name, content in contents.items()
        if content is None and not name.startswith(SCALABLE_SCHEME)
    ]
    if auto_creation and absent:
        counts = lookup.partition_counts(absent, auto_creation=True)
        contents |= counts
        for name, count in counts.items():
            if count is not None:
                form = f"with {count} partitions" if count else "without partitions"
                logger.warning(
                    "The topic %s does not exist: it is created as the broker's policy "
                    "says, %s. (`topicAutoCreation=false` makes this an error.)",
                    name,
                    form,
                )
    return {
        topic: _targets(
            topic, contents[topic.base.full_name], auto_creation=auto_creation
        )
        for topic in topics
    }


def _targets(
    topic: TopicName, count: int | Layout | None, *, auto_creation: bool
) -> list[str]:
    if isinstance(count, Layout):
        if topic.partition_index is not None:
            raise ScalableTopicError.of_partition(topic.full_name, count.topic)
        return [segment.name for segment in count.active]
    if count is None:
        why = (
            "and scalable topics are not created by writing"
            if topic.is_scalable
            else "and the broker's policy is not to create it"
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


def require_ordinary(targets: Iterable[str], guarantee: DeliveryGuarantee) -> None:
    """Require that no topic is scalable where a guarantee does not hold for such.

    Args:
        targets: Full names of topic partitions.
        guarantee: Of the write.

    Raises:
        ScalableTopicError: One is.
    """
    if guarantee is not DeliveryGuarantee.IDEMPOTENT:
        return
    for name in filter(is_segment, targets):
        topic = topic_of(name)
        raise ScalableTopicError(
            topic,
            topic,
            f"{topic} is a scalable topic of Pulsar 5, and so gets no rows by their "
            f"column `__topic` with `deliveryGuarantee={guarantee.value}`: name the "
            "topic in the option `topic`. If the topic was migrated just now, run the "
            "write again.",
        )


def require_kind(targets: Iterable[str], txn: TxnId) -> None:
    """Require that a transaction takes rows for topic partitions.

    Args:
        targets: Full names of topic partitions.
        txn: The transaction.

    Raises:
        ScalableTopicError: A topic is scalable, and the transaction is for ordinary
            topics, or the other way.
    """
    for name in targets:
        if is_segment(name) is txn.is_scalable:
            continue
        topic = topic_of(name)
        kinds = ("an ordinary topic", "a scalable topic of Pulsar 5")
        raise ScalableTopicError(
            topic,
            topic,
            f"{topic} is {kinds[not txn.is_scalable]}, and this task has begun a "
            f"transaction for {kinds[txn.is_scalable]}. No transaction takes both: let "
            "each exactly-once write have topics of one kind. If the topic was migrated"
            " just now, run the write again.",
        )
