# SPDX-License-Identifier: Apache-2.0
"""The order of segments in a stream, and what is known of those that are gone."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pulsar_spark.errors import PulsarSparkError
from pulsar_spark.message_id import LATEST, TxnId
from pulsar_spark.options.patience import USUAL
from pulsar_spark.source.stream import segments as module
from pulsar_spark.source.stream.segments import Segments
from pulsar_spark.topics import TopicName
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import from_message_id_data
from pulsar_spark.wire.layout import Layout, Segment
from tests.source.stream.queries import CRASHES, Query, Row
from tests.support.scripted_broker import (
    LEDGER,
    Action,
    ScriptedBroker,
    Session,
    cut,
    refuse,
    single,
    usual,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TOPIC = "topic://t/ns/x"
LEGACY = "persistent://t/ns/x-partition-0"

#: How long a sealed segment settles.
SETTLING_S = 1.0


def name(number: int) -> str:
    """The name of a segment; here all have the same hashes."""
    return f"segment://t/ns/x/0000-ffff-{number}"


def segment(number: int, *parents: int, sealed: bool = False) -> Segment:
    """A segment."""
    return Segment(number, name(number), 0, 0xFFFF, sealed, frozenset(parents))


def known(*segments: Segment, in_order: bool = True) -> Segments:
    """What a stream knows of a topic with these segments."""
    return Segments(
        {TOPIC: Layout(TOPIC, 1, segments)}, in_order=in_order, settling_s=0.0
    )


def lineage() -> tuple[Segment, ...]:
    """A split, and a merge of the children."""
    return (
        segment(0, sealed=True),
        segment(1, 0, sealed=True),
        segment(2, 0, sealed=True),
        segment(3, 1, 2),
        segment(4),
    )


ALL = {name(number) for number in range(5)}


def read(*names: str) -> dict[str, None]:
    """Statuses of what is read."""
    return dict.fromkeys(names)


class Clock:
    """Time that passes by sleeping alone."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        """Seconds."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Pass."""
        self.slept.append(seconds)
        self.now_s += seconds


def test_a_segment_that_was_just_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end is waited for once, from when it was seen sealed."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    layouts = {TOPIC: Layout(TOPIC, 1, (segment(0, sealed=True), segment(1)))}
    segments = Segments(layouts, in_order=True, settling_s=SETTLING_S)

    def wait(*names: str) -> float:
        clock.slept.clear()
        segments.await_ends(segments.ending(names))
        return sum(clock.slept)

    assert wait(name(1)) == 0
    assert wait(name(0)) == SETTLING_S
    assert wait(name(0)) == 0
    layouts[TOPIC] = Layout(
        TOPIC, 2, (segment(0, sealed=True), segment(1, sealed=True))
    )
    assert wait(name(0)) == 0
    clock.now_s += SETTLING_S / 4
    assert wait(name(0), name(1)) == SETTLING_S * 3 / 4
    segments.drained |= {name(0), name(1)}
    assert wait(name(0), name(1)) == 0


@pytest.mark.parametrize(
    ("drained", "waiting"),
    [
        ((), {1, 2, 3}),
        ((0,), {3}),
        ((0, 1), {3}),
        ((0, 1, 2), set()),
        ((1, 2), {1, 2, 3}),  # 3 waits for what they wait for
    ],
)
def test_children_wait(drained: tuple[int, ...], waiting: set[int]) -> None:
    """Until all that they come from was read."""
    segments = known(*lineage())
    segments.drained = frozenset(map(name, drained))
    assert segments.waiting(read(*ALL)) == {name(number) for number in waiting}


def test_the_end_of_the_stream_releases_children() -> None:
    """Of a parent that it ends in; what was made of several waits for all of them."""
    segments = known(*lineage())
    segments.drained = frozenset({name(0)})
    assert segments.waiting(ALL, {name(1)}) == {name(3)}
    assert segments.waiting(ALL, {name(1), name(2)}) == set()
    assert segments.drained == {name(0)}


def test_what_is_drained_may_have_rows_again() -> None:
    """Then its children wait, it is no longer over, and ends once more."""
    segments = known(segment(0, sealed=True), segment(1, 0))
    segments.drained = frozenset({name(0), "segment://t/ns/x/0000-ffff-9"})
    segments.reopen([name(0)])
    assert segments.waiting([name(0), name(1)]) == {name(1)}
    assert segments.ending([name(0), name(1)]) == [name(0)]
    assert not segments.may_be_gone(name(0))


