# SPDX-License-Identifier: Apache-2.0
"""JSON web tokens (RFC 7519), signed by a key that a broker knows."""

from __future__ import annotations

import base64
import hmac
import json
import time
from typing import Any


class Signer:
    """Makes tokens.

    Args:
        key: What they are signed with, 32 bytes.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    @property
    def setting(self) -> str:
        """The key as the broker's ``tokenSecretKey``."""
        return f"data:;base64,{base64.b64encode(self._key).decode()}"

    def token(self, role: str, life_s: float | None = None, **claims: Any) -> str:
        """Return a token.

        Args:
            role: Its subject.
            life_s: Seconds until it expires; None for never, below 0 for long ago.
            claims: Others that it makes.
        """
        now = time.time()
        claims = {"sub": role, "iat": int(now), **claims}
        if life_s is not None:
            claims["exp"] = int(now + life_s)
        parts = [_part({"alg": "HS256", "typ": "JWT"}), _part(claims)]
        signature = hmac.digest(self._key, ".".join(parts).encode(), "sha256")
        return ".".join([*parts, _base64(signature)])


def _part(value: dict[str, Any]) -> str:
    return _base64(json.dumps(value).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
