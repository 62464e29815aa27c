# SPDX-License-Identifier: Apache-2.0
"""How texts of options become what TLS needs to know."""

from __future__ import annotations

import re

from spark_topics.errors import OptionError, foreign_text


def conversion_of(path: str) -> str:
    """Return the command that converts a JKS store to PKCS12."""
    return (
        f"keytool -importkeystore -srckeystore {foreign_text(path)} -destkeystore"
        " store.p12 -deststoretype PKCS12"
    )


def store_type(text: str, option: str) -> str:
    """Read the type of a key store: only PKCS12 can be read."""
    kind = text.strip().upper()
    if kind in ("JKS", "JCEKS"):
        raise OptionError(
            f"{option} is {kind}, which only Java can read. Make a PKCS12 store of it"
            f" by `{conversion_of('store.jks')}`, and set {option} to PKCS12."
        )
    if kind != "PKCS12":
        raise OptionError(f"{option} must be PKCS12, not {foreign_text(text)!r}.")
    return kind


#: The versions of TLS there are, oldest first.
_VERSIONS = ("TLSv1.2", "TLSv1.3")
_TOO_OLD = ("sslv2hello", "sslv2", "sslv3", "tlsv1", "tlsv1.0", "tlsv1.1")


def _names(text: str) -> list[str]:
    return [name for name in re.split(r"[,:\s]+", text.strip()) if name]


def protocols(text: str, option: str) -> tuple[str, ...]:
    """Parse TLS versions; versions before 1.2 are refused."""
    versions = {version.lower(): version for version in _VERSIONS}
    asked = [name.lower() for name in _names(text)]
    for name in asked:
        if name in _TOO_OLD:
            raise OptionError(
                f"{option} names {foreign_text(name)}, which is not safe: TLSv1.2 and"
                " TLSv1.3 are supported."
            )
        if name not in versions:
            raise OptionError(
                f"{option} must be TLSv1.2, TLSv1.3 or both by comma, not"
                f" {foreign_text(text)!r}."
            )
    return tuple(v for v in _VERSIONS if v.lower() in asked)


def ciphers(text: str, option: str) -> tuple[str, ...]:
    """Read names of cipher suites, by comma; Java's and OpenSSL's are taken."""
    names = _names(text)
    if not all(re.fullmatch(r"[A-Za-z0-9_-]+", name) for name in names):
        raise OptionError(
            f"{option} must be names of cipher suites by comma, such as"
            " TLS_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256."
        )
    return tuple(dict.fromkeys(name.upper() for name in names))
