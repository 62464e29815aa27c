# SPDX-License-Identifier: Apache-2.0
"""Servers on the ports that TubeMQ has by default, which masters do not tell.

Other tests take free ports, so that several can run at a time. Here the servers are at
an address of their own on the loopback interface.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from siblings.tubemq.tests.real.servers import PATIENCE_S, PATIENT
from siblings.tubemq.tests.support.servers import Topic, TubeMQ
from siblings.tubemq.tests.support.tls import tls_settings
from tests.support.certificates import Authority
from tests.support.waiting import await_true

pytestmark = [pytest.mark.slow, pytest.mark.soak]

PORTS = {"master1": 8715, "broker1": 8123}
TLS_PORTS = {"master1_tls": 8716, "broker1_tls": 8124}


def own_host(ports: Sequence[int]) -> str:
    """Return an address of the loopback interface at which ports are free."""
    for _ in range(100):
        host = "127." + ".".join(str(random.randint(2, 250)) for _ in range(3))
        listeners: list[socket.socket] = []
        try:
            listeners.extend(socket.create_server((host, port)) for port in ports)
        except OSError:
            continue
        finally:
            for listener in listeners:
                listener.close()
        return host
    raise AssertionError("no free address on the loopback interface")


@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
def test_default_ports_need_not_be_named(
    spark: SparkSession, tmp_path: Path, is_tls: bool
):
    """Neither by the user, for masters, nor by the master, for brokers."""
    ports = PORTS | (TLS_PORTS if is_tls else {})
    host = own_host(list(ports.values()))
    secured: dict[str, str] = {}
    settings = None
    if is_tls:
        authority = Authority(tmp_path)
        settings = tls_settings(authority, authority.issue("server", hosts=(host,)))
        client = authority.issue("client", hosts=()).combined()
        secured = {
            "tls.enable": "true",
            "tls.truststore.path": str(authority.certificate),
            "tls.keystore.path": str(client),
        }
    options = {"master.rpc": host, "topic": "demo", **PATIENT, **secured}
    with TubeMQ([Topic("demo")], tls_settings=settings, host=host, ports=ports):
        rows = spark.range(100).selectExpr("cast(id as string) as value")
        rows.write.format("tubemq").options(**options).mode("append").save()

        def read() -> list[int]:
            frame = spark.read.format("tubemq").options(**options).load()
            return sorted(int(row.value) for row in frame.collect())

        await_true(lambda: len(read()) >= 100, "the flush", PATIENCE_S)
        assert read() == list(range(100))
