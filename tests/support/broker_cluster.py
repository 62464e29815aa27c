# SPDX-License-Identifier: Apache-2.0
"""A real Pulsar cluster on this machine: brokers on one metadata store and one bookie.

``BrokerCluster`` starts, out of the jars of ``embedded_broker.py``, a JVM that stores
(ZooKeeper and a bookie, see ``ClusterStore.java``), and a JVM for each broker. Brokers
may be stopped, killed and started again by themselves. All ports are free and on
loopback, every file is in one folder, and all of it ends with the process that started
it.

Which broker serves what is decided by the leader of the brokers, as in production; a
broker that is asked about a topic that nobody serves redirects to it. ``move`` sends
the topics of a bundle to a broker of choice. A broker that was killed is missed when
its session ends, after ``SESSION_S``.

    python -m tests.support.broker_cluster

runs one in the foreground, to play with.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import shutil
import sys
import tempfile
import time
import urllib.error
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pulsar_spark.testing.admin import Admin, AdminError
from pulsar_spark.testing.embedded_broker import archived_classes
from pulsar_spark.testing.jars import (
    DEFAULT_VERSION,
    java_of,
    pom_of,
    release_of,
    resolve_classpath,
)
from pulsar_spark.testing.processes import (
    LOOPBACK,
    BrokerStartError,
    free_ports,
    loopback_interface,
)
from pulsar_spark.testing.settings import SETTINGS
from tests.support.jvm import Jvm, compile_java

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pulsar_spark.testing.embedded_broker import Link

POM = Path(__file__).with_name("cluster-pom.xml")
STORE = Path(__file__).with_name("ClusterStore.java")

#: Seconds after which the others notice that a broker was killed.
SESSION_S = 10

#: What several brokers need beside the settings of one.
CLUSTER_SETTINGS: Mapping[str, str] = {
    # The leader chooses who serves what, once; nothing moves but what a test moves.
    "loadBalancerEnabled": "true",
    "loadBalancerSheddingEnabled": "false",
    "loadBalancerAutoBundleSplitEnabled": "false",
    "loadBalancerReportUpdateMaxIntervalMinutes": "1",
    "loadBalancerOverrideBrokerNicSpeedGbps": "1",
    "defaultNumberOfNamespaceBundles": "4",
    "metadataStoreSessionTimeoutMillis": str(SESSION_S * 1000),
    "brokerShutdownTimeoutMs": "10000",
    "numHttpServerThreads": "16",
}


def cluster_classpath(version: str = DEFAULT_VERSION) -> str:
    """Resolve what brokers and ZooKeeper need, and before 5.0 the Pulsar proxy."""
    broker = resolve_classpath(version, pom=pom_of(version))
    if release_of(version) >= (5, 0):
        return broker  # all jars of a release, so those of ZooKeeper are among them
    return os.pathsep.join((broker, resolve_classpath(version, pom=POM)))


class ClusterBroker:
    """One broker of a cluster.

    Args:
        jvm: Where it runs.
        configuration: Its file.
        settings: What that says.
        admin_token: Of a super user, where they turn authentication on.

    Attributes:
        service_url: ``pulsar://127.0.0.1:<port>``.
        tls_url: ``pulsar+ssl://127.0.0.1:<port>``, "" without a certificate.
        admin_url: ``http://127.0.0.1:<port>``.
        name: By which brokers know it: ``127.0.0.1:<web port>``.
        admin: Admin calls to it.
    """

    def __init__(
        self,
        jvm: Jvm,
        configuration: Path,
        settings: Mapping[str, str],
        admin_token: str = "",
    ) -> None:
        self.jvm = jvm
        self.service_url = f"pulsar://{LOOPBACK}:{settings['brokerServicePort']}"
        tls_port = settings.get("brokerServicePortTls")
        self.tls_url = f"pulsar+ssl://{LOOPBACK}:{tls_port}" if tls_port else ""
        self.name = f"{LOOPBACK}:{settings['webServicePort']}"
        self.admin_url = f"http://{self.name}"
        self.admin = Admin(self.admin_url, token=admin_token)
        self._configuration = configuration
        self._settings = settings

    def __repr__(self) -> str:
        return f"ClusterBroker({self.service_url})"

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self.jvm.is_running

    def launch(self) -> None:
        """Start it, and wait for nothing."""
        self._configuration.write_text(
            "".join(f"{k}={v}\n" for k, v in self._settings.items())
        )
        self.jvm.start(
            [
                "org.apache.pulsar.PulsarBrokerStarter",
                f"--broker-conf={self._configuration}",
            ]
        )

    def await_healthy(self, timeout: float = 120.0) -> None:
        """Wait until it serves.

        Raises:
            BrokerStartError: It ended, or does not in time.
        """
        deadline = time.monotonic() + timeout
        missing = "an answer"
        while time.monotonic() < deadline and self.jvm.is_running:
            try:
                if self.admin.is_ready():
                    return
                missing = "its own readiness"
            except (urllib.error.URLError, OSError, AdminError) as error:
                missing = f"an answer without: {error}"
            time.sleep(0.1)
        raise BrokerStartError(
            f"The broker {self.name} is not healthy, still waiting for {missing}. The "
            f"end of its log:\n{self.jvm.tail()}"
        )

    def start(self, timeout: float = 120.0) -> None:
        """Start it, and wait until it serves."""
        self.launch()
        self.await_healthy(timeout)

    def stop(self, timeout: float = 30.0) -> None:
        """Ask it to end; it gives its topics away before."""
        self.jvm.order(b"t", timeout)

    def kill(self) -> None:
        """Kill it without a chance to say goodbye."""
        self.jvm.order(b"k")


class BrokerCluster:
    """Some brokers on one metadata store and one bookie.

    Args:
        brokers: How many.
        settings: Settings of the brokers and the bookie that win over ours. Where they
            have a certificate, brokers speak TLS on a port more and through links, and
            have a listener ``sni`` with the name ``broker-<n>.brokers.test``.
        links: Proxies for fault tests, one for each broker or none. Each is the address
            that its broker tells clients of the listener ``link``.
        version: Pulsar release to start.
        name: Of the cluster.
        heap_mb: Most memory of the heap of each JVM.
        admin_token: Of a super user, where the settings turn authentication on.
    """

    def __init__(
        self,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        *,
        links: Sequence[Link] = (),
        version: str = DEFAULT_VERSION,
        name: str = "three",
        heap_mb: int = 256,
        admin_token: str = "",
    ) -> None:
        self.brokers: list[ClusterBroker] = []
        self.version = version
        self.name = name
        self.folder = Path()
        self._count = brokers
        self._settings = {
            **SETTINGS,
            **CLUSTER_SETTINGS,
            "listeningInterface": loopback_interface(),
            "clusterName": name,
            **(settings or {}),
        }
        self.links = links
        self._heap_mb = heap_mb
        self._admin_token = admin_token
        self._store: Jvm | None = None

    @property
    def service_url(self) -> str:
        """All brokers, whether they run or not."""
        return joined(one.service_url for one in self.brokers)

    @property
    def admin_url(self) -> str:
        """The first broker that runs."""
        return self.running[0].admin_url

    @property
    def tls_url(self) -> str:
        """The same by TLS."""
        return joined(one.tls_url for one in self.brokers)

    @property
    def linked_url(self) -> str:
        """All brokers through their links, by TLS where they speak it."""
        return joined(f"{self._link_scheme}://{_host(one.url)}" for one in self.links)

    @property
    def _link_scheme(self) -> str:
        return "pulsar+ssl" if self._has_tls else "pulsar"

    @property
    def _has_tls(self) -> bool:
        return "tlsCertificateFilePath" in self._settings

    @property
    def admin(self) -> Admin:
        """Admin calls to the first broker that runs."""
        return self.running[0].admin

    @property
    def running(self) -> list[ClusterBroker]:
        """The brokers that run."""
        return [broker for broker in self.brokers if broker.is_running]

    def __enter__(self) -> BrokerCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, timeout: float = 180.0) -> None:
        """Start all of it and wait until each broker serves.

        Raises:
            BrokerStartError: One of them does not come up.
        """
        class_path = cluster_classpath(self.version)
        self.folder = Path(tempfile.mkdtemp(prefix="pulsar-spark-cluster-"))
        try:
            self._start(class_path, timeout)
        except BaseException:
            self.stop()
            raise

    def _start(self, class_path: str, timeout: float) -> None:
        zookeeper, bookie, *ports = free_ports(2 + 4 * self._count)
        settings = {
            **self._settings,
            "metadataStoreUrl": f"zk:{LOOPBACK}:{zookeeper}",
            "configurationMetadataStoreUrl": f"zk:{LOOPBACK}:{zookeeper}",
        }
        for index in range(self._count):
            self.brokers.append(
                self._broker(index, class_path, settings, ports[4 * index :][:4])
            )
        folder = self.folder / "store"
        folder.mkdir()
        configuration = folder / "bookie.conf"
        configuration.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
        ready = folder / "ready"
        # By the jars of another release: javac may be older than those of this one.
        compile_java(STORE, cluster_classpath(), folder)
        store = Jvm(
            folder,
            os.pathsep.join((class_path, str(folder))),
            self._heap_mb,
            remove=self.folder,
            java_path=java_of(self.version),
        )
        self._store = store
        store.start(
            [
                *(STORE.stem, str(folder / "data"), str(zookeeper), str(bookie)),
                *(str(configuration), str(ready), self.name),
                *(self.brokers[0].admin_url, self.brokers[0].service_url),
            ]
        )
        deadline = time.monotonic() + timeout
        while not ready.exists():
            if not store.is_running or time.monotonic() > deadline:
                raise BrokerStartError(f"The store did not come up:\n{store.tail()}")
            time.sleep(0.05)
        for broker in self.brokers:
            broker.launch()
        for broker in self.brokers:
            broker.await_healthy(max(1.0, deadline - time.monotonic()))

    def _broker(
        self,
        index: int,
        class_path: str,
        settings: Mapping[str, str],
        ports: Sequence[int],
    ) -> ClusterBroker:
        folder = self.folder / f"broker-{index}"
        folder.mkdir()
        binary, web, linked, tls = ports
        own = {"brokerServicePort": str(binary), "webServicePort": str(web)}
        advertised = [f"internal:pulsar://{LOOPBACK}:{binary}"]
        if self._has_tls:
            own["brokerServicePortTls"] = str(tls)
            advertised += [
                f"internal:pulsar+ssl://{LOOPBACK}:{tls}",
                f"sni:pulsar+ssl://broker-{index}.brokers.test:6651",
            ]
        if self.links:
            link = self.links[index]
            link.target = (LOOPBACK, linked)
            scheme = self._link_scheme
            own["bindAddresses"] = f"link:{scheme}://{LOOPBACK}:{linked}"
            advertised.append(f"link:{scheme}://{_host(link.url)}")
        if len(advertised) > 1:
            own["internalListenerName"] = "internal"
            own["advertisedListeners"] = ",".join(advertised)
        # Where their class path begins as that of a lone broker, its classes are these.
        archive = archived_classes(self.version)
        jvm = Jvm(
            folder,
            class_path,
            self._heap_mb,
            java_options=archive,
            java_path=java_of(self.version),
        )
        conf = folder / "broker.conf"
        return ClusterBroker(jvm, conf, {**settings, **own}, self._admin_token)

    def stop(self) -> None:
        """End all of it; its data goes, so nobody gets the time for an orderly end."""
        jvms = [broker.jvm for broker in self.brokers]
        if self._store is not None:
            jvms.append(self._store)
        for jvm in jvms:
            jvm.order(b"k")
        self.brokers = []
        self._store = None
        if self.folder != Path():
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = Path()

    # -- who serves what ---------------------------------------------------------------

    def owner(self, topic: str) -> ClusterBroker:
        """Return the broker that serves a topic; one takes it over."""
        deadline = time.monotonic() + 30
        while True:
            try:
                url = self.admin.lookup(topic)
            except AdminError:  # two brokers wanted to take it over
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return next(one for one in self.brokers if one.service_url == url)

    def others(self, topic: str) -> list[ClusterBroker]:
        """Return the brokers that run and do not serve a topic."""
        owner = self.owner(topic)
        return [one for one in self.running if one is not owner]

    def move(self, topic: str, to: ClusterBroker) -> None:
        """Send all topics of a topic's bundle to a broker, while clients use them."""
        deadline = time.monotonic() + 60
        while (owner := self.owner(topic)) is not to:
            assert time.monotonic() < deadline, f"{topic} stays at {owner}"
            self.admin.unload_bundle(topic, to.name)
            # Now and then the leader forgets where to, and gives it to another one.
            until = time.monotonic() + 3
            while self.owner(topic) is owner and time.monotonic() < until:
                time.sleep(0.1)

    def spread(self, topics: Sequence[str]) -> None:
        """Have topics, of a bundle each, served by one broker after the other."""
        brokers = self.running
        with concurrent.futures.ThreadPoolExecutor() as executor:
            moves: list[concurrent.futures.Future[Any]] = []
            for index, topic in enumerate(topics):
                to = brokers[index % len(brokers)]
                if self.owner(topic) is not to:
                    moves.append(executor.submit(self.move, topic, to))
            for done in moves:
                done.result()


def joined(urls: Iterable[str]) -> str:
    """Return one service URL for several hosts; "" for none."""
    schemes, hosts = set(), []
    for url in urls:
        scheme, _, host = url.partition("://")
        schemes.add(scheme)
        hosts.append(host)
    return f"{schemes.pop()}://{','.join(hosts)}" if hosts else ""


def _host(url: str) -> str:
    return url.partition("://")[2]


def main() -> None:
    """Run a cluster until Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt):
        began = time.monotonic()
        with BrokerCluster() as cluster:
            sys.stdout.write(f"up after {time.monotonic() - began:.1f} s\n")
            for broker in cluster.brokers:
                sys.stdout.write(f"  {broker.service_url}  {broker.admin_url}\n")
            sys.stdout.flush()
            while True:
                time.sleep(1)


if __name__ == "__main__":
    main()
