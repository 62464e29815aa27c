# SPDX-License-Identifier: Apache-2.0
"""Credentials that are stored where the options say: tokens, passwords, certificates.

A value, a file or a variable is read again for each connection, and no one is asked.
``client.connect`` sends them in CONNECT, and ``client.connection`` answers a broker
that asks again.
"""

from __future__ import annotations

import platform
import re
import time

from pulsar_spark.client.authentication.claims import expired, subject
from pulsar_spark.errors import AuthError
from pulsar_spark.options.authentication import Login, Token
from pulsar_spark.options.secret import Secret
from spark_topics.client.settling import settled


class _Read:
    """A credential that is read again for each use, from a file or a variable.

    A file that is just being written is waited for: it may have no text yet, or half of
    it, which a broker refuses.
    """

    def __init__(self, place: Secret) -> None:
        self._place = place
        self._refused: bytes | None = None

    def data(self) -> bytes:
        """Return the current credential."""
        paths = () if self._place.path is None else (self._place.path,)
        try:
            return settled(paths, self._not_refused)
        except _SameAgainError:
            return self._read()

    def answer(self, challenge: bytes) -> bytes:
        """Return the current credential."""
        return self.data()

    def refused(self, data: bytes) -> None:
        """Expect a new credential; the next read waits for a change under way."""
        self._refused = data

    def _not_refused(self) -> bytes:
        data = self._read()
        if data == self._refused:
            raise _SameAgainError("It was refused.", code="AuthenticationError")
        return data

    def _read(self) -> bytes:
        raise NotImplementedError


class _SameAgainError(AuthError):
    """The credential read is the credential that a broker refused."""


class TokenCredentials(_Read):
    """A token.

    Args:
        options: The place.
    """

    method = "token"

    def __init__(self, options: Token) -> None:
        super().__init__(options.token)
        self._role = ""
        self._last = ""

    @property
    def advice(self) -> str:
        """Return what to do where brokers do not take the last token."""
        place = f"in {self._place.place} on {platform.node()}"
        if self._place.is_inline:
            place = f"in {self._place.place}"
        return expired(self._last, time.time(), place) or (
            "Check `pulsar.client.authParams`: the token may have expired, be signed"
            " with another key than the brokers know, or be for another cluster."
        )

    def _read(self) -> bytes:
        token = self._place.read().strip().removeprefix("token:").strip()
        # Neither would a broker take it, nor may the end of a line be sent.
        if not re.fullmatch(r"[!-~]+", token):
            raise AuthError(
                "The token of `pulsar.client.authParams` has spaces or other characters"
                " that no token has: it may be the wrong file.",
                code="AuthenticationError",
            )
        self._last, self._role = token, subject(token)
        return token.encode()

    def role(self) -> str:
        """Return the subject of the last token, "" where there is none."""
        return self._role


class LoginCredentials(_Read):
    """A user and a password.

    Args:
        options: Where they are.
    """

    method = "basic"
    advice = (
        "Check the user and the password in `pulsar.client.authParams`; brokers know"
        " no password with a colon."
    )

    def __init__(self, options: Login) -> None:
        super().__init__(options.password)
        self._user = self._role = options.user

    def _read(self) -> bytes:
        """Return ``user:password``."""
        text = self._place.read()
        if self._user:
            return f"{self._user}:{text}".encode()
        if not re.fullmatch(r"[^:]+:.+", text, re.DOTALL):
            raise AuthError(
                "What `pulsar.client.authParams` names must have user:password in it.",
                code="AuthenticationError",
            )
        self._role = text.partition(":")[0]
        return text.encode()

    def role(self) -> str:
        """Return the user, "" before the first read."""
        return self._role


class CertificateCredentials:
    """A certificate, which the TLS connection has shown already."""

    method = "tls"
    advice = (
        "Check the client certificate, and that `service.url` begins with pulsar+ssl://"
        ": without TLS nobody sees it."
    )

    def data(self) -> bytes:
        """Return nothing: there is nothing else to show."""
        return b""

    def answer(self, challenge: bytes) -> bytes:
        """Return the current credential."""
        return b""

    def refused(self, data: bytes) -> None:
        """Do nothing: nothing is kept."""

    def role(self) -> str:
        """Return "": brokers derive the role from the certificate's name."""
        return ""
