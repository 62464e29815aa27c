# SPDX-License-Identifier: Apache-2.0
"""Flow accounting, against a model of the broker's side."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsar_spark.wire.frames import DEFAULT_MAX_MESSAGE_SIZE_BYTES
from pulsar_spark.wire.permits import Learnt, Permits, as_broker_counts

MIB = 1024 * 1024

Entry = tuple[int, int]  # messages, bytes


class Broker:
    """Delivers whole entries while the balance is above zero, a read at a time."""

    def __init__(self, entries: list[Entry], read_entries: int = 1) -> None:
        self.entries = deque(entries)
        self.read_entries = read_entries
        self.balance = 0
        self.flows: list[int] = []

    def flow(self, permits: int) -> None:
        """Take a FLOW; 0 would cost the connection."""
        assert permits > 0
        self.flows.append(permits)
        self.balance = as_broker_counts(self.balance + permits)

    def read(self) -> list[Entry]:
        """Return what one read delivers: it may overshoot the balance by far."""
        if self.balance <= 0:
            return []
        count = min(self.balance, self.read_entries, len(self.entries))
        entries = [self.entries.popleft() for _ in range(count)]
        charge = sum(messages for messages, _ in entries)
        self.balance = as_broker_counts(self.balance - charge)
        return entries


def started(queue: int = 1000, window_bytes: int = 64 * MIB) -> Permits:
    """Return the accounting of a consumer after its first FLOW."""
    permits = Permits(queue, window_bytes)
    permits.initial_grant()
    return permits


# -- single steps ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queue", "window_bytes", "grant"),
    [
        (1000, 64 * MIB, 12),  # twelve messages of the largest size fit
        (1000, 1024 * MIB, 16),
        (1000, DEFAULT_MAX_MESSAGE_SIZE_BYTES, 1),
        (1000, 1, 1),
        (5, 64 * MIB, 5),
        (1, 1, 1),
    ],
)
def test_starts_small(queue: int, window_bytes: int, grant: int):
    """Before a size is known, as many as fit if each were of the largest."""
    permits = Permits(queue, window_bytes)
    assert permits.initial_grant() == grant
    assert permits.balance == grant
    assert permits.next_grant() == 0


@pytest.mark.parametrize(
    ("learnt", "grant"),
    [
        (Learnt(300, 100.0), 300),
        (Learnt(1, 100.0), 12),  # never fewer than without
        (Learnt(10**12, 100.0), 1000),  # nor more than the queue has room for
        (Learnt(300, 1.0 * MIB), 64),
        (Learnt(300, 1e12), 1),
        (Learnt(300, 0.0), 300),
    ],
)
def test_starts_with_what_was_learnt(learnt: Learnt, grant: int):
    """As many as came before, if so many of that size fit."""
    assert Permits(1000, 64 * MIB, learnt).initial_grant() == grant


def test_what_is_learnt():
    """All that came, and how large the last of it was; nothing where nothing came."""
    permits = started()
    assert permits.learnt is None
    permits.entry_arrived(-5, 100)
    permits.messages_taken(-5, 100)
    assert permits.learnt is None
    for _ in range(3):
        permits.entry_arrived(100, 10_000)
        permits.messages_taken(100, 10_000)
    assert permits.learnt == Learnt(300, 100.0, 1000)
    permits.reset()
    assert permits.learnt == Learnt(300, 100.0, 1000)
    again = Permits(1000, 64 * MIB, permits.learnt)
    assert again.learnt is None


@pytest.mark.parametrize(("queue", "window_bytes"), [(0, 1), (1, 0), (-1, 5)])
def test_a_window_has_room_for_one(queue: int, window_bytes: int):
    """Smaller limits would never deliver anything."""
    with pytest.raises(ValueError, match="at least one"):
        Permits(queue, window_bytes)


def test_the_window_grows_eightfold_in_a_round_trip():
    """Each message that arrives widens it by seven, up to the queue."""
    permits = started(queue=5000)
    windows = [permits.window_messages]
    while permits.window_messages < 5000:
        for _ in range(permits.balance):
            permits.entry_arrived(1, 100)
            permits.messages_taken(1, 100)
        assert permits.next_grant() > 0
        windows.append(permits.window_messages)
    assert windows == [12, 96, 768, 5000]


def test_the_window_of_a_link_with_latency():
    """Without a limit of the user's it is two and a half times what a link holds."""
    permits = Permits(None, 64 * MIB)
    permits.widen(400_000, 0.0001)  # loopback
    assert (permits.most_messages, permits.arrived) == (10_000, 0)
    for rate, most in ((500_000, 25_000), (1_250_000, 62_500), (800_000, 62_500)):
        permits.widen(rate, 0.02)
        assert permits.most_messages == most
    permits.widen(1e9, 1.0)
    assert permits.most_messages == 1_000_000
    permits.entry_arrived(200_000, 20_000_000)
    assert permits.window_messages == 64 * MIB // 100  # bytes bound it all the same
    learnt = permits.learnt
    assert Permits(None, MIB, learnt).most_messages == 1_000_000
    for fixed in (Permits(7, MIB, learnt), Permits(7, MIB)):
        fixed.widen(1e9, 1.0)
        assert fixed.most_messages == 7


