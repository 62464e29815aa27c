# SPDX-License-Identifier: Apache-2.0
"""Tests of `spark_topics.source.tasks`."""

from __future__ import annotations

from spark_topics.source.tasks import Tasks


def test_tasks_are_made_when_they_are_asked_for() -> None:
    """As many as there are items, in their order, and none before that."""
    made: list[int] = []

    def make(number: int) -> str:
        made.append(number)
        return str(number)

    tasks = Tasks(make, [1, 2, 3])
    assert len(tasks) == 3
    assert made == []
    assert next(iter(tasks)) == "1"
    assert made == [1]
    assert list(tasks) == ["1", "2", "3"]
    assert tasks[-1] == "3"
    assert list(tasks[1:]) == ["2", "3"]
