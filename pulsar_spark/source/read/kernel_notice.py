# SPDX-License-Identifier: Apache-2.0
"""Warn that reads are slow if no C compiler was there to build the kernel.

pip hides what is built while it installs, so the first read says it.
"""

from __future__ import annotations

import os

from pulsar_spark.loops.messages import KERNEL
from pulsar_spark.system import warn_once

_TEXT = (
    "Reads are slow here: the loop over messages runs as Python, not as C "
    '(pulsar_spark.kernel is "python"), and takes 2 to 3 us a message instead of '
    "0.03 us. No C compiler was there when pulsar-spark was built. Where there are one "
    "and the headers of this Python, install the clone or the source archive again, by "
    "its path: python -m pip install --no-cache-dir --force-reinstall --no-deps . "
    "PULSAR_SPARK_KERNEL=python in the environment says that it is meant to be so, and "
    "silences this line."
)


def warn_of_slow_kernel() -> None:
    """Warn once in a process whose kernel is not compiled, unless that was asked for.

    On the driver and on executors: each has its own installation.
    """
    if KERNEL == "python" and os.environ.get("PULSAR_SPARK_KERNEL") != "python":
        warn_once(_TEXT)
