# SPDX-License-Identifier: Apache-2.0
"""Apache InLong TubeMQ topics as Spark tables and streams, in Python.

Reading order of the package, along the path of a row::

    spark/datasource.py       options in, a reader out
    source/batch_plan.py      driver: asks where partitions begin and end
    source/ranges.py          what to read of each
    source/task.py            executor: the loop of a task
    source/range_reader.py    the messages of one range, cut to it
    client/brokers.py         registrations and gets
    client/connection.py      a socket and a thread
    wire/protocol.py          bytes in, events out
    arrow/decode.py           messages -> RecordBatches for Spark

What is not TubeMQ's own is in ``spark_topics``.
"""

import spark_topics.requirements  # noqa: F401 - for its effect
from spark_topics.logs import set_up
from tubemq_spark.spark.datasource import TubeMQDataSource
from tubemq_spark.system import SYSTEM

set_up(SYSTEM.package)

__all__ = ["TubeMQDataSource"]
