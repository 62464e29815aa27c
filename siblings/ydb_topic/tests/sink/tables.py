# SPDX-License-Identifier: Apache-2.0
"""Rows to write, and a writer for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ydb_spark.client.channel import Channel
from ydb_spark.options.write import WriteOptions
from ydb_spark.sink.task import TaskWriter

OPTIONS = WriteOptions(topic="t", send_timeout_s=10, stats_interval_s=0)


def table(bodies: Sequence[bytes | None], **columns: Any) -> pa.RecordBatch:
    """Rows of bodies, and further columns."""
    return pa.RecordBatch.from_pydict(
        {"data": pa.array(bodies, pa.binary()), **columns}
    )


def bodies(count: int, begin: str = "row") -> list[bytes]:
    """Bodies that differ."""
    return [f"{begin} {n}".encode() for n in range(count)]


def writer(
    channel: Channel,
    number: int = 0,
    *,
    batch_id: int = 0,
    id_: str | None = None,
    **options: Any,
) -> TaskWriter:
    """The writer of a task."""
    return TaskWriter(
        lambda: channel,
        replace(OPTIONS, **options),
        number,
        batch_id=batch_id,
        id_=id_,
    )
