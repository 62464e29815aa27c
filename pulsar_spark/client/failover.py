# SPDX-License-Identifier: Apache-2.0
"""Which of several clusters to be at: the first one whose hosts answer.

::

    service.url      the one after it      ...     the last one
        |  no host of it answers  ^
        +-- for failoverDelayMs --+

It only goes forward: whoever begins anew asks ``service.url`` first. A host answers if
a connection to it comes about, up to the end of the handshake. One that refuses who
connects, or with which no connection is safe, does answer: that is an error, here of
whoever needs a connection.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from pulsar_spark.client.pool import ConnectionPool, shared_pool
from pulsar_spark.errors import PulsarSparkError, TransportError
from pulsar_spark.options import ClientOptions
from pulsar_spark.options.failover import NAME
from pulsar_spark.options.service_url import ServiceUrl
from spark_topics.client.retry import Retry

T = TypeVar("T")

logger = logging.getLogger("pulsar_spark.client")

#: Why a host did not answer, or None where it did.
_Answers = queue.SimpleQueue[Exception | None]

#: How long one host is waited for before the next one is asked beside it, at most, in
#: seconds: the last one gets half of the time.
_NEXT_HOST_S = 0.25

#: What a try to reach a cluster gets at least, and the longest pause between two, in
#: seconds.
_TRY_S = 1.0


class Clusters:
    """The cluster that an operation is at, and those that it may go to. For one thread.

    Args:
        options: With the cluster to begin with, and the others.
        new_pool: Returns the connections to a cluster.
        says: What going to another cluster means, as sentences, for the warning.
        arrive: Called with the connections to another cluster, before it goes there;
            may refuse.

    Attributes:
        options: With the cluster that it is at, and those that are left.
        pool: The connections to that cluster.
    """

    def __init__(
        self,
        options: ClientOptions,
        new_pool: Callable[[ClientOptions], ConnectionPool] = shared_pool,
        *,
        says: str = "",
        arrive: Callable[[ConnectionPool], None] = lambda pool: None,
    ) -> None:
        self.options = options
        self._new_pool = new_pool
        self._says = says
        self._arrive = arrive
        self._pools: dict[ServiceUrl, ConnectionPool] = {}
        self._left_behind: tuple[ServiceUrl, ...] = ()
        self._answered_at: float | None = None
        self.pool = self._pool(options.service_url)

    @classmethod
    def of(cls, pool: ConnectionPool) -> Clusters:
        """Return those of an operation that stays at one cluster."""
        return cls(replace(pool.options, failover=None), lambda _: pool)

    @property
    def is_alone(self) -> bool:
        """Return whether there never was a choice."""
        return self.options.failover is None

    @property
    def pools(self) -> Iterable[ConnectionPool]:
        """Return the connections to all clusters that were asked."""
        return self._pools.values()

    @property
    def longest_wait_s(self) -> float:
        """Return how long an answer that only ends something is worth waiting for."""
        longest_s = self.options.operation_timeout_s
        if self.options.failover is None:
            return longest_s
        return min(longest_s, self.options.failover.delay_s)

    def ask(self, work: Callable[[ConnectionPool], T]) -> T:
        """Do what asks a cluster, and anew at the next one where it is out of reach.

        Args:
            work: Gets the connections to the cluster.

        Raises:
            PulsarSparkError: As ``work``, or as ``settle``.
        """
        while True:
            try:
                return work(self.pool)
            except TransportError as error:
                if not error.retriable or not self.settle():
                    raise

    def settle(self, brokers: Sequence[str] = (), *, max_age_s: float = 0.0) -> bool:
        """Go to the next cluster that answers if this one has been silent for so long.

        Where none answers, all of them are asked for as long as a lookup may take. This
        one is asked once more when another one has answered: what was out of reach may
        have been everything.

        Args:
            brokers: ``host:port`` of further hosts of this cluster.
            max_age_s: How old the last answer may be to count, in seconds.

        Returns:
            Whether it is at another cluster now.

        Raises:
            TransportError: No cluster answers; says why for each.
            PulsarSparkError: Another cluster answers, and refuses.
        """
        failover, now = self.options.failover, time.monotonic()
        if failover is None:
            return False
        if self._answered_at is not None and now - self._answered_at < max_age_s:
            return False
        here = self.options.service_url
        reached_by = now + failover.delay_s
        retry = Retry(
            self.options.initial_backoff_s,
            min(self.options.max_backoff_s, _TRY_S),
            max(failover.delay_s, self.options.lookup_timeout_s),
        )
        while True:
            left_s = reached_by - time.monotonic()
            error = self._silence(here, left_s, brokers)
            if error is None:
                return False
            reasons = [f"{here}: {error.message}"]
            for other in failover.secondary if time.monotonic() >= reached_by else ():
                error = self._silence(other, failover.delay_s)
                if error is None:
                    # That may be because our own network, or this process, is back.
                    if self._silence(here, _TRY_S, brokers) is None:
                        return False
                    self._go(other)
                    return True
                reasons.append(f"{other}: {error.message}")
            retry.pause(self._unreached(reasons))

    def _silence(
        self, url: ServiceUrl, timeout_s: float, brokers: Sequence[str] = ()
    ) -> PulsarSparkError | None:
        """Return why no host of a cluster answers now, None where one does.

        Raises:
            PulsarSparkError: It is another cluster, and refuses.
        """
        pool = self._pool(url)
        hosts = list(dict.fromkeys([*pool.service_hosts, *brokers]))
        error = _first_answer(pool, hosts, max(timeout_s, _TRY_S))
        if error is None:
            self._answered_at = time.monotonic()
        elif not error.retriable:
            if url == self.options.service_url:
                # That is for whoever needs a connection: there may be one already.
                return None
            raise error.saying(
                f"{error.message} It was asked because {self.options.service_url}"
                " cannot be reached."
            )
        return error

    def _unreached(self, reasons: list[str]) -> TransportError:
        before = ""
        if self._left_behind:
            before = f" {' and '.join(map(str, self._left_behind))} could not before."
        return TransportError(
            f"No cluster can be reached, neither that of `service.url` nor those of"
            f" `{NAME}`: look whether their brokers are up.{before}"
            f" {' '.join(reasons)}"
        )

    def _go(self, url: ServiceUrl) -> None:
        """Be at another cluster from now on; those before it are done with."""
        pool = self._pool(url)
        self._arrive(pool)
        failover = self.options.failover
        assert failover is not None
        logger.warning(
            "%s cannot be reached for %g s: %s is used instead. %s",
            self.options.service_url,
            failover.delay_s,
            url,
            self._says,
        )
        place = failover.secondary.index(url)
        self._left_behind += (
            self.options.service_url,
            *failover.secondary[:place],
        )
        self.options = replace(
            self.options,
            service_url=url,
            failover=replace(failover, secondary=failover.secondary[place + 1 :]),
        )
        self.pool = pool

    def _pool(self, url: ServiceUrl) -> ConnectionPool:
        if url not in self._pools:
            self._pools[url] = self._new_pool(replace(self.options, service_url=url))
        return self._pools[url]


def _first_answer(
    pool: ConnectionPool, hosts: Sequence[str], timeout_s: float
) -> PulsarSparkError | None:
    """Connect to some hosts, one soon after the other, until one of them answers.

    Whoever has not answered in time is left alone: its thread ends by itself.

    Returns:
        Why none of them does; a refusal rather than silence.
    """
    answers: _Answers = queue.SimpleQueue()
    errors: list[PulsarSparkError] = []
    until = time.monotonic() + timeout_s
    next_host_s = min(_NEXT_HOST_S, timeout_s / (2 * len(hosts)))
    to_ask = deque(hosts)
    while len(errors) < len(hosts):
        if to_ask:
            _ask(pool, to_ask.popleft(), timeout_s, answers)
        left_s = max(0.0, until - time.monotonic())
        try:
            answer = answers.get(timeout=min(left_s, next_host_s) if to_ask else left_s)
        except queue.Empty:
            if to_ask or left_s:
                continue
            errors.append(TransportError(f"No answer came within {timeout_s:.3g} s."))
            break
        if answer is None:
            return None
        if not isinstance(answer, PulsarSparkError):
            raise answer
        errors.append(answer)
    refusals = [error for error in errors if not error.retriable]
    if refusals:
        return refusals[0]
    return TransportError(" ".join(error.message for error in errors))


def _ask(pool: ConnectionPool, host: str, timeout_s: float, answers: _Answers) -> None:
    """Connect to a host in a thread of its own, which puts what comes of it."""

    def ask() -> None:
        try:
            pool.probe(host, timeout_s)
        except Exception as error:
            answers.put(error)
        else:
            answers.put(None)

    threading.Thread(target=ask, name=f"pulsar-probe-{host}", daemon=True).start()
