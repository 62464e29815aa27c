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
from typing import NamedTuple
from urllib.parse import urlsplit

from spark_topics.errors import foreign_text
from ydb_spark.errors import OptionError, TlsError, TransportError
from ydb_spark.options.connection import ConnectionOptions

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
    where = foreign_text(options.endpoint)
    step_s = options.patience.look_step_s
    endpoint = _Endpoint(parts.hostname or "", parts.port or 0, where, step_s)
    try:
        if roots is None:
            return _look_in_plain(endpoint)
        return _look_by_tls(endpoint, roots)
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


class _Endpoint(NamedTuple):
    host: str
    port: int
    where: str  # as messages name it
    step_s: float  # longest time of each step of a look

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), self.step_s)

    def silent(self, when: str) -> TransportError:
        return TransportError(
            f"{self.where} says nothing {when}, for {self.step_s:g} s. Is that the port"
            " of gRPC?",
            broker=self.where,
        )


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


def _look_in_plain(endpoint: _Endpoint) -> TransportError | None:
    with endpoint.connect() as connection:
        try:
            connection.sendall(_HTTP2)
            if connection.recv(1) == _SETTINGS:
                return None
        except TimeoutError:
            return endpoint.silent("after a connection")
        except OSError:  # it may have been TLS that broke it
            pass
    if not _speaks_tls(endpoint):
        return None
    return TlsError(
        f"{endpoint.where} speaks TLS, and url asks for a connection that is not"
        " encrypted: let it begin with grpcs://.",
        broker=endpoint.where,
    )


def _speaks_tls(endpoint: _Endpoint) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # nothing is sent
    context.verify_mode = ssl.CERT_NONE
    with endpoint.connect() as connection:
        try:
            with context.wrap_socket(connection):
                return True
        except OSError:
            return False


def _look_by_tls(endpoint: _Endpoint, roots: bytes) -> TransportError | None:
    where, context = endpoint.where, _context(roots)
    connection = endpoint.connect()
    try:
        with connection, context.wrap_socket(connection, server_hostname=endpoint.host):
            return None
    except ssl.SSLCertVerificationError as error:
        return TlsError(f"{where}: no safe connection. {_why(error)}", broker=where)
    except TimeoutError:
        return endpoint.silent("in a TLS handshake")
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