def test_one_batch_shows_the_size_of_its_messages():
    """After a large batch of small messages the window is wide at once."""
    permits = started()
    permits.entry_arrived(1000, 100_000)
    assert permits.window_messages == 1000
    assert permits.balance == 12 - 1000
    permits.messages_taken(1000, 100_000)
    assert permits.next_grant() == 1988
    assert permits.balance == 1000


def test_bytes_bound_the_window():
    """Large messages leave fewer of them out than the queue would take."""
    permits = started(queue=1000, window_bytes=10 * MIB)
    for _ in range(50):
        permits.entry_arrived(1, MIB)
        permits.messages_taken(1, MIB)
        permits.next_grant()
    assert permits.window_messages == 10
    assert permits.balance <= 10


def test_a_message_larger_than_the_window_still_passes():
    """One at a time, then."""
    permits = started(window_bytes=1000)
    for _ in range(3):
        permits.entry_arrived(1, 5000)
        assert permits.next_grant() == 0
        permits.messages_taken(1, 5000)
        assert permits.next_grant() == 1


def test_size_is_learnt_up_at_once_and_down_slowly():
    """Too small an average costs memory, too large a one only some speed."""
    permits = started(queue=1000, window_bytes=MIB)
    permits.entry_arrived(1000, 100_000)
    assert permits.window_messages == 1000
    permits.entry_arrived(1, MIB // 4)
    assert permits.window_messages == 4
    permits.entry_arrived(1000, 100_000)
    assert permits.window_messages == 4
    for _ in range(60):
        permits.entry_arrived(1000, 100_000)
    assert permits.window_messages == 1000


def test_the_average_is_of_about_eight_entries():
    """A smaller entry moves it by an eighth of the difference."""
    permits = started(queue=1000, window_bytes=8000)
    permits.entry_arrived(1000, 100_000)
    assert permits.window_messages == 80
    permits.entry_arrived(1, 0)
    assert permits.window_messages == 91  # of 87.5 bytes


def test_the_first_entry_is_the_average():
    """However small its messages are: nothing was known before."""
    permits = started(queue=1000, window_bytes=50)
    permits.entry_arrived(100, 10)
    assert permits.window_messages == 50 * 10


def test_what_came_before_the_first_grant_is_paid_for():
    """The first FLOW brings as much as the window has room for, on top of a debt."""
    permits = Permits(1000, 64 * MIB)
    permits.entry_arrived(4, 400)
    window = 12 + 8 * 4
    assert permits.initial_grant() == window
    assert permits.balance == window - 4


def test_grants_come_in_bursts_of_half_a_window():
    """FLOW is rare: one for about 500 messages taken."""
    permits = started()
    permits.entry_arrived(1000, 100_000)
    permits.messages_taken(1000, 100_000)
    assert permits.next_grant() > 0
    assert permits.balance == 1000
    grants = []
    for _ in range(200):
        permits.entry_arrived(10, 1000)
        permits.messages_taken(10, 1000)
        grants.append(permits.next_grant())
    assert [g for g in grants if g] == [500] * 4


def test_grants_are_smaller_where_a_link_holds_much():
    """An eighth of the window, so that the link never runs empty; and halves again."""
    permits = started()
    permits.entry_arrived(1000, 100_000)
    permits.messages_taken(1000, 100_000)
    assert permits.next_grant() > 0
    for rate, grant in ((15_000, 130), (1000, 500)):
        permits.widen(rate, 0.02)
        grants = []
        for _ in range(200):
            permits.entry_arrived(10, 1000)
            permits.messages_taken(10, 1000)
            grants.append(permits.next_grant())
        assert {g for g in grants[100:] if g} == {grant}


def test_nothing_is_granted_while_the_reader_holds_enough():
    """What is held counts as out, in messages and in bytes."""
    permits = started(queue=1000, window_bytes=MIB)
    permits.entry_arrived(10, MIB)
    assert permits.next_grant() == 0
    permits.messages_taken(2, MIB // 5)
    assert permits.next_grant() == 0
    permits.messages_taken(8, MIB - MIB // 5)
    assert permits.next_grant() > 0


def test_an_entry_with_acknowledged_messages_is_charged_for_the_rest():
    """Neither charged nor refunded: indexes that ack_set leaves out."""
    permits = started(queue=16, window_bytes=1024 * MIB)
    permits.entry_arrived(0, 500)
    assert permits.balance == 16
    permits.messages_taken(0, 500)
    assert permits.next_grant() == 0
    assert permits.held_bytes == 0


@pytest.mark.parametrize("messages", [0, -1])
def test_an_entry_without_messages_widens_nothing(messages: int):
    """The window stays as wide as it was."""
    permits = started(queue=50)
    before = permits.window_messages
    permits.entry_arrived(messages, 0)
    assert permits.window_messages == before < 50


@pytest.mark.parametrize(
    ("balance", "at_the_broker"),
    [
        (0, 0),
        (-1, -1),
        (2**31 - 1, 2**31 - 1),
        (2**31, -(2**31)),
        (-(2**31), -(2**31)),
        (-(2**31) - 1, 2**31 - 1),
        (2**32 + 5, 5),
        (-(2**32) + 5, 5),
    ],
)
def test_what_the_broker_counts(balance: int, at_the_broker: int):
    """It has 32 bits, one of them the sign."""
    assert as_broker_counts(balance) == at_the_broker


def test_taking_more_than_there_is_is_refused():
    """It would grant more and more for nothing."""
    permits = started()
    permits.entry_arrived(2, 200)
    with pytest.raises(ValueError, match="cannot be taken"):
        permits.messages_taken(3, 200)
    with pytest.raises(ValueError, match="cannot be taken"):
        permits.messages_taken(2, 201)
    assert (permits.held_messages, permits.held_bytes) == (2, 200)


def test_a_new_connection_starts_at_zero():
    """Old refunds are ignored, what was learnt about sizes stays."""
    permits = started()
    assert permits.generation == 0
    permits.entry_arrived(1000, 100_000)
    old = permits.generation
    permits.reset()
    assert permits.generation == old + 1
    assert (permits.balance, permits.held_messages, permits.held_bytes) == (0, 0, 0)
    permits.messages_taken(1000, 100_000, generation=old)
    assert permits.initial_grant() == 1000
    permits.entry_arrived(1000, 100_000)
    permits.messages_taken(1000, 100_000, generation=permits.generation)
    assert permits.next_grant() == 1000


# -- whole streams ---------------------------------------------------------------------

anything_learnt = st.none() | st.builds(
    Learnt, st.integers(1, 2**40), st.just(0.0) | st.floats(1e-9, 1e9)
)
entries = st.lists(
    st.tuples(st.integers(1, 300), st.integers(0, 20_000)), min_size=1, max_size=60
)


@settings(deadline=None)
@given(
    entries=entries,
    queue=st.integers(1, 500),
    window_bytes=st.integers(1, 200_000),
    read_entries=st.integers(1, 100),
    takes=st.lists(st.integers(0, 40), min_size=1, max_size=20),
    learnt=anything_learnt,
)
def test_every_schedule_delivers_everything(
    entries: list[Entry],
    queue: int,
    window_bytes: int,
    read_entries: int,
    takes: list[int],
    learnt: Learnt | None,
):
    """However slow, and however the broker overshoots: no stall, both sides agree."""
    broker = Broker(entries, read_entries)
    permits = Permits(queue, window_bytes, learnt)
    broker.flow(permits.initial_grant())
    held: deque[list[int]] = deque()
    taken = 0
    step = 0
    while broker.entries or held:
        arrived = broker.read()
        for messages, size in arrived:
            permits.entry_arrived(messages, size)
            held.append([messages, size])
        # A reader that takes some messages, of one entry or several; when nothing else
        # moves any more, it takes at least one.
        quota = takes[step % len(takes)]
        step += 1
        if not arrived and not quota:
            quota = 1
        before = len(broker.flows), taken
        while quota and held:
            messages, size = held[0]
            part = min(quota, messages)
            share = size if part == messages else size * part // messages
            permits.messages_taken(part, share)
            held[0] = [messages - part, size - share]
            if part == messages:
                held.popleft()
            quota -= part
            taken += part
        if grant := permits.next_grant():
            broker.flow(grant)
        assert permits.balance == broker.balance
        assert permits.balance <= queue
        progress = arrived or (len(broker.flows), taken) != before
        assert progress or takes[step % len(takes)] or not (broker.entries or held)
        assert step < 200_000
    assert taken == sum(messages for messages, _ in entries)
    assert (permits.held_messages, permits.held_bytes) == (0, 0)


@settings(deadline=None)
@given(
    messages=st.integers(1, 200),
    bytes_each=st.integers(1, 5000),
    queue=st.integers(1, 2000),
    window_bytes=st.integers(1, MIB),
    takes=st.lists(st.integers(0, 3), min_size=1, max_size=20),
)
def test_bytes_out_are_bounded_for_uniform_sizes(
    messages: int, bytes_each: int, queue: int, window_bytes: int, takes: list[int]
):
    """Held and granted bytes stay in the window, but for the entry that ends it."""
    entry = messages, messages * bytes_each
    broker = Broker([entry] * 300)
    permits = Permits(queue, window_bytes)
    broker.flow(permits.initial_grant())
    held = 0
    # The first grant is made before a size is known: it may be 16 messages.
    bound = max(window_bytes, bytes_each) + 2 * entry[1]
    for step in range(600):
        for arrived_messages, size in broker.read():
            permits.entry_arrived(arrived_messages, size)
            held += 1
        for _ in range(min(held, takes[step % len(takes)])):
            permits.messages_taken(*entry)
            held -= 1
        if grant := permits.next_grant():
            broker.flow(grant)
        out = permits.held_bytes + max(0, broker.balance) * bytes_each
        assert out <= bound


@pytest.mark.parametrize(
    ("entry", "flows"),
    [((1, 100), 420), ((100, 10_000), 420), ((1000, 100_000), 210)],
)
def test_flow_commands_are_rare(entry: Entry, flows: int):
    """About one for half a window of 1000 messages, whatever the batches."""
    broker = Broker([entry] * (200_000 // entry[0]))
    permits = Permits(1000, 64 * MIB)
    broker.flow(permits.initial_grant())
    while broker.entries:
        for arrived in broker.read():
            permits.entry_arrived(*arrived)
            permits.messages_taken(*arrived)
        if grant := permits.next_grant():
            broker.flow(grant)
    assert len(broker.flows) <= flows


lying = st.lists(
    st.tuples(
        st.integers(1, 300)
        | st.sampled_from([0, -1, -3, 2**31 - 1, 2**31 - 2, -(2**31), 2**30]),
        st.integers(20, 20_000),
    ),
    min_size=1,
    max_size=60,
)


@settings(deadline=None)
@given(
    entries=lying,
    queue=st.integers(1, 500),
    window_bytes=st.integers(1, 200_000),
    read_entries=st.integers(1, 100),
    at_a_time=st.integers(1, 20),
    learnt=anything_learnt,
)
def test_entries_that_lie_stall_nobody(
    entries: list[Entry],
    queue: int,
    window_bytes: int,
    read_entries: int,
    at_a_time: int,
    learnt: Learnt | None,
):
    """Billions of messages, or fewer than none: all comes, and both sides agree."""
    broker = Broker(entries, read_entries)
    permits = Permits(queue, window_bytes, learnt)
    broker.flow(permits.initial_grant())
    arrived: deque[Entry] = deque()
    for _ in range(1000):
        arrived += broker.read()
        if not arrived:
            break
        some = [arrived.popleft() for _ in range(min(at_a_time, len(arrived)))]
        charge = sum(messages for messages, _ in some), sum(size for _, size in some)
        permits.entry_arrived(*charge)
        permits.messages_taken(*charge)
        if grant := permits.next_grant():
            broker.flow(grant)
        if not arrived:
            assert permits.balance == broker.balance
            assert permits.balance > 0
    assert not broker.entries
