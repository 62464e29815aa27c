# SPDX-License-Identifier: Apache-2.0
"""Write the messages that a topic got within an hour into another topic, once.

python examples/replay_hour.py from to 2026-11-28T10:00:00Z [pulsar://host:6650]

The same command again, after a crash for instance, adds nothing: the name of the hour
is the idempotence id of the write. Deduplication has to be on for the second topic.
"""

from __future__ import annotations

import os
import sys
from datetime import datetime, timedelta

import pulsar_spark

METADATA = ["__key", "__eventTime", "__messageProperties", "__tombstone"]


def main(source: str, target: str, begin: str, service_url: str) -> None:
    """Copy payloads, keys and event times."""
    spark = pulsar_spark.session()
    first = datetime.fromisoformat(begin.replace("Z", "+00:00"))
    last = first + timedelta(hours=1) - timedelta(milliseconds=1)
    messages = (
        spark.read.format("pulsar")
        .option("service.url", service_url)
        .option("topic", source)
        .option("startingTime", first.isoformat())
        .option("endingTime", last.isoformat())
        .option("metadataColumns", ",".join(METADATA))
        .load()
    )
    # A copy of columns has their schema, too; bytes, as of PROTOBUF, have none there.
    is_typed = messages.drop(*METADATA).dtypes != [("value", "binary")]
    schema = {"schemaTopic": source} if is_typed else {}
    writer = messages.withColumn("__key", messages["__key"].cast("string")).write
    writer.format("pulsar").mode("append").options(**schema).options(
        **{
            "service.url": service_url,
            "topic": target,
            "deliveryGuarantee": "idempotent",
            "idempotenceId": f"replay.{source.split('/')[-1]}.{first:%Y-%m-%dT%H:%M}",
        }
    ).save()
    print(f"{messages.count()} messages of {source} from {first} to {last}")


if __name__ == "__main__":
    url = os.environ.get("PULSAR_SERVICE_URL", "pulsar://localhost:6650")
    main(*sys.argv[1:4], *(sys.argv[4:] or [url]))
