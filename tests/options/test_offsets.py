# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.options.offsets`."""

from __future__ import annotations

import contextlib
import json
import pickle
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pulsar
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pulsar_spark.errors import OptionError
from pulsar_spark.message_id import (
    EARLIEST,
    LATEST,
    MessageId,
    decode_message_id,
    encode_message_id,
)
from pulsar_spark.options.offsets import (
    OffsetsSpec,
    Position,
    TimesSpec,
    dump_offsets,
    parse_offsets,
    parse_times,
)
from pulsar_spark.topics import TopicName
from spark_topics.options.offsets import Edge
from spark_topics.text import shorten

if TYPE_CHECKING:
    from collections.abc import Mapping

T = "persistent://public/default/t"
INT32 = 2**31 - 1
INT64 = 2**63 - 1

int64s = st.integers(-1, INT64)
int32s = st.integers(-1, INT32)
plain_ids = st.builds(MessageId, int64s, int64s, int32s, int32s, st.integers(0, INT32))
message_ids = st.builds(
    MessageId,
    int64s,
    int64s,
    int32s,
    int32s,
    st.integers(0, INT32),
    st.none() | plain_ids,
)


def offsets(text: str) -> Mapping[str, Position]:
    """The positions that a JSON text names."""
    return parse_offsets(text, option="startingOffsets").topics


def problem_of(text: str) -> str:
    """The message with which a text is refused."""
    with pytest.raises(OptionError) as caught:
        parse_offsets(text, option="startingOffsets")
    str(caught.value).encode()
    assert all(p.startswith("startingOffsets") for p in caught.value.problems)
    return caught.value.message


# The value and its text


def test_message_id_survives_pickling() -> None:
    """An id can be sent to executors, by every pickle protocol."""
    message_id = MessageId(1, 2, 3, 4, 5, MessageId(0, 1))
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        dumped = pickle.dumps(message_id, protocol)
        twin = pickle.loads(dumped)  # noqa: S301 - our own bytes
        assert twin == message_id
        assert hash(twin) == hash(message_id)


def test_message_id_is_frozen() -> None:
    """An id cannot be changed after it was made."""
    with pytest.raises(AttributeError):
        MessageId(1, 2).entry_id = 3  # type: ignore[misc]


def test_position_is_the_entry() -> None:
    """The position leaves out what is below the entry."""
    assert MessageId(1, 2, 3).position == (1, 2)


@pytest.mark.parametrize(
    ("message_id", "text"),
    [
        (MessageId(12, 3), "12:3"),
        (MessageId(12, 3, 0), "12:3:0"),
        (MessageId(12, 3, 4), "12:3:4"),
        (EARLIEST, "-1:-1"),
        (LATEST, "9223372036854775807:9223372036854775807"),
    ],
)
def test_text_form(message_id: MessageId, text: str) -> None:
    """Text and value are equal, and -1 as batch index goes without saying."""
    assert str(message_id) == text
    assert MessageId.parse_text(f" {text} ") == message_id


@given(int64s, int64s, int32s)
def test_text_round_trips(ledger_id: int, entry_id: int, batch_index: int) -> None:
    """Every id without further facts reads back from its text."""
    message_id = MessageId(ledger_id, entry_id, batch_index)
    assert MessageId.parse_text(str(message_id)) == message_id


def test_text_may_name_the_whole_entry() -> None:
    """A batch index of -1 is accepted, as other clients print it."""
    assert MessageId.parse_text("12:3:-1") == MessageId(12, 3)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "12",
        "12:",
        ":3",
        "12:3:",
        "12:3:4:5",
        "12:-2",
        "a:b",
        "12.0:3",
        "(1,2,-1,-1)",
    ],
)
def test_other_texts_show_the_form(text: str) -> None:
    """A text of another form is refused with the right one."""
    with pytest.raises(ValueError, match='"ledger:entry" or "ledger:entry:batchIndex"'):
        MessageId.parse_text(text)


