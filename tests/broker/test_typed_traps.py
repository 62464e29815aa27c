# SPDX-License-Identifier: Apache-2.0
"""What registries, and those who write to them, do that one would not expect."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from pulsar import schema as ps
from pulsar.schema import ProtobufNativeSchema
from pyspark.sql.types import StructType

from pulsar_spark.errors import PulsarSparkError
from tests.broker.test_typed_reads import (
    V1,
    Stream,
    publish,
    read,
    read_table,
    record,
    send,
    types_of,
)
from tests.broker.test_typed_writes import (
    MORE,
    ORDERS,
    Order,
    as_orders,
    rows_of,
    text_of,
    typed,
    versions,
    write,
    write_error,
)
from tests.broker.test_write import save
from tests.support import official

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pulsar_spark.testing.admin import Admin

pytestmark = pytest.mark.timeout(300)

#: A column that is asked for alone.
ID = StructType().add("id", "long")


class TestReading:
    """What is asked for, and no more, as it was written."""

    def test_a_default_that_is_bytes(self, service_url: str, topic: str) -> None:
        """Each of its characters is one byte, not text in UTF-8."""
        later = record(("id", "long"), ("name", "string"), ("b", "bytes", "\u00ff"))
        publish(service_url, topic, V1, [{"id": 1, "name": "a"}])
        publish(service_url, topic, later, [{"id": 2, "name": "a", "b": b"x"}])
        some = StructType().add("id", "long").add("b", "binary")
        assert read(service_url, topic, some) == [
            {"id": 1, "b": b"\xff"},
            {"id": 2, "b": b"x"},
        ]

    def test_decimals_that_are_none(
        self, service_url: str, admin: Admin, topic: str
    ) -> None:
        """In too small a fixed they are bytes; too long ones have no column."""
        decimal = {"logicalType": "decimal", "precision": 10, "scale": 2}
        small = {"type": "fixed", "name": "F", "size": 1, **decimal}
        admin.create_topic(topic)
        admin.add_schema(topic, "AVRO", json.dumps(record(("d", small))))
        send(service_url, topic, (b"\x07", 0))
        found = read_table(service_url, topic)
        assert types_of(found) == "struct<d:binary>"
        assert found.to_pylist() == [{"d": b"\x07"}]

        large: Any = {"type": "bytes", **decimal, "precision": 50}
        other = f"{topic}-large"
        admin.create_topic(other)
        text = record(("d", large), ("id", "long"))
        admin.add_schema(other, "AVRO", json.dumps(text))
        with pytest.raises(PulsarSparkError, match=r"PULSAR_SCHEMA.*`d`.*38"):
            read(service_url, other)
        send(service_url, other, (b"\2\7\2", 0))
        assert read(service_url, other, ID) == [{"id": 1}]

    def test_what_is_not_asked_for(self, service_url: str, topic: str) -> None:
        """It is not decoded: text that is none does no harm where nobody wants it."""
        text = record(("bad", "string"), ("id", "long"), ("list", _strings()))
        publish(service_url, topic, text, [])
        send(service_url, topic, (b"\2\xff\x0a\2\2\xff\0", 0))
        with pytest.raises(PulsarSparkError, match=r"PULSAR_CORRUPT_MESSAGE.*`bad`"):
            read(service_url, topic)
        assert read(service_url, topic, ID) == [{"id": 5}]

    def test_defaults_of_another_type(
        self, service_url: str, admin: Admin, topic: str
    ) -> None:
        """A first version may have one, and no other version can follow it.

        Such a topic is read and written; a new column is refused at once, though the
        broker's answer has the code of a failure that passes.
        """
        admin.create_topic(topic)
        text = record(("a", "int", "xx"), ("id", "long"))
        admin.add_schema(topic, "AVRO", json.dumps(text))
        send(service_url, topic, (b"\2\4", 0))
        assert read(service_url, topic) == [{"a": 1, "id": 2}]
        number = pa.int32()
        types = pa.schema([("a", number), ("id", pa.int64()), ("more", number)])
        row = pa.RecordBatch.from_pylist([{"a": 3, "id": 4, "more": 5}], types)
        error = write_error(service_url, topic, row)
        assert "[PULSAR_SCHEMA]" in error
        assert "refuses the schema of these rows" in error
        assert "new: `more` INT. Write" in error
        assert len(official.read_back(service_url, topic)) == 1

    def test_a_stream_of_protobuf(
        self, spark: SparkSession, service_url: str, topic: str, tmp_path: Path
    ) -> None:
        """Of the official client's, across a restart."""
        stream = Stream(spark, service_url, topic, tmp_path)
        for seconds in (7, 8):
            with official.client(service_url) as one:
                schema = ProtobufNativeSchema(Timestamp)
                producer = one.create_producer(topic, schema=schema)
                producer.send(Timestamp(seconds=seconds, nanos=1))
            assert stream.run() == [{"seconds": seconds, "nanos": 1}]


