# SPDX-License-Identifier: Apache-2.0
"""A Spark standalone cluster: a master and workers, each a process of its own.

::

    python = install(tmp_path)  # a Python that has the wheel, and no checkout
    with StandaloneCluster(tmp_path, workers=2) as cluster:
        with cluster.submit(python, program, "its", "arguments") as driver:
            cluster.worker_of(folder).kill()  # as kill -9
            driver.await_end()

All is on loopback and in one folder, and ends with the process that started it. Heaps
are small: the rows of these tests are few.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import venv
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from pulsar_spark.testing.processes import GUARD, LOOPBACK, SHORT_LIVED
from tests.support.waiting import await_true

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).parents[2]
SPARK_HOME = Path(pyspark.__file__).parent

#: Bounds a failure; says nothing about how long anything should take.
PATIENCE_S = 240.0

#: Executors that are killed are no reason to give an application up.
_KEEP_TRYING = "-Dspark.deploy.maxExecutorRetries=-1"

_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"


def install(folder: Path, *others: str) -> Path:
    """Make a Python environment as docs/cluster.md says, and return its interpreter.

    It has the project by its wheel alone, and sees whatever else the tests' own has.

    Args:
        folder: Where it goes.
        others: Further requirements, which pip may have to fetch.
    """
    source, wheels, home = folder / "source", folder / "wheels", folder / "python"
    # Built in a copy: what an earlier build has left beside the sources goes along.
    unwanted = shutil.ignore_patterns(
        ".*", "build", "tests", "__pycache__", "*.egg-info", "*.so", "docs"
    )
    shutil.copytree(ROOT, source, ignore=unwanted)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    # Without PYTHONPATH: pip would find the checkout there and install nothing.
    clean = environment(Path(sys.executable))
    # Nothing is compiled, nor fetched for that: what is asked here is where code runs.
    clean["PULSAR_SPARK_KERNEL"] = "python"
    run = partial(subprocess.run, check=True, env=clean, timeout=600)
    build = ["wheel", "-q", "--no-deps", "--wheel-dir", str(wheels), str(source)]
    run([*pip, *build, "--no-build-isolation"])
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    (packages,) = home.glob("lib/python*/site-packages")
    # A path in such a file is a place to import from, and no more: the .pth files that
    # are in there, such as that of the checkout, are not looked at.
    site_packages = SPARK_HOME.parent
    (packages / "dependencies.pth").write_text(f"{site_packages}\n")
    (built,) = wheels.iterdir()
    into = [*pip, "--python", str(python), "install", "-q", "--no-compile"]
    run([*into, "--no-deps", "--no-index", str(built)])
    for module in ("pyspark_pulsar.py", "pyspark_pulsar_py.py"):
        assert (packages / module).exists(), "the wheel is not installed"
    if others:
        # pip complains of packages beside it that would rather have older versions.
        run([*into, *others], stderr=subprocess.DEVNULL)
    return python


def environment(python: Path) -> dict[str, str]:
    """The variables of a process that is to know nothing but this Python."""
    ours = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "SPARK_HOME", "SPARK_CONF_DIR")
    return {
        **{name: value for name, value in os.environ.items() if name not in ours},
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
        "SPARK_LOCAL_IP": LOOPBACK,
    }


class Process:
    """The master, a worker, or a driver: it ends with the process that started it.

    Args:
        folder: Where it runs and writes its log.
        command: What it is.
        variables: Of its environment, all of them.
    """

    def __init__(
        self, folder: Path, command: list[str], variables: dict[str, str]
    ) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._guard = subprocess.Popen(
                [sys.executable, str(GUARD), "", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=variables,
            )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def log(self) -> str:
        """What it has printed."""
        return self._log.read_text(errors="replace")

    def await_true(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for a condition; fails the test if the process ends before."""

        def holds() -> bool:
            is_over = self._guard.poll() is not None
            if condition():
                return True
            assert not is_over, f"it ended before {what}: {self._last_words()}"
            return False

        await_true(holds, what, PATIENCE_S)

    def await_end(self) -> None:
        """Waits for its end, which must be a good one."""
        assert self._guard.wait(PATIENCE_S) == 0, self._last_words()

    def _last_words(self) -> str:
        """What it printed last but for where in the JVM that was, which is long."""
        lines = [line for line in self.log.splitlines() if not line.startswith("\tat ")]
        return "\n".join(lines)[-6000:]

    def kill(self) -> None:
        """Kills it, as ``kill -9``. Executors of a worker find out, and end as well."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait(PATIENCE_S)  # it kills its child


class StandaloneCluster:
    """The cluster.

    Args:
        folder: For all that it leaves.
        workers: How many, of one core each.
        settings: What ``spark-defaults.conf`` has, on each node and for the driver.
    """

    def __init__(
        self, folder: Path, workers: int, settings: Mapping[str, str] | None = None
    ) -> None:
        self._folder = folder
        self._count = workers
        self._settings = settings or {}
        self._workers: list[Process] = []
        self._stack = contextlib.ExitStack()
        self.url = ""

    def __enter__(self) -> StandaloneCluster:
        with contextlib.ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def _start(self, stack: contextlib.ExitStack) -> None:
        self._conf.mkdir(parents=True)
        lines = [f"{name} {value}\n" for name, value in self._settings.items()]
        (self._conf / "spark-defaults.conf").write_text("".join(lines))
        master = stack.enter_context(self._daemon("master", "master.Master"))
        master.await_true(lambda: bool(_URL.search(master.log)), "the master's start")
        self.url = _URL.findall(master.log)[0]
        size = ("--cores", "1", "--memory", "512m", "--work-dir", ".", self.url)
        for number in range(self._count):
            worker = self._daemon(f"worker-{number}", "worker.Worker", *size)
            self._workers.append(stack.enter_context(worker))
        for worker in self._workers:
            worker.await_true(partial(_is_registered, worker), "a registration")

    def _daemon(self, name: str, class_name: str, *arguments: str) -> Process:
        command = [
            str(SPARK_HOME / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{class_name}",
            *("--host", LOOPBACK, "--port", "0", "--webui-port", "0"),
            *arguments,
        ]
        variables = {
            **environment(Path(sys.executable)),
            "SPARK_CONF_DIR": str(self._conf),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": " ".join((*SHORT_LIVED, _KEEP_TRYING)),
        }
        return Process(self._folder / name, command, variables)

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def _conf(self) -> Path:
        return self._folder / "conf"

    def spark_submit(
        self, name: str, python: Path, program: Path, *arguments: str
    ) -> Process:
        """Runs a program by ``spark-submit``, in a folder of this name."""
        command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", self.url]
        command += ["--executor-memory", "512m"]  # as the workers have
        variables = environment(python)
        variables["SPARK_CONF_DIR"] = str(self._conf)
        return Process(
            self._folder / name, [*command, str(program), *arguments], variables
        )

    def worker_of(self, folder: str) -> Process:
        """The worker whose executor runs in this folder."""
        (worker,) = (w for w in self._workers if w.folder in Path(folder).parents)
        return worker

    def submit(self, python: Path, program: Path, *arguments: str) -> Process:
        """Runs a program that is a driver, see ``run_alone``; told the master's URL."""
        folder = self._folder / "driver"
        return run_alone(folder, python, program, self.url, *arguments)


def run_alone(folder: Path, python: Path, program: Path, *arguments: str) -> Process:
    """Runs a program that can import nothing from the checkout.

    Args:
        folder: Where it runs and writes its log.
        python: What it runs with, and what Spark runs tasks with.
        program: A file, which is copied to where nothing is beside it.
        arguments: What it is told.
    """
    alone = folder.with_name(f"{folder.name}-program") / program.name
    alone.parent.mkdir()
    shutil.copy(program, alone)
    command = [str(python), str(alone), *arguments]
    return Process(folder, command, environment(python))


def _is_registered(worker: Process) -> bool:
    return _REGISTERED in worker.log
