# SPDX-License-Identifier: Apache-2.0
"""The loaded classes of a JVM in a file, from which the next JVM starts faster.

A broker takes some 11 s of processor time to start. A third of that goes to reading,
checking and linking 25,000 classes. A JVM that ends in order can write its classes to a
file. A JVM with the same jars and the same Java maps that file; other JVMs ignore it.

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
        folder: Folder of the archive.
        java: The program ``java`` that loads the classes.
        class_path: The jars.
    """

    def __init__(self, folder: Path, java: str, class_path: str) -> None:
        program = Path(java).resolve()
        made_of = f"{program} {program.stat().st_mtime_ns} {class_path}"
        key = hashlib.sha256(made_of.encode()).hexdigest()[:16]
        self._file = folder / f"classes-{key}.jsa"

    @property
    def options(self) -> tuple[str, ...]:
        """Return the options of a JVM that uses the archive, if it exists."""
        if not self._file.exists():
            return ()
        return ("-Xshare:auto", f"-XX:SharedArchiveFile={self._file}")

    def record(self, run: Callable[[str], None]) -> None:
        """Make the archive, unless there is an archive or another process makes one.

        Args:
            run: Starts a JVM with the given option, and ends the JVM in order.
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
