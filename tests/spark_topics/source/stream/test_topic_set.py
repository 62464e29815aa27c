# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark_topics.source.stream import topic_set as module
from spark_topics.source.stream.cluster import PartitionStatus
from spark_topics.source.stream.topic_set import TopicSet
from tests.spark_topics.numbers import DataLossError, NumberOffset, Offset
from tests.spark_topics.source.stream.number_cluster import NumberCluster
from tests.support.fixtures import Clock

if TYPE_CHECKING:
    from collections.abc import Mapping

A, B = "ab"


class Moving(NumberCluster):
    """Reading goes on elsewhere than it was asked for."""

    def __init__(self, to: int, **logs: tuple[int, int]) -> None:
        super().__init__(**logs)
        self.to = Offset(to)

    def status(
        self, begins: Mapping[str, Offset]
    ) -> dict[str, PartitionStatus[Offset] | None]:
        """At the same position, whatever was asked."""
        found = super().status(begins)
        return {
            name: status and PartitionStatus(self.to, status.last)
            for name, status in found.items()
        }


def topics_of(
    cluster: NumberCluster, *, interval_s: float = 0, fail: bool = False
) -> TopicSet[Offset]:
    """The topic partitions of a query."""
    return TopicSet(cluster, discovery_interval_s=interval_s, fail_on_data_loss=fail)


def offset(**read: int) -> NumberOffset:
    """What was read."""
    last_read = {name: Offset(n) for name, n in read.items()}
    return NumberOffset(last_read)


def test_known_ones_go_on_and_new_ones_begin() -> None:
    """A new one with its first row, until an offset has it."""
    topics = topics_of(NumberCluster(a=(0, 5), b=(3, 5)))
    assert topics.begins(offset(a=2)) == {A: 2, B: 2}
    assert topics.begins(offset(a=2)) == {A: 2, B: 2}
    assert topics.begins(offset(a=2, b=4)) == {A: 2, B: 4}


def test_those_that_discovery_does_not_name_go_on() -> None:
    """As long as the options mean them."""
    cluster = NumberCluster(a=(0, 5))
    assert list(topics_of(cluster).begins(offset(b=2, a=3))) == [A, B]
    cluster.wanted = {A}
    assert list(topics_of(cluster).begins(offset(b=2, a=3))) == [A]


def test_a_topic_partition_leaves(caplog: pytest.LogCaptureFixture) -> None:
    """An error that says how to go on, or a warning; its position is kept."""
    cluster = NumberCluster(a=(0, 5))
    cluster.wanted = {A}
    before = offset(b=2, a=3)
    with pytest.raises(DataLossError, match=r"b \(read up to 2\).*`failOn") as caught:
        topics_of(cluster, fail=True).kept(before)
    error = caught.value
    assert (error.topic_partition, error.wanted, error.available) == (B, "3", "")
    assert topics_of(cluster).kept(before) == {B: 2}
    assert len(caplog.messages) == 1


def test_a_topic_partition_returns(caplog: pytest.LogCaptureFixture) -> None:
    """It goes on where it was left; that it stays away is said once."""
    cluster = NumberCluster(a=(0, 5), b=(0, 9))
    cluster.wanted = {A}
    left = NumberOffset({A: Offset(3)}, kept={B: Offset(2)})
    for fail in (True, False):
        topics = topics_of(cluster, fail=fail)
        assert topics.kept(left) == {B: 2}
        cluster.named = [A]
        assert topics.begins(left) == {A: 3}
    cluster.wanted = cluster.named = None
    topics = topics_of(cluster, fail=True)
    assert topics.kept(left) == {}
    assert topics.begins(left) == {A: 3, B: 2}
    assert caplog.messages == []


def test_many_that_leave_are_counted() -> None:
    """A message has a few names."""
    cluster = NumberCluster()
    cluster.wanted = set()
    read = offset(**dict.fromkeys("abcdefgh", 1))
    with pytest.raises(DataLossError, match=r"e \(read up to 1\), 3 more\."):
        topics_of(cluster, fail=True).leaving(read)


def test_discovery_has_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster is asked once in it."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    cluster = NumberCluster(a=(0, 5))
    topics = topics_of(cluster, interval_s=10)
    topics.begins(offset())
    cluster.logs[B] = (0, 1)
    clock.now += 9.9
    assert list(topics.begins(offset())) == [A]
    clock.now += 0.2
    assert list(topics.begins(offset())) == [A, B]


