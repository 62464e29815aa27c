# SPDX-License-Identifier: Apache-2.0
"""Tests of `pulsar_spark.cli.admin`."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pulsar_spark.cli.admin import Admin, LedgerSize, check_admin_url
from pulsar_spark.errors import (
    AuthError,
    BrokerError,
    OptionError,
    ProtocolError,
    PulsarSparkError,
    TlsError,
    TopicNotFoundError,
    TransportError,
)
from pulsar_spark.options import parse_common_options
from pulsar_spark.topics import TopicName
from tests.support.admin_stub import AdminStub
from tests.support.certificates import Authority
from tests.support.tls_front import TlsFront, server_context

SECRET = "c2VjcmV0LW9mLXRoZS10ZXN0"
T = TopicName.parse("public/default/a b")
STATS = "GET /admin/v2/persistent/public/default/a%20b/stats"
INTERNAL = "GET /admin/v2/persistent/public/default/a%20b/internalStats"


@pytest.fixture
def stub() -> Iterator[AdminStub]:
    """An admin REST that knows nothing yet."""
    with AdminStub() as one:
        yield one


def admin(url: str, **options: str) -> Admin:
    """What asks there."""
    named = {name.replace("_", "."): value for name, value in options.items()}
    common = parse_common_options({"service.url": "pulsar://broker", **named})
    return Admin(url, common.client)


def token(secret: str = SECRET) -> dict[str, Any]:
    """Options by which a token says who asks."""
    return {
        "pulsar_client_authPluginClassName": "token",
        "pulsar_client_authParams": f"token:{secret}",
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "broker:8080",
        "ftp://a",
        "http://",
        "http://u:p@a:1",
        "http://a:x",
        "http://a b:80",
        "http://\u00fc:80",
        "http://a:80/b c",
        "http://a\n:80",
    ],
)
def test_addresses_that_are_none(text: str) -> None:
    """They are an error that shows nothing of them."""
    with pytest.raises(OptionError) as caught:
        check_admin_url(text)
    assert "u:p" not in str(caught.value)
    assert check_admin_url(" https://a:8443/path ") == "https://a:8443"


def test_subscriptions(stub: AdminStub) -> None:
    """What a broker says of each; a partition that nobody has used has none."""
    other = T.partition(0).full_name
    stub.answers[STATS] = (
        200,
        {
            "subscriptions": {
                "s": {"msgBacklog": 3, "consumers": [{}, {}], "isDurable": True},
                "r": {"msgBacklog": 0, "consumers": [], "isDurable": False},
            }
        },
    )
    found = admin(stub.url).subscriptions([T.full_name, other])
    assert found[other] == []
    answer = found[T.full_name]
    assert not isinstance(answer, PulsarSparkError)
    assert [(s.name, s.backlog_entries, s.consumers, s.is_durable) for s in answer] == [
        ("s", 3, 2, True),
        ("r", 0, 0, False),
    ]


def test_ledgers(stub: AdminStub) -> None:
    """Of the one that is written to, the sizes stand beside the list."""
    stub.answers[INTERNAL] = (
        200,
        {
            "currentLedgerEntries": 4,
            "currentLedgerSize": 40,
            "ledgers": [
                {"ledgerId": 7, "entries": 10, "size": 1000},
                {"ledgerId": 9, "entries": 0, "size": 0},
            ],
        },
    )
    assert admin(stub.url).ledgers([T.full_name])[T.full_name] == [
        LedgerSize(7, 10, 1000),
        LedgerSize(9, 4, 40),
    ]


def test_partitions(stub: AdminStub) -> None:
    """A topic without partitions is its own, and so is one partition."""
    path = "/admin/v2/persistent/public/default/a%20b/partitions"
    call = f"GET {path}?checkAllowAutoCreation=false"
    stub.answers[call] = 200, {"partitions": 2}
    one = admin(stub.url)
    assert one.partitions_of(T) == [T.partition(n).full_name for n in (0, 1)]
    assert one.partitions_of(T.partition(1)) == [T.partition(1).full_name]
    stub.answers[call] = 200, {"partitions": 0}
    assert one.partitions_of(T) == [T.full_name]


def test_who_asks(stub: AdminStub) -> None:
    """A token and a password go in the header, at every hop."""
    with AdminStub() as other:
        path = STATS.removeprefix("GET ")
        stub.answers[STATS] = 307, f"{other.url}{path}"
        other.answers[STATS] = 200, {}
        assert admin(stub.url, **token()).stats(T.full_name) == {}
        assert {who for _, _, who in stub.asked + other.asked} == {f"Bearer {SECRET}"}
    stub.answers[STATS] = 200, {}
    basic = {
        "pulsar_client_authPluginClassName": "basic",
        "pulsar_client_authParams": '{"userId":"me","password":"secret"}',
    }
    admin(stub.url, **basic).stats(T.full_name)
    expected = base64.b64encode(b"me:secret").decode()
    assert stub.asked[-1][2] == f"Basic {expected}"


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (401, AuthError, "AuthenticationError"),
        (403, AuthError, "AuthorizationError"),
        (404, TopicNotFoundError, "TopicNotFound"),
        (412, BrokerError, "ConsumerBusy"),
        (503, BrokerError, "ServiceNotReady"),
        (409, BrokerError, "UnknownError"),
    ],
)
def test_refusals(
    stub: AdminStub, status: int, kind: type[BrokerError], code: str
) -> None:
    """Each has a class and a code, and the broker's reason without its stack trace."""
    call = "DELETE /admin/v2/persistent/public/default/a%20b/subscription/s%2F1"
    stub.answers[f"{call}?force=false"] = status, {"reason": "because\nat java.lang"}
    with pytest.raises(kind) as caught:
        admin(stub.url, **token()).delete_subscription(T.full_name, "s/1")
    assert caught.value.code == code
    assert "because" in str(caught.value)
    assert "java.lang" not in str(caught.value)
    assert SECRET not in str(caught.value)


