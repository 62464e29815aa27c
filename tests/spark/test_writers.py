"""Writers as Spark makes and uses them on its driver, without Spark."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pulsar_spark import PulsarDataSource
from pulsar_spark.errors import OptionError

#: Rows that name their topics.
NAMING = StructType(
    [StructField("value", StringType()), StructField("__topic", StringType())]
)
NOWHERE = "pulsar://127.0.0.1:1"


def test_a_log_of_commits_needs_a_place() -> None:
    """Where only rows name topics there is none to put it beside: one is asked for."""
    options = {
        "service.url": NOWHERE,
        "deliveryGuarantee": "exactly-once",
        "idempotenceId": "orders",
    }
    with pytest.raises(OptionError) as caught:
        PulsarDataSource(options).streamWriter(NAMING, overwrite=False)
    assert "needs commitTopic, the full name of a topic" in str(caught.value)
