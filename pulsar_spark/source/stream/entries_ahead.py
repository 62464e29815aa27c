# SPDX-License-Identifier: Apache-2.0
"""The entries that a stream has yet to read: how many wait, and where a share ends.

Within a ledger, ids alone tell both. Where ledgers end, brokers are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from pulsar_spark.client.positions import PositionLookup
from pulsar_spark.source.stream.last_read import LastRead
from pulsar_spark.source.stream.query_subscription import QuerySubscription
from pulsar_spark.source.stream.stream_ends import StreamEnds
from pulsar_spark.source.stream.subscription import PeekedEntry
from pulsar_spark.topics import topic_of
from spark_topics.source.stream.admission import EntrySize
from spark_topics.source.stream.cluster import NextEntry, Share, Unread, Waiting

#: Topic partitions whose next entries are looked at for one micro-batch, in turn; the
#: others go by averages.
_LOOKS = 64

#: Ledgers that a micro-batch with a limit spans at most in a topic partition, but for
#: what is only known by averages: each costs the plan a reader.
_LEDGERS = 32

#: How many entries compaction has kept of removed ledgers, for all that brokers say.
_KEPT = 1000


class EntriesAhead:
    """The unread entries of a streaming query, see ``cluster.Entries``.

    Args:
        subscription: Counts entries, and lets look at the next ones.
        positions: Asks brokers where ledgers end.
        stream_ends: Where the stream ends.
        read_compacted: Whether compaction may have kept entries of removed ledgers.
    """

    def __init__(
        self,
        subscription: QuerySubscription,
        positions: PositionLookup,
        stream_ends: StreamEnds,
        *,
        read_compacted: bool,
    ) -> None:
        self._read_compacted = read_compacted
        self._subscription = subscription
        self._positions = positions
        self._stream_ends = stream_ends
        self._turn = 0  # of those whose next entries are looked at

    def topic_of(self, name: str) -> str:
        """Return the name without the suffix of a partition."""
        return topic_of(name)

    def backlog(self, news: Mapping[str, Unread[LastRead]]) -> dict[str, Waiting]:
        """Count rows within a ledger; across ledgers ask brokers, or estimate."""
        elsewhere = [name for name, unread in news.items() if _crosses(unread)]
        consumers = self._subscription.consumers
        counted = {}
        if elsewhere:
            counted = consumers.unread(elsewhere)
            far = {n: news[n].after for n in elsewhere if n in consumers.skipping}
            for name in self._left_out(news):
                del far[name]
            counted |= consumers.waiting_after(far)
        waiting = {}
        for name, unread in news.items():
            after, last = unread.after, unread.last
            if not _crosses(unread):
                entries = last.entry_id - after.entry_id + (after.batch_index >= 0)
            else:
                entries = max(1, counted.get(name, last.entry_id + 1))
            is_all = not _crosses(unread) or name in counted
            if self._read_compacted and name in consumers.skipping:
                entries, is_all = entries + _KEPT, False
            waiting[name] = Waiting(entries, is_all)
        return waiting

    def peek(
        self,
        news: Mapping[str, Unread[LastRead]],
        on_seen: Callable[[str, EntrySize], None],
        *,
        is_one_enough: bool = False,
    ) -> dict[str, Sequence[NextEntry[LastRead]]]:
        """Look at the next entries of some topic partitions.

        Where the next entry lies in another ledger, its number cannot be computed.
        """
        crossing = {
            name: unread
            for name, unread in news.items()
            if _crosses(unread) and not is_one_enough
        }
        within_ledger = [name for name in news if name not in crossing]
        turn = self._turn % len(within_ledger) if within_ledger else 0
        self._turn += _LOOKS
        for name in self._left_out(crossing):
            del crossing[name]
        chosen = [*crossing, *(within_ledger[turn:] + within_ledger[:turn])[:_LOOKS]]
        peeked = self._subscription.consumers.look(
            {name: news[name].after for name in chosen},
            on_seen,
            is_one_enough=is_one_enough,
        )
        return {name: _next_entries(entries) for name, entries in peeked.items()}

    def _left_out(self, news: Mapping[str, Unread[LastRead]]) -> list[str]:
        """Return the topic partitions that would take too many readers.

        Of a compacted topic each partition may. Once such a partition has a share, a
        reader finds the next entries.
        """
        skipping = self._subscription.consumers.skipping
        if not (self._read_compacted and skipping):
            return []
        return [n for n, u in news.items() if _crosses(u) and n in skipping][_LOOKS:]

    def ends(self, shares: Mapping[str, Share[LastRead]]) -> dict[str, LastRead]:
        """Compute ends; ask brokers where an end may be behind its ledger's last.

        A cursor that is set to such an id counts the backlog wrong. Where the ledger
        has fewer entries than the share, look what comes after it, ledger by ledger.
        """
        ends: dict[str, LastRead] = {}
        consumers = self._subscription.consumers
        unseen = {
            name: share.unread.after
            for name, share in shares.items()
            if share.entries is not None
            and not share.ahead
            and name in consumers.skipping
            and _crosses(share.unread)
        }
        seen = consumers.look_from(unseen)
        shares = {
            **shares,
            **{n: replace(shares[n], ahead=_next_entries(seen[n])) for n in seen},
        }
        for _ in range(_LEDGERS):
            short = self._up_to_ledgers(shares, ends)
            if not short:
                break
            ahead = consumers.look_from({n: ends[n] for n in short})
            shares = {
                name: Share(
                    Unread(ends[name], shares[name].unread.last),
                    entries,
                    _next_entries(ahead[name]),
                )
                for name, entries in short.items()
                if ahead.get(name)
            }
        # Ends of shares are whole entries; that of the stream may be inside of one.
        return {name: self._stream_ends.within(name, end) for name, end in ends.items()}

    def _up_to_ledgers(
        self, shares: Mapping[str, Share[LastRead]], ends: dict[str, LastRead]
    ) -> dict[str, int]:
        """Write down the ends of shares, each at most the end of its ledger.

        Returns:
            How many entries a few of those that a ledger has cut short may have yet.
        """
        computed = {name: _end(share) for name, share in shares.items()}
        ends.update(computed)
        unsure = {
            name: end.next()
            for name, end in computed.items()
            if end.ledger_id != shares[name].unread.last.ledger_id
        }
        short: dict[str, int] = {}
        # The next visit says what it means that one is gone.
        firsts = self._positions.from_message_ids(unsure, absent_ok=True)
        for name, positions in firsts.items():
            after, before = shares[name].unread.after, positions.before
            if after.position < before.position < computed[name].position:
                ends[name] = LastRead.of(before)
                missing = computed[name].entry_id - before.entry_id
                if before.ledger_id == computed[name].ledger_id and len(short) < _LOOKS:
                    short[name] = missing
        return short


def _next_entries(peeked: Iterable[PeekedEntry]) -> list[NextEntry[LastRead]]:
    return [
        NextEntry(LastRead(*entry.position), entry.size, entry.published_ms)
        for entry in peeked
    ]


def _crosses(unread: Unread[LastRead]) -> bool:
    """Return whether the unread rows begin and end in different ledgers."""
    return unread.after.ledger_id != unread.last.ledger_id


def _end(share: Share[LastRead]) -> LastRead:
    """Return the last entry of a share, as far as entry ids alone tell.

    Entry ids may have gaps, and a ledger may end before that many entries.
    """
    after, last, ahead = share.unread.after, share.unread.last, share.ahead
    whole = LastRead(*last.position)
    if share.entries is None:
        return whole
    if share.entries <= len(ahead):
        end = ahead[share.entries - 1].position
    elif ahead or not _crosses(share.unread):
        ledger_id, entry_id = (ahead[-1].position if ahead else after).position
        end = LastRead(ledger_id, entry_id + share.entries - len(ahead))
    else:
        # Where the next entry is cannot be told. Most often it begins the last ledger;
        # if there are others before that, the micro-batch is larger.
        end = LastRead(last.ledger_id, share.entries - 1)
    return min(end, whole)
