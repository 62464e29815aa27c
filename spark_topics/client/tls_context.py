# SPDX-License-Identifier: Apache-2.0
"""SSL contexts made from options.

What trust and identity are made of lies in files of each node. It is read again when
one of them has changed, so that what is renewed there serves the next connection.
"""

from __future__ import annotations

import contextlib
import os
import platform
import ssl

from spark_topics.client import key_stores
from spark_topics.client.settling import settled
from spark_topics.client.tls import reason_of
from spark_topics.errors import TlsError, foreign_text
from spark_topics.network import Network, TlsSettings
from spark_topics.options.secrets import Secret, read_file
from spark_topics.options.tls import conversion_of

#: As many sets of options have their contexts kept.
_KEPT = 32

_VERSIONS = {
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}

#: Python's own choice, but for the order: AES with 128 bits is as safe as needed, and
#: takes the least work where the processor has AES. For TLS 1.3 Python has no such
#: list, and servers choose.
_CIPHERS = (
    "@SECLEVEL=2:ECDHE+AES128+AESGCM:ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES:DHE+AES:"
    "!aNULL:!eNULL:!aDSS:!SHA1:!AESCCM"
)


_Fingerprint = tuple[tuple[str, int, int, int], ...]

#: Without a lock: two threads may make the same, once, and a fork leaves none held.
_contexts: dict[TlsSettings, tuple[_Fingerprint, ssl.SSLContext]] = {}


def context(options: TlsSettings) -> ssl.SSLContext:
    """Return the SSL context for connections with these options.

    Raises:
        TlsError: A file is missing or holds something else; says where and what.
        OptionError: A password is not if it was said to be.
    """
    fingerprint = _fingerprint(options)
    context_ = _contexts.get(options)
    if context_ is not None and context_[0] == fingerprint:
        return context_[1]
    made = settled(_paths(options), lambda: _new_context(options))
    if len(_contexts) >= _KEPT:
        _contexts.clear()
    # Of before: what changed meanwhile is then seen as another next time.
    _contexts[options] = fingerprint, made
    return made


