# SPDX-License-Identifier: Apache-2.0
"""Check that a commit has reached every topic partition of its transactions.

To commit, a coordinator looks up each topic partition of a transaction, and has the
broker there store a marker that makes the rows visible. Where such a lookup fails with
an error of metadata, as while the topic partition is being unloaded, the coordinator
(3.0.7 to 5.0.0-M1) takes the topic partition for deleted, and answers that the commit
is done. The rows stay hidden, and a later commit of the same coordinator drops them.

Right behind a commit, a superuser has brokers store the marker again, by the request of
the coordinator: END_TXN_ON_PARTITION. A second marker changes nothing.

Brokers refuse that from any other role, and it is dear where many tasks have written to
many topic partitions. Then a reader looks at each topic partition::

    the last message for readers         what is done
    is as far as the rows, or behind     nothing
    is before the rows, or unknown       the marker is stored again
    that is refused, and the reader      the topic partition is made to drop all rows
    was closed: an unload                that wait for a commit; if the rows of this
                                         commit are among them, that is an error

Rows may also be hidden because an earlier transaction of another writer is open.

A driver that finishes the commit of a driver that died cannot know what was unloaded.
So the driver looks at an entry of each transaction on each topic partition.

The topic of markers drops no marker before the log of commits says that the micro-batch
is visible: until then markers may be the proof.

Source: TransactionBufferHandlerImpl and ServerCnx.handleEndTxnOnPartition of Pulsar;
test_unloads_during_commits in tests/broker and tests/broker/secured.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from itertools import chain

from pulsar_spark.client.consumers import ConsumerSet, TopicConsumer
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.requests import fan_out
from pulsar_spark.client.transactions import TransactionClient
from pulsar_spark.errors import PulsarSparkError
from pulsar_spark.message_id import LATEST, MessageId, TxnId
from pulsar_spark.sink.commit_log import Written
from pulsar_spark.sink.visibility import Place, Visibility, find_out
from pulsar_spark.system import warn_once
from pulsar_spark.topics import topic_of
from pulsar_spark.wire.commands import (
    SubscribeRequest,
    TxnAction,
    end_txn_on_partition,
)
from spark_topics.client.retry import ASKED_TOGETHER
from spark_topics.text import counted, list_names

logger = logging.getLogger("pulsar_spark.sink")

#: How long a transaction lives that makes topic partitions drop others, in ms.
_SWEEP_MS = 60_000

#: A reader of a topic partition costs a broker as much as so many further markers.
_READER_MARKERS = 8

#: The lower half of the id of a transaction that no coordinator begins.
_NEVER_BEGUN = 2**63 - 1


class CommitCheck:
    """Looks at the topic partitions of a commit. A context manager, for its readers.

    Args:
        pool: The cluster's connections.
        written: What each transaction wrote. Transactions of scalable topics are not
            checked.
        patience_s: How long brokers are asked about a topic partition, in seconds.
        markers: Full name of the topic of markers, "" for none.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        written: Mapping[TxnId, Written],
        patience_s: float,
        markers: str = "",
    ) -> None:
        self._pool = pool
        self._written = {t: w for t, w in written.items() if not t.is_scalable}
        self._patience_s = patience_s
        self._markers = markers
        self._untold_markers: list[Place] = []
        self._readers = ConsumerSet(pool, TopicConsumer, waits_for_end=False)
        self._unchecked: set[str] = set()
        self._reads = False

    def __enter__(self) -> CommitCheck:
        return self

    def __exit__(self, *_: object) -> None:
        self._readers.close()

    def attach(self) -> None:
        """Begin to read the topic partitions, ahead of the commit, if that is needed.

        A role that may not read, either, leaves the commit unchecked, with a warning.
        """
        topics = dict.fromkeys(chain.from_iterable(self._written.values()))
        markers = sum(map(len, self._written.values()))
        if not topics:
            return
        is_cheap = markers <= _READER_MARKERS * len(topics)
        # Where it is not known now whether the role is a superuser, readers look.
        if is_cheap and not self._ask([self._never(next(iter(topics)))]):
            return
        self._reads = True
        readers = self._readers
        readers.connect(topics)
        readers.step(
            lambda reader: reader.subscribe(
                SubscribeRequest(readers.reader_name(), start=LATEST)
            )
        )
        refused = {t: e for t, e in readers.take_failures().items() if not e.retriable}
        self._unchecked.update(refused)
        if refused:
            names = list_names(sorted(set(map(topic_of, refused))))
            warn_once(
                f"Whether commits reach all partitions of {names} is not checked: "
                f"readers are refused. {next(iter(refused.values()))}"
            )

    def _never(self, topic: str) -> Place:
        """Return where to ask whether brokers let the role end transactions.

        The marker of a transaction that never was makes nothing visible.
        """
        return Place(TxnId(next(iter(self._written)).most, _NEVER_BEGUN), topic)

    def left_out(self, txns: Iterable[TxnId], *, is_late: bool = False) -> list[Place]:
        """Make sure that a commit has reached all topic partitions.

        Args:
            txns: Transactions that were committed.
            is_late: Whether topic partitions may have been unloaded before ``attach``.

        Returns:
            Where rows will never be visible.
        """
        places = hidden = {
            Place(txn, topic): entry
            for txn in txns
            for topic, entry in self._written.get(txn, {}).items()
            if topic not in self._unchecked
        }
        moved: set[str] = set()
        if self._reads:
            replies = self._readers.step(lambda reader: reader.get_last())
            last = {topic: r.last for topic, r in replies.items()}
            hidden = {
                place: entry
                for place, entry in hidden.items()
                if not _shows(last.get(place.topic_partition), entry)
            }
            moved = {p.topic_partition for p in hidden} - replies.keys()
        if not (places if is_late else hidden):
            return []
        refused = self._end(hidden, moved)
        if is_late:
            return self._dropped(places, refused)
        if moved:
            logger.info(
                "topics were unloaded during a commit, and their brokers told of the "
                "commit once more: %s",
                list_names(moved),
            )
        in_doubt = {p: hidden[p] for p in hidden if p.topic_partition in moved}
        return self._dropped(in_doubt, refused)

    def _end(self, places: Collection[Place], moved: set[str]) -> list[Place]:
        """Have brokers end transactions.

        Args:
            places: Where.
            moved: Gets the topic partitions whose broker could not do so at once.

        Returns:
            The places where brokers refuse.
        """
        retry = self._pool.retry(self._patience_s)
        refused: list[Place] = []
        pending = list(places)
        while pending:
            failed: dict[Place, PulsarSparkError] = {}
            for first in range(0, len(pending), ASKED_TOGETHER):
                failed |= self._ask(pending[first : first + ASKED_TOGETHER])
            refused += [place for place, error in failed.items() if not error.retriable]
            pending = [place for place, error in failed.items() if error.retriable]
            if pending:
                topics = {place.topic_partition for place in pending}
                moved |= topics
                self._pool.forget_brokers(topics)
                try:
                    retry.pause(failed[pending[0]])
                except PulsarSparkError as error:
                    logger.warning("A commit could not be checked: %s", error)
                    break
        return refused

    def _ask(self, places: Collection[Place]) -> dict[Place, PulsarSparkError]:
        """Ask brokers to end transactions, and return their errors."""
        topics = dict.fromkeys(place.topic_partition for place in places)
        brokers = TopicLookup(self._pool).likely_brokers(topics)
        connections = self._pool.get_all(brokers)
        answers = fan_out(
            {place: connections[place.topic_partition] for place in places},
            {place: end_txn_on_partition(*place, TxnAction.COMMIT) for place in places},
            self._pool.options.patience.unheard_s,
        )
        return {
            place: answer.about(place.topic_partition)
            for place, answer in answers.items()
            if isinstance(answer, PulsarSparkError)
        }

    def _dropped(
        self, moved: Mapping[Place, MessageId | None], refused: Collection[Place]
    ) -> list[Place]:
        """Return the places whose rows are lost; readers pass over these rows then.

        Args:
            moved: Places on topic partitions that were unloaded, each with an entry.
            refused: Places where brokers were not told.
        """
        # Where brokers were told, only a commit of others in between can have dropped
        # rows: that is worth a look, and no wait.
        patience_s = self._pool.options.operation_timeout_s if refused else 0.0
        retry = self._pool.retry(patience_s)
        untold = [place for place in refused if place in moved]
        rows = {p: e for p, e in moved.items() if p.topic_partition != self._markers}
        self._untold_markers += [place for place in untold if place not in rows]
        sweep(self._pool, (place for place in untold if place in rows))
        entries = {place: entry for place, entry in rows.items() if entry is not None}
        states = find_out(self._pool, entries, retry)
        errors = [e for e in states.values() if isinstance(e, PulsarSparkError)]
        if errors:
            level = logging.WARNING if refused else logging.DEBUG
            what = counted(len(errors), "topic partition")
            text = "A commit could not be checked on %s: %s"
            logger.log(level, text, what, errors[0])
        return [place for place in entries if states[place] is Visibility.ABORTED]

    def forget_markers(self) -> None:
        """Have the topic of markers drop markers of untold commits."""
        sweep(self._pool, self._untold_markers)


def sweep(pool: ConnectionPool, places: Iterable[Place]) -> None:
    """Have topic partitions drop rows of untold commits, if possible."""
    topics: dict[int, dict[str, None]] = {}
    for txn, topic in places:
        topics.setdefault(txn.most, {})[topic] = None
    transactions = TransactionClient(pool)
    for coordinator, names in topics.items():
        try:
            transactions.sweep(coordinator, list(names), _SWEEP_MS)
        except PulsarSparkError as error:
            logger.info("%s", error)


def _shows(last: MessageId | None, entry: MessageId | None) -> bool:
    """Return whether readers get as far as an entry."""
    return last is not None and entry is not None and last.position >= entry.position
