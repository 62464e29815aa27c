# SPDX-License-Identifier: Apache-2.0
"""What becomes of the source where Spark's interface has less: without Spark.

The real 4.0 and 4.1 are asked by ``make test-matrix``.
"""

from __future__ import annotations

import json
import os
import time
from datetime import datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import datasource
from pyspark.sql.conversion import ArrowTableToRowsConversion
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, MapType, Row, StringType, StructType

from pulsar_spark import PulsarDataSource
from pulsar_spark.errors import DataLossError, OptionError
from spark_topics.spark.row_stream_writer import RowStreamWriter, batches_of
from spark_topics.spark.unlimited_stream_reader import UnlimitedStreamReader
from tests.support.scripted_broker import ScriptedBroker, single

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "persistent://public/default/t"
BINARY = StructType().add("value", "binary")


@pytest.fixture(autouse=True)
def _as_in_4_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's interface without what came later."""
    reader = datasource.DataSourceStreamReader
    for name in ("getDefaultReadLimit", "reportLatestOffset"):
        monkeypatch.delattr(reader, name)
    for name in ("DataSourceStreamArrowWriter", "Filter"):
        monkeypatch.delattr(datasource, name)


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    """A broker with an empty topic."""
    with ScriptedBroker() as one:
        one.add_topic(TOPIC)
        yield one


