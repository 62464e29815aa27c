# SPDX-License-Identifier: Apache-2.0
"""``transactions``: which are open, of an exactly-once stream or on a topic.

No command of the binary protocol lists transactions. The log of an exactly-once stream
has the ids that it owns, and a coordinator says of an id whether it is open. Those of
other writers only the admin REST knows.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pulsar_spark.cli.arguments import (
    DONE,
    FAILED,
    Cluster,
    add_execute,
    add_options,
    cluster_of,
    topic_names,
)
from pulsar_spark.cli.output import age, complain, moment, say, show_json, table
from pulsar_spark.client.transactions import TransactionClient, TxnStatus, status_of
from pulsar_spark.errors import OptionError, PulsarSparkError, TopicNotFoundError
from pulsar_spark.message_id import TxnId
from pulsar_spark.options.names import checkpoint_id, idempotence_id
from pulsar_spark.sink.commit_log import Began, Opened, Record, load_record, read_log
from pulsar_spark.sink.journal import Journal
from pulsar_spark.topics import (
    COMMIT_LOG_PREFIX,
    DEFAULT_NAMESPACE,
    DEFAULT_TENANT,
    TopicName,
)
from pulsar_spark.wire.commands import TxnAction
from spark_topics import errors
from spark_topics.options.values import duration


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "transactions",
        help="list open transactions of an exactly-once stream or a topic, abort them",
        description="List the transactions that an exactly-once stream has left open."
        " Its log has their\nids, and their coordinators say whether they are open:"
        " nothing is changed by\nasking, and the stream may run. An open transaction"
        " keeps readers of its topics\nfrom what comes after it, until it is ended or"
        " transactionTimeoutMs is over; a\nrestart of its stream ends it at once.\n\n"
        "Of a topic that is no such log, transactions are listed by the admin REST, as"
        " no\ncommand of the binary protocol does.\n\nWith a log, --abort spares those"
        " that are to be committed: a restart of\nthe stream does that. With a topic it"
        " cannot tell them apart, and ends them as\nwell: add --older-than there.",
        epilog="examples:\n  pulsar-spark transactions --idempotence-id orders -o"
        " service.url=pulsar://localhost:6650\n  pulsar-spark transactions"
        " public/default/orders -o service.url=pulsar://localhost:6650 \\\n     "
        " --admin-url http://localhost:8080 --older-than 10m --abort",
    )
    parser.add_argument(
        "topic",
        nargs="?",
        metavar="LOG|TOPIC",
        help=f"a stream's log ({COMMIT_LOG_PREFIX}...), or a topic",
    )
    parser.add_argument("--idempotence-id", metavar="ID", help="the stream's")
    parser.add_argument(
        "--checkpoint-location",
        metavar="PATH",
        help="the stream's option checkpointLocation, where it has no idempotenceId,"
        " in the same spelling",
    )
    parser.add_argument(
        "--namespace",
        metavar="TENANT/NS",
        default=f"{DEFAULT_TENANT}/{DEFAULT_NAMESPACE}",
        help="of the stream's topic, where its log is; by default that of -o topic=...,"
        " or public/default",
    )
    parser.add_argument(
        "--log", action="store_true", help="TOPIC is a log: one that commitTopic named"
    )
    parser.add_argument(
        "--id", action="append", default=[], metavar="MOST:LEAST", help="only these"
    )
    parser.add_argument(
        "--older-than",
        default="0",
        metavar="TIME",
        help="only those open for longer, such as 10m",
    )
    parser.add_argument("--abort", action="store_true", help="abort them")
    add_execute(parser, "abort them")
    add_options(parser, admin="needed for a topic that is no log")
    parser.set_defaults(run=run)


@dataclass(frozen=True)
class Open:
    """A transaction that is not over.

    Attributes:
        txn: Its id.
        state: ``open``, ``ending``, ``not known``, or what the admin REST calls it.
        since_ms: When it began, in milliseconds since 1970; None for not known.
        of: The owner.
        is_decided: Whether it is to be committed; None for not known.
    """

    txn: TxnId
    state: str
    since_ms: int | None
    of: str
    is_decided: bool | None = None


def _least_s(text: str) -> float:
    try:
        return duration(max_days=365)(text, "--older-than")
    except errors.OptionError as error:
        raise OptionError(*error.problems) from None


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.execute and not arguments.abort:
        raise OptionError("--yes is for --abort.")
    txn_ids = {str(_txn_id(text)) for text in arguments.id}
    least_s = _least_s(arguments.older_than)
    with cluster_of(arguments) as cluster:
        log = _log_topic(arguments, cluster)
        if log is not None:
            try:
                transactions = of_log(cluster, log)
            except TopicNotFoundError as error:
                if arguments.topic is not None:
                    raise
                raise error.saying(
                    f"{error.message} A stream's log of commits is in the namespace of "
                    "its topic: name that by `-o topic=...` or `--namespace`."
                ) from None
        else:
            topic = _ordinary_topic(arguments.topic)
            transactions = of_topic(cluster, topic, least_s)
        now_s = time.time()
        transactions = [
            transaction
            for transaction in transactions
            if (not txn_ids or str(transaction.txn) in txn_ids)
            and _age(transaction, now_s) >= least_s
        ]
        outcomes: dict[TxnId, str] = {}
        if arguments.abort:
            outcomes = _abort(cluster, transactions, execute=arguments.execute)
    _show(arguments, transactions, outcomes, now_s)
    failed = any(outcome.startswith("failed") for outcome in outcomes.values())
    return FAILED if failed else DONE


def _age(one: Open, now_s: float) -> float:
    return float("inf") if one.since_ms is None else now_s - one.since_ms / 1000


def _txn_id(text: str) -> TxnId:
    match = re.fullmatch(r"\(?([0-9]{1,20})[:,]([0-9]{1,20})\)?", text.strip())
    if match is None:
        raise OptionError("--id must be MOST:LEAST, such as 0:41.")
    return TxnId(int(match[1]), int(match[2]))


def _ordinary_topic(text: str) -> TopicName:
    (topic,) = topic_names([text])
    if topic.is_scalable:
        raise OptionError(
            f"{topic} is a scalable topic, and brokers do not list the transactions of "
            "such. Name the stream, by --idempotence-id or --checkpoint-location."
        )
    return topic


def _log_topic(arguments: argparse.Namespace, cluster: Cluster) -> str | None:
    """Return the full name of the stream's log, None where a topic is meant."""
    names = (arguments.topic, arguments.idempotence_id, arguments.checkpoint_location)
    if sum(name is not None for name in names) != 1:
        raise OptionError(
            "Name a topic, or --idempotence-id, or --checkpoint-location: one of them."
        )
    if arguments.topic is not None:
        topic = _ordinary_topic(arguments.topic)
        is_log = arguments.log or topic.local_name.startswith(COMMIT_LOG_PREFIX)
        return topic.full_name if is_log else None
    if cluster.options.commit_topic is not None:
        return cluster.options.commit_topic.full_name
    if arguments.idempotence_id is not None:
        name = idempotence_id(arguments.idempotence_id, "--idempotence-id")
    else:
        name = checkpoint_id(arguments.checkpoint_location, "--checkpoint-location")
    namespace = arguments.namespace
    for topic in cluster.options.topics[:1]:
        namespace = topic.namespace_name
    return TopicName.parse(f"{namespace}/{COMMIT_LOG_PREFIX}{name}").full_name


