# SPDX-License-Identifier: Apache-2.0
"""What a sealed segment has of a producer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pulsar_spark.client.segment_tail import (
    has_ended_at,
    last_stored_ids,
    stored_ids,
)
from pulsar_spark.errors import ReadTimeoutError, TopicNotFoundError
from pulsar_spark.message_id import MessageId
from tests.support import patience
from tests.support.scripted_broker import (
    LEDGER,
    Action,
    ScriptedBroker,
    Session,
    StoredFrame,
    silence,
    single,
    usual,
)

if TYPE_CHECKING:
    from pulsar_spark.client.pool import ConnectionPool
    from pulsar_spark.wire import pulsar_api_pb2 as pb

SEGMENT = "segment://public/default/t/0000-ffff-0"


def entry(producer: str, sequence_id: int, **metadata: int) -> StoredFrame:
    """An entry of a producer."""
    fields = {"producer_name": producer, "sequence_id": sequence_id, **metadata}
    return single(b"row", **fields)


ENTRIES = [
    entry("mine", 0),
    entry("other", 9),
    entry("mine", 1, highest_sequence_id=4),
    entry("other", 10),
    # The first of two chunks: the row is not whole.
    entry("mine", 5, chunk_id=0, num_chunks_from_msg=2),
]


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broker and readers take turns here by themselves."""
    patience.usual(monkeypatch, settling_s=0.0)


@pytest.mark.parametrize("more", [set(), {3, 5, 8, 20}])
@pytest.mark.parametrize(
    ("producer", "after", "stored"),
    [
        ("mine", None, {0, 4}),
        ("mine", MessageId(LEDGER, 2), {4}),
        ("mine", MessageId(LEDGER, 3), set()),
        ("other", None, {9, 10}),
        ("nobody", None, set()),
    ],
)
def test_whole_messages(
    scripted: ScriptedBroker,
    pool: ConnectionPool,
    producer: str,
    after: MessageId | None,
    stored: set[int],
    more: set[int],
) -> None:
    """By its producer's name, from an entry on; whether or not more was sent.

    Of others only a higher id is there, or a part.
    """
    scripted.add_topic(SEGMENT, ENTRIES)
    sent = stored | more
    assert stored_ids(pool, SEGMENT, producer, after, sent) == stored


def growing(*entries: StoredFrame) -> Action:
    """Store entries of the segment, and then attach a consumer."""

    def action(broker: ScriptedBroker, session: Session, c: pb.BaseCommand) -> None:
        broker.append(SEGMENT, *entries)
        usual(broker, session, c)

    return action


def test_an_end_that_was_said_too_early(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """Where messages are missing the segment is read once more, and only there."""
    scripted.add_topic(SEGMENT, ENTRIES)
    # One consumer asks for the end, another one reads up to there.
    late = growing(entry("mine", 6), entry("mine", 7))
    scripted.script("SUBSCRIBE", usual, usual, late)
    assert stored_ids(pool, SEGMENT, "mine", None, {0, 4}) == {0, 4}
    assert stored_ids(pool, SEGMENT, "mine", None, {6, 7}) == {6, 7}
    later = growing(entry("mine", 8)), usual, usual, growing(entry("mine", 9))
    scripted.script("SUBSCRIBE", usual, usual, *later)
    assert stored_ids(pool, SEGMENT, "mine", None, {8, 9, 10}) == {8, 9}
    # Read three times, and asked after each whether that was the end.
    assert scripted.requests["SUBSCRIBE"] == 2 + 2 + 3 * 3


def test_an_end_that_moves(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """It is no end."""
    scripted.add_topic(SEGMENT, ENTRIES)
    scripted.script("SUBSCRIBE", usual, growing(entry("mine", 6)))
    assert not has_ended_at(pool, SEGMENT, MessageId(LEDGER, len(ENTRIES) - 1))
    assert has_ended_at(pool, SEGMENT, MessageId(LEDGER, len(ENTRIES)))


def test_all_chunks(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """With the last one the row counts."""
    last = entry("mine", 5, chunk_id=1, num_chunks_from_msg=2)
    scripted.add_topic(SEGMENT, [*ENTRIES, last])
    assert stored_ids(pool, SEGMENT, "mine", None, {5}) == {5}


def test_many_entries(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """More than are asked for at a time."""
    scripted.add_topic(SEGMENT, [entry("mine", number) for number in range(3000)])
    assert stored_ids(pool, SEGMENT, "mine", None, range(3000)) == set(range(3000))


def test_nothing(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """A segment without rows, and none at all."""
    scripted.add_topic(SEGMENT)
    assert stored_ids(pool, SEGMENT, "mine", None, {0}) == set()
    with pytest.raises(TopicNotFoundError):
        stored_ids(pool, "segment://public/default/u/0000-ffff-0", "mine", None, {0})


def test_the_last_entry_of_all(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """Nothing follows it; that cannot be said where nobody can be asked."""
    scripted.add_topic(SEGMENT, ENTRIES)
    empty = "segment://public/default/empty/0000-ffff-0"
    scripted.add_topic(empty)
    last = len(ENTRIES) - 1
    assert has_ended_at(pool, SEGMENT, MessageId(LEDGER, last))
    assert not has_ended_at(pool, SEGMENT, MessageId(LEDGER, last - 1))
    assert not has_ended_at(pool, SEGMENT, None)
    assert has_ended_at(pool, empty, None)
    nowhere = "segment://public/default/nowhere/0000-ffff-0"
    assert not has_ended_at(pool, nowhere, None)


def test_all_producers(scripted: ScriptedBroker, pool: ConnectionPool) -> None:
    """Of several topic partitions together, unless these are too large."""
    other = "persistent://public/default/t-partition-1"
    scripted.add_topic(SEGMENT, ENTRIES)
    scripted.add_topic(other, [entry("mine", 7), entry("third", 0)])
    ids = last_stored_ids(pool, [SEGMENT, other])
    assert ids == {"mine": 7, "other": 10, "third": 0}
    late = growing(entry("mine", 8))
    scripted.script("SUBSCRIBE", *[usual] * 4, late)
    assert last_stored_ids(pool, [SEGMENT, other])["mine"] == 8
    patience.of_pool(pool, tail_s=0.0)
    scripted.always("FLOW", silence)
    with pytest.raises(ReadTimeoutError, match="which producers have written"):
        last_stored_ids(pool, [SEGMENT, other])
    with pytest.raises(TopicNotFoundError):
        last_stored_ids(pool, [other, "persistent://public/default/u"])
