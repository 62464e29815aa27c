# SPDX-License-Identifier: Apache-2.0
"""Memory that is filled in place, of the process itself."""

from __future__ import annotations


def new_bytes(size: int) -> memoryview:
    """Return ``size`` bytes of new memory."""
    return memoryview(bytearray(size))
