# SPDX-License-Identifier: Apache-2.0
"""Read only what came since the last time; a file remembers where that ended.

python examples/read_from_offsets.py my-topic my-topic.json [pulsar://host:6650]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pulsar_spark
from pulsar_spark import end_offsets


def main(topic: str, file: str, service_url: str) -> None:
    """Read up to where the topic ends now, and write down where to go on."""
    spark = pulsar_spark.session()
    options = {"service.url": service_url, "topic": topic}
    ends = end_offsets(options)

    reader = spark.read.format("pulsar").options(**options)
    if Path(file).exists():
        reader = reader.option("startingOffsets", Path(file).read_text())
    rows = reader.option("endingOffsets", ends.ending).load()

    print(f"{rows.count()} new rows in {topic}")
    # Only now: if the read fails, the next run begins where this one did.
    Path(file).write_text(ends.following)


if __name__ == "__main__":
    url = os.environ.get("PULSAR_SERVICE_URL", "pulsar://localhost:6650")
    main(*sys.argv[1:3], *(sys.argv[3:] or [url]))
