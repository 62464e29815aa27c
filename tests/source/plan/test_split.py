# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
from bisect import bisect_left

import pytest

from pulsar_spark.message_id import EARLIEST, MessageId
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.source.plan.split import LedgerSurvey, Run, cut, places_of
from spark_topics.source.parts import MAX_PARTS, RangeSize, count_parts

T = "persistent://public/default/t"

#: The last entry of each ledger, as in the table of ``source.survey``.
LEDGERS = {7: 7, 11: 4, 12: 2, 13: 3}


def range_of(start: str, end: str) -> TopicRange:
    """A range of the topic."""
    return TopicRange(T, MessageId.parse_text(start), MessageId.parse_text(end))


def before(ledgers: dict[int, int], asked: tuple[int, int]) -> tuple[int, int]:
    """What a broker answers: the last entry before a place."""
    ledger_id, entry_id = asked
    if ledger_id in ledgers and entry_id > 0:
        return ledger_id, min(entry_id - 1, ledgers[ledger_id])
    known = sorted(ledgers)
    at = bisect_left(known, ledger_id)
    return (known[at - 1], ledgers[known[at - 1]]) if at else (known[0], -1)


def survey(
    range_: TopicRange, ledgers: dict[int, int], extra: int = 0
) -> tuple[list[Run], int]:
    """The runs that are found, and how many rounds of questions that takes."""
    one = LedgerSurvey(range_)
    rounds = 0
    while one.gaps:
        one.learn({asked: before(ledgers, asked) for asked in one.questions(extra)})
        rounds += 1
    return one.runs(), rounds


@pytest.mark.parametrize("extra", [0, 1, 3, 32])
@pytest.mark.parametrize(
    ("start", "end", "runs"),
    [
        ("7:0", "13:3", [(7, 0, 7), (11, 0, 4), (12, 0, 2), (13, 0, 3)]),
        ("7:5", "13:1", [(7, 5, 7), (11, 0, 4), (12, 0, 2), (13, 0, 1)]),
        ("7:5:3", "13:1:2", [(7, 5, 7), (11, 0, 4), (12, 0, 2), (13, 0, 1)]),
        ("-1:-1", "11:2", [(7, 0, 7), (11, 0, 2)]),
        ("5:0", "11:2", [(7, 0, 7), (11, 0, 2)]),
        ("5:9", "6:2", []),
        ("8:3", "12:2", [(11, 0, 4), (12, 0, 2)]),
        ("7:8", "11:0", [(11, 0, 0)]),
        ("7:-1", "11:-1", [(7, 0, 7)]),
        ("7:0", "9:4", [(7, 0, 7)]),
        ("11:0", "12:99", [(11, 0, 4), (12, 0, 2)]),
        ("7:7", "11:2", [(7, 7, 7), (11, 0, 2)]),
    ],
)
def test_ledgers_of_a_range(
    start: str, end: str, runs: list[tuple[int, int, int]], extra: int
) -> None:
    """The runs are the entries that are stored, wherever the ends are."""
    found, _ = survey(range_of(start, end), LEDGERS, extra)
    assert [tuple(run) for run in found] == runs


def test_one_ledger_needs_no_question() -> None:
    """Within a ledger a split is arithmetic."""
    assert survey(range_of("7:2:1", "7:6"), {}) == ([Run(7, 2, 6)], 0)


def test_a_range_without_entries() -> None:
    """Its end may come right before its start."""
    assert survey(range_of("7:5", "7:4"), {}) == ([], 0)
    assert survey(range_of("7:5", "7:5"), {}) == ([Run(7, 5, 5)], 0)


def test_nothing_is_asked_twice() -> None:
    """One round for each ledger, and none for what is before the range."""
    assert survey(range_of("7:5", "13:1"), LEDGERS)[1] == 4
    one = LedgerSurvey(range_of("7:0", "13:3"))
    asked = [(13, 4), (13, 0), (12, 0), (11, 0)]
    one.learn({place: before(LEDGERS, place) for place in asked})
    assert one.gaps == 0
    assert [run.ledger_id for run in one.runs()] == [*LEDGERS]


def test_what_is_not_before_a_place_is_no_answer() -> None:
    """Nothing beyond the range comes into it, whatever a broker says."""
    for told in (13, 4), (13, 5), (14, 0):
        one = LedgerSurvey(range_of("7:0", "13:3"))
        one.learn({(13, 4): told})
        assert (one.gaps, one.runs()) == (0, [])