class TestWriting:
    """What becomes of a topic whose schema is not ours."""

    @pytest.mark.parametrize("form", ["avro", "json"])
    def test_a_column_more_than_another_client_has(
        self, service_url: str, topic: str, form: str
    ) -> None:
        """Its schema gets the column, and its consumers go on."""
        schema = ps.AvroSchema(Order) if form == "avro" else ps.JsonSchema(Order)
        with official.client(service_url) as client:
            client.create_producer(topic, schema=schema).send(Order(id=0))
        write(service_url, topic, rows_of(MORE))
        assert versions(service_url, topic) == {0, 1}
        registered = text_of(service_url, topic)
        names = [field["name"] for field in registered["fields"]]
        assert registered["name"].rpartition(".")[2] == "Order"
        assert names == ["id", "user", "amount", "ok", "more"]
        assert as_orders(typed(service_url, topic, schema, 4))[1:] == ORDERS
        some = StructType().add("id", "long").add("more", "integer")
        found = read(service_url, topic, some)
        assert [tuple(row.values()) for row in found] == [
            (0, None),
            (1, None),
            (2, 1),
            (3, 1),
        ]

    def test_a_column_more_than_fields_that_are_never_null(
        self, service_url: str, admin: Admin, topic: str
    ) -> None:
        """They stay so, though Spark's columns may all be NULL; a NULL is a bad row."""
        publish(service_url, topic, V1, [{"id": 1, "name": "a"}])
        text = pa.string()
        types = pa.schema([("id", pa.int64()), ("name", text), ("mail", text)])
        row = {"id": 2, "name": "b", "mail": "m"}
        write(service_url, topic, pa.RecordBatch.from_pylist([row], types))
        assert admin.schema_versions(topic) == 2
        assert read(service_url, topic) == [
            {"id": 1, "name": "a", "mail": None},
            {"id": 2, "name": "b", "mail": "m"},
        ]
        none = pa.RecordBatch.from_pylist([{**row, "id": None}], types)
        assert "`id` is NULL" in write_error(service_url, topic, none)

    def test_columns_that_no_schema_has(
        self, service_url: str, admin: Admin, namespace: str
    ) -> None:
        """The error comes before the topic does."""
        row = pa.record_batch({"bad-name": [1], "b": [2]})
        topic = f"persistent://{namespace}/none"
        assert "`bad-name` is no name" in write_error(service_url, topic, row)
        assert admin.topics(namespace) == []

    def test_two_writers_that_begin_together(
        self, spark: SparkSession, service_url: str, admin: Admin, topic: str
    ) -> None:
        """Each has a schema of its own, and its rows name the version that this got."""
        given: list[tuple[str, list[Any]]] = [
            ("id bigint, a string, x bigint", [(at, "a", at) for at in range(20)]),
            ("id bigint, b string", [(at, "b") for at in range(20, 40)]),
        ]
        admin.create_topic(topic)
        failures: list[BaseException] = []

        def begin(columns: str, values: list[Any]) -> None:
            try:
                # By this Spark knows the thread's session, and finds Python's sources.
                save(spark.createDataFrame(values, columns), service_url, topic)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=begin, args=one) for one in given]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(200)
        assert not failures, str(failures[0])
        assert versions(service_url, topic) == {0, 1}
        found: dict[int, dict[str, Any]] = {}
        for version in ("0", "1"):
            for row in read(service_url, topic, schemaVersion=version):
                known = found.setdefault(row["id"], {})
                known.update({k: v for k, v in row.items() if v is not None})
        assert found == {
            **{at: {"id": at, "a": "a", "x": at} for at in range(20)},
            **{at: {"id": at, "b": "b"} for at in range(20, 40)},
        }


def _strings() -> dict[str, Any]:
    return {"type": "array", "items": "string"}
