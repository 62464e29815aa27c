# SPDX-License-Identifier: Apache-2.0
"""Entries in flight, and what receipts say of them. For chunks see ``test_states``."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.client.producing.entries import InFlight, Stored
from pulsar_spark.loops.sends import Receipt, SendFrame
from pulsar_spark.message_id import MessageId


def frame(number: int, rows: int = 2) -> SendFrame:
    """An entry of ten bytes."""
    return SendFrame(number, number, rows, bytes(10))


@given(st.lists(st.sampled_from(["send", "receipt", "break", "again"]), max_size=30))
def test_entries_keep_their_order(steps: list[str]) -> None:
    """Whatever is sent again: what is pending comes before what is unsent."""
    in_flight, numbers, sent = InFlight(), list[int](), 0
    for step in steps:
        if step == "send" and not in_flight.unsent:
            in_flight.pending.append(frame(sent))
            numbers.append(sent)
            sent += 1
        elif step == "receipt" and in_flight.pending:
            assert in_flight.pending.popleft().sequence_id == numbers.pop(0)
        elif step == "break":
            in_flight.unsend()
            assert not in_flight.pending
        elif step == "again" and in_flight.unsent:
            in_flight.pending.append(in_flight.unsent.popleft())
        assert [entry.sequence_id for entry in in_flight] == numbers
        assert (bool(in_flight), in_flight.rows) == (bool(numbers), 2 * len(numbers))
    assert [entry.sequence_id for entry in in_flight.clear()] == numbers
    assert not in_flight


def test_rows_that_are_stored() -> None:
    """Rows that the broker had count apart, and name no message."""
    stored = Stored(last_id=4)
    assert stored.last_message is None
    stored.take([(frame(5), Receipt(0, 5, 7, 3)), (frame(6), Receipt(0, 6, -1, -1))])
    stored.take_without_receipts([frame(7), frame(8, 3)])
    assert (stored.rows, stored.size_bytes, stored.duplicate_rows) == (7, 30, 2)
    assert (stored.seen_rows, stored.last_id) == (9, 6)
    assert stored.last_message == MessageId(7, 3)
