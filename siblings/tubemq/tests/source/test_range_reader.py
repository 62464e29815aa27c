# SPDX-License-Identifier: Apache-2.0
"""The messages of a range: exact cuts, what brokers do without an error, and faults."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from siblings.tubemq.tests.scripted_server import (
    BROKER_ID,
    ENTRY,
    NAMES,
    Action,
    ScriptedServer,
    Session,
    cut,
    passing,
    refuse,
    silence,
    throw,
)
from tests.support.waiting import await_true
from tubemq_spark.errors import (
    CorruptMessageError,
    DataLossError,
    PartitionOccupiedError,
    ProtocolError,
    ReadTimeoutError,
    ServerError,
)
from tubemq_spark.options import ReadOptions
from tubemq_spark.options.patience import Patience
from tubemq_spark.source.batch_plan import ReadTask, plan_batch
from tubemq_spark.source.range_reader import MOST_IN_MEMORY, RangeReader
from tubemq_spark.source.ranges import PartitionRange
from tubemq_spark.wire import tubemq_pb2 as pb
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
        message.stored
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
    dense.hurry(0.2)
    dense.script(method, fault)
    if method != "register":
        dense.script(method, passing, fault)
    one = reader(dense, 2, 19)
    got = [m.stored for piece in one.pieces() for m in piece.messages]
    assert got == numbers(2, 19)
    assert one.reconnects >= 1


def test_a_registration_that_is_gone_is_made_again(dense: ScriptedServer):
    pieces = reader(dense, 0, 20).pieces()
    got = [m.stored for m in next(pieces).messages]
    dense.forget_registrations()
    got += [m.stored for piece in pieces for m in piece.messages]
    assert got == numbers(0, 20)


def test_a_start_that_retention_took_is_a_loss(dense: ScriptedServer):
    dense.stores["t", 0].begin = 4
    with pytest.raises(DataLossError, match="begins at 112") as caught:
        read(dense, 2, 10)
    assert (caught.value.wanted, caught.value.available) == ("56", "112")
    assert read(dense, 2, 10, fail_on_data_loss=False) == numbers(4, 10)
    assert read(dense, 0, 3, fail_on_data_loss=False) == []


def await_gets(server: ScriptedServer, count: int) -> None:
    await_true(lambda: server.requests["get"] == count, f"get {count}")


@pytest.mark.parametrize(
    ("end", "ahead"),
    [
        (10, [0]),
        (11, [1, 0]),
        (25, [2, 1, 0]),
        (60, [5, 4, 3, 2, 1, 0]),
        (150, [8, 7, 6, 5, 8, 7, 6, 5, 4, 3, 4, 3, 2, 1, 0]),
    ],
)
def test_the_next_gets_are_under_way_and_no_others(
    dense: ScriptedServer, end: int, ahead: list[int]
):
    """Four to eight while one is looked at, some at a time; none beyond the range."""
    for number in range(20, 150):
        dense.append("t", 0, b"%d" % number)
    found: list[bytes] = []
    for number, piece in enumerate(reader(dense, 0, end).pieces()):
        found += [m.stored for m in piece.messages]
        await_gets(dense, number + 1 + ahead[number])
    assert found == numbers(0, end)
    await_true(lambda: dense.requests["unregister"] == 1, "the end")
    assert dense.requests["get"] == len(ahead)


def test_one_get_is_under_way_where_messages_are_large(dense: ScriptedServer):
    for number in range(20, 40):
        dense.append("t", 0, b"%d" % number * 300_000)
    for number, _ in enumerate(reader(dense, 20, 40).pieces()):
        await_gets(dense, 2)
        assert number < 2


def test_fewer_gets_are_under_way_where_they_take_too_long():
    """Or most of them would come too late, again and again, and be asked for anew."""

    def take_long(session: Session, serial: int, method: int, body: Any) -> None:
        time.sleep(0.04)
        passing(session, serial, method, body)

    with ScriptedServer({"t": [1]}, per_get=1) as server:
        for number in range(50):
            server.append("t", 0, b"%d" % number)
        server.script("get", *[take_long] * 200)
        server.hurry(0.04)
        slow = reader(server, 0, 50)
        found = [one.stored for piece in slow.pieces() for one in piece.messages]
    assert found == numbers(0, 50)
    assert slow.reconnects < 7  # each one halves them


def test_a_jump_in_mid_read_is_a_loss(dense: ScriptedServer):
    for number in range(20, 150):
        dense.append("t", 0, b"%d" % number)
    for fails in (True, False):
        dense.stores["t", 0].begin = 0
        before = dense.requests["get"]
        pieces = reader(dense, 0, 150, fail_on_data_loss=fails).pieces()
        got = [m.stored for m in next(pieces).messages]
        # The next ones are under way by then.
        await_gets(dense, before + 9)
        dense.stores["t", 0].begin = 93
        if fails:
            with pytest.raises(DataLossError, match="asked for"):
                list(pieces)
        else:
            got += [m.stored for piece in pieces for m in piece.messages]
            assert got == numbers(0, 90) + numbers(93, 150)


def test_a_log_that_was_rolled_back_is_a_loss(dense: ScriptedServer):
    dense.stores["t", 0].flushed = 12
    with pytest.raises(DataLossError, match="ends at 336"):
        read(dense, 0, 20)


@pytest.mark.parametrize(("start", "wanted"), [(2, 560), (10, 280)])
def test_a_topic_that_was_made_anew_is_a_loss(
    dense: ScriptedServer, start: int, wanted: int
):
    """Its offsets begin at 0 again; nothing else tells it from the old one."""
    del dense.stores["t", 0].entries[6:]
    with pytest.raises(DataLossError, match=f"offset {wanted} .* ends at 168"):
        read(dense, start, 20)
    assert read(dense, start, 20, fail_on_data_loss=False) == numbers(start, 6)


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
    assert [body.opType for body in dense.seen["register"]][:2] != [31, 31]


def test_an_occupied_partition_is_read_in_another_slot(dense: ScriptedServer):
    first = reader(dense, 0, 20).pieces()
    next(first)
    assert read(dense, 0, 20) == numbers(0, 20)
    assert {body.groupName for body in dense.seen["register"]} == {"g-read", "g-read-1"}
    rest = [m.stored for piece in first for m in piece.messages]
    assert rest == numbers(10, 20)


def test_a_read_leaves_its_group_where_it_was(dense: ScriptedServer):
    """A get moves the position of the group that it is of."""
    dense.positions["g", "t", 0] = 17 * ENTRY
    options = ReadOptions(dense.options, ("t",), group="g", min_partitions=3)
    tasks = plan_batch(dense.pool, options)
    for task in tasks:
        list(RangeReader(dense.pool, task, options).pieces())
    assert dense.positions["g", "t", 0] == 17 * ENTRY
    asked = {body.groupName for body in dense.seen["register"]}
    assert asked == {"g-plan", "g-read", "g-read-1", "g-read-2"}


def test_all_slots_occupied_is_said_after_a_while(dense: ScriptedServer):
    client = replace(dense.options, patience=Patience(occupied_s=0.0))
    dense.script("register", *[refuse(410, "owned by x")] * 8)
    with pytest.raises(PartitionOccupiedError, match="owned by x"):
        read(dense, 0, 20, client=client)


def test_all_parts_of_a_partition_are_read_at_the_same_time(dense: ScriptedServer):
    """However many there are, and also while some of an earlier attempt hold on."""
    client = replace(dense.options, patience=Patience(occupied_s=0.0))
    options = ReadOptions(client, ("t",), group="g", min_partitions=20)
    tasks = plan_batch(dense.pool, options)
    again = [*tasks, *tasks[:7]]
    readers = [RangeReader(dense.pool, task, options).pieces() for task in again]
    found = [one.stored for pieces in readers for one in next(pieces).messages]
    assert found == [*numbers(0, 20), *numbers(0, 7)]
    assert len({body.groupName for body in dense.seen["register"]} - {"g-plan"}) == 27
    for pieces in readers:
        pieces.close()


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


# -- where a range ends ----------------------------------------------------------------


@pytest.mark.parametrize("end", [1, 3, 4, 5, 6, 9, 10, 11, 14])
def test_a_cut_is_exact_wherever_it_is(end: int):
    """In the get, at its first and last message, between others, with none of ours."""
    ours = {0, 3, 4, 9, 10}
    with ScriptedServer({"t": [2]}, per_get=11) as server:
        for number in range(15):
            server.append("t", 0 if number in ours else 1, b"%d" % number)
        got = read(server, 0, end, partition_id=0, is_dense=False)
        assert got == [b"%d" % n for n in sorted(ours) if n < end]


def test_a_cut_before_a_message_that_memory_leaves_out():
    """A broker's memory passes over what is large: where the cut is, its disk says."""
    large = bytes(MOST_IN_MEMORY + 1)
    with ScriptedServer({"t": [2]}) as server:
        for number in range(6):
            server.append("t", number % 2, large if number == 4 else b"%d" % number)
        store = server.stores["t", 0]
        store.flushed = 4  # and the file has more already
        server.most_in_memory = MOST_IN_MEMORY
        flush = threading.Timer(0.2, setattr, (store, "flushed", None))
        flush.start()
        assert read(server, 0, 4, is_dense=False, read_timeout_s=60.0) == [b"0", b"2"]
        flush.join()
        assert read(server, 4, 6, is_dense=False) == [large]


