# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.source.stream.checkpoint`."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pulsar_spark.errors import CheckpointError
from pulsar_spark.message_id import EARLIEST, MessageId
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.source.stream.checkpoint import (
    SchemaPin,
    StreamOffset,
    flatten,
    position_tree,
)
from pulsar_spark.source.stream.last_read import NOTHING_READ, LastRead
from pulsar_spark.source.stream.pulsar_offsets import (
    read_offset,
    still_where_it_began,
)
from pulsar_spark.source.stream.stream_tasks import topic_ranges
from pulsar_spark.topics import TopicName
from spark_topics.source.stream.checkpoint import batch_spans
from tests.support.checkpoints import read, refused

Offset = StreamOffset[LastRead]

T = "persistent://public/default/t"
T0, T1, T2, T10 = (f"{T}-partition-{i}" for i in (0, 1, 2, 10))

#: Entries that another can follow.
entries = st.integers(0, 2**63 - 2)
indexes = st.integers(-1, 2**31 - 2)
places = st.builds(LastRead, st.integers(0, 2**63 - 1), entries, indexes)
positions = st.one_of(
    places,
    st.builds(LastRead, st.integers(0, 2**63 - 1), st.just(-1)),
    st.just(NOTHING_READ),
)

topics = st.builds(
    TopicName, st.just("a"), st.sampled_from(["b", "c/d"]), st.sampled_from(["t", "ü"])
)
partitions = st.builds(lambda t, i: t.partition(i), topics, st.integers(0, 20))
#: Whole topics, partitions, and partitions of topics that look like a partition.
names = st.one_of(
    topics, partitions, st.builds(lambda t, i: t.partition(i), partitions, st.just(1))
).map(str)

position_maps = st.dictionaries(names, positions, max_size=8)
offsets = st.builds(
    StreamOffset,
    st.text(max_size=20),
    position_maps,
    position_maps,
    began=position_maps,
    kept=position_maps,
    predefined=st.booleans(),
    unacknowledged=st.booleans(),
)


def at(*texts: str) -> dict[str, LastRead]:
    """Positions of the first partitions of a topic, None of which may be left out."""
    return {f"{T}-partition-{i}": LastRead.parse(text) for i, text in enumerate(texts)}


def text_of(offset: Offset) -> str:
    """The text in Spark's checkpoint."""
    return json.dumps(offset.to_json())


def batch_ranges(start: Offset, end: Offset) -> list[TopicRange]:
    """The ranges of a micro-batch."""
    return topic_ranges(batch_spans(start, end, NOTHING_READ))


# -- the text ------------------------------------------------------------------------


@given(offsets)
@example(StreamOffset("", {}))
@example(
    StreamOffset("s", {T0: NOTHING_READ, T: LastRead(1, 2, 3)}, {T1: NOTHING_READ})
)
def test_offsets_round_trip(offset: Offset) -> None:
    """An offset reads back from its text as the same value, with the same text."""
    text = text_of(offset)
    assert read(text) == offset
    assert text_of(read(text)) == text


@given(offsets, st.randoms(use_true_random=False))
def test_equal_offsets_have_equal_texts(offset: Offset, order: random.Random) -> None:
    """The text does not depend on the order in which positions were put in."""

    def shuffled(found: Any) -> dict[str, LastRead]:
        return dict(order.sample(list(found.items()), len(found)))

    twin = replace(
        offset,
        last_read=shuffled(offset.last_read),
        start_after=shuffled(offset.start_after),
    )
    assert twin == offset
    assert text_of(twin) == text_of(offset)


def test_the_text_as_documented() -> None:
    """Topics and then partitions are in natural order; no key is there in vain."""
    offset = StreamOffset(
        "spark-pulsar-1",
        {
            T10: LastRead(15, 7, 4),
            "persistent://public/default/s": NOTHING_READ,
            T2: LastRead(12, 33),
        },
        {T10: NOTHING_READ},
    )
    assert text_of(offset) == (
        '{"v": 1, "subscription": "spark-pulsar-1",'
        ' "lastRead": {"persistent://public/default/s": "-1:-1",'
        f' "{T}": {{"2": "12:33", "10": "15:7:4"}}}},'
        f' "startAfter": {{"{T}": {{"10": "-1:-1"}}}}}}'
    )
    assert "startAfter" not in replace(offset, start_after={}).to_json()
    assert list(read(text_of(offset)).last_read) == [
        "persistent://public/default/s",
        T2,
        T10,
    ]


