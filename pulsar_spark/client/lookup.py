# SPDX-License-Identifier: Apache-2.0
"""Topics, their numbers of partitions, and their brokers.

All questions about many topics are asked at once, and the answers awaited together, so
that a thousand partitions cost a few round trips.
"""

from __future__ import annotations

import contextlib
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.pool import BrokerAddress, ConnectionPool, normal_address
from pulsar_spark.client.requests import fan_out
from pulsar_spark.errors import (
    AskAgainError,
    BrokerError,
    ProtocolError,
    PulsarSparkError,
    ScalableTopicError,
    TlsError,
    TopicNotFoundError,
    foreign_text,
)
from pulsar_spark.topics import MAX_PARTITIONS, SCALABLE_SCHEME, TopicName
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import ReplyT, Request
from pulsar_spark.wire.layout import Layout, layout_of
from spark_topics.client.retry import Retry, ask_all

K = TypeVar("K")

_SCHEME = "pulsar://"
_TLS_SCHEME = "pulsar+ssl://"

#: What brokers answer that have no scalable topic of the name.
_NO_LAYOUT = ("TopicNotFound", "NotAllowedError", "InvalidTopicName")

#: What a broker says with TopicNotFound where there is no scalable topic of the name.
#: 5.0.0-M1 has the same code for every other reason: that its session in the metadata
#: store has ended, say.
_NOT_FOUND = re.compile("not found|individual partition", re.IGNORECASE)