@pytest.mark.parametrize("per_get", [1, 2, 7, 100])
def test_short_gets_are_not_the_end(per_get: int):
    """Files bring at most half of what is left of them."""
    with ScriptedServer({"t": [1]}, half=True, per_get=per_get) as server:
        for number in range(40):
            server.append("t", 0, b"%d" % number)
        assert read(server, 0, 40) == numbers(0, 40)
        assert read(server, 7, 39) == numbers(7, 39)


def move_on(by: int) -> Action:
    """Answer a get by nothing, and go on behind some entries."""

    def act(session: Session, serial: int, method: int, body: Any) -> None:
        key = (body.groupName, body.topicName, body.partitionId)
        session.server.owners[key].position += by
        refuse(404)(session, serial, method, body)

    return act


def test_nothing_found_and_moved_on_is_progress_in_a_shared_store():
    with ScriptedServer({"t": [2]}) as server:
        for number in range(20):
            server.append("t", 0 if number > 6 else 1, b"%d" % number)
        server.script("get", move_on(5))
        got = read(server, 0, 15, is_dense=False, read_timeout_s=60.0)
        assert got == numbers(7, 15)
        assert server.seen["register"][0].currOffset == 0


@pytest.mark.parametrize("fails", [True, False])
def test_nothing_found_behind_what_retention_took_is_a_loss(fails: bool):
    """A get that brings nothing does not tell where it started."""

    def take(session: Session, serial: int, method: int, body: Any) -> None:
        # The broker moves the reader from 10 to 12, and on to 15 in its memory.
        session.server.stores["t", 0].begin = 12
        move_on(5)(session, serial, method, body)

    with ScriptedServer({"t": [2]}) as server:
        for number in range(20):
            server.append("t", 1 if 12 <= number < 15 else 0, b"%d" % number)
        server.script("get", passing, take)
        wanted = {"is_dense": False, "fail_on_data_loss": fails}
        if fails:
            with pytest.raises(DataLossError, match="begins at 336"):
                read(server, 0, 20, **wanted)
        else:
            assert read(server, 0, 20, **wanted) == numbers(0, 10) + numbers(15, 20)


