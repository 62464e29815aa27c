# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.source.stream.stream_ends`: what counts as not stored."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.errors import DataLossError, OptionError
from pulsar_spark.message_id import (
    EARLIEST,
    MessageId,
    TopicPositions,
    TxnId,
    encode_message_id,
)
from pulsar_spark.options import parse_read_options
from pulsar_spark.source.stream.last_read import NOTHING_READ, LastRead
from pulsar_spark.source.stream.stream_ends import StreamEnds
from pulsar_spark.topics import TopicName
from tests.source.stream.queries import BASE, P0, P1, P2, all_rows, stored
from tests.support.scripted_broker import LEDGER, ScriptedBroker, Subscription, single

T = "persistent://public/default/t"
PARTS = [f"{T}-partition-{number}" for number in range(3)]
LAST = MessageId(9, 99, 4)


class Times:
    """Answers where times are, and keeps what it was asked."""

    def __init__(self, **answers: TopicPositions) -> None:
        self.answers = answers
        self.asked: list[Mapping[str, int]] = []

    def from_times(self, times_ms: Mapping[str, int]) -> dict[str, TopicPositions]:
        """As the lookup of positions."""
        if times_ms:
            self.asked.append(dict(times_ms))
        return {name: self.answers[name.rpartition("/")[2]] for name in times_ms}


def ends(times: Any = None, **options: str) -> StreamEnds:
    """The ends that a stream with these options has."""
    given = {"service.url": "pulsar://h", "topics": "t", **options}
    return StreamEnds(parse_read_options(given, streaming=True), times or Times())


def cut(stream_ends: StreamEnds, *names: str) -> dict[str, MessageId | None]:
    """The last messages of topic partitions that all end at `LAST`."""
    begins = dict.fromkeys(names, NOTHING_READ)
    return stream_ends.cut(dict.fromkeys(names, LAST), begins)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("latest", [LAST] * 3),
        ('{"t": {"0": "7:3", "1": "12:0"}}', [MessageId(7, 3), LAST, LAST]),
        ('{"t": {"0": "9:99:2", "2": "latest"}}', [MessageId(9, 99, 2), LAST, LAST]),
        ('{"t": {"1": "9:99"}}', [LAST] * 3),
        ('{"t": {"1": "0:-1"}}', [LAST, MessageId(0, -1), LAST]),
        ('{"t": {"1": "7:3"}, "*": "earliest"}', [EARLIEST, MessageId(7, 3), EARLIEST]),
        ('{"t": {"1": "7:3", "2": "earliest"}}', [LAST, MessageId(7, 3), EARLIEST]),
    ],
)
def test_positions(text: str, expected: list[MessageId]) -> None:
    """Of each topic partition its own; what is not named has no end."""
    assert list(cut(ends(endingOffsets=text), *PARTS).values()) == expected


def test_an_id_of_no_partition() -> None:
    """At a restart, too, it says nothing of the partitions of a topic."""
    with pytest.raises(OptionError, match=r"Name the partition: .*\"0\":\"7:3\""):
        cut(ends(endingOffsets='{"t": "7:3"}'), *PARTS)
    of_a_partition = MessageId(7, 3, partition=1)
    encoded = list(encode_message_id(of_a_partition))
    stream_ends = ends(endingOffsets=json.dumps({"t": encoded}))
    assert list(cut(stream_ends, *PARTS).values()) == [LAST, of_a_partition, LAST]
    stream_ends = ends(endingOffsets=json.dumps({"t": encoded, "*": "earliest"}))
    expected = [EARLIEST, of_a_partition, EARLIEST]
    assert list(cut(stream_ends, *PARTS).values()) == expected


def test_nothing_stored_stays_nothing() -> None:
    """An end makes no message."""
    stream_ends = ends(endingOffsets='{"t": "7:3"}')
    assert stream_ends.cut({T: None}, {T: NOTHING_READ}) == {T: None}


def test_a_time_is_asked_for_until_it_is_known() -> None:
    """While nothing was published later, there is no end; then it stays."""
    times = Times(t=TopicPositions(MessageId(9, 99), LAST))
    stream_ends = ends(times, endingTime="1000")
    assert cut(stream_ends, T) == {T: LAST}
    times.answers["t"] = TopicPositions(MessageId(9, 41), LAST)
    assert cut(stream_ends, T) == {T: MessageId(9, 41)}
    times.answers["t"] = TopicPositions(EARLIEST, None)
    assert cut(stream_ends, T) == {T: MessageId(9, 41)}
    assert times.asked == [{T: 1001}, {T: 1001}]


def test_no_broker_is_asked_without_news() -> None:
    """An idle stream costs nothing more."""
    times = Times()
    stream_ends = ends(times, endingTime="1000")
    after = LastRead(LAST.ledger_id, LAST.entry_id)
    assert stream_ends.cut({T: LAST}, {T: after}) == {T: LAST}
    assert times.asked == []


