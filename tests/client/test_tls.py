# SPDX-License-Identifier: Apache-2.0
"""Tests of TLS against servers in this process: what fails, and what it says."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pulsar_spark.client.connect import connect
from pulsar_spark.client.lookup import TopicLookup
from pulsar_spark.client.pool import BrokerAddress, ConnectionPool
from pulsar_spark.errors import OptionError, PulsarSparkError, TlsError, TransportError
from pulsar_spark.options import ClientOptions, ServiceUrl, TlsOptions
from pulsar_spark.options.secret import Secret
from pulsar_spark.wire import pulsar_api_pb2 as pb
from spark_topics.client import settling
from spark_topics.client import tls_context as module
from tests.support.certificates import Authority, Pair, days
from tests.support.fixtures import FileClock
from tests.support.scripted_broker import ScriptedBroker, client_options, look_up
from tests.support.tls_front import TlsFront, server_context
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "persistent://public/default/t"
CONNECT = pb.CommandLookupTopicResponse.Connect
REDIRECT = pb.CommandLookupTopicResponse.Redirect


class Files:
    """Certificates of one authority, and of one that nobody trusts."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.other = Authority(folder, "other")
        self.server = self.authority.issue("server")
        self.client = self.authority.issue("orders", hosts=())
        self.stranger = self.other.issue("stranger")
        self.key_store = self.client.key_store("key-secret", authority=self.authority)
        self.bare_key_store = self.client.bare_key_store("trust-secret")
        self.trust_store = self.authority.trust_store("trust-secret")
        self.encrypted_key = self.client.encrypted_key("key-secret")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Certificates, in files that have been there for a while."""
    folder = tmp_path_factory.mktemp("certificates")
    made = Files(folder)
    settle(folder)
    return made


def settle(folder: Path) -> None:
    """Have files look as if they had been there for an hour."""
    for path in folder.iterdir():
        earlier = path.stat().st_mtime - 3600
        os.utime(path, (earlier, earlier))


def tls_options(files: Files, *addresses: str, **tls: Any) -> ClientOptions:
    """Options that trust the authority."""
    if not tls.get("use_key_stores"):
        tls.setdefault("trust_certificates_path", str(files.authority.certificate))
    return replace(
        client_options(*addresses),
        service_url=ServiceUrl("pulsar+ssl", addresses),
        tls=TlsOptions(use_tls=True, **tls),
    )


@contextmanager
def served(context: ssl.SSLContext) -> Iterator[tuple[ScriptedBroker, TlsFront]]:
    """A broker with TLS."""
    with ScriptedBroker() as broker, TlsFront(broker.address, context) as front:
        yield broker, front


def refused(files: Files, context: ssl.SSLContext, **tls: Any) -> TlsError:
    """The error of connecting to such a server; nothing gets through to the broker."""
    with served(context) as (broker, front):
        with pytest.raises(TlsError) as caught:
            connect(front.address, tls_options(files, front.address, **tls))
        assert not broker.requests
        assert "PULSAR_TLS" in str(caught.value)
        assert not caught.value.retriable
        return caught.value


def shown(pair: Pair) -> dict[str, str]:
    """Options that show a certificate."""
    return {"certificate_path": str(pair.certificate), "key_path": str(pair.key)}


class TestTrust:
    def test_a_broker_that_is_who_it_says(self, files: Files) -> None:
        """The handshake of Pulsar goes on in TLS, of 1.3 where both have it."""
        with served(server_context(files.server)) as (broker, front):
            with connect(front.address, tls_options(files, front.address)) as one:
                assert one.server_version == "Scripted 1.0"
            wait_until(lambda: not broker.sessions, "the end of the connection")
            assert not front.failures
            assert front.names == [None]  # an address is no name

    def test_a_name_is_told_to_the_server(self, files: Files) -> None:
        """One address may serve many names."""
        with served(server_context(files.server)) as (_, front):
            address = f"localhost:{front.port}"
            connect(address, tls_options(files, address)).close()
            assert front.names == ["localhost"]

    def test_another_name(self, files: Files) -> None:
        """A certificate of the right authority is not enough."""
        other = files.authority.issue("wrong", hosts=["broker.example"])
        error = refused(files, server_context(other))
        assert "is not for 127.0.0.1" in error.message

    def test_another_name_where_that_is_allowed(
        self, files: Files, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Each connection says so; the authority still counts."""
        other = files.authority.issue("wrong", hosts=["broker.example"])
        with served(server_context(other)) as (_, front):
            options = tls_options(files, front.address, verify_hostname=False)
            connect(front.address, options).close()
        assert "tlsHostnameVerificationEnable=false" in caplog.text
        stranger = server_context(files.stranger)
        assert "not trusted" in refused(files, stranger, verify_hostname=False).message

    def test_an_unknown_authority(self, files: Files) -> None:
        """The option is named that would make it known."""
        error = refused(files, server_context(files.stranger))
        assert "not trusted on" in error.message
        assert "tlsTrustCertsFilePath" in error.message

    def test_the_authorities_of_the_system_by_default(self, files: Files) -> None:
        """None of them knows ours."""
        context = server_context(files.server)
        error = refused(files, context, trust_certificates_path=None)
        assert "not trusted on" in error.message

    def test_a_certificate_that_is_trusted_itself(self, files: Files) -> None:
        """As in Java's trust stores: what is in there need be no authority."""
        with served(server_context(files.stranger)) as (_, front):
            trusted = str(files.stranger.certificate)
            options = tls_options(files, front.address, trust_certificates_path=trusted)
            connect(front.address, options).close()

    def test_an_expired_certificate(self, files: Files) -> None:
        """It is told apart from one that is not trusted."""
        late = files.authority.issue("late", ends=days(-1))
        assert "has expired" in refused(files, server_context(late)).message

    def test_a_certificate_of_tomorrow(self, files: Files) -> None:
        """Most often a clock is wrong."""
        soon = files.authority.issue("soon", begins=days(1))
        error = refused(files, server_context(soon))
        assert "is not valid yet" in error.message
        assert "clock" in error.message

    def test_anybody_is_trusted_only_when_asked_for(
        self, files: Files, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Whatever is wrong is let pass, with a warning for each connection."""
        late = files.other.issue("late", hosts=["else.where"], ends=days(-1))
        with served(server_context(late)) as (_, front):
            options = tls_options(files, front.address, allow_insecure=True)
            for _ in range(2):
                connect(front.address, options).close()
        lines = [r.message for r in caplog.records if r.levelname == "WARNING"]
        assert len(lines) == 2
        assert all("tlsAllowInsecureConnection" in line for line in lines)
        assert all(front.address in line for line in lines)


class TestPorts:
    def test_tls_where_none_is_expected(self, files: Files) -> None:
        """A broker takes the beginning of TLS for a huge frame, and hangs up."""
        with ScriptedBroker() as broker:
            with pytest.raises(TlsError, match="closed the connection when TLS began"):
                connect(broker.address, tls_options(files, broker.address))
            assert not broker.requests

    def test_a_broker_that_goes_down_is_tried_again(self, files: Files) -> None:
        """Where TLS has worked before, a connection that ends at once is no mistake."""
        with served(server_context(files.server)) as (_, front):
            options = tls_options(files, front.address)
            connect(front.address, options).close()
            front.close()
            with socket.create_server(("127.0.0.1", front.port)) as listener:
                thread = threading.Thread(target=hang_up, args=[listener])
                thread.start()
                with pytest.raises(TlsError) as caught:
                    connect(front.address, options)
                thread.join(60)
        assert caught.value.retriable

    def test_clear_text_where_tls_is_expected(self, files: Files) -> None:
        """The connection just ends; a look at it tells why."""
        with served(server_context(files.server)) as (broker, front):
            with pytest.raises(TlsError, match="wants TLS at this port") as caught:
                connect(front.address, client_options(front.address))
            assert "pulsar+ssl://" in caught.value.message
            assert not caught.value.retriable
            assert not broker.requests

    def test_a_server_that_answers_in_clear_text(self, files: Files) -> None:
        """Such as one for HTTP."""
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def answer() -> None:
                sock, _ = listener.accept()
                with sock:
                    sock.recv(100)
                    sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    sock.recv(100_000)

            thread = threading.Thread(target=answer)
            thread.start()
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            with pytest.raises(TlsError, match="what it sends is not TLS"):
                connect(address, tls_options(files, address))
            thread.join(60)

    def test_a_server_that_says_nothing(self, files: Files) -> None:
        """It may be busy, and so is tried again."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            options = tls_options(files, address)
            with pytest.raises(TransportError, match="did not finish") as caught:
                connect(address, replace(options, connection_timeout_s=0.1))
        assert caught.value.retriable

    def test_several_hosts(self, files: Files) -> None:
        """The next one is asked; where none is safe, nothing is tried again."""
        with (
            served(server_context(files.stranger)) as (_, bad),
            served(server_context(files.server)) as (_, good),
        ):
            options = tls_options(files, bad.address, good.address)
            with ConnectionPool(options) as pool:
                assert pool.service().broker == good.address
            options = tls_options(files, bad.address, f"localhost:{bad.port}")
            with ConnectionPool(options) as pool, pytest.raises(TlsError) as caught:
                pool.service()
            assert not caught.value.retriable
            assert caught.value.message.count("not trusted") == 2


def hang_up(listener: socket.socket) -> None:
    """Accept a connection, and end it without a word."""
    sock, _ = listener.accept()
    with sock:
        sock.recv(10_000)


class TestClientCertificates:
    def test_one_is_shown(self, files: Files) -> None:
        """In PEM."""
        context = server_context(files.server, clients=files.authority)
        with served(context) as (_, front):
            options = tls_options(files, front.address, **shown(files.client))
            connect(front.address, options).close()

    def test_certificate_and_key_in_one_file(self, files: Files) -> None:
        """Then no key is named."""
        both = str(files.client.combined())
        context = server_context(files.server, clients=files.authority)
        with served(context) as (_, front):
            options = tls_options(files, front.address, certificate_path=both)
            connect(front.address, options).close()

    @pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
    def test_none_where_one_is_wanted(self, files: Files, version: str) -> None:
        """TLS 1.3 says so only when the client believes that all is well."""
        context = server_context(files.server, clients=files.authority)
        context.maximum_version = ssl.TLSVersion[version]
        error = refused(files, context)
        assert "wants a client certificate" in error.message
        assert "tlsCertificateFilePath" in error.message

    @pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
    def test_one_that_is_not_wanted(self, files: Files, version: str) -> None:
        """The broker has another authority for clients."""
        context = server_context(files.server, clients=files.authority)
        context.maximum_version = ssl.TLSVersion[version]
        error = refused(files, context, **shown(files.stranger))
        assert "does not accept our client certificate" in error.message

    def test_one_that_has_expired(self, files: Files) -> None:
        """The broker is the one who notices."""
        late = files.authority.issue("late-client", hosts=(), ends=days(-1))
        context = server_context(files.server, clients=files.authority)
        error = refused(files, context, **shown(late))
        assert "certificate expired" in error.message


class TestAgreement:
    def test_no_version_in_common(self, files: Files) -> None:
        """Both sides may be the one to refuse."""
        context = server_context(files.server)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        error = refused(files, context, protocols=("TLSv1.3",))
        assert "no version of TLS that is allowed here, which are TLSv1.3" in str(error)

    def test_nothing_before_1_2(self, files: Files) -> None:
        """A server that has only older versions is refused."""
        assert module.context(TlsOptions()).minimum_version == ssl.TLSVersion.TLSv1_2

    def test_no_cipher_in_common(self, files: Files) -> None:
        """Names are Java's or OpenSSL's."""
        context = server_context(files.server)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256")
        wanted = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
        error = refused(files, context, ciphers=(wanted,))
        assert f"no cipher suite that is allowed here, which are {wanted}" in str(error)

    def test_a_cipher_of_1_3_that_is_not_allowed(self, files: Files) -> None:
        """Python cannot offer a choice of them, so the connection is given up."""
        error = refused(
            files,
            server_context(files.server),
            ciphers=("TLS_CHACHA20_POLY1305_SHA256",),
        )
        assert "it chose the cipher suite TLS_AES_256_GCM_SHA384" in error.message

    @pytest.mark.parametrize(
        ("java", "openssl"),
        [
            ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
            (
                "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
                "ECDHE-ECDSA-AES256-GCM-SHA384",
            ),
            (
                "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
                "ECDHE-RSA-CHACHA20-POLY1305",
            ),
            ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
            ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
            ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
            ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ],
    )
    def test_names_of_java(self, java: str, openssl: str) -> None:
        """Each is the suite of the same name, which may be OpenSSL's own."""
        made = module.context(TlsOptions(ciphers=(java,)))
        names = [c["name"] for c in made.get_ciphers() if c["protocol"] != "TLSv1.3"]
        assert names == [openssl]
        assert made.maximum_version == ssl.TLSVersion.TLSv1_2

    def test_names_of_nothing(self, files: Files) -> None:
        """A misspelt name must not leave the default."""
        with pytest.raises(TlsError, match=r"tlsCiphers has no suite.*NULL_SHA"):
            module.context(TlsOptions(ciphers=("TLS_NULL_SHA",)))


class TestFiles:
    """Each node has files of its own: the error names it, and them."""

    @pytest.mark.parametrize(
        ("field", "option"),
        [
            ("trust_certificates_path", "tlsTrustCertsFilePath"),
            ("certificate_path", "tlsCertificateFilePath"),
        ],
    )
    def test_a_file_that_is_missing(self, field: str, option: str) -> None:
        """Nothing is connected to."""
        with pytest.raises(TlsError) as caught:
            module.context(TlsOptions(**{field: "/not/there.pem"}))  # type: ignore[arg-type]
        for part in (option, "/not/there.pem", os.uname().nodename, "No such file"):
            assert part in caught.value.message

    @pytest.mark.parametrize(
        "field", ["trust_certificates_path", "certificate_path", "key_store_path"]
    )
    def test_a_pipe(self, tmp_path: Path, field: str) -> None:
        """Nobody waits for what somebody may write into it."""
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        with pytest.raises(TlsError, match="it is not a regular file"):
            module.context(TlsOptions(**{field: str(pipe)}))  # type: ignore[arg-type]

    def test_a_key_of_another_certificate(self, files: Files) -> None:
        """Both files are named."""
        options = TlsOptions(
            certificate_path=str(files.client.certificate),
            key_path=str(files.stranger.key),
        )
        with pytest.raises(TlsError, match="does not belong to the certificate") as e:
            module.context(options)
        assert str(files.stranger.key) in e.value.message

    def test_a_key_under_a_password(self, files: Files) -> None:
        """OpenSSL would ask the terminal for it, and wait."""
        options = TlsOptions(
            certificate_path=str(files.client.certificate),
            key_path=str(files.encrypted_key),
        )
        with pytest.raises(TlsError, match="the key has a password") as caught:
            module.context(options)
        assert "openssl pkey" in caught.value.message

    @pytest.mark.parametrize(
        ("field", "what"),
        [
            ("trust_certificates_path", "no certificate in PEM"),
            ("certificate_path", "no certificate in PEM"),
            ("key_path", "no private key in PEM"),
        ],
    )
    def test_a_file_of_another_kind(self, files: Files, field: str, what: str) -> None:
        """A store is not PEM, and the error says what to set for one."""
        given = {**shown(files.client), field: str(files.key_store)}
        with pytest.raises(TlsError, match=what) as caught:
            module.context(TlsOptions(**given))  # type: ignore[arg-type]
        assert "useKeyStoreTls" in caught.value.message

    def test_a_damaged_certificate(self, files: Files, tmp_path: Path) -> None:
        """It looks like one at first."""
        damaged = tmp_path / "damaged.pem"
        begin, end = (f"-----{word} CERTIFICATE-----\n" for word in ("BEGIN", "END"))
        damaged.write_text(f"{begin}bm90aGluZw==\n{end}")
        settle(tmp_path)
        for field in ("trust_certificates_path", "certificate_path"):
            given = {"key_path": str(files.client.key), field: str(damaged)}
            with pytest.raises(TlsError, match="of no use on"):
                module.context(TlsOptions(**given))  # type: ignore[arg-type]

    def test_a_damaged_key(self, files: Files, tmp_path: Path) -> None:
        """It is the key that is named, not the certificate."""
        damaged = tmp_path / "damaged.pem"
        damaged.write_bytes(files.client.key.read_bytes()[:900])
        settle(tmp_path)
        options = TlsOptions(
            certificate_path=str(files.client.certificate), key_path=str(damaged)
        )
        named = f"tlsKeyFilePath names {damaged}, which is of no use"
        with pytest.raises(TlsError, match=named):
            module.context(options)

    def test_a_file_that_is_half_renewed(
        self, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A certificate is there a moment before its key: that is waited for.

        Also where both were made long ago, and only moved to their places now.
        """
        certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
        certificate.write_bytes(files.client.certificate.read_bytes())
        key.write_bytes(files.stranger.key.read_bytes())
        new = _copy(files.client.key, tmp_path / "new")
        settle(tmp_path)

        clock = FileClock(then=lambda: os.replace(new, key))
        monkeypatch.setattr(settling, "time", clock)
        options = TlsOptions(certificate_path=str(certificate), key_path=str(key))
        assert module.context(options)
        assert clock.pauses

    def test_comments(self, files: Files, tmp_path: Path) -> None:
        """A bundle of authorities may name them in any language."""
        bundle = tmp_path / "bundle.pem"
        pem = files.authority.certificate.read_bytes()
        bundle.write_bytes("# Főtanúsítvány\n".encode() + pem)
        made = module.context(TlsOptions(trust_certificates_path=str(bundle)))
        assert len(made.get_ca_certs()) == 1

    def test_files_are_read_when_they_change(
        self, files: Files, tmp_path: Path
    ) -> None:
        """And not for each connection."""
        trusted = _copy(files.authority.certificate, tmp_path / "ca.pem")
        options = TlsOptions(trust_certificates_path=str(trusted))
        first = module.context(options)
        assert module.context(options) is first
        os.replace(_copy(files.other.certificate, tmp_path / "new"), trusted)
        second = module.context(options)
        assert second is not first
        assert second.get_ca_certs() != first.get_ca_certs()


def _copy(source: Path, target: Path) -> Path:
    target.write_bytes(source.read_bytes())
    return target


class TestStores:
    def stores(self, files: Files, **changes: Any) -> dict[str, Any]:
        """Options of stores that fit."""
        return {
            "use_key_stores": True,
            "trust_store_path": str(files.trust_store),
            "trust_store_password": Secret("trust-secret"),
            "key_store_path": str(files.key_store),
            "key_store_password": Secret("key-secret"),
            **changes,
        }

    def test_both_stores(self, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
        """One says whom to trust, the other one who we are; passwords may be far."""
        monkeypatch.setenv("KEY_PASSWORD", "key-secret")
        context = server_context(files.server, clients=files.authority)
        with served(context) as (_, front):
            given = self.stores(files, key_store_password=Secret("env:KEY_PASSWORD"))
            connect(front.address, tls_options(files, front.address, **given)).close()

    @pytest.mark.parametrize("which", ["trust", "key"])
    def test_a_password_is_read_when_its_file_changes(
        self, files: Files, tmp_path: Path, which: str
    ) -> None:
        """It is renewed together with its store, or a moment later."""
        password = tmp_path / "password"
        password.write_text(f"{which}-secret")
        given = {f"{which}_store_password": Secret(f"file:{password}")}
        options = TlsOptions(**self.stores(files, **given))
        first = module.context(options)
        assert module.context(options) is first
        os.replace(_copy(password, tmp_path / "new"), password)
        assert module.context(options) is not first

    def test_no_key_is_left_on_the_disk(
        self, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Python takes keys from files only: what is written is gone, and no use."""
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        seen: list[bytes] = []
        unlink = os.unlink

        def look(path: str) -> None:
            seen.append(Path(path).read_bytes())
            assert Path(path).stat().st_mode & 0o077 == 0
            unlink(path)

        monkeypatch.setattr("spark_topics.client.key_stores.os.unlink", look)
        assert module._new_context(TlsOptions(**self.stores(files)))
        assert not list(tmp_path.iterdir())
        assert b"BEGIN ENCRYPTED PRIVATE KEY" in seen[0]

    @pytest.mark.parametrize("store", ["trust", "key"])
    def test_a_wrong_password(self, files: Files, store: str) -> None:
        """The option is named, the password is not."""
        wrong = {f"{store}_store_password": Secret("swordfish")}
        with pytest.raises(TlsError) as caught:
            module.context(TlsOptions(**self.stores(files, **wrong)))
        option = f"tls{store.title()}StorePassword"
        assert f"the password in pulsar.client.{option} is not its own" in str(
            caught.value
        )
        assert "swordfish" not in f"{caught.value!r} {caught.value.__cause__!r}"

    def test_no_password_where_there_is_one(self, files: Files) -> None:
        """The option that is missing is named."""
        given = self.stores(files, trust_store_password=None)
        with pytest.raises(
            TlsError, match=r"set pulsar\.client\.tlsTrustStorePassword"
        ):
            module.context(TlsOptions(**given))

    def test_a_password_that_is_not_there(self, files: Files) -> None:
        """A file or a variable may be missing on a node."""
        given = self.stores(files, key_store_password=Secret("env:NOT_SET_ANYWHERE"))
        with pytest.raises(OptionError, match="NOT_SET_ANYWHERE"):
            module.context(TlsOptions(**given))

    def test_a_store_of_java(self, files: Files, tmp_path: Path) -> None:
        """The command is there that makes one for everybody."""
        store = tmp_path / "store.jks"
        store.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
        settle(tmp_path)
        given = self.stores(files, trust_store_path=str(store))
        with pytest.raises(TlsError, match="keytool -importkeystore") as caught:
            module.context(TlsOptions(**given))
        assert str(store) in caught.value.message

    def test_stores_without_what_they_are_for(self, files: Files) -> None:
        """Others lack the key, or certificates to trust; PEM is no store."""
        given = self.stores(
            files,
            key_store_path=str(files.trust_store),
            key_store_password=Secret("trust-secret"),
        )
        with pytest.raises(TlsError, match="no private key with its certificate"):
            module.context(TlsOptions(**given))
        given = self.stores(files, trust_store_path=str(files.bare_key_store))
        with pytest.raises(TlsError, match="it has no certificate to trust"):
            module.context(TlsOptions(**given))
        given = self.stores(files, trust_store_path=str(files.authority.certificate))
        with pytest.raises(TlsError, match="it is no PKCS12 store"):
            module.context(TlsOptions(**given))

    def test_without_the_package(
        self, files: Files, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Who needs no store need not install it."""
        monkeypatch.setitem(
            __import__("sys").modules,
            "cryptography.hazmat.primitives.serialization.pkcs12",
            None,
        )
        monkeypatch.setitem(__import__("sys").modules, "cryptography.exceptions", None)
        with pytest.raises(OptionError, match=r"pip install cryptography"):
            module._new_context(TlsOptions(**self.stores(files)))
        assert module._new_context(TlsOptions(**shown(files.client)))  # type: ignore[arg-type]


class TestLookups:
    """Whom a broker names is spoken to by TLS, or not at all."""

    def answer(
        self, files: Files, **response: Any
    ) -> tuple[BrokerAddress | PulsarSparkError, ScriptedBroker]:
        """What a lookup gives when a broker answers so."""
        with served(server_context(files.server)) as (broker, front):
            response.setdefault("response", CONNECT)
            broker.always("LOOKUP", look_up(**response))
            options = tls_options(files, front.address, verify_hostname=True)
            with ConnectionPool(options) as pool:
                return TopicLookup(pool).brokers([TOPIC])[TOPIC], broker

    def test_the_address_for_tls_is_used(self, files: Files) -> None:
        """Whatever the other one is."""
        found, _ = self.answer(
            files,
            brokerServiceUrl="pulsar://plain:6650",
            brokerServiceUrlTls="pulsar+ssl://safe:6651",
        )
        assert found == BrokerAddress("safe:6651")

    @pytest.mark.parametrize(
        "answer",
        [
            {"brokerServiceUrl": "pulsar://plain:6650"},
            {"brokerServiceUrlTls": "pulsar://plain:6650"},
            {"brokerServiceUrl": "pulsar://plain:6650", "response": REDIRECT},
        ],
    )
    def test_a_broker_without_tls(self, files: Files, answer: dict[str, Any]) -> None:
        """It is an error that says what to set, never clear text."""
        found, _ = self.answer(files, **answer)
        assert isinstance(found, TlsError)
        assert not found.retriable
        assert "no address for TLS" in found.message
        assert "brokerServicePortTls" in found.message

    def test_a_broker_with_tls_only(self) -> None:
        """And the reverse: TLS is never begun by what a broker says."""
        with ScriptedBroker() as broker:
            url = "pulsar+ssl://safe:6651"
            broker.always("LOOKUP", look_up(response=CONNECT, brokerServiceUrlTls=url))
            with ConnectionPool(client_options(broker.address)) as pool:
                found = TopicLookup(pool).brokers([TOPIC])[TOPIC]
        assert isinstance(found, TlsError)
        assert "pulsar+ssl://" in found.message

    def test_a_proxy_that_speaks_clear_text_to_brokers(self, files: Files) -> None:
        """What is behind it is its own matter: to it we speak TLS."""
        with served(server_context(files.server)) as (broker, front):
            behind = "pulsar://behind:6650"
            broker.always(
                "LOOKUP",
                look_up(
                    response=CONNECT,
                    brokerServiceUrl=behind,
                    brokerServiceUrlTls=behind,
                    proxy_through_service_url=True,
                ),
            )
            with ConnectionPool(tls_options(files, front.address)) as pool:
                found = TopicLookup(pool).brokers([TOPIC])[TOPIC]
                assert found == BrokerAddress(front.address, "behind:6650")
                pool.get(found)
            assert broker.bodies["CONNECT"][1].proxy_to_broker_url == "behind:6650"
            assert not front.failures

    def test_credentials_go_to_nobody_else(self, files: Files) -> None:
        """A host that a broker names has to prove that it is that host, first."""
        impostor = files.authority.issue("impostor", hosts=["another.host"])

        class Credentials:
            method = "token"

            def data(self) -> bytes:
                return b"a secret"

            def answer(self, challenge: bytes) -> bytes:
                raise AssertionError

        with (
            served(server_context(files.server)) as (broker, front),
            served(server_context(impostor)) as (other, trap),
        ):
            broker.always(
                "LOOKUP",
                look_up(response=REDIRECT, brokerServiceUrlTls=trap.url),
            )
            options = tls_options(files, front.address)
            with ConnectionPool(options, Credentials()) as pool:
                found = TopicLookup(pool).brokers([TOPIC])[TOPIC]
            assert isinstance(found, TlsError)
            assert "is not for 127.0.0.1" in found.message
            assert trap.accepted == 1
            assert not other.requests  # it is not who it says
        assert broker.bodies["CONNECT"][0].auth_data == b"a secret"


class TestSniProxy:
    def test_all_goes_through_it(self, files: Files) -> None:
        """It is told by TLS whom the connection is for, and shows that one's name."""
        behind = files.authority.issue("behind", hosts=["broker-1", "broker-2"])
        with served(server_context(behind)) as (broker, proxy):
            broker.always(
                "LOOKUP",
                look_up(
                    response=CONNECT, brokerServiceUrlTls="pulsar+ssl://broker-2:6651"
                ),
            )
            options = tls_options(files, "broker-1:6651", proxy=proxy.address)
            with ConnectionPool(options) as pool:
                found = TopicLookup(pool).brokers([TOPIC])[TOPIC]
                assert found == BrokerAddress("broker-2:6651")
                pool.get(found)
            assert proxy.names == ["broker-1", "broker-2"]
            assert not broker.bodies["CONNECT"][1].HasField("proxy_to_broker_url")

    def test_a_name_that_ends_in_a_dot(self, files: Files) -> None:
        """No certificate has the dot, and no server is told it."""
        behind = files.authority.issue("behind", hosts=["broker-1.test"])
        with served(server_context(behind)) as (_, proxy):
            options = tls_options(files, "broker-1.test.:6651", proxy=proxy.address)
            connect("broker-1.test.:6651", options).close()
            assert proxy.names == ["broker-1.test"]

    def test_the_certificate_is_the_brokers(self, files: Files) -> None:
        """One that is for the proxy is not for the broker."""
        with served(server_context(files.server)) as (_, proxy):
            options = tls_options(files, "broker-1:6651", proxy=proxy.address)
            with pytest.raises(TlsError, match="is not for broker-1"):
                connect("broker-1:6651", options)

    @pytest.mark.parametrize("broker", ["10.0.0.1:6651", "[::1]:6651"])
    def test_a_broker_without_a_name(self, files: Files, broker: str) -> None:
        """No proxy would know which one is meant."""
        options = tls_options(files, broker, proxy="127.0.0.1:1")
        with pytest.raises(TlsError, match="let brokers advertise names"):
            connect(broker, options)

    def test_a_proxy_that_is_not_there(self, files: Files) -> None:
        """Both addresses are named."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = "{}:{}".format(*listener.getsockname())
        options = tls_options(files, "broker-1:6651", proxy=address)
        with pytest.raises(TransportError) as caught:
            connect("broker-1:6651", options)
        assert f"broker-1:6651 cannot be reached through the proxy {address}" in str(
            caught.value
        )
