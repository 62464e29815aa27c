# SPDX-License-Identifier: Apache-2.0
"""The classes of a JVM in a file that the next one maps, instead of loading them anew.

A broker takes some 11 s of processor time to start, of which a third goes to reading,
checking and linking 25,000 classes. A JVM that ends in order writes down what it has
loaded; one that finds that file, of the same jars and the same Java, begins with it,
and any other takes no notice of it.

Source: JEP 350, Dynamic CDS Archives.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class ClassArchive:
    """The archive of one class path.

    Args:
        folder: Where it is.
        java: The program that loads the classes.
        class_path: From where.
    """

    def __init__(self, folder: Path, java: str, class_path: str) -> None:
        program = Path(java).resolve()
        made_of = f"{program} {program.stat().st_mtime_ns} {class_path}"
        key = hashlib.sha256(made_of.encode()).hexdigest()[:16]
        self._file = folder / f"classes-{key}.jsa"

    @property
    def options(self) -> tuple[str, ...]:
        """What a JVM is to be told: nothing where there is no archive."""
        if not self._file.exists():
            return ()
        return ("-Xshare:auto", f"-XX:SharedArchiveFile={self._file}")

    def record(self, run: Callable[[str], None]) -> None:
        """Make the archive, unless there is one or another process makes it.

        Args:
            run: Starts a JVM with this option, uses it, and ends it in order.
        """
        new = self._file.with_suffix(f".{os.getpid()}")
        lock = self._file.with_suffix(".lock").open("w")
        with lock, contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._file.exists():
                return
            try:
                run(f"-XX:ArchiveClassesAtExit={new}")
                with contextlib.suppress(FileNotFoundError):
                    new.replace(self._file)
            finally:
                new.unlink(missing_ok=True)
