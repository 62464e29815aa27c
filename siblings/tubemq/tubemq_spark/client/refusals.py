# SPDX-License-Identifier: Apache-2.0
"""What servers refuse, as the errors to raise."""

from __future__ import annotations

import platform

from spark_topics.errors import foreign_text
from tubemq_spark import errors
from tubemq_spark.errors import ServerError
from tubemq_spark.wire import codes
from tubemq_spark.wire.rpc import Failure

_KINDS: dict[int, tuple[type[ServerError], str]] = {
    codes.TOPIC_NOT_DEPLOYED: (
        errors.TopicNotFoundError,
        "Check the topic's name; a new one can be used some 40 s after it was made.",
    ),
    codes.CONSUME_GROUP_FORBIDDEN: (
        errors.GroupForbiddenError,
        "Ask the administrator, or choose another `consume.group`.",
    ),
    codes.CONSUME_CONTENT_FORBIDDEN: (
        errors.GroupForbiddenError,
        "Ask the administrator which `stream.id` the group may read.",
    ),
    codes.PARTITION_OCCUPIED: (
        errors.PartitionOccupiedError,
        "Give each query its own `consume.group`; a killed one's is free in 30 s.",
    ),
    codes.DUPLICATE_PARTITION: (
        errors.PartitionOccupiedError,
        "Another one took it over: give each query its own `consume.group`.",
    ),
    codes.CERTIFICATE_FAILURE: (
        errors.AuthError,
        "Check `usr.name` and `usr.password`, and the clocks here and there.",
    ),
    **dict.fromkeys(
        codes.GROUP_CONFLICTS,
        (
            errors.GroupForbiddenError,
            "The group is in use in another way: choose another `consume.group`.",
        ),
    ),
}

#: By what the stock servers say.
_AUTH_CURES = (
    (
        "timestamp",
        (
            f"The clock of {platform.node()} and the server's differ by more than it "
            "allows, by default 20 s: set them."
        ),
    ),
    ("userName is Blank", "Set `usr.name` and `usr.password`."),
    (
        "authAuthorizedToken",
        (
            "The master gave no token for this user, and the broker wants one: ask the "
            "administrator."
        ),
    ),
)


def refusal(
    code: int, sentence: str, *, call: str, server: str, subject: str = ""
) -> ServerError:
    """Return what a server refused, as the error to raise.

    Args:
        code: Of its reply.
        sentence: The text.
        call: Name of the request.
        server: ``host:port`` of it.
        subject: The subject, "" for nothing in particular.
    """
    kind, cure = _KINDS.get(code, (ServerError, ""))
    if code == codes.CERTIFICATE_FAILURE:
        cure = next((text for part, text in _AUTH_CURES if part in sentence), cure)
    name = codes.NAMES.get(code, f"CODE_{code}")
    shown = foreign_text(sentence)
    about = f" of {subject}" if subject else ""
    text = f"The server {server} answered the {call}{about} by {code} {name}: {shown}"
    if cure:
        text = f"{text.rstrip('. ')}. {cure}"
    return kind(
        text,
        code=code,
        name=name,
        server_message=shown,
        broker=server,
        retriable=code in codes.RETRIABLE or is_lock_failure(code, sentence),
    )


def is_lock_failure(code: int, sentence: str) -> bool:
    """Return whether a broker had no time for a request, which may come again."""
    return code == codes.BAD_REQUEST and "lock" in sentence.lower()


def exception(failure: Failure, *, call: str, server: str) -> ServerError:
    """Return what a server threw, as the error to raise."""
    text = foreign_text(failure.message)
    name = foreign_text(failure.exception)
    return ServerError(
        f"The server {server} answered the {call} by {name}: {text}",
        name=name,
        server_message=text,
        broker=server,
        retriable=failure.is_fatal or failure.exception in codes.RETRIABLE_EXCEPTIONS,
    )
