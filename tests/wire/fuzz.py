# SPDX-License-Identifier: Apache-2.0
"""Any bytes, all the way from the socket to a RecordBatch: rows, or one clear error.

    python -m tests.wire.fuzz --seconds 600 --seed 1

A case is a stream of bytes: noise, or frames that are damaged somewhere. Damage is done
at a random depth, and everything around it is right: a bad batch comes with the right
checksum, for otherwise the checksum is all that is ever tested. The stream goes through
the same code as a broker's would, and may end in three ways:

- events, entries and RecordBatches, each of which Arrow finds valid;
- a ProtocolError, after which the connection is of no use;
- a CorruptEntryError for an entry, after which the next entry is read.

Any other exception, a case that takes seconds, or memory far beyond the limit of frames
and entries is a bug. A case is found again by its seed and number.
"""

from __future__ import annotations

import argparse
import itertools
import random
import struct
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow as pa

from pulsar_spark.arrow.decode import RecordBatchBuilder
from pulsar_spark.arrow.message_columns import COLUMN_SOURCES
from pulsar_spark.arrow.schema import COLUMN_TYPES, arrow_schema
from pulsar_spark.errors import CorruptEntryError, ProtocolError
from pulsar_spark.loops.deliveries import Deliveries
from pulsar_spark.message_id import MessageId
from pulsar_spark.wire.chunks import ChunkAssembler, MissingChunks
from pulsar_spark.wire.entries import Entry, EntryDecoder, read_stored_entry
from pulsar_spark.wire.protocol import ClientProtocol, Delivery, delivery_of
from tests.wire import builders
from tests.wire.builders import CODECS, Outer, Sent, command, frame, proto

MAX_MESSAGE_BYTES = 20_000
MAX_ENTRY_BYTES = 50_000
MAX_ROWS = 7
MAX_BATCH_BYTES = 500

#: A case that needs longer than this, in seconds, hangs.
TOO_LONG_S = 5.0

#: What is promised: three times the limit, and what does not depend on it.
TOO_MUCH_BYTES = 3 * MAX_ENTRY_BYTES + 1_000_000

EXTREMES = (0, 1, 2, 127, 128, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63)
NUMBERS = (*EXTREMES, 2**64 - 1)
TEXTS = (b"", b"a", "größe".encode(), b"\xff\xfe", b"\xed\xa0\x80", b"\x00", b"===")

#: Types of the commands that a broker may send and that mean something to us.
KINDS = (
    *(7, 8, 9, 13, 14, 15, 16, 17, 18, 22, 24, 26, 30, 33, 36, 38),
    *(51, 53, 57, 63),
)

SCHEMA = arrow_schema(tuple(COLUMN_TYPES))


def read(stream: bytes, cuts: list[int], *, in_bulk: bool = False) -> Counter[str]:
    """Reads a stream that is cut in pieces; counts what came of it.

    Args:
        stream: The bytes.
        cuts: Where they are cut.
        in_bulk: Whether ordinary entries come together, which changes nothing else.
    """
    found: Counter[str] = Counter()
    protocol = ClientProtocol(b"")
    if in_bulk:
        protocol.in_bulk.add(1)
    chunks = ChunkAssembler(MAX_ENTRY_BYTES, max_pending=3, expire_ms=60_000)
    edges = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    try:
        for first, last in itertools.pairwise(edges):
            for event in protocol.receive_data(stream[first:last]):
                if isinstance(event, Deliveries):
                    _read_together(event, chunks, found)
                    continue
                found[type(event).__name__] += 1
                if isinstance(event, Delivery):
                    _read_entry(event, chunks, found)
    except CorruptEntryError:
        raise AssertionError("an entry's damage must not end the stream") from None
    except ProtocolError:
        found["ProtocolError"] += 1
    return found


def _read_together(
    deliveries: Deliveries, chunks: ChunkAssembler, found: Counter[str]
) -> None:
    """Reads ordinary entries, each into a table of its own as the others are."""
    for number in range(len(deliveries)):
        found["Delivery"] += 1
        run = _decoder().take(deliveries, number, number + 1)
        if run is None:
            _read_entry(delivery_of(deliveries, number), chunks, found)
            continue
        try:
            for entry in run.entries:
                found["rows"] += _check_entry(entry)
        except CorruptEntryError:  # a value that does not fit its column
            found["CorruptEntryError"] += 1


