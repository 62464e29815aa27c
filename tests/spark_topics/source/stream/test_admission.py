# SPDX-License-Identifier: Apache-2.0
"""Entries of a micro-batch, against a model of what waits."""

from __future__ import annotations

import random
from collections import Counter, deque
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spark_topics.source.stream.admission import Admission, Backlog, EntrySize

TOPIC = "persistent://public/default/t"


class Waiting:
    """Entries of some partitions, of which the first few are looked at.

    Attributes:
        partitions: What waits, in order.
        look: How many of each partition the driver knows exactly.
    """

    def __init__(
        self, admission: Admission, partitions: dict[str, list[EntrySize]], look: int
    ) -> None:
        self.admission = admission
        self.partitions = {name: deque(sizes) for name, sizes in partitions.items()}
        self.look = look
        self._looked_at = dict.fromkeys(partitions, 0)
        self._taken = dict.fromkeys(partitions, 0)

    def backlogs(self) -> dict[str, Backlog]:
        """Return what the driver knows; each entry that it sees is observed once."""
        backlogs = {}
        for name, sizes in self.partitions.items():
            if not sizes:
                continue
            ahead = tuple(sizes[i] for i in range(min(self.look, len(sizes))))
            for index, size in enumerate(ahead, self._taken[name]):
                if index >= self._looked_at[name]:
                    self.admission.observe(TOPIC, size)
                    self._looked_at[name] = index + 1
            backlogs[name] = Backlog(TOPIC, len(sizes), ahead)
        return backlogs

    def batch(self) -> dict[str, list[EntrySize]]:
        """Admit a micro-batch, and return the entries that it is made of."""
        admitted = self.admission.admit(self.backlogs())
        for name, count in admitted.items():
            self._taken[name] += count
        return {
            name: [self.partitions[name].popleft() for _ in range(count)]
            for name, count in admitted.items()
            if count
        }


def limited(
    rows: int | None = None,
    size_bytes: int | None = None,
    each: EntrySize | None = None,
) -> Admission:
    """Return an admission that has seen entries of one size, if any."""
    admission = Admission(max_rows=rows, max_bytes=size_bytes)
    if each is not None:
        admission.observe(TOPIC, each)
    return admission


def same(entries: dict[str, int], *ahead: EntrySize) -> dict[str, Backlog]:
    """Return backlogs that all begin with the same entries."""
    return {name: Backlog(TOPIC, count, ahead) for name, count in entries.items()}


def rows_of(batch: dict[str, list[EntrySize]]) -> float:
    """Return the rows of a micro-batch."""
    return sum(size.rows for sizes in batch.values() for size in sizes)


# -- averages --------------------------------------------------------------------------


def test_the_best_known_average_counts() -> None:
    """Exact sizes first, then the topic's average, that of all topics, 1 row, 1 KiB."""
    admission = limited(1000)
    assert admission.rows(same({"p": 10})) == 10
    assert admission.rows(same({"p": 10}, EntrySize(5, 1))) == 14
    admission.observe("other", EntrySize(3, 1))
    assert admission.rows(same({"p": 10})) == 30
    admission.observe(TOPIC, EntrySize(7, 1))
    assert admission.rows(same({"p": 10, "q": 2})) == 84
    assert admission.rows({"p": Backlog("a third", 10)}) == 50
    assert admission.rows(same({"p": 2}, *[EntrySize(1, 1)] * 5)) == 2
    assert admission.rows({}) == 0
    assert limited(None, 10_240).admit(same({"p": 100})) == {"p": 10}


def test_an_average_begins_as_a_mean_and_forgets() -> None:
    """The first 32 weigh the same, each later one a 32nd."""
    admission = limited(1000)
    for rows in range(1, 33):
        admission.observe(TOPIC, EntrySize(rows, 0))
    assert admission.rows(same({"p": 1})) == pytest.approx(16.5)
    admission.observe(TOPIC, EntrySize(48.5, 0))
    assert admission.rows(same({"p": 1})) == pytest.approx(17.5)
    for _ in range(200):
        admission.observe(TOPIC, EntrySize(2, 0))
    assert admission.rows(same({"p": 1})) == pytest.approx(2, abs=0.05)