class TopicLookup:
    """Answers questions about topics.

    Args:
        pool: The cluster's connections.
        patience_s: How long to go on without a single answer, in seconds; by default
            as long as a lookup may take.

    Attributes:
        layouts: The layout of each scalable topic, by its full name, as it was seen
            last.
    """

    def __init__(
        self, pool: ConnectionPool, *, patience_s: float | None = None
    ) -> None:
        self._pool = pool
        self._options = pool.options
        self._uses_tls = pool.options.service_url.uses_tls
        self._patience_s = patience_s
        self._urls: set[str] = set()  # of brokers, that repeat no credential
        self._lists: dict[tuple[str, str], _TopicList] = {}
        self.layouts: dict[str, Layout] = {}

    def topics(self, names: Iterable[str]) -> dict[str, int | Layout | None]:
        """Return what each topic consists of, by full name.

        The number of its partitions, 0 for a topic that is not partitioned; the layout
        of a scalable topic, also under the name that it had before it was migrated;
        None for a topic that does not exist. Asking creates nothing.

        Args:
            names: Full names of topics, without the suffix of a partition.

        Raises:
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        return ask_all(names, self._topics, self._retry())

    def partition_counts(
        self, topics: Iterable[str], *, auto_creation: bool = False
    ) -> dict[str, int | None]:
        """Return the number of partitions of each topic, by full name.

        0 means a topic that is not partitioned, None for one that does not exist.

        Args:
            topics: Full names, without the suffix of a partition.
            auto_creation: Whether brokers whose policy is to make topics partitioned
                create those that do not exist. 0 may then be one that does not exist.

        Raises:
            ScalableTopicError: A topic is scalable, and so has no partitions.
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        ask = partial(self._topics, auto_creation=auto_creation)
        answers = ask_all(topics, ask, self._retry())
        counts: dict[str, int | None] = {}
        for topic, answer in answers.items():
            if isinstance(answer, Layout):
                raise ScalableTopicError(topic, answer.topic)
            counts[topic] = answer
        return counts

    def counted_partitions(self, names: Iterable[str]) -> set[str]:
        """Return the names that are partitions of a topic, existing or not.

        A partitioned topic that brokers create by themselves is only a number at first;
        each partition comes into being with its first producer.

        Raises:
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        indexes = {}
        for name in map(TopicName.parse, names):
            if name.partition_index is not None and not name.is_scalable:
                indexes[name] = name.partition_index
        topics = self.topics({name.base.full_name for name in indexes})
        return {
            name.full_name
            for name, index in indexes.items()
            if isinstance(count := topics[name.base.full_name], int) and index < count
        }

    def _topics(
        self, names: list[str], *, auto_creation: bool = False
    ) -> Mapping[str, int | Layout | None | PulsarSparkError]:
        """Ask for partitions and layouts together; the layout of a topic is decisive.

        A migrated topic (PIP-475) keeps its partitions, terminated, while new rows go
        to segments: by its partitions alone it would go quiet. Brokers of 5.0.0-M1 and
        5.0.1 answer lookups of the old name as before, so only the layout tells.
        """
        service = self._pool.try_get()
        has_scalable = isinstance(service, Connection) and (
            service.supports_scalable_topics
        )
        ordinary = [name for name in names if not name.startswith(SCALABLE_SCHEME)]
        requests: dict[tuple[str, bool], Request[Any]] = {
            (name, False): commands.partitioned_metadata(
                name, auto_creation=auto_creation
            )
            for name in ordinary
        }
        if has_scalable:
            requests.update(
                {(name, True): commands.scalable_topic_lookup(name) for name in names}
            )
        answers = self._ask(dict.fromkeys(requests, service), requests)
        topics: dict[str, int | Layout | None | PulsarSparkError] = {
            name: _partition_count(name, answers[name, False]) for name in ordinary
        }
        if not has_scalable:
            return {
                name: topics[name] if name in topics else _unknown(name, service)
                for name in names
            }
        for name in names:
            answer = answers[name, True]
            if isinstance(answer, pb.CommandScalableTopicUpdate):
                assert isinstance(service, Connection)
                with contextlib.suppress(PulsarSparkError):
                    service.send(commands.scalable_topic_close(answer.session_id))
            layout = _layout(name, answer, service)
            if isinstance(layout, Layout):
                self.layouts[layout.topic] = layout
            if not _is_final(topics.get(name)) and (
                layout is not None or name not in topics
            ):
                topics[name] = layout
        return topics

    def topics_of_namespace(self, namespace: str, pattern: str = "") -> list[str]:
        """Return the topics in ``tenant/namespace`` by full name, each partition apart.

        A list that is asked for again comes only if it has changed.

        Args:
            namespace: Its name.
            pattern: As ``TopicsPattern.for_brokers`` has it: the broker may leave out
                what does not match.

        Raises:
            ProtocolError: There are too many for one answer.
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        cached = self._lists.get((namespace, pattern), _NO_LIST)
        request = commands.topics_of_namespace(namespace, pattern, cached.hash)
        try:
            answers = ask_all(
                [namespace],
                lambda names: self._ask_service(dict.fromkeys(names, request)),
                self._retry(),
            )
        except BrokerError as error:
            raise error.about(f"The topics of {namespace}") from error
        except ProtocolError as error:
            if not error.size_bytes:
                raise
            raise error.saying(
                f"The namespace {namespace} has too many topics for `topicsPattern`: "
                f"their list has {error.size_bytes} bytes, and no more than "
                f"{error.limit_bytes} are taken. Name topics by `topics`, have fewer "
                "topics in a namespace, or, up to 16 MiB, raise `maxMessageSize` of "
                "the brokers and `pulsar.client.memoryLimitBytes`."
            ) from error
        answer = answers[namespace]
        if answer.changed or cached is _NO_LIST:
            cached = _TopicList(answer.topics_hash, tuple(answer.topics))
            self._lists[namespace, pattern] = cached
        return list(cached.topics)

    def scalable_topics(self, namespace: str) -> list[str]:
        """Return the scalable topics in ``tenant/namespace`` by full name.

        None where the cluster is older than Pulsar 5.

        Raises:
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        try:
            return ask_all([namespace], self._scalable_topics, self._retry())[namespace]
        except BrokerError as error:
            raise error.about(f"The scalable topics of {namespace}") from error

    def _scalable_topics(
        self, namespaces: list[str]
    ) -> dict[str, list[str] | PulsarSparkError]:
        service = self._pool.try_get()
        if isinstance(service, PulsarSparkError):
            return dict.fromkeys(namespaces, service)
        if not service.supports_scalable_topics:
            return {namespace: [] for namespace in namespaces}
        topics: dict[str, list[str] | PulsarSparkError] = {}
        requests = {name: commands.watch_scalable_topics(name) for name in namespaces}
        for name, answer in self._ask(
            dict.fromkeys(requests, service), requests
        ).items():
            if isinstance(answer, PulsarSparkError):
                topics[name] = answer
                continue
            with contextlib.suppress(PulsarSparkError):
                service.send(commands.watch_scalable_topics_close(answer.watch_id))
            topics[name] = list(answer.snapshot.topics)
        return topics

    def brokers(
        self,
        topic_partitions: Iterable[str],
        migrated: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, BrokerAddress | PulsarSparkError]:
        """Return the broker of each topic partition, which is loaded if necessary.

        One try: an answer or an error for each, for the caller to try again.

        Args:
            topic_partitions: Full names.
            migrated: ``host:port`` of another cluster, for those that were migrated.
        """
        opened: set[BrokerAddress] = set()
        asking = {topic: _Question() for topic in topic_partitions}
        for topic, host in migrated.items():
            if topic in asking:
                asking[topic] = _Question(BrokerAddress(host), service=host)
        addresses = self._brokers(asking, opened)
        # What only redirected us, or failed, is of no use to anybody.
        self._pool.release(opened.difference(_addresses(addresses.values())))
        self._pool.remember_brokers(
            {
                name: broker
                for name, broker in addresses.items()
                if isinstance(broker, BrokerAddress) and name not in migrated
            }
        )
        return addresses

    def likely_brokers(
        self, topic_partitions: Iterable[str]
    ) -> dict[str, BrokerAddress | PulsarSparkError]:
        """Do as `brokers`, but ask of no topic partition whose broker is remembered.

        Only for requests that brokers refuse where they do not serve the topic
        partition. After a refusal, call `ConnectionPool.forget_brokers`.

        Args:
            topic_partitions: Full names.
        """
        names = list(topic_partitions)
        likely = self._pool.likely_brokers(names)
        unknown = [name for name in names if name not in likely]
        return {**likely, **(self.brokers(unknown) if unknown else {})}

    def _brokers(
        self, asking: dict[str, _Question], opened: set[BrokerAddress]
    ) -> dict[str, BrokerAddress | PulsarSparkError]:
        """Do as ``brokers``, and note the connections that this opens."""
        addresses: dict[str, BrokerAddress | PulsarSparkError] = {}
        for _ in range(self._options.max_lookup_redirects + 1):
            if not asking:
                return addresses
            asked = _addresses(question.address for question in asking.values())
            opened.update(address for address in asked if not self._pool.has(address))
            answers = self._ask_brokers(asking)
            redirected = {}
            for topic, answer in answers.items():
                result = self._broker(topic, answer, asking[topic].service)
                if isinstance(result, _Question):
                    redirected[topic] = result
                else:
                    addresses[topic] = result
            asking = redirected
        for topic in asking:
            addresses[topic] = AskAgainError(
                f"The lookup of {topic} was redirected more than "
                f"{self._options.max_lookup_redirects} times. Raise "
                "`pulsar.client.maxLookupRedirects` if the cluster is that large."
            )
        return addresses

    def _ask_brokers(
        self, asking: Mapping[str, _Question]
    ) -> dict[str, pb.CommandLookupTopicResponse | PulsarSparkError]:
        connections = self._pool.get_all(
            {
                topic: question.address
                for topic, question in asking.items()
                if question.address is not None
            }
        )
        if len(connections) < len(asking):
            connections = {**dict.fromkeys(asking, self._pool.try_get()), **connections}
        requests = {
            topic: commands.lookup(
                topic,
                authoritative=question.authoritative,
                advertised_listener_name=self._options.listener_name or "",
            )
            for topic, question in asking.items()
        }
        return self._ask(connections, requests)

    def _broker(
        self,
        topic: str,
        answer: pb.CommandLookupTopicResponse | PulsarSparkError,
        other_service: str | None,
    ) -> BrokerAddress | _Question | PulsarSparkError:
        if isinstance(answer, BrokerError):
            return answer.about(topic)
        if isinstance(answer, PulsarSparkError):
            return answer
        failed = pb.CommandLookupTopicResponse.Failed
        urls = [answer.brokerServiceUrl, answer.brokerServiceUrlTls]
        if self._uses_tls:
            urls.reverse()
        url = urls[0] or urls[1]
        if not url or not answer.HasField("response") or answer.response == failed:
            return AskAgainError(
                f"{topic}: The broker's answer to LOOKUP names no broker."
            )
        address = self.broker_address(url)
        if address is None:
            return _no_address(self._pool.without_secrets(url))
        broker = address.physical
        if answer.proxy_through_service_url:
            service = other_service or self._pool.service_address()
            if service != broker:
                address = BrokerAddress(service, broker)
        # Whom a proxy connects to, and how, is its own matter: to the proxy we keep to
        # the scheme of the service URL.
        is_tls = url.lower().startswith(_TLS_SCHEME)
        if not answer.proxy_through_service_url and is_tls != self._uses_tls:
            return _wrong_scheme(topic, broker, is_tls=is_tls)
        if answer.response == pb.CommandLookupTopicResponse.Redirect:
            return _Question(address, answer.authoritative, other_service)
        return address

    def broker_address(self, url: str) -> BrokerAddress | None:
        """Return the address in a broker's URL.

        None where the URL has none, or one that repeats the credential.
        """
        host = None if self._repeats_credential(url) else _host_and_port(url)
        return None if host is None else BrokerAddress(host)

    def _repeats_credential(self, url: str) -> bool:
        """Return whether a broker's URL repeats the credential."""
        if url not in self._urls:
            if self._pool.without_secrets(url) != url:
                return True
            self._urls.add(url)
        return False

    def _ask_service(
        self, requests: Mapping[K, Request[ReplyT]]
    ) -> dict[K, ReplyT | PulsarSparkError]:
        return self._ask(dict.fromkeys(requests, self._pool.try_get()), requests)

    def _ask(
        self,
        connections: Mapping[K, Connection | PulsarSparkError],
        requests: Mapping[K, Request[ReplyT]],
    ) -> dict[K, ReplyT | PulsarSparkError]:
        """Send requests together, within the limit of concurrent lookups."""
        answers: dict[K, ReplyT | PulsarSparkError] = {}
        for batch in in_turns(
            connections,
            self._options.concurrent_lookup_request,
            self._options.max_lookup_request,
        ):
            answers |= fan_out(
                {key: connections[key] for key in batch},
                requests,
                self._options.lookup_timeout_s,
            )
        return answers

    def _retry(self) -> Retry:
        return self._pool.patience(self._patience_s)


