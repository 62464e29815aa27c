# SPDX-License-Identifier: Apache-2.0
"""The options of TLS: whom to trust, and what to show.

They have a meaning where ``service.url`` begins with ``pulsar+ssl://``. What they name
is looked for on each node, when it connects.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from pulsar_spark.errors import OptionError, foreign_text
from pulsar_spark.options.given import Given
from pulsar_spark.options.secrets import Secret, secret
from pulsar_spark.options.service_url import parse_service_url
from pulsar_spark.options.spec import Scope, option
from pulsar_spark.options.values import boolean, plain_text

_CLIENT = "pulsar.client."

#: By these names, options that matter in errors elsewhere.
TRUST_CERTIFICATES = f"{_CLIENT}tlsTrustCertsFilePath"
CERTIFICATE = f"{_CLIENT}tlsCertificateFilePath"
KEY = f"{_CLIENT}tlsKeyFilePath"
INSECURE = f"{_CLIENT}tlsAllowInsecureConnection"
VERIFY_HOSTNAME = f"{_CLIENT}tlsHostnameVerificationEnable"
USE_TLS = f"{_CLIENT}useTls"
USE_KEY_STORES = f"{_CLIENT}useKeyStoreTls"
TRUST_STORE = f"{_CLIENT}tlsTrustStorePath"
TRUST_STORE_PASSWORD = f"{_CLIENT}tlsTrustStorePassword"
KEY_STORE = f"{_CLIENT}tlsKeyStorePath"
KEY_STORE_PASSWORD = f"{_CLIENT}tlsKeyStorePassword"
CIPHERS = f"{_CLIENT}tlsCiphers"
PROTOCOLS = f"{_CLIENT}tlsProtocols"
PROXY = f"{_CLIENT}proxyServiceUrl"
PROXY_PROTOCOL = f"{_CLIENT}proxyProtocol"


def conversion_of(path: str) -> str:
    """Return the command that makes a PKCS12 store of a JKS one."""
    return (
        f"keytool -importkeystore -srckeystore {foreign_text(path)} -destkeystore"
        " store.p12 -deststoretype PKCS12"
    )


def _store_type(text: str, option: str) -> str:
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


def _protocols(text: str, option: str) -> tuple[str, ...]:
    """Read versions of TLS; those before 1.2 are refused."""
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


def _ciphers(text: str, option: str) -> tuple[str, ...]:
    """Read names of cipher suites, by comma; Java's and OpenSSL's are taken."""
    names = _names(text)
    if not all(re.fullmatch(r"[A-Za-z0-9_-]+", name) for name in names):
        raise OptionError(
            f"{option} must be names of cipher suites by comma, such as"
            " TLS_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256."
        )
    return tuple(dict.fromkeys(name.upper() for name in names))


def _proxy_protocol(text: str, option: str) -> str:
    if text.strip().upper() != "SNI":
        raise OptionError(f"{option} must be SNI, not {foreign_text(text)!r}.")
    return "SNI"


def _proxy(text: str, option: str) -> str:
    """Read the address of a proxy, as ``host:port``."""
    url = parse_service_url(text, option)
    if not url.uses_tls or len(url.hosts) > 1:
        raise OptionError(
            f"{option} must be one proxy, such as pulsar+ssl://proxy:4443."
        )
    return url.hosts[0]


@dataclass(frozen=True)
class TlsOptions:
    """Whom to trust, and what to show. Paths are those of the node that connects."""

    use_tls: bool = option(
        USE_TLS,
        "false",
        boolean,
        Scope.CLIENT,
        "Only repeats what the scheme of `service.url` says: `true` with `pulsar://` is"
        " an error.",
    )
    trust_certificates_path: str | None = option(
        TRUST_CERTIFICATES,
        None,
        plain_text,
        Scope.CLIENT,
        "File with the certificates to trust, in PEM; by default those of the system."
        " See [TLS](security.md#tls).",
    )
    certificate_path: str | None = option(
        CERTIFICATE,
        None,
        plain_text,
        Scope.CLIENT,
        "File with the client's certificate, and those between it and its authority, in"
        " PEM.",
    )
    key_path: str | None = option(
        KEY,
        None,
        plain_text,
        Scope.CLIENT,
        "File with its private key, in PEM, without a password.",
    )
    allow_insecure: bool = option(
        INSECURE,
        "false",
        boolean,
        Scope.CLIENT,
        "Whether any broker is trusted, whatever certificate it shows. For tests only:"
        " anybody in between can read and change all.",
    )
    verify_hostname: bool = option(
        VERIFY_HOSTNAME,
        "true",
        boolean,
        Scope.CLIENT,
        "Whether a broker's certificate must be for the host that was asked for.",
    )
    use_key_stores: bool = option(
        USE_KEY_STORES,
        "false",
        boolean,
        Scope.CLIENT,
        "Whether the stores below are used instead of files in PEM. Needs"
        " `pip install 'pulsar-spark[security]'`.",
    )
    trust_store_type: str = option(
        f"{_CLIENT}tlsTrustStoreType",
        "PKCS12",
        _store_type,
        Scope.CLIENT,
        "`PKCS12`. One of type `JKS` has to be converted.",
    )
    trust_store_path: str | None = option(
        TRUST_STORE,
        None,
        plain_text,
        Scope.CLIENT,
        "Store with the certificates to trust; by default those of the system.",
    )
    trust_store_password: Secret | None = option(
        TRUST_STORE_PASSWORD,
        None,
        secret,
        Scope.CLIENT,
        "Its password: itself, `file:/path` or `env:NAME`.",
    )
    key_store_type: str = option(
        f"{_CLIENT}tlsKeyStoreType",
        "PKCS12",
        _store_type,
        Scope.CLIENT,
        "As `tlsTrustStoreType`.",
    )
    key_store_path: str | None = option(
        KEY_STORE,
        None,
        plain_text,
        Scope.CLIENT,
        "Store with the client's certificate and its private key.",
    )
    key_store_password: Secret | None = option(
        KEY_STORE_PASSWORD,
        None,
        secret,
        Scope.CLIENT,
        "Its password: itself, `file:/path` or `env:NAME`.",
    )
    ciphers: tuple[str, ...] | None = option(
        CIPHERS,
        None,
        _ciphers,
        Scope.CLIENT,
        "Cipher suites that may be used, by comma, in the spelling of Java or OpenSSL;"
        " by default those that the system's OpenSSL holds safe.",
    )
    protocols: tuple[str, ...] = option(
        PROTOCOLS,
        "TLSv1.2,TLSv1.3",
        _protocols,
        Scope.CLIENT,
        "Versions of TLS that may be used, by comma. None before 1.2 ever is.",
    )

    proxy: str | None = option(
        PROXY,
        None,
        _proxy,
        Scope.CLIENT,
        "`pulsar+ssl://host:port` of a proxy that all connections go through, to"
        " brokers that it knows by the name in TLS (SNI).",
    )
    proxy_protocol: str = option(
        PROXY_PROTOCOL,
        "SNI",
        _proxy_protocol,
        Scope.CLIENT,
        "`SNI`: how the proxy knows the broker.",
    )

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the files that a connection depends on."""
        passwords = (self.trust_store_password, self.key_store_password)
        named = (
            self.trust_certificates_path,
            self.certificate_path,
            self.key_path,
            self.trust_store_path,
            self.key_store_path,
            *(password.path for password in passwords if password is not None),
        )
        return tuple(path for path in named if path is not None)