def test_questions_are_spread_evenly() -> None:
    """Between what is known, at equal distances; the necessary ones come first."""
    one = LedgerSurvey(range_of("0:0", "100:5"))
    assert one.questions(0) == [(100, 6)]
    asked = one.questions(4)
    assert asked == [(100, 6), (20, 0), (40, 0), (60, 0), (80, 0)]
    ledgers = {10: 3, 30: 1, 50: 2, 100: 9}
    one.learn({place: before(ledgers, place) for place in asked})
    assert one.gaps == 4
    assert one.questions(1) == [
        *((10, 0), (30, 0), (50, 0), (100, 0)),
        *((5, 0), (25, 0), (45, 0), (90, 0)),
    ]
    assert one.questions(100)[4:8] == [(1, 0), (2, 0), (3, 0), (4, 0)]


def test_no_room_for_more_questions() -> None:
    """Between adjacent ledgers there is none, however many may be asked."""
    one = LedgerSurvey(range_of("10:0", "11:5"))
    assert one.questions(4) == [(11, 6)]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 5))]
)
def test_many_ledgers_are_found_in_few_rounds(seed: int) -> None:
    """Ledgers whose ids are far apart or close together, a thousand of them."""
    rng = random.Random(seed)
    ids = rng.sample(range(10**9), 800) + [5 * 10**8 + 3 * i for i in range(200)]
    ledgers = {ledger_id: rng.randrange(50_000) for ledger_id in ids}
    first, last = min(ledgers), max(ledgers)
    range_ = range_of(f"{first}:0", f"{last}:{ledgers[last]}")
    found, rounds = survey(range_, ledgers, extra=32)
    assert {run.ledger_id: run.last for run in found} == ledgers
    assert rounds <= 16


def test_a_topic_that_is_trimmed_meanwhile() -> None:
    """An answer that begins a later ledger ends the survey."""
    trimmed = {12: 2, 13: 3}
    one = LedgerSurvey(range_of("7:0", "13:3"))
    one.learn({asked: before(LEDGERS, asked) for asked in one.questions(0)})
    one.learn({asked: before(LEDGERS, asked) for asked in one.questions(0)})
    assert one.gaps == 1
    one.learn({asked: before(trimmed, asked) for asked in one.questions(0)})
    assert one.gaps == 0
    assert one.runs() == [Run(12, 0, 2), Run(13, 0, 3)]


def test_places_of_entries() -> None:
    """Entries are counted over all runs."""
    runs = [Run(7, 5, 7), Run(11, 0, 1)]
    wanted = [(7, 5), (7, 6), (7, 7), (11, 0), (11, 1)]
    assert places_of(runs, range(5)) == wanted
    assert places_of(runs, [3, 1]) == [wanted[3], wanted[1]]
    assert places_of([], []) == []


@pytest.mark.parametrize(
    ("min_partitions", "parts"),
    [(7, [1, 6]), (8, [2, 6]), (9, [2, 7]), (10, [2, 8]), (13, [2, 11]), (14, [3, 11])],
)
def test_the_largest_parts_are_cut_first(min_partitions: int, parts: list[int]) -> None:
    """Whatever the ranges were cut into before for the sake of their rows."""
    sizes = [RangeSize(19), RangeSize(100)]
    assert [size.rows for size in sizes] == [19, 100]
    found = count_parts(sizes, min_partitions=min_partitions, max_records=19)
    assert found == parts


@pytest.mark.parametrize("seed", range(20))
def test_parts_are_the_range(seed: int) -> None:
    """Parts are disjoint, in order, even, and hold every entry, whatever is asked."""
    rng = random.Random(seed)
    runs = [
        Run(ledger_id, first, first + rng.randrange(1, 9))
        for ledger_id, first in enumerate([3, 0, 0, 0][: rng.randrange(1, 5)], 7)
    ]
    entries = [(r.ledger_id, e) for r in runs for e in range(r.first, r.last + 1)]
    range_ = TopicRange(
        T, MessageId(*entries[0], batch_index=2), MessageId(*entries[-1], batch_index=1)
    )
    for parts in range(1, len(entries) + 1):
        pieces = cut(range_, runs, parts)
        assert len(pieces) == parts
        assert (pieces[0].start, pieces[-1].end) == (range_.start, range_.end)
        held = [
            [e for e in entries if p.start.position <= e <= p.end.position]
            for p in pieces
        ]
        assert [e for some in held for e in some] == entries
        sizes = {len(some) for some in held}
        assert max(sizes) - min(sizes) <= 1
        inner = [p.start for p in pieces[1:]] + [p.end for p in pieces[:-1]]
        assert all(at.batch_index == -1 for at in inner)
        assert [p.is_start_known for p in pieces] == [False] + [True] * (parts - 1)


