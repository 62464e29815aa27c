# SPDX-License-Identifier: Apache-2.0
"""Questions about schemas, on the scripted broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pulsar_spark.client.schemas import SchemaLookup
from pulsar_spark.errors import AuthError, BrokerError, ProtocolError, TransportError
from pulsar_spark.schemas.info import SchemaInfo, SchemaType, version_bytes
from pulsar_spark.wire import pulsar_api_pb2 as pb
from tests.support.scripted_broker import PATIENCE_S, ScriptedBroker, cut, refuse

if TYPE_CHECKING:
    from pulsar_spark.client.pool import ConnectionPool
    from tests.support.fixtures import Clock
    from tests.support.scripted_broker import Session

TOPIC = "persistent://public/default/t"
OTHER = "persistent://public/default/u"


@pytest.fixture
def lookup(pool: ConnectionPool) -> SchemaLookup:
    """Questions to the scripted broker."""
    return SchemaLookup(pool)


def test_the_latest_one(scripted: ScriptedBroker, lookup: SchemaLookup) -> None:
    """With all that was registered, for a partition as for its topic."""
    scripted.add_schema(TOPIC, SchemaType.STRING)
    latest = scripted.add_schema(TOPIC, SchemaType.JSON, '{"type":"int"}', {"a": "b"})
    assert latest == SchemaInfo(2, b'{"type":"int"}', {"a": "b"}, version_bytes(1))
    names = [TOPIC, f"{TOPIC}-partition-3"]
    assert lookup.latest(names) == dict.fromkeys(names, latest)


def test_by_version(scripted: ScriptedBroker, lookup: SchemaLookup) -> None:
    """Whatever the latest one is; None for one that there is not."""
    first = scripted.add_schema(TOPIC, SchemaType.STRING)
    scripted.add_schema(TOPIC, SchemaType.INT32)
    found = lookup.find({TOPIC: version_bytes(0), OTHER: version_bytes(0)})
    assert found == {TOPIC: first, OTHER: None}
    assert lookup.find({TOPIC: version_bytes(2)}) == {TOPIC: None}
    assert lookup.find({TOPIC: version_bytes(1 << 56)}) == {TOPIC: None}


def test_no_schema(scripted: ScriptedBroker, lookup: SchemaLookup) -> None:
    """A topic without one is as one that does not exist; a deleted one says so."""
    scripted.add_topic(TOPIC)
    scripted.add_schema(OTHER, SchemaType.AVRO, '"int"')
    scripted.delete_schema(OTHER)
    found = lookup.latest([TOPIC, OTHER])
    assert found[TOPIC] is None
    assert found[OTHER] == SchemaInfo(0, version=version_bytes(1))
    assert lookup.find({OTHER: version_bytes(0)}) == {OTHER: None}
    assert OTHER not in scripted.topics


def test_all_are_asked_at_once(scripted: ScriptedBroker, lookup: SchemaLookup) -> None:
    """Five hundred topics are one round trip."""
    names = [f"{TOPIC}{index}" for index in range(500)]
    for name in names:
        scripted.add_schema(name, SchemaType.STRING)
    scripted.answer_together(500, "GET_SCHEMA")
    assert set(lookup.latest(names)) == set(names)


def test_passing_refusals(
    scripted: ScriptedBroker, lookup: SchemaLookup, clock: Clock
) -> None:
    """A broker that is starting is asked again."""
    info = scripted.add_schema(TOPIC, SchemaType.STRING)
    scripted.script("GET_SCHEMA", refuse("ServiceNotReady"))
    assert lookup.latest([TOPIC]) == {TOPIC: info}
    assert len(clock.pauses) == 1


@pytest.mark.parametrize(
    ("code", "error"),
    [("AuthorizationError", AuthError), ("IncompatibleSchema", BrokerError)],
)
def test_final_refusals(
    scripted: ScriptedBroker,
    lookup: SchemaLookup,
    code: str,
    error: type[BrokerError],
) -> None:
    """They name the topic."""
    scripted.always("GET_SCHEMA", refuse(code, "not for you"))
    with pytest.raises(error, match=f"The schema of {TOPIC}: .*not for you"):
        lookup.latest([TOPIC])


def test_a_connection_that_ends(
    scripted: ScriptedBroker, lookup: SchemaLookup, clock: Clock
) -> None:
    """It is asked again over another one; for as long as nobody is there, too."""
    info = scripted.add_schema(TOPIC, SchemaType.STRING)
    scripted.script("GET_SCHEMA", cut)
    assert lookup.latest([TOPIC]) == {TOPIC: info}
    scripted.stop_listening()
    scripted.cut()
    began = clock.now
    with pytest.raises(TransportError):
        lookup.latest([TOPIC])
    assert clock.now - began == pytest.approx(PATIENCE_S)


def test_an_answer_without_a_schema(
    scripted: ScriptedBroker, lookup: SchemaLookup
) -> None:
    """It is no answer."""

    def empty(_: ScriptedBroker, session: Session, command: pb.BaseCommand) -> None:
        answer = pb.CommandGetSchemaResponse(request_id=command.getSchema.request_id)
        session.send(type=pb.BaseCommand.GET_SCHEMA_RESPONSE, getSchemaResponse=answer)

    scripted.always("GET_SCHEMA", empty)
    with pytest.raises(ProtocolError, match=TOPIC):
        lookup.latest([TOPIC])