@dataclass(frozen=True)
class _TopicList:
    """Topics of a namespace.

    Attributes:
        hash: By which the broker knows this list; "" if it gives none.
        topics: Their full names.
    """

    hash: str
    topics: tuple[str, ...]


_NO_LIST = _TopicList("", ())


@dataclass(frozen=True)
class _Question:
    """A lookup to ask.

    Attributes:
        address: Whom, None for a host of the service URL.
        authoritative: With what authority.
        service: ``host:port`` of another cluster that it is about, None for ours.
    """

    address: BrokerAddress | None = None
    authoritative: bool = False
    service: str | None = None


def in_turns(keys: Mapping[K, object], most_each: int, most: int) -> Iterator[list[K]]:
    """Yield all keys, some at a time.

    Args:
        keys: What each of them goes to.
        most_each: How many may go to the same at a time.
        most: How many to all together.
    """
    queues: dict[object, deque[K]] = {}
    for key, goes_to in keys.items():
        queues.setdefault(goes_to, deque()).append(key)
    while queues:
        turn: list[K] = []
        for goes_to, queue in list(queues.items()):
            count = min(len(queue), most_each, most - len(turn))
            turn += [queue.popleft() for _ in range(count)]
            if not queue:
                del queues[goes_to]
        yield turn


def _partition_count(
    topic: str, answer: pb.CommandPartitionedTopicMetadataResponse | PulsarSparkError
) -> int | None | PulsarSparkError:
    if isinstance(answer, TopicNotFoundError):
        return None
    if isinstance(answer, BrokerError):
        return answer.about(topic)
    if isinstance(answer, PulsarSparkError):
        return answer
    if answer.partitions > MAX_PARTITIONS:
        return ProtocolError(
            f"{topic}: the broker counts {answer.partitions:,} partitions. No topic "
            f"has more than {MAX_PARTITIONS:,}."
        )
    return answer.partitions