def _decoder() -> EntryDecoder:
    return EntryDecoder(
        MAX_ENTRY_BYTES, table_rows=MAX_ROWS, table_bytes=MAX_BATCH_BYTES
    )


def _read_entry(event: Delivery, chunks: ChunkAssembler, found: Counter[str]) -> None:
    try:
        stored = read_stored_entry(
            event.ledger_id, event.entry_id, event.headers_and_payload
        )
        assert -(2**31) <= stored.charged_messages < 2**31
        assert 0 < stored.likely_rows <= max(1, MAX_ENTRY_BYTES << 15)
        if stored.is_chunk and not stored.is_marker:
            whole = chunks.add(stored)
            if whole is None or isinstance(whole, MissingChunks):
                found[type(whole).__name__] += 1
                return
            stored = whole
        for entry in _decoder().pieces(stored):
            found["rows"] += _check_entry(entry)
    except CorruptEntryError:
        found["CorruptEntryError"] += 1


def _check_entry(entry: Entry) -> int:
    """Turns an entry into RecordBatches; the number of rows."""
    indexes = list(entry.batch_indexes)
    assert indexes == sorted(set(indexes))
    assert all(0 <= index < max(entry.batch_size, 1) for index in indexes)
    assert len(indexes) == len(entry)
    middle = MessageId(*entry.position, batch_index=len(entry) // 2)
    sides = entry.between(MessageId(0, 0), middle), entry.between(middle, middle)
    assert len(sides[1]) <= len(sides[0]) <= len(entry)
    builder = RecordBatchBuilder(
        SCHEMA,
        COLUMN_SOURCES,
        "topic",
        -1,
        max_rows=MAX_ROWS,
        max_bytes=MAX_BATCH_BYTES,
    )
    rows = 0
    for record_batch in _record_batches(builder, entry):
        record_batch.validate(full=True)
        assert 0 < record_batch.num_rows <= MAX_ROWS
        rows += record_batch.num_rows
    assert rows == len(entry)
    return rows


def _record_batches(
    builder: RecordBatchBuilder, entry: Entry
) -> Iterator[pa.RecordBatch]:
    yield from builder.add(entry)
    if builder.rows:
        yield builder.finish()


class Maker:
    """Makes streams, most of them wrong somewhere."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice

    def stream(self) -> bytes:
        """A stream: noise, or a handshake and frames behind it."""
        dice = self.dice
        if dice.random() < 0.05:
            return dice.randbytes(dice.randrange(60))
        frames = [builders.connected(MAX_MESSAGE_BYTES)]
        frames += [self._frame() for _ in range(dice.randrange(1, 5))]
        stream = b"".join(frames)
        return self._damaged(stream) if dice.random() < 0.1 else stream

    def _frame(self) -> bytes:
        dice = self.dice
        kind = dice.randrange(20)
        if kind == 0:
            return frame(dice.randbytes(dice.randrange(1, 30)))
        if kind == 1:
            return frame(self._command())
        if kind == 2:
            data = self._damaged(builders.message(self._entry()))
            return struct.pack(">I", len(data)) + data
        ids = dict.fromkeys(("ledger_id", "entry_id"), 5)
        if dice.random() < 0.1:
            ids[dice.choice(list(ids))] = dice.choice(NUMBERS)
        return builders.message(self._entry(), **ids)

    def _command(self) -> bytes:
        """A command with random fields, of which some are texts that are none."""
        dice = self.dice
        fields = [
            (number, dice.choice((dice.choice(NUMBERS), dice.choice(TEXTS))))
            for number in dice.sample(range(1, 9), 4)
        ]
        return command(dice.choice(KINDS), *fields)

    def _entry(self) -> bytes:
        dice = self.dice
        entry = dice.choice((self._batch, self._batch, self._single, self._chunk))()
        return self._damaged(entry) if dice.random() < 0.1 else entry

    def _headers(self, metadata: bytes, payload: bytes) -> bytes:
        dice = self.dice
        if dice.random() < 0.2:
            metadata = self._damaged(metadata)
        broker = None
        if dice.random() < 0.2:
            broker = proto((1, dice.choice(NUMBERS)), (2, dice.choice(NUMBERS)))
            broker = self._damaged(broker) if dice.random() < 0.2 else broker
        return builders.with_headers(
            metadata, payload, checksum=dice.random() < 0.8, broker_metadata=broker
        )

    def _outer(self) -> Outer:
        dice = self.dice
        return Outer(
            producer_name=dice.choice(TEXTS) if dice.random() < 0.2 else "p",
            sequence_id=dice.choice(NUMBERS),
            publish_time=dice.choice(NUMBERS) if dice.random() < 0.1 else 1234,
            codec=dice.choice(CODECS),
            extra=self._some_extra(),
        )

    def _some_extra(self) -> tuple[tuple[int, int | bytes], ...]:
        """Fields of the entry's metadata that most entries do not have."""
        dice = self.dice
        if dice.random() < 0.7:
            return ()
        number = dice.choice((5, 6, 12, 13, 16, 18, 19, 20, 22, 25, 26, 27, 31, 31))
        value: int | bytes = dice.choice(NUMBERS)
        if number in (5, 6, 13, 16, 18, 26):
            value = dice.choice(TEXTS)
        elif number == 31:
            value = dice.choice((dice.randrange(8), dice.choice(NUMBERS)))
        return ((number, value),) * dice.choice((1, 1, 2))

    def _payload(self, outer: Outer, payload: bytes) -> tuple[bytes, int]:
        """A payload, damaged before or after its compression, and its size or a lie."""
        dice = self.dice
        if dice.random() < 0.15:
            payload = self._damaged(payload)
        size = len(payload) if dice.random() < 0.9 else dice.choice(NUMBERS) % 2**32
        if dice.random() < 0.02:
            payload = bytes(dice.choice((MAX_ENTRY_BYTES, 10 * MAX_ENTRY_BYTES)))
        packed = builders.compress(outer.codec, payload)
        if dice.random() < 0.1:
            packed = self._damaged(packed)
        return packed, size

    def _batch(self) -> bytes:
        dice = self.dice
        parts = [self._message() for _ in range(dice.randrange(8))]
        outer = self._outer()
        payload, size = self._payload(outer, b"".join(parts))
        count = len(parts) if dice.random() < 0.9 else dice.choice(NUMBERS)
        if dice.random() < 0.05:
            count, payload = self._many(outer)
            size = len(payload)
            payload = builders.compress(outer.codec, payload)
        return self._headers(
            outer.metadata((8, outer.codec), (9, size), (11, count)), payload
        )

    def _many(self, outer: Outer) -> tuple[int, bytes]:
        """Many tiny messages, or one of as many properties as nearly fit the limit."""
        dice = self.dice
        if dice.random() < 0.5:
            count = dice.choice((10, 70))
            return count, builders.sized(proto((3, 0))) * count
        room = dice.choice((1_000, MAX_ENTRY_BYTES if outer.codec else 15_000))
        names = (b"", b"a", b"abc"[: dice.randrange(4)])
        pair = proto((1, proto((1, dice.choice(names)))))
        return 1, builders.sized(pair * ((room - 20) // len(pair)) + proto((3, 0)))

    def _message(self) -> bytes:
        """One message of a batch."""
        dice = self.dice
        sent = Sent(
            payload=dice.choice((None, b"", b"payload", dice.randbytes(200))),
            key=dice.choice((None, "k", b"\x00")),
            ordering_key=dice.choice((None, b"o")),
            event_time=dice.choice(NUMBERS) if dice.random() < 0.1 else None,
            sequence_id=dice.choice((None, *NUMBERS)),
            properties=[("a", "b")] * dice.randrange(3),
            removed=dice.random() < 0.1,
        )
        size = dice.choice(NUMBERS) if dice.random() < 0.03 else None
        head = builders.single_metadata(sent, size)
        if dice.random() < 0.1:
            text = dice.choice(TEXTS)
            more = (2, text), (1, proto((1, text), (2, dice.choice(TEXTS))))
            head += proto(dice.choice(more))
        if dice.random() < 0.05:
            head = self._damaged(head)
        return struct.pack(">I", len(head)) + head + sent.wire_payload

    def _single(self) -> bytes:
        outer = self._outer()
        payload, size = self._payload(outer, self.dice.randbytes(50))
        pairs = (4, proto((1, self.dice.choice(TEXTS)), (2, b"v")))
        more = (8, outer.codec), (9, size), self.dice.choice((pairs, (11, None)))
        return self._headers(outer.metadata(*more), payload)

    def _chunk(self) -> bytes:
        dice = self.dice
        numbers = [dice.randrange(3), 3, 30]
        if dice.random() < 0.2:
            numbers[dice.randrange(3)] = dice.choice((*NUMBERS, 2))
        index, count, total = numbers
        return builders.chunk(
            dice.randbytes(10),
            index,
            count,
            total,
            uuid=dice.choice(TEXTS),
            outer=self._outer(),
            uncompressed_size=30,
        )

    def _damaged(self, data: bytes) -> bytes:
        """The same bytes with one to three faults."""
        dice = self.dice
        damaged = bytearray(data)
        for _ in range(dice.randrange(1, 4)):
            place = dice.randrange(len(damaged) + 1)
            kind = dice.randrange(5)
            if kind == 0 and place < len(damaged):
                damaged[place] ^= 1 << dice.randrange(8)
            elif kind == 1:
                del damaged[place:]
            elif kind == 2:
                damaged[place:place] = dice.randbytes(dice.randrange(1, 9))
            elif kind == 3:
                del damaged[place : place + dice.randrange(1, 9)]
            else:
                lie = dice.choice((dice.choice(NUMBERS), dice.randrange(300))) % 2**32
                damaged[place : place + 4] = struct.pack(">I", lie)
        return bytes(damaged)


def case(seed: int, number: int) -> tuple[bytes, list[int]]:
    """The stream of a case, and where it is cut."""
    dice = random.Random(f"{seed}/{number}")
    stream = Maker(dice).stream()
    return stream, [dice.randrange(2000) for _ in range(dice.randrange(4))]


def least_peak(stream: bytes, cuts: list[int]) -> int:
    """The memory that a case takes, in bytes, in the best of several tries.

    What threads of earlier tests allocate meanwhile is counted, too.
    """
    peaks = []
    for _ in range(5):
        tracemalloc.start()
        read(stream, cuts)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return min(peaks)


def run(seed: int, go_on: Callable[[int], bool]) -> Counter[str]:
    """Runs the cases of a seed from the first on.

    Args:
        seed: Names the sequence of cases.
        go_on: Told the number of the next case; whether to run it.

    Returns:
        How often each event and each error came up, and how many rows.
    """
    found: Counter[str] = Counter()
    number = 0
    while go_on(number):
        stream, cuts = case(seed, number)
        measured = number % 20 == 19  # not the first, which imports the codecs
        if measured:
            tracemalloc.start()
        began = time.thread_time()  # of this thread: others may have work
        try:
            outcome = read(stream, cuts)
            if number % 10 == 0:
                assert read(stream, []) == outcome, "cuts changed the outcome"
            if number % 2 == 0:
                together = read(stream, cuts, in_bulk=True)
                assert together == outcome, "together they gave something else"
        except Exception as error:
            raise AssertionError(
                f"case {number} of seed {seed}: {stream.hex()}"
            ) from error
        took = time.thread_time() - began
        assert took < TOO_LONG_S, f"case {number} of seed {seed} took {took:.1f} s"
        if measured:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            if peak >= TOO_MUCH_BYTES:
                peak = least_peak(stream, cuts)
            assert peak < TOO_MUCH_BYTES, (
                f"case {number} of seed {seed} took {peak} bytes"
            )
        found += outcome
        number += 1
    found["cases"] = number
    return found


def main() -> None:
    """Runs cases for some time and prints what came of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.wire.fuzz")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--case", type=int, help="only this one")
    arguments = parser.parse_args()
    if arguments.case is not None:
        found = read(*case(arguments.seed, arguments.case))
    else:
        end = time.monotonic() + arguments.seconds
        sys.stdout.write(f"seed {arguments.seed}\n")
        found = run(arguments.seed, lambda _: time.monotonic() < end)
    for name, count in sorted(found.items()):
        sys.stdout.write(f"{name:20} {count:12,}\n")


if __name__ == "__main__":
    main()