@pytest.mark.parametrize("text", [f"{2**63}:0", f"0:{2**63}", f"0:0:{2**31}"])
def test_texts_out_of_range_are_refused(text: str) -> None:
    """Numbers that the protocol cannot carry are refused."""
    with pytest.raises(ValueError, match="too large"):
        MessageId.parse_text(text)


# Bytes


@given(message_ids)
def test_bytes_round_trip(message_id: MessageId) -> None:
    """Encoding and decoding gives the same id, in either client's form."""
    assert decode_message_id(encode_message_id(message_id)) == message_id
    assert decode_message_id(encode_message_id(message_id, java=True)) == message_id


@given(int32s, int64s, int64s, int32s)
@example(-1, -1, -1, -1)
@example(-1, INT64, INT64, -1)
@example(0, 0, 0, 0)
def test_bytes_are_those_of_the_official_client(
    partition: int, ledger_id: int, entry_id: int, batch_index: int
) -> None:
    """The bytes are those that the official Python client writes."""
    ours = encode_message_id(MessageId(ledger_id, entry_id, batch_index, partition))
    theirs = pulsar.MessageId(partition, ledger_id, entry_id, batch_index)
    assert ours == theirs.serialize()


@given(plain_ids.filter(lambda i: i.batch_index >= 0))
def test_batch_size_is_kept_by_the_official_client(message_id: MessageId) -> None:
    """The official client reads our bytes and writes the same ones."""
    data = encode_message_id(message_id)
    assert pulsar.MessageId.deserialize(data).serialize() == data


@given(int64s, int64s, int64s, int64s, st.integers(0, INT32))
def test_chunked_ids_are_those_of_the_official_client(
    ledger_id: int, entry_id: int, first_ledger: int, first_entry: int, partition: int
) -> None:
    """A chunked message's id goes through the official client unchanged."""
    first = MessageId(first_ledger, first_entry, partition=partition)
    last = MessageId(ledger_id, entry_id, partition=partition, first_chunk=first)
    data = encode_message_id(last)
    assert pulsar.MessageId.deserialize(data).serialize() == data


@pytest.mark.parametrize(
    ("message_id", "java"),
    [
        # Written by toByteArray of the Java client 4.0.7.
        (MessageId(3, 5), "080310053000"),
        (MessageId(3, 5, partition=0), "0803100518003000"),
        (MessageId(300, 5, partition=2), "08ac02100518023000"),
        (MessageId(3, 5, 7, 2), "08031005180220073000"),
        (MessageId(3, 5, 7, 2, 100), "08031005180220073064"),
        (MessageId(3, 5, 0, -1, 1), "0803100520003001"),
        (
            MessageId(3, 5, partition=2, first_chunk=MessageId(3, 1, partition=2)),
            "08031005180230003a080803100118023000",
        ),
        (MessageId(3, 5, first_chunk=MessageId(3, 1)), "0803100530003a06080310013000"),
        (EARLIEST, "08ffffffffffffffffff0110ffffffffffffffffff013000"),
        (LATEST, "08ffffffffffffffff7f10ffffffffffffffff7f3000"),
    ],
)
def test_bytes_are_those_of_the_java_client(message_id: MessageId, java: str) -> None:
    """The Java form has the bytes that Java writes, and every form reads the same."""
    assert encode_message_id(message_id, java=True).hex() == java
    assert decode_message_id(bytes.fromhex(java)) == message_id


