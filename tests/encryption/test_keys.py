# SPDX-License-Identifier: Apache-2.0
"""Data keys under keys of RSA and EC, and payloads under data keys."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import itertools
import os
import sys
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, padding, rsa
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from pulsar_spark.encryption.keys import (
    DataKey,
    PublicKey,
    UnwrapError,
    private_key,
    public_keys,
)
from pulsar_spark.errors import OptionError
from pulsar_spark.options.secret import Secret
from spark_topics.client import settling
from tests.support.fixtures import FileClock
from tests.support.fixtures import files_rest as files_rest
from tests.support.key_pairs import KeyPair, ec_pair, rsa_pair

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DATA_KEY = bytes(range(32))

#: What BouncyCastle 1.78 made of DATA_KEY, by the cipher ECIES as Pulsar's client in
#: Java asks for it (MessageCryptoBc): a key of secp256r1 as PKCS #8, and the result.
JAVA_KEY = (
    "MIGTAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBHkwdwIBAQQgRBuXVSDtp/E/rL6eFRpR/CdSotrCTrOx"
    "wQO3PI4wgaygCgYIKoZIzj0DAQehRANCAAQJKW78s5fCcFf+leA1TriOmb0WhUhewXwL/6BpNxWqr9qU"
    "x2tMwuSf3J/s1WTUsbKqJ5+AssQYvgJUNzfj8WXK"
)
JAVA_WRAPPED = (
    "BAxlCLEa+MS7G3kW2MoXLQACZUC8n8aSM+iuLp/e9Wli75m6sgpblNIoMD7/WcKZENldQPYhWyMEOiBN"
    "czS08yIV9RytUwwuCILrPwdLIlUHyWx2qpEwsessTWD9w9aIiXB6ygyeedDEfg+gqwzsBA0oMLdy"
)

PAIRS = [
    pytest.param(rsa_pair(), id="rsa"),
    pytest.param(ec_pair("secp256r1"), id="secp256r1"),
    pytest.param(ec_pair("secp384r1"), id="secp384r1"),
    pytest.param(ec_pair("secp521r1"), id="secp521r1"),
]


def public_key(place: str) -> PublicKey:
    """The key that is there."""
    return public_keys({"k": Secret(place)})["k"]


def wrapped(pair: KeyPair, data_key: bytes = DATA_KEY) -> bytes:
    """The data key for who has the pair."""
    return public_key(pair.public).wrap(data_key)


def unwrapped(pair: KeyPair, data: bytes) -> bytes:
    """The data key that the pair opens."""
    return private_key(Secret(pair.private), "k").unwrap(data)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("size", [16, 32])
def test_round_trip(pair: KeyPair, size: int) -> None:
    """What the public key closes the private one opens; never alike twice."""
    data_key = os.urandom(size)
    closed = wrapped(pair, data_key)
    assert unwrapped(pair, closed) == data_key
    assert wrapped(pair, data_key) != closed


@pytest.mark.parametrize("pair", PAIRS)
def test_damage_is_found(pair: KeyPair) -> None:
    """Whatever bit it is, and whatever is missing: it is the one error."""
    closed = wrapped(pair)
    key = private_key(Secret(pair.private), "k")
    for place in range(0, len(closed), 7):
        damaged = bytearray(closed)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(UnwrapError):
            key.unwrap(bytes(damaged))
    for data in (
        b"",
        b"\x04",
        closed[:-1],
        closed[1:],
        closed * 2,
        bytes(65),
        b"\2" * 53,
    ):
        with pytest.raises(UnwrapError):
            key.unwrap(data)


def test_rsa_is_that_of_all_clients() -> None:
    """OAEP with SHA-1, and MGF1 of SHA-1."""
    sha1 = hashes.SHA1()
    oaep = padding.OAEP(padding.MGF1(sha1), sha1, None)
    key = serialization.load_pem_private_key(rsa_pair().private.encode(), None)
    assert key.decrypt(wrapped(rsa_pair()), oaep) == DATA_KEY  # type: ignore[union-attr, call-arg]


def test_ecies_is_that_of_java() -> None:
    """What BouncyCastle closed is opened."""
    pem = f"-----BEGIN PRIVATE KEY-----\n{JAVA_KEY}\n-----END PRIVATE KEY-----\n"
    key = private_key(Secret(pem), "k")
    assert key.unwrap(base64.b64decode(JAVA_WRAPPED)) == DATA_KEY


# -- where keys come from --------------------------------------------------------------


def forms(pair: KeyPair) -> dict[str, str]:
    """A private key in all texts that clients take."""
    key = serialization.load_pem_private_key(pair.private.encode(), None)
    old = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    ).decode()
    encoded = base64.b64encode(old.encode()).decode()
    return {
        "PKCS #8": pair.private,
        "PKCS #1": old,
        "behind others": "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n"
        f"-----END EC PARAMETERS-----\n{old}",
        "data URI in base64": f"data:application/x-pem-file;base64,{encoded}",
        "data URI": f"data:application/x-pem-file,{old}",
        "other lines": pair.private.replace("\n", "\r\n"),
    }


@pytest.mark.parametrize("form", forms(rsa_pair()))
@pytest.mark.parametrize("pair", [rsa_pair(), ec_pair()], ids=["rsa", "ec"])
def test_forms_of_private_keys(pair: KeyPair, form: str) -> None:
    """All of them are the same key."""
    key = private_key(Secret(forms(pair)[form]), "k")
    assert key.unwrap(wrapped(pair)) == DATA_KEY


def test_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file, and a variable."""
    saved = rsa_pair().save(tmp_path, "k")
    monkeypatch.setenv("THE_KEY", rsa_pair().private)
    closed = public_key(f"file:{saved.public}").wrap(DATA_KEY)
    for place in (f"file:{saved.private}", f"file://{saved.private}", "env:THE_KEY"):
        assert private_key(Secret(place), "k").unwrap(closed) == DATA_KEY


