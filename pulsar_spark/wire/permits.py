# SPDX-License-Identifier: Apache-2.0
"""Flow accounting of a consumer: permits outstanding, and when to grant more.

A broker sends whole entries as long as the balance of permits is above zero, so that
the last one may take it below. Permits count messages, memory counts bytes; the bridge
between both is the size of the messages that arrived so far::

    granted to the broker          arrived, not taken
    |<------ balance ------>|<------ held ------>|
    |<---------------- window ------------------>|      in messages
    |<-- balance * average -->|<- held bytes -->|       <= window_bytes

The caller sends the permits that `initial_grant` and `next_grant` return, and reports
each entry that arrives and each message that leaves, whether handed on or dropped.

A broker counts in 32 bits, and trusts the number of messages that an entry claims. An
entry that claims billions, or less than zero, can move the balance anywhere. This class
follows it exactly, so that the next grant corrects it and the consumer never stalls.

Source: protocol page "Flow control"; what is charged was seen on the wire.
"""

from __future__ import annotations

from typing import NamedTuple

from pulsar_spark.wire.frames import DEFAULT_MAX_MESSAGE_SIZE_BYTES

#: Largest first grant. Enough to learn the size of messages in one round trip.
_MAX_START_MESSAGES = 16

#: How much the window grows by each message that arrives: eightfold in a round trip, so
#: that a link with latency is full after a few round trips.
_GROWTH = 7

#: Most messages out at a time where none is set, and as far as `Permits.widen` goes.
USUAL_MESSAGES, _MOST_MESSAGES = 10_000, 1_000_000

#: The window is so many times what a link holds.
_WIDTH = 2.5

#: Grants for a window, and grants where the link is far: where messages on their way
#: are more than a quarter of the window.
_PARTS, _FAR_PARTS = 2, 8
_FAR_SHARE = 1 / 4

#: Weight of an entry in the average: about the last eight entries count.
_SMOOTHING = 1 / 8


def as_broker_counts(permits: int) -> int:
    """Return a balance of permits as the broker's int32, which overflows."""
    return (permits + 2**31) % 2**32 - 2**31


class Learnt(NamedTuple):
    """Facts a consumer learnt of a topic, for the topic's next consumer.

    Attributes:
        messages: How many came.
        average_bytes: Of a message, by the last of them.
        window: Most messages that were out at a time.
    """

    messages: int
    average_bytes: float
    window: int = USUAL_MESSAGES