#: Options that ask for TLS: without it they would be dropped in silence.
_NEED_TLS = (
    TRUST_CERTIFICATES,
    CERTIFICATE,
    KEY,
    TRUST_STORE,
    TRUST_STORE_PASSWORD,
    KEY_STORE,
    KEY_STORE_PASSWORD,
    CIPHERS,
    PROTOCOLS,
    PROXY,
    PROXY_PROTOCOL,
)
_OF_PEM = (TRUST_CERTIFICATES, CERTIFICATE, KEY)
_OF_STORES = (TRUST_STORE, TRUST_STORE_PASSWORD, KEY_STORE, KEY_STORE_PASSWORD)


def tls_options(given: Given, *, uses_tls: bool) -> TlsOptions:
    """Make the options of TLS, adding problems to those of `given`.

    Args:
        given: The options given.
        uses_tls: Whether the service URL asks for TLS.
    """
    tls = given.fill(TlsOptions)
    if not uses_tls:
        asked = [name for name in _NEED_TLS if name in given]
        asked += [
            name
            for name, is_on in (
                (USE_TLS, tls.use_tls),
                (USE_KEY_STORES, tls.use_key_stores),
            )
            if is_on
        ]
        if asked:
            given.problems.append(
                f"{_list(asked)} would have no effect, because service.url begins with"
                " pulsar://, which is without TLS. Begin it with pulsar+ssl://; the"
                " port is usually 6651."
            )
        return tls
    surplus = [n for n in (_OF_PEM if tls.use_key_stores else _OF_STORES) if n in given]
    if surplus and tls.use_key_stores:
        given.problems.append(
            f"{_list(surplus)} cannot be set beside {USE_KEY_STORES}=true: name"
            f" {TRUST_STORE} and {KEY_STORE} instead."
        )
    elif surplus:
        given.problems.append(f"{_list(surplus)} needs {USE_KEY_STORES}=true.")
    elif KEY in given and CERTIFICATE not in given:
        given.problems.append(f"{KEY} needs {CERTIFICATE}, whose private key it is.")
    # What the scheme says counts, so that connections are shared whether or not an
    # option repeats it.
    return replace(tls, use_tls=True)


def _list(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
