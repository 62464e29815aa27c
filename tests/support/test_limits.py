# SPDX-License-Identifier: Apache-2.0
"""A test that hangs fails, says where, and the run goes on or ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: The second test shows that the run went on.
TESTS = """
import threading

def a_thread_that_waits():
    threading.Event().wait()

def stuck():
    thread = threading.Thread(target=a_thread_that_waits, daemon=True)
    thread.start()
    thread.join()

def test_stuck() -> None:
    {one}

def test_next() -> None:
    print("went on")
"""


def run(folder: Path, stuck: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run two tests, one of which hangs, with this project's settings."""
    path = folder / "test_stuck.py"
    path.write_text(TESTS.format(one=stuck))
    settings = (
        *("-p", "no:cacheprovider", "-p", "conftest"),
        "-c",
        str(ROOT / "pyproject.toml"),
        f"--rootdir={folder}",
    )
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-s", *settings, *options, str(path)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )


def test_one_that_hangs_fails_and_shows_all_threads(tmp_path: Path) -> None:
    """The stacks of its threads are there, and the next test runs."""
    done = run(tmp_path, "stuck()", "-o", "timeout=3")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert "went on" in done.stdout
    for name in ("Timeout", "test_stuck", "a_thread_that_waits"):
        assert name in done.stdout, name


def test_one_that_no_signal_reaches_ends_the_run(tmp_path: Path) -> None:
    """As C code that blocks: the stacks of all threads are there, the run failed."""
    deaf = (
        "import signal; "
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM]); stuck()"
    )
    limits = ("-o", "timeout=3", "-o", "faulthandler_timeout=8")
    done = run(tmp_path, deaf, *limits)
    assert done.returncode not in (
        pytest.ExitCode.OK,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    )
    for name in ("Timeout (0:00:08)", "test_stuck", "a_thread_that_waits"):
        assert name in done.stdout, name
    assert "went on" not in done.stdout


def test_a_thread_that_stays_does_not_keep_the_process(tmp_path: Path) -> None:
    """It ends all the same, and failed."""
    leaves = "threading.Thread(target=a_thread_that_waits).start()"
    done = run(tmp_path, leaves, "-o", "exit_timeout=1")
    assert "2 passed" in done.stdout
    assert done.returncode != pytest.ExitCode.OK
    for name in ("Timeout (0:00:01)", "a_thread_that_waits"):
        assert name in done.stdout, name


def test_every_test_has_a_limit(pytestconfig: pytest.Config) -> None:
    """The settings that the others try with shorter times."""
    assert 0 < float(pytestconfig.getini("timeout")) <= 600
    assert 0 < float(pytestconfig.getini("faulthandler_timeout")) <= 1800
    assert pytestconfig.getini("faulthandler_exit_on_timeout")


def test_a_run_ends_in_time_and_names_what_it_left_out(tmp_path: Path) -> None:
    """No failure, and no silence."""
    done = run(tmp_path, "pass", "--until=0")
    assert done.returncode == pytest.ExitCode.OK, done.stdout
    assert "2 left out for want of time" in done.stdout
    assert "went on" not in done.stdout
    for name in ("test_stuck.py::test_stuck", "test_stuck.py::test_next"):
        assert name in done.stdout, name
