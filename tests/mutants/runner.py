"""Runs the tests of a module on a mutant of it, each in a process of its own.

The processes are forked from one that has imported what is not ours. In them a mutant
takes the place of its module whatever lies in the folder, so that neither a compiled
kernel nor compiled bytecode can stand in for it.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
import types
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).parents[2]
_KERNEL = "pulsar_spark.wire.messages"

#: A run is given this many times what the tests take without a mutant, and some more.
_SLOWER = 5
_MORE_S = 20.0

#: Calls of a function in each test whose lines are counted, which takes long.
_CALLS_WATCHED = 100

#: Address space a mutant may ask for beyond what there is.
_ROOM_BYTES = 4 << 30

# How a run ended.
SURVIVED, KILLED, NOT_RUN = 0, 1, 2


class MutantsError(RuntimeError):
    """The run says nothing about its tests."""


@dataclass(frozen=True)
class Target:
    """A module and its tests.

    Attributes:
        module: Its path below ``pulsar_spark/``, without ``.py``.
        tests: Files below ``tests/``, or tests in them.
    """

    module: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        """As it is imported."""
        return f"pulsar_spark.{self.module.replace('/', '.')}"

    @property
    def path(self) -> Path:
        """Of its source."""
        return ROOT / "pulsar_spark" / f"{self.module}.py"

    @property
    def files(self) -> list[str]:
        """What pytest is to run."""
        return [str(ROOT / "tests" / name) for name in self.tests]


@dataclass
class Baseline:
    """What the tests of a module do when it is as it is.

    Attributes:
        seconds: How long each test takes, with the lines counted.
        runs: Tests that run a line.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    runs: dict[int, list[str]] = field(default_factory=dict)

    def tests_of(self, lines: range) -> list[str]:
        """The tests that run one of these lines, the quickest first."""
        found = {test for line in lines for test in self.runs.get(line, ())}
        return sorted(found, key=lambda test: self.seconds[test])


def preload() -> None:
    """Import what takes long, and forget what is ours again."""
    importlib.import_module("pulsar_spark")
    importlib.import_module("tests.conftest")
    for name in [name for name in sys.modules if _is_ours(name)]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()  # what is shared with the processes stays shared


def _is_ours(name: str) -> bool:
    top = name.split(".")[0]
    if name.startswith("tests.mutants") or name == "tests":
        return False
    return top in ("pulsar_spark", "pyspark_pulsar", "tests")


# -- one run ---------------------------------------------------------------------------


