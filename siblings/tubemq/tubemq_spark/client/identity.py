# SPDX-License-Identifier: Apache-2.0
"""The identity shown to masters, and its proof."""

from __future__ import annotations

import secrets
import time

from tubemq_spark.options.client import ClientOptions
from tubemq_spark.wire import tubemq_pb2 as pb
from tubemq_spark.wire.authentication import certificate
from tubemq_spark.wire.messages import Token

_NONCES = 2**31


class Identity:
    """The user of some options. For one thread.

    Each request proves again who sends it, because not every master keeps what it was
    shown; a token that one gave is shown next to it. The password is read each time, so
    that one that is renewed in its file serves the next request.

    Args:
        options: With the user's name and password, or neither.
    """

    def __init__(self, options: ClientOptions) -> None:
        self._user = options.user
        self._password = options.password
        self._token = ""

    def certificate(self) -> pb.MasterCertificateInfo | None:
        """Return the certificate for the next request, None for anonymous access.

        Raises:
            OptionError: The password is not if it was said to be.
        """
        if self._user is None or self._password is None:
            return None
        return certificate(
            self._user,
            self._password.read(),
            time.time_ns() // 1_000_000,
            secrets.randbelow(_NONCES),
            self._token,
        )

    def keep(self, token: Token | None) -> None:
        """Note what a master gave."""
        if token is not None and token.authorized:
            self._token = token.authorized

    def forget(self) -> bool:
        """Drop what a master gave, and return whether there was anything."""
        had, self._token = bool(self._token), ""
        return had
