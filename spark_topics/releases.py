# SPDX-License-Identifier: Apache-2.0
"""Which releases of Python and Spark this package runs with, and what each lacks.

Errors and the command ``doctor`` read these facts here. Tests compare them with
``pyproject.toml`` and with the pages that name them.
"""

from __future__ import annotations

#: The first and the last Python that all tests passed with.
PYTHONS = ("3.10", "3.13")

#: The first Spark.
SPARK = (4, 0)
#: The first Spark whose Python sources see the filters of a query.
SPARK_WITH_FILTERS = (4, 1)
#: The first Spark whose Python sources may limit micro-batches.
SPARK_WITH_LIMITS = (4, 2)

#: The release that all tests run with.
TESTED_SPARK = (4, 3)
TESTED_PULSAR = (4, 0, 7)

#: The first JDK, for Spark and for a broker of Pulsar.
JAVA = 17


def text(release: tuple[int, ...]) -> str:
    """Return a release in the usual notation, such as ``4.2``."""
    return ".".join(map(str, release))


def parse_release(version: str) -> tuple[int, int] | None:
    """Return the first two numbers of a version, None if there are none."""
    parts = version.split(".")[:2]
    if len(parts) < 2 or not all(part.isdecimal() for part in parts):
        return None
    return int(parts[0]), int(parts[1])