@pytest.mark.parametrize(("ledger_id", "most"), [(7, 20), (123_456_789, 30)])
def test_the_size_of_the_text(ledger_id: int, most: int) -> None:
    """15 to 30 bytes for each topic partition, as docs/sizing.md says."""
    positions = {
        f"persistent://tenant/namespace/orders-partition-{index}": LastRead(
            ledger_id, 10_000 + index
        )
        for index in range(10_000)
    }
    offset = StreamOffset("spark-pulsar", positions)
    assert 10 <= len(json.dumps(offset.to_json())) / len(positions) <= most


def test_facts_beside_the_place_are_left_out() -> None:
    """What a broker says beside the place neither changes the text nor comes back."""
    plain = StreamOffset("s", {T0: LastRead(12, 3, 4)})
    told = StreamOffset(
        "s", {T0: LastRead.of(MessageId(12, 3, 4, 0, 100, MessageId(12, 1)))}
    )
    assert text_of(told) == text_of(plain)
    assert read(text_of(told)) == plain


@pytest.mark.parametrize(
    "names",
    [
        [T],
        [T0],
        [T, T0, T1],
        [f"{T0}-partition-1"],
        [T0, f"{T0}-partition-0", f"{T0}-partition-1"],
        [f"{T}-partition-01", f"{T}-partition-1"],
        [f"{T}-partition-2147483648"],
        ["persistent://a/cluster/ns/t-partition-1", "persistent://a/b/ns/ü/x"],
    ],
)
def test_any_name_comes_back(names: list[str]) -> None:
    """Topics and partitions with misleading names stay apart."""
    values = {name: LastRead(1, i) for i, name in enumerate(names)}
    tree = position_tree(values)
    assert dict(flatten(tree)) == {name: str(place) for name, place in values.items()}
    offset = StreamOffset("s", values, values)
    assert read(text_of(offset)) == offset


# -- ranges of a micro-batch ---------------------------------------------------------


@given(offsets, offsets)
def test_ranges_depend_on_the_two_texts_alone(start: Offset, end: Offset) -> None:
    """After a restart the same batch has the same ranges, and nothing was changed."""
    before = text_of(start), text_of(end)
    # What a checkpoint gives back is in canonical order.
    again = batch_ranges(read(before[0]), read(before[1]))
    assert sorted(batch_ranges(start, end), key=str) == sorted(again, key=str)
    assert batch_ranges(read(before[0]), read(before[1])) == again
    assert (text_of(start), text_of(end)) == before


@given(offsets, offsets)
def test_ranges_go_from_the_begin_to_the_end(start: Offset, end: Offset) -> None:
    """Each range begins after what the batch starts from, and ends at the end."""
    found = {range_.topic_partition: range_ for range_ in batch_ranges(start, end)}
    assert list(found) == [name for name in end.last_read if name in found]
    for name, last in end.last_read.items():
        known = {**start.kept, **start.last_read, **end.start_after}
        begin = known.get(name, NOTHING_READ)
        if name in found:
            assert found[name] == TopicRange(name, begin.next(), last.message_id)
            assert not found[name].is_empty
        else:
            nothing = TopicRange(name, begin.next(), last.message_id)
            assert begin == last or nothing.is_empty


@given(offsets)
def test_nothing_between_an_offset_and_itself(offset: Offset) -> None:
    """Where nothing was read in between, nothing is read."""
    settled = replace(offset, start_after={})
    assert batch_ranges(settled, settled) == []
    assert batch_ranges(offset, settled) == []


@given(offsets, offsets, offsets)
def test_the_subscription_does_not_matter(
    start: Offset, end: Offset, other: Offset
) -> None:
    """Neither subscription, nor where the batch before began, changes the ranges."""
    alike = replace(
        start, subscription=other.subscription, start_after=other.start_after
    )
    assert batch_ranges(alike, end) == batch_ranges(start, end)