@pytest.mark.parametrize(
    ("data", "message_id"),
    [
        ("10050803", MessageId(3, 5)),
        ("0803100508041006", MessageId(4, 6)),
        ("0803100518ffffffffffffffffff01", MessageId(3, 5)),
        ("0803100518ffffffff0f", MessageId(3, 5)),
        ("0803100530ffffffffffffffffff01", MessageId(3, 5)),
        ("08031005280128ffffffffffffffffff01", MessageId(3, 5)),
        ("080310052a020102", MessageId(3, 5)),
        ("08031005420174", MessageId(3, 5)),
        ("08031005f8ffffff0f01", MessageId(3, 5)),
        ("0803100518ffffffff07", MessageId(3, 5, partition=INT32)),
        ("080310056101020304050607086d01020304", MessageId(3, 5)),
        (
            "080310053a0a080110023a0408001000",
            MessageId(3, 5, first_chunk=MessageId(1, 2)),
        ),
    ],
    ids=[
        "any-order",
        "last-wins",
        "negative-of-ten-bytes",
        "negative-of-five-bytes",
        "negative-batch-size",
        "ack-set",
        "packed-ack-set",
        "topic-name",
        "largest-field",
        "largest-partition",
        "fixed-numbers",
        "deeper-chunk-ids",
    ],
)
def test_unusual_encodings(data: str, message_id: MessageId) -> None:
    """Encodings that protobuf allows are read, and unknown fields skipped."""
    assert decode_message_id(bytes.fromhex(data)) == message_id


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("", "needs a ledgerId and an entryId"),
        ("0803", "needs a ledgerId and an entryId"),
        ("08", "cut short in a number"),
        ("08031085", "cut short in a number"),
        ("0803100508ffffffffffffffffff7f", "longer than 64 bits"),
        ("0803100508ffffffffffffffffffff01", "longer than 64 bits"),
        ("0803100542050102", "cut short in field 8"),
        ("0803100545010203", "cut short in field 8"),
        ("080310054101020304050607", "cut short in field 8"),
        ("08031005808080801001", "cannot have a field 536870912"),
        ("08031005" + "08" + "ff" * 9 + "02", "longer than 64 bits"),
        ("08031005" + "08" + "80" * 10, "longer than 64 bits"),
        ("0803100518ffffffff07" + "188080808008", "partition .* cannot be -2147483648"),
        ("080310051880808080" + "10", "partition .* cannot be 4294967296"),
        ("080310050003", "cannot have a field 0"),
        ("080310050b", "wire type 3"),
        ("080310050f", "wire type 7"),
        ("0a01031005", "ledgerId of a message id is no number"),
        ("080310053801", "first_chunk_message_id of a message id is no message"),
        ("1005", "needs a ledgerId and an entryId"),
        ("080310053a020803", "needs a ledgerId and an entryId"),
        ("08feffffffffffffffff011005", "ledgerId of a message id cannot be -2"),
        ("0803100518feffffff0f", "partition of a message id cannot be -2"),
        ("0803100520ffffffff1f", "batch_index of a message id cannot be 8589934591"),
    ],
)
def test_impossible_bytes_name_the_reason(data: str, reason: str) -> None:
    """Bytes that name no place are refused with what is wrong."""
    with pytest.raises(ValueError, match=reason):
        decode_message_id(bytes.fromhex(data))


@pytest.mark.parametrize("size", [77, 78, 79, 5000])
def test_long_texts_are_cut(size: int) -> None:
    """An error shows 80 characters of what it is about, quotes included."""
    text = shorten("x" * size)
    whole = '"' + "x" * size + '"'
    assert text == (whole if size <= 78 else whole[:77] + "...")
    assert len(text) <= 80


@given(message_ids, st.integers(1, 60))
def test_cut_bytes_are_refused_or_another_id(message_id: MessageId, cut: int) -> None:
    """Half an id never reads as the whole one."""
    data = encode_message_id(message_id)[:-cut]
    with contextlib.suppress(ValueError):
        assert decode_message_id(data) != message_id


@given(st.binary(max_size=200))
@example(b"\x08\x01\x10\x01" + b"\x3a\x7f" * 60)
def test_any_bytes_are_an_id_or_a_value_error(data: bytes) -> None:
    """No bytes make the parser fail in another way, and what it accepts is valid."""
    try:
        message_id = decode_message_id(data)
    except ValueError:
        return
    assert decode_message_id(encode_message_id(message_id)) == message_id


@given(message_ids, st.data())
def test_damaged_bytes_are_an_id_or_a_value_error(
    message_id: MessageId, data: st.DataObject
) -> None:
    """One wrong byte in an id does no harm beyond that id."""
    encoded = bytearray(encode_message_id(message_id))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        decode_message_id(bytes(encoded))


