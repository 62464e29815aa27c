# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.cli.plan`: what it says a read would read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.errors import OptionError, PulsarSparkError
from tests.source.stream.queries import Query
from tests.support.reading import ranges_of
from tests.support.scripted_broker import LEDGER, ScriptedBroker, batch, single

if TYPE_CHECKING:
    from tests.cli.conftest import Run

T = "persistent://public/default/t"
U = "persistent://public/default/u"


@pytest.fixture
def filled(scripted: ScriptedBroker) -> ScriptedBroker:
    """A topic of four messages and four batches of three, and another one."""
    entries = [single(b"%d" % n) for n in range(4)]
    scripted.add_topic(T, entries + [batch([b"a", b"b", b"c"])] * 4)
    scripted.add_topic(U, [single(b"x")])
    scripted.add_topic("persistent://public/default/empty", [])
    return scripted


def test_table(filled: ScriptedBroker, run: Run) -> None:
    """A line for each topic partition, one for all, and the tasks."""
    command = ("plan", "-o", f"service.url={filled.url}", "-o", "topics=t,u,empty")
    code, printed = run(*command)
    assert code == 0
    head, first, second, total, _, tasks = printed.splitlines()
    assert head.split()[:4] == ["TOPIC", "PARTITION", "FROM", "TO"]
    assert first.split()[:4] == [T, f"{LEDGER}:0", f"{LEDGER}:7:2", "8"]
    assert "~16" in first.split()
    assert second.split()[:4] == [U, f"{LEDGER}:0", f"{LEDGER}:0", "1"]
    assert total.split()[:2] == ["all", "9"]
    assert tasks == "Tasks: 2"
    assert not filled.durable(T)


def test_json_of_a_part(filled: ScriptedBroker, run: Run) -> None:
    """Ranges and tasks as options ask for."""
    offsets = json.dumps({"t": f"{LEDGER}:2"})
    options = [f"service.url={filled.url}", "topic=t", f"startingOffsets={offsets}"]
    options.append("minPartitions=3")
    given = [part for option in options for part in ("-o", option)]
    code, printed = run("plan", *given, "--json")
    assert code == 0
    plan = json.loads(printed)
    assert (plan["tasks"], plan["entries"]) == (3, 6)
    assert plan["rowsAbout"] == 14
    assert [part["from"] for part in plan["ranges"]] == [
        f"{LEDGER}:{entry}" for entry in (2, 4, 6)
    ]
    assert plan["oldestPublishTimeMs"] <= plan["newestPublishTimeMs"]


def test_a_stream(filled: ScriptedBroker, run: Run) -> None:
    """Options of streams are options of a plan; latest has nothing to read."""
    given = ("-o", f"service.url={filled.url}", "-o", "topic=t")
    limit = ("-o", "maxRowsPerTrigger=5")
    code, printed = run("plan", "--stream", *given, *limit)
    assert (code, printed) == (0, "No topic partition has rows to read: no task.\n")
    earliest = ("-o", "startingOffsets=earliest")
    code, printed = run("plan", "--stream", *given, *limit, *earliest)
    assert (code, "Tasks: 1" in printed) == (0, True)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"startingOffsets": "earliest"},
        {"startingOffsets": "earliest", "minPartitions": "3"},
        {"startingOffsets": "earliest", "maxPartitions": "1"},
        {"startingOffsets": "earliest", "maxRecordsPerPartition": "2"},
        {"startingOffsets": f'{{"t": "{LEDGER}:6:1"}}'},
        {"startingOffsets": "subscription", "predefinedSubscription": "had"},
        {"startingOffsets": "subscription", "predefinedSubscription": "missing"},
        {"startingOffsets": "earliest", "predefinedSubscription": "had"},
        {"startingOffsets": "earliest", "deleteSubscriptionOnStop": "true"},
        {"startingOffsets": "earliest", "ackOnCommit": "false"},
        {"startingOffsets": '{"t": "99:0"}'},
        {"startingOffsets": '{"t": "99:0"}', "failOnDataLoss": "false"},
        {"startingOffsets": '{"other": "earliest"}'},
        {"startingOffsets": "earliest", "endingOffsets": f'{{"t": "{LEDGER}:1"}}'},
        {"startingOffsets": "earliest", "endingOffsets": f'{{"t": "{LEDGER}:99"}}'},
        {"startingOffsets": "earliest", "endingOffsets": f'{{"t": "{LEDGER}:5:1"}}'},
        {"startingTime": "1970-01-01T00:00:00Z", "endingTime": "1970-01-01T00:00:01Z"},
        {"topics": "t,missing", "startingOffsets": "earliest"},
        {"topicsPattern": "t|u", "startingOffsets": '{"*": "earliest", "u": "latest"}'},
    ],
)
def test_a_stream_is_planned_as_a_stream(
    filled: ScriptedBroker, run: Run, given: dict[str, str]
) -> None:
    """The plan has the ranges of the first micro-batch, or the error of the stream."""
    earlier = Query(
        filled,
        startingOffsets="earliest",
        predefinedSubscription="had",
        maxRowsPerTrigger="2",
    )
    earlier.trigger()
    earlier.trigger()
    earlier.kill()
    before = filled.durable(T)
    options = {"service.url": filled.url, "topic": "t", **given}
    if given.keys() & {"topics", "topicsPattern"}:
        del options["topic"]
    arguments = [
        part for name, value in options.items() for part in ("-o", f"{name}={value}")
    ]
    code, printed = run("plan", "--stream", "--json", *arguments)
    assert filled.durable(T) == before
    query = Query(filled, **given)
    if "topic" not in options:
        del query.options["topic"]
    try:
        start = query.begin()
        end = query.planner.latest(start)
        tasks = list(query.planner.ranges(start, end))
    except PulsarSparkError as error:
        assert code != 0
        wanted = error.problems[0] if isinstance(error, OptionError) else str(error)
        assert wanted in printed
    else:
        plan = json.loads(printed)
        assert plan["tasks"] == len(tasks)
        assert [(r["topicPartition"], r["from"], r["to"]) for r in plan["ranges"]] == [
            (range_.topic_partition, str(range_.start), str(range_.end))
            for range_ in ranges_of(tasks)
        ]
    finally:
        query.kill()


@pytest.mark.parametrize("command", ["plan", "peek"])
def test_without_options(command: str, run: Run) -> None:
    """It says which ones it needs."""
    code, printed = run(command)
    assert code == 2
    assert "-o service.url=" in printed
