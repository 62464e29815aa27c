# SPDX-License-Identifier: Apache-2.0
"""Pulsar's own proxy, on loopback, in front of a cluster.

Clients reach the proxy only: it answers lookups itself, and passes on what they send to
the broker that they name.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pulsar_spark.testing.jars import resolve_classpath
from pulsar_spark.testing.processes import LOOPBACK, BrokerStartError, free_ports
from tests.support.broker_cluster import POM
from tests.support.jvm import Jvm

if TYPE_CHECKING:
    from collections.abc import Mapping


class PulsarProxy:
    """A proxy.

    Args:
        service_url: Of the brokers.
        admin_url: Of one of them.
        settings: Settings of the proxy that win over ours.

    Attributes:
        service_url: ``pulsar://127.0.0.1:<port>`` of the proxy.
        tls_url: ``pulsar+ssl://127.0.0.1:<port>``, where settings have a certificate.
        jvm: Where it runs.
    """

    def __init__(
        self,
        service_url: str,
        admin_url: str,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="pulsar-spark-proxy-"))
        port, web_port, tls_port = free_ports(3)
        self._web_port = web_port
        is_tls = "tlsCertificateFilePath" in (settings or {})
        self.service_url = f"pulsar://{LOOPBACK}:{port}"
        self.tls_url = f"pulsar+ssl://{LOOPBACK}:{tls_port}"
        self._settings = {
            "clusterName": "proxied",
            "brokerServiceURL": service_url,
            "brokerWebServiceURL": admin_url,
            "bindAddress": LOOPBACK,
            "advertisedAddress": LOOPBACK,
            "servicePort": str(port),
            "webServicePort": str(web_port),
            # It refuses private addresses, and other ports than the usual ones.
            "brokerProxyAllowedIPAddresses": LOOPBACK,
            "brokerProxyAllowedTargetPorts": "*",
            "numHttpServerThreads": "8",
            **({"servicePortTls": str(tls_port)} if is_tls else {}),
            **(settings or {}),
        }
        # Of its own release first: not each of them is on Maven Central.
        jars = os.pathsep.join((resolve_classpath(pom=POM), resolve_classpath()))
        self.jvm = Jvm(self._folder, jars, 128, remove=self._folder)

    def __enter__(self) -> PulsarProxy:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self, timeout: float = 120.0) -> None:
        configuration = self._folder / "proxy.conf"
        lines = (f"{name}={value}\n" for name, value in self._settings.items())
        configuration.write_text("".join(lines))
        starter = "org.apache.pulsar.proxy.server.ProxyServiceStarter"
        self.jvm.start([starter, f"--config={configuration}"])
        deadline = time.monotonic() + timeout
        while not self._listens():
            if not self.jvm.is_running or time.monotonic() > deadline:
                raise BrokerStartError(f"The proxy is not up:\n{self.jvm.tail()}")
            time.sleep(0.1)

    def _listens(self) -> bool:
        # The port of the web service is opened last.
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, self._web_port)) == 0

    def stop(self) -> None:
        """End it."""
        self.jvm.order(b"k")
        shutil.rmtree(self._folder, ignore_errors=True)
