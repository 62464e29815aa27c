# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.source.stream.lag`; by Spark's progress: tests/spark."""

from __future__ import annotations

import json

import pytest

from pulsar_spark.source.stream.lag import PartitionLag, partition_lags

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
    assert partition_lags(json.dumps(REPORTED | {"ageMs": {T: "1"}}), None) is None


@pytest.mark.parametrize("text", [None, "null", "7", "[]", '{"v": 2}', '{"v": 1}', "{"])
def test_of_other_sources(text: str | None) -> None:
    """They have none."""
    assert partition_lags(text, None) is None
