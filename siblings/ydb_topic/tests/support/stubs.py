# SPDX-License-Identifier: Apache-2.0
"""The official stubs, for the double."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ydb

if TYPE_CHECKING:
    from ydb._grpc.v5 import (
        ydb_auth_v1_pb2_grpc,
        ydb_discovery_v1_pb2_grpc,
        ydb_query_v1_pb2_grpc,
        ydb_topic_v1_pb2_grpc,
    )
    from ydb._grpc.v5.protos import (
        ydb_auth_pb2,
        ydb_discovery_pb2,
        ydb_issue_message_pb2,
        ydb_operation_pb2,
        ydb_query_pb2,
        ydb_topic_pb2,
    )
else:
    from ydb._grpc.common import (
        ydb_auth_v1_pb2_grpc,
        ydb_discovery_v1_pb2_grpc,
        ydb_query_v1_pb2_grpc,
        ydb_topic_v1_pb2_grpc,
    )
    from ydb._grpc.common.protos import (
        ydb_auth_pb2,
        ydb_discovery_pb2,
        ydb_issue_message_pb2,
        ydb_operation_pb2,
        ydb_query_pb2,
        ydb_topic_pb2,
    )

__all__ = [
    "Status",
    "ydb_auth_pb2",
    "ydb_auth_v1_pb2_grpc",
    "ydb_discovery_pb2",
    "ydb_discovery_v1_pb2_grpc",
    "ydb_issue_message_pb2",
    "ydb_operation_pb2",
    "ydb_query_pb2",
    "ydb_query_v1_pb2_grpc",
    "ydb_topic_pb2",
    "ydb_topic_v1_pb2_grpc",
]

Status = ydb.StatusCode
