# SPDX-License-Identifier: Apache-2.0
"""TLS as the options ask for it, and what its failures mean.

What trust and identity are made of lies in files of each node. It is read again when
one of them has changed, so that what is renewed there serves the next connection.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import platform
import re
import ssl
from dataclasses import dataclass

from spark_topics.client import key_stores
from spark_topics.client.settling import settled
from spark_topics.errors import TlsError, TransportError, foreign_text
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


@dataclass(frozen=True)
class Tls:
    """How one connection is to be made safe.

    Attributes:
        options: Whom to trust, and what to show.
        server_name: The host whose certificate is expected.
    """

    options: TlsSettings
    server_name: str

    @property
    def shows_certificate(self) -> bool:
        """Return whether this side shows a certificate, where it is asked for one."""
        return bool(self.options.key_store_path or self.options.certificate_path)


# -- contexts --------------------------------------------------------------------------

_Fingerprint = tuple[tuple[str, int, int, int], ...]

#: Without a lock: two threads may make the same, once, and a fork leaves none held.
_contexts: dict[TlsSettings, tuple[_Fingerprint, ssl.SSLContext]] = {}


def context(options: TlsSettings) -> ssl.SSLContext:
    """Return what connections with these options begin with.

    Raises:
        TlsError: A file is missing or holds something else; says where and what.
        OptionError: A password is not where it was said to be.
    """
    fingerprint = _fingerprint(options)
    known = _contexts.get(options)
    if known is not None and known[0] == fingerprint:
        return known[1]
    made = settled(_paths(options), lambda: _new_context(options))
    if len(_contexts) >= _KEPT:
        _contexts.clear()
    # Of before: what changed meanwhile is then seen as another next time.
    _contexts[options] = fingerprint, made
    return made


def _fingerprint(options: TlsSettings) -> _Fingerprint:
    found = []
    for path in (*_paths(options), ssl.get_default_verify_paths().cafile):
        with contextlib.suppress(OSError, ValueError, TypeError):
            stat = os.stat(path)
            found.append((path, stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return tuple(found)


def _paths(options: TlsSettings) -> list[str]:
    """Return the files that a connection depends on, those of passwords included."""
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
    """Return whether a suite is one of TLS 1.3, whose names say no key exchange."""
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


def cipher_refusal(agreed: ssl.SSLObject, tls: Tls, broker: str) -> TlsError | None:
    """Return why a suite that was agreed on may not be used, None where it may.

    Those of TLS 1.3 a client in Python cannot choose, and so has to refuse.
    """
    allowed = tls.options.ciphers
    name = (agreed.cipher() or ("",))[0]
    if allowed is None or agreed.version() != "TLSv1.3" or name in allowed:
        return None
    network = tls.options.network
    return network.system.tls_error(
        f"No TLS with the {network.server} {broker}: it chose the cipher suite {name},"
        f" and allowed here are {', '.join(allowed)} (`{network.tls.ciphers}`).",
        broker=broker,
    )


def host_of(address: str) -> str:
    """Return the host of ``host:port`` as certificates name it."""
    return address.rpartition(":")[0].strip("[]").partition("%")[0]


def is_ip_address(host: str) -> bool:
    """Return whether a host is given by its address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def warning_of(tls: Tls) -> str:
    """Return what to warn of whenever a connection is opened like that, or ""."""
    names = tls.options.network.tls
    if tls.options.allow_insecure:
        return (
            f"its certificate is not looked at ({names.insecure}). Anybody in between "
            "can read and change what is sent, credentials, too."
        )
    if not tls.options.verify_hostname:
        return (
            "its certificate may be for any other host of the same authority "
            f"({names.verify_hostname}=false)."
        )
    return ""


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
        raise _unusable(network, path, option, f"{_said(error)}") from None


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


def _bad_pair(
    network: Network, error: Exception, certificate: str, key: str, option: str
) -> TlsError:
    reason = getattr(error, "reason", "") or ""
    if "KEY_VALUES_MISMATCH" in reason or "KEY_TYPE_MISMATCH" in reason:
        return network.system.tls_error(
            f"The private key in {foreign_text(key)} on {platform.node()} does not"
            f" belong to the certificate in {foreign_text(certificate)}."
        )
    return _unusable(network, certificate, option, _said(error))


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


# -- failures --------------------------------------------------------------------------

_HOSTNAME_MISMATCH = 62
_ADDRESS_MISMATCH = 64
_NOT_YET_VALID = 9
_EXPIRED = 10

#: Codes of OpenSSL: a key that is too short, or a digest that can be forged.
_TOO_WEAK = frozenset({66, 67, 68})

#: Likewise: nobody whom we trust has signed it.
UNKNOWN_AUTHORITY = frozenset({2, 18, 19, 20, 21})


def is_tls_record(data: bytes) -> bool:
    """Return whether two bytes are how a TLS server begins: a handshake, or an alert.

    No other server should begin so: as a size these bytes are hundreds of MB.
    """
    return data in (b"\x16\x03", b"\x15\x03")


def unheard(broker: str, network: Network, *, has_answered: bool) -> TransportError:
    """Return what it means that the other side closes the connection in the handshake.

    A server that goes down does it, and so does one that expects no TLS.
    """
    if has_answered:
        return network.system.transport_error(
            f"The {network.server} {broker} closed the connection during the TLS"
            " handshake.",
            broker=broker,
        )
    return network.system.tls_error(
        f"The {network.server} {broker} closed the connection when TLS began."
        f" {network.tls_port} {network.without_tls}",
        broker=broker,
        is_unheard=True,
    )


