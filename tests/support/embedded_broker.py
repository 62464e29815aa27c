# SPDX-License-Identifier: Apache-2.0
"""A real Pulsar broker on this machine, for the tests, the benchmarks and the demo.

``EmbeddedBroker`` starts Pulsar's own standalone class (broker, bookie and metadata in
one JVM) out of jars that Maven resolves. Needed: a JDK 17 or newer and Maven. Every
port is free and on loopback, every file is in one folder, and the JVM ends with the
process that started it (see ``guard.py``).

    python -m tests.support.embedded_broker

runs one in the foreground, to play with.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, TextIO

from tests.support.admin import Admin, AdminError
from tests.support.class_archive import ClassArchive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from tests.support.link_proxy import LinkProxy

DEFAULT_VERSION = "4.0.7"
LOOPBACK = "127.0.0.1"
POM = Path(__file__).with_name("pom.xml")
WHOLE_POM = Path(__file__).with_name("whole-pom.xml")
POM_5 = Path(__file__).with_name("pom-5.xml")
GUARD = Path(__file__).with_name("guard.py")

#: A start that lost a race is repeated, see ``_LostRaceError``.
ATTEMPTS = 5

#: What the broker logs each time it loses the lock by which its bookie is known.
LOST_LOCK = re.compile(r"Lock on resource /ledgers/available/\S+ was invalidated")

#: Clients look it up to find the coordinators. These themselves start on the first
#: client that connects to them.
COORDINATOR_TOPIC = "persistent://pulsar/system/transaction_coordinator_assign"

#: What the broker and its libraries reach for inside the JDK.
ADD_OPENS = (
    "java.base/java.lang",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.zip",
    "java.base/jdk.internal.misc",
    "java.base/sun.net",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)

#: It lives for minutes, on a few cores that the tests need, too: compiling it to the
#: last, and collecting in parallel, costs more than it gives.
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

#: Broker and bookie read the same file. Where nothing is said, Pulsar's default holds.
SETTINGS: Mapping[str, str] = {
    "clusterName": "standalone",
    "bindAddress": LOOPBACK,
    "advertisedAddress": LOOPBACK,
    # One bookie, so one copy.
    "managedLedgerDefaultEnsembleSize": "1",
    "managedLedgerDefaultWriteQuorum": "1",
    "managedLedgerDefaultAckQuorum": "1",
    # The features that the tests are about.
    "transactionCoordinatorEnabled": "true",
    "systemTopicEnabled": "true",
    "topicLevelPoliciesEnabled": "true",
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    # Two topics of a namespace that recover from its one reader of snapshots may both
    # see the same last one: who does not get it waits 30 s, and its topic does not
    # answer meanwhile.
    "numTransactionReplayThreadPoolSize": "1",
    # On, as in production: a reader that creates topics by accident must be caught.
    "allowAutoTopicCreation": "true",
    # Nothing may vanish while a test looks away.
    "brokerDeleteInactiveTopicsEnabled": "false",
    "loadBalancerEnabled": "false",
    # The bookie keeps the port we give it (its identity contains the port, so a restart
    # elsewhere could not find its ledgers) and listens on loopback.
    "allowEphemeralPorts": "true",
    "allowLoopback": "true",
    # Above maxMessageSize with its metadata; the bookie's own default is exactly 5 MiB.
    "nettyMaxFrameSizeBytes": str(6 * 1024 * 1024),
    # A killed JVM loses nothing that is in the page cache; only a power cut would.
    "journalSyncData": "false",
    # Entries go to the journal in whole groups, each by one write. The journal has no
    # checksums, and zeros ahead of its end: a bookie that was killed between two writes
    # takes half an entry for a whole one when it starts again. With no other bookie to
    # ask, that ledger cannot be opened any more ("Digest mismatch", error -10).
    "journalWriteBufferSizeKB": "8192",
    "journalPreAllocSizeMB": "4",
    # The bookie turns read-only, and no topic can be opened any more, when more than
    # this share of the disk is used. What is left of a large disk is much even then:
    # 0.2 % of 250 GB are half a gigabyte. BookKeeper wants less than 1.
    "diskUsageThreshold": "0.999999",
    "diskUsageWarnThreshold": "0.999999",
    # What is stored is in a journal and in an entry log. A journal goes when the entry
    # logs have all of it, which is when one of them is full; an entry log goes when all
    # topics in it are deleted. So they are small, and looked after often.
    "journalMaxSizeMB": "16",
    # A crash may leave lastMark at a journal before the one that it should be at; a
    # bookie that does not find it there does not start.
    "journalMaxBackups": "2",
    "skipListSizeLimit": str(8 * 1024 * 1024),  # what is not in an entry log yet
    "logSizeLimit": str(16 * 1024 * 1024),
    "gcWaitTime": "2000",
    # Looked for every 10 ms otherwise, in all topics: a run leaves thousands of them.
    "managedLedgerCacheEvictionIntervalMs": "500",
    # Threads for one machine's tests, whatever its number of cores.
    "numIOThreads": "4",
    "numHttpServerThreads": "32",  # the broker calls itself, too
    "numOrderedExecutorThreads": "4",
    "managedLedgerNumSchedulerThreads": "4",
    "bookkeeperClientNumWorkerThreads": "4",
    "bookkeeperClientNumIoThreads": "2",
    "serverNumIOThreads": "4",
}

ENTRY_METADATA_SETTINGS: Mapping[str, str] = {
    "exposingBrokerEntryMetadataToClientEnabled": "true",
    "brokerEntryMetadataInterceptors": ",".join(
        f"org.apache.pulsar.common.intercept.{name}"
        for name in (
            "AppendBrokerTimestampMetadataInterceptor",
            "AppendIndexMetadataInterceptor",
        )
    ),
}

LOG4J = """\
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %-5p [%t] %c{{1}} - %m%n%throwable
rootLogger.level = {level}
rootLogger.appenderRef.file.ref = file
"""


#: What releases before 4.0 need besides: they look for the speed of a network card,
#: and give up where there is none.
OLD_SETTINGS: Mapping[str, str] = {"loadBalancerOverrideBrokerNicSpeedGbps": "1"}


class BrokerStartError(RuntimeError):
    """The broker, or its class path, did not come up. The message ends with its log."""


class _LostRaceError(BrokerStartError):
    """The start may be repeated, ``on_same_ports`` or with others only."""

    on_same_ports = False


class _PortTakenError(_LostRaceError):
    """Other programs pick free ports, too."""


class _RestlessBookieError(_LostRaceError):
    """The bookie comes and goes, hundreds of times a second, and will not stop.

    A broker that was killed leaves the bookie's lock behind. The next one removes that
    and takes the lock; if it hears of the removal only then, it believes that its own
    lock is gone. So it removes it and takes it anew, hears of that, and so on
    (https://github.com/apache/pulsar/issues/17759). Whoever needs a new ledger then may
    be told "Not enough non-faulty bookies available".
    """

    on_same_ports = True


@dataclass(frozen=True)
class ExternalBroker:
    """A broker that somebody else runs."""

    service_url: str
    admin_url: str
    version: str


class EmbeddedBroker:
    """A Pulsar standalone in a child process, reachable on loopback only.

    Args:
        folder: Where data, configuration and logs go, empty or absent. ``stop`` keeps
            it. Without it a temporary folder is made, and ``stop`` removes that.
        settings: Broker or bookie settings that win over the ones in this module. For
            topics of several small ledgers set ``managedLedgerMaxEntriesPerLedger`` and
            ``managedLedgerMinLedgerRolloverTimeMinutes=0``.
        version: Pulsar release to start.
        entry_metadata: Store a broker timestamp and an index with each entry, and show
            both to clients.
        link: A proxy for fault tests. The broker opens a second listener for it, and
            every address that the broker tells a client of that listener is the
            proxy's own. So nothing a client of ``link.url`` does can go around it.
        is_short_lived: Start quickly rather than become fast; not for benchmarks.
        log_level: Of the broker's log file.
        admin_token: Of a super user, where ``settings`` turn authentication on.
        progress: Where notes about slow steps go; ``None`` for silence.
        java_options: Of the JVM, beside those that all have.

    Attributes:
        service_url: ``pulsar://127.0.0.1:<port>``, valid after ``start``.
        tls_url: ``pulsar+ssl://127.0.0.1:<port>``, valid after ``start``, where the
            settings have a certificate.
        admin_url: ``http://127.0.0.1:<port>``, valid after ``start``.
        version: Pulsar release.
        folder: See above.
        log_file: The broker's log.
        pid: Process id of the JVM, ``None`` while it does not run.
    """

    def __init__(
        self,
        folder: Path | None = None,
        settings: Mapping[str, str] | None = None,
        version: str = DEFAULT_VERSION,
        *,
        entry_metadata: bool = False,
        link: LinkProxy | None = None,
        is_short_lived: bool = True,
        log_level: str = "info",
        admin_token: str = "",
        progress: TextIO | None = sys.stderr,
        java_options: Sequence[str] = (),
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
        """The broker's folder, made on first use."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="pulsar-spark-broker-"))
        return self._folder

    @property
    def log_file(self) -> Path:
        """The broker's log; what the JVM itself prints is in ``jvm.out`` beside it."""
        return self.folder / "broker.log"

    def complaints(self, last: int = 15) -> list[str]:
        """The last warnings and errors in the log, a line of 300 characters each."""
        with self.log_file.open(errors="replace") as log:
            found = (line for line in log if line[24:29] in ("WARN ", "ERROR"))
            return [line.rstrip()[:300] for line in deque(found, last)]

    def start(self, timeout: float = 300.0) -> None:
        """Start the broker and wait until it serves topics and transactions.

        The first start of a version also resolves its jars, which ``timeout`` does not
        count. A broker that runs already is left alone.

        Args:
            timeout: Seconds for the broker to become healthy.

        Raises:
            BrokerStartError: It ended, or was not healthy in time.
        """
        if self._guard is not None:
            return
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
                    # The bookie has written down its port, so its data must go.
                    shutil.rmtree(self.folder / "data", ignore_errors=True)
            except BaseException:
                self._end(b"k")
                if first_start:
                    self._forget()
                raise
            else:
                return

    def stop(self, timeout: float = 20.0, *, orderly: bool | None = None) -> None:
        """End the broker and remove the folder, if the broker made it itself.

        Args:
            timeout: Seconds for an orderly end, before the JVM is killed.
            orderly: Whether to end it so. Data that is removed anyhow needs no orderly
                end, and by default gets none.
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
        """Kill the JVM without a chance to say goodbye. Folder and ports are kept."""
        self._end(b"k")

    def restart(self, *, kill: bool = False, timeout: float = 300.0) -> None:
        """End the broker and start it again: same ports, same data.

        Args:
            kill: End it as a crash would.
            timeout: Seconds for it to become healthy again.
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

    # -- how it is started ---------------------------------------------------------

    def _choose_ports(self) -> None:
        names = ("binary", "web", "bookie", "link", "tls", "zookeeper")
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
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
        # By file, not by argument: 300 paths are near the limit of some systems.
        arguments = self.folder / "java.args"
        arguments.write_text(f'-cp "{class_path}"\n')
        command = [
            java(),
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
            # Not by "=": before 4.0 that was not understood.
            *("--config", str(conf)),
            *self._metadata_options(data),
            *("--bookkeeper-dir", str(data / "bookkeeper")),
            *self._bookie_options(),
        ]
        with (self.folder / "jvm.out").open("wb") as output:
            remove = str(self.folder) if self._own_folder else ""
            self._guard = start_guard([remove, *command], self.folder, output)
        stdout = self._guard.stdout
        assert stdout is not None
        with stdout:
            line = stdout.readline()
        if not line:
            raise BrokerStartError(f"{command[0]} could not be started: {self._tail()}")
        self.pid = int(line)

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
        while time.monotonic() < deadline:
            self._check_running()
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

    def _check_bookie(self) -> None:
        """Whether it keeps its lock, which it took long before the broker was up."""
        with self.log_file.open(errors="replace") as log:
            log.seek(self._log_before)
            lost = sum(LOST_LOCK.search(line) is not None for line in log)
        if lost > 1:
            raise _RestlessBookieError(f"The bookie lost its lock {lost} times.")

    def _check_running(self) -> None:
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


def tail_of(*files: Path, size_bytes: int = 6000) -> str:
    """The ends of these files, of those that there are."""
    parts = []
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            parts.append(file.read_bytes()[-size_bytes:].decode(errors="replace"))
    return "\n".join(parts)


def start_guard(
    arguments: list[str], folder: Path, output: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Starts a command by ``guard.py``: a folder to remove or "", and the command."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(GUARD), *arguments],
        bufsize=0,  # an order is one byte, and is due now
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=output,
        cwd=folder,
        # Ctrl-C belongs to the test run, which then stops the broker in order.
        start_new_session=True,
    )


def end_guarded(
    guard: subprocess.Popen[bytes], order: bytes, timeout: float = 20.0
) -> None:
    """End what ``start_guard`` started, and wait for that.

    Args:
        guard: Of it.
        order: ``t`` asks it to end, ``k`` kills it.
        timeout: Seconds for an orderly end, before it is killed.
    """
    assert guard.stdin is not None
    for one in (order, b"k"):
        with contextlib.suppress(BrokenPipeError):  # it ended on its own
            guard.stdin.write(one)
        with contextlib.suppress(subprocess.TimeoutExpired):
            guard.wait(timeout)
            break
    guard.stdin.close()


def _missing(admin: Admin, settings: Mapping[str, str]) -> str:
    """What a broker that answers still lacks, "" when it is ready."""
    if "public/default" not in admin.namespaces("public"):
        return "the namespace public/default"
    if not admin.healthy():
        return "its own health check"
    if settings["transactionCoordinatorEnabled"] == "false":
        return ""
    if admin.partitions(COORDINATOR_TOPIC) == 0:
        return "the transaction coordinator's topic"
    admin.lookup(f"{COORDINATOR_TOPIC}-partition-0")  # refused until somebody serves it
    return ""


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody listened on a moment ago.

    They lie below those that the system gives to outgoing connections: one of these
    could otherwise take a port while a broker is between its end and its next start.
    """
    found: list[int] = []
    for port in random.sample(range(20_000, 32_000), 1_000):
        if len(found) == count:
            break
        with socket.socket() as free, contextlib.suppress(OSError):
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind((LOOPBACK, port))
            found.append(port)
    return found


def loopback_interface() -> str:
    """The name of the loopback interface."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in ("lo", "lo0") if name in names), "lo")


def java() -> str:
    """The path of the program java."""
    home = os.environ.get("JAVA_HOME")
    path = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if path is None or not Path(path).exists():
        raise BrokerStartError("No java found. Install a JDK 17 or set JAVA_HOME.")
    return path


# -- class path ----------------------------------------------------------------------


def release_of(version: str) -> tuple[int, int]:
    """The first two numbers of a version: ``(4, 0)`` of ``4.0.7``."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def pom_of(version: str) -> Path:
    """What asks for the jars of a release: those before and after 4.x load others."""
    if release_of(version) >= (5, 0):
        return POM_5
    return WHOLE_POM if release_of(version) < (4, 0) else POM


def resolve_classpath(
    version: str = DEFAULT_VERSION,
    *,
    pom: Path = POM,
    progress: TextIO | None = sys.stderr,
) -> str:
    """Resolve the jars of a broker with Maven, once per version and ``pom.xml``.

    The answer is remembered in ``pulsar-spark`` under ``XDG_CACHE_HOME`` (default
    ``~/.cache``) and asked again when a jar is gone.

    Args:
        version: Pulsar release.
        pom: What asks for the jars.
        progress: Where it says how far the downloads are.

    Returns:
        A class path of absolute paths that all exist.

    Raises:
        BrokerStartError: Maven is missing or failed; the message has its last lines.
    """
    key = hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    remembered = _cache() / f"broker-{version}-{key}.classpath"
    # Of processes that begin at the same time, one downloads and the others wait.
    with remembered.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if class_path := _remembered(remembered):
            return class_path
        with tempfile.TemporaryDirectory(dir=remembered.parent) as work:
            answer = Path(work, "classpath")
            _run_maven(version, pom, answer, progress)
            class_path = answer.read_text().strip()
            answer.replace(remembered)
    return class_path


def record_classes(version: str = DEFAULT_VERSION) -> None:
    """Make the archive with which brokers of this version start faster.

    It takes a broker that is started and ended. To a run of tests, which starts some
    thirty, it is worth it.
    """

    def run(option: str) -> None:
        broker = EmbeddedBroker(version=version, java_options=(option,))
        broker.start()
        broker.stop(timeout=120, orderly=True)

    try:
        _archive(version).record(run)
    except BrokerStartError as error:
        _note(sys.stderr, f"Brokers start without an archive of classes: {error}")


def archived_classes(version: str = DEFAULT_VERSION) -> tuple[str, ...]:
    """Return what a JVM is to be told that loads a broker's classes.

    Its class path is the broker's, or begins with that.
    """
    return _archive(version).options


def _archive(version: str) -> ClassArchive:
    class_path = resolve_classpath(version, pom=pom_of(version))
    return ClassArchive(_cache(), java(), class_path)


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home, "pulsar-spark")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _remembered(file: Path) -> str:
    """Return the class path of an earlier run, or "" if a jar of it is missing."""
    class_path = file.read_text().strip() if file.exists() else ""
    is_whole = all(Path(jar).exists() for jar in class_path.split(os.pathsep))
    return class_path if is_whole else ""


def _run_maven(version: str, pom: Path, answer: Path, progress: TextIO | None) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerStartError("No mvn found. Install Maven 3.6 or newer.")
    _note(progress, f"Fetching Pulsar {version} with Maven (once, {_ALL}) ...")
    command = [
        maven,
        "--batch-mode",
        "--strict-checksums",  # Maven 3 only warns of a jar that is not what it was
        f"--file={pom}",
        f"-Dembedded.broker.version={version}",
        f"-Dmdep.outputFile={answer}",
        "dependency:build-classpath",
    ]
    last: deque[str] = deque(maxlen=25)
    downloads = Downloads()
    shown = time.monotonic()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if not downloads.count(line):
                last.append(line)
            elif time.monotonic() - shown > 2:
                shown = time.monotonic()
                _note(progress, f"  {downloads}")
    if process.returncode != 0 or not answer.exists():
        raise BrokerStartError(
            f"Maven could not resolve the jars of Pulsar {version}:\n{''.join(last)}"
        )
    _note(progress, f"  done: {downloads.megabytes:.0f} MB; the rest was here.")


#: What ``pom.xml`` asks for where nothing of it is there: 250 jars, and for each some
#: small files that say what it needs.
_ALL_FILES = 800
_ALL_MEGABYTES = 100
_ALL = f"about {_ALL_MEGABYTES} MB"
_DOWNLOADED = re.compile(r"Downloaded from \S+ \S+ \(([\d.]+) ([kMG]?)B at")
_UNITS = {"": 1e-6, "k": 1e-3, "M": 1.0, "G": 1e3}


class Downloads:
    """How far Maven is, from what it prints.

    It first asks for the small files, each a round trip. How long the rest takes can be
    said when large ones come.

    Args:
        clock: What tells the time, in seconds.

    Attributes:
        files: How many files it fetched.
        megabytes: How much there was in them.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.files = 0
        self.megabytes = 0.0
        self._clock = clock
        self._large_since: tuple[float, float] | None = None

    def count(self, line: str) -> bool:
        """Take notice of a line, and return whether it is about downloads."""
        found = _DOWNLOADED.search(line)
        if found is None:
            return "Downloading from " in line
        megabytes = float(found[1]) * _UNITS[found[2]]
        self.files += 1
        self.megabytes += megabytes
        if megabytes >= 1 and self._large_since is None:
            self._large_since = self._clock(), self.megabytes
        return True

    def __str__(self) -> str:
        text = f"{self.megabytes:5.1f} MB of {_ALL}, {self.files} files of {_ALL_FILES}"
        if self._large_since is None or self.megabytes == self._large_since[1]:
            return text
        began, before = self._large_since
        seconds = (self._clock() - began) / (self.megabytes - before)
        left_s = max(0.0, _ALL_MEGABYTES - self.megabytes) * seconds
        return f"{text}, about {left_s:.0f} s left"


def _note(progress: TextIO | None, text: str) -> None:
    if progress is not None:
        progress.write(f"{text}\n")
        progress.flush()


# -- in the foreground ---------------------------------------------------------------


@contextlib.contextmanager
def _interrupt_on_sigterm() -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main() -> None:
    """Run a broker until Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt), _interrupt_on_sigterm():
        began = time.monotonic()
        with EmbeddedBroker(is_short_lived=False) as broker:
            seconds = time.monotonic() - began
            sys.stdout.write(
                f"Pulsar {broker.version} is up after {seconds:.1f} s\n"
                f"  service URL  {broker.service_url}\n"
                f"  admin URL    {broker.admin_url}\n"
                f"  log          {broker.log_file}\n"
                "Ctrl-C ends it and removes its data.\n"
            )
            sys.stdout.flush()
            while True:
                broker._check_running()
                time.sleep(1)


if __name__ == "__main__":
    main()