def of_log(cluster: Cluster, log: str) -> list[Open]:
    """Return the open transactions that a stream's log names.

    Raises:
        TopicNotFoundError: There is no such log.
        CommitLogError: The topic is no log.
        PulsarSparkError: The cluster does not answer, or refuses.
    """
    journal = Journal(cluster.pool, log)
    records: list[Record] = []
    since: dict[TxnId, int] = {}
    tasks: dict[TxnId, int] = {}
    for message in journal.look():
        record = load_record(message.payload)
        if isinstance(record, Began):
            record = replace(record, term=message.message_id.position)
        if isinstance(record, Opened):
            since.setdefault(record.txn, message.publish_time_ms)
            tasks[record.txn] = record.partition
        records.append(record)
    state = read_log(records)
    batches = dict(state.undecided)
    decided: set[TxnId] = set()
    if state.prepared is not None:
        decided.update(state.prepared.txns.values())
        batches |= dict.fromkeys(decided, state.prepared.batch_id)
    answers = TransactionClient(cluster.pool).ask(batches)
    transactions = []
    for txn, answer in answers.items():
        status = status_of(txn, answer)
        if status is TxnStatus.OVER:
            continue
        if status is TxnStatus.UNKNOWN:
            assert answer is not None
            raise answer
        state_name = "open" if status is TxnStatus.DONE else "ending"
        if txn.is_scalable:
            state_name = "not known"  # coordinators of scalable topics do not tell
        of = f"micro-batch {batches[txn]}"
        if txn in tasks:
            of += f", task {tasks[txn]}"
        transactions.append(Open(txn, state_name, since.get(txn), of, txn in decided))
    return sorted(transactions, key=lambda one: one.txn)


