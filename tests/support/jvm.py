# SPDX-License-Identifier: Apache-2.0
"""Java programs: compiled, and run beside the process that wants them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from pulsar_spark.testing.processes import (
    ADD_OPENS,
    LOG4J,
    SHORT_LIVED,
    BrokerStartError,
    end_guarded,
    java,
    process_id,
    start_guard,
    tail_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


def compile_java(source: Path, class_path: str, folder: Path) -> None:
    """Compile a program of one file, in half the time that is usual.

    Args:
        source: The file.
        class_path: Of what it names.
        folder: For its classes.

    Raises:
        BrokerStartError: It cannot be compiled.
    """
    compiler = str(Path(java()).with_name("javac"))
    options = [f"-J{flag}" for flag in SHORT_LIVED]
    done = subprocess.run(
        [compiler, *options, "-cp", class_path, "-d", str(folder), str(source)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise BrokerStartError(f"{source} is not compiled:\n{done.stderr}")


class Jvm:
    """A program in a child process, which ends with the one that wanted it.

    It can be started, asked to end, killed, and started again.

    Args:
        folder: Where its log and what it prints go.
        class_path: Of the program.
        heap_mb: Most memory of its heap, and as much again beside it.
        log_level: Of its log.
        remove: What goes, too, where the process that wanted it is gone.
        is_short_lived: Whether it is to start fast, or to be as fast as it can.
        java_options: Beside those that all have.
        java_path: The program ``java``; None for the one that Pulsar 4 takes.

    Attributes:
        log_file: Its log.
        pid: Its process id, None while it does not run.
    """

    def __init__(
        self,
        folder: Path,
        class_path: str,
        heap_mb: int,
        log_level: str = "info",
        remove: Path | None = None,
        *,
        is_short_lived: bool = True,
        java_options: Sequence[str] = (),
        java_path: str | None = None,
    ) -> None:
        self.log_file = folder / "log"
        self.pid: int | None = None
        self._folder = folder
        self._class_path = class_path
        self._heap_mb = heap_mb
        self._log_level = log_level
        self._remove = remove
        self._flags = (*(SHORT_LIVED if is_short_lived else ()), *java_options)
        self._java_path = java_path
        self._guard: subprocess.Popen[bytes] | None = None

    def start(self, program: Sequence[str], prefix: Sequence[str] = ()) -> None:
        """Start it.

        Args:
            program: Its main class, or its source, and arguments.
            prefix: A command that runs the one it is given.

        Raises:
            BrokerStartError: There is no such process.
        """
        temporary = self._folder / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        log4j = self._folder / "log4j2.properties"
        log4j.write_text(LOG4J.format(file=self.log_file, level=self._log_level))
        # By file, not by argument: 300 paths are near the limit of some systems.
        arguments = self._folder / "java.args"
        arguments.write_text(f'-cp "{self._class_path}"\n')
        command = [
            *prefix,
            self._java_path or java(),
            "-Xms64m",
            f"-Xmx{self._heap_mb}m",
            f"-XX:MaxDirectMemorySize={self._heap_mb}m",
            *self._flags,
            "-XX:+ExitOnOutOfMemoryError",
            *(f"--add-opens={package}=ALL-UNNAMED" for package in ADD_OPENS),
            f"-Dlog4j2.configurationFile={log4j}",
            "-Dio.netty.tryReflectionSetAccessible=true",
            f"-Djava.io.tmpdir={temporary}",
            f"@{arguments}",
            *program,
        ]
        with (self._folder / "jvm.out").open("ab") as output:
            self._guard = start_guard(
                [str(self._remove or ""), *command], self._folder, output
            )
        self.pid = process_id(self._guard)
        if self.pid is None:
            raise BrokerStartError(f"{program[0]} could not be started: {self.tail()}")

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._guard is not None and self._guard.poll() is None

    def tail(self, size_bytes: int = 6000) -> str:
        """Return the end of what it printed and of its log."""
        return tail_of(self._folder / "jvm.out", self.log_file, size_bytes=size_bytes)

    def order(self, order: bytes, timeout: float = 20.0) -> None:
        """End it, and wait for that.

        Args:
            order: ``t`` asks it to end, ``k`` kills it.
            timeout: Seconds for an orderly end, before it is killed.
        """
        guard, self._guard, self.pid = self._guard, None, None
        if guard is not None:
            end_guarded(guard, order, timeout)
