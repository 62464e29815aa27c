# SPDX-License-Identifier: Apache-2.0
"""A write with other clusters to go to, from its preparation to its last row."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from pulsar_spark.errors import AuthError, TransportError
from pulsar_spark.options import ServiceUrl, WriteOptions, parse_write_options
from pulsar_spark.schemas.info import SchemaType
from pulsar_spark.sink.driver import BatchWrite, StreamWrite
from pulsar_spark.wire import pulsar_api_pb2 as pb
from spark_topics.sink.write import Task
from tests.support import patience
from tests.support.scripted_broker import (
    ScriptedBroker,
    Session,
    refuse,
    usual,
)

TOPIC = "persistent://public/default/rows"
PARTITIONS = [f"{TOPIC}-partition-{index}" for index in range(2)]
DELAY_S = 0.3


@pytest.fixture
def clusters() -> Iterator[tuple[ScriptedBroker, ScriptedBroker]]:
    """Two clusters that have a topic alike."""
    with ScriptedBroker() as here, ScriptedBroker() as there:
        for broker in (here, there):
            broker.partitions[TOPIC] = 2
            for name in PARTITIONS:
                broker.add_topic(name)
        yield here, there


@pytest.fixture
def here(clusters: tuple[ScriptedBroker, ScriptedBroker]) -> ScriptedBroker:
    """The broker of the first one."""
    return clusters[0]


@pytest.fixture
def there(clusters: tuple[ScriptedBroker, ScriptedBroker]) -> ScriptedBroker:
    """The broker of the second one."""
    return clusters[1]


def options(
    here: ScriptedBroker,
    there: ScriptedBroker,
    *,
    streaming: bool = False,
    **further: str,
) -> WriteOptions:
    """Options of a write to the topic."""
    others = {"secondary": [there.url], "failoverDelayMs": int(DELAY_S * 1000)}
    given = {
        "service.url": here.url,
        "topic": TOPIC,
        "pulsar.client.serviceUrlProvider": json.dumps(others),
        "pulsar.client.lookupTimeoutMs": "1000",
        "pulsar.producer.batchingEnabled": "false",
        "pulsar.client.maxBackoffIntervalNanos": "100000000",
        **further,
    }
    given = {name: text for name, text in given.items() if text}
    return parse_write_options(given, streaming=streaming)


def goes_down(
    broker: ScriptedBroker, session: Session, command: pb.BaseCommand
) -> None:
    """Ends the broker, whose answer does not come."""
    broker.stop_listening()
    broker.cut()


def down(broker: ScriptedBroker) -> None:
    """Ends the broker between two questions."""
    broker.stop_listening()
    broker.cut()


def on_executor(write: Any) -> Any:
    """The copy that a task gets."""
    return pickle.loads(pickle.dumps(write))  # noqa: S301 - our own bytes


def batches(
    *values: bytes, topics: list[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Rows, each in a batch of its own."""
    for index, value in enumerate(values):
        columns: dict[str, list[Any]] = {"value": [value]}
        if topics is not None:
            columns["__topic"] = [topics[index]]
        yield pa.record_batch(columns)


def stored(broker: ScriptedBroker) -> list[bytes]:
    """The values in both topic partitions, in no order."""
    entries = [entry for name in PARTITIONS for entry in broker.topics.get(name, [])]
    return sorted(entry.payload for entry in entries)


@pytest.mark.parametrize("kind", [BatchWrite, StreamWrite])
def test_the_driver_chooses(
    kind: Any,
    here: ScriptedBroker,
    there: ScriptedBroker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Before the tasks, which get its choice; with a warning."""
    down(here)
    with caplog.at_level(logging.WARNING, "pulsar_spark.client"):
        write = kind(options(here, there, streaming=kind is StreamWrite))
        write.prepare()
    copy = on_executor(write)
    host = there.address
    assert copy._options.client.service_url == ServiceUrl("pulsar", (host,))
    copy.run(Task(0), batches(b"a", b"b"))
    assert len(stored(there)) == 2
    (warning,) = caplog.records
    assert f"{there.url} is used instead. Rows go there." in warning.getMessage()


def test_the_first_cluster_answers(
    here: ScriptedBroker, there: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows go there, and nobody asks the second one."""
    with caplog.at_level(logging.WARNING, "pulsar_spark.client"):
        write = BatchWrite(options(here, there))
        write.prepare()
        on_executor(write).run(Task(0), batches(b"a"))
    assert stored(here) == [b"a"]
    assert not there.connections
    assert not caplog.records


def test_the_next_write_asks_the_first_one(
    here: ScriptedBroker, there: ScriptedBroker
) -> None:
    """So it goes back by itself."""
    with ScriptedBroker() as gone:
        pass
    given = options(gone, there)
    first = BatchWrite(given)
    first.prepare()
    assert first._options.client.service_url.hosts == (there.address,)
    second = BatchWrite(options(here, there))
    second.prepare()
    assert second._options.client.service_url.hosts == (here.address,)


def test_the_first_cluster_refuses(here: ScriptedBroker, there: ScriptedBroker) -> None:
    """That is an error at once: asked for the choice, and by the write."""
    here.always("CONNECT", refuse("AuthenticationError", "who are you?"))
    with pytest.raises(AuthError, match="who are you"):
        BatchWrite(options(here, there)).prepare()
    assert here.requests["CONNECT"] == 2
    assert not there.connections


def test_both_are_down(here: ScriptedBroker, there: ScriptedBroker) -> None:
    """One error names both."""
    down(here)
    down(there)
    with pytest.raises(TransportError) as caught:
        BatchWrite(options(here, there)).prepare()
    assert here.url in str(caught.value)
    assert there.url in str(caught.value)


def test_it_goes_down_under_rows(
    here: ScriptedBroker, there: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task fails, and nothing of it goes elsewhere; the next write does."""
    here.script("SEND", usual, goes_down)
    patience.usual(monkeypatch, write_s=0.5)
    timeout = {"pulsar.producer.sendTimeoutMs": "500"}
    given = options(here, there, streaming=False, **timeout)
    write = BatchWrite(given)
    write.prepare()
    with pytest.raises(TransportError, match=here.address):
        on_executor(write).run(Task(0), batches(b"a", b"b", b"c"))
    assert not there.connections
    repeated = BatchWrite(given)
    repeated.prepare()
    on_executor(repeated).run(Task(0), batches(b"a", b"b", b"c"))
    assert stored(there) == [b"a", b"b", b"c"]


def test_rows_that_name_their_topics(
    here: ScriptedBroker, there: ScriptedBroker
) -> None:
    """All are looked up at the cluster that was chosen."""
    down(here)
    write = BatchWrite(options(here, there, topic=""))
    write.prepare()
    other = "persistent://public/default/other"
    there.add_topic(other)
    on_executor(write).run(Task(0), batches(b"a", b"b", topics=[TOPIC, other]))
    assert [entry.payload for entry in there.topics[other]] == [b"b"]
    assert stored(there) == [b"a"]


def test_a_typed_topic(here: ScriptedBroker, there: ScriptedBroker) -> None:
    """The topic gets the schema of the rows at the cluster that was chosen."""
    down(here)
    columns = pa.schema([("id", pa.int64())])
    write = BatchWrite(options(here, there, schemaType="json"), columns)
    write.prepare()
    rows = iter([pa.record_batch({"id": [7]})])
    on_executor(write).run(Task(0), rows)
    assert stored(there) == [b'{"id":7}']
    (schema,) = there.schemas[TOPIC]
    assert schema.type is SchemaType.JSON
