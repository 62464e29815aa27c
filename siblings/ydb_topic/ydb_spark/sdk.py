# SPDX-License-Identifier: Apache-2.0
"""The official SDK, an extra: only this module imports the SDK, gRPC and stubs.

The names of the stubs are private to the SDK, and which of them fits depends on the
protobuf that is installed. Another set of the same messages cannot be loaded next to
it.

Each node needs it. What Spark sends to a node brings the modules that import this one:
so if it is missing, this error is what the query ends with.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from spark_topics.errors import foreign_text
from ydb_spark.errors import OptionError

try:
    import grpc
    import ydb

    if TYPE_CHECKING:
        from ydb._grpc.v5.protos import ydb_topic_pb2 as pb
        from ydb._grpc.v5.ydb_topic_v1_pb2_grpc import TopicServiceStub
    else:
        from ydb._grpc.common.protos import ydb_topic_pb2 as pb
        from ydb._grpc.common.ydb_topic_v1_pb2_grpc import TopicServiceStub
except ImportError as error:
    raise OptionError(
        f'format("ydb_topic") needs the SDK of YDB on {platform.node()}: '
        f"`pip install ydb`. There: {foreign_text(str(error))}."
    ) from None

__all__ = ["TopicServiceStub", "grpc", "pb", "ydb"]
