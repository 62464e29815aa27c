# SPDX-License-Identifier: Apache-2.0
"""Limit how much of what has to be sent again is in flight at a time: pure.

If a connection breaks under the entries in flight, the next one would break under them,
too, before the first receipt, and so for ever. So entries without a receipt are not
sent again all at once. A few are, and each receipt widens the window by the bytes that
it confirms, so that the amount in flight doubles from round to round::

    window     64 KiB          128 KiB                 256 KiB
    under way  |---- entries --->|
               |<--- receipts ---|-------- entries -------->|
                                 |<------- receipts --------|------- entries ...

A connection that broke before any receipt is followed by one that begins with half as
much, down to a single entry.
"""

from __future__ import annotations

#: With how many bytes a connection begins: what goes out with one call of the system.
_FIRST_BYTES = 64 * 1024


class Resending:
    """The entries to resend on a connection.

    Args:
        tries: How often it was tried since the last receipt, from 1.
    """

    def __init__(self, tries: int) -> None:
        self._window_bytes = _FIRST_BYTES >> (max(tries, 1) - 1)
        self._under_way_bytes = 0

    def admits(self, size_bytes: int) -> bool:
        """Return whether an entry may be sent now; if so, the entry is in flight.

        One alone always may.
        """
        under_way_bytes = self._under_way_bytes + size_bytes
        if self._under_way_bytes and under_way_bytes > self._window_bytes:
            return False
        self._under_way_bytes = under_way_bytes
        return True

    def stored(self, size_bytes: int) -> None:
        """Take in receipts for this many bytes.

        Of new entries, too, which follow those of a producer that has sent all again.
        """
        self._under_way_bytes = max(0, self._under_way_bytes - size_bytes)
        self._window_bytes += size_bytes

    def given_up(self, size_bytes: int) -> None:
        """Note bytes without a receipt on this connection: the producer broke."""
        self._under_way_bytes = max(0, self._under_way_bytes - size_bytes)