def test_answers_that_are_none(stub: AdminStub) -> None:
    """Something else that speaks HTTP is an error that says so."""
    stub.answers[STATS] = 200, b"<html>"
    with pytest.raises(ProtocolError, match="something else than JSON"):
        admin(stub.url).stats(T.full_name)
    stub.answers[STATS] = 200, []
    with pytest.raises(ProtocolError, match="something else than an object"):
        admin(stub.url).stats(T.full_name)


def test_a_redirect_to_no_address(stub: AdminStub) -> None:
    """It is named, as the server wrote it."""
    stub.answers[STATS] = 307, "http://[::1/x"
    with pytest.raises(ProtocolError, match=r"no address: http://\[::1/x"):
        admin(stub.url).stats(T.full_name)


@pytest.mark.parametrize(
    ("internal", "stats", "said"),
    [
        ({"ledgers": None}, {}, "`ledgers` that is no list"),
        ({"ledgers": {"7": {}}}, {}, "`ledgers` that is no list"),
        ({"ledgers": [{"ledgerId": "7"}]}, {}, "`ledgerId` that is no number"),
        ({"ledgers": [{"entries": -1}]}, {}, "`entries` that is no number of 0"),
        ([], {}, "something else than an object"),
        (None, {"subscriptions": []}, "something else than an object"),
        (None, {"subscriptions": {"s": {"consumers": 5}}}, "`consumers` that is no"),
        (None, {"subscriptions": {"s": {"msgBacklog": True}}}, "`msgBacklog` that"),
        (None, 5, "something else than an object"),
    ],
)
def test_answers_with_other_types(
    stub: AdminStub, internal: Any, stats: Any, said: str
) -> None:
    """They are an error of ours that names the field."""
    stub.answers[INTERNAL], stub.answers[STATS] = (200, internal), (200, stats)
    of_each = (
        admin(stub.url).subscriptions if internal is None else admin(stub.url).ledgers
    )
    error = of_each([T.full_name])[T.full_name]
    assert isinstance(error, ProtocolError)
    assert said in str(error)