def test_no_average_is_nothing() -> None:
    """Entries without rows or bytes do not lift a limit."""
    admission = limited(1, each=EntrySize(0, 0))
    assert admission.admit(same({"p": 10**9})) == {"p": 1000}
    admission = limited(None, 7, each=EntrySize(0, 0))
    assert admission.admit(same({"p": 10**9})) == {"p": 7}


# -- one micro-batch -------------------------------------------------------------------


def test_without_limits_everything_is_taken() -> None:
    """Whatever the sizes; and of nothing, nothing."""
    backlogs = same({"p": 10**12, "q": 1, "r": 3}, EntrySize(10**9, 10**12))
    assert limited().admit(backlogs) == {"p": 10**12, "q": 1, "r": 3}
    assert limited().admit({}) == {}
    assert limited(1, 1).admit({}) == {}


def test_all_fits() -> None:
    """A limit that is not reached changes nothing, nor what was owed before."""
    admission = limited(100, each=EntrySize(10, 1))
    for _ in range(7):
        admission.admit(same({"p": 90, "q": 100, "r": 7}))
    assert admission.admit(same({"p": 3, "q": 5, "r": 2})) == {"p": 3, "q": 5, "r": 2}


@pytest.mark.parametrize(
    ("rows", "size_bytes", "entries"),
    [
        (100, None, 10),
        (None, 100, 50),
        (100, 100, 10),
        (1000, 100, 50),
        (109, 20, 10),
        (109, 19, 9),
    ],
)
def test_the_tighter_limit_rules(
    rows: int | None, size_bytes: int | None, entries: int
) -> None:
    """Entries of 10 rows and 2 bytes, looked at or not."""
    each = EntrySize(10, 2)
    assert limited(rows, size_bytes, each).admit(same({"p": 1000})) == {"p": entries}
    backlogs = same({"p": 1000}, *[each] * 99)
    assert limited(rows, size_bytes).admit(backlogs) == {"p": entries}


def test_exact_sizes_are_charged() -> None:
    """What is known of the first entries counts, the average for the others."""
    ahead = EntrySize(60, 1), EntrySize(15, 1)
    admission = limited(100, each=EntrySize(5, 1))
    assert admission.admit(same({"p": 1000}, *ahead)) == {"p": 7}
    admission = limited(100, each=EntrySize(5, 1))
    assert admission.admit(same({"p": 1000}, *ahead, EntrySize(26, 1))) == {"p": 2}
    admission = limited(1, each=EntrySize(0.05, 1))
    assert admission.admit(same({"p": 21}, EntrySize(0.9, 1))) == {"p": 3}


def test_shares_follow_the_backlog() -> None:
    """Ten times the backlog, ten times the entries."""
    backlogs = same({"p": 10**6, "q": 10**5})
    for rows, size_bytes in (11_000, None), (None, 1100), (10**6, 1100), (11_000, 9999):
        admission = limited(rows, size_bytes, EntrySize(10, 1))
        assert admission.admit(backlogs) == {"p": 1000, "q": 100}


def test_shares_are_of_what_was_looked_at() -> None:
    """Whatever the average says of it, and whichever limit is the tighter one."""
    backlogs = same({"p": 100, "q": 10}, *[EntrySize(10, 5)] * 100)
    for rows, size_bytes in (110, None), (None, 55), (1000, 55), (110, 500):
        for average in EntrySize(1, 1), EntrySize(300, 300):
            admission = limited(rows, size_bytes, average)
            assert admission.admit(backlogs) == {"p": 10, "q": 1}


