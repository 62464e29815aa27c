# SPDX-License-Identifier: Apache-2.0
"""Pulsar's secrets fail with Pulsar's errors, wherever they have travelled."""

from __future__ import annotations

import pickle

import pytest

from pulsar_spark.errors import OptionError
from pulsar_spark.options.parse import _KNOWN, OPTIONS
from pulsar_spark.options.secret import Secret, secret
from spark_topics.options.given import Given
from spark_topics.options.spec import Scope


def test_errors_are_pulsars() -> None:
    """When it is given, and when it is read on another node."""
    with pytest.raises(OptionError, match=r"^.PULSAR_OPTION. some.name must name"):
        secret("env:", "some.name")
    one = secret(" env:PULSAR_SPARK_NOT_THERE ", "some.name")
    there = pickle.loads(pickle.dumps(one))  # noqa: S301 - our own bytes
    assert type(there) is Secret
    assert there == one
    with pytest.raises(OptionError, match=r"^.PULSAR_OPTION. some.name names the env"):
        there.read()


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("subscriptionPrefix", "app:prod/x", "must not contain a slash"),
        ("topics", "a,urn:isbn//x", "is not a topic name"),
        ("startingTime", 'x, authParams={"password":"SECRET"}', "is not a time"),
        ("startingTime", f"x, authParams=basic:{'SECRET' * 20}", "is not a time"),
        ("startingOffsets", '{"urn:b": {"0": "SECRET"}}', "is not a message id"),
    ],
)
def test_what_is_wrong_is_said_without_what_is_hidden(
    name: str, text: str, problem: str
) -> None:
    """Also where an error escapes, cuts or takes apart the text."""
    given = Given({name: text}, _KNOWN, Scope.BATCH)
    (said,) = given.problems
    assert problem in said
    assert "SECR" not in said


@pytest.mark.parametrize("harmless", ["5", "true", "t", "earliest", "{}", "1:2", ".*("])
@pytest.mark.parametrize("between", [" ", "\n", ";", ", "])
@pytest.mark.parametrize("name", ["pulsar.client.authParams=", "authParam: "])
def test_the_value_of_one_option_in_another(
    harmless: str, between: str, name: str
) -> None:
    """Where it makes that one wrong, the error does not show it."""
    secret_text = "c2VjcmV0LW9mLXRoZS10ZXN0"
    text = f"{harmless}{between}{name}token:{secret_text}"
    for spec in OPTIONS:
        given = Given({spec.name: text}, _KNOWN, spec.scope)
        assert secret_text not in " ".join(given.problems), spec.name


@pytest.mark.parametrize("before", ["", "t, ", "earliest,", ".*("])
@pytest.mark.parametrize("scheme", ["pulsar", "pulsar+ssl", "http", "s3a", "topic"])
@pytest.mark.parametrize("user", ["me:{}", "{}", "me:a/{}", "me:a@{}", ":{}"])
def test_the_user_of_a_uri_in_a_wrong_place(
    before: str, scheme: str, user: str
) -> None:
    """Where it is no value of an option, the error does not show it."""
    secret_text = "c2VjcmV0LW9mLXRoZS10ZXN0"
    text = f"{before}{scheme}://{user.format(secret_text)}@host:6650"
    for spec in OPTIONS:
        given = Given({spec.name: text}, _KNOWN, spec.scope)
        assert secret_text not in " ".join(given.problems), spec.name
