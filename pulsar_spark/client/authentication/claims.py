# SPDX-License-Identifier: Apache-2.0
"""Claims of a JSON web token (RFC 7519), unverified: verifying is the broker's part."""

from __future__ import annotations

import base64
import binascii
import json
from datetime import datetime, timezone
from typing import Any

from pulsar_spark.errors import foreign_text


def claims(token: str) -> dict[str, Any]:
    """Return the claims of a token, empty for other kinds of tokens."""
    try:
        _, payload, _ = token.split(".")
        padded = payload + "=" * (-len(payload) % 4)
        fields = json.loads(base64.b64decode(padded, b"-_", validate=True))
    except (ValueError, RecursionError, binascii.Error):
        return {}
    return fields if isinstance(fields, dict) else {}


def subject(token: str) -> str:
    """Return the subject of a token, usually the role, in printable form."""
    named = claims(token).get("sub")
    return foreign_text(named, 100) if isinstance(named, str) else ""


def lifetime_s(token: str) -> float | None:
    """Return the life of a token in seconds, None if the token does not say."""
    fields = claims(token)
    begin, end = fields.get("iat"), fields.get("exp")
    if not all(
        isinstance(time_s, (int, float)) and not isinstance(time_s, bool)
        for time_s in (begin, end)
    ):
        return None
    try:
        life_s = float(end - begin)  # type: ignore[operator]
    except OverflowError:  # numbers of JSON may have hundreds of digits
        return None
    return life_s if life_s < float("inf") else None  # nor NaN, which JSON may have


def expired(token: str, now: float, place: str) -> str:
    """Return the sentence that a token has expired, "" if not expired.

    Args:
        token: It; never shown.
        now: Seconds since 1970, by this machine's clock.
        place: The origin, as the sentence has it.
    """
    end = claims(token).get("exp")
    if isinstance(end, bool) or not isinstance(end, (int, float)):
        return ""
    if not 0 < end < now:
        return ""
    role = subject(token)
    whose = f" of the role {role!r}" if role else ""
    ended = datetime.fromtimestamp(end, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"The token{whose} {place} expired at {ended}: renew it."
