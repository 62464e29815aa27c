# SPDX-License-Identifier: Apache-2.0
"""A stream's planner on TubeMQ: offsets, limits, losses, and brokers that restart."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from siblings.tubemq.tests.scripted_server import (
    ENTRY,
    ScriptedServer,
    Store,
    refuse,
    throw,
)
from spark_topics import statistics
from spark_topics.options.offsets import Edge, Offsets
from tests.support.waiting import await_true
from tubemq_spark.errors import CheckpointError, DataLossError, TransportError
from tubemq_spark.options import ReadOptions
from tubemq_spark.source.batch_plan import ReadTask, plan_batch
from tubemq_spark.source.range_reader import RangeReader
from tubemq_spark.source.stream import TubeMQOffset, stream_planner
from tubemq_spark.wire.metadata import Partition


@pytest.fixture(autouse=True)
def _nobody_was_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some warnings come once a process."""
    monkeypatch.setattr(statistics, "_warnings", set())


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer({"t": [1, 1]}) as server:
        for number in range(10):
            server.append("t", 0, b"%d" % number)
        yield server


def planner(server: ScriptedServer, **options: Any) -> Any:
    chosen = ReadOptions(
        server.options, ("t",), starting=Offsets(Edge.EARLIEST), group="g"
    )
    return stream_planner(server.pool, replace(chosen, **options))


def ranges(planner: Any, start: Any, end: Any) -> list[tuple[str, int, int]]:
    return [
        (str(task.range.partition), task.range.start, task.range.end)
        for task in planner.ranges(start, end)
    ]


def test_offsets_survive_the_checkpoint(server: ScriptedServer):
    stream = planner(server)
    end = stream.latest(stream.initial())
    tree = json.loads(json.dumps(end.to_json()))
    assert tree["lastRead"] == {"t": {"1:0": "280", "1:10000": "0"}}
    again = planner(server)
    assert again.offset(tree) == end
    # The first end says where the query began: the same range after a crash.
    assert ranges(again, again.initial(), again.offset(tree)) == [("t/1:0", 0, 280)]
    assert again.latest(end) is end
    again.stop()


@pytest.mark.parametrize("fails", [True, False])
def test_rows_that_retention_took_are_a_loss(server: ScriptedServer, fails: bool):
    stream = planner(server, fail_on_data_loss=fails)
    first = stream.initial()
    server.stores["t", 0].begin = 6
    if fails:
        with pytest.raises(DataLossError, match="begins at 168"):
            stream.latest(first)
    else:
        end = stream.latest(first)
        assert ranges(stream, first, end) == [("t/1:0", 6 * ENTRY, 10 * ENTRY)]


def test_topics_that_the_options_no_longer_name():
    """They leave with an error or a warning, and go on where they were left."""
    with ScriptedServer({"t": [1], "u": [1]}) as server:
        for topic in "tu":
            server.append(topic, 0, b"first")
        both, only = {"topics": ("t", "u")}, {"topics": ("t",)}
        stream = planner(server, **both)
        start = stream.initial()
        end = stream.latest(start)
        with pytest.raises(DataLossError, match=r"u/1:0 \(read up to 28\)"):
            planner(server, **only).latest(end)
        only["fail_on_data_loss"] = False
        # Rows of a micro-batch that was planned are still to be read.
        with pytest.raises(CheckpointError, match="rows of u/1:0"):
            planner(server, **only).ranges(start, end)
        for topic in "tu":
            server.append(topic, 0, b"second")
        stream = planner(server, **only)
        later = stream.offset(stream.latest(end).to_json())
        assert dict(later.kept) == {"u/1:0": ENTRY}
        assert ranges(stream, end, later) == [("t/1:0", ENTRY, 2 * ENTRY)]
        stream.commit(end)
        stream = planner(server, **both)
        last = stream.offset(stream.latest(later).to_json())
        assert ranges(stream, later, last) == [("u/1:0", ENTRY, 2 * ENTRY)]
        assert not last.kept


def test_a_log_that_was_rolled_back_is_a_loss(server: ScriptedServer):
    stream = planner(server)
    end = stream.latest(stream.initial())
    del server.stores["t", 0].entries[5:]
    with pytest.raises(DataLossError, match="ends at 140"):
        planner(server).latest(end)