# Offsets


@pytest.mark.parametrize("text", ["earliest", "EARLIEST", " Earliest "])
def test_words(text: str) -> None:
    """The two words are read in any case."""
    assert parse_offsets(text, option="o") == OffsetsSpec(Edge.EARLIEST)
    assert parse_offsets("Latest", option="o") == OffsetsSpec(Edge.LATEST)


def test_json_has_the_default_it_was_given() -> None:
    """Partitions that JSON does not name take the option's default."""
    assert parse_offsets("{}", option="o") == OffsetsSpec(Edge.EARLIEST, {})
    spec = parse_offsets("{}", option="o", default=Edge.LATEST)
    assert spec.default is Edge.LATEST


@pytest.mark.parametrize("word", ["earliest", "latest"])
def test_json_may_say_what_others_take(word: str) -> None:
    """Whatever the option's default is; a topic of that name has a longer one."""
    text = f'{{"*":"{word}","t":"12:3","public/default/*":"1:2"}}'
    for default in Edge:
        assert parse_offsets(text, "o", default) == OffsetsSpec(
            Edge(word),
            {"persistent://public/default/*": MessageId(1, 2), T: MessageId(12, 3)},
        )
    assert parse_offsets('{"*":-1}', "o") == OffsetsSpec(Edge.LATEST)


def test_json_by_partition() -> None:
    """Partitions below a topic become topic partitions, numerically sorted."""
    text = '{"t":{"10":"latest","2":"12:3:4","0":"Earliest"}}'
    assert offsets(text) == {
        f"{T}-partition-0": Edge.EARLIEST,
        f"{T}-partition-2": MessageId(12, 3, 4),
        f"{T}-partition-10": Edge.LATEST,
    }
    assert list(offsets(text)) == [f"{T}-partition-{i}" for i in (0, 2, 10)]


@pytest.mark.parametrize("name", ["t", "public/default/t", T])
def test_json_accepts_every_form_of_a_name(name: str) -> None:
    """Keys are normalised to full names."""
    assert offsets(json.dumps({name: "12:3"})) == {T: MessageId(12, 3)}
    single = offsets(json.dumps({f"{name}-partition-0": "12:3"}))
    assert single == {f"{T}-partition-0": MessageId(12, 3)}


def test_json_of_the_scala_connector() -> None:
    """Serialised ids are read from signed and from unsigned bytes."""
    text = '{"topic-1":[8,11,16,101,24,1,32,1],"topic-5":[8,-112,3,16,1]}'
    assert offsets(text) == {
        "persistent://public/default/topic-1": MessageId(11, 101, 1, 1),
        "persistent://public/default/topic-5": MessageId(400, 1),
    }
    assert offsets('{"t":[8,144,3,16,1]}') == {T: MessageId(400, 1)}
    assert offsets('{"t":{"3":[8,1,16,1,24,3]}}') == {
        f"{T}-partition-3": MessageId(1, 1, partition=3)
    }


def test_json_sentinels() -> None:
    """Ids and numbers that mean an end are read as that end."""
    latest = [8, *[-1] * 8, 127, 16, *[-1] * 8, 127]
    earliest = [8, *[-1] * 9, 1, 16, *[-1] * 9, 1]
    text = json.dumps(
        {"t": {"0": -2, "1": -1, "2": latest, "3": earliest, "4": "-1:-1"}}
    )
    assert list(offsets(text).values()) == [
        Edge.EARLIEST,
        Edge.LATEST,
        Edge.LATEST,
        Edge.EARLIEST,
        Edge.EARLIEST,
    ]


def test_id_under_the_parent_keeps_its_partition() -> None:
    """A serialised id under a whole topic's name stays there, for the planner."""
    assert offsets('{"t":[8,1,16,2,24,3]}') == {T: MessageId(1, 2, partition=3)}


