# SPDX-License-Identifier: Apache-2.0
"""Where a batch read starts and ends, to the message, in every form users write."""

from __future__ import annotations

import json
import logging
import random
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark import (
    DataLossError,
    EndNotReachedError,
    OptionError,
    encode_message_id,
)
from pulsar_spark.message_id import MessageId
from tests.support import official, reading
from tests.support.entries import batch, chunks, member, message
from tests.support.official import Row
from tests.support.raw_publisher import RawPublisher
from tests.support.transactions import Transactions
from tests.support.waiting import trim_first_ledger

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from pulsar_spark.testing.admin import Admin

T0 = 1_700_000_000_000


@pytest.fixture
def rows(service_url: str, topic: str) -> list[Row]:
    """50 messages in batches of 10 in ``topic``."""
    official.produce(service_url, topic, [b"%d" % i for i in range(50)], batch=10)
    return official.read_back(service_url, topic)


def text(topic: str, row: Row) -> str:
    """A position in JSON as a person writes it."""
    return json.dumps({topic: row.position})


def signed_bytes(topic: str, row: Row) -> str:
    """A position in JSON as the Scala connector writes it."""
    ledger_id, entry_id, partition, batch_index = row.message_id
    data = encode_message_id(
        MessageId(ledger_id, entry_id, batch_index, partition), java=True
    )
    return json.dumps({topic: [byte - 256 if byte > 127 else byte for byte in data]})


def values(rows: list[Row]) -> list[bytes | None]:
    """Only the payloads."""
    return [row.value for row in rows]


@pytest.mark.parametrize("form", [text, signed_bytes])
@pytest.mark.parametrize(
    ("first", "last"), [(0, 49), (3, 3), (9, 10), (13, 38), (49, 49)]
)
def test_exact_inside_batches(
    service_url: str,
    topic: str,
    rows: list[Row],
    form: Callable[[str, Row], str],
    first: int,
    last: int,
) -> None:
    """Both ends are inclusive and exact to the message, in both forms of JSON."""
    options = {
        "topic": topic,
        "startingOffsets": form(topic, rows[first]),
        "endingOffsets": form(topic, rows[last]),
    }
    assert reading.read(service_url, options) == rows[first : last + 1]


def test_plain_forms(service_url: str, topic: str, rows: list[Row]) -> None:
    """A topic's short JSON form, and entries without an index, mean what they say."""
    ledger_id, entry_id, _, _ = rows[20].message_id
    entry = f"{ledger_id}:{entry_id}"
    start = {"topic": topic, "startingOffsets": json.dumps({topic: entry})}
    assert reading.read(service_url, start) == rows[20:]
    end = {"topic": topic, "endingOffsets": json.dumps({topic: entry})}
    assert reading.read(service_url, end) == rows[:30]
    assert reading.read(service_url, start | end) == rows[20:30]


def test_index_past_the_batch(service_url: str, topic: str, rows: list[Row]) -> None:
    """An index that the batch does not have starts at the next entry, ends with it."""
    ledger_id, entry_id, _, _ = rows[20].message_id
    past = json.dumps({topic: f"{ledger_id}:{entry_id}:10"})
    options = {"topic": topic, "startingOffsets": past}
    assert reading.read(service_url, options) == rows[30:]
    options = {"topic": topic, "endingOffsets": past}
    assert reading.read(service_url, options) == rows[:30]
    last = json.dumps({topic: f"{ledger_id}:{rows[-1].message_id[1]}:10"})
    assert reading.read(service_url, {"topic": topic, "startingOffsets": last}) == []


