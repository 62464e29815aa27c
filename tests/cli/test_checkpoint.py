# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.cli.checkpoint`; with Spark: tests/broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client.consumers import ConsumerSet, TopicConsumer
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.wire.commands import SubscribeRequest
from tests.support import patience
from tests.support.checkpoints import offset, write_checkpoint
from tests.support.scripted_broker import (
    LEDGER,
    ScriptedBroker,
    batch,
    client_options,
    single,
)

if TYPE_CHECKING:
    from tests.cli.conftest import Run

T = "persistent://public/default/t"
T0, T1 = f"{T}-partition-0", f"{T}-partition-1"


def last_reads(folder: Path, batch_id: int) -> dict[str, Any]:
    """Positions as they stand in the file of a micro-batch."""
    text = (folder / "offsets" / str(batch_id)).read_text()
    return dict(json.loads(text.split("\n")[2]))


@pytest.fixture
def broker(scripted: ScriptedBroker) -> ScriptedBroker:
    """Two topic partitions of six entries each, and a query's subscription."""
    scripted.partitions[T] = 2
    for name in (T0, T1):
        scripted.add_topic(name, [single(b"%d" % n) for n in range(6)])
    return scripted


def committed(tmp_path: Path, **more: Any) -> Path:
    """The checkpoint of a query that has read three entries of each."""
    end = offset({T: {"0": f"{LEDGER}:2", "1": f"{LEDGER}:2"}}, **more)
    return write_checkpoint(tmp_path / "c", {4: [end], 5: [end]}, 5)


def planned(tmp_path: Path) -> Path:
    """The same; two more entries of each are planned."""
    start = offset({T: {"0": f"{LEDGER}:2", "1": f"{LEDGER}:2"}})
    end = offset({T: {"0": f"{LEDGER}:4", "1": f"{LEDGER}:4"}})
    return write_checkpoint(tmp_path / "c", {4: [start], 5: [end]}, 4)


def test_shown_without_a_cluster(tmp_path: Path, run: Run) -> None:
    """Its positions, and what is planned."""
    code, printed = run("checkpoint", planned(tmp_path))
    assert code == 0
    assert "5 is planned and not committed" in printed
    row = next(line.split() for line in printed.splitlines() if T1 in line)
    assert row == [T1, f"{LEDGER}:2", f"{LEDGER}:4"]
    code, printed = run("checkpoint", tmp_path / "c", "--json")
    found = json.loads(printed)
    assert (found["lastPlannedBatch"], found["lastCommittedBatch"]) == (5, 4)


def test_shown_with_a_cluster(broker: ScriptedBroker, tmp_path: Path, run: Run) -> None:
    """What is unread is counted from what is committed, and nothing is left."""
    command = ("checkpoint", planned(tmp_path), "-o", f"service.url={broker.url}")
    code, printed = run(*command, "--json")
    assert code == 0
    rows = json.loads(printed)["sources"][0]["topicPartitions"]
    assert [row["backlogEntries"] for row in rows] == [3, 3]
    assert [row["oldestUnreadMs"] for row in rows] == [1, 1]
    assert not broker.durable(T0)


def test_what_the_options_no_longer_name(
    broker: ScriptedBroker, tmp_path: Path, run: Run
) -> None:
    """It is listed with its backlog, and stays where it is when others are moved."""
    read, kept = {T: {"0": f"{LEDGER}:2"}}, {T: {"1": f"{LEDGER}:1"}}
    end = offset(read, kept=kept)
    folder = write_checkpoint(tmp_path / "c", {4: [end], 5: [end]}, 5)
    command = ("checkpoint", folder, "-o", f"service.url={broker.url}")
    code, printed = run(*command)
    assert code == 0
    above, below = printed.split("The options no longer name these.")
    assert T0 in above
    assert T1 not in above
    row = next(line.split() for line in below.splitlines() if T1 in line)
    assert row[:4] == [T1, f"{LEDGER}:1", f"{LEDGER}:5", "4"]
    (source,) = json.loads(run(*command, "--json")[1])["sources"]
    (row_of_json,) = source["kept"]
    assert (row_of_json["topicPartition"], row_of_json["backlogEntries"]) == (T1, 4)
    assert run(*command, "--set-position", "latest", "--yes")[0] == 0
    moved = last_reads(folder, 5)
    assert (moved["lastRead"], moved["kept"]) == ({T: {"0": f"{LEDGER}:5"}}, kept)


