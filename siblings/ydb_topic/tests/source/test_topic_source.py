# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from siblings.ydb_topic.tests.support.faults import At, Fault
from siblings.ydb_topic.tests.support.service import TopicService
from spark_topics.options.offsets import Edge, Offsets
from tests.support.waiting import await_true
from ydb_spark.errors import (
    CheckpointError,
    DataLossError,
    OptionError,
    ReadTimeoutError,
)
from ydb_spark.options.connection import ConnectionOptions
from ydb_spark.options.read import ReadOptions
from ydb_spark.source.topic_cluster import TopicOffset
from ydb_spark.source.topic_source import TopicSource

SCHEMA = pa.schema([("data", pa.binary())])


@pytest.fixture
def options(connection: ConnectionOptions) -> ReadOptions:
    """Options of a read of the topic ``t`` from its beginning."""
    return ReadOptions(
        connection,
        "t",
        starting=Offsets(Edge.EARLIEST),
        discovery_interval_s=0,
        stats_interval_s=0,
    )


def fill(service: TopicService, partition: int, first: int, stop: int) -> None:
    """Store numbers."""
    service.store.put("t", partition, *[b"%d" % n for n in range(first, stop)])


def read(source: TopicSource, tasks: Any) -> list[int]:
    """The numbers that tasks read."""
    return [
        int(row["data"])
        for task in tasks
        for batch in source.read(task, SCHEMA, streaming=True)
        for row in batch.to_pylist()
    ]


def bounds(tasks: Any) -> list[tuple[int, int, int]]:
    """Which parts of which partitions tasks read."""
    return [(task.partition, task.start, task.end) for task in tasks]


def test_plan(service: TopicService, options: ReadOptions):
    """From start to end, without partitions that have nothing."""
    fill(service, 0, 0, 10)
    assert bounds(TopicSource(options).plan()) == [(0, 0, 10)]
    bounded = replace(
        options,
        starting=Offsets(Edge.EARLIEST, {0: 2}),
        ending=Offsets(Edge.LATEST, {0: 9}),
        min_partitions=2,
    )
    assert bounds(TopicSource(bounded).plan()) == [(0, 2, 5), (0, 5, 9)]
    assert read(TopicSource(bounded), TopicSource(bounded).plan()) == [*range(2, 9)]
    assert read(TopicSource(options), [None]) == []


def test_plan_that_cannot_be(service: TopicService, options: ReadOptions):
    """Offsets that are not there, or partitions."""
    fill(service, 0, 0, 10)
    service.store.expire("t", 0, 5)
    early = replace(options, starting=Offsets(Edge.EARLIEST, {0: 2}))
    with pytest.raises(DataLossError, match="has no offset 2: it has 5 to 10"):
        TopicSource(early).plan()
    lenient = replace(early, fail_on_data_loss=False)
    assert bounds(TopicSource(lenient).plan()) == [(0, 5, 10)]
    with pytest.raises(OptionError, match=r"\[7\], which t does not have"):
        TopicSource(replace(options, starting=Offsets(Edge.EARLIEST, {7: 0}))).plan()
    late = replace(options, ending=Offsets(Edge.LATEST, {0: 11}))
    with pytest.raises(DataLossError, match="ends before 10, not 11"):
        TopicSource(late).plan()
    lenient = replace(late, fail_on_data_loss=False)
    assert bounds(TopicSource(lenient).plan()) == [(0, 5, 10)]


@pytest.mark.parametrize("end", [10, 50, 80])
def test_plan_up_to_what_is_gone(service: TopicService, options: ReadOptions, end: int):
    """A loss where the read begins with the first message; else its start tells."""
    fill(service, 0, 0, 100)
    service.store.expire("t", 0, 80)
    bounded = replace(options, ending=Offsets(Edge.LATEST, {0: end}))
    for strict in (
        bounded,
        replace(bounded, starting=None, starting_time_ms=1),
    ):
        with pytest.raises(DataLossError, match=f"no message before {end} any more"):
            TopicSource(strict).plan()
    lenient = replace(bounded, fail_on_data_loss=False)
    latest = replace(bounded, starting=Offsets(Edge.EARLIEST, {0: Edge.LATEST}))
    for wanted in (lenient, latest):
        assert TopicSource(wanted).plan() == []
    some = replace(options, ending=Offsets(Edge.LATEST, {0: 81, 1: 0}))
    assert bounds(TopicSource(some).plan()) == [(0, 80, 81)]


