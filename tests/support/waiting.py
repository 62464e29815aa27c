# SPDX-License-Identifier: Apache-2.0
"""Waiting for what a broker does in its own time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from pulsar_spark.testing.admin import Admin


#: A condition mostly asks a broker, which costs it some 8 ms of processor time each. So
#: what has not come within a second is asked for less often, this far apart.
LONGER_S = 0.1


#: How the names of namespaces begin that tests share.
SHARED = "public/tests-"


def await_true(
    condition: Callable[[], bool],
    what: str = "it",
    timeout: float = 120.0,
    pause: float = 0.02,
) -> None:
    """Wait for a condition, and fail the test if it does not come true.

    Args:
        condition: Asked again and again.
        what: What is to happen, for the message.
        timeout: Seconds.
        pause: Seconds between two times, at first; more where the answer takes work,
            such as reading a topic, that what is waited for would wait for.
    """
    begin = time.monotonic()
    while not condition():
        waited = time.monotonic() - begin
        assert waited < timeout, f"{what} did not happen in {timeout} s"
        time.sleep(max(pause, min(waited / 10, LONGER_S)))


def wait_until(condition: Callable[[], object], what: str = "") -> None:
    """Wait for a condition, and fail the test if it does not come true."""
    deadline = time.monotonic() + 120.0
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what or condition}"
        time.sleep(0.005)


def await_subscriptions(admin: Admin, topic: str, *names: str) -> None:
    """Wait until a topic has these subscriptions only: readers do not wait for theirs.

    Args:
        admin: Of the broker.
        topic: Full name of a topic partition.
        names: What is to be left.
    """
    left = sorted(names)
    await_true(lambda: sorted(admin.subscriptions(topic)) == left, "the end of readers")


def join(thread: threading.Thread, what: str, timeout: float = 120.0) -> None:
    """Wait for a thread, and fail the test if it does not end.

    Args:
        thread: To wait for.
        what: What it is, for the message.
        timeout: Seconds.
    """
    thread.join(timeout)
    assert not thread.is_alive(), f"{what} did not end in {timeout} s"


def trim_first_ledger(admin: Admin, topic: str) -> None:
    """Remove the first ledger of a topic, which must be closed, as retention would.

    The whole namespace keeps nothing from here on, so no other test may use it.
    """
    namespace = topic.removeprefix("persistent://").rpartition("/")[0]
    assert not namespace.startswith(SHARED), f"{namespace} is for all tests"
    first = admin.internal_stats(topic)["ledgers"][0]["ledgerId"]
    admin.set_retention(namespace, minutes=0, size_mb=0)

    def gone() -> bool:
        admin.trim(topic)  # of no effect until the topic has heard of the policy
        return bool(admin.internal_stats(topic)["ledgers"][0]["ledgerId"] != first)

    await_true(gone, f"trimming {topic}")
