# SPDX-License-Identifier: Apache-2.0
"""Tests of `spark_topics.logs`: the form of lines, and where they are seen."""

from __future__ import annotations

import itertools
import logging
import re
import sys
from types import SimpleNamespace

import pytest

from spark_topics.logs import ROOMS, set_up

_numbers = itertools.count()


@pytest.fixture
def package() -> str:
    """A package that was never set up."""
    return f"numbers{next(_numbers)}_spark"


def set_up_in(
    monkeypatch: pytest.MonkeyPatch, program: str | None, package: str
) -> None:
    """Set up a package where this module runs, and pytest has no handlers."""
    spec = None if program is None else SimpleNamespace(name=program)
    main = SimpleNamespace(__spec__=spec)
    monkeypatch.setitem(sys.modules, "__main__", main)  # type: ignore[arg-type]
    monkeypatch.setattr(logging.getLogger(package), "propagate", False)
    set_up(package)
    set_up(package)  # again, which changes nothing


@pytest.mark.parametrize("room", ROOMS)
def test_a_name_of_others_stays_in_its_line(
    room: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic may be called what its creator likes."""
    set_up("numbers_spark")
    name = f"numbers_spark.{room}"
    topic = "persistent://public/default/t\n2026-01-01 ERROR \x1b[2J forged"
    with caplog.at_level(logging.WARNING, name):
        logging.getLogger(name).warning("%s: lost 100 %% of it", topic)
        logging.getLogger(name).warning("plain %d", 7)
    forged = r"persistent://public/default/t\n2026-01-01 ERROR \x1b[2J forged"
    assert caplog.messages == [f"{forged}: lost 100 % of it", "plain 7"]


@pytest.mark.parametrize("room", ROOMS)
def test_a_program_that_sets_up_nothing(
    package: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    room: str,
) -> None:
    """A warning has time, level and logger; what is of less weight is not seen."""
    set_up_in(monkeypatch, "job", package)
    logger = logging.getLogger(f"{package}.{room}")
    logger.info("read")
    logger.warning("lost")
    printed = capsys.readouterr().err
    line = rf"\d\d/\d\d/\d\d \d\d:\d\d:\d\d WARN {package}\.{room}: lost\n"
    assert re.fullmatch(line, printed)


@pytest.mark.parametrize(
    ("program", "is_shown"),
    [
        ("pyspark.daemon", True),
        ("pyspark.worker", True),
        ("pyspark.sql.streaming.python_streaming_sink_runner", True),
        ("pytest.__main__", False),
        ("job", False),
        (None, False),
    ],
)
def test_processes_of_spark_show_more(
    package: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    program: str | None,
    *,
    is_shown: bool,
) -> None:
    """There nobody sets up logging, and Spark passes on what is printed."""
    set_up_in(monkeypatch, program, package)
    logging.getLogger(f"{package}.source").info("plan: 3 rows")
    printed = capsys.readouterr().err
    assert (f"INFO {package}.source: plan: 3 rows" in printed) == is_shown


@pytest.mark.parametrize("where", ["root", "parent", "logger"])
def test_a_program_with_handlers_decides_alone(
    package: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    where: str,
) -> None:
    """No line is printed twice, wherever the program has its handler."""
    set_up_in(monkeypatch, "pyspark.daemon", package)
    logger = logging.getLogger(f"{package}.sink")
    places = {"root": "", "parent": package, "logger": logger.name}
    logging.getLogger(package).propagate = where == "root"
    handler = logging.StreamHandler(sys.stdout)
    of_program = logging.getLogger(places[where])
    of_program.addHandler(handler)
    try:
        logger.warning("lost")
    finally:
        of_program.removeHandler(handler)
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("lost\n", "")


def test_a_level_that_was_set(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stays, in processes of Spark as well."""
    logging.getLogger(package).setLevel(logging.ERROR)
    set_up_in(monkeypatch, "pyspark.daemon", package)
    logging.getLogger(f"{package}.sink").warning("lost")
    assert capsys.readouterr().err == ""
