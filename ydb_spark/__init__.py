# SPDX-License-Identifier: Apache-2.0
"""Topics of YDB as Spark tables and streams.

``spark.dataSource.register(YdbTopicDataSource)`` makes ``format("ydb_topic")`` known
where Spark has not found it by itself. It needs the extra: ``pulsar-spark[ydb]``.
"""

from __future__ import annotations

from ydb_spark.spark.datasource import YdbTopicDataSource

__all__ = ["YdbTopicDataSource"]
