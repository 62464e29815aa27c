# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest

from siblings.ydb_topic.tests.sink.tables import bodies, table, writer
from siblings.ydb_topic.tests.support.faults import At, Fault, When
from siblings.ydb_topic.tests.support.service import TopicService
from tests.support.waiting import await_true
from ydb_spark.arrow.hashing import partition_of
from ydb_spark.client.channel import Channel
from ydb_spark.errors import (
    BadRowError,
    BoundProducerError,
    DataLossError,
    IdempotenceError,
    InactivePartitionError,
    OptionError,
    TakenOverError,
    TopicNotFoundError,
    YdbError,
)
from ydb_spark.options.patience import Patience
from ydb_spark.options.write import Partitioning
from ydb_spark.sink.task import WriteSummary
from ydb_spark.wire.codecs import CODECS, decode

BY_ID = Partitioning.PARTITION_ID


def stored(service: TopicService, partition: int | None = None) -> list[bytes]:
    """The plain bodies that are stored, in order."""
    return [decode(m.codec, m.data) for m in service.store.stored("t", partition)]


@pytest.mark.parametrize("codec", CODECS.values(), ids=list(CODECS))
def test_all_columns(service: TopicService, channel: Channel, codec: int):
    """What a row says is what is stored."""
    time = datetime(2024, 5, 6, 7, 8, 9, 123456, tzinfo=timezone.utc)
    before = datetime(1969, 12, 31, 23, 59, 59, 500000, tzinfo=timezone.utc)
    rows = table(
        [b"a", b"", b"c"],
        created_at=pa.array([time, before, None], pa.timestamp("us", "UTC")),
        metadata_items=pa.array(
            [[("k", b"v"), ("e", b"")], [], None], pa.map_(pa.string(), pa.binary())
        ),
    )
    summary = writer(channel, codec=codec, session_meta=(("from", "spark"),)).write(
        [rows]
    )
    assert (summary.written, summary.skipped, summary.written_in_tx) == (3, 0, 0)
    assert summary.rows == 3
    assert summary.partitions <= {0, 1}
    messages = service.store.stored("t")
    assert stored(service) == [b"a", b"", b"c"]
    assert [m.codec for m in messages] == [codec] * 3
    assert [m.uncompressed_size for m in messages] == [1, 0, 1]
    # As milliseconds, cut off towards the past.
    assert messages[0].created_at_ms == int(time.timestamp() * 1000)
    assert messages[1].created_at_ms == -500
    assert messages[2].created_at_ms > messages[0].created_at_ms
    assert messages[0].metadata_items == (("k", b"v"), ("e", b""))
    assert messages[2].metadata_items == ()
    assert messages[0].session_meta == (("from", "spark"),)
    assert messages[0].producer_id == ""


def test_text_is_utf_8(service: TopicService, channel: Channel):
    """A column of strings is taken, by its other name, too."""
    rows = pa.RecordBatch.from_pydict({"value": ["ä", ""]})
    writer(channel).write([rows])
    assert stored(service) == ["ä".encode(), b""]


def test_nothing_is_opened_without_rows(service: TopicService, channel: Channel):
    """An empty task asks nothing of the server."""
    assert writer(channel, id_="id").write([table([])]).rows == 0
    assert not service.log


def test_many_small_requests(service: TopicService, channel: Channel):
    """All rows, in order, whatever the limits."""
    rows = bodies(2000)
    summary = writer(channel, max_request_bytes=500, max_inflight_bytes=2000).write(
        [table(rows[:700]), table(rows[700:701]), table([]), table(rows[701:])]
    )
    assert summary.written == 2000
    assert summary.size_bytes == sum(map(len, rows))
    assert stored(service) == rows
    requests = service.requests("StreamWrite", "write_request")
    assert max(r.ByteSize() for r in requests) < 700
    assert len(requests) > 100


