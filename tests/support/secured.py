# SPDX-License-Identifier: Apache-2.0
"""A broker that wants to know who connects, and an OAuth2 server that tells it."""

from __future__ import annotations

import base64
import http.server
import json
import os
import secrets
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qs, unquote

from pulsar_spark.testing.admin import Admin
from pulsar_spark.testing.embedded_broker import EmbeddedBroker
from tests.support.tokens import Signer

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping
    from pathlib import Path

_JAVA = "org.apache.pulsar.client.impl.auth."
_PROVIDERS = "org.apache.pulsar.broker.authentication.AuthenticationProvider"

#: Who may do everything; also what the broker is to itself.
ADMIN = "admin"

#: A user of the method basic, and the password's hash as the broker takes it.
USER, PASSWORD = "ann", "pass,w1"
_HASH = "psZc1bbami3Pc"

#: Where ``reader``, ``writer``, ``both`` and the user may do what they are called.
NAMESPACE = "public/secured"

#: How often a broker looks for tokens that have expired, in seconds.
CHECK_S = 1


class SecuredBroker:
    """A broker with tokens, passwords and permissions. As a context manager it runs.

    Args:
        settings: Further ones.

    Attributes:
        signer: Makes tokens that it takes.
        broker: It.
        admin: Calls of its super user.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.signer = Signer(secrets.token_bytes(32))
        token = self.signer.token(ADMIN)
        login = base64.b64encode(f"{USER}:{_HASH}\n".encode()).decode()
        self.broker = EmbeddedBroker(
            settings={
                "authenticationEnabled": "true",
                "authenticationProviders": f"{_PROVIDERS}Token,{_PROVIDERS}Basic",
                "tokenSecretKey": self.signer.setting,
                "basicAuthConf": f"data:;base64,{login}",
                "authenticationRefreshCheckSeconds": str(CHECK_S),
                "authorizationEnabled": "true",
                "superUserRoles": ADMIN,
                "brokerClientAuthenticationPlugin": f"{_JAVA}AuthenticationToken",
                "brokerClientAuthenticationParameters": f"token:{token}",
                **(settings or {}),
            },
            admin_token=token,
        )
        self.admin = Admin("")
        self._token = token

    def __enter__(self) -> SecuredBroker:
        self.broker.start()
        self.admin = Admin(self.broker.admin_url, token=self._token)
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.stop()

    def proxy_settings(self, role: str) -> dict[str, str]:
        """Return settings of a proxy in front of it, which is one of ``proxyRoles``."""
        return {
            "authenticationEnabled": "true",
            "authenticationProviders": f"{_PROVIDERS}Token",
            "tokenSecretKey": self.signer.setting,
            "authenticationRefreshCheckSeconds": str(CHECK_S),
            "forwardAuthorizationCredentials": "true",
            "brokerClientAuthenticationPlugin": f"{_JAVA}AuthenticationToken",
            "brokerClientAuthenticationParameters": f"token:{self.signer.token(role)}",
        }

    @property
    def service_url(self) -> str:
        """``pulsar://host:port``."""
        return self.broker.service_url


