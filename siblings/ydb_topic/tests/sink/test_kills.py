# SPDX-License-Identifier: Apache-2.0
"""Whatever is killed, repeated and split: each row is stored once, in order."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from dataclasses import dataclass

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from siblings.ydb_topic.tests.sink.tables import table, writer
from siblings.ydb_topic.tests.support.faults import At, Fault, When
from siblings.ydb_topic.tests.support.service import TopicService
from ydb_spark.client.channel import Channel
from ydb_spark.errors import YdbError


@dataclass(frozen=True)
class Attempt:
    """One attempt of a task.

    Attributes:
        dies_at: The request at which a final fault ends it; None to let it live.
        when: What of that request is stored.
        breaks_at: The request at which its stream breaks before.
        request_bytes: How it cuts requests.
        batches: How its rows are cut.
        reshapes: Whether all partitions split before, or all neighbours merge.
    """

    dies_at: int | None
    when: When
    breaks_at: int | None
    request_bytes: int
    batches: int
    reshapes: str


ATTEMPTS = st.builds(
    Attempt,
    dies_at=st.one_of(st.none(), st.integers(0, 6)),
    when=st.sampled_from(When),
    breaks_at=st.one_of(st.none(), st.integers(0, 6)),
    request_bytes=st.integers(1, 400),
    batches=st.integers(1, 20),
    reshapes=st.sampled_from(["", "", "split", "merge"]),
)

#: Of each micro-batch: of each task the number of its rows, and its attempts.
RUNS = st.lists(
    st.lists(st.tuples(st.integers(0, 20), st.lists(ATTEMPTS, max_size=3)), max_size=3),
    max_size=3,
)


def reshape(service: TopicService, how: str) -> None:
    """Split all partitions, or merge them two by two."""
    topic = service.store.find("t")
    assert topic is not None
    active = sorted(topic.active, key=lambda p: p.bounds[0])
    if how == "split" and len(active) < 8:
        for partition in active:
            service.store.split("t", partition.number)
    elif how == "merge":
        for left, right in zip(active[::2], active[1::2], strict=False):
            service.store.merge("t", left.number, right.number)


def attempt(
    service: TopicService,
    channel: Channel,
    rows: list[bytes],
    task: int,
    batch_id: int,
    how: Attempt,
) -> None:
    """Run an attempt."""
    if how.breaks_at is not None:
        code = grpc.StatusCode.UNAVAILABLE
        service.faults.add(Fault(At.WRITE, how.when, grpc=code, skip=how.breaks_at))
    if how.dies_at is not None:
        service.faults.add(Fault(At.WRITE, how.when, status=400080, skip=how.dies_at))
    reshape(service, how.reshapes)
    batches = [table(rows[n : n + how.batches]) for n in range(0, 21, how.batches)]
    one = writer(
        channel,
        task,
        batch_id=batch_id,
        id_="q",
        max_request_bytes=how.request_bytes,
        max_inflight_bytes=500,
    )
    with contextlib.suppress(YdbError):
        one.write(batches)
    service.faults.clear()


LAST = Attempt(None, When.BEFORE, None, 100, 5, reshapes="")


# Other threads draw pauses between tries meanwhile, which Hypothesis takes for ours.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
@given(run=RUNS)
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_each_row_once(service: TopicService, channel: Channel, run: list[list]):
    """After the last attempt of each task, and one more of all: each row, once."""
    service.store.create("t", partitions=2)
    expected: dict[int, list[bytes]] = defaultdict(list)
    for batch_id, tasks in enumerate(run):
        for task, (count, attempts) in enumerate(tasks):
            rows = [f"{batch_id} {task} {n}".encode() for n in range(count)]
            for how in (*attempts, LAST, LAST):
                attempt(service, channel, rows, task, batch_id, how)
            expected[task] += rows
    by_producer: dict[str, list] = defaultdict(list)
    for message in service.store.stored("t"):
        by_producer[message.producer_id].append(message)
    found = {
        # Over the partitions that a producer was moved through.
        int(producer.removeprefix("q/")): [
            m.data for m in sorted(messages, key=lambda m: m.seq_no)
        ]
        for producer, messages in by_producer.items()
    }
    assert found == {task: rows for task, rows in expected.items() if rows}
    for partition in (0, 1):
        for producer, _ in by_producer.items():
            numbers = [
                m.seq_no
                for m in service.store.stored("t", partition)
                if m.producer_id == producer
            ]
            assert numbers == sorted(numbers)