@pytest.mark.parametrize("fails", [True, False])
def test_what_another_run_has_read_from_memory_is_neither_lost_nor_new(
    server: ScriptedServer, fails: bool
):
    stream = planner(server, read_unflushed=True)
    end = stream.latest(stream.initial())
    store = server.stores["t", 0]
    store.flushed = 7
    stream = planner(server, fail_on_data_loss=fails)
    assert stream.latest(end) is end
    server.append("t", 0, b"new")
    store.flushed = None
    # A plan that found nothing and took long is not made again at once.
    await_true(lambda: stream.latest(end) is not end, "a plan")
    assert ranges(stream, end, stream.latest(end)) == [("t/1:0", 280, 308)]


def test_an_accepted_loss_is_over(server: ScriptedServer):
    """Also in a partition that had nothing to read just then."""
    for number in range(10):
        server.append("t", 10000, b"%d" % number)
    end = planner(server).latest(planner(server).initial())
    for number in (0, 1):  # the topic is made anew
        server.stores["t", number].entries.clear()
    server.append("t", 0, b"new")
    stream = planner(server, fail_on_data_loss=False)
    accepted = stream.latest(end)
    assert ranges(stream, end, accepted) == [("t/1:0", 0, ENTRY)]
    for number in range(12):  # past the old position
        server.append("t", 10000, b"new %d" % number)
    stream = planner(server)
    start = stream.offset(accepted.to_json())
    later = stream.latest(start)
    assert ranges(stream, start, later) == [("t/1:10000", 0, 12 * ENTRY)]


def test_what_limits_have_left_for_later_may_be_lost(server: ScriptedServer):
    """From when it was found on, and in whichever process."""
    limits = {"max_rows": 1, "discovery_interval_s": 0.0}
    server.layout["t"] = [1]
    stream = planner(server, **limits)
    end = stream.latest(stream.initial())
    server.layout["t"] = [1, 1]
    for number in range(5):
        server.append("t", 10000, b"%d" % number)
    end = stream.latest(end)
    server.stores["t", 1].begin = end.last_read["t/1:10000"] // ENTRY + 1
    with pytest.raises(DataLossError, match=r"t/1:10000 .* begins at"):
        planner(server, **limits).latest(end)


def test_partitions_that_a_master_leaves_out_are_not_gone(server: ScriptedServer):
    stream = planner(server, discovery_interval_s=0.0)
    end = stream.latest(stream.initial())
    server.layout["t"] = [1]
    server.append("t", 10000, b"new")
    later = stream.latest(end)
    assert ranges(stream, end, later) == [("t/1:10000", 0, ENTRY)]


def test_a_broker_that_starts_is_waited_for(server: ScriptedServer):
    server.script("register", refuse(503), refuse(503))
    stream = planner(server)
    assert stream.latest(stream.initial()).last_read["t/1:0"] == 280


@pytest.mark.parametrize(
    "tree",
    [
        {"v": 1},
        {"v": 1, "lastRead": {"t": {"1:0": "x"}}},
        {"v": 1, "lastRead": {"t": {"one": "0"}}},
        {"v": 1, "lastRead": {"t": "0"}},
        {"v": 1, "lastRead": {"t": {"1:0": "27"}}},
        {"v": 1, "lastRead": {"t": {"1:0": "-28"}}},
        {"v": 1, "lastRead": {"t": {"1:0": "28" * 12}}},
        {"v": 1, "lastRead": {"t": {"-1:0": "28"}}},
        {"v": 1, "lastRead": {"t": {"1:0": {}}}},
        {"v": 1, "lastRead": {"t": {"1:0": "28"}}, "startAfter": {"t": {"x": "28"}}},
        {"v": 1, "lastRead": ["t"]},
        {"v": 2, "lastRead": {}},
        7,
    ],
)
def test_what_is_not_ours_is_not_read(tree: Any):
    problem = "not one of a TubeMQ stream|reads version 1"
    with pytest.raises(CheckpointError, match=problem):
        TubeMQOffset.from_json(tree)


def test_the_plan_of_a_batch(server: ScriptedServer):
    options = ReadOptions(server.options, ("t",), group="g", min_partitions=4)
    tasks = plan_batch(server.pool, options)
    assert [(one.range.start, one.range.end) for one in tasks] == [
        (0, 56),
        (56, 140),
        (140, 196),
        (196, 280),
    ]
    # Of planners, which readers must not be in the way of.
    assert {body.groupName for body in server.seen["register"]} == {"g-plan"}


# -- where a group is ------------------------------------------------------------------


def group_positions(server: ScriptedServer) -> dict[int, int]:
    return {
        partition_id: offset
        for (group, _, partition_id), offset in server.positions.items()
        if group == "g"
    }