class Stream:
    """A query as Spark 4.0 runs it, which keeps its checkpoint."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.options = {
            "service.url": broker.url,
            "topic": TOPIC,
            "startingOffsets": "earliest",
        }
        self.logged: list[str] = []
        self.committed: str | None = None
        self.start()

    def start(self) -> None:
        """Starts it, or goes on."""
        reader = PulsarDataSource(self.options).streamReader(BINARY)
        assert isinstance(reader, UnlimitedStreamReader)
        self.reader = reader
        if self.logged:
            last = json.loads(self.logged[-1])
            assert reader.partitions(last, last) == []

    def plan(self) -> bool:
        """Asks how far it goes; whether that is a new micro-batch."""
        end = json.dumps(self.reader.latestOffset())
        if self.logged and end == self.logged[-1]:
            return False
        self.logged.append(end)
        return True

    def run(self) -> list[bytes]:
        """Runs the newest micro-batch."""
        if self.committed is None:
            start = self.reader.initialOffset()
        else:
            start = json.loads(self.committed)
        parts = self.reader.partitions(start, json.loads(self.logged[-1]))
        return [
            row["value"]
            for part in parts
            for found in self.reader.read(part)
            for row in found.to_pylist()
        ]

    def commit(self) -> None:
        """Commits it."""
        self.committed = self.logged[-1]
        self.reader.commit(json.loads(self.committed))


def add(broker: ScriptedBroker, *values: bytes) -> None:
    """Appends lone messages."""
    for value in values:
        broker.append(TOPIC, single(value))


def acknowledged(broker: ScriptedBroker) -> bool:
    """Whether anything of the topic is."""
    found = broker.subscriptions.values()
    return any(one.mark_delete[1] >= 0 for one in found if one.durable)


class TestStreams:
    """Each micro-batch has all that is there."""

    def test_all_of_it_and_what_comes(self, broker: ScriptedBroker) -> None:
        """Nothing twice; where nothing is new, the offset is the same text."""
        stream = Stream(broker)
        add(broker, b"0", b"1")
        assert stream.plan()
        assert stream.run() == [b"0", b"1"]
        stream.commit()
        assert not stream.plan()
        add(broker, b"2")
        assert stream.plan()
        assert stream.run() == [b"2"]
        stream.commit()
        stream.reader.stop()
        add(broker, b"3", b"4")
        stream.start()  # it is told where it stands
        assert stream.plan()
        assert stream.run() == [b"3", b"4"]
        stream.reader.stop()

    def test_a_restart_without_news(self, broker: ScriptedBroker) -> None:
        """There is no micro-batch, for what was read is known."""
        stream = Stream(broker)
        add(broker, b"0")
        assert stream.plan()
        assert stream.run() == [b"0"]
        stream.commit()
        stream.reader.stop()
        stream.start()
        assert not stream.plan()
        stream.reader.stop()

    @pytest.mark.parametrize("crashes", [False, True])
    def test_a_topic_leaves_and_returns(
        self, broker: ScriptedBroker, crashes: bool
    ) -> None:
        """An error, or it goes on where it was left, also in a planned micro-batch."""
        other = f"{TOPIC}-2"
        broker.add_topic(other)
        stream = Stream(broker)
        stream.options["topics"] = stream.options.pop("topic") + f",{other}"
        stream.start()
        add(broker, b"0")
        broker.append(other, single(b"other 0"))
        assert stream.plan()
        if not crashes:
            assert sorted(stream.run()) == [b"0", b"other 0"]
            stream.commit()
        stream.reader.stop()
        stream.options["topics"] = TOPIC
        stream.start()
        with pytest.raises(DataLossError, match=other):
            stream.run() if crashes else stream.plan()
        stream.reader.stop()
        stream.options["failOnDataLoss"] = "false"
        stream.start()
        if crashes:
            assert sorted(stream.run()) == [b"0", b"other 0"]
            stream.commit()
        add(broker, b"1")
        broker.append(other, single(b"other 1"))
        assert stream.plan()
        assert stream.run() == [b"1"]
        stream.commit()
        stream.reader.stop()
        stream.options |= {"topics": f"{TOPIC},{other}", "failOnDataLoss": "true"}
        stream.start()
        assert stream.plan()
        assert stream.run() == [b"other 1"]
        stream.reader.stop()

    def test_a_micro_batch_is_repeated(self, broker: ScriptedBroker) -> None:
        """One that was logged reads the same rows again, the next one the others."""
        stream = Stream(broker)
        add(broker, b"0", b"1")
        assert stream.plan()
        stream.reader.stop()
        add(broker, b"2")
        stream.start()
        assert stream.run() == [b"0", b"1"]
        stream.commit()
        assert stream.plan()
        assert stream.run() == [b"2"]
        stream.reader.stop()

    def test_what_is_not_committed_is_not_acknowledged(
        self, broker: ScriptedBroker
    ) -> None:
        """``AvailableNow`` asks how far to go before what was logged is run again."""
        stream = Stream(broker)
        add(broker, b"0")
        assert stream.plan()
        stream.reader.stop()
        stream.start()
        end = stream.reader.latestOffset()
        assert json.dumps(end) == stream.logged[-1]
        assert not acknowledged(broker)
        assert stream.run() == [b"0"]
        assert not acknowledged(broker)
        stream.commit()
        assert acknowledged(broker)
        stream.reader.stop()

    @pytest.mark.parametrize(
        "name", ["maxRowsPerTrigger", "maxBytesPerTrigger", "minRowsPerTrigger"]
    )
    def test_limits(self, name: str) -> None:
        """What cannot be kept is refused, with the way out."""
        options = {"service.url": "pulsar://h:1", "topic": "t", name: "10"}
        with pytest.raises(OptionError, match=f"`{name}` cannot be kept.* 4.2"):
            PulsarDataSource(options).streamReader(BINARY)


def test_filters() -> None:
    """What cannot work is refused."""
    options = {"service.url": "pulsar://h:1", "topic": "t", "filterPushdown": "true"}
    with pytest.raises(OptionError, match=r"needs Spark 4\.1"):
        PulsarDataSource(options).reader(BINARY)


class TestRows:
    """Writers of streams get rows."""

    def test_the_writer(self, broker: ScriptedBroker) -> None:
        """It is the one for rows."""
        options = {"service.url": broker.url, "topic": TOPIC}
        writer = PulsarDataSource(options).streamWriter(BINARY, overwrite=False)
        assert isinstance(writer, RowStreamWriter)

    @pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
    def test_rows_become_what_they_were(
        self, monkeypatch: pytest.MonkeyPatch, zone: str
    ) -> None:
        """A batch, as rows and back, is the same: in hours that come twice, too."""
        import pyarrow as pa

        monkeypatch.setitem(os.environ, "TZ", zone)
        time.tzset()
        try:
            pair = StructType().add("a", "long").add("b", "string")
            schema = (
                StructType()
                .add("value", "binary")
                .add("at", "timestamp")
                .add("local", "timestamp_ntz")
                .add("day", "date")
                .add("amount", "decimal(20,3)")
                .add("properties", MapType(StringType(), StringType()))
                .add("list", ArrayType(pair))
                .add("share", "float")
                .add("flag", "boolean")
            )
            begin = int(datetime(2023, 10, 28, tzinfo=timezone.utc).timestamp())
            plain: list[dict[str, Any]] = [
                {
                    "value": b"%d" % hour,
                    "at": datetime.fromtimestamp(
                        begin + 1800 * hour, tz=timezone.utc
                    ).replace(microsecond=hour),
                    "local": datetime(2023, 10, 29, 2, 30, 0, hour),
                    "day": datetime(2023, 10, 29).date(),
                    "amount": Decimal(hour) / 8,
                    "properties": [("k", str(hour)), ("none", None)],
                    "list": [{"a": hour, "b": None}, None],
                    "share": hour / 4,
                    "flag": hour % 2 == 0,
                }
                for hour in range(600)
            ]
            plain.append(dict.fromkeys(plain[0]))
            arrow = to_arrow_schema(schema, timezone="UTC")
            batch = pa.RecordBatch.from_pylist(plain, schema=arrow)
            table = pa.Table.from_batches([batch])

            def rows() -> Iterator[Row]:  # made as they are asked for, as Spark does
                yield from ArrowTableToRowsConversion.convert(table, schema)

            back = list(batches_of(rows(), schema, batch_rows=250))
            assert os.environ["TZ"] == zone
            assert [one.num_rows for one in back] == [250, 250, 101]
            assert pa.Table.from_batches(back).cast(arrow).to_pylist() == (
                table.to_pylist()
            )
        finally:
            monkeypatch.undo()
            time.tzset()