def failure(error: ssl.SSLError, broker: str, tls: Tls) -> TransportError:
    """Return what an error of a handshake means, and what to change."""
    network = tls.options.network
    if isinstance(error, ssl.SSLCertVerificationError):
        return network.system.tls_error(_unverified(error, broker, tls), broker=broker)
    reason = error.reason or ""
    text = ""
    if reason.endswith("UNRECOGNIZED_NAME"):  # OpenSSL's only alert without the word
        text = f"it knows no host {tls.server_name}"
    elif "ALERT" in reason:
        text = _alerted(reason.rpartition("ALERT_")[2], tls)
    elif reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"):
        text = f"what it sends is not TLS. {network.tls_port} {network.without_tls}"
    elif reason in ("UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE"):
        text = _no_version(tls)
    elif reason in (
        "NO_SHARED_CIPHER",
        "WRONG_CIPHER_RETURNED",
        "NO_CIPHERS_AVAILABLE",
    ):
        text = _no_cipher(tls)
    elif reason == "DH_KEY_TOO_SMALL":
        text = (
            f"the prime of its key exchange is too short for {ssl.OPENSSL_VERSION}. Let"
            " it have one of 2048 bits or more, or suites that begin with ECDHE"
        )
    text = (text or _said(error)).removesuffix(".")
    return network.system.tls_error(
        f"No TLS with the {network.server} {broker}: {text}.", broker=broker
    )


def _unverified(error: ssl.SSLCertVerificationError, broker: str, tls: Tls) -> str:
    code, network = error.verify_code, tls.options.network
    server = f"{network.server} {broker}"
    if code in (_HOSTNAME_MISMATCH, _ADDRESS_MISMATCH):
        return (
            f"The {server} shows a certificate that is not for {tls.server_name}."
            f" {network.other_name}"
        )
    if code in (_EXPIRED, _NOT_YET_VALID):
        what = "has expired" if code == _EXPIRED else "is not valid yet"
        return (
            f"The {server} shows a certificate that {what}, or one of its"
            " authorities does. Renew it; if it is valid, look at the clock of"
            f" {platform.node()}."
        )
    if code in _TOO_WEAK:
        return (
            f"The {server} shows a certificate that is too weak for"
            f" {ssl.OPENSSL_VERSION}, or one of its authorities does"
            f" ({error.verify_message}). Renew it with an RSA key of 2048 bits or more,"
            " signed by SHA-256."
        )
    if code in UNKNOWN_AUTHORITY:
        option = (
            network.tls.trust_store
            if tls.options.use_key_stores
            else network.tls.trust_certificates
        )
        return (
            f"The {server} shows a certificate of an authority that is not"
            f" trusted on {platform.node()} ({error.verify_message}). Name that"
            f" authority's certificate by `{option}`."
        )
    return f"The certificate of the {server} is refused: {error.verify_message}."


def _alerted(alert: str, tls: Tls) -> str:
    """Return what it means that the other side ended the handshake by an alert."""
    said = alert.lower().replace("_", " ")
    names, trusts = tls.options.network.tls, tls.options.network.trusts
    if alert == "PROTOCOL_VERSION":
        return _no_version(tls)
    if alert == "CERTIFICATE_REQUIRED" or (
        alert in ("BAD_CERTIFICATE", "HANDSHAKE_FAILURE") and not tls.shows_certificate
    ):
        if tls.shows_certificate:
            return f"it wants another client certificate than ours ({said})"
        wants = "it wants" if alert != "HANDSHAKE_FAILURE" else "perhaps it wants"
        files = " and ".join(
            dict.fromkeys((f"`{names.certificate}`", f"`{names.key}`"))
        )
        store = "" if names.key_store in files else f", or `{names.key_store}`"
        text = f"{wants} a client certificate ({said}): set {files}{store}"
        if alert == "HANDSHAKE_FAILURE":
            text += f". Or {_no_cipher(tls)}"
        return text
    if alert == "HANDSHAKE_FAILURE":
        return f"{_no_cipher(tls)}, or it does not take our certificate"
    if alert in (
        "BAD_CERTIFICATE",
        "UNSUPPORTED_CERTIFICATE",
        "CERTIFICATE_REVOKED",
        "CERTIFICATE_EXPIRED",
        "CERTIFICATE_UNKNOWN",
        "UNKNOWN_CA",
        "ACCESS_DENIED",
        "DECRYPT_ERROR",
    ):
        return (
            f"it does not accept our client certificate ({said}). It has to be valid,"
            f" and of an authority in {trusts}"
        )
    if alert == "INSUFFICIENT_SECURITY":
        return _no_cipher(tls)
    return f"it ended the handshake ({said})"


def _no_version(tls: Tls) -> str:
    return (
        f"it has no version of TLS that is allowed here, which are"
        f" {' and '.join(tls.options.protocols)}"
        f" (`{tls.options.network.tls.protocols}`)"
    )


def _no_cipher(tls: Tls) -> str:
    allowed = tls.options.ciphers
    which = f", which are {', '.join(allowed)}" if allowed else ""
    return (
        f"it has no cipher suite that is allowed here{which}"
        f" (`{tls.options.network.tls.ciphers}`)"
    )


#: Where in Python an error of OpenSSL came about that has no name there.
_IN_PYTHON = re.compile(r"^\[\w+\] | \(_ssl\.c:\d+\)$")


def _said(error: Exception) -> str:
    """Return an error's own words, without where in Python it came about."""
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    text = _IN_PYTHON.sub("", str(reason or error))
    return foreign_text(text.lower().replace("_", " "))
