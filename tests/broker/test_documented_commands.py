# SPDX-License-Identifier: Apache-2.0
"""The commands that documents show, run as they stand on what a stream has left.

Only the addresses of the broker and the folder ``/data`` are others here.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from tests.support import docs
from tests.support.commands import Run
from tests.support.commands import run as run
from tests.support.event_logs import progress_event
from tests.support.official import produce
from tests.support.pasted import topics_of_guides
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from pulsar_spark.testing.admin import Admin
    from pulsar_spark.testing.embedded_broker import ExternalBroker

ORDERS = "persistent://public/default/orders"
PARTS = [f"{ORDERS}-partition-{number}" for number in range(2)]
LOG = "persistent://public/default/spark-commits-orders"


@dataclass(frozen=True)
class Site:
    """What there is to look at.

    Attributes:
        data: What documents call ``/data``.
        service_url: Of the broker.
        admin_url: Likewise.
        admin: Likewise.
    """

    data: Path
    service_url: str
    admin_url: str
    admin: Admin

    @property
    def checkpoint(self) -> Path:
        """Of the stream of orders."""
        return self.data / "checkpoints" / "orders"

    def state(self) -> object:
        """All that a command might change: files, and durable subscriptions."""
        files = {
            path: path.read_bytes()
            for path in self.checkpoint.rglob("*")
            if path.is_file()
        }
        return files, [self.admin.subscriptions(part) for part in PARTS]

    def arguments(self, command: list[str]) -> list[str]:
        """The command's, for here."""
        changed = [text.replace("/data/", f"{self.data}/") for text in command]
        for old, new in (
            ("pulsar://localhost:6650", self.service_url),
            ("http://localhost:8080", self.admin_url),
        ):
            changed = [text.replace(old, new) for text in changed]
        return changed


@pytest.fixture(scope="module")
def site(
    spark: SparkSession,
    broker: EmbeddedBroker | ExternalBroker,
    admin: Admin,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    """An exactly-once stream of orders that has stopped, with rows that came since."""
    data = tmp_path_factory.mktemp("data")
    site = Site(data, broker.service_url, broker.admin_url, admin)
    assert not logs(admin), "a log of somebody else's, which is not to be deleted"
    with topics_of_guides(admin, {"orders": 2, "orders-copy": 2}):
        for part in PARTS:
            produce(site.service_url, part, [b"1", b"2"])
        query = (
            spark.readStream.format("pulsar")
            .option("service.url", site.service_url)
            .option("topic", "public/default/orders")
            .option("startingOffsets", "earliest")
            .load()
            .writeStream.format("pulsar")
            .option("service.url", site.service_url)
            .option("topic", "public/default/orders-copy")
            .option("deliveryGuarantee", "exactly-once")
            .option("idempotenceId", "orders")
            .option("checkpointLocation", str(site.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(240)
        for part in PARTS:
            produce(site.service_url, part, [b"3"])
        query_id = json.loads((site.checkpoint / "metadata").read_text())["id"]
        lines = (
            progress_event(n, {PARTS[0]: 5 - n}, after_s=n, rows=9, id=query_id)
            for n in range(5)
        )
        (data / "events").write_text("\n".join(lines))
        yield site
    for topic in logs(admin):
        admin.delete(topic)


def logs(admin: Admin) -> list[str]:
    """The topics in which the stream keeps its commits."""
    return [one for one in admin.topics("public/default") if one.startswith(LOG)]


#: What each of them says, by words that only it has.
SAYS = {
    "doctor": "Python of Spark",
    "doctor -o": "none: values are bytes",
    "plan": "Tasks: 2",
    "peek": "__publishTime",
    "lag": "orders-partition-1",
    "lag --plot": "5 micro-batches",
    "checkpoint": "is committed, nothing is planned",
    "checkpoint --set-position": "Nothing was changed",
    "subscriptions": "orders-partition-1",
    "subscriptions --delete": "kept: owned",
    "transactions": "No open transaction.",
}


@pytest.mark.parametrize("command", docs.commands(), ids=" ".join)
def test_a_command(
    site: Site, command: list[str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends well, says what it is there for, and changes nothing."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, sys.executable)
    before = site.state()
    code, printed = run(*site.arguments(command))
    assert code == 0, printed
    said = max((one for one in SAYS if {*one.split()} <= {*command}), key=len)
    assert SAYS[said] in printed
    await_true(lambda: site.state() == before, "the end of what the command opened")
    if "--plot" in command:
        picture = Path(site.arguments(command)[-1])
        assert picture.read_bytes().startswith(b"\x89PNG")
