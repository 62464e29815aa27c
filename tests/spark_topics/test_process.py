# SPDX-License-Identifier: Apache-2.0
"""What is done to processes that Spark started, and to no others."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from spark_topics.process import (
    Termination,
    only_ends_micro_batches,
    planning,
    plans_write,
)

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
ENDS = "pyspark.sql.worker.python_streaming_sink_runner"
WRITES = "pyspark.sql.worker.write_into_data_source"


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """Signals that would have been sent; what is done about SIGTERM is set back."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *given: sent.append(given))
    before = signal.getsignal(signal.SIGTERM)
    yield sent
    signal.signal(signal.SIGTERM, before)


def run_as(monkeypatch: pytest.MonkeyPatch, program: str | None) -> None:
    """Let this process be one that runs this module."""
    spec = None if program is None else SimpleNamespace(name=program)
    main = SimpleNamespace(__spec__=spec)
    monkeypatch.setitem(sys.modules, "__main__", main)  # type: ignore[arg-type]


def test_a_reader_is_stopped_first(
    monkeypatch: pytest.MonkeyPatch, kills: list[tuple[int, int]]
) -> None:
    """SIGTERM is an exit; a second one is none; then the process ends by the signal."""
    run_as(monkeypatch, RUNNER)
    termination = Termination()
    termination.expect()
    with pytest.raises(SystemExit):
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    assert not kills
    termination.stop(lambda: None)
    assert kills == [(os.getpid(), signal.SIGTERM)]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_stop_without_a_signal(
    monkeypatch: pytest.MonkeyPatch, kills: list[tuple[int, int]]
) -> None:
    """The process lives on."""
    run_as(monkeypatch, RUNNER)
    termination = Termination()
    termination.expect()
    termination.stop(lambda: None)
    assert not kills


def test_a_stop_is_not_interrupted(
    monkeypatch: pytest.MonkeyPatch, kills: list[tuple[int, int]]
) -> None:
    """A signal that comes meanwhile ends the process behind it."""
    run_as(monkeypatch, RUNNER)
    termination = Termination()
    termination.expect()
    stopped: list[int] = []

    def stop() -> None:
        signal.raise_signal(signal.SIGTERM)
        stopped.append(len(kills))

    termination.stop(stop)
    assert stopped == [0]
    assert kills == [(os.getpid(), signal.SIGTERM)]


@pytest.mark.parametrize("program", ["pyspark.daemon", "job", None])
def test_other_programs_keep_their_handler(
    monkeypatch: pytest.MonkeyPatch, kills: list[tuple[int, int]], program: str | None
) -> None:
    """The signals of a user's program are the user's."""
    run_as(monkeypatch, program)
    before = signal.getsignal(signal.SIGTERM)
    Termination().expect()
    assert signal.getsignal(signal.SIGTERM) is before


def test_other_threads_cannot_set_handlers(
    monkeypatch: pytest.MonkeyPatch, kills: list[tuple[int, int]]
) -> None:
    """Python would raise there."""
    run_as(monkeypatch, RUNNER)
    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=Termination().expect)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_collector_is_paused() -> None:
    """Within a block alone, however it ends, and not started where it was off."""

    @planning()
    def fail() -> None:
        assert not gc.isenabled()
        raise KeyError("planning")

    assert gc.isenabled()
    with pytest.raises(KeyError, match="planning"):
        fail()
    assert gc.isenabled()
    gc.disable()
    try:
        with planning():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("program", "arguments", "is_it"),
    [
        ("pyspark.daemon", ["", ENDS], True),
        (ENDS, [""], True),
        ("pyspark.daemon", ["", "pyspark.worker"], False),
        ("pytest", ["", "-k", ENDS], False),
        (None, [""], False),
    ],
)
def test_a_process_that_commits_or_aborts(
    monkeypatch: pytest.MonkeyPatch,
    program: str | None,
    arguments: list[str],
    is_it: bool,
) -> None:
    """Spark runs it by itself, or lets its daemon do so; one that plans is another."""
    run_as(monkeypatch, program)
    monkeypatch.setattr(sys, "argv", arguments)
    assert only_ends_micro_batches() is is_it
    assert not plans_write()


@pytest.mark.parametrize(
    ("program", "arguments"), [("pyspark.daemon", ["", WRITES]), (WRITES, [""])]
)
def test_a_process_that_plans_a_write(
    monkeypatch: pytest.MonkeyPatch, program: str, arguments: list[str]
) -> None:
    """It does not commit."""
    run_as(monkeypatch, program)
    monkeypatch.setattr(sys, "argv", arguments)
    assert plans_write()
    assert not only_ends_micro_batches()
