# SPDX-License-Identifier: Apache-2.0
"""The subscription of a query, from the choice of a name to the query's end.

The subscription keeps what was not read, and its consumers say where the topics end.
The subscription is created once its name is in Spark's checkpoint. Until then, and
where nothing is to be acknowledged, consumers that leave no trace do the same::

    starts          readers that ask, or the predefined subscription as it is
    visits          consumers that are not durable     until an end is recorded
    visits, ack     the subscription                   from then on, see ``recorded``

Only a subscription of the query's own is ever deleted. The checkpoint says of a name
that some run had it from `predefinedSubscription`. Offsets of versions that did not
write this down have it by the form of the name: own names are made by ``new_name``.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.registrations import Registrations
from pulsar_spark.options import ReadOptions
from pulsar_spark.options.client import DEFAULT_PREFIX
from pulsar_spark.source.consumer_settings import consumer_settings
from pulsar_spark.source.stream.checkpoint import StreamOffset
from pulsar_spark.source.stream.chunk_guard import ChunkGuard
from pulsar_spark.source.stream.last_read import LastRead
from pulsar_spark.source.stream.made_by import made_by
from pulsar_spark.source.stream.subscription import Subscription
from pulsar_spark.wire.commands import SubscribeRequest

logger = logging.getLogger("pulsar_spark.source")

#: The names that ``new_name`` makes, with any prefix.
_OWN_NAME = re.compile(r".+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


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
        self._is_known = False  # what the runs before have left
        self._is_predefined = options.predefined_subscription is not None
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

    def signed(
        self, offset: StreamOffset[LastRead], start: StreamOffset[LastRead] | None
    ) -> StreamOffset[LastRead]:
        """Return an offset with the name, and what later runs have to know of it.

        Args:
            offset: The end of a micro-batch, or the start of the query.
            start: Where the micro-batch begins; None for the start of the query.
        """
        if start is not None:
            self._learn(start)
        return replace(
            offset,
            subscription=self.name_after(offset) or self.new_name(),
            predefined=self._is_predefined,
            unacknowledged=not self._options.ack_on_commit,
        )

    def name_after(self, offset: StreamOffset[LastRead]) -> str:
        """Return the name of a run that goes on from an offset, "" for none yet."""
        return self._options.predefined_subscription or self.name or offset.subscription

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
        self._learn(offset)
        name = self.name_after(offset)
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

    def _learn(self, offset: StreamOffset[LastRead]) -> None:
        """Learn, once, what runs before have left; warn of what no run will delete."""
        if self._is_known:
            return
        self._is_known = True
        options, before = self._options, offset.subscription
        name = self.name_after(offset)
        was_predefined = offset.predefined or not _OWN_NAME.fullmatch(before)
        if name == before:
            self._is_predefined |= bool(name) and was_predefined
        if not before or offset.unacknowledged:
            pass
        elif name != before:
            logger.warning(
                "The subscription of the stream is %s from now on. The run before had "
                "%s, which nothing acknowledges any more: %s",
                name,
                before,
                _how_to_delete(before, is_predefined=was_predefined),
            )
        elif not options.ack_on_commit:
            logger.warning(
                "The stream does not acknowledge any more, as `ackOnCommit` says. Its "
                "subscription %s stays, whatever `deleteSubscriptionOnStop` says: %s",
                before,
                _how_to_delete(before, is_predefined=was_predefined),
            )
        if options.delete_subscription_on_stop and self._is_predefined:
            logger.warning(
                "`deleteSubscriptionOnStop` deletes a subscription of a stream's own "
                "only. %s is the `predefinedSubscription` of an earlier run: it stays.",
                name,
            )

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
        is_made_up = name == self._made_up and not self._is_predefined
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
        if self._options.delete_subscription_on_stop and not self._is_predefined:
            try:
                consumers.delete()
            finally:
                if self.registrations is not None:
                    self.registrations.end()
        else:
            try:
                consumers.close()
            finally:
                if self.registrations is not None:
                    self.registrations.close()


def _how_to_delete(name: str, *, is_predefined: bool) -> str:
    """Return what a subscription does that no run goes on with, and how to end that."""
    if is_predefined:
        command = f"pulsar-admin topics unsubscribe --subscription {name} TOPIC"
    else:
        command = (
            "pulsar-spark subscriptions TOPIC --admin-url URL --delete --yes "
            f"--name {name}"
        )
        prefix = name[: -len(str(uuid.UUID(int=0))) - 1]
        if prefix != DEFAULT_PREFIX:
            command += f" -o subscriptionPrefix={prefix}"
    return (
        "where it exists, it keeps rows from being removed. If nothing else needs "
        f"these, delete it: {command}"
    )