def test_end_beyond_the_topic(service_url: str, topic: str, rows: list[Row]) -> None:
    """An end that does not exist yet is an error, or the end that there is."""
    ledger_id = rows[-1].message_id[0]
    for beyond in (f"{ledger_id}:999", f"{ledger_id + 999}:0"):
        options = {"topic": topic, "endingOffsets": json.dumps({topic: beyond})}
        with pytest.raises(EndNotReachedError, match="ends at"):
            reading.read(service_url, options)
        options["failOnUnreachedEnd"] = "false"
        assert reading.read(service_url, options) == rows
    # The entry is there; its batch has fewer messages.
    options = {
        "topic": topic,
        "endingOffsets": json.dumps({topic: f"{ledger_id}:4:99"}),
    }
    assert reading.read(service_url, options) == rows


def test_end_right_before_start(service_url: str, topic: str, rows: list[Row]) -> None:
    """A read that goes on where the last one ended finds nothing new."""
    options = {
        "topic": topic,
        "startingOffsets": text(topic, rows[5]),
        "endingOffsets": text(topic, rows[4]),
    }
    assert reading.read(service_url, options) == []


def test_each_partition_its_own(service_url: str, admin: Admin, topic: str) -> None:
    """Partitions take their own position; those not named take the default."""
    admin.create_partitioned(topic, 3)
    official.produce(service_url, topic, [b"%d" % i for i in range(90)])
    rows = official.read_back(service_url, topic, partitions=3)
    parts = [[row for row in rows if row.message_id[2] == i] for i in range(3)]
    assert min(map(len, parts)) > 10
    options = {
        "topic": topic,
        "startingOffsets": json.dumps(
            {topic: {"1": parts[1][4].position, "2": "earliest"}}
        ),
        "endingOffsets": json.dumps({f"{topic}-partition-2": parts[2][7].position}),
    }
    expected = parts[0] + parts[1][4:] + parts[2][:8]
    assert reading.read(service_url, options) == expected


def test_right_after_the_last_message(
    service_url: str, admin: Admin, topic: str, rows: list[Row]
) -> None:
    """A start right behind the last message gives no rows, and no error, ever."""
    ledger_id, entry_id, _, _ = rows[-1].message_id
    after = json.dumps({topic: f"{ledger_id}:{entry_id + 1}"})
    options = {"topic": topic, "startingOffsets": after}
    assert reading.plan(service_url, options) == []
    admin.unload(topic)  # another ledger follows
    assert reading.plan(service_url, options) == []
    official.produce(service_url, topic, [b"new"])
    assert values(reading.read(service_url, options)) == [b"new"]


def test_start_far_beyond(service_url: str, topic: str, rows: list[Row]) -> None:
    """A start that the topic has not reached yet gives no rows, and no error."""
    ledger_id = rows[-1].message_id[0]
    for beyond in (f"{ledger_id}:999", f"{ledger_id + 999}:0"):
        options = {"topic": topic, "startingOffsets": json.dumps({topic: beyond})}
        assert reading.plan(service_url, options) == []


def test_across_ledgers(
    service_url: str, admin: Admin, topic: str, rows: list[Row]
) -> None:
    """Ranges reach over the end of a ledger, exactly."""
    admin.unload(topic)
    official.produce(service_url, topic, [b"a", b"b", b"c"], batch=3)
    rows = official.read_back(service_url, topic)
    assert rows[49].message_id[0] < rows[50].message_id[0]
    options = {
        "topic": topic,
        "startingOffsets": text(topic, rows[45]),
        "endingOffsets": text(topic, rows[51]),
    }
    assert reading.read(service_url, options) == rows[45:52]
    assert reading.read(service_url, {"topic": topic}) == rows


def test_any_range(service_url: str, admin: Admin, topic: str) -> None:
    """Whatever lies in a topic, a range from one row to another is these rows."""
    rng = random.Random(11)
    with Transactions(service_url) as transactions:
        for _ in range(4):
            with RawPublisher(service_url, topic) as publisher:
                for i in range(12):
                    fill(publisher, transactions, topic, rng.choice(KINDS), b"%d" % i)
            admin.unload(topic)
    rows = reading.read(service_url, {"topic": topic})
    assert rows == official.read_back(service_url, topic)
    for _ in range(60):
        first, last = sorted(rng.choices(range(len(rows)), k=2))
        expected = rows[first : last + 1]
        options = {"topic": topic}
        for name, row in (("starting", rows[first]), ("ending", rows[last])):
            form = rng.choice([text, signed_bytes])
            options[f"{name}Offsets"] = form(topic, row)
        assert reading.read(service_url, options) == expected, options