def _layout(
    topic: str,
    answer: pb.CommandScalableTopicUpdate | PulsarSparkError,
    service: Connection | PulsarSparkError,
) -> Layout | None | PulsarSparkError:
    """Return the layout of a topic, None for an ordinary topic."""
    if isinstance(answer, pb.CommandScalableTopicUpdate):
        try:
            version = getattr(service, "server_version", "")
            return layout_of(answer, topic, version)
        except ProtocolError as error:
            return error
    if isinstance(answer, BrokerError) and not answer.retriable:
        is_absent = _NOT_FOUND.search(answer.server_message)
        if answer.code == "TopicNotFound" and not is_absent:
            return BrokerError(
                f"{topic}: {answer.message}", code=answer.code, retriable=True
            )
        return None if answer.code in _NO_LAYOUT else answer.about(topic)
    return answer


def _is_final(answer: int | Layout | None | PulsarSparkError) -> bool:
    """Return whether an answer is an error that another try would not change."""
    return isinstance(answer, PulsarSparkError) and not answer.retriable


def _unknown(topic: str, service: Connection | PulsarSparkError) -> PulsarSparkError:
    if isinstance(service, PulsarSparkError):
        return service
    return ScalableTopicError(
        topic,
        topic,
        f"{topic} names a scalable topic, which the broker {service.broker} does not "
        "know: they are new in Pulsar 5. Name an ordinary topic, persistent://.",
    )


