# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of a module on a mutant of it, each in a process of its own.

The processes are forked from one that has imported what is not ours. In them a mutant
takes the place of its module whatever lies in the folder, so that neither a compiled
kernel nor compiled bytecode can stand in for it.

Most mutants differ in a function that nothing calls before the tests run. These are
forked from a process that has imported the module and collected its tests, and only
this function gets another code: a tenth of the time.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import functools
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import types
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

import hypothesis
import pytest

from tests.support import kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from tests.mutants.mutators import Mutant

ROOT = Path(__file__).parents[2]

#: Each test is given this many times the CPU time that it takes without a mutant and
#: with its lines counted, and some more, which is what the imports are given. Only
#: what is computed counts: a machine that is busy with other things kills nothing.
_SLOWER = 3
_MORE_S = 4.0

#: And all of them this many times that by the clock, which ends what waits for ever.
_BUSY = 8

#: The same where nothing is imported.
_MORE_ON_STAGE_S = 1.0

#: Of a property. What notices a mistake does so early, or late for what it costs.
_MOST_EXAMPLES = 30

#: Calls of a function in each test whose lines are counted, which takes long.
_CALLS_WATCHED = 100

#: Address space a mutant may ask for beyond what there is.
_ROOM_BYTES = 4 << 30

# How a run ended.
SURVIVED, KILLED, NOT_RUN = 0, 1, 2


#: In front of the name of the test that failed.
_KILLER = "killed by: "


class MutantsError(RuntimeError):
    """The run says nothing about its tests."""


@dataclass(frozen=True)
class Target:
    """A module and its tests.

    Attributes:
        module: Its path below the package, without ``.py``.
        tests: Files below ``tests/``, or tests in them.
        but: Parts of the names of tests in these that would take too long.
        package: The package that has it.
    """

    module: str
    tests: tuple[str, ...]
    but: tuple[str, ...] = ()
    package: str = "pulsar_spark"

    @property
    def name(self) -> str:
        """As it is imported."""
        return f"{self.package}.{self.module.replace('/', '.')}"

    @property
    def path(self) -> Path:
        """Of its source."""
        return ROOT / self.package / f"{self.module}.py"

    @property
    def files(self) -> list[str]:
        """What pytest is to run."""
        return [str(ROOT / "tests" / name) for name in self.tests]


@dataclass
class Baseline:
    """What the tests of a module do when it is as it is.

    Attributes:
        seconds: CPU time that each test takes, with the lines counted.
        runs: Tests that run a line.
        imported: Lines that run before any test does.
        kills: How many mutants each test has killed.
    """

    seconds: dict[str, float]
    runs: dict[int, list[str]]
    imported: frozenset[int]
    kills: Counter[str] = field(default_factory=Counter)

    def tests_of(self, lines: range) -> dict[str, float]:
        """The tests that run one of these lines; all, where none does."""
        found = {test for line in lines for test in self.runs.get(line, ())}
        return self._in_order(found or self.seconds.keys())

    def others(self, tests: Collection[str]) -> dict[str, float]:
        """All tests but these."""
        return self._in_order(self.seconds.keys() - set(tests))

    def _in_order(self, tests: Collection[str]) -> dict[str, float]:
        """With their seconds: the quickest first, those that kill often even before."""

        def turn(test: str) -> tuple[float, str]:
            return self.seconds[test] / (1 + self.kills[test]), test

        return {test: self.seconds[test] for test in sorted(tests, key=turn)}


def preload() -> None:
    """Import what takes long, and forget what is ours again."""
    # What is ours is imported by each process: compiled once, whatever the environment
    # says of bytecode, and in a place of its own.
    cache = tempfile.mkdtemp(prefix="mutants-bytecode-")
    atexit.register(shutil.rmtree, cache)
    sys.dont_write_bytecode, sys.pycache_prefix = False, cache
    # A compiled module is imported once: it would raise the errors of the first time.
    importlib.import_module("tests.support.python_kernel")
    only_python = sys.meta_path[0]
    importlib.import_module("pulsar_spark")
    importlib.import_module("conftest")
    sys.meta_path.remove(only_python)
    for name in [name for name in sys.modules if _is_ours(name)]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()  # what is shared with the processes stays shared


