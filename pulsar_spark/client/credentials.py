# SPDX-License-Identifier: Apache-2.0
"""What proves to brokers who connects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pulsar_spark.errors import AuthError, PulsarSparkError


class CredentialProvider(Protocol):
    """Gives credentials to connections, fresh ones whenever it is asked.

    It is called from several threads. Its errors should be PulsarSparkErrors that hold
    no secret; of any other, only the type is told.

    Attributes:
        method: The protocol's name of the authentication method, such as ``token``.
    """

    method: str

    def data(self) -> bytes:
        """Return the credential that CONNECT carries. Asked once for a connection."""

    def answer(self, challenge: bytes) -> bytes:
        """Return the answer to a broker's challenge. Must not take long.

        Args:
            challenge: What the broker asks; ``commands.AUTH_REFRESH_CHALLENGE`` where
                it only wants a fresh credential.
        """


def obtain(get: Callable[[], bytes], broker: str) -> bytes:
    """Return what a provider gives.

    Args:
        get: Asks it.
        broker: ``host:port`` of the broker, for messages.

    Raises:
        AuthError: It fails.
        PulsarSparkError: It fails by an error of this kind.
    """
    try:
        return get()
    except PulsarSparkError:
        raise
    except Exception as error:
        # Its text, and what it shows of the call, may hold the secret.
        raise AuthError(
            f"The credentials for the broker {broker} could not be obtained: "
            f"{type(error).__name__}.",
            code="AuthenticationError",
            broker=broker,
        ) from None
