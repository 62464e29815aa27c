# SPDX-License-Identifier: Apache-2.0
"""Bodies of answers by HTTP, read with a limit of size and of time."""

from __future__ import annotations

import time
from typing import Any

_PIECE_BYTES = 1 << 20


def read_body(reply: Any, limit_bytes: int, deadline: float) -> bytes:
    """Return the body of an answer.

    Args:
        reply: What ``urllib`` has opened.
        limit_bytes: It has fewer bytes than that.
        deadline: When it has to be there, by ``time.monotonic``.

    Raises:
        ValueError: It has as many bytes as the limit, or more.
        TimeoutError: It takes too long, however steadily it drips.
        OSError: Reading fails, as for the next.
        http.client.HTTPException: What comes is no answer.
    """
    parts, left = [], limit_bytes
    while chunk := reply.read1(min(left, _PIECE_BYTES)):
        parts.append(chunk)
        left -= len(chunk)
        if left <= 0:
            raise ValueError("it is too long")
        if time.monotonic() > deadline:
            raise TimeoutError
    return b"".join(parts)
