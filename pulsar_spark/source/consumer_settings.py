# SPDX-License-Identifier: Apache-2.0
"""The options of a read that go into SUBSCRIBE, of tasks and of subscriptions alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulsar_spark.wire.commands import ConsumerSettings

if TYPE_CHECKING:
    from pulsar_spark.options import ReadOptions


def consumer_settings(options: ReadOptions) -> ConsumerSettings:
    """Return the fields of SUBSCRIBE that these options set."""
    return ConsumerSettings(
        read_compacted=options.read_compacted, properties=options.consumer_properties
    )