@pytest.mark.parametrize("count", [100_001, 10**9, 10**400])
def test_more_partitions_than_there_are(stub: AdminStub, count: int) -> None:
    """A number that is believed would cost memory."""
    path = "/admin/v2/persistent/public/default/a%20b/partitions"
    call = f"GET {path}?checkAllowAutoCreation=false"
    stub.answers[call] = 200, {"partitions": count}
    with pytest.raises(ProtocolError, match="No topic has more than 100,000"):
        admin(stub.url).partitions_of(T)
    stub.answers[call] = 200, {"partitions": "3"}
    with pytest.raises(ProtocolError, match="`partitions` that is no number"):
        admin(stub.url).partitions_of(T)


@pytest.mark.parametrize(
    "target",
    [f"http://{SECRET}/x", f"http://a/{SECRET.lower()}", f"ftp://a/?{SECRET}"],
)
def test_a_redirect_that_repeats_the_token(stub: AdminStub, target: str) -> None:
    """Is not followed, and not shown."""
    stub.answers[STATS] = 307, target
    with pytest.raises(ProtocolError, match="repeats the credential") as caught:
        admin(stub.url, **token()).stats(T.full_name)
    assert SECRET.lower() not in str(caught.value).lower()


@pytest.mark.parametrize("target", ["ftp://a/b", "http://user:secret@a/b", "file:///x"])
def test_redirects_that_are_not_followed(stub: AdminStub, target: str) -> None:
    """What proves who asks does not go just anywhere."""
    stub.answers[STATS] = 307, target
    with pytest.raises(ProtocolError, match="not followed") as caught:
        admin(stub.url, **token()).stats(T.full_name)
    assert "secret" not in str(caught.value)


def test_redirects_without_end(stub: AdminStub) -> None:
    """They end."""
    stub.answers[STATS] = 307, STATS.removeprefix("GET ")
    with pytest.raises(ProtocolError, match="send each other on"):
        admin(stub.url).stats(T.full_name)
    assert len(stub.asked) == 6


def test_namespaces(stub: AdminStub) -> None:
    """Each partition by itself; something else than a list is no answer."""
    names = [T.partition(index).full_name for index in range(2)]
    call = "GET /admin/v2/persistent/public/default"
    stub.answers[call] = 200, names
    assert admin(stub.url).topic_partitions("public/default") == names
    stub.answers[call] = 200, {"names": names}
    with pytest.raises(ProtocolError, match="something else than a list"):
        admin(stub.url).topic_partitions("public/default")