def test_nothing_waits_where_no_order_is_asked_for() -> None:
    """All segments are read at once."""
    assert known(*lineage(), in_order=False).waiting(read(*ALL)) == set()


def test_parents_that_are_not_read_hold_nothing_back() -> None:
    """They are gone, and what that means was said."""
    assert known(*lineage()).waiting(read(name(3), name(4))) == set()


def test_a_migrated_topic() -> None:
    """Its partitions are the parents of its segments."""
    legacy = replace(segment(0, sealed=True), name=LEGACY)
    segments = known(legacy, segment(1, 0))
    assert segments.waiting(read(LEGACY, name(1))) == {name(1)}
    assert segments.ending([LEGACY, name(1)]) == [LEGACY]
    assert not segments.is_absent(LEGACY)
    assert segments.is_absent("persistent://t/ns/x-partition-1")
    assert not segments.is_absent("persistent://t/ns/other")


def test_what_is_over() -> None:
    """Drained and deleted; either alone is something else."""
    segments = known(segment(1), segment(2, sealed=True))
    segments.drained = frozenset({name(0), name(2)})
    over = [number for number in range(4) if segments.is_over(name(number))]
    assert over == [0]
    assert segments.is_absent(name(3))
    assert segments.ending(ALL) == []


@pytest.mark.parametrize(
    ("read", "unseen"),
    [([2], [3]), ([3], []), ([0, 1], [2, 3]), ([4], []), ([], [])],
)
def test_segments_that_came_and_went(read: list[int], unseen: list[int]) -> None:
    """Their numbers are missing between what was read and what there is."""
    segments = known(segment(1), segment(4))
    found = segments.unseen([*map(name, read), "persistent://t/ns/other"])
    assert found == ({TOPIC: unseen} if unseen else {})


@pytest.mark.parametrize(
    ("read", "unseen"),
    [
        (["persistent://t/ns/x-partition-0", "persistent://t/ns/x-partition-1"], [2]),
        (["persistent://t/ns/x-partition-0"], [1, 2]),
        (["persistent://t/ns/x"], [1, 2]),
        (["persistent://t/ns/y", "persistent://t/ns/y-partition-0"], []),
        (["persistent://t/ns/x-partition-0", name(2)], []),
    ],
)
def test_segments_of_a_migrated_topic_that_came_and_went(
    read: list[str], unseen: list[int]
) -> None:
    """Partitions have the first numbers, also when they are gone."""
    segments = known(segment(3), segment(4))
    assert segments.unseen(read) == ({TOPIC: unseen} if unseen else {})


@given(st.data())
def test_each_plan_goes_on(data: st.DataObject) -> None:
    """Whatever the lineage, something can be read until all is drained, in order."""
    count = data.draw(st.integers(1, 12))
    segments = [
        segment(
            number,
            *data.draw(st.sets(st.integers(0, number - 1), max_size=2))
            if number
            else (),
        )
        for number in range(count)
    ]
    stream = known(*segments)
    names = read(*(one.name for one in segments))
    order: list[str] = []
    while len(order) < count:
        ready = [
            one
            for one in names
            if one not in order and one not in stream.waiting(names)
        ]
        assert ready
        drained = data.draw(st.lists(st.sampled_from(ready), min_size=1, unique=True))
        order += drained
        stream.drained |= set(drained)
    for one in segments:
        for parent in one.parents:
            assert order.index(name(parent)) < order.index(one.name)


SCALABLE = "topic://public/default/t"
OTHER = "persistent://public/default/other"  # which stays empty
BOTH = f"{SCALABLE},{OTHER}"
HASHES = tuple(range(0, 0x10000, 0x2000))

steps = st.one_of(
    st.tuples(st.just("publish"), st.lists(st.sampled_from(HASHES), min_size=1)),
    st.tuples(st.just("trigger"), st.sampled_from(("", "", *CRASHES))),
    st.tuples(st.just("split"), st.integers(0, 7), st.integers(0, 2)),
    st.tuples(st.just("merge"), st.integers(0, 7), st.integers(0, 2)),
    st.tuples(st.just("delete"), st.integers(0, 7)),
    st.tuples(st.just("skip"), st.sampled_from(HASHES), st.integers(0, 1)),
    st.tuples(
        st.just("trouble"),
        st.sampled_from(["LOOKUP", "SUBSCRIBE", "GET_LAST_MESSAGE_ID"]),
        st.integers(0, 30),
        st.sampled_from([refuse("ServiceNotReady"), cut]),
    ),
    st.tuples(st.just("restart"), st.sampled_from(["", "1", "3"]), st.booleans()),
    st.sampled_from([("unload",), ("cut",), ("available now",), ("switch",)]),
)


