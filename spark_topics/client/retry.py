# SPDX-License-Identifier: Apache-2.0
"""Retries: pauses that double, jitter, and a deadline; and waits that are told."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from spark_topics.errors import TopicsError

logger = logging.getLogger("spark_topics.client")

K = TypeVar("K")
V = TypeVar("V")

# A job that seeds ``random`` in all of its tasks would have them come back in step, and
# what it draws is not to depend on us.
_RANDOM = random.SystemRandom()

#: Requests that are under way at once, of many: each takes some kilobytes here, and a
#: round trip of them takes a second of the processor's time.
ASKED_TOGETHER = 10_000

#: A wait of so many seconds is told, and then again each interval.
_LONG_S = 5.0
_INTERVAL_S = 30.0


class LongWait:
    """Warns of a wait that lasts, five seconds after its begin and then each 30 s.

    Args:
        log: The destination of the warnings.
    """

    def __init__(self, log: logging.Logger = logger) -> None:
        self._log = log
        self.restart()

    def restart(self) -> None:
        """Begin again: the wait is over."""
        self._began_s = time.monotonic()
        self._next_s = self._began_s + _LONG_S

    @property
    def due_in_s(self) -> float:
        """Return the time until the next warning, in seconds, never negative."""
        return max(0.0, self._next_s - time.monotonic())

    def tell(self, reason: object, remaining_s: float | None, option: str = "") -> None:
        """Warn where it is time to.

        Args:
            reason: What is waited for, or why, as a sentence.
            remaining_s: How long the wait may still last, in seconds; None for ever.
            option: The option that limits it, "" for none.
        """
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + _INTERVAL_S
        end = "without a limit"
        if remaining_s is not None:
            end = f"{remaining_s:.0f} s are left"
        name = f" (`{option}`)" if option else ""
        sentence = str(reason)
        dot = "" if sentence.endswith((".", "?", "!")) else "."
        self._log.warning(
            "%s%s Waited for %.0f s so far; %s%s.",
            sentence,
            dot,
            now_s - self._began_s,
            end,
            name,
        )


class Retry:
    """The time budget of an operation, and the pauses between tries.

    Args:
        first_pause_s: The first pause, in seconds; each further one is twice as long.
        max_pause_s: The longest one.
        timeout_s: The whole budget, from now.
        option: The option that sets it; the error at its end names it.
    """

    def __init__(
        self,
        first_pause_s: float,
        max_pause_s: float,
        timeout_s: float,
        option: str = "",
    ) -> None:
        self._option = option
        self._first_pause_s = self._pause_s = first_pause_s
        self._max_pause_s = max_pause_s
        self._timeout_s = timeout_s
        self._wait = LongWait()
        self.restart()

    def restart(self) -> None:
        """Begin again with the whole budget: there was progress."""
        self._pause_s = self._first_pause_s
        self._deadline = time.monotonic() + self._timeout_s
        self._wait.restart()

    def extend(self, seconds: float) -> None:
        """Extend the budget by time that was spent on something else."""
        self._deadline += seconds

    @property
    def remaining_s(self) -> float:
        """Return the remaining budget, in seconds, never negative."""
        return max(0.0, self._deadline - time.monotonic())

    def pause(self, error: TopicsError) -> None:
        """Wait before the next try.

        Raises:
            TopicsError: ``error``, where another try is useless or the budget is
                spent.
        """
        if not error.retriable:
            raise error
        if self.remaining_s == 0:
            raise self._spent(error)
        # Half to all of the pause, so that many tasks do not come back in step.
        pause_s = min(self._pause_s * _RANDOM.uniform(0.5, 1.0), self.remaining_s)
        logger.debug("trying again in %.2f s after: %s", pause_s, error)
        while pause_s > 0:
            self._wait.tell(error, self.remaining_s, self._option)
            part_s = min(pause_s, max(self._wait.due_in_s, 0.001))
            time.sleep(part_s)
            pause_s -= part_s
        self._pause_s = min(self._pause_s * 2, self._max_pause_s)

    def _spent(self, error: TopicsError) -> TopicsError:
        if not self._option:
            return error
        end = "" if error.message.endswith((".", "?", "!")) else "."
        return error.saying(
            f"{error.message}{end} It was tried for {self._timeout_s:g} s: look at the "
            f"server's log, or raise `{self._option}`."
        )


def ask_all(
    keys: Iterable[K],
    ask: Callable[[list[K]], Mapping[K, V | TopicsError]],
    retry: Retry,
) -> dict[K, V]:
    """Ask about all keys together, and repeat the keys whose error is retriable.

    Of very many keys, ``ASKED_TOGETHER`` are asked about at a time.

    Args:
        keys: What to ask about.
        ask: Asks about some keys and returns an answer or an error for each.
        retry: How long to go on without a single answer.

    Raises:
        TopicsError: A final error, or one that lasted as long as ``retry`` does.
    """
    answers: dict[K, V] = {}
    pending = list(keys)
    while pending:
        failed: dict[K, TopicsError] = {}
        for first in range(0, len(pending), ASKED_TOGETHER):
            for key, answer in ask(pending[first : first + ASKED_TOGETHER]).items():
                if isinstance(answer, TopicsError):
                    failed[key] = answer
                else:
                    answers[key] = answer
        for error in failed.values():
            if not error.retriable:
                raise error
        if len(failed) < len(pending):
            retry.restart()
        pending = list(failed)
        if pending:
            retry.pause(failed[pending[0]])
    return answers
