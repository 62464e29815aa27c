# SPDX-License-Identifier: Apache-2.0
"""Endpoints that cannot be used: each has its own message, within its deadline."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from siblings.ydb_topic.tests.support.service import DATABASE, TopicService
from tests.support.certificates import Authority, days
from ydb_spark.client.channel import Channel
from ydb_spark.client.topics import describe_topic
from ydb_spark.errors import OptionError, TlsError, TransportError
from ydb_spark.options.connection import ConnectionOptions, Secret
from ydb_spark.options.patience import Patience


@dataclass(frozen=True)
class Site:
    """Servers, and whom to trust.

    Attributes:
        plain: Port without TLS.
        safe: Port with a certificate for localhost.
        other: Port with one for another host.
        late: Port with one that has ended.
        silent: Port where nobody says anything.
        ca: Who signed these.
        other_ca: Who did not.
    """

    plain: int
    safe: int
    other: int
    late: int
    silent: int
    ca: Path
    other_ca: Path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One of each."""
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder / "good")
    pairs = [
        authority.issue("server"),
        authority.issue("elsewhere", hosts=("elsewhere.test",)),
        authority.issue("late", ends=days(-1)),
    ]
    services = [TopicService()] + [
        TopicService(tls=(pair.key.read_bytes(), pair.certificate.read_bytes()))
        for pair in pairs
    ]
    for service in services:
        service.store.create("t")
        service.start()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield Site(
            *[service.port for service in services],
            silent.getsockname()[1],
            authority.certificate,
            Authority(folder / "other", "other").certificate,
        )
    for service in services:
        service.stop()


#: For who answers, however late; only what is tried again takes as long.
PATIENCE_S = 60.0

#: For who never does.
SHORT_S = 0.1


def describe(
    url: str,
    ca: Path | str | None,
    operation_timeout_s: float = PATIENCE_S,
    look_step_s: float = PATIENCE_S,
) -> None:
    """Ask for the topic. The look begins at once, and so does an end without answer."""
    secret = None if ca is None else Secret(f"file:{ca}")
    channel = Channel(
        ConnectionOptions(
            url + DATABASE,
            DATABASE,
            ca=secret,
            operation_timeout_s=operation_timeout_s,
            patience=Patience(look_s=SHORT_S, look_step_s=look_step_s, stop_s=0),
        )
    )
    try:
        assert describe_topic(channel, "t", with_offsets=False).partitions
    finally:
        channel.close()


def test_good(site: Site):
    """Both ways to be reached."""
    describe(f"grpcs://localhost:{site.safe}", site.ca)
    describe(f"grpc://localhost:{site.plain}", None)


@pytest.mark.parametrize(
    ("scheme", "port", "ca", "kind", "match"),
    [
        ("grpcs", "safe", "other_ca", TlsError, "untrusted authority: .* Set `ca` to"),
        ("grpcs", "safe", None, TlsError, "untrusted authority: .* Set `ca` to"),
        ("grpcs", "other", "ca", TlsError, "for another name: .*localhost"),
        ("grpcs", "late", "ca", TlsError, "certificate has ended"),
        ("grpcs", "plain", "ca", TlsError, "does not speak TLS"),
        ("grpc", "safe", None, TlsError, "speaks TLS, .* let it begin with grpcs://"),
        ("grpc", "silent", None, TransportError, "says nothing after a connection"),
        ("grpcs", "silent", "ca", TransportError, "says nothing in a TLS handshake"),
    ],
)
def test_each_its_own_message(
    site: Site,
    scheme: str,
    port: str,
    ca: str | None,
    kind: type[TransportError],
    match: str,
):
    """It names the endpoint, and what to change."""
    limit_s = SHORT_S if port == "silent" else PATIENCE_S
    url = f"{scheme}://localhost:{getattr(site, port)}"
    trusted = None if ca is None else getattr(site, ca)
    with pytest.raises(kind, match=match) as caught:
        describe(url, trusted, limit_s, limit_s)
    assert url in str(caught.value)


def test_nobody_there(site: Site):
    """Neither on the port, nor of the name."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    with pytest.raises(TransportError, match=r"cannot be reached from .*refused"):
        describe(f"grpc://localhost:{port}", None, SHORT_S)
    with pytest.raises(TransportError, match="knows no host of that name"):
        describe("grpc://absent.invalid:2136", None, SHORT_S)


def test_authorities_that_are_none(tmp_path: Path):
    """That is said before anything is tried."""
    file = tmp_path / "ca.pem"
    file.write_text("hunter2")
    with pytest.raises(OptionError, match="ca has no certificate in PEM") as caught:
        describe("grpcs://localhost:1", file)
    assert "hunter2" not in str(caught.value)
