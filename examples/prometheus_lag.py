# SPDX-License-Identifier: Apache-2.0
"""Follow a topic, and let Prometheus scrape how far behind the query is.

python -m pip install prometheus-client
python examples/prometheus_lag.py my-topic checkpoint-folder 9090 [pulsar://host:6650]

A dashboard for Grafana and rules of alerts: examples/monitoring.
"""

from __future__ import annotations

import os
import sys

from prometheus_client import CollectorRegistry, Gauge, start_http_server

import pulsar_spark
from pulsar_spark import PulsarLagListener, StreamLag


class Gauges:
    """The figures of each source of each query, as Prometheus scrapes them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._gauges: dict[str, Gauge] = {}

    def note(self, lag: StreamLag) -> None:
        """Keep the figures of a source."""
        labels = lag.labels()
        for name, value in lag.metrics().items():
            if name not in self._gauges:
                about = name.replace("_", " ")
                self._gauges[name] = Gauge(name, about, labels, registry=self.registry)
            self._gauges[name].labels(**labels).set(value)


def main(topic: str, checkpoint: str, port: str, service_url: str) -> None:
    """Read until the query is stopped."""
    gauges = Gauges()
    server, thread = start_http_server(int(port), registry=gauges.registry)
    spark = pulsar_spark.session()
    listener = PulsarLagListener(gauges.note)
    spark.streams.addListener(listener)
    options = {"service.url": service_url, "startingOffsets": "earliest"}
    rows = spark.readStream.format("pulsar").options(**options, topic=topic).load()
    writer = rows.writeStream.format("noop").queryName("prometheus lag")
    writer.option("checkpointLocation", checkpoint).start().awaitTermination()
    spark.streams.removeListener(listener)
    server.shutdown()
    server.server_close()
    thread.join()


if __name__ == "__main__":
    url = os.environ.get("PULSAR_SERVICE_URL", "pulsar://localhost:6650")
    main(*sys.argv[1:4], *(sys.argv[4:] or [url]))
