# SPDX-License-Identifier: Apache-2.0
"""The messages of a range: exact cuts, what brokers do without an error, and faults."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.waiting import await_true
from tests.tubemq_spark.scripted_server import (
    BROKER_ID,
    ENTRY,
    ScriptedServer,
    cut,
    passing,
    refuse,
    silence,
    throw,
)
from tubemq_spark.errors import (
    CorruptMessageError,
    DataLossError,
    PartitionOccupiedError,
    ReadTimeoutError,
    ServerError,
)
from tubemq_spark.options import ReadOptions
from tubemq_spark.source.batch_plan import ReadTask
from tubemq_spark.source.range_reader import RangeReader
from tubemq_spark.source.ranges import PartitionRange
from tubemq_spark.wire.metadata import Partition


@pytest.fixture
def dense() -> Iterator[ScriptedServer]:
    """Twenty messages in a store of one partition."""
    with ScriptedServer({"t": [1]}) as server:
        for number in range(20):
            server.append("t", 0, b"%d" % number)
        yield server


def read(
    server: ScriptedServer,
    start: int,
    end: int,
    *,
    partition_id: int = 0,
    is_dense: bool = True,
    **options: object,
) -> list[bytes]:
    """Read entries ``[start, end)`` of a store."""
    return [
        message.payLoadData
        for piece in reader(
            server, start, end, partition_id, is_dense, **options
        ).pieces()
        for message in piece.messages
    ]


def reader(
    server: ScriptedServer,
    start: int,
    end: int,
    partition_id: int = 0,
    is_dense: bool = True,
    **options: object,
) -> RangeReader:
    """A reader of entries ``[start, end)``."""
    chosen = ReadOptions(
        client=server.options, topics=("t",), not_found_pause_s=0.01, read_timeout_s=1.0
    )
    chosen = replace(chosen, **options)  # type: ignore[arg-type]
    range_ = PartitionRange(
        Partition("t", BROKER_ID, partition_id),
        start * ENTRY,
        end * ENTRY,
        server.address,
        is_dense,
    )
    return RangeReader(server.pool, ReadTask(range_, "g", None), chosen)


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


@pytest.mark.parametrize(
    ("start", "end"), [(0, 20), (3, 4), (0, 10), (5, 17), (19, 20)]
)
def test_a_dense_range_is_exact(dense: ScriptedServer, start: int, end: int):
    assert read(dense, start, end) == numbers(start, end)
    await_true(lambda: not dense.owners, "the end of the registration")


def test_offsets_are_known_where_every_entry_is_ours(dense: ScriptedServer):
    pieces = list(reader(dense, 5, 17).pieces())
    assert [(one.first_offset, len(one.messages)) for one in pieces] == [
        (5 * ENTRY, 10),
        (15 * ENTRY, 2),
    ]


@pytest.mark.parametrize("half", [False, True])
def test_shared_ranges_are_exact(half: bool):
    """Three partitions in one store, random ends: the same as the truth."""
    chance = random.Random(7)
    with ScriptedServer({"t": [3]}, half=half, per_get=12) as server:
        truth = []
        for number in range(80):
            partition_id = chance.choice([0, 0, 1, 2])
            server.append("t", partition_id, b"%d" % number)
            truth.append((partition_id, b"%d" % number))
        for _ in range(60):
            start, end = sorted(chance.sample(range(81), 2))
            partition_id = chance.choice([0, 1, 2])
            got = read(server, start, end, partition_id=partition_id, is_dense=False)
            assert got == [v for p, v in truth[start:end] if p == partition_id]


def test_a_filtered_range_is_exact():
    chance = random.Random(8)
    with ScriptedServer({"t": [1]}, per_get=12) as server:
        types = [chance.choice("AB") for _ in range(60)]
        for number, type_ in enumerate(types):
            server.append("t", 0, b"%d" % number, type_)
        for _ in range(30):
            start, end = sorted(chance.sample(range(61), 2))
            got = read(server, start, end, filters=("A",))
            assert got == [b"%d" % n for n in range(start, end) if types[n] == "A"]


def test_a_range_of_which_nothing_is_ours_ends():
    with ScriptedServer({"t": [2]}) as server:
        for _ in range(30):
            server.append("t", 1, b"other")
        assert read(server, 0, 25, partition_id=0, is_dense=False) == []


def test_nothing_at_the_moment_is_not_the_end(dense: ScriptedServer):
    dense.script("get", refuse(404), refuse(404))
    assert read(dense, 0, 20) == numbers(0, 20)


def test_a_broker_that_slows_readers_down_is_obeyed(dense: ScriptedServer):
    dense.script("get", refuse(452))
    assert read(dense, 0, 20) == numbers(0, 20)


@pytest.mark.parametrize(
    "fault",
    [
        refuse(503),
        refuse(411),
        refuse(500),
        cut,
        silence,
        throw("ServerNotReadyException", 2),
        throw("ServiceStoppingException"),
    ],
)
@pytest.mark.parametrize("method", ["get", "commit", "register"])
def test_faults_repeat_and_lose_nothing(dense: ScriptedServer, method: str, fault):
    dense.script(method, fault)
    if method != "register":
        dense.script(method, passing, fault)
    one = reader(dense, 2, 19)
    got = [m.payLoadData for piece in one.pieces() for m in piece.messages]
    assert got == numbers(2, 19)
    assert one.reconnects >= 1


def test_a_registration_that_is_gone_is_made_again(dense: ScriptedServer):
    pieces = reader(dense, 0, 20).pieces()
    got = [m.payLoadData for m in next(pieces).messages]
    dense.forget_registrations()
    got += [m.payLoadData for piece in pieces for m in piece.messages]
    assert got == numbers(0, 20)


def test_a_start_that_retention_took_is_a_loss(dense: ScriptedServer):
    dense.stores["t", 0].begin = 4
    with pytest.raises(DataLossError, match="begins at 112") as caught:
        read(dense, 2, 10)
    assert (caught.value.wanted, caught.value.available) == ("56", "112")
    assert read(dense, 2, 10, fail_on_data_loss=False) == numbers(4, 10)
    assert read(dense, 0, 3, fail_on_data_loss=False) == []


def test_a_jump_in_mid_read_is_a_loss(dense: ScriptedServer):
    for fails in (True, False):
        dense.stores["t", 0].begin = 0
        pieces = reader(dense, 0, 20, fail_on_data_loss=fails).pieces()
        got = [m.payLoadData for m in next(pieces).messages]
        dense.stores["t", 0].begin = 13
        if fails:
            with pytest.raises(DataLossError, match="asked for"):
                list(pieces)
        else:
            got += [m.payLoadData for piece in pieces for m in piece.messages]
            assert got == numbers(0, 10) + numbers(13, 20)


def test_a_log_that_was_rolled_back_is_a_loss(dense: ScriptedServer):
    dense.stores["t", 0].flushed = 12
    with pytest.raises(DataLossError, match="ends at 336"):
        read(dense, 0, 20)


def test_a_hole_in_a_dense_partition_is_a_loss(dense: ScriptedServer):
    del dense.stores["t", 0].entries[5]
    dense.stores["t", 0].entries.insert(5, dense.stores["t", 0].entries[0])
    dense.stores["t", 0].entries[5] = replace(
        dense.stores["t", 0].entries[5], partition_id=99
    )
    with pytest.raises(DataLossError, match="delivers 9"):
        read(dense, 0, 20)
    assert read(dense, 0, 20, fail_on_data_loss=False) == [
        *numbers(0, 5),
        *numbers(6, 20),
    ]
    assert read(dense, 0, 7, fail_on_data_loss=False) == [*numbers(0, 5), b"6"]


def test_a_damaged_message_is_named(dense: ScriptedServer):
    message = dense.stores["t", 0].entries[7].message
    message.checkSum += 1
    with pytest.raises(CorruptMessageError, match="t/1:0") as caught:
        read(dense, 0, 20)
    assert caught.value.message_id == message.messageId


def test_what_never_comes_has_a_deadline(dense: ScriptedServer):
    dense.script("get", *[refuse(404)] * 1000)
    with pytest.raises(ReadTimeoutError, match="at offset 0"):
        read(dense, 0, 20, read_timeout_s=0.1)


def test_a_final_refusal_is_raised_at_once(dense: ScriptedServer):
    dense.script("register", refuse(403))
    with pytest.raises(ServerError, match="403 FORBIDDEN"):
        read(dense, 0, 20)
    assert dense.requests["register"] == 1


def test_an_occupied_partition_is_read_in_another_slot(dense: ScriptedServer):
    first = reader(dense, 0, 20).pieces()
    next(first)
    assert read(dense, 0, 20) == numbers(0, 20)
    assert {body.groupName for body in dense.seen["register"]} == {"g", "g-1"}
    rest = [m.payLoadData for piece in first for m in piece.messages]
    assert rest == numbers(10, 20)


def test_all_slots_occupied_is_said_after_a_while(
    dense: ScriptedServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tubemq_spark.source.range_reader._OCCUPIED_S", 0.0)
    dense.script("register", *[refuse(410, "owned by x")] * 8)
    with pytest.raises(PartitionOccupiedError, match="owned by x"):
        read(dense, 0, 20)


def test_whoever_takes_over_ends_this_attempt(dense: ScriptedServer):
    dense.script("get", refuse(412))
    with pytest.raises(PartitionOccupiedError, match="412"):
        read(dense, 0, 20)


def test_every_reader_has_an_id_of_its_own(dense: ScriptedServer):
    read(dense, 0, 2)
    read(dense, 0, 2)
    assert len({body.clientId for body in dense.seen["get"]}) == 2


def test_only_what_is_flushed_is_asked_for(dense: ScriptedServer):
    read(dense, 0, 20)
    registers = [body for body in dense.seen["register"] if body.opType == 31]
    assert {body.qryPriorityId for body in registers} == {1}


def test_who_waits_for_other_readers_says_so(
    dense: ScriptedServer, caplog: pytest.LogCaptureFixture
):
    dense.script("register", *[refuse(410, "owned by x")] * 8)
    assert read(dense, 0, 20) == numbers(0, 20)
    (warning,) = [one.getMessage() for one in caplog.records if one.levelno >= 30]
    assert "Waiting up to 35 s for other readers" in warning
    assert "owned by x" in warning