KINDS = ("batch", "batch", "single", "chunked", "committed", "aborted")


def fill(
    publisher: RawPublisher,
    transactions: Transactions,
    topic: str,
    kind: str,
    value: bytes,
) -> None:
    """Publish an entry, or some, of a kind."""
    if kind == "batch":
        publisher.send(*batch([member(value + b"%d" % i) for i in range(5)]))
    elif kind == "single":
        publisher.send(*message(value, key="k"))
    elif kind == "chunked":
        for chunk in chunks(value * 1000, 3, value.hex()):
            publisher.send(*chunk)
    else:
        txn = transactions.begin(topic)
        publisher.send(*message(value), txn=txn)
        transactions.end(txn, commit=kind == "committed")


def test_all_actions_on_a_frame_read_the_same_range(
    spark: SparkSession, service_url: str, topic: str
) -> None:
    """That of the first one, also on frames made from it; another load sees more."""
    official.produce(service_url, topic, [b"early"] * 20, batch=10)

    def load() -> DataFrame:
        options = {"service.url": service_url, "topic": topic}
        return spark.read.format("pulsar").options(**options).load()

    frame = load()
    official.produce(service_url, topic, [b"before"] * 20, batch=10)
    assert frame.count() == 40
    official.produce(service_url, topic, [b"after"] * 20, batch=10)
    assert frame.count() == 40
    assert frame.where("value = 'after'").count() == 0
    assert frame.select("value").distinct().count() == 2
    assert frame.union(frame).groupBy("__topic").count().collect() == [(topic, 80)]
    assert load().count() == 60


# -- times -----------------------------------------------------------------------------


@pytest.fixture
def timed(service_url: str, topic: str) -> list[Row]:
    """Entries of two messages in ``topic``, ten seconds apart from ``T0`` on."""
    with RawPublisher(service_url, topic) as publisher:
        for i in range(6):
            members = [member(b"%d%c" % (i, side)) for side in b"ab"]
            publisher.send(*batch(members, publish_time=T0 + 10_000 * i))
    return official.read_back(service_url, topic)


