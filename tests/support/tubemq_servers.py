# SPDX-License-Identifier: Apache-2.0
"""A real TubeMQ master and broker on this machine, for the tests and the demo.

The jars come from Maven. TubeMQ listens on all interfaces and cannot be told otherwise,
so the servers run in a network namespace of their own where the system allows that
(``own_network.py``), and ``is_private`` says whether they do: else their ports can be
reached from the network as long as they run.

A topic can be written some 40 seconds after the broker has started, whatever it is made
of: the master's own pauses. So topics are made first, all of them, and one pair of
servers does for a whole run::

    with TubeMQ([Topic("demo", stores=3)]) as tube:
        tube.masters  # "127.0.0.1:28715"
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.embedded_broker import (
    LOOPBACK,
    BrokerStartError,
    end_guarded,
    free_ports,
    start_guard,
)
from tests.support.jvm import Jvm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

POM = Path(__file__).with_name("tubemq-pom.xml")
OWN_NETWORK = Path(__file__).with_name("own_network.py")
_TOOLS = "org.apache.inlong.tubemq.server.tools"
_ADMIN_TOKEN = "abc"
_BROKER_ID = 1
_PORTS = ("master", "master_web", "meta", "broker", "broker_web")

#: Templates by which the master shows the answers of its web calls.
_TEMPLATES = {
    "templates/macro.vm": "",
    "templates/screen/webapi.vm": "$sb",
    "templates/layout/webapi.vm": "$screen_placeholder",
    "templates/layout/default.vm": "$screen_placeholder",
}


@dataclass(frozen=True)
class Topic:
    """A topic to begin with.

    Attributes:
        name: Of it.
        stores: Its logs.
        partitions: Partitions in each of these.
        settings: Others of the admin call, such as ``deletePolicy``.
        max_message_mb: Largest message, in MiB; None for the master's default of 1.
    """

    name: str
    stores: int = 1
    partitions: int = 1
    settings: Mapping[str, str] | None = None
    max_message_mb: int | None = None


class TubeMQ:
    """A master and a broker, in child processes that end with this one.

    Args:
        topics: All topics that there will be, but for those of ``add_topic``.
        broker_settings: Of the broker's ini file, beside the ones here.
        master_settings: Of the master's.
        is_short_lived: Whether they are to start fast, or to be as fast as they can.

    Attributes:
        masters: Addresses as clients are given them.
        is_private: Whether nobody else can reach the servers.
        folder: Of data, configuration and logs; goes with ``stop``.
    """

    def __init__(
        self,
        topics: Sequence[Topic],
        broker_settings: Mapping[str, str] | None = None,
        master_settings: Mapping[str, str] | None = None,
        *,
        is_short_lived: bool = True,
    ) -> None:
        self._is_short_lived = is_short_lived
        self._topics = list(topics)
        self._settings = {
            "broker": dict(broker_settings or {}),
            "master": dict(master_settings or {}),
        }
        self.folder = Path(tempfile.mkdtemp(prefix="tubemq-spark-servers-"))
        self.ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
        self.masters = f"{LOOPBACK}:{self.ports['master']}"
        self.is_private = False
        self._network: subprocess.Popen[bytes] | None = None
        self._prefix: tuple[str, ...] = ()
        self._jvms: dict[str, Jvm] = {}

    def __enter__(self) -> TubeMQ:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, timeout: float = 300.0) -> None:
        """Start both, and wait until all topics can be written and read.

        Raises:
            BrokerStartError: They cannot, or not in time.
        """
        class_path = resolve_class_path()
        self._open_network()
        self._write_files()
        deadline = time.monotonic() + timeout
        for role, heap_mb in (("master", 512), ("broker", 768)):
            folder = self.folder / role
            folder.mkdir()
            self._jvms[role] = Jvm(
                folder,
                class_path,
                heap_mb,
                log_level="warn",
                remove=self.folder,
                is_short_lived=self._is_short_lived,
            )
        self._start_role("master")
        self._await_port("master", deadline)
        self._await_port("master_web", deadline)
        self._admin_until_taken(deadline)
        for topic in self._topics:
            self._add(topic)
        self.admin("admin_online_broker_configure", brokerId=_BROKER_ID, modify=True)
        self.start_broker(deadline - time.monotonic())
        self._await_topics([topic.name for topic in self._topics], deadline)

    def stop(self) -> None:
        """End both and remove their folder. What runs already ended is left alone."""
        for jvm in self._jvms.values():
            jvm.order(b"k")
        if self._network is not None:
            end_guarded(self._network, b"k")
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- the broker ----------------------------------------------------------------

    def stop_broker(self, *, kill: bool = False) -> None:
        """End the broker, in order or as a crash would. What it has stored stays."""
        self._jvms["broker"].order(b"k" if kill else b"t", timeout=30.0)

    def start_broker(self, timeout: float = 180.0) -> None:
        """Start the broker and wait for its port; its topics come when they come."""
        self._start_role("broker")
        self._await_port("broker", time.monotonic() + timeout)

    # -- admin calls ---------------------------------------------------------------

    def admin(
        self,
        method: str,
        *,
        query: bool = False,
        modify: bool = False,
        fields: Mapping[str, str] | None = None,
        **more: object,
    ) -> dict[str, Any]:
        """Call the master's web interface and return its answer.

        Args:
            method: Of the call.
            query: Whether it only asks.
            modify: Whether it changes what is there already.
            fields: Of the call.
            **more: Others.

        Raises:
            BrokerStartError: The master refuses.
        """
        values = {"type": "op_query" if query else "op_modify", "method": method}
        if not query:
            user = "modifyUser" if modify else "createUser"
            values |= {"confModAuthToken": _ADMIN_TOKEN, user: "tester"}
        values |= {name: str(value) for name, value in more.items()}
        values |= fields or {}
        request = urllib.request.Request(
            f"http://{LOOPBACK}:{self.ports['master_web']}/webapi.htm",
            data=urllib.parse.urlencode(values).encode(),
        )
        with urllib.request.urlopen(request, timeout=20) as reply:
            answer: dict[str, Any] = json.load(reply)
        if not answer.get("result"):
            raise BrokerStartError(f"The master refused {method}: {answer}")
        return answer

    def _add(self, topic: Topic) -> None:
        self.admin(
            "admin_add_new_topic_record",
            brokerId=_BROKER_ID,
            topicName=topic.name,
            numPartitions=topic.partitions,
            numTopicStores=topic.stores,
            fields={"memCacheFlushIntvl": "4000", **(topic.settings or {})},
        )
        if topic.max_message_mb is not None:
            self.admin(
                "admin_update_topic_control_info",
                modify=True,
                topicName=topic.name,
                topicNameId=0,
                maxMsgSizeInMB=topic.max_message_mb,
            )

    def _admin_until_taken(self, deadline: float) -> None:
        """Make the broker known: the first call, for which the master may be early."""
        while True:
            try:
                self.admin(
                    "admin_add_broker_configure",
                    brokerId=_BROKER_ID,
                    brokerIp=LOOPBACK,
                    brokerPort=self.ports["broker"],
                    brokerTLSPort=8124,
                    brokerWebPort=self.ports["broker_web"],
                    deletePolicy="delete,168h",
                    numPartitions=1,
                    unflushThreshold=1000,
                    unflushInterval=10000,
                    acceptPublish="true",
                    acceptSubscribe="true",
                )
            except (urllib.error.URLError, OSError, BrokerStartError) as error:
                self._check(deadline, f"the master's web interface: {error}")
                time.sleep(0.2)
            else:
                return

    def _await_topics(self, names: Sequence[str], deadline: float) -> None:
        missing = set(names)
        while missing:
            for name in sorted(missing):
                if self._is_live(name):
                    missing.discard(name)
            if missing:
                self._check(deadline, f"the topics {', '.join(sorted(missing))}")
                time.sleep(0.3)

    def _is_live(self, name: str) -> bool:
        answer = self.admin("admin_query_topic_info", query=True, topicName=name)
        text = json.dumps(answer)
        return (
            '"isSrvAcceptPublish": true' in text
            and '"isSrvAcceptSubscribe": true' in text
        )

    # -- processes -----------------------------------------------------------------

    def _open_network(self) -> None:
        """Move the servers to a network of their own, where that is allowed."""
        if not sys.platform.startswith("linux") or shutil.which("nsenter") is None:
            return
        log = self.folder / "network.out"
        ports = [str(port) for port in self.ports.values()]
        with log.open("wb") as output:
            command = [sys.executable, "-I", str(OWN_NETWORK), *ports]
            guard = start_guard(["", *command], self.folder, output)
        assert guard.stdout is not None
        with guard.stdout:
            pid = int(guard.stdout.readline())
        deadline = time.monotonic() + 60
        while guard.poll() is None and b"ready" not in log.read_bytes():
            if time.monotonic() > deadline:
                end_guarded(guard, b"k")
                raise BrokerStartError("The servers' network was not ready in 60 s.")
            time.sleep(0.02)
        if guard.poll() is not None:  # not allowed
            end_guarded(guard, b"k")
            return
        self._network = guard
        self._prefix = ("nsenter", f"--net=/proc/{pid}/ns/net")
        self.is_private = True

    def _write_files(self) -> None:
        resources = self.folder / "resources"
        for name, text in _TEMPLATES.items():
            file = resources / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        (resources / "velocity.properties").write_text(
            "resource.loaders=file\n"
            f"resource.loader.file.path={resources / 'templates'}\n"
            "velocimacro.library=macro.vm\n"
        )
        meta = f"{LOOPBACK}:{self.ports['meta']}"
        master = {
            "hostName": LOOPBACK,
            "port": self.ports["master"],
            "webPort": self.ports["master_web"],
            "webResourcePath": resources,
            "confModAuthToken": _ADMIN_TOKEN,
            "consumerBalancePeriodMs": 5000,
            "firstBalanceDelayAfterStartMs": 5000,
            **self._settings["master"],
        }
        meta_bdb = {
            "repGroupName": "tests",
            "repNodeName": "node1",
            "repNodePort": self.ports["meta"],
            "repHelperHost": meta,
            "metaDataPath": self.folder / "meta",
            "metaLocalSyncPolicy": 3,
            "metaReplicaSyncPolicy": 3,
            "repReplicaAckPolicy": 1,
        }
        broker = {
            "brokerId": _BROKER_ID,
            "hostName": LOOPBACK,
            "port": self.ports["broker"],
            "webPort": self.ports["broker_web"],
            "masterAddressList": self.masters,
            "primaryPath": self.folder / "stage",
            "maxSegmentSize": 67108864,
            "maxIndexSegmentSize": 2200000,
            "transferSize": 524288,
            "consumerRegTimeoutMs": 20000,
            "heartbeatPeriodMs": 1000,
            **self._settings["broker"],
        }
        _write_ini(self.folder / "master.ini", master=master, meta_bdb=meta_bdb)
        _write_ini(
            self.folder / "broker.ini", broker=broker, audit={"auditEnable": "false"}
        )

    def _start_role(self, role: str) -> None:
        self._jvms[role].start(
            [
                f"-Dtubemq.home={self.folder}",
                f"{_TOOLS}.{role.capitalize()}Startup",
                "-f",
                str(self.folder / f"{role}.ini"),
            ],
            prefix=self._prefix,
        )

    def _await_port(self, name: str, deadline: float) -> None:
        address = (LOOPBACK, self.ports[name])
        while not _answers(address):
            self._check(deadline, f"port {address[1]}, {name}")
            time.sleep(0.1)

    def _check(self, deadline: float, what: str) -> None:
        """Give up where a server has ended, or there is no time left."""
        for role, jvm in self._jvms.items():
            if jvm.pid is not None and not jvm.is_running:
                raise BrokerStartError(f"The {role} has ended:\n{jvm.tail()}")
        if time.monotonic() > deadline:
            tails = "\n".join(f"{role}:\n{j.tail()}" for role, j in self._jvms.items())
            raise BrokerStartError(f"Waited in vain for {what}.\n{tails}")


def _answers(address: tuple[str, int]) -> bool:
    """Whether somebody listens there, behind the forwarding, too."""
    with contextlib.suppress(OSError), socket.create_connection(address, 2) as sock:
        sock.settimeout(0.3)
        try:
            return sock.recv(1) != b""  # a forwarder that finds nobody hangs up at once
        except TimeoutError:
            return True  # the server waits for us to begin
    return False


def _write_ini(file: Path, **sections: Mapping[str, object]) -> None:
    lines = []
    for section, values in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{name}={value}" for name, value in values.items()]
    file.write_text("\n".join(lines) + "\n")


def resolve_class_path() -> str:
    """Resolve the jars with Maven, once for each ``tubemq-pom.xml``.

    Returns:
        A class path of the server and of the official Java client.

    Raises:
        BrokerStartError: Maven is missing or failed.
    """
    key = hashlib.sha256(POM.read_bytes()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "pulsar-spark" / f"tubemq-{key}"
    folder.mkdir(parents=True, exist_ok=True)
    remembered = folder / "classpath"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_whole(folder, remembered):
            _run_maven(folder, remembered)
    return f"{folder}/*:{remembered.read_text().strip()}"


def _is_whole(folder: Path, remembered: Path) -> bool:
    if not remembered.exists() or not list(folder.glob("tubemq-server-*.jar")):
        return False
    return all(Path(jar).exists() for jar in remembered.read_text().strip().split(":"))


def _run_maven(folder: Path, answer: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerStartError("No mvn found. Install Maven 3.6 or newer.")
    sys.stderr.write("Fetching TubeMQ with Maven (once, about 44 MB) ...\n")
    command = [
        *(maven, "--batch-mode", "--quiet", "--strict-checksums", f"--file={POM}"),
        *("dependency:build-classpath", f"-Dmdep.outputFile={answer}"),
        *("dependency:copy@server", f"-DoutputDirectory={folder}"),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=900
    )
    if done.returncode != 0:
        raise BrokerStartError(
            f"Maven could not resolve the jars of TubeMQ:\n{done.stdout[-4000:]}"
        )
