# SPDX-License-Identifier: Apache-2.0
"""Options about the meaning of values, alike for reads and writes."""

from __future__ import annotations

from pulsar_spark.errors import OptionError
from spark_topics.options.spec import OptionSpec, Scope
from spark_topics.options.values import word


def _time_zone(text: str, option: str) -> str:
    """Read the name of a time zone that this machine knows."""
    name = text.strip()
    if name.upper() == "UTC":
        return "UTC"  # machines without any zones know it, too
    import zoneinfo  # seldom needed

    try:
        zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise OptionError(
            f"{option} must be a time zone such as UTC or Europe/Berlin, not {text!r}."
        ) from None
    return name


JSON_BYTES = OptionSpec(
    "jsonBytes",
    None,
    word("base64", "utf8"),
    Scope.CLIENT,
    "How values in JSON hold bytes: `base64`, as Java's client writes them, or `utf8`,"
    " as Python's. Without this option a read takes `base64`, and a write does what the"
    " schema says, or asks for the option: see [Whose JSON](writing.md#whose-json).",
)

TIME_ZONE = OptionSpec(
    "timeZone",
    "UTC",
    _time_zone,
    Scope.CLIENT,
    "Zone in which a moment of the schema DATE has its day and of TIME its time of day."
    " A write begins the day there, and has times on 1970-01-01 there.",
)