def iso(time_ms: int) -> str:
    """A time as ISO-8601 in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, timezone.utc).isoformat()


@pytest.mark.parametrize("write", [str, iso])
def test_times(
    service_url: str, topic: str, timed: list[Row], write: Callable[[int], str]
) -> None:
    """Both times are inclusive, in milliseconds and in ISO-8601."""

    def between(start: int | None, end: int | None) -> list[Row]:
        options = {"topic": topic}
        if start is not None:
            options["startingTime"] = write(T0 + start)
        if end is not None:
            options["endingTime"] = write(T0 + end)
        return reading.read(service_url, options)

    assert between(20_000, None) == timed[4:]
    assert between(20_001, None) == timed[6:]
    assert between(-1_000, None) == timed
    assert between(None, 20_000) == timed[:6]
    assert between(None, 19_999) == timed[:4]
    assert between(None, 90_000) == timed
    assert between(None, -1_000) == []
    assert between(10_000, 30_000) == timed[2:8]
    assert between(11_000, 19_000) == []
    assert between(30_000, 30_000) == timed[6:8]


def test_nothing_that_late(service_url: str, topic: str, timed: list[Row]) -> None:
    """Where nothing is later: no rows, or an error naming the topic, as chosen."""
    options = {"topic": topic, "startingTime": str(T0 + 10**9)}
    assert reading.plan(service_url, options) == []
    options["startingTimeStrategy"] = "error"
    with pytest.raises(OptionError, match="startingTime") as raised:
        reading.plan(service_url, options)
    assert topic in str(raised.value)


def test_times_by_topic(service_url: str, topic: str, timed: list[Row]) -> None:
    """A time counts for the topic that JSON names; others keep their offsets."""
    other = f"{topic}-other"
    with RawPublisher(service_url, other) as publisher:
        publisher.send(*message(b"old", publish_time=T0))
    options = {
        "topics": f"{topic},{other}",
        "startingTime": json.dumps({topic: iso(T0 + 50_000)}),
        "endingTime": json.dumps({other: T0}),
    }
    assert values(reading.read(service_url, options)) == [b"5a", b"5b", b"old"]


def test_time_and_offset_together(
    service_url: str, topic: str, timed: list[Row]
) -> None:
    """One end may be an offset and the other a time."""
    options = {
        "topic": topic,
        "startingOffsets": text(topic, timed[3]),
        "endingTime": str(T0 + 25_000),
    }
    assert reading.read(service_url, options) == timed[3:6]


def test_time_in_an_empty_topic(service_url: str, admin: Admin, topic: str) -> None:
    """A topic that never had a row has none for any time."""
    admin.create_topic(topic)
    for name in ("startingTime", "endingTime"):
        assert reading.plan(service_url, {"topic": topic, name: str(T0)}) == []


def test_time_across_ledgers(
    service_url: str, admin: Admin, topic: str, timed: list[Row]
) -> None:
    """A time before the first row of a later ledger starts there."""
    admin.unload(topic)
    with RawPublisher(service_url, topic) as publisher:
        publisher.send(*message(b"next", publish_time=T0 + 100_000))
    options = {"topic": topic, "startingTime": str(T0 + 90_000)}
    assert values(reading.read(service_url, options)) == [b"next"]
    options = {"topic": topic, "endingTime": str(T0 + 90_000)}
    assert reading.read(service_url, options) == timed


# -- what is gone, and what only seems to be -------------------------------------------


@pytest.fixture
def trimmed(service_url: str, admin: Admin, namespace: str) -> tuple[str, list[Row]]:
    """A topic whose first ledger was removed, and all the rows it once had."""
    topic = f"persistent://{namespace}/trimmed"
    official.produce(service_url, topic, [b"%d" % i for i in range(20)], batch=10)
    admin.unload(topic)
    official.produce(service_url, topic, [b"%d" % i for i in range(20, 30)], batch=10)
    rows = official.read_back(service_url, topic)
    trim_first_ledger(admin, topic)
    assert official.read_back(service_url, topic) == rows[20:]
    return topic, rows


def test_trimmed_start(
    service_url: str,
    trimmed: tuple[str, list[Row]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A start that is gone is an error; or one warning, and what there is is read."""
    topic, rows = trimmed
    options = {"topic": topic, "startingOffsets": text(topic, rows[13])}
    with pytest.raises(DataLossError) as raised:
        reading.read(service_url, options)
    error = raised.value
    assert str(error).startswith("[PULSAR_DATA_LOSS] ")
    assert (error.topic_partition, error.wanted) == (topic, rows[13].position)
    first = rows[20].message_id
    assert error.available == f"{first[0]}:{first[1]}"
    assert "failOnDataLoss" in error.message

    options["failOnDataLoss"] = "false"
    with caplog.at_level(logging.WARNING, "pulsar_spark"):
        assert reading.read(service_url, options) == rows[20:]
    (warning,) = (r.getMessage() for r in caplog.records if topic in r.getMessage())
    assert warning.startswith("[PULSAR_DATA_LOSS]")


