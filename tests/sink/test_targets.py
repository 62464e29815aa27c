# SPDX-License-Identifier: Apache-2.0
"""Topic names to the topic partitions that rows go to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.errors import AuthError, TopicNotFoundError
from pulsar_spark.sink.targets import find_targets
from pulsar_spark.topics import TopicName
from tests.support.scripted_broker import ScriptedBroker, Session, refuse

if TYPE_CHECKING:
    from pulsar_spark.client.pool import ConnectionPool
    from pulsar_spark.wire import pulsar_api_pb2 as pb

PLAIN = "persistent://public/default/plain"
PARTED = "persistent://public/default/parted"
NOWHERE = "persistent://public/default/nowhere"


@pytest.fixture
def lookup(scripted: ScriptedBroker, pool: ConnectionPool) -> TopicLookup:
    """Questions to a broker with two topics, one of them partitioned."""
    scripted.add_topic(PLAIN)
    scripted.partitions[PARTED] = 3
    return TopicLookup(pool)


def targets(
    lookup: TopicLookup, *names: str, auto_creation: bool = False
) -> dict[str, list[str]]:
    """The topic partitions of each topic."""
    topics = [TopicName.parse(name) for name in names]
    found = find_targets(lookup, topics, auto_creation=auto_creation)
    return {topic.full_name: partitions for topic, partitions in found.items()}


def test_each_kind(lookup: TopicLookup) -> None:
    """All partitions, a single one, or the topic itself; short names are completed."""
    last = f"{PARTED}-partition-2"
    assert targets(lookup, "parted", PLAIN, last) == {
        PARTED: [f"{PARTED}-partition-{index}" for index in range(3)],
        PLAIN: [PLAIN],
        last: [last],
    }


def test_one_question_a_topic(scripted: ScriptedBroker, lookup: TopicLookup) -> None:
    """However many of its partitions are named."""
    targets(lookup, *[f"{PARTED}-partition-{index}" for index in range(3)])
    assert scripted.requests["PARTITIONED_METADATA"] == 1


def test_a_missing_topic(scripted: ScriptedBroker, lookup: TopicLookup) -> None:
    """The error names topic, option and the broker's settings; nothing is created."""
    with pytest.raises(TopicNotFoundError) as caught:
        targets(lookup, PLAIN, NOWHERE)
    for part in (
        f"{NOWHERE} does not exist",
        "nothing was written",
        "`topicAutoCreation`",
        "allowAutoTopicCreation",
        "defaultNumPartitions",
    ):
        assert part in caught.value.message
    for body in scripted.bodies["PARTITIONED_METADATA"]:
        assert body.metadata_auto_creation_enabled is False


@pytest.mark.parametrize("name", [PARTED, PLAIN])
def test_a_missing_partition(lookup: TopicLookup, name: str) -> None:
    """Beyond the last one, or of a topic without: how many there are."""
    count = {PARTED: 3, PLAIN: 0}[name]
    with pytest.raises(TopicNotFoundError) as caught:
        targets(lookup, f"{name}-partition-3", auto_creation=True)
    text = f"{name} has {count} partitions, so there is no {name}-partition-3"
    assert text in caught.value.message


@pytest.mark.parametrize("partitions", [0, 2])
def test_auto_creation(
    scripted: ScriptedBroker, lookup: TopicLookup, partitions: int
) -> None:
    """Only topics that are missing are asked for; the broker's policy decides."""

    def create(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        if c.partitionMetadata.metadata_auto_creation_enabled:
            scripted.partitions[NOWHERE] = partitions
        broker.answer(session, c)

    scripted.always("PARTITIONED_METADATA", create)
    found = targets(lookup, PLAIN, NOWHERE, auto_creation=True)
    names = [f"{NOWHERE}-partition-{index}" for index in range(partitions)]
    assert found == {PLAIN: [PLAIN], NOWHERE: names or [NOWHERE]}
    asked = {
        body.topic
        for body in scripted.bodies["PARTITIONED_METADATA"]
        if body.metadata_auto_creation_enabled
    }
    assert asked == {NOWHERE}


def test_no_right(scripted: ScriptedBroker, lookup: TopicLookup) -> None:
    """What the broker refuses is raised as it says."""
    scripted.always("PARTITIONED_METADATA", refuse("AuthorizationError", "not yours"))
    with pytest.raises(AuthError, match="not yours"):
        targets(lookup, PLAIN)