def counts(
    *entries: int, least: int | None = None, most: int | None = None, rows: float = 1.0
) -> list[int]:
    """The parts of ranges of so many entries."""
    sizes = [RangeSize(count, rows) for count in entries]
    return count_parts(sizes, min_partitions=least, max_records=most)


@pytest.mark.parametrize(
    ("entries", "least", "parts"),
    [
        ([100], 1, [1]),
        ([100], 4, [4]),
        ([3], 4, [3]),
        ([0], 4, [1]),
        ([100, 100], 2, [1, 1]),
        ([100, 100], 5, [3, 2]),
        ([900, 100], 10, [9, 1]),
        ([100, 1, 0], 5, [3, 1, 1]),
        # What KafkaOffsetRangeCalculator's own tests ask for.
        ([1, 1_000_000, 1_000_000], 3, [1, 1, 1]),
        ([1, 1_000_000, 1_000_000], 6, [1, 3, 2]),
        ([50, 100, 10_000], 10, [1, 1, 8]),
    ],
)
def test_min_partitions(entries: list[int], least: int, parts: list[int]) -> None:
    """The largest ranges are split first, until there are so many, if there can be."""
    assert counts(*entries, least=least) == parts


@pytest.mark.parametrize(
    ("entries", "rows", "most", "parts"),
    [
        ([100], 1, 100, [1]),
        ([100], 1, 99, [2]),
        ([100, 5], 1, 10, [10, 1]),
        ([100], 10, 1000, [1]),
        ([100], 10, 999, [2]),
        ([100], 10, 5, [100]),
        ([0], 1, 5, [1]),
        ([100], 0.25, 5, [5]),
    ],
)
def test_max_records(
    entries: list[int], rows: float, most: int, parts: list[int]
) -> None:
    """No part has more rows where entries are alike, and none less than an entry."""
    assert counts(*entries, rows=rows, most=most) == parts


def test_both_hints() -> None:
    """The number of parts is the larger of what both ask for."""
    assert counts(100, 10, most=25, least=3) == [4, 1]
    assert counts(100, 10, most=25, least=8) == [7, 1]
    assert counts(3, most=1, least=5) == [3]


def test_rows_count_not_entries() -> None:
    """Few entries of many rows are more than many entries of few."""
    sizes = [RangeSize(100, 1), RangeSize(100, 100)]
    assert count_parts(sizes, min_partitions=5, max_records=None) == [1, 4]


def test_an_empty_range_is_not_cut() -> None:
    """Without entries the range stays what it is."""
    range_ = range_of("7:8", "11:-1")
    assert cut(range_, [], 1) == [range_]
    assert EARLIEST.position < range_.start.position


def test_entries_that_claim_billions_of_rows_make_no_million_of_parts():
    """Whatever entries say, a plan has no more parts than a driver can hold."""
    sizes = [RangeSize(1_000_000, 2.0**31), RangeSize(1_000_000, 2.0**31)]
    parts = count_parts(sizes, min_partitions=None, max_records=1)
    assert parts == [50_000] * 2
    one_entry = [sizes[0], RangeSize(1, 2.0**31)]
    parts = count_parts(one_entry, min_partitions=None, max_records=1)
    assert parts == [99_999, 1]
    small = [RangeSize(MAX_PARTS, 5.0)]
    assert count_parts(small, min_partitions=None, max_records=5) == [MAX_PARTS]


@pytest.mark.parametrize(
    ("entries", "parts", "found"),
    [(10, 1, [10]), (10, 3, [3, 3, 4]), (3, 3, [1, 1, 1]), (0, 1, [0])],
)
def test_the_sizes_of_parts(entries: int, parts: int, found: list[int]) -> None:
    """They are those of the parts that the range is cut into."""
    assert RangeSize(entries, 2.5).cut(parts) == [RangeSize(n, 2.5) for n in found]