@pytest.mark.parametrize(
    ("starting", "ending", "is_lost"),
    [
        ({0: 10}, {}, True),
        ({0: 10, 2: 0}, {}, True),
        ({0: 10, 2: 3}, {}, False),  # the parent had been read to its end
        ({0: Edge.EARLIEST}, {}, False),
        ({0: Edge.LATEST}, {}, False),
        ({0: 10}, {0: 10}, False),
        ({}, {0: 10, 2: 3}, True),
        ({}, {0: 0}, False),
    ],
)
def test_plan_that_names_a_parent_that_is_gone(
    service: TopicService,
    options: ReadOptions,
    starting: dict[int, int | Edge],
    ending: dict[int, int | Edge],
    is_lost: bool,
):
    """The server drops what was split or merged when retention has emptied it."""
    fill(service, 0, 0, 10)
    child, _ = service.store.split("t", 0)
    fill(service, child, 10, 15)
    service.store.drop_partition("t", 0)
    wanted = replace(
        options,
        starting=Offsets(Edge.EARLIEST, starting),
        ending=Offsets(Edge.LATEST, ending),
    )
    lenient = TopicSource(replace(wanted, fail_on_data_loss=False))
    first, end = starting.get(child, 0), ending.get(child, 5)
    assert bounds(lenient.plan()) == [(child, first, end)]
    if is_lost:
        with pytest.raises(DataLossError, match="t/0 is gone") as caught:
            TopicSource(wanted).plan()
        assert caught.value.wanted == "10"
    else:
        assert bounds(TopicSource(wanted).plan()) == [(child, first, end)]


@pytest.mark.parametrize(
    ("time_ms", "starts"),
    [
        (0, (2, 0)),
        (1040, (4, 0)),  # between two: at the later one
        (1050, (5, 0)),
        (1095, (10, 0)),  # after the last of one partition
        (2010, (10, 1)),
        (9999, (10, 3)),
    ],
)
def test_starting_time(
    service: TopicService,
    options: ReadOptions,
    time_ms: int,
    starts: tuple[int, int],
):
    """From the first message that was stored then or later, in each partition."""
    for n in range(10):  # at 1000, 1010, ...; then a gap, and a partition of later
        service.store.put("t", 0, b"%d" % n, written_at_ms=1000 + 10 * n)
    service.store.expire("t", 0, 2)
    for n in range(3):
        service.store.put("t", 1, b"%d" % n, written_at_ms=2000 + 10 * n)
    wanted = replace(options, starting=None, starting_time_ms=time_ms)
    expected = [
        (number, start, end)
        for number, (start, end) in enumerate(zip(starts, (10, 3), strict=True))
        if start < end
    ]
    assert bounds(TopicSource(wanted).plan()) == expected
    planner = TopicSource(wanted).plan_stream()
    assert planner.initial().last_read == {
        f"t/{number}": start - 1 for number, start in enumerate(starts)
    }


def test_starting_time_at_an_end_without_messages(
    service: TopicService, options: ReadOptions
):
    """Where a partition ends in offsets that nobody has, it is an error, not a hang."""
    service.store.put("t", 0, b"a", b"b", written_at_ms=1000)
    service.store.skip("t", 0, 3)
    wanted = replace(options, starting=None, starting_time_ms=1000, poll_timeout_s=0.5)
    with pytest.raises(ReadTimeoutError, match="startingOffsets"):
        TopicSource(wanted).plan()


def test_progress(service: TopicService, options: ReadOptions):
    """How far a topic goes, and what a micro-batch leaves, as all sources call it."""
    source = TopicSource(replace(options, max_rows=6))
    planner = source.plan_stream()
    start = planner.initial()
    assert planner.progress() is None
    fill(service, 0, 10, 18)
    fill(service, 1, 20, 24)
    end = planner.latest(start)
    progress = planner.progress()
    assert progress is not None
    assert progress["latest"] == {"t": {"0": "7", "1": "3"}}
    left = progress["backlogEntries"]["t"]
    assert sum(left.values()) == 12 - 6
    assert progress["backlogBytes"]["t"] == {n: 2 * count for n, count in left.items()}
    assert progress["ageMs"] == {}
    assert len(read(source, planner.ranges(start, end))) == 6


