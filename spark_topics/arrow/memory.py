# SPDX-License-Identifier: Apache-2.0
"""Room for a large message: what allocators keep for later goes back to the system."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

import pyarrow as pa


def release_unused() -> None:
    """Return freed memory to the system: Arrow's, and that of the C library.

    Both keep some of it, which makes small allocations fast. Next to a large message it
    counts: Arrow keeps tens of MiB, and so does glibc: once blocks of some MiB have
    been freed, it leaves up to 64 MiB at the end of its heap.

    This takes up to 20 ms, and anyone who allocates next waits for the system again.
    """
    pa.default_memory_pool().release_unused()
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    """Return glibc's function, None where there is another C library."""
    if sys.platform != "linux":
        return None
    try:
        import ctypes
    except ImportError:  # Python can be built without it
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
