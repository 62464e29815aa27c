# SPDX-License-Identifier: Apache-2.0
"""The examples run as they stand, each as ``python examples/<name>.py`` would."""

from __future__ import annotations

import contextlib
import json
import re
import runpy
import socket
import threading
import time
import urllib.request
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pulsar
import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyarrow import parquet

from pulsar_spark import PartitionLag, StreamLag
from tests.support import official, reading
from tests.support.entries import message
from tests.support.raw_publisher import RawPublisher
from tests.support.waiting import await_true
from tests.support.writes import write_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from pulsar_spark.testing.admin import Admin

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def run(
    spark: SparkSession,
    service_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., str]:
    """Runs an example with arguments, in the session that is there; what it prints."""

    def run_example(name: str, *arguments: str) -> str:
        path = str(EXAMPLES / name)
        monkeypatch.setenv("PULSAR_SERVICE_URL", service_url)
        monkeypatch.setattr("sys.argv", [path, *arguments])
        runpy.run_path(path, run_name="__main__")
        return capsys.readouterr().out

    return run_example


def send(service_url: str, topic: str, values: list[str]) -> None:
    """Writes with the official client, batched and keyed."""
    client = pulsar.Client(
        service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    )
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=10
    )
    for value in values:
        producer.send_async(value.encode(), lambda *_: None, partition_key=value)
    producer.flush()
    client.close()


def test_read_topic(run: Callable[..., str], service_url: str, topic: str) -> None:
    """Shows the schema, rows, and the exact number of them."""
    send(service_url, topic, [f"value-{i}" for i in range(7)])
    printed = run("read_topic.py", topic)
    assert "|-- __messageId: binary" in printed
    assert "value-3" in printed
    assert f"7 rows in {topic}" in printed


def test_read_from_offsets(
    run: Callable[..., str], service_url: str, admin: Admin, topic: str, tmp_path: Path
) -> None:
    """Each run reads what came since the one before, no row twice, none left out."""
    admin.create_partitioned(topic, 3)
    file = str(tmp_path / "offsets.json")
    arguments = ("read_from_offsets.py", topic, file)
    for first, last in ((0, 50), (50, 50), (50, 81)):
        send(service_url, topic, [str(i) for i in range(first, last)])
        assert f"{last - first} new rows" in run(*arguments)
    (partitions,) = json.loads(Path(file).read_text()).values()
    assert len(partitions) == 3


def test_read_pattern_with_metadata(
    run: Callable[..., str], service_url: str, admin: Admin, namespace: str
) -> None:
    """Only topics that match appear, with their own counts."""
    for name, rows in (("orders-de", 3), ("orders-fr", 5), ("clicks", 7)):
        topic = f"persistent://{namespace}/{name}"
        send(service_url, topic, ["x" * 10] * rows)
    printed = run("read_pattern_with_metadata.py", f"{namespace}/orders-.*")
    cells = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in printed.splitlines()
        if line.startswith("|persistent")
    ]
    assert [(c[0].rpartition("/")[2], c[2], c[3]) for c in cells] == [
        ("orders-de", "3", "30"),
        ("orders-fr", "5", "50"),
    ]


def test_stream_topic(
    run: Callable[..., str], service_url: str, topic: str, tmp_path: Path
) -> None:
    """Each run adds what came since the one before."""
    for first, last in ((0, 50), (50, 81)):
        send(service_url, topic, [str(i) for i in range(first, last)])
        printed = run("stream_topic.py", topic, str(tmp_path))
        assert f"{last - first} new rows of {topic}" in printed
        assert f"{last} rows in {tmp_path}/rows" in printed