def test_what_one_partition_cannot_use_others_get() -> None:
    """Thousands of entries, when the first of the other partition does not fit."""
    admission = limited(100_000, each=EntrySize(1, 1))
    backlogs = same({"p": 10**6})
    backlogs["q"] = Backlog(TOPIC, 10**6, (EntrySize(10**6, 1),))
    assert admission.admit(backlogs) == {"p": 100_000, "q": 0}


@pytest.mark.parametrize("by_bytes", [False, True])
def test_what_remains_is_shared_again(by_bytes: bool) -> None:
    """In proportion to what is left, by either limit."""
    each, large = (
        EntrySize(*(1, count) if by_bytes else (count, 1)) for count in (1, 30)
    )
    admission = limited(None, 20, each) if by_bytes else limited(20, None, each)
    backlogs = same({"p": 20, "q": 10}) | {"r": Backlog(TOPIC, 5, (large,))}
    assert admission.admit(backlogs) == {"p": 14, "q": 6, "r": 0}


def test_a_large_entry_goes_alone() -> None:
    """When nothing else is in the batch, and no smaller one after it."""
    giant = EntrySize(5000, 5000)
    for rows, size_bytes in (1000, None), (None, 1000), (1000, 1000):
        admission = limited(rows, size_bytes, EntrySize(1, 1))
        late, small = {"p": Backlog(TOPIC, 1, (giant,))}, same({"q": 50})
        assert admission.admit(late | small) == {"p": 0, "q": 50}
        assert admission.admit(late) == {"p": 1}
        early = {"p": Backlog(TOPIC, 100, (giant,))}
        assert admission.admit(early | small) == {"p": 1, "q": 0}


def test_chunks_make_up_a_message() -> None:
    """Rounding does not keep the last chunk for the next batch."""
    for chunks in range(1, 200):
        chunk = EntrySize(1 / chunks, 5)
        backlogs = same({"p": 10 * chunks}, *[chunk] * (chunks + 1))
        assert limited(1).admit(backlogs) == {"p": chunks}
        admission = limited(3, each=chunk)
        assert admission.admit(same({"p": 10 * chunks})) == {"p": 3 * chunks}


sizes = st.builds(
    EntrySize,
    st.one_of(st.integers(0, 300), st.sampled_from([0.5, 0.25, 1 / 3, 5000.0])),
    st.one_of(st.integers(0, 3000), st.just(10**6)),
)
all_backlogs = st.dictionaries(
    st.sampled_from("abcdefgh"),
    st.builds(
        Backlog,
        st.just(TOPIC),
        st.one_of(st.integers(1, 10), st.integers(1, 10**6)),
        st.lists(sizes, max_size=8).map(tuple),
    ),
)


@settings(deadline=None)
@given(
    each=sizes.filter(lambda size: size.rows > 0 and size.size_bytes > 0),
    calls=st.lists(all_backlogs, min_size=1, max_size=5),
    rows=st.none() | st.integers(1, 2000),
    size_bytes=st.none() | st.integers(1, 20_000),
)
def test_limits_are_kept_and_used(
    each: EntrySize,
    calls: list[dict[str, Backlog]],
    rows: int | None,
    size_bytes: int | None,
) -> None:
    """One entry, or no more than the limits; and no next entry would fit in."""
    admission, twin = limited(rows, size_bytes, each), limited(rows, size_bytes, each)
    for backlogs in calls:
        admitted = admission.admit(backlogs)
        assert list(admitted) == list(backlogs)
        assert twin.admit(backlogs) == admitted
        charged_rows = charged_bytes = 0.0
        following = []
        for name, count in admitted.items():
            entries, ahead = backlogs[name].entries, backlogs[name].ahead
            assert 0 <= count <= entries
            unknown = max(0, count - len(ahead))
            charged_rows += sum(s.rows for s in ahead[:count]) + unknown * each.rows
            charged_bytes += sum(s.size_bytes for s in ahead[:count])
            charged_bytes += unknown * each.size_bytes
            if count < entries:
                following.append(ahead[count] if count < len(ahead) else each)

        def fits(more_rows: float, more_bytes: float) -> bool:
            return (rows is None or more_rows <= rows + 2e-6) and (
                size_bytes is None or more_bytes <= size_bytes + 2e-6
            )

        total = sum(admitted.values())
        assert total >= min(1, len(backlogs))
        assert total <= 1 or fits(charged_rows, charged_bytes)
        for size in following:
            assert not fits(
                charged_rows + size.rows + 3e-6, charged_bytes + size.size_bytes
            )


