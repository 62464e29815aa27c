# SPDX-License-Identifier: Apache-2.0
"""Settings as tasks have them where the options say nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pulsar_spark.client.entry_reader import ReaderSettings
from pulsar_spark.options import ClientOptions, ReadOptions, ServiceUrl
from pulsar_spark.source.read import task
from pulsar_spark.source.read.range_reader import RangeSettings


def range_settings(
    reader: ReaderSettings | None = None, **changed: Any
) -> RangeSettings:
    """Return how a read with default options reads a range, but for some settings."""
    options = ReadOptions(ClientOptions(ServiceUrl("pulsar", ())))
    settings = task.range_settings(options)
    return replace(settings, reader=reader or settings.reader, **changed)


def reader_settings(**changed: Any) -> ReaderSettings:
    """Return how it reads the entries of one, but for some settings."""
    return replace(range_settings().reader, **changed)