def test_nothing_found_and_moved_on_is_a_hole_in_a_dense_one(dense: ScriptedServer):
    dense.script("get", move_on(5))
    with pytest.raises(DataLossError, match="Of 5 messages"):
        read(dense, 0, 20)
    dense.script("get", move_on(5))
    assert read(dense, 0, 20, fail_on_data_loss=False) == numbers(5, 20)


def make_hole(server: ScriptedServer, at: int) -> None:
    """Let an entry be there that is never delivered."""
    entries = server.stores["t", 0].entries
    entries[at] = replace(entries[at], partition_id=99)


def test_a_hole_behind_the_range_is_none_of_its(dense: ScriptedServer):
    make_hole(dense, 8)
    assert read(dense, 0, 8) == numbers(0, 8)
    with pytest.raises(DataLossError, match=r"Of 9 messages .* delivers 8"):
        read(dense, 0, 9)


def stay(session: Session, serial: int, method: int, body: Any) -> None:
    """Answer a get by success, without a message and without moving."""
    key = (body.groupName, body.topicName, body.partitionId)
    position = session.server.owners[key].position
    reply = pb.GetMessageResponseB2C(
        success=True, errCode=200, errMsg="OK!", currOffset=position * ENTRY
    )
    session.answer(serial, method, reply)


