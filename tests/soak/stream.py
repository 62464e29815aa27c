# SPDX-License-Identifier: Apache-2.0
"""The stream under test. Its driver is a process that may be killed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.streaming import Job

if TYPE_CHECKING:
    from tests.soak.site import Site


class Stream:
    """The stream. As a context manager its driver runs.

    Args:
        folder: For its checkpoint, its orders and its logs.
        master: Of the Spark cluster.
        site: The brokers.

    Attributes:
        folder: The same.
        starts: How often a driver was started.
        ended: What drivers said at last that have ended by themselves.
    """

    def __init__(self, folder: Path, master: str, site: Site) -> None:
        folder.mkdir()
        self.folder = folder
        self.starts = 0
        self.ended: list[str] = []
        common = {
            **site.options(),
            "pulsar.client.maxBackoffIntervalNanos": "2000000000",
            "pulsar.client.connectionMaxIdleSeconds": "20",
        }
        job = {
            "folder": str(folder),
            "master": master,
            "read": {
                **common,
                "topic": site.source,
                "startingOffsets": "earliest",
                "maxRowsPerTrigger": "50000",
            },
            "write": {
                **common,
                "topic": site.sink,
                "deliveryGuarantee": "exactly-once",
                "idempotenceId": "soak",
                # Nothing that is left open shall be hidden by its expiry.
                "transactionTimeoutMs": str(4 * 3600 * 1000),
            },
        }
        self._text = json.dumps(job)
        self._job: Job | None = None

    def __enter__(self) -> Stream:
        self.order("run")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def job(self) -> Job:
        """The driver that runs."""
        assert self._job is not None
        return self._job

    def start(self) -> None:
        """Start the driver."""
        self.starts += 1
        log = self.folder / f"driver-{self.starts}.log"
        self._job = Job([self._text], log, "tests.soak.driver")
        self._job.__enter__()

    def kill(self) -> None:
        """Kill the driver and what is below it, as ``kill -9``."""
        if self._job is not None:
            self._job.__exit__()
            self._job = None

    def restart_if_ended(self) -> None:
        """Start the driver again if it has ended by itself, and remember that."""
        if not self.job.is_running:
            self.ended.append(self.job.output[-3000:])
            self.kill()
            self.start()

    def order(self, order: str) -> None:
        """Have the driver do something: ``run`` or ``rest``."""
        (self.folder / "state").unlink(missing_ok=True)
        (self.folder / "order").write_text(order)

    def await_done(self, order: str) -> None:
        """Give an order, and wait until the driver does that."""
        self.order(order)
        state = self.folder / "state"
        self.job.await_true(
            lambda: state.exists() and state.read_text() == order, f"to {order}"
        )

    @property
    def batches(self) -> int:
        """How many micro-batches are committed."""
        folder = self.folder / "checkpoint" / "commits"
        return 1 + max((int(p.name) for p in folder.glob("[0-9]*")), default=-1)

    def failures(self) -> list[dict[str, Any]]:
        """How the query has failed, each time."""
        file = self.folder / "failures"
        if not file.exists():
            return []
        return [json.loads(line) for line in file.read_text().splitlines()]

    def conditions(self) -> Counter[str]:
        """How often the query has failed with what."""
        return Counter(one["condition"] for one in self.failures())