# -- one micro-batch after the other ---------------------------------------------------


def test_partitions_take_turns() -> None:
    """With shares of 1/100 each has its entry within 100 batches, ten at a time."""
    admission = limited(1000, each=EntrySize(100, 1))
    backlogs = same({str(i): 10**6 for i in range(1000)})
    for _ in range(3):
        served: Counter[str] = Counter()
        for _ in range(100):
            admitted = admission.admit(backlogs)
            assert sum(admitted.values()) == 10
            served.update({name: n for name, n in admitted.items() if n})
        assert len(served) == 1000
        assert set(served.values()) == {1}


@settings(deadline=None, max_examples=30)
@given(
    entries=st.lists(
        st.integers(1, 100) | st.integers(1, 10**5), min_size=2, max_size=9
    ),
    limit=st.integers(1, 50),
    look=st.integers(0, 3),
)
@example([1, 30, 900, 69, 3000], 7, 0)
@example([6, 11, 13, 18, 37, 9, 72], 6, 0)
@example([839, 965, 6161, 151, 2, 1, 1], 7, 1)
def test_fractions_add_up(entries: list[int], limit: int, look: int) -> None:
    """Each has its share at all times, to an entry or so: neither late nor early."""
    limit = min(limit, min(entries))  # so that none is emptied
    admission = limited(10 * limit, each=EntrySize(10, 1))
    backlogs = same(
        {str(i): count + 1 for i, count in enumerate(entries)},
        *[EntrySize(10, 1)] * look,
    )
    total = sum(backlog.entries for backlog in backlogs.values())
    served = dict.fromkeys(backlogs, 0)
    for batch in range(1, 200):
        for name, count in admission.admit(backlogs).items():
            served[name] += count
            ideal = limit * batch * backlogs[name].entries / total
            assert abs(served[name] - ideal) < 1.5


def test_credit_ends_with_the_backlog() -> None:
    """Who was emptied or did not appear begins anew, without claims or debts."""
    admission = limited(10, each=EntrySize(10, 1))
    for other in "qrstu":
        assert admission.admit(same({"p": 1, other: 1})) == {"p": 1, other: 0}
    admission = limited(10, each=EntrySize(10, 1))
    for _ in range(5):
        assert admission.admit(same({"p": 100, "q": 15})) == {"p": 1, "q": 0}
    admission.admit(same({"p": 100}))
    for _ in range(5):
        assert admission.admit(same({"p": 100, "q": 15})) == {"p": 1, "q": 0}
    admission.admit({"q": Backlog(TOPIC, 1)})
    for _ in range(5):
        assert admission.admit(same({"p": 100, "q": 15})) == {"p": 1, "q": 0}


def test_an_entry_that_only_fits_first_has_its_turn() -> None:
    """Not before it is due, and soon after."""
    admission = limited(1000, each=EntrySize(10, 1))
    backlogs = same({"p": 90_000, "q": 90_000})
    backlogs["large"] = Backlog(TOPIC, 100, (EntrySize(900, 1),))
    batches = [batch for batch in range(400) if admission.admit(backlogs)["large"]]
    # A batch is 100 entries of 180,100: one of 100 is due every 18 batches.
    assert 18 <= len(batches) <= 22
    assert max(b - a for a, b in pairwise(batches)) <= 25


