# SPDX-License-Identifier: Apache-2.0
"""YDB's statuses, and what to do about each.

The numbers are those of ``Ydb.StatusIds``; a stream ends with one of them in a message,
while gRPC's own status stays OK.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from spark_topics.errors import foreign_text
from ydb_spark.errors import (
    AuthError,
    BoundProducerError,
    ServerError,
    TakenOverError,
    TopicNotFoundError,
)

SUCCESS = 400000


class Reaction(enum.Enum):
    """What to do after a status."""

    FINAL = "give up"
    RETRY = "try again"
    RETRY_SLOWLY = "try again, after a longer pause"
    #: Nobody knows whether it was done, so only where a repetition does no harm.
    RETRY_IF_DEDUPLICATED = "try again if repetitions are dropped"


@dataclass(frozen=True)
class Status:
    """A status code: name, cause and cure.

    Attributes:
        name: YDB's own.
        reaction: What to do.
    """

    name: str
    reaction: Reaction


STATUSES = {
    400010: Status("BAD_REQUEST", Reaction.FINAL),
    400020: Status("UNAUTHORIZED", Reaction.FINAL),
    400030: Status("INTERNAL_ERROR", Reaction.RETRY),
    400040: Status("ABORTED", Reaction.RETRY),
    400050: Status("UNAVAILABLE", Reaction.RETRY),
    400060: Status("OVERLOADED", Reaction.RETRY_SLOWLY),
    400070: Status("SCHEME_ERROR", Reaction.FINAL),
    400080: Status("GENERIC_ERROR", Reaction.FINAL),
    400090: Status("TIMEOUT", Reaction.RETRY_IF_DEDUPLICATED),
    400100: Status("BAD_SESSION", Reaction.RETRY),
    400120: Status("PRECONDITION_FAILED", Reaction.FINAL),
    400130: Status("ALREADY_EXISTS", Reaction.FINAL),
    400140: Status("NOT_FOUND", Reaction.FINAL),
    400150: Status("SESSION_EXPIRED", Reaction.RETRY),
    400160: Status("CANCELLED", Reaction.RETRY),
    400170: Status("UNDETERMINED", Reaction.RETRY_IF_DEDUPLICATED),
    400180: Status("UNSUPPORTED", Reaction.FINAL),
    400190: Status("SESSION_BUSY", Reaction.RETRY),
    400200: Status("EXTERNAL_ERROR", Reaction.FINAL),
}

#: What servers say of a session that a newer one of the same producer ended.
_TAKEN_OVER = "ownership session is killed"
_BOUND = "is already bound to"

#: What old ones say, which read for consumers alone.
_NEEDS_CONSUMER = "no consumer in init request"

#: What they say of a partition that was split or merged, as if they had too much to do:
#: its children are there at once.
_INACTIVE = "inactive partition"


def issues_text(issues: Iterable[Any]) -> str:
    """Return the text of a server's issues, nested issues included, on a line."""
    texts = [text for issue in issues for text in _texts(issue, depth=5)]
    return foreign_text("; ".join(dict.fromkeys(texts))) or "no reason given"


def _texts(issue: Any, depth: int) -> list[str]:
    texts = [issue.message] if issue.message else []
    if depth:
        for inner in issue.issues:
            texts += _texts(inner, depth - 1)
    return texts


def server_error(
    number: int, reason: str, subject: str, *, is_deduplicated: bool = False
) -> ServerError:
    """Return the error that a status means.

    Args:
        number: Of the status.
        reason: What the server says.
        subject: What was asked for, and of which topic.
        is_deduplicated: Whether a repetition of what was asked does no harm.
    """
    status = STATUSES.get(number, Status(f"status {number}", Reaction.FINAL))
    text = f"{subject}: {reason} ({status.name})."
    name = status.name
    if name == "UNAUTHORIZED":
        return AuthError(
            f"{text} Writing needs the right UpdateRow, reading SelectRow.",
            status=name,
        )
    if name == "SCHEME_ERROR":
        return TopicNotFoundError(
            f"{text} The topic or partition does not exist, or there is no right to see"
            " it: the server answers both alike.",
            status=name,
        )
    if name == "BAD_REQUEST" and _TAKEN_OVER in reason:
        return TakenOverError(
            f"{text} Another attempt of this task, or another query with the same"
            " idempotenceId, writes now. Set spark.speculation=false, and give each"
            " query an id of its own.",
            status=name,
        )
    if name == "BAD_REQUEST" and _BOUND in reason:
        return BoundProducerError(
            f"{text} A producer stays in the partition that it first wrote to. Take a"
            " new idempotenceId, or send the rows to the former partition.",
            status=name,
        )
    if _NEEDS_CONSUMER in reason:
        text = (
            f"{text} This server is too old: reads are without a consumer, which it"
            " does not know. Upgrade the server."
        )
    reaction = status.reaction
    return ServerError(
        text,
        status=name,
        is_slow=reaction is Reaction.RETRY_SLOWLY and _INACTIVE not in reason,
        retriable=reaction in (Reaction.RETRY, Reaction.RETRY_SLOWLY)
        or (is_deduplicated and reaction is Reaction.RETRY_IF_DEDUPLICATED),
    )
