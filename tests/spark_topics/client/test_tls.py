# SPDX-License-Identifier: Apache-2.0
"""What failures of a handshake mean, as OpenSSL tells them; all of it in memory."""

from __future__ import annotations

import contextlib
import gc
import ssl
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from spark_topics.client import tls as module
from spark_topics.client import tls_context
from spark_topics.client.tls import Tls
from tests.spark_topics.network import TlsOptions
from tests.spark_topics.numbers import TlsError
from tests.support.certificates import Authority, Pair
from tests.support.tls_front import server_context

#: As ``openssl dhparam -dsaparam 1024`` makes them, which OpenSSL finds too small.
SMALL_PRIME = """\
-----BEGIN X9.42 DH PARAMETERS-----
MIIBJwKBgQCrfOUYEY0EieimS0psNLO6mwhTAizK70n6lfRnr4Gdop+eaxlHURSw
ngPGVHjleMw2RIxznCi1QkRQSPdHt9ASAXy6wY0bQTKlR+RcMQv29cICNEBw2qKp
Ff7ma84JwFr47FX/5JcHA9kMGtSshybnnyeidsDyd3eGr5Ybvz2awwKBgQCUvIQL
M+dwIbZ+WmyplaynkafnQGKAbWk665aZnf+y954cv2zipb4brIYEgIU1vlFW7sIR
Ak9Jxi47xt+FnZDQ65TuGWaa+4JIm/oacmtD+ynOems7NhwqFWlfb7l9Y5l7LnrS
JpS9WP/RXQtX28xstGCeZpC8CwmWfNFGj3s3CgIdALqwMcqTeKTozVNwosV5LjPK
Izwqc76jvp3wC9s=
-----END X9.42 DH PARAMETERS-----
"""

#: The extension by which a server says that it renegotiates safely, and no other.
SAFE_RENEGOTIATION = b"\x00\x05\xff\x01\x00\x01\x00"


@pytest.fixture
def trusting(authority: Authority) -> TlsOptions:
    """Options that do."""
    return TlsOptions(trust_certificates_path=str(authority.certificate))


@pytest.fixture
def showing(authority: Authority, trusting: TlsOptions) -> TlsOptions:
    """And that show a certificate."""
    pair = authority.issue("orders", hosts=())
    shown = {"certificate_path": str(pair.certificate), "key_path": str(pair.key)}
    return replace(trusting, **shown)


class Client:
    """A client's end of a handshake."""

    def __init__(self, options: TlsOptions) -> None:
        self.tls = Tls(options, "localhost")
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._end = tls_context.context(options).wrap_bio(
            self._incoming, self._outgoing, server_hostname="localhost"
        )

    def answer(self, data: bytes) -> bytes:
        """Go on with what a server says; return what there is to say to it."""
        self._incoming.write(data)
        go_on(self._end)
        return self._outgoing.read()


def refusal(options: TlsOptions, answer: bytes) -> str:
    """What it means that a server answers the first message by this."""
    client = Client(options)
    assert client.answer(b"")[:2] == b"\x16\x03"
    with pytest.raises(ssl.SSLError) as caught:
        client.answer(answer)
    return said(caught.value, client)


def meeting(options: TlsOptions, server: ssl.SSLContext) -> str:
    """What it means that such a server is not the one that was expected."""
    client = Client(options)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    end = server.wrap_bio(incoming, outgoing, server_side=True)
    incoming.write(client.answer(b""))
    go_on(end)
    with pytest.raises(ssl.SSLError) as caught:
        client.answer(outgoing.read())
    return said(caught.value, client)


def go_on(end: ssl.SSLObject) -> None:
    """Take an end's next step, as far as it can go without the other's."""
    with contextlib.suppress(ssl.SSLWantReadError):
        end.do_handshake()


def said(error: ssl.SSLError, client: Client) -> str:
    """The message of an error, which is final, and one of TLS."""
    found = module.failure(error, "broker:6651", client.tls)
    assert isinstance(found, TlsError)
    assert not found.retriable
    return found.message


def alert(code: int) -> bytes:
    """A fatal one, in the clear: as a server ends a handshake that it cannot go on."""
    return b"\x15\x03\x03\x00\x02\x02" + bytes([code])


def hello(cipher: int) -> bytes:
    """A server's answer that chooses TLS 1.2 and a suite."""
    chosen = b"\x03\x03" + bytes(33) + cipher.to_bytes(2, "big") + b"\x00"
    body = chosen + SAFE_RENEGOTIATION
    message = b"\x02" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x03" + len(message).to_bytes(2, "big") + message


WANTED = "a client certificate (%s): set `tls.certificate` and"
NO_CIPHER = "it has no cipher suite that is allowed here (`tls.ciphers`)"


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (40, f"perhaps it wants {WANTED % 'handshake failure'}"),
        (42, f"it wants {WANTED % 'bad certificate'}"),
        (48, "it does not accept our client certificate (unknown ca). It has to be"),
        (70, "it has no version of TLS that is allowed here, which are TLSv1.2 and"),
        (71, NO_CIPHER),
        (80, "it ended the handshake (internal error)."),
        (112, "it knows no host localhost."),
        (116, f"it wants {WANTED % 'certificate required'}"),
    ],
)
def test_alerts(trusting: TlsOptions, code: int, meaning: str) -> None:
    """Each says what to change, or what the server said."""
    beginning = f"No TLS with the broker broker:6651: {meaning}"
    assert refusal(trusting, alert(code))[: len(beginning)] == beginning


