# SPDX-License-Identifier: Apache-2.0
"""Entries taken in bulk give what each of them gives by itself, whatever the bytes."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pulsar_spark.arrow import message_ids
from pulsar_spark.arrow.decode import RecordBatchBuilder
from pulsar_spark.arrow.message_columns import COLUMN_SOURCES
from pulsar_spark.arrow.runs import allocate
from pulsar_spark.arrow.schema import COLUMN_TYPES, arrow_schema
from pulsar_spark.client import connection as connection_module
from pulsar_spark.client import entry_reader
from pulsar_spark.client.connection import Connection
from pulsar_spark.errors import (
    CorruptEntryError,
    ProtocolError,
    PulsarSparkError,
    TopicNotFoundError,
    TransportError,
)
from pulsar_spark.loops.deliveries import Deliveries
from pulsar_spark.message_id import EARLIEST, MessageId, TopicPositions
from pulsar_spark.options import ServiceUrl
from pulsar_spark.options.patience import USUAL
from pulsar_spark.source.missing import gaps, silence
from pulsar_spark.source.plan.ranges import TopicRange
from pulsar_spark.source.read import range_reader
from pulsar_spark.source.read.range_reader import RangeReader
from pulsar_spark.wire import frames
from pulsar_spark.wire.protocol import ClientProtocol
from tests.support import kernels
from tests.support.settings import range_settings, reader_settings
from tests.wire import builders
from tests.wire.builders import Outer, Sent
from tests.wire.fuzz import MAX_ENTRY_BYTES, Maker

TOPIC = "persistent://public/default/t-partition-3"
SCHEMA = arrow_schema(tuple(COLUMN_TYPES))
COLUMNS = ("values", "keys", "ordering_keys", "properties")
LEDGER = 7
FAR = MessageId(LEDGER + 9, 0)


@dataclass(frozen=True)
class Asked:
    """What is read, and how.

    Attributes:
        pieces: The stream, as a socket gives it.
        start, end: The range.
        rows, size_bytes: The most of a RecordBatch.
        table_rows, table_bytes: The most of a table.
        columns: Of a RecordBatch.
    """

    pieces: Sequence[bytes]
    start: MessageId = EARLIEST
    end: MessageId = FAR
    rows: int = 7
    size_bytes: int = 2000
    table_rows: int = 7
    table_bytes: int = 2000
    columns: pa.Schema = SCHEMA


@dataclass
class Found:
    """What came of it, all that a caller, a user or a broker could notice.

    Attributes:
        batches: The RecordBatches.
        error: What ended the read.
        sent: What went to the broker: permits.
        gaps: What did not come between what came.
        looked_for: Chunked messages whose beginnings were looked for elsewhere.
        rows, size_bytes: What statistics count.
        position: The last entry handed on.
        permits: What the accounting of permits says at the end.
        runs: How many times entries were taken in bulk. Not compared.
    """

    batches: list[pa.RecordBatch] = field(default_factory=list)
    error: str = ""
    sent: list[bytes] = field(default_factory=list)
    gaps: list[gaps.Gap] = field(default_factory=list)
    looked_for: list[tuple[int, int]] = field(default_factory=list)
    rows: int = 0
    size_bytes: int = 0
    position: tuple[int, int] | None = None
    permits: tuple[int, ...] = ()
    runs: int = field(default=0, compare=False)


class Wire:
    """A transport that notes what is sent."""

    def __init__(self, sent: list[bytes]) -> None:
        self._sent = sent

    def send(self, data: bytes) -> None:
        """See `Transport`."""
        self._sent.append(data)

    def shutdown(self) -> None:
        """See `Transport`."""


class Consumer(entry_reader._Consumer):
    """A consumer that has all that it will ever get in pieces of a stream."""

    def __init__(
        self, connection: Connection, pieces: Sequence[bytes], *, in_bulk: bool
    ) -> None:
        super().__init__(connection, 1, 1 << 30, in_bulk=in_bulk)
        self._pieces = list(pieces)

    def take(self, timeout_s: float) -> Any:
        """Let the next piece come where nothing waits."""
        while self._pieces and not self._queue and self._error is None:
            piece, protocol = self._pieces.pop(0), self._connection._protocol
            try:
                self._connection._dispatch_all(protocol.receive_data(piece))
            except ProtocolError as error:
                self.closed(TransportError(error.message, broker="b"))
        return super().take(0)

    def positions(self) -> TopicPositions:
        """Say that nothing is left."""
        return TopicPositions(EARLIEST, None)

    def abandon(self) -> None:
        """Tell nobody."""
        self.abandon_queue()


class Patience:
    """Tries again at once, unless it makes no sense."""

    def restart(self) -> None:
        """See `Retry`."""

    def pause(self, error: PulsarSparkError) -> None:
        """See `Retry`."""
        if not error.retriable:
            raise error


@contextlib.contextmanager
def form_of_kernel(form: str) -> Iterator[Any]:
    """The loops in one of their forms; yields what makes a table."""
    deliveries = kernels.load(form, "deliveries")
    messages = kernels.load(form)
    with contextlib.ExitStack() as stack:
        for module, name, value in (
            (frames, "Scanner", deliveries.Scanner),
            (frames, "Deliveries", deliveries.Deliveries),
            (entry_reader, "Deliveries", deliveries.Deliveries),
            (connection_module, "Deliveries", deliveries.Deliveries),
            (message_ids, "BinaryColumn", messages.BinaryColumn),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        yield messages.MessageTable


def read(asked: Asked, form: str | None) -> Found:
    """Reads in bulk by one form of the kernel, or one entry after the other."""
    found = Found()
    with contextlib.ExitStack() as stack:
        make_table = stack.enter_context(form_of_kernel(form or "python"))
        patch = stack.enter_context
        # What its consumers do not say is not there.
        for module in (range_reader, silence):
            patch(mock.patch.object(module, "is_stored", return_value=False))
        patch(mock.patch.object(range_reader.Trail, "leave"))

        def note(_: Any, *came: Any) -> None:
            found.gaps += gaps.gaps_in(*came)

        patch(mock.patch.object(range_reader.Gaps, "note", note))
        protocol = ClientProtocol(b"")
        list(protocol.receive_data(builders.connected()))
        connection = Connection(Wire(found.sent), protocol, broker="b", keep_alive_s=30)
        pool: Any = SimpleNamespace(
            options=SimpleNamespace(
                patience=replace(USUAL, silence_s=0),
                memory_limit_bytes=MAX_ENTRY_BYTES,
                lookup_timeout_s=30.0,
                operation_timeout_s=30.0,
                service_url=ServiceUrl("pulsar", ()),
            ),
            retry=lambda _: Patience(),
            learnt=lambda _: None,
            learn=lambda *_: None,
        )
        consumers = iter([Consumer(connection, asked.pieces, in_bulk=form is not None)])

        def subscribe(reader: Any) -> Consumer:
            consumer = next(consumers, None)
            if consumer is None:
                raise TopicNotFoundError("no more", code="TopicNotFound", broker="b")
            consumer.grant(reader._permits.initial_grant())
            return consumer

        def look_back(_: Any, last: Any) -> None:
            found.looked_for.append(last.position)

        patch(mock.patch.object(entry_reader.EntryReader, "_subscribe", subscribe))
        patch(mock.patch.object(RangeReader, "_look_back", look_back))
        _read(asked, pool, make_table, found)
    return found


def _read(asked: Asked, pool: Any, make_table: Any, found: Found) -> None:
    builder = RecordBatchBuilder(
        asked.columns,
        COLUMN_SOURCES,
        TOPIC,
        3,
        max_rows=asked.rows,
        max_bytes=asked.size_bytes,
    )
    settings = range_settings(
        reader_settings(poll_timeout_s=60),
        table_rows=asked.table_rows,
        table_bytes=asked.table_bytes,
    )
    range_ = TopicRange(TOPIC, asked.start, asked.end)
    ranged = RangeReader(pool, range_, settings, make_table(COLUMNS, allocate))
    try:
        for entry in ranged.runs():
            found.rows += len(entry)
            found.size_bytes += entry.size_bytes
            found.runs += hasattr(entry, "deliveries")
            if not _add(builder, entry, found):
                return
        if builder.rows:
            found.batches.append(builder.finish())
    except PulsarSparkError as error:
        found.error = f"{type(error).__name__}: {error}"
    reader = ranged.reader
    found.position = reader.position
    reader._refund()
    accounts = reader._permits
    found.permits = (
        accounts.balance,
        accounts.held_messages,
        accounts.held_bytes,
        accounts.window_messages,
        reader.reconnects,
    )


def _add(builder: RecordBatchBuilder, entry: Any, found: Found) -> bool:
    """Adds an entry; returns whether its values fit their columns.

    Where they do not, that ends the read: how far it had unpacked by then is no matter.
    """
    try:
        found.batches += builder.add(entry)
    except CorruptEntryError as error:
        found.error = f"{type(error).__name__}: {error}"
        found.rows = found.size_bytes = 0
        found.sent.clear()
        ledger_id, entry_id = map(int, error.message_id.split(":")[:2])
        found.gaps = [gap for gap in found.gaps if gap.end <= (ledger_id, entry_id)]
        return False
    return True


# -- streams ---------------------------------------------------------------------------


class Topic:
    """Makes a topic's frames, of which most are ordinary."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._maker = Maker(dice)

    def frames(self) -> list[bytes]:
        """Some frames, one after the other."""
        dice = self._dice
        found = []
        ledger_id, entry_id = LEDGER, 0
        oddity = dice.choice((0, 0, 0.1, 0.4))
        for _ in range(dice.randrange(1, 24)):
            entry_id += dice.choice((1, 1, 1, 1, 2, 300))
            if dice.random() < 0.05:
                ledger_id, entry_id = ledger_id + dice.randrange(1, 3), 0
            if dice.random() < oddity / 4:
                entry_id = max(0, entry_id - dice.randrange(4))  # comes again
            if dice.random() < oddity / 4:
                found.append(self._maker._frame())
            if dice.random() < oddity / 4:
                found.append(self._other(ledger_id, entry_id))
            entry = self._entry()
            if dice.random() < oddity:
                entry = self._maker._entry()
            found.append(
                builders.message(entry, ledger_id=ledger_id, entry_id=entry_id)
            )
        return found

    def _other(self, ledger_id: int, entry_id: int) -> bytes:
        """A frame that is no usual MESSAGE for the consumer."""
        dice = self._dice
        place = [(1, ledger_id), (2, entry_id), (3, dice.choice((-1, 0, 5)))]
        body = [
            (1, dice.choice((1, 1, 2))),
            (2, builders.proto(*place[: dice.randrange(2, 4)])),
            (3, dice.choice((None, 3, 2**31, 2**40))),
            (4, dice.choice((None, None, 5))),
            (5, dice.choice((None, 1))),
        ]
        dice.shuffle(body)
        command = builders.command(builders.MESSAGE, *body)
        return dice.choice(
            (
                builders.frame(builders.command(builders.PING)),
                builders.frame(command, self._entry()),
                builders.frame(command + b"\x08\x09", self._entry()),
            )
        )

    def _sent(self) -> Sent:
        dice = self._dice
        pairs = [("a", "1"), ("größe", "ö"), ("a", "2"), ("", "")]
        return Sent(
            payload=dice.choice((None, b"", b"v", dice.randbytes(150))),
            key=dice.choice((None, "", "k", "größe", b"\x00\xff", "k" * 200)),
            ordering_key=dice.choice((None, None, b"", b"\xff")),
            event_time=dice.choice((None, None, 0, 1_700_000_000_000)),
            properties=dice.sample(pairs, dice.choice((0, 0, 1, 4))),
            removed=dice.random() < 0.1,
        )

    def _entry(self) -> bytes:
        dice = self._dice
        extra: list[tuple[int, int | bytes | str]] = [
            (5, "cluster"),
            (7, "other"),
            (16, (5).to_bytes(8, "big")),
            (19, 1_700_000_000_000),
            (22, 1),
            (23, 2**63),
            (24, 9),
            (30, 1),
            (99, 1),
            (99, b"\xff"),
        ]
        outer = Outer(
            producer_name=dice.choice(("producer", "p" * 300, "größe")),
            sequence_id=dice.choice((5, 0, 2**40, 2**63)),
            codec=dice.choice((0, 0, *builders.CODECS)),
            event_time=dice.choice((None, 7)),
            extra=tuple(dice.sample(extra, dice.choice((0, 0, 1, 2)))),
        )
        stamp = builders.proto((1, 1_700_000_000_001), (2, 1000))
        headers: dict[str, Any] = {
            "broker_metadata": dice.choice((None, None, stamp)),
            "checksum": dice.random() < 0.95,
        }
        if dice.random() < 0.4:
            return builders.single(self._sent(), outer, **headers)
        sent = [self._sent() for _ in range(dice.choice((1, 1, 2, 3, 9)))]
        return builders.batch(sent, outer, **headers)