@pytest.mark.parametrize(
    ("after", "last", "start"),
    [
        ("12:3", "12:7", "12:4"),
        ("12:3", "15:7:4", "12:4"),
        ("12:-1", "12:0", "12:0"),
        ("12:3:1", "12:3:2", "12:3:2"),
        ("12:3:1", "12:3", "12:3:2"),
        ("-1:-1", "12:0", "-1:-1"),
    ],
)
def test_a_range(after: str, last: str, start: str) -> None:
    """A range begins right after what was read, in the entry or behind it."""
    ranges = batch_ranges(StreamOffset("s", at(after)), StreamOffset("s", at(last)))
    assert ranges == [
        TopicRange(T0, MessageId.parse_text(start), MessageId.parse_text(last))
    ]


@pytest.mark.parametrize(
    ("after", "last"),
    [
        ("12:3", "12:3"),
        ("12:3:1", "12:3:1"),
        ("-1:-1", "-1:-1"),
        ("12:3", "12:3:1"),  # all of the entry was read, wherever its end
        ("12:3", "12:2"),  # a topic that was cut back: its end never moves behind
        ("12:3", "-1:-1"),
    ],
)
def test_no_range(after: str, last: str) -> None:
    """Nothing is read where the end is not behind the start."""
    start, end = StreamOffset("s", at(after)), StreamOffset("s", at(last))
    assert batch_ranges(start, end) == []


def test_the_first_batch_begins_where_its_end_says() -> None:
    """``startAfter`` says where to begin, though the start knows no partition."""
    end = StreamOffset("s", at("12:9", "15:9"), at("12:4", "-1:-1"))
    assert batch_ranges(StreamOffset("", {}), end) == [
        TopicRange(T0, MessageId(12, 5), MessageId(12, 9)),
        TopicRange(T1, EARLIEST, MessageId(15, 9)),
    ]


def test_a_new_partition_begins_where_the_end_says() -> None:
    """Only the new partition is in ``startAfter``; the old one goes on."""
    start = StreamOffset("s", at("12:4"))
    end = StreamOffset("s", at("12:9", "15:9"), {T1: LastRead(15, 6)})
    assert batch_ranges(start, end) == [
        TopicRange(T0, MessageId(12, 5), MessageId(12, 9)),
        TopicRange(T1, MessageId(15, 7), MessageId(15, 9)),
    ]


def test_ranges_know_whether_the_read_begins_with_them() -> None:
    """In the first micro-batch, and where a partition is new; nowhere else."""
    first = StreamOffset("s", at("12:4"), at("12:4"))
    second = StreamOffset("s", at("12:9", "15:9"), {T1: LastRead(15, 6)})
    third = StreamOffset("s", at("12:11", "15:11"))
    (range_,) = batch_ranges(first, StreamOffset("s", at("12:6"), at("12:4")))
    assert range_.begins_at == range_.start == MessageId(12, 5)
    following = replace(first, last_read=at("12:6"))
    begins = [range_.begins_at for range_ in batch_ranges(following, second)]
    assert begins == [None, MessageId(15, 7)]
    begins = [range_.begins_at for range_ in batch_ranges(second, third)]
    assert begins == [None, None]


PIN = SchemaPin("AVRO", T, 3, "5f2a")


@pytest.mark.parametrize("field", ["predefined", "unacknowledged"])
def test_what_is_said_of_the_subscription(field: str) -> None:
    """Only where there is something to say; anything else is not one of ours."""
    tree = StreamOffset[LastRead]("s", {}).to_json()
    assert field not in tree
    said = read(json.dumps({**tree, field: True}))
    assert getattr(said, field) is True
    assert said.to_json() == {**tree, field: True}
    assert f'({field} is "yes")' in refused({**tree, field: "yes"})


@pytest.mark.parametrize(
    "pin",
    [
        PIN,
        SchemaPin("NONE"),
        replace(PIN, others=(replace(PIN, topic="u"),), columns=("id", "name")),
    ],
)
def test_the_schema_that_a_query_began_with(pin: SchemaPin) -> None:
    """It is kept where there is one, and older offsets have none."""
    tree = StreamOffset("s", {}, schema=pin).to_json()
    assert read(json.dumps(tree)).schema == pin
    del tree["schema"]
    assert read(json.dumps(tree)).schema is None
    assert "schema" not in StreamOffset("s", {}).to_json()


