# SPDX-License-Identifier: Apache-2.0
"""The official stubs, as the SDK brings them: the only place that imports them.

Their names are private to the SDK, and which of them fits depends on the protobuf that
is installed. Another set of the same messages cannot be loaded beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ydb._grpc.v5.protos import ydb_topic_pb2 as pb
    from ydb._grpc.v5.ydb_topic_v1_pb2_grpc import TopicServiceStub
else:
    from ydb._grpc.common.protos import ydb_topic_pb2 as pb
    from ydb._grpc.common.ydb_topic_v1_pb2_grpc import TopicServiceStub

__all__ = ["TopicServiceStub", "pb"]
