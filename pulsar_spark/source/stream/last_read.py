# SPDX-License-Identifier: Apache-2.0
"""Where a stream is in a topic partition of Pulsar: the message read last.

A plain message id does not say whether it was read or is to be read next. So what was
read has its own type, and conversions have names::

    LastRead(12, 33)     .next()      MessageId(12, 34)     first wanted, inclusive
    LastRead(12, 33, 4)  .next()      MessageId(12, 33, 5)
    LastRead(12, 33)     .message_id  MessageId(12, 33)     last wanted, inclusive
    LastRead.before(MessageId(12, 33))    LastRead(12, 32)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pulsar_spark.message_id import EARLIEST, MessageId, parse_numbers


@dataclass(frozen=True, slots=True)
class LastRead:
    """The last entry, or the last message of an entry, that was read.

    In order: having read a whole entry is further than any message in it.

    Attributes:
        ledger_id: Ledger of the entry, -1 where nothing was read.
        entry_id: Entry in the ledger, -1 before its first one.
        batch_index: Message in the entry, -1 for the whole entry.
    """

    ledger_id: int
    entry_id: int
    batch_index: int = -1

    @classmethod
    def of(cls, message_id: MessageId) -> LastRead:
        """Return the position of a query that has read up to here, inclusive."""
        return cls(message_id.ledger_id, message_id.entry_id, message_id.batch_index)

    @classmethod
    def before(cls, start: MessageId) -> LastRead:
        """Return the position after which ``start``, inclusive, comes next."""
        if start.ledger_id < 0:
            return NOTHING_READ
        if start.batch_index > 0:
            return cls(start.ledger_id, start.entry_id, start.batch_index - 1)
        # Users may write "12:-1" for the beginning of a ledger: nothing is before that.
        return cls(start.ledger_id, max(start.entry_id - 1, -1))

    @classmethod
    def parse(cls, text: str) -> LastRead:
        """Read ``ledger:entry`` or ``ledger:entry:batchIndex``.

        Raises:
            ValueError: The text has another form, or a number is out of range.
        """
        return cls(*parse_numbers(text))

    @property
    def position(self) -> tuple[int, int]:
        """Return the entry: ``(ledger_id, entry_id)``."""
        return self.ledger_id, self.entry_id

    @property
    def message_id(self) -> MessageId:
        """Return the position as the last message of a range, inclusive."""
        return MessageId(self.ledger_id, self.entry_id, self.batch_index)

    @property
    def whole_entry(self) -> MessageId:
        """Return the last entry that was read to its end."""
        return MessageId(self.ledger_id, self.entry_id - (self.batch_index >= 0))

    def next(self) -> MessageId:
        """Return the first message to read next; its entry need not exist."""
        if self == NOTHING_READ:
            return EARLIEST
        if self.batch_index < 0:
            return MessageId(self.ledger_id, self.entry_id + 1)
        return MessageId(self.ledger_id, self.entry_id, self.batch_index + 1)

    def has_read(self, last: MessageId) -> bool:
        """Return whether nothing up to a message, inclusive, is left to read."""
        # A message outside of a batch was read, whatever batch index was named.
        return self._order() >= (last.ledger_id, last.entry_id, last.batch_index)

    def __lt__(self, other: LastRead) -> bool:
        return self._order() < other._order()

    def _order(self) -> tuple[int, int, float]:
        index = self.batch_index if self.batch_index >= 0 else math.inf
        return self.ledger_id, self.entry_id, index

    def __str__(self) -> str:
        text = f"{self.ledger_id}:{self.entry_id}"
        return text if self.batch_index < 0 else f"{text}:{self.batch_index}"


#: The position of a query that begins with the first message ever stored.
NOTHING_READ = LastRead.of(EARLIEST)
