# SPDX-License-Identifier: Apache-2.0
"""Topics whose schemas the official Java client registers, in batch and as streams.

It is the one client that makes KEY_VALUE schemas, and its AVRO has fields by name.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from pyspark.errors import PySparkException

from tests.broker.test_typed_reads import Stream, load, rows
from tests.support.embedded_broker import (
    SHORT_LIVED,
    archived_classes,
    java,
    resolve_classpath,
)
from tests.support.jvm import compile_java
from tests.support.session import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.admin import Admin

CLIENT = ROOT / "tests/support/TypedClient.java"


class Send(Protocol):
    """Sends the messages of a turn."""

    def __call__(self, what: str, turn: int = 1) -> None:
        """Send them."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of the client, which is compiled once."""
    jars, classes = resolve_classpath(progress=None), tmp_path_factory.mktemp("java")
    compile_java(CLIENT, jars, classes)
    # In this order: a class path that begins with a broker's can use its archive.
    path = os.pathsep.join((jars, str(classes)))
    return [java(), *SHORT_LIVED, *archived_classes(), "-cp", path, CLIENT.stem]


@pytest.fixture
def send(client: list[str], service_url: str, topic: str) -> Send:
    """Send the messages of a turn."""

    def send(what: str, turn: int = 1) -> None:
        run(*client, what, service_url, topic, str(turn))

    return send


def run(*command: str) -> None:
    """Run a command to its end, which must be a good one."""
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("form", ["avro", "json"])
def test_three_versions(
    spark: SparkSession,
    service_url: str,
    admin: Admin,
    topic: str,
    form: str,
    tmp_path: Path,
    send: Send,
) -> None:
    """In turn, and a tombstone; a batch read and a stream have the same rows."""
    send(form)
    assert admin.schema_versions(topic) == 3
    expected = [
        {"id": 3 * turn + at, "mail": mail, "name": name, "score": score}
        for turn in range(2)
        for at, (mail, name, score) in enumerate(
            [(None, "größer", None), ("m", None, None), (None, "c", 2.5)]
        )
    ]
    expected.append(dict.fromkeys(("id", "mail", "name", "score")))
    assert rows(load(spark, service_url, topic)) == expected
    assert Stream(spark, service_url, topic, tmp_path).run() == expected
    first = load(spark, service_url, topic, schemaVersion="0")
    assert rows(first) == [{n: row[n] for n in ("id", "name")} for row in expected]


def change(
    key: int, before: Any, after: Any, op: str, ts_ms: int | None
) -> dict[str, Any]:
    """A row of a change."""
    value = {"after": after, "before": before, "op": op, "ts_ms": ts_ms}
    return {"key": {"id": key}, "value": value}


@pytest.mark.parametrize(
    "encoding", [pytest.param("inline", marks=pytest.mark.matrix), "separated"]
)
def test_changes_of_a_table(
    spark: SparkSession,
    service_url: str,
    topic: str,
    encoding: str,
    tmp_path: Path,
    send: Send,
) -> None:
    """Envelopes and tombstones as Debezium has them, across a change and restarts."""
    stream = Stream(spark, service_url, topic, tmp_path)
    send(encoding)
    anna = {"id": 101, "name": "anna"}
    first = [
        change(101, None, anna, "c", 1),
        change(101, anna, None, "d", 1),
        {"key": {"id": 101}, "value": None},
    ]
    frame = load(spark, service_url, topic)
    assert frame.schema["key"].dataType.simpleString() == "struct<id:int>"
    assert frame.schema["value"].dataType.simpleString() == (
        "struct<after:struct<id:int,name:string>,before:struct<id:int,name:string>,"
        "op:string,ts_ms:bigint>"
    )
    assert rows(frame) == first
    assert stream.run() == first

    send(encoding, 2)
    heavy = {"id": 102, "name": None, "weight": 1.5}
    with pytest.raises(PySparkException, match=r"PULSAR_SCHEMA.*weight"):
        stream.run()
    cut = {"id": 102, "name": None}
    assert stream.run(schemaVersion="0") == [
        change(102, None, cut, "c", None),
        {"key": {"id": 102}, "value": None},
    ]
    wider = anna | {"weight": None}
    second = [
        change(101, None, wider, "c", 1),
        change(101, wider, None, "d", 1),
        first[2],
        change(102, None, heavy, "c", None),
        {"key": {"id": 102}, "value": None},
    ]
    assert rows(load(spark, service_url, topic)) == second
    send(encoding, 2)
    assert stream.run(schemaVersion="latest") == second[3:]
    asked = "value STRUCT<op: STRING, after: STRUCT<id: INT>>, key STRUCT<id: INT>"
    found = rows(load(spark, service_url, topic, schema=asked))
    assert found[0] == {
        "value": {"op": "c", "after": {"id": 101}},
        "key": {"id": 101},
    }
