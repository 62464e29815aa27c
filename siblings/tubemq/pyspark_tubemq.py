# SPDX-License-Identifier: Apache-2.0
"""Spark finds data sources in modules named ``pyspark_*`` and registers them itself.

An error of such a module would end Spark's search for all other sources, too.
"""

import logging

try:
    from tubemq_spark import TubeMQDataSource as DefaultSource
except Exception as error:
    logging.getLogger("tubemq_spark").warning(
        'format("tubemq") is not registered: tubemq_spark cannot be imported (%s: %s).',
        type(error).__name__,
        error,
    )
else:
    __all__ = ["DefaultSource"]
