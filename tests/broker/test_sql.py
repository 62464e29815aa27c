# SPDX-License-Identifier: Apache-2.0
"""Spark's SQL, its tables, and its declarative pipelines, on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from pyspark.errors import (
    AnalysisException,
    PySparkException,
    StreamingQueryException,
)
from pyspark.sql.functions import udtf

from tests.support import docs, official
from tests.support.official import produce
from tests.support.standalone import SPARK_HOME, Process, environment, install

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pulsar_spark.testing.admin import Admin

DOCS = Path(__file__).parents[2] / "docs"
PATIENCE_S = 240
ROWS = [b"1", b"2", b"3"]
HINT = r"CREATE TEMPORARY VIEW \.\.\. USING, which keeps them"


class Sql:
    """SQL about one topic.

    Args:
        spark: Where it runs.
        service_url: Of the broker.
        topic: Full name.
    """

    def __init__(self, spark: SparkSession, service_url: str, topic: str) -> None:
        self._spark = spark
        self.options = {"service.url": service_url, "topic": topic}
        pairs = [f"'{name}' = '{value}'" for name, value in self.options.items()]
        self.given = f"({', '.join(pairs)})"

    def run(self, text: str) -> DataFrame:
        """Runs a statement; ``{given}`` are the options."""
        return self._spark.sql(text.replace("{given}", self.given))

    def texts(self, text: str) -> list[str]:
        """The first column of what a statement gives, in order."""
        return sorted(row[0] for row in self.run(text).collect())


@pytest.fixture
def sql(spark: SparkSession, service_url: str, topic: str) -> Iterator[Sql]:
    """A topic with three rows. Views and tables are gone after the test."""
    produce(service_url, topic, ROWS)
    yield Sql(spark, service_url, topic)
    for view in ("v", "w"):
        spark.catalog.dropTempView(view)
    spark.catalog.dropGlobalTempView("g")
    spark.sql("DROP TABLE IF EXISTS t")


def values(service_url: str, topic: str) -> list[bytes | None]:
    """What the topic has, in order, read by the official client."""
    return [row.value for row in official.read_back(service_url, topic)]


class TestViews:
    """``CREATE TEMPORARY VIEW ... USING pulsar``."""

    def test_select(self, spark: SparkSession, sql: Sql) -> None:
        """With the topic's columns, with declared ones, by name and by API."""
        sql.run("CREATE TEMPORARY VIEW v USING pulsar OPTIONS {given}")
        assert sql.texts("SELECT CAST(value AS STRING) FROM v") == ["1", "2", "3"]
        assert "__publishTime" in spark.table("v").columns
        sql.run("CREATE TEMPORARY VIEW w (value BINARY) USING pulsar OPTIONS {given}")
        assert spark.table("w").columns == ["value"]
        assert sql.texts("SELECT CAST(value AS STRING) FROM w") == ["1", "2", "3"]
        sql.run("CREATE GLOBAL TEMPORARY VIEW g USING pulsar OPTIONS {given}")
        assert sql.run("SELECT * FROM global_temp.g").count() == len(ROWS)
        sql.run("CREATE TABLE t AS SELECT CAST(value AS STRING) AS text FROM v")
        assert sql.texts("SELECT text FROM t") == ["1", "2", "3"]

    def test_cases_of_letters(self, sql: Sql, service_url: str, topic: str) -> None:
        """Queries may use any; what declares columns spells them as they are."""
        sql.run("CREATE TEMPORARY VIEW v USING pulsar OPTIONS {given}")
        assert sql.texts("SELECT CAST(VALUE AS STRING) FROM v") == ["1", "2", "3"]
        columns = "(value BINARY, __KEY BINARY)"
        sql.run(f"CREATE TEMPORARY VIEW w {columns} USING pulsar OPTIONS {{given}}")
        with pytest.raises(PySparkException, match=r"`__KEY` \(it is spelt `__key`\)"):
            sql.run("SELECT * FROM w").collect()
        for columns, name in (
            ("(VALUE STRING, __key STRING)", "VALUE"),
            ("(value STRING, __KEY STRING)", "__KEY"),
        ):
            view = f"TEMPORARY VIEW w {columns} USING pulsar OPTIONS {{given}}"
            sql.run(f"CREATE OR REPLACE {view}")
            with pytest.raises(PySparkException, match=f"`{name}` is spelt"):
                sql.run("INSERT INTO w VALUES ('4', 'key')")
        assert values(service_url, topic) == ROWS

    def test_insert(self, sql: Sql, service_url: str, topic: str) -> None:
        """Rows by values, by name, and by a query; later rows are in a new view."""
        columns = "(value STRING, __key STRING)"
        sql.run(f"CREATE TEMPORARY VIEW w {columns} USING pulsar OPTIONS {{given}}")
        sql.run("INSERT INTO w VALUES ('4', 'key')")
        sql.run("INSERT INTO w BY NAME SELECT 'key' AS __key, '5' AS value")
        sql.run("CREATE TEMPORARY VIEW v (value BINARY) USING pulsar OPTIONS {given}")
        sql.run(
            "INSERT INTO w SELECT concat(value, '!'), NULL FROM v WHERE value = '1'"
        )
        assert values(service_url, topic) == [*ROWS, b"4", b"5", b"1!"]
        found = official.read_back(service_url, topic)
        assert [row.key for row in found[3:]] == [b"key", b"key", None]

    def test_a_view_keeps_its_plan(
        self, sql: Sql, service_url: str, topic: str
    ) -> None:
        """It shows the rows of its first query, until it is made again."""
        view = "TEMPORARY VIEW v (value BINARY) USING pulsar OPTIONS {given}"
        sql.run(f"CREATE {view}")
        for _ in range(2):
            assert sql.run("SELECT * FROM v").count() == len(ROWS)
            produce(service_url, topic, [b"later"])
        sql.run(f"CREATE OR REPLACE {view}")
        assert sql.run("SELECT * FROM v").count() == len(ROWS) + 2

    def test_what_it_refuses(self, spark: SparkSession, sql: Sql) -> None:
        """Replacing rows, texts for bytes, a stream from a view that is none."""
        columns = "(value BINARY)"
        sql.run(f"CREATE TEMPORARY VIEW v {columns} USING pulsar OPTIONS {{given}}")
        with pytest.raises(PySparkException, match=r"\[PULSAR_OPTION\] Rows"):
            sql.run("INSERT OVERWRITE v VALUES (CAST('x' AS BINARY))")
        with pytest.raises(AnalysisException, match="CANNOT_SAFELY_CAST"):
            sql.run("INSERT INTO v VALUES ('x')")
        with pytest.raises(AnalysisException, match="not a temp view of streaming"):
            spark.readStream.table("v")
        assert sql.run("SELECT * FROM v").count() == len(ROWS)

    def test_a_view_of_a_stream(
        self, spark: SparkSession, sql: Sql, topic: str
    ) -> None:
        """SQL on it is a stream, too."""
        source = spark.readStream.format("pulsar").options(**sql.options)
        source.option("startingOffsets", "earliest").load().createTempView("v")
        grouped = sql.run("SELECT __topic, count(*) AS n FROM v GROUP BY __topic")
        assert results(spark, grouped, "complete") == [(topic, len(ROWS))]


