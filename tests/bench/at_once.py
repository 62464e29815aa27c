# SPDX-License-Identifier: Apache-2.0
"""Processes that begin together, so that they share nothing but the broker."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path


def at_once(module: str, arguments: Sequence[Sequence[str]]) -> float:
    """Runs a module in a process for each list of arguments.

    Each one gets ready before the clock starts; then all are let go at once.

    Returns:
        Seconds from the first beginning of ``clocked`` to the last end.
    """
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", module, *some],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for some in arguments
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()  # it is ready
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        results = []
        for process in processes:
            assert process.stdout is not None
            results.append(json.loads(process.stdout.readline()))
    finally:
        for process in processes:
            process.communicate()
    # The clock is the system's, so that those of two processes can be compared.
    return float(max(ended for _, ended in results) - min(b for b, _ in results))


@contextlib.contextmanager
def clocked() -> Iterator[None]:
    """In such a process: around what is to be measured."""
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    yield
    print(json.dumps([began, time.monotonic()]), flush=True)
