# SPDX-License-Identifier: Apache-2.0
"""An OAuth2 token server over HTTP: metadata and token endpoint.

Client credentials are sent to that endpoint alone, over TLS unless the options allow
http://, and no redirect is followed.
"""

from __future__ import annotations

import base64
import http.client
import json
import logging
import math
import re
import ssl
import urllib.request
from collections.abc import Iterable
from typing import Any, NoReturn
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from pulsar_spark.client.http_calls import HttpLimits, HttpReply, call
from pulsar_spark.client.http_proxies import proxy_refusal, why_unreached
from pulsar_spark.errors import AuthError, OptionError, foreign_text
from pulsar_spark.options.authentication import check_url
from spark_topics.client.resolving import is_here
from spark_topics.client.tls import UNKNOWN_AUTHORITY

logger = logging.getLogger("pulsar_spark.client")

#: Where the metadata is: OpenID Connect Discovery 1.0, and RFC 8414.
_OPENID = ".well-known/openid-configuration"
_OAUTH = ".well-known/oauth-authorization-server"

#: Most bytes of an answer that are taken.
_ANSWER_BYTES = 1 << 20

#: No life of a token is held to be longer, in seconds: a hundred years.
_MOST_LIFE_S = 100 * 365 * 86_400

#: What can be sent to brokers as a token (RFC 6750, section 2.1, and a little more).
_TOKEN = re.compile(r"[!-~]+")

_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