def test_examples_on_a_topic_with_a_schema(
    run: Callable[..., str],
    service_url: str,
    admin: Admin,
    topic: str,
    tmp_path: Path,
) -> None:
    """A read, a stream and a copy have the columns of the schema.

    A field may be called ``value``, and have bytes. The copy has tombstones, too.
    """
    items = [f"item-{n}" for n in range(8)]
    columns = {
        "id": list(range(8)),
        "item": items,
        "value": [item.encode() for item in items],
        "__key": ["k"] * 8,
        "__tombstone": [n == 7 for n in range(8)],
    }
    to = {"service.url": service_url, "topic": topic, "schemaType": "avro"}
    write_frame(to, pa.record_batch(columns))
    printed = run("read_topic.py", topic)
    assert "|-- item: string" in printed
    assert f"8 rows in {topic}" in printed
    assert "8 rows in" in run("stream_topic.py", topic, str(tmp_path / "files"))
    assert "item" in parquet.read_table(tmp_path / "files" / "rows").column_names
    admin.create_partitioned(f"{topic}-copy", 2)
    arguments = (topic, f"{topic}-copy", str(tmp_path / "copy"))
    assert "8 new rows copied" in run("copy_topic_exactly_once.py", *arguments)
    shown = {"topic": f"{topic}-copy", "metadataColumns": "__tombstone"}
    copied = reading.read_columns(service_url, shown)
    rows = [(row["id"], row["item"]) for row in copied if not row["__tombstone"]]
    assert sorted(rows) == [*enumerate(items[:7])]
    assert len(copied) == 8


