# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import struct
import threading
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client.pool import ConnectionPool
from pulsar_spark.errors import CorruptEntryError, DataLossError, ReadTimeoutError
from pulsar_spark.message_id import MessageId, TxnId
from pulsar_spark.options.patience import USUAL
from pulsar_spark.source.missing.hidden import hides_all
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.source.read.range_reader import RangeReader
from pulsar_spark.wire import pulsar_api_pb2 as pb
from pulsar_spark.wire.commands import ConsumerSettings
from tests.support import patience
from tests.support.ranged import TOPIC, numbers, numbers_meanwhile, place
from tests.support.scripted_broker import (
    LEDGER,
    ScriptedBroker,
    StoredFrame,
    batch,
    client_options,
    cut,
    late,
    lying_chunk,
    numbered,
    refuse,
    silence,
    single,
    then_moves,
    usual,
)
from tests.support.settings import range_settings, reader_settings
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20


@pytest.fixture
def short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers here are asked soon whether anything is left."""
    patience.usual(monkeypatch, silence_s=0.1)


def test_exact_inside_of_batches(scripted: ScriptedBroker, ranged: Any) -> None:
    """Both ends are inclusive, and nothing of the range's neighbours comes."""
    scripted.add_topic(TOPIC, numbered(10, 10))
    assert numbers(ranged(place(2, 3), place(5, 1))) == list(range(23, 52))
    assert numbers(ranged(place(2), place(5))) == list(range(20, 60))
    assert numbers(ranged(place(4, 7), place(4, 7))) == [47]
    wait_until(lambda: not scripted.consumers)


def test_properties_of_the_consumer(scripted: ScriptedBroker, ranged: Any) -> None:
    """They are passed on, for whoever looks at the topic's statistics."""
    scripted.add_topic(TOPIC, numbered(1, 1))
    reader = {"consumer": ConsumerSettings(properties=(("team", "a"),))}
    assert numbers(ranged(place(0), place(0), reader=reader)) == [0]
    (body,) = scripted.bodies["SUBSCRIBE"]
    assert [(one.key, one.value) for one in body.metadata] == [("team", "a")]


def test_an_iterator_that_is_left_early_is_closed(
    scripted: ScriptedBroker, ranged: Any
) -> None:
    """`limit(1)` in Spark leaves no consumer at the broker."""
    scripted.add_topic(TOPIC, numbered(100, 10))
    entries = ranged(place(0), place(99)).entries()
    next(entries)
    entries.close()
    wait_until(lambda: not scripted.consumers)


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


@pytest.mark.parametrize("why", ["slow", "held"])
def test_a_segment_that_stands_still(scripted: ScriptedBroker, why: str) -> None:
    """The end that its broker names is an old one: it is waited for, and nothing lost.

    So it is where the broker delivers nothing, and where it delivers only the first.
    """
    segment = "segment://public/default/t/0000-ffff-0"
    txn, delivers = TxnId(1, 7), threading.Event()
    entries = numbered(6, 1)
    if why == "slow":
        scripted.always("FLOW", late(delivers))
    for held in entries[3:] if why == "held" else ():
        held.metadata.txnid_most_bits = txn.most
        held.metadata.txnid_least_bits = txn.least
    scripted.transactions = {txn: [segment]}
    scripted.add_topic(segment, entries)
    scripted.says_last = pb.MessageIdData(ledgerId=LEDGER, entryId=0)

    def delivers_again(broker: ScriptedBroker, session: Any, command: Any) -> None:
        usual(broker, session, command)
        broker.transactions.clear()
        delivers.set()
        broker.start_thread(broker._deliver_all)

    scripted.script("SUBSCRIBE", *[usual] * 300, delivers_again)
    waits = replace(USUAL, silence_s=0.01, delivery_s=0.02, hidden_s=0.02)
    options = client_options(scripted.address, patience=waits)
    with closing(ConnectionPool(options)) as pool:
        settings = range_settings(reader_settings())
        range_ = TopicRange(segment, place(1), place(5))
        try:
            found = numbers(RangeReader(pool, range_, settings))
        finally:
            delivers.set()
    assert found == [1, 2, 3, 4, 5]


