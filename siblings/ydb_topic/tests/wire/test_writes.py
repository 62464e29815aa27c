# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ydb_spark.errors import ProtocolError
from ydb_spark.sdk import pb
from ydb_spark.wire.writes import Unacked, init_request

Request = pb.StreamWriteMessage.WriteRequest
Response = pb.StreamWriteMessage.WriteResponse


def request(*numbers: int) -> Any:
    """A request with messages of these numbers."""
    return Request(
        codec=1, messages=[Request.MessageData(seq_no=n, data=b"x") for n in numbers]
    )


def response(*numbers: int, kind: str = "written") -> Any:
    """A response that answers these numbers alike."""
    return Response(acks=[{"seq_no": n, kind: {}} for n in numbers])


def unanswered(unacked: Unacked) -> list[int]:
    """The numbers that would be sent again."""
    return [m.seq_no for r in unacked.requests() for m in r.messages]


def test_paired_by_number_however_they_are_spread():
    """Responses need not be cut where requests are."""
    unacked = Unacked()
    for numbers in ((1, 2, 3), (4, 5, 6), (7,)):
        unacked.add(request(*numbers))
    assert unacked.take(response(1, 2)).written == 2
    assert unacked.take(response(3, 4, 5, kind="skipped")).skipped == 3
    assert unanswered(unacked) == [6, 7]
    assert unacked.take(response(6, 7, kind="written_in_tx")).written_in_tx == 2
    assert not unacked
    assert unacked.size_bytes == 0


@pytest.mark.parametrize(
    "answers",
    [(2,), (1, 1), (1, 3), (1, 2, 3, 4), (0,)],
    ids=["one left out", "repeated", "a gap", "too many", "unknown"],
)
def test_answers_that_cannot_be(answers: tuple[int, ...]):
    """What is not the turn of a message is an error, not a hang or a guess."""
    unacked = Unacked()
    unacked.add(request(1, 2, 3))
    with pytest.raises(ProtocolError, match="answered the message with number"):
        unacked.take(response(*answers))


def test_numbers_that_go_on():
    """What is not answered gets the next numbers, in its order; the rest stays."""
    unacked = Unacked()
    unacked.add(request(1, 2, 3))
    unacked.add(request(4, 5))
    unacked.take(response(1))
    assert unacked.number(70) == 74
    assert unanswered(unacked) == [71, 72, 73, 74]
    assert unacked.take(response(71, 72, 73)).written == 3
    assert unanswered(unacked) == [74]


def test_answer_without_a_status():
    """An answer that does not say whether the message is stored is none."""
    unacked = Unacked()
    unacked.add(request(1))
    with pytest.raises(ProtocolError, match="not whether it is stored"):
        unacked.take(Response(acks=[{"seq_no": 1}]))


def test_quota_wait():
    """Both quotas count."""
    unacked = Unacked()
    unacked.add(request(1))
    answer = response(1)
    answer.write_statistics.partition_quota_wait_time.FromMilliseconds(300)
    answer.write_statistics.topic_quota_wait_time.FromMilliseconds(1200)
    assert unacked.take(answer).quota_wait_s == pytest.approx(1.5)


@given(
    sizes=st.lists(st.integers(1, 6), max_size=8),
    cuts=st.lists(st.integers(1, 7), max_size=30),
    stored=st.integers(0, 50),
)
def test_what_is_left_is_what_was_not_answered(
    sizes: list[int], cuts: list[int], stored: int
):
    """Whatever the cut of requests, responses and a last number: none twice or lost."""
    unacked = Unacked()
    sent: list[int] = []
    for size in sizes:
        numbers = range(len(sent) + 1, len(sent) + 1 + size)
        unacked.add(request(*numbers))
        sent += numbers
    left = list(sent)
    for cut in cuts:
        now, left = left[:cut], left[cut:]
        assert unacked.take(response(*now)).messages == len(now)
        assert unanswered(unacked) == left
        assert len(unacked) == len(left)
    dropped = [n for n in left if n <= stored]
    assert unacked.drop_stored(stored) == len(dropped)
    assert unanswered(unacked) == left[len(dropped) :]
    assert bool(unacked.size_bytes) is bool(unanswered(unacked))


@pytest.mark.parametrize(
    ("producer", "partition", "expected"),
    [
        ("p", None, ("p", "p", "message_group_id", True)),
        ("p", 3, ("p", "", "partition_id", True)),
        ("", None, ("", "", None, False)),
        ("", 0, ("", "", "partition_id", False)),
    ],
)
def test_init(producer: str, partition: int | None, expected: tuple[Any, ...]):
    """A group is the producer, or there is a partition, or nothing; 0 is one, too."""
    init = init_request("t", producer, partition, {"a": "b"}).init_request
    found = (
        init.producer_id,
        init.message_group_id,
        init.WhichOneof("partitioning"),
        init.get_last_seq_no,
    )
    assert found == expected
    assert dict(init.write_session_meta) == {"a": "b"}
