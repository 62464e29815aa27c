from __future__ import annotations

import logging
import struct
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.client.range_reader import RangeReader, RangeSettings
from pulsar_spark.client.reader import ReaderSettings
from pulsar_spark.errors import CorruptEntryError, DataLossError, ReadTimeoutError
from pulsar_spark.message_id import MessageId
from pulsar_spark.plan import TopicRange
from tests.client.scripted_broker import (
    LEDGER,
    ScriptedBroker,
    StoredFrame,
    batch,
    client_options,
    cut,
    numbered,
    silence,
    single,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOPIC = "persistent://public/default/t"
MIB = 1 << 20


def place(entry_id: int, batch_index: int = -1) -> MessageId:
    """A message of the one ledger there is."""
    return MessageId(LEDGER, entry_id, batch_index=batch_index)


@pytest.fixture
def ranged(scripted: ScriptedBroker) -> Iterator[Callable[..., RangeReader]]:
    """Makes a reader of a range of TOPIC."""
    pools: list[ConnectionPool] = []

    def make(
        start: MessageId,
        end: MessageId,
        limits: dict[str, Any] | None = None,
        reader: dict[str, Any] | None = None,
        **settings: Any,
    ) -> RangeReader:
        pools.append(ConnectionPool(client_options(scripted.address, **(limits or {}))))
        given = RangeSettings(
            ReaderSettings("spark-pulsar", **(reader or {})), **settings
        )
        return RangeReader(pools[-1], TopicRange(TOPIC, start, end), given)

    yield make
    for pool in pools:
        pool.close()


def numbers(reader: RangeReader) -> list[int]:
    """The numbers in the messages of a range."""
    return [
        struct.unpack_from(">Q", payload)[0]
        for entry in reader.entries()
        for payload in entry.payloads
        if payload is not None
    ]


def test_exact_inside_of_batches(scripted: ScriptedBroker, ranged: Any) -> None:
    """Both ends are inclusive, and nothing of the range's neighbours comes."""
    scripted.add_topic(TOPIC, numbered(10, 10))
    assert numbers(ranged(place(2, 3), place(5, 1))) == list(range(23, 52))
    assert numbers(ranged(place(2), place(5))) == list(range(20, 60))
    assert numbers(ranged(place(4, 7), place(4, 7))) == [47]
    assert scripted.consumers == []


def test_an_iterator_that_is_left_early_is_closed(
    scripted: ScriptedBroker, ranged: Any
) -> None:
    """`limit(1)` in Spark leaves no consumer at the broker."""
    scripted.add_topic(TOPIC, numbered(100, 10))
    entries = ranged(place(0), place(99)).entries()
    next(entries)
    entries.close()
    assert scripted.consumers == []


def test_exact_across_reconnects(scripted: ScriptedBroker, ranged: Any) -> None:
    """Cut or unloaded after each entry: every message once, in order."""
    scripted.add_topic(TOPIC, numbered(30, 10))
    reader = ranged(place(0), place(29), reader={"receiver_queue_messages": 1})
    seen: list[int] = []
    for turn, entry in enumerate(reader.entries()):
        seen += [struct.unpack_from(">Q", payload)[0] for payload in entry.payloads]
        (scripted.cut if turn % 2 else scripted.close_consumers)()
    assert seen == list(range(300))
    assert reader.reader.reconnects > 5


def test_nothing_comes(scripted: ScriptedBroker, ranged: Any) -> None:
    """Rows are due but the broker is silent: an error that names the option."""
    scripted.add_topic(TOPIC, numbered(3, 1))
    scripted.always("FLOW", silence)
    reader = ranged(place(0), place(2), reader={"poll_timeout_s": 0.7})
    with pytest.raises(ReadTimeoutError, match=f"{TOPIC}.*pollTimeoutMs"):
        numbers(reader)


def test_the_end_is_gone(scripted: ScriptedBroker, ranged: Any) -> None:
    """Rows that were planned are not there any more: an error, or a warning."""
    scripted.add_topic(TOPIC, numbered(3, 1))
    with pytest.raises(DataLossError, match=r"7:9.*ends at 7:2.*failOnDataLoss"):
        numbers(ranged(place(0), place(9)))


def test_the_end_is_gone_and_that_is_fine(
    scripted: ScriptedBroker, ranged: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """With `failOnDataLoss` false there is a warning, and what there is."""
    scripted.add_topic(TOPIC, numbered(3, 1))
    with caplog.at_level(logging.WARNING, "pulsar_spark"):
        assert numbers(ranged(place(0), place(9), fail_on_data_loss=False)) == [0, 1, 2]
    assert "PULSAR_DATA_LOSS" in caplog.text


def test_the_start_is_gone(scripted: ScriptedBroker, ranged: Any) -> None:
    """Retention ran between plan and task."""
    scripted.add_topic(TOPIC, [_at(9, n) for n in range(3)])
    with pytest.raises(DataLossError, match=r"7:0.*9:0"):
        numbers(ranged(place(0), MessageId(9, 2)))


def _at(ledger_id: int, entry_id: int) -> StoredFrame:
    entry = single(struct.pack(">Q", entry_id))
    return StoredFrame(entry.metadata, entry.payload, 1, (ledger_id, entry_id))


@pytest.mark.parametrize("fails", [True, False])
def test_the_topic_is_deleted(
    scripted: ScriptedBroker, ranged: Any, *, fails: bool
) -> None:
    """In mid-read: that is a loss as well."""
    scripted.add_topic(TOPIC, numbered(3, 1))
    reader = ranged(
        place(0),
        place(2),
        reader={"receiver_queue_messages": 1},
        fail_on_data_loss=fails,
    )
    entries = reader.entries()
    next(entries)
    del scripted.topics[TOPIC]
    scripted.close_consumers()
    if fails:
        with pytest.raises(DataLossError, match="deleted"):
            list(entries)
    else:
        assert len(list(entries)) <= 2


def test_a_batch_that_is_none(scripted: ScriptedBroker, ranged: Any) -> None:
    """An entry whose checksum is right and whose content is not is named."""
    good = batch([b"a" * 8, b"b" * 8])
    bad = StoredFrame(good.metadata, good.payload[:-3], 2)
    scripted.add_topic(TOPIC, [good, bad])
    with pytest.raises(CorruptEntryError, match=f"Message {LEDGER}:1 of {TOPIC}"):
        list(ranged(place(0), place(1)).entries())


def chunk(uuid: str, index: int, count: int, value: bytes) -> StoredFrame:
    """A piece of ``value``."""
    size = -(-len(value) // count)
    return single(
        value[index * size : (index + 1) * size],
        uuid=uuid,
        chunk_id=index,
        num_chunks_from_msg=count,
        total_chunk_msg_size=len(value),
    )


def test_a_chunked_message_that_began_before_the_range(
    scripted: ScriptedBroker, ranged: Any
) -> None:
    """It belongs to where its last chunk is, and is read whole."""
    value = struct.pack(">Q", 42) + bytes(100)
    scripted.add_topic(
        TOPIC, [chunk("u", 0, 2, value), *numbered(1, 1), chunk("u", 1, 2, value)]
    )
    assert numbers(ranged(place(1), place(2))) == [0, 42]
    assert scripted.consumers == []
    wait_until(lambda: len(scripted.sessions) == 1)


def test_looking_back_while_the_queue_is_full(
    scripted: ScriptedBroker, ranged: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second reader must not wait for the connection that the first one blocks."""
    value = struct.pack(">Q", 42) + bytes(100)
    small, large = numbered(500, 1), numbered(24, 1, MIB)
    scripted.add_topic(
        TOPIC, [chunk("u", 0, 2, value), *small, chunk("u", 1, 2, value), *large]
    )
    limits = {"memory_limit_bytes": 8 * MIB}
    reader = ranged(place(1), place(525), limits, {"poll_timeout_s": 10.0})
    look_back = RangeReader._look_back

    def once_full(self: RangeReader, last: Any) -> Any:
        consumer = self.reader._consumer
        assert consumer is not None
        wait_until(lambda: consumer._queued_bytes >= 4 * MIB, "a full queue")
        return look_back(self, last)

    monkeypatch.setattr(RangeReader, "_look_back", once_full)
    assert numbers(reader) == [*range(500), 42, *range(24)]
    assert reader.reader.reconnects == 0


def test_silence_after_trouble_tells_of_the_trouble(
    scripted: ScriptedBroker, ranged: Any
) -> None:
    """Where connections keep breaking, the error says so."""
    scripted.add_topic(TOPIC, numbered(3, 1))
    scripted.always("FLOW", cut)
    reader = ranged(place(0), place(2), reader={"poll_timeout_s": 0.7})
    with pytest.raises(ReadTimeoutError, match=r"last reason: .*(clos|fail)"):
        numbers(reader)
