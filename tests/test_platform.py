# SPDX-License-Identifier: Apache-2.0
"""Where the package cannot work, it says so at once."""

from __future__ import annotations

import subprocess
import sys


def test_windows() -> None:
    """It is refused by name, not by what happens to be missing first."""
    code = "import sys; sys.platform = 'win32'; import pulsar_spark"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "ImportError: pulsar-spark runs on Linux and macOS" in done.stderr