def asked_of(seed: int) -> Asked:
    """What the test below reads for a seed."""
    dice = random.Random(seed)
    stream = b"".join(Topic(dice).frames())
    if dice.random() < 0.1:
        stream = Maker(dice)._damaged(stream)
    cuts = sorted(
        dice.randrange(len(stream) + 1) for _ in range(dice.choice((0, 0, 1, 3, 40)))
    )
    edges = [0, *cuts, len(stream)]
    rows, table_rows = dice.choice((1, 3, 7, 1000)), dice.choice((1, 3, 7, 1000))
    size, table_bytes = dice.choice((100, 2000, 10**6)), dice.choice((100, 2000, 10**6))
    columns = SCHEMA.names
    if dice.random() < 0.5:
        columns = dice.sample(columns, 4)
    return Asked(
        [stream[a:b] for a, b in itertools.pairwise(edges) if a < b],
        dice.choice((EARLIEST, MessageId(LEDGER, 3, 2), MessageId(LEDGER, 1))),
        dice.choice((FAR, MessageId(LEDGER, 9, 1), MessageId(LEDGER + 1, 2))),
        rows,
        size,
        table_rows,
        table_bytes,
        arrow_schema(columns),
    )


@pytest.mark.parametrize("form", kernels.FORMS)
@pytest.mark.parametrize(
    "examples", [20, pytest.param(1000, marks=[pytest.mark.slow, pytest.mark.soak])]
)
def test_the_same_as_one_by_one(form: str, examples: int) -> None:
    """Rows, RecordBatches, errors, permits, positions, counts: all the same."""
    unhealthy = list(HealthCheck)

    @settings(max_examples=examples, deadline=None, suppress_health_check=unhealthy)
    @given(seed=st.integers(0, 2**32))
    @example(seed=0)
    @example(seed=252395)  # a gap behind a value that fits no column
    def compare(seed: int) -> None:
        asked = asked_of(seed)
        assert read(asked, form) == read(asked, None)

    compare()