class Settling(Clock):
    """Time in which the broker comes to know where sealed segments end."""

    def __init__(self, broker: ScriptedBroker) -> None:
        super().__init__()
        self.broker = broker

    def sleep(self, seconds: float) -> None:
        """Pass."""
        super().sleep(seconds)
        if seconds:
            self.broker.hidden.clear()


class Model:
    """A scalable topic that is divided, and a query that reads it."""

    def __init__(self, broker: ScriptedBroker, options: dict[str, str]) -> None:
        self.broker = broker
        self.query = Query(broker, startingOffsets="earliest", **options)
        del self.query.options["topic"]
        self.query.options["topics"] = BOTH
        self.query.limits["patience"] = replace(USUAL, settling_s=SETTLING_S)
        self.published: dict[int, list[Row]] = {key: [] for key in HASHES}
        self.in_order: list[bool] = []  # of the micro-batches so far
        self.is_watched = False  # since the last micro-batch
        self.old: set[Row] = set()  # rows of a topic that was made anew
        self.moved: set[str] = set()  # segments whose cursor somebody has moved
        self.sticks = False  # whether ends are said as they were first
        self.fails = options.get("failOnDataLoss", "true")
        broker.add_topic(OTHER)
        broker.scalable = {SCALABLE: SCALABLE}
        broker.segments = []
        self.add(0, 0xFFFF)

    def add(
        self, start: int, end: int, *parents: pb.ScalableTopicSegment, hidden: int = 0
    ) -> None:
        """A segment comes; its parents are sealed, and end too early for a moment."""
        number = 1 + max((one.segment_id for one in self.broker.segments), default=-1)
        for parent in parents:
            parent.state = 1
            self.broker.terminated[self.name(parent)] = "TopicTerminatedError"
            entries = self.broker.topics[self.name(parent)]
            self.broker.hidden[self.name(parent)] = min(hidden, len(entries))
        added = pb.ScalableTopicSegment(
            segment_id=number,
            hash_start=start,
            hash_end=end,
            parent_ids=[parent.segment_id for parent in parents],
        )
        self.broker.add_topic(self.name(added))
        self.broker.segments.append(added)

    @staticmethod
    def name(one: pb.ScalableTopicSegment) -> str:
        """The full name of a segment."""
        topic = TopicName.parse(SCALABLE)
        return topic.segment(one.hash_start, one.hash_end, one.segment_id).full_name

    @property
    def active(self) -> list[pb.ScalableTopicSegment]:
        """Those that take rows, by their hashes."""
        active = [one for one in self.broker.segments if not one.state]
        return sorted(active, key=lambda one: one.hash_start)

    def step(self, what: str, *given_: Any) -> None:
        """One thing happens."""
        getattr(self, what.replace(" ", "_"))(*given_)

    def publish(self, keys: list[int]) -> None:
        """Rows of such keys come."""
        for key in keys:
            (home,) = (o for o in self.active if o.hash_start <= key <= o.hash_end)
            self.broker.append(self.name(home), single(b"a"))
            if self.sticks and len(self.broker.topics[self.name(home)]) == 1:
                self.broker.stick(self.name(home))
            place = self.broker.topics[self.name(home)][-1].place
            self.published[key].append((self.name(home), *place, 0))

    def split(self, number: int, hidden: int) -> None:
        """A segment becomes two."""
        one = self.active[number % len(self.active)]
        middle = (one.hash_start + one.hash_end) // 2
        if one.hash_end - one.hash_start >= 0x2000:
            self.add(one.hash_start, middle, one, hidden=hidden)
            self.add(middle + 1, one.hash_end, one, hidden=hidden)

    def merge(self, number: int, hidden: int) -> None:
        """Two neighbours become one."""
        active = self.active
        if len(active) > 1:
            index = number % (len(active) - 1)
            left, right = active[index : index + 2]
            self.add(left.hash_start, right.hash_end, left, right, hidden=hidden)

    def delete(self, number: int) -> None:
        """Retention: only a sealed segment that the subscription is done with.

        Only a query that looks before it ends can tell such a segment from a loss,
        unless its checkpoint has the end.
        """
        drained = self.drained
        done = [
            one
            for one in self.broker.segments
            if one.state
            and (self.name(one) in drained or (self.is_watched and self.is_done(one)))
        ]
        if done:
            gone = done[number % len(done)]
            self.broker.segments.remove(gone)
            for one in self.broker.segments:
                if gone.segment_id in one.parent_ids:
                    one.parent_ids.remove(gone.segment_id)
            self.broker.delete_topic(self.name(gone))
            if self.name(gone) not in drained:
                self.trigger("")

    def skip(self, key: int, left: int) -> None:
        """Rows come, and somebody moves the cursor near the end; all stay stored."""
        self.publish([key, key])
        (home,) = (o for o in self.active if o.hash_start <= key <= o.hash_end)
        for subscription in self.broker.durable(self.name(home)):
            self.moved.add(self.name(home))
            subscription.mark_delete = self.broker.positions(self.name(home))[-1 - left]
        self.broker.close_consumers(self.name(home))

    @property
    def drained(self) -> set[str]:
        """Segments that the checkpoint has had as read to their end."""
        ends = self.query.log[: len(self.query.rows)]
        return {name for end in ends for name in end.get("drained", ())}

    @property
    def is_away(self) -> bool:
        """Whether the options do not name the topic."""
        return self.query.options["topics"] == OTHER

    def switch(self) -> None:
        """The options name the topic no longer, or again."""
        self.is_watched = False
        self.query.kill()
        if self.is_away:
            self.query.options |= {"topics": BOTH, "failOnDataLoss": self.fails}
        else:
            self.query.options |= {"topics": OTHER, "failOnDataLoss": "false"}

    def make_anew(self) -> None:
        """The topic is deleted, and made again; ids begin with 0."""
        for one in self.broker.segments:
            self.broker.delete_topic(self.name(one))
        self.broker.segments = []
        self.broker.terminated.clear()
        self.broker.hidden.clear()
        self.old |= {row for rows in self.published.values() for row in rows}
        self.published = {key: [] for key in HASHES}
        self.add(0, 0xFFFF)

    def is_done(self, one: pb.ScalableTopicSegment) -> bool:
        """Whether all of a segment is acknowledged, by the query alone."""
        if self.name(one) in self.moved:
            return False
        places = self.broker.positions(self.name(one))
        subscriptions = self.broker.durable(self.name(one))
        return bool(subscriptions) and all(
            place <= subscription.mark_delete
            for place in places
            for subscription in subscriptions
        )

    def trigger(self, crash: str) -> None:
        """The query runs a micro-batch, or a part of it."""
        before = len(self.query.log)
        self.query.trigger(crash)
        self.is_watched = not crash and not self.is_away
        in_order = self.query.options.get("orderByKey") != "false"
        self.in_order += [in_order] * (len(self.query.log) - before)

    def restart(self, limit: str, in_order: bool) -> None:
        """The query goes on with other options."""
        self.is_watched = False
        self.query.kill()
        self.query.options["orderByKey"] = str(in_order).lower()
        self.query.options.pop("maxRowsPerTrigger", None)
        if limit:
            self.query.options["maxRowsPerTrigger"] = limit

    def unload(self) -> None:
        """The broker lets go of the topic."""
        self.broker.close_consumers()

    def cut(self) -> None:
        """All connections break."""
        self.is_watched = False
        self.broker.cut()

    def trouble(self, command: str, before: int, what: Action) -> None:
        """One of the next commands of a type fails."""
        self.is_watched = False
        self.broker.script(command, *[usual] * before, what)

    def available_now(self) -> None:
        """A run of the query that reads all that the broker knows of, and ends."""
        self.is_watched = False
        self.query.kill()
        knows_all = not (self.is_away or any(self.broker.hidden.values()))
        self.query.planner.fix_target()
        self.drain()
        self.query.stop()
        read = {row for rows in self.query.rows for row in rows}
        if knows_all:
            assert read == {row for rows in self.published.values() for row in rows}

    def drain(self) -> None:
        """Micro-batches run until nothing is new."""
        in_order = self.query.options.get("orderByKey") != "false"
        self.query.drain()
        self.in_order += [in_order] * (len(self.query.log) - len(self.in_order))

    def finish(self) -> None:
        """All was read once; rows of a key in order, where that was asked for."""
        self.broker.hidden.clear()
        if self.is_away:
            self.switch()
        if self.sticks:
            # Other runs leave an end that is not found out to the next look.
            self.available_now()
        self.drain()
        self.check(self.published.values())

    def check(self, published: Iterable[list[Row]]) -> None:
        """Rows were read once, and in order where that was asked for.

        Args:
            published: The rows of each key that were to be read.
        """
        published = list(published)
        batches: dict[Row, list[int]] = {}
        for batch_id, rows in enumerate(self.query.rows):
            for row in rows:
                batches.setdefault(row, []).append(batch_id)
        wanted = [row for rows in published for row in rows]
        assert sorted(batches.keys() - self.old) == sorted(wanted)
        assert all(len(numbers) == 1 for numbers in batches.values())
        always = all(self.in_order)
        for rows in published:
            for (before,), (after,), first, second in zip(
                map(batches.get, rows),
                map(batches.get, rows[1:]),
                rows,
                rows[1:],
                strict=False,
            ):
                if always or first[0] == second[0]:
                    assert before <= after
                if always and first[0] != second[0]:
                    assert before < after


