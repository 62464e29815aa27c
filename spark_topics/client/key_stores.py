# SPDX-License-Identifier: Apache-2.0
"""PKCS12 stores, which Python's own ssl cannot read.

The only module of TLS that needs the package `cryptography`, and not before a store is
opened.
"""

from __future__ import annotations

import os
import secrets
import ssl
import tempfile
from dataclasses import dataclass
from typing import Any

from spark_topics.system import System


class WrongPasswordError(Exception):
    """The password is not that of the store, or the store is damaged."""


class UnusableStoreError(Exception):
    """The store cannot be read for another reason, which the message says."""


@dataclass(frozen=True)
class KeyStore:
    """What a store holds.

    Attributes:
        certificates: All of them, in PEM, that of the key first.
    """

    certificates: tuple[bytes, ...]
    _key: Any = None

    def __repr__(self) -> str:
        return f"KeyStore({len(self.certificates)} certificates)"

    @property
    def has_key(self) -> bool:
        """Return whether the store holds a private key with a certificate."""
        return self._key is not None and bool(self.certificates)

    def show(self, context: ssl.SSLContext) -> None:
        """Have a context show the key's certificate.

        Raises:
            ssl.SSLError: OpenSSL does not take it.
        """
        from cryptography.hazmat.primitives import serialization

        # Python's ssl takes keys from files only: so one is there for a moment, under a
        # password that is nowhere else.
        password = secrets.token_hex(32)
        pem = self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(password.encode()),
        )
        number, path = tempfile.mkstemp(prefix="spark-topics-")
        try:
            with os.fdopen(number, "wb") as file:
                file.write(b"".join(self.certificates) + pem)
            context.load_cert_chain(path, password=password)
        finally:
            os.unlink(path)


def open_pkcs12(data: bytes, password: str | None, system: System) -> KeyStore:
    """Read a store.

    Args:
        data: Its bytes.
        password: None if it has none.
        system: Whose error it is where the package that reads it is missing.

    Raises:
        WrongPasswordError: This is not its password, or it is damaged.
        UnusableStoreError: It is of an old kind.
        OptionError: The package that reads it is missing.
    """
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise system.option_error(
            "PKCS12 stores need the package cryptography on every node: "
            "`pip install cryptography`."
        ) from None
    try:
        store = pkcs12.load_pkcs12(
            data, None if password is None else password.encode()
        )
    except ValueError:
        raise WrongPasswordError from None
    except UnsupportedAlgorithm:
        raise UnusableStoreError(
            "it is protected in an old way. Make a new one of it by `keytool"
            " -importkeystore` with a current Java"
        ) from None
    certificates = ([] if store.cert is None else [store.cert]) + store.additional_certs
    return KeyStore(
        tuple(
            c.certificate.public_bytes(serialization.Encoding.PEM) for c in certificates
        ),
        store.key,
    )
