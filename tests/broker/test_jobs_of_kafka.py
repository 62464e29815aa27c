# SPDX-License-Identifier: Apache-2.0
"""The examples of Spark's guide to Kafka, moved as docs/moving-from-kafka.md says.

With nothing changed but the format each is an error that names the changes. With these
made, by replacing text, each runs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

from pulsar_spark.options.others import problem_of_other
from tests.support.official import Message, produce, read_back
from tests.support.pasted import checkpoints, paste, streamed, topics_of_guides

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pulsar_spark.testing.admin import Admin

FULL = "persistent://public/default/"
PARTITIONS = {"topic1": 2, "topic2": 1}

#: Names of options, each with what takes its place.
OPTIONS = {
    "kafka.bootstrap.servers": "service.url",
    "subscribe": "topics",
    "subscribePattern": "topicsPattern",
    "includeHeaders": "metadataColumns",
}

#: Columns likewise.
COLUMNS = {"key": "__key", "headers": "__messageProperties", "topic": "__topic"}


def with_format(code: str) -> str:
    """The code with nothing changed but the format."""
    assert 'format("kafka")' in code
    return code.replace('format("kafka")', 'format("pulsar")')


def with_options(code: str, service_url: str) -> str:
    """The code with its options changed, too."""
    code = with_format(code).replace("host1:port1,host2:port2", service_url)
    code = code.replace('.option("includeHeaders", "true")', "")
    for old, new in OPTIONS.items():
        code = code.replace(f'"{old}"', f'"{new}"')
    return code


def moved(code: str, service_url: str) -> str:
    """The code with all of it changed."""
    code = with_options(code, service_url)
    for old, new in COLUMNS.items():
        code = re.sub(rf"\bCAST\({old} AS", f"CAST({new} AS", code)
        code = re.sub(rf'(selectExpr\(.*)"{old}"', rf'\1"{new}"', code)
    return code


def message(name: str, part: int, number: int) -> Message:
    """A record with a header."""
    value = f"{name}-{part}-{number}".encode()
    return Message(value, key=f"k{number}", properties={"from": name})


def publish(service_url: str) -> dict[str, list[Any]]:
    """Five messages to each partition; the ids of those that a topic has in each."""
    return {
        f"{name}-{part}": produce(
            service_url,
            f"{FULL}{name}-partition-{part}",
            [message(name, part, number) for number in range(5)],
        )
        for name, count in PARTITIONS.items()
        for part in range(count)
    }


def pairs(*names: str) -> list[tuple[str, str]]:
    """Keys and values of the topics, in order."""
    return sorted(
        (f"k{number}", f"{name}-{part}-{number}")
        for name in names
        for part in range(PARTITIONS[name])
        for number in range(5)
    )


@pytest.fixture
def topics(admin: Admin) -> Iterator[None]:
    """The guide's topics."""
    with topics_of_guides(admin, PARTITIONS):
        yield


READ = """
df = spark \\
  .{} \\
  .format("kafka") \\
  .option("kafka.bootstrap.servers", "host1:port1,host2:port2") \\
  .option({}) \\
  .load()
rows = df.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
"""
ONE = '"subscribe", "topic1"'
TWO = '"subscribe", "topic1,topic2"'
PATTERN = '"subscribePattern", "topic.*"'
ENDS = '"startingOffsets", "earliest").option("endingOffsets", "latest"'
HEADERS = '"includeHeaders", "true"'

#: The third way to name topics in a stream is that of ``test_headers``.
READS = [
    pytest.param("readStream", TWO, ["topic1", "topic2"], id="stream-of-two"),
    pytest.param("readStream", PATTERN, ["topic1", "topic2"], id="stream-of-pattern"),
    pytest.param("read", ONE, ["topic1"], id="batch"),
    pytest.param("read", f"{PATTERN}).option({ENDS}", ["topic1", "topic2"], id="ends"),
]


@pytest.mark.parametrize(("kind", "options", "names"), READS)
def test_reads(
    spark: SparkSession,
    service_url: str,
    topics: None,
    kind: str,
    options: str,
    names: list[str],
) -> None:
    """Each way to name topics; streams begin with what comes after their start."""
    code = READ.format(kind, options)
    publish(service_url)
    with pytest.raises(PySparkException, match="PULSAR_OPTION") as caught:
        paste(with_format(code), spark=spark)
    for old, new in OPTIONS.items():
        if f'"{old}"' in code:
            assert f"{old} is an option of Spark's Kafka source" in str(caught.value)
            assert new in str(caught.value)
    with pytest.raises(AnalysisException, match="__key"):
        paste(with_options(code, service_url), spark=spark)
    rows = paste(moved(code, service_url), spark=spark)["rows"]
    if kind == "read":
        assert sorted(map(tuple, rows.collect())) == pairs(*names)
    else:
        expected = pairs(*names)
        found = streamed(spark, rows, lambda: publish(service_url), len(expected))
        assert found == expected


