# SPDX-License-Identifier: Apache-2.0
"""Every option known, and Spark's map of strings read by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulsar_spark.options.client import ClientOptions
from pulsar_spark.options.given import Given, KnownOptions
from pulsar_spark.options.read import ReadOptions, read_options
from pulsar_spark.options.spec import OptionSpec, Scope, specs_of
from pulsar_spark.options.unsupported import ADMIN_PREFIX, UNSUPPORTED
from pulsar_spark.options.write import OF_SPARK, WriteOptions, write_options

_service_url, *_limits = specs_of(ClientOptions)

#: Every option known, in the order of the documents.
OPTIONS: tuple[OptionSpec[Any], ...] = (
    _service_url,
    *specs_of(ReadOptions, WriteOptions),
    *OF_SPARK,
    *_limits,
    *UNSUPPORTED,
)

_KNOWN = KnownOptions(OPTIONS, ignored_prefix=ADMIN_PREFIX)


def parse_read_options(
    options: Mapping[str, str], *, streaming: bool = False, quiet: bool = False
) -> ReadOptions:
    """Read and check the options of a read.

    Args:
        options: The map that Spark hands over; keys in any case.
        streaming: Whether the read is a stream. It starts at latest by default.
        quiet: Whether to say nothing of options that have no effect.

    Raises:
        OptionError: With every problem found.
    """
    given = Given(options, _KNOWN, Scope.STREAM if streaming else Scope.BATCH)
    read = read_options(given)
    given.finish(quiet=quiet)
    return read


def parse_write_options(
    options: Mapping[str, str], *, streaming: bool, quiet: bool = False
) -> WriteOptions:
    """Read and check the options of a write.

    Args:
        options: The map that Spark hands over; keys in any case.
        streaming: Whether the write is a stream.
        quiet: Whether to say nothing of options that have no effect.

    Raises:
        OptionError: With every problem found.
    """
    use = Scope.STREAM_WRITE if streaming else Scope.BATCH_WRITE
    given = Given(options, _KNOWN, use)
    write = write_options(given)
    given.finish(quiet=quiet)
    return write