@pytest.mark.parametrize(
    "text",
    [
        '{"t":"1:2","t":"1:3"}',
        f'{{"t":"1:2","{T}":"1:2"}}',
        '{"t":{"0":"1:2"},"t-partition-0":"1:2"}',
        '{"t":{"0":"1:2","0":"1:3"}}',
        '{"t":[8,1,16,2,24,0],"public/default/t-partition-0":"1:2"}',
    ],
)
def test_same_partition_twice_is_refused(text: str) -> None:
    """Two positions of one topic partition are a contradiction."""
    assert "is named twice" in problem_of(text)
    assert "persistent://public/default/t" in problem_of(text)


def test_the_largest_partition() -> None:
    """Numbers of partitions are those that 32 bits with a sign can hold."""
    (found,) = offsets(f'{{"t":{{"{INT32}":"1:2"}}}}')
    assert found == f"persistent://public/default/t-partition-{INT32}"


@pytest.mark.parametrize("byte", [255, -1, 128, -128, 127])
def test_bytes_with_and_without_a_sign(byte: int) -> None:
    """Serialised ids come in both forms, and are written in the signed one."""
    more = [byte, 1] if byte & 0x80 else [byte]
    (found,) = offsets(f'{{"t":{[8, *more, 16, 0]}}}').values()
    assert found == MessageId(byte & 0xFF, 0)
    chunked = MessageId(byte & 0xFF, 0, first_chunk=found)
    (written,) = json.loads(dump_offsets({"t": chunked})).values()
    signed = byte - 256 if byte > 127 else byte
    assert written[1 : 1 + len(more)] == [signed, *more[1:]]


def test_topic_may_be_spread_over_keys() -> None:
    """Different partitions of a topic may stand under different forms of its name."""
    text = f'{{"t":{{"0":"1:2"}},"{T}":{{"1":"1:2"}},"t-partition-2":"latest"}}'
    assert len(offsets(text)) == 3


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('{"t":"12"}', '"ledger:entry"'),
        ('{"t":"soon"}', '"soon"'),
        ('{"t":5}', "5 is not a position"),
        ('{"t":true}', "true is not a position"),
        ('{"t":1.5}', "1.5 is not a position"),
        ('{"t":null}', "null is not a position"),
        ('{"t":[8]}', "cut short"),
        ('{"t":[]}', "needs a ledgerId"),
        ('{"t":[256]}', "256 is not a byte"),
        ('{"t":[-129]}', "-129 is not a byte"),
        ('{"t":[true]}', "true is not a byte"),
        ('{"t":["8"]}', '"8" is not a byte'),
        ('{"t":{"-1":"1:2"}}', "\"-1\" below 't' is not a partition number"),
        ('{"t":{"01":"1:2"}}', "not a partition number"),
        ('{"t":{"2147483648":"1:2"}}', "\"2147483648\" below 't' is not a partition"),
        ('{"t":{"0":{"1":"1:2"}}}', "not a position"),
        ('{"t-partition-0":{"0":"1:2"}}', "one partition already"),
        ('{"t-partition-0":[8,1,16,2,24,1]}', "is of partition 1"),
        ('{"a/b":"1:2"}', "is not a topic name"),
        ('{"non-persistent://a/b/c":"1:2"}', "keeps nothing to read"),
        ('{"t":"\\ud800"}', "is not a message id"),
        ('{"*":"1:2"}', "* stands for several topic partitions, and 1:2 is a place"),
        ('{"*":{"0":"latest"}}', "*: "),
        ('{"*":"latest","*":"latest"}', "* is named twice"),
        ('{"t":{"*":"latest"}}', "\"*\" below 't' is not a partition number"),
    ],
)
def test_bad_positions_are_named(text: str, part: str) -> None:
    """A position or key that cannot be is refused with what is wrong."""
    assert part in problem_of(text)


@pytest.mark.parametrize(
    "text", ["", "newest", "[]", '"earliest"', "12:3", "{", "[" * 100_000, "1" * 5000]
)
def test_other_texts_show_an_example(text: str) -> None:
    """What is neither a word nor a JSON object is refused with an example."""
    assert '{"my-topic":{"0":"12:3","1":"earliest"}}' in problem_of(text)


