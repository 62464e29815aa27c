# SPDX-License-Identifier: Apache-2.0
"""Tests of `spark_topics.logs`: what others may not do to a log."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

import pulsar_spark
import spark_topics
from pulsar_spark.system import LOGGERS
from spark_topics import logs
from spark_topics.logs import protect_loggers

_NAME = re.compile(r"getLogger\((.*)\)")
_ROOM = re.compile(r"\.logger\(\"(\w+)\"\)")


@pytest.mark.parametrize("name", [*LOGGERS, *logs.LOGGERS])
def test_a_name_of_others_stays_in_its_line(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic may be called what its creator likes."""
    protect_loggers(LOGGERS)  # again, which changes nothing
    topic = "persistent://public/default/t\n2026-01-01 ERROR \x1b[2J forged"
    with caplog.at_level(logging.WARNING, name):
        logging.getLogger(name).warning("%s: lost 100 %% of it", topic)
        logging.getLogger(name).warning("plain %d", 7)
    forged = r"persistent://public/default/t\n2026-01-01 ERROR \x1b[2J forged"
    assert caplog.messages == [f"{forged}: lost 100 % of it", "plain 7"]


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