@pytest.mark.usefixtures("short_waits")
def test_it_is_not_known_what_is_drained(scripted: ScriptedBroker) -> None:
    """A query that ends would leave rows out. It fails, and says how long it asked."""
    model = Model(scripted, {"pollTimeoutMs": "300"})
    model.query.limits["lookup_timeout_s"] = 0.2
    model.publish([0])
    model.drain()
    model.publish([0])
    model.split(0, 0)
    model.publish([0, HASHES[-1]])

    def refuse_the_end(broker: ScriptedBroker, session: Session, command: Any) -> None:
        start = command.subscribe.start_message_id
        is_at_end = from_message_id_data(start).position == LATEST.position
        (refuse("ServiceNotReady") if is_at_end else usual)(broker, session, command)

    model.query.planner.fix_target()
    scripted.always("SUBSCRIBE", refuse_the_end)
    with pytest.raises(PulsarSparkError, match=r"0\.3 s.*pollTimeoutMs"):
        model.drain()
    scripted.always("SUBSCRIBE", usual)
    model.finish()
    model.query.kill()


@contextlib.contextmanager
def modelled(options: dict[str, str]) -> Iterator[Model]:
    """A model, until the test ends."""
    with (
        ScriptedBroker() as broker,
        mock.patch.object(module, "time", Settling(broker)),
    ):
        model = Model(broker, options)
        try:
            yield model
        finally:
            model.query.kill()


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    options=st.fixed_dictionaries(
        {},
        optional={
            "maxRowsPerTrigger": st.sampled_from(["1", "3", "8"]),
            "orderByKey": st.sampled_from(["true", "false"]),
        },
    ),
    script=st.lists(steps, min_size=4, max_size=25),
    sticks=st.booleans(),
)
def test_every_row_once_and_in_order(
    short_waits: None,
    options: dict[str, str],
    script: list[tuple[Any, ...]],
    sticks: bool,
) -> None:
    """Splits, merges, segments that go, moved cursors, limits, crashes, other options.

    The broker says at first that a sealed segment ends before its last entries; or
    goes on to say that each ends at its first entry, as 5.0.1 does.
    """
    with modelled(options) as model:
        model.sticks = sticks
        for step in script:
            model.step(*step)
        model.finish()


