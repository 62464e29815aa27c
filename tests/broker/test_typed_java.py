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
from pyspark.sql import functions

from pulsar_spark.testing.embedded_broker import archived_classes
from pulsar_spark.testing.jars import resolve_classpath
from pulsar_spark.testing.processes import SHORT_LIVED, java
from tests.broker.test_typed_reads import Stream, load, rows
from tests.broker.test_write import save
from tests.support.jvm import compile_java
from tests.support.session import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pulsar_spark.testing.admin import Admin

CLIENT = ROOT / "tests/support/TypedClient.java"


class Send(Protocol):
    """Sends the messages of a turn."""

    def __call__(self, what: str, turn: int = 1) -> list[str]:
        """Send them, and return the lines that the client prints."""


@pytest.fixture(scope="module")
def client(
    tmp_path_factory: pytest.TempPathFactory, service_url: str
) -> Iterator[subprocess.Popen[str]]:
    """The client, which is compiled and started once."""
    jars, classes = resolve_classpath(progress=None), tmp_path_factory.mktemp("java")
    compile_java(CLIENT, jars, classes)
    # In this order: a class path that begins with a broker's can use its archive.
    path = os.pathsep.join((jars, str(classes)))
    command = [java(), *SHORT_LIVED, *archived_classes(), "-cp", path, CLIENT.stem]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([*command, service_url], text=True, **pipes) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0


@pytest.fixture
def send(client: subprocess.Popen[str], topic: str) -> Send:
    """Send the messages of a turn."""

    def send(what: str, turn: int = 1) -> list[str]:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(f"{what} {topic} {turn}\n")
        client.stdin.flush()
        values = []
        for line in client.stdout:
            if line == "done\n":
                return values
            if line.startswith("value: "):
                values.append(line.removeprefix("value: ").removesuffix("\n"))
        raise AssertionError("the client has failed")

    return send


@pytest.mark.parametrize(
    "form", ["avro", pytest.param("json", marks=pytest.mark.matrix)]
)
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


#: Columns of the class ``Values``, and rows with the ends of what they hold.
VALUES = (
    "bytes binary, color string, amount string, day date, number double,"
    " local timestamp_ntz, moment timestamp, small float, text string, time int"
)
ROWS = """
(X'', 'RED', '12.340', DATE'2024-02-29', -0D,
 TIMESTAMP_NTZ'2024-02-29 12:34:56.789', TIMESTAMP'2024-02-29 12:34:56.123456Z',
 1.5F, 'größer \\u2028', 45296789),
(X'00FF80', 'GREEN', '-1E+2', DATE'0001-01-01', DOUBLE('NaN'),
 TIMESTAMP_NTZ'1969-12-31 23:59:59.999', TIMESTAMP'1969-12-31 23:59:59.999Z',
 FLOAT('-Infinity'), '', 0),
(X'61626364', 'RED', '0', DATE'9999-12-31', DOUBLE('Infinity'),
 TIMESTAMP_NTZ'9999-12-31 23:59:59.999', TIMESTAMP'9999-12-31 23:59:59.999Z',
 FLOAT('NaN'), 'x', 86399999),
(X'00', 'RED', '0', DATE'+12024-01-01', 1e300D,
 TIMESTAMP_NTZ'+12024-01-01 00:00:00.5', TIMESTAMP'-0001-01-01 00:00:00.5Z',
 16777216F, 'NaN', 1),
(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
"""
COUNT = 5
AS_JAVA = (
    "base64(bytes)",
    "color",
    "amount",
    "unix_date(day)",
    "number",
    "unix_micros(CAST(local AS TIMESTAMP))",
    "unix_micros(moment)",
    "small",
    "text",
    "time * 1000L",
)


def values_frame(spark: SparkSession) -> DataFrame:
    """The rows, with the columns of the class."""
    names = [part.split()[0] for part in VALUES.split(", ")]
    casts = [
        f"CAST({part.split()[0]} AS {part.split()[1]})" for part in VALUES.split(", ")
    ]
    rows = f"VALUES {ROWS} AS t ({', '.join(names)})"
    return spark.sql(
        f"SELECT {', '.join(f'{c} AS {n}' for c, n in zip(casts, names, strict=True))}"
        f" FROM {rows}"
    ).coalesce(1)


@pytest.mark.parametrize(
    ("form", "turn"),
    [
        ("avro", 1),
        ("json", 1),
        pytest.param("json", 2, marks=pytest.mark.matrix),
    ],
)
def test_values_of_all_kinds(
    spark: SparkSession, service_url: str, topic: str, form: str, turn: int, send: Send
) -> None:
    """What Spark writes by a schema of Java's is for Java what it is for Spark."""
    send(f"register-{form}", turn)
    frame = values_frame(spark)
    save(frame, service_url, topic)
    printed = send(f"values-{form}", COUNT)
    if turn == 2:  # the unit of the schema
        moment = "date_trunc('MILLISECOND', moment)"
        frame = frame.withColumn("moment", functions.expr(moment))
    expected = [
        "|".join(_of_java(value) for value in row)
        for row in frame.selectExpr(*AS_JAVA).collect()
    ]
    assert printed == expected
    again = load(spark, service_url, topic, schema=VALUES).selectExpr(*AS_JAVA)
    found = ["|".join(_of_java(value) for value in row) for row in again.collect()]
    assert found == expected


def test_days_of_a_zone(
    spark: SparkSession, service_url: str, admin: Admin, topic: str, send: Send
) -> None:
    """The days of a Java application in New York, written there and by Spark."""
    admin.add_schema(topic, "DATE", "", {})
    days = "VALUES DATE'2024-01-01', DATE'2024-07-01', DATE'1950-03-01' AS t (value)"
    zone = {"timeZone": "America/New_York"}
    frame = spark.sql(f"SELECT value FROM {days}").coalesce(1)
    save(frame, service_url, topic, **zone)
    expected = ["2024-01-01", "2024-07-01", "1950-03-01"]
    assert send("dates", 3) == expected
    found = load(spark, service_url, topic, **zone).select("value").collect()
    assert [str(row[0]) for row in found] == expected


def _of_java(value: Any) -> str:
    """A value as Java prints it."""
    if isinstance(value, float):
        names = {
            "inf": "Infinity",
            "-inf": "-Infinity",
            "nan": "NaN",
            "1e+300": "1.0E300",
        }
        return names.get(repr(value), repr(value)).replace("16777216.0", "1.6777216E7")
    return "null" if value is None else str(value)