def test_progress_of_children_that_wait(service: TopicService, options: ReadOptions):
    """Their messages are in the backlog, and are not in the micro-batch."""
    source = TopicSource(options)
    planner = source.plan_stream()
    start = planner.initial()
    fill(service, 0, 0, 10)
    child, other = service.store.split("t", 0)
    fill(service, child, 10, 15)
    end = planner.latest(start)
    progress = planner.progress()
    assert progress is not None
    last = {"0": "9", "1": "-1", str(child): "4", str(other): "-1"}
    assert progress["latest"] == {"t": last}
    left = {"0": 0, "1": 0, str(child): 5, str(other): 0}
    assert progress["backlogEntries"] == {"t": left}
    assert read(source, planner.ranges(start, end)) == [*range(10)]


def test_children_after_their_parents(service: TopicService, options: ReadOptions):
    """Of a split, and of a merge behind it; nothing is left out."""
    source = TopicSource(replace(options, max_rows=10))
    planner = source.plan_stream()
    start = planner.initial()
    fill(service, 0, 0, 25)
    left, right = service.store.split("t", 0)
    fill(service, left, 25, 40)
    fill(service, right, 40, 45)
    merged = service.store.merge("t", left, right)
    fill(service, merged, 45, 50)
    found: list[int] = []
    while (end := planner.latest(start)) != start:
        found += read(source, planner.ranges(start, end))
        planner.commit(end)
        start = end
    assert sorted(found) == [*range(50)]
    assert sorted(found[:25]) == [*range(25)]
    assert found[45:] == [*range(45, 50)]


def test_children_of_partitions_that_were_never_written_to(
    service: TopicService, options: ReadOptions
):
    """They wait for what is before them in the tree, and not just for their parent."""
    source = TopicSource(replace(options, max_rows=10))
    planner = source.plan_stream()
    start = planner.initial()
    fill(service, 0, 0, 25)
    left, _ = service.store.split("t", 0)
    child, other = service.store.split("t", left)
    fill(service, child, 25, 30)
    merged = service.store.merge("t", child, other)
    fill(service, merged, 30, 35)
    found: list[int] = []
    while (end := planner.latest(start)) != start:
        found += read(source, planner.ranges(start, end))
        start = end
    assert found == [*range(35)]


def test_partitions_that_come(service: TopicService, options: ReadOptions):
    """A topic that gets more partitions is read from their beginning."""
    source = TopicSource(options)
    planner = source.plan_stream()
    start = planner.initial()
    service.store.alter("t", 3)
    fill(service, 2, 0, 5)
    end = planner.latest(start)
    assert read(source, planner.ranges(start, end)) == [*range(5)]


def test_lost(service: TopicService, options: ReadOptions):
    """Retention that overtakes a stream is an error, or is said to be none."""
    fill(service, 0, 0, 10)
    strict = TopicSource(options).plan_stream()
    lenient_source = TopicSource(replace(options, fail_on_data_loss=False))
    lenient = lenient_source.plan_stream()
    start, lenient_start = strict.initial(), lenient.initial()
    service.store.expire("t", 0, 4)
    with pytest.raises(DataLossError, match="has no offset 0 any more"):
        strict.latest(start)
    end = lenient.latest(lenient_start)
    found = read(lenient_source, lenient.ranges(lenient_start, end))
    assert found == [*range(4, 10)]


@pytest.mark.parametrize("is_told", [True, False])
def test_an_accepted_loss_is_over(
    service: TopicService, options: ReadOptions, is_told: bool
):
    """Also in a partition that had nothing to read just then.

    A server may tell when a topic was made; else its offsets have fallen.
    """
    for partition in range(2):
        fill(service, partition, 0, 10)
    topic = service.store.find("t")
    assert topic is not None
    topic.created *= is_told
    planner = TopicSource(options).plan_stream()
    end = planner.latest(planner.initial())
    service.store.create("t", 2).created *= is_told
    fill(service, 0, 100, 105)
    lenient = TopicSource(replace(options, fail_on_data_loss=False))
    planner = lenient.plan_stream()
    start = planner.offset(end.to_json())
    accepted = planner.latest(start)
    ends = [planner.offset(offset.to_json()) for offset in (start, accepted)]
    assert read(lenient, planner.ranges(*ends)) == [*range(100, 105)]
    fill(service, 1, 200, 212)  # past the old position
    source = TopicSource(options)
    planner = source.plan_stream()
    start = planner.offset(accepted.to_json())
    later = planner.latest(start)
    assert read(source, planner.ranges(start, later)) == [*range(200, 212)]