def test_bad_json_names_line_and_column() -> None:
    """A slip in the JSON is found by line and column."""
    assert "at line 2, column 5" in problem_of('{"t":\n    oops}')


def test_all_bad_positions_are_reported() -> None:
    """Every problem of a text is reported at once."""
    with pytest.raises(OptionError) as caught:
        parse_offsets('{"a":"x","b":"1:2","c":"y"}', option="o")
    assert len(caught.value.problems) == 2


topics = st.builds(
    TopicName, st.just("a"), st.sampled_from(["b", "c/d"]), st.sampled_from(["t", "ü"])
)
partitions = st.builds(lambda t, i: t.partition(i), topics, st.integers(0, 20))
names = st.one_of(
    topics, partitions, st.builds(lambda t, i: t.partition(i), partitions, st.just(1))
).map(str)


places = st.builds(MessageId, st.integers(0, INT64 - 1), int64s, int32s)


@given(
    st.dictionaries(names, st.sampled_from(Edge) | places),
    st.none() | st.sampled_from(Edge),
)
def test_dumped_offsets_read_back(
    positions: dict[str, Position], unnamed: Edge | None
) -> None:
    """What is dumped reads back as the same places, and dumps as the same text."""
    text = dump_offsets(positions, unnamed=unnamed)
    for default in Edge:
        spec = parse_offsets(text, "o", default)
        assert spec == OffsetsSpec(unnamed or default, positions)
        assert dump_offsets(spec.topics, unnamed=unnamed) == text


def test_what_is_no_position() -> None:
    """Of words and JSON it is said what stands here."""
    wrong: Any = {"t": "earliest"}
    with pytest.raises(TypeError, match=r"position of t must be a MessageId.*not str"):
        dump_offsets(wrong)


def test_dump_is_canonical_and_readable() -> None:
    """Topics and partitions are in natural order, whatever the order given."""
    positions: dict[str, Position] = {
        "t-partition-10": Edge.LATEST,
        "t-partition-9": MessageId(12, 3, 4, 9, 100),
        "s": LATEST,
        "ü": EARLIEST,
    }
    expected = (
        '{"persistent://public/default/s":"latest",'
        f'"{T}":{{"9":"12:3:4","10":"latest"}},'
        '"persistent://public/default/ü":"earliest"}'
    )
    assert dump_offsets(positions) == expected
    assert dump_offsets(dict(reversed(positions.items()))) == expected


def test_chunked_message_is_dumped_whole() -> None:
    """A chunked message keeps both of its places, as signed bytes."""
    chunked = MessageId(300, 5, partition=0, first_chunk=MessageId(3, 1, partition=0))
    text = dump_offsets({"t-partition-0": chunked})
    assert text.startswith(f'{{"{T}":{{"0":[8,-84,2,16,5,')
    assert offsets(text) == {f"{T}-partition-0": chunked}


# Times


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        (" 1709254800000 ", 1709254800000),
        ("2024-03-01", 1709251200000),
        ("2024-03-01T01:00", 1709254800000),
        ("2024-03-01T01:00:00", 1709254800000),
        ("2024-03-01 01:00:00Z", 1709254800000),
        ("2024-03-01t01:00:00z", 1709254800000),
        ("2024-03-01T01:00:00.1", 1709254800100),
        ("2024-03-01T01:00:00,123", 1709254800123),
        ("2024-03-01T01:00:00.0009Z", 1709254800000),
        ("2024-03-01T01:00:00.123999999Z", 1709254800123),
        ("2024-03-01T02:00:00+01:00", 1709254800000),
        ("2024-03-01T02:00:00 +0100", 1709254800000),
        ("2024-03-01T11:15:00 +1015", 1709254800000),
        ("2024-02-29T20:30:00-04:30", 1709254800000),
        ("2024-03-01T02:00+01", 1709254800000),
        ("1970-01-01T00:00Z", 0),
        ("9999-12-31T23:59:59.999Z", 253402300799999),
    ],
)
def test_times(text: str, expected: int) -> None:
    """Milliseconds and ISO-8601 are read exactly, UTC where no zone is named."""
    assert parse_times(text, option="o") == TimesSpec(expected)
    in_json = parse_times(json.dumps({"t": text}), option="o")
    assert in_json == TimesSpec(None, {T: expected})


