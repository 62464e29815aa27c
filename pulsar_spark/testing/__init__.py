# SPDX-License-Identifier: Apache-2.0
"""A test kit for jobs that read and write Pulsar: a real broker within a test.

::

    def test_job(pulsar_broker, spark):
        orders = pulsar_broker.new_topic("orders", partitions=2)
        given = pulsar_broker.options(orders)
        rows.write.format("pulsar").mode("append").options(**given).save()
        ...

The fixture ``pulsar_broker`` of pytest is in ``pytest_pulsar_spark.py``, which pytest
loads as a plug-in.
"""

from pulsar_spark.testing.admin import Admin, AdminError
from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from pulsar_spark.testing.processes import BrokerStartError
from pulsar_spark.testing.pulsar_broker import PulsarBroker, running_broker

__all__ = [
    "Admin",
    "AdminError",
    "BrokerStartError",
    "EmbeddedBroker",
    "PulsarBroker",
    "running_broker",
]
