# SPDX-License-Identifier: Apache-2.0
"""Which Pythons Spark starts, as the environment says."""

from __future__ import annotations

from collections.abc import Mapping


def pythons_of_spark(given: Mapping[str, str]) -> dict[str, str]:
    """Return which Pythons Spark starts, and the reason for each.

    It looks for sources by the one of ``PYSPARK_DRIVER_PYTHON``, if that is set, and
    runs tasks by that of ``PYSPARK_PYTHON``; settings of Spark change neither.
    """
    driver, worker = (
        given.get(name, "") for name in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
    )
    pythons = {driver: "PYSPARK_DRIVER_PYTHON"} if driver else {}
    if worker:
        pythons.setdefault(worker, "PYSPARK_PYTHON")
    else:
        pythons.setdefault("python3", "PYSPARK_PYTHON is not set")
    return pythons