# -- what is taken together, and what is not -------------------------------------------


def message(number: int, entry: bytes, **ids: int) -> bytes:
    """An entry's frame."""
    return builders.message(entry, **{"ledger_id": LEDGER, "entry_id": number, **ids})


@pytest.mark.parametrize("form", kernels.FORMS)
def test_ordinary_entries_are_taken_together(form: str) -> None:
    """Of any form and codec, however many, as far as they came together."""
    pairs = [("a", "1"), ("b", "ü")]
    sent = Sent(b"value", key="größe", ordering_key=b"o", event_time=5)
    entries = [
        builders.single(sent),
        builders.single(Sent(None, key=b"\x00", properties=pairs)),
        builders.batch([sent] * 3, Outer(extra=((16, b"12345678"), (24, 7)))),
        *(builders.batch([sent] * 3, Outer(codec=codec)) for codec in builders.CODECS),
        *(builders.single(sent, Outer(codec=codec)) for codec in builders.CODECS),
        builders.single(sent, broker_metadata=builders.proto((1, 5), (2, 6))),
    ]
    frames = [message(number, entry) for number, entry in enumerate(entries)]
    asked = Asked([b"".join(frames)], rows=100, size_bytes=10**6, table_rows=100)
    found = read(asked, form)
    assert found.runs == 1
    assert found.rows == len(entries) + 6 * 2
    assert found == read(asked, None)