def test_times_of_topics() -> None:
    """JSON names topics; others go on."""
    times = Times(t=TopicPositions(MessageId(9, 41), LAST))
    stream_ends = ends(times, topics="t,u", endingTime='{"t": 5}')
    other = "persistent://public/default/u"
    assert cut(stream_ends, T, other) == {T: MessageId(9, 41), other: LAST}


@pytest.mark.parametrize("option", ["endingOffsets", "endingTime"])
def test_names_of_nothing(option: str, caplog: pytest.LogCaptureFixture) -> None:
    """They are refused; what may have been deleted since is told at most, and once."""
    value = '"7:3"' if option == "endingOffsets" else "5"
    segment = "segment://public/default/s/0000-7fff-1"

    def check(name: str, stream_ends: StreamEnds | None = None) -> StreamEnds:
        text = f'{{"{name}": {value}}}'
        stream_ends = stream_ends or ends(topics="t,u,s", **{option: text})
        wanted = {f"persistent://public/default/{topic}" for topic in "tus"}
        stream_ends.check(
            {*PARTS, segment},
            lambda name: name.partition("-partition-")[0] in wanted,
            lambda name: "/s/" in name and name.endswith("-0"),
        )
        return stream_ends

    for name in ("t", PARTS[2], "s", "topic://public/default/s", segment):
        check(name)
    check(f"{segment[:-1]}0")
    assert caplog.messages == []
    for name in ("tt", "tt-partition-0", "segment://public/default/r/0000-7fff-1"):
        with pytest.raises(OptionError, match=f"`{option}` names .*{name}, "):
            check(name)
    for name in ("u", "t-partition-7"):
        stream_ends = check(name)
        check(name, stream_ends)
        (message,) = caplog.messages
        assert f"`{option}` names persistent://public/default/{name}, which" in message
        caplog.clear()


