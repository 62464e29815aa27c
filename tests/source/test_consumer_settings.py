# SPDX-License-Identifier: Apache-2.0
"""The options of a read that go into SUBSCRIBE."""

from __future__ import annotations

from dataclasses import fields

from pulsar_spark.options import parse_read_options
from pulsar_spark.source.consumer_settings import consumer_settings
from pulsar_spark.source.read.task import range_settings
from pulsar_spark.wire.commands import ConsumerSettings

GIVEN = {
    "service.url": "pulsar://localhost:6650",
    "topic": "t",
    "pulsar.reader.readCompacted": "true",
    "pulsar.consumer.properties": '{"team": "a"}',
}


def test_each_field_comes_from_an_option():
    """No field keeps its default, so a new one needs its option here."""
    settings = consumer_settings(parse_read_options(GIVEN))
    default = ConsumerSettings()
    for field in fields(ConsumerSettings):
        assert getattr(settings, field.name) != getattr(default, field.name)


def test_tasks_read_with_them():
    """The readers of a task get all of them."""
    options = parse_read_options(GIVEN)
    assert range_settings(options).reader.consumer == consumer_settings(options)