def test_unanswered_bytes_are_bounded(service: TopicService, channel: Channel):
    """A slow server is not flooded."""
    service.faults.add(Fault(At.WRITE, delay_s=0.02, times=-1))
    rows = [bytes(10_000)] * 100
    writer(channel, max_request_bytes=20_000, max_inflight_bytes=60_000).write(
        [table(rows)]
    )
    assert len(stored(service)) == 100


def test_idempotent(service: TopicService, channel: Channel):
    """The same task again stores nothing, and says so; a later batch goes on."""
    rows = bodies(50)
    first = writer(channel, id_="q", batch_id=3).write([table(rows)])
    # Cut differently: a row's number does not depend on it.
    again = writer(channel, id_="q", batch_id=3, max_request_bytes=90).write(
        [table(rows[:7]), table(rows[7:])]
    )
    later = writer(channel, id_="q", batch_id=4).write([table([b"later"])])
    assert (first.written, first.skipped) == (50, 0)
    assert (again.written, again.skipped) == (0, 50)
    assert later.written == 1
    assert stored(service) == [*rows, b"later"]
    assert [m.seq_no for m in service.store.stored("t")][:2] == [
        (3 << 32) + 1,
        (3 << 32) + 2,
    ]
    assert {m.producer_id for m in service.store.stored("t")} == {"q/0"}


def test_attempt_that_died(service: TopicService, channel: Channel):
    """The next one stores the rest, and the rest only."""
    rows = bodies(20)
    service.faults.add(Fault(At.WRITE, When.PART, status=400080, skip=4))
    with pytest.raises(YdbError, match="GENERIC_ERROR"):
        writer(channel, id_="q", max_request_bytes=100).write([table(rows)])
    half = len(stored(service))
    assert 0 < half < 20
    summary = writer(channel, id_="q").write([table(rows)])
    assert (summary.written, summary.skipped) == (20 - half, half)
    assert stored(service) == rows


def test_id_that_wrote_later_rows(service: TopicService, channel: Channel):
    """A checkpoint that was rolled back loses nothing without a word."""
    writer(channel, id_="q", batch_id=9).write([table([b"a"])])
    sent = service.count("StreamWrite", "write_request")
    with pytest.raises(IdempotenceError, match="micro-batch 9, and this is"):
        writer(channel, id_="q", batch_id=0).write([table([b"b"])])
    assert service.count("StreamWrite", "write_request") == sent


def test_producer_that_was_forgotten(
    service: TopicService, channel: Channel, caplog: pytest.LogCaptureFixture
):
    """A warning says that rows may be stored again; nobody else gets it."""
    caplog.set_level(logging.WARNING, "ydb_spark")
    for batch_id in (0, 1, 1):
        writer(channel, id_="q", batch_id=batch_id).write([table([b"a"])])
    writer(channel, batch_id=5).write([table([b"a"])])  # it has no producer
    assert not caplog.records
    topic = service.store.find("t")
    assert topic is not None
    for partition in topic.partitions.values():
        partition.last_seq_no.clear()
    summary = writer(channel, id_="q", batch_id=1).write([table([b"a"])])
    assert summary.written == 1
    (record,) = caplog.records
    assert "knows no row of q/0 in t, and this is micro-batch 1" in record.message


@pytest.mark.parametrize("patience", [Patience(take_back_s=(0.05, 0.5))])
@pytest.mark.parametrize("attempts", [2, 3])
def test_attempts_at_once(service: TopicService, channel: Channel, attempts: int):
    """Whoever ends whom, each row is stored once; who gives up says why."""
    rows = bodies(300)
    service.faults.add(Fault(At.WRITE, delay_s=0.01, times=-1))

    def attempt(_: int) -> WriteSummary | YdbError:
        try:
            return writer(channel, id_="q", max_request_bytes=200).write([table(rows)])
        except YdbError as error:
            return error

    with ThreadPoolExecutor(attempts) as pool:
        results = list(pool.map(attempt, range(attempts), timeout=60))
    assert stored(service) == rows
    errors = [result for result in results if isinstance(result, YdbError)]
    assert len(errors) < attempts
    for error in errors:
        assert isinstance(error, TakenOverError)
        assert "spark.speculation=false" in str(error)


