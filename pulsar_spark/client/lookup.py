"""Which topics there are, how many partitions they have, and who serves them.

All questions about many topics are asked at once, and the answers awaited together, so
that a thousand partitions cost a few round trips.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pulsar_spark.client.connection import Connection
from pulsar_spark.client.pool import BrokerAddress, ConnectionPool, normal_address
from pulsar_spark.client.retry import Retry, ask_all
from pulsar_spark.errors import (
    BrokerError,
    ProtocolError,
    PulsarSparkError,
    TopicNotFoundError,
    TransportError,
    foreign_text,
)
from pulsar_spark.topics import TopicName
from pulsar_spark.wire import commands
from pulsar_spark.wire import pulsar_api_pb2 as pb

K = TypeVar("K")

#: Makes a frame, given the request id.
Request = Callable[..., bytes]

#: More partitions than any topic has. A number that is believed costs memory.
_MAX_PARTITIONS = 100_000

_SCHEME = "pulsar://"
_TLS_SCHEME = "pulsar+ssl://"

#: How finely silence is measured: this many steps make a timeout.
_STEPS = 10


class TopicLookup:
    """Answers questions about topics.

    Args:
        pool: The cluster's connections.
    """

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._options = pool.options

    def partition_counts(
        self, topics: Iterable[str], *, auto_creation: bool = False
    ) -> dict[str, int | None]:
        """The number of partitions of each topic, by full name.

        0 stands for a topic that is not partitioned, None for one that does not exist.

        Args:
            topics: Full names, without the suffix of a partition.
            auto_creation: Whether brokers whose policy is to make topics partitioned
                create those that do not exist. 0 may then be one that does not exist.

        Raises:
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        ask = partial(self._partition_counts, auto_creation=auto_creation)
        return ask_all(topics, ask, self._retry())

    def counted_partitions(self, names: Iterable[str]) -> set[str]:
        """Those names that are partitions of a topic, whether they exist yet or not.

        A partitioned topic that brokers create by themselves is only a number at first;
        each partition comes into being with its first producer.

        Raises:
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        indexes = {}
        for name in map(TopicName.parse, names):
            if name.partition_index is not None:
                indexes[name] = name.partition_index
        counts = self.partition_counts({name.base.full_name for name in indexes})
        return {
            name.full_name
            for name, index in indexes.items()
            if index < (counts[name.base.full_name] or 0)
        }

    def _partition_counts(
        self, topics: list[str], *, auto_creation: bool
    ) -> Mapping[str, int | None | PulsarSparkError]:
        build = partial(commands.partitioned_metadata, auto_creation=auto_creation)
        answers = self._ask_service(
            {topic: partial(build, topic) for topic in topics}, "PARTITIONED_METADATA"
        )
        return {topic: _partition_count(topic, a) for topic, a in answers.items()}

    def topics_of_namespace(self, namespace: str) -> list[str]:
        """Full names of the topics in ``tenant/namespace``, each partition by itself.

        Raises:
            PulsarSparkError: The cluster does not answer, or refuses.
        """
        answers = ask_all(
            [namespace],
            lambda names: self._ask_service(
                {name: partial(commands.topics_of_namespace, name) for name in names},
                "GET_TOPICS_OF_NAMESPACE",
            ),
            self._retry(),
        )
        return list(answers[namespace].topics)

    def brokers(
        self, topic_partitions: Iterable[str]
    ) -> dict[str, BrokerAddress | PulsarSparkError]:
        """Who serves each topic partition now; this makes a broker take it on.

        One try: an answer or an error for each, for the caller to try again.
        """
        opened: set[BrokerAddress] = set()
        found = self._brokers(topic_partitions, opened)
        # What only redirected us, or failed, is of no use to anybody.
        self._pool.release(opened.difference(_addresses(found.values())))
        return found

    def _brokers(
        self, topic_partitions: Iterable[str], opened: set[BrokerAddress]
    ) -> dict[str, BrokerAddress | PulsarSparkError]:
        """As ``brokers``; notes the connections that this opens."""
        found: dict[str, BrokerAddress | PulsarSparkError] = {}
        asking = {topic: _Question() for topic in topic_partitions}
        for _ in range(self._options.max_lookup_redirects + 1):
            if not asking:
                return found
            asked = _addresses(question.address for question in asking.values())
            opened.update(one for one in asked if not self._pool.has(one))
            answers = self._ask_brokers(asking)
            redirected = {}
            for topic, answer in answers.items():
                result = self._broker(answer)
                if isinstance(result, _Question):
                    redirected[topic] = result
                else:
                    found[topic] = result
            asking = redirected
        for topic in asking:
            found[topic] = BrokerError(
                f"The lookup of {topic} was redirected more than "
                f"{self._options.max_lookup_redirects} times. Raise "
                "`pulsar.client.maxLookupRedirects` if the cluster is that large.",
                code="ServiceNotReady",
            )
        return found

    def _ask_brokers(self, asking: Mapping[str, _Question]) -> dict[str, Any]:
        connections = self._pool.get_all(
            {
                topic: question.address
                for topic, question in asking.items()
                if question.address is not None
            }
        )
        service = self._service() if len(connections) < len(asking) else None
        requests: dict[str, tuple[Connection, Request]] = {}
        failed: dict[str, PulsarSparkError] = {}
        for topic, question in asking.items():
            connection = connections.get(topic) or service
            if not isinstance(connection, Connection):
                assert connection is not None
                failed[topic] = connection
                continue
            build = partial(
                commands.lookup,
                topic,
                authoritative=question.authoritative,
                advertised_listener_name=self._options.listener_name or "",
            )
            requests[topic] = connection, build
        return gather(
            {**send_all(requests), **failed}, self._options.lookup_timeout_s, "LOOKUP"
        )

    def _broker(self, answer: Any) -> BrokerAddress | _Question | PulsarSparkError:
        if isinstance(answer, PulsarSparkError):
            return answer
        url = answer.brokerServiceUrl or answer.brokerServiceUrlTls
        failed = pb.CommandLookupTopicResponse.Failed
        if not url or not answer.HasField("response") or answer.response == failed:
            return BrokerError(
                "The broker's answer to LOOKUP names no broker.", code="ServiceNotReady"
            )
        broker = _host_and_port(url)
        if broker is None:
            return _no_address(url)
        address = BrokerAddress(broker)
        if answer.proxy_through_service_url:
            service = self._pool.service_address()
            if service != broker:
                address = BrokerAddress(service, broker)
        if address.proxied is None and url.lower().startswith(_TLS_SCHEME):
            return _needs_tls(broker)
        if answer.response == pb.CommandLookupTopicResponse.Redirect:
            return _Question(address, answer.authoritative)
        return address

    def _ask_service(self, builds: Mapping[K, Any], what: str) -> dict[K, Any]:
        connection = self._service()
        if not isinstance(connection, Connection):
            return dict.fromkeys(builds, connection)
        sent = send_all({key: (connection, build) for key, build in builds.items()})
        return gather(sent, self._options.lookup_timeout_s, what)

    def _service(self) -> Connection | PulsarSparkError:
        try:
            return self._pool.service()
        except PulsarSparkError as error:
            return error

    def _retry(self) -> Retry:
        return Retry(self._options, self._options.lookup_timeout_s)


@dataclass(frozen=True)
class _Question:
    """A lookup to ask: of whom (None: the service URL), and with what authority."""

    address: BrokerAddress | None = None
    authoritative: bool = False


_Pending = tuple[Connection, Future[Any]]


def send_all(requests: Mapping[K, tuple[Connection, Request]]) -> dict[K, _Pending]:
    """Sends many requests, those for one broker together.

    Args:
        requests: Whom to ask, and what.
    """
    by_connection: dict[Connection, list[K]] = {}
    for key, (connection, _) in requests.items():
        by_connection.setdefault(connection, []).append(key)
    sent: dict[K, _Pending] = {}
    for connection, keys in by_connection.items():
        futures = connection.request_all([requests[key][1] for key in keys])
        sent.update(
            (key, (connection, future))
            for key, future in zip(keys, futures, strict=True)
        )
    return sent


def gather(
    futures: Mapping[K, _Pending | PulsarSparkError], timeout_s: float, what: str
) -> dict[K, Any]:
    """Waits for many replies together; gives a reply or an error for each.

    Args:
        futures: What was sent, or why it was not.
        timeout_s: Longest time without any reply, in seconds: thousands of topics that
            a broker has to load first take their time.
        what: Name of the request, for messages.
    """
    _await_all(
        [item[1] for item in futures.values() if isinstance(item, tuple)], timeout_s
    )
    answers: dict[K, Any] = {}
    for key, pending in futures.items():
        if isinstance(pending, PulsarSparkError):
            answers[key] = pending
            continue
        connection, future = pending
        if not future.done():
            answers[key] = connection.give_up(future, what, timeout_s)
        else:
            answers[key] = future.exception() or future.result()
    return answers


def _await_all(futures: Iterable[Future[Any]], timeout_s: float) -> None:
    """Waits until all are done, or none became so for ``timeout_s``."""
    futures = list(futures)
    step_s = timeout_s / _STEPS
    # The last reply most often comes last, and a wait for one is cheaper than for all.
    wait(futures[-1:], step_s)
    pending = {future for future in futures if not future.done()}
    silent_steps = int(len(pending) == len(futures))
    while pending and silent_steps < _STEPS:
        done, pending = wait(pending, step_s)
        silent_steps = 0 if done else silent_steps + 1


def _partition_count(topic: str, answer: Any) -> int | None | PulsarSparkError:
    if isinstance(answer, TopicNotFoundError):
        return None
    if isinstance(answer, BrokerError):
        return answer.about(topic)
    if isinstance(answer, PulsarSparkError):
        return answer
    if answer.partitions > _MAX_PARTITIONS:
        return ProtocolError(
            f"{topic}: the broker counts {answer.partitions:,} partitions. No topic "
            f"has more than {_MAX_PARTITIONS:,}."
        )
    return int(answer.partitions)


def _addresses(found: Iterable[object]) -> set[BrokerAddress]:
    return {one for one in found if isinstance(one, BrokerAddress)}


def _host_and_port(url: str) -> str | None:
    """The address in a broker's URL, None where there is none."""
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


def _needs_tls(broker: str) -> TransportError:
    error = TransportError(
        f"The broker {broker} serves this topic, and is to be spoken to by TLS only "
        f"({_TLS_SCHEME}), which is not supported yet by this version.",
        broker=broker,
    )
    error.retriable = False
    return error