def test_earliest_after_trimming(
    service_url: str, trimmed: tuple[str, list[Row]]
) -> None:
    """A start by word or by time takes what there is; an end that is gone does not."""
    topic, rows = trimmed
    assert reading.read(service_url, {"topic": topic}) == rows[20:]
    options = {"topic": topic, "startingTime": str(rows[0].publish_time_ms)}
    assert reading.read(service_url, options) == rows[20:]
    options = {"topic": topic, "startingOffsets": text(topic, rows[20])}
    assert reading.read(service_url, options) == rows[20:]
    options = {"topic": topic, "endingOffsets": text(topic, rows[13])}
    with pytest.raises(DataLossError, match="where the read should end"):
        reading.plan(service_url, options)
    assert reading.plan(service_url, {**options, "failOnDataLoss": "false"}) == []


def test_trimmed_between_plan_and_read(
    service_url: str, admin: Admin, namespace: str
) -> None:
    """Rows that vanish after planning fail the task; or it reads what is left."""
    topic = f"persistent://{namespace}/vanishing"
    official.produce(service_url, topic, [b"gone"] * 5)
    admin.unload(topic)
    official.produce(service_url, topic, [b"left"] * 5)
    strict = reading.reader_of(service_url, {"topic": topic})
    lenient = reading.reader_of(
        service_url, {"topic": topic, "failOnDataLoss": "false"}
    )
    (part,) = strict.partitions()
    trim_first_ledger(admin, topic)
    with pytest.raises(DataLossError, match=topic):
        reading.rows_of(strict, part)
    assert values(reading.rows_of(lenient, part)) == [b"left"] * 5


def test_emptied_between_plan_and_read(
    service_url: str, admin: Admin, namespace: str
) -> None:
    """A topic that lost all its rows after planning fails the task, or gives none."""
    topic = f"persistent://{namespace}/emptied"
    official.produce(service_url, topic, [b"gone"] * 5)
    strict = reading.reader_of(service_url, {"topic": topic})
    lenient = reading.reader_of(
        service_url, {"topic": topic, "failOnDataLoss": "false"}
    )
    (part,) = strict.partitions()
    admin.unload(topic)
    admin.lookup(topic)  # loads it again, and its next ledger is open
    trim_first_ledger(admin, topic)
    with pytest.raises(DataLossError, match=topic):
        reading.rows_of(strict, part)
    assert reading.rows_of(lenient, part) == []


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "recreated"])
def test_deleted_between_plan_and_read(
    service_url: str, admin: Admin, topic: str, rows: list[Row], again: bool
) -> None:
    """A topic that is deleted after planning is data loss, also if it comes back."""
    strict = reading.reader_of(service_url, {"topic": topic})
    lenient = reading.reader_of(
        service_url, {"topic": topic, "failOnDataLoss": "false"}
    )
    (part,) = strict.partitions()
    admin.delete(topic)
    if again:
        official.produce(service_url, topic, [b"another life"])
    with pytest.raises(DataLossError, match=topic):
        reading.rows_of(strict, part)
    assert reading.rows_of(lenient, part) == []


def test_gap_left_by_markers(service_url: str, topic: str) -> None:
    """A start or an end at a transaction's marker or aborted row is no loss."""
    with (
        Transactions(service_url) as transactions,
        RawPublisher(service_url, topic) as publisher,
    ):
        publisher.send(*message(b"a"))
        aborted = transactions.begin(topic)
        gone = publisher.send(*message(b"gone"), txn=aborted)
        transactions.end(aborted, commit=False)
        last = publisher.send(*message(b"b"))
    assert last[1] == gone[1] + 2  # the marker lies between
    for entry_id in (gone[1], gone[1] + 1, last[1]):
        position = json.dumps({topic: f"{last[0]}:{entry_id}"})
        options: dict[str, Any] = {"topic": topic, "startingOffsets": position}
        assert values(reading.read(service_url, options)) == [b"b"]
    for entry_id in (gone[1], gone[1] + 1):
        position = json.dumps({topic: f"{last[0]}:{entry_id}"})
        options = {"topic": topic, "endingOffsets": position}
        assert values(reading.read(service_url, options)) == [b"a"]
