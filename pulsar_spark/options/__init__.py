"""Spark's options, read once into frozen values; the one table of every option known.

Spark hands over a map of strings with lower-cased keys. Names are therefore compared
without regard to case, and to dots, too: ``service.url`` and ``serviceUrl`` are one.
All problems are reported together, so that nobody mends them one run at a time.

No value of an option that may hold a secret is ever kept, printed or logged.
"""

from pulsar_spark.options.model import (
    DEFAULT_PORT,
    METADATA_COLUMNS_ALL,
    METADATA_COLUMNS_DEFAULT,
    ClientOptions,
    DeliveryGuarantee,
    FilterPushdown,
    ReadOptions,
    WriteOptions,
)
from pulsar_spark.options.parse import parse_read_options, parse_write_options
from pulsar_spark.options.table import (
    OPTIONS,
    OptionSpec,
    Scope,
    Support,
    options_table_markdown,
)

__all__ = [
    "DEFAULT_PORT",
    "METADATA_COLUMNS_ALL",
    "METADATA_COLUMNS_DEFAULT",
    "OPTIONS",
    "ClientOptions",
    "DeliveryGuarantee",
    "FilterPushdown",
    "OptionSpec",
    "ReadOptions",
    "Scope",
    "Support",
    "WriteOptions",
    "options_table_markdown",
    "parse_read_options",
    "parse_write_options",
]