def test_streaming_lag(
    run: Callable[..., str], service_url: str, admin: Admin, topic: str, tmp_path: Path
) -> None:
    """Each micro-batch has a line; the last one, of each run, says caught up."""
    admin.create_partitioned(topic, 2)
    arguments = ("streaming_lag.py", topic, str(tmp_path / "checkpoint"))
    for rows in (2500, 500):
        for name in (f"{topic}-partition-0", f"{topic}-partition-1"):
            official.produce(service_url, name, [b"v"] * (rows // 2))
        lines = [
            line
            for line in run(*arguments).splitlines()
            if line.startswith("Query lag of an example, batch ")
        ]
        assert lines[-1].endswith("caught up with 2 topic partitions")
        assert sum(int(line.split()[7]) for line in lines) == rows
        if rows == 2500:
            for line, left in zip(lines, (1500, 500), strict=False):
                assert re.search(
                    rf": 1000 rows, the oldest [\d.]+ s old, {left} entries "
                    r"\(about \d+ bytes\) behind in 2 of 2 topic",
                    line,
                ), line


def test_prometheus_lag(
    run: Callable[..., str],
    spark: SparkSession,
    service_url: str,
    topic: str,
    tmp_path: Path,
) -> None:
    """A scrape has each gauge, with the labels of the query, in Prometheus' form."""
    official.produce(service_url, topic, [b"v"] * 10, batch=10)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ("prometheus_lag.py", topic, str(tmp_path / "checkpoint"), str(port))
    example = threading.Thread(target=run, args=arguments)
    example.start()
    scraped: dict[str, float] = {}

    def is_caught_up() -> bool:
        assert example.is_alive()
        with contextlib.suppress(OSError):
            url = f"http://127.0.0.1:{port}/metrics"
            with urllib.request.urlopen(url, timeout=60) as answer:
                text = answer.read().decode()
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    assert sample.labels["query_name"] == "prometheus lag"
                    assert sample.labels["source_index"] == "0"
                    scraped[sample.name] = sample.value
        return scraped.get("pulsar_stream_input_rows") == 10

    try:
        await_true(is_caught_up, "ten rows in a scrape")
    finally:
        for query in spark.streams.active:
            query.stop()
        example.join(120)
    assert not example.is_alive()
    assert scraped["pulsar_stream_backlog_entries"] == 0
    assert scraped["pulsar_stream_backlog_bytes"] == 0
    assert 0 <= scraped["pulsar_stream_oldest_unread_age_seconds"] < 3600


def test_table_of_changes(
    run: Callable[..., str], service_url: str, topic: str
) -> None:
    """Who was deleted is not there, others are as the last change left them."""
    number = pa.field("id", pa.int32())
    row = pa.struct([number, ("name", pa.string())])
    text, count = pa.string(), pa.int64()
    parts = [("before", row), ("after", row), ("op", text), ("ts_ms", count)]
    ann, ben, bea = (
        {"id": at, "name": name} for at, name in ((1, "Ann"), (2, "Ben"), (2, "Bea"))
    )
    changes: list[Any] = [
        {"after": ann, "op": "c", "ts_ms": 1},
        {"after": ben, "op": "c", "ts_ms": 2},
        {"before": ben, "after": bea, "op": "u", "ts_ms": 3},
        {"before": ann, "op": "d", "ts_ms": 4},
        None,
    ]
    keys = pa.array([{"id": at} for at in (1, 2, 2, 1, 1)], pa.struct([number]))
    values = pa.array(changes, pa.struct(parts))
    to = {"service.url": service_url, "topic": topic, "schemaType": "key_value"}
    to["keyValueEncodingType"] = "SEPARATED"
    write_frame(to, pa.record_batch({"key": keys, "value": values}))
    printed = run("table_of_changes.py", topic)
    assert " |-- key: struct" in printed
    assert "| Bea|" in printed
    assert "Ann" not in printed
    assert f"1 rows by 5 messages of {topic}" in printed


@pytest.mark.parametrize("schema_type", ["avro", "none"])
def test_latest_state(
    run: Callable[..., str], service_url: str, topic: str, schema_type: str
) -> None:
    """By position, with and without a schema; a deleted key has no row."""
    states = [("a", 1), ("b", 1), ("c", 1), ("a", 2), ("c", None), ("b", 2), ("b", 3)]
    values = [f"{key}{n}" for key, n in states]
    columns: dict[str, Any] = {
        "__key": [key for key, _ in states],
        "__tombstone": [n is None for _, n in states],
    }
    to = {"service.url": service_url, "topic": topic}
    if schema_type == "avro":
        to["schemaType"] = "avro"
        columns |= {"customer": values, "cents": pa.array([7] * 7, pa.int32())}
    else:
        columns["value"] = values
    write_frame(to, pa.record_batch(columns))
    printed = run("latest_state.py", topic)
    assert f"2 keys of {topic}" in printed
    shown = {
        "avro": ["|  a|      a2|    7|", "|  b|      b3|    7|"],
        "none": ["|  a|[61 32]|", "|  b|[62 33]|"],
    }
    assert all(line in printed for line in shown[schema_type])


def test_dead_letters(
    run: Callable[..., str], service_url: str, topic: str, tmp_path: Path
) -> None:
    """What does not fit the schema is in the other topic, with its place."""
    items = [f"item-{n}" for n in range(5)]
    good = pa.record_batch({"id": pa.array(range(5), pa.int32()), "item": items})
    to = {"service.url": service_url, "topic": topic, "schemaType": "json"}
    write_frame(to, good)
    official.produce(service_url, topic, [b"not JSON"], batch=1)
    as_bytes = {**to, "schemaType": "bytes"}
    bad = {"value": [b"nor this"], "__key": [b"\xff\xfe"]}
    write_frame(as_bytes, pa.record_batch(bad))
    write_frame(to, good)
    arguments = (topic, f"{topic}-dead", str(tmp_path / "copy"))
    assert f"10 rows of {topic} fit" in run("dead_letters.py", *arguments)
    assert f"10 rows of {topic} fit" in run("dead_letters.py", *arguments)
    dead, keyed_dead = official.read_back(service_url, f"{topic}-dead")
    assert dead.value == b"not JSON"
    assert (keyed_dead.value, keyed_dead.key) == (b"nor this", b"//4=")
    assert dead.properties["topic"] == topic
    assert re.fullmatch(r"\d+:1(:0)?", dead.properties["position"])


def test_labels_of_prometheus() -> None:
    """A query may be called anything, and a new micro-batch replaces the figures."""
    module = runpy.run_path(str(EXAMPLES / "prometheus_lag.py"))
    labels = {"query_name": 'orders "eu"\\x\n'}
    gauges = module["Gauges"]()
    for rows in (7, 9):
        lag = SimpleNamespace(
            labels=lambda: labels, metrics=lambda rows=rows: {"rows": rows}
        )
        gauges.note(lag)
    assert gauges.registry.get_sample_value("rows", labels) == 9


def test_monitoring() -> None:
    """The dashboard and the alerts are about gauges that there are."""
    partition = PartitionLag("t", "1:1", "1:2", 1, 1, 1.0)
    lag = StreamLag("q", "r", "orders", 1, "", 0, 1, (partition,))
    folder = EXAMPLES / "monitoring"
    rules = re.findall(r"^ +expr: (.*)$", (folder / "alerts.yml").read_text(), re.M)
    panels = json.loads((folder / "dashboard.json").read_text())["panels"]
    terms = [target["expr"] for panel in panels for target in panel["targets"]]
    names = {
        name for term in (*rules, *terms) for name in re.findall(r"pulsar_\w+", term)
    }
    assert len(rules) == 3
    assert len(names) > 5
    assert names <= lag.metrics().keys()


def orders(to: dict[str, str], rows: list[tuple[str | None, int | None]]) -> None:
    """Writes rows with keys, typed where the options say so.

    A row without a number is a tombstone.
    """
    keys, cents = ([*column] for column in zip(*rows, strict=True))
    columns: dict[str, Any] = {"__key": pa.array(keys, pa.string())}
    if "schemaType" in to:
        columns |= {"customer": columns["__key"], "cents": pa.array(cents, pa.int32())}
    else:
        columns["value"] = [str(number) for number in cents]
    columns["__tombstone"] = [number is None for number in cents]
    write_frame(to, pa.record_batch(columns))


@pytest.fixture(params=["avro", pytest.param("none", marks=pytest.mark.matrix)])
def typed(request: pytest.FixtureRequest) -> dict[str, str]:
    """Options of a write to a topic with a schema, and to a topic without."""
    return {} if request.param == "none" else {"schemaType": request.param}


def test_drop_duplicates(
    run: Callable[..., str],
    service_url: str,
    topic: str,
    typed: dict[str, str],
    tmp_path: Path,
) -> None:
    """Within a run, and across a restart; messages without a key are all different."""
    to = {"service.url": service_url, "topic": topic, **typed}
    arguments = ("drop_duplicates.py", topic, str(tmp_path))
    orders(to, [("a", 1), ("b", 1), ("a", 2), (None, 1), (None, 1)])
    assert f"4 different rows of {topic}" in run(*arguments)
    orders(to, [("b", 2), ("c", 1), (None, 1)])
    assert f"6 different rows of {topic}" in run(*arguments)


def test_drop_duplicates_of_a_slow_clock(
    run: Callable[..., str], service_url: str, topic: str, tmp_path: Path
) -> None:
    """A message is not dropped because later ones were read in an earlier run."""
    now_ms = time.time_ns() // 1_000_000
    for hours, found in ((0, 2), (1, 4)):
        published = {"publish_time": now_ms - hours * 3_600_000}
        with RawPublisher(service_url, topic) as publisher:
            publisher.send(*message(b"v", **published))
            publisher.send(*message(b"v", key=f"of-{hours}", **published))
        printed = run("drop_duplicates.py", topic, str(tmp_path))
        assert f"{found} different rows of {topic}" in printed


def test_join_topics(
    run: Callable[..., str],
    service_url: str,
    topic: str,
    typed: dict[str, str],
    tmp_path: Path,
) -> None:
    """A pair whose halves come in different runs is there, too."""
    left, right = f"{topic}-orders", f"{topic}-payments"
    arguments = ("join_topics.py", left, right, str(tmp_path))
    for name, rows in ((left, [("a", 1), ("b", 2)]), (right, [("a", 3)])):
        orders({"service.url": service_url, "topic": name, **typed}, rows)
    printed = run(*arguments)
    assert re.search(r"\|a +\|", printed)
    assert not re.search(r"\|b +\|", printed)
    orders({"service.url": service_url, "topic": right, **typed}, [("b", 4)])
    assert re.search(r"\|b +\|", run(*arguments))


def test_topic_by_hour(
    run: Callable[..., str],
    service_url: str,
    topic: str,
    typed: dict[str, str],
    tmp_path: Path,
) -> None:
    """A folder for the hour of now, with the rows of both runs."""
    to = {"service.url": service_url, "topic": topic, **typed}
    orders(to, [("a", 1), ("b", 1)])
    run("topic_by_hour.py", topic, str(tmp_path))
    orders(to, [("c", 1)])
    run("topic_by_hour.py", topic, str(tmp_path))
    assert list((tmp_path / "table").glob("day=*/hour=*/*.parquet"))
    assert parquet.read_table(tmp_path / "table").num_rows == 3


@pytest.mark.parametrize(
    "is_bytes", [pytest.param(True, marks=pytest.mark.matrix), False]
)
def test_refused_rows(
    run: Callable[..., str],
    service_url: str,
    topic: str,
    is_bytes: bool,
    tmp_path: Path,
) -> None:
    """A row beyond what a broker takes is in the folder, and all others are stored.

    Null values, too.
    """
    texts = ["a", "b" * 6_000_000, "c", None]
    numbers = pa.array(range(4), pa.int32())
    rows = pa.table({"value": texts} if is_bytes else {"id": numbers, "text": texts})
    (tmp_path / "rows").mkdir()
    parquet.write_table(rows, tmp_path / "rows" / "rows.parquet")
    arguments = (f"{tmp_path}/rows", topic, f"{tmp_path}/refused")
    assert f"1 rows are too large for {topic}" in run("refused_rows.py", *arguments)
    stored = [copy.value for copy in official.read_back(service_url, topic)]
    if is_bytes:
        assert stored == [b"a", b"c", None]
    else:
        texts_of = {row["id"]: row.get("text") for row in map(json.loads, stored)}
        assert texts_of == {0: "a", 2: "c", 3: None}


def test_replay_hour(
    run: Callable[..., str],
    service_url: str,
    admin: Admin,
    namespace: str,
    typed: dict[str, str],
) -> None:
    """The rows of an hour are there once, however often that is run."""
    source, target = (f"persistent://{namespace}/{name}" for name in ("from", "to"))
    to = {"service.url": service_url, "topic": source, **typed}
    orders(to, [("a", 1), ("b", 2), ("a", None)])
    admin.create_topic(target)
    admin.set_deduplication(namespace, enabled=True)
    await_true(lambda: admin.stats(target).get("deduplicationStatus") == "Enabled")
    now = datetime.now(timezone.utc)
    for _ in range(2):
        begin = (now - timedelta(minutes=30)).isoformat(timespec="seconds")
        printed = run("replay_hour.py", source, target, begin)
        assert f"3 messages of {source}" in printed
    begin = (now - timedelta(hours=3)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert f"0 messages of {source}" in run("replay_hour.py", source, target, begin)
    copies = official.read_back(service_url, target)
    assert [copy.key for copy in copies] == [b"a", b"b", b"a"]
    assert [copy.value is None for copy in copies] == [False, False, True]


def test_write_topic(
    run: Callable[..., str], service_url: str, admin: Admin, topic: str
) -> None:
    """The rows are there, as the official client reads them."""
    admin.create_partitioned(topic, 2)
    assert f"1000 orders written to {topic}" in run("write_topic.py", topic)
    rows = official.read_back(service_url, topic, partitions=2)
    assert sorted(json.loads(row.value)["id"] for row in rows) == [*range(1000)]
    assert all(row.properties == {"source": "example"} for row in rows)


def test_copy_topic_exactly_once(
    run: Callable[..., str], service_url: str, admin: Admin, topic: str, tmp_path: Path
) -> None:
    """Each run adds what came since the one before."""
    target = f"{topic}-copy"
    admin.create_partitioned(target, 2)
    arguments = ("copy_topic_exactly_once.py", topic, target, str(tmp_path))
    for first, last in ((0, 50), (50, 81)):
        send(service_url, topic, [str(i) for i in range(first, last)])
        assert f"{last - first} new rows copied to {target}" in run(*arguments)
        rows = official.read_back(service_url, target, partitions=2)
        assert sorted(int(row.value) for row in rows) == [*range(last)]


@pytest.mark.parametrize(
    "path",
    sorted(path for path in EXAMPLES.glob("*_*.py") if path.name != "__init__.py"),
    ids=lambda p: p.name,
)
def test_examples_are_short(path: Path) -> None:
    """Below 60 lines: one idea a file."""
    assert len(path.read_text().splitlines()) < 60
