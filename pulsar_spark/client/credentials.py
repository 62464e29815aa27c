# SPDX-License-Identifier: Apache-2.0
"""Credentials: what proves to a broker who connects."""

from __future__ import annotations

import base64
import contextlib
import re
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTimeError
from typing import Protocol

from pulsar_spark.errors import AuthError, PulsarSparkError


class CredentialProvider(Protocol):
    """Gives credentials to connections, current for each request.

    It is called from several threads. Its errors should be PulsarSparkErrors that hold
    no secret; of any other, only the type is told.

    Attributes:
        method: The protocol's name of the authentication method, such as ``token``.
    """

    method: str

    @property
    def advice(self) -> str:
        """Return the cure for a broker's refusal, as a sentence."""

    def data(self) -> bytes:
        """Return the credential that CONNECT carries."""

    def answer(self, challenge: bytes) -> bytes:
        """Return the answer to a broker's challenge.

        Args:
            challenge: What the broker asks; ``commands.AUTH_REFRESH_CHALLENGE`` where
                it only wants a fresh credential.
        """

    def refused(self, data: bytes) -> None:
        """Learn that a broker refused a credential, which must not be given again.

        Args:
            data: What was given.
        """

    def role(self) -> str:
        """Return the role of the credential, without waiting; "" if unknown."""


def obtain(get: Callable[[], bytes], broker: str, timeout_s: float) -> bytes:
    """Return what a provider gives.

    Args:
        get: Asks it.
        broker: ``host:port`` of the broker, for messages.
        timeout_s: Longest wait: a file may be on a disk that does not answer.

    Raises:
        AuthError: It fails, or takes too long.
        PulsarSparkError: It fails by an error of this kind.
    """
    # In a thread of its own, because nothing else ends a call that hangs.
    future: Future[bytes] = Future()

    def ask() -> None:
        try:
            future.set_result(get())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=ask, name="pulsar-credentials", daemon=True).start()
    is_late = False
    try:
        return future.result(timeout_s)
    except PulsarSparkError:
        raise
    except NotInTimeError:
        is_late = True  # it may come in time when asked again
        reason = f"they did not come within {timeout_s:g} s"
    except Exception as error:
        # Its text, and what it shows of the call, may hold the secret.
        reason = type(error).__name__
    raise AuthError(
        f"The credentials for the broker {broker} could not be obtained: {reason}.",
        code="AuthenticationError",
        retriable=is_late,
    )


def is_without_credential(error: PulsarSparkError) -> bool:
    """Return whether there was no credential to show, so that no broker was asked."""
    return isinstance(error, AuthError) and not error.broker


#: Shorter parts of a credential may be words of any sentence.
_LEAST_HIDDEN = 5


def without_secret(sentence: str, shown: bytes) -> str:
    """Return a broker's sentence without the parts of a credential.

    A broker that cannot read a token may say what it found in it.

    Args:
        sentence: The broker's.
        shown: The credential: a token, or a user and a password.
    """
    secret = shown.decode("utf-8", "replace")
    _, colon, password = secret.partition(":")
    hidden = {secret, password} if colon else {secret, *secret.split(".")}
    for part in list(hidden):
        with contextlib.suppress(ValueError):
            padded = part + "=" * (-len(part) % 4)
            decoded = base64.b64decode(padded, b"-_", validate=True)
            hidden.add(decoded.decode("utf-8", "replace"))
    for part in sorted(hidden, key=len, reverse=True):
        # A password for trials may be the word that each URL begins with.
        if len(part) >= _LEAST_HIDDEN and part.lower() not in "pulsar+ssl://":
            # In any case: names of hosts are repeated in lower case.
            sentence = re.sub(re.escape(part), "<secret>", sentence, flags=re.I)
    return sentence
