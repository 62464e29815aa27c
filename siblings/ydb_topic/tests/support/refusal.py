# SPDX-License-Identifier: Apache-2.0
"""How the double says no."""

from __future__ import annotations

from siblings.ydb_topic.tests.support.stubs import ydb_issue_message_pb2

SUCCESS = 400000
BAD_REQUEST = 400010
UNAUTHORIZED = 400020
INTERNAL_ERROR = 400030
ABORTED = 400040
UNAVAILABLE = 400050
OVERLOADED = 400060
SCHEME_ERROR = 400070
BAD_SESSION = 400100
ALREADY_EXISTS = 400130
NOT_FOUND = 400140


class RefusalError(Exception):
    """A status that ends a stream or a call.

    Args:
        status: The number of YDB's status.
        message: What its issue says.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message

    @property
    def issues(self) -> list[ydb_issue_message_pb2.IssueMessage]:
        """Return what goes with the status."""
        return [
            ydb_issue_message_pb2.IssueMessage(
                message=self.message, issue_code=500000, severity=1
            )
        ]


class EndedError(Exception):
    """A fault ends the stream with OK."""