def test_a_dry_run_changes_nothing(
    broker: ScriptedBroker, tmp_path: Path, run: Run
) -> None:
    """No file, and nothing in the cluster."""
    folder = committed(tmp_path)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    command = ("checkpoint", folder, "-o", f"service.url={broker.url}")
    code, printed = run(*command, "--set-position", "earliest")
    assert code == 0
    assert "Nothing was changed" in printed
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert after == before
    assert not broker.durable(T0)


def test_where_all_is_committed(
    broker: ScriptedBroker, tmp_path: Path, run: Run
) -> None:
    """The last end is another one; the one before is left alone."""
    folder = committed(tmp_path, chunked=[T], began={T: {"0": f"{LEDGER}:-1"}})
    command = ("checkpoint", folder, "-o", f"service.url={broker.url}")
    wanted = json.dumps({T: {"1": "latest"}})
    assert run(*command, "--set-position", wanted, "--yes")[0] == 0
    assert last_reads(folder, 4)["lastRead"][T]["1"] == f"{LEDGER}:2"
    assert last_reads(folder, 5) == offset(
        {T: {"0": f"{LEDGER}:2", "1": f"{LEDGER}:5"}},
        chunked=[T],
        began={T: {"0": f"{LEDGER}:-1", "1": f"{LEDGER}:5"}},
    )


def test_those_without_a_name(broker: ScriptedBroker, tmp_path: Path, run: Run) -> None:
    """They go where JSON says, too."""
    folder = committed(tmp_path)
    command = ("checkpoint", folder, "-o", f"service.url={broker.url}")
    wanted = json.dumps({"*": "latest", T: {"1": "earliest"}})
    assert run(*command, "--set-position", wanted, "--yes")[0] == 0
    assert last_reads(folder, 5)["lastRead"][T] == {
        "0": f"{LEDGER}:5",
        "1": f"{LEDGER}:-1",
    }


def test_segments_that_were_read_to_their_end(
    scripted: ScriptedBroker, tmp_path: Path, run: Run
) -> None:
    """One that is set is read again; the other ones stay as they are."""
    topic, keys = "topic://public/default/s", ("0000-7fff-0", "8000-ffff-1")
    names = [f"segment://public/default/s/{key}" for key in keys]
    for name in names:
        scripted.add_topic(name, [single(b"row")] * 3)
    end = offset({topic: dict.fromkeys(keys, f"{LEDGER}:2")}, drained=names)
    folder = write_checkpoint(tmp_path / "c", {4: [end], 5: [end]}, 5)
    wanted = json.dumps({topic: {keys[0]: "earliest"}})
    command = ("checkpoint", folder, "-o", f"service.url={scripted.url}")
    code, printed = run(*command, "--set-position", wanted, "--yes")
    assert code == 0, printed
    changed = last_reads(folder, 5)
    assert changed["lastRead"][topic] == {
        keys[0]: f"{LEDGER}:-1",
        keys[1]: f"{LEDGER}:2",
    }
    assert changed["drained"] == [names[1]]


def test_segments_that_return(
    scripted: ScriptedBroker, tmp_path: Path, run: Run
) -> None:
    """One that is set is not drained where the options did not name it either."""
    topic, keys = "topic://public/default/s", ("0000-7fff-0", "8000-ffff-1")
    names = [f"segment://public/default/s/{key}" for key in keys]
    for name in (*names, T):
        scripted.add_topic(name, [single(b"row")] * 3)
    there = {T: f"{LEDGER}:2"}
    away = {topic: dict.fromkeys(keys, f"{LEDGER}:2")}
    left = offset(there, kept=away, drained=names)
    back = offset(there | away, drained=names)
    folder = write_checkpoint(tmp_path / "c", {4: [left], 5: [back]}, 4)
    wanted = json.dumps({topic: {keys[0]: "earliest"}})
    command = ("checkpoint", folder, "-o", f"service.url={scripted.url}")
    code, printed = run(*command, "--set-position", wanted, "--yes")
    assert code == 0, printed
    for number, place in ((4, "kept"), (5, "lastRead")):
        changed = last_reads(folder, number)
        assert changed[place][topic][keys[0]] == f"{LEDGER}:-1"
        assert changed["drained"] == [names[1]]


