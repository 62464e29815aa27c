# SPDX-License-Identifier: Apache-2.0
"""Build the kernel of tubemq-spark; see kernel_build.py."""

import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).parent))  # which an isolated build leaves out

from kernel_build import kernel

MODULES = (
    "tubemq_spark.loops.chunks",
    "tubemq_spark.loops.messages",
)

setup(**kernel(MODULES, include=["include"]))