def test_a_topic_that_is_made_anew(short_waits: None) -> None:
    """Children wait for a segment that has the name of one that was drained."""
    with modelled({"failOnDataLoss": "false"}) as model:
        for again in (False, True):
            if again:
                model.make_anew()
            model.publish([0])
            model.split(0, 0)
            model.publish([0])
            model.drain()
            assert model.query.begin().drained == {model.name(model.broker.segments[0])}
        model.finish()


def test_a_topic_that_returns(short_waits: None) -> None:
    """What was read to its end, and is deleted since, is no loss."""
    with modelled({}) as model:
        model.publish([0, 0xE000])
        model.split(0, 0)
        model.publish([0, 0xE000])
        model.drain()
        assert model.drained == {model.name(model.broker.segments[0])}
        model.switch()
        model.drain()
        assert len(model.query.begin().kept) == 3
        model.delete(0)
        model.publish([0, 0xE000])
        model.finish()
        assert len(model.query.begin().last_read) == 3  # with the other topic's
        assert model.query.begin().drained == frozenset()


divisions = st.one_of(
    st.tuples(st.just("publish"), st.lists(st.sampled_from(HASHES), min_size=1)),
    st.tuples(st.just("split"), st.integers(0, 7), st.integers(0, 2)),
    st.tuples(st.just("merge"), st.integers(0, 7), st.integers(0, 2)),
)


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=st.data(), limit=st.sampled_from(["", "1", "3"]))
def test_every_row_up_to_the_ends(
    short_waits: None, data: st.DataObject, limit: str
) -> None:
    """Wherever the stream ends in each segment: sealed ones have more rows, or none."""
    with modelled({"maxRowsPerTrigger": limit} if limit else {}) as model:
        for step in data.draw(st.lists(divisions, min_size=2, max_size=15)):
            model.step(*step)
        last: dict[str, str] = {}
        wanted: set[Row] = set()
        for one in model.broker.segments:
            name = model.name(one)
            places = model.broker.positions(name)
            count = data.draw(st.integers(0, len(places)))
            wanted |= {(name, *place, 0) for place in places[:count]}
            if count:
                last[name] = "{}:{}".format(*places[count - 1])
        assume(last)
        model.query.options["endingOffsets"] = json.dumps({**last, "*": "earliest"})
        model.drain()
        model.check(
            [row for row in rows if row in wanted] for rows in model.published.values()
        )


