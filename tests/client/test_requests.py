# SPDX-License-Identifier: Apache-2.0
"""Many requests at once: whom they go to, and what becomes of each."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.client.pool import BrokerAddress, ConnectionPool
from pulsar_spark.client.requests import fan_out, gather, send_all, together
from pulsar_spark.errors import (
    BrokerError,
    PulsarSparkError,
    TopicNotFoundError,
    TransportError,
)
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from tests.support.scripted_broker import ScriptedBroker, cut, refuse, silence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pulsar_spark.client.connection import Connection
    from pulsar_spark.wire.commands import Request

TOPICS = [f"persistent://public/default/t-partition-{index}" for index in range(3)]


def lookups(
    topics: Iterable[str],
) -> dict[str, Request[pb.CommandLookupTopicResponse]]:
    """A request about each topic partition."""
    return {topic: commands.lookup(topic) for topic in topics}


def test_all_are_sent_before_any_reply(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Each gets its own reply."""
    scripted.answer_together(3, "LOOKUP")
    connections: dict[str, Connection | PulsarSparkError] = dict.fromkeys(
        TOPICS, pool.service()
    )
    replies = fan_out(connections, lookups(TOPICS), 60)
    assert sorted(replies) == TOPICS
    assert {type(reply) for reply in replies.values()} == {
        pb.CommandLookupTopicResponse
    }
    asked = [body.topic for body in scripted.bodies["LOOKUP"]]
    assert asked == TOPICS


def test_what_cannot_be_asked_is_an_answer(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """No request is needed for it, and the others are asked all the same."""
    gone = TransportError("nobody is there")
    connections = {TOPICS[0]: gone, TOPICS[1]: pool.service()}
    replies = fan_out(connections, lookups(TOPICS[1:2]), 60)
    assert replies[TOPICS[0]] is gone
    assert isinstance(replies[TOPICS[1]], pb.CommandLookupTopicResponse)
    assert scripted.requests["LOOKUP"] == 1


def test_each_failure_is_its_own(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """A refusal, a missing reply, which names the request, and a success."""
    scripted.script("LOOKUP", refuse("TopicNotFound"), silence)
    connections: dict[str, Connection | PulsarSparkError] = dict.fromkeys(
        TOPICS, pool.service()
    )
    refused, silent, found = fan_out(connections, lookups(TOPICS), 0.1).values()
    assert isinstance(refused, TopicNotFoundError)
    assert isinstance(silent, TransportError)
    assert "did not answer LOOKUP within 0.1 s" in silent.message
    assert isinstance(found, pb.CommandLookupTopicResponse)


def test_a_connection_that_breaks_fails_its_own_requests(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Those to another broker are answered."""
    with ScriptedBroker() as other:
        scripted.script("LOOKUP", cut)
        connections: dict[str, Connection | PulsarSparkError] = {
            TOPICS[0]: pool.service(),
            TOPICS[1]: pool.get(BrokerAddress(other.address)),
        }
        replies = fan_out(connections, lookups(TOPICS), 60)
        assert isinstance(replies[TOPICS[0]], TransportError)
        assert isinstance(replies[TOPICS[1]], pb.CommandLookupTopicResponse)
        pool.close()


def test_replies_may_be_gathered_more_than_once(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """What was answered stays answered."""
    scripted.script("LOOKUP", refuse("MetadataError"))
    sent = send_all({"a": pool.service()}, {"a": commands.lookup(TOPICS[0])})
    for _ in range(2):
        answer = gather(sent, 60)["a"]
        assert isinstance(answer, BrokerError)
        assert answer.code == "MetadataError"


def test_nothing_to_ask() -> None:
    """Costs nothing."""
    assert fan_out({}, {}, 60) == {}


class TestTogether:
    def test_none_waits_for_another(self) -> None:
        """Results are in the order of the calls."""
        barrier = threading.Barrier(3, timeout=60.0)

        def call(number: int) -> int:
            barrier.wait()
            return number

        assert together(*(partial(call, n) for n in range(3))) == [0, 1, 2]

    def test_a_single_call_has_the_callers_thread(self) -> None:
        """It needs no other."""
        assert together(threading.get_ident) == [threading.get_ident()]

    @pytest.mark.parametrize("failing", [{0}, {1}, {2}, {0, 2}, {1, 2}, {0, 1, 2}])
    def test_the_first_error_is_raised_when_all_have_ended(
        self, failing: set[int]
    ) -> None:
        """Whichever comes first in time."""
        ended = []

        def call(number: int) -> None:
            time.sleep(0.02 * (3 - number))
            ended.append(number)
            if number in failing:
                raise ValueError(number)

        with pytest.raises(ValueError, match=str(min(failing))):
            together(*(partial(call, n) for n in range(3)))
        assert sorted(ended) == [0, 1, 2]