def test_an_alert_without_a_name(trusting: TlsOptions) -> None:
    """Python knows none for some: what is said is not where in Python they came."""
    found = refusal(trusting, alert(120))
    assert "no application protocol" in found
    assert ".c:" not in found
    assert "[" not in found


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (40, f"{NO_CIPHER}, or it does not take our certificate."),
        (42, "it does not accept our client certificate (bad certificate). It has to"),
        (116, "it wants another client certificate than ours (certificate required)."),
    ],
)
def test_alerts_to_who_shows_a_certificate(
    showing: TlsOptions, code: int, meaning: str
) -> None:
    """The same mean something else then."""
    beginning = f"No TLS with the broker broker:6651: {meaning}"
    assert refusal(showing, alert(code))[: len(beginning)] == beginning


def test_a_version_that_was_not_offered(trusting: TlsOptions) -> None:
    """A server that knows no newer one answers by its own."""
    only_newest = replace(trusting, protocols=("TLSv1.3",))
    found = refusal(only_newest, hello(0xC02F))
    assert "no version of TLS that is allowed here, which are TLSv1.3 (" in found


def test_a_cipher_that_was_not_offered(trusting: TlsOptions) -> None:
    """The suites that may be used are named where the user chose them."""
    one = replace(trusting, ciphers=("ECDHE-RSA-AES256-GCM-SHA384",))
    found = refusal(one, hello(0xC02F))
    assert "allowed here, which are ECDHE-RSA-AES256-GCM-SHA384 (" in found


def test_an_answer_of_no_sense(trusting: TlsOptions) -> None:
    """OpenSSL's own words are in it, without its file and line."""
    found = refusal(trusting, hello(0x0005))
    assert found == "No TLS with the broker broker:6651: unknown cipher returned."


def test_a_certificate_that_is_too_weak(
    trusting: TlsOptions, authority: Authority
) -> None:
    """Whatever the server is content with."""
    found = meeting(trusting, lenient(authority.issue("weak", key_bits=1024)))
    assert found.startswith(
        "The broker broker:6651 shows a certificate that is too weak for OpenSSL "
    )
    assert found.endswith(
        "(EE certificate key too weak). Renew it with an RSA key of 2048 bits or more, "
        "signed by SHA-256."
    )


def test_a_certificate_for_something_else(
    trusting: TlsOptions, authority: Authority
) -> None:
    """What OpenSSL has against it is said."""
    mail = authority.issue("mail", usages=[ExtendedKeyUsageOID.EMAIL_PROTECTION])
    assert meeting(trusting, server_context(mail)) == (
        "The certificate of the broker broker:6651 is refused: unsuitable certificate "
        "purpose."
    )


def test_a_key_exchange_that_is_too_weak(
    trusting: TlsOptions, authority: Authority, tmp_path: Path
) -> None:
    """It is not the certificate's fault."""
    server = lenient(authority.issue("server"))
    (tmp_path / "prime.pem").write_text(SMALL_PRIME)
    server.load_dh_params(str(tmp_path / "prime.pem"))
    server.maximum_version = ssl.TLSVersion.TLSv1_2
    server.set_ciphers("DHE-RSA-AES128-GCM-SHA256:@SECLEVEL=0")
    found = meeting(trusting, server)
    assert "the prime of its key exchange is too short for OpenSSL " in found
    assert found.endswith(
        "Let it have one of 2048 bits or more, or suites that begin with ECDHE."
    )


def lenient(pair: Pair) -> ssl.SSLContext:
    """A server that takes what is too weak."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.set_ciphers("DEFAULT:@SECLEVEL=0")
    made.load_cert_chain(pair.certificate, pair.key)
    return made


def test_a_file_of_something_else(tmp_path: Path) -> None:
    """Key stores are spoken of where it is one."""
    path = tmp_path / "ca.pem"
    for data, hint in [(b"to be done", False), (b"\x30\x82\x04\x00", True)]:
        path.write_bytes(data)
        with pytest.raises(TlsError, match="it has no certificate in PEM") as caught:
            tls_context.context(TlsOptions(trust_certificates_path=str(path)))
        assert ("For key stores set" in caught.value.message) == hint


def test_so_many_are_kept() -> None:
    """Options come again, mostly; those of many queries do not fill the memory."""
    suite = "ECDHE-RSA-AES128-GCM-SHA256"
    options = [
        TlsOptions(allow_insecure=True, ciphers=(suite,) * count)
        for count in range(1, 80)
    ]
    kept = []
    for one in options:
        made = tls_context.context(one)
        assert tls_context.context(one) is made
        kept.append(weakref.ref(made))
    del made
    gc.collect()
    alive = [context for context in kept if context() is not None]
    assert len(alive) <= 32
    assert kept[-1] in alive
