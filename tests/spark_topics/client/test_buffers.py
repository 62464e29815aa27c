# SPDX-License-Identifier: Apache-2.0
"""Buffers are used again once nobody views them, and never before."""

from __future__ import annotations

import threading
from collections import deque

import pytest

from spark_topics.client.buffers import BufferPool
from tests.support.waiting import join

SIZE = 1000
BUFFER = 1 << 19  # as large as a connection's


def test_used_again():
    """As soon as it is not viewed any more."""
    pool = BufferPool(SIZE)
    first = pool.take(SIZE)
    memory = first.obj
    del first
    assert pool.take(SIZE).obj is memory
    assert len(memory) == SIZE


@pytest.mark.parametrize("how", ["whole", "part", "readonly", "cast", "empty"])
def test_not_while_it_is_viewed(how: str):
    """Whatever the view is."""
    pool = BufferPool(SIZE)
    taken = pool.take(SIZE)
    view = {
        "whole": taken,
        "part": taken[10:20],
        "readonly": taken.toreadonly()[5:],
        "cast": taken.cast("i"),
        "empty": taken[3:3],
    }[how]
    del taken
    others = [pool.take(SIZE) for _ in range(3)]
    assert len({id(one.obj) for one in (view, *others)}) == 4


def test_other_sizes_are_new():
    """Only what has the pool's size is kept."""
    pool = BufferPool(SIZE)
    memory = pool.take(SIZE + 1).obj
    assert len(pool.take(SIZE + 1)) == SIZE + 1
    assert pool.take(SIZE + 1).obj is not memory
    assert pool.take(SIZE).obj is not memory


def test_so_many_are_kept():
    """More are given, but not kept."""
    pool = BufferPool(SIZE, kept=3)
    views = [pool.take(SIZE) for _ in range(10)]
    memories = [view.obj for view in views]
    assert len({id(memory) for memory in memories}) == 10
    views.clear()
    again = [pool.take(SIZE) for _ in range(10)]
    reused = [view for view in again if any(view.obj is one for one in memories)]
    assert len(reused) == 3


def test_what_a_process_keeps():
    """16 MiB, whatever its connections needed."""
    pool = BufferPool(BUFFER)
    views = [pool.take(BUFFER) for _ in range(100)]
    memories = [view.obj for view in views]
    views.clear()
    again = [pool.take(BUFFER) for _ in range(100)]
    kept = [view for view in again if any(view.obj is one for one in memories)]
    assert sum(map(len, kept)) == 16 << 20


def test_threads_do_not_share():
    """What one thread writes into its buffers stays as it is."""
    pool = BufferPool(SIZE, kept=4)
    wrong: list[int] = []

    def run(number: int) -> None:
        held: deque[memoryview] = deque()
        for turn in range(3000):
            view = pool.take(SIZE)
            view[:2] = view[-2:] = bytes((number, turn % 256))
            held.append(view)
            while len(held) > turn % 4:
                old = held.popleft()
                if old[:1] != bytes((number,)) or old[:2] != old[-2:]:
                    wrong.append(number)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        join(thread, "counting the buffers")
    assert not wrong