def test_children_that_wait_may_be_lost(service: TopicService, options: ReadOptions):
    """From when they were found on, and in whichever process."""
    fill(service, 0, 0, 10)
    limited = TopicSource(replace(options, max_rows=4))
    planner = limited.plan_stream()
    end = planner.latest(planner.initial())
    child, _ = service.store.split("t", 0)
    fill(service, child, 10, 20)
    end = planner.latest(end)
    service.store.expire("t", child, 6)
    planner = limited.plan_stream()
    with pytest.raises(DataLossError, match=f"t/{child} has no offset 0 any more"):
        planner.latest(planner.offset(end.to_json()))


@pytest.mark.parametrize("is_new_process", [False, True])
@pytest.mark.parametrize("is_child_read", [False, True])
def test_parent_that_is_gone(
    service: TopicService,
    options: ReadOptions,
    is_child_read: bool,
    is_new_process: bool,
):
    """No loss, if it was read to its end, which the checkpoint tells.

    The checkpoint forgets the parent, so that those that follow need not be known.
    """
    fill(service, 0, 0, 10)
    source = TopicSource(options)
    planner = source.plan_stream()
    end = planner.latest(planner.initial())
    child, _ = service.store.split("t", 0)
    if is_child_read:
        fill(service, child, 10, 15)
    end = planner.latest(end)
    service.store.drop_partition("t", 0)
    fill(service, child, 15, 20)
    if is_new_process:
        planner = source.plan_stream()
        end = planner.offset(end.to_json())
    later = planner.latest(end)
    assert read(source, planner.ranges(end, later)) == [*range(15, 20)]
    assert "t/0" not in later.last_read
    grandchild, _ = service.store.split("t", child)
    fill(service, grandchild, 20, 25)
    last = planner.latest(later)
    assert read(source, planner.ranges(later, last)) == [*range(20, 25)]


def test_parent_that_goes_unread(service: TopicService, options: ReadOptions):
    """It is a loss, or its children are read without it."""
    source = TopicSource(replace(options, max_rows=6))
    planner = source.plan_stream()
    start = planner.initial()
    fill(service, 0, 0, 10)
    start = planner.latest(start)
    child, _ = service.store.split("t", 0)
    fill(service, child, 10, 15)
    planner.latest(start)
    service.store.drop_partition("t", 0)
    with pytest.raises(DataLossError, match=r"t/0 is gone.* wanted 6 next"):
        planner.latest(start)
    source = TopicSource(replace(options, fail_on_data_loss=False))
    planner = source.plan_stream()
    end = planner.latest(start)
    assert read(source, planner.ranges(start, end)) == [*range(10, 15)]


def test_children_that_retention_took_before_they_were_found(
    service: TopicService, options: ReadOptions
):
    """Neither of their rows nor of their parent's is the loss passed over."""
    fill(service, 0, 0, 10)
    source = TopicSource(options)
    planner = source.plan_stream()
    end = planner.latest(planner.initial())
    fill(service, 0, 10, 50)
    child, _ = service.store.split("t", 0)
    fill(service, child, 100, 250)
    service.store.expire("t", child, 100)
    planner = source.plan_stream()
    with pytest.raises(DataLossError, match=f"t/{child} has no offset 0 any more"):
        planner.latest(planner.offset(end.to_json()))
    service.store.drop_partition("t", 0)
    planner = source.plan_stream()
    with pytest.raises(DataLossError, match=f"t/0 is gone|t/{child} has no offset 0"):
        planner.latest(planner.offset(end.to_json()))
    lenient = TopicSource(replace(options, fail_on_data_loss=False))
    planner = lenient.plan_stream()
    start = planner.offset(end.to_json())
    end = planner.latest(start)
    assert read(lenient, planner.ranges(start, end)) == [*range(200, 250)]


