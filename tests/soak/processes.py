# SPDX-License-Identifier: Apache-2.0
"""The processes of the stream: which there are, and what each holds over time."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.waiting import join

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Kinds of processes, and what of a command tells them.
DRIVER = "driver"
DRIVER_JVM = "driver's JVM"
DRIVER_WORKER = "driver's worker"
EXECUTOR_JVM = "executor's JVM"
WORKER = "executor's worker"
KINDS = (DRIVER, DRIVER_JVM, DRIVER_WORKER, EXECUTOR_JVM, WORKER)

#: Seconds between two looks.
LOOK_S = 5.0


@dataclass(frozen=True)
class Process:
    """One of them.

    Attributes:
        pid: Its id.
        kind: One of KINDS.
        is_forked: Whether its parent is of the same kind: so do Python workers come
            from a daemon that starts them.
        rss_mib: Of memory.
        threads: How many it has; 0 where the system does not tell.
        files: Likewise, sockets and pipes included.
    """

    pid: int
    kind: str
    is_forked: bool
    rss_mib: float
    threads: int
    files: int


def processes() -> list[Process]:
    """Those of the stream among the descendants of this process."""
    listing = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,rss=,stat=,args="],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    rows = {}
    for line in listing.splitlines():
        pid, parent, rss, state, *command = line.split(None, 4)
        if command and not state.startswith("Z"):
            rows[int(pid)] = (int(parent), int(rss), command[0])
    return list(_classified(rows))


def _classified(rows: dict[int, tuple[int, int, str]]) -> Iterator[Process]:
    kinds: dict[int, str] = {}
    children: dict[int, list[int]] = {}
    for pid, (parent, _, _) in rows.items():
        children.setdefault(parent, []).append(pid)
    stack = [(pid, "") for pid in children.get(os.getpid(), ())]
    while stack:
        pid, above = stack.pop()
        kinds[pid] = kind = _kind(rows[pid][2], above)
        stack += [(child, kind) for child in children.get(pid, ())]
    for pid, kind in kinds.items():
        if kind in KINDS:
            parent, rss, _ = rows[pid]
            is_forked = kinds.get(parent) == kind
            threads, files = _counts(pid)
            yield Process(pid, kind, is_forked, rss / 1024, threads, files)


def _kind(command: str, above: str) -> str:
    if above in (DRIVER_JVM, DRIVER_WORKER):
        return DRIVER_WORKER
    if above in (EXECUTOR_JVM, WORKER):
        return WORKER
    if above == DRIVER:
        return DRIVER_JVM if "SparkSubmit" in command else ""
    if "CoarseGrainedExecutorBackend" in command:
        return EXECUTOR_JVM
    if "tests.soak.driver" in command:
        return DRIVER
    return ""


def _counts(pid: int) -> tuple[int, int]:
    try:
        files = len(os.listdir(f"/proc/{pid}/fd"))
        return len(os.listdir(f"/proc/{pid}/task")), files
    except OSError:
        return 0, 0


@dataclass(frozen=True)
class Sample:
    """All processes at a moment.

    Attributes:
        at_s: Seconds since the beginning.
        load: Of the machine: processes that run or want to.
        processes: What there was.
    """

    at_s: float
    load: float
    processes: list[Process]


class Sampler:
    """Looks at the processes all the time, in a thread.

    Attributes:
        samples: What it saw.
    """

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self._began = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        join(self._thread, "the sampler")

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            at_s = time.monotonic() - self._began
            self.samples.append(Sample(at_s, os.getloadavg()[0], processes()))

    @property
    def now_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def lives(self, since_s: float) -> dict[int, tuple[str, list[tuple[float, float]]]]:
        """What each process that is there since then held: its kind, times and MiB."""
        found: dict[int, tuple[str, list[tuple[float, float]]]] = {}
        for sample in self.samples:
            if sample.at_s >= since_s:
                for one in sample.processes:
                    _, life = found.setdefault(one.pid, (one.kind, []))
                    life.append((sample.at_s, one.rss_mib))
        return found
