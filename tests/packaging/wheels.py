# SPDX-License-Identifier: Apache-2.0
"""Build a wheel for each Python of this machine, and import each where it is alone.

``PYTHONS="python3.12 /opt/py/bin/python"`` names the interpreters; without it they are
looked for on the path and among those of pyenv.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.packaging.environments import ROOT, Environment, pip, run

OLDEST, NEWEST = 10, 14
DIST = ROOT / "dist"
CONSTRAINTS = ROOT / "constraints.txt"


def main() -> None:
    """Build them, and the source distribution that they are built of, into ``dist``."""
    DIST.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pulsar-spark-wheels-") as folder:
        work = Path(folder)
        sdist = build_sdist(work / "sdist")
        keep(sdist)
        for version, python in chosen_pythons().items():
            wheel = build_wheel(python, sdist, work / version)
            environment = Environment(work / f"venv-{version}", python)
            environment.install(f"{wheel}[spark]")
            environment.smoke("compiled")
            keep(wheel)


def chosen_pythons() -> dict[str, Path]:
    """Return an interpreter for each version that is named, or found."""
    named = os.environ.get("PYTHONS", "").split()
    found: dict[str, Path] = {}
    for name in named or candidates():
        if about := interpreter(name):
            found.setdefault(*about)
        elif named:
            raise SystemExit(f"PYTHONS has {name}, which does not run.")
    return found


def candidates() -> Iterator[str]:
    """Yield what may be an interpreter."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for minor in range(OLDEST, NEWEST + 1):
        yield f"python3.{minor}"
        yield from map(str, pyenv.glob(f"3.{minor}.*/bin/python"))


def interpreter(name: str) -> tuple[str, Path] | None:
    """Return the version and the path of an interpreter, None if it does not run."""
    code = "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"
    command = [name, "-c", code]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    version, path = done.stdout.split(maxsplit=1)
    return version, Path(path.strip())


def build_sdist(folder: Path) -> Path:
    """Return the source distribution: a build in place may take up earlier ones."""
    build = (sys.executable, "-m", "build", "--sdist", "--outdir", folder)
    run(*build, "--dependency-constraints-txt", CONSTRAINTS, ROOT)
    return next(folder.iterdir())


def build_wheel(
    python: Path, sdist: Path, folder: Path, kernel: str = "compiled"
) -> Path:
    """Return the wheel that an interpreter builds; a missing compiler is an error."""
    constraints = f"--build-constraint={CONSTRAINTS}"
    command = ("wheel", "--no-deps", constraints, f"--wheel-dir={folder}", sdist)
    pip(python, *command, env={"PULSAR_SPARK_KERNEL": kernel})
    return next(folder.iterdir())


def keep(path: Path) -> None:
    """Copy what was built, and say so."""
    sys.stdout.write(f"{shutil.copy(path, DIST)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
