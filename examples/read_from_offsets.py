# SPDX-License-Identifier: Apache-2.0
"""Read only what came since the last time; a file remembers where that ended.

python examples/read_from_offsets.py my-topic my-topic.json [pulsar://host:6650]
"""

from __future__ import annotations

import json
import os
import sys
from collections import deque
from pathlib import Path

from pyspark.sql import SparkSession

from pulsar_spark import MessageId, decode_message_id


def after(last: MessageId) -> MessageId:
    """Return the position after a message, in its batch or after its entry."""
    if last.batch_index < 0:
        return MessageId(last.ledger_id, last.entry_id + 1)
    return MessageId(last.ledger_id, last.entry_id, last.batch_index + 1)


def main(topic: str, file: str, service_url: str) -> None:
    """Read, and write down for each topic partition where to begin next time."""
    spark = SparkSession.builder.appName("read from offsets").getOrCreate()
    offsets = json.loads(Path(file).read_text()) if Path(file).exists() else {}

    reader = spark.read.format("pulsar").option("service.url", service_url)
    if offsets:
        reader = reader.option("startingOffsets", json.dumps(offsets))
    # Cached: what is counted must be what is looked at for the newest rows.
    rows = reader.option("topic", topic).load().cache()

    print(f"{rows.count()} new rows in {topic}")
    # An input partition is one topic partition in order: its last row is the newest.
    ids = rows.select("__topic", "__messageId").rdd
    for name, data in ids.mapPartitions(lambda rows: deque(rows, 1)).collect():
        offsets[name] = str(after(decode_message_id(data)))
    Path(file).write_text(json.dumps(offsets))


if __name__ == "__main__":
    url = os.environ.get("PULSAR_SERVICE_URL", "pulsar://localhost:6650")
    main(*sys.argv[1:3], *(sys.argv[3:] or [url]))
