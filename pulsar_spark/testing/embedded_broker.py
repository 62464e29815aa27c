# SPDX-License-Identifier: Apache-2.0
"""A real Pulsar broker on this machine, in one JVM.

``EmbeddedBroker`` starts Pulsar's own standalone class (broker, bookie and metadata)
from jars that Maven resolves. Java 17 and Maven are needed, and Java 21 for Pulsar 5.
Each port is on loopback, each file is in one folder, and the JVM ends with the process
that started the broker (see ``guard.py``).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, TextIO

from pulsar_spark.testing.admin import Admin, AdminError
from pulsar_spark.testing.jars import (
    DEFAULT_VERSION,
    archive_of,
    java_of,
    note,
    pom_of,
    release_of,
    resolve_classpath,
)
from pulsar_spark.testing.processes import (
    ADD_OPENS,
    LOG4J,
    LOOPBACK,
    SHORT_LIVED,
    BrokerStartError,
    end_guarded,
    free_ports,
    is_free,
    loopback_interface,
    process_id,
    start_guard,
    tail_of,
)
from pulsar_spark.testing.settings import (
    ENTRY_METADATA_SETTINGS,
    OLD_SETTINGS,
    SETTINGS,
)

#: How often a start is tried that loses a race, see `_LostRaceError`.
ATTEMPTS = 5

#: The broker logs this where the bookie is not registered.
UNKNOWN_BOOKIE = "bookie is unknown"

#: When a broker that does not become healthy is looked at more closely, in seconds, and
#: how many such lines are too many by then: a health check leaves some each 0.1 s.
LOOK_AFTER_S = 60.0
MOST_UNKNOWN = 100

#: The broker logs this each time the bookie loses the lock of its registration.
LOST_LOCK = re.compile(r"Lock on resource /ledgers/available/\S+ was invalidated")

#: Clients look up this topic to find the transaction coordinators. A coordinator starts
#: when the first client connects.
COORDINATOR_TOPIC = "persistent://pulsar/system/transaction_coordinator_assign"


class _LostRaceError(BrokerStartError):
    """The start may succeed when repeated.

    Attributes:
        on_same_ports: Whether the same ports will do.
    """

    on_same_ports = False


class _PortTakenError(_LostRaceError):
    """Another program took a port that was free a moment ago."""


class _RestlessBookieError(_LostRaceError):
    """The bookie registers and unregisters hundreds of times a second, without end.

    A broker that was killed leaves the lock of its bookie behind. The next broker
    removes that lock and takes a new lock. If the notice of the removal arrives only
    then, the broker believes that the new lock is gone, removes it, and so on
    (https://github.com/apache/pulsar/issues/17759). A topic that needs a new ledger may
    then fail with "Not enough non-faulty bookies available". Or the bookie unregisters
    at last, and no broker finds the bookie.
    """

    on_same_ports = True


class Link(Protocol):
    """A proxy between clients and the broker, for tests of faults."""

    @property
    def url(self) -> str:
        """Return the service URL of the proxy."""

    target: tuple[str, int]


@dataclass(frozen=True)
class ExternalBroker:
    """A broker that this process did not start.

    Attributes:
        service_url: ``pulsar://host:port``.
        admin_url: ``http://host:port``.
        version: Pulsar release.
    """

    service_url: str
    admin_url: str
    version: str


class EmbeddedBroker:
    """A Pulsar standalone in a child process, which serves loopback only.

    Args:
        folder: Absent or empty folder for data, configuration and logs; `stop` keeps
            the folder. None for a temporary folder, which `stop` removes.
        settings: Broker or bookie settings that win over those of `settings.py`. For
            topics of several small ledgers set ``managedLedgerMaxEntriesPerLedger`` and
            ``managedLedgerMinLedgerRolloverTimeMinutes=0``.
        version: Pulsar release to start.
        entry_metadata: Store a broker timestamp and an index with each entry, and show
            both to clients.
        link: A proxy for fault tests. The broker opens a second listener for the proxy,
            and tells the clients of that listener no other address than the proxy's.
        is_short_lived: Start quickly rather than become fast; not for benchmarks.
        log_level: Level of the broker's log file.
        admin_token: Token of a super user, where ``settings`` turn authentication on.
        progress: Takes notes about slow steps; None for silence.
        java_options: Further options of the JVM.
        ports: Fixed ports, by ``binary`` and ``web``; others are free ports.

    Attributes:
        service_url: ``pulsar://127.0.0.1:<port>``, valid after `start`.
        tls_url: ``pulsar+ssl://127.0.0.1:<port>``, valid after `start`, where the
            settings have a certificate.
        admin_url: ``http://127.0.0.1:<port>``, valid after `start`.
        version: Pulsar release.
        link: The proxy, or None.
        pid: Process id of the JVM, None while no JVM runs.
    """

    def __init__(
        self,
        folder: Path | None = None,
        settings: Mapping[str, str] | None = None,
        version: str = DEFAULT_VERSION,
        *,
        entry_metadata: bool = False,
        link: Link | None = None,
        is_short_lived: bool = True,
        log_level: str = "info",
        admin_token: str = "",
        progress: TextIO | None = sys.stderr,
        java_options: Sequence[str] = (),
        ports: Mapping[str, int] | None = None,
    ) -> None:
        self.version = version
        self.service_url = ""
        self.tls_url = ""
        self.admin_url = ""
        self.link = link
        self.pid: int | None = None
        self._own_folder = folder is None
        self._folder = folder
        self._settings = {
            **SETTINGS,
            "listeningInterface": loopback_interface(),
            **(OLD_SETTINGS if release_of(version) < (4, 0) else {}),
            **(ENTRY_METADATA_SETTINGS if entry_metadata else {}),
            **(settings or {}),
        }
        self._fixed_ports = dict(ports or {})
        self._ports: dict[str, int] = {}
        self._is_short_lived = is_short_lived
        self._log_level = log_level
        self._admin_token = admin_token
        self._log_before = 0
        self._progress = progress
        self._java_options = tuple(java_options)
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def _has_tls(self) -> bool:
        return "tlsCertificateFilePath" in self._settings

    @property
    def folder(self) -> Path:
        """Return the folder of the broker, made on first use."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="pulsar-spark-broker-"))
        return self._folder

    @property
    def log_file(self) -> Path:
        """Return the log of the broker. The JVM prints to ``jvm.out`` beside it."""
        return self.folder / "broker.log"

    def complaints(self, last: int = 15) -> list[str]:
        """Return the last warnings and errors in the log, 300 characters of each."""
        with self.log_file.open(errors="replace") as log:
            lines = (line for line in log if line[24:29] in ("WARN ", "ERROR"))
            return [line.rstrip()[:300] for line in deque(lines, last)]

    def start(self, timeout: float = 300.0) -> None:
        """Start the broker and wait until it serves topics and transactions.

        The first start of a version resolves the jars as well; ``timeout`` does not
        count that. A broker that runs is left alone.

        Args:
            timeout: Seconds for the broker to become healthy.

        Raises:
            BrokerStartError: The JVM ended, the broker was not healthy in time, or a
                fixed port is taken.
        """
        if self._guard is not None:
            return
        java_of(self.version)  # whose error comes before the downloads
        class_path = resolve_classpath(
            self.version, pom=pom_of(self.version), progress=self._progress
        )
        first_start = not self._ports
        for attempt in range(1, ATTEMPTS + 1):
            if first_start:
                self._choose_ports()
            try:
                self._launch(class_path)
                self._await_healthy(time.monotonic() + timeout)
            except _LostRaceError as error:
                self._end(b"k")
                if attempt == ATTEMPTS or not (first_start or error.on_same_ports):
                    raise
                if first_start:
                    # The data of the bookie name the port that was tried.
                    shutil.rmtree(self.folder / "data", ignore_errors=True)
            except BaseException:
                self._end(b"k")
                if first_start:
                    self._forget()
                raise
            else:
                return

    def stop(self, timeout: float = 20.0, *, orderly: bool | None = None) -> None:
        """End the broker, and remove a temporary folder.

        Args:
            timeout: Seconds for an orderly end, before the JVM is killed.
            orderly: Whether the JVM may end in order. By default a JVM whose folder is
                removed is killed.
        """
        if orderly is None:
            orderly = not self._own_folder
        self._end(b"t" if orderly else b"k", timeout)
        self._forget()

    def _forget(self) -> None:
        if self._own_folder and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
            self._ports = {}

    def kill(self) -> None:
        """Kill the JVM, as a crash would. Folder and ports are kept."""
        self._end(b"k")

    def restart(self, *, kill: bool = False, timeout: float = 300.0) -> None:
        """End the broker and start a new JVM with the same ports and data.

        Args:
            kill: End the JVM as a crash would.
            timeout: Seconds for the broker to become healthy again.
        """
        self._end(b"k" if kill else b"t")
        self.start(timeout)

    def __enter__(self) -> EmbeddedBroker:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # -- start ---------------------------------------------------------------------

    def _choose_ports(self) -> None:
        names = ("binary", "web", "bookie", "link", "tls", "zookeeper")
        for port in self._fixed_ports.values():
            if not is_free(port):
                raise BrokerStartError(
                    f"Port {port} is taken: end the program that listens there, or"
                    " choose another port."
                )
        free = dict(zip(names, free_ports(len(names)), strict=True))
        self._ports = {**free, **self._fixed_ports}
        self.service_url = f"pulsar://{LOOPBACK}:{self._ports['binary']}"
        self.admin_url = f"http://{LOOPBACK}:{self._ports['web']}"
        if self._has_tls:
            self.tls_url = f"pulsar+ssl://{LOOPBACK}:{self._ports['tls']}"
        if self.link is not None:
            self.link.target = (LOOPBACK, self._ports["link"])

    def _launch(self, class_path: str) -> None:
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        self._log_before = self.log_file.stat().st_size if self.log_file.exists() else 0
        conf = self.folder / "broker.conf"
        conf.write_text("".join(f"{k}={v}\n" for k, v in self._configuration().items()))
        log4j = self.folder / "log4j2.properties"
        log4j.write_text(LOG4J.format(file=self.log_file, level=self._log_level))
        # In a file, because 300 paths are near the limit of arguments on some systems.
        arguments = self.folder / "java.args"
        arguments.write_text(f'-cp "{class_path}"\n')
        command = [
            java_of(self.version),
            "-Xms256m",
            "-Xmx1g",
            "-XX:MaxDirectMemorySize=1g",
            *(self._short_lived() if self._is_short_lived else ()),
            "-XX:+ExitOnOutOfMemoryError",
            *(f"--add-opens={package}=ALL-UNNAMED" for package in ADD_OPENS),
            f"-Dlog4j2.configurationFile={log4j}",
            "-Dio.netty.tryReflectionSetAccessible=true",
            f"-Djava.io.tmpdir={data}",
            f"@{arguments}",
            "org.apache.pulsar.PulsarStandaloneStarter",
            "--no-functions-worker",
            "--no-stream-storage",
            # Without "=", which releases before 4.0 do not understand.
            *("--config", str(conf)),
            *self._metadata_options(data),
            *("--bookkeeper-dir", str(data / "bookkeeper")),
            *self._bookie_options(),
        ]
        with (self.folder / "jvm.out").open("wb") as output:
            remove = str(self.folder) if self._own_folder else ""
            self._guard = start_guard([remove, *command], self.folder, output)
        self.pid = process_id(self._guard)
        if self.pid is None:
            raise BrokerStartError(f"{command[0]} could not be started: {self._tail()}")

    def _short_lived(self) -> tuple[str, ...]:
        archived = self._java_options or archived_classes(self.version)
        return (*SHORT_LIVED, *archived)

    def _metadata_options(self, data: Path) -> tuple[str, ...]:
        if release_of(self.version) >= (2, 11):
            return "--metadata-dir", str(data / "metadata")
        port = str(self._ports["zookeeper"])
        return "--zookeeper-dir", str(data / "zookeeper"), "--zookeeper-port", port

    def _bookie_options(self) -> tuple[str, ...]:
        if release_of(self.version) >= (5, 0):
            return ()  # the bookie chooses a port by itself
        return "--bookkeeper-port", str(self._ports["bookie"])

    def _configuration(self) -> dict[str, str]:
        ports = self._ports
        configuration = {
            **self._settings,
            "brokerServicePort": str(ports["binary"]),
            "webServicePort": str(ports["web"]),
        }
        if self._has_tls:
            configuration["brokerServicePortTls"] = str(ports["tls"])
        if self.link is not None:
            configuration |= {
                "bindAddresses": f"link:pulsar://{LOOPBACK}:{ports['link']}",
                "internalListenerName": "internal",
                "advertisedListeners": (
                    f"internal:{self.service_url},link:{self.link.url}"
                ),
            }
        return configuration

    def _await_healthy(self, deadline: float) -> None:
        admin = Admin(self.admin_url, token=self._admin_token)
        missing = "an answer"
        look_at = time.monotonic() + LOOK_AFTER_S
        while time.monotonic() < deadline:
            if time.monotonic() > look_at:
                look_at = deadline
                self._check_bookie(is_late=True)
            self.check_running()
            try:
                missing = _missing(admin, self._settings)
            except (urllib.error.URLError, OSError, AdminError) as error:
                missing = f"an answer without: {error}"
            if not missing:
                self._check_bookie()
                return
            time.sleep(0.1)
        self._check_bookie()
        raise BrokerStartError(
            f"The broker on {self.admin_url} is not healthy, still waiting for "
            f"{missing}. The end of its log:\n{self._tail()}"
        )

    def _check_bookie(self, *, is_late: bool = False) -> None:
        """Check that the bookie keeps its lock, taken long before the broker was up.

        Args:
            is_late: Whether the broker should be healthy by now: then the bookie must
                be registered, too.
        """
        lost = unknown = 0
        with self.log_file.open(errors="replace") as log:
            log.seek(self._log_before)
            for line in log:
                lost += LOST_LOCK.search(line) is not None
                unknown += UNKNOWN_BOOKIE in line
        if lost > 1:
            raise _RestlessBookieError(f"The bookie lost its lock {lost} times.")
        if is_late and unknown > MOST_UNKNOWN:
            raise _RestlessBookieError(
                f"The bookie was not registered when asked for {unknown} times."
            )

    def check_running(self) -> None:
        """Check that the JVM still runs.

        Raises:
            BrokerStartError: The JVM has ended. The message has the end of its log.
        """
        assert self._guard is not None
        code = self._guard.poll()
        if code is None:
            return
        tail = self._tail()
        taken = any(text in tail for text in ("already in use", "BindException"))
        raise (_PortTakenError if taken else BrokerStartError)(
            f"The broker ended with code {code}. The end of its log:\n{tail}"
        )

    def _tail(self) -> str:
        return tail_of(self.folder / "jvm.out", self.log_file)

    def _end(self, order: bytes, timeout: float = 20.0) -> None:
        guard, self._guard, self.pid = self._guard, None, None
        if guard is not None:
            end_guarded(guard, order, timeout)


def _missing(admin: Admin, settings: Mapping[str, str]) -> str:
    """Return what a broker lacks that answers; "" for a broker that is ready."""
    if "public/default" not in admin.namespaces("public"):
        return "the namespace public/default"
    if not admin.healthy():
        return "its own health check"
    if settings["transactionCoordinatorEnabled"] == "false":
        return ""
    if admin.partitions(COORDINATOR_TOPIC) == 0:
        return "the transaction coordinator's topic"
    admin.lookup(
        f"{COORDINATOR_TOPIC}-partition-0"
    )  # refused until a broker serves the topic
    return ""


def record_classes(version: str = DEFAULT_VERSION) -> None:
    """Make the archive of classes with which brokers of this version start faster.

    A broker is started and ended for that.
    """

    def run(option: str) -> None:
        broker = EmbeddedBroker(version=version, java_options=(option,))
        broker.start()
        broker.stop(timeout=120, orderly=True)

    try:
        archive_of(version).record(run)
    except BrokerStartError as error:
        note(sys.stderr, f"Brokers start without an archive of classes: {error}")


def archived_classes(version: str = DEFAULT_VERSION) -> tuple[str, ...]:
    """Return the options of a JVM that loads the classes from the archive.

    The class path of the JVM is that of the broker, or begins with that.
    """
    return archive_of(version).options