class Permits:
    """Decides on the FLOW commands of a consumer.

    The window starts with as many messages as would fit if each were of the largest
    size, at most 16, or with as many as a consumer of the topic got before. It grows by
    what arrives, eightfold in a round trip, until one of both limits is reached. Grants
    are half a window or more, so that FLOW is rare, and an eighth where a link holds
    much of a window. Whenever nothing is held and the balance is not above zero,
    `next_grant` answers with enough to bring one more entry: no schedule of entries can
    stall.

    Bytes held stay below `window_bytes` plus what a broker sends past the balance: the
    rest of the entry that used it up, and the rest of the one read (100 entries, 5 MiB)
    that this entry was in. Permits granted for small messages cannot be called back
    when suddenly large ones follow; the limit in messages bounds these. That limit
    rises only as far as a link holds more messages, see `widen`.

    Attributes:
        generation: Counts connections. Messages of an older one are not refunded.
    """

    def __init__(
        self,
        receiver_queue_messages: int | None,
        window_bytes: int,
        learnt: Learnt | None = None,
    ) -> None:
        """Start with nothing granted.

        Args:
            receiver_queue_messages: Most messages to be out at a time, at least 1. None
                for 10,000, and more where `widen` says so.
            window_bytes: Most bytes to be out at a time, at least 1.
            learnt: What is known of the topic, None for nothing.

        Raises:
            ValueError: One of them is below 1.
        """
        self._is_fixed = receiver_queue_messages is not None
        if receiver_queue_messages is None:
            receiver_queue_messages = USUAL_MESSAGES
        if receiver_queue_messages < 1 or window_bytes < 1:
            raise ValueError("a window needs room for at least one message")
        self.generation = 0
        self._queue_messages = receiver_queue_messages
        self._window_bytes = window_bytes
        start = window_bytes // DEFAULT_MAX_MESSAGE_SIZE_BYTES
        self._grown = min(receiver_queue_messages, max(1, start), _MAX_START_MESSAGES)
        self._average_bytes = 0.0  # of a message; 0 until the first one
        self._arrived = 0
        if learnt is not None:
            most = max(self._grown, learnt.messages)
            if not self._is_fixed:
                self._queue_messages = max(self._queue_messages, learnt.window)
            self._grown = min(self._queue_messages, most)
            self._average_bytes = learnt.average_bytes
        self._parts = _PARTS
        self._balance = 0  # of permits, as the broker has it; may be negative
        self._held_messages = 0
        self._held_bytes = 0

    @property
    def learnt(self) -> Learnt | None:
        """Return what the topic's next consumer may begin with; None for nothing."""
        if not self._arrived:
            return None
        return Learnt(self._arrived, self._average_bytes, self._queue_messages)

    @property
    def most_messages(self) -> int:
        """Return the limit in messages."""
        return self._queue_messages

    @property
    def arrived(self) -> int:
        """Return how many messages arrived, on all connections."""
        return self._arrived

    def widen(self, messages_per_s: float, round_trip_s: float) -> None:
        """Raise the limit in messages to what a link holds at a speed, and some more.

        A limit that the user set stays.

        Args:
            messages_per_s: The speed at which messages were taken.
            round_trip_s: Shortest time from a request to its reply.
        """
        on_the_way = messages_per_s * round_trip_s
        # Over a link that holds much of a window, late grants leave the link empty.
        is_far = on_the_way > self.window_messages * _FAR_SHARE
        self._parts = _FAR_PARTS if is_far else _PARTS
        if not self._is_fixed:
            needed = int(_WIDTH * on_the_way)
            self._queue_messages = max(
                self._queue_messages, min(needed, _MOST_MESSAGES)
            )

    @property
    def balance(self) -> int:
        """Return the permits at the broker; negative after an entry that took more."""
        return self._balance

    @property
    def held_messages(self) -> int:
        """Return how many messages arrived and were not taken yet."""
        return self._held_messages

    @property
    def held_bytes(self) -> int:
        """Return how many bytes arrived and were not taken yet."""
        return self._held_bytes

    @property
    def window_messages(self) -> int:
        """Return how many messages may be out at a time, as known now; at least 1."""
        window = min(self._queue_messages, self._grown)
        if self._average_bytes:
            window = min(window, int(self._window_bytes / self._average_bytes))
        return max(1, window)

    def reset(self) -> None:
        """Start over on a new connection, or after a new SUBSCRIBE.

        The broker starts with a balance of zero, and the caller drops what is held.
        What was learnt about sizes stays.
        """
        self.generation += 1
        self._balance = 0
        self._held_messages = 0
        self._held_bytes = 0

    def initial_grant(self) -> int:
        """Return the permits of the first FLOW after SUBSCRIBE, at least 1."""
        return self._grant(max(1, self.window_messages - self._balance))

    def entry_arrived(self, messages: int, size_bytes: int) -> None:
        """Account for an entry in the way of the broker.

        Args:
            messages: num_messages_in_batch as sent, or 1 if it is absent, also for a
                chunk; less those that MESSAGE.ack_set marks as acknowledged.
            size_bytes: Memory that the entry occupies until its messages are taken.
        """
        self._balance = as_broker_counts(self._balance - messages)
        self._held_messages += messages
        self._held_bytes += size_bytes
        grown = self._grown + _GROWTH * max(0, messages)
        self._grown = min(self._queue_messages, grown)
        if messages > 0:
            self._arrived += messages
            self._learn(size_bytes / messages)

    def _learn(self, bytes_each: float) -> None:
        # Up at once, down slowly: too small an average costs memory, too large a one
        # only some speed.
        step = _SMOOTHING if bytes_each < self._average_bytes else 1.0
        self._average_bytes += step * (bytes_each - self._average_bytes)

    def messages_taken(
        self, messages: int, size_bytes: int, generation: int | None = None
    ) -> None:
        """Refund messages that are handed on, or dropped for whatever reason.

        Args:
            messages: How many of those `entry_arrived` was told of.
            size_bytes: Their share of the entry's bytes; all shares make the whole.
            generation: Of the connection they came on, None for the current one. Those
                of an older one are ignored, the broker has forgotten them.

        Raises:
            ValueError: More than there is; granting it would flood the reader.
        """
        if generation is not None and generation != self.generation:
            return
        if messages > self._held_messages or size_bytes > self._held_bytes:
            raise ValueError(
                f"{messages} messages, {size_bytes} bytes cannot be taken of "
                f"{self._held_messages} messages, {self._held_bytes} bytes"
            )
        self._held_messages -= messages
        self._held_bytes -= size_bytes

    def next_grant(self) -> int:
        """Return the permits to send in a FLOW now; 0: send none yet."""
        target = min(self._queue_messages, self._grown) - self._held_messages
        if self._average_bytes:
            free_bytes = self._window_bytes - self._held_bytes
            target = min(target, int(free_bytes / self._average_bytes))
        if self._held_messages == 0:
            # Nothing is left that could trigger the next grant: bring one more entry.
            target = max(1, target)
        # Permits that only pay for what was sent past the balance deliver nothing.
        gain = target - max(0, self._balance)
        if gain < max(1, self.window_messages // self._parts):
            return 0
        return self._grant(target - self._balance)

    def _grant(self, messages: int) -> int:
        self._balance += messages
        return messages
