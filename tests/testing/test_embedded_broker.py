# SPDX-License-Identifier: Apache-2.0
"""The launcher gives us a real broker, and takes it away again, whatever happens."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pulsar
import pytest

from pulsar_spark.testing.admin import Admin
from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from pulsar_spark.testing.processes import BrokerStartError
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.link_proxy import LinkProxy

ROOT = Path(__file__).parents[2]
QUIET = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)


@contextlib.contextmanager
def client(url: str, timeout_s: int = 60) -> Iterator[pulsar.Client]:
    """The official client."""
    one = pulsar.Client(url, operation_timeout_seconds=timeout_s, logger=QUIET)
    try:
        yield one
    finally:
        one.close()


def write(url: str, topic: str, values: list[bytes]) -> None:
    """Write with the official client, unbatched, each acknowledged."""
    with client(url) as one:
        producer = one.create_producer(topic)
        for value in values:
            producer.send(value)


def read(url: str, topic: str) -> list[bytes]:
    """All payloads of a topic, read with the official client."""
    with client(url) as one:
        reader = one.create_reader(topic, pulsar.MessageId.earliest)
        values = []
        while reader.has_message_available():
            values.append(reader.read_next(60_000).data())
        return values


def alive(pid: int) -> bool:
    """Whether a process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_healthy(broker: EmbeddedBroker, admin: Admin, topic: str) -> None:
    """The broker has its version, and the official client writes and reads."""
    assert admin.version() == broker.version
    assert admin.healthy()
    values = [b"one", b"", "größer".encode()]
    write(broker.service_url, topic, values)
    assert read(broker.service_url, topic) == values


def test_largest_message(service_url: str, topic: str) -> None:
    """The bookie takes what the broker takes: 5 MiB less the metadata."""
    value = bytes(5 * 1024 * 1024 - 1024)
    write(service_url, topic, [value])
    assert read(service_url, topic) == [value]


def field(number: int, value: int | bytes) -> bytes:
    """One protobuf field, numbers below 128 only."""
    if isinstance(value, int):
        return varint(number << 3) + bytes([value])
    return varint(number << 3 | 2) + bytes([len(value)]) + value


def varint(value: int) -> bytes:
    """Protobuf's integer, up to two bytes of it."""
    return bytes([value]) if value < 128 else bytes([value & 127 | 128, value >> 7])


def test_transactions_are_on(service_url: str) -> None:
    """The coordinator opens a transaction at the first request after the start."""
    host, port = service_url.removeprefix("pulsar://").split(":")
    connect = (2, field(1, b"test") + field(4, 21))
    coordinator = (62, field(1, 1) + field(2, 0))
    new_transaction = (50, field(1, 2) + field(2, 60) + field(3, 0))
    replies = []
    with socket.create_connection((host, int(port)), timeout=120) as one:
        for kind, body in (connect, coordinator, new_transaction):
            command = field(1, kind) + field(kind, body)
            size = len(command)
            one.sendall(struct.pack(">II", size + 4, size) + command)
            with one.makefile("rb") as stream:
                (total,) = struct.unpack(">I", stream.read(4))
                replies.append(stream.read(total)[4:])
    assert [reply[1] for reply in replies] == [3, 63, 51]  # each the success reply
    assert (
        field(1, 2) + varint(2 << 3) in replies[2]
    )  # request 2, and some id: no error


def test_nothing_goes_around_the_link(
    link: LinkProxy, admin: Admin, topic: str
) -> None:
    """All that the official client exchanges with the broker passes the proxy."""
    admin.create_partitioned(topic, 3)
    before = link.counters.up_bytes
    payload = os.urandom(100_000)
    with client(link.url) as one:
        producer = one.create_producer(topic)
        for _ in range(6):
            producer.send(payload)
        assert link.counters.up_bytes - before > 6 * len(payload)
    part = f"{topic}-partition-0"
    assert admin.lookup(part) != link.url
    before = link.counters.down_bytes
    assert set(read(link.url, part)) <= {payload}
    assert link.counters.down_bytes - before > len(payload)

    link.stop()
    # It tries again and again until its time is up.
    with client(link.url, timeout_s=1) as one, pytest.raises(pulsar.PulsarException):
        one.create_reader(topic, pulsar.MessageId.earliest)


