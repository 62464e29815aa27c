# SPDX-License-Identifier: Apache-2.0
"""Run the cells of the matrix, each with a broker, a Spark and a Python of its own.

::

    python -m tests.matrix                        # all of them
    python -m tests.matrix --cells 2.10.5 4.0     # those that name one of these
    python -m tests.matrix --save                 # and keep what is found, in docs/
    python -m tests.matrix --until 1795000000     # begin nothing from then on
    python -m tests.matrix --kernel python        # spare the compiler, see setup.py

Other arguments go to the pytest of each cell. The package is built and installed as a
user would; nothing of this folder is imported but the tests, which are copied.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from tests.matrix.cells import (
    BROKER,
    CELLS,
    OLDEST_SPARK,
    RESULT,
    Cell,
    Result,
    read,
    write,
)
from tests.packaging.environments import ROOT, Environment
from tests.packaging.wheels import build_sdist, build_wheel, chosen_pythons

FOLDER = ROOT / "build" / "matrix"
SAVED = ROOT / "docs" / "compatibility.json"

#: What a wheel is made of, beside its packages.
SOURCES = ("*.py", "pyproject.toml", "MANIFEST.in")


def main(arguments: list[str]) -> int:
    """Run them; return how many failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix")
    parser.add_argument("--until", type=float, default=float("inf"))
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--cells", nargs="+", default=[""])
    parser.add_argument("--kernel", default="compiled")
    options, others = parser.parse_known_args(arguments)
    pythons = chosen_pythons()
    results, failed = [], 0
    for cell in CELLS:
        if not any(name in str(cell) for name in options.cells):
            continue
        if cell.python not in pythons:
            _say(f"{cell}: left out, there is no such Python here")
        elif time.time() >= options.until:
            _say(f"{cell}: left out for want of time")
        else:
            limit = [f"--until={options.until}"] if options.until < 1e12 else []
            result = run(cell, pythons[cell.python], options.kernel, [*limit, *others])
            if result is None:
                failed += 1
                continue
            results.append(result)
            failed += any(found.outcome == "failed" for found in result.found)
            if options.save:
                save(result)
    return failed


def run(cell: Cell, python: Path, kernel: str, arguments: list[str]) -> Result | None:
    """Run one; return what was found, None where it did not come to that."""
    _say(f"{cell}: begins")
    environment = environment_of(cell, python, kernel)
    work = FOLDER / "work"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(ROOT / "tests", work / "tests")
    for name in ("conftest.py", "pyproject.toml"):
        shutil.copy(ROOT / name, work)
    answer = work / "result.json"
    command = [environment.python, "-m", "pytest", "tests/matrix/check_cell.py"]
    if cell.pulsar.startswith("5."):
        command.append("tests/matrix/check_scalable.py")
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, command), "-p", "no:cacheprovider", "-q", *arguments],
        cwd=work,
        env={**clean, BROKER: cell.pulsar, RESULT: str(answer)},
        check=False,
    )
    if not answer.exists():
        _say(f"{cell}: ended with {done.returncode}")
        return None
    (result,) = read(answer)
    for found in result.found:
        lacks = "".join(f"; lacks: {name}" for name in found.lacks)
        _say(
            f"  {found.outcome:7} {found.seconds:6.1f} s {found.rows:7,} rows  "
            f"{found.scenario}{lacks}"
        )
    _say(f"{cell}: {result.seconds:.0f} s, {result.rows:,} rows")
    return result


def environment_of(cell: Cell, python: Path, kernel: str) -> Environment:
    """Return where this Python has this Spark, and the package as it is now."""
    spark = cell.spark.removesuffix(".*")
    folder = FOLDER / f"python-{cell.python}-spark-{spark}"
    wheel = wheel_of(cell.python, python, kernel)
    stamp = folder / "installed"
    installed = stamp.read_text() if stamp.exists() else ""
    if not installed:
        shutil.rmtree(folder, ignore_errors=True)
    environment = Environment(folder, python)
    if not installed:
        environment.install(f"{wheel}[test]", f"pyspark=={cell.spark}")
    elif installed != wheel.parent.name:
        environment.install("--no-deps", "--force-reinstall", wheel)
    stamp.write_text(wheel.parent.name)
    return environment


def wheel_of(version: str, python: Path, kernel: str) -> Path:
    """Return the wheel of what is here; built once, as long as nothing changes."""
    digest = hashlib.sha256()
    for file in sources():
        digest.update(file.read_bytes())
    name = kernel if kernel == "python" else f"{kernel}-{version}"  # or for all of them
    folder = FOLDER / "wheels" / name / f"{digest.hexdigest()[:12]}-{kernel}"
    if not list(folder.glob("*.whl")):
        shutil.rmtree(folder.parent, ignore_errors=True)
        sdist = build_sdist(folder / "sdist")
        build_wheel(python, sdist, folder, kernel)
    (wheel,) = folder.glob("*.whl")
    return wheel


def sources() -> list[Path]:
    """Return the files that a wheel is made of, always in the same order."""
    packages = [f"{mark.parent.name}/**/*.p*" for mark in ROOT.glob("*/py.typed")]
    found = {file for name in (*SOURCES, *packages) for file in ROOT.glob(name)}
    return sorted(file for file in found if file.suffix != ".pyc")


def save(result: Result) -> None:
    """Keep a result in the place of an earlier one of the same releases.

    Scenarios that were left out this time stay, where no release has changed.
    """

    def exact(one: Result) -> tuple[str, ...]:
        return one.pulsar, one.spark, one.python, one.kernel

    def minor(one: Result) -> tuple[str, ...]:
        spark = one.spark.rpartition(".")[0] if one.spark != OLDEST_SPARK else one.spark
        return one.pulsar, spark, one.python.rpartition(".")[0]

    kept = read(SAVED) if SAVED.exists() else []
    for one in kept:
        if exact(one) == exact(result):
            found = {scenario.scenario: scenario for scenario in one.found}
            found |= {scenario.scenario: scenario for scenario in result.found}
            result = replace(result, found=tuple(found.values()))
    write(SAVED, [*(one for one in kept if minor(one) != minor(result)), result])


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