def test_a_target() -> None:
    """New rows and new topic partitions are not there for it."""
    cluster = NumberCluster(a=(0, 5), b=(0, 0))
    topics = topics_of(cluster)
    assert not topics.is_fixed
    topics.fix()
    assert topics.is_fixed
    cluster.logs = {A: (0, 9), B: (0, 3), "c": (0, 3)}
    begins = topics.begins(offset(a=1, b=-1))
    assert begins == {A: 1, B: -1}
    lasts = {name: status.last for name, status in topics.visit(begins).items()}
    assert lasts == {A: 4, B: -1}


@pytest.mark.parametrize("asked", [2, 4])
def test_reading_goes_on_elsewhere(asked: int) -> None:
    """Later where rows are gone, earlier where they never were; until that is read."""
    topics = topics_of(Moving(3, a=(0, 9)))
    statuses = topics.visit(topics.begins(offset(a=asked)))
    assert statuses[A].after == 3
    assert topics.begins(offset(a=asked)) == {A: 3}
    assert topics.begins(offset(a=6)) == {A: 6}


def test_what_grows_again_to_where_it_never_was_is_read_once() -> None:
    """A position that was not there may be reached later, by other rows."""
    cluster = Moving(3, a=(0, 9))
    topics = topics_of(cluster)
    topics.visit(topics.begins(offset(a=5)))
    for read in (4, 5, 6):
        assert topics.begins(offset(a=read)) == {A: read}


def test_one_that_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    """One warning, however often it is asked for; it comes back as a new one."""
    cluster = NumberCluster(a=(0, 5), b=(0, 5))
    topics = topics_of(cluster)
    topics.begins(offset(a=2, b=2))
    del cluster.logs[A]
    for _ in range(2):
        assert list(topics.visit({A: Offset(2), B: Offset(2)})) == [B]
    (warning,) = caplog.messages
    assert "only up to 2 and wanted 3 next" in warning
    cluster.logs[A] = (7, 9)
    assert topics.begins(offset(b=2)) == {A: 6, B: 2}
    topics.visit({A: Offset(6), B: Offset(2)})
    del cluster.logs[A]
    topics.visit({A: Offset(6)})
    assert len(caplog.messages) == 2


class Ending(NumberCluster):
    """Some topic partitions were read to their end, and are gone."""

    def status(
        self, begins: Mapping[str, Offset]
    ) -> dict[str, PartitionStatus[Offset] | None]:
        """Of those that are there."""
        there = begins.keys() & self.logs.keys()
        return super().status({name: begins[name] for name in there})


@pytest.mark.parametrize("is_fixed", [False, True])
def test_one_that_is_over(is_fixed: bool, caplog: pytest.LogCaptureFixture) -> None:
    """It is no loss, and nothing is asked about it until it is there again."""
    cluster = Ending(a=(0, 5), b=(0, 5))
    topics = topics_of(cluster, interval_s=3600, fail=True)
    if is_fixed:
        topics.fix()
    begins = topics.begins(offset(a=4, b=2))
    del cluster.logs[A]
    assert list(topics.visit(begins)) == [B]
    # Though it was there at the last discovery.
    assert topics.begins(offset(b=2)) == {B: 2}
    cluster.logs[A] = (7, 9)
    topics.discover_soon()
    assert topics.begins(offset(b=2)) == ({B: 2} if is_fixed else {A: 6, B: 2})
    assert caplog.messages == []


def test_one_that_goes_while_it_is_found(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing of it was read."""
    cluster = NumberCluster(a=(0, 5))
    cluster.named = [A, B]
    topics = topics_of(cluster)
    assert topics.begins(offset()) == {A: -1}
    topics.fix()
    assert topics.begins(offset()) == {A: -1}
    assert "before the query has read any of it" in caplog.messages[0]
    with pytest.raises(DataLossError, match="b is gone") as caught:
        topics_of(cluster, fail=True).fix()
    assert (caught.value.topic_partition, caught.value.wanted) == (B, "0")


def test_a_visit_that_fails_is_undone() -> None:
    """The cluster hears of the error, and of nothing else."""
    cluster = NumberCluster(a=(0, 5))
    topics = topics_of(cluster, fail=True)
    topics.visit({A: Offset(2)})
    assert cluster.undone == 0
    with pytest.raises(DataLossError):
        topics.visit({B: Offset(2)})
    assert cluster.undone == 1
