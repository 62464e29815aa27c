# SPDX-License-Identifier: Apache-2.0
"""How the text of an option becomes a time."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from spark_topics.text import shorten

_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?"
    r"(?: ?([Zz]|[-+][0-9]{2}(?::?[0-9]{2})?))?)?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# The last millisecond that a datetime can hold, and so what Spark can show.
_MAX_TIME_MS = 253402300799999

# As milliseconds they are in the January to April of 1970, as seconds from 2001 on.
_LOOKS_LIKE_SECONDS = range(10**9, 10**10)


def parse_time(value: object) -> int:
    """Return milliseconds since 1970 UTC.

    Args:
        value: These as they are; or text of them, or of ISO-8601, which is UTC if it
            names no zone, and whose digits below a millisecond are cut off.

    Raises:
        ValueError: It is none, or none that a row can hold, or a number of seconds.
    """
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value.strip()):
        value = int(value)
    if isinstance(value, str):
        time_ms = _parse_iso(value.strip())
    elif isinstance(value, int) and not isinstance(value, bool):
        time_ms = value
        if time_ms in _LOOKS_LIKE_SECONDS:
            moment = _EPOCH + timedelta(milliseconds=time_ms)
            raise ValueError(
                f"{time_ms} is {moment:%Y-%m-%dT%H:%M:%SZ}, since times are"
                f" milliseconds: for seconds write {time_ms}000"
            )
    else:
        raise ValueError(f"{shorten(value)} is not a time")
    if not 0 <= time_ms <= _MAX_TIME_MS:
        raise ValueError(f"{shorten(value)} is not a time between 1970 and 9999")
    return time_ms


def _parse_iso(text: str) -> int:
    # Not datetime.fromisoformat: before Python 3.11 it knows neither "Z" nor every
    # length of a fraction.
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{shorten(text)} is not a time")
    date = [int(match[i] or 0) for i in range(1, 7)]
    micros = int((match[7] or "").ljust(6, "0")[:6])
    try:
        moment = datetime(
            date[0],
            date[1],
            date[2],
            date[3],
            date[4],
            date[5],
            micros,
            tzinfo=_zone(match[8] or "Z"),
        )
        return (moment - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{shorten(text)} is not a time: {error}") from None


def _zone(text: str) -> timezone:
    if text in "Zz":
        return timezone.utc
    hours, minutes = int(text[1:3]), int(text[3:].lstrip(":") or 0)
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text[0] == "-" else offset)
