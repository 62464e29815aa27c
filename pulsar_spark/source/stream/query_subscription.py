# SPDX-License-Identifier: Apache-2.0
"""The subscription of a query, from the choice of a name to the query's end.

The subscription keeps what was not read, and its consumers say where the topics end.
The subscription is created once its name is in Spark's checkpoint. Until then, and
where nothing is to be acknowledged, consumers that leave no trace do the same::

    starts          readers that ask, or the predefined subscription as it is
    visits          consumers that are not durable     until an end is recorded
    visits, ack     the subscription                   from then on, see ``recorded``
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.registrations import Registrations
from pulsar_spark.options import ReadOptions
from pulsar_spark.source.consumer import consumer_settings
from pulsar_spark.source.stream.checkpoint import StreamOffset
from pulsar_spark.source.stream.chunk_guard import ChunkGuard
from pulsar_spark.source.stream.last_read import LastRead
from pulsar_spark.source.stream.made_by import made_by
from pulsar_spark.source.stream.subscription import Subscription
from pulsar_spark.wire.commands import SubscribeRequest


class QuerySubscription:
    """The name of a query's subscription, and its consumers.

    Args:
        pool: The cluster's connections.
        options: What to read.

    Attributes:
        name: As it is recorded in the checkpoint, "" before that.
        registrations: Of the subscription at scalable topics, from then on.
    """

    def __init__(self, pool: ConnectionPool, options: ReadOptions) -> None:
        self._pool = pool
        self._options = options
        self._guard = ChunkGuard(pool, expire_s=options.expire_incomplete_chunk_s)
        self._made_up = ""  # the name in the start of a new query
        self._consumers: Subscription | None = None
        self.name = ""
        self.registrations: Registrations | None = None

    def begin(self) -> str:
        """Return the name for a new query."""
        self._made_up = self.new_name()
        return self._made_up

    def new_name(self) -> str:
        """Return the predefined name, or a name that no other query has."""
        options = self._options
        return (
            options.predefined_subscription
            or f"{options.client.subscription_prefix}-{uuid.uuid4()}"
        )

    @property
    def chunked(self) -> frozenset[str]:
        """Return the topics, without the suffix of a partition, that have chunks."""
        return frozenset(self._guard.chunked)

    def recorded(
        self, offset: StreamOffset[LastRead], is_wanted: Callable[[str], bool]
    ) -> bool:
        """Learn from an offset that Spark has recorded; return whether the name is new.

        Args:
            offset: Says where an earlier run may have left the subscription.
            is_wanted: Returns whether the options still name a topic partition.
        """
        self._guard.chunked |= offset.chunked
        name = self._options.predefined_subscription or offset.subscription
        # A checkpoint of the Scala connector has no name, the next end will. With a
        # name in no offset, each run that ends earlier would leave a subscription.
        if self.name or not name:
            return False
        self.name = name
        if self._options.ack_on_commit:
            if self._consumers is not None:
                self._consumers.close()
            self._consumers = self._subscription(name, durable=True)
            self.registrations = Registrations(self._pool, name)
            if self._options.delete_subscription_on_stop and name != self._made_up:
                self._consumers.may_be_on(filter(is_wanted, offset.last_read))
        return True

    @property
    def consumers(self) -> Subscription:
        """Return the query's consumers; non-durable before the first commit."""
        if self._consumers is None:
            # The query's own name is for the durable ones: the two kinds cannot share.
            name = self._pool.reader_name()
            self._consumers = self._subscription(name, durable=False)
        return self._consumers

    def existing(self) -> Subscription:
        """Return consumers of the predefined subscription, which has to exist."""
        return self._subscription(self.new_name(), durable=True, must_exist=True)

    def _subscription(
        self, name: str, *, durable: bool, must_exist: bool = False
    ) -> Subscription:
        options = self._options
        how = SubscribeRequest(
            name,
            durable=durable,
            consumer=consumer_settings(options),
            subscription_properties=tuple(
                {**made_by(), **dict(options.subscription_properties)}.items()
            ),
            replicate_subscription_state=options.replicate_subscription_state,
        )
        is_made_up = name == self._made_up and options.predefined_subscription is None
        return Subscription(
            self._pool,
            how,
            is_new=is_made_up,
            must_exist=must_exist,
            patience_s=options.poll_timeout_s,
            guard=self._guard,
        )

    def acknowledge(self, read: Mapping[str, LastRead]) -> None:
        """Acknowledge what was read, if the query has subscribed."""
        if self.name and self._consumers is not None:
            self._consumers.acknowledge(read)

    def close(self) -> None:
        """Close the consumers; delete the subscription if the options say so."""
        consumers, self._consumers = self._consumers, None
        if consumers is None:
            return
        if self._options.delete_subscription_on_stop:
            consumers.delete()
            if self.registrations is not None:
                self.registrations.end()
        else:
            consumers.close()