class TestHiddenEntries:
    """What the broker passes over at the end of a range is not waited for."""

    TXN = TxnId(1, 7)

    @classmethod
    def hidden(cls) -> StoredFrame:
        """An entry that is never delivered, though the topic ends with it."""
        return single(
            b"hidden",
            txnid_most_bits=cls.TXN.most,
            txnid_least_bits=cls.TXN.least,
        )

    @pytest.fixture(autouse=True)
    def _in_short(self, monkeypatch: pytest.MonkeyPatch) -> None:
        patience.usual(monkeypatch, silence_s=0.01)

    @pytest.mark.parametrize("seen", [0, 3])
    def test_they_end_a_range(
        self, seen: int, scripted: ScriptedBroker, ranged: Any
    ) -> None:
        """All before them comes, and then the range is over."""
        scripted.aborted.add(self.TXN)
        scripted.add_topic(TOPIC, [*numbered(seen, 1), *[self.hidden()] * 4])
        reader = ranged(place(0), place(seen + 3), reader={"poll_timeout_s": 600.0})
        assert numbers(reader) == list(range(seen))
        wait_until(lambda: not scripted.consumers)

    def test_what_follows_them_is_not_hidden(
        self, scripted: ScriptedBroker, ranged: Any
    ) -> None:
        """A slow broker is waited for, whatever it hides in between."""
        scripted.aborted.add(self.TXN)
        scripted.add_topic(TOPIC, [self.hidden(), *numbered(1, 1)])
        scripted.always("FLOW", silence)
        reader = ranged(place(0), place(1), reader={"poll_timeout_s": 0.7})
        with pytest.raises(ReadTimeoutError):
            numbers(reader)
        scripted.always("FLOW", usual)
        assert numbers(ranged(place(0), place(1))) == [0]

    def test_entries_that_are_gone_are_not_hidden(
        self, scripted: ScriptedBroker, ranged: Any, pool: ConnectionPool
    ) -> None:
        """Retention, too, moves the place of a consumer."""
        scripted.add_topic(TOPIC, numbered(4, 1))
        scripted.roll(TOPIC)
        scripted.trim(TOPIC)
        assert hides_all(pool, TOPIC, place(2), place(3)) is None

    def test_entries_that_come_are_not_hidden(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """A probe that hears something says no."""
        scripted.add_topic(TOPIC, numbered(4, 1))
        assert hides_all(pool, TOPIC, place(2), place(3)) is False

    def test_what_expiry_moves_a_probe_past_is_not_hidden(
        self, scripted: ScriptedBroker, pool: ConnectionPool
    ) -> None:
        """It comes once in minutes: another probe is not moved."""
        scripted.add_topic(TOPIC, numbered(4, 1))

        def expires(broker: ScriptedBroker, session: Any, command: Any) -> None:
            broker.move_readers(TOPIC, 4)

        scripted.script("FLOW", expires)
        assert hides_all(pool, TOPIC, place(2), place(3)) is False


@pytest.mark.usefixtures("short_silence")
def test_the_end_is_gone(scripted: ScriptedBroker, ranged: Any) -> None:
    """Rows that were planned are not there any more: an error, or a warning."""
    scripted.add_topic(TOPIC, numbered(3, 1))
    with pytest.raises(DataLossError, match=r"7:9.*ends at 7:2.*failOnDataLoss"):
        numbers(ranged(place(0), place(9)))


@pytest.mark.usefixtures("short_silence")
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
    wait_until(lambda: not scripted.consumers)
    wait_until(lambda: len(scripted.sessions) == 1)


class TestIncompleteMessages:
    VALUE = struct.pack(">Q", 42) + bytes(100)

    def pieces(self, count: int = 3) -> list[StoredFrame]:
        """The chunks of a message."""
        return [chunk("u", index, count, self.VALUE) for index in range(count)]

    def others(self) -> StoredFrame:
        """A message of another producer."""
        return single(struct.pack(">Q", 1), producer_name="other")

    @pytest.mark.parametrize("begins_at", [None, place(0)])
    @pytest.mark.parametrize("fails", [True, False])
    def test_first_chunks_that_are_gone_are_a_loss(
        self,
        scripted: ScriptedBroker,
        ranged: Any,
        caplog: pytest.LogCaptureFixture,
        fails: bool,
        begins_at: MessageId | None,
    ) -> None:
        """The topic reaches back to nothing else of that producer: it was cut off."""
        scripted.add_topic(TOPIC, [self.others()])
        scripted.roll(TOPIC)
        scripted.append(TOPIC, *self.pieces()[1:], self.others())
        scripted.trim(TOPIC)
        reader = ranged(
            MessageId(8, 1), MessageId(8, 2), fail_on_data_loss=fails, is_protected=True
        )
        reader._range = replace(reader._range, begins_at=begins_at)
        if fails:
            with pytest.raises(DataLossError, match=r"8:1.*begins at 8:0") as caught:
                numbers(reader)
            assert (caught.value.wanted, caught.value.available) == ("8:1", "8:0")
        else:
            assert numbers(reader) == [1]
            assert "PULSAR_DATA_LOSS" in caplog.text

    def test_all_that_was_before_the_last_chunk_is_gone(
        self, scripted: ScriptedBroker, ranged: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also the place where the search would begin: retention ran meanwhile."""
        first, *_, last = self.pieces()
        scripted.add_topic(TOPIC, [first])
        scripted.append(TOPIC, last, self.others())
        look_back = RangeReader._look_back

        def trimmed(self: RangeReader, last: Any) -> Any:
            scripted.roll(TOPIC)
            scripted.append(TOPIC, single(b"later"))
            scripted.trim(TOPIC)
            return look_back(self, last)

        monkeypatch.setattr(RangeReader, "_look_back", trimmed)
        with pytest.raises(DataLossError, match=r"7:1.*begins at 8:0"):
            numbers(ranged(place(1), place(2)))

    def test_first_chunks_that_never_were_are_no_loss(
        self, scripted: ScriptedBroker, ranged: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Something else of the producer is stored before: it goes back far enough."""
        earlier = single(struct.pack(">Q", 7))
        scripted.add_topic(TOPIC, [earlier, *self.pieces()[1:], self.others()])
        assert numbers(ranged(place(0), place(3))) == [7, 1]
        (warning,) = [
            r.getMessage() for r in caplog.records if r.levelname == "WARNING"
        ]
        assert "7:2 is incomplete" in warning

    def test_chunks_that_go_while_they_are_looked_for_are_a_loss(
        self, scripted: ScriptedBroker, ranged: Any
    ) -> None:
        """The search breaks off behind the first one; then retention runs."""
        first, middle, last = self.pieces()
        scripted.add_topic(TOPIC, [single(b"a"), first, middle])
        ledger = scripted.roll(TOPIC)
        scripted.append(TOPIC, last, self.others())

        def trim(broker: ScriptedBroker, session: Any, command: Any) -> None:
            broker.trim(TOPIC)
            broker.hang_up(session)

        # The reader's, and what brings the search its first three entries.
        scripted.script("FLOW", *[usual] * 3, trim)
        end = MessageId(ledger, 0)
        reader = ranged(end, end, reader={"receiver_queue_messages": 1})
        with pytest.raises(DataLossError, match=r"8:0.*begins at 8:0"):
            numbers(reader)

    @pytest.mark.parametrize("missing", [1, 2])
    def test_chunks_in_the_middle_that_never_were_are_no_loss(
        self,
        scripted: ScriptedBroker,
        ranged: Any,
        caplog: pytest.LogCaptureFixture,
        missing: int,
    ) -> None:
        """What is between two stored entries cannot be gone. One search is enough."""
        pieces = self.pieces(4)
        del pieces[missing]
        scripted.add_topic(TOPIC, [*pieces, self.others()])
        assert numbers(ranged(place(0), place(3))) == [1]
        assert "7:2 is incomplete" in caplog.text
        assert len(scripted.bodies["SUBSCRIBE"]) == 2

    def test_where_a_read_begins_with_the_topic(
        self, scripted: ScriptedBroker, ranged: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """What had begun before that is no part of it: for each task, of several."""
        scripted.add_topic(TOPIC, [self.others(), *self.pieces()[1:], self.others()])
        for start in (0, 2):
            reader = ranged(place(start), place(3))
            reader._range = replace(reader._range, begins_at=place(0))
            assert numbers(reader)[-1] == 1
        assert caplog.text.count("7:2 is incomplete") == 2
        assert "PULSAR_DATA_LOSS" not in caplog.text

    @pytest.mark.parametrize("resent", [(2,), (1, 2), (2, 2)])
    def test_last_chunks_that_are_stored_twice(
        self,
        scripted: ScriptedBroker,
        ranged: Any,
        caplog: pytest.LogCaptureFixture,
        resent: tuple[int, ...],
    ) -> None:
        """After a lost receipt: one row, and no alarm; in another range, too."""
        pieces = self.pieces()
        entries = [*pieces, *(pieces[index] for index in resent), self.others()]
        scripted.add_topic(TOPIC, entries)
        end = len(entries) - 1
        assert numbers(ranged(place(0), place(end))) == [42, 1]
        assert numbers(ranged(place(3), place(end))) == [1]
        assert caplog.text == ""

    def test_a_last_chunk_of_which_only_the_repetition_is_left(
        self, scripted: ScriptedBroker, ranged: Any
    ) -> None:
        """It looks like a message whose chunks are gone: docs/guarantees.md says so."""
        pieces = self.pieces()
        scripted.add_topic(TOPIC, pieces)
        later = scripted.roll(TOPIC)
        scripted.append(TOPIC, pieces[-1], self.others())
        assert numbers(ranged(MessageId(later, 0), MessageId(later, 1))) == [1]
        scripted.trim(TOPIC)
        with pytest.raises(DataLossError, match=f"last chunk of a message, {later}:0"):
            numbers(ranged(MessageId(later, 0), MessageId(later, 1)))

    def test_a_name_that_is_used_again(
        self, scripted: ScriptedBroker, ranged: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A message is not taken for a repeated end of another one of its name."""
        pieces = self.pieces()
        again = [chunk("u", i, 3, struct.pack(">Q", 43) + bytes(100)) for i in range(3)]
        scripted.add_topic(TOPIC, [*pieces, *again, *pieces[:1], *pieces[2:]])
        assert numbers(ranged(place(5), place(5))) == [43]
        assert caplog.text == ""
        assert numbers(ranged(place(6), place(7))) == []
        assert "7:7 is incomplete" in caplog.text

    def test_the_search_hears_nothing(
        self, scripted: ScriptedBroker, ranged: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It ends with an error that names the message."""
        patience.usual(monkeypatch, silence_s=60.0)  # for the first entry
        first, last = self.pieces(2)
        scripted.add_topic(TOPIC, [first, last])
        scripted.script("FLOW", usual)
        scripted.always("FLOW", silence)
        reader = ranged(place(1), place(1), reader={"poll_timeout_s": 0.3})
        with pytest.raises(ReadTimeoutError, match=r"earlier chunks.*7:1"):
            numbers(reader)

    def test_bad_entries_between_the_chunks_of_the_first_message(
        self, scripted: ScriptedBroker, ranged: Any
    ) -> None:
        """They are before the range, so that nobody asks what is in them."""
        first, last = self.pieces(2)
        contradiction = chunk("v", 5, 5, b"v" * 10)
        contradiction.metadata.chunk_id = 7
        broken = batch([b"a" * 8])
        bad = [contradiction, StoredFrame(broken.metadata, b"", 1)]
        scripted.add_topic(TOPIC, [first, *bad, last])
        start = MessageId(LEDGER, 3, first_chunk=place(0))
        assert numbers(ranged(start, place(3))) == [42]
        with pytest.raises(CorruptEntryError, match=f"{LEDGER}:1"):
            numbers(ranged(place(0), place(3)))

    def damaged(self, frame: StoredFrame) -> StoredFrame:
        """The same entry, of which a byte flips on its way."""
        return replace(frame, is_damaged=True)

    def test_damaged_entries_between_the_chunks(
        self, scripted: ScriptedBroker, ranged: Any
    ) -> None:
        """Who reads around one still gets a message that does not need it."""
        first, last = self.pieces(2)
        bad = self.damaged(self.others())
        scripted.add_topic(TOPIC, [bad, first, bad, bad, last])
        with pytest.raises(CorruptEntryError, match=f"Message {LEDGER}:2 of"):
            numbers(ranged(place(1), place(4)))
        one = {"receiver_queue_messages": 1, "poll_timeout_s": 60.0}
        assert numbers(ranged(place(4), place(4), reader=one)) == [42]

    def test_a_damaged_chunk(self, scripted: ScriptedBroker, ranged: Any) -> None:
        """It is no chunk that never was: the error names it, and not the last one."""
        first, middle, last = self.pieces()
        bad = self.damaged(self.others())
        scripted.add_topic(TOPIC, [bad, first, self.damaged(middle), last])
        for fails in (True, False):
            reader = ranged(place(3), place(3), fail_on_data_loss=fails)
            with pytest.raises(CorruptEntryError, match=f"Message {LEDGER}:2 of"):
                numbers(reader)

    def test_a_damaged_first_chunk(self, scripted: ScriptedBroker, ranged: Any) -> None:
        """Nor is it one that is gone."""
        first, last = self.pieces(2)
        scripted.add_topic(TOPIC, [self.others(), self.damaged(first), last])
        with pytest.raises(CorruptEntryError, match=f"Message {LEDGER}:1 of"):
            numbers(ranged(place(2), place(2)))

    @pytest.mark.parametrize("fails", [True, False])
    def test_the_topic_is_deleted_while_chunks_are_looked_for(
        self, scripted: ScriptedBroker, ranged: Any, *, fails: bool
    ) -> None:
        """That is a loss, as at any other time."""
        scripted.add_topic(TOPIC, self.pieces(2))

        def delete(broker: ScriptedBroker, session: Any, command: Any) -> None:
            broker.delete_topic(TOPIC)
            broker.answer(session, command)

        scripted.script("SUBSCRIBE", usual, delete)
        reader = ranged(place(1), place(1), fail_on_data_loss=fails)
        if fails:
            with pytest.raises(DataLossError, match="deleted"):
                numbers(reader)
        else:
            assert numbers(reader) == []


@pytest.mark.usefixtures("short_silence")
class TestACompactedReadWithoutItsEnd:
    """Compaction may have removed it, or the topic no longer has it: a loss."""

    @pytest.fixture
    def compacted(self, ranged: Any) -> Callable[..., RangeReader]:
        """Makes a reader of the compacted topic."""
        return partial(
            ranged, reader={"consumer": ConsumerSettings(read_compacted=True)}
        )

    @pytest.mark.parametrize("entries", [0, 3], ids=["empty", "a part"])
    def test_the_topic_does_not_reach_it(
        self, scripted: ScriptedBroker, compacted: Any, entries: int
    ) -> None:
        """No compaction does that: an error, however often the broker says so."""
        scripted.add_topic(TOPIC, numbered(entries, 1))
        with pytest.raises(DataLossError, match=r"up to 7:9.*failOnDataLoss"):
            numbers(compacted(place(0), place(9)))
        wait_until(lambda: not scripted.consumers)

    @pytest.mark.parametrize("entries", [0, 3], ids=["empty", "with rows"])
    def test_the_topic_is_another_one(
        self, scripted: ScriptedBroker, compacted: Any, entries: int
    ) -> None:
        """Deleted and created again, it begins with a later ledger."""
        scripted.add_topic(TOPIC, numbered(3, 1))
        scripted.delete_topic(TOPIC)
        scripted.add_topic(TOPIC, numbered(entries, 1))
        with pytest.raises(
            DataLossError, match=r"up to 7:2, but the topic.*Nothing was"
        ):
            numbers(compacted(place(0), place(2)))
        wait_until(lambda: not scripted.consumers)

    def test_and_that_is_fine(
        self,
        scripted: ScriptedBroker,
        compacted: Any,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """With `failOnDataLoss` false there is a warning, and what there is."""
        scripted.add_topic(TOPIC, numbered(3, 1))
        reader = compacted(place(0), place(9), fail_on_data_loss=False)
        with caplog.at_level(logging.WARNING, "pulsar_spark"):
            assert numbers(reader) == [0, 1, 2]
        assert "PULSAR_DATA_LOSS" in caplog.text

    def test_its_start_is_not_missed(
        self, scripted: ScriptedBroker, compacted: Any
    ) -> None:
        """Compaction might have removed that, too: docs/guarantees.md says so."""
        scripted.add_topic(TOPIC, numbered(3, 1))
        later = scripted.roll(TOPIC)
        scripted.append(TOPIC, *numbered(6, 1)[3:])
        scripted.trim(TOPIC)
        assert numbers(compacted(place(0), MessageId(later, 2))) == [3, 4, 5]

    def test_it_comes_late(self, scripted: ScriptedBroker, compacted: Any) -> None:
        """Three times the broker does not know of it, and then it does."""
        scripted.add_topic(TOPIC, numbered(3, 1))
        later = numbered(6, 1)[3:]

        def then_more(broker: ScriptedBroker, session: Any, command: Any) -> None:
            broker.append(TOPIC, *later)
            usual(broker, session, command)

        scripted.script("GET_LAST_MESSAGE_ID", usual, usual, usual, then_more)
        assert numbers(compacted(place(0), place(5))) == list(range(6))


class TestTheTopicMoves:
    """A broker closes a topic, and is not ready for it again for a while.

    So it does for up to 30 s where it recovers a topic's transactions.
    """

    REFUSALS = 40

    def close(self, scripted: ScriptedBroker, command: str) -> None:
        """Closes the topic's readers; the next requests are refused."""
        scripted.script(command, *[refuse("ServiceNotReady")] * self.REFUSALS)
        scripted.close_consumers(TOPIC)

    @pytest.mark.parametrize("command", ["LOOKUP", "SUBSCRIBE", "GET_LAST_MESSAGE_ID"])
    def test_under_a_reader(
        self,
        scripted: ScriptedBroker,
        ranged: Any,
        monkeypatch: pytest.MonkeyPatch,
        command: str,
    ) -> None:
        """It comes back right after the last row."""

        def flow_once_answered(broker: ScriptedBroker, session: Any, c: Any) -> None:
            if scripted.requests[command] >= self.REFUSALS:
                usual(broker, session, c)

        scripted.add_topic(TOPIC, numbered(12, 10))
        if command == "GET_LAST_MESSAGE_ID":  # asked where no entry comes
            patience.usual(monkeypatch, proof_s=0.01)
        reader = ranged(place(0), place(11), reader={"receiver_queue_messages": 1})
        entries = reader.entries()
        seen = [struct.unpack_from(">Q", p)[0] for p in next(entries).payloads]
        if command == "GET_LAST_MESSAGE_ID":
            scripted.always("FLOW", flow_once_answered)
        self.close(scripted, command)
        for entry in entries:
            seen += [struct.unpack_from(">Q", payload)[0] for payload in entry.payloads]
        assert seen == list(range(120))
        is_asked_once = command != "GET_LAST_MESSAGE_ID"  # where nothing is wrong
        assert scripted.requests[command] >= self.REFUSALS + is_asked_once

    @pytest.mark.usefixtures("clock")
    def test_for_longer_than_it_waits(
        self, scripted: ScriptedBroker, ranged: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The error says what the broker said."""
        patience.usual(monkeypatch, silence_s=60.0)  # for the first entry
        scripted.add_topic(TOPIC, numbered(12, 10))
        settings = {"receiver_queue_messages": 1, "poll_timeout_s": 0.5}
        entries = ranged(place(0), place(11), reader=settings).entries()
        next(entries)
        scripted.always("SUBSCRIBE", refuse("ServiceNotReady", "recovering"))
        scripted.close_consumers(TOPIC)
        with pytest.raises(ReadTimeoutError, match=r"pollTimeoutMs.*recovering"):
            list(entries)

    def test_under_a_search_for_chunks(
        self, scripted: ScriptedBroker, ranged: Any
    ) -> None:
        """The second reader comes back, too."""
        value = struct.pack(">Q", 42) + bytes(100)
        scripted.add_topic(TOPIC, [chunk("u", i, 2, value) for i in range(2)])
        scripted.script(
            "SUBSCRIBE", usual, *[refuse("ServiceNotReady")] * self.REFUSALS
        )
        assert numbers(ranged(place(1), place(1))) == [42]
        assert scripted.requests["SUBSCRIBE"] > self.REFUSALS

    def test_what_a_broker_does_not_know_yet_is_not_gone(
        self, scripted: ScriptedBroker, ranged: Any
    ) -> None:
        """Twice it says that the topic ends earlier, and then it delivers the rest."""
        scripted.add_topic(TOPIC, numbered(3, 1))
        later = numbered(6, 1)[3:]

        def then_more(broker: ScriptedBroker, session: Any, command: Any) -> None:
            usual(broker, session, command)
            broker.append(TOPIC, *later)

        scripted.script("GET_LAST_MESSAGE_ID", usual, then_more)
        assert numbers(ranged(place(0), place(5))) == list(range(6))
        assert scripted.requests["GET_LAST_MESSAGE_ID"] == 2

    @pytest.mark.parametrize("taken", [0, 3])
    @pytest.mark.parametrize("is_gone", [False, True])
    def test_a_topic_that_is_said_to_be_empty(
        self,
        scripted: ScriptedBroker,
        ranged: Any,
        monkeypatch: pytest.MonkeyPatch,
        taken: int,
        *,
        is_gone: bool,
    ) -> None:
        """It may be about to move, however often it is said; or it is empty."""
        patience.usual(monkeypatch, silence_s=0.01)
        scripted.add_topic(TOPIC, numbered(6, 1))
        reader = ranged(place(0), place(5), reader={"receiver_queue_messages": 1})

        def then_closing(broker: ScriptedBroker, session: Any, command: Any) -> None:
            usual(broker, session, command)
            broker.closing.add(TOPIC)
            if is_gone:
                broker.roll(TOPIC)
                broker.trim(TOPIC)

        scripted.script("GET_LAST_MESSAGE_ID", *[usual] * 15, then_moves)
        if taken:
            scripted.script("FLOW", *[usual] * (taken - 1), then_closing)
        else:
            scripted.script("SUBSCRIBE", then_closing)
        if is_gone:
            with pytest.raises(
                DataLossError, match=r"ends at its beginning|it is empty"
            ):
                numbers(reader)
            assert scripted.requests["GET_LAST_MESSAGE_ID"] <= 5
        else:
            assert numbers(reader) == list(range(6))
            assert scripted.requests["GET_LAST_MESSAGE_ID"] > 15

    @pytest.mark.parametrize("says", ["empty", "more"])
    def test_a_reader_that_nobody_tells_of_a_move(
        self,
        scripted: ScriptedBroker,
        ranged: Any,
        monkeypatch: pytest.MonkeyPatch,
        says: str,
    ) -> None:
        """It gets nothing, and another one would: it comes back."""
        patience.usual(monkeypatch, silence_s=0.01)
        scripted.add_topic(TOPIC, numbered(6, 1))

        def then_served(broker: ScriptedBroker, session: Any, command: Any) -> None:
            broker.closing.clear()
            usual(broker, session, command)

        scripted.script("FLOW", silence)
        if says == "empty":
            scripted.closing.add(TOPIC)
            # It, and two probes; then it comes back.
            scripted.script("SUBSCRIBE", *[usual] * 3, then_served)
        reader = ranged(place(0), place(5), reader={"poll_timeout_s": 600.0})
        assert numbers(reader) == list(range(6))
        assert reader.reader.reconnects == 1
        wait_until(lambda: not scripted.consumers)

    def test_a_broker_that_delivers_to_nobody(
        self, scripted: ScriptedBroker, ranged: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Half of the time is for another one, which a lookup may name."""
        patience.usual(monkeypatch, silence_s=0.01, hidden_s=0.0)
        scripted.add_topic(TOPIC, numbered(6, 1))
        scripted.always("FLOW", silence)
        reader = ranged(place(0), place(5), reader={"poll_timeout_s": 2.0})
        with pytest.raises(ReadTimeoutError, match="delivers nothing"):
            numbers(reader)
        assert reader.reader.reconnects == 1

    def test_a_topic_that_moves_on_and_on(
        self, scripted: ScriptedBroker, ranged: Any
    ) -> None:
        """What several of its brokers say first does not add up to a certainty."""
        scripted.add_topic(TOPIC, numbered(3, 1))
        later = numbered(6, 1)[3:]

        def then_it_moves(broker: ScriptedBroker, session: Any, command: Any) -> None:
            usual(broker, session, command)
            broker.close_consumers(TOPIC)

        def then_more(broker: ScriptedBroker, session: Any, command: Any) -> None:
            usual(broker, session, command)
            broker.append(TOPIC, *later)

        moves = [then_it_moves] * 4  # each when nothing came behind a subscribing
        scripted.script("GET_LAST_MESSAGE_ID", *moves, then_more)
        assert numbers(ranged(place(0), place(5))) == list(range(6))
        assert scripted.requests["SUBSCRIBE"] == 5


@pytest.mark.usefixtures("short_silence")
@pytest.mark.parametrize("is_protected", [True, False])
@pytest.mark.parametrize("ledgers", [1, 2])
def test_the_topic_begins_right_behind_the_range(
    scripted: ScriptedBroker, ranged: Any, ledgers: int, is_protected: bool
) -> None:
    """A subscription has kept all up to the end: what is gone had been read."""
    scripted.add_topic(TOPIC, numbered(5, 1))
    for _ in range(ledgers):
        scripted.roll(TOPIC)
        scripted.append(TOPIC, *numbered(1, 1))
    scripted.trim(TOPIC, ledgers=ledgers)
    reader = ranged(place(5), MessageId(LEDGER + 1, -1), is_protected=is_protected)
    if is_protected and ledgers == 1:
        assert numbers(reader) == []
        return
    with pytest.raises(DataLossError, match="7:5"):
        numbers(reader)


class TestRetentionMeanwhile:
    """Ledgers of three entries, which may go while they are read."""

    @pytest.fixture
    def last(self, scripted: ScriptedBroker) -> int:
        """The third of the ledgers, of three entries each."""
        values = numbered(9, 1)
        scripted.add_topic(TOPIC, values[:3])
        scripted.roll(TOPIC)
        scripted.append(TOPIC, *values[3:6])
        last = scripted.roll(TOPIC)
        scripted.append(TOPIC, *values[6:])
        return last

    @pytest.mark.parametrize("is_strict", [True, False])
    @pytest.mark.parametrize("end", [2, 5])
    def test_what_was_not_read_is_lost(
        self,
        scripted: ScriptedBroker,
        ranged: Any,
        last: int,
        end: int,
        *,
        is_strict: bool,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Also where the range ends in a ledger that is gone."""
        until = MessageId(last, 2) if end == 5 else MessageId(last - 1, 2)
        small = {"receiver_queue_messages": 1}
        reader = ranged(place(0), until, reader=small, fail_on_data_loss=is_strict)
        if is_strict:
            with pytest.raises(DataLossError, match=r"while it was read|meanwhile"):
                numbers_meanwhile(reader, 2, lambda: scripted.trim(TOPIC))
            return
        found = numbers_meanwhile(reader, 2, lambda: scripted.trim(TOPIC))
        assert found == ([0, 1, 6, 7, 8] if end == 5 else [0, 1])
        assert "PULSAR_DATA_LOSS" in caplog.text

    def test_before_an_end_that_is_hidden(
        self, scripted: ScriptedBroker, ranged: Any
    ) -> None:
        """The end is stored, what was before it is not."""
        scripted.aborted.add(TestHiddenEntries.TXN)
        scripted.add_topic(TOPIC, numbered(6, 1))
        last = scripted.roll(TOPIC)
        scripted.append(TOPIC, TestHiddenEntries.hidden(), *numbered(1, 1))
        small = {"receiver_queue_messages": 1}
        reader = ranged(place(0), MessageId(last, 0), reader=small)
        with pytest.raises(DataLossError, match=":1 may be"):
            numbers_meanwhile(reader, 2, lambda: scripted.trim(TOPIC))

    def test_before_anything_was_read(
        self,
        scripted: ScriptedBroker,
        ranged: Any,
        last: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """A broker says that the start is there, and loses it then."""
        patience.usual(monkeypatch, proof_s=0.01)
        is_gone = threading.Event()

        def say_and_lose(broker: ScriptedBroker, *asked: Any) -> None:
            usual(broker, *asked)
            broker.trim(TOPIC)
            is_gone.set()

        scripted.script("FLOW", late(is_gone))
        scripted.script("GET_LAST_MESSAGE_ID", say_and_lose)
        reader = ranged(place(0), MessageId(last, 2))
        with pytest.raises(DataLossError, match="while it was read"):
            numbers(reader)

    def test_what_was_read_is_not(
        self, scripted: ScriptedBroker, ranged: Any, last: int
    ) -> None:
        """One look is at the first ledger that was left, one in the end."""
        small = {"receiver_queue_messages": 1}
        reader = ranged(place(0), MessageId(last, 2), reader=small)
        assert numbers_meanwhile(reader, 2, lambda: None) == list(range(9))
        assert scripted.requests["SUBSCRIBE"] == 3

    def test_a_broker_that_cannot_tell(
        self, scripted: ScriptedBroker, ranged: Any, last: int
    ) -> None:
        """What may have been lost in silence is an error in the end."""
        refusals = [refuse("ServiceNotReady")] * 100
        settings = {"receiver_queue_messages": 1, "poll_timeout_s": 0.3}
        reader = ranged(place(0), MessageId(last, 2), reader=settings)
        with pytest.raises(ReadTimeoutError, match=r"did not say.*pollTimeoutMs"):
            numbers_meanwhile(
                reader, 2, lambda: scripted.script("SUBSCRIBE", *refusals)
            )

    def test_the_topic_is_deleted(
        self, scripted: ScriptedBroker, ranged: Any, last: int
    ) -> None:
        """Before it is known whether all was there."""
        small = {"receiver_queue_messages": 1}
        reader = ranged(place(0), MessageId(last, 2), reader=small)
        with pytest.raises(DataLossError, match="was deleted"):
            numbers_meanwhile(reader, 9, lambda: scripted.delete_topic(TOPIC))


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
    reader = ranged(place(1), place(525), limits, {"poll_timeout_s": 60.0})
    look_back = RangeReader._look_back

    def once_full(self: RangeReader, last: Any) -> Any:
        consumer = self.reader._consumer
        assert consumer is not None
        wait_until(lambda: consumer._queued_bytes >= 4 * MIB, "a full queue")
        return look_back(self, last)

    monkeypatch.setattr(RangeReader, "_look_back", once_full)
    assert numbers(reader) == [*range(500), 42, *range(24)]
    assert reader.reader.reconnects == 0


@pytest.mark.parametrize(("limit", "released"), [(8 * MIB, 2), (64 * MIB, 0)])
def test_unused_memory_is_released_before_a_large_message(
    scripted: ScriptedBroker, ranged: Any, limit: int, released: int
) -> None:
    """One of more than a quarter of the limit; small ones never cost that."""
    value = struct.pack(">Q", 42) + bytes(6 * MIB)
    large = [chunk("u", index, 2, value) for index in range(2)]
    scripted.add_topic(TOPIC, [*numbered(2, 1), *large, *numbered(1, 1), *large])
    reader = ranged(place(0), place(6), {"memory_limit_bytes": limit})
    read: list[int] = []
    seen: list[list[int]] = []
    reader._release_unused = lambda: seen.append(read[:])
    for entry in reader.entries():
        read += [struct.unpack_from(">Q", payload)[0] for payload in entry.payloads]
    assert read == [0, 1, 42, 0, 42]
    assert seen == [[0, 1], [0, 1, 42, 0]][:released]


def test_silence_after_trouble_tells_of_the_trouble(
    scripted: ScriptedBroker, ranged: Any
) -> None:
    """Where connections keep breaking, the error says so."""
    scripted.add_topic(TOPIC, numbered(3, 1))
    scripted.always("FLOW", cut)
    reader = ranged(place(0), place(2), reader={"poll_timeout_s": 0.7})
    with pytest.raises(ReadTimeoutError, match=r"last reason: .*(clos|fail)"):
        numbers(reader)


@pytest.mark.parametrize("messages", [2**31 - 1, 0, -3, -(2**31)])
@pytest.mark.parametrize("together", [1, 3, 50])
def test_chunks_that_say_they_are_billions(
    scripted: ScriptedBroker, ranged: Any, together: int, messages: int
) -> None:
    """Permits are refunded as they were taken: no error, no stall, no reconnect."""
    good = numbered(60, 5)
    lies = [lying_chunk(index, messages) for index in range(together)]
    scripted.add_topic(TOPIC, [*good[:20], *lies, *good[20:40], *lies, *good[40:]])
    reader = ranged(place(0), place(59 + 2 * together), reader={"poll_timeout_s": 60.0})
    assert numbers(reader) == list(range(300))
    assert reader.reader.reconnects == 0
