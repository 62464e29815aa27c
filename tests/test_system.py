# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.system`: every logger is one that is set up."""

from __future__ import annotations

import re
from pathlib import Path

import pulsar_spark
import spark_topics
from spark_topics.logs import ROOMS
from tests.support.products import PRODUCTS, SIBLINGS

_NAME = re.compile(r"getLogger\(([^)]*)\)")
_ROOM = re.compile(r"\.logger\(\"(\w+)\"\)")


def test_every_logger_is_set_up() -> None:
    """A part of a package that gets its first logger is added to the list."""
    texts = [
        path.read_text()
        for root in (pulsar_spark, spark_topics)
        for path in Path(root.__file__ or "").parent.rglob("*.py")
        if path.name != "logs.py"
    ]
    texts += [
        path.read_text()
        for package, sibling in SIBLINGS.items()
        for path in (sibling.folder / package).rglob("*.py")
    ]
    rooms = {room for text in texts for room in _ROOM.findall(text)}
    packages = "|".join(PRODUCTS)
    for text in texts:
        for name in _NAME.findall(text):
            if name == '"ydb.connection"':
                continue  # of another library, whose lines are kept back
            match = re.fullmatch(rf'"(?:{packages})\.(\w+)"', name)
            assert match or name.startswith("f"), name  # of `System.logger`
            if match:
                rooms.add(match[1])
    assert rooms == set(ROOMS)
