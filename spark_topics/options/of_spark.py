# SPDX-License-Identifier: Apache-2.0
"""Spark's own options, which Spark hands to a stream's sink as well."""

from __future__ import annotations

from spark_topics.options.spec import OptionSpec, Scope
from spark_topics.options.values import plain_text

CHECKPOINT_LOCATION = OptionSpec(
    "checkpointLocation",
    None,
    plain_text,
    Scope.STREAM_WRITE,
    "Spark's own: where a stream keeps how far it is.",
)

QUERY_NAME = OptionSpec(
    "queryName",
    None,
    plain_text,
    Scope.STREAM_WRITE,
    "Spark's own, which `queryName(...)` sets. It changes no row.",
)

OF_SPARK = (CHECKPOINT_LOCATION, QUERY_NAME)