def test_by_partition(service: TopicService, channel: Channel):
    """Each row goes where it says; repeated or not."""
    rows = table(bodies(10), partition_id=pa.array([0, 1] * 5, pa.int64()))
    for _ in range(2):
        summary = writer(channel, 7, id_="q", partitioning=BY_ID).write([rows])
        assert summary.partitions == {0, 1}
        assert stored(service, 0) == bodies(10)[::2]
        assert stored(service, 1) == bodies(10)[1::2]
    assert summary.skipped == 10
    assert {m.producer_id for m in service.store.stored("t")} == {"q/7/0", "q/7/1"}


def test_partitions_that_are_not_there(channel: Channel):
    """The error names those that are."""
    rows = table([b"a"], partition_id=pa.array([5], pa.int32()))
    with pytest.raises(BadRowError, match=r"partition 5.*\[0, 1\]"):
        writer(channel, partitioning=BY_ID).write([rows])
    nothing = table([b"a"], partition_id=pa.array([None], pa.int32()))
    with pytest.raises(BadRowError, match=r"Row 0 .* no partition_id"):
        writer(channel, partitioning=BY_ID).write([nothing])


def test_partition_that_was_split(service: TopicService, channel: Channel):
    """Before the task it is an error at once, and names the children."""
    children = service.store.split("t", 0)
    rows = table([b"a"], partition_id=pa.array([0], pa.int32()))
    with pytest.raises(InactivePartitionError, match=rf"\[{children[0]}, "):
        writer(channel, partitioning=BY_ID).write([rows])


@pytest.mark.parametrize("id_", [None, "q"])
def test_partition_that_splits_meanwhile(
    service: TopicService, channel: Channel, id_: str | None
):
    """It is the same error, and no loop."""
    rows = table(bodies(100), partition_id=pa.array([0] * 100, pa.int32()))

    def batches() -> Any:
        yield rows
        service.store.split("t", 0)
        yield rows

    with pytest.raises(InactivePartitionError, match="takes no more rows"):
        writer(channel, id_=id_, partitioning=BY_ID).write(batches())
    assert service.count("StreamWrite", "init_request") == 1


@pytest.mark.parametrize("id_", [None, "q"])
def test_split_where_the_server_chooses(
    service: TopicService, channel: Channel, id_: str | None
):
    """The write goes on in a child; with an id nothing is stored twice."""

    def batches() -> Any:
        yield table(bodies(100))
        for number in (0, 1):
            service.store.split("t", number)
        yield table(bodies(50, "more"))

    summary = writer(channel, id_=id_, max_request_bytes=200).write(batches())
    assert summary.rows == 150
    expected = sorted([*bodies(100), *bodies(50, "more")])
    if id_ is None:
        assert sorted({*stored(service)}) == expected
    else:
        assert sorted(stored(service)) == expected


def test_by_key(service: TopicService, channel: Channel):
    """Keys go where Kafka's clients send them."""
    keys = [f"key {n}".encode() for n in range(40)]
    rows = table(keys, key=pa.array(keys, pa.binary()))
    writer(channel, partitioning=Partitioning.KEY).write([rows])
    for partition in (0, 1):
        expected = [key for key in keys if partition_of(key, 2) == partition]
        assert stored(service, partition) == expected


GROUPS = Partitioning.MESSAGE_GROUP_ID


def by_group(service: TopicService) -> dict[str, list[bytes]]:
    """What is stored of each group, in order, from the one partition that it is in."""
    found: dict[str, list[bytes]] = {}
    for number in (0, 1):
        here: dict[str, list[bytes]] = {}
        for message in service.store.stored("t", number):
            assert message.producer_id == message.message_group_id
            here.setdefault(message.producer_id, []).append(message.data)
        assert not here.keys() & found.keys()
        found |= here
    return found


