# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.cli.lag` and `pulsar_spark.cli.backlogs`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.cli.admin import LedgerSize
from pulsar_spark.cli.backlogs import bytes_after
from pulsar_spark.wire import pulsar_api_pb2 as pb
from tests.support.admin_stub import AdminStub
from tests.support.checkpoints import offset, write_checkpoint
from tests.support.scripted_broker import (
    LEDGER,
    ScriptedBroker,
    batch,
    refuse,
    single,
    usual,
)

if TYPE_CHECKING:
    from tests.cli.conftest import Run

T = "persistent://public/default/t"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The checkpoint of a query that has read two entries of a topic."""
    end = offset({T: f"{LEDGER}:1", f"{T}-gone": "3:3"})
    return write_checkpoint(tmp_path / "c", {0: [end]}, 0)


def test_table(
    scripted: ScriptedBroker, stub: AdminStub, folder: Path, run: Run
) -> None:
    """Entries, bytes by the average of the ledger, and what is gone is named so."""
    scripted.add_topic(T, [single(b"%d" % n) for n in range(6)])
    stub.answers["GET /admin/v2/persistent/public/default/t/internalStats"] = (
        200,
        {
            "currentLedgerEntries": 6,
            "currentLedgerSize": 6 * 1024,
            "ledgers": [{"ledgerId": LEDGER, "entries": 0, "size": 0}],
        },
    )
    command = ("lag", folder, "-o", f"service.url={scripted.url}")
    code, printed = run(*command, "--admin-url", stub.url)
    assert code == 0
    rows = [line.split() for line in printed.splitlines()]
    assert rows[1][:6] == [T, f"{LEDGER}:1", f"{LEDGER}:5", "4", "~4.0", "KiB"]
    assert rows[2][:3] == [f"{T}-gone", "3:3", "gone"]
    assert rows[3][:2] == ["all", "4"]
    code, printed = run(*command, "--json")
    found = json.loads(printed)
    assert (found["backlogEntries"], found["backlogBytes"]) == (4, None)
    assert not scripted.durable(T)


@pytest.mark.parametrize("before", range(4))
def test_the_end_of_a_segment(
    scripted: ScriptedBroker, tmp_path: Path, run: Run, before: int
) -> None:
    """Brokers go on to name the end that they named first, and may not answer."""
    scripted.script("SUBSCRIBE", *[usual] * before, refuse("ServiceNotReady"))
    segment = "segment://public/default/s/0000-ffff-0"
    scripted.add_topic(segment, [single(b"%d" % n) for n in range(6)])
    scripted.says_last = pb.MessageIdData(ledgerId=LEDGER, entryId=0)
    end = offset({"topic://public/default/s": {"0000-ffff-0": f"{LEDGER}:1"}})
    folder = write_checkpoint(tmp_path / "segments", {0: [end]}, 0)
    code, printed = run("lag", folder, "-o", f"service.url={scripted.url}")
    assert code == 0
    row = printed.splitlines()[1].split()
    assert row[:4] == [segment, f"{LEDGER}:1", f"{LEDGER}:5", "4"]


@pytest.mark.parametrize("before", ["topic://public/default/s", "s"])
def test_segments_that_the_stream_has_not_seen(
    scripted: ScriptedBroker, tmp_path: Path, run: Run, before: str
) -> None:
    """All their rows are unread, also where the topic was migrated."""
    topic = "topic://public/default/s"
    old_name = "persistent://public/default/s"
    scripted.scalable = {topic: topic, old_name: topic}
    scripted.segments[0].state = 1
    scripted.segments.append(
        pb.ScalableTopicSegment(segment_id=2, hash_end=0xFFFF, parent_ids=[1])
    )
    first, second = (f"segment://public/default/s/0000-ffff-{n}" for n in (1, 2))
    read = {topic: {"0000-ffff-1": f"{LEDGER}:1"}}
    if before == "s":
        scripted.segments[0].legacy_topic_name = first = old_name
        read = {old_name: f"{LEDGER}:1"}
    scripted.add_topic(first, [single(b"%d" % n) for n in range(3)])
    scripted.add_topic(second, [single(b"%d" % n) for n in range(4)])
    folder = write_checkpoint(tmp_path / "segments", {0: [offset(read)]}, 0)
    cluster = ("-o", f"service.url={scripted.url}")
    code, printed = run("lag", folder, *cluster)
    assert code == 0
    rows = [line.split() for line in printed.splitlines()]
    assert rows[1][:4] == [second, "nothing", f"{LEDGER}:3", "4"]
    assert rows[2][:4] == [first, f"{LEDGER}:1", f"{LEDGER}:2", "1"]
    assert rows[3][:2] == ["all", "5"]
    code, printed = run("checkpoint", folder, *cluster)
    assert code == 0
    assert [second, "nothing"] in [row.split()[:2] for row in printed.splitlines()]
    code, printed = run("checkpoint", folder, *cluster, "--json")
    (source,) = json.loads(printed)["sources"]
    backlog = {
        row["topicPartition"]: row["backlogEntries"]
        for row in source["topicPartitions"]
    }
    assert backlog == {first: 1, second: 4}


@pytest.mark.parametrize(
    ("position", "size_bytes"),
    [((-1, -1), 350), ((7, -1), 350), ((7, 4), 300), ((7, 9), 250), ((8, 0), 250),
     ((9, 3), 50), ((9, 4), 0), ((9, 9), 0), ((12, 0), 0)],
)  # fmt: skip
def test_bytes_after(position: tuple[int, int], size_bytes: int) -> None:
    """Whole ledgers, and the part of the one in which the position is."""
    ledgers = [LedgerSize(7, 10, 100), LedgerSize(8, 0, 0), LedgerSize(9, 5, 250)]
    assert bytes_after(position, ledgers) == size_bytes


@pytest.mark.parametrize("arguments", [(), ("--plot", "x.png"), ("--event-log", "x")])
def test_wrong_usage(folder: Path, run: Run, arguments: tuple[str, ...]) -> None:
    """It ends with 2."""
    assert run("lag", folder, *arguments)[0] == 2


@pytest.mark.parametrize(
    ("read", "end", "unread"),
    [
        ("1", "1", 0),
        ("3", "1", 0),
        ("1", "3", 2),
        ("1", "99", 8),
        ("1", "3:1", 2),
        ("3:1", "3:1", 0),
        ("3:0", "3:1", 1),
        ("3", "3:1", 0),
    ],
)
def test_a_stream_that_ends(
    scripted: ScriptedBroker, tmp_path: Path, run: Run, read: str, end: str, unread: int
) -> None:
    """Rows behind the end do not count, as in the lag of the query itself."""
    scripted.add_topic(T, [batch([b"a", b"b", b"c"]) for _ in range(10)])
    committed = offset({T: f"{LEDGER}:{read}"})
    folder = write_checkpoint(tmp_path / "ends", {0: [committed]}, 0)
    options = [
        f"service.url={scripted.url}",
        "topic=t",
        "EndingOffsets=" + json.dumps({"t": f"{LEDGER}:{end}"}),
    ]
    given = (folder, *(part for option in options for part in ("-o", option)))
    of_lag = json.loads(run("lag", *given, "--json")[1])
    assert of_lag["backlogEntries"] == unread
    assert (of_lag["oldestUnreadAgeSeconds"] is None) == (unread == 0)
    of_checkpoint = json.loads(run("checkpoint", *given, "--json")[1])
    (row,) = of_checkpoint["sources"][0]["topicPartitions"]
    assert row["backlogEntries"] == unread


def test_two_sources_on_one_topic(
    scripted: ScriptedBroker, tmp_path: Path, run: Run
) -> None:
    """Each has its own position, and its own lag."""
    scripted.add_topic(T, [single(b"%d" % n) for n in range(10)])
    ends = [offset({T: f"{LEDGER}:{last}"}, f"s-{last}") for last in (0, 9)]
    folder = write_checkpoint(tmp_path / "two", {0: ends}, 0)
    given = (folder, "-o", f"service.url={scripted.url}")
    code, printed = run("lag", *given)
    assert code == 0
    rows = [line.split() for line in printed.splitlines()]
    assert rows[0][:2] == ["SOURCE", "TOPIC"]
    assert rows[1][:5] == ["0", T, f"{LEDGER}:0", f"{LEDGER}:9", "9"]
    assert rows[2][:5] == ["1", T, f"{LEDGER}:9", f"{LEDGER}:9", "0"]
    assert rows[3][:2] == ["all", "9"]
    of_lag = json.loads(run("lag", *given, "--json")[1])
    assert of_lag["backlogEntries"] == 9
    assert [row["backlogEntries"] for row in of_lag["topicPartitions"]] == [9, 0]
    of_checkpoint = json.loads(run("checkpoint", *given, "--json")[1])
    assert [
        source["topicPartitions"][0]["backlogEntries"]
        for source in of_checkpoint["sources"]
    ] == [9, 0]
    printed = run("checkpoint", *given)[1]
    rows = [line.split() for line in printed.splitlines() if line.startswith(T)]
    assert [row[3] for row in rows] == ["9", "0"]