def of_topic(cluster: Cluster, topic: TopicName, least_s: float) -> list[Open]:
    """Return the open transactions that write to a topic, by the admin REST.

    Raises:
        OptionError: No one said where that is.
        PulsarSparkError: It does not answer, or refuses.
    """
    if cluster.admin is None:
        raise OptionError(
            f"{topic.local_name} is no log of an exactly-once stream: only the admin"
            " REST lists the transactions of a topic. Add --admin-url, or --log where"
            " commitTopic named it."
        )
    transactions = []
    for key, slow in cluster.admin.slow_transactions(int(least_s * 1000)).items():
        if not isinstance(slow, dict):
            continue
        produced = slow.get("producedPartitions") or {}
        names = sorted(filter(lambda name: _is_of(name, topic), produced))
        if names:
            since = slow.get("openTimestamp")
            transactions.append(
                Open(
                    _txn_id(str(slow.get("txnId", key))),
                    str(slow.get("status", "?")).lower(),
                    since if type(since) is int else None,
                    ", ".join(names),
                )
            )
    return sorted(transactions, key=lambda one: one.txn)


def _is_of(name: str, topic: TopicName) -> bool:
    try:
        parsed = TopicName.parse(name)
    except OptionError:
        return False
    return topic in (parsed, parsed.base)


def _abort(
    cluster: Cluster, found: Iterable[Open], *, execute: bool
) -> dict[TxnId, str]:
    outcomes = {
        transaction.txn: "kept: to be committed"
        if transaction.is_decided
        else "would be aborted"
        for transaction in found
    }
    if not execute:
        return outcomes
    txns = [transaction.txn for transaction in found if not transaction.is_decided]
    answers = TransactionClient(cluster.pool).end(txns, TxnAction.ABORT)
    for txn, answer in answers.items():
        outcomes[txn] = _outcome(txn, answer)
        if outcomes[txn].startswith("failed"):
            complain(str(answer))
    return outcomes


def _outcome(txn: TxnId, answer: PulsarSparkError | None) -> str:
    match status_of(txn, answer):
        case TxnStatus.DONE:
            return "aborted"
        case TxnStatus.ENDING:
            return "ending"
        case TxnStatus.OVER | TxnStatus.OPPOSED:
            return "over already"
    return "failed"


def _show(
    arguments: argparse.Namespace,
    found: list[Open],
    outcomes: Mapping[TxnId, str],
    now_s: float,
) -> None:
    if arguments.json:
        show_json(
            {
                "transactions": [
                    {
                        "txn": str(transaction.txn),
                        "state": transaction.state,
                        "sinceMs": transaction.since_ms,
                        "of": transaction.of,
                        "toBeCommitted": transaction.is_decided,
                        "outcome": outcomes.get(transaction.txn),
                    }
                    for transaction in found
                ]
            }
        )
        return
    if not found:
        say("No open transaction.")
        return
    head = ["TRANSACTION", "STATE", "SINCE", "AGE", "OF", "TO BE COMMITTED"]
    rows: list[list[object]] = [
        [
            str(transaction.txn),
            transaction.state,
            moment(transaction.since_ms),
            None if transaction.since_ms is None else age(_age(transaction, now_s)),
            transaction.of,
            transaction.is_decided,
        ]
        for transaction in found
    ]
    if outcomes:
        head.append("OUTCOME")
        for row, transaction in zip(rows, found, strict=True):
            row.append(outcomes[transaction.txn])
    say(table(head, rows))
    if outcomes and not arguments.execute:
        say(
            "\nNothing was changed: add --yes to abort them. Their rows are dropped; a"
            " task that still writes in one fails, and Spark runs it again."
        )
