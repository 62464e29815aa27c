# SPDX-License-Identifier: Apache-2.0
"""The page of options: by theme, with a heading for each option to link to."""

from __future__ import annotations

from typing import Any

from pulsar_spark.options import OPTIONS, options_table_markdown
from spark_topics.options.spec import OptionSpec

#: The options of each theme, in the order of the page; a star stands for the rest of a
#: name, and for those that no row before has.
THEMES = {
    "Connect": (
        "service.url",
        "pulsar.client.listenerName",
        "pulsar.client.serviceUrlProvider",
        "pulsar.client.proxy*",
    ),
    "What to read": (
        "topic",
        "topics",
        "topicsPattern",
        "waitingForNonExistedTopic",
        "topicWaitTimeoutMs",
        "pulsar.reader.readCompacted",
    ),
    "Where to begin and to end": (
        "starting*",
        "ending*",
        "failOnDataLoss",
        "failOnUnreachedEnd",
    ),
    "Columns and schemas": (
        "metadataColumns",
        "mode",
        "columnNameOfCorruptRecord",
        "schemaVersion",
        "schemaEvolution",
        "allowDifferentTopicSchemas",
        "jsonBytes",
        "timeZone",
    ),
    "Tasks of a read": (
        "minPartitions",
        "maxPartitions",
        "maxRecordsPerPartition",
        "filterPushdown",
    ),
    "Streams": (
        "max*PerTrigger",
        "minRowsPerTrigger",
        "maxTriggerDelay",
        "partitionDiscoveryIntervalMs",
        "orderByKey",
        "lagAgeIntervalMs",
        "subscriptionPrefix",
        "predefinedSubscription",
        "ackOnCommit",
        "deleteSubscriptionOnStop",
        "pulsar.consumer.*Subscription*",
        "pulsar.consumer.subscriptionProperties",
    ),
    "Write": (
        "deliveryGuarantee",
        "idempotenceId",
        "transactionTimeoutMs",
        "commitTopic",
        "schemaType",
        "schemaTopic",
        "keyValueEncodingType",
        "topicAutoCreation",
        "checkpointLocation",
        "queryName",
        "pulsar.producer.batch*",
        "pulsar.producer.compressionType",
        "pulsar.producer.chunk*",
        "pulsar.producer.messageRoutingMode",
        "pulsar.producer.hashingScheme",
        "pulsar.producer.keyEncoding",
        "pulsar.producer.sendTimeoutMs",
        "pulsar.producer.accessMode",
        "pulsar.producer.producerName",
        "pulsar.producer.initialSequenceId",
        "pulsar.producer.properties",
    ),
    "Security": (
        "pulsar.client.auth*",
        "pulsar.client.useTls",
        "pulsar.client.tls*",
        "pulsar.client.useKeyStoreTls",
        "encryption.*",
        "pulsar.reader.cryptoFailureAction",
        "pulsar.producer.cryptoFailureAction",
    ),
    "Time, memory and names": ("*",),
}


def options_page() -> str:
    """Write all options as Markdown, by theme, and the lists of those without a row."""
    parts = []
    for theme, specs in by_theme().items():
        parts.append(f"## {theme}")
        parts += [_entry(spec) for spec in specs]
    _, lists = options_table_markdown().split("\n\n", 1)
    parts.append(f"## Names without effect\n\n{lists.strip()}")
    return "\n\n".join(parts) + "\n"


def by_theme() -> dict[str, list[OptionSpec[Any]]]:
    """Return the options of each theme; each option is in the first that names it."""
    left = {spec.name: spec for spec in OPTIONS if spec.available}
    themes: dict[str, list[OptionSpec[Any]]] = {}
    for theme, patterns in THEMES.items():
        names = [
            name for pattern in patterns for name in left if _matches(name, pattern)
        ]
        themes[theme] = [left.pop(name) for name in dict.fromkeys(names)]
    return themes


def _matches(name: str, pattern: str) -> bool:
    before, star, after = pattern.partition("*")
    if not star:
        return name == pattern
    return name.startswith(before) and after.rstrip("*") in name[len(before) :]


def _entry(spec: OptionSpec[Any]) -> str:
    scope = spec.scope_text
    facts = [scope[0].upper() + scope[1:]]
    facts.append(f"default `{spec.default}`" if spec.default else "no default")
    if spec.aliases:
        facts.append("also " + ", ".join(f"`{alias}`" for alias in spec.aliases))
    return f"### `{spec.name}`\n\n*{'; '.join(facts)}.* {spec.doc}"
