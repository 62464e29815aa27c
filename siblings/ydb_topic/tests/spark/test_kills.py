# SPDX-License-Identifier: Apache-2.0
"""Drivers and workers of a stream that are killed, wherever they are."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from siblings.ydb_topic.tests.support.faults import At, Fault, When
from siblings.ydb_topic.tests.support.service import TopicService

ROOT = Path(__file__).parents[4]
ROWS = 6000
KILLS = 6
PATIENCE_S = 600.0


def workers_of(group: int) -> list[int]:
    """Python processes that run tasks in a process group."""
    listed = subprocess.run(
        ["ps", "-e", "-o", "pid=,pgid=,args="], capture_output=True, check=True
    )
    lines = [line.split(None, 2) for line in listed.stdout.decode().splitlines()]
    return [
        int(pid)
        for pid, of, arguments in lines
        if int(of) == group and "pyspark.daemon" in arguments
    ]


@pytest.mark.soak
def test_each_row_once(service: TopicService, tmp_path: Path):
    """The driver with all it has, or one worker, at any time; partitions split."""
    chance = random.Random(1)
    store = service.store
    store.create("copy", partitions=3)
    for partition in (0, 1):
        first = partition * (ROWS // 2)
        store.put("t", partition, *[b"%d" % n for n in range(first, first + ROWS // 2)])
    command = [sys.executable, "-m", "siblings.ydb_topic.tests.spark.stream_job"]
    arguments = [str(tmp_path), service.endpoint, "t", "copy"]
    deadline = time.monotonic() + PATIENCE_S
    kills = 0
    while True:
        assert time.monotonic() < deadline, f"not copied in {PATIENCE_S} s"
        process = subprocess.Popen(
            [*command, *arguments], cwd=ROOT, start_new_session=True
        )
        try:
            before = len(store.stored("copy"))
            while process.poll() is None:
                assert time.monotonic() < deadline, f"not copied in {PATIENCE_S} s"
                time.sleep(chance.uniform(0.05, 0.4))
                if kills == KILLS or len(store.stored("copy")) == before:
                    continue
                kills += 1
                when = chance.choice([*When])
                service.faults.add(Fault(At.WRITE, when, status=400050, skip=3))
                if kills == 3:
                    store.split("copy", 0)
                workers = workers_of(process.pid)
                if kills % 2 and workers:
                    os.kill(chance.choice(workers), signal.SIGKILL)
                else:
                    os.killpg(process.pid, signal.SIGKILL)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)
        if process.returncode == 0:
            break
    copied = [int(message.data) for message in store.stored("copy")]
    assert sorted(copied) == list(range(ROWS))
    assert kills >= 2
