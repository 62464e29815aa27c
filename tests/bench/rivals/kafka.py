# SPDX-License-Identifier: Apache-2.0
"""A Kafka broker of its own process, which can be killed and started again."""

from __future__ import annotations

import base64
import socket
import time
import uuid
from pathlib import Path

from pulsar_spark.testing.processes import BrokerStartError, free_ports
from tests.bench.rivals.programs import class_path_of
from tests.support.jvm import Jvm

BROKER = "org.apache.kafka:kafka_2.13:3.9.1"

#: Longest wait for a start, as of a Pulsar broker.
_PATIENCE_S = 300.0

_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.dirs={folder}/data
"""


class KafkaBroker:
    """One broker that is its own controller.

    Args:
        folder: For its data and its log.

    Attributes:
        url: Its ``bootstrap.servers``.
    """

    def __init__(self, folder: Path) -> None:
        port, controller = free_ports(2)
        self.url = f"127.0.0.1:{port}"
        self._port = port
        self._settings = folder / "server.properties"
        self._settings.write_text(
            _PROPERTIES.format(port=port, controller=controller, folder=folder)
        )
        class_path = class_path_of([BROKER])
        formatter = Jvm(_made(folder / "format"), class_path, 256)
        words = ["format", "-t", _cluster_id(), "-c", str(self._settings)]
        formatter.start(["kafka.tools.StorageTool", *words])
        deadline = time.monotonic() + _PATIENCE_S
        while formatter.is_running:
            assert time.monotonic() < deadline, "Kafka's storage is not formatted"
            time.sleep(0.1)
        self._jvm = Jvm(
            _made(folder / "broker"), class_path, 1024, "warn", is_short_lived=False
        )

    def __enter__(self) -> KafkaBroker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._jvm.order(b"k")

    def start(self) -> None:
        """Start it, and wait until its port is open.

        Raises:
            BrokerStartError: It ended, or is not there in time.
        """
        self._jvm.start(["kafka.Kafka", str(self._settings)])
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline and self._jvm.is_running:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise BrokerStartError(f"Kafka did not come up: {self._jvm.tail()}")

    def restart(self) -> None:
        """Kill it, and start it on the same data."""
        self._jvm.order(b"k")
        self.start()


def _cluster_id() -> str:
    """Return an id of Kafka's form: 16 bytes in 22 letters."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
