# SPDX-License-Identifier: Apache-2.0
"""Settings of TLS connections, and the errors of failed handshakes."""

from __future__ import annotations

import ipaddress
import platform
import re
import ssl
from dataclasses import dataclass

from spark_topics.errors import TlsError, TransportError, foreign_text
from spark_topics.network import Network, TlsSettings


@dataclass(frozen=True)
class Tls:
    """TLS settings of a connection.

    Attributes:
        options: Whom to trust, and what to show.
        server_name: The host whose certificate is expected.
        last_word_s: How long a sender that is cut off waits for the reason that the
            reader may hear, in seconds.
    """

    options: TlsSettings
    server_name: str
    last_word_s: float = 1.0

    @property
    def shows_certificate(self) -> bool:
        """Return whether this side has a certificate to show."""
        return bool(self.options.key_store_path or self.options.certificate_path)


def cipher_refusal(agreed: ssl.SSLObject, tls: Tls, broker: str) -> TlsError | None:
    """Return why the agreed cipher suite is not allowed, None if allowed.

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
    """Return the host of ``host:port``, spelled as in certificates.

    The dot at the end of a name, which keeps resolvers from trying others, is in no
    certificate, and never told to servers (RFC 6066, section 3).
    """
    host = address.rpartition(":")[0].strip("[]").partition("%")[0]
    return host.removesuffix(".")


def is_ip_address(host: str) -> bool:
    """Return whether a host is an IP address."""
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
    """Return the error for a peer that closes the connection in the handshake.

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
    text = (text or reason_of(error)).removesuffix(".")
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
    """Return why the peer ended the handshake by an alert."""
    alert_text = alert.lower().replace("_", " ")
    names, trusts = tls.options.network.tls, tls.options.network.trusts
    if alert == "PROTOCOL_VERSION":
        return _no_version(tls)
    if alert == "CERTIFICATE_REQUIRED" or (
        alert in ("BAD_CERTIFICATE", "HANDSHAKE_FAILURE") and not tls.shows_certificate
    ):
        if tls.shows_certificate:
            return f"it wants another client certificate than ours ({alert_text})"
        wants = "it wants" if alert != "HANDSHAKE_FAILURE" else "perhaps it wants"
        files = " and ".join(
            dict.fromkeys((f"`{names.certificate}`", f"`{names.key}`"))
        )
        store = "" if names.key_store in files else f", or `{names.key_store}`"
        text = f"{wants} a client certificate ({alert_text}): set {files}{store}"
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
            f"it does not accept our client certificate ({alert_text}). It has to be"
            f" valid, and of an authority in {trusts}"
        )
    if alert == "INSUFFICIENT_SECURITY":
        return _no_cipher(tls)
    return f"it ended the handshake ({alert_text})"


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


def reason_of(error: Exception) -> str:
    """Return the text of an error, without file names and line numbers."""
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    text = _IN_PYTHON.sub("", str(reason or error))
    return foreign_text(text.lower().replace("_", " "))
