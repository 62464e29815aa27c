# SPDX-License-Identifier: Apache-2.0
"""New virtual environments, and what is built and installed with them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
SMOKE = Path(__file__).with_name("smoke.py")

#: What decides where Python looks and what is built must not leak in.
_LEAKS = ("PYTHONPATH", "PYTHONHOME", "PULSAR_SPARK_KERNEL", "SPARK_HOME")


def run(
    *command: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> None:
    """Run a command, and fail with all that it printed.

    Args:
        command: The program and its arguments.
        cwd: Where.
        env: What it finds in its environment besides.
    """
    clean = {k: v for k, v in os.environ.items() if k not in _LEAKS}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**clean, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        line = " ".join(str(part) for part in command)
        raise RuntimeError(f"{line}\nended with {done.returncode}:\n{done.stdout}")


def pip(
    python: Path, *arguments: str | Path, env: Mapping[str, str] | None = None
) -> None:
    """Run this environment's pip for another Python, which needs none."""
    quiet = ("--quiet", "--disable-pip-version-check")
    run(sys.executable, "-m", "pip", "--python", python, *arguments, *quiet, env=env)


class Environment:
    """A virtual environment, a new one where there is none yet.

    Args:
        folder: Where it is.
        python: Of which interpreter.

    Attributes:
        python: Its interpreter.
    """

    def __init__(self, folder: Path, python: str | Path = sys.executable) -> None:
        self.python = folder / "bin" / "python"
        if not self.python.exists():
            run(python, "-m", "venv", "--without-pip", folder)

    def install(self, *arguments: str | Path) -> None:
        """Let pip install these."""
        pip(self.python, "install", *arguments)

    def smoke(self, kernel: str, *others: str) -> None:
        """Check that what is installed works; see ``smoke.py``."""
        # Isolated: neither this folder nor the current one is looked into.
        env = {"PYSPARK_PYTHON": str(self.python)}
        run(self.python, "-I", SMOKE, kernel, *others, env=env)
