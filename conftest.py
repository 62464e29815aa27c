# SPDX-License-Identifier: Apache-2.0
"""Fixtures that all tests share. A broker and Spark start only when a test asks.

``PULSAR_SERVICE_URL`` and ``PULSAR_ADMIN_URL`` name a broker that is there already;
without them one embedded broker serves the whole run, or each process of it (``-n 2``).
Tests that need to cut its connections are skipped with a broker that is not ours.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import re
import shutil
import sys
import tempfile
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from pulsar_spark.sink import probes
from pulsar_spark.testing.admin import Admin
from pulsar_spark.testing.embedded_broker import (
    EmbeddedBroker,
    ExternalBroker,
    record_classes,
)
from pulsar_spark.testing.jars import DEFAULT_VERSION
from spark_topics.client.reached import forget_reached
from tests.support.by_file import make_scheduler, unit_of
from tests.support.link_proxy import LinkProxy
from tests.support.products import ROOT
from tests.support.session import quicken_jobs, start_spark
from tests.support.spark_classes import record_classes as record_spark_classes
from tests.support.waiting import SHARED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

# A run starts Python by the thousand, always with the same modules: these are compiled
# once, whatever the environment says. Of collecting all tests that is most.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

SERVICE_URL = os.environ.get("PULSAR_SERVICE_URL", "")
ADMIN_URL = os.environ.get("PULSAR_ADMIN_URL", "")

#: Fixtures that bring a broker or Spark with them, and the marker this gives a test.
MARKERS = {
    "broker": "broker",
    "spark": "spark",
}

#: Folders whose tests may each have a broker of its own, and their marker.
FOLDERS = {
    ROOT / "tests" / "broker": "broker",
    ROOT / "siblings" / "tubemq" / "tests" / "real": "tubemq",
}

#: The markers of tests that need a JVM.
JVM_MARKERS = {*MARKERS.values(), *FOLDERS.values()}

#: The room that was left, and the last complaints in the broker's log: what the broker
#: stored, its log included, is gone when failures are summed up.
LAST_WORDS = pytest.StashKey[list[str]]()

#: How a test ended that was not begun because the time was up.
LEFT_OUT = "left out for want of time"


# How long an example takes, and how long it takes to think of one, says nothing: the
# machine may have other work.
settings.register_profile(
    "any machine",
    settings.default,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any machine")

#: Seconds a test marked ``slow`` may take; pyproject.toml has the limit of the others.
SLOW_S = 1200


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test by its fixtures, and give a slow one time."""
    if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
        item.add_marker(pytest.mark.timeout(SLOW_S))
    markers = {MARKERS[f] for f in _shared_fixtures(item) & MARKERS.keys()}
    markers |= {FOLDERS[f] for f in FOLDERS if f in item.path.parents}
    for marker in sorted(markers):
        item.add_marker(marker)


@pytest.hookimpl(trylast=True)  # of the tests that are selected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order all tests.

    Files with a broker or Spark come first: those with slow tests, then those with the
    most to do, a test of Spark counted as three. Of several processes one begins with
    what waits for a JVM, beside others that compute, and nothing long is left to the
    end. Tests that share a broker of their own stay together, see
    ``tests/support/by_file.py``.
    """
    ranks: dict[str, tuple[bool, int]] = {}
    for item in items:
        unit = unit_of(item.nodeid)
        has_slow, work = ranks.get(unit, (False, 0))
        markers = {marker.name for marker in item.iter_markers()}
        if markers & JVM_MARKERS:
            has_slow = has_slow or "slow" in markers
            work += 3 if "spark" in markers else 1
        ranks[unit] = (has_slow, work)
    items.sort(key=lambda item: ranks[unit_of(item.nodeid)], reverse=True)


def _shared_fixtures(item: pytest.Item) -> set[str]:
    """Return the fixtures of a test that are defined here.

    A test's own fixtures and arguments may have the same names, and bring nothing.
    """
    info = getattr(item, "_fixtureinfo", None)  # pytest says it nowhere else
    of_names = {} if info is None else info.name2fixturedefs
    return {
        name
        for name, fixtures in of_names.items()
        if getattr(fixtures[-1].func, "__module__", "") == __name__
    }


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep tests that share a broker in one process, where files are given out."""
    is_by_file = config.getoption("dist") == "loadfile"
    return make_scheduler(config, log) if is_by_file else None


def pytest_collection_finish() -> None:
    """Spare the garbage collector the thousands of tests, which stay to the end."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the limits that pytest has none for."""
    about = "Seconds the process may take to end when all is said"
    parser.addini("exit_timeout", about, type="float", default=120.0)
    about = "Begin no test from this time on, and name those that are left out"
    parser.addoption("--until", type=float, metavar="UNIX-TIME", help=about)
    about = "Keep the report of the soak in docs/"
    parser.addoption("--save", action="store_true", help=about)


def pytest_configure(config: pytest.Config) -> None:
    """Watch the time of a run with a limit; jobs of tests start fast."""
    quicken_jobs()
    until = config.getoption("--until")
    if until is not None:
        config.pluginmanager.register(Deadline(until))