def test_parent_that_goes_unread_after_a_start_behind_a_child_s_first_message(
    service: TopicService, options: ReadOptions
):
    """The child's position is no sign that the parent was read."""
    fill(service, 0, 0, 10)
    child, _ = service.store.split("t", 0)
    fill(service, child, 10, 20)
    service.store.expire("t", child, 4)
    limited = TopicSource(replace(options, max_rows=6))
    planner = limited.plan_stream()
    end = planner.latest(planner.initial())
    service.store.drop_partition("t", 0)
    planner = limited.plan_stream()
    with pytest.raises(DataLossError, match=r"t/0 is gone.* wanted 6 next"):
        planner.latest(planner.offset(end.to_json()))


def test_generations_that_are_gone(service: TopicService, options: ReadOptions):
    """No loss where all were read, though none of the first ones' children is left."""
    fill(service, 0, 0, 10)
    source = TopicSource(options)
    planner = source.plan_stream()
    end = planner.latest(planner.initial())
    left, right = service.store.split("t", 0)
    fill(service, left, 10, 15)
    fill(service, right, 15, 20)
    end = planner.latest(end)
    last = 0
    for child in (left, right):
        last, _ = service.store.split("t", child)
    end = planner.latest(end)
    for number in (0, left, right):
        service.store.drop_partition("t", number)
    fill(service, last, 20, 25)
    planner = source.plan_stream()
    end = planner.offset(end.to_json())
    later = planner.latest(end)
    assert read(source, planner.ranges(end, later)) == [*range(20, 25)]
    assert later.to_json().get("ended") is None


@pytest.mark.parametrize("spelled", ["/t", "/local/t"])
def test_one_topic_however_its_path_is_spelled(
    service: TopicService, options: ReadOptions, spelled: str
):
    """It is no other topic, neither now nor in a checkpoint of before."""
    fill(service, 0, 0, 10)
    source = TopicSource(replace(options, topic=spelled))
    planner = source.plan_stream()
    start = planner.initial()
    end = planner.latest(start)
    assert end.to_json()["lastRead"] == {"t": {"0": "9", "1": "-1"}}
    fill(service, 0, 10, 15)
    tree = {
        "v": 1,
        "lastRead": {spelled: {"0": "9", "1": "-1"}},
        "startAfter": {spelled: {"0": "-1"}},
        "created": {spelled: end.created["t"]},
    }
    for made in (end.to_json(), tree):
        plain = TopicSource(options)
        planner = plain.plan_stream()
        start = planner.offset(made)
        later = planner.latest(start)
        assert read(plain, planner.ranges(start, later)) == [*range(10, 15)]


def test_topic_that_was_made_anew(service: TopicService, options: ReadOptions):
    """Offsets beyond its end are a loss."""
    fill(service, 0, 0, 10)
    planner = TopicSource(options).plan_stream()
    end = planner.latest(planner.initial())
    service.store.create("t", 2)
    with pytest.raises(DataLossError, match="made anew"):
        planner.latest(end)


def test_topic_with_as_many_rows_that_was_made_anew(
    service: TopicService, options: ReadOptions
):
    """Its offsets fit, and its rows are others: what tells is when it was made."""
    fill(service, 0, 0, 10)
    strict = TopicSource(options)
    planner = strict.plan_stream()
    end = planner.latest(planner.initial())
    service.store.create("t", 2, consumers=["c"])
    fill(service, 0, 100, 120)
    with pytest.raises(DataLossError, match="t was dropped and made anew"):
        planner.latest(planner.offset(end.to_json()))
    # A driver that begins with the micro-batch that it finds does not read others.
    again = strict.plan_stream()
    start = again.offset(end.to_json())
    with pytest.raises(DataLossError, match="made anew"):
        again.ranges(start, again.offset(end.to_json()))
    lenient = TopicSource(replace(options, fail_on_data_loss=False, consumer="c"))
    planner = lenient.plan_stream()
    start = planner.offset(end.to_json())
    later = planner.latest(start)
    topic = service.store.find("t")
    assert topic is not None
    assert not topic.consumers["c"]  # not what was read of the other
    offsets = [planner.offset(offset.to_json()) for offset in (start, later)]
    assert read(lenient, planner.ranges(*offsets)) == [*range(100, 120)]
    assert planner.latest(planner.offset(later.to_json())) == later


