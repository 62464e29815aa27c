# SPDX-License-Identifier: Apache-2.0
"""Tests of `spark_topics.source.stream.planner`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spark_topics.source.stream.batch_ends import BatchEnds, StreamLimits
from spark_topics.source.stream.planner import StreamPlanner
from spark_topics.source.stream.topic_set import TopicSet
from tests.spark_topics.numbers import NumberOffset, Offset
from tests.spark_topics.source.stream.number_cluster import NumberCluster

if TYPE_CHECKING:
    from collections.abc import Mapping


class Reading(NumberCluster):
    """Notes the offsets that were read."""

    def __init__(self) -> None:
        super().__init__(a=(0, 5))
        self.trees: list[Mapping[str, Any]] = []

    def read_offset(self, tree: Mapping[str, Any]) -> NumberOffset:
        """As any other."""
        self.trees.append(tree)
        return super().read_offset(tree)


def test_each_offset_is_read_once() -> None:
    """As long as Spark hands back the same; what has changed since is another one."""
    cluster = Reading()
    planner: StreamPlanner[Offset, NumberOffset, Any] = StreamPlanner(
        cluster,
        TopicSet(cluster, discovery_interval_s=0, fail_on_data_loss=True),
        BatchEnds(cluster, StreamLimits()),
    )
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