@pytest.mark.parametrize(
    "schema",
    [
        7,
        [],
        "AVRO",
        {"type": 4},
        PIN.to_json() | {"version": "3"},
        {"hash": None},
        PIN.to_json() | {"columns": "id"},
        PIN.to_json() | {"columns": [1]},
    ],
)
def test_schemas_that_are_none(schema: Any) -> None:
    """Such an offset is not one of ours."""
    tree = {**StreamOffset("s", {}).to_json(), "schema": schema}
    with pytest.raises(CheckpointError, match="is not a schema"):
        read(json.dumps(tree))


def test_ranges_know_where_the_query_began() -> None:
    """While it is in the ledger at whose beginning that was; in each partition."""
    start = StreamOffset("s", at("12:-1", "15:4"), at("12:-1", "15:4"))
    ends = [at("12:-1", "15:6"), at("12:3", "15:6"), at("12:5", "15:6"), at("13:2")]
    found = []
    for last_read in ends:
        start_after = start.last_read if start.is_start_of_query else {}
        began = still_where_it_began(start, last_read, start_after)
        end = read(text_of(StreamOffset("s", last_read, start_after, began=began)))
        assert end.began == began
        found += [(r.end, r.begins_at) for r in batch_ranges(start, end)]
        start = end
    assert found == [
        (MessageId(15, 6), MessageId(15, 5)),
        (MessageId(12, 3), MessageId(12, 0)),
        (MessageId(12, 5), MessageId(12, 0)),
        (MessageId(13, 2), MessageId(12, 0)),
    ]
    assert start.began == {}


def test_where_reading_went_on_is_not_where_the_query_began() -> None:
    """Such as behind a ledger that was removed after it had been read."""
    start = StreamOffset("s", at("12:4"), began=at("12:-1"))
    assert still_where_it_began(start, at("12:5"), {}) == at("12:-1")
    assert still_where_it_began(start, at("13:5"), at("13:-1")) == {}


def test_topics_with_chunks_are_named() -> None:
    """Where there are any; sorted, as all of the text."""
    offset = StreamOffset("s", at("12:4"), {}, frozenset({"b", "a"}))
    assert offset.to_json()["chunked"] == ["a", "b"]
    assert read(text_of(offset)) == offset
    assert "chunked" not in replace(offset, chunked=frozenset()).to_json()


def test_a_partition_that_nobody_knows_begins_at_the_beginning() -> None:
    """No row is left out where neither offset says where to begin."""
    end = StreamOffset("s", at("12:9"))
    assert batch_ranges(StreamOffset("s", {}), end) == [
        TopicRange(T0, EARLIEST, MessageId(12, 9))
    ]


def test_the_end_is_right_where_the_two_disagree() -> None:
    """``startAfter`` beats what the start has, forwards and backwards."""
    start = StreamOffset("s", at("12:4", "15:4"), at("1:1", "1:1"))
    end = StreamOffset("s", at("12:9", "15:9"), at("12:7", "-1:-1"))
    assert [str(range_.start) for range_ in batch_ranges(start, end)] == [
        "12:8",
        "-1:-1",
    ]
    assert end.begin(start, T0, NOTHING_READ) == LastRead(12, 7)
    assert end.begin(start, T2, NOTHING_READ) == NOTHING_READ
    assert start.begin(end, T0, NOTHING_READ) == LastRead(1, 1)


def test_a_partition_that_the_end_dropped_is_not_read() -> None:
    """A topic that no longer matches, or was deleted, yields nothing."""
    start, end = StreamOffset("s", at("12:4", "15:4")), StreamOffset("s", at("12:9"))
    assert [r.topic_partition for r in batch_ranges(start, end)] == [T0]
    assert batch_ranges(start, StreamOffset("s", {}, at("1:1", "1:1"))) == []


def test_ranges_have_the_order_of_the_end() -> None:
    """Whatever the order of the start."""
    last = {name: LastRead(12, 9) for name in (T10, T, T2)}
    start = {name: LastRead(12, 4) for name in (T2, T10, T)}
    ranges = batch_ranges(StreamOffset("s", start), StreamOffset("s", last))
    assert [range_.topic_partition for range_ in ranges] == [T10, T, T2]


