# SPDX-License-Identifier: Apache-2.0
"""Tokens of an OAuth2 server, by client credentials (RFC 6749, section 4.4)."""

from __future__ import annotations

import copy
import json
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTimeError
from dataclasses import dataclass, field

from pulsar_spark.client.authentication.claims import expired, lifetime_s, subject
from pulsar_spark.client.authentication.token_server import TokenServer
from pulsar_spark.errors import AuthError, PulsarSparkError
from pulsar_spark.options.authentication import ClientCredentials, check_url
from spark_topics.client.settling import settled

logger = logging.getLogger("pulsar_spark.client")

#: A token is renewed when less than this share of its life is left, or this long.
_RENEWED_SHARE = 0.2
_RENEWED_S = 60.0

#: Brokers that ask one after the other for a fresh token get the same one.
_FRESH_SHARE = 0.1
_FRESH_S = 10.0


@dataclass(frozen=True)
class _Kept:
    """A token with its times, by a monotonic clock.

    Attributes:
        token: It; never shown.
        got: When it came.
        life_s: How long it lives, 0 where no one says.
    """

    token: bytes = field(repr=False)
    got: float
    life_s: float

    @property
    def left_s(self) -> float:
        """Return the remaining life in seconds."""
        return self.got + self.life_s - time.monotonic()

    @property
    def is_due(self) -> bool:
        """Return whether the next token should be requested."""
        return self.left_s <= min(_RENEWED_S, self.life_s * _RENEWED_SHARE)

    @property
    def is_fresh(self) -> bool:
        """Return whether the token has just arrived."""
        age_s = self.life_s - self.left_s
        return age_s < min(_FRESH_S, self.life_s * _FRESH_SHARE)


class _Renewal(Future[_Kept]):
    """A request for a token that is under way.

    Args:
        limit_s: How long connections wait for it, in seconds.
    """

    def __init__(self, limit_s: float) -> None:
        super().__init__()
        self._deadline = time.monotonic() + limit_s

    @property
    def left_s(self) -> float:
        """Return for how many more seconds to wait for the token."""
        return max(0.0, self._deadline - time.monotonic())


class OAuth2Credentials:
    """Tokens of an OAuth2 server; all connections share a token until renewal.

    Args:
        options: The server, and the client credentials to show to it.
        patience_s: Longest wait for the next token while the one before it lives, in
            seconds.
    """

    method = "token"

    def __init__(self, options: ClientCredentials, patience_s: float = 5.0) -> None:
        self._options = options
        self._patience_s = patience_s
        self._lock = threading.Lock()  # guards the two below, never for long
        self._kept: _Kept | None = None
        self._renewal: _Renewal | None = None  # the one under way: one is enough
        self._refused = ""  # the last one that was

    @property
    def advice(self) -> str:
        """Return what to do where brokers do not take the last token."""
        where = "of the OAuth2 server in `pulsar.client.authParams`"
        return expired(self._refused, time.time(), where) or (
            f"The token is that {where}: check its audience and scope, and that the"
            " brokers know the server's keys."
        )

    def data(self) -> bytes:
        """Return a token that lives for a while yet."""
        return self._token(lambda kept: kept.is_due)

    def answer(self, challenge: bytes) -> bytes:
        """Return a token that is newer than the token a broker considers too old."""
        return self._token(lambda kept: not kept.is_fresh)

    def refused(self, data: bytes) -> None:
        """Forget a token that was refused."""
        with self._lock:
            self._refused = data.decode()
            if self._kept is not None and self._kept.token == data:
                self._kept = None

    def role(self) -> str:
        """Return the subject of the last token, "" where there is none."""
        kept = self._kept
        return "" if kept is None else subject(kept.token.decode())

    def _token(self, is_old: Callable[[_Kept], bool]) -> bytes:
        with self._lock:
            before, renewal = self._kept, self._renewal
            if before is not None and not is_old(before):
                return before.token
            if renewal is None or renewal.left_s <= 0:
                renewal = self._renewal = _Renewal(self._limit_s)
                threading.Thread(
                    target=self._renew,
                    args=(renewal,),
                    name="pulsar-oauth2",
                    daemon=True,
                ).start()
        lives = before is not None and before.left_s > 0
        error: PulsarSparkError
        try:
            return renewal.result(self._patience_s if lives else renewal.left_s).token
        except NotInTimeError:
            error = AuthError(
                "No token could be had for `pulsar.client.authPluginClassName` oauth2:"
                " the server did not answer in time.",
                code="AuthenticationError",
                retriable=True,
            )
        except PulsarSparkError as failure:
            error = copy.copy(failure)  # others wait for the same
        if before is None or not lives:
            raise error
        logger.warning("A token is used longer than it should be: %s", error)
        return before.token

    @property
    def _limit_s(self) -> float:
        """Return the longest wait for metadata and a token, in seconds."""
        return 2 * (self._options.connect_timeout_s + self._options.read_timeout_s)

    def _renew(self, renewal: _Renewal) -> None:
        """Request a token in a separate thread, since servers may be slow."""
        try:
            asked = time.monotonic()
            token, life_s = self._ask()
            if life_s is None:
                life_s = lifetime_s(token) or 0.0
            kept = _Kept(token.encode(), asked, life_s)
        except BaseException as error:
            self._end(renewal)
            renewal.set_exception(error)
        else:
            self._end(renewal, kept)
            renewal.set_result(kept)

    def _end(self, renewal: _Renewal, kept: _Kept | None = None) -> None:
        with self._lock:
            if self._renewal is renewal:  # or it took too long, and another one began
                self._renewal = None
                self._kept = kept or self._kept

    def _ask(self) -> tuple[str, float | None]:
        options = self._options
        paths = () if options.secret.path is None else (options.secret.path,)
        client_id, secret, issuer_url = settled(paths, lambda: _client(options))
        server = TokenServer(
            issuer_url,
            trust_path=options.trust_path,
            connect_timeout_s=options.connect_timeout_s,
            read_timeout_s=options.read_timeout_s,
            allow_http=options.allow_http,
        )
        return server.token(
            client_id, secret, audience=options.audience, scope=options.scope
        )


def _client(options: ClientCredentials) -> tuple[str, str, str]:
    """Return the client's id and secret, and the server's URL."""
    text = options.secret.read()
    if options.client_id:
        return options.client_id, text, options.issuer_url
    try:
        key = json.loads(text)
    except (ValueError, RecursionError):
        key = None
    values = key if isinstance(key, dict) else {}
    client = [values.get("client_id"), values.get("client_secret")]
    client.append(options.issuer_url or values.get("issuer_url"))
    names = ("client_id", "client_secret", "issuer_url")
    for name, value in zip(names, client, strict=True):
        if not (isinstance(value, str) and value):
            raise AuthError(
                "The privateKey of `pulsar.client.authParams` must be a JSON object"
                f" with client_id and client_secret: it has no {name}.",
                code="AuthenticationError",
            )
    client_id, secret, issuer_url = map(str, client)
    check_url(issuer_url, "issuer_url in the privateKey of `pulsar.client.authParams`")
    return client_id, secret, issuer_url
