# SPDX-License-Identifier: Apache-2.0
"""Copy a topic of a cluster that wants TLS and a token, each row exactly once.

spark-submit --master spark://spark-master:7077 examples/secured_job.py \
    from to checkpoint-folder pulsar+ssl://broker-1:6651,broker-2:6651 /etc/pulsar

The folder is on every node, and has in it

    token     the token; whoever renews it renames another file to this name
    ca.pem    the authority that has signed the brokers' certificates

No secret is in this file, in the query or in a process list: each node reads its own.
Run it as often as you like: each run goes on where the last one ended.
"""

from __future__ import annotations

import sys

import pulsar_spark


def main(
    source: str, target: str, checkpoint: str, service_url: str, folder: str
) -> None:
    """Copy what is there now, and end. The topic that is read must exist."""
    secured = {
        "service.url": service_url,
        "pulsar.client.tlsTrustCertsFilePath": f"{folder}/ca.pem",
        "pulsar.client.authPluginClassName": "token",
        "pulsar.client.authParams": f"file:{folder}/token",
    }
    spark = pulsar_spark.session()
    query = (
        spark.readStream.format("pulsar")
        .options(**secured)
        .option("topic", source)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("value", "CAST(__key AS STRING) AS __key", "__messageProperties")
        .writeStream.format("pulsar")
        .options(**secured)
        .option("topic", target)
        .option("deliveryGuarantee", "exactly-once")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    copied = sum(batch["numInputRows"] for batch in query.recentProgress)
    print(f"{copied} new rows copied to {target}")


if __name__ == "__main__":
    main(*sys.argv[1:6])