class TokenServer:
    """A server that gives tokens.

    Args:
        issuer_url: The place.
        trust_path: Certificates in PEM by which it is known; "" for the system's.
        connect_timeout_s: Longest wait for a connection.
        read_timeout_s: Longest wait for an answer.
        allow_http: Whether to speak to it without TLS, other than on this machine.
    """

    def __init__(
        self,
        issuer_url: str,
        *,
        trust_path: str = "",
        connect_timeout_s: float = 10.0,
        read_timeout_s: float = 30.0,
        allow_http: bool = False,
    ) -> None:
        self._issuer_url = issuer_url
        self._trust_path = trust_path
        self._connect_timeout_s = connect_timeout_s
        self._read_timeout_s = read_timeout_s
        self._allow_http = allow_http

    def token(
        self, client_id: str, secret: str, *, audience: str = "", scope: str = ""
    ) -> tuple[str, float | None]:
        """Return a new token, and its life in seconds if the server says so.

        Raises:
            AuthError: There is none; names the endpoint, and nothing of the secret.
        """
        metadata = self._metadata()
        endpoint = metadata["token_endpoint"]
        form = {"grant_type": "client_credentials"}
        headers = {}
        hidden = {secret, quote(secret, safe=""), urlencode({"": secret})[1:]}
        if "client_secret_post" in _supported(metadata):
            form |= {"client_id": client_id, "client_secret": secret}
        else:
            login = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
            encoded = base64.b64encode(login.encode()).decode()
            headers["Authorization"] = f"Basic {encoded}"
            hidden.add(encoded)
        form |= {
            name: value
            for name, value in (("audience", audience), ("scope", scope))
            if value
        }
        answer = self._ask(endpoint, urlencode(form).encode(), headers, hidden)
        token, life_s = answer.get("access_token"), answer.get("expires_in")
        token = token.strip() if isinstance(token, str) else ""
        if not _TOKEN.fullmatch(token):
            reason = _error_in(answer, hidden)
            _fail(endpoint, f"answered without an access_token{reason}")
        if isinstance(life_s, str) and life_s.isdecimal() and len(life_s) < 12:
            life_s = int(life_s)  # some servers quote it
        if isinstance(life_s, bool) or not isinstance(life_s, (int, float)):
            return token, None
        if isinstance(life_s, float) and not math.isfinite(life_s):
            return token, None
        # Where tokens live for ever, it may have more digits than a float takes.
        return token, float(max(0, min(life_s, _MOST_LIFE_S)))

    def _metadata(self) -> dict[str, Any]:
        """Return the server's metadata, with an allowed token endpoint."""
        first, second = _metadata_urls(self._issuer_url)
        try:
            metadata = self._ask(first)
        except _NotThereError:
            metadata = self._ask(second)
        endpoint_text = metadata.get("token_endpoint")
        endpoint = endpoint_text if isinstance(endpoint_text, str) else ""
        try:
            check_url(endpoint, "token_endpoint")
        except OptionError:
            _fail(first, "names no token_endpoint that is a URL")
        # The machine that asks is loopback for itself alone, not for a remote server.
        if (
            urlsplit(endpoint).scheme == "http"
            and not is_here(urlsplit(first).hostname or "")
            and not self._allow_http
        ):
            _fail(
                first,
                f"names the token_endpoint {_shown(endpoint)}, and the client's secret "
                "would go there by http://: have the server name one by https://, or "
                "set allowHttp",
            )
        self._warn_of_issuer(metadata.get("issuer"))
        return metadata

    def _warn_of_issuer(self, issuer: Any) -> None:
        """Say where the metadata are of another issuer; RFC 8414, section 3.3."""
        ours = self._issuer_url.partition("/.well-known/")[0].rstrip("/")
        if isinstance(issuer, str) and issuer.rstrip("/") != ours:
            logger.warning(
                "The OAuth2 server %s says that it is %s. If that is right, let"
                " issuerUrl name it so.",
                _shown(self._issuer_url),
                foreign_text(issuer),
            )

    def _ask(
        self,
        url: str,
        form: bytes | None = None,
        headers: dict[str, str] | None = None,
        hidden: Iterable[str] = (),
    ) -> dict[str, Any]:
        """GET a JSON object, or POST a form; errors show nothing ``hidden``."""
        self._check_tls(url)
        request = urllib.request.Request(
            url, form, {"Accept": "application/json", **(headers or {})}
        )
        limits = HttpLimits(
            connect_s=self._connect_timeout_s,
            total_s=self._connect_timeout_s + self._read_timeout_s,
            body_bytes=_ANSWER_BYTES,
            option="`connectTimeout`",
        )
        trust = _context(self._trust_path)
        try:
            reply = call(request, trust, limits)
        except (OSError, http.client.HTTPException, ValueError) as error:
            _fail(url, *_reason(url, error))
        if not 200 <= reply.status < 300:
            self._refused(url, reply, hidden)
        return _json_object(url, reply.body)

    def _refused(self, url: str, reply: HttpReply, hidden: Iterable[str]) -> NoReturn:
        """Raise the error for a status other than 2xx."""
        refusal = proxy_refusal(url, reply.status)
        if refusal is not None:
            _fail(url, *refusal)
        if reply.status in (301, 302, 303, 307, 308):
            _fail(
                url,
                "redirects to another address, which is not followed: let issuerUrl"
                " name the server as it is",
            )
        if reply.status == 404 and not hidden:
            raise _NotThereError(_said(url, "has no metadata of OAuth2"), code=_CODE)
        try:
            body = json.loads(reply.body)
        except (ValueError, RecursionError):
            body = {}
        reason = _error_in(body, hidden)
        _fail(url, f"answered {reply.status}{reason}", reply.status in _PASSING)

    def _check_tls(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme == "https" or is_here(parts.hostname or ""):
            return
        if not self._allow_http:
            _fail(
                url,
                "is to be spoken to by http://, and the client's secret would be"
                " readable on its way: use https://, or set allowHttp",
            )
        logger.warning(
            "The OAuth2 server %s is spoken to without TLS: the client's secret can be"
            " read on its way.",
            _shown(url),
        )


def _error_in(answer: Any, hidden: Iterable[str]) -> str:
    """Return what a server says is wrong, in parentheses; RFC 6749, section 5.2."""
    fields = answer if isinstance(answer, dict) else {}
    parts = (fields.get(name) for name in ("error", "error_description"))
    words = ": ".join(part for part in parts if isinstance(part, str))
    for form in hidden:  # it may repeat what it was sent
        words = words.replace(form, "<secret>")
    return f" ({foreign_text(words)})" if words else ""


class _NotThereError(AuthError):
    """The server has nothing there."""


_CODE = "AuthenticationError"


def _metadata_urls(issuer_url: str) -> tuple[str, str]:
    """Return where the metadata may be, first where Java's client looks."""
    if "/.well-known/" in issuer_url:
        return issuer_url, issuer_url
    parts = urlsplit(issuer_url)
    path = parts.path.rstrip("/")
    openid = parts._replace(path=f"{path}/{_OPENID}", query="", fragment="")
    oauth = parts._replace(path=f"/{_OAUTH}{path}", query="", fragment="")
    return urlunsplit(openid), urlunsplit(oauth)


def _supported(metadata: dict[str, Any]) -> list[Any]:
    """Return how clients may show their secret; where nothing is said, as Java does."""
    methods = metadata.get("token_endpoint_auth_methods_supported")
    return methods if isinstance(methods, list) and methods else ["client_secret_post"]


def _context(trust_path: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=trust_path or None)
    except (OSError, ssl.SSLError) as error:
        raise AuthError(
            f"trustCertsFilePath of `pulsar.client.authParams` names"
            f" {foreign_text(trust_path)}, which cannot be read as certificates in PEM:"
            f" {getattr(error, 'strerror', None) or type(error).__name__}.",
            code=_CODE,
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _json_object(url: str, body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        _fail(url, "answered something else than a JSON object")
    return content


def _reason(url: str, error: Exception) -> tuple[str, bool]:
    """Return why there is no answer, and whether that may pass."""
    cause = getattr(error, "reason", error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        reason = foreign_text(cause.verify_message)
        why = f"shows a certificate that is refused: {reason}"
        if cause.verify_code in UNKNOWN_AUTHORITY:
            why += " (set trustCertsFilePath)"
        return why, False
    if isinstance(cause, TimeoutError):
        return "did not answer in time", True
    if isinstance(cause, OSError):
        return why_unreached(url, cause)
    return f"gave no answer that can be read ({type(error).__name__})", True


def _fail(url: str, what: str, retriable: bool = False) -> NoReturn:
    raise AuthError(_said(url, what), code=_CODE, retriable=retriable) from None


def _said(url: str, what: str) -> str:
    return (
        f"No token could be had for `pulsar.client.authPluginClassName` oauth2: the"
        f" server {_shown(url)} {what}."
    )


def _shown(url: str) -> str:
    """Return a URL without parts that may be secret."""
    return foreign_text(urlunsplit(urlsplit(url)._replace(query="", fragment="")))