@pytest.mark.parametrize("open_groups", [64, 2])
def test_by_group(
    service: TopicService,
    channel: Channel,
    monkeypatch: pytest.MonkeyPatch,
    open_groups: int,
):
    """Each group is in one partition, in its order, however many are open at once."""
    monkeypatch.setattr("ydb_spark.sink.task.MAX_OPEN_GROUPS", open_groups)
    groups = [f"group {n * n % 7}" for n in range(20)]
    rows = table(bodies(20), message_group_id=pa.array(groups))
    for _ in range(2):  # it goes on where it was: at least once, so twice
        summary = writer(channel, partitioning=GROUPS).write([rows])
        assert (summary.written, summary.skipped) == (20, 0)
    expected: dict[str, list[bytes]] = {}
    for group, body in zip(groups, bodies(20), strict=True):
        expected.setdefault(group, []).append(body)
    assert by_group(service) == {g: once * 2 for g, once in expected.items()}


def strings(*values: bytes | None) -> pa.Array:
    """Strings as Spark has them: any bytes."""
    buffers = pa.array(values, pa.binary()).buffers()
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


@pytest.mark.parametrize(
    "group", [None, b"", b"x" * 2049, "ä".encode() * 1025, b"\xff"]
)
def test_groups_that_cannot_be(channel: Channel, group: bytes | None):
    """The row is named."""
    rows = table([b"a"], message_group_id=strings(group))
    with pytest.raises(BadRowError, match=r"Row 0 .* message_group_id"):
        writer(channel, partitioning=GROUPS).write([rows])


def test_longest_group(service: TopicService, channel: Channel):
    """The server counts bytes, and so do we."""
    group = "ä" * 1024
    rows = table([b"a"], message_group_id=[group])
    writer(channel, partitioning=GROUPS).write([rows])
    assert by_group(service) == {group: [b"a"]}


@pytest.mark.parametrize("reshape", ["split", "merge"])
def test_groups_of_partitions_that_change(
    service: TopicService, channel: Channel, reshape: str
):
    """Each goes on in a child, in its order, and nothing is stored twice."""
    groups = [f"group {n % 5}" for n in range(50)]

    def batches() -> Any:
        yield table(bodies(50), message_group_id=groups)
        if reshape == "merge":
            service.store.merge("t", 0, 1)
        else:
            service.store.split("t", 0)
            service.store.split("t", 1)
        yield table(bodies(50, "more"), message_group_id=groups)

    summary = writer(channel, partitioning=GROUPS).write(batches())
    assert (summary.written, summary.skipped) == (100, 0)
    rows = [*bodies(50), *bodies(50, "more")]
    by_number = sorted(service.store.stored("t"), key=lambda m: m.seq_no)
    for n in range(5):
        found = [m.data for m in by_number if m.producer_id == f"group {n}"]
        assert found == rows[n::5]


def test_numbers_that_are_used_up(service: TopicService, channel: Channel):
    """Somebody has given a group the highest number: nothing can follow it."""
    topic = service.store.find("t")
    assert topic is not None
    for partition in topic.partitions.values():
        partition.last_seq_no["g"] = (1 << 63) - 1
    rows = table([b"a"], message_group_id=["g"])
    with pytest.raises(BadRowError, match="No number follows 9223372036854775807"):
        writer(channel, partitioning=GROUPS).write([rows])


