# SPDX-License-Identifier: Apache-2.0
"""The facts of `spark_topics.releases`, beside what packaging and pages say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spark_topics import releases

ROOT = Path(__file__).parents[2]
PROJECT = (ROOT / "pyproject.toml").read_text()
FIRST, LAST = releases.PYTHONS


def test_pythons() -> None:
    """What pip allows, what the index shows, and what wheels are built for."""
    assert f'requires-python = ">={FIRST}"' in PROJECT
    numbers = range(int(FIRST[2:]), int(LAST[2:]) + 1)
    shown = re.findall(r"Python :: (3\.\d+)", PROJECT)
    assert shown == [f"3.{number}" for number in numbers]
    built = ", ".join(f'"cp3{number}-*"' for number in numbers)
    assert f"build = [{built}]" in PROJECT


def test_spark() -> None:
    """The first release that pip takes, with the extra."""
    assert f'"pyspark>={releases.text(releases.SPARK)}"' in PROJECT


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("README.md", f"Python {FIRST} to {LAST}, Spark {{SPARK}} or newer"),
        ("README.md", "(limits of streams: {SPARK_WITH_LIMITS})"),
        ("docs/limits.md", f"Python {FIRST} to {LAST}, Spark {{SPARK}} or newer"),
        (
            "docs/limits.md",
            "tests run with Pulsar {TESTED_PULSAR} and Spark {TESTED_SPARK}",
        ),
        ("docs/compatibility.md", f"Python {FIRST} to {LAST} and Spark {{SPARK}} or"),
        ("docs/streaming.md", "Before Spark {SPARK_WITH_LIMITS}"),
    ],
)
def test_pages(page: str, sentence: str) -> None:
    """They name the same releases."""
    facts = {
        name: releases.text(value)
        for name, value in vars(releases).items()
        if isinstance(value, tuple) and isinstance(value[0], int)
    }
    text = " ".join((ROOT / page).read_text().split())
    assert sentence.format(**facts) in text


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("4.0.1", (4, 0)),
        ("10.2", (10, 2)),
        ("4.3.0.dev1", (4, 3)),
        ("4", None),
        ("x.y", None),
    ],
)
def test_parse_release(version: str, release: tuple[int, int] | None) -> None:
    """The first two numbers, compared as numbers."""
    assert releases.parse_release(version) == release
