# SPDX-License-Identifier: Apache-2.0
"""Files that are just being renewed: what is wrong with them is looked at again.

A certificate may be there before its key, and a token half written.
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


def settled(paths: Iterable[str], read: Callable[[], T]) -> T:
    """Return what is read, again while it fails and one of the files has just changed.

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
            if time.monotonic() > deadline or not any(map(_is_fresh, named)):
                raise
        time.sleep(_PAUSE_S)


def _is_fresh(path: str) -> bool:
    now = time.time()
    with contextlib.suppress(OSError, ValueError):
        # Of a file that was made elsewhere and renamed, only the second is new; of a
        # link, that of itself.
        for stat in (os.stat(path), os.lstat(path)):
            if abs(now - max(stat.st_mtime, stat.st_ctime)) < _SETTLED_S:
                return True
    return False
