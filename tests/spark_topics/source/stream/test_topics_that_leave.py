# SPDX-License-Identifier: Apache-2.0
"""A model of a stream whose options name other topics at each restart."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_topics.source.stream.batch_ends import BatchEnds, StreamLimits
from spark_topics.source.stream.planner import StreamPlanner
from spark_topics.source.stream.topic_set import TopicSet, require_named
from tests.spark_topics.numbers import CheckpointError, DataLossError, NumberOffset
from tests.spark_topics.source.stream.number_cluster import NumberCluster

TOPICS = "abcd"

#: Where the process that runs a micro-batch is killed; "" for nowhere.
CRASHES = ("", "", "planned", "recorded", "read", "committed")

Planner = StreamPlanner[Any, NumberOffset, tuple[str, range]]

steps = st.one_of(
    st.tuples(st.just("publish"), st.sampled_from(TOPICS), st.integers(1, 5)),
    st.tuples(st.just("trigger"), st.sampled_from(CRASHES)),
    st.tuples(
        st.just("restart"),
        st.sets(st.sampled_from(TOPICS)),
        st.booleans(),
        st.sampled_from((None, 1, 3)),
    ),
    st.tuples(st.just("available now")),
)


class Model:
    """Topics, and a query as Spark runs it.

    Attributes:
        log: The end of each micro-batch that was recorded.
        rows: What was read of each topic, in the order of the micro-batches.
        committed: How many micro-batches are committed.
    """

    def __init__(self) -> None:
        self.cluster = NumberCluster(a=(0, 3), b=(0, 0))
        self.log: list[str] = []
        self.rows: dict[str, list[int]] = {name: [] for name in TOPICS}
        self.committed = 0
        self.restart({"a", "b"}, True, None)

    def step(self, what: str, *arguments: Any) -> None:
        """One thing happens."""
        getattr(self, what.replace(" ", "_"))(*arguments)

    def publish(self, name: str, count: int) -> None:
        """A topic grows, or begins to be."""
        first, end = self.cluster.logs.get(name, (0, 0))
        self.cluster.logs[name] = (first, end + count)

    def restart(self, wanted: set[str], fail: bool, max_rows: int | None) -> None:
        """A process with other options."""
        self.fail, self.max_rows = fail, max_rows
        self.cluster.wanted = set(wanted)
        self.start()

    def start(self) -> None:
        """A process with the same ones."""
        self.planner: Planner = StreamPlanner(
            self.cluster,
            TopicSet(self.cluster, discovery_interval_s=0, fail_on_data_loss=self.fail),
            BatchEnds(self.cluster, StreamLimits(max_rows=self.max_rows)),
        )

    def available_now(self) -> None:
        """A process that reads what is there, and ends."""
        self.start()
        self.cluster.named = self.named()
        self.planner.fix_target()
        self.drain()
        self.start()

    def named(self) -> list[str]:
        """What discovery names."""
        assert self.cluster.wanted is not None
        return sorted(self.cluster.logs.keys() & self.cluster.wanted)

    def begin(self) -> NumberOffset:
        """Where the next micro-batch begins."""
        if self.committed:
            return self.offset(self.committed - 1)
        return self.planner.offset(self.planner.initial().to_json())

    def offset(self, index: int) -> NumberOffset:
        """The end of a micro-batch, as a checkpoint has it."""
        return self.planner.offset(json.loads(self.log[index]))

    def trigger(self, crash: str = "") -> bool:
        """Run a micro-batch; whether there was one."""
        self.cluster.named = self.named()
        start = self.begin()
        is_planned = len(self.log) > self.committed
        before = self.offset(len(self.log) - 1) if self.log else None
        try:
            found = self.batch(start, crash)
        except DataLossError as error:
            self.check_left(error.topic_partition, before)
            self.start()
            return False
        if self.fail and before is not None:
            left = before.last_read.keys() - (self.cluster.wanted or set())
            assert not left or (not is_planned and crash == "recorded")
        return found

    def check_left(self, name: str, before: NumberOffset | None) -> None:
        """The checkpoint has it, the options do not, and that is an error."""
        assert self.fail
        assert before is not None
        assert name in before.last_read
        assert not self.cluster.is_wanted(name)

    def batch(self, start: NumberOffset, crash: str) -> bool:
        """What Spark asks for in a micro-batch."""
        if len(self.log) == self.committed:
            end = self.planner.latest(start)
            if self.committed and end is start:
                return False
            if crash == "planned":
                self.start()
                return True
            self.log.append(json.dumps(end.to_json()))
        if crash == "recorded":
            self.start()
            return True
        end = self.offset(self.committed)
        ranges = self.planner.ranges(start, end)
        if crash == "read":
            self.start()
            return True
        for name, numbers in ranges:
            self.rows[name] += numbers
        self.committed += 1
        if crash == "committed":
            self.start()
        return True

    def drain(self) -> None:
        """Micro-batches until nothing is new, or one fails."""
        while self.trigger():
            pass

    def finish(self) -> None:
        """All are named again: each row was read once, in order."""
        self.restart(set(TOPICS), True, None)
        self.drain()
        assert self.rows == {
            name: list(range(self.cluster.logs.get(name, (0, 0))[1])) for name in TOPICS
        }
        assert not self.begin().kept


@settings(max_examples=400, deadline=None, derandomize=True)
@given(script=st.lists(steps, min_size=3, max_size=25))
def test_each_row_is_read_once(script: list[tuple[Any, ...]]) -> None:
    """Topics leave and return, grow, begin and are empty; processes die."""
    model = Model()
    for step in script:
        model.step(*step)
    model.finish()


def test_systems_that_cannot_read_other_topics() -> None:
    """A planned micro-batch waits for the options that it had."""
    cluster = NumberCluster()
    cluster.wanted = {"a"}
    require_named(cluster, ["a"])
    with pytest.raises(CheckpointError, match=r"rows of b.*no longer name it"):
        require_named(cluster, ["a", "b"])
