# SPDX-License-Identifier: Apache-2.0
"""Pulsar's admin REST, for the few facts that the binary protocol does not tell.

No command of the binary protocol lists the subscriptions of a topic, or the backlog of
each: CONSUMER_STATS is about one of the client's own consumers, and UNSUBSCRIBE needs
to be given the name. No read and no write needs this module.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import ssl
import urllib.request
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

from pulsar_spark.client.authentication import credential_provider
from pulsar_spark.client.credentials import obtain, without_secret
from pulsar_spark.client.http_calls import HttpLimits, HttpReply, call
from pulsar_spark.client.http_proxies import proxy_refusal, why_unreached
from pulsar_spark.errors import (
    AuthError,
    BrokerError,
    OptionError,
    ProtocolError,
    PulsarSparkError,
    TlsError,
    TopicNotFoundError,
    TransportError,
    foreign_text,
)
from pulsar_spark.options import ClientOptions
from pulsar_spark.topics import MAX_PARTITIONS, TopicName, is_segment
from spark_topics.client.resolving import is_here
from spark_topics.client.tls_context import context

#: Brokers send on to the one that has the topic; no cluster does that more often.
_MOST_REDIRECTS = 5

#: Calls at a time, where many topic partitions are asked about.
_AT_A_TIME = 8

#: Most bytes of an answer that are taken.
_MOST_BYTES = 64 << 20

_REDIRECTS = frozenset({301, 302, 307, 308})
_PASSING = frozenset({408, 429, 500, 502, 503, 504})


def check_admin_url(text: str) -> str:
    """Return the address of an admin REST without what follows the port.

    Raises:
        OptionError: It is none; says nothing of a user or a password in it.
    """
    url = text.strip()
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        fits = False
    if not fits or "@" in url or not all("!" <= c <= "~" for c in url):
        raise OptionError(
            "The address of the admin REST must be http://host:port or"
            " https://host:port, with nothing before the host."
        )
    return f"{parts.scheme}://{parts.netloc}"


@dataclass(frozen=True)
class SubscriptionStats:
    """A subscription of a topic partition, as shown by its broker.

    Attributes:
        topic_partition: Full name.
        name: The subscription's.
        backlog_entries: Stored entries after its cursor.
        consumers: How many are connected.
        is_durable: Whether it outlives them.
        properties: What its maker wrote down with it.
    """

    topic_partition: str
    name: str
    backlog_entries: int
    consumers: int
    is_durable: bool
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LedgerSize:
    """A ledger of a topic partition: a run of entries.

    Attributes:
        ledger_id: Its number.
        entries: How many it has.
        size_bytes: What they take, as stored.
    """

    ledger_id: int
    entries: int
    size_bytes: int


def _is_private(url: str) -> bool:
    """Return whether nobody on the network can read a request to an address."""
    parts = urlsplit(url)
    return parts.scheme == "https" or is_here(parts.hostname or "")


class Admin:
    """Asks brokers by HTTP. Each call is its own connection.

    Args:
        url: ``http://host:port`` or ``https://host:port``.
        options: Who asks, whom to trust, and how long to wait.
        may_be_plain: Whether a credential may go out by ``http://`` to other machines:
            only where brokers get the credential without TLS, too.

    Raises:
        OptionError: The URL is none, a credential would be readable on its way, or a
            certificate cannot be shown.
    """

    def __init__(
        self, url: str, options: ClientOptions, *, may_be_plain: bool = False
    ) -> None:
        self.url = check_admin_url(url)
        self._options = options
        self._credentials = credential_provider(options.authentication)
        self._may_be_plain = may_be_plain
        shows_certificate = options.authentication.method in ("tls", "keystore")
        if shows_certificate and not _is_private(self.url):
            raise OptionError(
                f"--admin-url {self.url}: by http:// no client certificate can be "
                "shown, which pulsar.client.authPluginClassName asks for. Use https://."
            )
        if self._exposes_credentials_to(self.url):
            raise OptionError(
                f"--admin-url {self.url}: by http:// a credential would be readable on "
                "its way. Use https://. Only where `service.url` begins with pulsar://,"
                " so that brokers get the credential without TLS, too, it goes out by "
                "http://."
            )

    def _exposes_credentials_to(self, url: str) -> bool:
        """Return whether a request would show a token or a password to the network."""
        credentials = self._credentials
        if credentials is None or credentials.method not in ("token", "basic"):
            return False
        return not (_is_private(url) or self._may_be_plain)

    # -- what there is -----------------------------------------------------------------

    def topic_partitions(self, namespace: str) -> list[str]:
        """Return the persistent topics of ``tenant/namespace``, each partition apart.

        Raises:
            PulsarSparkError: As `stats`.
        """
        return _names(self._get(f"persistent/{namespace}"))

    def partitions_of(self, topic: TopicName) -> list[str]:
        """Return the full names of a topic's partitions, or of the topic if none.

        Raises:
            PulsarSparkError: As `stats`.
        """
        if topic.partition_index is not None:
            return [topic.full_name]
        call = f"{_path(topic)}/partitions"
        answer = self._get(call, checkAllowAutoCreation="false")
        count = _count(_object(answer), "partitions")
        if count > MAX_PARTITIONS:
            raise ProtocolError(
                f"{topic.full_name}: the admin REST counts {count:,} partitions. No "
                f"topic has more than {MAX_PARTITIONS:,}."
            )
        return list(topic.partition_names(range(count))) or [topic.full_name]

    def subscriptions(
        self, topic_partitions: Iterable[str]
    ) -> dict[str, list[SubscriptionStats] | PulsarSparkError]:
        """Return the subscriptions of each topic partition, or an error.

        One that its topic counts but that no one has used yet does not exist: it has
        none.
        """
        return self._of_each(topic_partitions, self._subscriptions)

    def subscriptions_of_segments(
        self, topic: TopicName, names: Iterable[str]
    ) -> dict[str, list[SubscriptionStats] | PulsarSparkError]:
        """Return the subscriptions of each segment of a scalable topic, or an error.

        Brokers list the registered ones: on 5.0.1 until the registration is deleted, on
        5.0.0-M1 while their queries run. Others that are left on segments have to be
        named. Asks for the role of a superuser.

        Args:
            topic: The topic.
            names: Further names of subscriptions.

        Raises:
            PulsarSparkError: As `stats`.
        """
        stats = _object(self._get(f"{_path(topic)}/stats"))
        consumers = {
            foreign_text(str(name)): _connected(_object(registered))
            for name, registered in _object(stats.get("subscriptions", {})).items()
        }
        consumers = dict.fromkeys(names, 0) | consumers
        layout = _object(stats.get("layout", stats))  # 5.0.0-M1 has no layout there
        segments = [
            TopicName.parse(str(_object(segment).get("name"))).full_name
            for segment in _object(layout.get("segments", {})).values()
        ]

        def ask(segment: str) -> list[SubscriptionStats]:
            if not is_segment(segment):
                return self._subscriptions(segment)  # it was migrated
            return [
                SubscriptionStats(segment, name, backlog, count, is_durable=True)
                for name, count in consumers.items()
                if (backlog := self._backlog(segment, name)) is not None
            ]

        return self._of_each(segments, ask)

    def _backlog(self, segment: str, subscription: str) -> int | None:
        """Return the backlog of a subscription in a segment, None without a cursor."""
        call = f"{_path(TopicName.parse(segment))}/{_subscription(subscription)}"
        try:
            return _count({"backlog": self._get(f"{call}/backlog")}, "backlog")
        except TopicNotFoundError:
            return None

    def ledgers(
        self, topic_partitions: Iterable[str]
    ) -> dict[str, list[LedgerSize] | PulsarSparkError]:
        """Return the ledgers of each topic partition, or an error."""
        return self._of_each(topic_partitions, self._ledgers)

    def slow_transactions(self, older_than_ms: int) -> dict[str, Any]:
        """Return the cluster's open transactions by id, in the brokers' form.

        Args:
            older_than_ms: Milliseconds that they have been open for, at least.

        Raises:
            PulsarSparkError: As `stats`.
        """
        url = f"{self.url}/admin/v3/transactions/slowTransactions/{older_than_ms}"
        return _object(self._call("GET", url))

    def delete_subscription(self, topic_partition: str, name: str) -> None:
        """Delete a subscription that no consumer is connected to.

        The broker sees to that: it refuses where there is one at that moment.

        Raises:
            BrokerError: With the code ``ConsumerBusy`` where there is one.
            PulsarSparkError: As `stats`.
        """
        topic = TopicName.parse(topic_partition)
        call = f"{self.url}/admin/v2/{_path(topic)}/{_subscription(name)}"
        if not topic.is_segment:
            self._call("DELETE", f"{call}?force=false")
            return
        scalable = f"{_path(topic.base)}/subscriptions/{quote(name, safe='')}"
        # Most often it has ended; and not every release has this call.
        with contextlib.suppress(TopicNotFoundError, ProtocolError):
            self._call("DELETE", f"{self.url}/admin/v2/{scalable}")
        self._call("DELETE", call)

    def stats(self, topic_partition: str) -> dict[str, Any]:
        """Return a broker's statistics of a topic partition.

        Raises:
            TransportError: No one answers there.
            AuthError: We may not ask.
            TopicNotFoundError: It does not exist.
            BrokerError: The broker refuses.
        """
        return _object(self._get(f"{_path(TopicName.parse(topic_partition))}/stats"))

    def _subscriptions(self, topic_partition: str) -> list[SubscriptionStats]:
        try:
            stats = self.stats(topic_partition)
        except TopicNotFoundError:
            return []
        return [
            SubscriptionStats(
                topic_partition,
                foreign_text(str(name)),
                _count(subscription, "msgBacklog"),
                len(_list(subscription, "consumers")),
                bool(subscription.get("isDurable", subscription.get("durable", True))),
                {
                    foreign_text(str(key)): foreign_text(str(value))
                    for key, value in _object(
                        subscription.get("subscriptionProperties") or {}
                    ).items()
                },
            )
            for name, subscription in _object(stats.get("subscriptions", {})).items()
            if isinstance(subscription, dict)
        ]

    def _ledgers(self, topic_partition: str) -> list[LedgerSize]:
        topic = TopicName.parse(topic_partition)
        stats = _object(self._get(f"{_path(topic)}/internalStats"))
        ledgers = [
            LedgerSize(
                _count(ledger, "ledgerId"),
                _count(ledger, "entries"),
                _count(ledger, "size"),
            )
            for ledger in _list(stats, "ledgers")
            if isinstance(ledger, dict)
        ]
        if ledgers:  # of the one that is written to, only the total knows
            ledgers[-1] = LedgerSize(
                ledgers[-1].ledger_id,
                _count(stats, "currentLedgerEntries"),
                _count(stats, "currentLedgerSize"),
            )
        return ledgers

    def _of_each(self, names: Iterable[str], ask: Any) -> dict[str, Any]:
        def one(name: str) -> tuple[str, Any]:
            try:
                return name, ask(name)
            except PulsarSparkError as error:
                return name, error

        with ThreadPoolExecutor(_AT_A_TIME) as executor:
            return dict(executor.map(one, names))

    # -- one call ----------------------------------------------------------------------

    def _get(self, path: str, **query: str) -> Any:
        suffix = f"?{urlencode(query)}" if query else ""
        return self._call("GET", f"{self.url}/admin/v2/{path}{suffix}")

    def _call(self, method: str, url: str) -> Any:
        first, shown = url, self._credential()
        for _ in range(_MOST_REDIRECTS + 1):
            reply = self._ask(method, url, shown)
            refusal = proxy_refusal(url, reply.status)
            if refusal is not None:
                why, may_pass = refusal
                raise TransportError(f"{_of_admin(url)} {why}.", retriable=may_pass)
            if reply.status not in _REDIRECTS:
                return _answer(method, first, reply, shown)
            url = self._next(url, reply.location, shown)
        raise ProtocolError(
            f"{self.url} and the brokers that it names send each other on: more than "
            f"{_MOST_REDIRECTS} times. Correct the addresses that they advertise."
        )

    def _next(self, url: str, location: str, shown: bytes) -> str:
        """Return where a redirect leads: what proves who asks goes there, too."""
        allowed = ("https",) if url.startswith("https:") else ("http", "https")
        if _hidden(location, shown) != location:
            raise ProtocolError(
                f"{self.url} sends on to an address that repeats the credential which "
                "was shown to it: the redirect is not followed."
            )
        try:
            parts = urlsplit(urljoin(url, location))  # its scheme is in lower case
        except ValueError:
            raise ProtocolError(
                f"{self.url} sends on to what is no address: {foreign_text(location)}."
            ) from None
        target = parts.geturl()
        if parts.scheme not in allowed or "@" in target:
            raise ProtocolError(
                f"{self.url} sends on to an address that is not followed: "
                f"{_shown(target)}."
            )
        if self._exposes_credentials_to(target):
            raise ProtocolError(
                f"{self.url} sends on to {_shown(target)}, which is not followed: by "
                "http:// a credential would be readable on its way. Name an https:// "
                "address of the admin REST."
            )
        return target

    def _ask(self, method: str, url: str, shown: bytes) -> HttpReply:
        headers = self._headers(shown)
        request = urllib.request.Request(url, method=method, headers=headers)
        limit_s = self._options.operation_timeout_s
        trust = context(self._options.tls) if url.startswith("https:") else None
        try:
            return call(request, trust, HttpLimits(limit_s, limit_s, _MOST_BYTES))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._unreachable(url, error) from None

    def _credential(self) -> bytes:
        """Return the current credential; b"" for none."""
        if self._credentials is None:
            return b""
        limit_s = self._options.operation_timeout_s
        return obtain(self._credentials.data, self.url, limit_s)

    def _headers(self, shown: bytes) -> dict[str, str]:
        headers = {"Accept": "application/json"}
        if self._credentials is None:
            return headers
        if self._credentials.method == "token":
            headers["Authorization"] = f"Bearer {shown.decode()}"
        elif self._credentials.method == "basic":
            headers["Authorization"] = f"Basic {base64.b64encode(shown).decode()}"
        return headers

    def _unreachable(self, url: str, error: Exception) -> PulsarSparkError:
        cause = getattr(error, "reason", error)
        where = _of_admin(url)
        if isinstance(cause, ssl.SSLCertVerificationError):
            why = foreign_text(cause.verify_message)
            return TlsError(f"{where} shows a certificate that is not trusted: {why}.")
        if isinstance(cause, ssl.SSLError):
            return TlsError(
                f"{where} cannot be spoken to by TLS: {cause.reason}. Is it the port"
                " of https, usually 8443?"
            )
        if isinstance(cause, TimeoutError):
            why = f"does not answer within {self._options.operation_timeout_s:g} s"
        elif isinstance(cause, OSError):
            why, may_pass = why_unreached(url, cause)
            if not may_pass:
                return TransportError(f"{where} {why}.", retriable=False)
        else:
            why = f"gives no answer that can be read ({type(cause).__name__})"
        return TransportError(
            f"{where} {why}. Is it the HTTP port, usually 8080, or 8443 for https?"
        )


def _answer(method: str, url: str, reply: HttpReply, shown: bytes) -> Any:
    """Return the content of a reply, or raise its error without the credential."""
    status = reply.status
    if status in (200, 204, 404):
        try:
            content = json.loads(reply.body or b"null")
        except (ValueError, RecursionError):
            raise ProtocolError(
                f"{_shown(url)} answered something else than JSON. Is it a broker's "
                "HTTP port?"
            ) from None
        if status != 404:
            return content
    text = f"{method} {_shown(url)} was answered with {status}: {_reason(reply, shown)}"
    if status in (401, 403):
        raise AuthError(
            f"{text} The admin REST asks for a role that may do this: for statistics "
            "and subscriptions of a topic that is `consume` on it.",
            code="AuthenticationError" if status == 401 else "AuthorizationError",
        )
    if status == 404:
        raise TopicNotFoundError(text, code="TopicNotFound")
    if status == 412:
        raise BrokerError(text, code="ConsumerBusy", retriable=False)
    raise BrokerError(
        text, code="ServiceNotReady" if status in _PASSING else "UnknownError"
    )


def _reason(reply: HttpReply, shown: bytes) -> str:
    text = reply.body.decode(errors="replace")
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        text = str(json.loads(text)["reason"])  # a stack trace may come with it
    text = _hidden(text, shown)
    return foreign_text(text.strip().splitlines()[0] if text.strip() else "no reason")


def _hidden(text: str, shown: bytes) -> str:
    """Return a server's text without the credential, which the server may repeat."""
    for sent in (shown, base64.b64encode(shown)):
        text = without_secret(text, sent)
    return text


