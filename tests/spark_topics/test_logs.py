# SPDX-License-Identifier: Apache-2.0
"""Tests of `spark_topics.logs`: what others may not do to a log."""

from __future__ import annotations

import logging

import pytest

from spark_topics import logs
from spark_topics.logs import protect_loggers

LOGGERS = ("numbers_spark.source", "numbers_spark.sink")


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
