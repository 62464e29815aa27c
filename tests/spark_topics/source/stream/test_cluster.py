# SPDX-License-Identifier: Apache-2.0
"""The planner on a messaging system whose positions are numbers."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_topics.source.stream.batch_ends import BatchEnds, StreamLimits
from spark_topics.source.stream.cluster import Cluster
from spark_topics.source.stream.planner import StreamPlanner
from spark_topics.source.stream.topic_set import TopicSet
from tests.spark_topics.numbers import (
    CheckpointError,
    DataLossError,
    NumberOffset,
    Offset,
)
from tests.spark_topics.source.stream.number_cluster import Accepting, NumberCluster

Ranges = list[tuple[str, range]]


def planner_of(
    cluster: NumberCluster, *, fail: bool = True, **limits: Any
) -> StreamPlanner[Offset, NumberOffset, tuple[str, range]]:
    """A process of a query."""
    one: Cluster[Offset, NumberOffset, tuple[str, range]] = cluster
    topics = TopicSet(cluster, discovery_interval_s=0, fail_on_data_loss=fail)
    return StreamPlanner(one, topics, BatchEnds(cluster, StreamLimits(**limits)))


class Query:
    """A streaming query as Spark runs it: its checkpoint is JSON, between processes."""

    def __init__(self, cluster: NumberCluster, **given: Any) -> None:
        self.cluster = cluster
        self.given = given
        self.planner = planner_of(cluster, **given)
        self.log: list[str] = []

    def trigger(self) -> Ranges:
        """What the next micro-batch reads; nothing where there is none."""
        if self.log:
            start = self.planner.offset(json.loads(self.log[-1]))
        else:
            start = self.planner.initial()
        end = self.planner.latest(start)
        if end is start:
            return []
        self.log.append(json.dumps(end.to_json()))
        return list(self.planner.ranges(start, end))

    def drain(self) -> Ranges:
        """All that there is, in as many micro-batches as it takes."""
        found: Ranges = []
        planned = None
        while planned != len(self.log):
            planned = len(self.log)
            found += self.trigger()
        return found

    def restart(self) -> None:
        """Goes on in another process."""
        self.planner.stop()
        self.planner = planner_of(self.cluster, **self.given)


def test_all_there_is_then_what_is_new() -> None:
    """A micro-batch begins after the one before, which is acknowledged."""
    query = Query(NumberCluster(a=(0, 3), b=(5, 7)))
    assert query.trigger() == [("a", range(3)), ("b", range(5, 7))]
    query.cluster.logs["a"] = (0, 9)
    assert query.trigger() == [("a", range(3, 9))]
    assert query.cluster.read == {"a": 2, "b": 6}
    assert query.trigger() == []
    assert json.loads(query.log[-1]) == {
        "v": 1,
        "lastRead": {"a": "8", "b": "6"},
    }


def test_a_new_partition_begins_with_its_first_row() -> None:
    """And the end says so."""
    query = Query(NumberCluster(a=(0, 3)))
    query.trigger()
    query.cluster.logs["b"] = (4, 6)
    assert query.trigger() == [("b", range(4, 6))]
    assert json.loads(query.log[-1])["startAfter"] == {"b": "3"}


def test_limits() -> None:
    """They are shared out in proportion."""
    query = Query(NumberCluster(a=(0, 30), b=(0, 60)), max_rows=9)
    assert query.trigger() == [("a", range(3)), ("b", range(6))]
    assert query.trigger() == [("a", range(3, 6)), ("b", range(6, 12))]
    progress = query.planner.progress()
    assert progress is not None
    assert progress["latest"] == {
        "a": "29",
        "b": "59",
    }
    assert sum(progress["backlogEntries"].values()) == 72


def test_a_minimum_is_waited_for() -> None:
    """Until there are that many."""
    query = Query(NumberCluster(a=(0, 3)), min_rows=4, max_delay_s=3600)
    assert query.trigger() == []
    query.cluster.logs["a"] = (0, 4)
    assert query.trigger() == [("a", range(4))]
    query.cluster.logs["a"] = (0, 7)
    assert query.trigger() == []


def test_available_now() -> None:
    """What comes later is for the next run."""
    query = Query(NumberCluster(a=(0, 7)), max_rows=5)
    query.planner.fix_target()
    query.cluster.logs = {"a": (0, 9), "b": (0, 2)}
    assert query.trigger() == [("a", range(5))]
    assert query.trigger() == [("a", range(5, 7))]
    assert query.trigger() == []
    query.restart()
    assert query.trigger() == [("a", range(7, 9)), ("b", range(2))]


def test_a_restart() -> None:
    """The same micro-batch again, and then the next; the start is where it was."""
    query = Query(NumberCluster(a=(0, 7)), max_rows=5)
    first = query.trigger()
    query.restart()
    query.cluster.logs["a"] = (0, 8)
    end = query.planner.offset(json.loads(query.log[0]))
    assert query.planner.ranges(NumberOffset({}), end) == first
    assert query.trigger() == [("a", range(5, 8))]


def test_rows_that_are_gone() -> None:
    """The cluster says so by its own arithmetic."""
    query = Query(NumberCluster(a=(0, 7)), max_rows=5)
    query.trigger()
    query.cluster.logs["a"] = (6, 8)
    with pytest.raises(DataLossError, match="has no 5"):
        query.trigger()


def test_a_partition_that_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    """An error with what was wanted next, or a warning."""
    query = Query(NumberCluster(a=(0, 3), b=(0, 3)))
    query.trigger()
    log = query.cluster.logs.pop("a")
    with pytest.raises(DataLossError, match="only up to 2 and wanted 3") as caught:
        query.trigger()
    assert caught.value.wanted == "3"
    query.given["fail"] = False
    query.restart()
    assert query.trigger() == []
    assert len(caplog.messages) == 1
    query.cluster.logs["a"] = log
    assert query.trigger() == [("a", range(3))]


#: What happens to one of two logs: so many rows come, all rows go, a log of the same
#: name begins anew; then the query runs.
EVENTS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["come", "go", "anew", "run"])),
    max_size=12,
)


@given(events=EVENTS)
@settings(max_examples=200, deadline=None)
def test_an_accepted_loss_is_over(events: list[tuple[str, str]]) -> None:
    """The next run reports none, and reads each row that came since, once.

    Also where nothing was there to be read when the loss was accepted, and a log of the
    same name has come to the old position by the next run.
    """
    cluster = Accepting(a=(0, 3), b=(0, 3))
    query = Query(cluster)
    read: dict[str, list[int]] = defaultdict(list)

    def run(*, fail: bool) -> None:
        cluster.fails = query.given["fail"] = fail
        query.restart()
        for name, numbers in query.drain():
            read[name] += numbers

    def run_until_it_is_over() -> None:
        try:
            run(fail=True)
        except DataLossError:
            run(fail=False)
            run(fail=True)
        for name, (first, end) in cluster.logs.items():
            assert [n for n in read[name] if n >= first] == [*range(first, end)]

    for name, event in events:
        first, end = cluster.logs[name]
        if event == "come":
            cluster.logs[name] = first, end + 2
        elif event == "go":
            cluster.logs[name] = end, end
        elif event == "anew":
            # Before it has come to the old position, where no number tells them apart.
            run_until_it_is_over()
            cluster.logs[name], read[name] = (0, 0), []
            run_until_it_is_over()
        else:
            run_until_it_is_over()
    run_until_it_is_over()


@pytest.mark.parametrize("text", ["12:3", "x", ""])
def test_positions_of_others_are_refused(text: str) -> None:
    """A checkpoint of Pulsar is not mistaken for one of numbers."""
    tree = {"v": 1, "lastRead": {"t": text}}
    with pytest.raises(CheckpointError, match="is not one of a Numbers stream"):
        planner_of(NumberCluster()).offset(tree)
