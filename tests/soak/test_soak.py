# SPDX-License-Identifier: Apache-2.0
"""A stream from topic to topic, exactly once, while all that it rests on is killed.

``MINUTES=60 SEED=7 make soak-cluster`` decides how long, and where chance begins.
Three brokers with TLS and tokens that live for a minute; Spark's standalone cluster
with two executors; a feeder and a watcher of the official client. At the end each row
of the source is in the sink once, and nothing is left of the stream but its
subscription.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
import time
from collections import Counter
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark import PulsarSparkError, __version__, kernel
from pulsar_spark.testing.admin import AdminError
from pulsar_spark.testing.jars import DEFAULT_VERSION
from tests.soak import faults, processes, verify
from tests.soak.coordinator_log import COMMITTED, statuses
from tests.soak.faults import BROKERS, PROCESSES, Storm
from tests.soak.processes import Sampler
from tests.soak.report import Growth, Left, Report, Spread, growth_of
from tests.soak.site import ROLES, TOKEN_S, Site, parts
from tests.soak.stream import Stream
from tests.soak.traffic import Feeder, Watcher
from tests.support.standalone import StandaloneCluster
from tests.support.streaming import ROOT, durable_backlogs
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from collections.abc import Iterator

MINUTES = float(os.environ.get("PULSAR_SPARK_SOAK_MINUTES") or 10)
SEED = int(os.environ.get("PULSAR_SPARK_SOAK_SEED") or 1)

#: The share of the time in which no process is killed: their memory is looked at then.
CALM = 0.2
LEAST_CALM_S = 60.0

#: What brokers log when the stream has shown a fresh token on an open connection.
RENEWED = "Refreshed authentication credentials for role stream"

#: Bounds a failure; says nothing about how long anything should take.
PATIENCE_S = 600.0


@pytest.mark.soak
@pytest.mark.timeout(int(60 * MINUTES + 4 * PATIENCE_S))
def test_a_stream_that_nothing_stops(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """Nothing lost, nothing repeated, nothing left, and no more memory."""
    report = Report(about=about())
    kept = ROOT / "build" / "soak"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        site = stack.enter_context(Site())
        stack.enter_context(kept_logs(site, tmp_path, kept))
        spark = StandaloneCluster(tmp_path / "spark", workers=2)
        master = stack.enter_context(spark).url
        watcher = stack.enter_context(Watcher(site))
        feeder = stack.enter_context(Feeder(site))
        sampler = stack.enter_context(Sampler())
        stream = stack.enter_context(Stream(tmp_path / "stream", master, site))
        soak = Soak(report, site, stream, feeder, watcher, sampler)
        stack.callback(lambda: say(f"\n{report.markdown()}\n"))
        stack.callback(lambda: report.write(kept / "soak.json"))
        soak.run()
        soak.drain()
        if soak.faults:  # its journal says what happened
            shutil.copytree(site.cluster.folder / "store", kept / "store")
    if pytestconfig.getoption("--save"):
        report.write(ROOT / "docs" / "soak.json")
    assert not soak.faults, "\n".join(soak.faults)


class Soak:
    """One soak, from the first row to the last.

    Attributes:
        faults: What was found that should not be.
    """

    def __init__(
        self,
        report: Report,
        site: Site,
        stream: Stream,
        feeder: Feeder,
        watcher: Watcher,
        sampler: Sampler,
    ) -> None:
        self.faults: list[str] = []
        self._report = report
        self._site = site
        self._stream = stream
        self._feeder = feeder
        self._watcher = watcher
        self._sampler = sampler
        self._before: dict[str, float] = {}
        self._forgotten: list[str] = []

    def run(self) -> None:
        """Have everything happen."""
        self._await_all_seen("the first rows", 1)
        storm = Storm(self._site, self._stream, self._feeder, self._watcher, SEED)
        end = time.monotonic() + 60 * MINUTES
        calm_s = max(CALM * 60 * MINUTES, LEAST_CALM_S)
        try:
            storm.run({**PROCESSES, **BROKERS}, 60 * MINUTES - calm_s)
            say("the query rests, to see what a new one holds")
            self._stream.kill()
            self._stream.start()
            self._await_all_seen("rows of the next query", max(self._feeder.sent))
            self._rest()
            self._before = self._holds()
            self._stream.order("run")
            self._await_all_seen("rows after the rest", max(self._feeder.sent))
            began_s = self._sampler.now_s
            storm.run(BROKERS, max(end - time.monotonic(), LEAST_CALM_S))
            ended_s = self._sampler.now_s
        finally:
            storm.close()
            self._tell_of(storm)
        self._judge_memory(began_s, ended_s)

    def drain(self) -> None:
        """End what feeds it, wait until all rows are seen, and look at what is left."""
        self._feeder.stop()
        say(f"{sum(self._feeder.sent):,} rows were fed; all but some are seen")
        with contextlib.suppress(AssertionError):  # what is lost is counted below
            await_true(
                lambda: self._watcher.seen == self._feeder.stored,
                "all rows",
                PATIENCE_S,
            )
        self._check_backlog()
        self._check_transactions()
        self._rest()
        self._check_left()
        self._check_rows()
        self._tell()

    def _await_all_seen(self, what: str, number: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not all(
            self._watcher.has_seen(part, number) for part in range(len(parts("")))
        ):
            self._stream.restart_if_ended()
            self._watcher.check()
            self._feeder.check()
            assert time.monotonic() < deadline, f"{what} do not come"
            time.sleep(0.1)

    # -- what is left ------------------------------------------------------------------

    def _rest(self) -> None:
        """Stop the query, and wait until no connection of ours is left."""
        self._stream.await_done("rest")
        await_true(
            lambda: not self._connections(),
            "the end of connections through links",
            300,
            pause=1,
        )

    def _connections(self) -> set[int]:
        """The connections through links, but for those of official clients.

        A broker that lets go of a topic may name the way through a link to them.
        """
        through = {
            port for link in self._site.cluster.links for port in link.broker_sides
        }
        if not through:
            return through
        site = self._site
        others = [
            one["address"]
            for topic in (*parts(site.source), *parts(site.sink))
            for stats in [site.admin.stats(topic)]
            for watcher in [stats["subscriptions"].get("watcher", {})]
            for one in [
                *watcher.get("consumers", ()),
                *(stats["publishers"] if topic in parts(site.source) else ()),
            ]
        ]
        return through - {int(address.rpartition(":")[2]) for address in others}

    def _holds(self) -> dict[str, float]:
        """What the processes hold: the least of some looks."""
        looks: list[dict[str, float]] = []
        for _ in range(10):
            held: dict[str, float] = {}
            for one in processes.processes():
                if one.kind == processes.WORKER and not one.is_forked:
                    continue  # it only starts the others
                for what, count in (("threads", one.threads), ("files", one.files)):
                    name = f"{what} of the {one.kind}"
                    held[name] = max(held.get(name, 0), count)
            looks.append(held)
            time.sleep(1)
        names = {name for look in looks for name in look}
        return {
            name: min(look.get(name, 0) for look in looks)
            for name in sorted(names)
            if "JVM" not in name  # these have reasons of their own
        }

    def _check_left(self) -> None:
        after = self._holds()
        for name in sorted(self._before.keys() | after.keys()):
            left = Left(name, self._before.get(name, 0), after.get(name, 0))
            self._report.left.append(left)
            if name in self._before and left.after > left.before:
                self.faults.append(f"left: {left}")
        site, admin = self._site, self._site.admin
        live = len(self._connections())
        self._report.left.append(Left("connections to brokers", 0, live))
        ours: set[str] = set()
        for topic in (*parts(site.source), *parts(site.sink), *self._logs()):
            stats = admin.stats(topic)
            there = {name for name in stats["subscriptions"] if name != "watcher"}
            expected = {"spark-pulsar-commits"} if topic in self._logs() else there
            if topic in parts(site.source):
                ours |= there
            elif there != expected or (topic in parts(site.sink) and there):
                self.faults.append(f"subscriptions of {topic}: {sorted(there)}")
            consumers = [
                one
                for name, subscription in stats["subscriptions"].items()
                if name != "watcher"
                for one in subscription["consumers"]
            ]
            if consumers or stats["publishers"]:
                self.faults.append(f"clients of {topic}: {consumers or 'producers'}")
        self._report.left.append(Left("subscriptions of the source", 1, len(ours)))
        if len(ours) != 1:
            self.faults.append(f"subscriptions of the source: {sorted(ours)}")

    def _logs(self) -> tuple[str, str]:
        return self._site.log, f"{self._site.log}-markers"

    def _check_backlog(self) -> None:
        """An idle query has acknowledged everything."""
        admin = self._site.admin

        def backlogs() -> list[int]:
            return [
                backlog
                for name in parts(self._site.source)
                for backlog in durable_backlogs(admin, name).values()
            ]

        with contextlib.suppress(AssertionError):
            await_true(lambda: not any(backlogs()), "backlog 0", 120)
        if any(backlogs()):
            self.faults.append(f"backlogs of the source: {backlogs()}")

    def _check_transactions(self) -> None:
        """No transaction is open when all is written."""
        open_ones: dict[str, dict[str, Any]] | None = None
        answer: Exception | None = None

        def none_open() -> bool:
            nonlocal open_ones, answer
            try:
                open_ones = self._site.open_transactions()
            except (AdminError, PulsarSparkError) as error:  # one is just moving
                answer = error
            return open_ones == {}

        with contextlib.suppress(AssertionError):
            await_true(none_open, "the end of transactions", 60)
        if open_ones is None:
            self.faults.append(f"no coordinator tells of open transactions: {answer}")
            return
        self._report.left.append(Left("open transactions", 0, len(open_ones)))
        for txn, about_it in open_ones.items():
            became = statuses(self._site.cluster.folder / "store", txn)
            if COMMITTED in became:
                self._forgotten.append(txn)
                self._report.notes.append(
                    f"A broker forgot that it had committed transaction {txn}: the"
                    f" coordinator calls it {about_it.get('status')}, the bookie's"
                    f" files say {', '.join(became)}. Its rows stay until it expires."
                )
            elif is_empty(about_it) and not became:
                self._report.notes.append(
                    f"Transaction {txn} is open and empty: its id went with a"
                    " connection, so nobody could end it. It keeps no reader waiting."
                )
            else:
                self.faults.append(f"open transaction {txn}, {became}: {about_it}")

    # -- what is in the topics ---------------------------------------------------------

    def _check_rows(self) -> None:
        site, rows = self._site, self._report.rows
        source = verify.by_official(site, site.source)
        rows["fed"] = sum(self._feeder.stored)
        rows["in the source"] = len(source)
        fed = verify.Content()
        for part, count in enumerate(self._feeder.stored):
            fed.numbers[part].extend(range(count))
        lost, repeated = source.beside(fed)
        if lost or repeated or source.disordered:
            self.faults.append(
                f"the feeder, or the brokers, lost {lost[:5]}, repeated {repeated[:5]}"
            )
        for name, read in (
            ("official client", verify.by_official),
            ("connector", verify.by_ours),
        ):
            sink = read(site, site.sink)
            lost, repeated = sink.beside(source)
            rows[f"in the sink, read by the {name}"] = len(sink)
            rows[f"lost, {name}"] = len(lost)
            rows[f"repeated, {name}"] = len(repeated)
            rows[f"out of order, {name}"] = sink.disordered
            for what, found in (("lost", lost), ("repeated", repeated)):
                if found:
                    shown = Counter(
                        self._watcher.has_seen(*map(int, one.split(":")))
                        for one in found
                    )
                    self.faults.append(
                        f"{what} {len(found)} rows by the {name}, such as"
                        f" {found[:5]} to {found[-5:]}; seen by the watcher: {shown}"
                    )
            if sink.disordered:
                self.faults.append(f"{sink.disordered} rows out of order by the {name}")
        rows["seen twice meanwhile"] = len(self._watcher.repeated)
        if self._watcher.repeated:
            self.faults.append(f"seen twice: {self._watcher.repeated[:5]}")

    # -- what is told ------------------------------------------------------------------

    def _tell_of(self, storm: Storm) -> None:
        kinds: dict[str, list[faults.Fault]] = {}
        for fault in storm.faults:
            kinds.setdefault(fault.kind, []).append(fault)
        self._report.faults = {
            kind: Spread.of(
                one.recovery_s for one in some if one.recovery_s is not None
            )
            for kind, some in {**kinds, "all": storm.faults}.items()
        }

    def _tell(self) -> None:
        report, stream, site = self._report, self._stream, self._site
        loads = [sample.load for sample in self._sampler.samples]
        report.about["load, median"] = f"{median(loads):.1f}"
        report.latency = Spread.of(self._watcher.latencies_s)
        report.stream = {
            "micro-batches": stream.batches,
            "drivers started": stream.starts,
            "drivers that ended by themselves": len(stream.ended),
            "queries started again after a failure": len(stream.failures()),
            "tokens of the stream": site.tokens["stream"].written,
            "tokens that brokers asked for on open connections": sum(
                log.read_text(errors="replace").count(RENEWED)
                for log in site.broker_logs()
            ),
            "transactions that a broker forgot": len(self._forgotten),
            "certificates of the brokers": 1 + site.renewals,
            "connections through links": sum(
                link.counters.accepted for link in site.cluster.links
            ),
        }
        report.failures = dict(stream.conditions())

    def _judge_memory(self, began_s: float, ended_s: float) -> None:
        everything = self._sampler.lives(0)
        calm = self._sampler.lives(began_s)
        for kind in processes.KINDS:
            lives = [life for k, life in everything.values() if k == kind]
            sixths = [
                [mib for life in lives for at_s, mib in life if low <= at_s < high]
                for low, high in (
                    (ended_s * n / 6, ended_s * (n + 1) / 6) for n in range(6)
                )
            ]
            early, late = growth_of(
                [one for one in life if one[0] <= ended_s]
                for k, life in calm.values()
                if k == kind
            )
            middles = [round(median(one), 1) if one else 0.0 for one in sixths]
            growth = Growth(kind, len(lives), middles, early, late)
            self._report.memory.append(growth)
            if not growth.is_flat:
                self.faults.append(f"memory: {growth}")


def is_empty(transaction: dict[str, Any]) -> bool:
    """Whether a transaction is in no topic partition, written or acknowledged."""
    return not transaction["producedPartitions"] and not transaction["ackedPartitions"]


@contextlib.contextmanager
def kept_logs(site: Site, work: Path, kept: Path) -> Iterator[None]:
    """Keeps the logs of all that ran, in build/soak."""
    try:
        yield
    finally:
        found = {f"broker-{n}.log": log for n, log in enumerate(site.broker_logs())}
        found |= {f"{role}.log": site.log_of(role) for role in ROLES}
        found |= {log.name: log for log in (work / "stream").glob("*.log")}
        for name, log in found.items():
            if log.exists():
                shutil.copy(log, kept / name)
        if (failures := work / "stream" / "failures").exists():
            shutil.copy(failures, kept / "failures.json-lines")


def about() -> dict[str, str]:
    """What this soak is, and what it runs on."""
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "minutes": f"{MINUTES:g}",
        "seed": str(SEED),
        "pulsar-spark": f"{__version__} ({kernel})",
        "Pulsar": DEFAULT_VERSION,
        "Spark": version("pyspark"),
        "Python": platform.python_version(),
        "pyarrow": version("pyarrow"),
        "official client": version("pulsar-client"),
        "brokers": "3, TLS",
        "seconds of a token": str(TOKEN_S),
        "cores": str(os.cpu_count()),
    }


def say(text: str) -> None:
    """Print it now."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