def _is_ours(name: str) -> bool:
    top = name.split(".")[0]
    if name.startswith("tests.mutants") or name == "tests":
        return False
    ours = ("pulsar_spark", "spark_topics", "pyspark_pulsar", "pyspark_pulsar_py")
    return top in (*ours, "tests")


# -- one run ---------------------------------------------------------------------------


@dataclass
class Run:
    """A forked process that runs tests; :meth:`over` tells when and how it ended.

    Attributes:
        pid: Of the process.
        output: What it writes.
        deadline: By the monotonic clock.
        killer: The test that failed, once it is over.
    """

    pid: int
    output: Path
    deadline: float
    killer: str | None = None

    def over(self) -> int | None:
        """None while it runs; it is ended where it takes too long."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid and time.monotonic() < self.deadline:
            return None
        if not pid:
            self.kill()
            return KILLED
        text = self._forget()
        if found := re.search(rf"^{_KILLER}(.*)$", text, re.MULTILINE):
            self.killer = found[1]
        code = os.waitstatus_to_exitcode(status)
        if code not in (SURVIVED, KILLED) and code >= 0:
            raise MutantsError(f"a run of tests ended with {code}:\n{text}")
        return SURVIVED if code == SURVIVED else KILLED  # a crash is noticed, too

    def kill(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._forget()

    def words(self) -> str:
        """What it has written so far."""
        return self.output.read_text(errors="replace")

    def _forget(self) -> str:
        text = self.output.read_text(errors="replace")
        self.output.unlink()
        return text


def start(target: Target, tree: ast.Module, tests: Mapping[str, float]) -> Run:
    """Run tests on a mutant.

    Args:
        target: Of which module.
        tree: The mutant.
        tests: Ids of those to run, in this order, with the CPU time that each takes
            without a mutant.
    """
    finder = _Finder(target, tree)  # a mistake of ours fails here, not there

    def child() -> int:
        _limit_cpu(0)
        code = _pytest(target, finder, _Chosen(tests))
        if not finder.given:
            raise MutantsError(f"nothing imported {target.name}")
        if code == pytest.ExitCode.OK:
            return SURVIVED
        return KILLED

    return _fork(child, (sum(tests.values()) * _SLOWER + _MORE_S) * _BUSY)


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
        sys.settrace(watching.trace)
        code = _pytest(target, _Finder(target, tree), watching)
        if code != pytest.ExitCode.OK:
            raise MutantsError(f"the tests of {target.module} fail without a mutant")
        found.write_text(
            json.dumps([watching.seconds, watching.lines, watching.imported])
        )
        return SURVIVED

    try:
        run = _fork(child, 1800)
        while run.over() is None:
            time.sleep(0.02)
        seconds, lines, imported = json.loads(found.read_text() or "[{}, {}, []]")
    finally:
        found.unlink()
    if not seconds:
        raise MutantsError(f"the tests of {target.module} took too long")
    runs = defaultdict(list)
    for test, ran in lines.items():
        for line in ran:
            runs[line].append(test)
    return Baseline(seconds, dict(runs), frozenset(imported))


# -- one run of many -------------------------------------------------------------------


class Stage:
    """A process that has collected the tests of a module, for one mutant at a time.

    Attributes:
        killer: As of a `Run`.
    """

    def __init__(self, target: Target, mutants: Sequence[Mutant]) -> None:
        self._mutants = {id(mutant): at for at, mutant in enumerate(mutants)}
        requests, to_stage = os.pipe()
        from_stage, answers = os.pipe()
        tree = ast.parse(target.path.read_text())

        def child() -> int:
            os.close(to_stage)
            os.close(from_stage)
            finder = _Finder(target, tree)
            with os.fdopen(requests) as asked, os.fdopen(answers, "w") as answered:
                _pytest(target, finder, _OnStage(finder, mutants, asked, answered))
            return SURVIVED

        self._run = _fork(child, float("inf"))
        os.close(requests)
        os.close(answers)
        self._asked = os.fdopen(to_stage, "w")
        self._answers = os.fdopen(from_stage)
        self.killer: str | None = None

    def start(self, mutant: Mutant, tests: Mapping[str, float]) -> None:
        """Run tests on a mutant, as `start` below."""
        self.killer = None
        asked = [self._mutants[id(mutant)], dict(tests)]
        self._asked.write(json.dumps(asked) + "\n")
        self._asked.flush()

    def over(self) -> int | None:
        """As of a `Run`; NOT_RUN where the mutant is none for a stage."""
        if not select.select([self._answers], [], [], 0)[0]:
            return None
        if not (line := self._answers.readline()):
            raise MutantsError(f"a stage of tests broke down:\n{self._run.words()}")
        outcome, self.killer = json.loads(line)
        return int(outcome)

    def close(self) -> None:
        """End the process."""
        self._run.kill()
        self._asked.close()
        self._answers.close()


class _OnStage:
    """In the process of a stage: forks it for each mutant, in place of all tests."""

    def __init__(
        self,
        finder: _Finder,
        mutants: Sequence[Mutant],
        asked: IO[str],
        answered: IO[str],
    ) -> None:
        self._finder = finder
        self._mutants = mutants
        self._asked = asked
        self._answered = answered

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answer until nothing more is asked."""
        items = {item.nodeid: item for item in session.items}
        if self._finder.is_of_kernel:
            for name in kernels.MODULES:
                kernels.load("python", name)  # before any test does
        gc.collect()
        gc.freeze()
        while line := self._asked.readline():
            number, tests = json.loads(line)
            chosen = [items[test] for test in tests]
            answer = self._try(self._mutants[number], chosen, tests)
            self._answered.write(json.dumps(answer) + "\n")
            self._answered.flush()
        return True

    def _try(
        self, mutant: Mutant, items: list[pytest.Item], tests: dict[str, float]
    ) -> tuple[int, str | None]:
        from_child, killer = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = NOT_RUN
            try:
                code = self._run(mutant, items, tests, killer)
            except BaseException:
                code = KILLED
            finally:
                os._exit(code)
        os.close(killer)
        deadline = time.monotonic() + _BUSY * sum(
            _SLOWER * seconds + _MORE_ON_STAGE_S for seconds in tests.values()
        )
        while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)
        with os.fdopen(from_child) as words:
            name = words.read() or None
        code = os.waitstatus_to_exitcode(ended[1])
        return (code if code in (SURVIVED, NOT_RUN) else KILLED), name

    def _run(
        self,
        mutant: Mutant,
        items: list[pytest.Item],
        tests: dict[str, float],
        killer: int,
    ) -> int:
        if not self._finder.change(mutant):
            return NOT_RUN
        for item, following in zip(items, [*items[1:], None], strict=True):
            _limit_cpu(tests[item.nodeid], _MORE_ON_STAGE_S)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if item.session.testsfailed:
                os.write(killer, item.nodeid.encode())
                return KILLED
        return SURVIVED


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
    if finder.is_of_kernel:
        _only_the_kernel_in_python(finder, target.name)
    os.chdir(ROOT)
    quiet = ["-x", "-q", "--tb=short", "--durations=0", "-p", "no:cacheprovider"]
    # Modules of a package with a plugin would come from pytest, not from the finder.
    quiet += ["-m", "not slow", "--assert=plain"]
    # It was imported before, for all of the runs.
    quiet += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return pytest.main([*quiet, *target.files], plugins=[_But(target), plugin])