def test_partitions_of_large_entries_take_turns_with_others() -> None:
    """The backlog of one does not bring it several turns in a row."""
    admission = limited(1000, each=EntrySize(10, 1))
    large = Backlog(TOPIC, 10**6, (EntrySize(5000, 1),) * 3)
    backlogs = {"p": large, "q": large, **same({"r": 10**6})}
    turns: list[str] = []
    for _ in range(300):
        turns += [name for name, count in admission.admit(backlogs).items() if count]
    assert len(turns) == 300
    for start in range(280):
        assert set(turns[start : start + 8]) == set(backlogs)


@pytest.mark.parametrize("look", [1, 50])
def test_those_that_exclude_each_other_take_turns(look: int) -> None:
    """Large entries with many small ones behind or beside: the order is no rank."""
    admission = limited(1000, each=EntrySize(1, 1))
    backlogs = same({"a": 10**6, "b": 10**6, "c": 10**6}, *[EntrySize(900, 1)] * look)
    if look > 1:
        backlogs |= same({"small": 10**6})
    served = []
    for _ in range(60):
        admitted = admission.admit(backlogs)
        served.append({name for name, count in admitted.items() if count})
    for start in range(50):
        assert set().union(*served[start : start + 10]) == set(backlogs)
    # What is owed is no more than what is there.
    assert admission.admit(same({"a": 1, "b": 1, "c": 1})) == {"a": 1, "b": 1, "c": 1}


def test_a_gift_is_not_held_against_a_partition() -> None:
    """Room that another could not use: once it can, both share again."""
    admission = limited(1000, each=EntrySize(1, 1))
    stuck = {"q": Backlog(TOPIC, 1000, (EntrySize(999, 1),))}
    for _ in range(50):
        admission.admit(same({"p": 100_000}) | stuck)
    for _ in range(20):
        admitted = admission.admit(same({"p": 100_000, "q": 100_000}))
        assert abs(admitted["p"] - 500) <= 50


@pytest.mark.parametrize("small", [0, 1])
def test_one_entry_of_a_gift_is_given_back(small: int) -> None:
    """No more, whether the partition had some of its share or none."""
    admission = limited(100, each=EntrySize(1, 1))
    ahead = *[EntrySize(1, 1)] * small, EntrySize(999, 1)
    backlogs = same({"p": 1000}) | {"q": Backlog(TOPIC, 1000, ahead)}
    assert admission.admit(backlogs) == {"p": 100 - small, "q": small}
    assert admission.admit(same({"p": 1000, "q": 1000})) == {"p": 49, "q": 51}


@pytest.mark.parametrize("real_rows", [10, 40])
def test_a_wrong_estimate_does_not_upset_the_shares(real_rows: int) -> None:
    """Entries of another size than the average, each time: no debts pile up."""
    admission = limited(1000, each=EntrySize(20, 1))
    entries = {str(i): 10**6 * (i % 2 + 1) for i in range(40)}
    backlogs = same(entries, *[EntrySize(real_rows, 1)] * 200)
    served: Counter[str] = Counter()
    batches = 600 * real_rows // 20
    for _ in range(batches):
        admitted = admission.admit(backlogs)
        assert max(admitted.values()) <= 2 * 2 * 1000 / real_rows / 60 + 2
        served.update(admitted)
    total = batches * 1000 // real_rows
    assert sum(served.values()) == total
    for name, count in served.items():
        assert count == pytest.approx(total * (int(name) % 2 + 1) / 60, rel=0.02)


