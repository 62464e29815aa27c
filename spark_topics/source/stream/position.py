# SPDX-License-Identifier: Apache-2.0
"""Positions as the planner sees them: ordered, with a text."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar


class Position(Protocol):
    """How far a topic partition has been read: up to here, inclusive.

    Positions of one topic partition have an order, and ``str`` is what the checkpoint
    keeps of them. Equal positions have equal texts. An offset that is a number::

        class Offset(int):
            def next(self) -> int:
                return self + 1
    """

    def __lt__(self, other: Any, /) -> bool: ...

    def next(self) -> object:
        """Return the next position to read, for error messages."""


P = TypeVar("P", bound=Position)
