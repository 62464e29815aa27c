# SPDX-License-Identifier: Apache-2.0
"""Settings as tasks have them where the options say nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pulsar_spark.client.entry_reader import ReaderSettings
from pulsar_spark.options import ClientOptions, ReadOptions, ServiceUrl
from pulsar_spark.source.task import range_settings


def reader_settings(**changed: Any) -> ReaderSettings:
    """Return how a read with default options reads, but for some settings."""
    options = ReadOptions(ClientOptions(ServiceUrl("pulsar", ())))
    return replace(range_settings(options).reader, **changed)