def test_where_one_is_planned(broker: ScriptedBroker, tmp_path: Path, run: Run) -> None:
    """It has no rows of what was set, and those of others as planned."""
    folder = planned(tmp_path)
    command = ("checkpoint", folder, "-o", f"service.url={broker.url}")
    wanted = json.dumps({T: {"1": "earliest"}})
    assert run(*command, "--set-position", wanted, "--yes")[0] == 0
    assert last_reads(folder, 4)["lastRead"][T] == {
        "0": f"{LEDGER}:2",
        "1": f"{LEDGER}:-1",
    }
    left_out = {
        "after": {T: {"1": f"{LEDGER}:2"}},
        "last": {T: {"1": f"{LEDGER}:4"}},
    }
    end = last_reads(folder, 5)
    assert end["lastRead"][T] == {"0": f"{LEDGER}:4", "1": f"{LEDGER}:-1"}
    # So that partition 0 stays the first of two tasks: sinks know rows by it.
    assert end["leftOut"] == left_out
    assert "leftOut" not in last_reads(folder, 4)
    _, printed = run(*command, "--set-position", '{"t":{"1":"latest"}}', "--yes")
    assert "Its other rows keep their tasks" in printed
    assert last_reads(folder, 5)["leftOut"] == left_out
    assert last_reads(folder, 5)["lastRead"][T]["1"] == f"{LEDGER}:5"
    wanted = ("--set-position", "latest", "--renumber", "--yes")
    _, printed = run(*command, *wanted)
    assert "a new idempotenceId" in printed
    assert "leftOut" not in last_reads(folder, 5)


def test_positions_of_a_first_micro_batch(
    broker: ScriptedBroker, tmp_path: Path, run: Run
) -> None:
    """Where it begins stands in its end alone."""
    end = offset(
        {T: {"0": f"{LEDGER}:4", "1": f"{LEDGER}:4"}},
        startAfter={T: {"0": f"{LEDGER}:0", "1": f"{LEDGER}:0"}},
    )
    folder = write_checkpoint(tmp_path / "c", {0: [end]})
    command = ("checkpoint", folder, "-o", f"service.url={broker.url}")
    _, printed = run(*command, "--json")
    rows = json.loads(printed)["sources"][0]["topicPartitions"]
    assert [row["read"] for row in rows] == [f"{LEDGER}:0", f"{LEDGER}:0"]
    assert run(*command, "--set-position", "latest", "--yes")[0] == 0
    found = last_reads(folder, 0)
    assert found["lastRead"] == found["startAfter"]
    assert found["lastRead"][T] == {"0": f"{LEDGER}:5", "1": f"{LEDGER}:5"}


