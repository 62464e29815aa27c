# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.errors`: what crosses from executors to the driver."""

from __future__ import annotations

import copy
import pickle

import pytest

from pulsar_spark import errors
from pulsar_spark.errors import (
    RETRIABLE_SERVER_ERRORS,
    SERVER_ERRORS,
    AskAgainError,
    AuthError,
    BadRowError,
    BrokerError,
    CheckpointError,
    CommitInDoubtError,
    CommitLogError,
    CorruptEntryError,
    DataLossError,
    DeduplicationOffError,
    EncryptionError,
    EndNotReachedError,
    IdempotenceError,
    InDoubtError,
    MessageTooLargeError,
    OptionError,
    PackagesError,
    ProtocolError,
    PulsarSparkError,
    QueryConflictError,
    ReadTimeoutError,
    ScalableTopicError,
    SchemaError,
    SendTimeoutError,
    TlsError,
    TopicMigratedError,
    TopicNotFoundError,
    TransactionLostError,
    TransactionsOffError,
    TransportError,
    foreign_text,
)
from spark_topics.errors import TopicsError, condition_of

EXAMPLES: list[PulsarSparkError] = [
    PulsarSparkError("Something."),
    PackagesError("None."),
    OptionError("One.", "Two."),
    CheckpointError("Not one of ours."),
    CommitLogError("Not one of ours."),
    QueryConflictError("Twice."),
    AskAgainError("It moved."),
    TransportError("Unreachable.", broker="h:6650"),
    TlsError("Expired.", broker="h:6651", is_unheard=True),
    ProtocolError("Bytes."),
    CorruptEntryError("bad checksum", topic_partition="t", message_id="1:2"),
    EncryptionError("no key", topic_partition="t", message_id="1:2"),
    BrokerError("No.", code="ServiceNotReady", server_message="later", broker="h:1"),
    TopicNotFoundError("Absent.", code="TopicNotFound", broker="h:1"),
    AuthError("Refused.", code="AuthenticationError"),
    ScalableTopicError("persistent://a/b/c", "topic://a/b/c"),
    TransactionsOffError("None."),
    ReadTimeoutError("Silence.", topic_partition="t"),
    TopicMigratedError(
        "Gone.", broker="b:1", service_url="pulsar://c", service_url_tls=""
    ),
    DataLossError("Gone.", topic_partition="t", wanted="1:2", available=""),
    EndNotReachedError("Held.", topic_partition="t", wanted="1:2", available="1:1"),
    SchemaError("Columns."),
    BadRowError("A time before 1970."),
    TransactionLostError(7, [0, 2]),
    CommitInDoubtError("Who knows?", visible=[0], lost=[1], unknown=[2]),
    MessageTooLargeError(size_bytes=9, limit_bytes=8, topic_partition="t"),
    SendTimeoutError("Silence.", topic_partition="t"),
    InDoubtError("Cut.", topic_partition="t", rows=3),
    DeduplicationOffError("persistent://public/default/t"),
    IdempotenceError("id", "t", (3, 7)),
]


def every_class() -> set[type]:
    """All exception classes that the module defines."""
    return {
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, BaseException)
    }


def test_every_class_has_an_example() -> None:
    """A class added to the tree is added to these tests."""
    assert {type(error) for error in EXAMPLES} == every_class()


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda e: type(e).__name__)
def test_pickling_keeps_everything(error: PulsarSparkError) -> None:
    """An error arrives in another process with its class, text and facts."""
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        twin = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 - our own bytes
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)
        assert twin.args == error.args
        assert twin.retriable == error.retriable


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda e: type(e).__name__)
def test_copying_keeps_everything(error: PulsarSparkError) -> None:
    """A copy of an error is the same error."""
    assert vars(copy.copy(error)) == vars(error)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda e: type(e).__name__)
def test_text_begins_with_the_condition(error: PulsarSparkError) -> None:
    """The condition stands in brackets before the message."""
    assert str(error) == f"[{error.condition}] {error.message}"


def test_conditions_are_distinct() -> None:
    """Each class can be told by its condition."""
    conditions = [type(error).condition for error in EXAMPLES]
    assert len(set(conditions)) == len(conditions)
    assert all(c == "PULSAR" or c.startswith("PULSAR_") for c in conditions)


def test_all_share_one_root() -> None:
    """`PulsarSparkError` catches every error of the package, and is no more general."""
    assert all(issubclass(cls, PulsarSparkError) for cls in every_class())
    assert PulsarSparkError.__bases__ == (TopicsError,)


@pytest.mark.parametrize(
    ("cls", "builtin"),
    [
        (OptionError, ValueError),
        (TransportError, ConnectionError),
        (ReadTimeoutError, TimeoutError),
        (SchemaError, ValueError),
        (BadRowError, ValueError),
    ],
)
def test_familiar_builtins_catch_ours(cls: type, builtin: type) -> None:
    """Code that catches the built-in kind of error catches ours."""
    assert issubclass(cls, builtin)


def test_option_error_keeps_each_problem() -> None:
    """Problems are listed apart and joined in the message."""
    error = OptionError("One.", "Two.")
    assert error.problems == ("One.", "Two.")
    assert error.message == "One. Two."


@pytest.mark.parametrize("code", SERVER_ERRORS.values())
def test_broker_code_decides_about_retries(code: str) -> None:
    """A broker's refusal is worth a retry exactly for the codes listed."""
    assert BrokerError("No.", code=code).retriable == (code in RETRIABLE_SERVER_ERRORS)


def test_codes_to_retry_are_known() -> None:
    """No code in the list of retriable ones is misspelt."""
    assert set(SERVER_ERRORS.values()) >= RETRIABLE_SERVER_ERRORS


