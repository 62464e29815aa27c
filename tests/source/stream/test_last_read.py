# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from pulsar_spark.message_id import EARLIEST, MessageId
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.source.stream.last_read import NOTHING_READ, LastRead

#: Entries that another can follow.
entries = st.integers(0, 2**63 - 2)
indexes = st.integers(-1, 2**31 - 2)
places = st.builds(MessageId, st.integers(0, 2**63 - 1), entries, indexes)
positions = st.one_of(
    places.map(LastRead.of),
    st.builds(LastRead, st.integers(0, 2**63 - 1), st.just(-1)),
    st.just(NOTHING_READ),
)
#: Few, so that most of them have something in common.
near = st.builds(LastRead, st.integers(1, 2), st.integers(-1, 2), st.integers(-1, 2))


@given(positions)
def test_before_undoes_after(position: LastRead) -> None:
    """What comes next comes right after the position itself."""
    assert LastRead.before(position.next()) == position


@given(places)
def test_after_undoes_before(place: MessageId) -> None:
    """A start survives being kept as a position: as the same first message."""
    again = LastRead.before(place).next()
    assert again.position == place.position
    assert max(again.batch_index, 0) == max(place.batch_index, 0)


@given(st.integers(-1, 2**63 - 1), st.integers(-1, 2**63 - 1), indexes)
@example(12, -1, -1)
def test_any_start_has_a_position_that_reads_back(
    ledger_id: int, entry_id: int, batch_index: int
) -> None:
    """Whatever start a user names can be written to the checkpoint."""
    position = LastRead.before(MessageId(ledger_id, entry_id, batch_index))
    assert LastRead.parse(str(position)) == position


@given(places, places)
def test_positions_keep_their_order(one: MessageId, other: MessageId) -> None:
    """The earlier of two starts has the earlier position."""
    assume(one.position < other.position)
    before = LastRead.before(one), LastRead.before(other)
    assert before[0].position <= before[1].position
    assert before[0].next().position < before[1].next().position


@pytest.mark.parametrize(
    ("start", "before"),
    [
        ("12:3", "12:2"),
        ("12:3:0", "12:2"),
        ("12:3:4", "12:3:3"),
        ("12:0", "12:-1"),
        ("12:-1", "12:-1"),
        ("-1:-1", "-1:-1"),
    ],
)
def test_before(start: str, before: str) -> None:
    """The first message of an entry comes after the entry before it."""
    assert str(LastRead.before(MessageId.parse_text(start))) == before


@pytest.mark.parametrize(
    ("texts"),
    [
        ("-1:-1", "12:-1", "12:0:0", "12:0:1", "12:0", "12:1", "13:-1", "13:0"),
    ],
)
def test_positions_are_in_the_order_of_what_was_read(texts: tuple[str, ...]) -> None:
    """All of an entry is further than any message in it."""
    found = [LastRead.parse(text) for text in texts]
    assert sorted({*found}) == found
    assert [str(position) for position in found] == list(texts)


@given(near | st.just(NOTHING_READ), near)
def test_something_is_to_be_read_where_one_is_before_the_other(
    after: LastRead, last: LastRead
) -> None:
    """The order says the same as the range of message ids between the two."""
    is_empty = TopicRange("t", after.next(), last.message_id).is_empty
    assert (after < last) == (not is_empty and after != last)


def test_a_message_id_has_more() -> None:
    """What a broker says beside the entry and the index is no part of a position."""
    told = MessageId(12, 3, 4, 0, 100, MessageId(12, 1))
    assert LastRead.of(told) == LastRead(12, 3, 4)
    assert LastRead.of(told).message_id == MessageId(12, 3, 4)
    assert NOTHING_READ.next() == NOTHING_READ.message_id == EARLIEST


@given(near | st.just(NOTHING_READ), near)
def test_what_is_left_to_read(after: LastRead, last: LastRead) -> None:
    """As the order says; of an entry that is no batch, any part of it is all of it."""
    is_whole = last.batch_index < 0 and last.position == after.position
    assert after.has_read(last.message_id) == (is_whole or not after < last)
