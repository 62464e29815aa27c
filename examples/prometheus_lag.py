# SPDX-License-Identifier: Apache-2.0
"""Follow a topic, and let Prometheus scrape how far behind it the query is.

python examples/prometheus_lag.py my-topic checkpoint-folder 9090 [pulsar://host:6650]
"""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pyspark.sql import SparkSession

from pulsar_spark import PulsarLagListener, StreamLag

TEXTS: dict[str, str] = {}  # what a scrape gets of each source


class Metrics(BaseHTTPRequestHandler):
    """Answers every GET with the figures, as Prometheus reads them."""

    def do_GET(self) -> None:
        """Send a line for each gauge of each source."""
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.end_headers()
        self.wfile.write("".join(TEXTS.copy().values()).encode())


def note(lag: StreamLag) -> None:
    """Keep the figures of a source; JSON quotes names as Prometheus does."""
    labels = ",".join(f"{name}={json.dumps(v)}" for name, v in lag.labels().items())
    lines = (f"{name}{{{labels}}} {value}\n" for name, value in lag.metrics().items())
    TEXTS[labels] = "".join(lines)


def main(topic: str, checkpoint: str, port: str, service_url: str) -> None:
    """Read until the query is stopped."""
    server = ThreadingHTTPServer(("", int(port)), Metrics)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    spark = SparkSession.builder.appName("prometheus lag").getOrCreate()
    listener = PulsarLagListener(note)
    spark.streams.addListener(listener)
    options = {"service.url": service_url, "startingOffsets": "earliest"}
    rows = spark.readStream.format("pulsar").options(**options, topic=topic).load()
    writer = rows.writeStream.format("noop").queryName("prometheus lag")
    writer.option("checkpointLocation", checkpoint).start().awaitTermination()
    spark.streams.removeListener(listener)
    server.shutdown()
    server.server_close()


if __name__ == "__main__":
    url = os.environ.get("PULSAR_SERVICE_URL", "pulsar://localhost:6650")
    main(*sys.argv[1:4], *(sys.argv[4:] or [url]))
