# SPDX-License-Identifier: Apache-2.0
"""How many lines a user sees of an error, and that the sentence is the last of them."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pyspark.errors import PySparkException

from pulsar_spark import condition_of
from tests.support.scripted_broker import ScriptedBroker, numbered, refuse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pulsar_spark.testing.admin import Admin

#: A batch query that fails shows at most so many.
MOST_LINES = 25

#: A stream's error has Spark's own plan of the query behind the sentence.
MOST_LINES_OF_A_STREAM = 45

TOPIC = "persistent://public/default/t"
QUICKLY = {
    "pulsar.client.connectionTimeoutMs": "500",
    "pulsar.client.lookupTimeoutMs": "700",
    "pulsar.client.operationTimeoutMs": "500",
}


class Place(NamedTuple):
    """What situations need: Spark, a real broker and one that does what it is told."""

    spark: SparkSession
    url: str
    http: str
    scripted: ScriptedBroker


@pytest.fixture
def place(spark: SparkSession, service_url: str, admin: Admin) -> Iterator[Place]:
    """All of these."""
    with ScriptedBroker() as scripted:
        scripted.add_topic(TOPIC, numbered(5, 2))
        http = admin.admin_url.removeprefix("http://")
        yield Place(spark, service_url, http, scripted)


def read(place: Place, url: str = "", **options: str) -> None:
    """A batch read to its end."""
    given = {"service.url": url or place.url, **QUICKLY, **options}
    place.spark.read.format("pulsar").options(**given).load().collect()


def write(place: Place, rows: str, **options: str) -> None:
    """A batch write of one row."""
    given = {"service.url": place.url, "topic": "error-lines", **options}
    writer = place.spark.sql(f"SELECT {rows}").write.format("pulsar")
    writer.options(**given).mode("append").save()


def nobody() -> str:
    """An address where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"pulsar://127.0.0.1:{free.getsockname()[1]}"


def refused(place: Place) -> None:
    """A broker that does not accept the password."""
    place.scripted.always("CONNECT", refuse("AuthenticationError", "who are you"))
    read(place, place.scripted.url, topic="t")


SITUATIONS: dict[str, tuple[str, Callable[[Place], Any]]] = {
    "unknown option": (
        "PULSAR_OPTION",
        lambda place: read(place, topic="t", startingOffset="earliest"),
    ),
    "no option": ("PULSAR_OPTION", read),
    "two options": (
        "PULSAR_OPTION",
        lambda place: read(place, subscribe="t", failOnDataLoss="maybe"),
    ),
    "topic": ("PULSAR_TOPIC_NOT_FOUND", lambda place: read(place, topic="oders")),
    "tenant": (
        "PULSAR_TOPIC_NOT_FOUND",
        lambda place: read(place, topic="nobody/default/orders"),
    ),
    "namespace": (
        "PULSAR_TOPIC_NOT_FOUND",
        lambda place: read(place, topic="public/nowhere/orders"),
    ),
    "pattern": (
        "PULSAR_TOPIC_NOT_FOUND",
        lambda place: read(place, topicsPattern="public/default/zzz.*"),
    ),
    "host": (
        "PULSAR_CONNECTION",
        lambda place: read(place, "pulsar://nohost.invalid:6650", topic="t"),
    ),
    "port": ("PULSAR_CONNECTION", lambda place: read(place, nobody(), topic="t")),
    "port of HTTP": (
        "PULSAR_PROTOCOL",
        lambda place: read(place, f"pulsar://{place.http}", topic="t"),
    ),
    "TLS at a plain port": (
        "PULSAR_TLS",
        lambda place: read(place, place.url.replace("r:", "r+ssl:", 1), topic="t"),
    ),
    "password": ("PULSAR_AUTH", refused),
    "columns of Kafka": (
        "PULSAR_SCHEMA",
        lambda place: write(place, "'k' AS key, 'v' AS value"),
    ),
    "row": (
        "PULSAR_BAD_ROW",
        lambda place: write(place, "'v' AS value, 7 AS __partition"),
    ),
    "size of a row": (
        "PULSAR_MESSAGE_TOO_LARGE",
        lambda place: write(place, "repeat('x', 6000000) AS value"),
    ),
    "mode": (
        "PULSAR_OPTION",
        lambda place: (
            place.spark.sql("SELECT 'v' AS value")
            .write.format("pulsar")
            .options(**{"service.url": place.url, "topic": "t"})
            .mode("overwrite")
            .save()
        ),
    ),
}


def shown(error: BaseException) -> list[str]:
    """The lines that Python prints of an error that nobody catches."""
    text = "".join(traceback.format_exception(error))
    return [line for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_an_error_is_readable(place: Place, situation: str) -> None:
    """Few lines, the last of them ours; a program can tell which error it is."""
    condition, fail = SITUATIONS[situation]
    with pytest.raises(PySparkException) as caught:
        fail(place)
    lines = shown(caught.value)
    text = "\n".join(lines)
    assert len(lines) <= MOST_LINES, text
    assert f"[{condition}] " in text
    assert condition_of(caught.value) == condition, text
    last = next(n for n, line in enumerate(lines) if f"[{condition}] " in line)
    assert not any('File "' in line for line in lines[last:]), text


def test_a_stream(place: Place, tmp_path: Any) -> None:
    """Its error has Spark's plan at its end, and none of our frames."""
    rows = (
        place.spark.readStream.format("pulsar")
        .schema("value BINARY")
        .options(**{"service.url": place.url, "topic": "oders", **QUICKLY})
        .load()
    )
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(PySparkException) as caught:
        query.start().processAllAvailable()
    text = "\n".join(shown(caught.value))
    assert condition_of(caught.value) == "PULSAR_TOPIC_NOT_FOUND", text
    assert len(shown(caught.value)) <= MOST_LINES_OF_A_STREAM, text
    assert "source/plan" not in text
