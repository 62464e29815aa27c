# SPDX-License-Identifier: Apache-2.0
"""The command line on a real broker; with queries: test_command_line_queries."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client.transactions import TransactionClient
from pulsar_spark.sink.commit_log import Began, Opened, Prepared, Record, dump_record
from pulsar_spark.sink.journal import Journal
from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from tests.support.checkpoints import offset, write_checkpoint
from tests.support.commands import Run
from tests.support.commands import run as run
from tests.support.entries import message
from tests.support.raw_publisher import RawPublisher
from tests.support.streaming import publish_numbers
from tests.support.transactions import Transactions
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pulsar_spark.testing.admin import Admin
    from pulsar_spark.testing.embedded_broker import ExternalBroker


@pytest.fixture
def parts(admin: Admin, topic: str) -> str:
    """A topic with two partitions."""
    admin.create_partitioned(topic, 2)
    return topic


class TestSubscriptions:
    """What queries leave on topics."""

    def test_of_a_namespace_and_a_pattern(
        self,
        broker: EmbeddedBroker | ExternalBroker,
        admin: Admin,
        namespace: str,
        run: Run,
    ) -> None:
        """All of it, or what matches."""
        name = f"spark-pulsar-{uuid.uuid4()}"
        for topic in ("orders", "clicks"):
            admin.create_topic(f"persistent://{namespace}/{topic}")
            admin.create_subscription(f"persistent://{namespace}/{topic}", name)
        command = ("subscriptions", "--json", "--admin-url", broker.admin_url)

        def topics(*arguments: str) -> list[str]:
            code, printed = run(*command, *arguments)
            assert code == 0
            found = json.loads(printed)["subscriptions"]
            return [one["topicPartition"].rpartition("/")[2] for one in found]

        assert topics("--namespace", namespace) == ["clicks", "orders"]
        assert topics("--pattern", f"{namespace}/ord.*") == ["orders"]


@pytest.mark.parametrize(
    "read", ["1", pytest.param("nothing", marks=pytest.mark.matrix)]
)
def test_lag_behind_an_open_transaction(
    service_url: str, topic: str, tmp_path: Path, run: Run, read: str
) -> None:
    """The last stored entry is named while it is held back."""
    with (
        Transactions(service_url) as transactions,
        RawPublisher(service_url, topic) as publisher,
    ):
        ledger, _ = [publisher.send(*message(b"%d" % n)) for n in range(3)][-1]
        txn = transactions.begin(topic)
        publisher.send(*message(b"3"), txn=txn)
        publisher.send(*message(b"4"))
        place = "-1:-1" if read == "nothing" else f"{ledger}:{read}"
        folder = write_checkpoint(tmp_path / "c", {0: [offset({topic: place})]}, 0)
        command = ("lag", folder, "-o", f"service.url={service_url}")

        def held() -> Any:
            code, printed = run(*command, "--json")
            assert code == 0
            (one,) = json.loads(printed)["topicPartitions"]
            return one["heldBack"]

        assert held() == f"{ledger}:4"
        code, printed = run(*command)
        assert code == 0
        last = printed.splitlines()[-1]
        assert topic in last
        assert f"what follows {ledger}:2; it is stored up to {ledger}:4" in last
        transactions.end(txn, commit=False)
        await_true(lambda: held() is None, "the end of the transaction")


class TestTransactions:
    """Those that an exactly-once stream has left open."""

    @pytest.fixture
    def pool(self, service_url: str) -> Iterator[Any]:
        """Connections to the broker."""
        from pulsar_spark.client.pool import ConnectionPool
        from pulsar_spark.options import parse_common_options

        options = parse_common_options({"service.url": service_url})
        with ConnectionPool(options.client) as pool:
            yield pool

    def test_of_a_log(
        self,
        pool: Any,
        admin: Admin,
        service_url: str,
        namespace: str,
        run: Run,
    ) -> None:
        """Asking changes nothing; what is decided is never aborted."""
        log = f"persistent://{namespace}/spark-commits-orders"
        client = TransactionClient(pool)
        left, decided, over = (client.begin(600_000) for _ in range(3))
        records: list[Record] = [
            Began("c0ff"),
            Opened(6, 0, over),
            Opened(7, 0, left),
            Opened(7, 1, decided),
        ]
        journal = Journal(pool, log)
        for record in records:
            journal.append(dump_record(record))
        journal.append(dump_record(Prepared(7, {1: decided}, "a1", "c0ff", 2)))
        client.end([over], 0)  # type: ignore[arg-type]
        before = admin.subscriptions(log)
        command = (
            *("transactions", "--idempotence-id", "orders", "--namespace", namespace),
            *("-o", f"service.url={service_url}", "--json"),
        )

        def listed(*arguments: str) -> dict[str, Any]:
            code, printed = run(*command, *arguments)
            assert code == 0
            return {one["txn"]: one for one in json.loads(printed)["transactions"]}

        found = listed()
        assert set(found) == {str(left), str(decided)}
        assert found[str(left)]["of"] == "micro-batch 7, task 0"
        assert found[str(left)]["state"] == "open"
        assert found[str(left)]["sinceMs"] > 0
        assert found[str(decided)]["toBeCommitted"]
        assert admin.subscriptions(log) == before
        assert listed("--older-than", "1h") == {}
        assert listed("--abort")[str(left)]["outcome"] == "would be aborted"
        outcomes = listed("--abort", "--yes")
        assert outcomes[str(left)]["outcome"] == "aborted"
        assert outcomes[str(decided)]["outcome"] == "kept: to be committed"
        assert set(listed()) == {str(decided)}
        assert client.end([decided], 0) == {decided: None}  # type: ignore[arg-type]
        code, printed = run(*command[:-1])
        assert (code, printed) == (0, "No open transaction.\n")

    def test_of_a_topic(
        self,
        broker: EmbeddedBroker | ExternalBroker,
        admin: Admin,
        service_url: str,
        topic: str,
        run: Run,
    ) -> None:
        """By the admin REST: whoever writes in them."""
        admin.create_topic(topic)
        command = ("transactions", topic, "-o", f"service.url={service_url}", "--json")
        with Transactions(service_url) as transactions:
            txn = transactions.begin(topic)
            code, printed = run(*command)
            assert code == 2
            assert "--admin-url" in printed
            code, printed = run(
                *command, "--admin-url", broker.admin_url, "--abort", "--yes"
            )
        assert code == 0
        (found,) = json.loads(printed)["transactions"]
        assert found["txn"] == f"{txn[0]}:{txn[1]}"
        assert found["outcome"] == "aborted"
        assert found["of"] == topic


class TestDoctor:
    """What fails, and what cures it."""

    def test_all_is_well(
        self,
        admin: Admin,
        service_url: str,
        parts: str,
        run: Run,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Each step says what it found, and nothing is left."""
        import sys

        monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
        monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        publish_numbers(service_url, parts, [1], range(3))
        code, printed = run(
            *("doctor", "--json", "--deadline", "120"),
            *("-o", f"service.url={service_url}", "-o", f"topic={parts}"),
        )
        steps = {one["step"]: one for one in json.loads(printed)["steps"]}
        assert code == 0, printed
        assert {one["result"] for one in steps.values()} <= {"ok", "warning"}
        assert f"{parts}-partition-1" in steps["message"]["found"]
        assert steps["schema"]["found"] == "none: values are bytes"
        await_true(lambda: admin.subscriptions(f"{parts}-partition-1") == [], "the end")

    def test_a_topic_that_does_not_exist(
        self, service_url: str, topic: str, run: Run
    ) -> None:
        """The steps before it are done, those after it are not tried."""
        code, printed = run(
            *("doctor", "--json", "--deadline", "120"),
            *("-o", f"service.url={service_url}", "-o", f"topic={topic}"),
        )
        steps = {one["step"]: one for one in json.loads(printed)["steps"]}
        assert code == 1
        assert steps["connection"]["result"] == "ok"
        assert steps["partitions"]["result"] == "FAILED"
        assert steps["partitions"]["cure"]
        assert steps["message"]["result"] == "not done"