@dataclass
class Run:
    """A forked process that runs tests; :meth:`over` tells when and how it ended."""

    pid: int
    output: Path
    deadline: float

    def over(self) -> int | None:
        """None while it runs; it is ended where it takes too long."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid and time.monotonic() < self.deadline:
            return None
        if not pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self._forget()
            return KILLED
        text = self._forget()
        code = os.waitstatus_to_exitcode(status)
        if code not in (SURVIVED, KILLED) and code >= 0:
            raise MutantsError(f"a run of tests ended with {code}:\n{text}")
        return SURVIVED if code == SURVIVED else KILLED  # a crash is noticed, too

    def _forget(self) -> str:
        text = self.output.read_text(errors="replace")
        self.output.unlink()
        return text


def start(
    target: Target, tree: ast.Module, tests: Sequence[str], seconds: float
) -> Run:
    """Run tests on a mutant.

    Args:
        target: Of which module.
        tree: The mutant.
        tests: Ids of those to run, in this order; none for all.
        seconds: What they take without a mutant.
    """
    finder = _Finder(target, tree)  # a mistake of ours fails here, not there

    def child() -> int:
        code = _pytest(target, finder, _Chosen(tests))
        if finder.given is None:
            raise MutantsError(f"nothing imported {target.name}")
        if code == pytest.ExitCode.OK:
            return SURVIVED
        return KILLED

    return _fork(child, seconds * _SLOWER + _MORE_S)


def baseline(target: Target) -> Baseline:
    """Run all tests of a module as it is, and see which lines each of them runs.

    Raises:
        MutantsError: They fail.
    """
    handle, name = tempfile.mkstemp(prefix="mutants-baseline-")
    os.close(handle)
    found = Path(name)
    tree = ast.parse(target.path.read_text())

    def child() -> int:
        watching = _Watching(str(target.path))
        code = _pytest(target, _Finder(target, tree), watching)
        if code != pytest.ExitCode.OK:
            raise MutantsError(f"the tests of {target.module} fail without a mutant")
        found.write_text(json.dumps([watching.seconds, watching.lines]))
        return SURVIVED

    try:
        run = _fork(child, 1800)
        while run.over() is None:
            time.sleep(0.02)
        seconds, lines = json.loads(found.read_text() or "[{}, {}]")
    finally:
        found.unlink()
    if not seconds:
        raise MutantsError(f"the tests of {target.module} took too long")
    runs = defaultdict(list)
    for test, ran in lines.items():
        for line in ran:
            runs[line].append(test)
    return Baseline(seconds, dict(runs))


def _fork(child: Callable[[], int], seconds: float) -> Run:
    handle, name = tempfile.mkstemp(prefix="mutants-run-")
    pid = os.fork()
    if pid == 0:
        _be_child(child, handle)
    os.close(handle)
    return Run(pid, Path(name), time.monotonic() + seconds)


def _be_child(child: Callable[[], int], output: int) -> NoReturn:
    code = NOT_RUN
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf(
            "SC_PAGE_SIZE"
        )
        room = used + _ROOM_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
        code = child()
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(code)  # threads of the tests are none of ours


def _pytest(target: Target, finder: _Finder, plugin: object) -> int:
    """Run the tests of a module in this process, with what the finder has for it."""
    sys.meta_path.insert(0, finder)
    hypothesis.settings.register_profile(
        "mutants",
        derandomize=True,  # what kills a mutant once does so again
        database=None,
        deadline=None,
        phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    hypothesis.settings.load_profile("mutants")
    if target.name == _KERNEL:
        _only_the_kernel_in_python(finder)
    os.chdir(ROOT)
    quiet = ["-x", "-q", "--tb=short", "--durations=0", "-p", "no:cacheprovider"]
    quiet += ["-m", "not slow"]
    # It was imported before, for all of the runs.
    quiet += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return pytest.main([*quiet, *target.files], plugins=[plugin])


def _only_the_kernel_in_python(finder: _Finder) -> None:
    kernels = importlib.import_module("tests.support.kernels")

    @functools.cache
    def load(form: str) -> types.ModuleType:
        module = types.ModuleType(_KERNEL)
        finder.exec_module(module)
        return module

    kernels.FORMS = ("python",)  # type: ignore[attr-defined]
    kernels.load = load  # type: ignore[attr-defined]


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Has a tree in the place of a module, also in that of a compiled one."""

    def __init__(self, target: Target, tree: ast.Module) -> None:
        self._target = target
        self._code = compile(tree, str(target.path), "exec")
        self.given: types.ModuleType | None = None

    def find_spec(
        self, name: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Its own module only."""
        if name == self._target.name:
            return importlib.util.spec_from_file_location(
                name, self._target.path, loader=self
            )
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        """Run the tree."""
        module.__file__ = str(self._target.path)
        self.given = module  # also where it cannot be imported, which tests notice
        exec(self._code, module.__dict__)  # noqa: S102


class _Chosen:
    """Keeps the tests that were chosen, in their order."""

    def __init__(self, tests: Sequence[str]) -> None:
        self._order = {test: number for number, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Drop the others."""
        if self._order:
            kept = [item for item in items if item.nodeid in self._order]
            items[:] = sorted(kept, key=lambda item: self._order[item.nodeid])


class _Watching:
    """Sees how long each test takes and which lines of one file it runs."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._now: set[int] = set()
        self._calls: Counter[types.CodeType] = Counter()
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, list[int]] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Count for one test."""
        self._now, self._calls = set(), Counter()
        before = time.monotonic()
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
        self.seconds[item.nodeid] = time.monotonic() - before
        self.lines[item.nodeid] = sorted(self._now)

    def _trace(self, frame: types.FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != self._path:
            return None
        if event == "call":
            # Later calls run few lines that none before has run; and whatever passes
            # the tests that were chosen by this is tried with all others, too.
            self._calls[frame.f_code] += 1
            if self._calls[frame.f_code] > _CALLS_WATCHED:
                return None
        self._now.add(frame.f_lineno)
        return self._trace
