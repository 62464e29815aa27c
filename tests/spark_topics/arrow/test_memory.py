# SPDX-License-Identifier: Apache-2.0
"""Memory that was freed goes back to the system when it is told to."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from types import SimpleNamespace

import pytest

from spark_topics.arrow import memory

#: Of a process of its own: what the C library keeps depends on all that was done.
_SCRIPT = """
from pathlib import Path
from spark_topics.arrow.memory import release_unused

def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20

bytearray(b"x") * (30 << 20)  # freed: now glibc keeps up to twice as much of a heap
blocks = [bytearray(b"x") * (1 << 20) for _ in range(50)]
del blocks
kept = resident_mib()
release_unused()
print(kept - resident_mib())
"""


def test_freed_memory_goes_back_to_the_system() -> None:
    """Else there is a large message more than is counted."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    assert int(done.stdout) > 30


def test_other_c_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of Alpine has no such function."""
    monkeypatch.setattr(memory, "_malloc_trim", memory._malloc_trim.__wrapped__)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    memory.release_unused()


def test_other_systems_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows takes None for no library."""

    def refuse(name: None) -> None:
        raise TypeError(name)

    monkeypatch.setattr(memory, "_malloc_trim", memory._malloc_trim.__wrapped__)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(ctypes, "CDLL", refuse)
    memory.release_unused()
