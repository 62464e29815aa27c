# SPDX-License-Identifier: Apache-2.0
"""As ``pyspark_pulsar``, by a name that no source of the JVM has: ``pulsar-py``."""

from pulsar_spark import PulsarPyDataSource as DefaultSource

__all__ = ["DefaultSource"]
