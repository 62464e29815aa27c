# SPDX-License-Identifier: Apache-2.0
"""Choose the cluster of a batch read, a write or a micro-batch, before the work begins.

::

    service.url     secondary[0]     ...     secondary[-1]
        |  no host answers  ^
        +-- for failoverDelayMs --+

The driver chooses once for all tasks. The work then stays with that cluster, and the
next operation asks ``service.url`` first again. A host answers if a connection to the
host gets through the handshake. A host that rejects the credentials or the certificate
answers, too: the next request that needs a connection raises that error.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from pulsar_spark.client.credentials import is_without_credential
from pulsar_spark.client.pool import ConnectionPool, shared_pool
from pulsar_spark.errors import PulsarSparkError, TransportError
from pulsar_spark.options import ClientOptions
from pulsar_spark.options.failover import NAME
from pulsar_spark.options.service_url import ServiceUrl
from spark_topics.client.retry import Retry

logger = logging.getLogger("pulsar_spark.client")

#: The outcome of each probe: None for an answer, else the error.
_Outcomes = queue.SimpleQueue[Exception | None]

#: Longest wait for the answer of a host before the next host is asked as well, in
#: seconds. The last host gets at least half of the time.
_NEXT_HOST_S = 0.25


def choose_cluster(options: ClientOptions, consequence: str) -> ClientOptions:
    """Return the options of the first cluster that answers, without a further choice.

    Where no cluster answers, all clusters are asked again for as long as a lookup may
    take. The first cluster gets a last chance when another cluster answers: the network
    of this machine may just have come back.

    Args:
        options: With ``service_url`` and, in ``failover``, the other clusters.
        consequence: What the use of another cluster means, as sentences of the warning.

    Raises:
        AuthError: There is no credential to show to any cluster.
        TransportError: No cluster answers. The message has the reason of each.
        PulsarSparkError: Another cluster rejects the connection.
    """
    failover = options.failover
    if failover is None:
        return options
    first = options.service_url
    until = time.monotonic() + failover.delay_s
    retry = Retry(
        options.initial_backoff_s,
        min(options.max_backoff_s, options.patience.cluster_s),
        max(failover.delay_s, options.lookup_timeout_s),
    )
    while True:
        error = _probe_first(options, until - time.monotonic())
        if error is None:
            return _at(options, first)
        errors = [(first, error)]
        for other in failover.secondary if time.monotonic() >= until else ():
            error = _probe_other(options, other, failover.delay_s)
            if error is None:
                if _probe_first(options, options.patience.cluster_s) is None:
                    return _at(options, first)
                logger.warning(
                    "%s cannot be reached for %g s: %s is used instead. %s",
                    first,
                    failover.delay_s,
                    other,
                    consequence,
                )
                return _at(options, other)
            errors.append((other, error))
        if not all(is_without_credential(reason) for _, reason in errors):
            reasons = " ".join(f"{url}: {reason.message}" for url, reason in errors)
            error = TransportError(
                "No cluster can be reached, neither that of `service.url` nor those of"
                f" `{NAME}`: check that their brokers are up. {reasons}"
            )
        retry.pause(error)


def _at(options: ClientOptions, url: ServiceUrl) -> ClientOptions:
    return replace(options, service_url=url, failover=None)


def _probe_first(options: ClientOptions, timeout_s: float) -> PulsarSparkError | None:
    """Return why the first cluster does not answer; None for an answer or a refusal."""
    error = _probe(options, options.service_url, timeout_s)
    return error if error is not None and error.retriable else None


def _probe_other(
    options: ClientOptions, url: ServiceUrl, timeout_s: float
) -> PulsarSparkError | None:
    """Return why another cluster does not answer; None for an answer.

    Raises:
        PulsarSparkError: The cluster rejects the connection.
    """
    error = _probe(options, url, timeout_s)
    if error is not None and not error.retriable:
        raise error.saying(
            f"{error.message} This cluster was asked because {options.service_url}"
            " cannot be reached."
        )
    return error


def _probe(
    options: ClientOptions, url: ServiceUrl, timeout_s: float
) -> PulsarSparkError | None:
    pool = shared_pool(_at(options, url))
    timeout_s = max(timeout_s, options.patience.cluster_s)
    return _first_answer(pool, list(pool.service_hosts), timeout_s)


def _first_answer(
    pool: ConnectionPool, hosts: Sequence[str], timeout_s: float
) -> PulsarSparkError | None:
    """Connect to hosts, shortly one after another, until the first host answers.

    A probe that takes longer than the timeout is abandoned: its thread ends when the
    connection attempt ends.

    Returns:
        None for an answer, else the error: a refusal rather than silence.
    """
    outcomes: _Outcomes = queue.SimpleQueue()
    errors: list[PulsarSparkError] = []
    until = time.monotonic() + timeout_s
    next_host_s = min(_NEXT_HOST_S, timeout_s / (2 * len(hosts)))
    to_ask = deque(hosts)
    while len(errors) < len(hosts):
        if to_ask:
            _ask(pool, to_ask.popleft(), timeout_s, outcomes)
        left_s = max(0.0, until - time.monotonic())
        wait_s = min(left_s, next_host_s) if to_ask else left_s
        try:
            outcome = outcomes.get(timeout=wait_s)
        except queue.Empty:
            if to_ask or left_s:
                continue
            errors.append(TransportError(f"No answer came within {timeout_s:.3g} s."))
            break
        if outcome is None:
            return None
        if not isinstance(outcome, PulsarSparkError):
            raise outcome
        errors.append(outcome)
    for error in errors:
        if not error.retriable:
            return error
    if all(map(is_without_credential, errors)):
        return errors[0]
    return TransportError(" ".join(error.message for error in errors))


def _ask(
    pool: ConnectionPool, host: str, timeout_s: float, outcomes: _Outcomes
) -> None:
    """Connect to a host in a separate thread, and queue the outcome."""

    def ask() -> None:
        try:
            pool.probe(host, timeout_s)
        except Exception as error:
            outcomes.put(error)
        else:
            outcomes.put(None)

    threading.Thread(target=ask, name=f"pulsar-probe-{host}", daemon=True).start()
