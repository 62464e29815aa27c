# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest
import ydb

from siblings.ydb_topic.tests.support.stubs import ydb_issue_message_pb2
from ydb_spark.errors import (
    AuthError,
    BoundProducerError,
    ServerError,
    TakenOverError,
    TopicNotFoundError,
)
from ydb_spark.wire.statuses import STATUSES, issues_text, server_error

#: number, whether to try again, slowly, and again if repetitions do no harm
TABLE = [
    (400010, False, False, False),
    (400020, False, False, False),
    (400030, True, False, True),
    (400040, True, False, True),
    (400050, True, False, True),
    (400060, True, True, True),
    (400070, False, False, False),
    (400080, False, False, False),
    (400090, False, False, True),
    (400100, True, False, True),
    (400120, False, False, False),
    (400130, False, False, False),
    (400140, False, False, False),
    (400150, True, False, True),
    (400160, True, False, True),
    (400170, False, False, True),
    (400180, False, False, False),
    (400190, True, False, True),
    (400200, False, False, False),
    (0, False, False, False),
    (499999, False, False, False),
]


@pytest.mark.parametrize(("number", "again", "slowly", "if_deduplicated"), TABLE)
def test_reactions(number: int, again: bool, slowly: bool, if_deduplicated: bool):
    """Each status has one reaction."""
    error = server_error(number, "reason", "subject")
    assert error.retriable is again
    assert error.is_slow is slowly
    repeated = server_error(number, "reason", "subject", is_deduplicated=True)
    assert repeated.retriable is if_deduplicated
    assert "subject: reason" in error.message


def test_names_are_the_sdk_s():
    """Every status that the SDK knows of the server is here, by its name."""
    of_server = {
        int(status): status.name
        for status in ydb.StatusCode
        if 400000 < int(status) < 401000
    }
    assert {n: s.name for n, s in STATUSES.items()} == of_server


@pytest.mark.parametrize(
    ("number", "reason", "expected"),
    [
        (400020, "no", AuthError),
        (400070, "no path", TopicNotFoundError),
        (
            400010,
            "ownership session is killed by another session",
            TakenOverError,
        ),
        (400010, "MessageGroupId p is already bound to", BoundProducerError),
        (400010, "else", ServerError),
    ],
)
def test_kinds(number: int, reason: str, expected: type[ServerError]):
    """What a user can do something about has a class of its own."""
    assert type(server_error(number, reason, "x")) is expected


@pytest.mark.parametrize(
    ("number", "reason", "is_slow"),
    [
        (400060, "quota exceeded", True),
        (400060, "Write to inactive partition 3", False),
        (400050, "tablet is initializing", False),
    ],
)
def test_pauses(number: int, reason: str, is_slow: bool):
    """Who has too much to do gets time; a partition that was split has children."""
    error = server_error(number, reason, "x")
    assert error.retriable
    assert error.is_slow is is_slow


def test_issues():
    """Nested ones are said, too, once, on one line."""
    issue = ydb_issue_message_pb2.IssueMessage(
        message="outer",
        issues=[{"message": "in\nner"}, {"message": "outer"}],
    )
    assert issues_text([issue, issue]) == "outer; in\\nner"
    assert issues_text([]) == "no reason given"


def test_servers_that_are_too_old():
    """They read for consumers alone."""
    error = server_error(400010, "no consumer in init request", "read of t")
    assert "too old" in error.message
    assert not error.retriable
