# SPDX-License-Identifier: Apache-2.0
"""Programs of their own process that read or write a topic when they are told to.

A command is a line of words with tabs between; the reply is a line ``reply <number>``.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pulsar_spark.testing.jars import resolve_classpath
from pulsar_spark.testing.processes import ADD_OPENS, java
from tests.bench.cluster import ROOT
from tests.support.jvm import compile_java

FOLDER = ROOT / "build" / "rivals"
_HERE = Path(__file__).parent
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

#: Longest time for a command, in seconds.
_PATIENCE_S = 900.0

#: What Spark and Flink reach for inside the JDK, beside what brokers do.
_ADD_OPENS = (
    *ADD_OPENS,
    *(
        f"java.base/{package}"
        for package in (
            "java.lang",
            "java.lang.invoke",
            "java.lang.reflect",
            "java.io",
            "java.net",
            "java.nio",
            "java.util",
            "java.util.concurrent",
            "java.util.concurrent.atomic",
            "sun.nio.ch",
            "sun.nio.cs",
            "sun.security.action",
            "sun.util.calendar",
        )
    ),
)

_POM = """<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>pulsar-spark.tests</groupId>
  <artifactId>bench-rivals</artifactId>
  <version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
  <build>
    <plugins>
      <plugin>
        <groupId>org.apache.maven.plugins</groupId>
        <artifactId>maven-dependency-plugin</artifactId>
        <version>3.8.1</version>
      </plugin>
    </plugins>
  </build>
</project>
"""

_DEPENDENCY = """    <dependency>
      <groupId>{}</groupId>
      <artifactId>{}</artifactId>
      <version>{}</version>
    </dependency>"""


class CpuTimes(NamedTuple):
    """Seconds of the processor's time.

    Attributes:
        jvm_s: Of JVMs.
        python_s: Of all others.
    """

    jvm_s: float
    python_s: float

    @property
    def total_s(self) -> float:
        """Both together."""
        return self.jvm_s + self.python_s


@contextlib.contextmanager
def on_core(core: int) -> Iterator[None]:
    """Give processes that start in the block one core, and their children, too."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Program:
    """A process that obeys commands, and ends with the ``with`` block.

    Args:
        command: Starts it.
        name: Of its log, in ``build/rivals``.
    """

    def __init__(self, command: Sequence[str], name: str) -> None:
        self._log = FOLDER / f"{name}.log"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
                start_new_session=True,
            )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()  # which ends it
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def ask(self, *words: object) -> float:
        """Give it a command, and wait.

        Returns:
            The number of its reply: the seconds that the command took, or a count.

        Raises:
            RuntimeError: It ended without a reply, or gave none in time.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watch = threading.Timer(_PATIENCE_S, self._process.kill)
        watch.start()
        try:
            self._process.stdin.write("\t".join(map(str, words)) + "\n")
            self._process.stdin.flush()
            for line in self._process.stdout:
                if line.startswith("reply "):
                    return float(line.split()[1])
        except BrokenPipeError:
            pass
        finally:
            watch.cancel()
        raise RuntimeError(f"{self._reason()} (more in {self._log})")

    def _reason(self) -> str:
        """Return the line of the log that says why it ended."""
        lines = self._log.read_text().splitlines() or ["it ended without a word"]
        errors = [line for line in lines if "Error" in line or "Exception" in line]
        return (errors or lines)[0].strip()

    @property
    def cpu_s(self) -> float:
        """Seconds of processor time of the process and all that it started."""
        return self.cpu_times.total_s

    @property
    def cpu_times(self) -> CpuTimes:
        """Processor time of the process and its descendants, JVMs apart.

        Children of a JVM that have ended were Python's: no JVM here starts another JVM.
        """
        jvm_s = other_s = 0.0
        for file in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # a process that has just ended
                name, _, values = file.read_text().rpartition(")")
                fields = values.split()
                if int(fields[3]) != self._process.pid:  # of another session
                    continue
                # utime, stime, and both of children that ended and were waited for
                own_s, children_s = (
                    sum(map(int, fields[first : first + 2])) / _TICKS_PER_S
                    for first in (11, 13)
                )
                is_jvm = name.endswith("(java")
                jvm_s += own_s if is_jvm else 0.0
                other_s += children_s + (0.0 if is_jvm else own_s)
        return CpuTimes(jvm_s, other_s)


def class_path_of(artifacts: Sequence[str]) -> str:
    """Return the class path of Maven artifacts, ``group:artifact:version`` each.

    Raises:
        BrokerStartError: Maven is missing, or does not find them.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    dependencies = (_DEPENDENCY.format(*name.split(":")) for name in artifacts)
    text = _POM.format(dependencies="\n".join(dependencies))
    with tempfile.NamedTemporaryFile("w", suffix=".xml", dir=FOLDER) as pom:
        pom.write(text)
        pom.flush()
        return resolve_classpath("rivals", pom=Path(pom.name), progress=None)


def java_command(
    source: str, class_path: str, *arguments: str, heap_mb: int = 2048
) -> list[str]:
    """Compile a program of this folder, once; return the command that runs it.

    Args:
        source: Its file, named as its class.
        class_path: Of what it names.
        arguments: Of the program.
        heap_mb: Most memory of its heap.

    Raises:
        BrokerStartError: It cannot be compiled.
    """
    name = source.removesuffix(".java")
    key = hashlib.sha256(class_path.encode()).hexdigest()[:12]
    classes = FOLDER / "classes" / f"{name}-{key}"
    compiled = classes / f"{name}.class"
    classes.mkdir(parents=True, exist_ok=True)
    changed = (_HERE / source).stat().st_mtime
    if not compiled.exists() or compiled.stat().st_mtime < changed:
        compile_java(_HERE / source, class_path, classes)
    # By file, not by argument: 300 paths are near the limit of some systems.
    file = classes / "java.args"
    file.write_text(f'-cp "{classes}:{class_path}"\n')
    opens = (f"--add-opens={package}=ALL-UNNAMED" for package in _ADD_OPENS)
    return [java(), f"-Xmx{heap_mb}m", *opens, f"@{file}", name, *arguments]
