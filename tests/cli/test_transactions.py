# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.cli.transactions`; on a real broker: tests/broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.message_id import TxnId
from pulsar_spark.sink.commit_log import Began, Opened, Prepared, Record, dump_record
from pulsar_spark.wire.commands import TxnAction
from tests.support.admin_stub import AdminStub
from tests.support.scripted_broker import ScriptedBroker, single

if TYPE_CHECKING:
    from tests.cli.conftest import Run

LOG = "persistent://public/default/spark-commits-orders"
LEFT, DECIDED, OVER, THEIRS = (TxnId(0, n) for n in range(4))


@pytest.fixture
def broker(scripted: ScriptedBroker) -> ScriptedBroker:
    """The log of a stream, and three transactions that are open."""
    records: list[Record] = [
        Began("c0ff"),
        Opened(6, 0, OVER),
        Opened(7, 0, LEFT),
        Opened(7, 1, DECIDED),
        Prepared(7, {1: DECIDED}, "a1", "c0ff", 2),
    ]
    entries = [
        single(dump_record(record), publish_time=1000 + number)
        for number, record in enumerate(records)
    ]
    scripted.partitions["persistent://pulsar/system/transaction_coordinator_assign"] = 1
    scripted.add_topic(LOG, entries)
    for txn in (LEFT, DECIDED, THEIRS):
        scripted.transactions[txn] = []
    return scripted


def listed(broker: ScriptedBroker, run: Run, *arguments: object) -> dict[str, Any]:
    """The transactions that a command prints, by their ids."""
    url = f"service.url={broker.url}"
    code, printed = run("transactions", *arguments, "-o", url, "--json")
    assert code == 0, printed
    return {one["txn"]: one for one in json.loads(printed)["transactions"]}


@pytest.mark.parametrize(
    "named",
    [
        ("spark-commits-orders",),
        ("--idempotence-id", "orders"),
        ("--idempotence-id", "orders", "-o", "topic=public/default/t"),
        ("--idempotence-id", "other", "-o", "commitTopic=spark-commits-orders"),
    ],
)
def test_of_a_log(broker: ScriptedBroker, run: Run, named: tuple[str, ...]) -> None:
    """Those that the log names and that are open, since when; none is touched."""
    found = listed(broker, run, *named)
    assert found == {
        str(LEFT): {
            "txn": str(LEFT),
            "state": "open",
            "sinceMs": 1002,
            "of": "micro-batch 7, task 0",
            "toBeCommitted": False,
            "outcome": None,
        },
        str(DECIDED): {
            "txn": str(DECIDED),
            "state": "open",
            "sinceMs": 1003,
            "of": "micro-batch 7, task 1",
            "toBeCommitted": True,
            "outcome": None,
        },
    }
    assert set(broker.transactions) == {LEFT, DECIDED, THEIRS}
    assert not broker.durable(LOG)
    assert not any(broker.transactions.values())  # nothing became a part of them


def test_aborting(broker: ScriptedBroker, run: Run) -> None:
    """A dry run ends none; what is to be committed, and what is not named, stays."""
    outcomes = listed(broker, run, LOG, "--abort")
    assert outcomes[str(LEFT)]["outcome"] == "would be aborted"
    assert len(broker.transactions) == 3
    assert listed(broker, run, LOG, "--abort", "--yes", "--id", "0:99") == {}
    outcomes = listed(broker, run, LOG, "--abort", "--yes")
    assert outcomes[str(LEFT)]["outcome"] == "aborted"
    assert outcomes[str(DECIDED)]["outcome"] == "kept: to be committed"
    assert set(broker.transactions) == {DECIDED, THEIRS}


def test_of_a_scalable_topic(broker: ScriptedBroker, run: Run) -> None:
    """Coordinators do not tell whether it is open; it can be ended all the same."""
    txn = TxnId(0, 9, is_scalable=True)
    broker.append(LOG, single(dump_record(Opened(8, 2, txn)), publish_time=2000))
    broker.transactions[TxnId(0, 9)] = []
    named = ("--idempotence-id", "orders", "-o", "topic=topic://public/default/t")
    assert listed(broker, run, *named, "--id", "0:9") == {
        "0:9": {
            "txn": "0:9",
            "state": "not known",
            "sinceMs": 2000,
            "of": "micro-batch 8, task 2",
            "toBeCommitted": False,
            "outcome": None,
        }
    }
    outcomes = listed(broker, run, *named, "--id", "0:9", "--abort", "--yes")
    assert outcomes["0:9"]["outcome"] == "aborted"
    assert broker.ended == [(txn, TxnAction.ABORT)]


def test_of_a_topic(broker: ScriptedBroker, stub: AdminStub, run: Run) -> None:
    """Those that write to it, or to a partition of it, by the admin REST."""
    stub.answers["GET /admin/v3/transactions/slowTransactions/600000"] = (
        200,
        {
            "(0,3)": {
                "txnId": "(0,3)",
                "status": "OPEN",
                "openTimestamp": 5000,
                "producedPartitions": {"persistent://public/default/t-partition-1": {}},
            },
            "(0,1)": {
                "txnId": "(0,1)",
                "status": "OPEN",
                "producedPartitions": {"persistent://public/default/u": {}},
            },
        },
    )
    command = ("t", "--admin-url", stub.url, "--older-than", "10m")
    assert listed(broker, run, *command) == {
        str(THEIRS): {
            "txn": str(THEIRS),
            "state": "open",
            "sinceMs": 5000,
            "of": "persistent://public/default/t-partition-1",
            "toBeCommitted": None,
            "outcome": None,
        }
    }
    assert listed(broker, run, *command, "--abort", "--yes")
    assert set(broker.transactions) == {LEFT, DECIDED}


def test_no_log(broker: ScriptedBroker, run: Run) -> None:
    """It is not made by asking; and a topic of something else is an error."""
    url = f"service.url={broker.url}"
    code, printed = run("transactions", "--idempotence-id", "none", "-o", url)
    assert code == 1
    assert "PULSAR_TOPIC_NOT_FOUND" in printed
    assert "name that by `-o topic=...` or `--namespace`" in printed
    assert "persistent://public/default/spark-commits-none" not in broker.topics
    broker.add_topic("persistent://public/default/rows", [single(b"a row")])
    code, printed = run("transactions", "rows", "--log", "-o", url)
    assert code == 1
    assert "PULSAR_COMMIT_LOG" in printed


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("t", "--idempotence-id", "orders"),
        ("t",),
        (LOG, "--yes"),
        (LOG, "--id", "x"),
        (LOG, "--older-than", "soon"),
        ("--idempotence-id", "a b"),
        ("topic://public/default/t",),
    ],
)
def test_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    """It ends with 2 before anybody is asked."""
    url = "service.url=pulsar://127.0.0.1:1"
    assert run("transactions", *arguments, "-o", url)[0] == 2