# -- what is not an offset of ours ---------------------------------------------------


@pytest.mark.parametrize("version", [0, 2, "1", None, {"t": "1:2"}])
def test_other_versions_are_refused(version: object) -> None:
    """A checkpoint of a newer version is not guessed at."""
    tree = {"v": version, "subscription": "s", "lastRead": {}}
    message = refused(tree)
    assert f"offsets of version {json.dumps(version)}" in message
    assert "reads version 1. Upgrade it." in message


def test_an_offset_without_a_version_is_refused() -> None:
    """There are older ones of the Scala connector only, which another reader knows."""
    tree = {"subscription": "s", "lastRead": {}}
    with pytest.raises(CheckpointError, match="it has no 'v'"):
        StreamOffset.from_json(tree, LastRead.parse)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"subscription": ...}, "it has no 'subscription'"),
        ({"subscription": None}, "null is not a subscription"),
        ({"lastRead": ...}, "it has no 'lastRead'"),
        ({"lastRead": None}, "null is not an object by topic"),
        ({"lastRead": ["t"]}, '["t"] is not an object by topic'),
        ({"startAfter": None}, "null is not an object by topic"),
        ({"lastRead": {"t": "12"}}, '"12" is not a message id'),
        ({"lastRead": {"t": "latest"}}, '"latest" is not a message id'),
        ({"lastRead": {"t": None}}, f"{T}: null is not a position"),
        ({"lastRead": {"t": {"2": 12}}}, f"{T2}: 12 is not a position"),
        ({"lastRead": {"t": {"2": {"0": "1:2"}}}}, f"{T2}: "),
        ({"lastRead": {"t": {"x": "1:2"}}}, "'x'"),
        ({"lastRead": {"t": {"-1": "1:2"}}}, "-1 is not a partition number"),
        ({"lastRead": {"a/b": "1:2"}}, "'a/b' is not a topic name"),
        ({"startAfter": {"t": "12"}}, '"12" is not a message id'),
        ({"began": None}, "null is not an object by topic"),
        ({"began": {"t": "12"}}, '"12" is not a message id'),
        ({"chunked": None}, "null is not a list of topics"),
        ({"chunked": "t"}, '"t" is not a list of topics'),
        ({"chunked": ["t", 1]}, '["t", 1] is not a list of topics'),
    ],
)
def test_damaged_offsets_are_refused(changes: dict[str, Any], part: str) -> None:
    """What is wrong is named; nothing is left out or made up."""
    tree = {"v": 1, "subscription": "s", "lastRead": {"t": "1:2"}, **changes}
    message = refused({key: value for key, value in tree.items() if value is not ...})
    assert part in message
    assert message.endswith("Then it needs a new checkpoint location.")


@pytest.mark.parametrize(
    "tree",
    [
        5,  # rate and socket
        None,
        "2024-03-01",
        [1, 2],
        {"t": {"0": 23, "1": 42}},  # Kafka
        {"logOffset": 3},  # files
        {"logOffset": -1},  # files, none yet
        {"offset": 3, "timestamp": 1700000000000},  # rate-micro-batch
        {"sourceVersion": 1, "reservoirId": "5a", "index": -1},  # Delta
    ],
)
def test_offsets_of_other_sources_are_refused(tree: object) -> None:
    """A checkpoint that another source wrote is not mistaken for ours."""
    message = refused(tree)
    assert json.dumps(tree)[:40] in message
    assert "Was the query changed to read from another source?" in message


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda below: (
            st.lists(below, max_size=3)
            | st.dictionaries(
                st.sampled_from(["v", "subscription", "lastRead", "startAfter", "t"])
                | st.text(max_size=8),
                below,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
@example({"v": 1, "subscription": "s", "lastRead": {"t": {"9" * 5000: "1:2"}}})
def test_any_json_is_an_offset_or_a_checkpoint_error(tree: Any) -> None:
    """Whatever stands in a checkpoint, it is read or refused in one way."""
    try:
        offset = read_offset(tree)
    except CheckpointError as error:
        str(error).encode()
    else:
        assert read(text_of(offset)) == offset
