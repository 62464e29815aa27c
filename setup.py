# SPDX-License-Identifier: Apache-2.0
"""Build the kernel of pulsar-spark; see kernel_build.py."""

import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).parent))  # which an isolated build leaves out

from kernel_build import kernel

#: ``pulsar_spark.kernel`` tells the form of all: all are compiled, or none.
MODULES = (
    "pulsar_spark.loops.avro",
    "pulsar_spark.loops.avro_write",
    "pulsar_spark.loops.deliveries",
    "pulsar_spark.loops.digests",
    "pulsar_spark.loops.json_values",
    "pulsar_spark.loops.messages",
    "pulsar_spark.loops.protobuf_values",
    "pulsar_spark.loops.requests",
    "pulsar_spark.loops.sends",
)

setup(**kernel(MODULES))
