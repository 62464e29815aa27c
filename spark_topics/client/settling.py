# SPDX-License-Identifier: Apache-2.0
"""Files that are being renewed: a faulty file is read again after a moment.

A certificate may be there before its key, and a token half written. Where half of a new
file before half of an old one would look like a good one, files have to rest first.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from spark_topics.errors import TopicsError

T = TypeVar("T")

#: Files that are younger may be half renewed, in seconds.
_SETTLED_S = 5.0
_PAUSE_S = 0.2

#: Files that nobody has written to for so long are whole, in seconds.
_RESTING_S = 0.5


def settled(paths: Iterable[str], read: Callable[[], T]) -> T:
    """Read files, again while reading fails and a file has just changed.

    Args:
        paths: The files.
        read: Reads them.

    Raises:
        TopicsError: Of ``read``: the files rest, or have changed for too long.
    """
    named = tuple(paths)
    deadline = time.monotonic() + _SETTLED_S
    while True:
        try:
            return read()
        except TopicsError:
            if time.monotonic() > deadline or not _are_fresh(named, _SETTLED_S):
                raise
        time.sleep(_PAUSE_S)


def rested(paths: Iterable[str], read: Callable[[], T]) -> T:
    """Read files as `settled` does, after a moment in which no file changed.

    For what cannot be told from half of it. Files that never rest are read after some
    seconds as they are.

    Args:
        paths: The files.
        read: Reads them.

    Raises:
        TopicsError: As `settled`.
    """
    named = tuple(paths)
    deadline = time.monotonic() + _SETTLED_S
    while time.monotonic() < deadline and _are_fresh(named, _RESTING_S):
        time.sleep(_PAUSE_S)
    return settled(named, read)


def _are_fresh(paths: Iterable[str], limit_s: float) -> bool:
    return any(_is_fresh(path, limit_s) for path in paths)


def _is_fresh(path: str, limit_s: float) -> bool:
    now = time.time()
    with contextlib.suppress(OSError, ValueError):
        # Of a file that was made elsewhere and renamed, only the second is new; of a
        # link, that of itself.
        for stat in (os.stat(path), os.lstat(path)):
            if abs(now - max(stat.st_mtime, stat.st_ctime)) < limit_s:
                return True
    return False
