# SPDX-License-Identifier: Apache-2.0
"""Streaming progress in Spark's event log.

One JSON object a line, an event each, plain or compressed. Those that are wanted::

    {"Event": "org.apache.spark.sql.streaming.[...]$QueryProgressEvent",
     "progress": {"id": "...", "batchId": 3, "timestamp": "2026-11-01T06:00:00.000Z",
                  "sources": [{"latestOffset": ..., "endOffset": ...}, ...], ...}}
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa

from pulsar_spark.errors import OptionError
from pulsar_spark.source.stream.lag import StreamLag, partition_lags

#: Suffixes of Spark's codecs that Arrow knows; its lz4 and snappy have forms of their
#: own.
_CODECS = {".zstd": "zstd", ".zst": "zstd"}
_UNKNOWN_CODECS = (".lz4", ".snappy", ".lzf")

_EVENT = "QueryProgressEvent"

#: What a line raises that is not what Spark writes.
_DAMAGED = (
    AttributeError,
    KeyError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True)
class Moment:
    """A micro-batch, or an idle trigger, in the event log.

    Attributes:
        at: When its trigger began.
        lag: How far the query was behind.
        rows_per_s: Rows that were read in each second of it; None where not told.
        duration_s: How long it took; None where not told.
    """

    at: datetime
    lag: StreamLag
    rows_per_s: float | None
    duration_s: float | None


def read_history(paths: Iterable[str], query_id: str) -> list[Moment]:
    """Return what event logs have of a query, in the order of time.

    Args:
        paths: Files, and folders of files.
        query_id: The query's id.

    Raises:
        OptionError: A file cannot be read.
    """
    moments: dict[tuple[str, str, int], Moment] = {}
    for path in paths:
        for file in _files(path):
            for progress in _progresses(file):
                if str(progress.get("id")) == query_id:
                    for moment in _moments(progress):
                        lag = moment.lag
                        key = lag.run_id, lag.timestamp, lag.source_index
                        moments[key] = moment
    return sorted(moments.values(), key=lambda one: (one.at, one.lag.source_index))


def _files(path: str) -> list[str]:
    if not os.path.isdir(path):
        return [path]
    return sorted(
        os.path.join(folder, name)
        for folder, _, names in os.walk(path)
        for name in names
        if not name.startswith((".", "appstatus"))
    )


def _progresses(path: str) -> Iterator[Mapping[str, Any]]:
    for line in _lines(path):
        if _EVENT.encode() not in line:
            continue
        try:
            event = json.loads(line)
            progress = event["progress"]
            if isinstance(progress, str):
                progress = json.loads(progress)
            is_wanted = str(event["Event"]).endswith(_EVENT)
        except _DAMAGED:
            continue  # the last one of a log that is still written
        if is_wanted and isinstance(progress, dict):
            yield progress


def _lines(path: str) -> Iterator[bytes]:
    name = path.removesuffix(".inprogress")
    if name.endswith(_UNKNOWN_CODECS):
        raise OptionError(
            f"--event-log {path}: its codec cannot be read here. Set"
            " spark.eventLog.compression.codec to zstd, or spark.eventLog.compress to"
            " false."
        )
    codec = _CODECS.get(os.path.splitext(name)[1])
    try:
        with pa.OSFile(path) as file:
            stream = pa.CompressedInputStream(file, codec) if codec else file
            parts: list[bytes] = []  # of a line that has not ended yet
            while data := _some(stream):
                first, *later_lines = data.split(b"\n")
                parts.append(first)
                if later_lines:
                    yield b"".join(parts)
                    yield from later_lines[:-1]
                    parts = later_lines[-1:]
                elif sum(map(len, parts)) > _MOST_LINE_BYTES:
                    raise OptionError(
                        f"--event-log {path} cannot be read: a line has more than "
                        f"{_MOST_LINE_BYTES >> 20} MiB, so the file is no event log."
                    )
            yield b"".join(parts)
    except (OSError, pa.ArrowException) as error:
        why = getattr(error, "strerror", None) or "it is no event log"
        raise OptionError(f"--event-log {path} cannot be read: {why}.") from None


#: An event of Spark is far shorter; what is longer would only fill the memory.
_MOST_LINE_BYTES = 64 << 20


def _some(stream: Any) -> bytes:
    try:
        return bytes(stream.read(1 << 20))
    except OSError:
        return b""  # the end of a compressed file that is still written


def _moments(progress: Mapping[str, Any]) -> list[Moment]:
    """Return a progress's moments of our sources; none if damaged."""
    try:
        return list(_of_sources(progress))
    except _DAMAGED:
        return []


def _of_sources(progress: Mapping[str, Any]) -> Iterator[Moment]:
    time = datetime.fromisoformat(str(progress["timestamp"]).replace("Z", "+00:00"))
    time = time.replace(tzinfo=time.tzinfo or timezone.utc)
    durations = progress.get("durationMs") or {}
    took_ms = durations.get("triggerExecution") if isinstance(durations, dict) else None
    for index, source in enumerate(progress["sources"]):
        latest, end = source.get("latestOffset"), source.get("endOffset")
        partitions = partition_lags(_as_text(latest), _as_text(end))
        if partitions is None:
            continue
        lag = StreamLag(
            query_id=str(progress.get("id")),
            run_id=str(progress.get("runId")),
            query_name=progress.get("name") or "",
            batch_id=int(progress.get("batchId", -1)),
            timestamp=str(progress["timestamp"]),
            source_index=index,
            input_rows=int(source.get("numInputRows") or 0),
            partitions=partitions,
        )
        rows_per_s = source.get("processedRowsPerSecond")
        yield Moment(
            time,
            lag,
            float(rows_per_s) if isinstance(rows_per_s, (int, float)) else None,
            took_ms / 1000 if isinstance(took_ms, (int, float)) else None,
        )


def _as_text(offset: object) -> str | None:
    """Return an offset as text; events have text or JSON."""
    if offset is None or isinstance(offset, str):
        return offset
    return json.dumps(offset)
