# SPDX-License-Identifier: Apache-2.0
"""Parsing of the options that Spark hands over, for reads and for writes.

One set of options often serves a read and a write: each knows those of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from spark_topics.options.given import Given, KnownOptions
from spark_topics.options.offsets import Edge, Offsets, range_problems
from spark_topics.options.spec import Scope
from tubemq_spark.options.client import client_options
from tubemq_spark.options.read import READ_SPECS, ReadOptions
from tubemq_spark.options.write import WRITE_SPECS, WriteOptions
from tubemq_spark.system import SYSTEM

KNOWN = KnownOptions(dict.fromkeys((*READ_SPECS, *WRITE_SPECS)), SYSTEM)


def parse_read_options(
    options: Mapping[str, str], use: Scope, *, quiet: bool = False
) -> ReadOptions:
    """Read the options of a batch or a stream.

    Raises:
        OptionError: With every problem.
    """
    parsed = Given(options, KNOWN, use)
    client = client_options(parsed)
    options_ = parsed.fill(ReadOptions, client=client)
    if "topic" in parsed and "topics" in parsed:
        parsed.problems.append("topic and topics are both given: leave one out.")
    if not options_.topics and "topic" not in parsed and "topics" not in parsed:
        parsed.problems.append("topic is missing: name one, or several by topics.")
    if "startingOffsets" in parsed and "bootstrap.from.max" in parsed:
        parsed.problems.append(
            "startingOffsets and bootstrap.from.max are both given: leave one out."
        )
    for offsets, name in (
        (options_.starting, "startingOffsets"),
        (options_.ending, "endingOffsets"),
    ):
        for partition in offsets.by_partition:
            if options_.topics and partition.topic not in options_.topics:
                parsed.problems.append(
                    f"{name} names the topic {partition.topic!r}, which is not read."
                )
    if use is Scope.BATCH:
        parsed.problems += range_problems(options_.starting, options_.ending)
    if (
        use is Scope.STREAM
        and "startingOffsets" not in parsed
        and ("bootstrap.from.max" not in parsed)
    ):
        options_ = replace(options_, starting=Offsets(Edge.LATEST))
    parsed.finish(quiet=quiet)
    return options_


def parse_write_options(
    options: Mapping[str, str], use: Scope, *, quiet: bool = False
) -> WriteOptions:
    """Read the options of a write.

    Raises:
        OptionError: With every problem.
    """
    parsed = Given(options, KNOWN, use)
    client = client_options(parsed)
    options_ = parsed.fill(WriteOptions, client=client)
    parsed.finish(quiet=quiet)
    return options_
