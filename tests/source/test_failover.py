# SPDX-License-Identifier: Apache-2.0
"""A batch read with other clusters to go to: which one it is of."""

from __future__ import annotations

import json
import logging
import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from pulsar_spark.errors import (
    AuthError,
    ReadTimeoutError,
    SchemaError,
    TransportError,
)
from pulsar_spark.options import ReadOptions, ServiceUrl, parse_read_options
from pulsar_spark.schemas.info import SchemaType
from pulsar_spark.source.plan.query_schema import value_columns_of
from pulsar_spark.source.pulsar_source import PulsarSource, load_schema
from tests.support.scripted_broker import (
    ScriptedBroker,
    Session,
    refuse,
    single,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pulsar_spark.wire import pulsar_api_pb2 as pb

TOPIC = "persistent://public/default/t"
BYTES = pa.schema([("value", pa.binary())])


@pytest.fixture
def there() -> Iterator[ScriptedBroker]:
    """The broker of the second cluster, whose topic lacks the last row."""
    with ScriptedBroker() as broker:
        broker.add_topic(TOPIC, [single(b"a")])
        yield broker


@pytest.fixture
def here() -> Iterator[ScriptedBroker]:
    """That of the first one."""
    with ScriptedBroker() as broker:
        broker.add_topic(TOPIC, [single(b"a"), single(b"b")])
        yield broker


def options(here: ScriptedBroker, there: ScriptedBroker) -> ReadOptions:
    """Options of a read of the topic."""
    others = {"secondary": there.url, "failoverDelayMs": 300}
    return parse_read_options(
        {
            "service.url": here.url,
            "topic": "t",
            "pulsar.client.serviceUrlProvider": json.dumps(others),
            "pulsar.client.lookupTimeoutMs": "1000",
            "pollTimeoutMs": "1000",
        }
    )


def goes_down(
    broker: ScriptedBroker, session: Session, command: pb.BaseCommand
) -> None:
    """Ends the broker, whose answer does not come."""
    down(broker)


def down(broker: ScriptedBroker) -> None:
    """Ends the broker between two questions."""
    broker.stop_listening()
    broker.cut()


def read(source: PulsarSource) -> list[Any]:
    """The rows that tasks get, on executors."""
    columns = source.columns or BYTES
    tasks = source.plan()
    source, tasks = pickle.loads(pickle.dumps((source, tasks)))  # noqa: S301 - ours
    return [
        row
        for task in tasks
        for batch in source.read(task, columns, streaming=False)
        for row in batch.to_pylist()
    ]


def test_the_first_cluster_answers(here: ScriptedBroker, there: ScriptedBroker) -> None:
    """It is read, and nobody asks the second one."""
    rows = read(PulsarSource(options(here, there)))
    assert rows == [{"value": b"a"}, {"value": b"b"}]
    assert not there.connections


def test_it_is_down(
    here: ScriptedBroker, there: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """All tasks read the second one; a warning says that rows may be missing."""
    down(here)
    with caplog.at_level(logging.WARNING, "pulsar_spark.client"):
        assert read(PulsarSource(options(here, there))) == [{"value": b"a"}]
    (warning,) = caplog.records
    assert f"{there.url} is used instead. Topics are copied" in warning.getMessage()


def test_tasks_do_not_choose(here: ScriptedBroker, there: ScriptedBroker) -> None:
    """The plan says where to read; a cluster that is gone by then is an error."""
    source = PulsarSource(options(here, there))
    (task,) = source.plan()
    assert task.service_url == ServiceUrl("pulsar", (here.address,))
    down(here)
    with pytest.raises(ReadTimeoutError, match=here.address):
        list(source.read(task, BYTES, streaming=False))
    assert not there.connections


def test_it_refuses_credentials(here: ScriptedBroker, there: ScriptedBroker) -> None:
    """That is an error at once, for columns and plan."""
    here.always("CONNECT", refuse("AuthenticationError", "who are you?"))
    for ask in (PulsarSource(options(here, there)).plan, read_columns(here, there)):
        with pytest.raises(AuthError, match="who are you"):
            ask()
    assert not there.connections


def read_columns(here: ScriptedBroker, there: ScriptedBroker) -> Any:
    """Asks for the columns."""
    return lambda: load_schema(options(here, there))


def test_both_are_down(here: ScriptedBroker, there: ScriptedBroker) -> None:
    """One error names both."""
    down(here)
    down(there)
    for ask in (PulsarSource(options(here, there)).plan, read_columns(here, there)):
        with pytest.raises(TransportError, match="No cluster can be") as caught:
            ask()
        assert f"{here.url}: " in str(caught.value)
        assert f"{there.url}: " in str(caught.value)


def test_it_goes_down_under_the_plan(
    here: ScriptedBroker, there: ScriptedBroker
) -> None:
    """That is an error: the next read begins at the second one."""
    here.script("LOOKUP", goes_down)
    with pytest.raises(TransportError, match=here.address):
        read(PulsarSource(options(here, there)))
    assert read(PulsarSource(options(here, there))) == [{"value": b"a"}]


def record(*names: str) -> str:
    """The text of a record of numbers."""
    fields = [{"name": name, "type": "long"} for name in names]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


def load(here: ScriptedBroker, there: ScriptedBroker) -> PulsarSource:
    """A read with the topic's own columns."""
    given = options(here, there)
    found = load_schema(given)
    return PulsarSource(given, value_columns_of(found) or BYTES, found)


def test_columns(here: ScriptedBroker, there: ScriptedBroker) -> None:
    """They are asked for likewise."""
    down(here)
    there.add_schema(TOPIC, SchemaType.JSON, record("id"))
    there.topics[TOPIC].clear()
    there.append(TOPIC, single(b'{"id": 7}', schema_version=bytes(8)))
    assert read(load(here, there)) == [{"id": 7}]


def test_columns_of_the_first_and_rows_of_the_second(
    here: ScriptedBroker, there: ScriptedBroker
) -> None:
    """Clusters number versions themselves: rows are read by those of their own."""
    here.add_schema(TOPIC, SchemaType.JSON, record("id"))
    source = load(here, there)
    down(here)
    there.add_schema(TOPIC, SchemaType.JSON, record("other"))
    info = there.add_schema(TOPIC, SchemaType.JSON, record("id", "more"))
    there.topics[TOPIC].clear()
    there.append(
        TOPIC,
        single(b'{"other": 1}', schema_version=bytes(8)),
        single(b'{"id": 7, "more": 8}', schema_version=info.version),
    )
    (task,) = source.plan()
    assert task.schema == info
    assert read(source)[1] == {"id": 7}


def test_columns_that_the_second_lacks(
    here: ScriptedBroker, there: ScriptedBroker
) -> None:
    """The error says so."""
    here.add_schema(TOPIC, SchemaType.JSON, record("id"))
    source = load(here, there)
    down(here)
    there.add_schema(TOPIC, SchemaType.JSON, record("other"))
    with pytest.raises(SchemaError, match="cannot be made of"):
        source.plan()
