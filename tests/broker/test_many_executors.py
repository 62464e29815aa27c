# SPDX-License-Identifier: Apache-2.0
"""A thousand executors that begin, and come back, at once. Without Spark.

Each has connections of its own, as a process has. docs/speed.md shows the table.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa
import pytest

from pulsar_spark.client.entry_reader import EntryReader, ReaderSettings
from pulsar_spark.client.pending import Pending
from pulsar_spark.client.pool import ConnectionPool, shared_pool
from pulsar_spark.message_id import EARLIEST
from pulsar_spark.options import parse_read_options, parse_write_options
from pulsar_spark.sink.task import TaskWriter
from pulsar_spark.source.plan.batch_plan import plan_batch
from pulsar_spark.testing.admin import Admin
from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from spark_topics.sink.write import Task
from tests.support import patience
from tests.support.link_proxy import LinkProxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pulsar_spark.source.plan.read_task import ReadTask

EXECUTORS = 1000

#: Lookups that the broker takes at a time, and refuses the others.
MOST_LOOKUPS = 5

PATIENCE_S = 300

#: They share the machine: nobody asks again because of that.
PATIENT = {
    "pulsar.client.connectionTimeoutMs": "200000",
    "pulsar.client.lookupTimeoutMs": "200000",
}

NAMESPACE = "public/executors"
TOPIC = f"persistent://{NAMESPACE}/rows"

#: Written before and after the cut, by each executor, in an entry each.
ROWS = pa.record_batch({"value": [b"row"] * 6})

KINDS = {
    "Connected": "CONNECT",
    "CommandLookupTopicResponse": "LOOKUP",
    "CommandProducerSuccess": "PRODUCER",
    "CommandSuccess": "SUBSCRIBE",
}


class Requests:
    """Counts what the clients of this process ask for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent: Counter[str] = Counter()

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count within the block."""
        begin, fail = Pending.__init__, Pending.set_exception

        def begins(pending: Any, *args: Any) -> None:
            begin(pending, *args)
            with self._lock:
                self._sent[KINDS.get(args[2].__name__, "other")] += 1

        def fails(pending: Any, error: Any) -> None:
            with self._lock:
                self._sent["refused"] += getattr(error, "code", "") == "TooManyRequests"
            fail(pending, error)

        with (
            mock.patch.object(Pending, "__init__", begins),
            mock.patch.object(Pending, "set_exception", fails),
        ):
            yield

    def take(self) -> Counter[str]:
        """Return the counts, less lookups that were refused, and begin again."""
        with self._lock:
            sent, self._sent = self._sent, Counter()
        sent["LOOKUP"] -= sent.pop("refused", 0)
        del sent["other"]
        return +sent


@pytest.fixture
def link() -> Iterator[LinkProxy]:
    """Where executors connect to."""
    with LinkProxy() as link:
        yield link


@pytest.fixture
def broker(link: LinkProxy) -> Iterator[EmbeddedBroker]:
    """A broker that answers few lookups at a time."""
    settings = {"maxConcurrentLookupRequest": str(MOST_LOOKUPS)}
    with EmbeddedBroker(link=link, settings=settings) as broker:
        yield broker


@pytest.mark.matrix
@pytest.mark.slow
def test_all_at_once(
    broker: EmbeddedBroker, link: LinkProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None asks more than it must, and each row is written, and read."""
    patience.usual(monkeypatch, unheard_s=PATIENCE_S)  # as for PATIENT
    admin = Admin(broker.admin_url)
    admin.create_namespace(NAMESPACE, keep=True)
    admin.create_partitioned(TOPIC, EXECUTORS)
    given = {"service.url": link.url, "topic": TOPIC, **PATIENT}
    options = parse_read_options(given)
    requests = Requests()
    with requests.counted():
        rows, *steps = _cut_off(link, requests, partial(_write, given))
        assert rows == Counter({2 * len(ROWS): EXECUTORS})
        for sent in steps:
            _check(sent, "CONNECT", "LOOKUP", "PRODUCER")
        tasks = plan_batch(shared_pool(options.client), options)
        requests.take()
        rows, *steps = _cut_off(link, requests, partial(_read, given, tasks))
    assert rows == Counter({2 * len(ROWS): EXECUTORS})
    _check(steps[0], "CONNECT", "SUBSCRIBE")
    _check(steps[1], "CONNECT", "LOOKUP", "SUBSCRIBE")


def _check(sent: Counter[str], *kinds: str) -> None:
    """Check that each executor sent a request of some kinds, and none of others.

    But for those whose connection the machine, busy as it is, did not open: a tenth.
    """
    for kind in KINDS.values():
        wanted = EXECUTORS if kind in kinds else 0
        assert wanted <= sent[kind] <= wanted + EXECUTORS // 10, (kind, sent)


def _cut_off(
    link: LinkProxy,
    requests: Requests,
    work: Callable[[int, Callable[[], None]], int],
) -> tuple[Counter[int], Counter[str], Counter[str]]:
    """Have all executors work, and cut them off half-way.

    Args:
        link: Where they connect to.
        requests: Counts.
        work: Does the work of an executor, by its number, and returns how many rows it
            came to. Calls what it is given half-way.

    Returns:
        How many rows each came to; the requests before, and after.
    """
    half_way, go_on = threading.Barrier(EXECUTORS + 1), threading.Event()

    def pause() -> None:
        half_way.wait(PATIENCE_S)
        assert go_on.wait(PATIENCE_S), "nobody says to go on"

    with ThreadPoolExecutor(EXECUTORS) as executors:
        rows = [executors.submit(work, number, pause) for number in range(EXECUTORS)]
        half_way.wait(PATIENCE_S)
        before = requests.take()
        link.cut_all()
        go_on.set()
        counts = Counter(some.result(PATIENCE_S) for some in rows)
    return counts, before, requests.take()


def _write(given: dict[str, str], number: int, pause: Callable[[], None]) -> int:
    """Write to a topic partition."""
    # A process has a pool of its own; here the options make the difference.
    timeout_ms = {"pulsar.client.operationTimeoutMs": str(200_000 + number)}
    one_each = {"pulsar.producer.batchingEnabled": "false"}
    options = parse_write_options({**given, **timeout_ms, **one_each}, streaming=False)
    assert options.topic is not None
    targets = {options.topic: [f"{TOPIC}-partition-{number}"]}

    def batches() -> Iterator[pa.RecordBatch]:
        yield ROWS
        pause()
        yield ROWS

    with shared_pool(options.client):
        return TaskWriter(options, Task(number), targets).write(batches()).rows


def _read(
    given: dict[str, str],
    tasks: Sequence[ReadTask],
    number: int,
    pause: Callable[[], None],
) -> int:
    """Read a topic partition, few entries at a time."""
    (name,) = (range_.topic_partition for range_ in tasks[number].ranges)
    broker = tasks[number].brokers[name]
    settings = ReaderSettings("", 2, poll_timeout_s=PATIENCE_S)
    with (
        ConnectionPool(parse_read_options(given).client) as pool,
        EntryReader(pool, name, EARLIEST, settings, served_by=broker) as reader,
    ):
        for row in range(2 * len(ROWS)):
            assert reader.receive(PATIENCE_S) is not None
            if row == 1:
                pause()
        return 2 * len(ROWS)
