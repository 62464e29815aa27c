# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.options.security`."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import traceback
from dataclasses import dataclass

import pytest

from pulsar_spark.options.security import Secret

TEXT = "eyJhbGciOiJIUzI1NiJ9"


@dataclass(frozen=True)
class Holder:
    """Something with a secret field, such as a provider of credentials."""

    secret: Secret


def test_the_text_is_there_for_who_asks() -> None:
    """It is kept as it is."""
    assert Secret(TEXT).reveal() == TEXT


@pytest.mark.parametrize(
    "shown",
    [
        repr(Secret(TEXT)),
        str(Secret(TEXT)),
        f"{Secret(TEXT)} {Secret(TEXT)!r} {Secret(TEXT):>30}",
        "%s %r" % (Secret(TEXT), Secret(TEXT)),  # noqa: UP031 - as logging does it
        repr(Holder(Secret(TEXT))),
        repr([Secret(TEXT)]),
    ],
)
def test_it_is_not_shown(shown: str) -> None:
    """However it is made a text, that text is another."""
    assert TEXT not in shown
    assert "***" in shown


def test_it_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Neither as an argument nor within a message."""
    secret = Secret(TEXT)
    logging.getLogger("test").warning("%s %r %s", secret, secret, Holder(secret))
    assert TEXT not in caplog.text


def test_it_is_not_in_errors() -> None:
    """What goes wrong with it does not repeat it."""
    secret = Secret(TEXT)
    for wrong in (
        lambda: json.dumps(secret),
        lambda: "token:" + secret,  # type: ignore[operator]
        lambda: {secret: 1},
        lambda: format(secret, "d"),
    ):
        with pytest.raises((TypeError, ValueError)) as caught:
            wrong()
        assert TEXT not in "".join(traceback.format_exception(caught.value))


def test_equality_is_by_text() -> None:
    """Also of texts that are not ASCII, and with nothing but its like."""
    assert Secret(TEXT) == Secret(TEXT)
    assert Secret("ä\ud800") == Secret("ä\ud800")
    assert Secret(TEXT) != Secret(TEXT + "x")
    assert Secret(TEXT) != TEXT


def test_it_has_no_hash() -> None:
    """A key of a dictionary would outlive the secret."""
    with pytest.raises(TypeError, match="unhashable"):
        hash(Secret(TEXT))


def test_it_is_pickled_and_copied() -> None:
    """Tasks receive it with the options."""
    secret = Secret(TEXT)
    for copied in (
        pickle.loads(pickle.dumps(secret)),  # noqa: S301 - our own bytes
        copy.copy(secret),
        copy.deepcopy(Holder(secret)).secret,
    ):
        assert copied.reveal() == TEXT
