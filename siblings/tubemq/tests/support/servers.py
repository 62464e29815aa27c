# SPDX-License-Identifier: Apache-2.0
"""Real TubeMQ masters and brokers on this machine, for the tests and the demo.

The jars come from Maven. TubeMQ listens on all interfaces and cannot be told otherwise,
so the servers run in a network namespace of their own where the system allows that
(``own_network.py``), and ``is_private`` says whether they do: else their ports can be
reached from the network as long as they run.

A topic can be written some 40 seconds after the broker has started, whatever it is made
of: the master's own pauses. So topics are made first, all of them, and one pair of
servers does for a whole run::

    with TubeMQ([Topic("demo", stores=3)]) as tube:
        tube.masters  # "127.0.0.1:28715"

Servers are numbered from 1. Each topic is on all brokers. One of several masters serves
and the others stand by; three are needed for another to take over.
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

from pulsar_spark.testing.processes import (
    LOOPBACK,
    BrokerStartError,
    end_guarded,
    free_ports,
    start_guard,
)
from tests.support import own_network
from tests.support.jvm import Jvm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

POM = Path(__file__).with_name("pom.xml")
OWN_NETWORK = Path(own_network.__file__)
_TOOLS = "org.apache.inlong.tubemq.server.tools"
_ADMIN_TOKEN = "abc"
_HEAP_MB = {"master": 512, "broker": 768}
_PORTS = {
    "master": ("", "_web", "_meta", "_tls"),
    "broker": ("", "_web", "_tls"),
}

#: What a broker says that could not start.
_NOT_STARTED = "StartupException"

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


class _Stay(urllib.request.HTTPRedirectHandler):
    """Does not follow a standby, which sends on to the active one at its own port."""

    def redirect_request(self, *_: object) -> None:
        """Return None: the answer is an error."""


_OPENER = urllib.request.build_opener(_Stay)


class TubeMQ:
    """Masters and brokers, in child processes that end with this one.

    Args:
        topics: All topics that there will be, but for those of ``add_topic``.
        broker_settings: Of the broker's ini file, beside the ones here.
        master_settings: Of the master's.
        tls_settings: Of both, in ``tlsSetting``; with them they speak TLS at the ports
            that end in ``_tls``. See ``tubemq_tls.py``.
        masters: How many there are.
        brokers: How many there are.
        host: Address of this machine at which they are, but for further brokers.
        ports: By the name of the server and what is there, as below; others are free
            ones of those that tests use.
        is_short_lived: Whether they are to start fast, or to be as fast as they can.

    Attributes:
        masters: Addresses as clients are given them.
        ports: By the name of the server and what is there: ``broker1``,
            ``broker1_web``.
        is_private: Whether nobody else can reach the servers.
        folder: Of data, configuration and logs; goes with ``stop``.
    """

    def __init__(
        self,
        topics: Sequence[Topic],
        broker_settings: Mapping[str, str] | None = None,
        master_settings: Mapping[str, str] | None = None,
        tls_settings: Mapping[str, str] | None = None,
        *,
        masters: int = 1,
        brokers: int = 1,
        host: str = LOOPBACK,
        ports: Mapping[str, int] | None = None,
        is_short_lived: bool = True,
    ) -> None:
        self._is_short_lived = is_short_lived
        self._topics = list(topics)
        self._masters = [f"master{number + 1}" for number in range(masters)]
        self._brokers = [f"broker{number + 1}" for number in range(brokers)]
        self._settings = {
            "broker": dict(broker_settings or {}),
            "master": dict(master_settings or {}),
        }
        self.folder = Path(tempfile.mkdtemp(prefix="tubemq-spark-servers-"))
        self._tls_settings = dict(tls_settings or {})
        names = [
            name + what
            for name in (*self._masters, *self._brokers)
            for what in _PORTS[_role(name)]
        ]
        self._own_host = host
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.ports |= ports or {}
        self.masters = ",".join(map(self.address, self._masters))
        self.is_private = False
        self._network: subprocess.Popen[bytes] | None = None
        self._prefix: tuple[str, ...] = ()
        self._jvms: dict[str, Jvm] = {}
        self._active = self._masters[0]  # that was asked last

    def __enter__(self) -> TubeMQ:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, timeout: float = 600.0) -> None:
        """Start all, and wait until all topics can be written and read.

        Raises:
            BrokerStartError: They cannot, or not in time.
        """
        class_path = resolve_class_path()
        self._open_network()
        self._write_files()
        deadline = time.monotonic() + timeout
        for name in (*self._masters, *self._brokers):
            folder = self.folder / name
            folder.mkdir()
            self._jvms[name] = Jvm(
                folder,
                class_path,
                _HEAP_MB[_role(name)],
                log_level="warn",
                remove=self.folder,
                is_short_lived=self._is_short_lived,
            )
        first, *others = self._masters
        self.start_master(first, deadline - time.monotonic())
        for name in others:  # they join the group that the first has made
            self._launch(name)
        for name in others:
            self._await_master(name, deadline)
        for name in self._brokers:
            self._add_broker(name, deadline)
            for topic in self._topics:
                self._add(topic, name)
            self.admin("admin_online_broker_configure", brokerId=_id(name), modify=True)
        for name in self._brokers:
            self._launch(name)
        for name in self._brokers:
            self._await_port(name, deadline)
        self._await_topics([topic.name for topic in self._topics], deadline)

    def stop(self) -> None:
        """End all and remove their folder. What runs already ended is left alone."""
        for jvm in self._jvms.values():
            jvm.order(b"k")
        if self._network is not None:
            end_guarded(self._network, b"k")
        shutil.rmtree(self.folder, ignore_errors=True)

    def address(self, name: str) -> str:
        """Return ``host:port`` of a server, or of what it has: ``broker1_web``."""
        return f"{self._host(name)}:{self.ports[name]}"

    # -- servers that come and go --------------------------------------------------

    def stop_broker(self, name: str = "broker1", *, kill: bool = False) -> None:
        """End a broker, in order or as a crash would. What it has stored stays."""
        self._jvms[name].order(b"k" if kill else b"t", timeout=30.0)

    def start_broker(self, name: str = "broker1", timeout: float = 180.0) -> None:
        """Start a broker and wait for its port; its topics come when they come."""
        self._launch(name)
        self._await_port(name, time.monotonic() + timeout)

    def stop_master(self, name: str, *, kill: bool = False) -> None:
        """End a master, in order or as a crash would."""
        self._jvms[name].order(b"k" if kill else b"t", timeout=30.0)

    def start_master(self, name: str, timeout: float = 180.0) -> None:
        """Start a master and wait for its ports; whether it serves is another thing."""
        self._launch(name)
        self._await_master(name, time.monotonic() + timeout)

    def active_master(self) -> str:
        """Return the name of the master that serves.

        Raises:
            BrokerStartError: None does.
        """
        self.admin("admin_query_master_group_info", query=True)
        return self._active

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
        return self._ask_masters(method, urllib.parse.urlencode(values).encode())

    def _ask_masters(self, method: str, data: bytes) -> dict[str, Any]:
        problem = ""
        for name in dict.fromkeys((self._active, *self._masters)):
            port = self.ports[f"{name}_web"]
            url = f"http://{self._own_host}:{port}/webapi.htm"
            request = urllib.request.Request(url, data=data)
            try:
                with _OPENER.open(request, timeout=20) as reply:
                    answer: dict[str, Any] = json.load(reply)
            except OSError as error:  # it stands by, or does not run
                problem = str(error)
                if isinstance(error, urllib.error.HTTPError):
                    error.close()
                continue
            self._active = name
            if not answer.get("result"):
                raise BrokerStartError(f"The master refused {method}: {answer}")
            return answer
        raise BrokerStartError(f"No master serves: {problem}")

    def broker_admin(
        self, method: str, name: str = "broker1", **fields: object
    ) -> dict[str, Any]:
        """Ask a broker by its web interface and return its answer.

        Raises:
            BrokerStartError: It refuses.
        """
        values = {"method": method, **{key: str(one) for key, one in fields.items()}}
        request = urllib.request.Request(
            f"http://{self.address(f'{name}_web')}/broker.htm",
            data=urllib.parse.urlencode(values).encode(),
        )
        with urllib.request.urlopen(request, timeout=20) as reply:
            answer: dict[str, Any] = json.load(reply)
        if not answer.get("result"):
            raise BrokerStartError(f"The broker refused {method}: {answer}")
        return answer

    def reload_broker(self, name: str = "broker1") -> None:
        """Let a broker learn how its topics were changed."""
        self.admin("admin_reload_broker_configure", modify=True, brokerId=_id(name))

    def _add(self, topic: Topic, broker: str) -> None:
        self.admin(
            "admin_add_new_topic_record",
            brokerId=_id(broker),
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

    def _add_broker(self, name: str, deadline: float) -> None:
        """Make a broker known: by the first call, for which masters may be early."""
        while True:
            try:
                self.admin(
                    "admin_add_broker_configure",
                    brokerId=_id(name),
                    brokerIp=self._host(name),
                    brokerPort=self.ports[name],
                    brokerTLSPort=self._tls_port(name),
                    brokerWebPort=self.ports[f"{name}_web"],
                    deletePolicy="delete,168h",
                    numPartitions=1,
                    unflushThreshold=1000,
                    unflushInterval=10000,
                    acceptPublish="true",
                    acceptSubscribe="true",
                )
            except BrokerStartError as error:
                self._check(deadline, f"the masters' web interface: {error}")
                time.sleep(0.2)
            else:
                return

    def _await_topics(self, names: Sequence[str], deadline: float) -> None:
        missing = set(names)
        while missing:
            for name in sorted(missing):
                if self.is_live(name):
                    missing.discard(name)
            if missing:
                self._check(deadline, f"the topics {', '.join(sorted(missing))}")
                time.sleep(0.3)

    def is_live(self, name: str) -> bool:
        """Return whether a topic can be written and read, on all brokers."""
        answer = self.admin("admin_query_topic_info", query=True, topicName=name)
        runs = [
            broker["runInfo"]
            for topic in answer["data"]
            for broker in topic["topicInfo"]
        ]
        return len(runs) == len(self._brokers) and all(
            run.get(what) is True
            for run in runs
            for what in ("acceptPublish", "acceptSubscribe")
        )

    # -- processes -----------------------------------------------------------------

    def _open_network(self) -> None:
        """Move the servers to a network of their own, where that is allowed."""
        if not sys.platform.startswith("linux") or shutil.which("nsenter") is None:
            return
        log = self.folder / "network.out"
        addresses = [self.address(name) for name in self.ports]
        with log.open("wb") as output:
            command = [sys.executable, "-I", str(OWN_NETWORK), *addresses]
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
        for name in self._masters:
            self._write_master(name, resources)
        for name in self._brokers:
            self._write_broker(name)

    def _write_master(self, name: str, resources: Path) -> None:
        master = {
            "hostName": self._own_host,
            "port": self.ports[name],
            "webPort": self.ports[f"{name}_web"],
            "webResourcePath": resources,
            "confModAuthToken": _ADMIN_TOKEN,
            "consumerBalancePeriodMs": 5000,
            "firstBalanceDelayAfterStartMs": 5000,
            **self._settings["master"],
        }
        meta_bdb = {
            "repGroupName": "tests",
            "repNodeName": name,
            "repNodePort": self.ports[f"{name}_meta"],
            "repHelperHost": self.address(f"{self._masters[0]}_meta"),
            "metaDataPath": self.folder / "meta" / name,
            "metaLocalSyncPolicy": 3,
            "metaReplicaSyncPolicy": 3,
            "repReplicaAckPolicy": 1,
        }
        _write_ini(
            self.folder / f"{name}.ini",
            master=master,
            meta_bdb=meta_bdb,
            tlsSetting=self._tls(name),
        )

    def _write_broker(self, name: str) -> None:
        broker = {
            "brokerId": _id(name),
            "hostName": self._host(name),
            "port": self.ports[name],
            "webPort": self.ports[f"{name}_web"],
            "masterAddressList": self.masters,
            "primaryPath": self.folder / "stage" / name,
            "maxSegmentSize": 67108864,
            "maxIndexSegmentSize": 2200000,
            "transferSize": 524288,
            "consumerRegTimeoutMs": 20000,
            "heartbeatPeriodMs": 1000,
            **self._settings["broker"],
        }
        _write_ini(
            self.folder / f"{name}.ini",
            broker=broker,
            audit={"auditEnable": "false"},
            tlsSetting=self._tls(name),
        )

    def _host(self, name: str) -> str:
        """Return where a server is: masters refuse two brokers on one host."""
        server = name.partition("_")[0]
        is_further = server.startswith("broker") and server != "broker1"
        return f"127.0.0.{_id(server)}" if is_further else self._own_host

    def _tls(self, name: str) -> dict[str, object]:
        if not self._tls_settings:
            return {}
        port = self._tls_port(name)
        return {"tlsEnable": "true", "tlsPort": port, **self._tls_settings}

    def _tls_port(self, name: str) -> int:
        """Return a server's port for TLS: masters let no broker in with another one."""
        if self._tls_settings:
            return self.ports[f"{name}_tls"]
        return 8124  # which brokers tell that have none

    def _launch(self, name: str) -> None:
        self._jvms[name].start(
            [
                f"-Dtubemq.home={self.folder / name}",
                f"{_TOOLS}.{_role(name).capitalize()}Startup",
                "-f",
                str(self.folder / f"{name}.ini"),
            ],
            prefix=self._prefix,
        )

    def _await_master(self, name: str, deadline: float) -> None:
        self._await_port(name, deadline)
        self._await_port(f"{name}_web", deadline)

    def _await_port(self, name: str, deadline: float) -> None:
        address = (self._host(name), self.ports[name])
        while not _answers(address):
            self._check(deadline, f"port {address[1]}, {name}")
            time.sleep(0.1)

    def _check(self, deadline: float, what: str) -> None:
        """Give up where a server has ended, or there is no time left."""
        for name, jvm in self._jvms.items():
            if jvm.pid is not None and not jvm.is_running:
                raise BrokerStartError(f"{name} has ended:\n{jvm.tail()}")
            if _NOT_STARTED in (tail := jvm.tail()):  # its threads live on
                raise BrokerStartError(f"{name} does not serve:\n{tail}")
        if time.monotonic() > deadline:
            tails = "\n".join(f"{name}:\n{j.tail()}" for name, j in self._jvms.items())
            raise BrokerStartError(f"Waited in vain for {what}.\n{tails}")


def _role(name: str) -> str:
    return name.rstrip("0123456789")


def _id(name: str) -> int:
    return int(name.removeprefix(_role(name)))


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
        if not values:
            continue
        lines.append(f"[{section}]")
        lines += [f"{name}={value}" for name, value in values.items()]
    file.write_text("\n".join(lines) + "\n")


def resolve_class_path() -> str:
    """Resolve the jars with Maven, once for each ``pom.xml``.

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
