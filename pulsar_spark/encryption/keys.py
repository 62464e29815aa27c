# SPDX-License-Identifier: Apache-2.0
"""Keys in PEM that wrap data keys; AES-GCM with data keys.

The only module that knows the package cryptography, which is imported when a key is
loaded: most jobs encrypt nothing.

**RSA**: OAEP with SHA-1 and MGF1 of SHA-1, in all clients.

**EC**, in Java alone: what BouncyCastle calls ECIES. C++, Go, and what is built on them
take RSA only::

    point of an ephemeral key | data key XOR stream | HMAC-SHA1 of that and 8 zeros
    stream: KDF2 with SHA-1 of point | shared secret; after its first 16 bytes, which
            are the key of the HMAC

Source: IESEngine and KDF2BytesGenerator of BouncyCastle 1.78; RFC 8017, 7.1.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import platform
import re
import urllib.parse
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pulsar_spark.errors import OptionError, foreign_text
from pulsar_spark.options.secret import Secret
from spark_topics.client.settling import rested

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

T = TypeVar("T")

#: Bytes of a data key, of what it is used with once, and that a payload grows by.
DATA_KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16

#: With fewer no data key fits in: OAEP with SHA-1 takes 42 bytes beside it.
_LEAST_RSA_BITS = 8 * (DATA_KEY_BYTES + 42)

#: Of the modulus of an RSA key. Seven of eight that are put together from halves of two
#: keys have one. To find that out takes a millisecond.
_NO_FACTORS = range(3, 10_000, 2)

_MAC_KEY_BYTES = 16
_MAC_BYTES = 20


class UnwrapError(Exception):
    """A private key does not open a data key. No one is told why: it would help."""


class PublicKey(Protocol):
    """Encrypts data keys."""

    def wrap(self, data_key: bytes) -> bytes:
        """Return the data key encrypted for the private key."""


class PrivateKey(Protocol):
    """Decrypts data keys; equal to any key of the same pair."""

    def unwrap(self, wrapped: bytes) -> bytes:
        """Return the data key.

        Raises:
            UnwrapError: This is not for this key, or damaged.
        """


def public_keys(places: Mapping[str, Secret]) -> dict[str, PublicKey]:
    """Read and load public keys, or those of certificates. On the node that needs them.

    Args:
        places: The place of each key, by name.

    Raises:
        OptionError: One cannot be read, or is none that Pulsar's clients know. The
            cause is a `TimeoutError` where a file is written to all the time.
    """
    # All at once: a moment without changes is waited for, and many would add up.
    return _rested(
        lambda: {name: _public_key(place, name) for name, place in places.items()},
        "A public key of `encryption.publicKeys`",
        *places.values(),
    )


def _public_key(place: Secret, name: str) -> PublicKey:
    what = f"The public key {foreign_text(name)!r} of `encryption.publicKeys`"
    key = _load(_load_public, place, what)
    if _is_rsa(key):
        if key.key_size < _LEAST_RSA_BITS:
            raise _unusable(what, place, f"{key.key_size} bits are too few for RSA")
        return _RsaPublicKey(key)
    if _is_ec(key):
        return _EcPublicKey(key)
    raise _unusable(what, place, "it is neither an RSA nor an EC key")


def private_key(place: Secret, name: str) -> PrivateKey:
    """Read and load a private key. On the node that needs it.

    Args:
        place: The place.
        name: The name in messages that it is wanted for, for errors.

    Raises:
        OptionError: It cannot be read, or is none that Pulsar's clients know.
    """
    what = f"The private key for {foreign_text(name)!r} of `encryption.privateKeys`"
    key = _rested(lambda: _load(_load_private, place, what), what, place)
    if _is_rsa(key):
        return _RsaPrivateKey(key)
    if _is_ec(key):
        return _EcPrivateKey(key)
    raise _unusable(what, place, "it is neither an RSA nor an EC key")


class DataKey:
    """Encrypts and decrypts payloads.

    Args:
        key: 32 bytes; 16 or 24 come from clients whose Java forbids more.

    Raises:
        UnwrapError: It has not the size of one.
    """

    def __init__(self, key: bytes) -> None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if len(key) not in (16, 24, DATA_KEY_BYTES):
            raise UnwrapError
        self._cipher = AESGCM(key)
        self._refusal = InvalidTag

    def encrypt(self, nonce: bytes, payload: bytes | memoryview) -> bytes:
        """Return the encrypted payload.

        Args:
            nonce: Bytes that this key never sees again.
            payload: To be encrypted.
        """
        return self._cipher.encrypt(nonce, payload, None)

    def decrypt(self, nonce: bytes, payload: bytes | memoryview) -> bytes | None:
        """Return the decrypted payload; None if the key does not fit."""
        if len(nonce) != NONCE_BYTES or len(payload) < TAG_BYTES:
            return None
        try:
            return self._cipher.decrypt(nonce, payload, None)
        except self._refusal:
            return None


# -- loading ---------------------------------------------------------------------------

#: One object in PEM. A file may hold others ahead of it, such as EC PARAMETERS.
_PEM = re.compile(
    r"-----BEGIN ([A-Z0-9 ]*(?:PUBLIC KEY|PRIVATE KEY|CERTIFICATE))-----"
    r".*?-----END \1-----",
    re.DOTALL,
)


def _rested(load: Callable[[], T], what: str, *places: Secret) -> T:
    """Load keys from files that are not being written.

    Half of one public key and half of another make a third one, which no one has the
    private key of.
    """
    paths = {place.path: place for place in places if place.path is not None}
    try:
        return rested(paths, load)
    except TimeoutError as error:
        place = paths[str(error)]
        raise _unusable(what, place, "it is written to all the time") from error


def _load(load: Any, place: Secret, what: str) -> Any:
    pem = _pem(place.read())
    if not pem:
        raise _unusable(what, place, "there is no key in PEM")
    try:
        return load(pem)
    except ImportError:
        raise OptionError(
            f"{what} needs the package cryptography on {platform.node()}: "
            "`pip install cryptography`"
        ) from None
    except Exception:
        # Without the reason: texts of libraries may show bytes.
        raise _unusable(what, place, _problem(load, pem)) from None


def _problem(load: Any, pem: bytes) -> str:
    """Return why a key cannot be loaded; never quote the library's message."""
    is_private = b"PRIVATE KEY" in pem
    if is_private and b"ENCRYPTED" in pem:
        return "it has a password"
    if is_private is (load is _load_private):
        return "it is damaged"
    return f"it is the {'private' if is_private else 'public'} key of a pair"


