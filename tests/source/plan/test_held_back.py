# SPDX-License-Identifier: Apache-2.0
"""Whether a broker passes over what is stored, and questions about that which fail."""

from __future__ import annotations

from contextlib import closing
from itertools import product

import pytest

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.positions import PositionLookup
from pulsar_spark.errors import PulsarSparkError
from pulsar_spark.message_id import TxnId
from pulsar_spark.source.plan.held_back import nothing_follows, passes_over
from tests.support import patience
from tests.support.ranged import TOPIC, place
from tests.support.scripted_broker import (
    Action,
    ScriptedBroker,
    StoredFrame,
    client_options,
    cut,
    refuse,
    single,
    usual,
)

#: What follows the first entry of each topic partition.
TAILS = {f"{TOPIC}-partition-{n}": tail for n, tail in enumerate(["aa", "ao", "ap"])}
OPEN, ABORTED = TxnId(0, 1), TxnId(0, 2)
GONE = f"{TOPIC}-partition-9"

DELIVERED = dict.fromkeys((*TAILS, GONE), place(0))
STORED = dict.fromkeys(DELIVERED, place(2))

#: Of the first all is passed over, of the second not; of the third more is delivered.
PASSED = dict(zip(TAILS, (True, False), strict=False))


def entry(kind: str) -> StoredFrame:
    """An entry: plain, or of a transaction that is open or aborted."""
    txn = {"o": OPEN, "a": ABORTED}.get(kind)
    if txn is None:
        return single(b"row")
    return single(b"row", txnid_most_bits=txn.most, txnid_least_bits=txn.least)


@pytest.fixture(autouse=True)
def _topics(scripted: ScriptedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    patience.usual(monkeypatch, hidden_s=0.2)
    scripted.transactions = {OPEN: list(TAILS)}
    scripted.aborted = {ABORTED}
    for name, tail in TAILS.items():
        scripted.add_topic(name, [entry(kind) for kind in f"p{tail}"])


@pytest.mark.parametrize(
    ("command", "trouble"),
    [
        ("FLOW", cut),
        *product(
            ["LOOKUP", "SUBSCRIBE", "GET_LAST_MESSAGE_ID"],
            [refuse("ServiceNotReady"), cut],
        ),
    ],
)
@pytest.mark.parametrize("before", range(6))
def test_a_question_that_fails(
    scripted: ScriptedBroker, command: str, before: int, trouble: Action
) -> None:
    """It is asked again: not to know is no answer."""
    scripted.script(command, *[usual] * before, trouble)
    with closing(ConnectionPool(client_options(scripted.address))) as pool:
        assert passes_over(pool, DELIVERED, STORED) == PASSED
        scripted.script(command, *[usual] * before, trouble)
        over = nothing_follows(pool, PositionLookup(pool), DELIVERED)
    assert over == {name for name, passed in PASSED.items() if passed}


def test_questions_that_go_on_failing(scripted: ScriptedBroker) -> None:
    """The error says for how long they were asked."""
    scripted.always("GET_LAST_MESSAGE_ID", refuse("ServiceNotReady"))
    options = client_options(scripted.address, lookup_timeout_s=0.2)
    with (
        closing(ConnectionPool(options)) as pool,
        pytest.raises(PulsarSparkError, match="lookupTimeoutMs"),
    ):
        passes_over(pool, DELIVERED, STORED)
