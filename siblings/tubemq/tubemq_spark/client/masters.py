# SPDX-License-Identifier: Apache-2.0
"""What masters know: brokers, partitions, and whether a client is let in.

Exactly one master serves; the others answer every call that they stand by. Anyone who
is asked goes through the list from the last one that served.
"""

from __future__ import annotations

import itertools
import os
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from spark_topics.client.retry import Retry
from tubemq_spark.client.connection import Connection, connect
from tubemq_spark.client.identity import Identity
from tubemq_spark.errors import (
    AuthError,
    GroupForbiddenError,
    NoMasterError,
    ServerError,
    TlsError,
    TopicNotFoundError,
    TopicNotPublishableError,
    TransportError,
    TubeMQError,
)
from tubemq_spark.options.client import ClientOptions
from tubemq_spark.wire import codes, messages
from tubemq_spark.wire import tubemq_pb2 as pb
from tubemq_spark.wire.messages import Token
from tubemq_spark.wire.metadata import (
    TopicMetadata,
    decode_brokers,
    decode_topic_infos,
    decode_topic_meta_infos,
)

T = TypeVar("T")

_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.2, 1.2

_counter = itertools.count(1)


def new_client_id(prefix: str) -> str:
    """Return a unique client id; brokers assign partitions by client id."""
    unique = uuid.uuid4().hex[:12]
    return f"{prefix}_{socket.gethostname()}-{os.getpid()}-{next(_counter)}-{unique}"


@dataclass(frozen=True)
class ClusterView:
    """What a master says at a time.

    Attributes:
        brokers: Addresses by broker id.
        topics: Partitions of the topics that were asked for, by name.
        token: What brokers may ask for.
    """

    brokers: Mapping[int, str]
    topics: Mapping[str, TopicMetadata]
    token: Token | None


class Masters:
    """The masters of a cluster. For one thread.

    Args:
        options: Where they are, how long to wait, and who asks.

    Attributes:
        identity: Who asks.
    """

    def __init__(self, options: ClientOptions) -> None:
        self.identity = Identity(options)
        self._options = options
        self._next = 0  # where the last one that served is in the list
        self._connection: Connection | None = None

    def __enter__(self) -> Masters:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @property
    def uses_tls(self) -> bool:
        """Return whether servers are reached over TLS."""
        return self._options.tls.enable

    def run(self, work: Callable[[Connection], T], timeout_s: float | None = None) -> T:
        """Do something with the master that serves.

        Args:
            work: Called with a connection, again with another where that one fails.
            timeout_s: How long to look for one; 0 for asking each of them once, None
                for ``operation.timeout``.

        Raises:
            NoMasterError: None serves in time.
            ServerError: The one that serves refuses.
        """
        if timeout_s is None:
            timeout_s = self._options.operation_timeout_s
        retry = Retry(_FIRST_PAUSE_S, _MAX_PAUSE_S, timeout_s)
        reasons: dict[str, TubeMQError] = {}
        while True:
            for _ in self._options.masters:
                server = self._options.masters[self._next % len(self._options.masters)]
                try:
                    return self._work(work, self._connected(server))
                except (TransportError, ServerError) as error:
                    if not error.retriable or isinstance(error, TlsError):
                        raise
                    reasons[server] = error
                self.close()
                self._next += 1
            retry.pause(_none_serves(reasons))

    def _work(self, work: Callable[[Connection], T], connection: Connection) -> T:
        try:
            return work(connection)
        except AuthError:
            if not self.identity.forget():
                raise
        return work(connection)  # what the master gave has come to its end

    def tell(self, request: messages.Request[Any]) -> None:
        """Send an optional request to the last master, if still connected."""
        if self._connection is not None and self._connection.is_open:
            self._connection.call(request)

    def _connected(self, server: str) -> Connection:
        if self._connection is None or not self._connection.is_open:
            self._connection = connect(
                server,
                connect_timeout_s=self._options.connect_timeout_s,
                timeout_s=self._options.rpc_timeout_s,
                tls=self._options.tls,
            )
        return self._connection

    def readable(self, group: str, topics: Sequence[str]) -> ClusterView:
        """Return the partitions of some topics that are open for reading.

        Args:
            group: Of the planner; not that of readers.
            topics: Names of the topics.

        Raises:
            TopicNotFoundError: One does not exist, or is not open.
            GroupForbiddenError: The group may not read them.
            NoMasterError: As `run`, as for the others.
        """
        client_id, identity = new_client_id(group), self.identity

        def ask(connection: Connection) -> ClusterView:
            registered = _register(
                connection,
                messages.register_consumer(
                    client_id,
                    group,
                    topics,
                    socket.gethostname(),
                    certificate=identity.certificate(),
                ),
                subject=", ".join(topics),
            )
            try:
                reply = connection.ask(
                    messages.partition_metadata(
                        client_id, group, certificate=identity.certificate()
                    )
                )
            finally:
                # While it is registered, others of this name are refused.
                connection.ask(
                    messages.close_consumer(
                        client_id, group, certificate=identity.certificate()
                    ),
                    accepting=frozenset({codes.HB_NO_NODE}),
                )
            token = _token(registered.authorizedInfo)
            identity.keep(token)
            view = ClusterView(
                decode_brokers(
                    reply.brokerConfigList or registered.brokerConfigList,
                    tls=self.uses_tls,
                ),
                decode_topic_meta_infos(reply.topicMetaInfoList),
                token,
            )
            missing = [name for name in topics if not _partitions_of(view, name)]
            if missing:
                # A master that has just taken over does not know them all at once.
                raise TopicNotFoundError(
                    f"The topic {', '.join(missing)} has no partition that is open for "
                    f"reading, says the master {connection.server}. A new topic can be "
                    "used some 40 s after it was made.",
                    broker=connection.server,
                    retriable=True,
                )
            return view

        return self.run(ask)