def test_a_query_that_runs(
    broker: ScriptedBroker, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has its subscription: nothing is changed then."""
    patience.usual(monkeypatch, busy_s=0.0)
    folder = committed(tmp_path)
    before = (folder / "offsets" / "5").read_text()
    command = ("checkpoint", folder, "-o", f"service.url={broker.url}")
    with (
        ConnectionPool(client_options(broker.address)) as pool,
        ConsumerSet(pool, TopicConsumer) as group,
    ):
        group.connect([T1])
        how = SubscribeRequest("spark-pulsar-s", durable=True)
        group.step(lambda consumer: consumer.subscribe(how))
        assert not group.take_failures()
        code, printed = run(*command, "--set-position", "latest", "--yes")
    assert code == 1, printed
    assert "PULSAR_QUERY_CONFLICT" in printed
    assert (folder / "offsets" / "5").read_text() == before


def test_a_checkpoint_that_changes_meanwhile(
    broker: ScriptedBroker, tmp_path: Path, run: Run
) -> None:
    """A query that has no subscription is noticed by its files."""
    folder = committed(tmp_path)

    def commit(*_: Any) -> None:
        text = (folder / "offsets" / "5").read_text()
        (folder / "offsets" / "6").write_text(text)

    from tests.support.scripted_broker import usual

    def go_on(one: ScriptedBroker, session: Any, command: Any) -> None:
        commit()
        usual(one, session, command)

    broker.always("GET_LAST_MESSAGE_ID", go_on)
    command = ("checkpoint", folder, "-o", f"service.url={broker.url}")
    code, printed = run(*command, "--set-position", "latest", "--yes")
    assert code == 1
    assert "has changed meanwhile" in printed
    assert not list(folder.glob("before-*"))


def test_of_the_scala_connector(tmp_path: Path, run: Run) -> None:
    """It is shown; to be set it must have run here once."""
    end = {T0: [8, 7, 16, 59, 24, 0, 32, 8, 48, 0]}
    folder = write_checkpoint(tmp_path / "c", {0: [end]}, 0)
    code, printed = run("checkpoint", folder)
    assert code == 0
    assert "7:59" in printed
    command = ("checkpoint", folder, "-o", "service.url=pulsar://nowhere")
    code, printed = run(*command, "--set-position", "latest")
    assert code == 1
    assert "Scala connector" in printed


@pytest.mark.parametrize(
    "arguments",
    [
        ("--yes",),
        ("--renumber",),
        ("--source", "3"),
        ("--set-position", "latest", "--set-time", "1"),
        ("--set-position", "nowhere", "-o", "service.url=pulsar://127.0.0.1:1"),
    ],
)
def test_wrong_usage(tmp_path: Path, run: Run, arguments: tuple[str, ...]) -> None:
    """It ends with 2 before anything is asked of a cluster, or said."""
    code, _ = run("checkpoint", committed(tmp_path), *arguments)
    assert code == 2


def test_nothing_planned(tmp_path: Path, run: Run) -> None:
    """A query that has not begun has no positions."""
    code, printed = run("checkpoint", write_checkpoint(tmp_path / "c", {}))
    assert code == 1
    assert "no positions" in printed


def test_the_last_message_of_a_batch_was_read(
    scripted: ScriptedBroker, tmp_path: Path, run: Run
) -> None:
    """Its entry is no backlog; one of which some is unread is."""
    scripted.add_topic(
        T, [batch([b"a", b"b"], publish_time=5), single(b"c", publish_time=9)]
    )
    command = ("lag", tmp_path / "c", "-o", f"service.url={scripted.url}", "--json")
    for index, (entries, oldest_ms) in {0: (2, 5), 1: (1, 9)}.items():
        end = offset({T: f"{LEDGER}:0:{index}"})
        folder = write_checkpoint(tmp_path / f"{index}", {0: [end]}, 0)
        command = ("lag", folder, "-o", f"service.url={scripted.url}", "--json")
        code, printed = run(*command)
        assert code == 0
        (row,) = json.loads(printed)["topicPartitions"]
        assert (row["backlogEntries"], row["oldestUnreadMs"]) == (entries, oldest_ms)


@pytest.mark.parametrize(
    "wanted",
    [
        ("--set-position", "earliest"),
        ("--set-position", '{"*": "earliest"}'),
        ("--set-time", "1970-01-01T00:00:00Z"),
    ],
)
def test_a_deleted_topic(
    scripted: ScriptedBroker, tmp_path: Path, run: Run, wanted: tuple[str, str]
) -> None:
    """Its position stays, and is no reason to leave that of others."""
    scripted.add_topic(T, [single(b"%d" % n) for n in range(6)])
    read = {T: f"{LEDGER}:2", f"{T}-gone": "3:3"}
    folder = write_checkpoint(tmp_path / "c", {0: [offset(read)]}, 0)
    command = ("checkpoint", folder, "-o", f"service.url={scripted.url}", *wanted)
    assert json.loads(run(*command, "--json")[1])["gone"] == [f"{T}-gone"]
    code, printed = run(*command, "--yes")
    assert code == 0
    assert f"{T}-gone is gone: its position stays." in printed
    assert last_reads(folder, 0)["lastRead"] == {**read, T: f"{LEDGER}:-1"}


@pytest.mark.parametrize("position", ["7:7", "7:99", "99:0", "99:-1"])
def test_a_position_that_was_never_reached(
    scripted: ScriptedBroker, tmp_path: Path, run: Run, position: str
) -> None:
    """It is refused; right behind the end is the latest position."""
    scripted.add_topic(T, [single(b"%d" % n) for n in range(6)])
    read = offset({T: f"{LEDGER}:2"})
    folder = write_checkpoint(tmp_path / "c", {0: [read]}, 0)
    command = ("checkpoint", folder, "-o", f"service.url={scripted.url}", "--yes")
    code, printed = run(*command, "--set-position", json.dumps({T: position}))
    assert (code, last_reads(folder, 0)) == (1, read)
    assert f"ends at {LEDGER}:5 and has never reached" in printed
    assert run(*command, "--set-position", json.dumps({T: f"{LEDGER}:6"}))[0] == 0
    assert last_reads(folder, 0)["lastRead"] == {T: f"{LEDGER}:5"}
