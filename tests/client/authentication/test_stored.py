# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.client.authentication.stored`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.client.authentication import credential_provider
from pulsar_spark.client.authentication.claims import (
    claims,
    expired,
    lifetime_s,
    subject,
)
from pulsar_spark.client.authentication.stored import (
    LoginCredentials,
    TokenCredentials,
)
from pulsar_spark.client.credentials import obtain
from pulsar_spark.errors import AuthError, OptionError
from pulsar_spark.options.authentication import (
    AuthenticationOptions,
    ClientCertificate,
    ClientKeyStore,
    Login,
    Token,
)
from pulsar_spark.options.secret import Secret
from spark_topics.client import settling
from tests.support.fixtures import FileClock
from tests.support.tokens import Signer

if TYPE_CHECKING:
    from pathlib import Path

SIGNER = Signer(b"k" * 32)


def test_nobody() -> None:
    """Nothing is given where nothing is asked for."""
    assert credential_provider(AuthenticationOptions()) is None


class TestToken:
    def test_a_file_is_read_each_time(self, tmp_path: Path) -> None:
        """A token that is renewed is given the next time, at challenges, too."""
        file = tmp_path / "token"
        keys = TokenCredentials(Token(Secret(f"file:{file}")))
        assert keys.role() == ""
        for role in ("ann", "bob"):
            token = SIGNER.token(role)
            file.write_text(f"token:{token}\n")
            assert keys.data() == keys.answer(b"x") == token.encode()
            assert keys.role() == role

    @pytest.mark.parametrize("text", ["two words", "a\nb", "ä", "token:"])
    def test_what_is_no_token(self, tmp_path: Path, text: str) -> None:
        """It is not sent, and not shown."""
        file = tmp_path / "token"
        file.write_text(text)
        with pytest.raises(AuthError, match="may be the wrong file") as caught:
            TokenCredentials(Token(Secret(f"file:{file}"))).data()
        assert text not in str(caught.value)

    @pytest.mark.parametrize("text", ["", "half a", "half"])
    def test_a_file_that_is_being_written(
        self, tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is waited for: while it has none, and after half of one was refused."""
        file = tmp_path / "token"
        file.write_text(text)
        keys = TokenCredentials(Token(Secret(f"file:{file}")))
        if text == "half":
            assert keys.data() == b"half"
            keys.refused(b"half")
        clock = FileClock(then=lambda: file.write_text("whole"))
        monkeypatch.setattr(settling, "time", clock)
        assert keys.data() == b"whole"
        assert clock.pauses

    def test_one_that_stays_refused(self, tmp_path: Path) -> None:
        """It is given again, for the broker's own words."""
        file = tmp_path / "token"
        file.write_text("old")
        keys = TokenCredentials(Token(Secret(f"file:{file}")))
        keys.refused(b"old")
        assert keys.data() == b"old"

    def test_one_that_has_expired(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The advice says whose, where and when, and nothing else of it."""
        file = tmp_path / "token"
        keys = TokenCredentials(Token(Secret(f"file:{file}")))
        for life_s, is_over in ((60, False), (-60, True), (None, False)):
            file.write_text(SIGNER.token("ann", life_s))
            keys.data()
            place = f"The token of the role 'ann' in the file {file} on "
            assert keys.advice.startswith(place) is is_over
            assert file.read_text().partition(".")[2] not in keys.advice
        monkeypatch.setenv("PULSAR_SPARK_TEST", SIGNER.token("", -60))
        keys = TokenCredentials(Token(Secret("env:PULSAR_SPARK_TEST")))
        keys.data()
        assert "The token in the environment variable PULSAR_SPARK_T" in keys.advice
        assert " UTC: renew it." in keys.advice

    def test_no_file(self, tmp_path: Path) -> None:
        """The error names it, and the node."""
        with pytest.raises(OptionError, match="cannot be read on"):
            TokenCredentials(Token(Secret(f"file:{tmp_path}/absent"))).data()


class TestLogin:
    def test_a_pair(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With a colon, from wherever its parts are."""
        monkeypatch.setenv("PULSAR_SPARK_TEST", "pä:w")
        of_parts = LoginCredentials(Login("ann", Secret("env:PULSAR_SPARK_TEST")))
        assert of_parts.data() == of_parts.answer(b"") == "ann:pä:w".encode()
        assert of_parts.role() == "ann"
        monkeypatch.setenv("PULSAR_SPARK_TEST", "bob:pw")
        whole = LoginCredentials(Login("", Secret("env:PULSAR_SPARK_TEST")))
        assert whole.data() == b"bob:pw"
        assert whole.role() == "bob"
        monkeypatch.setenv("PULSAR_SPARK_TEST", "bob")
        with pytest.raises(AuthError, match="must have user:password"):
            whole.data()


@pytest.mark.parametrize(
    "credential", [ClientCertificate("/c", "/k"), ClientKeyStore()]
)
def test_certificates(credential: ClientCertificate | ClientKeyStore) -> None:
    """The method is told; the rest is the connection's."""
    keys = credential_provider(AuthenticationOptions("tls", credential))
    assert keys is not None
    assert keys.method == "tls"
    assert keys.data() == keys.answer(b"x") == b""
    assert keys.role() == ""
    assert "pulsar+ssl" in keys.advice


class TestClaims:
    def test_of_a_token(self) -> None:
        """Subject and times."""
        token = SIGNER.token("ann\x1b", 60)
        assert subject(token) == "ann\\x1b"
        assert lifetime_s(token) == 60
        assert lifetime_s(SIGNER.token("ann")) is None
        old = SIGNER.token("ann", exp=1)
        assert expired(old, 1, "here") == ""
        said = "The token of the role 'ann' here expired at 1970-01-01 00:00:01 UTC"
        assert expired(old, 2, "here") == f"{said}: renew it."

    @pytest.mark.parametrize(
        "token",
        [
            "",
            "a.b",
            "a.!.c",
            "a.W10.c",
            "a.e30.c",
            "a.eyJzdWIiOjF9.c",
            "a" * 9,
            SIGNER.token("", exp=None),
            SIGNER.token("", exp=float("nan")),
            SIGNER.token("", exp=True),
            SIGNER.token("", exp="1"),
            SIGNER.token("", iat=1, exp=10**400),
        ],
    )
    def test_of_other_texts(self, token: str) -> None:
        """There are none."""
        assert subject(token) == expired(token, 1e300, "here") == ""
        assert lifetime_s(token) is None
        assert isinstance(claims(token), dict)


def test_what_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file on a disk that does not answer."""
    keys = TokenCredentials(Token(Secret("t")))
    end = threading.Event()
    monkeypatch.setattr(Secret, "read", lambda _: end.wait(60))
    text = r"broker b:1 .* did not come within 0\.1 s"
    with pytest.raises(AuthError, match=text) as caught:
        obtain(keys.data, "b:1", 0.1)
    assert caught.value.retriable, "it may go on"
    end.set()
