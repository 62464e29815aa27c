# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.system`: the list of loggers is whole."""

from __future__ import annotations

import re
from pathlib import Path

import pulsar_spark
import spark_topics
from pulsar_spark.system import LOGGERS

_NAME = re.compile(r"getLogger\((.*)\)")
_ROOM = re.compile(r"\.logger\(\"(\w+)\"\)")


def test_every_logger_of_the_package_is_protected() -> None:
    """One that is added is added to the list."""
    root = Path(pulsar_spark.__file__).parent
    names = {
        name for path in root.rglob("*.py") for name in _NAME.findall(path.read_text())
    }
    shared = {
        f'"pulsar_spark.{room}"'
        for path in Path(spark_topics.__file__).parent.rglob("*.py")
        for room in _ROOM.findall(path.read_text())
    }
    assert names | shared == {f'"{name}"' for name in LOGGERS}