def _limit_cpu(usual: float, more: float = _MORE_S) -> None:
    """Let this process end with a signal, as a crash does, where it takes longer."""
    end = time.process_time() + usual * _SLOWER + more
    resource.setrlimit(resource.RLIMIT_CPU, (ceil(end), resource.RLIM_INFINITY))


def _only_the_kernel_in_python(finder: _Finder, mutated: str) -> None:
    load_as_it_is = kernels.load

    @functools.cache
    def load_mutant() -> types.ModuleType:
        module = types.ModuleType(mutated)
        finder.exec_module(module)
        return module

    def load(form: str, name: str = "messages") -> types.ModuleType:
        if kernels.full(name) == mutated:
            return load_mutant()
        return load_as_it_is(form, name)

    kernels.FORMS = ("python",)  # type: ignore[assignment]
    kernels.load = load  # type: ignore[assignment]


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Has a tree in the place of a module, also in that of a compiled one."""

    def __init__(self, target: Target, tree: ast.Module) -> None:
        self._target = target
        self._code = compile(tree, str(target.path), "exec")
        self.given: list[types.ModuleType] = []
        self.is_of_kernel = target.name in kernels.MODULES

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
        self.given.append(module)  # also where it cannot be imported: tests notice
        exec(self._code, module.__dict__)  # noqa: S102

    def change(self, mutant: Mutant) -> bool:
        """Change a function where it is imported already; whether that was possible."""
        if (found := mutant.function()) is None:
            return False
        names, tree = found
        code = compile(tree, str(self._target.path), "exec")
        for name in names:
            inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
            (code,) = (one for one in inner if one.co_name == name)
        functions = [_function(module, names) for module in self.given]
        for function in functions:
            if function is None or (
                (function.__name__, function.__code__.co_freevars)
                != (code.co_name, code.co_freevars)
            ):
                return False
            function.__code__ = code
        return True


def _function(module: types.ModuleType, names: list[str]) -> types.FunctionType | None:
    """A function without what decorates it."""
    found: Any = module
    for name in names:
        found = vars(found).get(name)
    for wrapped in ("fget", "func", "__func__", "__wrapped__"):
        found = getattr(found, wrapped, found)
    return found if isinstance(found, types.FunctionType) else None


class _But:
    """Leaves out what takes too long: tests, and most of the examples of others."""

    def __init__(self, target: Target) -> None:
        self._names = target.but

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Drop them."""
        items[:] = [i for i in items if not any(n in i.nodeid for n in self._names)]
        for test in {getattr(item, "obj", None) for item in items}:
            usual = getattr(test, "_hypothesis_internal_use_settings", None)
            if usual is not None and usual.max_examples > _MOST_EXAMPLES:
                few = hypothesis.settings(usual, max_examples=_MOST_EXAMPLES)
                test._hypothesis_internal_use_settings = few  # type: ignore[union-attr]


