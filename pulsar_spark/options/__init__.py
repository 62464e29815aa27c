# SPDX-License-Identifier: Apache-2.0
"""Spark's options, read once into frozen values.

Spark hands over a map of strings with lower-cased keys. Names are therefore compared
without regard to case, and to dots, too: ``service.url`` and ``serviceUrl`` are one.

To add an option, declare it as a field of `ReadOptions`, `WriteOptions` or
`ClientOptions`. Its name, default, parser and meaning stand there and nowhere else;
errors and documents follow from them.
"""

from pulsar_spark.columns import METADATA_COLUMNS_ALL, METADATA_COLUMNS_DEFAULT
from pulsar_spark.options.client import ClientOptions
from pulsar_spark.options.parse import (
    OPTIONS,
    CommonOptions,
    canonical_name,
    has_option,
    options_table_markdown,
    parse_common_options,
    parse_read_options,
    parse_write_options,
    problems_by_use,
)
from pulsar_spark.options.read import (
    FilterPushdown,
    ReadOptions,
)
from pulsar_spark.options.service_url import ServiceUrl
from pulsar_spark.options.tls import TlsOptions
from pulsar_spark.options.write import DeliveryGuarantee, WriteOptions
from spark_topics.options.spec import OptionSpec, Scope, Support

__all__ = [
    "METADATA_COLUMNS_ALL",
    "METADATA_COLUMNS_DEFAULT",
    "OPTIONS",
    "ClientOptions",
    "CommonOptions",
    "DeliveryGuarantee",
    "FilterPushdown",
    "OptionSpec",
    "ReadOptions",
    "Scope",
    "ServiceUrl",
    "Support",
    "TlsOptions",
    "WriteOptions",
    "canonical_name",
    "has_option",
    "options_table_markdown",
    "parse_common_options",
    "parse_read_options",
    "parse_write_options",
    "problems_by_use",
]