def test_headers(spark: SparkSession, service_url: str, topics: None) -> None:
    """They are there without an option, of the one topic that this stream reads."""
    code = READ.format("readStream", f"{ONE}).option({HEADERS}")
    code = code.replace('AS STRING)")', 'AS STRING)", "headers")')
    with pytest.raises(PySparkException, match="includeHeaders is an option of Spark"):
        paste(with_format(code), spark=spark)
    publish(service_url)
    rows = paste(moved(code, service_url), spark=spark)["rows"]
    rows = rows.selectExpr("*", "to_json(__messageProperties) AS h").drop(
        "__messageProperties"
    )
    found = streamed(spark, rows, lambda: publish(service_url), 10)
    assert found == [(*row, '{"from":"topic1"}') for row in pairs("topic1")]


def test_offsets(spark: SparkSession, service_url: str, topics: None) -> None:
    """Numbers of records become ids of messages; ends count here."""
    starts = '{"topic1":{"0":23,"1":-2},"topic2":{"0":-2}}'
    ends = '{"topic1":{"0":50,"1":-1},"topic2":{"0":-1}}'
    code = READ.format(
        "read",
        f'{TWO}).option("startingOffsets", """{starts}""")'
        f'.option("endingOffsets", """{ends}"""',
    )
    ids = publish(service_url)["topic1-0"]
    with pytest.raises(PySparkException, match="PULSAR_OPTION") as caught:
        paste(moved(code, service_url), spark=spark)
    for option, number in (("startingOffsets", 23), ("endingOffsets", 50)):
        where = f"{option}: {FULL}topic1-partition-0"
        assert f"{where}: {number} is not a position" in str(caught.value)
    for old, message_id in (("23", ids[1]), ("50", ids[3])):
        new = f'"{message_id.ledger_id()}:{message_id.entry_id()}"'
        code = code.replace(f":{old},", f":{new},")
    rows = paste(moved(code, service_url), spark=spark)["rows"]
    left_out = ("topic1-0-0", "topic1-0-4")
    expected = [row for row in pairs("topic1", "topic2") if row[1] not in left_out]
    assert sorted(map(tuple, rows.collect())) == expected


WRITE = """
ds = df \\
  .selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)") \\
  .{} \\
  .format("kafka") \\
  .option("kafka.bootstrap.servers", "host1:port1,host2:port2") \\
  .option("topic", "topic2") \\
  .{}()
"""
WRITE_BY_COLUMN = WRITE.replace('  .option("topic", "topic2") \\\n', "").replace(
    '("CAST(key', '("topic", "CAST(key'
)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        pytest.param(WRITE, "write", id="option-write"),
        pytest.param(
            *(WRITE, "writeStream"), id="option-writeStream", marks=pytest.mark.matrix
        ),
        pytest.param(WRITE_BY_COLUMN, "write", id="column-write"),
        pytest.param(WRITE_BY_COLUMN, "writeStream", id="column-writeStream"),
    ],
)
def test_writes(
    spark: SparkSession,
    service_url: str,
    topics: None,
    tmp_path: Path,
    code: str,
    kind: str,
) -> None:
    """Options and columns are named in turn; then the rows are there, once."""
    produce(service_url, f"{FULL}topic1-partition-0", [b"from Pulsar"])
    if kind == "write":
        reader: Any = spark.read
        code = code.format(kind, "save").replace(".save", '.mode("append").save')
    else:
        reader = spark.readStream.option("startingOffsets", "earliest")
        code = code.format(kind, "trigger(availableNow=True).start")
    source = reader.format("pulsar").option("service.url", service_url)
    read = source.option("topic", "topic1").load()
    of_kafka = "'k' AS {}", "value", "'topic2' AS {}"
    df = read.selectExpr(
        *(
            text.format(old)
            for text, old in zip(of_kafka, ("key", "", "topic"), strict=True)
        )
    )
    ours = df.withColumnsRenamed(COLUMNS)

    def run(text: str, frame: Any) -> None:
        query = paste(text, df=frame)["ds"]
        if query is not None:
            query.awaitTermination(240)

    with checkpoints(spark, tmp_path):
        with pytest.raises(PySparkException, match=r"use service\.url"):
            run(with_format(code), df)
        with pytest.raises(PySparkException) as caught:
            run(with_options(code, service_url), df)
        assert "key to __key" in str(caught.value)
        if '"topic", "CAST' in code:
            assert "topic to __topic" in str(caught.value)
        assert read_back(service_url, f"{FULL}topic2", partitions=1) == []
        run(moved(code, service_url), ours)
    (row,) = read_back(service_url, f"{FULL}topic2", partitions=1)
    assert (row.key, row.value) == (b"k", b"from Pulsar")


@pytest.mark.parametrize("name", OPTIONS)
def test_the_page_names_the_changes(name: str) -> None:
    """What this file replaces is what the table of the page says."""
    assert f"{OPTIONS[name]}" in problem_of_other(name)
