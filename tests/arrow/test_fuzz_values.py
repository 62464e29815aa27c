# SPDX-License-Identifier: Apache-2.0
"""Random schemas and damaged values, in processes that may die; see `fuzz_values`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter

import pytest

from tests.arrow import fuzz_values

#: Frames are what `make soak FRAMES=` counts; a case has some 80 values, twice.
FEW, FRAMES_A_CASE = 150, 200
FRAMES = int(os.environ.get("PULSAR_SPARK_FUZZ_FRAMES", 0))
SEED = int(os.environ.get("PULSAR_SPARK_FUZZ_SEED") or 1)


def run(first: int, count: int) -> Counter[str]:
    """Check cases in a process of their own; return how many values of each kind."""
    command = [sys.executable, "-m", "tests.arrow.fuzz_values", str(first), str(count)]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    last = child.stdout.splitlines()[-1:]
    assert child.returncode == 0, f"exit status {child.returncode}: {last}\n" + (
        child.stderr
    )
    good: Counter[str] = Counter()
    for kind, bad, rows in re.findall(r", (\w+): (\d+) of (\d+) bad", child.stdout):
        good[kind] += int(rows) - int(bad)
    return good


def test_values_together_and_alone() -> None:
    """No value ends the process, or is read otherwise beside others."""
    good = run(0, FEW)
    for kind, _ in fuzz_values.KINDS:
        assert good[kind.name] > 300, kind


@pytest.mark.soak
def test_many_more() -> None:
    """The same with other seeds, as many as `make soak FRAMES=` says."""
    run(1_000_000 * SEED, max(FRAMES // FRAMES_A_CASE, FEW))