@pytest.mark.parametrize("form", kernels.FORMS)
def test_more_properties_than_are_taken_at_once(form: str) -> None:
    """All rows are there of a batch that has to be taken in pieces because of them."""
    pairs = [(f"{number}", "") for number in range(4_000)]
    few, many = (builders.batch([Sent(properties=pairs)] * count) for count in (2, 20))
    frames = [message(number, entry) for number, entry in enumerate((few, many, few))]
    asked = Asked(
        [b"".join(frames)],
        rows=100,
        size_bytes=10**7,
        table_rows=100,
        table_bytes=10**7,
    )
    found = read(asked, form)
    assert found.rows == 2 + 20 + 2
    assert found == read(asked, None)


@pytest.mark.parametrize(
    ("entries", "value_bytes", "together"),
    [
        (1024, 10, [1024]),
        (2500, 10, [1024, 1024, 452]),
        (30, 10_000, [26, 4]),
        (2, 70_000, [0, 0]),
    ],
)
def test_how_many_come_together(
    entries: int, value_bytes: int, together: list[int]
) -> None:
    """A thousand or 256 KiB; large ones come alone, for they are not copied."""
    entry = builders.single(Sent(bytes(value_bytes)))
    stream = b"".join(message(number, entry) for number in range(entries))
    protocol = ClientProtocol(b"")
    protocol.in_bulk.add(1)
    events = list(protocol.receive_data(builders.connected() + stream))[1:]
    assert [
        len(event) if isinstance(event, Deliveries) else 0 for event in events
    ] == together