class TestTables:
    """``CREATE TABLE ... USING pulsar``: Spark gives us the options with each query."""

    @pytest.fixture(autouse=True)
    def table(self, sql: Sql) -> None:
        """Table ``t``, with all that Spark puts among the options."""
        sql.run(
            "CREATE TABLE t USING pulsar OPTIONS {given} COMMENT 'of orders'"
            " TBLPROPERTIES ('owner.of.it' = 'me')"
        )

    def test_columns(self, spark: SparkSession) -> None:
        """They are the topic's."""
        assert spark.table("t").columns[:2] == ["value", "__key"]

    def test_options_with_each_query(
        self, spark: SparkSession, sql: Sql, service_url: str, topic: str
    ) -> None:
        """By WITH and by the API; what was written between two queries is seen."""
        query = "SELECT CAST(value AS STRING) FROM t WITH {given}"
        assert sql.texts(query) == ["1", "2", "3"]
        produce(service_url, topic, [b"4"])
        assert sql.texts(query) == ["1", "2", "3", "4"]
        assert spark.read.options(**sql.options).table("t").count() == len(ROWS) + 1
        stream = spark.readStream.options(**sql.options)
        rows = stream.option("startingOffsets", "earliest").table("t")
        found = results(spark, rows.selectExpr("CAST(value AS STRING)"), "append")
        assert found == [("1",), ("2",), ("3",), ("4",)]

    def test_writes(
        self,
        spark: SparkSession,
        sql: Sql,
        service_url: str,
        topic: str,
        tmp_path: Path,
    ) -> None:
        """The table declares what is written; the options come with each write."""
        sql.run("DROP TABLE t")
        sql.run("CREATE TABLE t (value STRING) USING pulsar OPTIONS {given}")
        sql.run("INSERT INTO t WITH {given} VALUES ('4')")
        rows = spark.createDataFrame([("5",)], "value string")
        rows.writeTo("t").options(**sql.options).append()
        source = spark.readStream.format("pulsar").options(**sql.options)
        (
            source.option("startingOffsets", "earliest")
            .load()
            .selectExpr("concat(CAST(value AS STRING), '!') AS value")
            .writeStream.options(**sql.options)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .toTable("t")
            .awaitTermination(PATIENCE_S)
        )
        copied = [b"1!", b"2!", b"3!", b"4!", b"5!"]
        assert sorted(filter(None, values(service_url, topic))) == sorted(
            [*ROWS, b"4", b"5", *copied]
        )

    def test_made_by_a_write(
        self, spark: SparkSession, sql: Sql, service_url: str, topic: str
    ) -> None:
        """The API shows us the options of a write; the table that stays has none."""
        four, five = (spark.createDataFrame([(n,)], "value string") for n in "45")
        sql.run("DROP TABLE t")
        writer = four.write.format("pulsar").mode("append").options(**sql.options)
        writer.saveAsTable("t")
        sql.run("DROP TABLE t")
        five.writeTo("t").using("pulsar").options(**sql.options).create()
        assert values(service_url, topic) == [*ROWS, b"4", b"5"]
        with pytest.raises(PySparkException, match=HINT):
            spark.table("t").collect()

    def test_without_options(
        self, spark: SparkSession, sql: Sql, service_url: str, topic: str
    ) -> None:
        """The error says what to do. Nothing was written."""
        statements: list[Callable[[], Any]] = [
            lambda: spark.table("t").collect(),
            lambda: sql.run("INSERT INTO t SELECT * FROM t WITH {given}"),
            lambda: sql.run(
                "CREATE TABLE u USING pulsar OPTIONS {given} AS SELECT 'x' AS value"
            ),
        ]
        for statement in statements:
            with pytest.raises(PySparkException, match=HINT):
                statement()
        with pytest.raises(StreamingQueryException, match=HINT):
            results(spark, spark.readStream.table("t"), "append")
        assert values(service_url, topic) == ROWS

    def test_files(self, sql: Sql) -> None:
        """``SELECT * FROM pulsar.`...` `` is for files."""
        with pytest.raises(AnalysisException, match="UNSUPPORTED_DATASOURCE"):
            sql.run("SELECT * FROM pulsar.`orders`")