@pytest.mark.parametrize(
    ("how", "id_"),
    [*((how, None) for how in Partitioning), (Partitioning.SERVER, "q"), (BY_ID, "q")],
)
def test_topic_that_is_made_anew_meanwhile(
    service: TopicService, channel: Channel, how: Partitioning, id_: str | None
):
    """What was answered is gone with the old one, so the task fails; again, it does."""
    columns = {"partition_id": [0], "key": [b"k"], "message_group_id": ["g"]}
    first, second = (table([body], **columns) for body in (b"first", b"second"))

    def batches() -> Any:
        yield first
        await_true(lambda: service.store.stored("t"), "the first row", 20)
        service.store.create("t", partitions=2)
        yield second

    with pytest.raises(DataLossError, match="was dropped and made anew while it was"):
        writer(channel, id_=id_, partitioning=how).write(batches())
    writer(channel, id_=id_, partitioning=how).write([first, second])
    assert {*stored(service)} == {b"first", b"second"}
    assert id_ is None or len(stored(service)) == 2


def test_topic_that_is_made_anew_between_groups(
    service: TopicService, channel: Channel, monkeypatch: pytest.MonkeyPatch
):
    """Likewise where no stream broke: that of the first group had ended before."""
    monkeypatch.setattr("ydb_spark.sink.task.MAX_OPEN_GROUPS", 1)

    def batches() -> Any:
        yield table([b"a", b"b"], message_group_id=["1", "2"])
        await_true(lambda: len(service.store.stored("t")) == 2, "both rows", 20)
        service.store.create("t", partitions=2)
        yield table([b"c"], message_group_id=["3"])

    with pytest.raises(DataLossError, match="made anew"):
        writer(channel, partitioning=GROUPS).write(batches())


def test_topic_that_is_dropped_meanwhile(service: TopicService, channel: Channel):
    """That is what the error says."""

    def batches() -> Any:
        yield table([b"a"])
        await_true(lambda: service.store.stored("t"), "the row", 20)
        service.store.drop("t")
        yield table([b"b"])

    with pytest.raises(TopicNotFoundError, match="does not exist"):
        writer(channel).write(batches())


@pytest.mark.parametrize("patience", [Patience(take_back_s=(0.0, 0.05))])
def test_a_group_of_two_tasks(service: TopicService, channel: Channel):
    """No row of a task that says it is done is missing; who gives up says why."""
    service.faults.add(Fault(At.WRITE, delay_s=0.005, times=-1))

    def attempt(name: str) -> WriteSummary | YdbError:
        rows = table(bodies(100, name), message_group_id=pa.array(["g"] * 100))
        try:
            return writer(channel, partitioning=GROUPS, max_request_bytes=200).write(
                [rows]
            )
        except YdbError as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        results = dict(zip("ab", pool.map(attempt, "ab", timeout=60), strict=True))
    found = {*stored(service)}
    for name, result in results.items():
        if isinstance(result, WriteSummary):
            assert found >= {*bodies(100, name)}
        else:
            assert isinstance(result, TakenOverError)
            assert 'df.repartition("message_group_id")' in str(result)
    assert any(isinstance(result, WriteSummary) for result in results.values())


def test_keys_of_topics_that_were_split(service: TopicService, channel: Channel):
    """They would move, so that is refused."""
    service.store.split("t", 0)
    rows = table([b"a"], key=[b"k"])
    with pytest.raises(OptionError, match="split or merged"):
        writer(channel, partitioning=Partitioning.KEY).write([rows])


def test_producer_of_another_partition(service: TopicService, channel: Channel):
    """The server's refusal becomes a cure."""
    writer(channel, id_="q").write([table([b"a"])])
    (message,) = service.store.stored("t")
    other = 1 - next(
        number for number in (0, 1) if service.store.stored("t", number) == [message]
    )
    service.store.find("t").bindings[f"q/0/{other}"] = 1 - other
    rows = table([b"a"], partition_id=pa.array([other], pa.int32()))
    with pytest.raises(BoundProducerError, match="idempotenceId"):
        writer(channel, id_="q", partitioning=BY_ID).write([rows])


