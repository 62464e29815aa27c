# SPDX-License-Identifier: Apache-2.0
"""Sending: nothing is lost over what may pass, and the rest is said."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from siblings.tubemq.tests.scripted_server import (
    Action,
    ScriptedServer,
    Session,
    cut,
    passing,
    refuse,
    silence,
    store_silently,
    throw,
)
from tests.support.fixtures import Clock
from tests.support.fixtures import clock as clock
from tests.support.waiting import await_true, join
from tubemq_spark.client.connection import Connection
from tubemq_spark.errors import (
    AuthError,
    BadRowError,
    MessageTooLargeError,
    ServerError,
    TransportError,
)
from tubemq_spark.options import ClientOptions, WriteOptions
from tubemq_spark.options.patience import Patience
from tubemq_spark.sink import sender as sender_module
from tubemq_spark.sink.rows import Row
from tubemq_spark.sink.sender import Sender, Sent
from tubemq_spark.wire.attributes import Stored


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer({"t": [1, 1, 1]}) as server:
        yield server


def row(
    value: bytes,
    key: int | None = None,
    partition: tuple[int | None, int] | None = None,
) -> Row:
    return Row("t", Stored(value, 0), None, None, key, partition)


def send(server: ScriptedServer, rows: list[Row], **options: object) -> Sent:
    chosen = WriteOptions(
        client=server.options, topic=("t",), send_timeout_s=5.0, max_in_flight=7
    )
    chosen = replace(chosen, **options)  # type: ignore[arg-type]
    sender = Sender(server.pool, chosen)
    try:
        sender.send(rows)
        return sender.finish()
    finally:
        sender.close()


def asking(server: ScriptedServer) -> ClientOptions:
    """Masters are asked whenever rows are sent."""
    return replace(server.options, patience=Patience(refresh_s=0.0))


def stored(server: ScriptedServer) -> list[bytes]:
    return sorted(
        value for number in range(3) for value in server.values("t", number * 10000)
    )


def values(count: int) -> list[bytes]:
    return sorted(b"%d" % number for number in range(count))


def test_partitions_take_turns(server: ScriptedServer):
    sent = send(server, [row(b"%d" % n) for n in range(30)])
    assert (sent.messages, sent.resent) == (30, 0)
    assert stored(server) == values(30)
    assert [len(server.values("t", n * 10000)) for n in range(3)] == [10, 10, 10]


@pytest.mark.parametrize(
    ("options", "calls"),
    [
        ({"max_in_flight": 1}, [1] * 600),
        ({"max_in_flight": 100}, [64, 36] + [50] * 10),
        ({"max_in_flight": 500}, [64] * 7 + [52, 64, 36]),
        ({"max_in_flight_bytes": 300, "max_in_flight": 500}, [34] + [18] * 31 + [8]),
    ],
)
def test_messages_go_out_together_while_others_are_under_way(
    server: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, int],
    calls: list[int],
):
    """However many: never more than the limits, and never one by one within them."""
    sizes: list[int] = []
    really = Connection.call_all

    def call_all(self: Connection, requests: list[Any]) -> list[Any]:
        if requests[0].name == "send":
            sizes.append(len(requests))
        return really(self, requests)

    monkeypatch.setattr(Connection, "call_all", call_all)
    # What is answered late on a busy machine would be sent again.
    server.hurry(60.0)
    assert send(server, [row(b"%09d" % n) for n in range(600)], **options).messages
    assert sizes == calls
    assert len(stored(server)) == 600


def test_a_key_chooses_the_partition_and_keeps_the_order(server: ScriptedServer):
    send(server, [row(b"%d" % n, key=n % 2) for n in range(30)])
    assert server.values("t", 0) == [b"%d" % n for n in range(0, 30, 2)]
    assert server.values("t", 10000) == [b"%d" % n for n in range(1, 30, 2)]


@pytest.mark.parametrize("code", [419, 503])
def test_one_message_under_way_keeps_the_order(server: ScriptedServer, code: int):
    """Whatever is turned away: what is behind it is not sent before it is stored."""
    server.script("send", passing, passing, *[refuse(code)] * 2, passing, refuse(code))
    sent = send(server, [row(b"%02d" % n, key=1) for n in range(10)], max_in_flight=1)
    assert sent.resent == 3
    assert server.values("t", 10000) == [b"%02d" % n for n in range(10)]


def test_a_named_partition_must_exist(server: ScriptedServer):
    send(server, [row(b"1", partition=(None, 20000)), row(b"2", partition=(1, 20000))])
    assert server.values("t", 20000) == [b"1", b"2"]
    for wanted in ((None, 1), (2, 20000), (None, 30000)):
        with pytest.raises(BadRowError, match="has no partition"):
            send(server, [row(b"3", partition=wanted)])
    assert server.requests["send"] == 2


@pytest.mark.parametrize(
    "fault",
    [
        refuse(419),
        refuse(503),
        refuse(500),
        throw("rv.ServerNotReadyException", 2),
        silence,
        cut,
    ],
)
@pytest.mark.parametrize("before", [0, 3])
def test_what_may_pass_is_sent_again(server: ScriptedServer, fault, before: int):
    server.hurry(0.2)
    server.script("send", *[passing] * before, fault, fault)
    sent = send(server, [row(b"%d" % n) for n in range(40)])
    assert sent.messages == 40
    assert sent.resent >= 1
    assert set(stored(server)) == set(values(40))  # at least once


def test_a_lost_reply_is_a_second_message(server: ScriptedServer):
    server.hurry(0.3)
    server.script("send", store_silently)
    sent = send(server, [row(b"v")])
    assert (sent.messages, sent.resent) == (1, 1)
    assert stored(server) == [b"v", b"v"]


def test_a_token_that_turned_over_is_renewed_once(server: ScriptedServer):
    server.script("send", refuse(415))
    assert send(server, [row(b"v")]).messages == 1
    assert server.requests["producer heartbeat"] == 2
    server.script("send", *[refuse(415)] * 10)
    with pytest.raises(AuthError, match="415"):
        send(server, [row(b"v")])


def test_a_broker_that_takes_long_is_left_less_at_a_time(server: ScriptedServer):
    """Or it would get all of it again and again, and never have time for that."""

    def take_long(session: Session, serial: int, method: int, body: Any) -> None:
        time.sleep(0.005)
        passing(session, serial, method, body)

    server.hurry(0.2)
    server.script("send", *[take_long] * 2000)
    rows = [row(b"%04d" % number + b"." * 20_000) for number in range(150)]
    sent = send(server, rows, max_in_flight=500, send_timeout_s=60.0)
    assert len(set(stored(server))) == sent.messages == 150
    assert server.requests["send"] < 4 * 150


def test_a_final_refusal_ends_the_write(server: ScriptedServer):
    server.script("send", refuse(400, "no data"))
    with pytest.raises(ServerError, match="no data"):
        send(server, [row(b"v")])


def test_a_broker_that_does_not_come_back_is_given_up(server: ScriptedServer):
    server.script("send", *[refuse(503)] * 1000)
    with pytest.raises(ServerError, match=r"503.*`send\.timeout`"):
        send(server, [row(b"v")], send_timeout_s=0.3)


def test_what_spark_spends_on_rows_is_no_part_of_the_time(
    server: ScriptedServer, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sender_module, "time", clock)
    chosen = WriteOptions(client=server.options, topic=("t",), send_timeout_s=5.0)
    sender = Sender(server.pool, chosen)
    for number in range(2):
        clock.now += 60.0
        server.script("send", refuse(503))
        sender.send([row(b"%d" % number)])
    clock.now += 60.0
    assert sender.finish() == Sent(2, 2, 2)
    sender.close()


def test_a_message_too_large_is_not_sent(server: ScriptedServer):
    with pytest.raises(MessageTooLargeError, match="1048577 bytes") as caught:
        send(server, [row(bytes(1024 * 1024 + 1))])
    assert caught.value.limit_bytes == 1024 * 1024
    assert server.requests["send"] == 0


def test_a_broker_that_the_master_left_out_is_still_written_to(server: ScriptedServer):
    chosen = WriteOptions(client=server.options, topic=("t",), send_timeout_s=5.0)
    sender = Sender(server.pool, chosen)
    sender.send([row(b"1")])
    server.publishable = False
    sender._routes.look()
    sender.send([row(b"2")])
    assert sender.finish().messages == 2
    sender.close()


def test_a_message_is_sent_again_as_often_as_is_wanted(server: ScriptedServer):
    server.script("send", *[refuse(419)] * 2)
    assert send(server, [row(b"v")], max_retries=2).resent == 2
    server.script("send", *[refuse(419)] * 3)
    with pytest.raises(ServerError, match=r"419.*sent 3 times: raise `max\.retries`"):
        send(server, [row(b"v")], max_retries=2)


# -- several brokers -------------------------------------------------------------------


@pytest.fixture
def two() -> Iterator[tuple[ScriptedServer, ScriptedServer]]:
    """Two brokers with one partition each; the first server is the master, too."""
    with (
        ScriptedServer({"t": [1]}, broker_id=2) as second,
        ScriptedServer({"t": [1]}, others=[second]) as first,
    ):
        yield first, second


def test_rows_go_to_the_brokers_that_are_there(two):
    first, second = two
    second.__exit__()
    sent = send(first, [row(b"%d" % n) for n in range(40)])
    assert sent.messages == 40
    assert sorted(first.values("t", 0)) == values(40)
    # A broker that is down is not asked for every other row.
    assert sent.resent <= 7


def test_a_broker_that_stops_gets_no_more(two):
    first, second = two
    second.script("send", *[throw("rv.ServiceStoppingException", 2)] * 100)
    send(first, [row(b"%d" % n) for n in range(40)])
    assert sorted(first.values("t", 0)) == values(40)
    assert second.requests["send"] <= 10


def test_rows_go_elsewhere_where_a_master_does_not_say_where_a_broker_is(
    two, monkeypatch: pytest.MonkeyPatch
):
    first, _ = two
    monkeypatch.setattr(
        ScriptedServer, "_brokers", property(lambda one: [f"1:{one.address}"])
    )
    send(first, [row(b"%d" % n) for n in range(40)])
    assert sorted(first.values("t", 0)) == values(40)
    with pytest.raises(TransportError, match="no address of broker 2"):
        send(first, [row(b"x", partition=(2, 0))], send_timeout_s=0.2)


def test_rows_with_a_key_wait_for_their_broker(two):
    first, second = two
    second.script("send", *[refuse(503)] * 4)
    send(first, [row(b"%d" % n, key=n) for n in range(20)])
    assert first.values("t", 0) == [b"%d" % n for n in range(0, 20, 2)]
    assert set(second.values("t", 0)) == {b"%d" % n for n in range(1, 20, 2)}


def test_a_task_that_begins_without_a_broker_does_not_know_its_partitions(two):
    """As the page says: only rows of tasks that have seen it wait for it."""
    first, second = two
    second.publishable = False
    send(first, [row(b"%d" % n, key=n) for n in range(4)])
    assert sorted(first.values("t", 0)) == values(4)
    with pytest.raises(BadRowError, match="on broker 2 that is open for writing"):
        send(first, [row(b"x", partition=(2, 0))])


@pytest.mark.parametrize("is_sent", [True, False])
def test_a_broker_that_is_closed_to_writers_gets_only_rows_that_belong_there(
    two, is_sent: bool
):
    """Also where it was chosen before, and not yet sent to."""
    first, second = two
    chosen = WriteOptions(client=asking(first), topic=("t",), send_timeout_s=5.0)
    sender = Sender(first.pool, chosen)
    sender.send([row(b"0"), row(b"1")])
    if is_sent:
        sender.finish()
    second.publishable = False
    sender.send([row(b"%d" % n) for n in range(2, 20)])
    sender.finish()
    assert len(second.values("t", 0)) == (1 if is_sent else 0)
    sender.send([row(b"20", key=1), row(b"21", partition=(2, 0))])
    sender.finish()
    assert second.values("t", 0)[-2:] == [b"20", b"21"]
    second.publishable = True
    sender.send([row(b"22")])
    sender.finish()  # by which the master is asked
    before = len(second.values("t", 0))
    sender.send([row(b"%d" % n) for n in range(23, 30)])
    assert sender.finish().messages == 30
    assert len(second.values("t", 0)) in (before + 3, before + 4)
    stored = [*first.values("t", 0), *second.values("t", 0)]
    assert sorted(stored) == values(30)
    sender.close()


def test_masters_that_do_not_answer_are_left_alone_for_a_while(server: ScriptedServer):
    """The write asks often; each answer that does not come would be waited for."""
    chosen = WriteOptions(client=asking(server), topic=("t",), send_timeout_s=5.0)
    sender = Sender(server.pool, chosen)
    server.script("producer heartbeat", passing, *[throw("rv.StandbyException")] * 100)
    for number in range(10):
        sender.send([row(b"%d" % number)])
        sender.finish()
    assert server.requests["producer heartbeat"] <= 3
    sender.close()


def test_without_any_broker_rows_wait(two):
    first, second = two
    for server in two:
        server.script("send", *[refuse(503)] * 30)
    sent = send(first, [row(b"%d" % n) for n in range(20)])
    assert sent.messages == 20
    assert {*first.values("t", 0), *second.values("t", 0)} == set(values(20))


def stopping(server: ScriptedServer) -> None:
    server.script("send", *[throw("rv.ServiceStoppingException", 2)] * 1000)


def hurried(server: ScriptedServer) -> ClientOptions:
    """Masters are asked as soon as there is a reason."""
    return replace(server.options, patience=Patience(search_s=0.0))


def test_rows_go_to_a_broker_that_was_not_there_at_first(two):
    """It had just been started, when the only one that was known stops."""
    first, second = two
    second.publishable = False
    chosen = WriteOptions(client=hurried(first), topic=("t",), send_timeout_s=5.0)
    sender = Sender(first.pool, chosen)
    sender.send([row(b"0")])
    sender.finish()
    second.publishable, first.publishable = True, False
    stopping(first)
    sender.send([row(b"1"), row(b"2")])
    assert sender.finish().messages == 3
    sender.close()
    assert first.values("t", 0) == [b"0"]
    assert sorted(second.values("t", 0)) == [b"1", b"2"]


def test_rows_with_a_key_go_where_their_broker_has_moved(two):
    """The row waits for its broker, which starts on another host."""
    first, second = two
    chosen = WriteOptions(client=hurried(first), topic=("t",), send_timeout_s=5.0)
    sender = Sender(first.pool, chosen)
    sender.send([row(b"0", key=1)])
    sender.finish()
    stopping(second)
    with ScriptedServer({"t": [1]}, broker_id=2) as elsewhere:
        second.advertised = elsewhere.address
        sender.send([row(b"1", key=1)])
        assert sender.finish().messages == 2
        assert elsewhere.values("t", 0) == [b"1"]
    sender.close()
    assert second.values("t", 0) == [b"0"]


def test_masters_are_not_asked_where_another_broker_takes_the_rows(two):
    first, second = two
    stopping(second)
    send(first, [row(b"%d" % n) for n in range(40)], client=hurried(first))
    assert first.requests["producer heartbeat"] == 1


@pytest.mark.parametrize(
    "answer",
    [throw("rv.StandbyException"), throw("InvocationTargetException"), refuse(415)],
    ids=["standing by", "confused", "refusing"],
)
def test_rows_wait_for_their_broker_whatever_masters_say(
    server: ScriptedServer, answer: Action
):
    chosen = WriteOptions(client=hurried(server), topic=("t",), send_timeout_s=5.0)
    sender = Sender(server.pool, chosen)
    sender.send([row(b"0")])
    sender.finish()
    server.script("producer heartbeat", *[answer] * 100)
    server.script("send", *[refuse(503)] * 3)
    sender.send([row(b"1")])
    assert sender.finish().messages == 2
    sender.close()
    assert stored(server) == values(2)


def test_a_write_goes_on_while_no_master_serves(server: ScriptedServer):
    patient = replace(asking(server), operation_timeout_s=600.0)
    chosen = WriteOptions(client=patient, topic=("t",), send_timeout_s=5.0)
    sender = Sender(server.pool, chosen)
    sender.send([row(b"1")])
    server.script("producer heartbeat", *[throw("rv.StandbyException")] * 100)
    sender.send([row(b"2")])
    assert sender.finish().messages == 2
    server.script("producer close", silence)
    sender.close()


# -- what is on the disk ---------------------------------------------------------------


def test_a_task_ends_when_its_messages_are_on_the_disk(server: ScriptedServer):
    server.stores["t", 0].flushed = 0
    flushed = threading.Event()

    def flush() -> None:
        await_true(lambda: server.requests["register"] > 1, "looks")
        flushed.set()
        server.stores["t", 0].flushed = None

    thread = threading.Thread(target=flush)
    thread.start()
    assert send(server, [row(b"%d" % n) for n in range(9)], confirm_flush=True)
    assert flushed.is_set()
    join(thread, "the flush")
    assert stored(server) == values(9)
    groups = {body.groupName for body in server.seen["register"]}
    assert groups == {"spark-flush"}


def test_what_a_dead_broker_had_in_memory_is_sent_again(server: ScriptedServer):
    for number in range(3):
        server.stores["t", number].flushed = 1

    def crash() -> None:
        await_true(lambda: server.requests["register"] > 0, "a look")
        server.crash()
        for number in range(3):
            server.stores["t", number].flushed = None

    thread = threading.Thread(target=crash)
    thread.start()
    sent = send(server, [row(b"%d" % n) for n in range(30)], confirm_flush=True)
    join(thread, "the crash")
    assert set(stored(server)) == set(values(30))
    assert sent.messages == 30
    # A look that the crash cut off has confirmed nothing, not even what was flushed.
    assert 27 <= sent.resent <= 30


def test_without_confirmation_that_is_lost(server: ScriptedServer):
    """What the documents say of an acknowledgement."""
    server.stores["t", 0].flushed = 0
    assert send(server, [row(b"v", partition=(1, 0))]).messages == 1
    server.crash()
    assert stored(server) == []


def test_a_broker_that_never_flushes_is_given_up(server: ScriptedServer):
    server.stores["t", 0].flushed = 0
    with pytest.raises(TransportError, match=r"3 bytes.*on their disks.*send\.timeout"):
        send(
            server,
            [row(b"abc", partition=(1, 0))],
            confirm_flush=True,
            send_timeout_s=0.5,
        )


def test_confirmations_bound_what_a_task_keeps(server: ScriptedServer):
    chosen = WriteOptions(
        client=server.options, topic=("t",), confirm_flush=True, max_in_flight=1
    )
    sender = Sender(server.pool, chosen, most_unconfirmed_bytes=100)
    most = 0
    for number in range(60):
        sender.send([row(b"%010d" % number)])
        most = max(most, sender._unconfirmed.size_bytes)
    sender.finish()
    sender.close()
    assert 50 < most <= 110
    assert len(stored(server)) == 60