class Deadline:
    """Ends a run in time, between two tests."""

    def __init__(self, until: float) -> None:
        self._until = until

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Leave a test out when the time is up."""
        if time.time() < self._until:
            return None
        report = pytest.TestReport(
            item.nodeid,
            item.location,
            {},
            LEFT_OUT,
            None,
            "call",  # type: ignore[arg-type]
        )
        item.ihook.pytest_runtest_logreport(report=report)
        return True

    def pytest_report_teststatus(
        self, report: pytest.TestReport
    ) -> tuple[str, str, str] | None:
        """Give such tests a count in the last line of the run."""
        if report.outcome != LEFT_OUT:
            return None
        return LEFT_OUT, "-", LEFT_OUT.upper()


@pytest.hookimpl(trylast=True)  # when fixtures have ended
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell what only this process of several knows."""
    if hasattr(session.config, "workeroutput"):
        words = session.config.stash.get(LAST_WORDS, [])
        session.config.workeroutput["last words"] = words


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the last words of a process of several; a crashed process has none."""
    words = getattr(node, "workeroutput", {}).get("last words", [])
    node.config.stash.setdefault(LAST_WORDS, []).extend(words)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the process even if a thread of a test would keep it.

    One of several is ended by the one that started it, when all of them are done.
    """
    if hasattr(config, "workerinput"):
        return
    faulthandler.dump_traceback_later(config.getini("exit_timeout"), exit=True)


def pytest_report_header() -> list[str]:
    """Name the broker of the run, and the room on the disk."""
    broker = f"broker: Pulsar {DEFAULT_VERSION}, embedded, started on demand"
    if SERVICE_URL:
        broker = f"broker: Pulsar {_external().version} at {SERVICE_URL}"
    return [broker, f"disk: {_disk()}"]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Name the tests left out; after a failure, name possible causes.

    That may be a full disk, or a broker in trouble.
    """
    if left_out := terminalreporter.stats.get(LEFT_OUT):
        terminalreporter.write_sep("=", LEFT_OUT)
        for report in left_out:
            terminalreporter.write_line(report.nodeid)
    if not terminalreporter.stats.keys() & {"failed", "error"}:
        return
    terminalreporter.write_sep("=", "disk and broker at the end")
    for line in config.stash.get(LAST_WORDS, []) or [f"disk: {_disk()}"]:
        terminalreporter.write_line(line)


def _disk() -> str:
    folder = tempfile.gettempdir()
    usage = shutil.disk_usage(folder)
    free, total = usage.free >> 20, usage.total >> 20
    return f"{free:,} MiB free of {total:,} in {folder}"


def _external() -> ExternalBroker:
    if not ADMIN_URL:
        raise pytest.UsageError("PULSAR_SERVICE_URL needs PULSAR_ADMIN_URL beside it")
    return ExternalBroker(SERVICE_URL, ADMIN_URL, Admin(ADMIN_URL).version())


@pytest.fixture(autouse=True)
def _no_server_is_known() -> None:
    """Forget servers: the system gives a port to one test, and later to another."""
    forget_reached()
    probes._ready.clear()


@pytest.fixture(scope="session")
def broker(
    pytestconfig: pytest.Config,
) -> Iterator[EmbeddedBroker | ExternalBroker]:
    """Yield the broker of this run."""
    if SERVICE_URL:
        yield _external()
        return
    record_classes()
    with LinkProxy() as link, EmbeddedBroker(link=link) as embedded:
        yield embedded
        pytestconfig.stash[LAST_WORDS] = [f"disk: {_disk()}", *embedded.complaints()]


@pytest.fixture(scope="session")
def service_url(broker: EmbeddedBroker | ExternalBroker) -> str:
    """``pulsar://host:port``, straight to the broker."""
    return broker.service_url


@pytest.fixture(scope="session")
def admin(broker: EmbeddedBroker | ExternalBroker) -> Admin:
    """Admin calls to the broker."""
    return Admin(broker.admin_url)


@pytest.fixture
def link(broker: EmbeddedBroker | ExternalBroker) -> Iterator[LinkProxy]:
    """Yield a way to the broker, ``link.url``, that a test can make fail."""
    if not isinstance(broker, EmbeddedBroker) or broker.link is None:
        pytest.skip("cannot stand between clients and a broker that is not ours")
    proxy = broker.link
    yield proxy
    proxy.pass_through()
    proxy.cut_all()
    proxy.start()


@pytest.fixture
def namespace(admin: Admin) -> Iterator[str]:
    """Yield a fresh namespace, ``public/<name>``, that keeps unacknowledged rows.

    Without retention the broker drops closed ledgers of a topic without subscriptions
    at once. Tests about data loss say so with ``admin.set_retention``.
    """
    name = f"public/test-{uuid.uuid4().hex[:12]}"
    admin.create_namespace(name, keep=True)
    yield name
    _remove(admin, name)


@pytest.fixture(scope="session")
def _shared_namespace(admin: Admin) -> Iterator[str]:
    name = f"{SHARED}{uuid.uuid4().hex[:12]}"
    admin.create_namespace(name, keep=True)
    yield name
    _remove(admin, name)


def _remove(admin: Admin, namespace: str) -> None:
    if SERVICE_URL:  # otherwise the namespace goes with the broker
        admin.remove_namespace(namespace)


@pytest.fixture
def topic(request: pytest.FixtureRequest, _shared_namespace: str) -> str:
    """Return a new topic name; the topic does not exist yet."""
    test = re.sub(r"[^\w.=-]+", "-", request.node.name)[:60].strip("-")
    return f"persistent://{_shared_namespace}/{test}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Local Spark with two task slots."""
    record_spark_classes()
    session = start_spark(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
