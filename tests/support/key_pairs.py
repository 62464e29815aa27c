# SPDX-License-Identifier: Apache-2.0
"""Pairs of keys for encrypted messages, made as they are needed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import pulsar
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class KeyPair:
    """A pair of keys in PEM.

    Attributes:
        private: PKCS #8, as openssl writes it.
        public: SubjectPublicKeyInfo.
    """

    private: str
    public: str

    def save(self, folder: Path, name: str) -> SavedPair:
        """Write both into a folder."""
        private, public = folder / f"{name}-private.pem", folder / f"{name}-public.pem"
        private.write_text(self.private)
        public.write_text(self.public)
        return SavedPair(name, private, public)


@dataclass(frozen=True)
class SavedPair:
    """A pair of keys in files.

    Attributes:
        name: What messages call it.
        private, public: The files.
    """

    name: str
    private: Path
    public: Path

    @property
    def of_official(self) -> pulsar.CryptoKeyReader:
        """The pair as the official client takes it."""
        return pulsar.CryptoKeyReader(str(self.public), str(self.private))

    @property
    def for_reads(self) -> dict[str, str]:
        """Options of a read."""
        keys = json.dumps({self.name: f"file:{self.private}"})
        return {"encryption.privateKeys": keys}

    @property
    def for_writes(self) -> dict[str, str]:
        """Options of a write."""
        keys = json.dumps({self.name: f"file:{self.public}"})
        return {"encryption.keys": self.name, "encryption.publicKeys": keys}


@cache
def rsa_pair(number: int = 0, bits: int = 2048) -> KeyPair:
    """A pair of RSA; the same for the same arguments."""
    return _pair(rsa.generate_private_key(65537, bits))


@cache
def ec_pair(curve: str = "secp256r1", number: int = 0) -> KeyPair:
    """A pair on an elliptic curve; the same for the same arguments."""
    named = {c.name: c for c in (ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1())}
    return _pair(ec.generate_private_key(named[curve]))


def _pair(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> KeyPair:
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return KeyPair(private.decode(), public.decode())
