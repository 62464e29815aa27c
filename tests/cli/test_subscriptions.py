# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.cli.subscriptions`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.cli.subscriptions import LOG, SCALA, SCALA_BATCH, STREAM, kind_of
from tests.support.admin_stub import AdminStub
from tests.support.checkpoints import offset, write_checkpoint

if TYPE_CHECKING:
    from tests.cli.conftest import Run

T = "persistent://public/default/t"
UUID = "2f1c7ad0-5b8e-4c1f-9b1d-0a1b2c3d4e5f"


@pytest.mark.parametrize(
    ("name", "prefix", "kind"),
    [
        (f"spark-pulsar-{UUID}", "spark-pulsar", STREAM),
        (f"spark-pulsar-{UUID}", "mine", STREAM),
        (f"mine-{UUID}", "mine", STREAM),
        ("mine-commits", "mine", LOG),
        ("spark-pulsar-commits", "mine", LOG),
        (f"spark-pulsar-{UUID}-{T}", "spark-pulsar", SCALA),
        (f"spark-pulsar-{UUID}--1893432-{T}", "spark-pulsar", SCALA),
        (f"spark-pulsar-{UUID}-1893432-{UUID}", "spark-pulsar", SCALA),
        (f"spark-pulsar-batch-{UUID}", "spark-pulsar", SCALA_BATCH),
        (f"spark-pulsar-batch-{UUID}-{UUID}", "spark-pulsar", SCALA_BATCH),
        (f"mine-{T}", "mine", SCALA),
        ("theirs", "spark-pulsar", ""),
        ("spark-pulsar-", "spark-pulsar", ""),
        (f"spark-pulsar-{UUID}x", "spark-pulsar", ""),
        (f"x-spark-pulsar-{UUID}", "spark-pulsar", ""),
        (f"mine-{UUID}", "spark-pulsar", ""),
        (f"m.ne-{UUID}", "spark-pulsar", ""),
        (f"mxne-{UUID}", "m.ne", ""),
        ("spark-pulsar", "spark-pulsar", ""),
    ],
)
def test_who_made_it(name: str, prefix: str, kind: str) -> None:
    """By the whole name: what another program made is never taken for ours."""
    assert kind_of(name, T, prefix) == kind


@pytest.fixture
def full(stub: AdminStub) -> AdminStub:
    """A topic with some subscriptions."""
    path = "/admin/v2/persistent/public/default/t"
    stub.answers[f"GET {path}/partitions?checkAllowAutoCreation=false"] = (
        200,
        {"partitions": 0},
    )
    subscriptions = {
        f"spark-pulsar-{UUID}": {"msgBacklog": 4, "isDurable": True},
        f"spark-pulsar-{UUID}-{T}": {"msgBacklog": 5, "isDurable": True},
        f"spark-pulsar-batch-{UUID}": {"msgBacklog": 0, "isDurable": False},
        "predefined": {"msgBacklog": 1, "isDurable": True},
        "theirs": {"msgBacklog": 9, "isDurable": True},
    }
    stub.answers[f"GET {path}/stats"] = 200, {"subscriptions": subscriptions}
    return stub


def test_listed(full: AdminStub, run: Run) -> None:
    """Durable ones of Spark's only, with their backlog."""
    code, printed = run("subscriptions", "t", "--admin-url", full.url, "--json")
    assert code == 0
    rows = json.loads(printed)["subscriptions"]
    assert {row["subscription"]: row["backlogEntries"] for row in rows} == {
        f"spark-pulsar-{UUID}": 4,
        f"spark-pulsar-{UUID}-{T}": 5,
    }
    assert all(method == "GET" for method, *_ in full.asked)


def test_what_is_not_known(stub: AdminStub, run: Run) -> None:
    """Where a question failed nothing is said of there being none."""
    path = "/admin/v2/persistent/public/default/t"
    none = "No subscription of Spark's."
    stub.answers[f"GET {path}/partitions?checkAllowAutoCreation=false"] = (
        200,
        {"partitions": 0},
    )
    stub.answers[f"GET {path}/stats"] = 200, {}
    code, printed = run("subscriptions", "t", "--admin-url", stub.url)
    assert (code, none in printed) == (0, True)
    stub.answers[f"GET {path}/stats"] = 403, {"reason": "no"}
    code, printed = run("subscriptions", "t", "--admin-url", stub.url)
    assert (code, none in printed) == (1, False)


def test_what_a_checkpoint_owns(full: AdminStub, tmp_path: Path, run: Run) -> None:
    """Whatever its name: it is shown as owned, and kept."""
    end = offset({T: "7:1"}, subscription="predefined")
    folder = write_checkpoint(tmp_path / "c", {0: [end]}, 0)
    command = ("subscriptions", "t", "-o", f"admin.url={full.url}", "--json")
    code, printed = run(*command, "--checkpoint", folder, "--delete")
    assert code == 0
    rows = {one["subscription"]: one for one in json.loads(printed)["subscriptions"]}
    assert rows["predefined"]["outcome"] == "kept: owned"
    assert str(folder) in rows["predefined"]["owner"]
    assert rows[f"spark-pulsar-{UUID}"]["outcome"] == "would be deleted"
    assert all(method == "GET" for method, *_ in full.asked)


