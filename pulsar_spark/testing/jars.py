# SPDX-License-Identifier: Apache-2.0
"""The jars of a broker, which Maven downloads once for each release."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from pulsar_spark.testing.class_archive import ClassArchive
from pulsar_spark.testing.processes import BrokerStartError, java

DEFAULT_VERSION = "4.0.7"
POM = Path(__file__).with_name("pom.xml")
WHOLE_POM = Path(__file__).with_name("whole-pom.xml")
POM_5 = Path(__file__).with_name("pom-5.xml")


def release_of(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version: ``(4, 0)`` of ``4.0.7``.

    Raises:
        BrokerStartError: Pulsar's releases have no such names.
    """
    match = re.fullmatch(r"([0-9]{1,3})\.([0-9]{1,3})\.[0-9][\w.-]*", version)
    if match is None:
        raise BrokerStartError(
            f"{version!r} is no release of Pulsar: write all of it, such as"
            f" {DEFAULT_VERSION}."
        )
    return int(match[1]), int(match[2])


def pom_of(version: str) -> Path:
    """Return the POM of a release: releases before and after 4.x need other jars."""
    if release_of(version) >= (5, 0):
        return POM_5
    return WHOLE_POM if release_of(version) < (4, 0) else POM


def java_of(version: str) -> str:
    """Return the program ``java`` for a release: 5.0 needs Java 21, older ones 17.

    Raises:
        BrokerStartError: There is no such program.
    """
    return java(21 if release_of(version) >= (5, 0) else 17)


def resolve_classpath(
    version: str = DEFAULT_VERSION,
    *,
    pom: Path = POM,
    progress: TextIO | None = sys.stderr,
) -> str:
    """Resolve the jars of a broker with Maven, once per version and ``pom.xml``.

    The class path is kept in ``pulsar-spark`` under ``XDG_CACHE_HOME`` (default
    ``~/.cache``). Maven is asked again when a jar is gone.

    Args:
        version: Pulsar release.
        pom: Names the jars.
        progress: Takes lines about the downloads; None for silence.

    Returns:
        A class path of absolute paths that all exist.

    Raises:
        BrokerStartError: Maven is missing or failed; the message has its last lines.
    """
    key = hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    remembered = cache_folder() / f"broker-{version}-{key}.classpath"
    # Of processes that begin at the same time, one downloads and the others wait.
    with remembered.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if class_path := _remembered(remembered):
            return class_path
        with tempfile.TemporaryDirectory(dir=remembered.parent) as work:
            answer = Path(work, "classpath")
            _run_maven(version, pom, answer, progress)
            class_path = answer.read_text().strip()
            answer.replace(remembered)
    return class_path


def archive_of(version: str) -> ClassArchive:
    """Return the archive of the classes of a release's class path."""
    program = java_of(version)
    class_path = resolve_classpath(version, pom=pom_of(version))
    return ClassArchive(cache_folder(), program, class_path)


def cache_folder() -> Path:
    """Return the folder for class paths and archives, made where absent."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home, "pulsar-spark")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _remembered(file: Path) -> str:
    """Return the class path of an earlier run, or "" if a jar of it is missing."""
    class_path = file.read_text().strip() if file.exists() else ""
    is_whole = all(Path(jar).exists() for jar in class_path.split(os.pathsep))
    return class_path if is_whole else ""


def _run_maven(version: str, pom: Path, answer: Path, progress: TextIO | None) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise BrokerStartError("No mvn found. Install Maven 3.6 or newer.")
    downloads = Downloads(_DOWNLOADS_5 if pom == POM_5 else _DOWNLOADS)
    once = f"once, {downloads.total}"
    note(progress, f"Fetching Pulsar {version} with Maven ({once}) ...")
    command = [
        maven,
        "--batch-mode",
        "--strict-checksums",  # Maven 3 only warns of a jar that is not what it was
        f"--file={pom}",
        f"-Dembedded.broker.version={version}",
        f"-Dmdep.outputFile={answer}",
        "dependency:build-classpath",
    ]
    last: deque[str] = deque(maxlen=25)
    shown = time.monotonic()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if not downloads.count(line):
                last.append(line)
            elif time.monotonic() - shown > 2:
                shown = time.monotonic()
                note(progress, f"  {downloads}")
    if process.returncode != 0 or not answer.exists():
        said = _COLOURS.sub("", "".join(last))
        parent = rf"org\.apache\.pulsar:pulsar:pom:{re.escape(version)}"
        if re.search(rf"not find artifact {parent} |{parent} was not found", said):
            raise BrokerStartError(
                f"There is no Pulsar {version} in Maven's repository."
            )
        raise BrokerStartError(
            f"Maven could not resolve the jars of Pulsar {version}:\n{said}"
        )
    note(progress, f"  done: {downloads.megabytes:.0f} MB; the rest was here.")


#: The files and megabytes of ``pom.xml`` on a new machine: 250 jars, and for each jar
#: small files that name the jars it needs. Then those of ``pom-5.xml``, of 304 jars.
_DOWNLOADS = (800, 100)
_DOWNLOADS_5 = (900, 250)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_DOWNLOADED = re.compile(r"Downloaded from \S+ \S+ \(([\d.]+) ([kMG]?)B at")
_UNITS = {"": 1e-6, "k": 1e-3, "M": 1.0, "G": 1e3}


class Downloads:
    """The progress of Maven, by the lines that Maven prints.

    Maven first asks for small files, each a round trip. The time that is left can be
    estimated once large files arrive.

    Args:
        expected: How many files and megabytes to expect.
        clock: Returns the time in seconds.

    Attributes:
        files: Number of files that Maven fetched.
        megabytes: Their size.
    """

    def __init__(
        self,
        expected: tuple[int, int] = _DOWNLOADS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._all_files, self._all_megabytes = expected
        self.files = 0
        self.megabytes = 0.0
        self._clock = clock
        self._large_since: tuple[float, float] | None = None

    def count(self, line: str) -> bool:
        """Count a line of Maven; return whether the line is about downloads."""
        download = _DOWNLOADED.search(line)
        if download is None:
            return "Downloading from " in line
        megabytes = float(download[1]) * _UNITS[download[2]]
        self.files += 1
        self.megabytes += megabytes
        if megabytes >= 1 and self._large_since is None:
            self._large_since = self._clock(), self.megabytes
        return True

    @property
    def total(self) -> str:
        """Return how much is expected."""
        return f"about {self._all_megabytes} MB"

    def __str__(self) -> str:
        files = f"{self.files} files of {self._all_files}"
        text = f"{self.megabytes:5.1f} MB of {self.total}, {files}"
        if self._large_since is None or self.megabytes == self._large_since[1]:
            return text
        began, before = self._large_since
        seconds = (self._clock() - began) / (self.megabytes - before)
        left_s = max(0.0, self._all_megabytes - self.megabytes) * seconds
        return f"{text}, about {left_s:.0f} s left"


def note(progress: TextIO | None, text: str) -> None:
    """Write a line about progress at once."""
    if progress is not None:
        progress.write(f"{text}\n")
        progress.flush()
