# SPDX-License-Identifier: Apache-2.0
"""Pulsar's admin REST calls that the tests need, over the standard library.

Topics are full names, ``persistent://tenant/namespace/topic``; namespaces are
``tenant/namespace``.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from typing import Any, cast
from urllib.parse import quote, urlencode


class AdminError(RuntimeError):
    """The broker refused an admin call.

    Attributes:
        status: HTTP status.
        reason: The broker's own words.
    """

    def __init__(self, call: str, status: int, reason: str) -> None:
        super().__init__(f"{call} was answered with {status}: {reason}")
        self.status = status
        self.reason = reason


class Admin:
    """Admin calls to one broker. Each call is a connection of its own.

    Args:
        admin_url: ``http://host:port``.
        timeout: Seconds for one call.
        token: Proves who calls, where the broker asks; "" for nothing.
    """

    def __init__(
        self, admin_url: str, timeout: float = 120.0, *, token: str = ""
    ) -> None:
        self.admin_url = admin_url.rstrip("/")
        self._token = token
        self._timeout = timeout
        # Loopback must not go through a proxy that the environment may name.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    # -- broker ----------------------------------------------------------------------

    def version(self) -> str:
        """The broker's release, such as ``4.0.7``."""
        return str(self._call("GET", "brokers/version")).strip('"')

    def healthy(self) -> bool:
        """Whether the broker passes its own check: a message written and read back."""
        return bool(self._call("GET", "brokers/health") == "ok")

    def is_ready(self) -> bool:
        """Whether it serves; other than ``healthy``, this moves no topic."""
        return bool(self._call("GET", "brokers/ready") == "ok")

    def configuration(self) -> dict[str, str]:
        """The settings that the broker runs with, defaults included, as texts."""
        settings = self._call("GET", "brokers/configuration/runtime")
        return cast("dict[str, str]", settings)

    def migrate(self, cluster: str, admin_url: str, service_url: str) -> None:
        """Mark a cluster as migrated to another one; there is no way back."""
        urls = {"serviceUrl": admin_url, "brokerServiceUrl": service_url}
        self._call("POST", f"clusters/{cluster}/migrate", urls, migrated=True)

    def open_transactions(self, older_than_s: float = 0) -> dict[str, dict[str, Any]]:
        """What coordinators know of transactions that are open for so long, by id."""
        call = f"transactions/slowTransactions/{int(older_than_s * 1000)}"
        found = self._open("GET", f"{self.admin_url}/admin/v3/{call}")
        return cast("dict[str, dict[str, Any]]", found)

    def lookup(self, topic: str) -> str:
        """Service URL of the broker that serves a topic; a broker takes it over."""
        url = f"{self.admin_url}/lookup/v2/topic/{_path(topic)}"
        return str(self._open("GET", url)["brokerUrl"])

    # -- namespaces --------------------------------------------------------------------

    def namespaces(self, tenant: str) -> list[str]:
        """Namespaces of a tenant."""
        return _names(self._call("GET", f"namespaces/{tenant}"))

    def create_namespace(self, namespace: str, *, keep: bool = False) -> None:
        """Create a namespace.

        Args:
            namespace: Its name.
            keep: Keep rows that no subscription asks for. Without it the broker drops
                them as soon as their ledger is closed, its default.
        """
        policies: dict[str, Any] = {"bundles": {"numBundles": 4}}
        if keep:
            # At once: who loads a topic may know the namespace from before a change.
            policies["retention_policies"] = {
                "retentionTimeInMinutes": -1,
                "retentionSizeInMB": -1,
            }
        self._call("PUT", f"namespaces/{namespace}", policies)

    def delete_namespace(self, namespace: str, *, force: bool = False) -> None:
        """Delete a namespace; ``force`` deletes its topics, too, where allowed."""
        self._call("DELETE", f"namespaces/{namespace}", force=force)

    def set_retention(self, namespace: str, *, minutes: int, size_mb: int) -> None:
        """How long, and how much of, what all subscriptions acknowledged is kept.

        Args:
            namespace: Its name.
            minutes: -1 for ever, 0 for not at all.
            size_mb: -1 for everything, 0 for nothing.
        """
        policy = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": size_mb}
        self._call("POST", f"namespaces/{namespace}/retention", policy)

    def set_deduplication(self, namespace: str, enabled: bool) -> None:
        """Whether the broker drops messages that a producer sent before."""
        self._call("POST", f"namespaces/{namespace}/deduplication", enabled)

    def grant(self, subject: str, role: str, *actions: str) -> None:
        """Let a role do something: ``produce``, ``consume``.

        Args:
            subject: A namespace, or a topic.
            role: Who.
            actions: What; nothing else is allowed any more.
        """
        is_topic = "://" in subject
        path = _path(subject) if is_topic else f"namespaces/{subject}"
        self._call("POST", f"{path}/permissions/{role}", list(actions))

    def set_topic_policy(self, topic: str, policy: str, value: Any) -> None:
        """A policy of one topic: POST ``value`` as JSON to ``<topic>/<policy>``."""
        self._call("POST", f"{_path(topic)}/{policy}", value)

    def set_policy(self, namespace: str, policy: str, value: Any) -> None:
        """Any other policy: POST ``value`` as JSON to ``namespaces/<ns>/<policy>``."""
        self._call("POST", f"namespaces/{namespace}/{policy}", value)

    def topics(self, namespace: str, *, system: bool = False) -> list[str]:
        """Persistent topics of a namespace, each partition by itself.

        Args:
            namespace: Its name.
            system: With the topics that the broker keeps for itself.
        """
        call = f"persistent/{namespace}"
        return _names(self._call("GET", call, includeSystemTopic=system))

    def partitioned_topics(self, namespace: str) -> list[str]:
        """Partitioned topics of a namespace, without their partitions."""
        return _names(self._call("GET", f"persistent/{namespace}/partitioned"))

    # -- topics ------------------------------------------------------------------------

    def create_topic(self, topic: str) -> None:
        """Create a topic without partitions."""
        self._call("PUT", _path(topic))

    def create_partitioned(self, topic: str, partitions: int) -> None:
        """Create a partitioned topic and its partitions."""
        self._call("PUT", f"{_path(topic)}/partitions", partitions)

    def update_partitions(self, topic: str, partitions: int) -> None:
        """Raise the number of partitions."""
        self._call("POST", f"{_path(topic)}/partitions", partitions)

    def partitions(self, topic: str) -> int:
        """Number of partitions, 0 for a topic without. Creates nothing."""
        call = f"{_path(topic)}/partitions"
        answer = self._call("GET", call, checkAllowAutoCreation=False)
        return int(answer.get("partitions", 0))

    def delete(
        self, topic: str, *, partitioned: bool = False, force: bool = True
    ) -> None:
        """Delete a topic, or a partitioned topic with all partitions.

        Args:
            topic: Its name.
            partitioned: The topic has partitions.
            force: Even while clients are connected to it.
        """
        suffix = "/partitions" if partitioned else ""
        self._call("DELETE", _path(topic) + suffix, force=force)

    def unload(self, topic: str) -> None:
        """Close a topic on its broker. Clients look it up anew; a new ledger begins."""
        self._call("PUT", f"{_path(topic)}/unload")

    def unload_namespace(self, namespace: str) -> None:
        """Let the broker give away all topics; it takes them back when looked up."""
        self._call("PUT", f"namespaces/{namespace}/unload")

    def bundle(self, topic: str) -> str:
        """The bundle of its namespace that a topic is in, ``0x00000000_0x40000000``."""
        url = f"{self.admin_url}/lookup/v2/topic/{_path(topic)}/bundle"
        return str(self._open("GET", url))

    def unload_bundle(self, topic: str, to: str = "") -> None:
        """Let the broker give away the topics of a topic's bundle.

        Args:
            topic: Its name.
            to: ``host:port`` of the broker's web service that takes them, or any.
        """
        namespace = "/".join(topic.partition("://")[2].split("/")[:2])
        query = {"destinationBroker": to} if to else {}
        self._call(
            "PUT", f"namespaces/{namespace}/{self.bundle(topic)}/unload", **query
        )

    def terminate(self, topic: str) -> str:
        """End a topic for good: no more messages. Returns its last ``ledger:entry``."""
        last = self._call("POST", f"{_path(topic)}/terminate")
        return f"{last['ledgerId']}:{last['entryId']}"

    def trim(self, topic: str) -> None:
        """Drop, now, the closed ledgers that retention and subscriptions release."""
        self._call("POST", f"{_path(topic)}/trim")

    def compact(self, topic: str, timeout: float = 300.0) -> None:
        """Compact a topic and wait for the end of it.

        Args:
            topic: Its name.
            timeout: Seconds to wait.

        Raises:
            TimeoutError: It still ran after that.
            AdminError: It failed.
        """
        call = f"{_path(topic)}/compaction"
        self._call("PUT", call)
        deadline = time.monotonic() + timeout
        while (status := self._call("GET", call))["status"] == "RUNNING":
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} is not compacted after {timeout} s")
            time.sleep(0.05)
        if status["status"] != "SUCCESS":
            raise AdminError(call, 200, str(status))

    def subscriptions(self, topic: str) -> list[str]:
        """Names of the subscriptions, sorted."""
        return sorted(_names(self._call("GET", f"{_path(topic)}/subscriptions")))

    def create_subscription(
        self, topic: str, subscription: str, position: str = "earliest"
    ) -> None:
        """Create a durable subscription at ``earliest`` or ``latest``."""
        call = f"{_path(topic)}/subscription/{quote(subscription, safe='')}"
        ends = {"earliest": -1, "latest": 2**63 - 1}  # MessageId.earliest, .latest
        start = {"ledgerId": ends[position], "entryId": ends[position]}
        self._call("PUT", call, start)

    def delete_subscription(
        self, topic: str, subscription: str, *, force: bool = True
    ) -> None:
        """Delete a subscription, with ``force`` even while a consumer is connected."""
        call = f"{_path(topic)}/subscription/{quote(subscription, safe='')}"
        self._call("DELETE", call, force=force)

    def skip(self, topic: str, subscription: str, messages: int | None = None) -> None:
        """Move a subscription on, past so many messages, or None for all of them."""
        call = f"{_path(topic)}/subscription/{quote(subscription, safe='')}"
        if messages is None:
            self._call("POST", f"{call}/skip_all")
        else:
            self._call("POST", f"{call}/skip/{messages}")

    def expire(self, topic: str, subscription: str, older_than_s: int) -> None:
        """Move a subscription past all messages that are older; done in a while."""
        call = f"{_path(topic)}/subscription/{quote(subscription, safe='')}"
        self._call("POST", f"{call}/expireMessages/{older_than_s}")

    def stats(self, topic: str) -> dict[str, Any]:
        """The broker's figures of a topic or a partition."""
        return cast("dict[str, Any]", self._call("GET", f"{_path(topic)}/stats"))

    def internal_stats(self, topic: str) -> dict[str, Any]:
        """Ledgers and cursors of a topic or a partition."""
        return cast(
            "dict[str, Any]", self._call("GET", f"{_path(topic)}/internalStats")
        )

    def add_schema(
        self,
        topic: str,
        kind: str,
        definition: str,
        properties: dict[str, str] | None = None,
    ) -> int:
        """Register a schema, and return its version.

        Args:
            topic: Its name.
            kind: ``AVRO``, ``JSON``, ``STRING``, ...
            definition: What the kind calls its schema, "" for a primitive one.
            properties: What is kept with it.

        Raises:
            AdminError: The schema is wrong, or not compatible with the last one.
        """
        path = _path(topic).partition("/")[2]
        schema = {"type": kind, "schema": definition, "properties": properties or {}}
        answer = self._call("POST", f"schemas/{path}/schema", schema)
        return int(answer["version"]["version"])

    def schema(self, topic: str) -> dict[str, Any]:
        """Return the latest schema of a topic: its ``type``, ``data`` and more."""
        path = _path(topic).partition("/")[2]
        found: dict[str, Any] = self._call("GET", f"schemas/{path}/schema")
        return found

    def delete_schema(self, topic: str) -> None:
        """Mark the schemas of a topic as deleted: no version is found any more."""
        self._call("DELETE", f"schemas/{_path(topic).partition('/')[2]}/schema")

    def schema_versions(self, topic: str) -> int:
        """Number of the schemas of a topic that can be found; 0 for none."""
        path = _path(topic).partition("/")[2]
        try:
            found = self._call("GET", f"schemas/{path}/schemas")
        except AdminError as error:
            if error.status != 404:
                raise
            return 0
        return len(found.get("getSchemaResponses", []))

    # -- one call ----------------------------------------------------------------------

    def _call(
        self, method: str, path: str, body: Any = None, **query: bool | str
    ) -> Any:
        url = f"{self.admin_url}/admin/v2/{path}"
        if query:
            url += "?" + urlencode({k: str(v).lower() for k, v in query.items()})
        return self._open(method, url, body)

    def _open(self, method: str, url: str, body: Any = None) -> Any:
        request = urllib.request.Request(url, method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
        if method != "GET":
            request.add_header("Content-Type", "application/json")
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with self._opener.open(request, timeout=self._timeout) as response:
                answer = response.read().decode()
        except urllib.error.HTTPError as error:
            if error.code == 307:  # to the broker that can; urllib follows GET only
                error.close()
                return self._open(method, error.headers["Location"], body)
            with error:
                reason = error.read().decode(errors="replace")
            raise AdminError(f"{method} {url}", error.code, _reason(reason)) from None
        try:
            return json.loads(answer)
        except json.JSONDecodeError:
            return answer


def _path(topic: str) -> str:
    domain, _, rest = topic.partition("://")
    tenant, namespace, name = rest.split("/", 2)
    return f"{domain}/{tenant}/{namespace}/{quote(name, safe='')}"


def _reason(body: str) -> str:
    try:
        return str(json.loads(body)["reason"])[:500]  # may hold a stack trace
    except (ValueError, KeyError, TypeError):
        return body[:500]


def _names(answer: Any) -> list[str]:
    return [str(name) for name in answer]
