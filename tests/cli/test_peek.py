# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.cli.peek`: the last messages, decoded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.scripted_broker import LEDGER, ScriptedBroker, batch, single

if TYPE_CHECKING:
    from tests.cli.conftest import Run

T = "persistent://public/default/t"


@pytest.mark.parametrize("count", [1, 2, 5, 1000])
def test_the_last_ones(scripted: ScriptedBroker, run: Run, count: int) -> None:
    """Also out of the middle of a batch, and all where there are fewer."""
    scripted.add_topic(T, [single(b"0"), batch([b"1", b"2"]), batch([b"3", b"4"])])
    given = ("-o", f"service.url={scripted.url}", "-o", "topic=t")
    code, printed = run("peek", *given, "-n", str(count), "--json")
    assert code == 0
    values = [row["value"] for row in json.loads(printed)]
    assert values == ["0", "1", "2", "3", "4"][-count:]
    assert not scripted.durable(T)


def test_table(scripted: ScriptedBroker, run: Run) -> None:
    """Text is shown as text, other bytes as digits, and nothing controls a terminal."""
    long = b"x" * 1000
    messages = [b"caf\xc3\xa9", b"\xff\x00", b"a\x1b[2J", long]
    scripted.add_topic(T, [single(message) for message in messages])
    given = ("-o", f"service.url={scripted.url}", "-o", "topic=t")
    code, printed = run("peek", *given)
    assert code == 0
    head, *lines = printed.splitlines()
    assert head.split() == ["__position", "__publishTime", "__key", "value"]
    shown = [line.split()[-1] for line in lines]
    assert shown[:3] == ["caf\u00e9", "0xff00", "0x611b5b324a"]
    assert shown[3] == "x" * 57 + "..."
    assert [line.split()[0] for line in lines] == [f"{LEDGER}:{n}" for n in range(4)]


def test_nothing(scripted: ScriptedBroker, run: Run) -> None:
    """A topic without messages is no mistake; a wrong number is one."""
    scripted.add_topic(T, [])
    given = ("-o", f"service.url={scripted.url}", "-o", "topic=t")
    assert run("peek", *given) == (0, "No message.\n")
    assert run("peek", *given, "-n", "0")[0] == 2