def _pem(text: str) -> bytes:
    """Return the key in a text or a ``data:`` URI; b"" where there is none."""
    if text.startswith("data:"):
        header, _, data = text.partition(",")
        if header.endswith(";base64"):
            try:
                text = base64.b64decode(data).decode("ascii", "replace")
            except binascii.Error:
                return b""
        else:
            text = urllib.parse.unquote(data)
    match = _PEM.search(text)
    return match[0].encode("ascii", "replace") if match else b""


def _load_public(pem: bytes) -> object:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key: object
    if b"CERTIFICATE" in pem:
        key = x509.load_pem_x509_certificate(pem).public_key()
    else:
        key = serialization.load_pem_public_key(pem)
    if isinstance(key, rsa.RSAPublicKey):
        modulus = key.public_numbers().n
        if any(modulus % factor == 0 for factor in _NO_FACTORS):
            raise ValueError
    return key


def _load_private(pem: bytes) -> object:
    from cryptography.hazmat.primitives import serialization

    return serialization.load_pem_private_key(pem, None)


def _is_rsa(key: object) -> bool:
    from cryptography.hazmat.primitives.asymmetric import rsa

    return isinstance(key, rsa.RSAPublicKey | rsa.RSAPrivateKey)


def _is_ec(key: object) -> bool:
    from cryptography.hazmat.primitives.asymmetric import ec

    return isinstance(key, ec.EllipticCurvePublicKey | ec.EllipticCurvePrivateKey)


