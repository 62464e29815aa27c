# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in the double of YDB's topic service, and when."""

from __future__ import annotations

import enum
import threading
from dataclasses import dataclass

import grpc


class At(enum.Enum):
    """Where a fault strikes."""

    WRITE_INIT = "write init"
    WRITE = "write"
    READ_INIT = "read init"
    READ = "read response"
    TOKEN = "token update"
    DESCRIBE = "describe"
    COMMIT = "commit"


class When(enum.Enum):
    """How much of a write is stored when it strikes."""

    BEFORE = "before storing"
    PART = "after a part"
    AFTER = "after storing"


class Acks(enum.Enum):
    """What becomes of the acknowledgements of a request."""

    WHOLE = "whole"
    SHORT = "one too few"
    REPEATED = "each twice"
    REVERSED = "last first"
    ELSEWHERE = "in another partition"
    NONE = "no response at all"
    TALK = "responses without any, for ever"


@dataclass
class Fault:
    """One fault.

    Attributes:
        at: Where.
        when: For writes: before or after storing.
        status: Ends the stream with this status of YDB; 0 for none.
        grpc: Ends the call with this status of gRPC.
        cuts: Ends the stream with OK, without an answer.
        acks: What the response to a write looks like; of a description SHORT leaves out
            how far the last partition goes, and REVERSED sends another call's result;
            of the answer to a write's init REVERSED names another partition.
        delay_s: Waits before the answer.
        skip: Requests that pass before.
        times: How often; -1 for always.
        message: What an issue says.
    """

    at: At
    when: When = When.BEFORE
    status: int = 0
    grpc: grpc.StatusCode | None = None
    cuts: bool = False
    acks: Acks = Acks.WHOLE
    delay_s: float = 0.0
    skip: int = 0
    times: int = 1
    message: str = "injected"

    @property
    def ends(self) -> bool:
        """Return whether it ends the call."""
        return bool(self.status or self.grpc is not None or self.cuts)


class Faults:
    """Faults to come. The first that fits strikes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: list[Fault] = []

    def add(self, fault: Fault) -> None:
        """Let a fault strike."""
        with self._lock:
            self._pending.append(fault)

    def clear(self) -> None:
        """Let nothing go wrong any more."""
        with self._lock:
            self._pending.clear()

    def take(self, at: At) -> Fault | None:
        """Return the fault that strikes here and now."""
        with self._lock:
            for fault in self._pending:
                if fault.at is not at:
                    continue
                if fault.skip:
                    fault.skip -= 1
                    continue
                if fault.times > 0:
                    fault.times -= 1
                    if not fault.times:
                        self._pending.remove(fault)
                return fault
        return None
