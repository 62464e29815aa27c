# SPDX-License-Identifier: Apache-2.0
"""What the errors of every messaging system have in common.

::

    TopicsError
    ├── OptionError        options that cannot work
    ├── SchemaError        columns that do not fit
    ├── BadRowError        values that cannot be written
    ├── TransportError     unreachable, cut or silent
    │   └── TlsError       no connection that is safe
    ├── ProtocolError      bytes that no one would send
    ├── CheckpointError    offsets that are not ours
    ├── ReadTimeoutError   nothing came for too long
    └── DataLossError      wanted rows are not there

The package of a messaging system has its own root below `TopicsError`, and classes
that are both that and one of the kinds above, so that its users can catch either::

    class QueueError(TopicsError):
        condition = "QUEUE"

    class OptionError(QueueError, errors.OptionError):
        condition = "QUEUE_OPTION"

What is shared raises the classes that a `spark_topics.system.System` names. Errors
survive pickling, because they travel from executors to the driver. None holds a
credential, nor a character that would end its line in a log or command a terminal:
names and sentences of others are part of messages.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar, cast

_E = TypeVar("_E", bound="TopicsError")

#: Of a sentence or a name of somebody else, an error or a log line shows this much.
_FOREIGN_CHARACTERS = 500

#: No message is longer: it travels to the driver, and into more than one log.
_MESSAGE_CHARACTERS = 20_000


def foreign_text(text: str, limit: int = _FOREIGN_CHARACTERS) -> str:
    """Return foreign text in a form that is safe in errors and log lines.

    Control characters are escaped as in a Python literal, and the end is cut off.

    Args:
        text: Such as what a broker says.
        limit: Most characters to return.
    """
    shown = escaped_text(text[: limit + 1])
    return shown if len(shown) <= limit else f"{shown[: limit - 3]}..."


def escaped_text(text: str) -> str:
    """Return text with control characters escaped as in Python literals."""
    if text.isprintable():
        return text
    return "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")


def _rebuild(cls: type[TopicsError], state: dict[str, Any]) -> TopicsError:
    error = cls.__new__(cls)
    Exception.__init__(error, state["message"])
    error.__dict__.update(state)
    return error


class TopicsError(Exception):
    """Root of all errors of messaging systems.

    Attributes:
        condition: Stable upper-case name, printed in brackets before the message.
        message: What happened, where, and what to change.
        retriable: Whether the same operation may succeed later, unchanged.
        subject: Name of the topic or other thing that the error is about; "" where the
            message names several, or none.

    Args:
        message: The message.
        retriable: None for what is usual for the class.
    """

    condition = "TOPICS"
    retriable = False
    subject = ""

    def __init__(self, message: str, *, retriable: bool | None = None) -> None:
        self.message = foreign_text(message, _MESSAGE_CHARACTERS)
        if retriable is not None:
            self.retriable = retriable
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"[{self.condition}] {self.message}"

    def about(self: _E, subject: str) -> _E:
        """Return a copy about a topic, or another thing, whose name begins the message.

        Args:
            subject: The name, which is the copy's ``subject``.
        """
        error = self.saying(f"{subject}: {self.message}")
        error.subject = subject
        return error

    def saying(self: _E, message: str, *, retriable: bool | None = None) -> _E:
        """Return a copy with another message; all facts stay.

        Args:
            message: The text.
            retriable: Whether the operation may succeed later; None: as before.
        """
        state = {**self.__dict__, "message": foreign_text(message, _MESSAGE_CHARACTERS)}
        if retriable is not None:
            state["retriable"] = retriable
        return cast(_E, _rebuild(type(self), state))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.__dict__)


#: The last line of a traceback: the class of an error, and its condition. Texts of
#: others cannot begin a line, because their line ends are escaped.
_LAST_LINE = re.compile(
    r"^(?:[a-z]+_spark|spark_topics)\.errors\.\w+: \[([A-Z_]+)\] ", re.MULTILINE
)


def condition_of(error: BaseException) -> str | None:
    """Return the condition of an error of ours, such as ``PULSAR_TOPIC_NOT_FOUND``.

    Spark raises errors of its own, whose text has the error that its Python process
    ended with.

    Args:
        error: What a query raised, or the ``exception()`` of a streaming query.

    Returns:
        The condition; None where the error is not one of a format of this project.
    """
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        if isinstance(current, TopicsError):
            return current.condition
        if conditions := _LAST_LINE.findall(str(current)):
            return str(conditions[-1])
        current = current.__cause__ or current.__context__
    return None


class OptionError(TopicsError, ValueError):
    """Options are unknown, malformed, or contradictory.

    All problems are reported at once.

    Attributes:
        problems: Every problem found, one sentence each.
    """

    condition = "TOPICS_OPTION"

    def __init__(self, *problems: str) -> None:
        super().__init__(" ".join(problems))
        self.problems = problems


class SchemaError(TopicsError, ValueError):
    """Columns or types do not fit what a topic has, or what can be written."""

    condition = "TOPICS_SCHEMA"


class BadRowError(TopicsError, ValueError):
    """A row to be written holds a value that no message can hold."""

    condition = "TOPICS_BAD_ROW"


class TransportError(TopicsError, ConnectionError):
    """A server cannot be reached, or its connection broke or fell silent.

    Attributes:
        broker: ``host:port`` of the other side.
    """

    condition = "TOPICS_CONNECTION"
    retriable = True

    def __init__(
        self, message: str, *, broker: str = "", retriable: bool | None = None
    ) -> None:
        super().__init__(message, retriable=retriable)
        self.broker = broker


class TlsError(TransportError):
    """A connection could not be secured; nothing was sent.

    Attributes:
        is_unheard: Whether the other side only closed the connection.
    """

    condition = "TOPICS_TLS"
    retriable = False

    def __init__(
        self, message: str, *, broker: str = "", is_unheard: bool = False
    ) -> None:
        super().__init__(message, broker=broker, retriable=False)
        self.is_unheard = is_unheard


class ProtocolError(TopicsError):
    """The peer sent bytes that the protocol does not allow.

    Attributes:
        size_bytes: Size of what is larger than it may be, 0 where something else is
            wrong.
        limit_bytes: How large it may be.
    """

    condition = "TOPICS_PROTOCOL"

    def __init__(
        self, message: str, *, size_bytes: int = 0, limit_bytes: int = 0
    ) -> None:
        super().__init__(message)
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class CheckpointError(TopicsError, ValueError):
    """An offset in a streaming query's checkpoint cannot be read by this version."""

    condition = "TOPICS_CHECKPOINT"


class ReadTimeoutError(TopicsError, TimeoutError):
    """A topic partition delivered nothing for too long though rows are due.

    Attributes:
        topic_partition: Its name.
    """

    condition = "TOPICS_READ_TIMEOUT"

    def __init__(
        self, message: str, *, topic_partition: str = "", retriable: bool | None = None
    ) -> None:
        super().__init__(message, retriable=retriable)
        self.topic_partition = topic_partition


class DataLossError(TopicsError):
    """Rows that were asked for are no longer in the topic.

    Attributes:
        topic_partition: Its name.
        wanted: Position of the first row that was asked for.
        available: The first position that can still be read, "" where there is none.
    """

    condition = "TOPICS_DATA_LOSS"

    def __init__(
        self, message: str, *, topic_partition: str, wanted: str, available: str
    ) -> None:
        super().__init__(message)
        self.topic_partition = topic_partition
        self.wanted = wanted
        self.available = available