@pytest.mark.usefixtures("short_waits")
class TestRestart:
    """A query that goes on, with other ends."""

    GOOD = f'{{"t":{{"0":"{LEDGER}:1","1":"{LEDGER}:1"}}}}'

    @pytest.mark.parametrize("option", ["endingOffsets", "endingTime"])
    def test_a_misspelt_name(
        self, two: ScriptedBroker, queries: Any, option: str
    ) -> None:
        """It is refused as at the first start, and nothing is read."""
        query = queries(endingOffsets=self.GOOD)
        query.drain()
        query.kill()
        del query.options["endingOffsets"]
        query.options[option] = self.GOOD.replace('"t"', '"tt"')
        if option == "endingTime":
            query.options[option] = '{"tt": 5}'
        with pytest.raises(OptionError, match=f"`{option}` names .*tt") as caught:
            query.drain()
        assert P0 in caught.value.message
        assert len(all_rows(query)) == 4
        query.kill()
        del query.options[option]
        query.drain()
        assert all_rows(query) == stored(two)

    def test_a_topic_that_left(self, scripted: ScriptedBroker, queries: Any) -> None:
        """Its end may stay where it is, run after run."""
        for name in ("t", "u"):
            scripted.add_topic(f"persistent://public/default/{name}", [single(b"a")])
        ending = f'{{"t":"{LEDGER}:0","u":"{LEDGER}:0"}}'
        query = queries(topics="t,u", endingOffsets=ending, failOnDataLoss="false")
        del query.options["topic"]
        query.drain()
        query.options["topics"] = "t"
        for _ in range(3):
            query.kill()
            scripted.append(BASE, single(b"b"))
            query.drain()
        assert len(all_rows(query)) == 2

    def test_a_deleted_topic_of_a_pattern(
        self, scripted: ScriptedBroker, queries: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The same, with a warning."""
        other = "persistent://public/default/u"
        for name in (BASE, other):
            scripted.add_topic(name, [single(b"a")] * 2)
        ending = f'{{"t":"{LEDGER}:3","u":"{LEDGER}:0"}}'
        query = queries(
            topicsPattern="[a-z]", endingOffsets=ending, failOnDataLoss="false"
        )
        del query.options["topic"]
        query.drain()
        scripted.delete_topic(other)
        for _ in range(3):
            query.kill()
            scripted.append(BASE, single(b"b"))
            query.drain()
        assert [row[2] for row in all_rows(query) if row[0] == BASE] == [0, 1, 2, 3]
        assert caplog.messages[-1].startswith(f"`endingOffsets` names {other}, which")

    def test_a_start_at_a_subscription(self, two: ScriptedBroker, queries: Any) -> None:
        """Names are looked at there, too."""
        for name in (P0, P1):
            one = Subscription(name, "mine", True, (LEDGER, 0))
            two.subscriptions[name, "mine"] = one
        query = queries(
            startingOffsets="subscription",
            predefinedSubscription="mine",
            endingOffsets=self.GOOD.replace('"t"', '"tt"'),
        )
        with pytest.raises(OptionError, match="`endingOffsets` names"):
            query.drain()


def cut_off(broker: ScriptedBroker, name: str) -> None:
    """Retention takes all but a new row."""
    broker.roll(name)
    broker.append(name, single(b"n"))
    broker.trim(name)


@pytest.mark.usefixtures("short_waits")
class TestLoss:
    """Rows up to an end are gone, and the query has read nothing of them."""

    def test_a_new_query(
        self, scripted: ScriptedBroker, queries: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """An error before anything is recorded, or a warning."""
        scripted.add_topic(BASE, [single(b"a")] * 3)
        cut_off(scripted, BASE)
        query = queries(
            startingOffsets="earliest", endingOffsets='{"t":"7:2","*":"earliest"}'
        )
        with pytest.raises(DataLossError, match=r"no longer has 7:2.*begins at 8:0"):
            query.drain()
        query.kill()
        query.options["failOnDataLoss"] = "false"
        query.drain()
        assert all_rows(query) == []
        assert sum("[PULSAR_DATA_LOSS]" in text for text in caplog.messages) == 1
        query.kill()
        del query.options["endingOffsets"], query.options["failOnDataLoss"]
        query.drain()
        assert all_rows(query) == stored(scripted)

    @pytest.mark.parametrize("fail", ["true", "false"])
    def test_a_partition_that_is_new(
        self,
        two: ScriptedBroker,
        queries: Any,
        caplog: pytest.LogCaptureFixture,
        fail: str,
    ) -> None:
        """The same at its first micro-batch, but not of what was read before."""
        query = queries(startingOffsets="earliest", failOnDataLoss=fail)
        query.drain()
        query.kill()
        seen = all_rows(query)
        two.partitions[BASE] = 3
        two.add_topic(P2, [single(b"a")] * 3)
        for name in (P0, P2):
            cut_off(two, name)
        query.options["endingOffsets"] = '{"t":{"0":"7:2","1":"7:2","2":"7:2"}}'
        if fail == "true":
            with pytest.raises(DataLossError, match=f"{P2} no longer has 7:2"):
                query.drain()
            return
        query.drain()
        assert all_rows(query) == seen
        assert [P2 in text for text in caplog.messages] == [True]

    def test_a_segment(self, scripted: ScriptedBroker, queries: Any) -> None:
        """It was sealed, and deleted before the query began."""
        topic = TopicName.parse("topic://public/default/s")
        child = topic.segment(0, 0xFFFF, 1).full_name
        scripted.scalable = {str(topic): str(topic)}
        scripted.add_topic(child, [single(b"a")])
        ending = '{"topic://public/default/s":{"0000-ffff-0":"7:2"},"*":"earliest"}'
        query = queries(
            topic=str(topic), startingOffsets="earliest", endingOffsets=ending
        )
        with pytest.raises(DataLossError, match="0000-ffff-0 is gone"):
            query.drain()
        query.kill()
        query.options["failOnDataLoss"] = "false"
        query.drain()
        assert all_rows(query) == []


@pytest.mark.parametrize("ends", [{"endingTime": "2000"}, {"endingOffsets": "8:-1"}])
@pytest.mark.parametrize("acknowledges", ["true", "false"])
def test_all_up_to_the_end_was_removed(
    scripted: ScriptedBroker, queries: Any, ends: dict[str, str], acknowledges: str
) -> None:
    """After it was read: a restart has nothing to read, and has lost nothing."""
    scripted.add_topic(BASE, [single(b"a", publish_time=1000)] * 5)
    scripted.roll(BASE)
    scripted.append(BASE, *[single(b"b", publish_time=5000)] * 3)
    ends = {o: f'{{"t":"{v}"}}' if ":" in v else v for o, v in ends.items()}
    query = queries(**ends, ackOnCommit=acknowledges)
    query.drain()
    assert len(all_rows(query)) == 5
    query.kill()
    scripted.append(BASE, single(b"c", publish_time=6000))
    if acknowledges == "true":
        scripted.trim(BASE)
    for _ in range(2):
        query.planner.fix_target()
        assert not query.trigger()
        query.kill()
    assert len(all_rows(query)) == 5


def test_ends_that_are_checked(caplog: pytest.LogCaptureFixture) -> None:
    """Those of messages; compaction and times say nothing of what was stored."""
    begins = {PARTS[0]: LastRead(7, 3), PARTS[1]: NOTHING_READ}
    text = '{"t": {"0": "7:3", "1": "7:3"}}'
    with pytest.raises(DataLossError, match=PARTS[0]):
        ends(endingOffsets=text).check_begins(begins)
    for options in (
        {"endingOffsets": text, "pulsar.reader.readCompacted": "true"},
        {"endingOffsets": '{"t": {"0": "7:4", "1": "7:-1"}}'},
        {"endingOffsets": '{"t": {"0": "0:-1"}, "*": "earliest"}'},
        {"endingTime": "5"},
        {},
    ):
        ends(**options).check_begins(begins)
    assert caplog.messages == []


def test_it_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """That no row comes any more, when all is read up to its end."""
    caplog.set_level(logging.INFO, "pulsar_spark.source")
    stream_ends = ends(endingOffsets='{"t": {"0": "7:3", "1": "7:4"}}')
    lasts = dict.fromkeys(PARTS[:2], LAST)
    for second, told in ((LastRead(7, 3), 0), (LastRead(7, 4), 1), (LastRead(7, 4), 1)):
        stream_ends.cut(lasts, {PARTS[0]: LastRead(7, 3), PARTS[1]: second})
        assert len(caplog.messages) == told


@pytest.mark.parametrize(
    ("end", "read", "last", "is_at_end"),
    [
        ("7:3", "7:3", "7:9", True),
        ("7:3", "7:3:4", "7:3:4", True),  # the last message of that entry
        ("7:3", "7:3:1", "7:3:4", False),
        ("7:3:1", "7:3:1", "7:9", True),
        ("7:3", "7:2", "7:2", False),  # the rest is held back
        ("7:3", "8:0", None, True),
        ("latest", "7:9", "7:9", False),
    ],
)
def test_where_it_is_at_its_end(
    end: str, read: str, last: str | None, is_at_end: bool
) -> None:
    """Nothing up to there is left to read, whatever is stored behind it."""
    stream_ends = ends(endingOffsets=f'{{"{PARTS[0]}": "{end}"}}')
    after = LastRead.parse(read)
    stored_last = None if last is None else LastRead.parse(last).message_id
    cut_at = stream_ends.cut({PARTS[0]: stored_last}, {PARTS[0]: after})[PARTS[0]]
    assert stream_ends.is_at_end(PARTS[0], after, cut_at) == is_at_end


@pytest.mark.usefixtures("short_waits")
@pytest.mark.parametrize(("end", "is_told"), [(4, False), (5, True)])
def test_a_transaction_behind_the_end(
    two: ScriptedBroker,
    queries: Any,
    caplog: pytest.LogCaptureFixture,
    end: int,
    is_told: bool,
) -> None:
    """It holds back nothing that the stream would read."""
    two.transactions[TxnId(0, 9)] = [P0]
    two.append(P0, single(b"a", txnid_most_bits=0, txnid_least_bits=9))
    query = queries(endingOffsets=json.dumps({P0: f"{LEDGER}:{end}"}))
    query.planner.fix_target()
    query.drain()
    assert any("holds back" in text for text in caplog.messages) == is_told


@pytest.mark.parametrize(
    ("end", "read", "is_past"),
    [
        ("7:3", "7:3", True),
        ("7:3", "8:0", True),
        ("7:3", "7:3:4", False),  # is it the last message of that entry?
        ("7:3:1", "7:3:1", True),
        ("7:3:1", "7:3:0", False),
        ("earliest", "0:-1", True),
        ("latest", "7:9", False),
    ],
)
def test_where_it_is_past_its_end(end: str, read: str, is_past: bool) -> None:
    """Nothing more is to be read, and no broker need be asked."""
    stream_ends = ends(endingOffsets=f'{{"{PARTS[0]}": "{end}"}}')
    assert stream_ends.is_past(PARTS[0], LastRead.parse(read)) == is_past


NUMBER = st.integers(0, 3)
IDS = st.builds(MessageId, NUMBER, NUMBER, st.integers(-1, 3))


@given(IDS, IDS, IDS)
def test_the_earlier_one_counts(
    end: MessageId, last: MessageId, read: MessageId
) -> None:
    """Whatever is stored and wherever a micro-batch would end."""
    stream_ends = ends(endingOffsets=f'{{"t": "{end}"}}')
    cut_at = cut_one(stream_ends, last)
    assert LastRead.of(cut_at) == min(LastRead.of(last), LastRead.of(end))
    assert stream_ends.within(T, LastRead.of(read)) == min(
        LastRead.of(read), LastRead.of(end)
    )


def cut_one(stream_ends: StreamEnds, last: MessageId) -> MessageId:
    """The last message of a topic that ends there."""
    (message_id,) = stream_ends.cut({T: last}, {T: NOTHING_READ}).values()
    assert message_id is not None
    return message_id
