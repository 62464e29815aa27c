# SPDX-License-Identifier: Apache-2.0
"""Pulsar's part of a stream's offsets: ledgers, and checkpoints of the Scala connector.

A query can go on from these. All of this is pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pulsar_spark.errors import OptionError
from pulsar_spark.options.offsets import parse_offsets
from pulsar_spark.source.stream.checkpoint import StreamOffset, unreadable
from pulsar_spark.source.stream.last_read import NOTHING_READ, LastRead
from spark_topics.options.offsets import Edge


def read_offset(tree: Any) -> StreamOffset[LastRead]:
    """Read an offset that Spark hands back.

    A checkpoint of the Scala connector is read, too: it has the serialised id of the
    last message by topic partition. The whole entry of that counts as read.

    Raises:
        CheckpointError: It is of another version, or not an offset at all.
    """
    if isinstance(tree, Mapping) and "v" not in tree:
        return StreamOffset("", _scala_positions(tree))
    return StreamOffset.from_json(tree, LastRead.parse)


def still_where_it_began(
    start: StreamOffset[LastRead],
    last_read: Mapping[str, LastRead],
    start_after: Mapping[str, LastRead],
) -> dict[str, LastRead]:
    """Return ``began`` for the end of the micro-batch that begins at ``start``."""
    began = {}
    for name, last in last_read.items():
        position = (start_after if start.is_new(name) else start.began).get(name)
        if position is not None and position.position == (last.ledger_id, -1) != (
            -1,
            -1,
        ):
            began[name] = position
    return began


def _scala_positions(tree: Mapping[str, Any]) -> dict[str, LastRead]:
    try:
        offsets = parse_offsets(json.dumps(tree), option="The checkpoint").topics
    except OptionError as error:
        raise unreadable(tree, error) from None
    positions = {}
    for name, position in offsets.items():
        if position is Edge.LATEST:
            raise unreadable(tree, ValueError(f"{name} stands at latest"))
        if isinstance(position, Edge):
            positions[name] = NOTHING_READ
        else:
            positions[name] = LastRead(*position.position)
    return positions