@given(
    st.datetimes(datetime(1970, 1, 2), datetime(9999, 12, 30)),
    st.integers(-23 * 60, 23 * 60),
)
def test_iso_times_are_exact(moment: datetime, zone_minutes: int) -> None:
    """Any printed time is read to the millisecond."""
    aware = moment.replace(tzinfo=timezone(timedelta(minutes=zone_minutes)))
    since = aware - datetime(1970, 1, 1, tzinfo=timezone.utc)
    expected = since // timedelta(milliseconds=1)
    assert parse_times(aware.isoformat(), option="o").default_ms == expected


def test_times_by_topic_and_partition() -> None:
    """JSON gives times by topic, and by partition below it."""
    text = '{"t":1709254800000,"u":{"0":"2024-03-01","10":5}}'
    u = "persistent://public/default/u-partition"
    assert parse_times(text, option="o").topics == {
        T: 1709254800000,
        f"{u}-0": 1709251200000,
        f"{u}-10": 5,
    }
    assert parse_times(text, option="o").default_ms is None
    assert parse_times('{"t":7,"*":"1970-01-02"}', "o") == TimesSpec(86_400_000, {T: 7})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "-1",
        "1969-12-31T23:59:59Z",
        "2024-13-01",
        "2024-02-30",
        "2024-03-01T25:00",
        "2024-03-01T01:00+99:00",
        "0000-01-01",
        "253402300800000",
        "1" * 30,
        "1.5",
        "{",
        '{"t":1.5}',
        '{"t":true}',
        '{"t":null}',
        '{"t":[1]}',
        '{"t":"noon"}',
        '{"t":{"x":1}}',
        '{"t":1,"public/default/t":2}',
    ],
)
def test_bad_times_name_the_option(text: str) -> None:
    """What is not a time is refused, naming the option."""
    with pytest.raises(OptionError, match=r"^\[PULSAR_OPTION\] startingTime"):
        parse_times(text, option="startingTime")


@pytest.mark.parametrize("text", ["1700000000", '{"t":1700000000}'])
def test_seconds_are_no_milliseconds(text: str) -> None:
    """A number of today's seconds would be a time in January of 1970, in silence."""
    seen = "1700000000 is 1970-01-20T16:13:20Z, since times are milliseconds"
    with pytest.raises(OptionError, match=f"{seen}: for seconds write 1700000000000"):
        parse_times(text, option="startingTime")
    assert parse_times("1970-01-20T16:13:20Z", "o") == TimesSpec(1_700_000_000)


@given(st.text() | st.text('{}[]":,t0123456789-latesr', max_size=30))
def test_any_text_is_a_value_or_an_option_error(text: str) -> None:
    """No text makes the parsers fail in another way."""
    for parse in (parse_offsets, parse_times):
        with contextlib.suppress(OptionError):
            parse(text, option="o")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text("t/-a0", max_size=8), json_values, max_size=4))
def test_any_json_is_a_value_or_an_option_error(value: dict[str, Any]) -> None:
    """No JSON makes the parsers fail in another way."""
    for parse in (parse_offsets, parse_times):
        with contextlib.suppress(OptionError):
            parse(json.dumps(value), option="o")


def test_specs_survive_pickling() -> None:
    """Specs can be sent to executors."""
    spec = parse_offsets('{"t":{"0":"12:3:4"}}', option="o")
    times = parse_times('{"t":5}', option="o")
    twins = pickle.loads(pickle.dumps((spec, times)))  # noqa: S301 - our own bytes
    assert twins == (spec, times)
