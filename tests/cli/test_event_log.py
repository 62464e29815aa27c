# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.cli.event_log`."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pulsar_spark.cli.event_log import read_history
from pulsar_spark.errors import OptionError
from tests.support.checkpoints import QUERY_ID
from tests.support.event_logs import BEGAN, progress_event

T = "persistent://public/default/t"
OTHERS = (
    '{"Event":"SparkListenerLogStart","Spark Version":"4.3.0"}',
    '{"Event":"x$QueryProgressEvent","progress":7}',
    "QueryProgressEvent that is no JSON",
)


def lines(*events: str) -> bytes:
    """A log of these and of other events."""
    return "\n".join([*OTHERS, *events, ""]).encode()


def test_what_a_log_has(tmp_path: Path) -> None:
    """Of this query alone, in the order of time."""
    (tmp_path / "log").write_bytes(
        lines(
            progress_event(1, {T: 3}, after_s=10, rows=8),
            progress_event(0, {T: 5}, rows=4),
            progress_event(0, {T: 5}, id="another query"),
            progress_event(2, {T: 1}, sources=[{"latestOffset": None}]),
        )
    )
    history = read_history([str(tmp_path / "log")], QUERY_ID)
    assert [one.lag.batch_id for one in history] == [0, 1]
    assert [one.lag.backlog_entries for one in history] == [5, 3]
    assert [one.at - BEGAN for one in history] == [timedelta(), timedelta(seconds=10)]
    assert history[1].rows_per_s == 4
    assert history[1].duration_s == 2
    assert history[1].lag.partitions[0].last_read == "7:9"


def test_folders_of_compressed_files(tmp_path: Path) -> None:
    """As Spark rolls them; one that is still written ends anywhere."""
    folder = tmp_path / "eventlog_v2_app-1"
    folder.mkdir()
    (folder / "appstatus_app-1").write_bytes(b"")
    for number in (0, 1):
        event = progress_event(number, {T: number}, after_s=number)
        data = pa.Codec("zstd").compress(lines(event), asbytes=True)
        if number == 1:
            data = lines(event)
        name = f"events_{number + 1}_app-1" + (".zstd" if number == 0 else "")
        (folder / name).write_bytes(data)
    whole = pa.Codec("zstd").compress(
        lines(*(progress_event(n, {T: n}, after_s=n) for n in range(2, 2000))),
        asbytes=True,
    )
    (folder / "events_3_app-1.zstd.inprogress").write_bytes(whole[: len(whole) // 2])
    numbers = [one.lag.batch_id for one in read_history([str(tmp_path)], QUERY_ID)]
    assert numbers[:2] == [0, 1]


@pytest.mark.parametrize("name", ["log.lz4", "missing", "log.snappy.inprogress"])
def test_what_cannot_be_read(tmp_path: Path, name: str) -> None:
    """It is an error that names the file, and not fewer micro-batches."""
    with pytest.raises(OptionError, match=name):
        read_history([str(tmp_path / name)], QUERY_ID)


@given(
    line=st.integers(0, 3),
    at=st.integers(0, 2000),
    cut=st.integers(0, 30),
    put=st.sampled_from(
        [b"", b"null", b"{}", b"-1", b"1e400", b'""', b"\xff", b"\0", b"9" * 400, b"\n"]
    ),
)
@example(line=0, at=0, cut=0, put=b"[" * 100_000)
def test_damaged_lines(line: int, at: int, cut: int, put: bytes) -> None:
    """They are left out: other lines are read as they are."""
    lines = [progress_event(n, {T: n}, after_s=n, rows=1).encode() for n in range(4)]
    at = min(at, len(lines[line]))
    lines[line] = lines[line][:at] + put + lines[line][at + cut :]
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"\n".join(lines))
        file.flush()
        found = {one.lag.batch_id for one in read_history([file.name], QUERY_ID)}
    assert {0, 1, 2, 3} - {line} <= found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"batchId": 1', '"batchId": 1e400'),
        ('"batchId": 1', '"batchId": {}'),
        ('"numInputRows": 0', '"numInputRows": 1e400'),
        ('"triggerExecution": 2000', f'"triggerExecution": {"9" * 400}'),
        ('"sources": [', '"sources": [null, '),
        ('"progress": {', '"progress": "{", "other": {'),
    ],
)
def test_numbers_and_objects_of_another_kind(
    tmp_path: Path, old: str, new: str
) -> None:
    """Such a line is damaged, too."""
    lines = [progress_event(n, {T: n}, after_s=n) for n in range(3)]
    assert old in lines[1]
    lines[1] = lines[1].replace(old, new)
    (tmp_path / "log").write_text("\n".join(lines))
    found = read_history([str(tmp_path / "log")], QUERY_ID)
    assert [one.lag.batch_id for one in found] == [0, 2]


def test_a_line_without_an_end(tmp_path: Path) -> None:
    """A small compressed file that becomes one huge line is refused."""
    data = pa.Codec("zstd").compress(bytes(80 << 20), asbytes=True)
    (tmp_path / "log.zstd").write_bytes(data)
    with pytest.raises(OptionError, match="more than 64 MiB"):
        read_history([str(tmp_path / "log.zstd")], QUERY_ID)


def test_lines_longer_than_a_piece(tmp_path: Path) -> None:
    """A line that is read in several pieces is whole."""
    long = '{"Event":"other","text":"' + "x" * (3 << 20) + '"}'
    text = "\n".join([long, progress_event(0, {T: 5}), long, ""])
    (tmp_path / "log").write_text(text)
    (moment,) = read_history([str(tmp_path / "log")], QUERY_ID)
    assert moment.lag.backlog_entries == 5
