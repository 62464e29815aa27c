# SPDX-License-Identifier: Apache-2.0
"""Where segments end, with a broker that says something else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pulsar_spark.client.positions import PositionLookup
from pulsar_spark.client.segment_ends import readable_ends
from pulsar_spark.message_id import EARLIEST, MessageId, TxnId
from pulsar_spark.wire import pulsar_api_pb2 as pb
from tests.support import patience
from tests.support.scripted_broker import LEDGER, ScriptedBroker, StoredFrame, single

if TYPE_CHECKING:
    from pulsar_spark.client.pool import ConnectionPool

SEGMENT = "segment://public/default/t/0000-ffff-0"
OPEN, ABORTED = TxnId(0, 1), TxnId(0, 2)


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this broker does not deliver at once, it never does."""
    patience.usual(monkeypatch, delivery_s=0.2)


def entry(kind: str) -> StoredFrame:
    """An entry: plain, or of a transaction that is open or aborted."""
    txn = {"o": OPEN, "a": ABORTED}.get(kind)
    if txn is None:
        return single(b"row")
    return single(b"row", txnid_most_bits=txn.most, txnid_least_bits=txn.least)


def end_of(kinds: str) -> int:
    """The last entry that readers get; what is passed over where there is none."""
    settled = kinds.partition("o")[0]
    return settled.rindex("p") if "p" in settled else len(settled) - 1


def place(entry_id: int) -> MessageId | None:
    """As a message id; -1 for none."""
    return MessageId(LEDGER, entry_id) if entry_id >= 0 else None


@given(st.text("ppppppao", max_size=60), st.data())
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_the_end_to_the_entry(
    scripted: ScriptedBroker, pool: ConnectionPool, kinds: str, data: st.DataObject
) -> None:
    """Whatever the broker said before, and whatever transactions are there."""
    scripted.transactions = {OPEN: [SEGMENT]}
    scripted.aborted = {ABORTED}
    segment = f"segment://public/default/t{len(scripted.topics)}/0000-ffff-0"
    scripted.add_topic(segment, [entry(kind) for kind in kinds])
    end = end_of(kinds)
    said = data.draw(st.integers(-1, end))
    ends = readable_ends(pool, {segment: place(said)})
    if "p" not in kinds.partition("o")[0] and said >= 0:
        end = said  # all of it is passed over in any case
    assert ends == {segment: place(end)}


def test_aborted_entries_between_those_that_are_tried(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Of 18 entries 16 are tried: the second is passed over, but not tried at first."""
    scripted.transactions = {OPEN: [SEGMENT]}
    scripted.aborted = {ABORTED}
    scripted.add_topic(SEGMENT, [entry(kind) for kind in "aao" + 15 * "a"])
    assert readable_ends(pool, {SEGMENT: None}) == {SEGMENT: place(1)}


def test_what_cannot_be_asked(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """It keeps what was said."""
    said = {SEGMENT: MessageId(LEDGER, 3)}
    assert readable_ends(pool, said) == said
    assert readable_ends(pool, {}) == {}


def test_positions_of_segments(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """They have the end that is read, and others what the broker says."""
    ordinary = "persistent://public/default/t"
    said = MessageId(LEDGER, 0)
    for topic in (SEGMENT, ordinary):
        scripted.add_topic(topic, [single(b"row")] * 4)
    scripted.says_last = pb.MessageIdData(ledgerId=LEDGER, entryId=0)
    lookup = PositionLookup(pool)
    positions = lookup.from_message_ids({SEGMENT: EARLIEST, ordinary: EARLIEST})
    assert positions[SEGMENT].last == MessageId(LEDGER, 3)
    assert positions[ordinary].last == said