@pytest.mark.slow
def test_a_table_function(spark: SparkSession) -> None:
    """Spark runs a function in Python in a single task, and a view in several."""

    class Numbers:
        def eval(self, count: int) -> Iterator[tuple[int]]:
            yield from ((number,) for number in range(count))

    function = udtf(Numbers, returnType="number INT", useArrow=False)
    spark.udtf.register("some_numbers", function)
    rows = spark.sql("SELECT number, spark_partition_id() FROM some_numbers(5)")
    assert {row[1] for row in rows.collect()} == {0}
    assert rows.rdd.getNumPartitions() == 1


@pytest.mark.matrix
def test_a_pipeline(
    service_url: str, admin: Admin, namespace: str, tmp_path: Path
) -> None:
    """That of the documents: a table of rows, and a sink that has each of them once."""
    source, sink = (f"persistent://{namespace}/{name}" for name in ("orders", "copy"))
    admin.create_topic(source)
    admin.create_topic(sink)
    (block,) = docs.snippets_of(DOCS / "sql.md", "A pipeline")
    for old, new in (
        ("pulsar://localhost:6650", service_url),
        ("public/default/orders-copy", sink),
        ("public/default/orders", source),
    ):
        assert old in block
        block = block.replace(old, new)
    project = tmp_path / "project"
    (project / "transformations").mkdir(parents=True)
    (project / "transformations" / "orders.py").write_text(block)
    (project / "spark-pipeline.yml").write_text(
        f"name: orders\nstorage: file://{project}/storage\n"
        "libraries:\n  - glob:\n      include: transformations/**\n"
    )
    python = install(tmp_path, f"pyspark[pipelines]=={pyspark.__version__}")
    variables = {
        **environment(python),
        "PATH": f"{python.parent}:{environment(python)['PATH']}",
        "SPARK_HOME": str(SPARK_HOME),
    }
    spec = str(project / "spark-pipeline.yml")
    command = [str(SPARK_HOME / "bin" / "spark-pipelines"), "run", "--spec", spec]
    sent = [str(number).encode() for number in range(5)]
    produce(service_url, source, sent)
    with Process(tmp_path / "run", command, variables) as pipeline:
        pipeline.await_end()
    assert values(service_url, sink) == sent


def results(spark: SparkSession, rows: DataFrame, mode: str) -> list[Any]:
    """What a stream gives until it has taken all that is there, in order."""
    name = f"results_{id(rows)}"
    query = (
        rows.writeStream.format("memory")
        .queryName(name)
        .outputMode(mode)
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(PATIENCE_S), "the stream did not end"
    finally:
        query.stop()
    found = sorted(tuple(row) for row in spark.table(name).collect())
    spark.catalog.dropTempView(name)
    return found
