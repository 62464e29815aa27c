# SPDX-License-Identifier: Apache-2.0
"""Find the topic partitions that the options name, by asking the cluster."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from pulsar_spark.client.failover import choose_cluster
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.errors import (
    OptionError,
    ProtocolError,
    ScalableTopicError,
    TopicNotFoundError,
)
from pulsar_spark.options import ReadOptions
from pulsar_spark.topics import TopicName, TopicsPattern
from pulsar_spark.wire.layout import Layout
from spark_topics.client.retry import Retry
from spark_topics.text import list_names

#: Topic partitions of one read, at most. More would not fit into the driver's memory.
_MOST_PARTITIONS = 1_000_000

_IS_A_COPY = (
    "Topics are copied there with a delay: rows that were stored last may be missing."
)


def at_one_cluster(options: ReadOptions) -> ReadOptions:
    """Return the options for the first cluster that answers, without a further choice.

    Raises:
        TransportError: No cluster answers.
        PulsarSparkError: Another cluster than the first rejects the connection.
    """
    if options.client.failover is None:
        return options
    return replace(options, client=choose_cluster(options.client, _IS_A_COPY))


def find_topic_partitions(lookup: TopicLookup, options: ReadOptions) -> list[TopicName]:
    """Return the topic partitions to read, sorted.

    A topic without partitions counts as one. Asking creates nothing. With
    ``waitingForNonExistedTopic``, wait for absent topics.

    Raises:
        TopicNotFoundError: A topic, or one partition named, does not exist, or no topic
            matches the pattern.
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    client = options.client
    retry = Retry(
        client.initial_backoff_s,
        client.max_backoff_s,
        options.topic_wait_timeout_s,
        "topicWaitTimeoutMs",
    )
    while True:
        existing, absence = look_for_topic_partitions(lookup, options)
        if not absence:
            return existing
        if not options.waiting_for_non_existed_topic:
            raise TopicNotFoundError(
                f"{absence} Correct the name, create the topic (reading never does), or"
                " set `waitingForNonExistedTopic` to true.",
                code="TopicNotFound",
            )
        if retry.remaining_s == 0:
            raise TopicNotFoundError(
                f"{absence} This was waited for {options.topic_wait_timeout_s:g} s:"
                " correct the name, create the topic (reading never does), or raise"
                " `topicWaitTimeoutMs`.",
                code="TopicNotFound",
            )
        # The topic may yet be made.
        retry.pause(TopicNotFoundError(absence, code="TopicNotFound", retriable=True))


def existing_topic_partitions(
    lookup: TopicLookup, options: ReadOptions
) -> list[TopicName]:
    """Return the topic partitions to read that exist now; missing ones are no error.

    Raises:
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    return look_for_topic_partitions(lookup, options)[0]


def look_for_topic_partitions(
    lookup: TopicLookup, options: ReadOptions
) -> tuple[list[TopicName], str]:
    """Return the existing topic partitions, and a sentence about absent ones, or "".

    Raises:
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    if options.topics_pattern is not None:
        return _match(lookup, options.topics_pattern, options.client.lookup_timeout_s)
    return _expand(lookup, options.topics)


def _match(
    lookup: TopicLookup, pattern: TopicsPattern, patience_s: float
) -> tuple[list[TopicName], str]:
    names = lookup.topics_of_namespace(pattern.namespace_name, pattern.for_brokers)
    scalable_names = lookup.scalable_topics(pattern.namespace_name)
    with _no_longer_than(patience_s, pattern):
        listed = [TopicName.parse(name) for name in names if pattern.matches(name)]
        scalable = [name for name in scalable_names if pattern.matches(name)]
    if not listed and not scalable:
        return [], (
            f"No topic of the namespace {pattern.namespace_name} matches the pattern "
            f"{pattern.text} (`topicsPattern`), which must match the whole name after "
            "the namespace."
        )
    # The list has each partition by itself, and may lack those never used: so
    # partitions are counted by the topic's metadata.
    topics = lookup.topics({*scalable, *(topic.base.full_name for topic in listed)})
    _check_total(topics)
    matches = [
        partition
        for name, content in topics.items()
        if content
        for partition in _partitions(TopicName.parse(name), content)
    ]
    # Add topics without partitions, and those that are only named like a partition.
    matches += (
        topic
        for topic in listed
        if isinstance(count := topics[topic.base.full_name] or 0, int)
        and (topic.partition_index or 0) >= count
    )
    return _in_order(matches), ""


def _expand(
    lookup: TopicLookup, topics: Iterable[TopicName]
) -> tuple[list[TopicName], str]:
    names = {topic.full_name for topic in topics}
    partitions = [topic for topic in topics if topic.partition_index is not None]
    # A single partition goes quiet where its topic is a scalable one by now.
    answers = lookup.topics(names | {topic.base.full_name for topic in partitions})
    for topic in partitions:
        if isinstance(layout := answers[topic.base.full_name], Layout):
            raise ScalableTopicError.of_partition(topic.full_name, layout.topic)
    contents = {name: answers[name] for name in names}
    _check_total(contents)
    uncounted = {name for name, content in contents.items() if content is None}
    missing = sorted(uncounted - lookup.counted_partitions(uncounted))
    expanded = _in_order(
        partition
        for name, content in contents.items()
        if name not in missing
        for partition in _partitions(TopicName.parse(name), content or 0)
    )
    return expanded, f"{list_names(missing)} does not exist." if missing else ""


def _check_total(contents: Mapping[str, int | Layout | None]) -> None:
    total = sum(content for content in contents.values() if isinstance(content, int))
    if total > _MOST_PARTITIONS:
        raise ProtocolError(
            f"The broker counts {total:,} topic partitions. No read may have more than "
            f"{_MOST_PARTITIONS:,}: name fewer topics."
        )


@contextlib.contextmanager
def _no_longer_than(seconds: float, pattern: TopicsPattern) -> Iterator[None]:
    """End a match of a regular expression that would take too long.

    A regular expression with repetitions inside of repetitions may try every way to
    divide a name among them. Only the alarm signal of the process can interrupt that,
    and only in its main thread, which is where Spark plans.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        raise OptionError(
            f"topicsPattern: {pattern.text!r} was not done with the names of "
            f"{pattern.namespace_name} after {seconds:g} s. Write it without a "
            "repetition inside of a repetition, such as (a+)+."
        )

    usual = signal.signal(signal.SIGALRM, stop)
    before = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)
        signal.signal(signal.SIGALRM, usual)


def _in_order(topics: Iterable[TopicName]) -> list[TopicName]:
    """Return each topic once, sorted."""
    # Partitions come in order already. A dict keeps it, a set would not, and what is
    # nearly in order is sorted in a tenth of the time.
    return sorted(dict.fromkeys(topics), key=TopicName.sort_key)


def _partitions(topic: TopicName, content: int | Layout) -> list[TopicName]:
    """Return the partitions or segments of a topic, or the undivided topic."""
    if isinstance(content, Layout):
        return [TopicName.parse(segment.name) for segment in content.segments]
    return [topic.partition(i) for i in range(content)] or [topic]
