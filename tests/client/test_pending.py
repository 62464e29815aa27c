# SPDX-License-Identifier: Apache-2.0
"""Waits for the ends of requests."""

from __future__ import annotations

import threading
import time
from typing import Any
from unittest import mock

import pytest

from pulsar_spark.client.pending import Pending, await_ends
from pulsar_spark.errors import TransportError
from pulsar_spark.wire import commands


def connection() -> Any:
    """What a request knows of its connection."""
    return mock.Mock(ended=threading.Condition())


def request(on: Any, number: int = 1) -> Pending[str]:
    """A request under way."""
    return Pending(on, number, str, commands.get_last_message_id(8))  # type: ignore[arg-type]


def test_a_request_says_what_it_is() -> None:
    """Until its reply has come, for messages."""
    pending = request(connection())
    assert not pending.done()
    assert pending.name == "GET_LAST_MESSAGE_ID"
    assert pending.consumer_id == 8
    assert pending.attaches is None
    assert request(connection()).subject == ""
    assert Pending(connection(), 0, str).name == "CONNECT"


def test_ends() -> None:
    """A reply is returned, an error returned or raised."""
    answered, failed = request(connection()), request(connection())
    answered.set_result("it")
    error = TransportError("broken")
    failed.set_exception(error)
    assert answered.done()
    assert answered.result() == answered.outcome() == "it"
    assert failed.outcome() is error
    with pytest.raises(TransportError, match="broken"):
        failed.result()


def test_nothing_to_wait_for() -> None:
    """Nothing is waited for, also without time."""
    pending = request(connection())
    pending.set_result("it")
    assert await_ends([], 60) == await_ends([pending], 0) == []


def test_time_runs_out() -> None:
    """Those without an end are returned, in order."""
    on = connection()
    requests = [request(on, number) for number in range(4)]
    requests[2].set_result("it")
    began_s = time.monotonic()
    assert await_ends(requests, 0.05) == [requests[0], requests[1], requests[3]]
    assert time.monotonic() - began_s >= 0.05
    assert await_ends(requests, -1) == [requests[0], requests[1], requests[3]]


def test_requests_of_several_connections() -> None:
    """Each ends on its own, in any order, and the wait with the last of them."""
    connections = [connection() for _ in range(3)]
    requests = [request(on, number) for number in range(5) for on in connections]

    def end() -> None:
        for number in (7, 14, 0, 3, 1, 2, 4, 5, 6, 13, 12, 11, 10, 9, 8):
            time.sleep(0.002)
            on: Any = requests[number].connection
            with on.ended:
                requests[number].set_result("it")
                on.ended.notify_all()

    thread = threading.Thread(target=end)
    thread.start()
    assert await_ends(requests, 60) == []
    assert all(pending.done() for pending in requests)
    thread.join()