def test_brokers_learn_what_a_named_group_has_read(server: ScriptedServer):
    stream = planner(server, max_rows=4)
    end = stream.latest(stream.initial())
    assert group_positions(server) == {}  # only what Spark has committed
    stream.commit(end)
    assert group_positions(server) == {0: 4 * ENTRY, 10000: 0}
    asked = server.requests["register"]
    stream.commit(end)
    assert server.requests["register"] == asked  # nothing has moved
    stream.latest(end)  # after which the broker has heard all that came before
    assert not server.owners_of("g")  # nobody is in the way of applications


def test_a_group_that_nobody_has_named_is_left_alone(server: ScriptedServer):
    stream = planner(server, group=None)
    stream.commit(stream.latest(stream.initial()))
    plans = [one.groupName for one in server.seen["register"]]
    assert all(name.endswith("-plan") for name in plans)


def test_a_broker_that_does_not_learn_it_fails_nothing(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
):
    stream = planner(server, max_rows=4)
    end = stream.latest(stream.initial())
    server.script("register", refuse(500), refuse(500))
    stream.commit(end)
    later = stream.latest(end)
    stream.commit(later)  # it is left alone for a while
    warnings = [one for one in caplog.records if one.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "how far the group g is" in warnings[0].getMessage()


# -- brokers and partitions that come and go -------------------------------------------


@pytest.fixture
def two() -> Iterator[tuple[ScriptedServer, ScriptedServer]]:
    """Two brokers with the same partition ids; the first server is the master, too."""
    with (
        ScriptedServer({"t": [1]}, broker_id=2) as second,
        ScriptedServer({"t": [1]}, others=[second]) as first,
    ):
        for number in range(3):
            first.append("t", 0, b"%d" % number)
        second.append("t", 0, b"3")
        yield first, second


def test_ids_of_partitions_repeat_on_each_broker(two):
    first, _ = two
    stream = planner(first)
    start = stream.initial()
    end = stream.latest(start)
    assert end.to_json()["lastRead"] == {"t": {"1:0": "84", "2:0": "28"}}
    assert ranges(stream, start, end) == [("t/1:0", 0, 84), ("t/2:0", 0, 28)]


def test_another_master_takes_over(server: ScriptedServer):
    """While a stream runs: the one that served stands by from now on, or is gone."""
    with ScriptedServer({}, broker_id=9, others=[server]) as second:
        masters = (server.address, second.address)
        client = replace(server.options, masters=masters)
        stream = planner(server, client=client, discovery_interval_s=0.0)
        end = stream.latest(stream.initial())
        server.script("consumer register", *[throw("rv.StandbyException")] * 9)
        server.append("t", 10000, b"new")
        later = stream.latest(end)
        assert ranges(stream, end, later) == [("t/1:10000", 0, ENTRY)]
        assert second.requests["consumer register"] == 1


def test_a_batch_waits_for_a_broker_that_is_down(two):
    """The master names its partitions: without them a batch would be less."""
    first, second = two
    second.readable = False
    options = ReadOptions(first.options, ("t",), group="g")

    def come() -> None:
        second.readable = True

    timer = threading.Timer(0.5, come)
    timer.start()
    assert len(plan_batch(first.pool, options)) == 2
    timer.join()


@pytest.mark.parametrize("fails", [True, False])
def test_a_broker_that_stays_down_is_named(two, fails: bool):
    first, second = two
    second.readable = False
    client = replace(first.options, operation_timeout_s=0.3)
    options = ReadOptions(client, ("t",), group="g", fail_on_data_loss=fails)
    if fails:
        with pytest.raises(TransportError, match=r"t/2:0 cannot be read now"):
            plan_batch(first.pool, options)
    else:
        assert len(plan_batch(first.pool, options)) == 1


def test_a_stream_from_the_earliest_begins_without_a_broker_that_is_down(two):
    first, second = two
    second.readable = False
    stream = planner(first, discovery_interval_s=0.0)
    end = stream.latest(stream.initial())
    assert list(end.last_read) == ["t/1:0"]
    second.readable = True
    later = stream.latest(end)
    assert ranges(stream, end, later) == [("t/2:0", 0, 28)]  # from its first row on


@pytest.mark.parametrize("is_new", [True, False])
def test_a_stream_of_what_there_is_now_waits_for_a_broker_that_is_down(
    two, is_new: bool
):
    """As a batch does: it ends, and would have left rows that are stored."""
    first, second = two
    at = planner(first).initial()
    if not is_new:
        at = planner(first).latest(at)
        second.append("t", 0, b"4")
    second.readable = False

    def come() -> None:
        second.readable = True

    timer = threading.Timer(0.5, come)
    timer.start()
    stream = planner(first)
    stream.fix_target()
    timer.join()
    end = stream.latest(at)
    assert end.last_read["t/2:0"] == (28 if is_new else 56)


def test_a_stream_of_what_there_is_now_names_a_broker_that_stays_down(two):
    first, second = two
    second.readable = False
    client = replace(first.options, operation_timeout_s=0.3)
    stream = planner(first, client=client)
    with pytest.raises(TransportError, match=r"t/2:0 cannot be read now"):
        stream.fix_target()


def test_a_restart_goes_on_without_a_broker_that_stays_down(two):
    """Where losses are accepted; what it has is read when it is back."""
    first, second = two
    end = planner(first).latest(planner(first).initial())
    second.readable = False
    for server in two:
        server.append("t", 0, b"new")
    client = replace(first.options, operation_timeout_s=0.3)
    with pytest.raises(TransportError, match="does not name the partition t/2:0"):
        planner(first, client=client).latest(end)
    stream = planner(
        first, client=client, fail_on_data_loss=False, discovery_interval_s=0.0
    )
    later = stream.latest(end)
    assert ranges(stream, end, later) == [("t/1:0", 84, 112)]
    second.readable = True
    # A plan that found nothing and took long is not made again at once.
    await_true(lambda: stream.latest(later) is not later, "a plan")
    last = stream.latest(later)
    assert ranges(stream, later, last) == [("t/2:0", 28, 56)]


def test_a_stream_goes_on_without_a_broker_that_goes_down():
    """Where losses are accepted; the broker is waited for once, and read when back."""
    brokers = [ScriptedServer({"t": [1]}, broker_id=2)]
    with ScriptedServer({"t": [1]}, others=brokers) as first:
        with brokers[0] as second:
            second.append("t", 0, b"old")
            client = replace(first.options, operation_timeout_s=0.5)
            stream = planner(
                first, client=client, fail_on_data_loss=False, discovery_interval_s=0.0
            )
            end = stream.latest(stream.initial())
        first.append("t", 0, b"new")
        with pytest.raises(TransportError, match=second.address):
            stream.latest(end)  # the master does not know yet
        second.readable = False
        for count in range(2):
            asked = first.requests["consumer register"]
            start, end = end, stream.latest(end)
            assert first.requests["consumer register"] - asked == 2 - count
            rows = count * ENTRY, (count + 1) * ENTRY
            assert ranges(stream, start, end) == [("t/1:0", *rows)]
            assert end.last_read["t/2:0"] == 28
            first.append("t", 0, b"newer")
        with ScriptedServer({"t": [1]}, broker_id=2) as back:
            brokers[:] = [back]
            for body in (b"old", b"late"):
                back.append("t", 0, body)
            start, end = end, stream.latest(end)
            assert ("t/2:0", 28, 56) in ranges(stream, start, end)


def test_a_restart_goes_on_without_a_partition_that_no_master_names(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
):
    """Where losses are accepted. A master that has just started may name it later."""
    server.append("t", 10000, b"read")
    end = planner(server).latest(planner(server).initial())
    server.layout["t"] = [1]
    server.append("t", 0, b"new")
    client = replace(server.options, operation_timeout_s=0.3)
    stream = planner(server, client=client, fail_on_data_loss=False)
    later = stream.latest(end)
    assert ranges(stream, end, later) == [("t/1:0", 280, 308)]
    assert "does not name the partition t/1:10000" in caplog.text
    server.layout["t"] = [1, 1]
    server.append("t", 10000, b"late")
    stream = planner(server)
    later = stream.offset(later.to_json())
    last = stream.latest(later)
    assert ranges(stream, later, last) == [("t/1:10000", ENTRY, 2 * ENTRY)]


@pytest.mark.parametrize(
    "starting",
    [
        Offsets(Edge.LATEST),
        Offsets(Edge.EARLIEST, {Partition("t", 2, 0): ENTRY}),
    ],
)
def test_a_start_on_a_broker_that_stays_down(
    two, starting: Offsets[Partition], caplog: pytest.LogCaptureFixture
):
    """It cannot be kept, which is said; a partition that is closed may be named."""
    first, second = two
    second.readable = False
    client = replace(first.options, operation_timeout_s=0.3)
    stream = planner(first, client=client, fail_on_data_loss=False, starting=starting)
    assert list(stream.initial().last_read) == ["t/1:0"]
    assert "t/2:0 cannot be read now" in caplog.text
    assert "whatever startingOffsets says" in caplog.text
    options = ReadOptions(
        client, ("t",), group="g", fail_on_data_loss=False, starting=starting
    )
    assert {task.range.broker for task in plan_batch(first.pool, options)} <= {
        first.address
    }


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_broker_that_goes_is_waited_for_and_named(two, is_closed: bool):
    first, second = two
    client = replace(first.options, operation_timeout_s=0.5, connect_timeout_s=0.3)
    stream = planner(first, client=client)
    end = stream.latest(stream.initial())
    second.__exit__()
    second.readable = not is_closed
    with pytest.raises(TransportError, match=second.address):
        stream.latest(end)


@pytest.mark.parametrize("layout", [[1, 1, 1], [2, 2]])
def test_partitions_that_are_added_are_read_from_their_first_row(
    server: ScriptedServer, layout: list[int]
):
    stream = planner(server, discovery_interval_s=0.0)
    end = stream.latest(stream.initial())
    server.layout["t"] = layout
    server.stores.setdefault(("t", 2), Store())
    added = 20000 if len(layout) == 3 else 1
    server.append("t", added, b"new")
    later = stream.latest(end)
    found = {name: (s, e) for name, s, e in ranges(stream, end, later)}
    assert found[f"t/1:{added}"][0] == 0
    tasks = stream.ranges(end, later)
    assert [one for task in tasks for one in rows_of(server, task)] == [b"new"]


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("is_alone", [True, False])
def test_what_is_missing_is_a_loss_where_a_partition_is_still_alone(
    server: ScriptedServer,
    is_alone: bool,
    fails: bool,
    caplog: pytest.LogCaptureFixture,
):
    """The plan knows of one partition in the store, and producers may of two.

    That is asked once, however many gets of a range have less than their offsets span.
    """
    stream = planner(server)
    start = stream.initial()
    for number in range(30):
        server.append("t", 1, b"of another")
        server.append("t", 0, b"late %d" % number)
    end = stream.latest(start)
    (task,) = stream.ranges(start, end)
    if not is_alone:
        server.layout["t"] = [2, 2]
    asked = server.requests["consumer register"]
    if is_alone and fails:
        with pytest.raises(DataLossError, match=r"Of \d+ messages"):
            rows_of(server, task)
    else:
        assert len(rows_of(server, task, fail_on_data_loss=fails)) == 40
        assert ("messages of t/1:0" in caplog.text) == is_alone
    assert server.requests["consumer register"] == asked + 1


def hollow(first: ScriptedServer) -> ReadTask:
    """Return a task of a dense partition that has a hole."""
    first.append("t", 1, b"of nobody")
    first.append("t", 0, b"last")
    stream = planner(first)
    start = stream.initial()
    task = stream.ranges(start, stream.latest(start))[0]
    assert task.range.is_dense
    return task


def test_a_hole_in_a_partition_that_a_master_calls_closed_is_a_loss(two):
    """As one does while a broker restarts."""
    first, _ = two
    task = hollow(first)
    first.readable = False
    with pytest.raises(DataLossError, match="Of 5 messages of t/1:0"):
        rows_of(first, task)


@pytest.mark.parametrize("fails", [True, False])
def test_a_hole_is_not_explained_by_a_master_that_does_not_know_the_partition(
    two, fails: bool, caplog: pytest.LogCaptureFixture
):
    first, _ = two
    task = hollow(first)
    del first.layout["t"]
    client = replace(first.options, operation_timeout_s=0.3)
    if fails:
        with pytest.raises(TransportError, match="does not name t/1:0"):
            rows_of(first, task, client=client)
    else:
        rows = rows_of(first, task, client=client, fail_on_data_loss=False)
        assert rows == [b"0", b"1", b"2", b"last"]
        assert "messages of t/1:0" in caplog.text


def rows_of(server: ScriptedServer, task: ReadTask, **options: Any) -> list[bytes]:
    chosen = replace(ReadOptions(server.options, ("t",), group="g"), **options)
    return [
        one.stored
        for piece in RangeReader(server.pool, task, chosen).pieces()
        for one in piece.messages
    ]


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_was_made_anew_is_a_loss(server: ScriptedServer, fails: bool):
    """With less in it than was read: else nothing tells it from the old one."""
    end = planner(server).latest(planner(server).initial())
    del server.stores["t", 0].entries[3:]
    stream = planner(server, fail_on_data_loss=fails)
    if fails:
        with pytest.raises(DataLossError, match=r"ends at 84.*made anew"):
            stream.latest(end)
    else:
        later = stream.latest(end)
        assert ranges(stream, end, later) == [("t/1:0", 0, 84)]
        assert stream.latest(later) is later


def test_what_a_dead_broker_took_along_is_not_read_twice(server: ScriptedServer):
    end = planner(server).latest(planner(server).initial())
    del server.stores["t", 0].entries[8:]
    stream = planner(server, fail_on_data_loss=False, read_unflushed=True)
    accepted = stream.latest(end)
    assert ranges(stream, end, accepted) == []
    for number in range(3):
        server.append("t", 0, b"%d" % number)
    later = stream.latest(accepted)
    assert ranges(stream, accepted, later) == [("t/1:0", 8 * ENTRY, 11 * ENTRY)]


def test_a_log_that_grows_to_where_it_was_before_is_read_once(server: ScriptedServer):
    """Row by row, also over the very offset that it had lost."""
    end = planner(server).latest(planner(server).initial())
    del server.stores["t", 0].entries[8:]
    stream = planner(server, fail_on_data_loss=False)
    found = []
    for number in range(4):
        server.append("t", 0, b"%d" % number)
        before, end = end, stream.latest(end)
        found += [(s // ENTRY, e // ENTRY) for _, s, e in ranges(stream, before, end)]
    assert found == [(0, 9), (9, 10), (10, 11), (11, 12)]


def test_a_micro_batch_of_empty_topics_is_none(server: ScriptedServer):
    server.stores["t", 0].entries.clear()
    stream = planner(server)
    first = stream.initial()
    assert stream.latest(first) is first
    stream.fix_target()
    server.append("t", 0, b"too late")
    assert stream.latest(first) is first


def test_planners_that_were_killed_are_waited_for(
    server: ScriptedServer, caplog: pytest.LogCaptureFixture
):
    server.script("register", *[refuse(410, "by another")] * 16)
    stream = planner(server)
    assert stream.latest(stream.initial()).last_read["t/1:0"] == 280
    assert sum("by another" in one.getMessage() for one in caplog.records) == 1


# -- limits in bytes -------------------------------------------------------------------


def test_a_limit_in_bytes_looks_at_the_next_messages(server: ScriptedServer):
    for _ in range(6):
        server.append("t", 10000, b"x" * 1000)
    stream = planner(server, max_bytes=2500)
    at, batches = stream.initial(), []
    while (end := stream.latest(at)) is not at:
        batches.append({n: (e - s) // ENTRY for n, s, e in ranges(stream, at, end)})
        at = end
    sizes = [
        sum(count * (1000 if name == "t/1:10000" else 1) for name, count in one.items())
        for one in batches
    ]
    assert sum(sizes) == 6010
    assert max(sizes) <= 2500
    assert len(batches) == 3


def test_progress_has_sizes_only_where_messages_were_looked_at(server: ScriptedServer):
    stream = planner(server, max_rows=4)
    stream.latest(stream.initial())
    progress = stream.progress()
    assert progress["latest"] == {"t": {"1:0": "280", "1:10000": "0"}}
    assert progress["backlogEntries"] == {"t": {"1:0": 6, "1:10000": 0}}
    assert progress["backlogBytes"] == {"t": {"1:10000": 0}}
    stream = planner(server, max_bytes=4)
    stream.latest(stream.initial())
    assert stream.progress()["backlogBytes"] == {"t": {"1:0": 6, "1:10000": 0}}


def test_a_message_larger_than_the_limit_comes_alone(server: ScriptedServer):
    stream = planner(server, max_bytes=1)
    first = stream.initial()
    assert ranges(stream, first, stream.latest(first)) == [("t/1:0", 0, ENTRY)]


def test_shared_stores_count_by_average():
    with ScriptedServer({"t": [2]}) as server:
        for _ in range(5):
            server.append("t", 0, b"x" * 100)
            server.append("t", 1, b"y" * 100)
        stream = planner(server, max_bytes=500)
        at = stream.initial()
        end = stream.latest(at)
        spans = [(e - s) // ENTRY for _, s, e in ranges(stream, at, end)]
        assert sum(spans) == 10  # 50 bytes an offset of each partition