def _fingerprint(options: TlsSettings) -> _Fingerprint:
    digests = []
    for path in (*_paths(options), ssl.get_default_verify_paths().cafile):
        with contextlib.suppress(OSError, ValueError, TypeError):
            stat = os.stat(path)
            digests.append((path, stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return tuple(digests)


def _paths(options: TlsSettings) -> list[str]:
    """Return the files that a connection depends on, password files included."""
    passwords = options.trust_store_password, options.key_store_password
    named = (
        options.trust_certificates_path,
        options.certificate_path,
        options.key_path,
        options.trust_store_path,
        options.key_store_path,
        *(password.path for password in passwords if password is not None),
    )
    return list(dict.fromkeys(path for path in named if path is not None))


def _new_context(options: TlsSettings) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # As Java: whatever is in the trust store is trusted, be it a root or not.
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    made.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    _choose_versions_and_ciphers(made, options)
    # A certificate names its hosts in subjectAltName; RFC 9525 forbids the common name.
    made.hostname_checks_common_name = False
    made.check_hostname = options.verify_hostname and not options.allow_insecure
    if options.allow_insecure:
        made.verify_mode = ssl.CERT_NONE
    _choose_trust(made, options)
    _choose_identity(made, options)
    return made


def _choose_versions_and_ciphers(made: ssl.SSLContext, options: TlsSettings) -> None:
    versions = list(options.protocols)
    older: list[str] = []
    if options.ciphers is not None:
        offered = {cipher["name"] for cipher in made.get_ciphers()}
        newer = [c for c in options.ciphers if _is_of_tls13(c)]
        older = [_openssl_name(c) for c in options.ciphers if c not in newer]
        newer = [cipher for cipher in newer if cipher in offered]
        # Suites are of one version each: without one, there is nothing to agree on.
        if not newer and "TLSv1.3" in versions:
            versions.remove("TLSv1.3")
        if not older and "TLSv1.2" in versions:
            versions.remove("TLSv1.2")
    try:
        made.set_ciphers(":".join(older) if older else _CIPHERS)
    except ssl.SSLError:
        versions = []
    if not versions:
        assert options.ciphers is not None
        network = options.network
        raise network.system.tls_error(
            f"{network.tls.ciphers} has no suite that {ssl.OPENSSL_VERSION} on"
            f" {platform.node()} knows for {' or '.join(options.protocols)}:"
            f" {', '.join(options.ciphers)}."
        )
    made.minimum_version = _VERSIONS[versions[0]]
    made.maximum_version = _VERSIONS[versions[-1]]


def _is_of_tls13(cipher: str) -> bool:
    """Return whether a suite belongs to TLS 1.3, whose names omit the key exchange."""
    return cipher.startswith("TLS_") and "_WITH_" not in cipher


def _openssl_name(cipher: str) -> str:
    """Return OpenSSL's name of a suite of TLS 1.2 that may be spelt as Java does.

    Its own names have nothing of what is replaced, and stay.
    """
    name = cipher.removeprefix("TLS_").replace("RSA_WITH_", "RSA-", 1)
    if name.startswith("RSA-"):  # OpenSSL leaves out what was usual once
        name = name.removeprefix("RSA-")
    name = name.replace("_WITH_", "-").replace("_", "-").replace("AES-", "AES")
    return name.replace("-CBC-", "-").replace("POLY1305-SHA256", "POLY1305")


def _choose_trust(made: ssl.SSLContext, options: TlsSettings) -> None:
    network, names = options.network, options.network.tls
    if options.trust_store_path is not None:
        path = options.trust_store_path
        store = _open_store(
            network,
            path,
            names.trust_store,
            options.trust_store_password,
            names.trust_store_password,
        )
        if not store.certificates:
            problem = "it has no certificate to trust"
            raise _unusable(network, path, names.trust_store, problem)
        _trust(network, made, b"".join(store.certificates), path, names.trust_store)
    elif options.trust_certificates_path is not None:
        path = options.trust_certificates_path
        pem = _read(network, path, names.trust_certificates)
        _trust(network, made, pem, path, names.trust_certificates)
    elif not options.allow_insecure:
        made.load_default_certs()


def _choose_identity(made: ssl.SSLContext, options: TlsSettings) -> None:
    network, names = options.network, options.network.tls
    if options.key_store_path is not None:
        path = options.key_store_path
        store = _open_store(
            network,
            path,
            names.key_store,
            options.key_store_password,
            names.key_store_password,
        )
        if not store.has_key:
            problem = "it has no private key with its certificate"
            raise _unusable(network, path, names.key_store, problem)
        try:
            store.show(made)
        except (ssl.SSLError, OSError) as error:
            raise _bad_pair(network, error, path, path, names.key_store) from None
    elif options.certificate_path is not None:
        path = options.certificate_path
        key = options.key_path or path
        _check_pem(network, path, b"CERTIFICATE", names.certificate)
        _check_pem(network, key, b"PRIVATE KEY", names.key)
        _show(network, made, path, key)


def _trust(
    network: Network, made: ssl.SSLContext, pem: bytes, path: str, option: str
) -> None:
    _check_kind(network, pem, b"CERTIFICATE", path, option)
    try:
        made.load_verify_locations(cadata=pem.decode("ascii", "ignore"))
    except ssl.SSLError as error:
        raise _unusable(network, path, option, f"{reason_of(error)}") from None


def _show(network: Network, made: ssl.SSLContext, certificate: str, key: str) -> None:
    names = network.tls
    is_encrypted = False

    def no_password() -> str:  # OpenSSL would ask the terminal, and wait
        nonlocal is_encrypted
        is_encrypted = True
        return ""

    try:
        made.load_cert_chain(certificate, key, no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        if is_encrypted:
            raise _unusable(
                network,
                key,
                names.key,
                "the key has a password. Give certificate and key in a PKCS12 key store"
                f" ({names.use_key_stores}), or the key without one: `openssl pkey -in"
                f" {foreign_text(key)} -out key.pem`",
            ) from None
        raise _bad_pair(network, error, certificate, key, names.certificate) from None


def _is_certificate(path: str) -> bool:
    """Return whether OpenSSL takes the certificates of a file, whatever the key is."""
    with contextlib.suppress(OSError, ValueError):
        pem = read_file(path).decode("ascii", "ignore")
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem)
        return True
    return False


def _bad_pair(
    network: Network, error: Exception, certificate: str, key: str, option: str
) -> TlsError:
    reason = getattr(error, "reason", "") or ""
    if "KEY_VALUES_MISMATCH" in reason or "KEY_TYPE_MISMATCH" in reason:
        return network.system.tls_error(
            f"The private key in {foreign_text(key)} on {platform.node()} does not"
            f" belong to the certificate in {foreign_text(certificate)}."
        )
    is_weak = reason.startswith(("EE_", "CA_"))
    if key != certificate and not is_weak and _is_certificate(certificate):
        return _unusable(network, key, network.tls.key, reason_of(error))
    return _unusable(network, certificate, option, reason_of(error))


def _open_store(
    network: Network,
    path: str,
    option: str,
    password: Secret | None,
    password_option: str,
) -> key_stores.KeyStore:
    data = _read(network, path, option)
    if data[:4] in (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"):
        raise _unusable(
            network,
            path,
            option,
            "it is a store of type JKS, which only Java can read. Make a PKCS12 store"
            f" of it by `{conversion_of(path)}`",
        )
    if data[:1] != b"\x30":
        raise _unusable(network, path, option, "it is no PKCS12 store")
    try:
        return key_stores.open_pkcs12(
            data,
            None if password is None else password.read(),
            network.system,
        )
    except key_stores.WrongPasswordError:
        problem = f"the password in {password_option} is not its own, or it is damaged"
        if password is None:
            problem = f"it has a password: set {password_option}"
        raise _unusable(network, path, option, problem) from None
    except key_stores.UnusableStoreError as error:
        raise _unusable(network, path, option, str(error)) from None


def _check_pem(network: Network, path: str, kind: bytes, option: str) -> None:
    _check_kind(network, _read(network, path, option), kind, path, option)


def _check_kind(
    network: Network, data: bytes, kind: bytes, path: str, option: str
) -> None:
    if b"-----BEGIN " not in data or kind + b"-----" not in data:
        what = "private key" if kind == b"PRIVATE KEY" else "certificate"
        problem = f"it has no {what} in PEM"
        if data[:4] == b"\xfe\xed\xfe\xed" or data[:1] == b"\x30":
            problem += f". For key stores set {network.tls.use_key_stores}"
        raise _unusable(network, path, option, problem)


def _read(network: Network, path: str, option: str) -> bytes:
    try:
        return read_file(path)
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise network.system.tls_error(
            f"{option} names {foreign_text(path)}, which cannot be read on"
            f" {platform.node()}: {problem}. The file must be there on every node that"
            " runs the driver or executors."
        ) from None


def _unusable(network: Network, path: str, option: str, problem: str) -> TlsError:
    return network.system.tls_error(
        f"{option} names {foreign_text(path)}, which is of no use on"
        f" {platform.node()}: {problem}."
    )