def certificate(pair: KeyPair) -> str:
    """A certificate of the public key, by the private one."""
    key = serialization.load_pem_private_key(pair.private.encode(), None)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "k")])
    now = dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())  # type: ignore[arg-type]
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(key, hashes.SHA256())  # type: ignore[arg-type]
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


def test_a_certificate_has_a_public_key() -> None:
    """Java's client takes one, too."""
    closed = public_key(certificate(rsa_pair())).wrap(DATA_KEY)
    assert unwrapped(rsa_pair(), closed) == DATA_KEY


def with_password() -> str:
    """A private key that has one."""
    key = serialization.load_pem_private_key(rsa_pair().private.encode(), None)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"hush"),
    ).decode()


def of_another_kind() -> str:
    """A private key that can only sign."""
    return (
        ed25519.Ed25519PrivateKey.generate()
        .private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        .decode()
    )


DAMAGED = rsa_pair().private.replace("MII", "M!I", 1)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("hush", "no key in PEM"),
        ("data:;base64,hush", "no key in PEM"),
        ("data:;base64,hus", "no key in PEM"),
        (rsa_pair().public, "it is the public key of a pair"),
        (DAMAGED, "it is damaged"),
        (with_password(), "has a password"),
        (of_another_kind(), "neither an RSA nor an EC key"),
    ],
)
def test_what_is_no_private_key(
    text: str, why: str, tmp_path: Path, files_rest: None
) -> None:
    """An error with the name, the file and the node, and nothing of what is in it."""
    file = tmp_path / "k.pem"
    file.write_text(text)
    for place in (Secret(text), Secret(f"file:{file}")):
        with pytest.raises(OptionError, match=why) as raised:
            private_key(place, "their-key")
        problem = str(raised.value)
        assert "'their-key'" in problem
        assert (str(file) in problem) == (place.path is not None)
        assert text[40:60] not in problem or not text[40:60]
        assert raised.value.__cause__ is None


def test_what_is_no_public_key() -> None:
    """A private one is none, nor one that no data key fits in."""
    small = rsa_numbers_of(512)
    for text, why in (
        (rsa_pair().private, "it is the private key of a pair"),
        (rsa_pair().public.replace("MII", "M!I", 1), "it is damaged"),
        (small, "512 bits are too few for RSA"),
    ):
        with pytest.raises(OptionError, match=rf"encryption\.publicKeys.*{why}"):
            public_key(text)


@pytest.mark.parametrize("form", [lambda pair: pair.public, certificate])
def test_half_of_one_public_key_and_half_of_another(
    form: Callable[[KeyPair], str],
) -> None:
    """A third key, which nobody has, is mostly told by a factor."""
    pems = [form(rsa_pair(number, 1024)) for number in range(6)]
    refused = 0
    for one, other in itertools.permutations(pems, 2):
        half = len(one) // 2
        with contextlib.suppress(OptionError):
            public_key(one[:half] + other[half:])
            continue
        refused += 1
    assert refused >= 10, "of 30, of which seven of eight should be"


def test_a_public_key_that_is_written_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not taken, for what is encrypted for half of a key nobody reads."""
    file = tmp_path / "k.pem"
    file.write_text(rsa_pair().public)

    class Writer(FileClock):
        """The file is written in each pause."""

        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            os.utime(file, (self.now, self.now))

    monkeypatch.setattr(settling, "time", Writer())
    with pytest.raises(OptionError, match=r"k\.pem.*written to all the time"):
        public_key(f"file:{file}")


def rsa_numbers_of(bits: int) -> str:
    """A public key as small as nobody makes any more: of any number."""
    numbers = rsa.RSAPublicNumbers(65537, (1 << bits) - 569)
    return (
        numbers.public_key()
        .public_bytes(
            serialization.Encoding.PEM,
            serialization.PublicFormat.SubjectPublicKeyInfo,
        )
        .decode()
    )


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is one sentence with what to install."""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(OptionError, match=r"pip install cryptography"):
        private_key(Secret(rsa_pair().private), "k")


# -- payloads --------------------------------------------------------------------------


def test_payloads() -> None:
    """Of any size, as any kind of bytes; what is changed is no payload."""
    key = DataKey(DATA_KEY)
    nonce = bytes(12)
    for payload in (b"", b"a", memoryview(bytes(100_000))):
        closed = key.encrypt(nonce, payload)
        assert len(closed) == len(payload) + 16
        assert key.decrypt(nonce, memoryview(closed)) == bytes(payload)
        assert key.decrypt(b"1" * 12, closed) is None
        assert key.decrypt(nonce, closed[:-1]) is None
        assert DataKey(bytes(32)).decrypt(nonce, closed) is None


@given(nonce=st.binary(max_size=40), payload=st.binary(max_size=80))
def test_any_payload(nonce: bytes, payload: bytes) -> None:
    """Whatever comes is no payload of ours, and nothing else happens."""
    assert DataKey(DATA_KEY).decrypt(nonce, payload) is None


@pytest.mark.parametrize("size", [0, 1, 15, 17, 31, 33, 64])
def test_sizes_of_data_keys(size: int) -> None:
    """Others than those of AES are refused."""
    with pytest.raises(UnwrapError):
        DataKey(bytes(size))


LOADED = [private_key(Secret(pair.private), "k") for pair in (rsa_pair(), ec_pair())]


@given(data=st.binary(max_size=300))
def test_any_wrapped_key(data: bytes) -> None:
    """Any bytes are the one error."""
    for key in LOADED:
        with pytest.raises(UnwrapError):
            key.unwrap(data)
