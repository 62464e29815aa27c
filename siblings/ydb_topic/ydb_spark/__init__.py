# SPDX-License-Identifier: Apache-2.0
"""Topics of YDB as Spark tables and streams.

``spark.dataSource.register(YdbTopicDataSource)`` makes ``format("ydb_topic")`` known
where Spark has not found the format. The package ``ydb`` is the SDK.
"""

from __future__ import annotations

import spark_topics.requirements  # noqa: F401 - for its effect
from spark_topics.logs import set_up
from ydb_spark.spark.datasource import YdbTopicDataSource
from ydb_spark.system import SYSTEM

set_up(SYSTEM.package)

__all__ = ["YdbTopicDataSource"]
