# SPDX-License-Identifier: Apache-2.0
"""Find out whether a broker hides all the rest of a range.

An entry filter may reject the last entries of a topic. The broker still names the last
of them as the last message, and delivers nothing. It skips them as it skips aborted
entries, by acknowledging them itself. So the place of a consumer that takes nothing,
and begins after what was delivered, moves to the end of the hidden entries::

    stored     7:0   7:1   7:2 (hidden)   7:3 (hidden)
    delivered  7:0   7:1
    a probe from 7:2: its place is 7:1 before FLOW, 7:3 soon after
"""

from __future__ import annotations

import time

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.probe import Probe
from pulsar_spark.message_id import MessageId

_STEP_S = 0.1

#: How many probes must be moved past all entries, one after the other.
_PROBES = 2

#: What the broker may send to a probe. Nothing, if all is hidden.
_PERMITS = 100


def hides_all(
    pool: ConnectionPool,
    topic_partition: str,
    start: MessageId,
    end: MessageId,
) -> bool | None:
    """Return whether the broker passes over all entries of a range that is stored.

    False if it delivers one, None where neither is known now.

    Args:
        pool: The cluster's connections.
        topic_partition: Full name.
        start: The first entry that was not delivered; need not exist.
        end: The last entry wanted.
    """
    with Probe(pool, topic_partition) as probe:

        def is_there() -> bool:
            """Begin at the start; return whether nothing from there on is gone."""
            place = probe.begin(start)
            return place is not None and place < start.position

        # Retention moves a place, too, but then the start is gone the next time. So
        # does expiry, which is minutes apart, and moves one of two.
        for _ in range(_PROBES):
            if not is_there():
                return None
            is_hidden = _passes_over(probe, end, pool.options.patience.hidden_s)
            if not is_hidden:
                return is_hidden
        return True if is_there() else None


def _passes_over(probe: Probe, end: MessageId, timeout_s: float) -> bool | None:
    probe.grant(_PERMITS)
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if probe.hears(_STEP_S):
            return False
        place = probe.place()
        if place is None:
            return None
        if place >= end.position:
            return not probe.hears(0)
    return None
