# SPDX-License-Identifier: Apache-2.0
"""Spark finds data sources in modules named ``pyspark_*`` and registers them itself."""

from tubemq_spark import TubeMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
