# SPDX-License-Identifier: Apache-2.0
"""Where segments end, with a broker that says something else."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pulsar_spark.client import segment_ends as module
from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.positions import PositionLookup
from pulsar_spark.client.segment_ends import readable_ends
from pulsar_spark.errors import AskAgainError, BrokerError, TopicNotFoundError
from pulsar_spark.message_id import EARLIEST, MessageId, TxnId
from pulsar_spark.wire import pulsar_api_pb2 as pb
from tests.support import patience
from tests.support.scripted_broker import (
    LEDGER,
    Action,
    ScriptedBroker,
    Session,
    StoredFrame,
    client_options,
    cut,
    late,
    refuse,
    silence,
    single,
    usual,
)

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
    """Its end is not known. What is no segment keeps what was said."""
    ordinary = "persistent://public/default/t"
    said = {SEGMENT: MessageId(LEDGER, 3), ordinary: MessageId(LEDGER, 4)}
    ends = readable_ends(pool, said)
    assert isinstance(ends[SEGMENT], TopicNotFoundError)
    assert ends[ordinary] == said[ordinary]
    assert readable_ends(pool, {}) == {}


def closes(broker: ScriptedBroker, session: Session, command: pb.BaseCommand) -> None:
    """The segment moves to another broker; whatever was asked gets its answer."""
    usual(broker, session, command)
    broker.close_consumers()


@given(
    kinds=st.text("ppppppao", min_size=1, max_size=40),
    said=st.integers(-1, 39),
    command=st.sampled_from(["LOOKUP", "SUBSCRIBE", "GET_LAST_MESSAGE_ID"]),
    before=st.integers(0, 40),
    trouble=st.sampled_from([refuse("ServiceNotReady"), cut, closes]),
)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_question_that_fails(
    scripted: ScriptedBroker,
    pool: ConnectionPool,
    kinds: str,
    said: int,
    command: str,
    before: int,
    trouble: Action,
) -> None:
    """Whichever it is: the end is the true one, or is not known.

    Never is it the end that the broker said first.
    """
    scripted.transactions = {OPEN: [SEGMENT]}
    scripted.aborted = {ABORTED}
    segment = f"segment://public/default/t{len(scripted.topics)}/0000-ffff-0"
    scripted.add_topic(segment, [entry(kind) for kind in kinds])
    end = end_of(kinds)
    said = min(said, end)
    if "p" not in kinds.partition("o")[0] and said >= 0:
        end = said  # all of it is passed over in any case
    pool.forget_brokers([segment])
    scripted.script(command, *[usual] * before, trouble)
    (found,) = readable_ends(pool, {segment: place(said)}).values()
    assert found == place(end) or getattr(found, "retriable", False)
    scripted._scripts[command].clear()  # else it would meet the next example


def refuse_from(places: set[int]) -> Action:
    """Refuses a reader at each of these entries, once."""

    def action(
        broker: ScriptedBroker, session: Session, command: pb.BaseCommand
    ) -> None:
        start = command.subscribe.start_message_id.entryId
        is_refused = start in places
        places.discard(start)
        (refuse("NotAllowedError") if is_refused else usual)(broker, session, command)

    return action


@pytest.mark.parametrize(
    ("kinds", "refused"),
    [
        ("pppppo", {0}),
        ("pppppo", {1}),
        ("pppppo", {4}),
        ("pppppo", {0, 1, 2, 4}),
        ("paapaao", {3}),
        ("pppao", {1, 2}),  # 3 is passed over, and is not the end of what can be read
    ],
)
def test_readers_that_are_refused(
    scripted: ScriptedBroker, pool: ConnectionPool, kinds: str, refused: set[int]
) -> None:
    """The others tell the end."""
    scripted.transactions = {OPEN: [SEGMENT]}
    scripted.aborted = {ABORTED}
    scripted.add_topic(SEGMENT, [entry(kind) for kind in kinds])
    scripted.always("SUBSCRIBE", refuse_from({*refused}))
    ends = readable_ends(pool, {SEGMENT: place(0)})
    assert ends == {SEGMENT: place(end_of(kinds))}


def test_readers_that_are_always_refused(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """What they would have told is not taken for silence."""
    scripted.transactions = {OPEN: [SEGMENT]}
    scripted.add_topic(SEGMENT, [entry(kind) for kind in 40 * "p" + "o"])

    def refuse_some(broker: ScriptedBroker, session: Session, command: Any) -> None:
        start = command.subscribe.start_message_id.entryId
        is_refused = 20 < start < 40
        (refuse("NotAllowedError") if is_refused else usual)(broker, session, command)

    scripted.always("SUBSCRIBE", refuse_some)
    (found,) = readable_ends(pool, {SEGMENT: place(0)}).values()
    assert isinstance(found, BrokerError)


class Slow:
    """Time in which a broker delivers to one reader at each step, just in time."""

    def __init__(self, broker: ScriptedBroker, step_s: float) -> None:
        self.now_s = 0.0
        self.step_s = step_s
        self.broker = broker
        self.asked: list[tuple[Session, pb.BaseCommand]] = []
        broker.always("FLOW", self.keep)

    def keep(
        self, broker: ScriptedBroker, session: Session, command: pb.BaseCommand
    ) -> None:
        """Deliver later."""
        self.asked.append((session, command))

    def monotonic(self) -> float:
        """Seconds."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Pass."""
        self.now_s += self.step_s
        if self.asked:
            usual(self.broker, *self.asked.pop(0))


