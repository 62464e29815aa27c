# SPDX-License-Identifier: Apache-2.0
"""What a reading task holds is bounded by `pulsar.client.memoryLimitBytes`.

Each read runs in a process of its own that reports how large it grew on the way.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.entries import batch, member, message
from tests.support.raw_publisher import RawPublisher

if TYPE_CHECKING:
    from collections.abc import Callable

    from pulsar_spark.testing.admin import Admin
    from pulsar_spark.wire import pulsar_api_pb2 as pb

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
TOTAL = 160 * MIB
BEGIN = 60 * MIB
LIMIT = 16 * MIB

#: Arrow's and Spark's share beside the client's: a RecordBatch of `bytesPerArrowBatch`
#: and the one before it, each as Python values and as columns, entries as stored and
#: unpacked, a frame that is being received, and what the allocators keep.
BESIDE = 48 * MIB


def small_entry() -> tuple[pb.MessageMetadata, bytes]:
    """A batch of 1000 messages of 1 KiB."""
    return batch([member(os.urandom(1024)) for _ in range(1000)])


def large_entry() -> tuple[pb.MessageMetadata, bytes]:
    """One message of 1 MiB."""
    return message(os.urandom(MIB))


@pytest.mark.parametrize("entry", [small_entry, large_entry])
def test_memory_does_not_grow_with_the_topic(
    entry: Callable[[], tuple[pb.MessageMetadata, bytes]],
    topic: str,
    admin: Admin,
    service_url: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A read of 160 MiB needs as much as one of 60 MiB, and no more than is stated."""
    metadata, payload = entry()
    with RawPublisher(service_url, topic) as publisher:
        for _ in range(-(-TOTAL // len(payload))):
            publisher.send(metadata, payload)
    output = subprocess.run(
        [sys.executable, __file__, service_url, topic],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        timeout=600,
    ).stdout
    admin.delete(topic)
    report = json.loads(output)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{topic}, limit {LIMIT // MIB} MiB: grew by "
            f"{report['at_begin'] / MIB:.1f} MiB in the first {BEGIN // MIB} MiB, "
            f"{report['at_end'] / MIB:.1f} MiB in {report['bytes'] / MIB:.0f} MiB\n"
        )
    assert report["bytes"] >= TOTAL * 0.99
    assert report["at_end"] - report["at_begin"] < 4 * MIB
    assert report["at_end"] < LIMIT + BESIDE


def peak_bytes() -> int:
    """The largest this process ever was."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not by getrusage: there a process begins with the size of the one that
        # started it, and that is a test run with a broker's client and Spark in it.
        (line,) = [x for x in status.read_text().splitlines() if "VmHWM" in x]
        return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def wait_until_no_more_comes() -> None:
    """Take nothing until the reader holds all that its permits let it hold.

    How far the reader is ahead of the task decides how large the process gets. A busy
    machine may let it get ahead only late in the topic: that is no growth.
    """
    deadline = time.monotonic() + 30
    steady_since, size_bytes = time.monotonic(), 0
    while time.monotonic() - steady_since < 0.5 and time.monotonic() < deadline:
        if peak_bytes() != size_bytes:
            steady_since, size_bytes = time.monotonic(), peak_bytes()
        time.sleep(0.05)


def main(url: str, topic: str) -> None:
    """Reads a topic as a Spark task does; reports growth over the first MiB."""
    import pyarrow as pa

    from pulsar_spark import PulsarDataSource

    source = PulsarDataSource(
        {
            "service.url": url,
            "topic": topic,
            "pulsar.client.memoryLimitBytes": str(LIMIT),
        }
    )
    reader = source.reader(source.schema())
    (partition,) = reader.partitions()
    pa.array([b""])  # imports pandas where there is one, some 50 MiB, on first use
    start = peak_bytes()
    report: dict[str, int] = {"bytes": 0}
    pauses = [BEGIN * part // 4 for part in (1, 2, 3)]
    for record_batch in reader.read(partition):
        report["bytes"] += record_batch.nbytes
        if pauses and report["bytes"] > pauses[0]:
            wait_until_no_more_comes()
            del pauses[0]
        if report["bytes"] > BEGIN:
            report.setdefault("at_begin", peak_bytes() - start)
    report["at_end"] = peak_bytes() - start
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