def test_random_cuts_lose_nothing(link: LinkProxy, topic: str) -> None:
    """The official client reads everything across connections that keep breaking."""
    values = [b"%d" % i for i in range(700)]
    write(link.url, topic, values)
    link.cut_every((2_000, 20_000), seed=3)
    cut = link.counters.cut
    with client(link.url) as one:
        reader = one.create_reader(topic, pulsar.MessageId.earliest)
        got = []
        while len(got) < len(values):
            got.append(reader.read_next(120_000).data())
        link.pass_through()
    assert got == values
    assert link.counters.cut > cut


@pytest.mark.broker
@pytest.mark.slow
def test_ends_with_its_parent(tmp_path: Path) -> None:
    """``kill -9`` of the process that started a broker ends it and removes its data."""
    script = (
        "import sys, time\n"
        "from pulsar_spark.testing.embedded_broker import EmbeddedBroker\n"
        "from pulsar_spark.testing.jars import resolve_classpath\n"
        "broker = EmbeddedBroker(progress=None)\n"
        "broker._choose_ports()\n"
        "broker._launch(resolve_classpath())\n"
        "print(broker.pid, broker.folder, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=ROOT, text=True
    )
    with parent:
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().split()
        assert alive(int(pid))
        os.kill(parent.pid, signal.SIGKILL)
    await_true(lambda: not alive(int(pid)))
    await_true(lambda: not Path(folder).exists())


@pytest.mark.broker
def test_settings_win_and_failure_is_told() -> None:
    """A broker that cannot start says why and leaves nothing behind."""
    broker = EmbeddedBroker(settings={"numIOThreads": "many"}, progress=None)
    folder = broker.folder
    with pytest.raises(BrokerStartError, match="numIOThreads"):
        broker.start()
    assert broker.pid is None
    assert not folder.exists()


def test_complaints(tmp_path: Path) -> None:
    """The last warnings and errors of a log, without what is fine, and cut."""
    broker = EmbeddedBroker(tmp_path)
    levels = ("ERROR", "WARN ", "INFO ", "WARN ")
    lines = [
        f"2026-11-21T14:53:26,95{n} {level} [one] Two - {'.' * 400}"
        for n, level in enumerate(levels)
    ]
    lines.insert(2, "WARN in a line that goes on")
    broker.log_file.write_text("\n".join(lines))
    assert broker.complaints(2) == [lines[1][:300], lines[4][:300]]


def test_restless_bookie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart is repeated, on the same ports and data, until the bookie stays."""
    broker = EmbeddedBroker(tmp_path, progress=None)
    broker._ports = {"binary": 1, "web": 2}
    lost = (
        "Lock on resource /ledgers/available/127.0.0.1:3 was invalidated. state Valid\n"
    )
    broker.log_file.write_text(lost * 9)  # of the start before
    starts = iter([lost * 2, lost * 3, lost])
    (tmp_path / "data").mkdir()

    def launch(class_path: str) -> None:
        broker._log_before = broker.log_file.stat().st_size
        with broker.log_file.open("a") as log:
            log.write(next(starts))

    monkeypatch.setattr(broker, "_launch", launch)
    monkeypatch.setattr(broker, "_await_healthy", lambda _: broker._check_bookie())
    broker.start()
    assert next(starts, None) is None
    assert (tmp_path / "data").exists()
    assert broker._ports == {"binary": 1, "web": 2}
    broker._log_before = 0
    broker.log_file.write_text(lost * 12)
    with pytest.raises(BrokerStartError, match="lost its lock 12 times"):
        broker._check_bookie()
    unknown = "Cannot resolve 127.0.0.1:3, bookie is unknown org.apache.BKException\n"
    broker.log_file.write_text(unknown * 101)
    broker._check_bookie()  # of a broker that is healthy
    with pytest.raises(BrokerStartError, match="not registered when asked for 101"):
        broker._check_bookie(is_late=True)
