# SPDX-License-Identifier: Apache-2.0
"""Refuse a system that lacks what the package is built on, before anything else fails.

``pulsar_spark`` imports this module first.
"""

import sys

if sys.platform == "win32":
    raise ImportError(
        "pulsar-spark runs on Linux and macOS: it needs poll and fork, which Windows "
        "does not have. Use the Windows Subsystem for Linux, or install it on the "
        "machines of a Spark cluster and connect to that."
    )
