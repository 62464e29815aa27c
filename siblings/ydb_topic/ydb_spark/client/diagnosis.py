# SPDX-License-Identifier: Apache-2.0
"""Why an endpoint cannot be reached. gRPC only says that it cannot.

So the endpoint is looked at by hand: a connection, a handshake where there is one to
be, and the first byte that comes. No call is made, and nothing of ours is sent.
"""

from __future__ import annotations

import platform
import re
import socket
import ssl
from urllib.parse import urlsplit

from spark_topics.errors import foreign_text
from ydb_spark.errors import OptionError, TlsError, TransportError
from ydb_spark.options.connection import ConnectionOptions

#: A look takes no longer than that for each step.
LOOK_S = 3.0

#: How a client of HTTP/2 begins: its preface, and settings without any.
_HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))

#: How its server answers: settings have less than 64 KiB, so the first byte is 0.
_SETTINGS = bytes(1)

_CERTIFICATE = re.compile(
    rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL
)

#: OpenSSL's numbers: of a certificate for another host, and for another address.
_OTHER_NAMES = (62, 64)
_EXPIRED = 10


def require_certificates(roots: bytes) -> None:
    """Check that there are certificates.

    Raises:
        OptionError: There are not; gRPC would only say that it cannot connect.
    """
    try:
        _context(roots)
    except (ssl.SSLError, ValueError):
        raise OptionError(
            "ca has no certificate in PEM: it begins with -----BEGIN CERTIFICATE-----."
        ) from None


def diagnose(options: ConnectionOptions, roots: bytes | None) -> TransportError | None:
    """Return the fault of an endpoint; None if no fault is visible.

    Args:
        options: Which, and how.
        roots: Certificates to trust, as PEM; None for a connection in plain.
    """
    parts = urlsplit(options.url)
    host, port = parts.hostname or "", parts.port or 0
    where = foreign_text(options.endpoint)
    try:
        if roots is None:
            return _look_in_plain(host, port, where)
        return _look_by_tls(host, port, where, roots)
    except socket.gaierror:
        return TransportError(
            f"{where}: {platform.node()} knows no host of that name. Look at url.",
            broker=where,
        )
    except OSError as error:
        why = error.strerror or "nothing answers"
        return TransportError(
            f"{where} cannot be reached from {platform.node()}: {why}. Look at url, and"
            " at whether the cluster is up.",
            broker=where,
        )


def _connect(host: str, port: int) -> socket.socket:
    return socket.create_connection((host, port), LOOK_S)


def _context(roots: bytes) -> ssl.SSLContext:
    # Without what lists have between, in any language.
    certificates = b"\n".join(_CERTIFICATE.findall(roots))
    if not certificates:
        raise ValueError  # it would stand for those of the system
    context = ssl.create_default_context(cadata=certificates.decode("ascii"))
    # As gRPC: newer Pythons ask more of certificates.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["h2"])
    return context


def _look_in_plain(host: str, port: int, where: str) -> TransportError | None:
    with _connect(host, port) as connection:
        try:
            connection.sendall(_HTTP2)
            if connection.recv(1) == _SETTINGS:
                return None
        except TimeoutError:
            return _silent(where, "after a connection")
        except OSError:  # it may have been TLS that broke it
            pass
    if not _speaks_tls(host, port):
        return None
    return TlsError(
        f"{where} speaks TLS, and url asks for a connection that is not encrypted: let"
        " it begin with grpcs://.",
        broker=where,
    )


def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # nothing is sent
    context.verify_mode = ssl.CERT_NONE
    with _connect(host, port) as connection:
        try:
            with context.wrap_socket(connection):
                return True
        except OSError:
            return False


def _look_by_tls(
    host: str, port: int, where: str, roots: bytes
) -> TransportError | None:
    connection = _connect(host, port)
    try:
        with connection, _context(roots).wrap_socket(connection, server_hostname=host):
            return None
    except ssl.SSLCertVerificationError as error:
        return TlsError(f"{where}: no safe connection. {_why(error)}", broker=where)
    except TimeoutError:
        return _silent(where, "in a TLS handshake")
    except ssl.SSLError as error:
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            return TlsError(
                f"{where} does not speak TLS. Its TLS port is another one, or let url"
                " begin with grpc:// for a connection that is not encrypted.",
                broker=where,
            )
        text = foreign_text(error.reason or str(error))
        return TlsError(f"{where}: no safe connection: {text}.", broker=where)
    except OSError:
        return TransportError(
            f"{where} ended the connection in a TLS handshake. Is that its TLS port?",
            broker=where,
        )


def _why(error: ssl.SSLCertVerificationError) -> str:
    text = foreign_text(error.verify_message)
    if error.verify_code in _OTHER_NAMES:
        return (
            f"Its certificate is for another name: {text} Let url have the name that"
            " the certificate is for."
        )
    if error.verify_code == _EXPIRED:
        return f"Its certificate has ended: {text}. The server needs a new one."
    return (
        f"Its certificate is signed by an untrusted authority: {text}. Set `ca` to that"
        " authority's certificate."
    )


def _silent(where: str, when: str) -> TransportError:
    return TransportError(
        f"{where} says nothing {when}, for {LOOK_S:g} s. Is that the port of gRPC?",
        broker=where,
    )
