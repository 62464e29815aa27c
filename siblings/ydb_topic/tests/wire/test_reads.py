# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ydb_spark.errors import DataLossError, ProtocolError, TransportError
from ydb_spark.sdk import pb
from ydb_spark.wire.reads import RangeSession

Read = pb.StreamReadMessage
FromServer = Read.FromServer


def started(session: RangeSession, start: int = 0, end: int = 1000, number: int = 1):
    """Begin a session of the server; return what it is answered."""
    session.begin()
    request = Read.StartPartitionSessionRequest(
        partition_session={"partition_session_id": number, "partition_id": 3},
        partition_offsets={"start": start, "end": end},
    )
    _, (answer,), _ = session.take(FromServer(start_partition_session_request=request))
    return answer.start_partition_session_response


def response(*offsets: int, number: int = 1, size: int = 10) -> Any:
    """Messages with these offsets."""
    batch = {"message_data": [{"offset": offset} for offset in offsets], "codec": 1}
    data = {"partition_session_id": number, "batches": [batch]}
    return FromServer(read_response={"partition_data": [data], "bytes_size": size})


def taken(session: RangeSession, answer: Any) -> list[int]:
    """The offsets that a response gives."""
    batches, _, _ = session.take(answer)
    return [message.offset for part in batches for message in part.messages]


def session(start: int, end: int, *, is_strict: bool = True) -> RangeSession:
    """A range of partition 3 of the topic ``t``."""
    return RangeSession("t", 3, start, end, 1000, is_strict=is_strict)


def test_what_is_asked_for():
    """One partition, no consumer, credit, and no limit that only commits free."""
    init, credit = session(5, 9).begin()
    assert list(init.init_request.topics_read_settings[0].partition_ids) == [3]
    assert not init.init_request.consumer
    assert not init.init_request.partition_max_in_flight_bytes
    assert credit.read_request.bytes_size == 1000
    answer = started(session(5, 9))
    assert answer.HasField("read_offset")
    assert answer.read_offset == 5
    assert not answer.HasField("commit_offset")


def test_offset_0_is_said():
    """It is not what a field is without a value."""
    assert started(session(0, 9)).HasField("read_offset")


def test_range():
    """What is before and behind is left out; the credit is the server's."""
    reading = session(5, 9)
    started(reading)
    batches, requests, size = reading.take(response(3, 4, 5, 6, size=77))
    assert [m.offset for m in batches[0].messages] == [5, 6]
    assert (requests, size) == ([], 77)
    assert reading.give_back(size).read_request.bytes_size == 77
    assert not reading.is_done
    assert taken(reading, response(7, 8, 9, 10)) == [7, 8]
    assert reading.is_done


def test_empty_range():
    """There is nothing to open."""
    assert session(5, 5).is_done


def test_another_stream_goes_on():
    """Nothing comes twice, and nothing of the stream that is over."""
    reading = session(0, 9)
    started(reading)
    assert taken(reading, response(0, 1, 2)) == [0, 1, 2]
    assert started(reading, number=2).read_offset == 3
    assert taken(reading, response(3, number=1)) == []
    assert taken(reading, response(1, 2, 3, number=2)) == [3]


def test_lost_before_the_start():
    """The server says what it still has."""
    with pytest.raises(DataLossError) as caught:
        started(session(5, 9), start=7)
    assert (caught.value.wanted, caught.value.available) == ("5", "7")
    assert started(session(5, 9, is_strict=False), start=7).read_offset == 5


def test_lost_meanwhile():
    """A later first message says it, too."""
    reading = session(5, 9)
    started(reading)
    with pytest.raises(DataLossError, match="no message at offset 5"):
        reading.take(response(7, 8))
    lenient = session(5, 9, is_strict=False)
    started(lenient)
    assert taken(lenient, response(7, 8)) == [7, 8]


def test_made_anew():
    """A topic that ends before what is due has been made anew."""
    with pytest.raises(DataLossError, match="made anew"):
        started(session(5, 9), end=8)
    lenient = session(5, 9, is_strict=False)
    started(lenient, end=5)
    assert lenient.is_done


def test_end_that_no_message_has():
    """The server is asked how far it is, once at a time."""
    reading = session(0, 9, is_strict=False)
    assert reading.ask_how_far() == []
    started(reading)
    taken(reading, response(0, 1))
    (asked,) = reading.ask_how_far()
    assert asked.partition_session_status_request.partition_session_id == 1
    assert reading.ask_how_far() == []
    status = {"partition_session_id": 1, "read_offset": 9}
    reading.take(FromServer(partition_session_status_response=status))
    assert reading.is_done


def test_taken_back():
    """A partition that is taken back is read on a new stream."""
    reading = session(0, 9)
    started(reading)
    stop = {"partition_session_id": 1, "graceful": True}
    with pytest.raises(TransportError) as caught:
        reading.take(FromServer(stop_partition_session_request=stop))
    assert caught.value.retriable


@pytest.mark.parametrize(
    "answer",
    [
        FromServer(),
        FromServer(update_partition_session={}),
        FromServer(init_response={"session_id": "s"}),
        FromServer(end_partition_session={"partition_session_id": 1}),
    ],
)
def test_what_is_no_business_of_a_range(answer: Any):
    """Messages of newer servers are ignored."""
    reading = session(0, 9)
    started(reading)
    assert reading.take(answer) == ([], [], 0)


def test_what_cannot_be():
    """Another partition, offsets that fall, negative sizes."""
    reading = session(0, 9)
    other = Read.StartPartitionSessionRequest(
        partition_session={"partition_session_id": 1, "partition_id": 4}
    )
    with pytest.raises(ProtocolError, match="began partition 4"):
        reading.take(FromServer(start_partition_session_request=other))
    started(reading)
    with pytest.raises(ProtocolError, match="fall"):
        reading.take(response(0, 1, 0))
    with pytest.raises(ProtocolError, match="negative"):
        reading.take(response(2, size=-1))


@given(
    start=st.integers(0, 30),
    length=st.integers(0, 30),
    holes=st.sets(st.integers(0, 60)),
    cuts=st.lists(st.integers(1, 10), min_size=70),
    breaks=st.sets(st.integers(0, 30)),
)
def test_slices(
    start: int, length: int, holes: set[int], cuts: list[int], breaks: set[int]
):
    """Whatever the cuts and breaks: the messages of the range, each once, in order."""
    log = [offset for offset in range(70) if offset not in holes]
    end = start + length
    reading = session(start, end, is_strict=False)
    found: list[int] = []
    for turn, cut in enumerate(cuts):
        if reading.is_done:
            break
        if not turn or turn in breaks:
            position = started(reading, end=70, number=turn + 1).read_offset
            number = turn + 1
            rest = [offset for offset in log if offset >= position]
        now, rest = rest[:cut], rest[cut:]
        found += taken(reading, response(*now, number=number))
    assert reading.is_done
    assert found == [offset for offset in log if start <= offset < end]