@pytest.mark.parametrize("look", [1, 2])
@pytest.mark.parametrize("by_bytes", [False, True])
def test_a_steady_topic_makes_steady_batches(look: int, by_bytes: bool) -> None:
    """Of 50 to 150 rows an entry: within a fifth of the limit, skewed as it may be."""
    source = random.Random(20)
    limit = 8000
    admission = limited(None, limit * 10) if by_bytes else limited(limit)

    def entry() -> EntrySize:
        rows = source.randint(50, 150)
        return EntrySize(rows, 10 * rows)

    waiting = Waiting(
        admission,
        {
            str(i): [entry() for _ in range(int(source.paretovariate(0.8)) * 20)]
            for i in range(100)
        },
        look,
    )
    batches = []
    for _ in range(300):
        for sizes in waiting.partitions.values():
            sizes.extend(entry() for _ in range(source.choice([0, 0, 0, 3])))
        batches.append(rows_of(waiting.batch()))
    assert all(0.8 * limit <= rows <= 1.2 * limit for rows in batches)
    assert sum(batches) / len(batches) == pytest.approx(limit, rel=0.03)


@settings(deadline=None)
@given(
    counts=st.lists(st.integers(1, 200), min_size=1, max_size=30),
    limit=st.integers(50, 5000),
    look=st.integers(0, 5),
    seed=st.integers(0, 1000),
)
def test_everything_is_read_in_time(
    counts: list[int], limit: int, look: int, seed: int
) -> None:
    """No batch is empty, and there are about as many as the limit asks for."""
    source = random.Random(seed)
    admission = limited(limit, each=EntrySize(50, 1))
    partitions = {
        str(i): [EntrySize(source.randint(25, 75), 1) for _ in range(count)]
        for i, count in enumerate(counts)
    }
    total = sum(size.rows for entries in partitions.values() for size in entries)
    waiting = Waiting(admission, partitions, look)
    batches = 0
    while any(waiting.partitions.values()):
        assert waiting.batch()
        batches += 1
        assert batches <= sum(counts)
    # A limit is used up to what does not fit, at most 75 rows, in the mean.
    assert batches <= total / max(25, limit - 75) * 1.25 + 2
    assert batches >= total / (limit * 1.5 + 75)


@settings(deadline=None)
@given(
    entries=st.lists(st.integers(1, 500), min_size=2, max_size=12),
    limit=st.integers(1, 400),
    seed=st.integers(0, 1000),
)
def test_nobody_starves(entries: list[int], limit: int, seed: int) -> None:
    """Whatever comes next in each partition, small, large or above the limit."""
    source = random.Random(seed)
    admission = limited(limit)
    waited = dict.fromkeys(map(str, range(len(entries))), 0)
    # Even if a batch were one entry only, a share comes up every sum / entries batches.
    patience = [3 * sum(entries) / count + 3 * len(entries) for count in entries]
    heads: dict[str, EntrySize] = {}
    for _ in range(400):
        for name in waited:
            if name not in heads:
                heads[name] = EntrySize(source.choice([0, 1, 10, 100, 1000]), 1)
                admission.observe(TOPIC, heads[name])
        admitted = admission.admit(
            {
                name: Backlog(TOPIC, count, (heads[name],))
                for name, count in zip(waited, entries, strict=True)
            }
        )
        for name, count in admitted.items():
            waited[name] = 0 if count else waited[name] + 1
            assert waited[name] <= patience[int(name)]
            if count:
                del heads[name]


def test_where_nothing_waits() -> None:
    """Nothing is taken there, and the others have all of the room."""
    each = EntrySize(1, 10)
    admission = limited(rows=4, each=each)
    assert admission.admit(same({"a": 0, "b": 9}, each)) == {"a": 0, "b": 4}
    assert admission.admit(same({"a": 0})) == {"a": 0}


def test_entries_without_bytes_where_nothing_is_left() -> None:
    """An entry that fits no limit is taken; none of the others is, and none divides."""
    admission = Admission(max_rows=None, max_bytes=1)
    ahead = (EntrySize(0, 1_000_000), EntrySize(0, 0))
    assert admission.admit({"a": Backlog(TOPIC, 2, ahead)})["a"] >= 1
