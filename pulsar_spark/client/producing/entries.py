# SPDX-License-Identifier: Apache-2.0
"""Entries of a producer, and what receipts say of the entries: pure.

An entry is in flight until its receipt comes. The receipt says where the entry is
stored, or that the broker had the entry already and dropped it. Receipts for chunks
need a second thought, see ``Chunks``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from pulsar_spark.loops.sends import Receipt, SendFrame
from pulsar_spark.message_id import MessageId


class InFlight:
    """The entries of a producer that have no receipt, in order.

    ::

        first                                     last
        |---- pending: sent ----|---- unsent: ------|
                                  to be sent again

    Attributes:
        pending: Entries that were sent on this attachment.
        unsent: Entries that this attachment is still to send again.
    """

    def __init__(self) -> None:
        self.pending: deque[SendFrame] = deque()
        self.unsent: deque[SendFrame] = deque()

    def __bool__(self) -> bool:
        return bool(self.pending or self.unsent)

    def __iter__(self) -> Iterator[SendFrame]:
        return chain(self.pending, self.unsent)

    @property
    def rows(self) -> int:
        """Rows of all entries."""
        return sum(frame.rows for frame in self)

    def unsend(self) -> None:
        """Note that all entries are to be sent again."""
        self.unsent.extendleft(reversed(self.pending))
        self.pending.clear()

    def clear(self) -> list[SendFrame]:
        """Give up all entries, and return these."""
        frames = list(self)
        self.pending.clear()
        self.unsent.clear()
        return frames


@dataclass
class Stored:
    """What receipts have come for.

    Attributes:
        last_id: The highest sequence id that is stored. Before the first receipt: what
            the broker answered to the first PRODUCER.
        rows: Rows that the broker has stored.
        size_bytes: Bytes of the frames of these rows.
        duplicate_rows: Rows that the broker had already, and dropped.
        last_receipt: The last receipt that named an entry; None for none.
    """

    last_id: int = -1
    rows: int = 0
    size_bytes: int = 0
    duplicate_rows: int = 0
    last_receipt: Receipt | None = None

    @property
    def seen_rows(self) -> int:
        """Rows that are in the topic, duplicates included."""
        return self.rows + self.duplicate_rows

    @property
    def last_message(self) -> MessageId | None:
        """The message id in the last receipt that had a message id."""
        receipt = self.last_receipt
        return receipt and MessageId(receipt.ledger_id, receipt.entry_id)

    def take(self, stored: Sequence[tuple[SendFrame, Receipt]]) -> None:
        """Take in entries and their receipts, in order."""
        for frame, receipt in stored:
            if receipt.entry_id < 0:
                self.duplicate_rows += frame.rows
            else:
                self.last_receipt = receipt
                self.rows += frame.rows
                self.size_bytes += len(frame.data)
        self.last_id = stored[-1][0].highest_sequence_id

    def take_without_receipts(self, frames: Sequence[SendFrame]) -> None:
        """Take in entries that turned out to be stored, although no receipt came."""
        self.rows += sum(frame.rows for frame in frames)
        self.size_bytes += sum(len(frame.data) for frame in frames)


class Chunks:
    """The chunks of a message in flight: what receipts for chunks may be believed.

    The chunks of a row have one number. A broker (4.0.7) that finds duplicates goes by
    the last of them; but one that loads the topic between two counts those that it
    finds there, and drops the last, as it does if it had all::

        ledger 7: 0/3 1/3     loaded again, ledger 8: 0/3 1/3   2/3 is dropped

    A topic that is loaded has a new ledger. So the broker is believed if what is sent
    again goes to the ledger that the last receipt before had named. Which chunk it says
    it had is not known: this receipt comes ahead of those of entries to be stored.
    Where all that was sent again had been stored, the next new entry names the ledger.

    Attributes:
        are_left: Whether the last receipt was for a chunk, with more of them to come.
        are_in_doubt: Whether the topic was loaded again, so that a row may lack a
            chunk.
        are_unsettled: Whether no receipt since then names a ledger.
    """

    def __init__(self) -> None:
        self._number = -1  # of the last row in chunks
        self._resent_up_to = -1
        self._ledger_before = -1  # -1: none is known
        self._is_same = False
        self._is_another = False
        self.are_left = False
        self.are_in_doubt = False
        self.are_unsettled = False

    def attach(self, pending: Sequence[SendFrame], last: Receipt | None) -> None:
        """Take in that what has no receipt will be sent again."""
        if not pending:
            return
        if pending[0].sequence_id > self._resent_up_to:
            self._ledger_before = -1 if last is None else last.ledger_id
            self._is_another = False
        self._is_same = False
        self._resent_up_to = pending[-1].sequence_id

    def leave(self) -> None:
        """Note a move to another cluster, which has other ledgers."""
        self._ledger_before = -1

    def take(self, frame: SendFrame, receipt: Receipt) -> None:
        """Take in the next receipt."""
        self.are_left = not frame.rows
        if not frame.rows:
            self._number = frame.sequence_id
        if receipt.entry_id < 0:
            self.are_unsettled |= frame.sequence_id == self._number
        elif receipt.ledger_id == self._ledger_before:
            self._is_same = True
        else:
            self._is_another = True
        self.are_in_doubt |= self.are_unsettled and self._is_another
        self.are_unsettled &= not self._is_same