def be_impatient(model: Model, **waits: float) -> None:
    """What this broker does not do at once, it never does."""
    usual_waits = model.query.limits["patience"]
    short = {"delivery_s": 0.1, "hidden_s": 0.1, "look_s": 0.1, **waits}
    model.query.limits["patience"] = replace(usual_waits, **short)


@pytest.mark.parametrize(("end", "is_sealed"), [(2, True), (2, False), (4, True)])
def test_what_is_behind_the_end_is_not_looked_for(
    short_waits: None, end: int, is_sealed: bool
) -> None:
    """Plan by plan: a segment that the stream has read to its end there costs nothing.

    An open transaction is behind the end, unless that is the end of the segment, too.
    """
    with modelled({}) as model:
        be_impatient(model)
        model.publish([0] * 5)
        parent = model.name(model.broker.segments[0])
        if end < 4:
            model.broker.transactions[TxnId(0, 9)] = [parent]
            txn = {"txnid_most_bits": 0, "txnid_least_bits": 9}
            model.broker.append(parent, single(b"a", **txn))
        if is_sealed:
            model.split(0, 0)
        model.broker.says_last = pb.MessageIdData(ledgerId=LEDGER, entryId=0)
        ending = {parent: f"{LEDGER}:{end}"}
        model.query.options["endingOffsets"] = json.dumps(ending)
        model.drain()
        read = [row[2] for rows in model.query.rows for row in rows]
        assert read == list(range(end + 1))
        assert model.query.begin().drained == ({parent} if end == 4 else set())
        model.trigger("")
        asked = model.broker.requests["SUBSCRIBE"]
        model.trigger("")
        assert model.broker.requests["SUBSCRIBE"] == asked
        progress = model.query.planner.progress()
        assert progress is not None
        assert str(end) in str(progress["latest"])


@pytest.mark.parametrize(("quiet_s", "is_asked"), [(3600.0, False), (0.0, True)])
def test_the_end_of_a_compacted_segment_is_searched_once(
    short_waits: None, quiet_s: float, is_asked: bool
) -> None:
    """For a while, or until something comes: its last entries may never come.

    Here an open transaction keeps them back. There compaction has removed them.
    """
    with modelled({"pulsar.reader.readCompacted": "true"}) as model:
        be_impatient(model, quiet_s=quiet_s)
        model.publish([0] * 3)
        (one,) = model.active
        model.broker.transactions[TxnId(0, 9)] = [model.name(one)]
        txn = {"txnid_most_bits": 0, "txnid_least_bits": 9}
        model.broker.append(model.name(one), single(b"a", **txn))
        model.broker.says_last = pb.MessageIdData(ledgerId=LEDGER, entryId=0)
        model.drain()
        model.trigger("")
        asked = model.broker.requests["SUBSCRIBE"]
        model.trigger("")
        assert (model.broker.requests["SUBSCRIBE"] > asked) == is_asked
        model.broker.transactions.clear()
        model.publish([0])
        model.drain()
        assert [row[2] for rows in model.query.rows for row in rows] == [*range(5)]