def test_a_broker_that_is_slow_each_time(
    scripted: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole search takes no longer than any other question to a broker."""
    segments = [f"segment://public/default/t{i}/0000-ffff-0" for i in range(20)]
    for segment in segments:
        scripted.add_topic(segment, [single(b"row")] * 4)
    clock = Slow(scripted, 0.15)
    monkeypatch.setattr(module, "time", clock)
    options = client_options(scripted.address, operation_timeout_s=1.0)
    with closing(ConnectionPool(options)) as pool:
        ends = readable_ends(pool, dict.fromkeys(segments, place(0)))
    assert clock.now_s < 1.5
    found = [end for end in ends.values() if end == place(3)]
    unknown = [end for end in ends.values() if isinstance(end, AskAgainError)]
    assert found
    assert unknown
    assert len(found) + len(unknown) == len(segments)


def test_a_segment_that_moves_during_a_plan(
    scripted: ScriptedBroker, pool: ConnectionPool
) -> None:
    """The plan asks its new broker, and has all that is stored."""
    scripted.add_topic(SEGMENT, [single(b"row")] * 4)
    scripted.says_last = pb.MessageIdData(ledgerId=LEDGER, entryId=0)
    for number in range(4):
        scripted.script(
            "GET_LAST_MESSAGE_ID", *[usual] * number, refuse("MetadataError"), closes
        )
        positions = PositionLookup(pool).from_message_ids({SEGMENT: EARLIEST})
        assert positions[SEGMENT].last == place(3)


@pytest.mark.parametrize("kinds", ["pppp", 20 * "p", "ppao", "pa"])
def test_a_broker_that_is_slow(scripted: ScriptedBroker, kinds: str) -> None:
    """Silence is no end: an entry that readers have had does not come, either."""
    scripted.transactions = {OPEN: [SEGMENT]}
    scripted.aborted = {ABORTED}
    scripted.add_topic(SEGMENT, [entry(kind) for kind in kinds])
    scripted.says_last = pb.MessageIdData(ledgerId=LEDGER, entryId=0)
    scripted.always("FLOW", silence)
    options = client_options(scripted.address, lookup_timeout_s=0.3)
    with closing(ConnectionPool(options)) as pool:
        lookup = PositionLookup(pool)
        with pytest.raises(AskAgainError, match=r"not even 7:0.*lookupTimeoutMs"):
            lookup.from_message_ids({SEGMENT: EARLIEST})
        scripted.always("FLOW", usual)
        positions = lookup.from_message_ids({SEGMENT: EARLIEST})
    assert positions[SEGMENT].last == place(end_of(kinds))


@pytest.mark.parametrize("subscribes", range(1, 12))
def test_a_broker_that_was_slow(
    scripted: ScriptedBroker, pool: ConnectionPool, subscribes: int
) -> None:
    """Whenever it delivers again, all is read that is stored."""
    scripted.add_topic(SEGMENT, [single(b"row")] * 4)
    scripted.says_last = pb.MessageIdData(ledgerId=LEDGER, entryId=0)
    again = threading.Event()

    def then_delivers(broker: ScriptedBroker, session: Session, c: Any) -> None:
        usual(broker, session, c)
        again.set()

    scripted.always("FLOW", late(again))
    scripted.script("SUBSCRIBE", *[usual] * subscribes, then_delivers)
    try:
        positions = PositionLookup(pool).from_message_ids({SEGMENT: EARLIEST})
    finally:
        again.set()
    assert positions[SEGMENT].last == place(3)


@pytest.mark.parametrize("read_compacted", [False, True])
def test_positions_of_segments(
    scripted: ScriptedBroker, pool: ConnectionPool, *, read_compacted: bool
) -> None:
    """They have the end that is read, and others what the broker says."""
    ordinary = "persistent://public/default/t"
    said = MessageId(LEDGER, 0)
    for topic in (SEGMENT, ordinary):
        scripted.add_topic(topic, [single(b"row")] * 4)
    scripted.says_last = pb.MessageIdData(ledgerId=LEDGER, entryId=0)
    lookup = PositionLookup(pool, read_compacted=read_compacted)
    positions = lookup.from_message_ids({SEGMENT: EARLIEST, ordinary: EARLIEST})
    flows = {body.consumer_id for body in scripted.bodies["FLOW"]}
    asked = [b for b in scripted.bodies["SUBSCRIBE"] if b.consumer_id in flows]
    assert [body.read_compacted for body in asked] == [read_compacted]
    assert positions[SEGMENT].last == MessageId(LEDGER, 3)
    assert positions[ordinary].last == said