def test_success_without_anything_is_waited_out_and_has_a_deadline(
    dense: ScriptedServer,
):
    dense.script("get", stay, stay)
    assert read(dense, 0, 20) == numbers(0, 20)
    dense.script("get", *[stay] * 1000)
    with pytest.raises(ReadTimeoutError, match="at offset 0"):
        read(dense, 0, 20, read_timeout_s=0.1)


# -- requests of a connection that broke -----------------------------------------------


class Zombie:
    """A get that is carried out when its connection is long gone."""

    def __init__(self, server: ScriptedServer) -> None:
        self._server = server
        self._session: Session | None = None
        self._body: Any = None

    def die(self, session: Session, serial: int, method: int, body: Any) -> None:
        """Cut the connection, and keep what it asked for."""
        self._session, self._body = session, body
        cut(session, serial, method, body)

    def rise(self, session: Session, serial: int, method: int, body: Any) -> None:
        """Carry it out just before a request of the next connection."""
        if session is self._session:
            self._server.script(NAMES[method], self.rise)
        else:
            self._server.act(self._body)
        passing(session, serial, method, body)


@pytest.mark.parametrize("before", ["get", "commit"])
def test_a_request_that_outlives_its_connection_moves_nobody(before: str):
    """In a shared store nothing would tell that messages are left out."""
    with ScriptedServer({"t": [2]}) as server:
        for number in range(60):
            server.append("t", number % 2, b"%d" % number)
        zombie = Zombie(server)
        server.script("get", zombie.die)
        if before == "get":
            server.script("get", zombie.rise)
        else:
            server.script("commit", zombie.rise)
        got = read(server, 0, 60, is_dense=False, partition_id=1)
        assert got == [b"%d" % number for number in range(1, 60, 2)]


def test_a_broken_connection_does_not_cost_a_group(dense: ScriptedServer):
    """What it had registered is ended over the next one."""
    dense.hurry(0.3)
    dense.script("get", cut, passing, cut, silence)
    assert read(dense, 0, 20) == numbers(0, 20)
    assert {body.groupName for body in dense.seen["register"]} == {"g-read"}
    ids = [body.clientId for body in dense.seen["register"] if body.opType == 31]
    assert len(ids) == len(set(ids)) == 4


def deaf(session: Session, serial: int, method: int, body: Any) -> None:
    """Answer nothing more on this connection."""
    session.server.deaf.add(session)


def test_a_connection_that_is_deaf_for_good_is_replaced(dense: ScriptedServer):
    """As after an address has moved: nobody says that it is over."""
    dense.hurry(0.2)
    for method in ("register", "get"):
        dense.script(method, deaf)
        assert read(dense, 0, 20) == numbers(0, 20)


# -- a reader that rests ---------------------------------------------------------------


def rest(seconds: float) -> None:
    """Do as Spark that works on the rows it got."""
    time.sleep(seconds)


def test_how_long_rows_are_looked_at_is_nobodys_silence(dense: ScriptedServer):
    """Neither of the clocks runs that say that a broker is gone, or silent."""
    client = replace(dense.options, operation_timeout_s=0.2)
    pieces = reader(dense, 0, 20, client=client, read_timeout_s=0.2).pieces()
    got = [m.stored for m in next(pieces).messages]
    rest(0.3)
    dense.script("get", refuse(404), refuse(404))
    dense.cut_all()
    got += [m.stored for piece in pieces for m in piece.messages]
    assert got == numbers(0, 20)


