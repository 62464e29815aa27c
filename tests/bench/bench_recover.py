# SPDX-License-Identifier: Apache-2.0
"""Going to work: the time of ``recover()`` behind a long life of a query.

The log is what earlier versions left of it, which cut nothing there: a record for each
micro-batch without rows, and one for each transaction of an attempt that failed. The
first ``recover()`` ends these and cuts the log; it is not measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.producing.producers import Producers, ProducerSettings
from pulsar_spark.message_id import TxnId
from pulsar_spark.sink.commit_log import Began, Opened, Record, dump_record
from pulsar_spark.sink.exactly_once import CommitProtocol
from pulsar_spark.wire import pulsar_api_pb2 as pb
from tests.bench.bench_sink import new_topic
from tests.bench.cluster import Cluster, note
from tests.bench.publish import client_options
from tests.bench.report import SECONDS, Case, in_turns, wall

#: What one may take.
_TARGET_S = 0.2

#: Numbers of transactions that no coordinator has given away.
_NEVER_BEGUN = 1 << 40


def run(cluster: Cluster, batches: int, attempts: int, repeats: int) -> list[Case]:
    """One row of the result is one ``recover()``."""
    pool = ConnectionPool(client_options(cluster.service_url))
    try:
        with cluster.further_namespace() as namespace:
            log = new_topic(cluster, namespace, 1)
            protocol = CommitProtocol(pool, log)
            protocol.recover()  # from here on it is kept
            note(f"{batches} micro-batches without rows, {attempts} failed attempts")
            idle = (Began(str(number)) for number in range(batches))
            failed = (Opened(0, 0, TxnId(0, _NEVER_BEGUN + n)) for n in range(attempts))
            _fill(pool, log, idle)
            _fill(pool, log, failed)
            protocol.recover()
            seconds = in_turns(
                {"recover": wall(lambda: _recover(protocol))}, max(repeats, 5)
            )["recover"]
    finally:
        pool.close()
    what = f"recover(), {batches:,} micro-batches and {attempts:,} attempts on"
    return [Case("sink", what, 1, 0, seconds, target=_TARGET_S, figure=SECONDS)]


def _recover(protocol: CommitProtocol) -> None:
    assert protocol.recover().committed == -1


def _fill(pool: ConnectionPool, log: str, records: Iterable[Record]) -> None:
    """As ``sink.journal`` appends, but many at a time."""
    producers = Producers(pool, ProducerSettings())
    try:
        producers.open([log])
        producer = producers.get(log)
        encoder = producer.encoder()
        first = producer.registration.last_sequence_id + 1
        for number, record in enumerate(records, first):
            now_ms = time.time_ns() // 1_000_000
            message = dump_record(record)
            for frame in encoder.single(pb.MessageMetadata(), message, number, now_ms):
                producers.send(producer, frame)
        producers.flush()
    finally:
        producers.close()