class _Chosen:
    """Keeps the tests that were chosen, in their order, each to its time."""

    def __init__(self, tests: Mapping[str, float]) -> None:
        self._seconds = tests

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Drop the others."""
        found = {item.nodeid: item for item in items}
        items[:] = [found[test] for test in self._seconds if test in found]

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """See to it that a mutant does not compute for ever."""
        _limit_cpu(self._seconds[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Say which of them failed."""
        if report.failed:
            sys.stdout.write(f"\n{_KILLER}{report.nodeid}\n")


class _Watching:
    """Sees how long each test takes and which lines of one file it runs."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._now: set[int] = set()
        self._calls: Counter[types.CodeType] = Counter()
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, list[int]] = {}
        self.imported: list[int] = []

    def pytest_collection_finish(self) -> None:
        """Count what was imported."""
        sys.settrace(None)
        self.imported = sorted(self._now)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Count for one test."""
        self._now, self._calls = set(), Counter()
        before = time.process_time()
        threading.settrace(self.trace)
        sys.settrace(self.trace)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
        self.seconds[item.nodeid] = time.process_time() - before
        self.lines[item.nodeid] = sorted(self._now)

    def trace(self, frame: types.FrameType, event: str, argument: Any) -> Any:
        """See sys.settrace."""
        if frame.f_code.co_filename != self._path:
            return None
        if event == "call":
            # Later calls run few lines that none before has run; and whatever passes
            # the tests that were chosen by this is tried with all others, too.
            self._calls[frame.f_code] += 1
            if self._calls[frame.f_code] > _CALLS_WATCHED:
                return None
        self._now.add(frame.f_lineno)
        return self.trace
