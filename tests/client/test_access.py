# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.client.access`."""

from __future__ import annotations

import pytest

from pulsar_spark.client.access import AUTHENTICATION, AUTHORIZATION, cure
from pulsar_spark.client.authentication.stored import (
    LoginCredentials,
    TokenCredentials,
)
from pulsar_spark.options.authentication import Login, Token
from pulsar_spark.options.secret import Secret

ANN = LoginCredentials(Login("ann", Secret("pw")))
OPAQUE = TokenCredentials(Token(Secret("abc")))
TOPIC = "persistent://a/b/t"


def test_who_shows_nothing() -> None:
    """The options are named."""
    assert "`pulsar.client.authPluginClassName`" in cure(AUTHENTICATION, "", None)


def test_who_is_not_known() -> None:
    """The method is named, and what to check."""
    text = cure(AUTHENTICATION, "", ANN)
    assert "the method basic" in text
    assert "the user and the password" in text


@pytest.mark.parametrize(
    ("request_", "action"),
    [
        ("PRODUCER", "produce"),
        ("SUBSCRIBE", "consume"),
        ("GET_LAST_MESSAGE_ID", "consume"),
    ],
)
def test_an_action_that_is_missing(request_: str, action: str) -> None:
    """Role, topic and action are named, and the commands that grant it."""
    text = cure(AUTHORIZATION, "no", ANN, request_, f"{TOPIC}-partition-3")
    assert f"The role 'ann' lacks the action {action} on the topic {TOPIC}." in text
    for what in ("namespaces grant-permission a/b", f"topics grant-permission {TOPIC}"):
        assert f"`pulsar-admin {what} --role ann --actions {action}`" in text


def test_either_action_would_do() -> None:
    """Who looks a topic up must be allowed one thing or the other."""
    text = cure(AUTHORIZATION, "no", OPAQUE, "LOOKUP", TOPIC)
    assert "The role that connects lacks both consume and produce" in text
    assert "--role ROLE --actions consume`" in text
    assert "produce, in order to write" in text


def test_a_namespace() -> None:
    """It has no command for a topic."""
    text = cure(AUTHORIZATION, "no", None, "GET_TOPICS_OF_NAMESPACE", "a/b")
    assert "`anonymousUserRole`, which lacks both" in text
    assert "on the namespace a/b" in text
    assert "topics grant-permission" not in text


def test_a_topic_that_a_shell_would_run() -> None:
    """Whoever pastes the command runs nothing else."""
    topic = "persistent://a/b/t; touch x"
    text = cure(AUTHORIZATION, "no", ANN, "PRODUCER", topic)
    assert f"topics grant-permission '{topic}' --role ann" in text


def test_a_role_with_spaces() -> None:
    """The command can be pasted."""
    cn = LoginCredentials(Login("CN=a b", Secret("pw")))
    assert "--role 'CN=a b' --actions" in cure(AUTHORIZATION, "", cn, "SEEK", TOPIC)


def test_nothing_to_name() -> None:
    """The connection itself, or what is about no topic."""
    assert cure(AUTHORIZATION, "no", ANN) == "The role 'ann' is not allowed this."


def test_names_of_subscriptions() -> None:
    """Where they must begin with the role, the options are named."""
    sentence = "The subscription name needs to be prefixed by the authentication role"
    text = cure(AUTHORIZATION, sentence, ANN, "SUBSCRIBE", TOPIC)
    assert "Let `subscriptionPrefix`" in text
    assert text.endswith("begin with the role 'ann'.")
    assert cure(AUTHORIZATION, sentence, None).endswith("the role that connects.")
