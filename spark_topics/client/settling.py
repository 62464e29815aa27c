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

#: Where a file was taken away another may come for so long, in seconds. In folders such
#: as /tmp files come and go all the time.
_GONE_S = 2.0

#: Files whose times differ no more from now, in seconds, may be changing. A file server
#: may have another time than this process.
_DOUBTFUL_S = 10.0


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

    For what cannot be told from half of it. The moment passes by the clock of this
    process, and no file may change before the files are read. A file that has just been
    taken away, for another to come, is waited for.

    Args:
        paths: The files.
        read: Reads them.

    Raises:
        TopicsError: Of ``read``: the files rest for longer, or are gone.
        TimeoutError: A file has changed for too long, also where the file could not be
            read between two changes; the message is its path.
    """
    named = tuple(paths)
    began = since = time.monotonic()
    watched, restless = _stamps(named), named
    while True:
        now = time.monotonic()
        is_late = now - began > _SETTLED_S
        if now - since >= _RESTING_S or not _are_fresh(named, _DOUBTFUL_S):
            try:
                made = read()
            except TopicsError:
                may_come = now - began < _GONE_S and any(map(_is_gone, named))
                may_change = may_come or _are_fresh(named, _SETTLED_S)
                if not may_change and _stamps(named) == watched:
                    raise
            else:
                if _stamps(named) == watched:
                    return made
        if is_late:
            raise TimeoutError(restless[0])
        time.sleep(_PAUSE_S)
        stamps = _stamps(named)
        if stamps != watched:
            restless = tuple(path for path in named if stamps[path] != watched[path])
            watched, since = stamps, time.monotonic()


def _stamps(paths: Iterable[str]) -> dict[str, list[tuple[int, int, int]]]:
    """Return what differs when files change, by path.

    Not their inode numbers: some file systems have others at each look.
    """
    return {
        path: [
            (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for stat in _stats(path)
        ]
        for path in paths
    }


def _stats(path: str) -> list[os.stat_result]:
    """Return the state of a file, and of a link to the file."""
    with contextlib.suppress(OSError, ValueError):
        return [os.stat(path), os.lstat(path)]
    return []


def _are_fresh(paths: Iterable[str], limit_s: float) -> bool:
    return any(_is_fresh(path, limit_s) for path in paths)


def _is_fresh(path: str, limit_s: float) -> bool:
    now = time.time()
    # Of a file that was made elsewhere and renamed, only the second time is new.
    return any(
        abs(now - max(stat.st_mtime, stat.st_ctime)) < limit_s for stat in _stats(path)
    )


def _is_gone(path: str) -> bool:
    """Return whether a file may have been there just now: its folder has changed."""
    return not _stats(path) and _is_fresh(os.path.dirname(path) or ".", _GONE_S)