def _register(
    connection: Connection,
    request: messages.Request[pb.RegisterResponseM2CV2],
    subject: str,
) -> pb.RegisterResponseM2CV2:
    """Register a planner; a competing planner is a retriable error.

    That is one of the same group that asks about other topics at the moment, or one
    that was killed less than 30 s ago.
    """
    try:
        return connection.ask(request, subject=subject)
    except GroupForbiddenError as error:
        if error.code != codes.CLIENT_INCONSISTENT_TOPICSET:
            raise
        raise error.saying(error.message, retriable=True) from None


def _partitions_of(view: ClusterView, topic: str) -> Sequence[object]:
    metadata = view.topics.get(topic)
    return metadata.partitions if metadata else ()


def _none_serves(said: Mapping[str, TubeMQError]) -> TubeMQError:
    """Return why none serves, as the error to raise when there is no time left."""
    for error in said.values():
        # Only one that serves says so.
        if isinstance(error, TopicNotFoundError | GroupForbiddenError):
            return error
    answers = "; ".join(f"{server}: {error.message}" for server, error in said.items())
    return NoMasterError(
        f"None of the masters serves, of those that `master.rpc` names. {answers}"
    )


def _token(info: pb.MasterAuthorizedInfo) -> Token | None:
    if not info.HasField("visitAuthorizedToken"):
        return None
    return Token(info.visitAuthorizedToken, info.authAuthorizedToken)


class Producer:
    """A producer, registered at a master. For one thread.

    Brokers do not ask whether a master knows it, so it is told to them only where
    something is asked.

    Args:
        masters: Of the cluster.
        topics: All topics to write to.

    Attributes:
        client_id: By which brokers know it.
        topics: As given; may be set to others.
    """

    def __init__(self, masters: Masters, topics: Sequence[str]) -> None:
        self.client_id = new_client_id("spark")
        self._masters = masters
        self.topics = topics
        self._is_registered = False

    def view(self, timeout_s: float | None = None) -> ClusterView:
        """Return brokers, the partitions open for writing, and a fresh token.

        Topics that are not open for writing are left out: also while their brokers
        restart.

        Args:
            timeout_s: As `Masters.run`.

        Raises:
            NoMasterError: As `Masters.run`.
        """
        try:
            return self._masters.run(self._ask, timeout_s)
        except ServerError as error:
            if error.code != codes.HB_NO_NODE:
                raise
            self._is_registered = False
            return self._masters.run(self._ask, timeout_s)

    def _ask(self, connection: Connection) -> ClusterView:
        if not self._is_registered:
            self._register(connection)
        reply = connection.ask(
            self._heartbeat(),
            accepting=frozenset({codes.HB_NO_NODE, codes.NOT_READY}),
        )
        if reply.errCode == codes.HB_NO_NODE:  # it has expired, or the master is new
            self._register(connection)
            reply = connection.ask(self._heartbeat())
        token = _token(reply.authorizedInfo)
        self._masters.identity.keep(token)
        topics = decode_topic_infos(reply.topicInfos)
        default = reply.appdConfig.maxMsgSize or None
        return ClusterView(
            decode_brokers(reply.brokerInfos, tls=self._masters.uses_tls),
            {
                name: metadata._replace(
                    max_message_bytes=metadata.max_message_bytes or default
                )
                for name, metadata in topics.items()
            },
            token,
        )

    def _register(self, connection: Connection) -> None:
        request = messages.register_producer(
            self.client_id,
            self.topics,
            socket.gethostname(),
            certificate=self._masters.identity.certificate(),
        )
        connection.ask(request)
        self._is_registered = True

    def _heartbeat(self) -> messages.Request[pb.HeartResponseM2P]:
        return messages.heartbeat_producer(
            self.client_id,
            self.topics,
            socket.gethostname(),
            certificate=self._masters.identity.certificate(),
        )

    def wait_for(self, timeout_s: float) -> ClusterView:
        """Return a view in which all topics are open for writing.

        Args:
            timeout_s: How long to wait for those that are not, such as while the only
                broker restarts.

        Raises:
            TopicNotPublishableError: One is not in time.
        """
        retry = Retry(_FIRST_PAUSE_S, _MAX_PAUSE_S, timeout_s)
        while True:
            view = self.view()
            missing = [name for name in self.topics if not _partitions_of(view, name)]
            if not missing:
                return view
            retry.pause(
                TopicNotPublishableError(
                    f"The topic {', '.join(missing)} is not open for writing. Check "
                    "its name and its `acceptPublish`, and whether its brokers are "
                    "up: one comes some 40 s after it was made, or its broker started.",
                    retriable=True,
                )
            )

    def close(self) -> None:
        """Tell the master that the producer ends; otherwise the master times out."""
        if self._is_registered:
            self._is_registered = False
            certificate = self._masters.identity.certificate()
            self._masters.tell(
                messages.close_producer(self.client_id, certificate=certificate)
            )
