# SPDX-License-Identifier: Apache-2.0
"""Masters: who serves, what is asked, and what errors say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from siblings.tubemq.tests.scripted_server import (
    ScriptedServer,
    refuse,
    silence,
    throw,
)
from tests.support.waiting import await_true
from tubemq_spark.client.masters import Masters, Producer, new_client_id
from tubemq_spark.errors import (
    GroupForbiddenError,
    NoMasterError,
    TopicNotFoundError,
    TopicNotPublishableError,
)

STANDBY = throw("rv.StandbyException")


def test_partitions_of_both_layouts():
    with ScriptedServer({"d": [1, 1, 1], "s": [3]}) as server:
        with Masters(server.options) as masters:
            view = masters.readable("g-plan", ["d", "s"])
        ids = {
            topic: [one.partition_id for one in metadata.partitions]
            for topic, metadata in view.topics.items()
        }
        assert ids == {"d": [0, 10000, 20000], "s": [0, 1, 2]}
        assert view.brokers == {1: server.address}
        # Or others of the group would be refused.
        assert server.requests["consumer close"] == 1


def test_the_one_that_stands_by_is_passed_over():
    with ScriptedServer({"t": [1]}) as first, ScriptedServer({"t": [1]}) as second:
        options = replace(first.options, masters=(first.address, second.address))
        first.script("consumer register", *[STANDBY] * 3)
        with Masters(options) as masters:
            assert masters.readable("g", ["t"]).brokers == {1: second.address}
            first.script("consumer register", *[STANDBY] * 3)
            masters.readable("g", ["t"])
        assert first.requests["consumer register"] == 1  # the last good one is kept


def test_a_failover_takes_a_moment():
    with ScriptedServer({"t": [1]}) as server:
        server.script("consumer register", STANDBY, STANDBY)
        with Masters(server.options) as masters:
            assert masters.readable("g", ["t"]).brokers


def test_none_serves_says_what_each_answers():
    with ScriptedServer({"t": [1]}) as first, ScriptedServer({"t": [1]}) as second:
        options = replace(
            first.options,
            masters=(first.address, second.address),
            operation_timeout_s=0.5,
        )
        first.script("consumer register", *[STANDBY] * 50)
        second.script("consumer register", *[silence] * 50)
        with (
            Masters(options) as masters,
            pytest.raises(NoMasterError, match="None of the masters") as caught,
        ):
            masters.readable("g", ["t"])
        assert f"{first.address}: " in caught.value.message
        assert "StandbyException" in caught.value.message
        assert f"{second.address} did not answer" in caught.value.message


def test_an_unknown_topic_and_a_forbidden_group_are_final():
    with ScriptedServer({"t": [1]}) as server, Masters(server.options) as masters:
        with pytest.raises(TopicNotFoundError, match="nope"):
            masters.readable("g", ["nope"])
        server.script("consumer register", refuse(450))
        with pytest.raises(GroupForbiddenError, match="450"):
            masters.readable("g", ["t"])
        server.script("consumer register", refuse(424))
        with pytest.raises(GroupForbiddenError, match="in use in another way"):
            masters.readable("g", ["t"])


def test_a_producer_that_was_forgotten_registers_again():
    with ScriptedServer({"t": [1]}) as server, Masters(server.options) as masters:
        producer = Producer(masters, ["t"])
        assert len(producer.view().topics["t"].partitions) == 1
        server.script("producer heartbeat", refuse(411))
        assert producer.view().topics
        assert server.requests["producer register"] == 2
        producer.close()
        await_true(lambda: server.requests["producer close"] == 1, "the close")


def test_a_topic_that_comes_later_is_waited_for():
    with ScriptedServer({"t": [1]}) as server, Masters(server.options) as masters:
        server.publishable = False
        producer = Producer(masters, ["t"])
        with pytest.raises(TopicNotPublishableError, match="topic t is not open"):
            producer.wait_for(0.3)
        server.publishable = True
        assert producer.wait_for(5.0).topics["t"].partitions


def test_ids_are_all_different():
    assert len({new_client_id("g") for _ in range(100)}) == 100
