# SPDX-License-Identifier: Apache-2.0
"""``subscriptions``: find what queries left on topics, and delete the unneeded.

A subscription that no one reads any more keeps its topic from being trimmed, until a
quota holds producers back. Names tell who made one::

    spark-pulsar-<uuid>                      a stream of ours; its checkpoint has it
    spark-pulsar-commits                     the log of an exactly-once stream of ours
    spark-pulsar-<uuid>[-<hash>]-<topic>     a stream of the Scala connector
    spark-pulsar-<uuid>[-<hash>]-<uuid>      a task of an old one
    spark-pulsar-batch-<uuid>[-...]          a batch read of it
    <subscriptionPrefix>-<topic>             its streams that were given a prefix
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pulsar_spark.cli.admin import Admin, SubscriptionStats
from pulsar_spark.cli.arguments import (
    DONE,
    FAILED,
    add_execute,
    add_options,
    admin_only,
    subscription_prefix,
    topic_names,
)
from pulsar_spark.cli.output import complain, say, show_json, table
from pulsar_spark.cli.spark_files import Checkpoint
from pulsar_spark.errors import BrokerError, OptionError, PulsarSparkError
from pulsar_spark.source.stream.made_by import APPLICATION, HOST, USER
from pulsar_spark.topics import TopicName, compile_topics_pattern

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TOPIC = r"(?:non-)?persistent://.+"

#: Who made a subscription, by its name.
STREAM, LOG, SCALA, SCALA_BATCH = "stream", "commit log", "Scala stream", "Scala batch"


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "subscriptions",
        help="list the subscriptions that queries left on topics, and delete them",
        description="List the durable subscriptions that streams of this connector and"
        " of the Scala\nconnector have left on topics, with their backlog, and delete"
        " those not needed.\n\nThe list comes from the admin REST: no command of the"
        " binary protocol lists the\nsubscriptions of a topic (CONSUMER_STATS knows"
        " only a consumer of one's own).\nIt asks for the role that may consume from"
        " the topics.\n\nA subscription of a query that is paused looks like one that"
        " was left behind: what\nit protects may be trimmed as soon as it is deleted."
        " So --delete --yes wants to\nknow which queries are to go on (--checkpoint,"
        " repeated), or which subscriptions\nare meant (--name), or that no query is"
        " to go on at all (--no-checkpoint). Never\ndeleted are subscriptions with a"
        " connected consumer, those that a --checkpoint\nowns, and logs of"
        " exactly-once streams.",
        epilog="example:\n  pulsar-spark subscriptions public/default/orders "
        "--admin-url http://localhost:8080 \\\n      --delete --checkpoint "
        "/data/checkpoints/orders",
    )
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="topics, or single"
                        " partitions of them")  # fmt: skip
    parser.add_argument(
        "--namespace", metavar="TENANT/NS", help="all topics of a namespace"
    )
    parser.add_argument(
        "--pattern", metavar="REGEX", help="topics that match, as topicsPattern"
    )
    parser.add_argument(
        "--checkpoint",
        action="append",
        default=[],
        metavar="PATH",
        help="of a query that is to go on: what it owns is kept",
    )
    parser.add_argument(
        "--no-checkpoint",
        action="store_true",
        help="no query is to go on with what is listed",
    )
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        metavar="SUBSCRIPTION",
        help="only those of this name",
    )
    parser.add_argument(
        "--delete", action="store_true", help="delete what nobody needs"
    )
    add_execute(parser, "delete it")
    add_options(parser, admin="required here")
    parser.set_defaults(run=run)


@dataclass(frozen=True)
class Found:
    """A subscription with the known facts.

    Attributes:
        stats: As its broker shows it.
        kind: Who made it.
        owner: Location and query of the checkpoint that owns it, "" for none given.
    """

    stats: SubscriptionStats
    kind: str
    owner: str

    @property
    def made_by(self) -> str:
        """Return user, machine and application by the properties, "" without these."""
        said = self.stats.properties
        user, host = said.get(USER, ""), said.get(HOST, "")
        place = "@".join(filter(None, (user, host)))
        return ", ".join(filter(None, (place, said.get(APPLICATION, ""))))

    @property
    def kept_because(self) -> str:
        """Return why a subscription must be kept, "" if deletable."""
        if self.stats.consumers:
            return "connected"
        if self.owner:
            return "owned"
        if self.kind == LOG:
            return "commit log"
        return ""


def kind_of(name: str, topic_partition: str, prefix: str) -> str:
    """Return the creator of a subscription, "" if not made by Spark jobs.

    Args:
        name: Its name.
        topic_partition: Full name of the subscription's topic partition.
        prefix: How names of subscriptions begin.
    """
    if name in (f"{prefix}-commits", "spark-pulsar-commits"):
        return LOG
    for begin in dict.fromkeys((prefix, "spark-pulsar")):
        if re.fullmatch(f"{re.escape(begin)}-{_UUID}", name):
            return STREAM
    scala = re.fullmatch(
        rf"spark-pulsar(-batch)?-{_UUID}(?:--?\d+)?(?:-{_UUID}|-{_TOPIC})?", name
    )
    if scala is not None:
        return SCALA_BATCH if scala[1] else SCALA
    return SCALA if name == f"{prefix}-{topic_partition}" else ""


def owners(locations: Iterable[str]) -> dict[str, str]:
    """Return the checkpoint that owns each subscription, by name.

    Raises:
        CheckpointError: One is none, or cannot be read.
    """
    runs = {}
    for location in locations:
        checkpoint = Checkpoint(location)
        for batch_id in checkpoint.planned()[-2:]:
            for offset in checkpoint.end(batch_id).sources.values():
                if offset.subscription:
                    query = f"(query {checkpoint.query_id})"
                    runs[offset.subscription] = f"{checkpoint.location} {query}"
    return runs


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    _check(arguments)
    admin, prefix = admin_only(arguments), subscription_prefix(arguments)
    owned = owners(arguments.checkpoint)
    rows: list[Found] = []
    failed: dict[str, PulsarSparkError] = {}
    for name, answer in _subscriptions(admin, arguments, owned).items():
        if isinstance(answer, PulsarSparkError):
            failed[name] = answer
        else:
            rows += _ours(answer, prefix, owned, arguments.name)
    outcomes: dict[int, str] = {}
    if arguments.delete:
        for index, row in enumerate(rows):
            outcomes[index] = _delete(admin, row, execute=arguments.execute)
    _show(arguments, rows, outcomes, failed)
    is_refused = any(outcome.startswith("failed") for outcome in outcomes.values())
    return FAILED if failed or is_refused else DONE


def _check(arguments: argparse.Namespace) -> None:
    ways = [bool(arguments.topics), arguments.namespace, arguments.pattern]
    if sum(map(bool, ways)) != 1:
        raise OptionError("Name topics, or --namespace, or --pattern: one of them.")
    if arguments.checkpoint and arguments.no_checkpoint:
        raise OptionError("--checkpoint and --no-checkpoint contradict each other.")
    if arguments.execute and not arguments.delete:
        raise OptionError("--yes is for --delete.")
    is_said = arguments.checkpoint or arguments.no_checkpoint or arguments.name
    if arguments.execute and not is_said:
        raise OptionError(
            "--delete --yes needs --checkpoint, with the checkpoint of each query that"
            " is to go on; or --name; or --no-checkpoint where none is: a paused query"
            " looks like one that is gone."
        )


def _subscriptions(
    admin: Admin, arguments: argparse.Namespace, owned: Iterable[str]
) -> dict[str, list[SubscriptionStats] | PulsarSparkError]:
    """Return the subscriptions of each topic partition and segment, or an error."""
    if not arguments.topics:
        return admin.subscriptions(_topic_partitions(admin, arguments))
    answers: dict[str, list[SubscriptionStats] | PulsarSparkError] = {}
    ordinary: dict[str, None] = {}
    for topic in topic_names(arguments.topics):
        if topic.is_scalable:
            names = [*owned, *arguments.name]
            answers |= admin.subscriptions_of_segments(topic, names)
        else:
            ordinary |= dict.fromkeys(admin.partitions_of(topic))
    return answers | admin.subscriptions(ordinary)


def _topic_partitions(admin: Admin, arguments: argparse.Namespace) -> list[str]:
    if arguments.namespace:
        try:
            topic = TopicName.parse(f"persistent://{arguments.namespace}/any")
            is_one = topic.namespace_name == arguments.namespace
        except OptionError:
            is_one = False
        if not is_one:
            raise OptionError("--namespace must be TENANT/NAMESPACE.")
        names = admin.topic_partitions(arguments.namespace)
        return sorted(names, key=TopicName.parse)
    pattern = compile_topics_pattern(arguments.pattern, option="--pattern")
    names = admin.topic_partitions(pattern.namespace_name)
    return sorted(filter(pattern.matches, names), key=TopicName.parse)


def _ours(
    stats: Iterable[SubscriptionStats],
    prefix: str,
    owned: Mapping[str, str],
    wanted: list[str],
) -> list[Found]:
    mine = []
    for stat in sorted(stats, key=lambda one: one.name):
        kind = kind_of(stat.name, stat.topic_partition, prefix)
        owner = owned.get(stat.name, "")
        if owner and not kind:
            kind = STREAM  # a predefinedSubscription
        if stat.is_durable and kind and (not wanted or stat.name in wanted):
            mine.append(Found(stat, kind, owner))
    return mine


def _delete(admin: Admin, one: Found, *, execute: bool) -> str:
    if one.kept_because:
        return f"kept: {one.kept_because}"
    if not execute:
        return "would be deleted"
    try:
        admin.delete_subscription(one.stats.topic_partition, one.stats.name)
    except BrokerError as error:
        if error.code == "ConsumerBusy":  # it connected just now
            return "kept: connected"
        if error.code == "TopicNotFound":
            return "gone already"
        complain(str(error))
        return f"failed: {error.code}"
    except PulsarSparkError as error:
        complain(str(error))
        return "failed"
    return "deleted"


def _show(
    arguments: argparse.Namespace,
    found: list[Found],
    outcomes: Mapping[int, str],
    failed: Mapping[str, PulsarSparkError],
) -> None:
    for name, error in failed.items():
        complain(f"{name}: {error}")
    if arguments.json:
        show_json(
            {
                "subscriptions": [
                    {
                        "topicPartition": line.stats.topic_partition,
                        "subscription": line.stats.name,
                        "kind": line.kind,
                        "backlogEntries": line.stats.backlog_entries,
                        "consumers": line.stats.consumers,
                        "owner": line.owner or None,
                        "properties": dict(line.stats.properties),
                        "outcome": outcomes.get(index),
                    }
                    for index, line in enumerate(found)
                ],
                "failed": {name: str(error) for name, error in failed.items()},
            }
        )
        return
    if not found:
        if not failed:
            say("No subscription of Spark's.")
        return
    head = ["TOPIC PARTITION", "SUBSCRIPTION", "KIND", "BACKLOG", "CONNECTED"]
    head += ["MADE BY", "OWNER"]
    rows: list[list[object]] = [
        [
            line.stats.topic_partition,
            line.stats.name,
            line.kind,
            line.stats.backlog_entries,
            bool(line.stats.consumers),
            line.made_by or None,
            line.owner or None,
        ]
        for line in found
    ]
    if outcomes:
        head.append("OUTCOME")
        for index, row in enumerate(rows):
            row.append(outcomes[index])
    say(table(head, rows))
    if outcomes and not arguments.execute:
        say("\nNothing was changed: add --yes to delete them.")