def _addresses(found: Iterable[object]) -> set[BrokerAddress]:
    return {broker for broker in found if isinstance(broker, BrokerAddress)}


def _host_and_port(url: str) -> str | None:
    """Return the address in a broker's URL, None where there is none."""
    for scheme in (_SCHEME, _TLS_SCHEME):
        if url.lower().startswith(scheme):
            return normal_address(url[len(scheme) :].rstrip("/"))
    return None


def _no_address(url: str) -> ProtocolError:
    # What stands before an "@" may be a secret.
    named = "one with a user" if "@" in url else repr(foreign_text(url))
    return ProtocolError(
        f"The broker's answer to LOOKUP should name a broker by {_SCHEME}host:port, "
        f"but the URL is {named}. Correct the address that it advertises."
    )


def _wrong_scheme(topic: str, broker: str, *, is_tls: bool) -> TlsError:
    if is_tls:
        return TlsError(
            f"{topic}: its broker {broker} is to be spoken to by TLS only. Begin "
            f"`service.url` with {_TLS_SCHEME}.",
            broker=broker,
        )
    return TlsError(
        f"{topic}: its broker has no address for TLS, but {_SCHEME}{broker} only, "
        f"which is not used where `service.url` begins with {_TLS_SCHEME}. Set "
        "`brokerServicePortTls` on it, or give the listener an address for TLS.",
        broker=broker,
    )
