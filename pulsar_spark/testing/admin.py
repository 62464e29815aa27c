# SPDX-License-Identifier: Apache-2.0
"""Pulsar's admin REST, as far as tests need the calls.

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

#: The status by which a broker answers that a topic is busy.
_BUSY = 422

#: How long a compaction may take, and the pause between two tries, in seconds.
_COMPACTION_S = 60.0
_PAUSE_S = 0.5


class AdminError(RuntimeError):
    """The broker refused an admin call.

    Attributes:
        status: HTTP status.
        reason: The words of the broker.
    """

    def __init__(self, call: str, status: int, reason: str) -> None:
        super().__init__(f"{call} was answered with {status}: {reason}")
        self.status = status
        self.reason = reason


class Admin:
    """Admin calls to one broker. Each call opens a connection.

    Args:
        admin_url: ``http://host:port``.
        timeout: Seconds for one call.
        token: Authenticates the calls; "" for none.
    """

    def __init__(
        self, admin_url: str, timeout: float = 120.0, *, token: str = ""
    ) -> None:
        self.admin_url = admin_url.rstrip("/")
        self._token = token
        self._timeout = timeout
        # Calls to loopback must not use a proxy of the environment.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    # -- broker ----------------------------------------------------------------------

    def version(self) -> str:
        """Return the release of the broker, such as ``4.0.7``."""
        return str(self._call("GET", "brokers/version")).strip('"')

    def healthy(self) -> bool:
        """Return whether the broker passes its own check, by writing and reading."""
        return bool(self._call("GET", "brokers/health") == "ok")

    def is_ready(self) -> bool:
        """Return whether the broker serves; unlike `healthy`, this moves no topic."""
        return bool(self._call("GET", "brokers/ready") == "ok")

    def configuration(self) -> dict[str, str]:
        """Return the settings that the broker runs with, defaults included."""
        settings = self._call("GET", "brokers/configuration/runtime")
        return cast("dict[str, str]", settings)

    def migrate(self, cluster: str, admin_url: str, service_url: str) -> None:
        """Mark a cluster as migrated to another cluster, for good."""
        urls = {"serviceUrl": admin_url, "brokerServiceUrl": service_url}
        self._call("POST", f"clusters/{cluster}/migrate", urls, migrated=True)

    def open_transactions(self, older_than_s: float = 0) -> dict[str, dict[str, Any]]:
        """Return the transactions that are open for longer, by id."""
        call = f"transactions/slowTransactions/{int(older_than_s * 1000)}"
        reply = self._open("GET", f"{self.admin_url}/admin/v3/{call}")
        return cast("dict[str, dict[str, Any]]", reply)

    def lookup(self, topic: str) -> str:
        """Return the service URL of the broker that serves a topic; loads the topic."""
        url = f"{self.admin_url}/lookup/v2/topic/{_path(topic)}"
        return str(self._open("GET", url)["brokerUrl"])

    # -- namespaces --------------------------------------------------------------------

    def namespaces(self, tenant: str) -> list[str]:
        """Return the namespaces of a tenant."""
        return _names(self._call("GET", f"namespaces/{tenant}"))

    def create_namespace(self, namespace: str, *, keep: bool = False) -> None:
        """Create a namespace.

        Args:
            namespace: ``tenant/namespace``.
            keep: Keep messages that no subscription asks for. By default a broker drops
                such messages as soon as their ledger is closed.
        """
        policies: dict[str, Any] = {"bundles": {"numBundles": 4}}
        if keep:
            # At once: a broker may know the namespace from before a change.
            policies["retention_policies"] = {
                "retentionTimeInMinutes": -1,
                "retentionSizeInMB": -1,
            }
        self._call("PUT", f"namespaces/{namespace}", policies)

    def delete_namespace(self, namespace: str, *, force: bool = False) -> None:
        """Delete a namespace; with ``force`` and its topics, where allowed."""
        self._call("DELETE", f"namespaces/{namespace}", force=force)

    def remove_namespace(self, namespace: str) -> None:
        """Delete the topics of a namespace, and then the namespace.

        A broker need not allow to delete a namespace together with its topics. While
        the broker compacts a system topic there, the deletion fails, and is repeated.
        """
        for topic in self.partitioned_topics(namespace):
            self.delete(topic, partitioned=True)
        for topic in self.topics(namespace):
            self.delete(topic)
        deadline = time.monotonic() + _COMPACTION_S
        while True:
            try:
                return self.delete_namespace(namespace)
            except AdminError as error:
                is_over = time.monotonic() > deadline
                if error.status != _BUSY or is_over:
                    raise
            time.sleep(_PAUSE_S)

    def set_retention(self, namespace: str, *, minutes: int, size_mb: int) -> None:
        """Set how long, and how many, acknowledged messages are kept.

        Args:
            namespace: ``tenant/namespace``.
            minutes: -1 for ever, 0 for not at all.
            size_mb: -1 for everything, 0 for nothing.
        """
        policy = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": size_mb}
        self._call("POST", f"namespaces/{namespace}/retention", policy)

    def set_deduplication(self, namespace: str, enabled: bool) -> None:
        """Set whether the broker drops messages that a producer sent before."""
        self._call("POST", f"namespaces/{namespace}/deduplication", enabled)

    def grant(self, subject: str, role: str, *actions: str) -> None:
        """Grant actions to a role, in place of what the role was allowed before.

        Args:
            subject: A namespace, or a topic.
            role: Name of the role.
            actions: ``produce``, ``consume``.
        """
        is_topic = "://" in subject
        path = _path(subject) if is_topic else f"namespaces/{subject}"
        self._call("POST", f"{path}/permissions/{role}", list(actions))

    def set_topic_policy(self, topic: str, policy: str, value: Any) -> None:
        """Set a policy of a topic: POST ``value`` as JSON to ``<topic>/<policy>``."""
        self._call("POST", f"{_path(topic)}/{policy}", value)

    def set_policy(self, namespace: str, policy: str, value: Any) -> None:
        """Set a policy of a namespace: POST to ``namespaces/<namespace>/<policy>``."""
        self._call("POST", f"namespaces/{namespace}/{policy}", value)

    def topics(self, namespace: str, *, system: bool = False) -> list[str]:
        """Return the persistent topics of a namespace, partitions as topics.

        Args:
            namespace: ``tenant/namespace``.
            system: Include the topics that brokers use for themselves.
        """
        call = f"persistent/{namespace}"
        return _names(self._call("GET", call, includeSystemTopic=system))

    def partitioned_topics(self, namespace: str) -> list[str]:
        """Return the partitioned topics of a namespace, without their partitions."""
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
        """Return the number of partitions, 0 for none. Creates nothing."""
        call = f"{_path(topic)}/partitions"
        answer = self._call("GET", call, checkAllowAutoCreation=False)
        return int(answer.get("partitions", 0))

    def delete(
        self, topic: str, *, partitioned: bool = False, force: bool = True
    ) -> None:
        """Delete a topic, or a partitioned topic with all partitions.

        Args:
            topic: Full name.
            partitioned: The topic has partitions.
            force: Delete the topic even while clients are connected.
        """
        suffix = "/partitions" if partitioned else ""
        self._call("DELETE", _path(topic) + suffix, force=force)

    def unload(self, topic: str) -> None:
        """Close a topic on its broker. The next lookup begins a new ledger."""
        self._call("PUT", f"{_path(topic)}/unload")

    def unload_namespace(self, namespace: str) -> None:
        """Close all topics of a namespace; lookups load them again."""
        self._call("PUT", f"namespaces/{namespace}/unload")

    def bundle(self, topic: str) -> str:
        """Return the bundle of a topic, such as ``0x00000000_0x40000000``."""
        url = f"{self.admin_url}/lookup/v2/topic/{_path(topic)}/bundle"
        return str(self._open("GET", url))

    def unload_bundle(self, topic: str, to: str = "") -> None:
        """Close all topics of the bundle of a topic.

        Args:
            topic: Full name.
            to: ``host:port`` of the web service of the next broker; "" for any broker.
        """
        namespace = "/".join(topic.partition("://")[2].split("/")[:2])
        query = {"destinationBroker": to} if to else {}
        self._call(
            "PUT", f"namespaces/{namespace}/{self.bundle(topic)}/unload", **query
        )

    def terminate(self, topic: str) -> str:
        """Terminate a topic: no more messages. Returns the last ``ledger:entry``."""
        last = self._call("POST", f"{_path(topic)}/terminate")
        return f"{last['ledgerId']}:{last['entryId']}"

    def trim(self, topic: str) -> None:
        """Drop now the closed ledgers that retention and subscriptions release."""
        self._call("POST", f"{_path(topic)}/trim")

    def compact(self, topic: str, timeout: float = 300.0) -> None:
        """Compact a topic, and wait for the end.

        Args:
            topic: Full name.
            timeout: Seconds to wait.

        Raises:
            TimeoutError: Compaction still ran after the timeout.
            AdminError: Compaction failed.
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
        """Return the names of the subscriptions, sorted."""
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
        """Move a subscription past some messages; None for all messages."""
        call = f"{_path(topic)}/subscription/{quote(subscription, safe='')}"
        if messages is None:
            self._call("POST", f"{call}/skip_all")
        else:
            self._call("POST", f"{call}/skip/{messages}")

    def expire(self, topic: str, subscription: str, older_than_s: int) -> None:
        """Move a subscription past older messages; the broker does so in a while."""
        call = f"{_path(topic)}/subscription/{quote(subscription, safe='')}"
        self._call("POST", f"{call}/expireMessages/{older_than_s}")

    def stats(self, topic: str) -> dict[str, Any]:
        """Return the statistics of a topic or a partition."""
        return cast("dict[str, Any]", self._call("GET", f"{_path(topic)}/stats"))

    def internal_stats(self, topic: str) -> dict[str, Any]:
        """Return the ledgers and cursors of a topic or a partition."""
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
            topic: Full name.
            kind: ``AVRO``, ``JSON``, ``STRING``, ...
            definition: Text of the schema, "" for a primitive schema.
            properties: Properties of the schema.

        Raises:
            AdminError: The schema is wrong, or not compatible with the last version.
        """
        path = _path(topic).partition("/")[2]
        schema = {"type": kind, "schema": definition, "properties": properties or {}}
        answer = self._call("POST", f"schemas/{path}/schema", schema)
        return int(answer["version"]["version"])

    def schema(self, topic: str) -> dict[str, Any]:
        """Return the latest schema of a topic: its ``type``, ``data`` and more."""
        path = _path(topic).partition("/")[2]
        schema: dict[str, Any] = self._call("GET", f"schemas/{path}/schema")
        return schema

    def delete_schema(self, topic: str) -> None:
        """Mark the schemas of a topic as deleted."""
        self._call("DELETE", f"schemas/{_path(topic).partition('/')[2]}/schema")

    def schema_versions(self, topic: str) -> int:
        """Return the number of schema versions of a topic, 0 for none."""
        path = _path(topic).partition("/")[2]
        try:
            reply = self._call("GET", f"schemas/{path}/schemas")
        except AdminError as error:
            if error.status != 404:
                raise
            return 0
        return len(reply.get("getSchemaResponses", []))

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