class TokenServer:
    """An OAuth2 server for clients with a secret (RFC 6749, section 4.4).

    As a context manager it runs, on loopback.

    Args:
        signer: Makes the tokens; their subject is the client's id.
        life_s: Seconds until one expires.
        tls: What its certificate is in; None for HTTP.

    Attributes:
        clients: The secret of each client.
        given: The tokens so far.
        forms: What it was asked, without secrets.
        metadata: What it says of itself beside its endpoint.
        answers: What it says instead of a token, in turn: status, headers, body.
        without: Paths that it does not have.
        hold: While it is not set, nothing is answered.
    """

    def __init__(
        self, signer: Signer, life_s: float = 3600, tls: ssl.SSLContext | None = None
    ) -> None:
        self.clients: dict[str, str] = {}
        self.given: list[str] = []
        self.forms: list[dict[str, str]] = []
        self.metadata: dict[str, Any] = {}
        self.answers: list[tuple[int, dict[str, str], str]] = []
        self.without: set[str] = set()
        self.hold = threading.Event()
        self.hold.set()
        self.life_s = life_s
        self.paths: list[str] = []
        self._signer = signer
        outer = self

        class Handler(_Handler):
            server_of = outer

        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        scheme = "http"
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
            scheme = "https"
        self.url = f"{scheme}://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,))

    def __enter__(self) -> TokenServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(60)

    def key(self, client_id: str, path: Path | None = None) -> str:
        """Add a client, and return its key as a JSON text, or the URL of its file."""
        secret = self.clients.setdefault(client_id, secrets.token_urlsafe(24))
        text = json.dumps(
            {
                "type": "client_credentials",
                "client_id": client_id,
                "client_secret": secret,
                "issuer_url": self.url,
            }
        )
        if path is None:
            return text
        path.write_text(text)
        path.chmod(0o600)
        return f"file://{path}"

    def params(self, client_id: str, path: Path | None = None, **others: str) -> str:
        """Return ``authParams`` of a client."""
        return json.dumps({"privateKey": self.key(client_id, path), **others})

    def token_for(self, form: dict[str, str], basic: str) -> tuple[int, dict[str, Any]]:
        """Answer a form, by the rules of RFC 6749."""
        if form.get("grant_type") != "client_credentials":
            return 400, {"error": "unsupported_grant_type"}
        client_id = form.get("client_id", "")
        secret = form.pop("client_secret", "")
        if basic:
            login = base64.b64decode(basic).decode().partition(":")
            client_id, secret = unquote(login[0]), unquote(login[2])
        self.forms.append({**form, "client_id": client_id})
        if not secret or self.clients.get(client_id) != secret:
            said = f"client {client_id} does not have the secret {secret}"
            return 401, {"error": "invalid_client", "error_description": said}
        scope = form.get("scope")
        claims = {"aud": form["audience"]} if "audience" in form else {}
        token = self._signer.token(
            client_id, self.life_s, jti=str(len(self.given)), **claims
        )
        self.given.append(token)
        answer = {
            "access_token": token,
            "token_type": "Bearer",
            "expires_in": int(self.life_s),
        }
        return 200, answer | ({"scope": scope} if scope else {})


class _Handler(http.server.BaseHTTPRequestHandler):
    server_of: ClassVar[TokenServer]

    def do_GET(self) -> None:
        """Serve the metadata."""
        server = self.server_of
        server.paths.append(self.path)
        server.hold.wait(60)
        if ".well-known" not in self.path or self.path in server.without:
            return self._send(404, {})
        return self._send(
            200,
            {
                "issuer": server.url,
                "token_endpoint": f"{server.url}/token",
                **server.metadata,
            },
        )

    def do_POST(self) -> None:
        """Serve tokens."""
        server = self.server_of
        server.paths.append(self.path)
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if server.answers:
            status, headers, text = server.answers.pop(0)
            return self._send(status, text, headers)
        if self.headers["Content-Type"] != "application/x-www-form-urlencoded":
            return self._send(400, {"error": "invalid_request"})
        form = {name: values[0] for name, values in parse_qs(body).items()}
        basic = (self.headers.get("Authorization") or "").removeprefix("Basic ")
        return self._send(*server.token_for(form, basic))

    def _send(
        self,
        status: int,
        body: dict[str, Any] | str,
        headers: dict[str, str] | None = None,
    ) -> None:
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


#: How often it is renewed while one token lives.
RENEWALS = 6


class RenewedFile:
    """A file with a token that is renewed before it expires, in a thread.

    Args:
        path: Of the file.
        signer: Makes the tokens.
        role: Their subject.
        life_s: Seconds until one expires.
        in_place: Whether the same file is emptied and written anew, half by half.

    Attributes:
        written: How many there were.
    """

    def __init__(
        self,
        path: Path,
        signer: Signer,
        role: str,
        life_s: float,
        *,
        in_place: bool = False,
    ) -> None:
        self.path = path
        self._in_place = in_place
        self.written = 0
        self._signer, self._role, self._life_s = signer, role, life_s
        self._end = threading.Event()
        self._rests = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> RenewedFile:
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(60)

    def rest(self) -> None:
        """Renew it no more: the token that it has expires."""
        self._rests.set()

    def resume(self) -> None:
        """Renew it at once, and from then on as before."""
        self._write()
        self._rests.clear()

    def _run(self) -> None:
        while not self._end.wait(self._life_s / RENEWALS):
            if not self._rests.is_set():
                self._write()

    def _write(self) -> None:
        text = self._signer.token(self._role, self._life_s, at=time.time())
        if self._in_place and self.written:
            for end in (0, len(text) // 2):
                self.path.write_text(text[:end])
                self._end.wait(self._life_s / RENEWALS)
            self.path.write_text(text)
        else:
            new = self.path.with_suffix(".new")
            new.write_text(text)
            os.replace(new, self.path)  # never half a token
        self.written += 1
