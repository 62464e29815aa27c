# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pickle
import platform
import subprocess
import sys

import pytest
from pyspark.sql.types import StructType

from siblings.ydb_topic.tests.support.service import TopicService
from spark_topics import statistics
from spark_topics.spark.writer import BatchWriter
from ydb_spark import YdbTopicDataSource
from ydb_spark.errors import SchemaError
from ydb_spark.options.parse import KNOWN
from ydb_spark.options.read import parse_read_options
from ydb_spark.options.write import parse_write_options
from ydb_spark.sink.driver import BatchWrite
from ydb_spark.source.topic_source import TopicSource


@pytest.mark.parametrize(
    ("partitioning", "written"),
    [("server", ["data"]), ("message_group_id", ["data", "message_group_id"])],
)
def test_a_group_is_written_where_it_chooses_the_partition(
    service: TopicService, partitioning: str, written: list[str]
):
    """Elsewhere it is left out, as what else a read gives and a write cannot take."""
    given = {"url": service.endpoint, "topic": "t", "partitioning": partitioning}
    source = YdbTopicDataSource(given)
    schema = StructType().add("data", "binary").add("message_group_id", "string")
    writer = source.writer(schema, overwrite=False)
    assert isinstance(writer, BatchWriter)
    assert writer._columns.names == written
    if "message_group_id" in written:
        with pytest.raises(SchemaError, match="no column `message_group_id`"):
            source.writer(StructType().add("data", "binary"), overwrite=False)


@pytest.mark.parametrize("partitioning", ["server", "key", "partition_id"])
def test_columns_that_choose_no_partition_are_named(
    service: TopicService,
    partitioning: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    """They are not stored, so a write that ignores them says so."""
    monkeypatch.setattr(statistics, "_warnings", set())
    given = {"url": service.endpoint, "topic": "t", "partitioning": partitioning}
    routes = {"key": "binary", "partition_id": "integer"}
    schema = StructType().add("data", "binary")
    for name, type_ in routes.items():
        schema = schema.add(name, type_)
    writer = YdbTopicDataSource(given).writer(schema, overwrite=False)
    assert isinstance(writer, BatchWriter)
    idle = [name for name in routes if name != partitioning]
    assert writer._columns.names == [n for n in schema.names if n not in idle]
    assert f"These columns are ignored: {', '.join(idle)}." in caplog.text


def test_registering_touches_no_grpc():
    """The program that registers the source may fork, and plans nothing yet."""
    code = (
        "import sys, pyspark_ydb_topic;"
        "assert pyspark_ydb_topic.DefaultSource.name() == 'ydb_topic';"
        "assert not {'grpc', 'pyarrow', 'ydb'} & sys.modules.keys()"
    )
    command = [sys.executable, "-c", code]
    subprocess.run(command, check=True, timeout=60)


@pytest.mark.parametrize("missing", ["ydb", "grpc"])
def test_where_the_extra_is_not_installed(missing: str):
    """Each way to use the source is one error, and registering it is none."""
    code = (
        "import sys;"
        f"sys.modules[{missing!r}] = None;"
        "from pyspark.sql.types import StructType;"
        "from pyspark_ydb_topic import DefaultSource;"
        "source = DefaultSource({});"
        "schema = StructType().add('data', 'binary');"
        "source.schema()\n"
        "for use in (lambda: source.reader(schema),"
        " lambda: source.streamReader(schema),"
        " lambda: source.writer(schema, False),"
        " lambda: source.streamWriter(schema, False)):\n"
        "    try:\n"
        "        use()\n"
        "    except Exception as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, timeout=120
    )
    lines = done.stdout.decode().splitlines()
    assert len(lines) == 4
    for line in lines:
        assert line.startswith("[YDB_OPTION]")
        assert f"on {platform.node()}: `pip install ydb`" in line


_RECEIVE = """
import pickle, sys
sys.modules["ydb"] = None
for one in pickle.load(sys.stdin.buffer):
    try:
        pickle.loads(one)
    except Exception as error:
        print(error)
"""


def test_an_executor_without_the_extra():
    """It says which node lacks what, as soon as it gets what it is to read or write."""
    given = {"url": "grpc://localhost:1/local", "topic": "t"}
    reads = TopicSource(parse_read_options(given, KNOWN, streaming=False))
    writes = BatchWrite(parse_write_options(given, KNOWN, streaming=False))
    done = subprocess.run(
        [sys.executable, "-c", _RECEIVE],
        input=pickle.dumps([pickle.dumps(reads), pickle.dumps(writes)]),
        capture_output=True,
        check=True,
        timeout=120,
    )
    lines = done.stdout.decode().splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("[YDB_OPTION]")
        assert f"on {platform.node()}: `pip install ydb`" in line
        assert "ydb" in line.partition("There:")[2]
