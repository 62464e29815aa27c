# SPDX-License-Identifier: Apache-2.0
"""Spark's map of options becomes frozen values, with every problem named at once."""

from tubemq_spark.options.client import ClientOptions
from tubemq_spark.options.parse import parse_read_options, parse_write_options
from tubemq_spark.options.read import ReadOptions
from tubemq_spark.options.write import WriteOptions

__all__ = [
    "ClientOptions",
    "ReadOptions",
    "WriteOptions",
    "parse_read_options",
    "parse_write_options",
]
