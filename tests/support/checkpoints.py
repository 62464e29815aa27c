# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of queries that never ran, file by file as Spark has them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pulsar_spark.errors import CheckpointError
from pulsar_spark.source.stream.checkpoint import StreamOffset
from pulsar_spark.source.stream.last_read import LastRead
from pulsar_spark.source.stream.pulsar_offsets import read_offset

#: Of every such query.
QUERY_ID = "97b5e959-ed6b-43ed-b1e5-15f2e692140c"


def offset(
    positions: Mapping[str, Any], subscription: str = "spark-pulsar-s", **more: Any
) -> dict[str, Any]:
    """An offset of ours, as JSON."""
    return {"v": 1, "subscription": subscription, "lastRead": positions, **more}


def write_checkpoint(
    folder: Path, ends: Mapping[int, list[Any]], committed: int = -1
) -> Path:
    """Write a checkpoint and return its folder.

    Args:
        folder: Where.
        ends: By micro-batch, the end of each source.
        committed: The last micro-batch that is committed, with all before it.
    """
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": QUERY_ID}))
    for batch_id, sources in ends.items():
        lines = ["v1", '{"batchWatermarkMs":0}', *map(json.dumps, sources)]
        (folder / "offsets" / str(batch_id)).write_text("\n".join(lines))
        (folder / "offsets" / f".{batch_id}.crc").write_bytes(b"crc")
        if batch_id <= committed:
            done = 'v1\n{"nextBatchWatermarkMs":0}'
            (folder / "commits" / str(batch_id)).write_text(done)
    return folder


def read(text: str) -> StreamOffset[LastRead]:
    """What Spark gives back for a text of its checkpoint."""
    return read_offset(json.loads(text))


def refused(tree: Any) -> str:
    """The message with which an offset is refused."""
    with pytest.raises(CheckpointError) as caught:
        read_offset(tree)
    assert str(caught.value).startswith("[PULSAR_CHECKPOINT] The checkpoint has")
    return caught.value.message