def test_only_errors_of_the_moment_may_be_retried() -> None:
    """Wrong options, bytes and lost rows stay wrong however often one asks."""
    retriable = {type(error) for error in EXAMPLES if error.retriable}
    assert retriable == {TransportError, BrokerError, AskAgainError}


@pytest.mark.parametrize("retriable", [True, False])
def test_who_makes_an_error_may_know_better(retriable: bool) -> None:
    """Whether another try helps is told at construction, and travels with it."""
    for error in (
        PulsarSparkError("No.", retriable=retriable),
        TransportError("No.", broker="h:1", retriable=retriable),
        BrokerError("No.", code="TooManyRequests", retriable=retriable),
        BrokerError("No.", code="NotAllowedError", retriable=retriable),
        ReadTimeoutError("No.", topic_partition="t", retriable=retriable),
    ):
        assert error.retriable is retriable
        assert copy.copy(error).retriable is retriable
        assert pickle.loads(pickle.dumps(error)).retriable is retriable  # noqa: S301
        assert error.about("t").retriable is retriable
    assert PulsarSparkError.retriable is False
    assert TransportError.retriable is True


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda e: type(e).__name__)
def test_an_error_may_be_told_otherwise(error: PulsarSparkError) -> None:
    """Its class and facts stay; the original does, too."""
    before = vars(error).copy()
    for retriable in (None, True, False):
        said = error.saying("In\nshort.", retriable=retriable)
        assert type(said) is type(error)
        assert said.message == "In\\nshort."
        assert said.args == (said.message,)
        assert said.retriable is (error.retriable if retriable is None else retriable)
        changed = {"message": "", "retriable": ""}
        assert {**vars(said), **changed} == {**vars(error), **changed}
        assert vars(error) == before


def test_corrupt_entry_names_its_place_when_known() -> None:
    """The message carries id and topic partition, or says neither."""
    known = CorruptEntryError("bad checksum", topic_partition="t", message_id="1:2")
    assert known.message == "Message 1:2 of t cannot be read: bad checksum"
    assert CorruptEntryError("short").message == "An entry cannot be read: short"


def test_encryption_errors_name_their_place_when_known() -> None:
    """Likewise."""
    known = EncryptionError("no key", topic_partition="t", message_id="1:2")
    assert known.message == "Message 1:2 of t cannot be decrypted: no key"
    assert EncryptionError("no").message == "An entry cannot be decrypted: no"


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda e: type(e).__name__)
def test_an_error_about_something_keeps_its_facts(error: PulsarSparkError) -> None:
    """An error can be told with what it is about, and is otherwise the same."""
    named = error.about("t-partition-0")
    assert type(named) is type(error)
    assert named.message == f"t-partition-0: {error.message}"
    assert named.args == (named.message,)
    assert named.subject == "t-partition-0"
    other = {"message": "", "subject": ""}
    assert {**vars(named), **other} == {**vars(error), **other}


def test_text_of_others_is_one_line_of_bounded_length() -> None:
    """Control characters are escaped, the rest stays as it is, the end is cut off."""
    assert foreign_text("no\r\nWARN \x1b[2J \u2028 \ud800 caf\xe9 \\n") == (
        "no\\r\\nWARN \\x1b[2J \\u2028 \\ud800 caf\xe9 \\n"
    )
    assert foreign_text("x" * 500) == "x" * 500
    assert foreign_text("x" * 501) == "x" * 497 + "..."
    assert len(foreign_text("\n" * 500)) == 500
    assert foreign_text(foreign_text("a\nb" * 400)) == foreign_text("a\nb" * 400)


def test_no_error_holds_what_could_forge_a_log_line() -> None:
    """Whatever part of a message it came in by; nor does any grow without limit."""
    topic = "persistent://public/default/a\n2026-01-01 FATAL \x1b[2J"
    refused = BrokerError(
        f"{topic}: no\r\n", code="NotAllowedError", server_message="no\n" * 2**20
    )
    for error in (refused, refused.about(topic), OptionError(f"{topic}!", "Two.")):
        assert str(error).isprintable()
        assert error.args == (error.message,)
    assert len(refused.server_message) == 500
    huge = TransportError("x" * 2**22)
    assert len(str(huge)) < 21_000
    assert len(str(huge.about("y" * 2**22))) < 21_000
    assert len(pickle.dumps(huge)) < 45_000


class TestConditionOf:
    """The condition of an error, also where Spark tells of it."""

    @pytest.mark.parametrize("error", EXAMPLES, ids=lambda e: type(e).__name__)
    def test_in_a_text_of_spark(self, error: PulsarSparkError) -> None:
        """Spark's error quotes the traceback of its Python process."""
        assert condition_of(error) == error.condition
        name = f"{type(error).__module__}.{type(error).__qualname__}"
        text = (
            "[PYTHON_DATA_SOURCE_ERROR] Failed to plan: Traceback (most recent call"
            f' last):\n  File "x.py", line 1, in y\n{name}: {error}\n\nSQLSTATE: 38000'
        )
        assert condition_of(RuntimeError(text)) == error.condition

    def test_as_the_cause_of_another_error(self) -> None:
        """What a program raises in between does not hide the condition."""
        told = RuntimeError("the job failed")
        told.__cause__ = OptionError("One.")
        assert condition_of(told) == "PULSAR_OPTION"
        later = KeyError("no such job")
        later.__context__ = told
        assert condition_of(later) == "PULSAR_OPTION"

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "the topic is [PULSAR_TOPIC_NOT_FOUND] indeed",
            "ValueError: x\\npulsar_spark.errors.X: [PULSAR_OPTION] y",
            "somebody.errors.XError: [PULSAR_OPTION] y",
        ],
    )
    def test_none(self, text: str) -> None:
        """Words of others that look alike are no error of ours."""
        assert condition_of(ValueError(text)) is None
