# SPDX-License-Identifier: Apache-2.0
"""Tests of `spark_topics.source.stream.planner`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from spark_topics.source.stream.batch_ends import BatchEnds, StreamLimits
from spark_topics.source.stream.planner import StreamPlanner
from spark_topics.source.stream.topic_set import TopicSet
from tests.spark_topics.numbers import NumberOffset, Offset
from tests.spark_topics.source.stream.number_cluster import NumberCluster

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spark_topics.source.stream.cluster import PartitionStatus


class Reading(NumberCluster):
    """Notes the offsets that were read."""

    def __init__(self) -> None:
        super().__init__(a=(0, 5))
        self.trees: list[Mapping[str, Any]] = []

    def read_offset(self, tree: Mapping[str, Any]) -> NumberOffset:
        """As any other."""
        self.trees.append(tree)
        return super().read_offset(tree)


class Ordered(NumberCluster):
    """A topic partition waits for another one to be read."""

    def status(
        self, begins: Mapping[str, Offset]
    ) -> dict[str, PartitionStatus[Offset] | None]:
        """Until then its rows come later."""
        found = super().status(begins)
        parent, child = found["a"], found["b"]
        if child is not None and parent is not None and parent.unread is not None:
            found["b"] = replace(child, comes_later=True)
        return found


def planner_of(
    cluster: NumberCluster, **limits: Any
) -> StreamPlanner[Offset, NumberOffset, Any]:
    """A planner of all there is."""
    return StreamPlanner(
        cluster,
        TopicSet(cluster, discovery_interval_s=0, fail_on_data_loss=True),
        BatchEnds(cluster, StreamLimits(**limits)),
    )


@pytest.mark.parametrize("limits", [{}, {"max_rows": 1000}])
def test_the_lag_of_what_comes_later(limits: dict[str, int]) -> None:
    """It counts while it waits."""
    planner = planner_of(Ordered(a=(0, 100), b=(0, 500)), **limits)
    start = NumberOffset({"a": Offset(-1), "b": Offset(-1)})
    for backlogs in ({"a": 0, "b": 500}, {"a": 0, "b": 0}):
        start = planner.latest(start)
        progress = planner.progress()
        assert progress is not None
        assert progress["backlogEntries"] == backlogs


@pytest.mark.parametrize(("rows", "is_planned"), [(900, True), (899, False)])
def test_a_minimum_counts_what_comes_later(rows: int, is_planned: bool) -> None:
    """Rows that wait for others hold up nothing, nor do these."""
    cluster = Ordered(a=(0, 100), b=(0, rows))
    planner = planner_of(cluster, min_rows=1000, max_delay_s=900)
    start = NumberOffset({"a": Offset(-1), "b": Offset(-1)})
    end = planner.latest(start)
    assert (end is not start) == is_planned
    assert end.last_read["b"] == -1


def test_each_offset_is_read_once() -> None:
    """As long as Spark hands back the same; what has changed since is another one."""
    cluster = Reading()
    planner = planner_of(cluster)
    start, end = (NumberOffset({"a": Offset(n)}) for n in (1, 2))
    for offset in (start, end):
        for _ in range(3):
            assert planner.offset(offset.to_json()) == offset
    assert cluster.trees == [start.to_json(), end.to_json()]
    tree = end.to_json()
    assert planner.offset(tree) == end
    tree["lastRead"]["a"] = "3"
    assert planner.offset(tree) == NumberOffset({"a": Offset(3)})
    assert len(cluster.trees) == 3