def test_a_topic_without_ledgers(stub: AdminStub) -> None:
    """Or with entries in the list that are none: what is no ledger is left out."""
    for ledgers in ([], ["7"]):
        stub.answers[INTERNAL] = 200, {"currentLedgerEntries": 4, "ledgers": ledgers}
        assert admin(stub.url).ledgers([T.full_name])[T.full_name] == []


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who signs certificates."""
    return Authority(tmp_path_factory.mktemp("certificates"))


def test_tls(stub: AdminStub, authority: Authority) -> None:
    """It is asked over TLS where it shows a certificate that is trusted."""
    stub.answers[STATS] = 200, {"subscriptions": {}}
    trust = {"pulsar_client_tlsTrustCertsFilePath": str(authority.certificate)}
    trust |= {"service_url": "pulsar+ssl://broker"}
    context = server_context(authority.issue("server"))
    with TlsFront(stub.url.removeprefix("http://"), context) as front:
        url = f"https://{front.address}"
        assert admin(url, **trust).stats(T.full_name) == {"subscriptions": {}}
        with pytest.raises(TlsError, match="shows a certificate that is not trusted"):
            admin(url).stats(T.full_name)
    assert len(stub.asked) == 1


def test_who_asks_by_a_certificate(stub: AdminStub, authority: Authority) -> None:
    """It is shown while TLS begins, and no header says more."""
    stub.answers[STATS] = 200, {}
    client = authority.issue("client", hosts=())
    shown = {
        "service_url": "pulsar+ssl://broker",
        "pulsar_client_tlsTrustCertsFilePath": str(authority.certificate),
        "pulsar_client_authPluginClassName": "tls",
        "pulsar_client_authParams": (
            f"tlsCertFile:{client.certificate},tlsKeyFile:{client.key}"
        ),
    }
    context = server_context(authority.issue("server"), clients=authority)
    with TlsFront(stub.url.removeprefix("http://"), context) as front:
        assert admin(f"https://{front.address}", **shown).stats(T.full_name) == {}
    ((_, _, who),) = stub.asked
    assert who == ""


def test_tls_where_there_is_none(stub: AdminStub) -> None:
    """The port of HTTP is no port of https."""
    url = stub.url.replace("http:", "https:")
    why = r"cannot be spoken to by TLS: .*WRONG_VERSION.*8443"
    with pytest.raises(TlsError, match=why):
        admin(url).stats(T.full_name)
    assert not stub.asked


def test_a_server_that_is_no_brokers(stub: AdminStub) -> None:
    """A page that is not there does not mean that a topic is not."""
    path = "/admin/v2/persistent/public/default/a%20b/stats"
    stub.answers[f"GET {path}"] = 404, b"<html>Not Found</html>"
    with pytest.raises(ProtocolError, match="Is it a broker's HTTP port"):
        admin(stub.url).stats(T.full_name)
    stub.answers[f"GET {path}"] = 404, None
    with pytest.raises(TopicNotFoundError):
        admin(stub.url).stats(T.full_name)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", r"cannot be reached \(RemoteDisconnected\)"),
        (b"SSH-2.0-OpenSSH\r\n", r"gives no answer that can be read \(BadStatusLine\)"),
        (
            b"HTTP/1.1 500 Error\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nabc",
            r"gives no answer that can be read \(IncompleteRead\)",
        ),
        (None, "does not answer within 0.2 s"),
    ],
)
def test_something_else_that_listens(said: bytes | None, why: str) -> None:
    """Says something else, hangs up, or says nothing: never waited for without end."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                if said is None:
                    connection.recv(1)  # until it is hung up
                else:
                    connection.sendall(said)

        thread = threading.Thread(target=serve)
        thread.start()
        limit = {"pulsar_client_operationTimeoutMs": "200"} if said is None else {}
        with pytest.raises(TransportError, match=why):
            admin(f"http://127.0.0.1:{server.getsockname()[1]}", **limit).stats(
                T.full_name
            )
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("status", ["200 OK", "500 Error"])
def test_an_answer_that_drips(status: str) -> None:
    """However little comes at a time, the time is over."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        over = threading.Event()

        def serve() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(65536)
                head = f"HTTP/1.1 {status}\r\nContent-Length: 99999\r\n\r\n"
                connection.sendall(head.encode())
                for _ in range(1200):
                    connection.sendall(b"x")
                    if over.wait(0.05):
                        return

        thread = threading.Thread(target=serve)
        thread.start()
        one = admin(
            f"http://127.0.0.1:{server.getsockname()[1]}",
            pulsar_client_operationTimeoutMs="200",
        )
        with pytest.raises(TransportError, match=r"does not answer within 0\.2 s"):
            one.stats(T.full_name)
        over.set()
        thread.join(60)


@pytest.mark.parametrize("form", [SECRET, base64.b64encode(SECRET.encode()).decode()])
def test_a_server_that_repeats_what_it_was_sent(stub: AdminStub, form: str) -> None:
    """The error does not."""
    stub.answers[STATS] = 401, {"reason": f"no good: {form}"}
    with pytest.raises(AuthError, match="no good: <secret>") as caught:
        admin(stub.url, **token()).stats(T.full_name)
    assert form not in f"{caught.value!r} {caught.value.server_message}"


def test_nobody_there() -> None:
    """The error names the address and the usual ports."""
    with socket.socket() as taken:  # bound, and not listened to
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(TransportError, match="usually 8080"):
            admin(f"http://127.0.0.1:{port}").stats(T.full_name)