def _unusable(what: str, place: Secret, why: str) -> OptionError:
    where = "" if place.path is None else f", {foreign_text(place.path)},"
    return OptionError(f"{what}{where} cannot be used on {platform.node()}: {why}.")


# -- RSA -------------------------------------------------------------------------------


def _oaep() -> Any:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    sha1 = hashes.SHA1()
    return padding.OAEP(padding.MGF1(sha1), sha1, None)


class _RsaPublicKey:
    def __init__(self, key: rsa.RSAPublicKey) -> None:
        self._key = key

    def wrap(self, data_key: bytes) -> bytes:
        return self._key.encrypt(data_key, _oaep())


class _OfPair:
    """A private key, equal to any key with the same public key."""

    _key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _OfPair):
            return NotImplemented
        return bool(self._key.public_key() == other._key.public_key())

    __hash__ = None  # type: ignore[assignment]


class _RsaPrivateKey(_OfPair):
    _key: rsa.RSAPrivateKey

    def __init__(self, key: rsa.RSAPrivateKey) -> None:
        self._key = key

    def unwrap(self, wrapped: bytes) -> bytes:
        try:
            return self._key.decrypt(wrapped, _oaep())
        except ValueError:
            raise UnwrapError from None


# -- ECIES -----------------------------------------------------------------------------


class _EcPublicKey:
    def __init__(self, key: ec.EllipticCurvePublicKey) -> None:
        self._key = key

    def wrap(self, data_key: bytes) -> bytes:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        ephemeral = ec.generate_private_key(self._key.curve)
        point = ephemeral.public_key().public_bytes(
            serialization.Encoding.X962,
            serialization.PublicFormat.UncompressedPoint,
        )
        secret = ephemeral.exchange(ec.ECDH(), self._key)
        mac_key, stream = _ecies_keys(point + secret, len(data_key))
        masked = _xor(data_key, stream)
        return point + masked + _ecies_mac(mac_key, masked)


class _EcPrivateKey(_OfPair):
    _key: ec.EllipticCurvePrivateKey

    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key

    def unwrap(self, wrapped: bytes) -> bytes:
        from cryptography.hazmat.primitives.asymmetric import ec

        size = (self._key.curve.key_size + 7) // 8
        is_compressed = wrapped[:1] in (b"\x02", b"\x03")
        point = wrapped[: 1 + (size if is_compressed else 2 * size)]
        masked, mac = wrapped[len(point) : -_MAC_BYTES], wrapped[-_MAC_BYTES:]
        if len(masked) > DATA_KEY_BYTES:
            raise UnwrapError
        try:
            peer = ec.EllipticCurvePublicKey.from_encoded_point(self._key.curve, point)
            secret = self._key.exchange(ec.ECDH(), peer)
        except ValueError:
            raise UnwrapError from None
        mac_key, stream = _ecies_keys(point + secret, len(masked))
        if not hmac.compare_digest(_ecies_mac(mac_key, masked), mac):
            raise UnwrapError
        return _xor(masked, stream)


def _ecies_keys(secret: bytes, size: int) -> tuple[bytes, bytes]:
    """Return the key of the HMAC, and as many bytes of the stream."""
    blocks, key_bytes = b"", _MAC_KEY_BYTES + size
    number = 1
    while len(blocks) < key_bytes:
        counter = number.to_bytes(4, "big")
        blocks += hashlib.sha1(secret + counter, usedforsecurity=False).digest()
        number += 1
    return blocks[:_MAC_KEY_BYTES], blocks[_MAC_KEY_BYTES:key_bytes]


def _ecies_mac(key: bytes, masked: bytes) -> bytes:
    return hmac.digest(key, masked + bytes(8), "sha1")


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