def test_topic_that_is_made_anew_before_the_first_plan(
    service: TopicService, options: ReadOptions
):
    """A new query has begun at offsets of the old one."""
    fill(service, 0, 0, 10)
    planner = TopicSource(options).plan_stream()
    start = planner.initial()
    service.store.create("t", 2)
    fill(service, 0, 100, 120)
    with pytest.raises(DataLossError, match="t was dropped and made anew"):
        planner.latest(start)


def test_topic_that_the_options_no_longer_name(
    service: TopicService, options: ReadOptions
):
    """It leaves with an error or a warning, and goes on where it was left."""
    service.store.create("other", 1)
    service.store.put("other", 0, b"100", b"101")
    fill(service, 0, 0, 10)
    source = TopicSource(options)
    planner = source.plan_stream()
    start = planner.initial()
    end = planner.latest(start)
    other = replace(options, topic="other")
    with pytest.raises(DataLossError, match=r"t/0 \(read up to 9\)"):
        TopicSource(other).plan_stream().latest(end)
    lenient = TopicSource(replace(other, fail_on_data_loss=False))
    # Rows of a micro-batch that was planned are still to be read.
    with pytest.raises(CheckpointError, match=r"rows of t/0.*no longer name it"):
        lenient.plan_stream().ranges(start, end)
    planner = lenient.plan_stream()
    end = planner.offset(end.to_json())
    later = planner.offset(planner.latest(end).to_json())
    assert read(lenient, planner.ranges(end, later)) == [100, 101]
    assert dict(later.kept) == {"t/0": 9, "t/1": -1}
    fill(service, 0, 10, 12)
    planner = source.plan_stream()
    with pytest.raises(DataLossError, match="other/0"):
        planner.latest(planner.offset(later.to_json()))
    source = TopicSource(replace(options, fail_on_data_loss=False))
    planner = source.plan_stream()
    later = planner.offset(later.to_json())
    last = planner.latest(later)
    assert read(source, planner.ranges(later, last)) == [10, 11]
    # That it was made anew meanwhile is noticed by its own time of creation.
    service.store.create("other", 1)
    planner = TopicSource(other).plan_stream()
    last = planner.offset({**last.to_json(), "lastRead": {}})
    with pytest.raises(DataLossError, match="other was dropped and made anew"):
        planner.latest(last)


def test_offsets_that_name_one_time_of_creation(
    service: TopicService, options: ReadOptions
):
    """Of the one topic that they have, as older ones do."""
    fill(service, 0, 0, 10)
    planner = TopicSource(options).plan_stream()
    tree = planner.latest(planner.initial()).to_json()
    (created,) = tree["created"].values()
    assert planner.offset({**tree, "created": created}).created == {"t": created}
    for bad in (5, ["t"]):
        with pytest.raises(CheckpointError, match="not an object by topic"):
            planner.offset({**tree, "created": bad})


@pytest.mark.parametrize("is_stream", [False, True], ids=["batch", "stream"])
def test_topic_that_is_made_anew_before_its_tasks_read(
    service: TopicService, options: ReadOptions, is_stream: bool
):
    """Rows of the new one are never taken for those that were planned."""
    fill(service, 0, 0, 10)
    source = TopicSource(options)
    if is_stream:
        planner = source.plan_stream()
        start = planner.initial()
        trees = [one.to_json() for one in (start, planner.latest(start))]
        tasks = planner.ranges(*map(planner.offset, trees))
    else:
        tasks = source.plan()
    assert read(source, tasks) == [*range(10)]
    service.store.create("t", 2)
    fill(service, 0, 100, 120)
    with pytest.raises(DataLossError, match="made anew since that was planned"):
        read(source, tasks)
    lenient = TopicSource(replace(options, fail_on_data_loss=False))
    assert read(lenient, tasks) == []