def single(*extra: tuple[int, int | bytes], **outer: Any) -> bytes:
    """An entry of one message."""
    return builders.single(Sent(), Outer(extra=extra, **outer))


#: Frames between others that are ordinary.
ODD = {
    "a chunk": message(1, builders.chunk(b"ab", 0, 2, 4)),
    "a chunk of one": message(1, single((27, 1))),
    "large metadata": message(
        1, builders.single(Sent(properties=[("n", "v" * 20_000)]))
    ),
    "no checksum": message(1, builders.single(Sent(), checksum=False)),
    "a wrong checksum": message(1, single())[:-1] + b"?",
    "a marker": message(1, single((20, 21))),
    "encrypted": message(1, single((13, b""))),
    "indexes of compaction": message(1, single((31, 1))),
    "text that is none": message(1, single(producer_name=b"\xff")),
    "a long name": message(1, single(producer_name="p" * 257)),
    "a large size": message(1, single((9, 6 << 20))),
    "an empty batch": message(1, builders.batch([])),
    "an entry again": message(0, single()),
    "another consumer's": message(1, single(), consumer_id=2),
    "another command": builders.frame(builders.command(builders.PING)),
    "acknowledged messages": builders.frame(
        builders.command(
            builders.MESSAGE,
            (1, 1),
            (2, builders.proto((1, LEDGER), (2, 1))),
            (4, 1),
        ),
        single(),
    ),
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("form", kernels.FORMS)
def test_what_is_not_ordinary_comes_alone(form: str, odd: str) -> None:
    """Those around it are taken together all the same, unless it ends the read."""
    first, last = (message(number, single()) for number in (0, 2))
    found = read(Asked([first + ODD[odd] + last + last[:9]]), form)
    ends_it = found.error.startswith(("CorruptEntryError", "EncryptionError"))
    assert found.runs == (1 if ends_it else 2)
    assert found == read(Asked([first + ODD[odd] + last + last[:9]]), None)


def test_memory_is_charged_as_for_each_by_itself() -> None:
    """And for the sizes of frames, which are copied along."""
    stream = b"".join(message(n, single()) for n in range(50))
    charged = []
    for in_bulk in (set[int](), {1}):
        protocol = ClientProtocol(b"")
        protocol.in_bulk |= in_bulk
        events = list(protocol.receive_data(builders.connected() + stream))[1:]
        assert len(events) == (1 if in_bulk else 50)
        deliveries: Any = events
        charged.append(sum(entry_reader._charges(deliveries, None)))
    assert charged[1] == charged[0] + 50 * 4
