# SPDX-License-Identifier: Apache-2.0
"""Codes of replies from servers.

Source: InLong 2.4, TErrCodeConstants.
"""

from __future__ import annotations

SUCCESS = 200
NOT_READY = 201
MOVED = 301
BAD_REQUEST = 400
UNAUTHORIZED = 401
FORBIDDEN = 403
NOT_FOUND = 404
PARTITION_OCCUPIED = 410
HB_NO_NODE = 411
DUPLICATE_PARTITION = 412
CERTIFICATE_FAILURE = 415
SERVER_RECEIVE_OVERFLOW = 419
CLIENT_INCONSISTENT_TOPICSET = 425
TOPIC_NOT_DEPLOYED = 431
CONSUME_GROUP_FORBIDDEN = 450
SERVER_CONSUME_SPEED_LIMIT = 452
CONSUME_CONTENT_FORBIDDEN = 455
INTERNAL_SERVER_ERROR = 500
SERVICE_UNAVAILABLE = 503

NAMES = {
    **{
        number: name
        for name, number in list(globals().items())
        if name.isupper() and isinstance(number, int)
    },
    424: "CLIENT_INCONSISTENT_CONSUMETYPE",
    426: "CLIENT_INCONSISTENT_FILTERSET",
    427: "CLIENT_INCONSISTENT_SESSIONKEY",
    428: "CLIENT_INCONSISTENT_SELECTBIG",
    429: "CLIENT_INCONSISTENT_SOURCECOUNT",
    430: "CLIENT_DUPLICATE_INDEXID",
}

#: The group is used by others in another way.
GROUP_CONFLICTS = frozenset(range(424, 431))

#: After these the same request may succeed.
RETRIABLE = frozenset(
    {
        NOT_READY,
        MOVED,
        HB_NO_NODE,
        SERVER_RECEIVE_OVERFLOW,
        SERVER_CONSUME_SPEED_LIMIT,
        INTERNAL_SERVER_ERROR,
        SERVICE_UNAVAILABLE,
    }
)

#: Exceptions of a server that stands by, starts or stops.
RETRIABLE_EXCEPTIONS = frozenset(
    {"StandbyException", "ServerNotReadyException", "ServiceStoppingException"}
)
