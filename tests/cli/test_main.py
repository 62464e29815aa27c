# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.cli.main`, and of what all commands share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pulsar_spark import __version__
from pulsar_spark.cli import output

if TYPE_CHECKING:
    from tests.cli.conftest import Run

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "command",
    ["doctor", "plan", "peek", "checkpoint", "lag", "subscriptions", "transactions"],
)
def test_help(run: Run, command: str) -> None:
    """Each command says how it is used, with an example that begins with it."""
    code, printed = run(command, "--help")
    assert code == 0
    assert "example" in printed
    assert f"\n  pulsar-spark {command} " in printed
    assert "exit codes" in printed


@pytest.mark.parametrize("arguments", [(), ("no-such-command",), ("doctor", "--no")])
def test_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    """It ends with 2."""
    code, printed = run(*arguments)
    assert code == 2
    assert "usage:" in printed


@pytest.mark.parametrize("command", ["doctor", "peek", "plan"])
def test_a_topic_by_position(run: Run, command: str) -> None:
    """The usage is that of the command, and the error says how topics are given."""
    code, printed = run(command, "public/default/t")
    assert code == 2
    assert f"usage: pulsar-spark {command} " in printed
    assert "a topic is given as -o topic=NAME" in printed


def test_words_that_a_space_has_cut_off(run: Run) -> None:
    """They may be a secret's: they are not shown, and a switch that is unknown is."""
    given = "pulsar.client.authParams=token:"
    code, printed = run("doctor", "--what", "-o", given, "very-secret")
    assert code == 2
    assert "--what" in printed
    assert "very-secret" not in printed
    assert "-o topic=NAME" in printed


def test_as_a_module() -> None:
    """``python -m pulsar_spark`` is the same, and imports no picture's library."""
    command = [sys.executable, "-X", "importtime", "-m", "pulsar_spark", "--version"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == __version__
    assert "matplotlib" not in done.stderr


def test_table() -> None:
    """Numbers stand to the right, and what is not known is a dash."""
    text = output.table(["A", "NUMBER"], [["a", 1234567], ["bb", None], ["c", 5]])
    assert text.splitlines() == [
        "A      NUMBER",
        "a   1,234,567",
        "bb          -",
        "c           5",
    ]


def test_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    """Names of others do not control a terminal."""
    output.say("a\x1b[31mb\nc")
    assert capsys.readouterr().out == "a\\x1b[31mb\nc\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (1023, "1,023 B"),
        (1536, "1.5 KiB"),
        (1 << 44, "16.0 TiB"),
    ],
)
def test_size(value: int | None, text: str) -> None:
    """In units of 1024."""
    assert output.size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (-1.0, "0 s"),
        (119, "119 s"),
        (120, "2 m"),
        (7200, "2 h"),
        (2e6, "23 d"),
    ],
)
def test_age(value: float | None, text: str) -> None:
    """In the unit of which there are two."""
    assert output.age(value) == text


def test_moment() -> None:
    """Also of clocks that say anything."""
    assert output.moment(0) == "1970-01-01T00:00:00Z"
    assert output.moment(2**63) == output.moment(None) == "-"
