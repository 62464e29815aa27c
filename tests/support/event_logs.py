# SPDX-License-Identifier: Apache-2.0
"""Event logs of Spark that no Spark wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from pulsar_spark.options.offsets import topic_tree
from tests.support.checkpoints import QUERY_ID, offset

#: When the first micro-batch began.
BEGAN = datetime(2026, 11, 1, 6, tzinfo=timezone.utc)


def progress_event(
    batch_id: int,
    backlog: Mapping[str, int],
    *,
    after_s: float = 0.0,
    run_id: str = "run-1",
    rows: int = 0,
    **more: Any,
) -> str:
    """The line of a micro-batch: offsets are texts, as Spark's events have them.

    Args:
        batch_id: Its number.
        backlog: Entries left of each topic partition, by full name.
        after_s: When it began, in seconds after `BEGAN`.
        run_id: Of the query.
        rows: That it read.
        **more: Further fields of the progress.
    """
    reported = {
        "v": 1,
        "latest": topic_tree(dict.fromkeys(backlog, "7:99")),
        "backlogEntries": topic_tree(dict(backlog)),
    }
    source = {
        "description": "PythonMicroBatchStream",
        "endOffset": json.dumps(offset(topic_tree(dict.fromkeys(backlog, "7:9")))),
        "latestOffset": json.dumps(reported),
        "numInputRows": rows,
        "processedRowsPerSecond": rows / 2,
    }
    at = BEGAN + timedelta(seconds=after_s)
    progress = {
        "id": QUERY_ID,
        "runId": run_id,
        "name": None,
        "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "batchId": batch_id,
        "durationMs": {"triggerExecution": 2000},
        "sources": [source],
        **more,
    }
    name = "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent"
    return json.dumps({"Event": name, "progress": progress})