def test_codec_that_the_topic_has_not(service: TopicService, channel: Channel):
    """The task fails before it sends a row."""
    service.store.find("t").codecs = (1, 2)
    with pytest.raises(OptionError, match="allows raw, gzip"):
        writer(channel, codec=4).write([table([b"a"])])
    assert not service.count("StreamWrite", "write_request")


def metadata(keys: pa.Array, values: pa.Array) -> pa.MapArray:
    """The metadata of one row."""
    return pa.MapArray.from_arrays(pa.array([0, len(keys)], pa.int32()), keys, values)


def test_metadata_of_any_bytes(service: TopicService, channel: Channel):
    """Values are bytes to the server, so a string that is no text goes as it is."""
    items = metadata(strings(b"k"), strings(b"\xff"))
    writer(channel).write([table([b"a"], metadata_items=items)])
    (message,) = service.store.stored("t")
    assert message.metadata_items == (("k", b"\xff"),)


@pytest.mark.parametrize(
    ("row", "match"),
    [
        (table([b"a", None]), "Row 3 of its task has no data"),
        (
            table(
                [b"a"],
                metadata_items=pa.array(
                    [[("k", b"v" * 4096)]], pa.map_(pa.string(), pa.binary())
                ),
            ),
            "Row 2 of its task has 4097 bytes of metadata_items",
        ),
        (
            table(
                [b"a"],
                metadata_items=pa.array(
                    [[(str(n), b"") for n in range(1001)]],
                    pa.map_(pa.string(), pa.binary()),
                ),
            ),
            "1001 metadata_items",
        ),
        (
            table(
                [b"a"],
                metadata_items=pa.array(
                    [[("k", None)]], pa.map_(pa.string(), pa.string())
                ),
            ),
            "null value in metadata_items",
        ),
        (
            table([b"a"], metadata_items=metadata(strings(b"\xff"), strings(b""))),
            "has a key of metadata_items that is not UTF-8",
        ),
        (table([bytes(64_000_000)]), "has 64000000 bytes of data"),
    ],
    ids=["null", "large", "many items", "null item", "binary key", "large body"],
)
def test_rows_that_no_message_can_hold(
    channel: Channel, row: pa.RecordBatch, match: str
):
    """The error names the row and how much is too much."""
    with pytest.raises(BadRowError, match=match):
        writer(channel).write([table(bodies(2)), row])


def test_large_row_between_small_ones(service: TopicService, channel: Channel):
    """It has a request of its own: with them it would be larger than any may be."""
    sizes = [500_000, 63_900_000, 5]
    writer(channel).write([table([bytes(size) for size in sizes])])
    assert [len(body) for body in stored(service)] == sizes


@pytest.mark.parametrize("id_", [None, "q"])
def test_merge_where_the_server_chooses(
    service: TopicService, channel: Channel, id_: str | None
):
    """The write goes on in the child; with an id nothing is stored twice."""

    def batches() -> Any:
        yield table(bodies(100))
        service.store.merge("t", 0, 1)
        yield table(bodies(50, "more"))

    summary = writer(channel, id_=id_, max_request_bytes=200).write(batches())
    assert summary.rows == 150
    rows = stored(service)
    expected = [*bodies(100), *bodies(50, "more")]
    assert sorted({*rows}) == sorted(expected)
    if id_ is not None:
        assert rows == expected


def test_merge_of_a_partition_that_rows_name(service: TopicService, channel: Channel):
    """The error names the child."""
    rows = table(bodies(10), partition_id=pa.array([0] * 10, pa.int32()))

    def batches() -> Any:
        yield rows
        service.store.merge("t", 0, 1)
        yield rows

    with pytest.raises(InactivePartitionError, match=r"it was split or merged.*\[2\]"):
        writer(channel, id_="q", partitioning=BY_ID).write(batches())


def test_session_counts(service: TopicService, channel: Channel):
    """Waiting for quotas is told."""
    assert writer(channel).write([table([b"a"])]).quota_wait_s == pytest.approx(0.003)
