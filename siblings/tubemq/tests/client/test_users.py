# SPDX-License-Identifier: Apache-2.0
"""Users and tokens: what masters and brokers are shown, and what they refuse."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from siblings.tubemq.tests.scripted_server import (
    Action,
    ScriptedServer,
    Session,
    refuse,
)
from spark_topics.options.offsets import Edge, Offsets
from tests.support.waiting import await_true
from tubemq_spark.client.brokers import BrokerPool, register_all
from tubemq_spark.client.masters import Masters, Producer
from tubemq_spark.errors import AuthError, OptionError
from tubemq_spark.options import (
    ClientOptions,
    ReadOptions,
    WriteOptions,
)
from tubemq_spark.options.secret import Secret
from tubemq_spark.sink.rows import Row
from tubemq_spark.sink.sender import Sender
from tubemq_spark.source.batch_plan import plan_batch
from tubemq_spark.source.range_reader import RangeReader
from tubemq_spark.source.stream import stream_planner
from tubemq_spark.wire import tubemq_pb2 as pb
from tubemq_spark.wire.attributes import Stored
from tubemq_spark.wire.authentication import signature
from tubemq_spark.wire.messages import Token
from tubemq_spark.wire.metadata import Partition

PASSWORD = "very-secret"

#: As a stock master answers a clock that is wrong.
WRONG_CLOCK = "Illegal value: timestamp out of effective period in authenticateToken!"


def known(server: ScriptedServer, given: str = PASSWORD) -> ClientOptions:
    """Options of a user."""
    return replace(server.options, user="me", password=Secret(given, "usr.password"))


def check_proof(info: pb.MasterCertificateInfo) -> None:
    proof = info.authInfo
    assert proof.userName == "me"
    assert abs(proof.timestamp - time.time() * 1000) < 60_000
    assert proof.signature == signature("me", PASSWORD, proof.timestamp, proof.nonce)


def test_each_request_to_a_master_proves_who_sends_it():
    with ScriptedServer({"t": [1]}) as server, Masters(known(server)) as masters:
        masters.readable("g", ["t"])
        producer = Producer(masters, ["t"])
        producer.view()
        producer.close()
        await_true(lambda: server.requests["producer close"] == 1, "the end", 60)
        bodies = [body for bodies in server.seen.values() for body in bodies]
    assert len(bodies) == 6
    for body in bodies:
        check_proof(body.authInfo)
    assert len({body.authInfo.authInfo.nonce for body in bodies}) == 6


def test_nobody_in_particular_proves_nothing():
    with ScriptedServer({"t": [1]}) as server, Masters(server.options) as masters:
        masters.readable("g", ["t"])
        assert not server.seen["consumer register"][0].HasField("authInfo")


def test_a_password_is_read_when_it_is_needed(tmp_path: Path):
    file = tmp_path / "password"
    with ScriptedServer({"t": [1]}) as server:
        options = known(server, f"file:{file}")
        with Masters(options) as masters:
            with pytest.raises(OptionError, match=r"usr\.password names the file"):
                masters.readable("g", ["t"])
            file.write_text(f"{PASSWORD}\n")
            masters.readable("g", ["t"])
        check_proof(server.seen["consumer register"][0].authInfo)


def granting(token: str) -> Action:
    """Let a consumer or a producer in, with a token for the next requests."""

    def act(session: Session, serial: int, method: int, body: Any) -> None:
        reply = session.server.act(body)
        reply.authorizedInfo.visitAuthorizedToken = 7
        reply.authorizedInfo.authAuthorizedToken = token
        session.answer(serial, method, reply)

    return act


def test_a_token_of_a_master_is_shown_until_it_is_refused():
    with ScriptedServer({"t": [1]}) as server, Masters(known(server)) as masters:
        server.script("consumer register", granting("first"), refuse(415, "old"))
        server.script("consumer register", granting("second"))
        assert masters.readable("g", ["t"]).token == Token(7, "first")
        assert masters.readable("g", ["t"]).token == Token(7, "second")
        shown = [
            body.authInfo.authorizedToken for body in server.seen["consumer register"]
        ]
        assert shown == ["", "first", ""]


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (WRONG_CLOCK, "clock of .* and the server's differ"),
        ("Illegal value: authInfo.userName is Blank!", r"Set `usr\.name` and"),
        ("userName or password is not correct!", r"Check `usr\.name` and `usr\.passw"),
    ],
)
@pytest.mark.parametrize("method", ["consumer register", "producer heartbeat"])
def test_a_refusal_is_final_and_says_what_to_do(method: str, said: str, text: str):
    with ScriptedServer({"t": [1]}) as server, Masters(known(server)) as masters:
        server.script(method, refuse(415, said))
        producer = Producer(masters, ["t"])
        ask = {
            "consumer register": lambda: masters.readable("g", ["t"]),
            "producer heartbeat": producer.view,
        }
        with pytest.raises(AuthError, match=text) as caught:
            ask[method]()
        assert server.requests[method] == 1
    assert said in caught.value.message
    assert PASSWORD not in repr(vars(caught.value))


# -- tokens of brokers -----------------------------------------------------------------


#: Requests that have to show a token, and what answers them.
ASKING: dict[type[Any], type[Any]] = {
    pb.RegisterRequestC2B: pb.RegisterResponseB2C,
    pb.HeartBeatRequestC2B: pb.HeartBeatResponseB2C,
    pb.SendMessageRequestP2B: pb.SendMessageResponseB2P,
}


class TurningServer(ScriptedServer):
    """Has a visit token that its broker asks for; others are of before."""

    visit = 1

    def act(self, body: Any) -> Any:
        """See `ScriptedServer`."""
        kind = ASKING.get(type(body))
        if kind and body.authInfo.visitAuthorizedToken != self.visit:
            said = "Visit Authorized Token is invalid!"
            return kind(success=False, errCode=415, errMsg=said)
        reply = super().act(body)
        if "authorizedInfo" in reply.DESCRIPTOR.fields_by_name:
            reply.authorizedInfo.visitAuthorizedToken = self.visit
        return reply


def test_a_task_that_begins_late_asks_a_master_for_a_token():
    with TurningServer({"t": [1, 1]}) as server:
        for number in range(50):
            server.append("t", 10000 * (number % 2), b"%d" % number)
        options = ReadOptions(server.options, ("t",), group="g")
        tasks = plan_batch(server.pool, options)
        server.visit = 2
        before = server.requests["consumer register"]
        found = [
            one.stored
            for task in tasks
            for piece in RangeReader(server.pool, task, options).pieces()
            for one in piece.messages
        ]
        assert sorted(map(int, found)) == list(range(50))
        # Once for all tasks of the process.
        assert server.requests["consumer register"] == before + 1


def test_a_task_that_registers_again_has_the_token_of_now():
    with TurningServer({"t": [1]}) as server:
        for number in range(50):
            server.append("t", 0, b"%d" % number)
        options = ReadOptions(server.options, ("t",), group="g")
        (task,) = plan_batch(server.pool, options)
        found: list[bytes] = []
        for piece in RangeReader(server.pool, task, options).pieces():
            found += [one.stored for one in piece.messages]
            server.visit += 1  # more often than any cluster
            server.forget_registrations()
        assert found == [b"%d" % number for number in range(50)]


def test_a_reader_that_rests_longer_than_a_token_holds_keeps_its_registration(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("tubemq_spark.client.heart.INTERVAL_S", 0.02)
    with TurningServer({"t": [1]}, per_get=5) as server:
        for number in range(20):
            server.append("t", 0, b"%d" % number)
        options = ReadOptions(server.options, ("t",), group="g")
        (task,) = plan_batch(server.pool, options)
        before = server.requests["register"]
        pieces = RangeReader(server.pool, task, options).pieces()
        found = [one.stored for one in next(pieces).messages]
        server.visit = 2
        await_true(
            lambda: any(
                body.authInfo.visitAuthorizedToken == 2
                for body in server.seen["heartbeat"]
            ),
            "a heartbeat with the token of now",
        )
        found += [one.stored for piece in pieces for one in piece.messages]
        assert found == [b"%d" % number for number in range(20)]
        assert server.requests["register"] == before + 1


def test_a_planner_with_an_old_token_asks_for_another():
    with TurningServer({"t": [1]}) as server:
        server.append("t", 0, b"x")
        pool, partition = BrokerPool(server.options), Partition("t", 1, 0)
        server.visit = 5
        for token in (Token(1), None):
            found = register_all(
                pool, server.address, "me", ["g"], [partition], token=token
            )
            assert found[partition].end == 28
        pool.close()


def test_a_stream_that_looks_at_sizes_has_the_token_of_now():
    """Partitions, and so the token of then, are looked up once in a long time."""
    with TurningServer({"t": [1]}) as server:
        for number in range(10):
            server.append("t", 0, b"%d" % number)
        options = ReadOptions(
            server.options,
            ("t",),
            starting=Offsets(Edge.EARLIEST),
            group="g",
            max_bytes=4,
        )
        stream = stream_planner(server.pool, options)
        first = stream.initial()
        second = stream.latest(first)
        server.visit = 2
        assert stream.latest(second).last_read == {"t/1:0": 8 * 28}
        stream.stop()


def test_a_token_that_no_broker_takes_is_asked_for_once():
    with ScriptedServer({"t": [1]}) as server:
        server.append("t", 0, b"x")
        options = ReadOptions(server.options, ("t",), group="g")
        (task,) = plan_batch(server.pool, options)
        server.script("register", *[refuse(415, "Visit token")] * 3)
        server.script("consumer register", granting("a"), granting("b"))
        with pytest.raises(AuthError, match="Visit token"):
            list(RangeReader(server.pool, task, options).pieces())
        assert server.requests["register"] == 3  # the planner's, and two


def test_a_write_goes_on_with_the_token_of_now():
    with TurningServer({"t": [1]}) as server:
        pool = BrokerPool(server.options)
        sender = Sender(pool, WriteOptions(server.options))
        for begin in range(0, 300, 100):
            rows = [
                Row("t", Stored(b"%d" % n, 0), None, None, None, None)
                for n in range(begin, begin + 100)
            ]
            sender.send(rows)
            sender.finish()
            server.visit += 1
        sender.close()
        pool.close()
        assert [int(v) for v in server.values("t", 0)] == list(range(300))
        # All that came back is sent again together, with one question to the master.
        assert server.requests["producer heartbeat"] <= 5
