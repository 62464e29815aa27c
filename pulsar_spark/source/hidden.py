# SPDX-License-Identifier: Apache-2.0
"""Whether a broker hides all the rest of a range.

An entry filter may reject the last entries of a topic. The broker still names the last
of them as the last message, and delivers nothing. It passes over them as over aborted
entries, by acknowledging them itself: so the place of a consumer that takes nothing,
and begins behind what was delivered, moves to where the hidden entries end::

    stored     7:0   7:1   7:2 (hidden)   7:3 (hidden)
    delivered  7:0   7:1
    a probe from 7:2: its place is 7:1 before FLOW, 7:3 soon after
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.consumers import ConsumerSet, TopicConsumer
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.positions import read_positions
from pulsar_spark.message_id import MessageId
from pulsar_spark.wire.protocol import Delivery

#: How long a probe waits for the broker to pass over entries, and how long between two
#: looks, in seconds. It takes milliseconds for each hundred of them.
_PATIENCE_S = 2.0
_STEP_S = 0.1

#: What the broker may send to a probe. Nothing, if all is hidden.
_PERMITS = 100


def hides_all(
    pool: ConnectionPool,
    topic_partition: str,
    start: MessageId,
    end: MessageId,
    subscription_prefix: str,
) -> bool:
    """Return whether the broker passes over all entries of a range that is stored.

    False also where that cannot be told now.

    Args:
        pool: The cluster's connections.
        topic_partition: Full name.
        start: The first entry that was not delivered; need not exist.
        end: The last one wanted.
        subscription_prefix: Beginning of the names under which is asked.
    """
    with ConsumerSet(pool, _Probe) as probes:

        def subscribe() -> bool:
            """Begin at the start; return whether nothing from there on is gone."""
            probes.step(
                lambda probe: probe.subscribe(
                    f"{subscription_prefix}-{uuid.uuid4()}", durable=False, start=start
                )
            )
            place = place_now()
            return place is not None and place < start.position

        def place_now() -> tuple[int, int] | None:
            replies = probes.step(lambda probe: probe.get_last())
            if topic_partition not in replies:
                return None
            return read_positions(replies[topic_partition]).before.position

        def passes_over() -> bool:
            probe = probes.members[topic_partition]
            probe.connection.grant(probe.consumer_id, _PERMITS)
            deadline = time.monotonic() + _PATIENCE_S
            while time.monotonic() < deadline and not probe.heard.wait(_STEP_S):
                place = place_now()
                if place is None or place >= end.position:
                    return place is not None and not probe.heard.is_set()
            return False

        probes.connect([topic_partition])
        if not (subscribe() and passes_over()):
            return False
        # Retention moves that place, too, but then the start is gone the second time.
        probe = probes.members[topic_partition]
        probe.connection.tell(probe.close())
        return subscribe()


class _Probe(TopicConsumer):
    """A consumer to which nothing should come.

    Attributes:
        heard: Whether something did.
    """

    def __init__(self, topic: str, connection: Connection) -> None:
        super().__init__(topic, connection)
        self.heard = threading.Event()

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Note that something came."""
        self.heard.set()
