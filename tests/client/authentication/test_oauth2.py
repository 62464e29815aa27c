# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.client.authentication.oauth2`, on a server in this process."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client.authentication import credential_provider, oauth2
from pulsar_spark.client.authentication.oauth2 import OAuth2Credentials
from pulsar_spark.client.authentication.token_server import TokenServer as Client
from pulsar_spark.errors import AuthError, OptionError
from pulsar_spark.options.authentication import AuthenticationOptions, ClientCredentials
from pulsar_spark.options.secret import Secret
from spark_topics.client import resolving, settling
from tests.support.certificates import Authority, days
from tests.support.fixtures import Clock, FileClock
from tests.support.secured import TokenServer
from tests.support.tls_front import server_context
from tests.support.tokens import Signer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIGNER = Signer(b"k" * 32)


@pytest.fixture
def server() -> Iterator[TokenServer]:
    """A server of tokens that live for an hour."""
    with TokenServer(SIGNER) as one:
        yield one


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time by which tokens are renewed."""
    one = Clock()
    monkeypatch.setattr(oauth2, "time", one)
    return one


class _Late:
    """An answer that nobody waits for any more."""

    def __init__(self) -> None:
        self.end = threading.Event()
        self.thread = threading.current_thread()

    def __call__(self) -> tuple[str, float]:
        self.thread = threading.current_thread()
        self.end.wait(20)
        return "late", 3600.0


def keys_of(server: TokenServer, **others: Any) -> OAuth2Credentials:
    """Credentials of a client of it."""
    return OAuth2Credentials(ClientCredentials(Secret(server.key("me")), **others))


def failure(server: TokenServer, keys: OAuth2Credentials | None = None) -> AuthError:
    """Why there is no token; shows no secret."""
    keys = keys or keys_of(server)
    with pytest.raises(AuthError) as caught:
        keys.data()
    error = caught.value
    assert server.clients["me"] not in f"{error} {error!r} {error.__context__!r}"
    return error


class TestGrant:
    def test_a_token(self, server: TokenServer, tmp_path: Path) -> None:
        """By a key file, with audience and scope."""
        options = ClientCredentials(
            Secret(server.key("me", tmp_path / "key.json")),
            audience="a b",
            scope="s/.d",
        )
        keys = OAuth2Credentials(options)
        assert keys.role() == ""
        assert keys.data().decode() == server.given[0]
        assert keys.method == "token"
        assert keys.role() == "me"
        (form,) = server.forms
        assert form == {
            "grant_type": "client_credentials",
            "client_id": "me",
            "audience": "a b",
            "scope": "s/.d",
        }

    def test_by_name(self, server: TokenServer) -> None:
        """Id, secret and server apart."""
        server.key("me")
        options = ClientCredentials(
            Secret(server.clients["me"]), client_id="me", issuer_url=server.url + "/"
        )
        assert OAuth2Credentials(options).data().decode() == server.given[0]
        assert server.paths == ["/.well-known/openid-configuration", "/token"]

    def test_the_other_metadata(self, server: TokenServer) -> None:
        """RFC 8414's, where there is none of OpenID."""
        server.without.add("/.well-known/openid-configuration")
        keys_of(server).data()
        assert server.paths[1] == "/.well-known/oauth-authorization-server"

    def test_the_issuers_path(self, server: TokenServer) -> None:
        """It stands before, or in RFC 8414 behind."""
        server.without.add("/realms/r/.well-known/openid-configuration")
        keys_of(server, issuer_url=f"{server.url}/realms/r").data()
        assert server.paths == [
            "/realms/r/.well-known/openid-configuration",
            "/.well-known/oauth-authorization-server/realms/r",
            "/token",
        ]

    def test_a_metadata_url(self, server: TokenServer) -> None:
        """It is taken as it is."""
        url = f"{server.url}/.well-known/openid-configuration"
        keys_of(server, issuer_url=url).data()
        assert server.paths == ["/.well-known/openid-configuration", "/token"]

    def test_a_server_that_wants_basic(self, server: TokenServer) -> None:
        """The secret is in the header, not in the form."""
        server.metadata["token_endpoint_auth_methods_supported"] = [
            "client_secret_basic"
        ]
        server.clients["me"] = "s:e/c r&t"
        assert keys_of(server).data().decode() == server.given[0]

    def test_no_times(self, server: TokenServer) -> None:
        """Those of the token count; where it has none, it is used once."""
        body = {"access_token": SIGNER.token("me", 3600), "token_type": "Bearer"}
        opaque = json.dumps({"access_token": "opaque", "token_type": "Bearer"})
        server.answers += [(200, {}, json.dumps(body))]
        keys = keys_of(server)
        assert keys.data() == keys.data()
        assert len(server.paths) == 2
        server.answers += [(200, {}, opaque), (200, {}, opaque)]
        other = keys_of(server)
        assert other.data() == other.data() == b"opaque"
        assert len(server.paths) == 6

    @pytest.mark.parametrize("life", ["NaN", "Infinity"])
    def test_a_number_that_is_none(self, server: TokenServer, life: str) -> None:
        """Such a token is not used for ever."""
        body = f'{{"access_token":"x","expires_in":{life}}}'
        server.answers += [(200, {}, body), (200, {}, body)]
        keys = keys_of(server)
        assert keys.data() == keys.data() == b"x"
        assert server.paths.count("/token") == 2

    @pytest.mark.parametrize("life", [2**63 - 1, 10**400])
    def test_for_ever(self, server: TokenServer, life: int) -> None:
        """Some servers say so by a number that no clock has."""
        server.answers += [(200, {}, f'{{"access_token":"x","expires_in":{life}}}')]
        keys = keys_of(server)
        assert keys.data() == keys.data() == b"x"

    def test_a_quoted_number(self, server: TokenServer) -> None:
        """As some servers write it."""
        body = json.dumps({"access_token": "x", "expires_in": "3600"})
        server.answers += [(200, {}, body)]
        keys = keys_of(server)
        assert keys.data() == keys.data() == b"x"


