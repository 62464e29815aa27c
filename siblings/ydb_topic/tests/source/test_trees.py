# SPDX-License-Identifier: Apache-2.0
"""Partitions that split and merge in any order, while they are written and read."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from siblings.ydb_topic.tests.support.service import TopicService
from siblings.ydb_topic.tests.support.store import Stored, Topic, now_ms
from spark_topics.options.offsets import Edge, Offsets
from ydb_spark.options.connection import ConnectionOptions
from ydb_spark.options.read import ReadOptions
from ydb_spark.source.topic_source import TopicSource

SCHEMA = pa.schema(
    [
        ("data", pa.binary()),
        ("message_group_id", pa.string()),
        ("partition_id", pa.int64()),
    ]
)

#: What happens, one after the other: a few rows of a group, a split or merge of one of
#: the partitions, a micro-batch of so many rows.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 5)),
        st.tuples(st.just("split"), st.integers(0, 9)),
        st.tuples(st.just("merge"), st.integers(0, 9)),
        st.tuples(st.just("read"), st.integers(1, 12)),
    ),
    max_size=40,
)


class Writers:
    """Message groups, each with rows that are counted; the server chooses where to."""

    def __init__(self, service: TopicService) -> None:
        self._service = service
        self.written: dict[str, int] = defaultdict(int)

    def write(self, group: str) -> None:
        """Let a group write three rows."""
        store = self._service.store
        with store.changed:
            topic = topic_of(self._service)
            for _ in range(3):
                number = self.written[group]
                message = Stored(
                    0,
                    number + 1,
                    b"%d" % number,
                    producer_id=group,
                    message_group_id=group,
                    written_at_ms=now_ms(),
                )
                topic.append(topic.choose(group), group, [message])
                self.written[group] += 1
            store.changed.notify_all()


def topic_of(service: TopicService) -> Topic:
    """The topic ``t``."""
    topic = service.store.find("t")
    assert topic is not None
    return topic


def reshape(service: TopicService, what: str, which: int) -> None:
    """Split an active partition, or merge it with its neighbour."""
    active = sorted(topic_of(service).active, key=lambda p: p.bounds[0])
    index = which % len(active)
    if what == "split":
        if len(active) < 8:
            service.store.split("t", active[index].number)
    elif index + 1 < len(active):
        service.store.merge("t", active[index].number, active[index + 1].number)


class Reader:
    """A stream, and what it read: of each micro-batch rows by partition."""

    def __init__(self, connection: ConnectionOptions) -> None:
        self._options = ReadOptions(
            connection,
            "t",
            starting=Offsets(Edge.EARLIEST),
            discovery_interval_s=0,
            stats_interval_s=0,
        )
        planner = TopicSource(self._options).plan_stream()
        self._at: dict[str, Any] = planner.initial().to_json()
        self.read: list[dict[int, list[tuple[str, int]]]] = []

    def micro_batch(self, rows: int) -> bool:
        """Read one, by a driver of its own; return whether there was something."""
        source = TopicSource(replace(self._options, max_rows=rows))
        planner = source.plan_stream()
        start = planner.offset(self._at)
        end = planner.latest(start)
        if end == start:
            return False
        found: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for task in planner.ranges(start, end):
            for batch in source.read(task, SCHEMA, streaming=True):
                for row in batch.to_pylist():
                    what = (row["message_group_id"], int(row["data"]))
                    found[row["partition_id"]].append(what)
        self.read.append(found)
        self._at = end.to_json()
        return True


@pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
@given(steps=STEPS)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_each_row_once_and_groups_in_order(
    service: TopicService,
    connection: ConnectionOptions,
    steps: list[tuple[str, int]],
):
    """Whatever became of partitions, and however micro-batches fell between."""
    service.store.create("t", partitions=2)
    writers, reader = Writers(service), Reader(connection)
    for what, number in steps:
        if what == "write":
            writers.write(f"group {number}")
        elif what == "read":
            reader.micro_batch(number)
        else:
            reshape(service, what, number)
    while reader.micro_batch(7):
        pass
    of_group: dict[str, list[int]] = defaultdict(list)
    for micro_batch in reader.read:
        # Partitions are read at the same time: a group must not be in two of them.
        groups = [{group for group, _ in rows} for rows in micro_batch.values()]
        assert len(set().union(*groups)) == sum(map(len, groups))
        for rows in micro_batch.values():
            for group, number in rows:
                of_group[group].append(number)
    assert of_group == {group: [*range(n)] for group, n in writers.written.items()}
    in_a_batch = TopicSource(reader._options)
    rows = [
        (row["message_group_id"], int(row["data"]))
        for task in in_a_batch.plan()
        for batch in in_a_batch.read(task, SCHEMA, streaming=False)
        for row in batch.to_pylist()
    ]
    assert sorted(rows) == sorted(
        (group, number) for group, n in writers.written.items() for number in range(n)
    )
