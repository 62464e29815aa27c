# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.source.stream.lag`; by Spark's progress: tests/spark."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pulsar_spark.source.stream.lag import PartitionLag, StreamLag, partition_lags

T = "persistent://public/default/t"
REPORTED = {"v": 1, "latest": {T: {"0": "7:9"}}, "backlogEntries": {T: {"0": 4}}}


def test_from_texts() -> None:
    """What a progress and an event log have of a source of ours."""
    end = json.dumps({"v": 1, "lastRead": {T: {"0": "7:5"}}})
    expected = PartitionLag(f"{T}-partition-0", "7:5", "7:9", 4)
    assert partition_lags(json.dumps(REPORTED), end) == (expected,)
    assert partition_lags(json.dumps(REPORTED), None) == (
        PartitionLag(f"{T}-partition-0", "", "7:9", 4),
    )
    further = {"backlogBytes": {T: {"0": 400}}, "ageMs": {T: {"0": 1500}}}
    assert partition_lags(json.dumps(REPORTED | further), None) == (
        PartitionLag(f"{T}-partition-0", "", "7:9", 4, 400, 1.5),
    )
    held = {"heldBack": {T: {"0": "7:12"}}}
    assert partition_lags(json.dumps(REPORTED | held), None) == (
        PartitionLag(f"{T}-partition-0", "", "7:9", 4, held_back="7:12"),
    )
    for wrong in ({"ageMs": {T: "1"}}, {"heldBack": {T: 1}}):
        assert partition_lags(json.dumps(REPORTED | wrong), None) is None


@pytest.mark.parametrize("text", [None, "null", "7", "[]", '{"v": 2}', '{"v": 1}', "{"])
def test_of_other_sources(text: str | None) -> None:
    """They have none."""
    assert partition_lags(text, None) is None


def test_the_start_of_a_topic() -> None:
    """Is no position to show; an end that cannot be read counts as none."""
    nothing = json.dumps({"v": 1, "lastRead": {T: {"0": "-1:-1"}}})
    for end in (nothing, json.dumps({"v": 1, "lastRead": 7})):
        (found,) = partition_lags(json.dumps(REPORTED), end) or ()
        assert found.last_read == ""
        assert str(found) == f"{T}-partition-0 by 4 (read to nothing of 7:9)"


def lag(*partitions: PartitionLag, **more: Any) -> StreamLag:
    """The lag of a source."""
    given = {"query_name": "", "source_index": 0, **more}
    time = "2026-01-01T00:00:00.000Z"
    return StreamLag(
        "the-id",
        "the-run",
        batch_id=5,
        timestamp=time,
        input_rows=12,
        partitions=partitions,
        **given,
    )


def behind(*entries: int, **more: Any) -> list[PartitionLag]:
    """Topic partitions by how much of them is unread."""
    return [
        PartitionLag(f"t-{index}", "7:5", "7:9", count, **more)
        for index, count in enumerate(entries)
    ]


class TestOfAQuery:
    """What a source of a query has yet to read, over all topic partitions."""

    def test_caught_up(self) -> None:
        """Nothing is behind; gauges are there all the same."""
        found = lag(*behind(0, 0), query_name="q")
        line = "Query q, batch 5: 12 rows, caught up with 2 topic partitions"
        assert str(found) == line
        assert found.worst == ()
        assert found.metrics() == {
            "pulsar_stream_backlog_entries": 0,
            "pulsar_stream_max_partition_backlog_entries": 0,
            "pulsar_stream_topic_partitions": 2,
            "pulsar_stream_topic_partitions_behind": 0,
            "pulsar_stream_topic_partitions_held_back": 0,
            "pulsar_stream_input_rows": 12,
            "pulsar_stream_batch_id": 5,
        }

    def test_behind(self) -> None:
        """The worst come first; of many a few are shown, and how many there are."""
        counts = range(12)
        found = lag(
            *behind(*counts, backlog_bytes=100, age_s=2.5),
            source_index=1,
        )
        text = str(found)
        assert text.startswith(
            "Query the-id, source 1, batch 5: 12 rows, the oldest 2.5 s old, 66 "
            "entries (about 1200 bytes) behind in 11 of 12 topic partitions: "
            "t-11 by 11 (read to 7:5 of 7:9); t-10 by 10 "
        )
        shown = text.count(" by ")
        assert 0 < shown < 11
        assert text.endswith(f"; and {11 - shown} more")
        metrics = found.metrics()
        assert metrics["pulsar_stream_backlog_entries"] == 66
        assert metrics["pulsar_stream_max_partition_backlog_entries"] == 11
        assert metrics["pulsar_stream_backlog_bytes"] == 1200
        assert metrics["pulsar_stream_oldest_unread_age_seconds"] == 2.5

    def test_what_is_known_of_some_only(self) -> None:
        """A sum of sizes would be too small: there is none. An age is the greatest."""
        known = behind(1, backlog_bytes=100, age_s=1.5)
        found = lag(*known, *behind(1))
        assert found.backlog_bytes is None
        assert found.age_s == 1.5
        assert (lag().backlog_bytes, lag(*behind(1)).age_s) == (None, None)
        assert "about" not in str(found)
        assert "more" not in str(found)

    def test_rows_that_are_held_back(self) -> None:
        """Are said beside the backlog, a few of many."""
        held = behind(*[0] * 5, held_back="7:12")
        found = lag(*held, *behind(0))
        assert len(found.held_back) == 5
        assert found.metrics()["pulsar_stream_topic_partitions_held_back"] == 5
        assert str(found).endswith(
            "caught up with 6 topic partitions; an open transaction holds back rows of "
            "t-0 (stored up to 7:12), t-1 (stored up to 7:12), t-2 (stored up to 7:12) "
            "and 2 more"
        )
        line = str(lag(*behind(3), *behind(0, held_back="7:12")))
        assert "3 entries behind" in line
        assert line.endswith("rows of t-0 (stored up to 7:12)")

    def test_labels(self) -> None:
        """The same after a restart: the id of the run is none of them."""
        assert lag(source_index=2, query_name="q").labels() == {
            "query_id": "the-id",
            "query_name": "q",
            "source_index": "2",
        }