def _object(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, dict):
        raise ProtocolError("The admin REST answered something else than an object.")
    return answer


def _names(answer: Any) -> list[str]:
    if not isinstance(answer, list):
        raise ProtocolError("The admin REST answered something else than a list.")
    return [str(name) for name in answer]


def _connected(registered: dict[str, Any]) -> int:
    """Return how many consumers of a registered subscription are connected.

    Args:
        registered: The subscription in the statistics of a scalable topic: 5.0.1 lists
            its consumers, 5.0.0-M1 counts them.
    """
    consumers = registered.get("consumers")
    if not isinstance(consumers, list):
        return _count(registered, "consumerCount")
    return sum(_object(consumer).get("connected") is True for consumer in consumers)


def _count(fields: Mapping[str, Any], name: str) -> int:
    """Return a number of 0 or more; 0 where a reply does not have that field."""
    value = fields.get(name, 0)
    if type(value) is not int or value < 0:
        raise _wrong(name, "no number of 0 or more")
    return value


def _list(fields: Mapping[str, Any], name: str) -> list[Any]:
    """Return a list, empty if the reply lacks the field."""
    value = fields.get(name, [])
    if not isinstance(value, list):
        raise _wrong(name, "no list")
    return value


def _wrong(name: str, what: str) -> ProtocolError:
    return ProtocolError(
        f"The admin REST answered with `{name}` that is {what}. Is it a broker's HTTP "
        "port?"
    )


def _path(topic: TopicName) -> str:
    if topic.is_segment:
        name = quote(topic.base.local_name, safe="")
        return f"segments/{topic.namespace_name}/{name}/{topic.key}"
    kind = "scalable" if topic.is_scalable else "persistent"
    return f"{kind}/{topic.namespace_name}/{quote(topic.local_name, safe='')}"


def _subscription(name: str) -> str:
    return f"subscription/{quote(name, safe='')}"


def _of_admin(url: str) -> str:
    return f"The admin REST at {_shown(url)}"


def _shown(url: str) -> str:
    """Return a URL without parts that may be secret."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return foreign_text(f"{parts.scheme}://{host}{parts.path}")