@pytest.fixture
def quick_heart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hearts that beat every 20 ms."""
    monkeypatch.setattr("tubemq_spark.client.heart.INTERVAL_S", 0.02)


def beats(server: ScriptedServer, count: int) -> None:
    """Wait for so many more heartbeats."""
    wanted = server.requests["heartbeat"] + count
    await_true(lambda: server.requests["heartbeat"] >= wanted, f"{count} heartbeats")


def await_bad_news(one: RangeReader) -> None:
    heart = one._heart
    assert heart is not None
    await_true(lambda: heart.failure is not None, "the end of the registration")


@pytest.mark.usefixtures("quick_heart")
def test_a_reader_that_rests_keeps_its_registration(dense: ScriptedServer):
    """With the view that it registered for: without it brokers go back to memory."""
    for unflushed, priority in ((False, 1), (True, 303)):
        pieces = reader(dense, 0, 20, read_unflushed=unflushed).pieces()
        got = [m.stored for m in next(pieces).messages]
        beats(dense, 3)
        (owner,) = dense.owners.values()
        assert owner.priority == priority
        got += [m.stored for piece in pieces for m in piece.messages]
        assert got == numbers(0, 20)
        body = dense.seen["heartbeat"][-1]
        assert list(body.partitionInfo) == [f"{BROKER_ID}:{dense.address}#t:0"]
        assert (body.groupName, body.clientId) == ("g-read", owner.client_id)
    registers = [body.opType for body in dense.seen["register"]]
    assert registers[:2] == [31, 31]


@pytest.mark.usefixtures("quick_heart")
def test_a_registration_that_a_heartbeat_finds_gone_is_made_again():
    """Also where another reader has taken the group meanwhile."""
    for is_taken in (False, True):
        with ScriptedServer({"t": [1]}, per_get=5) as server:
            for number in range(30):
                server.append("t", 0, b"%d" % number)
            one = reader(server, 0, 30)
            pieces = one.pieces()
            got = [m.stored for m in next(pieces).messages]
            server.forget_registrations()
            beats(server, 1)
            await_bad_news(one)
            if is_taken:
                other = reader(server, 0, 30).pieces()
                next(other)
            got += [m.stored for piece in pieces for m in piece.messages]
            assert got == numbers(0, 30)
            assert one.reconnects == 1


@pytest.mark.usefixtures("quick_heart")
def test_a_heartbeat_that_finds_another_owner_ends_this_attempt(dense: ScriptedServer):
    one = reader(dense, 0, 20)
    pieces = one.pieces()
    next(pieces)
    (key,) = dense.owners
    dense.owners[key] = replace(dense.owners[key], client_id="another")
    beats(dense, 1)
    await_bad_news(one)
    with pytest.raises(PartitionOccupiedError, match="heartbeat of t/1:0 by 412"):
        list(pieces)
    assert dense.owners[key].client_id == "another"


@pytest.mark.usefixtures("quick_heart")
@pytest.mark.parametrize("fault", [refuse(503), refuse(415), throw("Exception")])
def test_a_heartbeat_that_fails_is_tried_again(dense: ScriptedServer, fault: Action):
    dense.script("heartbeat", fault, fault)
    pieces = reader(dense, 0, 20).pieces()
    got = [m.stored for m in next(pieces).messages]
    beats(dense, 4)
    got += [m.stored for piece in pieces for m in piece.messages]
    assert got == numbers(0, 20)


# -- replies that are none -------------------------------------------------------------


class Raw:
    """Bytes that are sent in the place of a reply."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def SerializeToString(self) -> bytes:  # noqa: N802 - as protobuf has it
        """Return them."""
        return self._data


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x22\x05a", "A GetMessageResponseB2C cannot be read"),
        (b"\x10\xc8\x01\x22\x01x\x28\x00", "A GetMessageResponseB2C cannot be read"),
        (b"\x10\xc8\x01\x1a\x01\xff", "A GetMessageResponseB2C"),
        (b"", "The answer to get has no errCode"),
        (b"\x10\xc8\x01", "The answer to get has no currOffset"),
    ],
)
def test_a_get_that_is_answered_by_something_else_ends_the_connection(
    dense: ScriptedServer, data: bytes, what: str
):
    connection = dense.pool.connection(dense.address)
    dense.script(
        "get", lambda session, n, method, _: session.answer(n, method, Raw(data))
    )
    with pytest.raises(ProtocolError, match=rf"From {dense.address}: {what}"):
        read(dense, 0, 20)
    assert not connection.is_open
    assert read(dense, 0, 20) == numbers(0, 20)


def test_a_reply_in_another_way_of_writing_is_read(dense: ScriptedServer):
    """As a later broker might, with fields that nobody knows, and in a group."""

    def add(session: Session, serial: int, method: int, body: Any) -> None:
        reply = dense.act(body).SerializeToString()
        odd = b"\x93\x03\x08\x01\x94\x03\xfa\x07\x03new"
        session.answer(serial, method, Raw(odd + reply))

    dense.script("get", add, add)
    assert read(dense, 0, 20) == numbers(0, 20)