def test_children_of_what_retention_took(service: TopicService, options: ReadOptions):
    """A parent whose rest is gone holds nothing up."""
    fill(service, 0, 0, 5)
    source = TopicSource(replace(options, fail_on_data_loss=False))
    planner = source.plan_stream()
    start = planner.latest(planner.initial())
    fill(service, 0, 5, 10)
    child, _ = service.store.split("t", 0)
    fill(service, child, 10, 15)
    service.store.expire("t", 0, 10)
    end = planner.latest(start)
    assert read(source, planner.ranges(start, end)) == [*range(10, 15)]


def test_consumer_that_is_not_there(service: TopicService, options: ReadOptions):
    """It is an error at the beginning, and no warning in each micro-batch."""
    source = TopicSource(replace(options, consumer="absent"))
    with pytest.raises(OptionError, match=r"consumer: t has none .* It has: c\."):
        source.plan_stream().initial()


def test_commits_that_fail(
    service: TopicService, options: ReadOptions, caplog: pytest.LogCaptureFixture
):
    """One that may be repeated is not waited for once a partition."""
    fill(service, 0, 0, 10)
    fill(service, 1, 10, 20)
    short = replace(options.connection, operation_timeout_s=0.3)
    source = TopicSource(replace(options, consumer="c", connection=short))
    planner = source.plan_stream()
    end = planner.latest(planner.initial())
    service.faults.add(Fault(At.COMMIT, status=400050, times=-1))
    planner.commit(end)
    assert len(caplog.records) == 1
    service.faults.clear()
    service.faults.add(Fault(At.COMMIT, status=400010))
    planner.commit(end)
    planner.commit(end)
    assert len(caplog.records) == 2
    topic = service.store.find("t")
    assert topic is not None
    assert topic.consumers["c"] == {1: 10}


def test_consumer(service: TopicService, options: ReadOptions):
    """It follows what was committed; that it cannot is no end of the stream."""
    fill(service, 0, 0, 10)
    source = TopicSource(replace(options, consumer="c"))
    planner = source.plan_stream()
    start = planner.initial()
    end = planner.latest(start)
    planner.commit(end)
    planner.latest(end)
    topic = service.store.find("t")
    assert topic is not None
    assert topic.consumers["c"] == {0: 10}
    fill(service, 0, 10, 20)
    service.faults.add(Fault(At.COMMIT, status=400020, times=-1))
    # Where there was nothing to plan the planner rests for a while.
    await_true(lambda: planner.latest(end) != end, "the end of a rest", 20)
    later = planner.latest(end)
    planner.commit(later)
    assert read(source, planner.ranges(end, later)) == [*range(10, 20)]


@pytest.mark.parametrize("is_committed", [True, False])
def test_consumer_of_what_spark_has_not_committed(
    service: TopicService, options: ReadOptions, is_committed: bool
):
    """Before Spark 4.2 a query that goes on may be asked for more before it is run."""
    fill(service, 0, 0, 10)
    source = TopicSource(replace(options, consumer="c"))
    planner = source.plan_stream()
    end = planner.latest(planner.initial())
    planner = source.plan_stream()
    planner.latest(planner.offset(end.to_json()), is_committed=is_committed)
    topic = service.store.find("t")
    assert topic is not None
    assert topic.consumers["c"] == ({0: 10} if is_committed else {})


def test_consumer_of_a_query_that_begins_at_the_end(
    service: TopicService, options: ReadOptions
):
    """Nothing of what is before that was read, nor is the beginning recorded."""
    fill(service, 0, 0, 10)
    latest = replace(options, consumer="c", starting=Offsets(Edge.LATEST))
    planner = TopicSource(latest).plan_stream()
    planner.latest(planner.initial())
    topic = service.store.find("t")
    assert topic is not None
    assert topic.consumers["c"] == {}


@pytest.mark.parametrize(
    "read_",
    [
        {"t": {"0": 5}},
        {"t": {"1:0": "280"}},  # of TubeMQ
        {"t": {"01": "5"}},
        {"t": {"0": "-2"}},
        {"t": {"0": "05"}},
        {"t": "5"},
    ],
)
def test_checkpoint_of_others(read_: Any):
    """It is an error of ours."""
    with pytest.raises(CheckpointError, match="not one of a YDB stream"):
        TopicOffset.from_json({"v": 1, "lastRead": read_})
    with pytest.raises(CheckpointError, match="not one of a YDB stream"):
        TopicOffset.from_json({"v": 1, "lastRead": {}, "ended": read_})
