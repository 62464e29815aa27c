# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.client.http_proxies`: what is seen of a proxy."""

from __future__ import annotations

import http.server
import threading
from typing import TYPE_CHECKING

import pytest

from pulsar_spark.cli.admin import Admin
from pulsar_spark.client.authentication.token_server import TokenServer
from pulsar_spark.errors import AuthError, PulsarSparkError, TransportError
from pulsar_spark.options import parse_common_options
from pulsar_spark.topics import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOST = "somewhere.example.invalid"
PASSWORD = "of-the-proxy"


class Proxy:
    """Answers each request, and each wish for a tunnel, with one status.

    Attributes:
        status: That one.
        asked: The methods and what they were about.
    """

    def __init__(self) -> None:
        self.status = 407
        self.asked: list[str] = []
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def _answer(self) -> None:
                proxy.asked.append(f"{self.command} {self.path}")
                self.send_response(proxy.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_CONNECT = do_GET = do_POST = _answer  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """The proxy of this process, with a user and a password."""
    one = Proxy()
    thread = threading.Thread(target=one.server.serve_forever, args=(0.02,))
    thread.start()
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://me:{PASSWORD}@{one.address}/")
    yield one
    one.server.shutdown()
    thread.join(60)
    one.server.server_close()


def ask_admin(scheme: str) -> None:
    """Asks an admin REST."""
    options = parse_common_options({"service.url": "pulsar://broker"})
    Admin(f"{scheme}://{HOST}", options.client).stats(
        TopicName.parse("public/default/t").full_name
    )


def ask_for_a_token(scheme: str) -> None:
    """Asks an OAuth2 server."""
    TokenServer(f"{scheme}://{HOST}", allow_http=True).token("me", "secret")


WHO = pytest.mark.parametrize(
    ("ask", "kind"), [(ask_admin, TransportError), (ask_for_a_token, AuthError)]
)


def failure(
    ask: Callable[[str], None], scheme: str, kind: type[PulsarSparkError]
) -> PulsarSparkError:
    """What it ends with, which shows nothing of the password."""
    with pytest.raises(kind) as caught:
        ask(scheme)
    assert PASSWORD not in str(caught.value)
    return caught.value


@WHO
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_it_asks_for_a_password(
    proxy: Proxy,
    scheme: str,
    ask: Callable[[str], None],
    kind: type[PulsarSparkError],
) -> None:
    """The error says where that goes; no other try would help."""
    error = failure(ask, scheme, kind)
    assert f"the proxy {proxy.address} (of {scheme}_proxy) answers 407" in error.message
    assert "user:password@" in error.message
    assert not error.retriable
    assert len(proxy.asked) == 1


@WHO
@pytest.mark.parametrize(("status", "may_pass"), [(403, False), (503, True)])
def test_it_opens_no_connection(
    proxy: Proxy,
    status: int,
    may_pass: bool,
    ask: Callable[[str], None],
    kind: type[PulsarSparkError],
) -> None:
    """It may know hosts that it does not like, or not reach them now."""
    proxy.status = status
    error = failure(ask, "https", kind)
    assert (
        f"the proxy {proxy.address} (of https_proxy) answers {status}" in error.message
    )
    assert "no_proxy" in error.message
    assert error.retriable is may_pass


@WHO
def test_it_is_down(
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    ask: Callable[[str], None],
    kind: type[PulsarSparkError],
) -> None:
    """Then that is what cannot be reached, and not the host."""
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    error = failure(ask, "https", kind)
    assert "through the proxy 127.0.0.1:1 (of https_proxy) (" in error.message
    assert error.retriable
    assert not proxy.asked


@WHO
def test_a_host_without_one(
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    ask: Callable[[str], None],
    kind: type[PulsarSparkError],
) -> None:
    """Nobody asks the proxy about it, nor blames it."""
    monkeypatch.setenv("no_proxy", HOST)
    error = failure(ask, "https", kind)
    assert "proxy" not in error.message
    assert not proxy.asked
