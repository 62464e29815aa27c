# SPDX-License-Identifier: Apache-2.0
"""Memory that was freed goes back to the system when it is told to."""

from __future__ import annotations

import subprocess
import sys

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
