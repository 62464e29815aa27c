# SPDX-License-Identifier: Apache-2.0
"""The loop of a reading task."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa
import pytest

from spark_topics.source.turns import read_turns
from spark_topics.statistics import Kind, TaskStatistics, Totals
from tests.spark_topics.numbers import NUMBERS

KIND = Kind("read", "copying", discarded="odd rows", logger=NUMBERS.logger("spark"))


class Turn:
    """A range of two batches, which notes what is done with it."""

    waited_s = 1.5
    reconnects = 1

    def __init__(self, name: str, log: list[str], fails: str = "") -> None:
        self._name, self._log, self._fails = name, log, fails
        log.append(f"{name} begins")

    def record_batches(self, stats: TaskStatistics) -> Iterator[pa.RecordBatch]:
        """One row each."""
        if self._fails == self._name:
            raise OSError(self._name)
        for _ in range(2):
            stats.count(1, 10)
            self._log.append(self._name)
            yield pa.RecordBatch.from_pydict({"name": [self._name]})

    def close(self) -> None:
        """Noted."""
        self._log.append(f"{self._name} closed")


def turns(log: list[str], fails: str = "") -> Iterator[Turn]:
    """Three of them."""
    return (Turn(name, log, fails) for name in "abc")


def test_the_next_one_begins_while_one_is_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And no further one; what they did is one line, by the system's logger."""

    def refresh(totals: Totals) -> None:
        totals.discarded_rows = 4

    log: list[str] = []
    with caplog.at_level(logging.DEBUG, "numbers_spark.spark"):
        rows = read_turns(turns(log), KIND, "t", 60, refresh)
        assert [batch["name"][0].as_py() for batch in rows] == [*"aabbcc"]
    begun = ["a begins", "b begins", "a", "a", "c begins", "b", "b", "c", "c"]
    assert log == begun
    (line,) = caplog.messages
    assert line.startswith("t: 6 rows, 60 bytes read in ")
    assert "4.5 s waiting for the broker" in line
    assert "; 4 odd rows left out; 3 reconnects" in line


@pytest.mark.parametrize("how", ["fails", "is closed"])
def test_whatever_is_open_is_closed(how: str) -> None:
    """Where one fails, and where Spark wants no more rows."""
    log: list[str] = []
    rows = read_turns(turns(log, "b" if how == "fails" else ""), KIND, "t", 0)
    if how == "fails":
        with pytest.raises(OSError, match="b"):
            list(rows)
        assert log[-2:] == ["b closed", "c closed"]
    else:
        next(rows)
        rows.close()  # type: ignore[attr-defined]
        assert log[-2:] == ["a closed", "b closed"]
