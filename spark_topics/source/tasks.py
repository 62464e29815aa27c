# SPDX-License-Identifier: Apache-2.0
"""The tasks of a plan, each made when it is asked for.

Spark sends the tasks of a micro-batch to its JVM as it takes them, so a plan of a
hundred thousand need not have all of them in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")


class Tasks(Sequence[V], Generic[K, V]):
    """A sequence that makes each item when the item is asked for.

    Args:
        make: Makes an item. Each call with equal items gives an equal result.
        items: What to make them of.
    """

    def __init__(self, make: Callable[[K], V], items: Sequence[K]) -> None:
        self._make = make
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> V: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[V]: ...

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return Tasks(self._make, self._items[index])
        return self._make(self._items[index])