class TestRenewal:
    def test_before_it_expires(self, server: TokenServer, clock: Clock) -> None:
        """Not sooner, and for all connections at once."""
        keys = keys_of(server)
        first = keys.data()
        clock.now += 3600 - 61
        assert keys.data() == first
        clock.now += 2
        with ThreadPoolExecutor(8) as executor:
            (second,) = set(executor.map(lambda _: keys.data(), range(8)))
        assert second != first
        assert len(server.given) == 2

    def test_a_short_life(self, server: TokenServer, clock: Clock) -> None:
        """A fifth of it is kept for the way."""
        server.life_s = 10
        keys = keys_of(server)
        first = keys.data()
        clock.now += 7.9
        assert keys.data() == first
        clock.now += 0.2
        assert keys.data() != first

    def test_a_challenge(self, server: TokenServer, clock: Clock) -> None:
        """A broker has looked at its own clock; those that ask together get one."""
        keys = keys_of(server)
        first = keys.data()
        clock.now += 100
        second = keys.answer(b"PulsarAuthRefresh")
        assert second != first
        clock.now += 1
        assert keys.answer(b"PulsarAuthRefresh") == keys.data() == second

    def test_a_refusal(self, server: TokenServer) -> None:
        """What a broker did not take is not given again."""
        keys = keys_of(server)
        first = keys.data()
        keys.refused(b"another")
        assert keys.data() == first
        keys.refused(first)
        assert keys.data() != first

    def test_a_server_that_rests(
        self, server: TokenServer, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        """While the old token lives, it is used; then it is an error that may pass."""
        keys = keys_of(server)
        first = keys.data()
        clock.now += 3600 - 30
        server.answers += [(503, {}, "busy"), (503, {}, "busy")]
        assert keys.data() == first
        assert "longer than it should" in caplog.text
        clock.now += 31
        assert failure(server, keys).retriable

    def test_a_server_that_is_silent(
        self,
        server: TokenServer,
        clock: Clock,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """The old token is used while it lives; who has none waits for the server."""
        credentials = ClientCredentials(Secret(server.key("me")))
        keys = OAuth2Credentials(credentials, patience_s=0.2)
        first = keys.data()
        server.hold.clear()
        clock.now += 3600 - 30
        assert [keys.data(), keys.answer(b"x")] == [first, first]
        assert "longer than it should" in caplog.text
        clock.now += 31
        with ThreadPoolExecutor(1) as executor:
            waits = executor.submit(keys.data)
            server.hold.set()
            second = waits.result(60)
        assert second == keys.data() != first
        assert len(server.given) == 2, "it was asked once"

    def test_a_server_that_never_answers(
        self, server: TokenServer, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is not to come is asked for anew after a while."""
        keys = keys_of(server)
        late = _Late()
        with monkeypatch.context() as patch:
            patch.setattr(OAuth2Credentials, "_limit_s", 0.2)
            patch.setattr(keys, "_ask", late)
            error = failure(server, keys)
        assert "did not answer in time" in error.message
        assert error.retriable
        clock.now += 1
        assert keys.data().decode() == server.given[0]
        late.end.set()
        late.thread.join(60)
        assert keys.data().decode() == server.given[0], "not the late one"

    def test_one_provider_for_all(self, server: TokenServer) -> None:
        """Pools of one process share its tokens; others have their own."""
        options = AuthenticationOptions(
            "oauth2", ClientCredentials(Secret(server.key("me")))
        )
        one, two = credential_provider(options), credential_provider(options)
        assert one is not None
        assert one is two
        assert isinstance(options.credential, ClientCredentials)
        for others in (
            {"scope": "x"},
            {"trust_path": "/x"},
            {"allow_http": True},
            {"read_timeout_s": 1.0},
        ):
            credential = replace(options.credential, **others)  # type: ignore[arg-type]
            third = replace(options, credential=credential)
            assert credential_provider(third) is not one, others


class TestTls:
    def test_an_authority_of_its_own(self, tmp_path: Path) -> None:
        """It is trusted by its file, which is read each time, and nobody else is."""
        one = Authority(tmp_path)
        trusted = tmp_path / "trusted.pem"
        shutil.copy(one.certificate, trusted)
        with TokenServer(SIGNER, tls=server_context(one.issue("server"))) as server:
            assert server.url.startswith("https://")
            keys = keys_of(server, trust_path=str(trusted))
            assert keys.data().decode() == server.given[0]
            error = failure(server, keys_of(server))
            assert "refused: " in error.message
            assert "(set trustCertsFilePath)" in error.message
            keys.refused(server.given[0].encode())
            shutil.copy(Authority(tmp_path, "other").certificate, trusted)
            assert "(set trustCertsFilePath)" in failure(server, keys).message
            shutil.copy(one.certificate, trusted)
            assert keys.data().decode() == server.given[1]

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ({"ends": days(-1)}, "certificate has expired"),
            ({"hosts": ("elsewhere.test",)}, "IP address mismatch"),
        ],
    )
    def test_another_certificate(
        self, tmp_path: Path, given: dict[str, Any], text: str
    ) -> None:
        """The secret is not sent, and no other authority would help."""
        authority = Authority(tmp_path)
        context = server_context(authority.issue("server", **given))
        with TokenServer(SIGNER, tls=context) as server:
            keys = keys_of(server, trust_path=str(authority.certificate))
            error = failure(server, keys)
            assert text in error.message
            assert "trustCertsFilePath" not in error.message
            assert not error.retriable
            assert server.paths == []


class TestErrors:
    def test_a_wrong_secret(self, server: TokenServer) -> None:
        """The server's words are shown, but for the secret that it repeats."""
        key = json.loads(server.key("me"))
        server.clients["me"] = "another"
        keys = OAuth2Credentials(ClientCredentials(Secret(json.dumps(key))))
        error = failure(server, keys)
        assert f"{server.url}/token answered 401 (invalid_client: " in error.message
        assert "the secret <secret>" in error.message
        assert key["client_secret"] not in str(error)
        assert not error.retriable

    def test_a_server_that_repeats_a_header(self, server: TokenServer) -> None:
        """What proves who asks is not shown in base64, either."""
        server.metadata["token_endpoint_auth_methods_supported"] = [
            "client_secret_basic"
        ]
        keys = keys_of(server)
        login = base64.b64encode(f"me:{server.clients['me']}".encode()).decode()
        body = {"error": "invalid_client", "error_description": f"Basic {login}"}
        server.answers += [(401, {}, json.dumps(body))]
        error = failure(server, keys)
        assert "(invalid_client: Basic <secret>)" in error.message

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    def test_a_redirect(self, server: TokenServer, status: int) -> None:
        """The secret goes nowhere else."""
        with TokenServer(SIGNER) as other:
            server.answers += [(status, {"Location": f"{other.url}/token"}, "")]
            error = failure(server)
            assert "is not followed" in error.message
            assert other.paths == []

    @pytest.mark.parametrize(
        ("answer", "text", "retriable"),
        [
            ((429, {}, "{}"), "answered 429.", True),
            ((500, {}, "<html>"), "answered 500.", True),
            ((404, {}, ""), "answered 404.", False),
            ((400, {}, '{"error":"invalid_scope"}'), "400 (invalid_scope)", False),
            ((400, {}, '{"error":"a\\u001bb"}'), "400 (a\\x1bb)", False),
            ((200, {}, "<html>"), "something else than a JSON object", False),
            ((200, {}, "[]"), "something else than a JSON object", False),
            ((200, {}, "{}"), "without an access_token", False),
            ((200, {}, '{"access_token":"a\\nb"}'), "without an access_token", False),
            ((200, {}, '{"access_token":""}'), "without an access_token", False),
            ((200, {}, '{"access_token":" "}'), "without an access_token", False),
            ((200, {}, '{"access_token":"a b"}'), "without an access_token", False),
            ((200, {}, '{"error":"invalid_client"}'), "token (invalid_client)", False),
            ((400, {}, "[]"), "answered 400.", False),
            ((200, {}, "x" * (1 << 20) + "x"), "gave no answer that can be read", True),
        ],
    )
    def test_answers(
        self, server: TokenServer, answer: Any, text: str, retriable: bool
    ) -> None:
        """Each is told apart; what may pass is tried again."""
        server.answers += [answer]
        error = failure(server)
        assert text in error.message
        assert f"{server.url}/token" in error.message
        assert error.retriable is retriable

    def test_no_metadata(self, server: TokenServer) -> None:
        """The address is named."""
        server.without |= {
            "/.well-known/openid-configuration",
            "/.well-known/oauth-authorization-server",
        }
        text = f"{server.url}/.well-known/oauth-authorization-server has no metadata"
        assert text in failure(server).message

    @pytest.mark.parametrize("endpoint", [None, 1, "token", "file:///etc/passwd"])
    def test_metadata_without_endpoint(
        self, server: TokenServer, endpoint: object
    ) -> None:
        """There is nowhere to go."""
        server.metadata["token_endpoint"] = endpoint
        assert "names no token_endpoint" in failure(server).message

    def test_a_downgrade(self, server: TokenServer) -> None:
        """An endpoint elsewhere is not spoken to in plain unless that is allowed."""
        server.metadata["token_endpoint"] = "http://auth.example.invalid/token"
        error = failure(server)
        assert "would be readable on its way" in error.message
        assert server.paths == ["/.well-known/openid-configuration"]

    def test_a_downgrade_that_is_allowed(
        self, server: TokenServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        """There is a warning each time."""
        server.metadata["token_endpoint"] = "http://auth.example.invalid/token"
        error = failure(server, keys_of(server, allow_http=True))
        assert "cannot be reached" in error.message
        assert "without TLS" in caplog.text

    def test_a_remote_server_that_names_this_machine(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By http:// the secret would go to whoever listens here."""
        resolve = resolving._ask

        def ask(host: str, flags: int = 0) -> list[str]:
            return ["127.0.0.1"] if host == "auth.test" else resolve(host, flags)

        monkeypatch.setattr(resolving, "_ask", ask)
        monkeypatch.setenv("no_proxy", "auth.test")
        authority = Authority(tmp_path)
        tls = server_context(authority.issue("server", hosts=("auth.test",)))
        with (
            TokenServer(SIGNER, tls=tls) as server,
            TokenServer(SIGNER) as other,
        ):
            url = server.url.replace("127.0.0.1", "auth.test")
            server.metadata["token_endpoint"] = f"{other.url}/token"
            options = {
                "issuer_url": url,
                "trust_path": str(authority.certificate),
            }
            error = failure(server, keys_of(server, **options))
            assert f"names the token_endpoint {other.url}/token, and " in error.message
            assert other.paths == []
            failure(server, keys_of(server, **options, allow_http=True))
            assert other.paths == ["/token"]  # which knows no such client

    def test_metadata_of_another_issuer(
        self, server: TokenServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        """There is a warning that has both; a slash at the end is no difference."""
        server.metadata["issuer"] = f"{server.url}/"
        keys_of(server).data()
        assert "says that it is" not in caplog.text
        server.metadata["issuer"] = "https://other.example.invalid"
        keys_of(server).data()
        (line,) = caplog.messages
        assert f"{server.url} says that it is https://other.example.invalid." in line

    def test_nobody_listens(self, server: TokenServer) -> None:
        """It may come back."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{free.getsockname()[1]}"
            error = failure(server, keys_of(server, issuer_url=url))
        assert f"{url}/.well-known/openid-configuration cannot" in error.message
        assert error.retriable

    def test_a_server_that_is_silent(self, server: TokenServer) -> None:
        """It is waited for as long as the parameters say."""
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            keys = keys_of(
                server, issuer_url=url, connect_timeout_s=0.2, read_timeout_s=0.1
            )
            error = failure(server, keys)
        assert "did not answer in time" in error.message
        assert error.retriable

    def test_a_server_that_drips(self, server: TokenServer) -> None:
        """A byte now and then does not hold it for ever."""
        end = threading.Event()

        def drip() -> None:
            taken, _ = slow.accept()
            with taken:
                taken.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                while not end.wait(0.02):
                    try:
                        taken.sendall(b" ")
                    except OSError:
                        return

        with socket.create_server(("127.0.0.1", 0)) as slow:
            thread = threading.Thread(target=drip)
            thread.start()
            url = f"http://127.0.0.1:{slow.getsockname()[1]}"
            keys = keys_of(
                server, issuer_url=url, connect_timeout_s=0.2, read_timeout_s=0.2
            )
            error = failure(server, keys)
            end.set()
            thread.join(60)
        assert "did not answer in time" in error.message

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("[]", "has no client_id"),
            ("nonsense", "has no client_id"),
            ('{"client_id":"a","client_secret":1}', "has no client_secret"),
            ('{"client_id":"a","client_secret":"b"}', "has no issuer_url"),
        ],
    )
    def test_keys_of_no_use(self, tmp_path: Path, text: str, problem: str) -> None:
        """What is missing is named."""
        file = tmp_path / "key.json"
        file.write_text(text)
        keys = OAuth2Credentials(ClientCredentials(Secret(f"file:{file}")))
        with pytest.raises(AuthError, match=problem):
            keys.data()

    def test_a_key_that_is_being_written(
        self, server: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Half of it is not the end."""
        file = tmp_path / "key.json"
        text = server.key("me")
        file.write_text(text[:-20])
        clock = FileClock(then=lambda: file.write_text(text))
        monkeypatch.setattr(settling, "time", clock)
        keys = OAuth2Credentials(ClientCredentials(Secret(f"file:{file}")))
        assert keys.data().decode() == server.given[0]
        assert clock.pauses

    def test_a_key_that_names_no_url(self, tmp_path: Path) -> None:
        """It is checked as the parameter is."""
        text = '{"client_id":"a","client_secret":"b","issuer_url":"file:///x"}'
        with pytest.raises(OptionError, match="issuer_url in the privateKey"):
            OAuth2Credentials(ClientCredentials(Secret(text))).data()

    def test_trust_that_cannot_be_read(self, server: TokenServer) -> None:
        """The file is named."""
        error = failure(server, keys_of(server, trust_path="/absent.pem"))
        assert "trustCertsFilePath" in error.message
        assert "/absent.pem" in error.message


def test_the_form_is_not_in_the_url(server: TokenServer) -> None:
    """What proves who asks is in the body, or in a header."""
    server.key("me")
    Client(server.url).token("me", server.clients["me"])
    assert all("?" not in path for path in server.paths)
    assert base64.b64encode(b"me") not in "".join(server.paths).encode()