def test_one_that_is_connected_just_then(full: AdminStub, run: Run) -> None:
    """The broker's word counts, not what was listed; the others go."""
    path = "/admin/v2/persistent/public/default/t/subscription"
    one = f"DELETE {path}/spark-pulsar-{UUID}?force=false"
    full.answers[one] = 412, {"reason": "has active consumers"}
    command = ("subscriptions", "t", "--admin-url", full.url, "--json")
    name = f"spark-pulsar-{UUID}"
    code, printed = run(*command, "--delete", "--yes", "--name", name)
    assert code == 0
    (row,) = json.loads(printed)["subscriptions"]
    assert row["outcome"] == "kept: connected"
    full.answers[one] = 403, {"reason": "no"}
    code, printed = run(*command, "--delete", "--yes", "--name", name)
    assert code == 1
    assert "failed: AuthorizationError" in printed


def test_a_checkpoint_that_cannot_be_read(
    full: AdminStub, tmp_path: Path, run: Run
) -> None:
    """Then nothing is deleted: what it owns is not known."""
    command = ("subscriptions", "t", "--admin-url", full.url, "--delete", "--yes")
    code, printed = run(*command, "--checkpoint", tmp_path)
    assert code == 1
    assert "no checkpoint" in printed
    assert all(method == "GET" for method, *_ in full.asked)


SCALABLE = "topic://public/default/s"
LEFT = f"spark-pulsar-{UUID}"


def stats_of_preview(segments: object, subscription: str) -> dict[str, object]:
    """What 5.0.0-M1 says of a scalable topic: consumers are counted."""
    registered = {subscription: {"consumerCount": 1}, "theirs": {}}
    return {"segments": segments, "subscriptions": registered}


def stats_of_release(segments: object, subscription: str) -> dict[str, object]:
    """What 5.0.1 says: consumers are listed, also those that are gone."""
    consumers = [{"connected": True}, {"connected": False}]
    registered = {subscription: {"consumers": consumers}, "theirs": {"consumers": []}}
    return {"layout": {"epoch": 3, "segments": segments}, "subscriptions": registered}


@pytest.fixture(params=[stats_of_preview, stats_of_release])
def segments(request: pytest.FixtureRequest, stub: AdminStub) -> AdminStub:
    """A migrated topic that a query reads, and of which another one has read a part."""
    layout = {
        "0": {"name": "persistent://public/default/t"},
        "1": {"name": "segment://public/default/s/0000-7fff-1"},
        "2": {"name": "segment://public/default/s/8000-ffff-2"},
    }
    stub.answers["GET /admin/v2/scalable/public/default/s/stats"] = (
        200,
        request.param(layout, f"{LEFT[:-1]}0"),
    )
    left = {"msgBacklog": 4, "isDurable": True}
    path = "GET /admin/v2/persistent/public/default/t/stats"
    stub.answers[path] = 200, {"subscriptions": {LEFT: left}}
    backlogs = {
        ("0000-7fff-1", "0"): 1,
        ("8000-ffff-2", "0"): 2,
        ("8000-ffff-2", "e"): 7,
    }
    for (segment, last), count in backlogs.items():
        path = f"/admin/v2/segments/public/default/s/{segment}/subscription"
        stub.answers[f"GET {path}/{LEFT[:-1]}{last}/backlog"] = 200, count
    path = "/admin/v2/segments/public/default/s/8000-ffff-2/subscription"
    stub.answers[f"DELETE {path}/{LEFT[:-1]}e"] = 204, None
    return stub


def test_of_segments(segments: AdminStub, tmp_path: Path, run: Run) -> None:
    """Those of running queries, and those that are named."""
    command = ("subscriptions", SCALABLE, "--admin-url", segments.url, "--json")
    code, printed = run(*command)
    assert code == 0

    def backlogs(printed: str) -> dict[tuple[str, str], tuple[int, str | None]]:
        return {
            (row["topicPartition"][-6:], row["subscription"][-1]): (
                row["backlogEntries"],
                row["outcome"],
            )
            for row in json.loads(printed)["subscriptions"]
        }

    running = {("7fff-1", "0"): (1, None), ("ffff-2", "0"): (2, None)}
    migrated = {("ault/t", LEFT[-1]): (4, None)}
    assert backlogs(printed) == running | migrated
    named = f"{LEFT[:-1]}e"
    end = offset({SCALABLE: {"8000-ffff-2": "7:1"}}, subscription=named)
    folder = write_checkpoint(tmp_path / "c", {0: [end]}, 0)
    code, printed = run(*command, "--checkpoint", folder, "--delete", "--yes")
    assert backlogs(printed)["ffff-2", "e"] == (7, "kept: owned")
    assert backlogs(printed)["ffff-2", "0"] == (2, "kept: connected")
    code, printed = run(*command, "--name", named, "--delete", "--yes")
    assert code == 0
    assert backlogs(printed) == {("ffff-2", "e"): (7, "deleted")}
    deleted = [path for method, path, _ in segments.asked if method == "DELETE"]
    assert deleted[-2:] == [
        f"/admin/v2/scalable/public/default/s/subscriptions/{named}",
        f"/admin/v2/segments/public/default/s/8000-ffff-2/subscription/{named}",
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("t",),
        ("t", "--namespace", "public/default", "--admin-url", "http://a"),
        ("--namespace", "public", "--admin-url", "http://a"),
        ("--namespace", "a/b c", "--admin-url", "http://a"),
        ("--namespace", "a/bü", "--admin-url", "http://a"),
        ("--namespace", "a/b?c", "--admin-url", "http://a"),
        ("--namespace", "a/b/c/d", "--admin-url", "http://a"),
        ("t", "--admin-url", "http://a", "--yes"),
        ("t", "--admin-url", "http://a", "--delete", "--yes"),
        ("t", "--admin-url", "broker:6650"),
    ],
)
def test_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    """It ends with 2 before anybody is asked."""
    assert run("subscriptions", *arguments)[0] == 2
